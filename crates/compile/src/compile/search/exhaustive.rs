//! Every mapping of a small graph, measured: what the search is compared with.

use crate::compile::mapping::allocate::useful_splits;
use crate::compile::mapping::bases::CandidateRequest;
use crate::compile::mapping::candidates::stage_mappings;
use crate::compile::mapping::front::{All, Candidate};
use crate::compile::mapping::roles::StageRoles;
use crate::compile::mapping::stage_context::StageContext;
use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::assemble;
use crate::compile::physical::route::Negotiation;
use rdusim_base::index::{Id, IndexVec};
use rdusim_cost::cost::least_memory_cycles;
use rdusim_engines::sim::Measurement;
use rdusim_graph::workload::OperatorId;
use rdusim_program::{LoopOrder, Nest, SectionGraph, StageId, TiledAxis};

use super::context::SearchContext;
use super::space::{Choice, SectionSearch};

/// What the enumeration found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// Cycles of the best partition into sections, each mapped best.
    pub cycles: u64,
    /// Mappings in the space.
    pub mappings: u64,
    /// Mappings, each with every choice of what stays on the chip, that were placed, routed and measured; the others cannot beat one
    /// of these.
    pub measured: u64,
}

/// Measures every mapping of `workload`: every partition of its topological order into sections; every number of
/// row tiles and of column tiles of every axis, every loop order and residency; every useful split of rows and columns over PCUs,
/// either way round, in every allocation of the chip's PCUs to stages. Row blocks are as long as memory allows. What
/// needs more cycles of its busiest stage, or of memory, than a mapping already measured takes is not measured.
///
/// `None` if the space has more than `most` mappings, or no mapping.
pub(crate) fn exhaust(context: &SearchContext<'_>, most: u64) -> Option<Exhausted> {
    let SearchContext { chip, workload, tiers, bases, .. } = *context;
    let operators: Vec<OperatorId> = workload.operators.ids().collect();
    let n = operators.len();
    let mut total = Exhausted { cycles: 0, mappings: 0, measured: 0 };
    let mut least: Vec<Option<u64>> = vec![None; n + 1];
    least[0] = Some(0);
    for from in 0..n {
        let Some(before) = least[from] else { continue };
        for to in from + 1..=n {
            let Some(graph) = SectionGraph::new(workload, &operators[from..to], to - from > 1) else { continue };
            let search = SectionSearch { chip, graph: &graph, tiers, cache: bases };
            let mut every = Every { context, search, best: u64::MAX, found: total, most };
            every.all()?;
            total = every.found;
            if every.best < u64::MAX {
                let now = before.saturating_add(every.best);
                least[to] = Some(least[to].map_or(now, |least| least.min(now)));
            }
        }
    }
    total.cycles = least[n]?;
    Some(total)
}

struct Every<'a> {
    context: &'a SearchContext<'a>,
    search: SectionSearch<'a>,
    /// Cycles of the best so far.
    best: u64,
    found: Exhausted,
    most: u64,
}

impl Every<'_> {
    /// Every nest; `None` if the space is too large.
    fn all(&mut self) -> Option<()> {
        let graph = self.search.graph;
        let mut cuts = vec![None];
        for (axis, along) in graph.axes.iter().enumerate().filter(|_| graph.sequences() == 1) {
            for width in useful_splits(along.extent, along.extent) {
                let cut = TiledAxis::new(axis, along.extent, width.next_multiple_of(along.grain));
                if cut.tile < cut.extent && !cuts.contains(&Some(cut)) {
                    cuts.push(Some(cut));
                }
            }
        }
        for cut in cuts {
            for tile_rows in useful_splits(graph.rows, graph.rows) {
                for order in [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter] {
                    if cut.is_some() || order == LoopOrder::ColumnTileOuter {
                        self.nest(cut, tile_rows, order)?;
                    }
                }
            }
        }
        Some(())
    }

    fn nest(&mut self, tiled_axis: Option<TiledAxis>, tile_rows: u64, order: LoopOrder) -> Option<()> {
        let SectionSearch { chip, graph, .. } = self.search;
        let block_tiles = (graph.rows / graph.sequences()).div_ceil(tile_rows);
        let mut nest = Nest { rows: graph.rows, tile_rows, block_tiles, tiled_axis, order };
        if !graph.keeps_statistics(&nest) {
            if graph.sequences() > 1 {
                return Some(());
            }
            nest.block_tiles = 1;
        }
        let roles = StageRoles::new(graph, &nest);
        if !roles.is_one_pass() || !graph.rows.is_multiple_of(graph.sequences() * tile_rows) && graph.sequences() > 1 {
            return Some(());
        }
        let bases = self.search.bases(tiled_axis);
        let of_stage = |stage| {
            let at = StageContext { chip, graph, bases: &bases, nest: &nest, roles: &roles, stage };
            let mut all = All::default();
            let source = stage_mappings(&at, CandidateRequest::ALL, &mut all);
            all.finish(source, at.duty_factor())
        };
        let stages: IndexVec<StageId, Vec<Candidate>> = graph.stages.ids().map(of_stage).collect();
        self.allocations(&nest, &roles, &stages, &mut IndexVec::new(), chip.pcus())
    }

    /// Every choice of a mapping for the stages that `picked` leaves, on `pcus` PCUs.
    fn allocations(
        &mut self,
        nest: &Nest,
        roles: &StageRoles,
        stages: &IndexVec<StageId, Vec<Candidate>>,
        picked: &mut IndexVec<StageId, Candidate>,
        pcus: u64,
    ) -> Option<()> {
        let Some(of_stage) = stages.get(StageId::from_index(picked.len())) else {
            return self.measure(nest, roles, picked);
        };
        for candidate in of_stage.iter().filter(|candidate| candidate.pcus <= pcus) {
            picked.push(*candidate);
            self.allocations(nest, roles, stages, picked, pcus - candidate.pcus)?;
            picked.pop();
        }
        Some(())
    }

    fn measure(&mut self, nest: &Nest, roles: &StageRoles, picked: &IndexVec<StageId, Candidate>) -> Option<()> {
        let SectionSearch { chip, graph, tiers, .. } = self.search;
        self.found.mappings += 1;
        if self.found.mappings > self.most {
            return None;
        }
        // Before the buffers are worked out, which takes longer.
        let work = picked.iter().map(Candidate::worked_cycles).max().unwrap_or(0);
        if chip.launch_cycles() + work.max(least_memory_cycles(chip, graph, tiers)) >= self.best {
            return Some(());
        }
        let mut choices: Vec<Choice> = Vec::new();
        self.search.residencies(*nest, roles, picked, &mut |choice| choices.push(choice));
        for choice in choices {
            if choice.estimate.least_cycles >= self.best {
                continue;
            }
            let plan = choice.plan(chip, graph);
            let Ok((section, _)) = assemble(chip, self.context.fabric, graph, &plan, tiers, Negotiation::WHOLE, &[])
            else {
                continue;
            };
            self.found.measured += 1;
            if let Measurement::Takes(cycles, _) =
                self.context.measure(&section, self.best, PARAMS.evaluation.normal.work)
            {
                self.best = self.best.min(cycles);
            }
        }
        Some(())
    }
}
