//! Checks of work: every output column, and every stored element of a weight, is in the tiles of one lockstep group.

use rdusim_base::units::index;
use std::ops::Range;

use crate::configuration::Section;
use crate::ids::StageId;
use crate::mapping::{GemmMapping, Mapping, OutputTile, PassWork};
use crate::nest::Nest;
use crate::stage::Stage;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// Work of every stage.
pub(super) fn check(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (s, stage) in section.stages.iter_enumerated() {
        match &stage.mapping {
            Mapping::Simd(_) if stage.work.is_empty() => {}
            Mapping::Simd(_) => {
                let title = format!("`{}` has a table of tiles", verifier.stage(s));
                return Err(Fault::new(Place::Stage(s), title, "expected none for a function"));
            }
            Mapping::Gemm(m) => gemm(verifier, &section.schedule.nest(), s, stage, m)?,
        }
    }
    Ok(())
}

fn gemm(verifier: &Verifier<'_>, nest: &Nest, s: StageId, stage: &Stage, m: &GemmMapping) -> Result<(), Fault> {
    let fail = |title: String, expected: String| {
        Err(Fault::new(Place::Stage(s), format!("`{}` {title}", verifier.stage(s)), expected))
    };
    let wanted = ExpectedSums::new(verifier, nest, s);
    if stage.work.len() as u64 != wanted.column_tiles {
        return fail(
            format!("has work for {} column tiles", stage.work.len()),
            format!("expected {}", wanted.column_tiles),
        );
    }
    let of_a_slice = index(m.k_slice_groups().max(1));
    for (column_tile, groups) in (0..).zip(&stage.work) {
        if groups.len() as u64 != stage.mapping.groups() {
            let expected = format!("expected {}", stage.mapping.groups());
            return fail(
                format!("has work for {} lockstep groups in column tile {column_tile}", groups.len()),
                expected,
            );
        }
        let columns = wanted.columns(verifier, nest, column_tile);
        for (slice, groups) in groups.chunks(of_a_slice).enumerate() {
            let found: u64 = groups.iter().map(|work| work.columns).sum();
            if found != columns {
                let title = format!("computes {found} columns in column tile {column_tile}, slice {slice} of K");
                return fail(title, format!("expected every one of {columns}, once"));
            }
            let first = wanted.first_column(verifier, nest, column_tile);
            let groups_of_slice = slice * of_a_slice..(slice + 1) * of_a_slice;
            if let Some(column) = uncovered(stage, column_tile, groups_of_slice, first..first + columns) {
                let title =
                    format!("computes column {column} not once in column tile {column_tile}, slice {slice} of K");
                return fail(title, "expected every column in one output tile of one lockstep group".to_owned());
            }
            if let Some(group) = groups.iter().position(|work| (work.columns == 0) != (work.tiles == 0)) {
                let PassWork { columns, tiles, .. } = groups[group];
                let title = format!(
                    "has {columns} columns in {tiles} tiles of lockstep group {group}, column tile {column_tile}"
                );
                return fail(title, "expected tiles exactly where there are columns".to_owned());
            }
        }
    }
    let stored: u64 = stage.work.iter().flatten().map(|work| work.stored).sum();
    if stored != wanted.stored {
        return fail(format!("meets {stored} elements of its weight"), format!("expected all {}, once", wanted.stored));
    }
    Ok(())
}

/// The first of `columns` that the output tiles of some lockstep groups leave out, or have twice.
fn uncovered(stage: &Stage, column_tile: u64, groups: Range<usize>, columns: Range<u64>) -> Option<u64> {
    let lists = stage.tiles.get(index(column_tile))?.get(groups)?;
    let mut tiles: Vec<OutputTile> = lists.iter().flatten().copied().collect();
    tiles.sort_unstable_by_key(|tile| tile.start);
    let mut covered = columns.start;
    for tile in tiles {
        if tile.start != covered {
            return Some(tile.start.min(covered));
        }
        covered += tile.columns;
    }
    (covered != columns.end).then_some(covered.min(columns.end))
}

/// What the tiles of a stage must add up to.
struct ExpectedSums {
    stage: StageId,
    /// Column tiles that the work differs in.
    column_tiles: u64,
    /// Elements of the weight that tiles meet in all of them.
    stored: u64,
}

impl ExpectedSums {
    fn new(verifier: &Verifier<'_>, nest: &Nest, stage: StageId) -> Self {
        let (graph, spec) = (verifier.graph, &verifier.graph.stages[stage]);
        let tensors = &graph.workload.tensors;
        let counted = |is_cut: bool| if is_cut { nest.column_tiles() } else { 1 };
        match (graph.form(stage), spec.weight) {
            (form, None) => {
                // A sum over rows: of X^T, whose rows are the result's, and of dY.
                let footprint = |operand: usize| spec.activations.get(operand).map_or(0, |&t| tensors[t].columns);
                let (rows, columns, heads) =
                    form.map_or((footprint(0), footprint(1), 1), |form| (form.m, form.n, form.heads));
                let rows_of_instance = form.map_or(1, |form| (graph.rows / form.instances.max(1)).max(1));
                let group = form.map_or(1, |form| (form.k / rows_of_instance).max(1));
                let is_cut = spec.activations.iter().take(2).any(|&tensor| verifier.cuts_columns(nest, tensor));
                Self { stage, column_tiles: counted(is_cut), stored: rows * columns * heads * group }
            }
            (Some(form), Some(_)) => {
                let column_tiles = graph.heads_tiles(nest.tiled_axis, stage).len() as u64;
                Self { stage, column_tiles, stored: form.b_heads * form.n * form.k }
            }
            (None, Some(weight)) => {
                let is_cut = verifier.cuts_columns(nest, weight) || verifier.cuts_rows(nest, weight);
                Self { stage, column_tiles: counted(is_cut), stored: tensors[weight].stored_elements() }
            }
        }
    }

    /// First output column of a column tile, of a weight whose columns are tiled.
    fn first_column(&self, verifier: &Verifier<'_>, nest: &Nest, column_tile: u64) -> u64 {
        let weight = verifier.graph.stages[self.stage].weight.filter(|&weight| verifier.cuts_columns(nest, weight));
        let of_columns = |weight| nest.tiling().range_of(verifier.graph.column_axis(weight), column_tile);
        weight.and_then(of_columns).map_or(0, |range| range.start)
    }

    /// Output columns in a column tile.
    fn columns(&self, verifier: &Verifier<'_>, nest: &Nest, column_tile: u64) -> u64 {
        let spec = &verifier.graph.stages[self.stage];
        match (verifier.graph.form(self.stage), spec.weight) {
            (Some(form), Some(_)) => {
                let tiles = verifier.graph.heads_tiles(nest.tiled_axis, self.stage);
                tiles.get(index(column_tile)).map_or(0, |tile| form.heads * tile.form.n)
            }
            (Some(form), None) => form.heads * form.n,
            (None, Some(weight)) => verifier.columns(nest, weight, column_tile),
            (None, None) => spec.activations.get(1).map_or(0, |&dy| verifier.columns(nest, dy, column_tile)),
        }
    }
}
