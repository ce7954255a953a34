//! How a model is divided over chips: `--parallel`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::choices::{Context, Gradients, Mixture, Offload, Optimizer, gradients};
use super::tiled::{StageBlocks, Tiled};
use rdusim_base::diagnostics::Diagnostic;
pub use rdusim_models::model::Recompute;
use rdusim_models::model::{Architecture, ExpertLoad, Norm, Position};

/// The order of micro-batches on the stages of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schedule {
    /// A micro-batch at a time goes forward through all stages, and back.
    Naive,
    /// All forward, then all backward (Huang et al., *`GPipe`*, 2019).
    GPipe,
    /// One forward, one backward (Narayanan et al., *`PipeDream`*, 2019, with its flush).
    OneForwardOneBackward,
    /// The same with several parts of the model on each stage (Narayanan et al., 2021).
    Interleaved(u64),
    /// 1F1B whose backward passes leave the gradients of weights to passes of their own, which fill most of the bubbles
    /// (Qi et al., *Zero Bubble Pipeline Parallelism*, 2023, ZB-H1).
    ZeroBubble,
    /// Two parts on each stage, the second of which takes the stages in reverse, with passes for gradients of weights
    /// (Qi et al., 2023, ZB-V).
    ZeroBubbleV,
    /// 1F1B that never drains: an update after every micro-batch, on weights that are kept until its backward pass
    /// (Narayanan et al., *`PipeDream`*, 2019).
    PipeDream,
    /// The same with an update after every batch, on two versions of the weights (Narayanan et al., *Memory-Efficient
    /// Pipeline-Parallel DNN Training*, 2021).
    PipeDream2Bw,
}

impl Schedule {
    /// Name with its number of parts.
    pub fn name(self) -> String {
        match self {
            Self::Naive => "naive".to_owned(),
            Self::GPipe => "gpipe".to_owned(),
            Self::OneForwardOneBackward => "1f1b".to_owned(),
            Self::Interleaved(parts) => format!("interleaved:{parts}"),
            Self::ZeroBubble => "zb-h1".to_owned(),
            Self::ZeroBubbleV => "zb-v".to_owned(),
            Self::PipeDream => "pipedream".to_owned(),
            Self::PipeDream2Bw => "pipedream-2bw".to_owned(),
        }
    }

    /// Whether gradients of weights have passes of their own.
    pub fn splits_weights(self) -> bool {
        matches!(self, Self::ZeroBubble | Self::ZeroBubbleV)
    }

    /// Whether a micro-batch ends on the stage where it begins.
    pub fn is_v(self) -> bool {
        self == Self::ZeroBubbleV
    }

    /// Whether the pipeline never drains: updates stand among the passes.
    pub fn never_drains(self) -> bool {
        matches!(self, Self::PipeDream | Self::PipeDream2Bw)
    }

    /// Whether every micro-batch has an update of its own.
    pub fn updates_each(self) -> bool {
        self == Self::PipeDream
    }

    /// Parts of the model on each stage.
    pub fn parts(self) -> u64 {
        match self {
            Self::Interleaved(parts) => parts,
            Self::ZeroBubbleV => 2,
            _ => 1,
        }
    }
}

/// A decomposition. Chips are numbered with the tensor rank fastest, then data, then pipeline, unless stages are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallel {
    /// Chips that share every layer.
    pub tp: u64,
    /// Stages.
    pub pp: u64,
    /// Replicas.
    pub dp: u64,
    /// Chips of a tensor rank that share the tokens of a sequence.
    pub cp: u64,
    /// How they do.
    pub context: Context,
    /// What only chips of tiles do.
    pub tiled: Tiled,
    /// How experts are divided and fed, if the model has some.
    pub experts: Mixture,
    /// Norms and dropout are divided along the sequence (Korthikanti et al., 2022).
    pub sp: bool,
    /// Order of micro-batches.
    pub schedule: Schedule,
    /// What is computed again.
    pub recompute: Recompute,
    /// What is divided over the replicas (Rajbhandari et al., *`ZeRO`*, 2020): from 1 the optimiser's state, from 2
    /// gradients too, and with 3 weights too.
    pub zero: u64,
    /// With `zero` 3: units (layers, embedding, logits) whose weights are gathered ahead of the one that computes.
    pub prefetch: u64,
    /// Parts of a sequence that go through the stages one after the other.
    pub seq_chunks: u64,
    /// What lies in the memory of the host.
    pub offload: Offload,
    /// What is kept for backward passes is encoded: elements in 8 bits, masks in one (Jain et al., *Gist*, 2018).
    pub gist: bool,
    /// How weights are updated.
    pub optimizer: Optimizer,
    /// As what gradients are kept and replicas add them up; if none is given, as the stack keeps them, and added up in bf16.
    pub gradients: Option<Gradients>,
    /// Chips are numbered with the stage before the replica: the stages of a replica are neighbours.
    pub stages_adjacent: bool,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            tp: 1,
            pp: 1,
            dp: 1,
            cp: 1,
            context: Context::Ring,
            tiled: Tiled::default(),
            experts: Mixture::default(),
            sp: false,
            schedule: Schedule::OneForwardOneBackward,
            recompute: Recompute::None,
            zero: 0,
            prefetch: 1,
            seq_chunks: 1,
            offload: Offload::default(),
            gist: false,
            optimizer: Optimizer::Adam,
            gradients: None,
            stages_adjacent: false,
        }
    }
}

impl Parallel {
    /// Reads `tp=8,pp=4,dp=2,schedule=1f1b,...`.
    ///
    /// # Errors
    /// The key that is unknown or the value that is none, with what was expected.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let mut parallel = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for item in text.split(',').map(str::trim) {
            let Some((key, value)) = item.split_once('=') else {
                let title = format!("`--parallel`: found {item:?}, expected KEY=VALUE");
                return Err(Diagnostic::new(title).with_help("for example tp=8,pp=4,dp=2,schedule=1f1b"));
            };
            if seen.contains(&key) {
                return Err(Diagnostic::new(format!("`--parallel`: `{key}` is given twice")));
            }
            seen.push(key);
            let count = || {
                let count = value.parse::<u64>().ok().filter(|count| (1..=1 << 20).contains(count));
                count.ok_or_else(|| refuse(key, value, "a count from 1 to 2^20"))
            };
            match key {
                "tp" => parallel.tp = count()?,
                "pp" => parallel.pp = count()?,
                "dp" => parallel.dp = count()?,
                "sp" => parallel.sp = flag(value).ok_or_else(|| refuse(key, value, "0 or 1"))?,
                "schedule" if parallel.tiled.set_phases(value) => {}
                "schedule" => {
                    let expected =
                        "naive, gpipe, 1f1b, interleaved:PARTS, zb-h1, zb-v, pipedream, pipedream-2bw or phased:LAYERS";
                    parallel.schedule = schedule(value).ok_or_else(|| refuse(key, value, expected))?;
                }
                "recompute" => {
                    let found = named(&Recompute::NAMES, value);
                    parallel.recompute = found.ok_or_else(|| refuse(key, value, "none, selective or full"))?;
                }
                "zero" => {
                    let stage = value.parse().ok().filter(|stage| *stage <= 3);
                    parallel.zero = stage.ok_or_else(|| refuse(key, value, "0, 1, 2 or 3"))?;
                }
                "prefetch" => {
                    let units = value.parse().ok().filter(|units| *units <= MOST_PREFETCH);
                    parallel.prefetch = units.ok_or_else(|| refuse(key, value, "a count from 0 to 64"))?;
                }
                "offload" => {
                    let expected = "none, or optimizer, activations and weights with + between them";
                    parallel.offload = Offload::read(value).ok_or_else(|| refuse(key, value, expected))?;
                }
                "optimizer" => {
                    let expected = "adam, adam-8bit, lion, adafactor or sgd";
                    parallel.optimizer = named(&Optimizer::NAMES, value).ok_or_else(|| refuse(key, value, expected))?;
                }
                "gradients" => {
                    let found =
                        gradients(value).ok_or_else(|| refuse(key, value, "bf16, fp32, int8 or powersgd:RANK"))?;
                    parallel.gradients = Some(found);
                }
                "order" => {
                    let found = named(&[(Self::ORDERS[0], false), (Self::ORDERS[1], true)], value);
                    parallel.stages_adjacent = found.ok_or_else(|| refuse(key, value, "tp-dp-pp or tp-pp-dp"))?;
                }
                "cp" => parallel.cp = count()?,
                "context" => {
                    let found = named(&Context::NAMES, value);
                    parallel.context = found.ok_or_else(|| refuse(key, value, "ring or ulysses"))?;
                }
                "seq_chunks" => parallel.seq_chunks = count()?,
                "stash" => {
                    let found = named(&[("bf16", false), ("gist", true)], value);
                    parallel.gist = found.ok_or_else(|| refuse(key, value, "bf16 or gist"))?;
                }
                _ => parallel.read_other(key, value)?,
            }
        }
        Ok(parallel)
    }

    /// Reads a key of chips of tiles or of experts.
    fn read_other(&mut self, key: &str, value: &str) -> Result<(), Diagnostic> {
        let (expected, is_read) = if let Some(expected) = Tiled::expected(key) {
            (expected, self.tiled.read(key, value))
        } else if let Some(expected) = named(&Mixture::KEYS, key) {
            (expected, self.experts.read(key, value))
        } else {
            return Err(Diagnostic::new(format!("`--parallel`: unknown key {key:?}")).with_help(KEYS));
        };
        is_read.then_some(()).ok_or_else(|| refuse(key, value, expected))
    }

    /// Chips of the decomposition.
    pub fn chips(&self) -> u64 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.dp).saturating_mul(self.cp)
    }

    /// Chips of a stage and tensor rank: all have its weights, and add up their gradients.
    pub fn replicas(&self) -> u64 {
        self.dp.saturating_mul(self.cp)
    }

    /// Replicas that share out the optimiser's state, gradients and weights.
    pub fn sharding(&self) -> [u64; 3] {
        [1, 2, 3].map(|stage| if self.zero >= stage { self.replicas() } else { 1 })
    }

    /// Launches of gathers and scatters of a layer in a forward and in a backward pass.
    pub fn sharding_launches(&self) -> [u64; 2] {
        if !self.shards_passes() {
            return [0, 0];
        }
        if self.zero >= 3 { [1, 2] } else { [0, 1] }
    }

    /// Whether replicas gather weights or scatter gradients during the passes.
    pub fn shards_passes(&self) -> bool {
        self.zero >= 2 && self.replicas() > 1 && !self.tiled.is_phased()
    }

    /// Numberings of chips, the fastest index first, as on the command line.
    const ORDERS: [&'static str; 2] = ["tp-dp-pp", "tp-pp-dp"];

    /// How chips are numbered, as on the command line.
    pub fn order_name(&self) -> &'static str {
        Self::ORDERS[usize::from(self.stages_adjacent)]
    }

    /// Stage, replica and tensor rank of a chip.
    pub fn place(&self, chip: u64) -> (u64, u64, u64) {
        let (place, rank) = (chip / self.tp, chip % self.tp);
        if self.stages_adjacent {
            return (place % self.pp, place / self.pp, rank);
        }
        (place / self.replicas(), place % self.replicas(), rank)
    }

    /// The chip of a place; of the replicas the chips of a sequence are neighbours.
    pub fn chip(&self, stage: u64, replica: u64, rank: u64) -> u64 {
        let place = if self.stages_adjacent { replica * self.pp + stage } else { stage * self.replicas() + replica };
        place * self.tp + rank
    }
}

/// A value of `--parallel` that is none.
fn refuse(key: &str, found: &str, expected: &str) -> Diagnostic {
    Diagnostic::new(format!("`--parallel`: `{key}` is {found:?}, expected {expected}"))
}

/// What a name stands for.
fn named<T: Copy>(names: &[(&'static str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Keys of `--parallel`.
const KEYS: &str = "keys are tp, pp, dp, cp, context, tp2, io_tiles, memory_share, score_dropout, ep, capacity, exchange, experts, seq_chunks, sp, schedule, recompute, zero, prefetch, offload, stash, optimizer, gradients and order";
/// Most units whose weights are gathered ahead.
const MOST_PREFETCH: u64 = 64;

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn schedule(text: &str) -> Option<Schedule> {
    Some(match text {
        "naive" => Schedule::Naive,
        "gpipe" => Schedule::GPipe,
        "1f1b" => Schedule::OneForwardOneBackward,
        "zb-h1" => Schedule::ZeroBubble,
        "zb-v" => Schedule::ZeroBubbleV,
        "pipedream" => Schedule::PipeDream,
        "pipedream-2bw" => Schedule::PipeDream2Bw,
        _ => {
            let parts = text.strip_prefix("interleaved:")?.parse::<u64>().ok()?;
            Schedule::Interleaved((1..=1 << 16).contains(&parts).then_some(parts)?)
        }
    })
}

/// Most passes of all stages of a step.
const MOST_PASSES: u64 = 1 << 22;

/// A step of training, checked.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name of the model.
    pub model: String,
    /// Its dimensions.
    pub architecture: Architecture,
    /// The decomposition.
    pub parallel: Parallel,
    /// Sequences of a step.
    pub batch: u64,
    /// Sequences of a micro-batch.
    pub micro_batch: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Share of the layers' matrices that is kept, in blocks of 16 x 16; none on GPUs.
    pub density: Option<f64>,
    /// Tokens of a sequence that have logits; all of them if not given. A masked language model predicts some.
    pub predicted: Option<u64>,
    /// Layers of each stage, halves too where attention and feed-forward block part; equal shares if not given.
    pub stage_layers: Option<Arc<[StageBlocks]>>,
    /// How tokens fall on experts.
    pub expert_load: ExpertLoad,
}

impl Job {
    /// A decomposition as `--parallel` takes it, with its micro-batch.
    pub fn decomposition(&self) -> String {
        let p = &self.parallel;
        let mut text = format!("tp={},pp={},dp={}", p.tp, p.pp, p.dp);
        if p.sp {
            text += ",sp=1";
        }
        if p.pp > 1 || p.tiled.is_phased() {
            let _ = write!(text, ",schedule={}", p.schedule_name());
        }
        let _ = write!(text, ",recompute={}", p.recompute.name());
        if p.zero > 0 {
            let _ = write!(text, ",zero={}", p.zero);
        }
        if p.offload != Offload::default() {
            let _ = write!(text, ",offload={}", p.offload.name());
        }
        if self.architecture.extras.experts.is_some() {
            let _ = write!(text, ",ep={}", p.experts.ep);
        }
        let _ = write!(text, " by {}", self.micro_batch);
        text
    }

    /// Layers of a stage.
    pub fn layers_of_stage(&self, stage: u64) -> f64 {
        let equal = self.layers_of_part() * self.parallel.schedule.parts();
        let own = self.stage_layers.as_ref().and_then(|list| list.get(stage as usize));
        own.map_or(equal as f64, StageBlocks::layers)
    }

    /// Layers of a part of a stage over those of equal parts.
    pub fn layers_share(&self, stage: u64) -> f64 {
        let equal = self.layers_of_part() * self.parallel.schedule.parts();
        self.layers_of_stage(stage) / equal as f64
    }

    /// Time of a part of a stage over that of equal parts, if so much of a layer's is its attention block.
    pub(super) fn time_share(&self, stage: u64, attention: f64) -> f64 {
        let equal = self.layers_of_part() * self.parallel.schedule.parts();
        let own = self.stage_layers.as_ref().and_then(|list| list.get(stage as usize));
        own.map_or(1.0, |blocks| blocks.time(attention) / equal as f64)
    }

    /// Whether a stage has more attention blocks than feed-forward blocks, or fewer.
    pub(super) fn has_uneven_blocks(&self) -> bool {
        self.stage_layers.iter().flat_map(|list| list.iter()).any(StageBlocks::is_uneven)
    }

    /// Refuses layers of stages that are not the model's, and logits of more tokens than there are.
    fn check_stages(&self) -> Result<(), Diagnostic> {
        if self.predicted_tokens() > self.sequence || self.predicted == Some(0) {
            let title =
                format!("{} tokens of {} have logits, expected from 1 to all", self.predicted_tokens(), self.sequence);
            return Err(Diagnostic::new(title));
        }
        let Some(list) = &self.stage_layers else { return Ok(()) };
        let (pp, layers) = (self.parallel.pp, self.architecture.layers);
        if self.parallel.schedule.parts() > 1 || self.parallel.shards_passes() {
            let help = "leave `--stage-layers` out, or use another schedule and zero=0 or 1";
            return Err(
                Diagnostic::new("stages of different depth are not divided into parts or units").with_help(help)
            );
        }
        if list.len() as u64 != pp || !list.iter().all(StageBlocks::is_some) {
            let title =
                format!("`--stage-layers` has {} numbers, expected {pp} counts of layers, in halves", list.len());
            return Err(Diagnostic::new(title));
        }
        let sum: f64 = list.iter().map(StageBlocks::layers).sum();
        let attention: f64 = list.iter().map(|blocks| blocks.attention).sum();
        if (sum - layers as f64).abs() > 0.25 || (attention - layers as f64).abs() > 0.25 {
            return Err(Diagnostic::new(format!(
                "`--stage-layers` are {sum} layers together with {attention} attention blocks, {} has {layers}",
                self.model
            )));
        }
        Ok(())
    }

    /// Refuses sequences and heads that cannot be divided.
    fn check_context(&self) -> Result<(), Diagnostic> {
        let (p, a) = (&self.parallel, &self.architecture);
        if p.cp == 1 {
            return Ok(());
        }
        let (divisor, of, number) = match p.context {
            Context::Ring => (2 * p.cp, "tokens of a sequence: each chip has an early and a late piece", self.sequence),
            Context::Ulysses => (p.cp * p.tp, "key and value heads", a.kv_heads),
        };
        let wrong = |divisor: u64, of: &str, number: u64| {
            Diagnostic::new(format!("cp = {}: {divisor} does not divide the {number} {of}", p.cp))
        };
        if !number.is_multiple_of(divisor) {
            return Err(
                wrong(divisor, of, number).with_help("change cp, or `context` of `--parallel` (ring or ulysses)")
            );
        }
        if !self.sequence.is_multiple_of(p.cp) || !self.predicted_tokens().is_multiple_of(p.cp) {
            return Err(wrong(p.cp, "tokens of a sequence", self.sequence));
        }
        Ok(())
    }

    /// Tokens of a sequence on a chip in a pass.
    pub fn tokens(&self) -> u64 {
        self.sequence / self.parallel.cp / self.parallel.seq_chunks
    }

    /// Micro-batches of a replica.
    pub fn micro_batches(&self) -> u64 {
        self.batch / self.parallel.dp / self.micro_batch
    }

    /// Layers of one part of a stage.
    pub fn layers_of_part(&self) -> u64 {
        self.architecture.layers / self.parallel.pp / self.parallel.schedule.parts()
    }

    /// Refuses what cannot be divided.
    ///
    /// # Errors
    /// The count that does not divide another.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let (a, p) = (&self.architecture, &self.parallel);
        if a.position == Position::Alibi || a.parallel {
            return Err(Diagnostic::new(format!("{}: only GPT, Llama and BERT layers are modelled", self.model)));
        }
        self.check_stages()?;
        self.check_context()?;
        self.check_tiled()?;
        self.check_experts()?;
        self.check_chunks()?;
        self.check_offload()?;
        self.check_stash()?;
        if let Some(compressed @ (Gradients::Int8 | Gradients::PowerSgd(_))) = p.gradients
            && p.zero > 0
        {
            let title = format!(
                "gradients={} is modelled with zero=0 only: all replicas expand the same sum",
                compressed.name()
            );
            return Err(Diagnostic::new(title).with_help("leave `zero` or `gradients` out"));
        }
        let most = [
            ("hidden", a.hidden, 1 << 18),
            ("feed-forward width", a.feed_forward, 1 << 20),
            ("vocabulary", a.vocabulary, 1 << 24),
            ("layers", a.layers, 1 << 14),
            ("sequence", self.sequence, 1 << 20),
            ("micro-batch", self.micro_batch, 1 << 16),
        ];
        if let Some((what, found, most)) = most.into_iter().find(|(_, found, most)| found > most) {
            return Err(Diagnostic::new(format!("{}: {what} is {found}, at most {most} is modelled", self.model)));
        }
        let parts = p.pp.saturating_mul(p.schedule.parts());
        let is_given = self.stage_layers.is_some() && self.experts().is_none() && a.layers >= parts;
        let pairs = [
            ("tp", p.tp1(), "query heads", a.heads),
            ("tp", p.tp1(), "key and value heads", a.kv_heads),
            ("tp", p.tp1(), "columns of the feed-forward block", a.feed_forward),
            ("heads", a.heads, "columns of the model", if a.extras.head_width.is_some() { a.heads } else { a.hidden }),
            // Stages that are given add up to the layers, which was checked.
            ("pp times the parts of the schedule", parts, "layers", if is_given { parts } else { a.layers }),
            ("dp", p.dp, "sequences of `--batch`", self.batch),
            ("micro-batch", self.micro_batch, "sequences of a replica", self.batch / p.dp.max(1)),
        ];
        for (what, divisor, of, number) in pairs {
            if divisor == 0 || number == 0 || !number.is_multiple_of(divisor) {
                return Err(Diagnostic::new(format!("{what} = {divisor} does not divide the {number} {of}")));
            }
        }
        // Passes whose weights come a layer at a time are simulated layer by layer.
        let of_part = if p.shards_passes() { self.layers_of_part() } else { 1 };
        let passes = parts.saturating_mul(2 * self.passes()).saturating_mul(of_part);
        if passes > MOST_PASSES {
            let title = format!("a step has {passes} passes of stages or layers, at most {MOST_PASSES} are simulated");
            return Err(Diagnostic::new(title).with_help("use fewer or larger micro-batches, stages or parts"));
        }
        if let Schedule::Interleaved(_) = p.schedule
            && !self.micro_batches().is_multiple_of(p.pp)
        {
            let title =
                format!("interleaving needs a multiple of pp = {} micro-batches, found {}", p.pp, self.micro_batches());
            return Err(Diagnostic::new(title).with_help("change `--batch`, `--micro-batch`, dp or pp"));
        }
        self.check_asynchronous()?;
        if p.sp && (p.tp == 1 || !self.tokens().is_multiple_of(p.tp)) {
            let title =
                format!("sp = 1 needs tp above 1 that divides the {} tokens of a sequence on a chip", self.tokens());
            return Err(Diagnostic::new(title));
        }
        Ok(())
    }

    /// Parameters of one layer without experts on a chip, stored elements of its matrices.
    pub fn layer_parameters(&self) -> u64 {
        self.parameters_with(self.architecture.feed_forward)
    }

    /// Parameters of a layer with a feed-forward block of this width; 0 if it has none.
    pub(super) fn parameters_with(&self, width: u64) -> u64 {
        let a = &self.architecture;
        let (wide, kv, matrices) = (a.query_width(), a.kv_width(), a.feed_matrices());
        let products = a.hidden * (2 * wide + 2 * kv + matrices * width);
        let behind = if width > 0 { 2 * a.hidden } else { a.hidden };
        let mut biases = if a.bias { (wide + 2 * kv + width) / self.parallel.tp + behind } else { 0 };
        if a.extras.attention_bias {
            biases += (wide + 2 * kv) / self.parallel.tp;
        }
        let norms = if a.norm == Norm::Layer { 4 * a.hidden } else { 2 * a.hidden };
        let stored = (products as f64 * self.density.unwrap_or(1.0)).ceil() as u64;
        stored / self.parallel.tp + biases + norms
    }

    /// FLOP of products in one forward pass of one sequence: stored elements of layers, all scores, logits.
    pub fn forward_flops(&self) -> f64 {
        let a = &self.architecture;
        let products = (a.hidden * (2 * a.query_width() + 2 * a.kv_width())) as f64;
        let products = products + (a.hidden * a.feed_matrices()) as f64 * self.mean_width();
        let products = (products + self.mean_router_products()) * self.density.unwrap_or(1.0);
        let s = self.sequence as f64;
        let layer = 2.0 * s * products + 4.0 * s * s * a.query_width() as f64;
        a.layers as f64 * layer + self.ends_flops()
    }

    /// FLOP of products that are computed again, of one sequence.
    pub fn recomputed_flops(&self) -> f64 {
        let a = &self.architecture;
        let s = self.sequence as f64;
        let scores = 4.0 * s * s * (a.query_width() * a.layers) as f64;
        match self.parallel.recompute {
            Recompute::None => 0.0,
            Recompute::Selective => scores,
            Recompute::Full => self.forward_flops() - self.ends_flops(),
        }
    }
}
