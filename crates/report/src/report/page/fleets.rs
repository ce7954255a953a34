//! The sheet of a search for a fleet that serves under targets.

use serde::Deserialize;

use super::super::describe::counted;
use super::super::human::{count, si};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

#[derive(Deserialize)]
struct Found {
    schema: u32,
    system: System,
    model: String,
    stack: String,
    objective: String,
    ttft_target: Option<Target>,
    token_target: Option<Target>,
    best: Option<Best>,
    searched: Counts,
    divisions: Vec<Division>,
    front: Vec<Point>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct System {
    name: String,
    chips: u64,
}

#[derive(Deserialize)]
struct Target {
    statistic: String,
    most_s: f64,
}

#[derive(Deserialize)]
struct Counts {
    divisions: u64,
    simulated: u64,
    points: u64,
}

#[derive(Deserialize)]
struct Best {
    tp: u64,
    pp: u64,
    dp: u64,
    chips: u64,
    users: u64,
    tokens_per_s: f64,
    replica: Point,
}

#[derive(Deserialize)]
struct Division {
    tp: u64,
    pp: u64,
    dp: u64,
    why: String,
    replica: Option<Point>,
}

#[derive(Deserialize)]
struct Point {
    tp: u64,
    pp: u64,
    prefill_chunk: Option<u64>,
    users: u64,
    ttft_s: Spread,
    token_s: Spread,
    tokens_per_s_per_user: f64,
    tokens_per_s_per_chip: f64,
    chip_hours_per_million_tokens: Cost,
    usd_per_million_tokens: Option<Cost>,
    joules_per_million_tokens: Cost,
}

#[derive(Deserialize)]
struct Spread {
    mean: f64,
    p99: f64,
}

#[derive(Deserialize)]
struct Cost {
    prompts: f64,
    answers: f64,
}

/// A rate of tokens, in words.
fn rate(tokens_per_s: f64) -> String {
    format!("{} tokens/s", si(tokens_per_s, "").trim_end())
}

/// The sheet of the best fleet, with every division and the front.
pub(super) fn fleet(text: &str) -> Result<Sheet, String> {
    let of: Found = parsed(text)?;
    if of.schema != 1 {
        return Err(format!("schema {}, this version reads 1", of.schema));
    }
    let (headline, verdict) = of.verdict();
    let searched = &of.searched;
    Ok(Sheet {
        kind: "search",
        title: format!("{} on up to {} of {}", of.model, counted(of.system.chips as usize, "chip"), of.system.name),
        headline,
        verdict,
        lines: vec![format!(
            "Looked for: {}; stack {}; {} divisions, {} simulated at {} points.",
            of.objective, of.stack, searched.divisions, searched.simulated, searched.points
        )],
        figures: of.best.as_ref().map(Best::figures).unwrap_or_default(),
        bars: vec![of.bars()],
        tables: vec![of.table(), of.front_table()],
        remarks: of.notes,
        ..Sheet::default()
    })
}

impl Found {
    /// What was promised, in words.
    fn promises(&self) -> String {
        let promised = |target: &Option<Target>, what: &str| {
            let target = target.as_ref()?;
            Some(format!("{what} {} within {}", target.statistic, si(target.most_s, "s")))
        };
        let all = [promised(&self.ttft_target, "the first token's"), promised(&self.token_target, "a token's")];
        let all: Vec<String> = all.into_iter().flatten().collect();
        if all.is_empty() { "no target".to_owned() } else { all.join(", ") }
    }

    /// A headline and a sentence.
    fn verdict(&self) -> (String, String) {
        let promises = self.promises();
        let Some(best) = &self.best else {
            let verdict = format!("{promises}; the nearest of each division below");
            return ("nothing keeps to the targets".to_owned(), verdict);
        };
        let chunk = best
            .replica
            .prefill_chunk
            .map_or_else(String::new, |chunk| format!(", prompts in parts of {chunk} tokens"));
        let verdict = format!(
            "{} of tp {} x pp {} on {}, {}{chunk}; {promises}",
            counted(best.dp as usize, "replica"),
            best.tp,
            best.pp,
            counted(best.chips as usize, "chip"),
            counted(best.users as usize, "user")
        );
        (rate(best.tokens_per_s), verdict)
    }

    fn table(&self) -> SheetTable {
        let columns = ["tp", "pp", "replicas", "users of one", "first p99", "token p99", "a user", "a chip", "why not"];
        let mut table = SheetTable::new("Divisions", &columns, &[8]);
        for division in &self.divisions {
            let mut row = vec![division.tp.to_string(), division.pp.to_string(), count(division.dp)];
            match &division.replica {
                None => row.extend(vec!["-".to_owned(); 5]),
                Some(own) => row.extend([
                    count(own.users),
                    si(own.ttft_s.p99, "s"),
                    si(own.token_s.p99, "s"),
                    rate(own.tokens_per_s_per_user),
                    rate(own.tokens_per_s_per_chip),
                ]),
            }
            row.push(division.why.clone());
            table.rows.push(row);
        }
        table
    }

    fn front_table(&self) -> SheetTable {
        let columns = ["tokens/s a user", "tokens/s a chip", "users", "tp", "pp"];
        let mut front = SheetTable::new("Front of cost against speed, a replica", &columns, &[]);
        for own in &self.front {
            front.rows.push(vec![
                rate(own.tokens_per_s_per_user),
                rate(own.tokens_per_s_per_chip),
                count(own.users),
                own.tp.to_string(),
                own.pp.to_string(),
            ]);
        }
        front
    }

    fn bars(&self) -> Bars {
        let row =
            |own: &Point| BarRow { name: rate(own.tokens_per_s_per_user), values: vec![own.tokens_per_s_per_chip] };
        Bars {
            title: "Tokens a second of a chip along the front, by speed for a user".to_owned(),
            unit: "tokens/s",
            pieces: vec!["a chip".to_owned()],
            rows: self.front.iter().map(row).collect(),
        }
    }
}

impl Best {
    fn figures(&self) -> Vec<Figure> {
        let own = &self.replica;
        let chip_s = own.chip_hours_per_million_tokens.answers * 3600.0;
        let mut figures = vec![
            Figure::high("tokens a second", "tokens/s", self.tokens_per_s),
            Figure::high("tokens a second and user", "tokens/s", own.tokens_per_s_per_user),
            Figure::high("tokens a second and chip", "tokens/s", own.tokens_per_s_per_chip),
            Figure::low("time to first token, mean", "s", own.ttft_s.mean),
            Figure::low("time to first token, p99", "s", own.ttft_s.p99),
            Figure::low("time a token, mean", "s", own.token_s.mean),
            Figure::low("time a token, p99", "s", own.token_s.p99),
            Figure::low("time of a chip for a million tokens of answers", "s", chip_s),
            Figure::low("energy of a million tokens of answers", "J", own.joules_per_million_tokens.answers),
        ];
        if let Some(usd) = &own.usd_per_million_tokens {
            figures.push(Figure::low("dollars a million tokens of answers", "", usd.answers));
            figures.push(Figure::low("dollars a million tokens of prompts", "", usd.prompts));
        }
        figures
    }
}
