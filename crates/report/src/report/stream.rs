//! A trace of requests on a pod: JSON, table, and a picture of throughput against speed.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;

use super::chart::{AreaChart, ChartError, Counted, Curve, CurveChart, Facet, PartsChart, PlotData, Series, StudyPlot};
use super::human::{percent, si};
use super::percentiles::Percentiles;
use super::pod::SystemEntry;
use super::screen::Screen;
use super::serving_setup::{ServedParallelEntry, ServingSetup};
use super::text_table::{new_table, wrapped};
use super::write::{File, WriteError};
use rdusim_pod::{Drafted, Grid, Limits, Sample, Spread, StepParts, Streamed};

/// Version of the object's shape.
const SCHEMA: u32 = 1;

/// Points of a distribution in the picture of latencies.
const QUANTILES: usize = 40;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    system: SystemEntry<'a>,
    model: &'a str,
    phase: &'static str,
    parallel: ServedParallelEntry,
    requests: u64,
    tokens: u64,
    end_s: f64,
    ttft_s: Percentiles,
    /// `null` where no request has a second token.
    token_s: Option<Percentiles>,
    /// Over all tokens but the first ones; `null` where there are none.
    inter_token_s: Option<Percentiles>,
    latency_s: Percentiles,
    tokens_per_s: f64,
    tokens_per_s_per_user: Option<f64>,
    energy_per_token_j: f64,
    busy: f64,
    mean_running: f64,
    limits: IndexMap<&'static str, u64>,
    most_kv_tokens: u64,
    notes: &'a [String],
    grid: &'a Grid,
    /// Of the first replica: seconds, requests that run, that wait, tokens held.
    over_time: Vec<(f64, u64, u64, u64)>,
}

/// A trace and what it ran on.
#[derive(Debug, Clone, Copy)]
pub struct StreamReport<'a> {
    /// What the model is served on.
    pub setup: ServingSetup<'a>,
    /// What came of it.
    pub streamed: &'a Streamed,
}

impl StreamReport<'_> {
    fn rate(&self) -> f64 {
        self.streamed.tokens as f64 / self.streamed.end_s
    }

    /// Simulated decode steps: users, context, seconds.
    fn points(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        let grid = &self.streamed.grid;
        grid.users.iter().zip(&grid.decode).flat_map(move |(&users, list)| {
            grid.contexts.iter().zip(list).map(move |(&context, cost)| (users, context, cost.seconds))
        })
    }

    fn samples(&self) -> &[Sample] {
        self.streamed.replicas.first().map_or(&[], |replica| &replica.samples)
    }

    /// The object of `--format json`.
    pub fn json(&self) -> String {
        let streamed = self.streamed;
        let limits = streamed.limits;
        let document = Document {
            schema: SCHEMA,
            system: self.setup.system_entry(),
            model: &self.setup.service.model,
            phase: "requests",
            parallel: self.setup.parallel_entry(),
            requests: streamed.requests,
            tokens: streamed.tokens,
            end_s: streamed.end_s,
            ttft_s: streamed.ttft_s.into(),
            token_s: streamed.token_s.map(Percentiles::from),
            inter_token_s: streamed.gap_s.map(Percentiles::from),
            latency_s: streamed.latency_s.into(),
            tokens_per_s: self.rate(),
            tokens_per_s_per_user: streamed.token_s.map(|of| per_user(of.mean)),
            energy_per_token_j: streamed.joules / streamed.tokens.max(1) as f64,
            busy: streamed.busy,
            mean_running: streamed.mean_running,
            limits: [
                ("batch", limits.users),
                ("kv_tokens", limits.kv_tokens),
                limits.chunk.map_or(("prefill_tokens", limits.prefill_tokens), |chunk| ("prefill_chunk", chunk)),
            ]
            .into_iter()
            .collect(),
            most_kv_tokens: streamed.most_kv_tokens,
            notes: &streamed.notes,
            grid: &streamed.grid,
            over_time: (self.samples().iter())
                .map(|sample| (sample.at_s, sample.running, sample.waiting, sample.kv_tokens))
                .collect(),
        };
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// What came of the requests on one screen.
    pub fn screen(&self) -> String {
        let streamed = self.streamed;
        let limits = &streamed.limits;
        let mut screen = Screen::default();
        screen.sentence(self.setup.title().trim_end());
        screen.line(&self.asked(limits));
        screen.gap();
        screen.sentence(&self.served());
        screen.gap();
        screen.table(&self.spreads());
        screen.gap();
        screen.remarks(streamed.notes.iter().map(String::as_str));
        screen.finish("")
    }

    /// What was asked for.
    fn asked(&self, limits: &Limits) -> String {
        format!(
            "{} requests, at most {} at one time a replica, {} {} a replica",
            self.streamed.requests,
            limits.users,
            limits.kv_tokens,
            if limits.size.grows { "tokens of keys and values" } else { "states" }
        )
    }

    /// What came of it in a sentence.
    fn served(&self) -> String {
        let streamed = self.streamed;
        let user = |of: Spread| format!("{} tokens/s a user, ", si(per_user(of.mean), "").trim_end());
        format!(
            "{} tokens in {}: {} tokens/s, {}{} a token; replicas work {} of the time, on {:.1} requests each step",
            streamed.tokens,
            si(streamed.end_s, "s"),
            si(self.rate(), "").trim_end(),
            streamed.token_s.map_or_else(String::new, user),
            si(streamed.joules / streamed.tokens.max(1) as f64, "J"),
            percent(streamed.busy),
            streamed.mean_running
        )
    }

    /// Times of the requests: means and percentiles.
    fn spreads(&self) -> String {
        let streamed = self.streamed;
        let names = ["", "mean", "p50", "p95", "p99"];
        let mut table = new_table(names.map(str::to_owned).to_vec());
        let rows = [
            ("time to first token", Some(streamed.ttft_s)),
            // Answers of one token have none.
            ("time a token behind it", streamed.token_s),
            ("time between tokens", streamed.gap_s),
            ("time to last token", Some(streamed.latency_s)),
        ];
        for (name, spread) in rows {
            let mut row = vec![name.to_owned()];
            row.extend(match spread {
                Some(Spread { mean, p50, p95, p99 }) => [mean, p50, p95, p99].map(|seconds| si(seconds, "s")),
                None => ["-"; 4].map(str::to_owned),
            });
            table.add_row(row);
        }
        table.trim_fmt()
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let streamed = self.streamed;
        let mut text = self.setup.title()
            + "
";
        let _ = write!(text, "{}\n\n{}\n\n", self.asked(&streamed.limits), self.served());
        let _ = writeln!(text, "{}", self.spreads());
        for note in &streamed.notes {
            let _ = writeln!(text, "\n{}", wrapped("- ", note));
        }
        text
    }

    /// The files of `--out`.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let mut files = vec![File { name: "result.json".to_owned(), bytes: self.json().into_bytes() }];
        let mut add = |name: &'static str, svg: Result<String, ChartError>, png: Result<Vec<u8>, ChartError>| {
            let failed = |error| WriteError::Chart(name, error);
            files.push(File { name: format!("{name}.svg"), bytes: svg.map_err(failed)?.into_bytes() });
            files.push(File { name: format!("{name}.png"), bytes: png.map_err(failed)? });
            Ok::<(), WriteError>(())
        };
        let (throughput, memory, requests) = (self.throughput(), self.memory(), self.requests());
        add("throughput", throughput.svg(), throughput.png())?;
        if let Some(token) = self.token() {
            add("token", token.svg(), token.png())?;
        }
        add("memory", memory.svg(), memory.png())?;
        add("requests", requests.svg(), requests.png())?;
        let latency = self.latency();
        add("latency", latency.svg(), latency.png())?;
        Ok(files)
    }

    /// Where a token's time goes, a bar for each number of users at the longest context; nothing of a grid that does not say.
    fn token(&self) -> Option<PartsChart> {
        let (grid, limits) = (&self.streamed.grid, &self.streamed.limits);
        let tokens = limits.drafted.as_ref().map_or(1.0, Drafted::expected);
        let cases: Vec<(String, Vec<f64>)> = (grid.users.iter().zip(&grid.parts))
            .map(|(users, parts)| {
                let name = if *users == 1 { "1 user".to_owned() } else { format!("{users} users") };
                (name, parts.named().into_iter().map(|(_, seconds)| seconds / tokens).collect())
            })
            .collect();
        (!cases.is_empty()).then(|| PartsChart {
            title: "Where a token's time goes".to_owned(),
            about: format!("{}; context {}", self.setup.title(), grid.contexts.last().unwrap_or(&0)),
            parts: grid
                .parts
                .first()
                .map(StepParts::named)
                .into_iter()
                .flatten()
                .map(|(name, _)| name.to_owned())
                .collect(),
            cases,
        })
    }

    /// Bytes of the fullest chip over time, of the first replica.
    fn memory(&self) -> AreaChart {
        let (service, streamed) = (self.setup.service, self.streamed);
        let (weights, each) = (service.most_weight_bytes() as f64, service.request_size().unit_bytes as f64);
        let draft = streamed.draft.as_ref().map(|of| (of.weights as f64, of.kv_bytes_per_token as f64));
        let held = |sample: &Sample| {
            let tokens = sample.kv_tokens as f64;
            let mut values = vec![weights, tokens * each];
            values.extend(draft.map(|(weights, each)| [weights, tokens * each]).into_iter().flatten());
            (sample.at_s, values)
        };
        let mut layers = vec!["weights".to_owned(), "keys and values".to_owned()];
        if let Some(of) = &streamed.draft {
            layers.extend([format!("weights of {}", of.model), format!("keys and values of {}", of.model)]);
        }
        let (of_draft, each_of_draft) = draft.unwrap_or_default();
        let room = streamed.limits.kv_tokens as f64 * (each + each_of_draft);
        AreaChart {
            title: "Memory of a chip over time".to_owned(),
            about: format!("{}; first replica", self.setup.title()),
            y_name: "held".to_owned(),
            counted: Counted::Bytes,
            layers,
            points: self.samples().iter().map(held).collect(),
            limit: Some(("room for weights, keys and values".to_owned(), weights + of_draft + room)),
        }
    }

    /// Requests that run and that wait over time, of the first replica.
    fn requests(&self) -> AreaChart {
        let counted = |sample: &Sample| (sample.at_s, vec![sample.running as f64, sample.waiting as f64]);
        AreaChart {
            title: "Requests that run and wait over time".to_owned(),
            about: format!("{}; first replica", self.setup.title()),
            y_name: "requests".to_owned(),
            counted: Counted::Things,
            layers: vec!["run".to_owned(), "wait".to_owned()],
            points: self.samples().iter().map(counted).collect(),
            limit: Some(("requests that may run at one time".to_owned(), self.streamed.limits.users as f64)),
        }
    }

    /// Latencies against the share of the requests that have at most so much, of all replicas.
    fn latency(&self) -> StudyPlot {
        let answers = || self.streamed.replicas.iter().flat_map(|replica| &replica.answers);
        let series = |name: &str, mut seconds: Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            let last = seconds.len().saturating_sub(1);
            let point =
                |part: usize| Some((*seconds.get(last * part / QUANTILES)?, 100.0 * part as f64 / QUANTILES as f64));
            Series { name: name.to_owned(), points: (0..=QUANTILES).filter_map(point).collect() }
        };
        let list = vec![
            series("time to first token", answers().map(|of| of.ttft_s).collect()),
            series("a token behind it", answers().filter_map(|of| of.token_s).collect()),
            series("time to last token", answers().map(|of| of.latency_s).collect()),
        ];
        let series = list.into_iter().filter(|series| !series.points.is_empty()).collect();
        StudyPlot {
            title: "Latencies of requests".to_owned(),
            about: self.setup.title(),
            x: "latency_s".to_owned(),
            y: "requests with at most this latency (%)".to_owned(),
            facets: vec![Facet { name: String::new(), data: PlotData::Lines(series) }],
        }
    }

    /// Tokens a second of a replica against those of a user, a curve for each context.
    fn throughput(&self) -> CurveChart {
        let curve = |&context: &u64| Curve {
            name: format!("context {context}"),
            points: {
                let of = self.points().filter(|point| point.1 == context && point.2 > 0.0);
                let mut list: Vec<(f64, f64)> =
                    of.map(|(users, _, seconds)| (1.0 / seconds, users as f64 / seconds)).collect();
                list.sort_by(|a, b| a.0.total_cmp(&b.0));
                list
            },
            dashed: false,
            like: None,
        };
        CurveChart {
            title: "Throughput against speed for a user".to_owned(),
            about: self.setup.title(),
            x_name: "tokens/s a user".to_owned(),
            y_name: "tokens/s of a replica".to_owned(),
            curves: self.streamed.grid.contexts.iter().map(curve).collect(),
        }
    }
}

fn per_user(token_s: f64) -> f64 {
    if token_s > 0.0 { 1.0 / token_s } else { 0.0 }
}
