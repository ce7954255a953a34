//! A layer of a chip's graph: its blocks, and what they exchange with the chips that share its matrices, tokens or experts.

use super::super::choices::Context;
use super::super::collective::CollectiveKind;
use super::super::context::exchange_bytes;
use super::super::parallel::Recompute;
use super::super::pass::Pass;
use super::super::schedule::{PassKind, Work};
use super::groups::Role;
use super::{Graph, Operation, name};

/// What a block has within it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Inner {
    /// Nothing that other chips see.
    Plain,
    /// Attention over tokens of other chips: seconds of what is computed again first, and of the pass.
    Attention(f64, f64),
    /// Products of experts, of so many seconds.
    Experts(f64),
}

impl Graph<'_, '_> {
    /// A layer's pass, with what is computed again before a backward pass.
    pub(super) fn layer(&mut self, work: Work, has_experts: bool, pass: Pass) {
        let (p, pieces) = (&self.of.job.parallel, &self.of.pieces);
        let is_backward = work.pass == PassKind::Backward;
        let (attends, feeds) = (p.cp > 1, has_experts && p.experts.ep > 1);
        let all = pass.compute + pass.waiting + pass.recompute;
        if work.pass == PassKind::Weights || (p.tp == 1 && !attends && !feeds) {
            return self.compute(&name(work, "layer"), all);
        }
        let again = if is_backward { p.recompute } else { Recompute::None };
        let share = self.of.job.time_share(self.stage, pieces.attention);
        let blocks = |pass: usize, again: f64| {
            [
                if attends { Inner::Attention(again, pieces.core[pass] * share) } else { Inner::Plain },
                if feeds { Inner::Experts(pieces.products[pass]) } else { Inner::Plain },
            ]
        };
        let gathers = [CollectiveKind::AllGather; 2];
        if !is_backward {
            return self.blocks(&name(work, "layer"), all, blocks(0, 0.0), false, &gathers[..1]);
        }
        let mut own = blocks(1, if again == Recompute::Selective { pass.recompute } else { 0.0 });
        own.reverse();
        let mut rest = all;
        if again == Recompute::Full {
            self.blocks("layer again", pass.recompute, blocks(0, 0.0), false, &gathers[..1]);
            rest -= pass.recompute;
        }
        // Inputs of the products are gathered again for the gradients of their weights.
        self.blocks(&name(work, "layer"), rest, own, true, &gathers);
    }

    /// The two blocks one after the other, each with its collectives: a sum behind it, or gathers before and a scatter behind.
    fn blocks(&mut self, name: &str, seconds: f64, blocks: [Inner; 2], is_backward: bool, gathers: &[CollectiveKind]) {
        let is_sequence = self.of.job.parallel.sp;
        let inner: f64 = blocks.iter().map(|block| block.seconds()).sum();
        let around = (seconds - inner).max(0.0) / 2.0;
        for block in blocks {
            for &gather in gathers.iter().filter(|_| is_sequence) {
                self.tensor("gather", gather);
            }
            if block == Inner::Plain {
                self.compute(name, around);
            } else {
                self.compute(name, around / 2.0);
                self.inner(name, block, is_backward);
                self.compute(name, around / 2.0);
            }
            self.tensor("sum", if is_sequence { CollectiveKind::ReduceScatter } else { CollectiveKind::AllReduce });
        }
    }

    fn inner(&mut self, name: &str, block: Inner, is_backward: bool) {
        match block {
            Inner::Plain => {}
            Inner::Experts(seconds) => self.experts(name, seconds),
            Inner::Attention(again, seconds) => {
                if again > 0.0 {
                    self.attention("attention again", again, false);
                }
                self.attention(name, seconds, is_backward);
            }
        }
    }

    /// Attention over tokens of other chips.
    fn attention(&mut self, name: &str, seconds: f64, is_backward: bool) {
        let (job, cp) = (self.of.job, self.of.job.parallel.cp);
        let mut bytes = exchange_bytes(job);
        if job.parallel.context == Context::Ulysses {
            if is_backward {
                bytes.reverse();
            }
            self.all_to_all("exchange heads", (bytes[0], Role::Context));
            self.compute(name, seconds);
            return self.all_to_all("exchange tokens", (bytes[1], Role::Context));
        }
        let (bytes, step) = (bytes[usize::from(is_backward)], seconds / cp as f64);
        for _ in 1..cp {
            let received = self.neighbours(bytes);
            self.compute(name, step);
            self.join("keys and values".to_owned(), [received]);
        }
        self.compute(name, step);
        if is_backward {
            // The gradients of the last keys go on to where they belong.
            let received = self.neighbours(bytes);
            self.join("gradients of keys and values".to_owned(), [received]);
        }
    }

    /// Sends to the next chip of the sequence and receives from the one before, after what was done last: the node that receives.
    fn neighbours(&mut self, bytes: u64) -> u64 {
        let groups = &self.of.groups;
        let members: &[u64] = groups.of(self.chip, Role::Context).map_or(&[], |at| &groups.list[at]);
        let at = members.iter().position(|chip| *chip == self.chip).unwrap_or(0);
        let (to, from) = (members[(at + 1) % members.len()], members[(at + members.len() - 1) % members.len()]);
        let tag = self.exchanged;
        self.exchanged += 1;
        self.push("send keys and values".to_owned(), Operation::Send { to, bytes, tag }, self.last);
        self.push("receive keys and values".to_owned(), Operation::Receive { from, bytes, tag }, self.last)
    }

    /// An exchange after what was done last.
    fn all_to_all(&mut self, name: &str, of: (u64, Role)) {
        self.last = self.collective(name, CollectiveKind::AllToAll, of.0, of.1, &[self.last]).or(self.last);
    }

    /// Products of experts, in parts: all are sent on their way, one at a time, before the first comes back.
    fn experts(&mut self, name: &str, seconds: f64) {
        let parts = self.of.job.parallel.experts.parts;
        let of = (self.of.comm.experts.bytes.div_ceil(parts), Role::Experts);
        let kind = CollectiveKind::AllToAll;
        let mut moved = self.last;
        let sent: Vec<Option<u64>> = (0..parts)
            .map(|_| {
                moved = self.collective("send rows", kind, of.0, of.1, &[moved]).or(moved);
                moved
            })
            .collect();
        for rows in sent {
            self.join("rows".to_owned(), rows);
            self.compute(name, seconds / parts as f64);
            moved = self.collective("send rows back", kind, of.0, of.1, &[self.last, moved]).or(moved);
        }
        self.join("rows back".to_owned(), moved);
    }
}

impl Inner {
    fn seconds(self) -> f64 {
        match self {
            Self::Plain => 0.0,
            Self::Attention(again, seconds) => again + seconds,
            Self::Experts(seconds) => seconds,
        }
    }
}
