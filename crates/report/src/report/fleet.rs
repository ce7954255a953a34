//! A search for the fleet that serves a model best under targets: JSON, tables, and a picture of throughput against speed.

use std::fmt::Write as _;

use serde::Serialize;

use super::chart::{Curve, CurveChart};
use super::describe::chips;
use super::human::{shorten, si};
use super::percentiles::Percentiles;
use super::pod::SystemEntry;
use super::screen::Screen;
use super::text_table::{align_left, new_table, wrapped};
use super::write::{File, WriteError};
use rdusim_pod::{Division, Fleet, FleetObjective, FleetSearch, Operated, Target};

/// Version of the object's shape.
const SCHEMA: u32 = 1;

/// Divisions that a screen shows.
const MOST_SHOWN: usize = 8;

/// Curves of the picture, beside the front.
const MOST_CURVES: usize = 7;

/// Columns of a reason on a screen.
const NARROW: usize = 44;

/// A search and what it found.
#[derive(Debug, Clone, Copy)]
pub struct FleetReport<'a> {
    /// System, model and what was asked of the fleet.
    pub search: &'a FleetSearch<'a>,
    /// The divisions by rank, and the front of cost against speed.
    pub fleet: &'a Fleet,
}

#[derive(Serialize)]
struct TargetEntry {
    statistic: &'static str,
    most_s: f64,
}

impl From<Target> for TargetEntry {
    fn from(target: Target) -> Self {
        Self { statistic: target.statistic.name(), most_s: target.most_s }
    }
}

/// All of a replica's cost over its tokens of one kind.
#[derive(Serialize)]
struct CostEntry {
    prompts: f64,
    answers: f64,
    all: f64,
}

#[derive(Serialize)]
struct PointEntry {
    tp: u64,
    pp: u64,
    prefill_chunk: Option<u64>,
    users: u64,
    ttft_s: Percentiles,
    token_s: Percentiles,
    tokens_per_s: f64,
    tokens_per_s_per_user: f64,
    tokens_per_s_per_chip: f64,
    chip_hours_per_million_tokens: CostEntry,
    usd_per_million_tokens: Option<CostEntry>,
    joules_per_million_tokens: CostEntry,
}

#[derive(Serialize)]
struct DivisionEntry {
    tp: u64,
    pp: u64,
    dp: u64,
    meets_targets: bool,
    why: String,
    replica: Option<PointEntry>,
}

#[derive(Serialize)]
struct BestEntry {
    tp: u64,
    pp: u64,
    dp: u64,
    chips: u64,
    users: u64,
    tokens_per_s: f64,
    replica: PointEntry,
}

#[derive(Serialize)]
struct Counts {
    divisions: usize,
    simulated: usize,
    points: usize,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    system: SystemEntry<'a>,
    model: &'a str,
    phase: &'static str,
    stack: &'static str,
    objective: &'static str,
    ttft_target: Option<TargetEntry>,
    token_target: Option<TargetEntry>,
    usd_per_chip_hour: Option<f64>,
    usd_per_kwh: Option<f64>,
    best: Option<BestEntry>,
    searched: Counts,
    divisions: Vec<DivisionEntry>,
    front: Vec<PointEntry>,
    notes: &'a [String],
}

/// Hours of a chip for each million tokens, of seconds for each token.
fn hours_per_million(seconds: f64) -> f64 {
    seconds * 1e6 / 3600.0
}

impl FleetReport<'_> {
    fn objective(&self) -> &'static str {
        match self.search.asked.objective {
            FleetObjective::Cost => "cost",
            FleetObjective::Throughput => "throughput",
            FleetObjective::Users => "users",
        }
    }

    fn point(&self, of: &Operated) -> PointEntry {
        // Of a token of an answer; those of prompts and of both share the same cost.
        let split = |each: f64| CostEntry {
            prompts: each * of.tokens_per_s / of.prompt_tokens_per_s,
            answers: each,
            all: each * of.tokens_per_s / (of.tokens_per_s + of.prompt_tokens_per_s),
        };
        PointEntry {
            tp: of.tp,
            pp: of.pp,
            prefill_chunk: of.chunk,
            users: of.users,
            ttft_s: of.ttft_s.into(),
            token_s: of.token_s.into(),
            tokens_per_s: of.tokens_per_s,
            tokens_per_s_per_user: per_user(of),
            tokens_per_s_per_chip: of.tokens_per_s / of.chips() as f64,
            chip_hours_per_million_tokens: split(hours_per_million(of.chip_s_per_token())),
            usd_per_million_tokens: of.usd_per_million_tokens(&self.search.asked.price).map(split),
            joules_per_million_tokens: split(of.joules_per_token * 1e6),
        }
    }

    fn division(&self, of: &Division) -> DivisionEntry {
        DivisionEntry {
            tp: of.tp,
            pp: of.pp,
            dp: of.replicas,
            meets_targets: of.is_met,
            why: of.why.clone(),
            replica: of.best.as_ref().map(|best| self.point(best)),
        }
    }

    /// The object of `--format json`.
    pub fn json(&self) -> String {
        let Fleet { divisions, front, points, simulated, notes } = self.fleet;
        let best = self.fleet.best().map(|(best, replicas)| BestEntry {
            tp: best.tp,
            pp: best.pp,
            dp: replicas,
            chips: best.chips() * replicas,
            users: best.users * replicas,
            tokens_per_s: best.tokens_per_s * replicas as f64,
            replica: self.point(best),
        });
        let document = Document {
            schema: SCHEMA,
            system: SystemEntry { name: &self.search.system.name, chips: self.search.chips.1 },
            model: &self.search.service.model,
            phase: "requests",
            stack: self.search.stack.kind.name(),
            objective: self.objective(),
            ttft_target: self.search.asked.targets.ttft.map(TargetEntry::from),
            token_target: self.search.asked.targets.token.map(TargetEntry::from),
            usd_per_chip_hour: self.search.asked.price.usd_per_chip_hour,
            usd_per_kwh: self.search.asked.price.usd_per_kwh,
            best,
            searched: Counts { divisions: divisions.len(), simulated: *simulated, points: points.len() },
            divisions: divisions.iter().map(|of| self.division(of)).collect(),
            front: front.iter().map(|of| self.point(of)).collect(),
            notes,
        };
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// Model, system and lengths of requests in a sentence.
    fn title(&self) -> String {
        let FleetSearch { system, stack, service, asked, .. } = self.search;
        format!(
            "{} on up to {} of {}, stack {}: prompts of {} tokens, answers of {} in the mean; {} divisions, {} simulated",
            service.model,
            chips(self.search.chips.1),
            system.name,
            stack.kind.name(),
            asked.lengths.prompt,
            asked.lengths.output,
            self.fleet.divisions.len(),
            self.fleet.simulated
        )
    }

    /// The best in a sentence.
    fn verdict(&self) -> String {
        let Some((best, replicas)) = self.fleet.best() else {
            return "No division keeps to the targets; the nearest of each and what it breaks:".to_owned();
        };
        let price = best.usd_per_million_tokens(&self.search.asked.price).map_or_else(
            || format!("{:.3} hours of a chip a million tokens", hours_per_million(best.chip_s_per_token())),
            |usd| format!("{usd:.3} dollars a million tokens of answers"),
        );
        let what = match self.search.asked.objective {
            FleetObjective::Cost => "Cheapest",
            FleetObjective::Throughput => "Most tokens a second",
            FleetObjective::Users => "Most users",
        };
        format!(
            "{what}: {} of tp {} x pp {} with {} each ({} of {}{}): {} tokens/s in all, {} a user, {price}",
            counted(replicas, "replica"),
            best.tp,
            best.pp,
            counted(best.users, "user"),
            counted(best.users * replicas, "user"),
            chips(best.chips() * replicas),
            best.chunk.map_or_else(String::new, |chunk| format!(", prompts in parts of {chunk} tokens")),
            si(best.tokens_per_s * replicas as f64, "").trim_end(),
            si(per_user(best), "").trim_end()
        )
    }

    fn listed(&self, list: &[Division], narrow: Option<usize>) -> String {
        let has_price = self.search.asked.price != rdusim_pod::Price::default();
        let cost = if has_price { "$/M tokens" } else { "chip-h/M" };
        let names = ["tp", "pp", "replicas", "users", "first p99", "token p99", "tokens/s", "a chip", cost, "why not"];
        let mut table = new_table(names.map(str::to_owned).to_vec());
        align_left(&mut table, names.len() - 1);
        for of in list {
            let why = narrow.map_or_else(|| of.why.clone(), |most| shorten(&of.why, most));
            let mut row = vec![of.tp.to_string(), of.pp.to_string()];
            row.push(if of.replicas > 0 { of.replicas.to_string() } else { "-".to_owned() });
            match &of.best {
                None => row.extend(vec!["-".to_owned(); 6]),
                Some(best) => {
                    let cost = best
                        .usd_per_million_tokens(&self.search.asked.price)
                        .unwrap_or_else(|| hours_per_million(best.chip_s_per_token()));
                    row.extend([
                        best.users.to_string(),
                        si(best.ttft_s.p99, "s"),
                        si(best.token_s.p99, "s"),
                        si(best.tokens_per_s, "").trim_end().to_owned(),
                        si(best.tokens_per_s / best.chips() as f64, "").trim_end().to_owned(),
                        format!("{cost:.3}"),
                    ]);
                }
            }
            row.push(why);
            table.add_row(row);
        }
        table.trim_fmt()
    }

    /// The fleet on one screen.
    pub fn screen(&self) -> String {
        let mut screen = Screen::default();
        screen.sentence(&self.title());
        screen.gap();
        screen.sentence(&self.verdict());
        screen.gap();
        let list = &self.fleet.divisions[..self.fleet.divisions.len().min(MOST_SHOWN)];
        screen.table(&self.listed(list, Some(NARROW)));
        screen.gap();
        screen.remarks(self.fleet.notes.iter().map(String::as_str));
        screen.finish("all divisions, and the front of cost against speed")
    }

    /// The tables for a terminal.
    pub fn table(&self) -> String {
        let mut text =
            format!("{}\n\n{}\n\n{}\n\n", self.title(), self.verdict(), self.listed(&self.fleet.divisions, None));
        let mut table =
            new_table(["tokens/s a user", "tokens/s a chip", "users", "tp", "pp"].map(str::to_owned).to_vec());
        for of in &self.fleet.front {
            let rates =
                [per_user(of), of.tokens_per_s / of.chips() as f64].map(|rate| si(rate, "").trim_end().to_owned());
            let mut row = rates.to_vec();
            row.extend([of.users, of.tp, of.pp].map(|count| count.to_string()));
            table.add_row(row);
        }
        let _ = writeln!(text, "The front of cost against speed, a replica:\n\n{}", table.trim_fmt());
        for note in &self.fleet.notes {
            let _ = writeln!(text, "\n{}", wrapped("- ", note));
        }
        text
    }

    /// Tokens a second of a chip against those of a user: the best divisions, and the front.
    fn chart(&self) -> CurveChart {
        let at = |of: &Operated| (per_user(of), of.tokens_per_s / of.chips() as f64);
        let shown = self.fleet.divisions.iter().filter(|of| of.best.is_some()).take(MOST_CURVES);
        let curve = |division: &Division| {
            let chunk = division.best.as_ref().and_then(|best| best.chunk);
            let own = |of: &&Operated| (of.tp, of.pp, of.chunk) == (division.tp, division.pp, chunk);
            let mut points: Vec<(f64, f64)> = self.fleet.points.iter().filter(own).map(at).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { name: format!("tp {} x pp {}", division.tp, division.pp), points, dashed: false, like: None }
        };
        let mut curves: Vec<Curve> = shown.map(curve).collect();
        curves.push(Curve {
            name: "front".to_owned(),
            points: self.fleet.front.iter().map(at).collect(),
            dashed: true,
            like: None,
        });
        CurveChart {
            title: "Throughput of a chip against speed for a user".to_owned(),
            about: self.title(),
            x_name: "tokens/s a user".to_owned(),
            y_name: "tokens/s a chip".to_owned(),
            curves,
        }
    }

    /// The files of `--out`.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let chart = self.chart();
        let failed = |error| WriteError::Chart("front", error);
        Ok(vec![
            File { name: "result.json".to_owned(), bytes: self.json().into_bytes() },
            File { name: "front.svg".to_owned(), bytes: chart.svg().map_err(failed)?.into_bytes() },
            File { name: "front.png".to_owned(), bytes: chart.png().map_err(failed)? },
        ])
    }
}

fn per_user(of: &Operated) -> f64 {
    if of.token_s.mean > 0.0 { 1.0 / of.token_s.mean } else { 0.0 }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
