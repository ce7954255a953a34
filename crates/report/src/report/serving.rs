//! Prefill and decode on a pod: JSON and table.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;

use super::chart::PartsChart;
use super::describe::counted;
use super::human::{bytes, percent, si, whole};
use super::pod::{self, MemoryEntry, SystemEntry, between, in_use};
use super::screen::Screen;
use super::serving_setup::{ServedParallelEntry, ServingSetup};
use super::text_table::{new_table, wrapped};
use super::write::{File, WriteError};
use rdusim_pod::{Load, Round, Served, ServedPhase, ServingTime, StepParts};

/// Version of the object's shape.
const SCHEMA: u32 = 1;

/// Names of the parts of a step, and their seconds, in the order of the JSON: those of a training step.
fn parts(time: &ServingTime) -> [(&'static str, &'static str, f64); 11] {
    let (compute, tensor, stages, experts) = (time.compute, time.tensor_comm, time.pipeline_comm, time.expert_comm);
    let seconds = [compute, 0.0, tensor, stages, experts, 0.0, time.bubble, 0.0, 0.0, 0.0, time.other];
    let rare = [
        "recompute",
        "expert_comm_exposed",
        "context_comm_exposed",
        "data_comm_exposed",
        "optimizer",
        "offload_exposed",
    ];
    let mut parts = pod::named(seconds, &rare);
    parts[0].1 = pod::SERVED_WORK;
    if !parts[4].1.is_empty() {
        parts[4].1 = "exchanges between experts";
    }
    parts
}

/// The decomposition and the users.
#[derive(Serialize)]
struct BatchEntry {
    #[serde(flatten)]
    parallel: ServedParallelEntry,
    batch: u64,
    micro_batch: u64,
    seq: u64,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    system: SystemEntry<'a>,
    model: &'a str,
    phase: &'static str,
    parallel: BatchEntry,
    step_s: f64,
    ttft_s: f64,
    token_s: f64,
    tokens_per_s: f64,
    tokens_per_s_per_user: f64,
    energy_per_token_j: f64,
    switch_s: Option<f64>,
    mfu: f64,
    hfu: f64,
    memory_bytes: MemoryEntry,
    memory_tiers_bytes: IndexMap<&'a str, IndexMap<&'static str, u64>>,
    time_s: IndexMap<&'static str, f64>,
    traffic_bytes: IndexMap<&'a str, u64>,
    bound_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    speculation: Option<SpeculationEntry<'a>>,
    notes: &'a [String],
}

/// A round of speculative decoding.
#[derive(Serialize)]
struct SpeculationEntry<'a> {
    draft: &'a str,
    tokens: u64,
    accept: f64,
    expected_tokens: f64,
    round_s: f64,
    draft_s: f64,
    verify_s: f64,
    /// A token without drafting, and how many times as long that is.
    token_s_without: f64,
    speedup: f64,
    draft_prefill_s: f64,
    draft_weights_bytes: u64,
    draft_kv_cache_bytes: u64,
}

impl<'a> SpeculationEntry<'a> {
    fn new(round: &'a Round, served: &Served) -> Self {
        let without = served.decode.seconds;
        Self {
            draft: &round.model,
            tokens: round.tokens,
            accept: round.accept,
            expected_tokens: round.expected,
            round_s: round.seconds(),
            draft_s: round.draft_s(),
            verify_s: round.verify.seconds,
            token_s_without: without,
            speedup: without / round.token_s(),
            draft_prefill_s: served.draft_prefill_s,
            draft_weights_bytes: round.draft_memory.weights,
            draft_kv_cache_bytes: round.draft_memory.kv_cache,
        }
    }
}

/// A round in a sentence.
fn drafted(round: &Round, served: &Served) -> String {
    let without = served.decode.seconds;
    format!(
        "a round takes {}: {} tokens are drafted in {}, and verified in {}; {:.3} tokens a round, {:.2} times as fast as without (a token \
         in {})",
        si(round.seconds(), "s"),
        round.tokens,
        si(round.draft_s(), "s"),
        si(round.verify.seconds, "s"),
        round.expected,
        without / round.token_s(),
        si(without, "s")
    )
}

/// A batch that is served, and on what.
#[derive(Debug, Clone, Copy)]
pub struct ServingReport<'a> {
    /// What the model is served on.
    pub setup: ServingSetup<'a>,
    /// The users.
    pub load: &'a Load,
    /// What serving them takes.
    pub served: &'a Served,
    /// Decode was asked for, not prefill.
    pub decodes: bool,
}

impl ServingReport<'_> {
    /// What was asked for: its name, the phase, and the tokens that it handles.
    fn phase(&self) -> (&'static str, &ServedPhase, f64) {
        let (batch, tokens) = (self.load.batch, self.load.tokens);
        if let (Some(round), Some(phase)) = (&self.served.round, &self.served.round_phase) {
            return ("decode", phase, batch as f64 * round.expected);
        }
        if self.decodes {
            ("decode", &self.served.decode, batch as f64)
        } else {
            ("prefill", &self.served.prefill, (batch * tokens) as f64)
        }
    }

    /// The object of `--format json`.
    pub fn json(&self) -> String {
        let memory = &self.served.memory;
        let (name, phase, tokens) = self.phase();
        let token_s = self.served.token_s();
        let tiers = self.served.tiers.iter().map(|tier| {
            let kinds = [("weights", tier.weights), ("kv_cache", tier.kv_cache), ("activations", tier.activations)];
            (tier.name.as_str(), kinds.into_iter().collect())
        });
        let document = Document {
            schema: SCHEMA,
            system: self.setup.system_entry(),
            model: &self.setup.service.model,
            phase: name,
            parallel: BatchEntry {
                parallel: self.setup.parallel_entry(),
                batch: self.load.batch,
                micro_batch: self.load.micro_batch,
                seq: self.load.tokens,
            },
            step_s: phase.seconds,
            ttft_s: self.served.ttft_s(),
            token_s,
            tokens_per_s: tokens / phase.seconds,
            tokens_per_s_per_user: 1.0 / token_s,
            energy_per_token_j: phase.joules / tokens,
            switch_s: self.served.switch_s,
            mfu: phase.mfu,
            hfu: self.served.round.as_ref().map_or(phase.mfu, Round::hfu),
            memory_bytes: MemoryEntry {
                weights: memory.weights,
                gradients: 0,
                optimizer: 0,
                activations: memory.activations,
                kv_cache: memory.kv_cache,
                buffers: memory.buffers,
                peak: memory.peak(),
                capacity: self.setup.system.chip_memory_bytes(),
            },
            memory_tiers_bytes: tiers.collect(),
            time_s: parts(&phase.time).into_iter().map(|(name, _, seconds)| (name, seconds)).collect(),
            traffic_bytes: phase.traffic.iter().map(|(level, bytes)| (level.as_str(), *bytes)).collect(),
            bound_s: phase.bound_s,
            speculation: self.served.round.as_ref().map(|round| SpeculationEntry::new(round, self.served)),
            notes: &self.served.notes,
        };
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let (served, load) = (self.served, self.load);
        let (name, phase, tokens) = self.phase();
        let mut text = self.setup.title()
            + "
";
        let _ = write!(
            text,
            "{}, {} of a replica at a time, {} tokens each\n\n",
            counted(load.batch as usize, "user"),
            whole(load.micro_batch),
            whole(load.tokens)
        );
        let _ = write!(
            text,
            "time to first token {}, a token {}; {} tokens/s a user, {} tokens/s in {name}, {} a token, lower bound {}{}\n\n",
            si(served.ttft_s(), "s"),
            si(served.token_s(), "s"),
            si(1.0 / served.token_s(), ""),
            si(tokens / phase.seconds, ""),
            si(phase.joules / tokens, "J"),
            si(phase.bound_s, "s"),
            if served.round.is_some() { " a round" } else { "" }
        );
        if let Some(round) = &served.round {
            let _ = write!(text, "{}\n\n", drafted(round, served));
        }
        let _ = write!(text, "{}\n\n", self.times(name, phase, false));
        let memory = &served.memory;
        let mut head = vec![format!("memory of stage {}", memory.stage), "bytes".to_owned()];
        head.extend(served.tiers.iter().map(|tier| format!("in {}", tier.name)));
        let mut table = new_table(head);
        let of_tiers = |of: fn(&rdusim_pod::TierUse) -> u64| served.tiers.iter().map(move |tier| bytes(of(tier)));
        let rows: [(&str, u64, Vec<String>); 6] = [
            ("weights", memory.weights, of_tiers(|tier| tier.weights).collect()),
            (self.setup.service.cache_name(), memory.kv_cache, of_tiers(|tier| tier.kv_cache).collect()),
            ("activations", memory.activations, Vec::new()),
            ("buffers", memory.buffers, Vec::new()),
            ("peak", memory.peak(), Vec::new()),
            ("of", self.setup.system.chip_memory_bytes(), Vec::new()),
        ];
        for (name, count, tiers) in rows {
            let mut row = vec![name.to_owned(), bytes(count)];
            row.extend(tiers);
            row.resize(2 + served.tiers.len(), String::new());
            table.add_row(row);
        }
        let _ = write!(text, "{}\n\n", table.trim_fmt());
        let mut table = new_table(vec!["traffic of all chips".to_owned(), "bytes".to_owned()]);
        for (level, count) in &phase.traffic {
            table.add_row(vec![format!("between members of a {level}"), bytes(*count)]);
        }
        let _ = writeln!(text, "{}", table.trim_fmt());
        if let Some(seconds) = served.switch_s {
            let seconds = si(seconds, "s");
            let _ = writeln!(
                text,
                "\n{}",
                wrapped("- ", &format!("switching to a model of these weights takes {seconds}"))
            );
        }
        for note in &served.notes {
            let _ = writeln!(text, "\n{}", wrapped("- ", note));
        }
        text
    }

    /// The batch on one screen.
    pub fn screen(&self) -> String {
        let (served, load) = (self.served, self.load);
        let (name, phase, tokens) = self.phase();
        let mut screen = Screen::default();
        screen.sentence(self.setup.title().trim_end());
        screen.line(&format!(
            "{}, {} of a replica at a time, {} tokens each",
            counted(load.batch as usize, "user"),
            whole(load.micro_batch),
            whole(load.tokens)
        ));
        screen.gap();
        screen.line(&format!(
            "time to first token {}, a token {}; {} tokens/s a user, {} tokens/s in {name}",
            si(served.ttft_s(), "s"),
            si(served.token_s(), "s"),
            si(1.0 / served.token_s(), "").trim_end(),
            si(tokens / phase.seconds, "").trim_end()
        ));
        screen.line(&format!(
            "{} a token, lower bound {}{}",
            si(phase.joules / tokens, "J"),
            si(phase.bound_s, "s"),
            if served.round.is_some() { " a round" } else { "" }
        ));
        if let Some(round) = &served.round {
            for line in drafted(round, served).lines().filter(|line| !line.is_empty()) {
                screen.sentence(line);
            }
        }
        screen.gap();
        screen.table(&self.times(name, phase, true));
        screen.gap();
        let memory = &served.memory;
        let kinds = [
            ("weights", memory.weights),
            (self.setup.service.cache_name(), memory.kv_cache),
            ("activations", memory.activations),
        ];
        screen.sentence(&in_use(memory.stage, &kinds, memory.peak(), self.setup.system.chip_memory_bytes()));
        let in_tier = |tier: &rdusim_pod::TierUse| {
            let held = tier.weights + tier.kv_cache;
            (held > 0).then(|| format!("{} in {}", bytes(held), tier.name))
        };
        let tiers: Vec<String> = served.tiers.iter().filter_map(in_tier).collect();
        if tiers.len() > 1 {
            screen.spare("  ", &format!("weights and {}: {}", self.setup.service.cache_name(), tiers.join(", ")));
        }
        screen.sentence(&between(&phase.traffic));
        let switching =
            served.switch_s.map(|seconds| format!("switching to a model of these weights takes {}", si(seconds, "s")));
        screen.remarks(switching.iter().chain(&served.notes).map(String::as_str));
        screen.finish("the tables of time, memory and traffic")
    }

    /// Where the time of the phase goes, in short without the parts that take none; of a round also what drafts and what verifies.
    fn times(&self, name: &str, phase: &ServedPhase, in_short: bool) -> String {
        let round = self.served.round.as_ref();
        let mut head = vec![format!("{name}, stage {}", phase.critical), "time".to_owned(), "share".to_owned()];
        if round.is_some() {
            head.extend(["drafting", "verifying"].map(str::to_owned));
        }
        let mut table = new_table(head);
        for (at, (_, name, seconds)) in
            parts(&phase.time).into_iter().enumerate().filter(|(_, part)| !part.1.is_empty())
        {
            if in_short && seconds <= 0.0 {
                continue;
            }
            let mut row = vec![name.to_owned(), si(seconds, "s"), percent(seconds / phase.seconds)];
            if let Some(round) = round {
                row.push(si(parts(&round.draft.time)[at].2 * round.tokens as f64, "s"));
                row.push(si(parts(&round.verify.time)[at].2, "s"));
            }
            table.add_row(row);
        }
        table.trim_fmt()
    }

    /// The files of `--out`.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let (chart, failed) = (self.chart(), |error| WriteError::Chart("time", error));
        Ok(vec![
            File { name: "result.json".to_owned(), bytes: self.json().into_bytes() },
            File { name: "time.svg".to_owned(), bytes: chart.svg().map_err(failed)?.into_bytes() },
            File { name: "time.png".to_owned(), bytes: chart.png().map_err(failed)? },
        ])
    }

    /// Where the time of the phase goes; of a round by token, beside a step without one.
    fn chart(&self) -> PartsChart {
        let users = format!("{} of {} tokens", counted(self.load.batch as usize, "user"), whole(self.load.tokens));
        let values = |parts: StepParts, tokens: f64| parts.named().map(|(_, seconds)| seconds / tokens).to_vec();
        let plain = |time: &ServingTime| values(StepParts::new(time, 0.0), 1.0);
        let (title, cases) = match &self.served.round {
            Some(round) => {
                let drafted = values(StepParts::new(&round.verify.time, round.draft_s()), round.expected);
                let without = plain(&self.served.decode.time);
                ("Where a token's time goes", vec![("alone".to_owned(), without), ("drafted".to_owned(), drafted)])
            }
            None if self.decodes => {
                ("Where a token's time goes", vec![("decode".to_owned(), plain(&self.served.decode.time))])
            }
            None => ("Where the time goes", vec![("prefill".to_owned(), plain(&self.served.prefill.time))]),
        };
        PartsChart {
            title: title.to_owned(),
            about: format!("{}; {users}", self.setup.title()),
            parts: StepParts::default().named().map(|(name, _)| name.to_owned()).to_vec(),
            cases,
        }
    }
}
