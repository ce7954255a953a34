//! Prefill of a batch, and a decode step: passes of the stages, collectives within them, transfers between them, the host.

use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_128;

use super::super::collective::{Call, CollectiveKind, Planned, plan};
use super::super::network::{Demand, Network};
use super::super::system::{Stack, System};
use super::chip::{ChipTime, Chips, Pass, Work, drive_alike};
use super::experts::{self, Exchanged};
use super::service::{ELEMENT, Load, Service};
use super::speculation::Speculation;
use super::time::{Cost, ServedPhase, ServingTime, Step, StepParts};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::AnyChip;

/// A system that serves a model with a stack.
#[derive(Debug, Clone)]
pub struct Server<'s> {
    system: &'s System,
    stack: &'s Stack,
    service: &'s Service,
    chips: Chips,
    /// The model that drafts for it, if one does.
    pub(super) drafter: Option<Drafter<'s>>,
}

/// The model that drafts, on the same chips.
#[derive(Debug, Clone)]
pub(super) struct Drafter<'s> {
    pub(super) server: Box<Server<'s>>,
    /// What it drafts.
    pub(super) speculation: &'s Speculation,
    /// Bytes that it holds of each memory of a chip, in their order.
    pub(super) held: Vec<u64>,
}

/// A pass of a stage.
#[derive(Debug, Clone, Copy, Default)]
struct StageTime {
    chip: ChipTime,
    tensor_comm: f64,
    expert_comm: f64,
    /// Waiting for the host to launch what follows.
    waiting: f64,
}

impl StageTime {
    fn seconds(&self) -> f64 {
        self.chip.seconds + self.tensor_comm + self.expert_comm + self.waiting
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

/// A phase as it was timed.
#[derive(Clone, Copy)]
struct Timed {
    /// The stage that the others wait for.
    critical: usize,
    seconds: f64,
    time: ServingTime,
    flops: f64,
    /// Seconds in which the memory's bandwidth gives what is read.
    read_s: f64,
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
        Ok(Self { system, stack, service, chips: Chips::new(system, stack), drafter: None })
    }

    /// The same beside a model that drafts for it.
    pub(super) fn beside(self, drafter: Drafter<'s>) -> Self {
        let takes = drafter.held.iter().any(|&bytes| bytes > 0);
        let chips = if takes { self.chips.without(&drafter.held) } else { self.chips };
        Self { chips, drafter: Some(drafter), ..self }
    }

    /// Replicas that run together.
    pub(super) fn replicas(&self) -> u64 {
        self.service.parallel.dp
    }

    /// What a phase takes of one replica.
    pub(super) fn cost(&self, phase: &ServedPhase) -> Cost {
        Cost { seconds: phase.seconds, joules: phase.joules / self.replicas() as f64 }
    }

    /// A step of every user, or a round where another model drafts.
    pub(super) fn iteration(&self, load: &Load) -> Result<Step, Diagnostic> {
        match self.round(load)? {
            Some(round) => Ok(Step {
                cost: Cost { seconds: round.seconds(), joules: round.joules() / self.replicas() as f64 },
                parts: StepParts::new(&round.verify.time, round.draft_s()),
            }),
            None => {
                self.decode(load).map(|phase| Step { cost: self.cost(&phase), parts: StepParts::new(&phase.time, 0.0) })
            }
        }
    }

    /// Prompts of both models, where one drafts.
    pub(super) fn prompt(&self, load: &Load) -> Result<Cost, Diagnostic> {
        let own = self.cost(&self.prefill(load)?);
        let other = self.draft_prefill(load)?.map(|phase| self.cost(&phase));
        Ok(other.map_or(own, |other| own.plus(other)))
    }

    /// Seconds in which the host hands a token to a user.
    pub(super) fn token_s(&self) -> f64 {
        self.stack.token_us / 1e6
    }

    /// Whether a pass takes long to simulate: on RDUs it is compiled.
    pub(super) fn compiles(&self) -> bool {
        self.chips.chip().rdu().is_some()
    }

    /// The same, in which attention is compiled as it was the fastest so far; of both models, where one drafts.
    pub(super) fn settled(&self) -> Self {
        let mut settled = self.clone();
        settled.chips = settled.chips.settled();
        settled.drafter = settled.drafter.map(Drafter::settled);
        settled
    }

    /// The system, its software and the model.
    pub(super) fn setup(&self) -> (&'s System, &'s Stack, &'s Service) {
        (self.system, self.stack, self.service)
    }

    /// The chip, less what a model that drafts holds of it.
    pub(super) fn chip(&self) -> &AnyChip {
        self.chips.chip()
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
        let mut text = format!("{:?} {:?} {:?}", self.system, self.stack, self.service);
        if let Some(drafter) = &self.drafter {
            let _ = write!(text, " {:?}", drafter.speculation);
            // What is compiled lies in what is left of each memory; kernels of a GPU take as long beside whatever is held.
            if self.compiles() {
                let _ = write!(text, " {:?}", drafter.held);
            }
        }
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// Prompts of a batch, until every user has the first token: groups of users follow each other through the stages.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub fn prefill(&self, load: &Load) -> Result<ServedPhase, Diagnostic> {
        self.service.check_load(load)?;
        let passes = self.passes(Work::Prompts, load)?;
        let groups = load.groups(&self.service.parallel);
        let host = self.host_s(load.batch as f64);
        let (critical, spent, end) = forward(&passes, groups, self.stack.blocking);
        let (waited, transfer) = spent;
        let work = &passes.stages[critical];
        let n = groups as f64;
        let time = ServingTime {
            compute: work.chip.seconds * n,
            tensor_comm: work.tensor_comm * n,
            expert_comm: work.expert_comm * n,
            pipeline_comm: transfer,
            bubble: waited - transfer,
            other: work.waiting * n + host,
        };
        let flops = self.flops(Work::Prompts, load);
        Ok(self.phase(load, &passes, Timed { critical, seconds: end + host, time, flops, read_s: 0.0 }))
    }

    /// One token for every user. A group of users starts again when its tokens are back from the last stage; the groups of a
    /// replica share its stages, so that a step takes a round trip of one group, or all groups on the slowest stage.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub fn decode(&self, load: &Load) -> Result<ServedPhase, Diagnostic> {
        self.step(load, Work::TOKEN, load.micro_batch as f64)
    }

    /// A pass of each group of users over new tokens, of which the host hands so many to the users of a group.
    pub(super) fn step(&self, load: &Load, work: Work, handed: f64) -> Result<ServedPhase, Diagnostic> {
        self.service.check_load(load)?;
        let passes = self.passes(work, load)?;
        let p = &self.service.parallel;
        let groups = load.groups(p) as f64;
        // The host hands over the tokens of the groups one after the other; all replicas have one host.
        let host = self.host_s(p.dp as f64 * handed);
        let between = passes.transfer * (p.pp - 1) as f64 + passes.back;
        let slowest = passes.stages.iter().enumerate().max_by(|a, b| a.1.seconds().total_cmp(&b.1.seconds()));
        let (critical, busy) = slowest.map_or((0, StageTime::default()), |(at, stage)| (at, *stage));
        let round = passes.stages.iter().map(StageTime::seconds).sum::<f64>() + between + host;
        let blocked = if self.stack.blocking && p.pp > 1 { passes.transfer } else { 0.0 };
        let busiest = (busy.seconds() + blocked).max(passes.transfer).max(host);
        let token_s = round.max(busiest * groups);
        let waited = token_s - busy.seconds() * groups;
        let pipeline_comm = waited.min(between.max(blocked * groups));
        let host = (waited - pipeline_comm).min(host.max(if host >= busiest { host * groups } else { 0.0 }));
        let left = waited - pipeline_comm - host;
        // One stage waits for no other; what is left is of rounding.
        let bubble = if p.pp == 1 || left < 1e-12 * token_s { 0.0 } else { left };
        let time = ServingTime {
            compute: busy.chip.seconds * groups + (left - bubble),
            tensor_comm: busy.tensor_comm * groups,
            expert_comm: busy.expert_comm * groups,
            pipeline_comm,
            bubble,
            other: busy.waiting * groups + host,
        };
        let (flops, read_s) = (self.flops(work, load), self.read_s(work, load));
        Ok(self.phase(load, &passes, Timed { critical, seconds: token_s, time, flops, read_s }))
    }

    /// Seconds in which all memory reads what a pass of a group must: the weights of all stages, and caches, less what on-chip
    /// memory holds.
    fn read_s(&self, work: Work, load: &Load) -> f64 {
        let sram = self.chips.chip().device().sram_bytes();
        let cached = |stage: u64| match work {
            Work::Rows { .. } => 0,
            _ => load.micro_batch * self.service.read_of_caches(stage, load.tokens),
        };
        // A table of tokens is looked up, not read, where it is no matrix of logits.
        let read: u64 = (0..self.service.parallel.pp)
            .map(|stage| self.read_bytes(stage).saturating_sub(sram) + cached(stage).saturating_sub(sram))
            .sum();
        let rate: f64 = self.chips.chip().device().tiers().iter().map(|tier| tier.bandwidth_bytes_per_s as f64).sum();
        read as f64 / rate
    }

    /// Seconds that no decode step of a load takes less than: without a simulation.
    pub(super) fn least_step_s(&self, load: &Load) -> f64 {
        let work = Work::tokens(1);
        let computing = self.flops(work, load) / (self.peak() * self.service.parallel.chips() as f64);
        computing.max(self.read_s(work, load))
    }

    /// FLOP of the model in a pass of all groups.
    fn flops(&self, work: Work, load: &Load) -> f64 {
        let (of, all) = (self.service, load.batch as f64);
        match work {
            Work::Prompts => of.flops(load.tokens, 1) * all,
            Work::Tokens { new, .. } => of.flops_of_pass(new, load.tokens) * all,
            Work::Rows { .. } => of.flops(1, 0) * all,
            Work::Mixed { chunk, before } => {
                let groups = load.groups(&of.parallel) * of.parallel.dp;
                of.flops(1, load.tokens) * all + of.flops(chunk, before + 1) * groups as f64
            }
        }
    }

    /// Weights of a stage that a step reads whole: those of its layers.
    fn read_bytes(&self, stage: u64) -> u64 {
        if let Some(stack) = &self.service.stack {
            return self.service.layered_read_bytes(stack, stage);
        }
        let share = self.service.share();
        let tables = u64::from(stage == 0) * (share.vocabulary * share.hidden * ELEMENT);
        let own = self.service.own_weight_bytes(stage);
        own.saturating_sub(tables + ELEMENT * self.service.unread_experts())
    }

    /// Seconds of the host between two passes, which hands `tokens` tokens to users.
    fn host_s(&self, tokens: f64) -> f64 {
        (self.stack.step_us + self.stack.token_us * tokens) / 1e6
    }

    fn phase(&self, load: &Load, passes: &Passes, timed: Timed) -> ServedPhase {
        let Timed { critical, seconds, time, flops, read_s } = timed;
        let p = &self.service.parallel;
        let peak = self.peak();
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
    fn passes(&self, work: Work, load: &Load) -> Result<Passes, Diagnostic> {
        let p = &self.service.parallel;
        let network = Network::new(self.system);
        let mut traffic = vec![0; network.levels().len()];
        let rows = work.rows(load.micro_batch, load.tokens);
        let activation = rows * self.service.architecture.hidden * ELEMENT;
        let mut count = |bytes: Vec<u64>, times: u64| {
            traffic.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes * times);
        };
        let (mut reduce, mut gather) = (0.0, 0.0);
        if p.tp > 1 {
            let blocks: u64 = (0..p.pp).map(|stage| self.service.blocks(stage).all()).sum();
            let all = self.collective(&network, CollectiveKind::AllReduce, activation)?;
            // Behind attention, recurrence and feed-forward block of each layer, and behind the embedding, whose rows are divided.
            count(all.by_level(), blocks + 1);
            reduce = all.seconds;
            let logits = work.sampled(load.micro_batch) * self.service.architecture.vocabulary * ELEMENT;
            let logits = self.collective(&network, CollectiveKind::AllGather, logits)?;
            count(logits.by_level(), 1);
            gather = logits.seconds;
        }
        let mut stages = Vec::new();
        for stage in 0..p.pp {
            let (is_first, is_last) = (stage == 0, stage + 1 == p.pp);
            let pass = Pass {
                work,
                users: load.micro_batch,
                tokens: load.tokens,
                is_first,
                is_last,
                hybrid: self.service.hybrid(stage),
                stage: self.service.alike(stage),
                kind: None,
                layers: self.service.layers_of_stage(stage),
            };
            let mut chip = self.chips.time(self.stack, self.service, &pass)?;
            chip.seconds *= self.slowdown(work, load, chip.seconds);
            let reductions = self.service.blocks(stage).all() + u64::from(is_first);
            let tensor_comm = reduce * reductions as f64 + if is_last { gather } else { 0.0 };
            let exchange = match &self.service.expert_ranks {
                Some(_) => self.gathered(&network, rows)?,
                None => experts::exchanged(self.system, self.stack, &self.service.job(rows), chip.products)?,
            };
            let with = self.service.mixed_layers().1;
            count(exchange.by_level, with);
            let expert_comm = exchange.seconds * with as f64;
            let launches = chip.launches + if p.tp > 1 { reductions + u64::from(is_last) } else { 0 };
            let host = (launches + exchange.launches * with) as f64 * self.stack.host_us / 1e6;
            let waiting = (host - chip.seconds - tensor_comm - expert_comm).max(0.0);
            stages.push(StageTime { chip, tensor_comm, expert_comm, waiting });
        }
        let (mut transfer, mut back) = (0.0, 0.0);
        if p.pp > 1 {
            // All residual streams go on to the next stage.
            let sent = activation * self.service.stack.as_ref().map_or(1, |stack| stack.streams);
            let bytes = if self.stack.scatter_gather { sent.div_ceil(p.tp) } else { sent };
            for stage in 0..p.pp - 1 {
                let (seconds, by_level) = self.transfer(&network, stage, stage + 1, bytes);
                transfer = seconds.max(transfer);
                count(by_level, 1);
            }
            let tokens = 4 * work.sampled(load.micro_batch);
            let (seconds, by_level) = self.transfer(&network, p.pp - 1, 0, tokens);
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

    /// How much longer a pass takes at the clock that the power of its tensor cores leaves.
    fn slowdown(&self, work: Work, load: &Load, seconds: f64) -> f64 {
        if self.stack.power_slowdown == 0.0 {
            return 1.0;
        }
        let p = &self.service.parallel;
        // Of a group of users on a chip.
        let flops = self.flops(work, load) / (load.groups(p) * p.chips()) as f64;
        1.0 + self.stack.power_slowdown * (flops / (self.peak() * seconds)).clamp(0.0, 1.0)
    }

    /// FLOP a second of a chip in the data type of the layers' products.
    fn peak(&self) -> f64 {
        let device = self.chips.chip().device();
        let narrow =
            self.service.activations.as_ref().and_then(|of| Dtype::ALL.iter().find(|known| known.name() == of.dtype));
        let narrow = narrow.and_then(|&dtype| device.peak_flops(dtype));
        narrow
            .or_else(|| device.peak_flops(Dtype::Bf16))
            .or_else(|| device.peak_flops(Dtype::Fp16))
            .unwrap_or(f64::INFINITY)
    }

    /// Replicas whose chips share experts out bring the rows of all together, and add up what comes of them where they came from.
    fn gathered(&self, network: &Network<'_>, rows: u64) -> Result<Exchanged, Diagnostic> {
        let p = &self.service.parallel;
        if p.dp == 1 {
            return Ok(Exchanged::default());
        }
        let group: Vec<u64> =
            (0..p.dp).flat_map(|replica| (0..p.tp).map(move |rank| p.chip(0, replica, rank))).collect();
        let bytes = rows * p.dp * self.service.architecture.hidden * ELEMENT;
        let mut exchange = Exchanged { launches: 2, ..Exchanged::default() };
        for kind in [CollectiveKind::AllGather, CollectiveKind::ReduceScatter] {
            let groups = std::slice::from_ref(&group);
            let planned =
                plan(network, &self.system.protocols, &self.stack.library, None, &Call { kind, groups, bytes })?;
            exchange.seconds += planned.seconds;
            let by_level = planned.by_level();
            exchange.by_level.resize(by_level.len(), 0);
            exchange.by_level.iter_mut().zip(by_level).for_each(|(sum, bytes)| *sum += bytes);
        }
        Ok(exchange)
    }

    /// Seconds and bytes by level of what all chips of a stage send to another.
    fn transfer(&self, network: &Network<'_>, from: u64, to: u64, bytes: u64) -> (f64, Vec<u64>) {
        let p = &self.service.parallel;
        let mut demand = Demand::default();
        for replica in 0..p.dp {
            for rank in 0..p.tp {
                network.flow(&mut demand, p.chip(from, replica, rank), p.chip(to, replica, rank), bytes);
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
