//! A training step as a graph for each chip: what it computes, sends, receives and does together with others, and what each of these
//! comes after. Times of computing are those of the chip's simulation; what moves is given as bytes, for whoever simulates links.

use super::collective::CollectiveKind;
use super::optimizer::gradient_parts;
use super::parallel::Job;
use super::pass::{Pass, Pieces};
use super::schedule::{PassKind, StageOf, Work, order};
use super::sharded::{Piece, StagePart, end_collectives, ns, pieces_of, received, tied_bytes};
use super::stage::pieces;
use super::system::{Stack, System};
use super::tensor_comm::{TensorComm, tensor_comm};
use super::training::{transfer_bytes, update_seconds};
use super::unit_calls::{BACKWARD, EMBEDDING, EXPERTS, LAYER, UnitCall, UnitCalls};
use rdusim_base::diagnostics::Diagnostic;

mod groups;
mod layer;

use groups::{Groups, Role};

/// Nodes of a chip that are made at most: graphs are made one at a time.
const MOST_NODES: u64 = 1 << 24;

/// What a chip does in a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Computes for so many microseconds.
    Compute {
        /// Whole microseconds; what rounding leaves out of one, the next has.
        micros: u64,
    },
    /// Takes part in a collective of a group of [`ExecutionTraces::groups`].
    Collective {
        /// Which.
        kind: CollectiveKind,
        /// Bytes that a member brings: its operand; of a gather, its part.
        bytes: u64,
        /// Index of the group.
        group: usize,
    },
    /// Sends to another chip.
    Send {
        /// The chip.
        to: u64,
        /// Bytes.
        bytes: u64,
        /// The same as of what receives it, and of no other transfer between the two.
        tag: u64,
    },
    /// Receives from another chip.
    Receive {
        /// The chip.
        from: u64,
        /// Bytes.
        bytes: u64,
        /// As of what sends it.
        tag: u64,
    },
}

/// A node of a chip's graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceNode {
    /// What it is, for people.
    pub name: String,
    /// What the chip does.
    pub operation: Operation,
    /// Indices of the nodes before it that it waits for.
    pub after: Vec<u64>,
}

/// The graphs of all chips of a step, made one at a time.
#[derive(Debug)]
pub struct ExecutionTraces<'s> {
    job: &'s Job,
    stack: &'s Stack,
    pieces: Pieces,
    comm: TensorComm,
    /// What replicas gather and scatter.
    calls: UnitCalls,
    /// Seconds of the optimiser's step by stage.
    update: Vec<f64>,
    groups: Groups,
}

impl<'s> ExecutionTraces<'s> {
    /// The graphs of a step that fits, on a system that has the chips.
    ///
    /// # Errors
    /// What the chip's simulation refuses, and more nodes than are made.
    pub fn new(system: &System, stack: &'s Stack, job: &'s Job) -> Result<Self, Diagnostic> {
        job.check()?;
        if job.parallel.schedule.is_v() {
            let title = "the two directions of zb-v are not written as execution traces";
            return Err(Diagnostic::new(title).with_help("leave `--chakra` out, or use zb-h1"));
        }
        if job.parallel.seq_chunks > 1 || job.parallel.offload.moves_in_passes() {
            let title = "parts of sequences, and what moves to the host in passes, are not written as execution traces";
            return Err(Diagnostic::new(title).with_help("leave `--chakra`, or seq_chunks and offload, out"));
        }
        if stack.tensor_parts > 1 && job.parallel.sp {
            let title = "tensor collectives that go beside products in parts are not written as execution traces";
            let name = stack.kind.name();
            let help = format!("leave `--chakra` out, or give `--set arch.stack.{name}.tensor_parts=1`");
            return Err(Diagnostic::new(title).with_help(help));
        }
        let comm = tensor_comm(system, stack, job)?;
        let pieces = pieces(system, stack, job, &comm)?;
        let p = &job.parallel;
        let update = (0..p.pp).map(|stage| update_seconds(system, stack, job, &pieces, stage));
        let update = update.collect::<Result<Vec<f64>, Diagnostic>>()?;
        let calls = UnitCalls::new(system, stack, job)?;
        let traces = Self { job, stack, pieces, comm, calls, update, groups: Groups::new(job) };
        let nodes = (0..p.pp).map(|stage| traces.of(p.chip(stage, 0, 0)).len() as u64).max().unwrap_or(0);
        if nodes > MOST_NODES {
            let title = format!("the graph of a chip has {nodes} nodes, at most {MOST_NODES} are written");
            return Err(Diagnostic::new(title).with_help("use larger micro-batches or a smaller batch"));
        }
        Ok(traces)
    }

    /// How many chips there are.
    pub fn chips(&self) -> u64 {
        self.job.parallel.chips()
    }

    /// The chips of each group that has collectives.
    pub fn groups(&self) -> &[Vec<u64>] {
        &self.groups.list
    }

    /// The graph of a chip, numbered as everywhere: the tensor rank fastest, then data, then pipeline.
    pub fn of(&self, chip: u64) -> Vec<TraceNode> {
        let p = &self.job.parallel;
        let (stage, replica, rank) = p.place(chip);
        let mut graph = Graph { stage, replica, rank, ..Graph::new(self, chip) };
        for work in order(p.schedule, StageOf { stage, stages: p.pp }, self.job.micro_batches()) {
            graph.pass(work);
        }
        graph.ends();
        graph.nodes
    }
}

/// The graph of a chip as it grows.
struct Graph<'t, 's> {
    of: &'t ExecutionTraces<'s>,
    chip: u64,
    stage: u64,
    replica: u64,
    rank: u64,
    nodes: Vec<TraceNode>,
    /// The last node of what is done one after the other.
    last: Option<u64>,
    /// Nanoseconds that were to be computed, and microseconds that nodes have.
    computed: (u64, u64),
    /// The ends of units that gathers wait for, the last gather, and the scatters.
    unit_ends: Vec<u64>,
    gathered: Option<u64>,
    scatters: Vec<u64>,
    /// How many exchanges with neighbours of its sequence it has begun.
    exchanged: u64,
}

impl<'t, 's> Graph<'t, 's> {
    fn new(of: &'t ExecutionTraces<'s>, chip: u64) -> Self {
        let (nodes, unit_ends, scatters) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            of,
            chip,
            stage: 0,
            replica: 0,
            rank: 0,
            nodes,
            last: None,
            computed: (0, 0),
            unit_ends,
            gathered: None,
            scatters,
            exchanged: 0,
        }
    }

    fn push(&mut self, name: String, operation: Operation, after: impl IntoIterator<Item = u64>) -> u64 {
        let mut after: Vec<u64> = after.into_iter().collect();
        after.sort_unstable();
        after.dedup();
        self.nodes.push(TraceNode { name, operation, after });
        self.nodes.len() as u64 - 1
    }

    /// Computes after what was done last.
    fn compute(&mut self, name: &str, seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        let (due, given) = self.computed;
        let due = due + ns(seconds);
        let micros = (due + 500) / 1000 - given;
        self.computed = (due, given + micros);
        self.last = Some(self.push(name.to_owned(), Operation::Compute { micros }, self.last));
    }

    /// A collective with the group that the chip has of a role; nothing if it has none.
    fn collective(
        &mut self,
        name: &str,
        kind: CollectiveKind,
        bytes: u64,
        role: Role,
        after: &[Option<u64>],
    ) -> Option<u64> {
        let group = self.of.groups.of(self.chip, role)?;
        let members = self.of.groups.list[group].len() as u64;
        let bytes = if kind == CollectiveKind::AllGather { bytes.div_ceil(members) } else { bytes };
        let after: Vec<u64> = after.iter().flatten().copied().collect();
        Some(self.push(name.to_owned(), Operation::Collective { kind, bytes, group }, after))
    }

    /// Goes on when all of these have ended too.
    fn join(&mut self, name: String, others: impl IntoIterator<Item = u64>) {
        let after: Vec<u64> = self.last.into_iter().chain(others).collect();
        self.last = Some(self.push(name, Operation::Compute { micros: 0 }, after));
    }

    /// A collective of the tensor ranks on an activation, after what was done last.
    fn tensor(&mut self, name: &str, kind: CollectiveKind) {
        let job = self.of.job;
        let bytes = 2 * job.micro_batch * job.tokens() * job.architecture.hidden;
        if job.parallel.tp > 1 {
            self.last = self.collective(name, kind, bytes, Role::Tensor, &[self.last]).or(self.last);
        }
    }

    /// A pass of a micro-batch through a part: what it receives, its units, what it sends.
    fn pass(&mut self, work: Work) {
        let (job, p) = (self.of.job, &self.of.job.parallel);
        let place = StagePart { stage: self.stage, part: work.part };
        if work.pass == PassKind::Update {
            return self.compute("optimizer", self.of.update[self.stage as usize]);
        }
        let is_backward = work.pass == PassKind::Backward;
        let moves = work.pass != PassKind::Weights;
        let (first, last) =
            (self.stage == 0 && work.part == 0, self.stage + 1 == p.pp && work.part + 1 == p.schedule.parts());
        let (begins, ends) = if is_backward { (last, first) } else { (first, last) };
        let bytes = transfer_bytes(job, self.of.stack);
        let (before, behind) = ((self.stage + p.pp - 1) % p.pp, (self.stage + 1) % p.pp);
        let (from, to) = if is_backward { (behind, before) } else { (before, behind) };
        // The part that a transfer is for, which its sender and its receiver name alike.
        let tag = |part: u64| (work.micro * p.schedule.parts() + part) * 2 + u64::from(is_backward);
        if moves && !begins && p.pp > 1 {
            let from = p.chip(from, self.replica, self.rank);
            let received =
                self.push("receive".to_owned(), Operation::Receive { from, bytes, tag: tag(work.part) }, None);
            self.join(name(work, "begin"), [received]);
            if received_parts(job, self, place, is_backward) {
                self.tensor("gather parts", CollectiveKind::AllGather);
            }
        }
        let mut units: Vec<(usize, Pass)> = Vec::new();
        for Piece { kind, time, count } in pieces_of(job, &self.of.pieces, place) {
            let pass = match work.pass {
                PassKind::Forward => time.forward,
                PassKind::Backward => time.backward,
                PassKind::Weights | PassKind::Update => time.weights,
            };
            let share = if kind == LAYER { job.time_share(self.stage, self.of.pieces.attention) } else { 1.0 };
            units.extend((0..count).map(|_| (kind, pass.scaled(share / count as f64))));
        }
        if work.pass != PassKind::Forward {
            units.reverse();
        }
        self.units(work, &units);
        if moves && !ends && p.pp > 1 {
            // Around the ends of the pipeline a micro-batch goes on to another part.
            let part = match is_backward {
                false if self.stage + 1 == p.pp => work.part + 1,
                true if self.stage == 0 => work.part - 1,
                _ => work.part,
            };
            let to = p.chip(to, self.replica, self.rank);
            let sent = self.push("send".to_owned(), Operation::Send { to, bytes, tag: tag(part) }, self.last);
            if self.of.stack.blocking {
                self.last = Some(sent);
            }
        }
    }

    /// The units of a pass. Without collectives in them they are one node.
    fn units(&mut self, work: Work, units: &[(usize, Pass)]) {
        let p = &self.of.job.parallel;
        if p.tp * p.cp * p.experts.ep == 1 && !p.shards_passes() {
            let seconds = units.iter().map(|(_, pass)| pass.seconds()).sum();
            return self.compute(&name(work, "part"), seconds);
        }
        let waits = self.of.stack.sharding.waits;
        for &(kind, pass) in units {
            let gathers = p.zero >= 3 && p.replicas() > 1 && work.pass != PassKind::Weights;
            // The gradient of a table needs no row of it.
            if gathers && !(kind == EMBEDDING && work.pass == PassKind::Backward) {
                // It may start when the unit `prefetch` before it begins to compute, which is when the one before that has ended.
                let ahead = p.prefetch as usize + 1;
                let allowed = self.unit_ends.len().checked_sub(ahead).map(|at| self.unit_ends[at]);
                let allowed = if p.prefetch == 0 || waits { self.last } else { allowed };
                let after = [allowed, self.gathered];
                let is_again = work.pass == PassKind::Backward;
                let calls = &self.of.calls.gathers[if is_again { kind + BACKWARD } else { kind }];
                self.gathered = self.sharded("gather weights", CollectiveKind::AllGather, calls, &after);
                self.join(name(work, "gathered"), self.gathered);
            }
            self.unit(work, kind, pass);
            self.unit_ends.extend(self.last);
            let has_gradients = if p.schedule.splits_weights() { PassKind::Weights } else { PassKind::Backward };
            if p.shards_passes() && work.pass == has_gradients {
                // One set of gradients may wait for its scatter while the next is computed, unless the passes wait for all.
                let before = self.scatters.last().copied();
                let calls = &self.of.calls.scatters[kind];
                let scatter =
                    self.sharded("scatter gradients", CollectiveKind::ReduceScatter, calls, &[self.last, before]);
                let room = if waits { scatter } else { before };
                if room.is_some() {
                    self.join(name(work, "room"), room);
                }
                self.scatters.extend(scatter);
            }
        }
    }

    /// The gathers or scatters of a unit over the replicas, one behind the other, and what host and chip do for each before it.
    fn sharded(&mut self, what: &str, kind: CollectiveKind, calls: &[UnitCall], after: &[Option<u64>]) -> Option<u64> {
        let mut last = None;
        for call in calls {
            let before: Vec<Option<u64>> = if last.is_some() { vec![last] } else { after.to_vec() };
            let role = if call.of_holders { Role::Holders } else { Role::Replicas };
            let micros = (call.beside_s * 1e6).round() as u64;
            let before = if micros > 0 {
                let list = before.into_iter().flatten();
                vec![Some(self.push(format!("list of {what}"), Operation::Compute { micros }, list))]
            } else {
                before
            };
            last = self.collective(what, kind, call.bytes, role, &before).or(last);
        }
        last
    }

    /// A layer, the embedding or the logits, with the collectives of the tensor ranks in it.
    fn unit(&mut self, work: Work, kind: usize, pass: Pass) {
        if kind == LAYER || kind == EXPERTS {
            return self.layer(work, kind == EXPERTS, pass);
        }
        let what = if kind == EMBEDDING { "embedding" } else { "logits" };
        self.compute(&name(work, what), pass.compute + pass.waiting + pass.recompute);
        // Of the embedding's output, and of the gradient of what the logits read.
        if self.of.comm.single > 0.0 && pass.tensor_comm > 0.0 {
            self.tensor("sum", CollectiveKind::AllReduce);
        }
    }

    /// What follows the last pass: reductions over the replicas and of tied tables, and the optimiser's step.
    fn ends(&mut self) {
        let (job, p) = (self.of.job, &self.of.job.parallel);
        let (after, weights) = (self.last, job.stage_parts(self.stage));
        let gradients = gradient_parts(job, self.stage);
        let mut waits: Vec<u64> = self.last.into_iter().chain(self.scatters.last().copied()).collect();
        let mut before = self.scatters.last().copied();
        let roles = [Role::Replicas, Role::Holders].into_iter().enumerate();
        for (part, role) in roles.filter(|(part, _)| *part == 0 || weights[1] > 0) {
            for &kind in end_collectives(self.of.stack.kind, p) {
                let bytes = if kind == CollectiveKind::AllGather { 2 * weights[part] } else { gradients[part] };
                let reduced = self.collective("reduce gradients", kind, bytes, role, &[after, before]);
                before = reduced.or(before);
                waits.extend(reduced);
            }
        }
        if let Some(bytes) = tied_bytes(job).filter(|_| self.stage == 0 || self.stage + 1 == p.pp) {
            waits.extend(self.collective("reduce table", CollectiveKind::AllReduce, bytes, Role::Table, &[after]));
        }
        if !p.schedule.updates_each() {
            let begin = self.push("update".to_owned(), Operation::Compute { micros: 0 }, waits);
            self.last = Some(begin);
            self.compute("optimizer", self.of.update[self.stage as usize]);
        }
    }
}

/// Whether a pass begins with gathering what another stage's ranks have each sent a part of.
fn received_parts(job: &Job, graph: &Graph<'_, '_>, place: StagePart, is_backward: bool) -> bool {
    received(job, &graph.of.pieces, place)[usize::from(is_backward)].tensor_comm > 0.0
}

fn name(work: Work, what: &str) -> String {
    let pass = match work.pass {
        PassKind::Forward => "forward",
        PassKind::Backward => "backward",
        PassKind::Weights => "weights",
        PassKind::Update => "update",
    };
    format!("{what} {pass} micro {} part {}", work.micro, work.part)
}
