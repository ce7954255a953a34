//! A model that serves users on many chips: its widths on each of them, and what can be divided.

use super::super::parallel::{Parallel, Recompute, Schedule};
use crate::diagnostics::Diagnostic;
use crate::model::{Activation, Architecture, ExpertLoad, Norm, Options, Phase, Position, Sparsity};

/// Bytes of an element of weights, caches and activations.
pub(super) const ELEMENT: u64 = 2;

/// Most users of all replicas, or rows of a pass on all of them.
pub(super) const MOST_ROWS: u64 = 1 << 16;

/// A model and its division over chips, checked.
#[derive(Debug, Clone)]
pub struct Service {
    /// Name of the model.
    pub model: String,
    /// Its dimensions.
    pub architecture: Architecture,
    /// The decomposition: tp, pp and dp.
    pub parallel: Parallel,
    /// Share of the layers' matrices that is kept, in blocks of 16 x 16; RDUs only.
    pub density: Option<f64>,
    /// How tokens fall on experts, if there are some.
    pub expert_load: ExpertLoad,
}

/// Users of one step, and their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Load {
    /// Users of all replicas.
    pub batch: u64,
    /// Users of a replica that go through a stage together.
    pub micro_batch: u64,
    /// Tokens of a prompt, or of the context that a new token meets, itself included.
    pub tokens: u64,
}

impl Load {
    /// The users of a replica in as many groups as there are stages, so that every stage has one; all replicas alike.
    pub fn filling(parallel: &Parallel, batch: u64, tokens: u64) -> Self {
        let of_replica = (batch / parallel.dp.max(1)).max(1);
        let groups = (1..=parallel.pp.min(of_replica)).rev().find(|&groups| of_replica.is_multiple_of(groups));
        Self { batch, micro_batch: of_replica / groups.unwrap_or(1), tokens }
    }

    /// Groups of users of a replica.
    pub fn groups(&self, parallel: &Parallel) -> u64 {
        self.batch / parallel.dp / self.micro_batch
    }
}

/// Parameters of a stage on one chip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parameters {
    /// That no other tensor rank has, if heads of keys divide among them.
    pub own: u64,
    /// Of which every tensor rank has a copy: norms, biases behind a sum, positions.
    pub copied: u64,
}

impl Service {
    /// Refuses what cannot be divided.
    ///
    /// # Errors
    /// The count that does not divide another, or a key of `--parallel` that serving has no use for.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let (a, p) = (&self.architecture, &self.parallel);
        if a.position == Position::Alibi || a.post_norm || a.parallel || a.embedding_norm || !a.causal || !a.output {
            return Err(Diagnostic::new(format!("{}: only pre-norm GPT and Llama layers are modelled", self.model)));
        }
        let idle = [
            ("sp", p.sp),
            ("cp", p.cp > 1),
            ("recompute", p.recompute != Recompute::None),
            ("schedule", p.schedule != Schedule::OneForwardOneBackward),
        ];
        if let Some((key, _)) = idle.into_iter().find(|(_, given)| *given) {
            let title = format!("`--parallel`: `{key}` is for training, prefill and decode take tp, pp and dp");
            return Err(Diagnostic::new(title).with_help(format!("leave `{key}` out")));
        }
        let most = [
            ("hidden", a.hidden, 1 << 18),
            ("feed-forward width", a.feed_forward, 1 << 20),
            ("vocabulary", a.vocabulary, 1 << 24),
            ("layers", a.layers, 1 << 14),
        ];
        if let Some((what, found, most)) = most.into_iter().find(|(_, found, most)| found > most) {
            return Err(Diagnostic::new(format!("{}: {what} is {found}, at most {most} is modelled", self.model)));
        }
        self.job(1).check_experts()?;
        let pairs = [
            ("tp", p.tp, "query heads", a.heads),
            ("tp", p.tp, "columns of the feed-forward block", a.feed_forward),
            ("heads", a.heads, "columns of the model", a.hidden),
            ("kv heads", a.kv_heads, "query heads", a.heads),
            ("pp", p.pp, "layers", a.layers),
        ];
        for (what, divisor, of, number) in pairs {
            if divisor == 0 || number == 0 || !number.is_multiple_of(divisor) {
                return Err(Diagnostic::new(format!("{what} = {divisor} does not divide the {number} {of}")));
            }
        }
        if !a.kv_heads.is_multiple_of(p.tp) && !p.tp.is_multiple_of(a.kv_heads) {
            let title = format!(
                "tp = {} neither divides the {} key and value heads nor is a multiple of them",
                p.tp, a.kv_heads
            );
            return Err(Diagnostic::new(title));
        }
        Ok(())
    }

    /// Refuses users that cannot be divided.
    ///
    /// # Errors
    /// The count that does not divide another, or is too large.
    pub fn check_load(&self, load: &Load) -> Result<(), Diagnostic> {
        let of_replica = load.batch / self.parallel.dp.max(1);
        let pairs = [
            ("dp", self.parallel.dp, "users of `--batch`", load.batch),
            ("micro-batch", load.micro_batch, "users of a replica", of_replica),
        ];
        for (what, divisor, of, number) in pairs {
            if divisor == 0 || number == 0 || !number.is_multiple_of(divisor) {
                return Err(Diagnostic::new(format!("{what} = {divisor} does not divide the {number} {of}")));
            }
        }
        let most = [("`--batch`", load.batch, MOST_ROWS), ("`--seq`", load.tokens, 1 << 20)];
        if let Some((what, found, most)) = most.into_iter().find(|(_, found, most)| !(1..=*most).contains(found)) {
            return Err(Diagnostic::new(format!("{what} is {found}, expected a count from 1 to {most}")));
        }
        Ok(())
    }

    /// Heads of keys and values that a chip has: where there are fewer of them than tensor ranks, several ranks have the same
    /// one.
    pub fn kv_heads_of_chip(&self) -> u64 {
        (self.architecture.kv_heads / self.parallel.tp).max(1)
    }

    /// Tensor ranks that have the same heads of keys and values.
    pub fn kv_copies(&self) -> u64 {
        self.parallel.tp / self.architecture.kv_heads.min(self.parallel.tp)
    }

    /// Layers of a stage.
    pub fn layers_of_stage(&self) -> u64 {
        self.architecture.layers / self.parallel.pp
    }

    /// The widths of a chip's share of a stage.
    pub(super) fn share(&self) -> Architecture {
        let (a, t) = (self.architecture, self.parallel.tp);
        let mut extras = a.extras;
        extras.head_width = (t > 1).then(|| a.head());
        Architecture {
            layers: self.layers_of_stage(),
            heads: a.heads / t,
            kv_heads: self.kv_heads_of_chip(),
            feed_forward: a.feed_forward / t,
            vocabulary: a.vocabulary.div_ceil(t),
            extras,
            ..a
        }
    }

    /// What the workload file of a chip's share is written from.
    pub(super) fn options(&self, phase: Phase, users: u64, tokens: u64) -> Options {
        Options {
            sparsity: self.density.map(|density| Sparsity { density, block: 16 }),
            ..Options::new("the part of the model on one chip", self.share(), phase, users, tokens)
        }
    }

    /// Parameters of a stage on a chip; of matrices, stored elements.
    pub fn parameters(&self, stage: u64) -> Parameters {
        let share = self.share();
        let kept = |elements: u64| (elements as f64 * self.density.unwrap_or(1.0)).ceil() as u64;
        let matrices = if share.activation == Activation::GatedSilu { 3 } else { 2 };
        let (wide, narrow) = (share.heads * share.head(), share.kv_heads * share.head());
        let layer = |width: u64| share.hidden * (2 * wide + 2 * narrow + matrices * width);
        let biases = if share.bias {
            (wide + 2 * narrow + (matrices - 1) * share.feed_forward, 2 * share.hidden)
        } else {
            (0, 0)
        };
        // In a layer with experts every token meets the block that they share, if there is one.
        let (without, with) = self.mixed_layers();
        let experts = self.expert_parameters();
        let shared = self.experts().map_or(0, |experts| experts.shared / self.parallel.tp);
        let norm = share.hidden * if share.norm == Norm::Layer { 2 } else { 1 };
        let table = share.vocabulary * share.hidden;
        let mut all = Parameters {
            own: without * kept(layer(share.feed_forward))
                + with * kept(layer(shared))
                + share.layers * biases.0
                + experts.own,
            copied: share.layers * (biases.1 + 2 * norm) + experts.copied,
        };
        let is_last = stage + 1 == self.parallel.pp;
        if stage == 0 {
            all.own += table;
            if let Position::Learned(rows) = share.position {
                all.copied += rows * share.hidden;
            }
        }
        if is_last {
            all.copied += norm;
            if stage > 0 || !share.tied {
                all.own += table;
            }
        }
        all
    }

    /// Bytes of a stage's weights on a chip.
    pub fn weight_bytes(&self, stage: u64) -> u64 {
        let Parameters { own, copied } = self.parameters(stage);
        ELEMENT * (own + copied)
    }

    /// Bytes of the weights of the fullest stage on a chip.
    pub fn most_weight_bytes(&self) -> u64 {
        (0..self.parallel.pp).map(|stage| self.weight_bytes(stage)).max().unwrap_or(0)
    }

    /// Bytes of keys and values that a chip of any stage holds for a token of a user.
    pub fn kv_bytes_per_token(&self) -> u64 {
        2 * ELEMENT * self.layers_of_stage() * self.kv_heads_of_chip() * self.architecture.head()
    }

    /// FLOP of products for `new` tokens of one user, the last of a context, all with logits.
    pub(super) fn flops_of_pass(&self, new: u64, context: u64) -> f64 {
        let logits = 2.0 * (self.architecture.hidden * self.architecture.vocabulary) as f64;
        self.flops(new, (context + 1).saturating_sub(new).max(1)) + (new - 1) as f64 * logits
    }

    /// FLOP of products for the tokens of one user: `count` new ones, of which the first meets `first` keys, itself
    /// included, and each further one a key more; logits of the last one.
    pub fn flops(&self, count: u64, first: u64) -> f64 {
        let a = &self.architecture;
        let matrices = if a.activation == Activation::GatedSilu { 3 } else { 2 };
        let (wide, narrow) = (a.heads * a.head(), a.kv_heads * a.head());
        let products = match self.experts() {
            None => (a.hidden * (2 * wide + 2 * narrow + matrices * a.feed_forward)) as f64,
            Some(_) => (a.hidden * (2 * wide + 2 * narrow)) as f64 + self.fed_products() / a.layers as f64,
        };
        let (count, first) = (count as f64, first as f64);
        let keys = count * first + count * (count - 1.0) / 2.0;
        let layer = 2.0 * count * products * self.density.unwrap_or(1.0) + 4.0 * keys * wide as f64;
        a.layers as f64 * layer + 2.0 * (a.hidden * a.vocabulary) as f64
    }
}
