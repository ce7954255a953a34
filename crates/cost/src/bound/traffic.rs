//! Bytes off chip that no mapping of a section moves less of: the floors of its boxes, counted in bytes.

use rdusim_base::interrupt;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::SectionGraph;

use super::nests::NestBox;
use super::section::{Counted, SectionBound};
use super::stage::MaskFloors;

/// The least bytes that memory moves for a section, of all tiers and in any nest; `None` if the operators cannot share a section or
/// no nest of theirs can be.
pub(crate) fn least_bytes(
    chip: &Chip,
    workload: &Workload,
    tiers: &[TierId],
    masks: &mut MaskFloors,
    operators: &[OperatorId],
) -> Option<u64> {
    let graph = SectionGraph::new(workload, operators, operators.len() > 1)?;
    let chip = &*chip.in_section(graph.largest_off_chip_bytes());
    let section = SectionBound::new(chip, &graph, tiers, masks)?.counting(Counted::BytesOffChip);
    let of_box = |of: NestBox| {
        interrupt::check();
        section.floor(&of)
    };
    NestBox::all(&graph).into_iter().filter_map(of_box).map(|floor| floor.alone).min()
}
