//! Steps from a mapping to those next to it.

use crate::compile::params::PARAMS;
use rdusim_program::{LoopOrder, Panels, TiledAxis};

use super::breakpoints::column_tile_widths;
use super::space::{Allotment, Choice, Incumbent, KAxis, SectionSearch, TilingChoice};

/// Choices next to `choice`, the best by estimate first: the next row tile sizes and column tile widths both ways, other loop orders
/// and residencies, fewer PCUs, stages turned, and fewer address generators.
pub(crate) fn neighbours(search: &SectionSearch<'_>, choice: &Choice) -> Vec<Choice> {
    let mut allotments: Vec<Allotment> = vec![Allotment::ALL, Allotment::EAGER];
    let shares = if search.chip.pcus() <= PARAMS.evaluation.handful_of_pcus {
        &PARAMS.evaluation.pcu_sixteenths_of_a_handful[..]
    } else {
        &PARAMS.evaluation.pcu_sixteenths
    };
    allotments.extend(shares.iter().map(|&sixteenths| Allotment { sixteenths, ..Allotment::EAGER }));
    for stage in search.graph.stages.ids().filter(|&s| search.graph.is_gemm(s)) {
        for turn in [false, true] {
            let turned = Some((stage, turn));
            allotments.extend([Allotment::ALL, Allotment::EAGER].map(|all| Allotment { turned, ..all }));
        }
    }
    let mut list: Vec<Choice> = Vec::new();
    for (cut, all_sizes) in cuts_next_to(search, choice) {
        let bases = search.bases(cut);
        let sizes = search.row_tile_sizes(&bases);
        let here = choice.nest.tile_rows;
        let at = sizes.partition_point(|&size| size < here);
        let near =
            if all_sizes { at.saturating_sub(2)..(at + 3).min(sizes.len()) } else { at..(at + 1).min(sizes.len()) };
        let mut wanted: Vec<u64> = sizes[near].to_vec();
        if !all_sizes {
            wanted = vec![here];
        } else if !wanted.contains(&here) {
            wanted.push(here);
        }
        let mut least = Incumbent::default();
        for &tile_rows in &wanted {
            for order in [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter] {
                let mut found = Incumbent { slowest_cycles: u64::MAX, ..least };
                for k in [KAxis::Whole, KAxis::Split] {
                    search.choices(&bases, TilingChoice { tile_rows, order, k }, &allotments, &mut found, |near| {
                        let near = Choice { covers: choice.covers, ..near };
                        if !list.contains(&near) {
                            list.push(near);
                        }
                    });
                }
                least = least.least(&found);
            }
        }
    }
    // With fewer address generators.
    if choice.covers > 1 {
        list.push(Choice { covers: choice.covers - 1, ..choice.clone() });
    }
    list.sort_by_key(|near| near.estimate.score);
    // In turn the best of every nest, the second best, and so on: estimates misjudge a nest, not a mapping in it.
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(list.len());
    for (index, near) in list.iter().enumerate() {
        let of_nest = |other: &&Choice| {
            let key = |choice: &Choice| (choice.nest.tile_rows, choice.nest.tiled_axis, choice.nest.order);
            key(other) == key(near)
        };
        ranked.push((list[..index].iter().filter(of_nest).count(), index));
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, index)| list[index].clone()).collect()
}

/// The cut of a choice, the next of the same axis both ways, the next panels both ways if it has any, and none; and whether row tile
/// sizes are tried with it.
fn cuts_next_to(search: &SectionSearch<'_>, choice: &Choice) -> Vec<(Option<TiledAxis>, bool)> {
    let graph = search.graph;
    let of_width = |axis: usize| move |tile: u64| (Some(TiledAxis::new(axis, graph.axes[axis].extent, tile)), false);
    let mut list = vec![(choice.nest.tiled_axis, true)];
    let Some(cut) = choice.nest.tiled_axis else {
        // From no cut to the widest of each axis.
        for axis in (0..graph.axes.len()).filter(|&axis| graph.may_cut(axis)) {
            list.extend(column_tile_widths(search.chip, graph, axis).into_iter().take(2).map(of_width(axis)));
        }
        return list;
    };
    let next_to = |axis: usize, here: u64| -> Vec<u64> {
        // Widths fall.
        let widths = column_tile_widths(search.chip, graph, axis);
        let wider = widths.iter().rfind(|&&width| width > here);
        let narrower = widths.iter().find(|&&width| width < here);
        [wider, narrower].into_iter().flatten().copied().collect()
    };
    let tiles = next_to(cut.axis, cut.tile).into_iter();
    list.extend(tiles.map(|tile| (Some(TiledAxis { tile, ..cut }), false)));
    if let Some(panels) = cut.panels {
        let widths = next_to(panels.axis, panels.width).into_iter();
        let of_panels = |width: u64| (Some(TiledAxis { panels: Some(Panels { width, ..panels }), ..cut }), true);
        list.extend(widths.map(of_panels));
    }
    list.push((None, false));
    list
}
