//! Prefill of a batch, and a decode step: passes of the stages, collectives within them, transfers between them, the host.

use xxhash_rust::xxh3::xxh3_128;

use super::super::collective::{Call, CollectiveKind, Planned, plan};
use super::super::network::{Demand, Network};
use super::super::system::{Stack, System};
use super::chip::{ChipTime, Chips, Pass, drive_alike};
use super::service::{ELEMENT, Load, Service};
use crate::diagnostics::Diagnostic;
use crate::units::Dtype;

/// Seconds of the chip that works most; they add up to the phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServingTime {
    /// Kernels or sections.
    pub compute: f64,
    /// Collectives of the tensor group.
    pub tensor_comm: f64,
    /// Waiting while a transfer between stages is under way.
    pub pipeline_comm: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Waiting for the host.
    pub other: f64,
}

impl ServingTime {
    /// All of it.
    pub fn sum(&self) -> f64 {
        self.compute + self.tensor_comm + self.pipeline_comm + self.bubble + self.other
    }
}

/// Prefill of a batch, or one step that gives each user a token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServedPhase {
    /// Seconds until every user has the token.
    pub seconds: f64,
    /// What they are made of.
    pub time: ServingTime,
    /// The stage that works most.
    pub critical: u64,
    /// Bytes by level of all chips.
    pub traffic: Vec<(String, u64)>,
    /// Joules of all chips; links and hosts are not counted.
    pub joules: f64,
    /// FLOP of the model over what the chips could do.
    pub mfu: f64,
    /// No such phase on so many chips is shorter.
    pub bound_s: f64,
}

/// A system that serves a model with a stack.
#[derive(Debug, Clone)]
pub struct Server<'s> {
    system: &'s System,
    stack: &'s Stack,
    service: &'s Service,
    chips: Chips,
}

/// A pass of a stage.
#[derive(Debug, Clone, Copy, Default)]
struct StageTime {
    chip: ChipTime,
    tensor_comm: f64,
    /// Waiting for the host to launch what follows.
    waiting: f64,
}

impl StageTime {
    fn seconds(&self) -> f64 {
        self.chip.seconds + self.tensor_comm + self.waiting
    }
}

/// Passes of all stages, and what lies between them.
struct Passes {
    stages: Vec<StageTime>,
    /// Seconds of a transfer to the next stage.
    transfer: f64,
    /// Seconds of the message that brings tokens back to the first stage.
    back: f64,
    /// Bytes by level of one group of users in all stages.
    traffic: Vec<u64>,
}

impl<'s> Server<'s> {
    /// # Errors
    /// What cannot be divided, more chips than the system can have, or a stack that does not serve.
    pub fn new(system: &'s System, stack: &'s Stack, service: &'s Service) -> Result<Self, Diagnostic> {
        service.check()?;
        let chips = service.parallel.chips();
        if chips > system.most_chips() {
            let title = format!("{chips} chips are asked for, {} has at most {}", system.name, system.most_chips());
            return Err(
                Diagnostic::new(title).with_help("chips are tp x pp x dp; the system file's levels say how many")
            );
        }
        if !stack.kind.serves() {
            let title = format!("the stack {:?} is one of training alone", stack.kind.name());
            let names: Vec<&str> =
                system.stacks.iter().filter(|known| known.kind.serves()).map(|known| known.kind.name()).collect();
            return Err(Diagnostic::new(title).with_help(format!("prefill and decode run on {}", names.join(", "))));
        }
        Ok(Self { system, stack, service, chips: Chips::new(system, stack) })
    }

    /// The same with another stack, which shares what is known of the chip if it launches its work in the same way.
    ///
    /// # Errors
    /// A stack that does not serve.
    pub fn with_stack(&self, stack: &'s Stack) -> Result<Self, Diagnostic> {
        let other = Self::new(self.system, stack, self.service)?;
        Ok(if drive_alike(self.stack, stack) { Self { chips: self.chips.clone(), ..other } } else { other })
    }

    /// A hash of all that times depend on.
    pub(super) fn fingerprint(&self) -> String {
        let text = format!("{:?} {:?} {:?}", self.system, self.stack, self.service);
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// Prompts of a batch, until every user has the first token: groups of users follow each other through the stages.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub fn prefill(&self, load: &Load) -> Result<ServedPhase, Diagnostic> {
        self.service.check_load(load)?;
        let passes = self.passes(false, load)?;
        let groups = load.groups(&self.service.parallel);
        let host = self.host_s(load.batch);
        let (critical, spent, end) = forward(&passes, groups, self.stack.blocking);
        let (waited, transfer) = spent;
        let work = &passes.stages[critical];
        let n = groups as f64;
        let time = ServingTime {
            compute: work.chip.seconds * n,
            tensor_comm: work.tensor_comm * n,
            pipeline_comm: transfer,
            bubble: waited - transfer,
            other: work.waiting * n + host,
        };
        let flops = self.service.flops(load.tokens, 1) * load.batch as f64;
        Ok(self.phase(load, &passes, (critical, end + host, time), (flops, 0.0)))
    }

    /// One token for every user. A group of users starts again when its tokens are back from the last stage; the groups of a
    /// replica share its stages, so that a step takes a round trip of one group, or all groups on the slowest stage.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub fn decode(&self, load: &Load) -> Result<ServedPhase, Diagnostic> {
        self.service.check_load(load)?;
        let passes = self.passes(true, load)?;
        let p = &self.service.parallel;
        let groups = load.groups(p) as f64;
        // The host hands over the tokens of the groups one after the other; all replicas have one host.
        let host = self.host_s(load.micro_batch * p.dp);
        let between = passes.transfer * (p.pp - 1) as f64 + passes.back;
        let slowest = passes.stages.iter().enumerate().max_by(|a, b| a.1.seconds().total_cmp(&b.1.seconds()));
        let (critical, work) = slowest.map_or((0, StageTime::default()), |(at, stage)| (at, *stage));
        let round = passes.stages.iter().map(StageTime::seconds).sum::<f64>() + between + host;
        let blocked = if self.stack.blocking && p.pp > 1 { passes.transfer } else { 0.0 };
        let busiest = (work.seconds() + blocked).max(passes.transfer).max(host);
        let token_s = round.max(busiest * groups);
        let waited = token_s - work.seconds() * groups;
        let pipeline_comm = waited.min(between.max(blocked * groups));
        let host = (waited - pipeline_comm).min(host.max(if host >= busiest { host * groups } else { 0.0 }));
        let time = ServingTime {
            compute: work.chip.seconds * groups,
            tensor_comm: work.tensor_comm * groups,
            pipeline_comm,
            bubble: waited - pipeline_comm - host,
            other: work.waiting * groups + host,
        };
        let flops = self.service.flops(1, load.tokens) * load.batch as f64;
        let sram = self.chips.chip().device().sram_bytes();
        let cached = load.micro_batch * load.tokens * self.service.kv_bytes_per_token();
        // A table of tokens is looked up, not read, where it is no matrix of logits.
        let read: u64 =
            (0..p.pp).map(|stage| self.read_bytes(stage).saturating_sub(sram) + cached.saturating_sub(sram)).sum();
        let rate: f64 = self.chips.chip().device().tiers().iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum();
        Ok(self.phase(load, &passes, (critical, token_s, time), (flops, read as f64 / rate)))
    }

    /// Weights of a stage that a step reads whole: those of its layers.
    fn read_bytes(&self, stage: u64) -> u64 {
        let share = self.service.share();
        let tables = u64::from(stage == 0) * (share.vocabulary * share.hidden * ELEMENT);
        let own = ELEMENT * self.service.parameters(stage).own;
        own.saturating_sub(tables)
    }

    /// Seconds of the host between two passes, which hands `tokens` tokens to users.
    fn host_s(&self, tokens: u64) -> f64 {
        (self.stack.step_us + self.stack.token_us * tokens as f64) / 1e6
    }

    fn phase(
        &self,
        load: &Load,
        passes: &Passes,
        (critical, seconds, time): (usize, f64, ServingTime),
        (flops, read_s): (f64, f64),
    ) -> ServedPhase {
        let p = &self.service.parallel;
        let device = self.chips.chip().device();
        let peak = device.peak_flops(Dtype::Bf16).or_else(|| device.peak_flops(Dtype::Fp16)).unwrap_or(f64::INFINITY);
        let chips = p.chips() as f64;
        let groups = load.groups(p);
        let joules = passes.stages.iter().map(|stage| {
            let busy = stage.chip.seconds * groups as f64;
            stage.chip.joules * groups as f64 + stage.chip.static_w * (seconds - busy).max(0.0)
        });
        let levels = self.system.levels.iter().zip(&passes.traffic);
        ServedPhase {
            seconds,
            time,
            critical: critical as u64,
            traffic: levels.map(|(level, bytes)| (level.name.clone(), bytes * groups)).collect(),
            joules: joules.sum::<f64>() * (p.tp * p.dp) as f64,
            mfu: flops / (peak * chips * seconds),
            bound_s: (flops / (peak * chips)).max(read_s),
        }
    }

    /// A pass of one group of users through each stage; equal parts of the model are simulated once.
    fn passes(&self, decodes: bool, load: &Load) -> Result<Passes, Diagnostic> {
        let p = &self.service.parallel;
        let network = Network::new(self.system);
        let mut traffic = vec![0; network.levels().len()];
        let rows = load.micro_batch * if decodes { 1 } else { load.tokens };
        let activation = rows * self.service.architecture.hidden * ELEMENT;
        let mut count = |bytes: Vec<u64>, times: u64| {
            traffic.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes * times);
        };
        let (mut reduce, mut gather) = (0.0, 0.0);
        if p.tp > 1 {
            let layers = self.service.layers_of_stage();
            let all = self.collective(&network, CollectiveKind::AllReduce, activation)?;
            // Behind attention and feed-forward block of each layer, and behind the embedding, whose rows are divided.
            count(all.by_level(), 2 * layers * p.pp + 1);
            reduce = all.seconds;
            let logits = load.micro_batch * self.service.architecture.vocabulary * ELEMENT;
            let logits = self.collective(&network, CollectiveKind::AllGather, logits)?;
            count(logits.by_level(), 1);
            gather = logits.seconds;
        }
        let mut stages = Vec::new();
        for stage in 0..p.pp {
            let (is_first, is_last) = (stage == 0, stage + 1 == p.pp);
            let pass = Pass { decodes, users: load.micro_batch, tokens: load.tokens, is_first, is_last };
            let chip = self.chips.time(self.stack, self.service, &pass)?;
            let reductions = 2 * self.service.layers_of_stage() + u64::from(is_first);
            let tensor_comm = reduce * reductions as f64 + if is_last { gather } else { 0.0 };
            let launches = chip.launches + if p.tp > 1 { reductions + u64::from(is_last) } else { 0 };
            let host = launches as f64 * self.stack.host_us / 1e6;
            let time = StageTime { chip, tensor_comm, waiting: (host - chip.seconds - tensor_comm).max(0.0) };
            stages.push(time);
        }
        let (mut transfer, mut back) = (0.0, 0.0);
        if p.pp > 1 {
            let bytes = if self.stack.scatter_gather { activation.div_ceil(p.tp) } else { activation };
            for stage in 0..p.pp - 1 {
                let (seconds, by_level) = self.transfer(&network, (stage, stage + 1), bytes);
                transfer = seconds.max(transfer);
                count(by_level, 1);
            }
            let tokens = 4 * load.micro_batch;
            let (seconds, by_level) = self.transfer(&network, (p.pp - 1, 0), tokens);
            count(by_level, 1);
            back = seconds;
        }
        Ok(Passes { stages, transfer, back, traffic })
    }

    /// The collective of the tensor groups of the first stage, all at the same time.
    fn collective(&self, network: &Network<'_>, kind: CollectiveKind, bytes: u64) -> Result<Planned, Diagnostic> {
        let p = &self.service.parallel;
        let groups: Vec<Vec<u64>> =
            (0..p.dp).map(|replica| (0..p.tp).map(|rank| p.chip(0, replica, rank)).collect()).collect();
        plan(network, &self.system.protocols, &self.stack.library, None, &Call { kind, groups: &groups, bytes })
    }

    /// Seconds and bytes by level of what all chips of a stage send to another.
    fn transfer(&self, network: &Network<'_>, (from, to): (u64, u64), bytes: u64) -> (f64, Vec<u64>) {
        let p = &self.service.parallel;
        let mut demand = Demand::default();
        for replica in 0..p.dp {
            for rank in 0..p.tp {
                network.flow(&mut demand, (p.chip(from, replica, rank), p.chip(to, replica, rank)), bytes);
            }
        }
        let level = network.level_of(p.chip(from, 0, 0), p.chip(to, 0, 0)).unwrap_or(0);
        (network.seconds(&demand) + network.levels()[level].message_us / 1e6, demand.by_level)
    }
}

/// Groups that follow each other through the stages once: the stage that works most, its waiting and the part of that in
/// which a transfer to it is under way, and the end of the last stage.
fn forward(passes: &Passes, groups: u64, blocking: bool) -> (usize, (f64, f64), f64) {
    let n = passes.stages.len();
    let most = passes.stages.iter().enumerate().max_by(|a, b| a.1.seconds().total_cmp(&b.1.seconds()));
    let critical = most.map_or(0, |(at, _)| at);
    // When each stage is free, and when the link to the next one is.
    let (mut free, mut link) = (vec![0.0_f64; n], vec![0.0_f64; n]);
    let (mut waited, mut transfer) = (0.0, 0.0);
    for _ in 0..groups {
        let mut arrival = 0.0_f64;
        for (at, stage) in passes.stages.iter().enumerate() {
            let start = free[at].max(arrival);
            if at == critical {
                let wait = start - free[at];
                waited += wait;
                transfer += if at > 0 { wait.min(passes.transfer) } else { 0.0 };
            }
            free[at] = start + stage.seconds();
            if at + 1 < n {
                let sent = free[at].max(link[at]);
                arrival = sent + passes.transfer;
                link[at] = arrival;
                if blocking {
                    if at == critical {
                        waited += arrival - free[at];
                        transfer += arrival - free[at];
                    }
                    free[at] = arrival;
                }
            }
        }
    }
    let end = free.last().copied().unwrap_or(0.0);
    waited += end - free[critical];
    (critical, (waited, transfer), end)
}
