//! The collectives of a unit whose weights or gradients lie on the replicas in parts: their sizes, and what host and chip do for each.
//!
//! A unit has one collective each way, or one for each of its parameters, as the stack says. What is scattered adds up to the unit's
//! parameters, what is gathered to those that are not persistent; of layers that are computed again, the backward pass gathers once more
//! what is read too much later to stay. The lists of tensors and the distance between two reads are those of `DeepSpeed`'s `ZeRO`-3 of
//! 2021 (`partition_parameters.py` and `stage3.py` of its release 0.3), one collective a layer that of `PyTorch` FSDP (Zhao et al., 2023).

use super::collective::CollectiveKind;
use super::optimizer::matrices;
use super::parallel::{Job, Recompute};
use super::system::{Sharding, Stack, System};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::Gpu;
use rdusim_machines::gpu::{KernelCall, kernel_cost};
use rdusim_models::model::Norm;

/// Kinds of units: their index among the collectives of a stream.
pub(super) const LAYER: usize = 0;
pub(super) const EMBEDDING: usize = 1;
pub(super) const LOGITS: usize = 2;
/// A layer with experts.
pub(super) const EXPERTS: usize = 3;
/// How many kinds there are.
const KINDS: usize = 4;
/// What is added to a kind for the gathers of its backward pass.
pub(super) const BACKWARD: usize = KINDS;

/// A collective of a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UnitCall {
    /// Parameters whose weights or gradients it moves, and the bytes of all of them.
    pub parameters: u64,
    pub bytes: u64,
    /// Whether the chips that have the same experts do it, not all replicas.
    pub of_holders: bool,
    /// Seconds of the host and of copies on the chip beside the collective itself.
    pub beside_s: f64,
}

/// The collectives of all kinds of units of a job, those of a unit one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitCalls {
    /// Of gathers: by kind for the forward pass, then by kind for the backward pass.
    pub gathers: [Vec<UnitCall>; 2 * KINDS],
    /// Of scatters, by kind.
    pub scatters: [Vec<UnitCall>; KINDS],
}

impl UnitCalls {
    /// The collectives of a job on a system; none where nothing lies on the replicas in parts.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub(super) fn new(system: &System, stack: &Stack, job: &Job) -> Result<Self, Diagnostic> {
        let mut all = Self::default();
        if !job.parallel.shards_passes() {
            return Ok(all);
        }
        let gpu = system.chip.gpu();
        let by_parameter = stack.kind.shards_by_parameter() && job.parallel.zero >= 3;
        let of_gradient = job.gradients().bytes();
        let maker = Maker { gpu, sharding: stack.sharding, job, by_parameter, of_gradient };
        for unit in 0..KINDS {
            let [list, experts] = maker.parameters(unit);
            all.scatters[unit] = maker.calls(CollectiveKind::ReduceScatter, &list, &experts)?;
            let list: Vec<u64> = list.into_iter().filter(|count| maker.is_gathered(*count)).collect();
            all.gathers[unit] = maker.calls(CollectiveKind::AllGather, &list, &experts)?;
            let backward = [&list[..], &maker.read_late(unit, &list)].concat();
            all.gathers[unit + BACKWARD] = maker.calls(CollectiveKind::AllGather, &backward, &experts)?;
        }
        Ok(all)
    }
}

struct Maker<'m> {
    gpu: Option<&'m Gpu>,
    sharding: Sharding,
    job: &'m Job,
    /// Whether every parameter has collectives of its own.
    by_parameter: bool,
    /// Bytes of a gradient.
    of_gradient: u64,
}

impl Maker<'_> {
    /// The sizes of what has a collective of its own: of what every replica has, in the order of a forward pass, and of experts.
    fn parameters(&self, unit: usize) -> [Vec<u64>; 2] {
        let job = self.job;
        match unit {
            LAYER if self.by_parameter => [layer_tensors(job), Vec::new()],
            LAYER => [vec![job.layer_parameters()], Vec::new()],
            EMBEDDING => [vec![job.embedding_parameters()], Vec::new()],
            LOGITS => [vec![job.logits_parameters()], Vec::new()],
            EXPERTS => {
                let [all, experts] = job.expert_layer_parameters();
                [vec![all], if experts > 0 && job.holders() > 1 { vec![experts] } else { Vec::new() }]
            }
            _ => [Vec::new(), Vec::new()],
        }
    }

    fn is_gathered(&self, parameters: u64) -> bool {
        !self.by_parameter || parameters > self.sharding.persistent_parameters
    }

    /// Of a layer that is computed again, the parameters that are given up before their second read in the backward pass: from the first
    /// read on, they themselves and twice all that follow them are read.
    fn read_late(&self, unit: usize, list: &[u64]) -> Vec<u64> {
        if !self.by_parameter || unit != LAYER || self.job.parallel.recompute != Recompute::Full {
            return Vec::new();
        }
        let distance = |at: usize| list[at] + 2 * list[at + 1..].iter().sum::<u64>();
        (0..list.len()).filter(|at| distance(*at) >= self.sharding.reuse_parameters).map(|at| list[at]).collect()
    }

    fn calls(&self, kind: CollectiveKind, list: &[u64], experts: &[u64]) -> Result<Vec<UnitCall>, Diagnostic> {
        let mut calls = Vec::with_capacity(list.len() + experts.len());
        for (of_holders, sizes) in [(false, list), (true, experts)] {
            let ranks = if of_holders { self.job.holders() } else { self.job.parallel.replicas() };
            for &parameters in sizes {
                let beside_s = self.beside(kind, parameters, ranks)?;
                let each = if kind == CollectiveKind::AllGather { 2 } else { self.of_gradient };
                calls.push(UnitCall { parameters, bytes: each * parameters, of_holders, beside_s });
            }
        }
        Ok(calls)
    }

    /// Seconds that a collective takes beside its own: the host makes a list with a tensor of each rank. A gather fills the whole with
    /// zeros before it, and copies each rank's part to its place behind it; before a scatter the host launches the copy of each part,
    /// and the copies run as they are launched.
    fn beside(&self, kind: CollectiveKind, parameters: u64, ranks: u64) -> Result<f64, Diagnostic> {
        let is_gather = kind == CollectiveKind::AllGather;
        let rank_us = if is_gather { self.sharding.gather_rank_us } else { self.sharding.scatter_rank_us };
        if rank_us <= 0.0 || !self.by_parameter {
            return Ok(0.0);
        }
        let each = if is_gather { 2 } else { self.of_gradient };
        let (host, whole) = (ranks as f64 * rank_us / 1e6, (each * parameters) as f64);
        let Some(gpu) = self.gpu else { return Ok(host) };
        let stream = |bytes: f64| -> Result<f64, Diagnostic> {
            let call = KernelCall::Stream { bytes, operations: 0.0 };
            Ok(kernel_cost(gpu, &call)?.seconds + gpu.launch.gap_us / 1e6)
        };
        // Each copy reads and writes a rank's part.
        let copies = stream(2.0 * whole / ranks as f64)? * ranks as f64;
        Ok(if is_gather { host + stream(whole)? + copies } else { host.max(copies) })
    }
}

/// Elements of each parameter of a layer without experts on a chip, in the order of a forward pass.
fn layer_tensors(job: &Job) -> Vec<u64> {
    let (a, t) = (&job.architecture, job.parallel.tp);
    let norm = if a.norm == Norm::Layer { vec![a.hidden; 2] } else { vec![a.hidden] };
    let columns = [(a.query_width() + 2 * a.kv_width()) / t, a.hidden, a.feed_forward / t, a.hidden];
    let mut list = Vec::new();
    for (at, ((rows, wide), biases)) in matrices(job).into_iter().zip(columns).enumerate() {
        if at.is_multiple_of(2) {
            list.extend_from_slice(&norm);
        }
        list.push(rows * wide);
        if a.bias || a.extras.attention_bias && at == 0 {
            list.push(biases);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::parallel::Parallel;
    use super::super::system::StackKind;
    use super::*;
    use crate::dgx_a100;
    use rdusim_models::model::{ExpertLoad, preset};

    fn gpt3(parallel: &str) -> Job {
        let (architecture, sequence) = preset("gpt3-175b").expect("a preset");
        Job {
            model: "gpt3-175b".into(),
            architecture,
            parallel: Parallel::parse(parallel).expect("a decomposition"),
            batch: 1536,
            micro_batch: 1,
            sequence,
            density: None,
            predicted: None,
            stage_layers: None,
            expert_load: ExpertLoad::default(),
        }
    }

    fn calls(kind: StackKind, parallel: &str) -> UnitCalls {
        let system = dgx_a100(&[]).expect("the shipped system");
        let stack = system.stacks.iter().find(|stack| stack.kind == kind).expect("a stack");
        UnitCalls::new(&system, stack, &gpt3(parallel)).expect("calls")
    }

    fn sizes(list: &[UnitCall]) -> Vec<u64> {
        list.iter().map(|call| call.parameters).collect()
    }

    /// A layer of GPT-3: matrices of 3, 1, 4 and 4 times 12,288^2. Biases and norms have fewer than 100,000 elements. From a read of the
    /// last matrix to its next 4 h^2 = 604 M parameters are read, of the third 12 h^2 = 1,812 M, of which at most 10^9 may be.
    #[test]
    fn a_parameter_is_gathered_again_unless_it_is_small_or_read_soon() {
        let h = 12_288_u64;
        let of = calls(StackKind::Megatron, "dp=384,zero=3,recompute=full");
        let matrices = [3, 1, 4, 4].map(|times| times * h * h);
        assert_eq!(sizes(&of.gathers[LAYER]), matrices);
        assert_eq!(sizes(&of.gathers[LAYER + BACKWARD]), [&matrices[..], &matrices[..3]].concat());
        // Two norms of a scale and a shift, four biases: all are scattered.
        let scattered = [&[h, h][..], &[3 * h * h, 3 * h, h * h, h, h, h, 4 * h * h, 4 * h, 4 * h * h, h]].concat();
        assert_eq!(sizes(&of.scatters[LAYER]), scattered);
        assert_eq!(scattered.iter().sum::<u64>(), gpt3("dp=384,zero=3").layer_parameters());
        // Without recomputation once each pass; a stack of units has one collective of all.
        assert_eq!(sizes(&calls(StackKind::Megatron, "dp=384,zero=3").gathers[LAYER + BACKWARD]), matrices);
        let of = calls(StackKind::Flash, "dp=384,zero=3,recompute=full");
        let layer = [gpt3("dp=384,zero=3").layer_parameters()];
        for list in [&of.gathers[LAYER], &of.gathers[LAYER + BACKWARD], &of.scatters[LAYER]] {
            assert_eq!((sizes(list), list[0].beside_s), (layer.to_vec(), 0.0));
        }
    }

    /// 384 tensors of 11 us before the scatter of a bias, whose copies are shorter; twice the ranks take twice as long.
    #[test]
    fn lists_take_the_host_for_every_rank() {
        let beside = |dp: u64| calls(StackKind::Megatron, &format!("dp={dp},zero=3")).scatters[LAYER][0].beside_s;
        assert!((beside(384) - 384.0 * 11e-6).abs() < 1e-9, "{}", beside(384));
        assert!((beside(768) / beside(384) - 2.0).abs() < 1e-9);
        // A gather of a matrix: 2.5 us a rank, and 2 + 4 bytes an element over memory at no more than 1,800 GB/s.
        let of = calls(StackKind::Megatron, "dp=384,zero=3");
        let call = of.gathers[LAYER][2];
        assert!(call.beside_s > 384.0 * 2.5e-6 + 6.0 * call.parameters as f64 / 1.8e12, "{}", call.beside_s);
        // No lists from ZeRO-2 down.
        assert!(calls(StackKind::Megatron, "dp=384,zero=2").scatters[LAYER][0].beside_s <= 0.0);
    }
}
