//! Sheets of maps: a configuration on a grid of units, a plan on a chip of tiles.

use serde::Deserialize;
use serde_json::Value;

use super::super::describe::counted;
use super::super::figures::quotient;
use super::super::human::{bytes, percent, whole};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

/// Most operators that have a bar: those that take longest.
const MOST_BARS: usize = 24;

#[derive(Deserialize)]
struct Grid {
    arch: GridChip,
    workload: Named,
    mode: String,
    sections: Vec<Section>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct GridChip {
    name: String,
    pcus: u64,
    pmus: u64,
    banks_per_pmu: u64,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Section {
    name: String,
    bound: u64,
    nest: Nest,
    stages: Vec<Stage>,
    buffers: Vec<Buffer>,
    streams: Vec<Stream>,
    network: Network,
    run: Option<RunOf>,
}

#[derive(Deserialize)]
struct Nest {
    rows: u64,
    tile_rows: u64,
    row_tiles: u64,
}

#[derive(Deserialize)]
struct Stage {
    operators: Vec<String>,
    mapping: Value,
    pcus: Vec<Value>,
    time: Option<StageTime>,
}

#[derive(Deserialize)]
struct StageTime {
    busy: f64,
    starved: Option<f64>,
    stalled: Option<f64>,
}

#[derive(Deserialize)]
struct Buffer {
    role: String,
    tensor: String,
    depth: u64,
    slot_bytes: u64,
    pmus: u64,
    banks: u64,
}

#[derive(Deserialize)]
struct Stream {
    tensor: String,
    direction: String,
    tier: String,
    passes: u64,
    bytes: u64,
    generators: Vec<Value>,
}

#[derive(Deserialize)]
struct Network {
    links: u64,
    links_used: u64,
    fullest_flits: u64,
}

#[derive(Deserialize)]
struct RunOf {
    cycles: u64,
    bound_by: String,
}

impl Section {
    /// Cycles of its run, or of its bound where it has not run.
    fn cycles(&self) -> u64 {
        self.run.as_ref().map_or(self.bound, |run| run.cycles)
    }

    fn units(&self) -> u64 {
        self.stages.iter().map(|stage| stage.pcus.len() as u64).sum()
    }

    fn banks(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.banks).fold(0, u64::saturating_add)
    }
}

/// The sheet of `map` on an RDU.
pub(super) fn of_grid(text: &str) -> Result<Sheet, String> {
    let of: Grid = parsed(text)?;
    let Some(longest) = of.sections.iter().max_by_key(|section| section.cycles()) else {
        return Err("no sections, expected at least one".to_owned());
    };
    let (chip, banks) = (&of.arch, of.arch.pmus.saturating_mul(of.arch.banks_per_pmu));
    let mut sheet = Sheet {
        kind: "map",
        title: format!("{} on {}: map, {}", of.workload.name, chip.name, of.mode),
        headline: counted(of.sections.len(), "section"),
        verdict: format!(
            "{} takes {} of {} PCUs and {} of the memory banks{}",
            if of.sections.len() == 1 { longest.name.clone() } else { format!("the longest, {},", longest.name) },
            whole(longest.units()),
            whole(chip.pcus),
            share(longest.banks(), banks),
            longest.run.as_ref().map_or_else(String::new, |run| format!("; it is bound by {}", run.bound_by))
        ),
        remarks: of.notes.clone(),
        ..Sheet::default()
    };
    let sum = |of_section: fn(&Section) -> f64| of.sections.iter().map(of_section).sum::<f64>();
    sheet.figures.extend([
        Figure::low("cycles", "", sum(|section| section.cycles() as f64)),
        Figure::plain("sections", "", of.sections.len() as f64),
        Figure::plain("PCUs of the longest section", "", longest.units() as f64),
        Figure::plain(
            "off-chip traffic",
            "B",
            sum(|section| section.streams.iter().map(|stream| stream.bytes as f64).sum()),
        ),
        Figure::low("flits over the fullest link", "", longest.network.fullest_flits as f64),
    ]);
    let row = |stage: &Stage| BarRow { name: stage.operators.join("+"), values: vec![stage.pcus.len() as f64] };
    sheet.bars.push(Bars {
        title: format!("PCUs of each stage of {}", longest.name),
        unit: "",
        pieces: vec!["PCUs".to_owned()],
        rows: longest.stages.iter().map(row).collect(),
    });
    sheet.tables.extend(placed(&of));
    sheet.tables.extend(moved(&of));
    Ok(sheet)
}

/// Sections and stages on their units.
fn placed(of: &Grid) -> [SheetTable; 2] {
    let head = ["section", "cycles", "bound by", "row tiles", "PCUs", "of all", "banks", "links with flits"];
    let mut sections = SheetTable::new("Sections", &head, &[0, 2]);
    let mut stages = SheetTable::new(
        "Stages",
        &["section", "stage", "PCUs", "mapping", "busy", "waits for input", "waits for room"],
        &[0, 1, 3],
    );
    for section in &of.sections {
        let (name, nest) = (&section.name, &section.nest);
        sections.rows.push(vec![
            name.clone(),
            whole(section.cycles()),
            section.run.as_ref().map_or_else(|| "not run".to_owned(), |run| run.bound_by.clone()),
            format!("{} of {} rows, {} in all", whole(nest.row_tiles), whole(nest.tile_rows), whole(nest.rows)),
            whole(section.units()),
            share(section.units(), of.arch.pcus),
            whole(section.banks()),
            format!("{} of {}", whole(section.network.links_used), whole(section.network.links)),
        ]);
        for stage in &section.stages {
            let time = stage.time.as_ref();
            let part = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), percent);
            stages.rows.push(vec![
                name.clone(),
                stage.operators.join("+"),
                whole(stage.pcus.len() as u64),
                mapping(&stage.mapping),
                part(time.map(|time| time.busy)),
                part(time.and_then(|time| time.starved)),
                part(time.and_then(|time| time.stalled)),
            ]);
        }
    }
    [sections, stages]
}

/// Buffers, and streams to and from off-chip memory.
fn moved(of: &Grid) -> [SheetTable; 2] {
    let head = ["section", "tensor", "role", "slots", "part of a slot", "PMUs", "banks"];
    let mut buffers = SheetTable::new("Buffers", &head, &[0, 1, 2]);
    let head = ["section", "tensor", "direction", "tier", "passes", "bytes", "AGs"];
    let mut streams = SheetTable::new("Off-chip streams", &head, &[0, 1, 2, 3]);
    for section in &of.sections {
        for buffer in &section.buffers {
            buffers.rows.push(vec![
                section.name.clone(),
                buffer.tensor.clone(),
                buffer.role.replace('_', " "),
                whole(buffer.depth),
                bytes(buffer.slot_bytes),
                whole(buffer.pmus),
                whole(buffer.banks),
            ]);
        }
        for stream in &section.streams {
            streams.rows.push(vec![
                section.name.clone(),
                stream.tensor.clone(),
                stream.direction.clone(),
                stream.tier.clone(),
                whole(stream.passes),
                bytes(stream.bytes),
                whole(stream.generators.len() as u64),
            ]);
        }
    }
    [buffers, streams]
}

/// A part of a whole in percent.
fn share(part: u64, whole: u64) -> String {
    percent(quotient(part as f64, whole as f64))
}

/// How a stage lies on its units, in a few words.
fn mapping(of: &Value) -> String {
    let count = |key: &str| of[key].as_u64().unwrap_or(1);
    if of["kind"] == "gemm" {
        let style = of["style"].as_str().unwrap_or_default();
        return format!("{} rows x {} columns x {} of K, {style}", count("pm"), count("pn"), count("pk"));
    }
    format!("{} rows x {} columns, {} in a chain", count("pm"), count("pn"), count("chain"))
}

#[derive(Deserialize)]
struct Tiles {
    arch: TileChip,
    workload: String,
    mode: String,
    #[serde(default)]
    notes: Vec<String>,
    operators: Vec<Operator>,
}

#[derive(Deserialize)]
struct TileChip {
    name: String,
    tiles: u64,
    sram_bytes: u64,
    reserved_bytes: u64,
}

#[derive(Deserialize)]
struct Operator {
    name: String,
    repeat: u64,
    mapping: String,
    live_bytes: u64,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    times: u64,
    cycles: u64,
    exchange_cycles: u64,
    tiles_at_work: u64,
    balance: f64,
    bytes_by_tile: Vec<(u64, u64)>,
}

impl Operator {
    /// Cycles of all runs of a step: computing, and exchange.
    fn cycles(&self, step: &Step) -> [f64; 2] {
        let times = step.times.saturating_mul(self.repeat) as f64;
        [step.cycles.saturating_sub(step.exchange_cycles) as f64 * times, step.exchange_cycles as f64 * times]
    }

    /// Cycles of all runs of all steps: computing, and exchange.
    fn all_cycles(&self) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for step in &self.steps {
            let [computing, exchange] = self.cycles(step);
            sum = [sum[0] + computing, sum[1] + exchange];
        }
        sum
    }
}

/// The sheet of `map` on a chip of tiles.
pub(super) fn of_tiles(text: &str) -> Result<Sheet, String> {
    let of: Tiles = parsed(text)?;
    let chip = &of.arch;
    let held = |operator: &Operator, step: &Step| {
        let most = step.bytes_by_tile.iter().map(|&(bytes, _)| bytes).max().unwrap_or(0);
        chip.reserved_bytes.saturating_add(operator.live_bytes).saturating_add(most)
    };
    let steps = || of.operators.iter().flat_map(|operator| operator.steps.iter().map(move |step| (operator, step)));
    let Some((operator, step)) = steps().max_by_key(|&(operator, step)| held(operator, step)) else {
        return Err("no steps, expected at least one".to_owned());
    };
    let most = held(operator, step);
    let head = ["operator", "step", "runs", "cycles", "exchange", "tiles at work", "balance", "fullest tile"];
    let mut table = SheetTable::new("Steps", &head, &[0, 1]);
    for (operator, step) in steps() {
        table.rows.push(vec![
            operator.name.clone(),
            step.name.clone(),
            whole(step.times.saturating_mul(operator.repeat)),
            whole(step.cycles),
            whole(step.exchange_cycles),
            whole(step.tiles_at_work),
            percent(step.balance),
            bytes(held(operator, step)),
        ]);
    }
    let mut operators = SheetTable::new("Operators", &["operator", "runs", "split"], &[0, 2]);
    for operator in &of.operators {
        operators.rows.push(vec![operator.name.clone(), whole(operator.repeat), operator.mapping.clone()]);
    }
    let mut longest: Vec<&Operator> = of.operators.iter().collect();
    longest.sort_by(|a, b| b.all_cycles().iter().sum::<f64>().total_cmp(&a.all_cycles().iter().sum::<f64>()));
    longest.truncate(MOST_BARS);
    let row = |operator: &&Operator| BarRow { name: operator.name.clone(), values: operator.all_cycles().to_vec() };
    let sum = |at: usize| of.operators.iter().map(|operator| operator.all_cycles()[at]).sum::<f64>();
    Ok(Sheet {
        kind: "tiles",
        title: format!("{} on {}: map, {}", of.workload, chip.name, of.mode),
        headline: percent(quotient(most as f64, chip.sram_bytes as f64)),
        verdict: format!(
            "of the memory of a tile is taken on the fullest of {} tiles, in step {} of {}: {} of {}",
            whole(chip.tiles),
            step.name,
            operator.name,
            bytes(most),
            bytes(chip.sram_bytes)
        ),
        figures: vec![
            Figure::low("cycles", "", sum(0) + sum(1)),
            Figure::low("of them exchange", "", sum(1)),
            Figure::low("memory of the fullest tile", "B", most as f64),
            Figure::plain("steps", "", steps().count() as f64),
        ],
        bars: vec![Bars {
            title: "Cycles of the longest operators".to_owned(),
            unit: "",
            pieces: vec!["computing".to_owned(), "exchange".to_owned()],
            rows: longest.iter().map(row).collect(),
        }],
        tables: vec![table, operators],
        remarks: of.notes,
        ..Sheet::default()
    })
}
