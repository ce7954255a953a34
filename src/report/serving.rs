//! Prefill and decode on a pod: JSON and table.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;

use super::human::{bytes, percent, si};
use super::pod::{MemoryEntry, SystemEntry};
use super::serving_setup::{ServedParallelEntry, ServingSetup};
use super::text_table::{new_table, wrapped};
use super::write::File;
use crate::pod::{Load, Served, ServedPhase, ServingTime};

/// Version of the object's shape.
const SCHEMA: u32 = 1;

/// Names of the parts of a step, and their seconds, in the order of the JSON: those of a training step.
fn parts(time: &ServingTime) -> [(&'static str, &'static str, f64); 11] {
    [
        ("compute", "computing", time.compute),
        ("recompute", "", 0.0),
        ("tensor_comm_exposed", "tensor collectives", time.tensor_comm),
        ("pipeline_comm_exposed", "transfers between stages", time.pipeline_comm),
        ("expert_comm_exposed", "", 0.0),
        ("context_comm_exposed", "", 0.0),
        ("pipeline_bubble", "bubbles: waiting for other stages", time.bubble),
        ("data_comm_exposed", "", 0.0),
        ("optimizer", "", 0.0),
        ("offload_exposed", "", 0.0),
        ("other", "waiting for the host", time.other),
    ]
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
    fn phase(&self) -> (&'static str, &ServedPhase, u64) {
        let (batch, tokens) = (self.load.batch, self.load.tokens);
        if self.decodes {
            ("decode", &self.served.decode, batch)
        } else {
            ("prefill", &self.served.prefill, batch * tokens)
        }
    }

    /// The object of `--format json`.
    pub fn json(&self) -> String {
        let memory = &self.served.memory;
        let (name, phase, tokens) = self.phase();
        let token_s = self.served.decode.seconds;
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
            ttft_s: self.served.prefill.seconds,
            token_s,
            tokens_per_s: tokens as f64 / phase.seconds,
            tokens_per_s_per_user: 1.0 / token_s,
            energy_per_token_j: phase.joules / tokens as f64,
            switch_s: self.served.switch_s,
            mfu: phase.mfu,
            hfu: phase.mfu,
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
            "{} users, {} of a replica at a time, {} tokens each\n\n",
            load.batch, load.micro_batch, load.tokens
        );
        let _ = write!(
            text,
            "time to first token {}, a token {}; {} tokens/s a user, {} tokens/s in {name}, {} a token, lower bound {}\n\n",
            si(served.prefill.seconds, "s"),
            si(served.decode.seconds, "s"),
            si(1.0 / served.decode.seconds, ""),
            si(tokens as f64 / phase.seconds, ""),
            si(phase.joules / tokens as f64, "J"),
            si(phase.bound_s, "s")
        );
        let head = vec![format!("{name}, stage {}", phase.critical), "time".to_owned(), "share".to_owned()];
        let mut table = new_table(head);
        for (_, name, seconds) in parts(&phase.time).into_iter().filter(|(_, name, _)| !name.is_empty()) {
            table.add_row(vec![name.to_owned(), si(seconds, "s"), percent(seconds / phase.seconds)]);
        }
        let _ = write!(text, "{}\n\n", table.trim_fmt());
        let memory = &served.memory;
        let mut head = vec![format!("memory of stage {}", memory.stage), "bytes".to_owned()];
        head.extend(served.tiers.iter().map(|tier| format!("in {}", tier.name)));
        let mut table = new_table(head);
        let of_tiers = |of: fn(&crate::pod::TierUse) -> u64| served.tiers.iter().map(move |tier| bytes(of(tier)));
        let rows: [(&str, u64, Vec<String>); 6] = [
            ("weights", memory.weights, of_tiers(|tier| tier.weights).collect()),
            ("keys and values", memory.kv_cache, of_tiers(|tier| tier.kv_cache).collect()),
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

    /// The files of `--out`.
    pub fn files(&self) -> Vec<File> {
        vec![File { name: "result.json".to_owned(), bytes: self.json().into_bytes() }]
    }
}
