//! A trace of requests on a pod: JSON, table, and a picture of throughput against speed.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;

use super::chart::{Curve, CurveChart};
use super::human::{percent, si};
use super::pod::SystemEntry;
use super::serving_setup::{ServedParallelEntry, ServingSetup};
use super::text_table::{new_table, wrapped};
use super::write::{File, WriteError};
use crate::pod::{Grid, Sample, Spread, Streamed};

/// Version of the object's shape.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

impl From<Spread> for Percentiles {
    fn from(Spread { mean, p50, p95, p99 }: Spread) -> Self {
        Self { mean, p50, p95, p99 }
    }
}

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
    token_s: Percentiles,
    latency_s: Percentiles,
    tokens_per_s: f64,
    tokens_per_s_per_user: f64,
    energy_per_token_j: f64,
    busy: f64,
    mean_running: f64,
    limits: IndexMap<&'static str, u64>,
    most_kv_tokens: u64,
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
            token_s: streamed.token_s.into(),
            latency_s: streamed.latency_s.into(),
            tokens_per_s: self.rate(),
            tokens_per_s_per_user: per_user(streamed.token_s.mean),
            energy_per_token_j: streamed.joules / streamed.tokens.max(1) as f64,
            busy: streamed.busy,
            mean_running: streamed.mean_running,
            limits: [
                ("batch", limits.users),
                ("kv_tokens", limits.kv_tokens),
                ("prefill_tokens", limits.prefill_tokens),
            ]
            .into_iter()
            .collect(),
            most_kv_tokens: streamed.most_kv_tokens,
            grid: &streamed.grid,
            over_time: (self.samples().iter())
                .map(|sample| (sample.at_s, sample.running, sample.waiting, sample.kv_tokens))
                .collect(),
        };
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let streamed = self.streamed;
        let mut text = self.setup.title()
            + "
";
        let limits = &streamed.limits;
        let _ = write!(
            text,
            "{} requests, at most {} at one time a replica, {} tokens of keys and values a replica\n\n",
            streamed.requests, limits.users, limits.kv_tokens
        );
        let _ = write!(
            text,
            "{} tokens in {}: {} tokens/s, {} tokens/s a user, {} a token; replicas work {} of the time, on {:.1} requests \
             each step\n\n",
            streamed.tokens,
            si(streamed.end_s, "s"),
            si(self.rate(), ""),
            si(per_user(streamed.token_s.mean), ""),
            si(streamed.joules / streamed.tokens.max(1) as f64, "J"),
            percent(streamed.busy),
            streamed.mean_running
        );
        let names = ["", "mean", "p50", "p95", "p99"];
        let mut table = new_table(names.map(str::to_owned).to_vec());
        let rows = [
            ("time to first token", streamed.ttft_s),
            ("time a token behind it", streamed.token_s),
            ("time to last token", streamed.latency_s),
        ];
        for (name, Spread { mean, p50, p95, p99 }) in rows {
            let mut row = vec![name.to_owned()];
            row.extend([mean, p50, p95, p99].map(|seconds| si(seconds, "s")));
            table.add_row(row);
        }
        let _ = writeln!(text, "{}", table.trim_fmt());
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
        let chart = self.throughput();
        let failed = |error| WriteError::Chart("throughput", error);
        files.push(File { name: "throughput.svg".to_owned(), bytes: chart.svg().map_err(failed)?.into_bytes() });
        files.push(File { name: "throughput.png".to_owned(), bytes: chart.png().map_err(failed)? });
        Ok(files)
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
