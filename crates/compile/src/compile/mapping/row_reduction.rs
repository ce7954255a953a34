//! GEMMs that add up over the rows a section streams: the gradient of a weight, X^T dY, and of keys and values, head by
//! head. Such a stage takes the row tiles of X and dY that other stages work on, keeps its sums in PMUs, and its result
//! leaves when the last row has passed: of the section, or of a sequence.

use rdusim_cost::cost::{Reducer, SystolicShape, reducer_footprint};
use rdusim_graph::arch::Chip;
use rdusim_program::{GemmMapping, RowTile, SectionGraph, StageId, TiledAxis};

use super::allocate::useful_splits;
use super::base::SumsBase;

/// The useful mappings of a stage that adds up, for one cut; `tile_rows` matters to causal attention only.
pub(crate) fn sums_bases(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    tiled_axis: Option<TiledAxis>,
    stage: StageId,
    tile_rows: u64,
    shape: impl Fn(bool) -> Option<SystolicShape>,
) -> Vec<SumsBase> {
    let heads = graph.form(stage).map_or(1, |form| form.heads);
    let most = if heads > 1 { chip.pcus() } else { chip.pcus_per_operator() };
    let mut list = Vec::new();
    for rows_on_lanes in [false, true] {
        let Some(shape) = shape(rows_on_lanes) else { continue };
        // The least tiles of each number of PCUs.
        let mut least: Vec<Option<SumsBase>> = vec![None; most as usize + 1];
        let one = GemmMapping { rows_on_lanes, ..GemmMapping::ONE_PCU };
        let alone = |mapping| Reducer::new(graph, tiled_axis, tile_rows, stage, &mapping, &shape);
        let Some(whole) = alone(one) else { continue };
        let (row_splits, column_splits) = whole.most_splits();
        let column_tiles = tiled_axis.filter(|_| whole.is_cut()).map_or(1, |cut| cut.extent.div_ceil(cut.tile));
        for streams in useful_splits(heads, most) {
            for each in useful_splits(column_splits / heads, most / streams) {
                let pn = streams * each;
                for pm in useful_splits(row_splits, most / pn) {
                    let mapping = GemmMapping { pm, pn, multicast_width: pn, streams, ..one };
                    let Some(reducer) = alone(mapping) else { continue };
                    let of = |column_tile| {
                        reducer.passes(column_tile, RowTile::mean(tile_rows)) * reducer.tiles(column_tile)
                    };
                    // All column tiles but the last are equal.
                    let tiles = of(0).saturating_mul(column_tiles - 1).saturating_add(of(column_tiles - 1));
                    let slot = &mut least[(pm * pn) as usize];
                    if slot.is_none_or(|base| tiles < base.tiles) {
                        *slot = Some(SumsBase { mapping, tiles, footprint: reducer_footprint(&reducer, &shape) });
                    }
                }
            }
        }
        let mut fewest = u64::MAX;
        list.extend(least.into_iter().flatten().filter(|base| {
            let keeps = base.tiles < fewest;
            fewest = fewest.min(base.tiles);
            keeps
        }));
    }
    list
}
