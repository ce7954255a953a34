//! The choices of one configuration, taken over to the same graph at other sizes: the same sections, loop orders, cuts,
//! residency, styles and orientations; row tiles, column tiles and units as near as the sizes allow.

use crate::compile::mapping::buffers::buffers;
use crate::compile::mapping::estimate::Estimate;
use crate::compile::mapping::plan::{SectionPlan, deepen};
use crate::compile::mapping::residency::{LatencySlots, Residency};
use crate::compile::mapping::resolve::{Resolved, resolve};
use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::assemble;
use crate::compile::physical::route::Negotiation;
use crate::compile::verified::after_all;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{StageWork, TileTables, chain};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::Workload;
use rdusim_program::{
    Buffer, BufferId, BufferSpec, Configuration, Fabric, GemmMapping, HeadsTile, LoopLevel, Mapping, Nest, Panels,
    Reduction, RowTile, Section, SectionGraph, SimdMapping, Stage, StageId, Style, TiledAxis, tensor_tiers,
};

/// The configuration `of` of a graph, on `workload`: the same graph with smaller dimensions.
///
/// # Errors
/// What of it cannot be kept, when it cannot: the section, and why; or a diagnostic's title when a tensor fits no tier.
pub fn retargeted(chip: &Chip, workload: &Workload, of: &Configuration) -> Result<Configuration, String> {
    let tiers = tensor_tiers(chip, workload).map_err(|why: Diagnostic| why.title().to_owned())?;
    let fabric = Fabric::new(chip);
    let like = |section: &Section| {
        retarget_section(&section.chip(chip, workload), workload, &fabric, &tiers, section)
            .map_err(|why| format!("section `{}`: {why}", section.name))
    };
    let sections = of.sections.iter().map(like).collect::<Result<Vec<_>, _>>()?;
    let configuration = Configuration { mode: of.mode, sections, tiers, notes: Vec::new() };
    after_all("retarget", chip, workload, &fabric, &configuration);
    Ok(configuration)
}

fn retarget_section(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    tiers: &[TierId],
    of: &Section,
) -> Result<Section, &'static str> {
    let graph = SectionGraph::new(workload, &of.operators, of.operators.len() > 1)
        .ok_or("its operators are no pipeline at this size")?;
    if graph.stages.len() != of.stages.len() {
        return Err("its operators make other stages at this size");
    }
    let nest = nest(&graph, of).ok_or("its cut has no place at this size")?;
    let mappings = mappings(chip, &graph, &nest, of).ok_or("a stage has no such mapping at this size")?;
    // Slots are smaller here than they were: what hides latency may not fit.
    let with = |latency_slots| {
        let residency = Residency { latency_slots, ..residency(of) };
        section(chip, fabric, &graph, nest, mappings.clone(), residency, tiers).map(|(_, section)| section)
    };
    [LatencySlots::Full, LatencySlots::None]
        .into_iter()
        .find_map(with)
        .ok_or("it has no place on the chip at this size")
}

/// A section and its plan by its nest, mappings and residency alone; `None` if it has no place.
pub(super) fn section(
    chip: &Chip,
    fabric: &Fabric,
    graph: &SectionGraph<'_>,
    nest: Nest,
    mappings: IndexVec<StageId, Mapping>,
    residency: Residency,
    tiers: &[TierId],
) -> Option<(SectionPlan, Section)> {
    let plan = planned(chip, graph, nest, mappings, residency)?;
    let (section, _) = assemble(chip, fabric, graph, &plan, tiers, Negotiation::WHOLE, &[]).ok()?;
    Some((plan, section))
}

/// The plan of a section by its nest, mappings and residency alone; `None` if the pipeline would stop.
pub(super) fn planned(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: Nest,
    mappings: IndexVec<StageId, Mapping>,
    residency: Residency,
) -> Option<SectionPlan> {
    let Resolved { roles, work, tiles, footprint } = resolve(chip, graph, &nest, residency, &mappings);
    if !roles.is_one_pass() {
        return None;
    }
    let mut specs: IndexVec<BufferId, BufferSpec> =
        buffers(chip, graph, &nest, &roles, residency, &mappings, &footprint);
    deepen(chip, graph, &mut specs);
    let works = |s: StageId| StageWork::new(chip, graph, nest.tiling(), s, mappings[s], &work[s], &tiles[s]);
    let busy = |s: StageId| {
        let column_tiles = if roles.level[s] == LoopLevel::FIRING { nest.column_tiles() } else { 1 };
        let stage = works(s);
        let of = |group| {
            (0..column_tiles)
                .map(|column_tile| stage.cycles(column_tile, group, RowTile::mean(nest.tile_rows)).0)
                .sum::<u64>()
        };
        (0..mappings[s].groups()).map(of).max().unwrap_or(0).saturating_mul(nest.row_tiles())
    };
    let busy_cycles = mappings.ids().map(busy).max().unwrap_or(1).max(1);
    let cycles = busy_cycles + chip.launch_cycles();
    let estimate = Estimate::of_work(cycles, busy_cycles);
    Some(SectionPlan {
        nest,
        roles,
        mappings,
        work,
        tiles,
        buffers: specs,
        estimate,
        covers: PARAMS.mapping.generator_cover,
    })
}

/// A section of a configuration with other mappings of its GEMM stages: for tests of what the search does not choose.
///
/// # Errors
/// A sentence, when the section has no place then.
pub fn retargeted_section(
    chip: &Chip,
    workload: &Workload,
    of: &Section,
    change: impl Fn(&mut GemmMapping),
) -> Result<Section, String> {
    let tiers = tensor_tiers(chip, workload).map_err(|why| why.title().to_owned())?;
    let mut other = of.clone();
    for stage in &mut other.stages {
        if let Mapping::Gemm(m) = &mut stage.mapping {
            change(m);
        }
    }
    let graph = SectionGraph::new(workload, &of.operators, of.operators.len() > 1).ok_or("no pipeline")?;
    let splits = |(s, stage): (StageId, &Stage)| {
        let reduction = stage.mapping.reduction();
        stage.mapping.pk() > 1 && !graph.may_split_k(of.schedule.tiled_axis(), s, reduction)
    };
    if other.stages.iter_enumerated().any(splits) {
        return Err("K of a stage cannot be split".to_owned());
    }
    let mappings: IndexVec<StageId, Mapping> = other.stages.iter().map(|stage| stage.mapping).collect();
    let chip = &*of.chip(chip, workload);
    let gathers = |(s, mapping): (StageId, &Mapping)| matches!(mapping, Mapping::Gemm(m) if m.style == Style::Gather && !graph.may_gather(chip, s, m));
    if mappings.iter_enumerated().any(gathers) {
        return Err("rows of a stage cannot be gathered".to_owned());
    }
    if mappings.iter().map(Mapping::pcus).sum::<u64>() > chip.pcus() {
        return Err("it takes more PCUs than the chip has".to_owned());
    }
    section(chip, &Fabric::new(chip), &graph, of.schedule.nest(), mappings, residency(of), &tiers)
        .map(|(_, section)| section)
        .ok_or_else(|| "it has no place on the chip".to_owned())
}

/// What stays on chip: it shows in the loop level of buffers.
pub(super) fn residency(of: &Section) -> Residency {
    use rdusim_program::BufferRole;
    let level = |b: &Buffer| b.spec.level;
    let weights = of.buffers.iter().filter(|b| matches!(b.spec.role, BufferRole::Weight { .. }));
    let again = weights.clone().any(|b| level(b) == LoopLevel::BLOCK_COLUMN);
    let uncut = |b: &Buffer| match b.spec.role {
        BufferRole::Operand { stage, tensor } => {
            // A cut tensor comes column tile by column tile in any case; a whole one only if it is read again.
            let read_again = of.streams.iter().any(|s| s.stream.tensor == tensor && s.stream.passes > 1);
            of.stages[stage].spec.activations.contains(&tensor) && read_again && level(b) == LoopLevel::FIRING
        }
        _ => false,
    };
    let recompute = of.stages.iter().any(|stage| stage.recomputed);
    Residency { inputs: !of.buffers.iter().any(uncut), weights: !again, latency_slots: LatencySlots::Full, recompute }
}

fn nest(graph: &SectionGraph<'_>, of: &Section) -> Option<Nest> {
    let was = of.schedule.nest();
    let sequences = graph.sequences();
    let rows = graph.rows / sequences;
    let of_sequences = if sequences > 1 { was.blocks() } else { 1 };
    let row_tiles = was.row_tiles().div_ceil(of_sequences).min(PARAMS.retarget.most_row_tiles);
    let tile_rows = if sequences > 1 {
        // Row tiles of a sequence are all equal.
        (rows.div_ceil(row_tiles)..=rows).find(|&size| rows.is_multiple_of(size))?
    } else {
        let even = rows.div_ceil(row_tiles);
        let was_ragged = !was.rows.is_multiple_of(was.tile_rows);
        // As many row tiles, the last of them as short or whole as it was.
        let sizes = || (even..rows.div_ceil(row_tiles.saturating_sub(1).max(1))).chain([even]);
        sizes().find(|&size| rows.is_multiple_of(size) != was_ragged).unwrap_or(even)
    };
    let tiled_axis = match was.tiled_axis {
        None => None,
        Some(cut) => Some(column_tiles(graph, cut)?),
    };
    let mut nest = Nest { rows: graph.rows, tile_rows, block_tiles: 1, tiled_axis, order: was.order };
    let blocks = if sequences > 1 { sequences } else { was.blocks().min(PARAMS.retarget.most_blocks) };
    nest.block_tiles = nest.row_tiles().div_ceil(blocks).max(1);
    if !graph.keeps_statistics(&nest) {
        if sequences > 1 {
            return None;
        }
        nest.block_tiles = 1;
    }
    Some(nest)
}

/// As many column tiles of the same axis, as far as blocks of masks allow; the last as short or whole as it was.
fn column_tiles(graph: &SectionGraph<'_>, of: TiledAxis) -> Option<TiledAxis> {
    let tile = tile_of(graph, of.axis, of.extent, of.tile)?;
    let cut = TiledAxis::new(of.axis, graph.axes[of.axis].extent, tile);
    let Some(was) = of.panels else { return Some(cut) };
    let width = tile_of(graph, was.axis, was.extent, was.width)?;
    let panels = Some(Panels { axis: was.axis, extent: graph.axes[was.axis].extent, width });
    let cut = TiledAxis { panels, ..cut };
    graph.may_have_panels_of(&cut).then_some(cut)
}

/// The width of tiles of which an axis has as many as one of `extent` elements had of `tile`; the last as short or whole as it was.
fn tile_of(graph: &SectionGraph<'_>, axis: usize, extent: u64, tile: u64) -> Option<u64> {
    let axis = graph.axes.get(axis)?;
    let count = extent.div_ceil(tile);
    let even = axis.extent.div_ceil(count).next_multiple_of(axis.grain);
    let was_ragged = !extent.is_multiple_of(tile);
    let widths = || (even..axis.extent).step_by(axis.grain as usize).take(8).chain([even]);
    let equal = |&width: &u64| axis.extent.is_multiple_of(width) != was_ragged && axis.extent.div_ceil(width) == count;
    Some(widths().find(equal).unwrap_or(even).min(axis.extent))
}

fn mappings(chip: &Chip, graph: &SectionGraph<'_>, nest: &Nest, of: &Section) -> Option<IndexVec<StageId, Mapping>> {
    let bases = TileTables::new(chip, graph, nest.tiled_axis);
    let like = |(s, stage): (StageId, &Stage)| match stage.mapping {
        Mapping::Gemm(m) => {
            let shape = bases.shape(s, m.rows_on_lanes)?;
            if graph.stages[s].sums.is_some() {
                let (rows, _) = bases.most_splits(s, &m, nest)?;
                let heads = graph.form(s).map_or(1, |form| form.heads);
                let tiles = bases.most_splits(s, &m, nest)?.1 / heads;
                let (streams, each) = (m.streams.min(heads), (m.pn / m.streams).min(tiles.max(1)));
                let (pm, pn) = (m.pm.min(rows), streams * each);
                return Some(Mapping::Gemm(GemmMapping { pm, pn, multicast_width: pn, streams, ..m }));
            }
            let pm = m.pm.min(nest.tile_rows.div_ceil(shape.row_grain));
            let pk = m.pk.min(graph.most_k_slices(nest.tiled_axis, s));
            let reduction = if pk > 1 { m.reduction } else { Reduction::Chain };
            let m = GemmMapping { pk, reduction, ..m };
            if let Some(HeadsTile { form, .. }) = graph.heads_tile(nest.tiled_axis, s) {
                let streams = m.streams.min(form.b_heads);
                let each = (m.pn / m.streams).min(form.n.div_ceil(shape.column_grain));
                let pn = streams * each;
                return Some(Mapping::Gemm(GemmMapping { pm, pn, multicast_width: pn, streams, ..m }));
            }
            let weight = graph.stages[s].weight?;
            let cut = nest.tiling().range_of(graph.column_axis(weight), 0);
            let columns = cut.map_or(graph.workload.tensors[weight].columns, |range| range.end - range.start);
            let tiles = columns.div_ceil(shape.column_grain);
            if m.multicast_width == m.pn {
                let pn = m.pn.min(tiles);
                return Some(Mapping::Gemm(GemmMapping { pm, pn, multicast_width: pn, ..m }));
            }
            let multicast_width = m.multicast_width.min(tiles);
            let (_, groups) = bases.most_splits(s, &GemmMapping { multicast_width, ..m }, nest)?;
            let pn = multicast_width * m.k_slice_groups().min(groups);
            Some(Mapping::Gemm(GemmMapping { pm, pn, multicast_width, ..m }))
        }
        Mapping::Simd(m) => {
            let output = graph.stages[s].output;
            let lanes = *chip.pcu.lanes.get(&graph.stage_dtype(s))?;
            let columns = if nest.tiling().cuts(graph.column_axis(output)) {
                let first = graph.columns_in(nest.tiled_axis, graph.stages[s].activations[0], 0);
                first.end - first.start
            } else {
                graph.simd_columns(s)
            };
            let most = graph.units(s).unwrap_or_else(|| columns.div_ceil(lanes)).max(1);
            // On another chip a function may chain over more PCUs, or fewer: about as many PCUs in all.
            let chain = chain(chip, graph.kind(s));
            let pipelines = (m.pm * m.pn * m.chain / chain).max(1);
            let pm = m.pm.min(nest.tile_rows).min(pipelines);
            let pn = m.pn.min(most).min((pipelines / pm).max(1));
            Some(Mapping::Simd(SimdMapping { pm, pn, chain, ..m }))
        }
    };
    of.stages.iter_enumerated().map(like).collect()
}
