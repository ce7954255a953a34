//! The map of a configuration as text: for every section its nest, stages, buffers, streams and links.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::describe;
use super::figures::quotient;
use super::human::{bytes, count, percent, shorten, whole};
use super::text_table::{align_left, new_table, wrapped};
use crate::map::{Map, MappingEntry, NestEntry, Section, Site, StageEntry};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;

/// Columns of a name.
const NAME: usize = 26;

/// Most tensors that are named in one place.
const MOST_NAMES: usize = 4;

/// Everything a person wants to know of a configuration, as lines of text.
pub fn map_table(chip: &Chip, workload: &Workload, map: &Map) -> String {
    let sections = map.sections.len();
    let plural = if sections == 1 { "" } else { "s" };
    let mut blocks = vec![format!(
        "{}\n{}\nmode      {}, {} section{plural}",
        wrapped("chip      ", &describe::chip(chip)),
        wrapped("workload  ", &describe::workload(workload)),
        map.mode,
        whole(sections as u64),
    )];
    for (at, section) in map.sections.iter().enumerate() {
        blocks.push(heading(map, section, at + 1));
        blocks.extend([stages(section), buffers(section), streams(section), network(section)]);
    }
    let notes: Vec<String> = map.notes.iter().map(|note| wrapped("note  ", note)).collect();
    blocks.push(notes.join("\n"));
    blocks.retain(|block| !block.is_empty());
    let mut text = blocks.join("\n\n");
    text.push('\n');
    text
}

fn heading(map: &Map, section: &Section, number: usize) -> String {
    let units = Units::of(section);
    let (banks, arch) = (map.arch.pmus * map.arch.banks_per_pmu, &map.arch);
    let of = |used: u64, all: u64| format!("{} of {}", whole(used), whole(all));
    let used = format!(
        "{} PCUs, {} PMUs ({} of their banks), {} address generators",
        of(units.pcus, arch.pcus),
        of(units.pmus, arch.pmus),
        percent(quotient(units.banks as f64, banks as f64)),
        of(units.generators, arch.address_generators),
    );
    let title = format!("section {number} of {}  ", map.sections.len());
    [
        wrapped(&title, &shorten(&section.name, 80)),
        wrapped("nest      ", &nest(&section.nest)),
        wrapped("loops     ", &loops(&section.nest)),
        wrapped("units     ", &used),
        wrapped("bound     ", &format!("{} cycles, launch excluded", whole(section.bound))),
    ]
    .join("\n")
}

/// What a section takes of the chip.
struct Units {
    pcus: u64,
    pmus: u64,
    banks: u64,
    generators: u64,
}

impl Units {
    fn of(section: &Section) -> Self {
        let parts = || section.buffers.iter().flat_map(|buffer| buffer.pieces.iter().flatten());
        let pmus: BTreeSet<Site> = parts().map(|part| part.pmu).collect();
        let generators = section.streams.iter().flat_map(|stream| &stream.generators);
        let generators: BTreeSet<(u32, u32)> = generators.map(|at| (at.agcu, at.generator)).collect();
        Self {
            pcus: section.stages.iter().map(|stage| stage.pcus.len() as u64).sum(),
            pmus: pmus.len() as u64,
            banks: parts().map(|part| part.banks).sum(),
            generators: generators.len() as u64,
        }
    }
}

fn nest(nest: &NestEntry) -> String {
    let counted = |n: u64, what: &str| format!("{} {what}{}", whole(n), if n == 1 { "" } else { "s" });
    let mut text = format!(
        "{} rows = {} of {} rows, in {}",
        whole(nest.rows),
        counted(nest.row_tiles, "row tile"),
        whole(nest.tile_rows),
        counted(nest.blocks, "row block"),
    );
    match &nest.tiled_axis {
        None => text.push_str("; no axis is cut"),
        Some(cut) => {
            let mut cut_tensors = Vec::new();
            for (what, tensors) in [("columns of ", &cut.columns_of), ("rows of ", &cut.rows_of)] {
                if !tensors.is_empty() {
                    cut_tensors.push(format!("{what}{}", names(tensors)));
                }
            }
            let cut = format!(
                "; {} of {} of the {} {}",
                counted(cut.column_tiles, "column tile"),
                whole(cut.tile),
                whole(cut.extent),
                cut_tensors.join(" = ")
            );
            text.push_str(&cut);
        }
    }
    if let Some(panels) = nest.tiled_axis.as_ref().and_then(|cut| cut.panels.as_ref()) {
        let (count, of) = (counted(panels.panels, "panel"), names(&panels.columns_of));
        let (width, extent) = (whole(panels.width), whole(panels.extent));
        let _ = write!(text, ", in {count} of {width} of the {extent} columns of {of}");
    }
    text
}

fn names(list: &[String]) -> String {
    let mut shown: Vec<String> = list.iter().take(MOST_NAMES).map(|name| shorten(name, NAME)).collect();
    if list.len() > MOST_NAMES {
        shown.push(format!("{} more", list.len() - MOST_NAMES));
    }
    shown.join(", ")
}

/// The loops that really go round, outermost first.
fn loops(nest: &NestEntry) -> String {
    let column_tiles = nest.tiled_axis.as_ref().map_or(1, |cut| cut.column_tiles);
    let block = (nest.blocks > 1).then(|| format!("{} row blocks", whole(nest.blocks)));
    let panels = nest.tiled_axis.as_ref().and_then(|cut| cut.panels.as_ref()).map_or(1, |panels| panels.panels);
    let panel = (panels > 1).then(|| format!("{} panels", whole(panels)));
    let of_panel = column_tiles / panels.max(1);
    let column_tile = (of_panel > 1).then(|| format!("{} column tiles", whole(of_panel)));
    let row_tile = Some(format!("{} row tiles", whole(nest.block_tiles.min(nest.row_tiles))));
    let order = if nest.order == "column_tile_outer" {
        [block, panel, column_tile, row_tile]
    } else {
        [block, row_tile, panel, column_tile]
    };
    let order: Vec<String> = order.into_iter().flatten().map(|what| format!("for each of {what}")).collect();
    order.join(" > ")
}

fn stages(section: &Section) -> String {
    let ran = section.stages.iter().any(|stage| stage.time.is_some());
    let mut head = ["stage", "pm x pn (x pk)", "how", "runs", "PCUs", "within"].map(str::to_owned).to_vec();
    if ran {
        head.extend(["busy", "starved", "stalled"].map(str::to_owned));
    }
    let mut table = new_table(head);
    for column in [2, 3, 5] {
        align_left(&mut table, column);
    }
    for stage in &section.stages {
        let split = match stage.mapping {
            MappingEntry::Gemm { pm, pn, pk, .. } if pk > 1 => format!("{pm} x {pn} x {pk}"),
            MappingEntry::Gemm { pm, pn, .. } | MappingEntry::Simd { pm, pn, .. } => format!("{pm} x {pn}"),
        };
        let mut row = vec![
            shorten(&stage.operators.join("+"), NAME),
            split,
            how(stage),
            each(stage.level).to_owned(),
            whole(stage.pcus.len() as u64),
            within(&stage.pcus.iter().copied()),
        ];
        if ran {
            let text = |share: Option<f64>| share.map_or_else(String::new, percent);
            let time = stage.time;
            row.extend([time.map(|t| t.busy), time.and_then(|t| t.starved), time.and_then(|t| t.stalled)].map(text));
        }
        table.add_row(row);
    }
    table.trim_fmt()
}

/// Orientation and sharing of a stage.
fn how(stage: &StageEntry) -> String {
    let mut parts = Vec::new();
    match stage.mapping {
        MappingEntry::Gemm { pn, multicast_width, rows_on_lanes, .. } => {
            parts.push(if rows_on_lanes { "rows on lanes" } else { "columns on lanes" }.to_owned());
            parts.push(match multicast_width {
                1 => "no multicast".to_owned(),
                multicast_width if multicast_width == pn => "1 multicast".to_owned(),
                multicast_width => format!("multicast x{multicast_width}"),
            });
        }
        MappingEntry::Simd { chain, .. } => {
            parts.push("SIMD".to_owned());
            if chain > 1 {
                parts.push(format!("chains of {chain}"));
            }
        }
    }
    if stage.k_cut {
        parts.push("K cut".to_owned());
    }
    if stage.n_cut {
        parts.push("N cut".to_owned());
    }
    parts.join(", ")
}

/// A loop level in words.
fn each(level: &str) -> &str {
    match level {
        "row_tile" => "row tile",
        "panel_row" => "row tile of a panel",
        "block_column" => "block column",
        "column" => "column tile",
        other => other,
    }
}

/// The box around sites.
fn within(sites: &(impl Iterator<Item = Site> + Clone)) -> String {
    let range = |axis: usize| {
        let values = sites.clone().map(move |site| site[axis]);
        Some((values.clone().min()?, values.max()?))
    };
    let (Some(x), Some(y)) = (range(0), range(1)) else { return "-".to_owned() };
    format!("({}, {})..({}, {})", x.0, y.0, x.1, y.1)
}

fn buffers(section: &Section) -> String {
    let header =
        ["buffer", "for", "tensor", "filled each", "depth", "copies x slices", "slot", "PMUs", "banks", "within"];
    let mut table = new_table(header.map(str::to_owned).to_vec());
    for column in [1, 2, 3, 9] {
        align_left(&mut table, column);
    }
    for buffer in &section.buffers {
        let stage = section.stages.get(buffer.stage).map(|stage| stage.operators.join("+")).unwrap_or_default();
        table.add_row(vec![
            buffer.role.to_owned(),
            shorten(&stage, 10),
            shorten(&buffer.tensor, 12),
            each(buffer.level).to_owned(),
            whole(buffer.depth),
            format!("{} x {}", buffer.copies, buffer.slices),
            bytes(buffer.slot_bytes),
            whole(buffer.pmus),
            whole(buffer.banks),
            within(&buffer.pieces.iter().flatten().map(|part| part.pmu)),
        ]);
    }
    if table.is_empty() { String::new() } else { table.trim_fmt() }
}

fn streams(section: &Section) -> String {
    let header = ["off chip", "", "tier", "moves each", "times", "bytes", "AGs", "within"];
    let mut table = new_table(header.map(str::to_owned).to_vec());
    for column in [1, 2, 3, 7] {
        align_left(&mut table, column);
    }
    for stream in &section.streams {
        table.add_row(vec![
            shorten(&stream.tensor, NAME),
            stream.direction.to_owned(),
            shorten(&stream.tier, 12),
            each(stream.level).to_owned(),
            whole(stream.passes),
            bytes(stream.bytes),
            whole(stream.generators.len() as u64),
            within(&stream.generators.iter().map(|generator| generator.site)),
        ]);
    }
    if table.is_empty() { String::new() } else { table.trim_fmt() }
}

fn network(section: &Section) -> String {
    let network = &section.network;
    let mean = quotient(network.flit_hops as f64, network.links as f64);
    let busy = |flits: f64| percent(quotient(flits, section.bound as f64));
    let used = format!(
        "{} flows over {} links in all; {} of the chip's {} links used",
        whole(network.flows),
        whole(network.tree_links),
        whole(network.links_used),
        whole(network.links),
    );
    let load = format!(
        "fullest link {} flits ({} of the bound), mean of all links {} flits ({})",
        whole(network.fullest_flits),
        busy(network.fullest_flits as f64),
        count(mean.round() as u64),
        busy(mean),
    );
    let tenths: Vec<String> = network.histogram.iter().map(|&links| whole(links)).collect();
    let histogram = format!("used links by tenth of the fullest's load, least first: {}", tenths.join(" "));
    [wrapped("network   ", &used), wrapped("load      ", &load), wrapped("          ", &histogram)].join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::map::summarize;
    use rdusim_base::mode::Mode;
    use rdusim_compile::compile::compile;
    use rdusim_graph::arch;
    use rdusim_graph::workload;

    fn tiny(mode: Mode) -> (Chip, Workload, Map) {
        let chip = arch::load(Path::new("sn10"), &[]).unwrap();
        let workload = workload::load(Path::new("tiny-mlp"), &[], 0).unwrap();
        let map = summarize(&chip, &workload, &compile(&chip, &workload, mode).unwrap());
        (chip, workload, map)
    }

    #[test]
    fn a_map_reads_as_agreed() {
        let (chip, workload, map) = tiny(Mode::Fused);
        insta::assert_snapshot!(map_table(&chip, &workload, &map));
    }

    #[test]
    fn no_line_is_too_wide_and_none_ends_in_blanks() {
        for mode in [Mode::Kbk, Mode::Fused] {
            let (chip, workload, mut map) = tiny(mode);
            let endless = "decoder.layers.17.self_attention.output_projection\u{1b}[2J".repeat(9);
            map.notes = vec![endless.clone(), "many words ".repeat(40)];
            for section in &mut map.sections {
                section.name.clone_from(&endless);
                section.bound = u64::MAX;
                section.network.fullest_flits = u64::MAX;
                section.network.histogram = [9_999_999; 10];
                for name in section.stages.iter_mut().flat_map(|stage| &mut stage.operators) {
                    name.clone_from(&endless);
                }
                for buffer in &mut section.buffers {
                    buffer.tensor.clone_from(&endless);
                }
                for stream in &mut section.streams {
                    (stream.tensor, stream.tier) = (endless.clone(), endless.clone());
                }
                if let Some(cut) = &mut section.nest.tiled_axis {
                    cut.columns_of = vec![endless.clone(); 9];
                }
            }
            let text = map_table(&chip, &workload, &map);
            assert!(!text.contains('\u{1b}'));
            for line in text.lines() {
                assert!(line.chars().count() <= 120, "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }

    #[test]
    fn only_loops_that_go_round_are_told() {
        let mut nest = tiny(Mode::Fused).2.sections[0].nest.clone();
        nest.tiled_axis = None;
        (nest.blocks, nest.row_tiles, nest.block_tiles) = (1, 12, 12);
        assert_eq!(loops(&nest), "for each of 12 row tiles");
        let cut = crate::map::TiledAxisEntry {
            columns_of: vec![],
            rows_of: vec![],
            extent: 9,
            tile: 4,
            column_tiles: 3,
            panels: None,
        };
        (nest.blocks, nest.block_tiles, nest.tiled_axis, nest.order) = (2, 6, Some(cut), "row_tile_outer");
        assert_eq!(loops(&nest), "for each of 2 row blocks > for each of 6 row tiles > for each of 3 column tiles");
        nest.order = "column_tile_outer";
        assert_eq!(loops(&nest), "for each of 2 row blocks > for each of 3 column tiles > for each of 6 row tiles");
    }
}
