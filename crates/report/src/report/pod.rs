//! A training step on a pod: JSON, table and the picture of its schedule.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;

use super::chart::TimelineChart;
use super::describe::{chips, counted};
use super::human::{bytes, percent, si};
use super::screen::Screen;
use super::text_table::{new_table, wrapped};
use super::write::{File, WriteError};
use rdusim_pod::{Job, Offload, Stack, StackKind, StepTime, System, TrainingStep};

/// Version of the object's shape.
pub(super) const SCHEMA: u32 = 1;

/// Keys of the parts of a step in the order of the JSON, with what they are called.
const PARTS: [(&str, &str); 11] = [
    ("compute", "computing"),
    ("recompute", "computing again"),
    ("tensor_comm_exposed", "tensor collectives"),
    ("pipeline_comm_exposed", "transfers between stages"),
    ("expert_comm_exposed", "exchanges between the chips of experts"),
    ("context_comm_exposed", "exchanges between the chips of a sequence"),
    ("pipeline_bubble", "bubbles: waiting for other stages"),
    ("data_comm_exposed", "reducing gradients"),
    ("optimizer", "optimiser"),
    ("offload_exposed", "moving to the host and back"),
    ("other", "waiting for the host"),
];

/// What the chips' own work is called where a model is served: most of it is reading weights and caches.
pub(super) const SERVED_WORK: &str = "computing and memory";

/// What a part of a step is called; `serves`: of a step that serves.
pub(super) fn part_name(key: &str, serves: bool) -> &str {
    if serves && key == PARTS[0].0 {
        return SERVED_WORK;
    }
    PARTS.iter().find(|(known, _)| *known == key).map_or(key, |(_, name)| name)
}

/// Names of the parts of a step, and their seconds, in the order of the JSON.
fn parts(time: &StepTime) -> [(&'static str, &'static str, f64); 11] {
    let seconds = [
        time.compute,
        time.recompute,
        time.tensor_comm,
        time.pipeline_comm,
        time.expert_comm,
        time.context_comm,
        time.bubble,
        time.data_comm,
        time.optimizer,
        time.offload,
        time.other,
    ];
    named(seconds, &["expert_comm_exposed", "context_comm_exposed", "offload_exposed"])
}

/// Parts with their names: without one where a part that is `rare` takes no time.
pub(super) fn named(seconds: [f64; 11], rare: &[&str]) -> [(&'static str, &'static str, f64); 11] {
    let mut at = seconds.into_iter();
    PARTS.map(|(key, name)| {
        let seconds = at.next().unwrap_or(0.0);
        (key, if seconds <= 0.0 && rare.contains(&key) { "" } else { name }, seconds)
    })
}

/// The memory of the fullest stage in a line: of each kind what there is, and the peak.
pub(super) fn in_use(stage: u64, kinds: &[(&str, u64)], peak: u64, capacity: u64) -> String {
    let of: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {}", bytes(*count))).collect();
    format!("memory of stage {stage}: {}; peak {} of {}", of.join(", "), bytes(peak), bytes(capacity))
}

/// What members of each level send each other in a line.
pub(super) fn between(traffic: &[(String, u64)]) -> String {
    let of: Vec<String> = traffic
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(level, count)| format!("{} between members of a {level}", bytes(*count)))
        .collect();
    if of.is_empty() {
        "no traffic between chips".to_owned()
    } else {
        format!("traffic of all chips: {}", of.join(", "))
    }
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: u32,
    system: SystemEntry<'a>,
    model: &'a str,
    phase: &'static str,
    parallel: ParallelEntry,
    step_s: f64,
    tokens_per_s: f64,
    mfu: f64,
    hfu: f64,
    memory_bytes: MemoryEntry,
    time_s: IndexMap<&'static str, f64>,
    traffic_bytes: IndexMap<&'a str, u64>,
    bound_s: f64,
    energy_j: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<ExpertsEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stragglers: Option<SlowestEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput: Option<GoodputEntry>,
    notes: &'a [String],
}

/// What the slowest chip makes of a step.
#[derive(Serialize)]
struct SlowestEntry {
    slower_share: f64,
    step_s: f64,
    tokens_per_s: f64,
}

/// How a step's visits of tokens to experts end.
#[derive(Serialize)]
struct ExpertsEntry {
    visits: f64,
    dropped: f64,
    padded_rows: f64,
    imbalance: f64,
}

/// What failures leave; shares of the time.
#[derive(Serialize)]
struct GoodputEntry {
    mtbf_s: f64,
    checkpoint_every_s: f64,
    share: f64,
    checkpoint_share: f64,
    lost_share: f64,
    tokens_per_s: f64,
}

#[derive(Serialize)]
pub(super) struct SystemEntry<'a> {
    pub(super) name: &'a str,
    pub(super) chips: u64,
}

#[derive(Serialize)]
pub(super) struct ParallelEntry {
    tp: u64,
    pp: u64,
    dp: u64,
    cp: u64,
    ep: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<&'static str>,
    sp: u64,
    schedule: String,
    recompute: &'static str,
    zero: u64,
    prefetch: u64,
    offload: String,
    seq_chunks: u64,
    stash: &'static str,
    optimizer: &'static str,
    gradient_format: String,
    order: &'static str,
    /// Of chips of tiles: tensor ranks that share columns, tiles that only stream (0: as the chip's file says).
    tp2: u64,
    io_tiles: u64,
    /// What else a step is: the software, sequences of a step and of a micro-batch, tokens of a sequence.
    stack: &'static str,
    batch: u64,
    micro_batch: u64,
    seq: u64,
}

impl ParallelEntry {
    pub(super) fn new(stack: &Stack, job: &Job) -> Self {
        let p = &job.parallel;
        Self {
            tp: p.tp,
            pp: p.pp,
            dp: p.dp,
            cp: p.cp,
            ep: p.experts.ep,
            capacity: job.architecture.extras.experts.map(|_| p.experts.capacity_name()),
            exchange: job.architecture.extras.experts.map(|_| p.experts.exchange_name()),
            experts: job.architecture.extras.experts.map(|_| p.experts.place_name()),
            sp: u64::from(p.sp),
            schedule: p.schedule_name(),
            recompute: p.recompute.name(),
            zero: p.zero,
            prefetch: p.prefetch,
            offload: p.offload.name(),
            seq_chunks: p.seq_chunks,
            stash: if p.gist { "gist" } else { "bf16" },
            optimizer: p.optimizer.name(),
            gradient_format: job.gradients().name(),
            order: p.order_name(),
            tp2: p.tiled.tp2,
            io_tiles: p.tiled.io_tiles,
            stack: stack.kind.name(),
            batch: job.batch,
            micro_batch: job.micro_batch,
            seq: job.sequence,
        }
    }
}

#[derive(Serialize)]
pub(super) struct MemoryEntry {
    pub(super) weights: u64,
    pub(super) gradients: u64,
    pub(super) optimizer: u64,
    pub(super) activations: u64,
    pub(super) kv_cache: u64,
    pub(super) buffers: u64,
    pub(super) peak: u64,
    pub(super) capacity: u64,
}

/// A step and what it is a step of.
#[derive(Debug, Clone, Copy)]
pub struct PodReport<'a> {
    /// The system.
    pub system: &'a System,
    /// Its software.
    pub stack: &'a Stack,
    /// The model and its decomposition.
    pub job: &'a Job,
    /// What a step is.
    pub step: &'a TrainingStep,
}

impl PodReport<'_> {
    fn tokens_per_s(&self) -> f64 {
        (self.job.batch * self.job.sequence) as f64 / self.step.step_s
    }

    /// The same with the slowest chip.
    fn tokens_in_all(&self) -> f64 {
        let step_s = self.step.slowest.map_or(self.step.step_s, |of| of.step_s);
        (self.job.batch * self.job.sequence) as f64 / step_s
    }

    /// The object of `--format json`.
    pub fn json(&self) -> String {
        let document = self.document();
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    pub(super) fn document(&self) -> Document<'_> {
        let (job, step, p) = (self.job, self.step, &self.job.parallel);
        let memory = &step.memory;
        Document {
            schema: SCHEMA,
            system: SystemEntry { name: &self.system.name, chips: p.chips() },
            model: &job.model,
            phase: "training",
            parallel: ParallelEntry::new(self.stack, job),
            step_s: step.step_s,
            tokens_per_s: self.tokens_per_s(),
            mfu: step.mfu,
            hfu: step.hfu,
            memory_bytes: MemoryEntry {
                weights: memory.weights,
                gradients: memory.gradients,
                optimizer: memory.optimizer,
                activations: memory.activations,
                kv_cache: 0,
                buffers: memory.buffers,
                peak: memory.peak(),
                capacity: self.system.chip_memory_bytes(),
            },
            time_s: parts(&step.time).into_iter().map(|(name, _, seconds)| (name, seconds)).collect(),
            traffic_bytes: step.traffic.iter().map(|(level, bytes)| (level.as_str(), *bytes)).collect(),
            bound_s: step.bound_s,
            energy_j: step.energy_j,
            experts: step.experts.map(|of| ExpertsEntry {
                visits: of.visits,
                dropped: of.dropped,
                padded_rows: of.padded,
                imbalance: of.imbalance,
            }),
            stragglers: step.slowest.map(|of| SlowestEntry {
                slower_share: of.slower,
                step_s: of.step_s,
                tokens_per_s: self.tokens_in_all(),
            }),
            goodput: step.goodput.map(|of| GoodputEntry {
                mtbf_s: of.mtbf_s,
                checkpoint_every_s: of.interval_s,
                share: of.share,
                checkpoint_share: of.checkpoint,
                lost_share: of.lost,
                tokens_per_s: of.share * self.tokens_in_all(),
            }),
            notes: &step.notes,
        }
    }

    /// How experts are divided, if there are some.
    fn experts(&self) -> String {
        let of = &self.job.parallel.experts;
        let Some(experts) = self.job.architecture.extras.experts else { return String::new() };
        let (count, each, capacity) = (experts.count, experts.each, of.capacity_name());
        format!(
            ", {count} experts, {each} a token, over ep {} ({}), capacity {capacity}, {}",
            of.ep,
            of.place_name(),
            of.exchange_name()
        )
    }

    /// What is run on what.
    fn head(&self) -> String {
        let (job, p) = (self.job, &self.job.parallel);
        let chunks = if p.seq_chunks > 1 { format!(", sequences in {} parts", p.seq_chunks) } else { String::new() };
        let mut text = format!(
            "{} on {} of {}: tp {} x pp {} x dp {}{}{}, schedule {}, recompute {}, zero {}{}\n",
            job.model,
            chips(p.chips()),
            self.system.name,
            if p.tiled.tp2 > 1 { format!("{} x {}", p.tp1(), p.tiled.tp2) } else { p.tp.to_string() },
            p.pp,
            p.dp,
            if p.cp > 1 { format!(" x cp {} ({})", p.cp, p.context.name()) } else { String::new() }
                + &self.experts()
                + &chunks,
            if p.sp { ", sequence parallel" } else { "" },
            p.schedule_name(),
            p.recompute.name(),
            p.zero,
            if p.offload == Offload::default() {
                String::new()
            } else {
                format!(", on the host: {}", p.offload.name())
            }
        );
        let _ = write!(
            text,
            "batch {} by {} of {} tokens, {} a replica, stack {}\n\n",
            job.batch,
            job.micro_batch,
            job.sequence,
            counted(job.micro_batches() as usize, "micro-batch"),
            self.stack.kind.name()
        );
        text
    }

    /// What stands behind the tables where it was asked for, or where the model has experts.
    fn asides(&self, text: &mut String) {
        let (step, p) = (self.step, &self.job.parallel);
        if let Some(of) = step.experts {
            let _ = writeln!(
                text,
                "\nexperts: {} visits of tokens a step, {} dropped, {} of all rows padding; the busiest chip has {:.2} times the mean",
                si(of.visits, ""),
                percent(of.dropped / of.visits),
                percent(of.padded / (of.visits - of.dropped + of.padded)),
                of.imbalance
            );
        }
        if let Some(of) = step.slowest {
            let _ = writeln!(
                text,
                "\nstragglers: the slowest of {} chips computes {} longer in the mean: step {}, {} tokens/s",
                p.chips(),
                percent(of.slower),
                si(of.step_s, "s"),
                si(self.tokens_in_all(), "")
            );
        }
        if let Some(of) = step.goodput {
            let _ = writeln!(
                text,
                "\ngoodput {}: {} tokens/s; a failure every {}, a checkpoint every {} takes {} of the time, lost work and \
                 restarts {}",
                percent(of.share),
                si(of.share * self.tokens_in_all(), ""),
                si(of.mtbf_s, "s"),
                si(of.interval_s, "s"),
                percent(of.checkpoint),
                percent(of.lost)
            );
        }
    }

    /// Where the time goes; in short without the parts that take none.
    fn times(&self, in_short: bool) -> String {
        let step = self.step;
        let mut table = new_table(vec![format!("stage {}", step.critical), "time".to_owned(), "share".to_owned()]);
        for (_, name, seconds) in parts(&step.time).into_iter().filter(|(_, name, _)| !name.is_empty()) {
            if in_short && seconds <= 0.0 {
                continue;
            }
            let on_tiles = self.stack.kind == StackKind::Popart && name == "waiting for the host";
            let name = if on_tiles { "the host, and what is streamed" } else { name };
            table.add_row(vec![name.to_owned(), si(seconds, "s"), percent(seconds / step.step_s)]);
        }
        table.trim_fmt()
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let step = self.step;
        let mut text = self.head();
        let _ = write!(text, "{}\n\n", self.in_short());
        let _ = write!(text, "{}\n\n", self.times(false));
        let memory = &step.memory;
        let mut table = new_table(vec![format!("memory of stage {}", memory.stage), "bytes".to_owned()]);
        let kinds = [
            ("weights", memory.weights),
            ("gradients", memory.gradients),
            ("optimiser's state", memory.optimizer),
            ("activations", memory.activations),
            ("buffers", memory.buffers),
            ("peak", memory.peak()),
            ("of", self.system.chip_memory_bytes()),
        ];
        for (name, count) in kinds {
            table.add_row(vec![name.to_owned(), bytes(count)]);
        }
        let _ = write!(text, "{}\n\n", table.trim_fmt());
        let mut table = new_table(vec!["traffic of all chips".to_owned(), "bytes".to_owned()]);
        for (level, count) in &step.traffic {
            table.add_row(vec![format!("between members of a {level}"), bytes(*count)]);
        }
        let _ = writeln!(text, "{}", table.trim_fmt());
        self.asides(&mut text);
        for note in &step.notes {
            let _ = writeln!(text, "\n{}", wrapped("- ", note));
        }
        text
    }

    /// What decides of the step, in a line.
    pub(super) fn in_short(&self) -> String {
        let step = self.step;
        format!(
            "step {}, {} tokens/s, MFU {}, HFU {}, lower bound {}, energy of the chips {}",
            si(step.step_s, "s"),
            si(self.tokens_per_s(), "").trim_end(),
            percent(step.mfu),
            percent(step.hfu),
            si(step.bound_s, "s"),
            si(step.energy_j, "J")
        )
    }

    /// The step on one screen.
    pub fn screen(&self) -> String {
        let (step, memory) = (self.step, &self.step.memory);
        let mut screen = Screen::default();
        for line in self.head().trim_end().lines() {
            screen.sentence(line);
        }
        screen.gap();
        screen.sentence(&self.in_short());
        screen.gap();
        screen.table(&self.times(true));
        screen.gap();
        let kinds = [
            ("weights", memory.weights),
            ("gradients", memory.gradients),
            ("optimiser's state", memory.optimizer),
            ("activations", memory.activations),
        ];
        screen.sentence(&in_use(memory.stage, &kinds, memory.peak(), self.system.chip_memory_bytes()));
        screen.sentence(&between(&step.traffic));
        let mut asides = String::new();
        self.asides(&mut asides);
        for line in asides.lines().filter(|line| !line.is_empty()) {
            screen.sentence(line);
        }
        screen.remarks(step.notes.iter().map(String::as_str));
        screen.finish("the tables of time, memory and traffic")
    }

    /// The files of `--out`.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let chart = TimelineChart {
            title: "Schedule of a training step".to_owned(),
            about: format!(
                "{} on {}, tp {} pp {} dp {}, {}",
                self.job.model,
                self.system.name,
                self.job.parallel.tp,
                self.job.parallel.pp,
                self.job.parallel.dp,
                self.job.parallel.schedule_name()
            ),
            step: &self.step.simulated,
        };
        let failed = |error| WriteError::Chart("timeline", error);
        Ok(vec![
            File { name: "result.json".to_owned(), bytes: self.json().into_bytes() },
            File { name: "timeline.svg".to_owned(), bytes: chart.svg().map_err(failed)?.into_bytes() },
            File { name: "timeline.png".to_owned(), bytes: chart.png().map_err(failed)? },
        ])
    }
}
