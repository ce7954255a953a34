//! Sheets of pods: a training step, a batch that is served, a trace of requests, a search for the best decomposition.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use super::super::describe::counted;
use super::super::human::{bytes, count, percent, ratio, si};
use super::super::pod::{SCHEMA, part_name};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

#[derive(Deserialize)]
struct System {
    name: String,
    chips: u64,
}

/// A decomposition: keys and values as `--parallel` has them.
type Parallel = IndexMap<String, Value>;

/// What a training step and a phase of serving have in common.
#[derive(Deserialize)]
struct PhaseResult {
    schema: u32,
    system: System,
    model: String,
    phase: String,
    parallel: Parallel,
    step_s: f64,
    tokens_per_s: f64,
    mfu: f64,
    hfu: f64,
    memory_bytes: IndexMap<String, u64>,
    time_s: IndexMap<String, f64>,
    traffic_bytes: IndexMap<String, u64>,
    bound_s: f64,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Training {
    #[serde(flatten)]
    step: PhaseResult,
    energy_j: f64,
    stragglers: Option<Stragglers>,
    goodput: Option<Goodput>,
}

#[derive(Deserialize)]
struct Stragglers {
    slower_share: f64,
    step_s: f64,
    tokens_per_s: f64,
}

#[derive(Deserialize)]
struct Goodput {
    mtbf_s: f64,
    checkpoint_every_s: f64,
    share: f64,
    tokens_per_s: f64,
}

#[derive(Deserialize)]
struct Served {
    #[serde(flatten)]
    step: PhaseResult,
    ttft_s: f64,
    token_s: f64,
    tokens_per_s_per_user: f64,
    energy_per_token_j: f64,
    switch_s: Option<f64>,
    memory_tiers_bytes: IndexMap<String, IndexMap<String, u64>>,
    speculation: Option<Speculation>,
}

#[derive(Deserialize)]
struct Speculation {
    draft: String,
    tokens: u64,
    expected_tokens: f64,
    token_s_without: f64,
    speedup: f64,
}

#[derive(Deserialize)]
struct Streamed {
    schema: u32,
    system: System,
    model: String,
    parallel: Parallel,
    requests: u64,
    tokens: u64,
    end_s: f64,
    ttft_s: Spread,
    token_s: Option<Spread>,
    inter_token_s: Option<Spread>,
    latency_s: Spread,
    tokens_per_s: f64,
    tokens_per_s_per_user: Option<f64>,
    energy_per_token_j: f64,
    busy: f64,
    mean_running: f64,
    limits: IndexMap<String, u64>,
    most_kv_tokens: u64,
    notes: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
struct Spread {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

#[derive(Deserialize)]
struct SearchResult {
    schema: u32,
    system: System,
    model: String,
    parallel: Option<Parallel>,
    searched: Counts,
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Counts {
    candidates: u64,
    fit: u64,
    simulated: u64,
}

#[derive(Deserialize)]
struct Candidate {
    parallel: Parallel,
    step_s: Option<f64>,
    fits: bool,
    why: String,
    bound_s: Option<f64>,
    peak_bytes: u64,
}

/// Refuses a result of another version.
fn check(schema: u32) -> Result<(), String> {
    if schema == SCHEMA { Ok(()) } else { Err(format!("schema {schema}, expected {SCHEMA}")) }
}

fn title(model: &str, system: &System) -> String {
    format!("{model} on {} of {}", counted(system.chips as usize, "chip"), system.name)
}

/// Keys of a decomposition whose value is not what it is without them; `tp`, `pp` and `dp` in any case.
fn told(parallel: &Parallel) -> String {
    let is_plain = |key: &str, value: &Value| match key {
        "tp" | "pp" | "dp" => false,
        "cp" | "ep" | "prefetch" | "seq_chunks" | "tp2" => value.as_u64() == Some(1),
        "sp" | "zero" | "io_tiles" => value.as_u64() == Some(0),
        "offload" | "recompute" => value.as_str() == Some("none"),
        "stash" | "gradient_format" => value.as_str() == Some("bf16"),
        "optimizer" => value.as_str() == Some("adam"),
        "order" => value.as_str() == Some("tp-dp-pp"),
        "schedule" => parallel.get("pp").and_then(Value::as_u64) == Some(1),
        "batch" | "micro_batch" | "seq" | "stack" => true,
        _ => value.is_null(),
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = parallel.iter().filter(|(key, value)| !is_plain(key, value));
    pairs.map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<String>>().join(",")
}

fn number(parallel: &Parallel, key: &str) -> u64 {
    parallel.get(key).and_then(Value::as_u64).unwrap_or(0)
}

fn stack(parallel: &Parallel) -> &str {
    parallel.get("stack").and_then(Value::as_str).unwrap_or("-")
}

fn tokens_per_s(value: f64) -> String {
    format!("{} tokens/s", si(value, "").trim_end())
}

impl PhaseResult {
    /// How far the step is from its lower bound.
    fn bound(&self, what: &str) -> String {
        let times = ratio(self.step_s, self.bound_s);
        format!(
            "{what} takes {}, no less than {} ({times} the lower bound: products over the peak of all chips, and what must be read).",
            si(self.step_s, "s"),
            si(self.bound_s, "s")
        )
    }

    fn how(&self) -> String {
        format!("Decomposition {}, stack {}.", told(&self.parallel), stack(&self.parallel))
    }

    /// The bars and tables that all steps have.
    fn fill(self, sheet: &mut Sheet) {
        let serves = !matches!(sheet.kind, "training" | "search");
        let named = |kinds: &[(&str, f64)]| kinds.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<String>>();
        let times: Vec<(&str, f64)> =
            self.time_s.iter().filter(|(_, s)| **s > 0.0).map(|(key, s)| (part_name(key, serves), *s)).collect();
        sheet.bars.push(Bars {
            title: "Where the time goes".to_owned(),
            unit: "s",
            pieces: named(&times),
            rows: vec![BarRow { name: self.phase.clone(), values: times.iter().map(|(_, s)| *s).collect() }],
        });
        let mut table = SheetTable::new("Time", &["part", "time", "share"], &[0]);
        for (name, seconds) in &times {
            table.rows.push(vec![(*name).to_owned(), si(*seconds, "s"), percent(seconds / self.step_s)]);
        }
        sheet.tables.push(table);
        let of = |key: &str| self.memory_bytes.get(key).copied().unwrap_or(0);
        let kinds: Vec<(&str, f64)> = [
            ("weights", "weights"),
            ("gradients", "gradients"),
            ("optimizer", "optimiser's state"),
            ("activations", "activations"),
            ("kv_cache", "keys and values"),
            ("buffers", "buffers"),
        ]
        .into_iter()
        .map(|(key, name)| (name, of(key) as f64))
        .filter(|(_, bytes)| *bytes > 0.0)
        .collect();
        sheet.bars.push(Bars {
            title: "Memory of the fullest stage".to_owned(),
            unit: "B",
            pieces: named(&kinds),
            rows: vec![BarRow {
                name: format!("peak {}", bytes(of("peak"))),
                values: kinds.iter().map(|(_, bytes)| *bytes).collect(),
            }],
        });
        let mut table = SheetTable::new("Memory of a chip", &["kind", "bytes", "share of the chip's memory"], &[0]);
        let capacity = of("capacity");
        let all = kinds.iter().map(|(name, bytes)| (*name, *bytes as u64));
        for (name, held) in all.chain([("peak", of("peak")), ("memory of the chip", capacity)]) {
            table.rows.push(vec![name.to_owned(), bytes(held), percent(held as f64 / capacity.max(1) as f64)]);
        }
        sheet.tables.push(table);
        let mut table = SheetTable::new("Traffic of all chips", &["between members of a", "bytes"], &[0]);
        for (level, sent) in &self.traffic_bytes {
            table.rows.push(vec![level.clone(), bytes(*sent)]);
        }
        sheet.tables.push(table);
        sheet.remarks = self.notes;
    }
}

/// The sheet of a training step.
pub(super) fn training(text: &str) -> Result<Sheet, String> {
    let Training { step, energy_j, stragglers, goodput } = parsed(text)?;
    check(step.schema)?;
    let of = |key: &str| number(&step.parallel, key);
    let tokens = (of("batch") * of("seq")) as f64;
    let chips = step.system.chips as f64;
    let mut sheet = Sheet {
        kind: "training",
        title: title(&step.model, &step.system),
        headline: si(step.step_s, "s"),
        verdict: format!(
            "a training step of {} of {} tokens: {}, {} of the peak without what is computed again",
            counted(of("batch") as usize, "sequence"),
            of("seq"),
            tokens_per_s(step.tokens_per_s),
            percent(step.mfu)
        ),
        lines: vec![step.bound("The step"), step.how()],
        figures: vec![
            Figure::low("step", "s", step.step_s),
            Figure::high("tokens a second", "tokens/s", step.tokens_per_s),
            Figure::high("tokens a second and chip", "tokens/s", step.tokens_per_s / chips),
            Figure::high("MFU: share of the peak", "%", step.mfu),
            Figure::high("HFU: the same with what is computed again", "%", step.hfu),
            Figure::plain("lower bound", "s", step.bound_s),
            Figure::low("energy of the chips", "J", energy_j),
            Figure::low("energy a token", "J", energy_j / tokens),
            Figure::low("memory of the fullest stage", "B", step.memory_bytes.get("peak").map(|bytes| *bytes as f64)),
        ],
        ..Sheet::default()
    };
    if let Some(of) = stragglers {
        sheet.lines.push(format!(
            "Stragglers: the slowest chip computes {} longer in the mean: step {}, {}.",
            percent(of.slower_share),
            si(of.step_s, "s"),
            tokens_per_s(of.tokens_per_s)
        ));
    }
    if let Some(of) = goodput {
        sheet.lines.push(format!(
            "Goodput {}: {}; a failure every {}, a checkpoint every {}.",
            percent(of.share),
            tokens_per_s(of.tokens_per_s),
            si(of.mtbf_s, "s"),
            si(of.checkpoint_every_s, "s")
        ));
    }
    step.fill(&mut sheet);
    Ok(sheet)
}

/// The sheet of a batch of users.
pub(super) fn serving(text: &str) -> Result<Sheet, String> {
    let served: Served = parsed(text)?;
    let step = served.step;
    check(step.schema)?;
    let decodes = step.phase == "decode";
    let (users, tokens) = (number(&step.parallel, "batch"), number(&step.parallel, "seq"));
    let speeds = format!(
        "{} a user, {} in {}",
        tokens_per_s(served.tokens_per_s_per_user),
        tokens_per_s(step.tokens_per_s),
        step.phase
    );
    let users = format!("{} of {tokens} tokens each", counted(users as usize, "user"));
    let (first, each) = (si(served.ttft_s, "s"), si(served.token_s, "s"));
    let (headline, verdict) = if decodes {
        (each, format!("a token, {users}: {speeds}; the first token after {first}"))
    } else {
        (first, format!("to the first token, {users}: {speeds}; a token behind it in {each}"))
    };
    let what = if served.speculation.is_some() { "A round" } else { "The phase" };
    let mut sheet = Sheet {
        kind: if decodes { "decode" } else { "prefill" },
        title: title(&step.model, &step.system),
        headline,
        verdict,
        lines: vec![step.bound(what), step.how()],
        figures: vec![
            Figure::low("time to first token", "s", served.ttft_s),
            Figure::low("a token", "s", served.token_s),
            Figure::high("tokens a second and user", "tokens/s", served.tokens_per_s_per_user),
            Figure::high("tokens a second", "tokens/s", step.tokens_per_s),
            Figure::low("energy a token", "J", served.energy_per_token_j),
            Figure::high("MFU: share of the peak", "%", step.mfu),
            Figure::high("HFU: the same with what is thrown away", "%", step.hfu),
            Figure::plain("lower bound", "s", step.bound_s),
            Figure::low("switching to a model of these weights", "s", served.switch_s),
            Figure::low("memory of the fullest stage", "B", step.memory_bytes.get("peak").map(|bytes| *bytes as f64)),
        ],
        ..Sheet::default()
    };
    if let Some(of) = served.speculation {
        sheet.lines.push(format!(
            "{} drafts {} tokens a round, {:.2} are given: {:.2} times as fast as without ({} a token).",
            of.draft,
            of.tokens,
            of.expected_tokens,
            of.speedup,
            si(of.token_s_without, "s")
        ));
    }
    let mut table = SheetTable::new("Memory by tier", &["tier", "weights", "keys and values", "activations"], &[0]);
    for (tier, held) in &served.memory_tiers_bytes {
        let of = |key: &str| bytes(held.get(key).copied().unwrap_or(0));
        table.rows.push(vec![tier.clone(), of("weights"), of("kv_cache"), of("activations")]);
    }
    step.fill(&mut sheet);
    sheet.tables.push(table);
    Ok(sheet)
}

/// The sheet of a trace of requests.
pub(super) fn requests(text: &str) -> Result<Sheet, String> {
    let of: Streamed = parsed(text)?;
    check(of.schema)?;
    let spreads: Vec<(&str, Spread)> = [
        ("time to first token", Some(of.ttft_s)),
        // Answers of one token have none.
        ("time a token behind it", of.token_s),
        ("time between tokens", of.inter_token_s),
        ("time to last token", Some(of.latency_s)),
    ]
    .into_iter()
    .filter_map(|(name, spread)| Some((name, spread?)))
    .collect();
    let mut table = SheetTable::new("Latencies of requests", &["", "mean", "p50", "p95", "p99"], &[0]);
    for (name, Spread { mean, p50, p95, p99 }) in &spreads {
        let cells = [mean, p50, p95, p99].map(|seconds| si(*seconds, "s"));
        table.rows.push(std::iter::once((*name).to_owned()).chain(cells).collect());
    }
    let behind = of.token_s.map_or_else(String::new, |of| format!(", each token behind it within {}", si(of.p95, "s")));
    let mut figures = vec![Figure::high("tokens a second", "tokens/s", of.tokens_per_s)];
    figures.push(Figure::high("tokens a second and user, mean", "tokens/s", of.tokens_per_s_per_user));
    for (name, spread) in &spreads {
        figures.push(Figure::low(&format!("{name}, p50"), "s", spread.p50));
        figures.push(Figure::low(&format!("{name}, p99"), "s", spread.p99));
    }
    figures.extend([
        Figure::low("energy a token", "J", of.energy_per_token_j),
        Figure::plain("share of the time that replicas work", "%", of.busy),
        Figure::plain("requests in a step, mean", "", of.mean_running),
        Figure::plain("most tokens reserved", "", of.most_kv_tokens as f64),
    ]);
    let limits = of.limits.iter().map(|(key, value)| format!("{} {}", key.replace('_', " "), count(*value)));
    // Each measure has a scale of its own.
    let bars = spreads.iter().map(|(name, of)| Bars {
        title: format!("Percentiles: {name}"),
        unit: "s",
        pieces: ["half of them", "to p95", "to p99"].map(str::to_owned).to_vec(),
        rows: vec![BarRow { name: "p99".to_owned(), values: vec![of.p50, of.p95 - of.p50, of.p99 - of.p95] }],
    });
    Ok(Sheet {
        kind: "requests",
        title: title(&of.model, &of.system),
        headline: tokens_per_s(of.tokens_per_s),
        verdict: format!(
            "{}, {} tokens in {}: of 95 % the first token within {}{behind}",
            counted(of.requests as usize, "request"),
            count(of.tokens),
            si(of.end_s, "s"),
            si(of.ttft_s.p95, "s")
        ),
        lines: vec![
            format!("Decomposition {}, stack {}.", told(&of.parallel), stack(&of.parallel)),
            format!("Limits of a replica: {}.", limits.collect::<Vec<String>>().join(", ")),
        ],
        figures,
        bars: bars.collect(),
        tables: vec![table],
        remarks: of.notes,
        ..Sheet::default()
    })
}

/// The sheet of a search: that of the best step, and the candidates.
pub(super) fn search(text: &str) -> Result<Sheet, String> {
    let of: SearchResult = parsed(text)?;
    check(of.schema)?;
    let counts = format!(
        "{} decompositions, {} fit, {} were simulated",
        count(of.searched.candidates),
        count(of.searched.fit),
        count(of.searched.simulated)
    );
    let mut sheet = match &of.parallel {
        Some(best) => {
            let sheet = training(text)?;
            Sheet { verdict: format!("a step of the best of {counts}: {}", told(best)), ..sheet }
        }
        None => Sheet {
            kind: "search",
            title: title(&of.model, &of.system),
            headline: "none".to_owned(),
            verdict: format!("of {counts}: none does what is wanted"),
            ..Sheet::default()
        },
    };
    let name = |of: &Candidate| format!("{} by {}", told(&of.parallel), number(&of.parallel, "micro_batch"));
    let ran = of.candidates.iter().filter_map(|of| Some((name(of), of.step_s?)));
    let rows: Vec<BarRow> = ran.map(|(name, seconds)| BarRow { name, values: vec![seconds] }).collect();
    if !rows.is_empty() {
        let title = "Steps of the candidates that were simulated".to_owned();
        sheet.bars.insert(0, Bars { title, unit: "s", pieces: vec!["step".to_owned()], rows });
    }
    let head = ["decomposition", "step", "lower bound", "memory", "fits", "why"];
    let mut table = SheetTable::new("Candidates", &head, &[0, 5]);
    let seconds = |of: Option<f64>| of.map_or_else(|| "–".to_owned(), |seconds| si(seconds, "s"));
    for of in &of.candidates {
        let fits = if of.fits { "yes" } else { "no" }.to_owned();
        let row = [name(of), seconds(of.step_s), seconds(of.bound_s), bytes(of.peak_bytes), fits, of.why.clone()];
        table.rows.push(row.to_vec());
    }
    sheet.tables.insert(0, table);
    Ok(sheet)
}
