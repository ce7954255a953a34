//! The least SRAM at which an operator that does not fit would: a plan of it on chips whose PMUs are larger, and what that holds.

use indexmap::IndexMap;
use rdusim_base::units::ByteSize;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::{BufferRole, BufferSpec, SectionGraph, tensor_tiers};

use super::plan::{NoPlan, outline};
use super::space::{Choice, SectionSearch};
use crate::compile::mapping::bases::BaseCache;

/// Bytes of one PMU beyond which none is looked for: no chip file may say more.
const MOST_CAPACITY: u64 = 1 << 40;

/// Where an operator fits.
pub(crate) struct LeastRoom {
    /// Bytes of one PMU from which on a plan fits, in whole banks: what `pmu.capacity_bytes` must be.
    pub capacity_bytes: u64,
    /// Bytes of all PMUs then.
    pub sram_bytes: u64,
    /// What the smallest plan there holds, most first: in words, with its bytes in whole banks.
    pub held: Vec<(String, u64)>,
}

impl LeastRoom {
    /// What is held, in a line.
    pub(crate) fn told(&self) -> String {
        let parts = self.held.iter().map(|(what, bytes)| format!("{what} {}", ByteSize(*bytes)));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Of an operator that needs `needed_bytes` at the least and does not fit; `None` where larger PMUs alone do not mend it.
    pub(crate) fn of(chip: &Chip, workload: &Workload, operator: OperatorId, needed_bytes: u64) -> Option<Self> {
        let graph = SectionGraph::new(workload, &[operator], false)?;
        let tiers = tensor_tiers(chip, workload).ok()?;
        let banks = chip.pmu.banks.max(1);
        let planned = |capacity_bytes: u64| {
            let mut grown = chip.clone();
            grown.pmu.capacity_bytes = capacity_bytes;
            let grown = grown.in_section(graph.largest_off_chip_bytes()).into_owned();
            let bases = BaseCache::default();
            let search = SectionSearch { chip: &grown, graph: &graph, tiers: &tiers, cache: &bases };
            let buffers = |choice: Choice| choice.plan(&grown, &graph).buffers.into_iter().collect();
            let banks = |buffers: &Vec<BufferSpec>| buffers.iter().map(|of| of.total_banks(&grown)).sum::<u64>();
            let smallest = outline(&search)?.into_iter().map(buffers).min_by_key(banks).unwrap_or_default();
            Ok(Self { capacity_bytes, sram_bytes: grown.sram_bytes(), held: held(&grown, workload, &graph, &smallest) })
        };
        // An exponential search, and bisection down to a step of all banks.
        let whole_banks = |bytes: u64| bytes.div_ceil(banks).saturating_mul(banks);
        let mut too_small = chip.pmu.capacity_bytes;
        let mut capacity = whole_banks(needed_bytes.div_ceil(chip.pmus().max(1)).max(too_small + 1));
        let mut found = loop {
            if capacity > MOST_CAPACITY {
                return None;
            }
            match planned(capacity) {
                Ok(found) => break found,
                Err(NoPlan::Sram(_)) => too_small = capacity,
                Err(NoPlan::Dtype(_) | NoPlan::Pcus(_)) => return None,
            }
            capacity *= 2;
        };
        while found.capacity_bytes - too_small > banks {
            let middle = whole_banks(too_small + (found.capacity_bytes - too_small) / 2);
            if middle >= found.capacity_bytes {
                break;
            }
            match planned(middle) {
                Ok(less) => found = less,
                Err(_) => too_small = middle,
            }
        }
        Some(found)
    }
}

/// What buffers hold, most first.
fn held(chip: &Chip, workload: &Workload, graph: &SectionGraph<'_>, buffers: &[BufferSpec]) -> Vec<(String, u64)> {
    let name = |tensor| &workload.tensors[tensor].name;
    let what = |role: BufferRole| match role {
        BufferRole::Operand { tensor, .. } | BufferRole::Resident { tensor, .. } => {
            format!("row tiles of `{}`", name(tensor))
        }
        BufferRole::Weight { tensor, .. } => format!("the second operand `{}`", name(tensor)),
        BufferRole::PartialSums { stage } | BufferRole::PartialFifo { stage, .. } => {
            format!("fp32 sums of `{}`", name(graph.stages[stage].output))
        }
        BufferRole::State { tensor, .. } => format!("the state `{}`", name(tensor)),
        BufferRole::Output { tensor, .. } => format!("results `{}`", name(tensor)),
    };
    let mut held: IndexMap<String, u64> = IndexMap::new();
    for of in buffers {
        *held.entry(what(of.role)).or_default() += of.total_banks(chip) * chip.pmu.bank_bytes();
    }
    let mut held: Vec<(String, u64)> = held.into_iter().collect();
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    held
}
