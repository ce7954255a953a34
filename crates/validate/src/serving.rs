//! Measured latencies of served batches as cases of a system: prompts in, answers out, all users at once.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::line::Line;
use super::run::{SetPart, SetRow};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_models::model::preset;
use rdusim_pod::{Load, Parallel, Server, Service, Stack, StackKind, System};

/// Name of the kind.
pub(super) const SERVING: &str = "serving";

/// A measured batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    model: String,
    chips: u64,
    users: u64,
    prompt: u64,
    output: u64,
    /// Measured time to first token in microseconds, if it was.
    ttft_us: Option<f64>,
}

/// Simulated seconds of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latency {
    /// Until every user has a token.
    ttft_s: f64,
    /// Of a later token, mean.
    token_s: f64,
}

impl Latency {
    fn seconds(&self, batch: &Batch) -> f64 {
        self.ttft_s + self.token_s * (batch.output - 1) as f64
    }
}

/// The batch of a line.
pub(super) fn batch(line: &Line) -> Result<Batch, Diagnostic> {
    let of = ["ttft_s", "ttft_s_at_1024"].map(|column| line.text(column));
    let ttft_us = of.into_iter().find(|text| !text.is_empty()).map(|text| {
        let time = text.parse::<f64>().ok().filter(|time| time.is_finite() && *time > 0.0);
        time.map(|time| time * 1e6).ok_or_else(|| line.error("ttft_s", text, "a number above 0, or nothing"))
    });
    // As hubs of models call them: the maker before a slash, words between hyphens.
    let named = line.text("model").rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let model = named.trim_start_matches("meta-").replacen("llama-", "llama", 1);
    preset(&model).map_err(|error| line.error("model", line.text("model"), &format!("a model: {}", error.title())))?;
    Ok(Batch {
        model,
        chips: line.count("sockets")?,
        users: line.count("batch")?,
        prompt: line.count("input_tokens")?,
        output: line.count("output_tokens")?,
        ttft_us: ttft_us.transpose()?,
    })
}

impl Batch {
    fn label(&self) -> String {
        format!("{} on {}, {} users, {} in {} out", self.model, self.chips, self.users, self.prompt, self.output)
    }

    fn service(&self) -> Result<Service, Diagnostic> {
        let (architecture, _) = preset(&self.model)?;
        let parallel = Parallel { tp: self.chips, ..Parallel::default() };
        Ok(Service::new(&self.model, architecture, parallel))
    }
}

/// What was measured at a point: model, chips, users, tokens; a decode step, or else prefill.
type Point = (String, u64, u64, u64, bool);

/// Latencies of all batches with each of `stacks`: prefill, then tokens at a context that grows from the prompt to the end of
/// the answer, between whose steps the time is taken as linear.
fn latencies(system: &System, stacks: &[&Stack], batches: &[Batch]) -> Result<Vec<Vec<Latency>>, Diagnostic> {
    let points = |batch: &Batch| -> [Point; 3] {
        let of = |tokens: u64, decodes: bool| (batch.model.clone(), batch.chips, batch.users, tokens, decodes);
        [of(batch.prompt, false), of(batch.prompt, true), of(batch.prompt + batch.output, true)]
    };
    let mut wanted: Vec<(Point, &Batch)> =
        batches.iter().flat_map(|batch| points(batch).into_iter().map(move |point| (point, batch))).collect();
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    wanted.dedup_by(|a, b| a.0 == b.0);
    let Some(first) = stacks.first() else { return Ok(Vec::new()) };
    let known: BTreeMap<Point, Vec<f64>> = wanted
        .into_par_iter()
        .map(|(point, batch)| {
            let service = batch.service()?;
            let server = Server::new(system, first, &service)?;
            let load = Load { batch: batch.users, micro_batch: batch.users, tokens: point.3 };
            let of = |stack: &&Stack| {
                let server = server.with_stack(stack)?;
                let phase = if point.4 { server.decode(&load) } else { server.prefill(&load) }?;
                Ok(phase.seconds)
            };
            let seconds = stacks.iter().map(of).collect::<Result<Vec<f64>, Diagnostic>>()?;
            Ok((point, seconds))
        })
        .collect::<Result<_, Diagnostic>>()?;
    let seconds = |point: &Point, stack: usize| known.get(point).and_then(|all| all.get(stack)).copied().unwrap_or(0.0);
    let latency = |batch: &Batch, stack: usize| {
        let [prefill, first, last] = points(batch);
        let of = |point: &Point| seconds(point, stack);
        Latency { ttft_s: of(&prefill), token_s: f64::midpoint(of(&first), of(&last)) }
    };
    Ok((0..stacks.len()).map(|stack| batches.iter().map(|batch| latency(batch, stack)).collect()).collect())
}

/// The rows of a set, in microseconds: simulated as the vendor's software, where the system has it, and at the chips' best;
/// and the parts of the set.
pub(super) fn rows(system: &System, measured: &[(Batch, f64)]) -> Result<(Vec<SetRow>, Vec<SetPart>), Diagnostic> {
    let (batches, published): (Vec<Batch>, Vec<f64>) = measured.iter().cloned().unzip();
    let named = |kind: StackKind| system.stacks.iter().find(|stack| stack.kind == kind);
    let best = named(StackKind::Serving)
        .ok_or_else(|| Diagnostic::new(format!("{} has no stack {:?}", system.name, StackKind::Serving.name())))?;
    let vendor = named(StackKind::Sambanova);
    let stacks: Vec<&Stack> = [best].into_iter().chain(vendor).collect();
    let all = latencies(system, &stacks, &batches)?;
    let (Some(ideal), Some(simulated)) = (all.first(), all.last()) else { return Ok((Vec::new(), Vec::new())) };
    let row = |label: String, published: f64, simulated: f64, ideal: Option<f64>| SetRow {
        label,
        at: published,
        published,
        simulated: simulated * 1e6,
        ideal: ideal.map(|seconds| seconds * 1e6),
        serial: None,
        outlier: false,
    };
    let mut list = Vec::new();
    // Measured times to first token, and what is left for each later token.
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for (((batch, &published), of), ideal) in batches.iter().zip(&published).zip(simulated).zip(ideal) {
        let best = vendor.is_some().then(|| ideal.seconds(batch));
        list.push(row(batch.label(), published, of.seconds(batch), best));
        if let Some(ttft_us) = batch.ttft_us {
            first.push(row(batch.label(), ttft_us, of.ttft_s, None));
            let token_us = (published - ttft_us) / (batch.output - 1).max(1) as f64;
            later.push(row(batch.label(), token_us, of.token_s, None));
        }
    }
    let half = |i: usize, odd: bool| i.is_multiple_of(2) == odd;
    let parts = [
        SetPart::new("odd lines", &list, |i, _| half(i, true)),
        SetPart::new("even lines", &list, |i, _| half(i, false)),
        SetPart::new("one user", &list, |i, _| batches[i].users == 1),
        SetPart::new("more users", &list, |i, _| batches[i].users > 1),
        SetPart::new("time to first token", &first, |_, _| true),
        SetPart::new("a token behind it", &later, |_, _| true),
    ];
    Ok((list, parts.into_iter().flatten().collect()))
}
