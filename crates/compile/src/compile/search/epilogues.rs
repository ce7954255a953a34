//! Kernels with epilogues as sections.
//!
//! Which operators share a section follows from the graph alone ([`kernels_with_epilogues`]); how a section is mapped is
//! searched as of any other, and what other modes have planned or measured is used again. Where the chip cannot hold a
//! GEMM with its whole epilogue, the last operators of the epilogue run alone: as many as it takes.

use rdusim_graph::workload::{OperatorId, kernels_with_epilogues};

use super::canonical::CanonicalForms;
use super::context::SearchContext;
use super::evaluated::EvaluationLevel;
use super::partition::{Partitioner, Unplannable};
use super::runs::Run;

/// Why there is no partition into kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NoKernels {
    /// An operator that cannot be planned alone.
    Unplannable(Unplannable),
    /// A run of one operator that cannot be placed.
    Unplaced(usize),
}

impl Partitioner<'_> {
    /// The runs of every kernel, in order, placed and routed. No search over partitions may follow: the runs that are added
    /// here stand outside the order of operators.
    pub(crate) fn with_epilogues(&mut self, context: &SearchContext<'_>) -> Result<Vec<usize>, NoKernels> {
        let canonical = CanonicalForms::new(self.workload, context.tiers);
        let singles = self.singles();
        let mut kernels = kernels_with_epilogues(self.workload);
        let mut chosen = Vec::with_capacity(kernels.len());
        while !kernels.is_empty() {
            let runs: Vec<usize> =
                kernels.iter().map(|kernel| self.run_of(context, &canonical, &singles, kernel)).collect();
            let mut unplanned = runs.clone();
            self.keep_unplanned(&mut unplanned);
            self.plan_runs(context, &unplanned).map_err(NoKernels::Unplannable)?;
            self.route(&runs, EvaluationLevel::Full, context);
            let mut shorter = Vec::new();
            for (kernel, run) in kernels.iter().zip(runs) {
                match kernel.split_last() {
                    _ if self.is_routed(run) => chosen.push(run),
                    Some((&last, rest)) if !rest.is_empty() => shorter.extend([rest.to_vec(), vec![last]]),
                    _ => return Err(NoKernels::Unplaced(run)),
                }
            }
            kernels = shorter;
        }
        // A GEMM stands before its epilogue, and all that the epilogue reads is made before the GEMM.
        chosen.sort_by_key(|&run| self.runs[run].operators[0]);
        Ok(chosen)
    }

    /// The run of a kernel: that of its operators if there is one, else a new one.
    fn run_of(
        &mut self,
        context: &SearchContext<'_>,
        canonical: &CanonicalForms<'_>,
        singles: &[usize],
        kernel: &[OperatorId],
    ) -> usize {
        if let [op] = kernel
            && let Ok(at) = singles.binary_search_by_key(op, |&run| self.runs[run].operators[0])
        {
            return singles[at];
        }
        let is_kernel = |run: &Run| run.operators == kernel && run.split_off.is_empty();
        if let Some(known) = self.runs.iter().position(is_kernel) {
            return known;
        }
        let run = Run { span: (0, 0), operators: kernel.to_vec(), split_off: Vec::new(), class: 0, is_block: false };
        self.add(context, canonical, run)
    }
}
