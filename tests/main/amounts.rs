//! The reference model counts tile depths, flits and bytes by itself: held against `cost`, which the search and the event
//! engine count with. A difference is a mistake of one of the two.

use std::collections::BTreeMap;

use crate::legal::draws;
use crate::random::wide::wide_pair_of;
use crate::random::{ChipValues, GraphValues, pair};
use crate::sums;
use rdusim::arch::Chip;
use rdusim::compile::{compile, retargeted_section};
use rdusim::cost::{TileTables, flow_flits, transfer_bytes};
use rdusim::cycle::{SectionAmounts, amounts_of};
use rdusim::mode::Mode;
use rdusim::program::{GemmMapping, Mapping, OutputTile, Section, SectionGraph, Stage, StageId, Style};
use rdusim::workload::Workload;

/// Pairs of chips and graphs of this seed.
const SEED: u64 = 11;
const PAIRS: usize = 30;
/// Mappings of each that are drawn.
const DRAWS: usize = 3;

/// Mappings that the search seldom chooses: a PCU of its own for every tile, tiles along the blocks, turned arrays, K split,
/// gathered rows.
const CHANGES: [fn(&mut GemmMapping); 5] = [
    |m| m.multicast_width = 1,
    |m| m.aligned = !m.aligned,
    |m| m.rows_on_lanes = !m.rows_on_lanes,
    |m| *m = GemmMapping { pm: 1, pn: 2, multicast_width: 1, pk: 2, ..*m },
    |m| *m = GemmMapping { rows_on_lanes: true, multicast_width: 1, pk: 1, style: Style::Gather, ..*m },
];

/// Sections and output tiles that have been compared, and those of the tiles that skip K rows.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub sections: usize,
    tiles: usize,
    skipping: usize,
    /// Sections with gathered rows.
    gathering: usize,
}

/// Holds both counts of a section against each other; nothing where the reference model does not run it.
pub(crate) fn compare(chip: &Chip, workload: &Workload, section: &Section, about: &str, compared: &mut Compared) {
    let chip = &*section.chip(chip, workload);
    let Some(amounts) = amounts_of(chip, workload, section) else { return };
    let about = format!("{} of {about}", section.name);
    assert_eq!(Some(&amounts.flow_flits), flow_flits(chip, workload, section).as_ref(), "flits of flows, {about}");
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1).expect("a pipeline");
    for (stream, slots) in amounts.slot_bytes.iter_enumerated() {
        for (n, &bytes) in (0..).zip(slots) {
            let at = section.schedule.step(section.streams[stream].stream.level, n);
            let expected = transfer_bytes(chip, &graph, section, stream, at);
            assert_eq!(bytes, (expected.payload.0, expected.moved.0), "slot {n} of stream {stream}, {about}");
        }
    }
    compared.sections += 1;
    for (s, stage) in section.stages.iter_enumerated() {
        // Tiles of heads, of sums over rows and of sampled products are all as deep.
        let has_tiles = graph.form(s).is_none() && stage.spec.sums.is_none() && graph.sampled(s).is_none();
        if let Mapping::Gemm(mapping) = &stage.mapping
            && has_tiles
        {
            depths(chip, &graph, section, (s, mapping), &amounts, &about, compared);
        }
    }
}

/// Holds the tiles of a GEMM stage and their depths against the tables of `cost`.
fn depths(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    section: &Section,
    (s, mapping): (StageId, &GemmMapping),
    amounts: &SectionAmounts,
    about: &str,
    compared: &mut Compared,
) {
    let stage = &section.stages[s];
    let tables = TileTables::new(chip, graph, section.schedule.tiled_axis());
    let shape = tables.styled(s, mapping).expect("a chip with the data type");
    let (width, rows) = (shape.column_grain * mapping.multicast_width, shape.row_grain * mapping.pm);
    let table = tables.table(s, width, mapping.aligned, mapping.style, mapping.pk, rows);
    let k_rows = graph.workload.tensors[stage.spec.weight.expect("a weight")].rows;
    assert_eq!(amounts.depths[s].len(), stage.work.len(), "chunks, {about}");
    for (column_tile, groups) in stage.tiles.iter().enumerate() {
        // Of every slice of K, the tiles that its groups do.
        let mut done = vec![0; mapping.pk as usize];
        for (group, tiles) in groups.iter().enumerate() {
            let slice = mapping.k_slice(group as u64) as usize;
            let known: BTreeMap<u64, _> = table.column_tiles[column_tile * mapping.pk as usize + slice]
                .iter()
                .map(|tile| (tile.start, tile))
                .collect();
            let mut cycles = 0;
            let found = &amounts.depths[s][column_tile][group];
            assert_eq!(found.len(), tiles.len(), "tiles of group {group}, {about}");
            for (&OutputTile { start, columns }, &depth) in tiles.iter().zip(found) {
                let tile = known[&start];
                assert_eq!((columns, depth), (tile.columns, tile.steps), "tile at column {start} of {about}");
                cycles += shape.tile_cycles(depth);
                compared.tiles += 1;
                compared.skipping += usize::from(depth < k_rows && mapping.pk == 1 && !stage.k_cut);
            }
            assert_eq!(cycles, stage.work[column_tile][group].cycles, "cycles of group {group}, {about}");
            done[slice] += tiles.len();
        }
        for (slice, &done) in done.iter().enumerate() {
            assert_eq!(
                done,
                table.column_tiles[column_tile * mapping.pk as usize + slice].len(),
                "tiles of slice {slice}, {about}"
            );
        }
    }
}

/// Holds both counts of a pair against each other, in mappings that are drawn and in changed ones.
fn compare_pair((family, chip, graph): (&str, ChipValues, GraphValues), about: &str, compared: &mut Compared) {
    let about = format!("{about} ({family}){chip:?}{graph:?}");
    let (chip, workload) = (chip.chip(), graph.workload());
    for configuration in draws(&chip, &workload, DRAWS) {
        for section in &configuration.sections {
            compare(&chip, &workload, section, &about, compared);
            // Lockstep groups of heads, and of sums over rows, have one multicast.
            let is_one_group =
                |stage: &Stage| stage.spec.sums.is_some() || workload.operators[stage.spec.main].form.is_some();
            if section.stages.iter().any(is_one_group) {
                continue;
            }
            for (n, change) in CHANGES.into_iter().enumerate() {
                let Ok(other) = retargeted_section(&chip, &workload, section, change) else { continue };
                let is_gathered = |m: &Mapping| matches!(m, Mapping::Gemm(m) if m.style == Style::Gather);
                compared.gathering += usize::from(other.stages.iter().any(|stage| is_gathered(&stage.mapping)));
                compare(&chip, &workload, &other, &format!("change {n} of {about}"), compared);
            }
        }
    }
}

#[test]
fn training_steps_and_images_are_counted_equally() {
    let mut compared = Compared::default();
    for number in 0..8 {
        for family in ["training", "images"] {
            compare_pair(wide_pair_of(family, SEED, number), &format!("number {number} of seed {SEED}"), &mut compared);
        }
    }
    assert!(compared.sections > 250 && compared.gathering > 5, "{compared:?}");
}

#[test]
fn the_reference_model_counts_what_the_search_counts() {
    let mut compared = Compared::default();
    for number in 0..PAIRS {
        compare_pair(pair(SEED, number), &format!("pair {number} of seed {SEED}"), &mut compared);
    }
    let Compared { sections, tiles, skipping, gathering } = compared;
    println!("{sections} sections, {tiles} tiles, {skipping} of them skip rows, {gathering} sections gather");
    assert!(sections > 4 * PAIRS && tiles > 100 * PAIRS && skipping > 10 * PAIRS && gathering > 10, "{compared:?}");
}

#[test]
fn heads_and_sums_over_rows_are_counted_equally() {
    let mut compared = Compared::default();
    let chip = sums::chip(&[]);
    for (case, shape) in [(1u64, 12u64, 5u64), (2, 9, 4), (3, 16, 8), (1, 40, 3)].into_iter().enumerate() {
        let (heads, kv_heads) = [(1, 1), (2, 1), (4, 2), (3, 3)][case];
        for causal in [false, true] {
            let trained = sums::attention(shape.0, shape.1, shape.2, heads, kv_heads, causal, false);
            for mode in Mode::ALL {
                let configuration = compile(&chip, &trained, mode).expect("a mapping");
                for section in &configuration.sections {
                    let about = format!("attention {shape:?}, {heads} heads, causal {causal}");
                    compare(&chip, &trained, section, &about, &mut compared);
                }
            }
        }
    }
    for shape in [(50, 40, 30), (130, 33, 17)] {
        let trained = sums::layers(shape.0, shape.1, shape.2, false);
        let configuration = compile(&chip, &trained, Mode::Fused).expect("a mapping");
        for section in &configuration.sections {
            compare(&chip, &trained, section, &format!("layers {shape:?}"), &mut compared);
        }
    }
    assert!(compared.sections > 100, "{compared:?}");
}
