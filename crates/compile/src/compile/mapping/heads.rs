//! GEMMs with heads: one small product for every head, side by side in a row of the activations.
//!
//! PCU columns are dealt to heads. `streams` heads are worked on at a time, each on `pn / streams` columns that take
//! that head's part of the activations; the heads left come after one another. All columns run in lockstep.

use rdusim_cost::cost::{heads_footprint, heads_work};
use rdusim_program::{GemmMapping, HeadsTile, Mapping, Reduction, Style};

use super::allocate::useful_splits;
use super::front::{CandidateIndex, Cycles, Offers, Source};
use super::stage_context::StageContext;

/// Offers the mappings of a stage with heads; `tiles` are its products in each column tile, the widest first.
pub(super) fn heads_mappings(at: &StageContext<'_>, tiles: &[HeadsTile], offer: &mut impl Offers) -> Source {
    let &StageContext { chip, graph, bases, nest, stage, .. } = at;
    let [HeadsTile { form, .. }, others @ ..] = tiles else { return Source::default() };
    let duty_factor = at.duty_factor();
    let (full_row_tiles, last_rows) = at.row_tiles();
    let mut list = Vec::new();
    for rows_on_lanes in [false, true] {
        let Some(shape) = bases.tables.shape(stage, rows_on_lanes) else { continue };
        // Heads that share keys and values go to one stream: what they share is on chip once.
        for streams in useful_splits(form.b_heads, chip.pcus()) {
            for each in useful_splits(form.n.div_ceil(shape.column_grain), chip.pcus() / streams) {
                let pn = streams * each;
                let style = Style::Skip;
                let mapping = GemmMapping {
                    rows_on_lanes,
                    pm: 1,
                    pn,
                    pk: 1,
                    reduction: Reduction::Chain,
                    multicast_width: pn,
                    streams,
                    aligned: false,
                    style,
                };
                let cycles = |tile: &HeadsTile| heads_work(tile, &shape, &mapping, nest.tile_rows).cycles;
                // All column tiles but the last are equal.
                let last = others.last().map_or(0, cycles);
                let of_pass =
                    cycles(&tiles[0]).saturating_mul(tiles.len() as u64 - u64::from(!others.is_empty())) + last;
                let footprint = heads_footprint(graph, stage, form, &shape, &mapping, nest.tile_rows);
                let of = list.len() as u32;
                list.push((Mapping::Gemm(mapping), footprint));
                for pm in useful_splits(nest.tile_rows.div_ceil(shape.row_grain), chip.pcus() / pn) {
                    let last_passes = if last_rows == 0 { 0 } else { shape.passes(last_rows, pm) };
                    let passes = full_row_tiles * shape.passes(nest.tile_rows, pm) + last_passes;
                    let (pcus, cycles) = (pm * pn, of_pass.saturating_mul(passes).saturating_mul(duty_factor));
                    offer.offer(pcus, Cycles::worked(cycles), 1, CandidateIndex { row_slices: pm as u32, of });
                }
            }
        }
    }
    Source::Own(list.into())
}
