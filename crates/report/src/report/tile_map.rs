//! The map of a plan on tiles: text, JSON, and pictures of its steps.

use super::chart::{ChartError, TileChart};
use super::figures::quotient;
use super::human::{bytes, clean, percent, shorten, whole};
use super::map_files::file_name;
use super::text_table::{align_left, new_table, wrapped};
use super::write::{File, WriteError};
use crate::map::{StepPlace, TileMap};

/// Columns of an operator's name.
const NAME: usize = 30;
/// Most steps in the table; of more, those that take longest.
const MOST_STEPS: usize = 60;

/// The map as text: a line for every step.
pub fn tile_map_table(map: &TileMap) -> String {
    let arch = &map.arch;
    let io_tiles =
        if arch.io_tiles > 0 { format!(", and {} that only stream", whole(arch.io_tiles)) } else { String::new() };
    let mut blocks = vec![format!(
        "{}\n{}\nmode      {}",
        wrapped(
            "chip      ",
            &format!(
                "{}: {} tiles that compute{io_tiles}; {} of memory a tile, {} of it reserved",
                clean(&arch.name),
                whole(arch.tiles),
                bytes(arch.sram_bytes),
                bytes(arch.reserved_bytes)
            )
        ),
        wrapped("workload  ", &clean(&map.workload)),
        map.mode
    )];
    let taken = |&(at, step): &StepPlace| {
        let (operator, step) = (&map.operators[at], &map.operators[at].steps[step]);
        step.cycles.saturating_mul(step.times).saturating_mul(operator.repeat)
    };
    let mut places: Vec<StepPlace> = Vec::new();
    for (at, operator) in map.operators.iter().enumerate() {
        places.extend((0..operator.steps.len()).map(|step| (at, step)));
    }
    let all = places.len();
    if all > MOST_STEPS {
        places.sort_by_key(|place| std::cmp::Reverse(taken(place)));
        places.truncate(MOST_STEPS);
        places.sort_unstable();
    }
    let header = ["operator", "step", "runs", "cycles", "exchange", "tiles", "balance", "tile memory", "of it"];
    let mut table = new_table(header.map(str::to_owned).to_vec());
    align_left(&mut table, 1);
    for &(at, of) in &places {
        let (operator, step) = (&map.operators[at], &map.operators[at].steps[of]);
        let held = arch.reserved_bytes + operator.live_bytes + step.most_bytes();
        table.add_row(vec![
            shorten(&operator.name, NAME),
            shorten(&step.name, 24),
            whole(step.times.saturating_mul(operator.repeat)),
            whole(step.cycles),
            whole(step.exchange_cycles),
            whole(step.tiles_at_work),
            percent(step.balance),
            bytes(held),
            percent(quotient(held as f64, arch.sram_bytes as f64)),
        ]);
    }
    let told = "cycles: of one run with its exchange; balance: mean work of all tiles over the busiest's; tile memory: of the \
                fullest tile, with what lives longer and what is reserved";
    blocks.push(format!("{}\n{}", table.trim_fmt(), wrapped("", told)));
    let mut notes: Vec<String> = map.notes.iter().map(|note| wrapped("note  ", &clean(note))).collect();
    if all > places.len() {
        notes.push(wrapped(
            "note  ",
            &format!("the {} longest of {} steps; JSON has all", places.len(), whole(all as u64)),
        ));
    }
    if let Some([fullest, longest]) = map.notable() {
        let name = |(at, step): StepPlace| {
            format!("`{}.{}`", clean(&map.operators[at].name), clean(&map.operators[at].steps[step].name))
        };
        notes.push(wrapped(
            "note  ",
            &format!(
                "the fullest step is {}, the longest {}; `--out` draws both, `--step` others",
                name(fullest),
                name(longest)
            ),
        ));
    }
    blocks.push(notes.join("\n"));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n\n") + "\n"
}

/// The map as JSON.
pub fn tile_map_json(map: &TileMap) -> String {
    serde_json::to_string(map).map_or_else(|_| String::new(), |text| text + "\n")
}

/// `map.json`, and `map-OPERATOR-STEP.svg` and `.png` of each of `places`.
pub fn tile_map_files(map: &TileMap, places: &[StepPlace]) -> Result<Vec<File>, WriteError> {
    let mut files = vec![File { name: "map.json".to_owned(), bytes: tile_map_json(map).into_bytes() }];
    let failed = |error: ChartError| WriteError::Chart("map", error);
    for &(at, step) in places {
        let operator = &map.operators[at];
        let chart = TileChart::new(map, (at, step));
        let name = format!("map-{}-{}", file_name(&operator.name), file_name(&operator.steps[step].name));
        if files.iter().any(|file| file.name == format!("{name}.svg")) {
            continue;
        }
        files.push(File { name: format!("{name}.svg"), bytes: chart.svg().map_err(failed)?.into_bytes() });
        files.push(File { name: format!("{name}.png"), bytes: chart.png().map_err(failed)? });
    }
    Ok(files)
}
