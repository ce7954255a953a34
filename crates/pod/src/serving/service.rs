//! A model that serves users on many chips: its widths on each of them, and what can be divided.

use std::sync::Arc;

use super::super::on_chips::check_served_layers;
use super::super::parallel::{Parallel, Recompute, Schedule};
use super::ranks::ExpertRanks;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_models::model::{
    ActivationFormat, Architecture, ExpertLoad, HybridLayers, Latent, LayerOrder, Mamba, Norm, Options, Phase,
    Position, Sparsity, Stack, Storage,
};

/// Bytes of an element of weights, caches and activations.
pub(super) const ELEMENT: u64 = 2;

/// Most users of all replicas, or rows of a pass on all of them.
pub(super) const MOST_ROWS: u64 = 1 << 17;

/// A model and its division over chips, checked.
#[derive(Debug, Clone)]
pub struct Service {
    /// Name of the model.
    pub model: String,
    /// Its dimensions.
    pub architecture: Architecture,
    /// Its layers, where the dimensions are an outline of them.
    pub stack: Option<Arc<Stack>>,
    /// The decomposition: tp, pp and dp.
    pub parallel: Parallel,
    /// Share of the layers' matrices that is kept, in blocks of 16 x 16; none on GPUs.
    pub density: Option<f64>,
    /// How tokens fall on experts, if there are some.
    pub expert_load: ExpertLoad,
    /// How chips that serve together share experts out, where not as `parallel` says; on GPUs only.
    pub expert_ranks: Option<ExpertRanks>,
    /// How matrices and caches are stored.
    pub storage: Storage,
    /// The data type that activations of the layers' products are quantised to.
    pub activations: Option<ActivationFormat>,
    /// Layers of each stage; equal shares if not given.
    pub stage_layers: Option<Arc<[u64]>>,
    /// The most tokens of a sequence that the model takes, if that is known.
    pub positions: Option<u64>,
    /// What every result is to say of the model.
    pub notes: Vec<String>,
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

/// How the caches of a request grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSize {
    /// Bytes of a unit: a token of keys and values, or a state where there are none.
    pub unit_bytes: u64,
    /// Units that a request takes whatever its tokens.
    pub state: u64,
    /// Each token takes one more.
    pub grows: bool,
}

impl RequestSize {
    /// Tokens alone.
    pub const TOKENS: Self = Self { unit_bytes: 1, state: 0, grows: true };

    /// Units of a request with so many tokens.
    pub fn units(&self, tokens: u64) -> u64 {
        self.state + if self.grows { tokens } else { 0 }
    }
}

/// Blocks of a stage; behind each one its tensor ranks add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServedBlocks {
    /// Attention.
    pub attention: u64,
    /// Recurrences of Mamba-2.
    pub recurrent: u64,
    /// Feed-forward blocks.
    pub feeds: u64,
}

impl ServedBlocks {
    /// All of them; a norm stands before each.
    pub fn all(&self) -> u64 {
        self.attention + self.recurrent + self.feeds
    }
}

impl Service {
    /// A dense model in bf16, with as many layers on each stage.
    pub fn new(model: &str, architecture: Architecture, parallel: Parallel) -> Self {
        Self {
            model: model.to_owned(),
            architecture,
            stack: None,
            parallel,
            density: None,
            expert_load: ExpertLoad::default(),
            expert_ranks: None,
            storage: Storage::default(),
            activations: None,
            stage_layers: None,
            positions: None,
            notes: Vec::new(),
        }
    }

    /// Replicas that run together because they share experts out.
    pub(super) fn replicas_together(&self) -> u64 {
        if self.expert_ranks.is_some() { self.parallel.dp } else { self.parallel.experts.ep }
    }

    /// Refuses what cannot be divided.
    ///
    /// # Errors
    /// The count that does not divide another, or a key of `--parallel` that serving has no use for.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let (a, p) = (&self.architecture, &self.parallel);
        let mamba = a.extras.mamba;
        check_served_layers(&self.model, a)?;
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
        if let Some(stack) = &self.stack {
            self.check_layers(stack)?;
            if self.stage_layers.is_none() && !a.layers.is_multiple_of(p.pp) {
                return Err(Diagnostic::new(format!("pp = {} does not divide the {} layers", p.pp, a.layers)));
            }
            return self.check_stages();
        }
        self.check_expert_ranks()?;
        let all = self.all_blocks();
        let attends = all.attention > 0;
        let has_width = attends && a.extras.head_width.is_none();
        let pairs = [
            ("tp", p.tp, "query heads", a.heads, attends),
            ("tp", p.tp, "columns of the feed-forward block", a.feed_forward, all.feeds > 0),
            ("heads", a.heads, "columns of the model", a.hidden, has_width),
            ("kv heads", a.kv_heads, "query heads", a.heads, attends),
            ("tp", p.tp, "heads of the recurrence", mamba.map_or(0, |m| m.heads.into()), mamba.is_some()),
            ("pp", p.pp, "layers", a.layers, self.stage_layers.is_none()),
        ];
        for (what, divisor, of, number, _) in pairs.into_iter().filter(|pair| pair.4) {
            if divisor == 0 || number == 0 || !number.is_multiple_of(divisor) {
                return Err(Diagnostic::new(format!("{what} = {divisor} does not divide the {number} {of}")));
            }
        }
        let shared = [
            (a.kv_heads, "key and value heads", attends),
            (mamba.map_or(1, |m| m.groups.into()), "groups of heads of the recurrence", mamba.is_some()),
        ];
        for (count, of, _) in shared.into_iter().filter(|shared| shared.2) {
            if !count.is_multiple_of(p.tp) && !p.tp.is_multiple_of(count) {
                let title = format!("tp = {} neither divides the {count} {of} nor is a multiple of them", p.tp);
                return Err(Diagnostic::new(title));
            }
        }
        self.check_stages()?;
        if self.is_quantised() && self.density.is_some() {
            let title = format!("{}: its checkpoint stores matrices in formats that are dense", self.model);
            return Err(Diagnostic::new(title).with_help("leave `--sparsity` out"));
        }
        match mamba {
            Some(mamba) if p.pp > 1 && mamba.order.of(0..a.layers) != mamba.counts() => {
                let title = format!("{}: pp = {}, and the order of its layers is not known", self.model, p.pp);
                Err(Diagnostic::new(title)
                    .with_help(format!("use one stage: orders of at most {} layers are kept", LayerOrder::MOST)))
            }
            _ => Ok(()),
        }
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
        if self.stack.is_some() {
            return 1;
        }
        self.parallel.tp / self.architecture.kv_heads.min(self.parallel.tp)
    }

    /// Refuses experts that chips cannot share out.
    fn check_expert_ranks(&self) -> Result<(), Diagnostic> {
        let (Some(ranks), Some(experts)) = (&self.expert_ranks, self.experts()) else {
            return self.job(1).check_experts();
        };
        let ExpertRanks { tensor, groups, .. } = *ranks;
        let chips = self.parallel.tp * self.parallel.dp;
        if tensor.checked_mul(groups) != Some(chips) {
            let title = format!("{tensor} x {groups} chips share the experts out, tp x dp are {chips}");
            return Err(Diagnostic::new(title));
        }
        let pairs = [
            (groups, "groups of chips", experts.count, "experts of a layer"),
            (tensor, "chips", experts.width, "columns of an expert"),
            (self.parallel.tp, "chips", experts.shared, "columns of the block that every token meets"),
        ];
        match pairs.into_iter().find(|(divisor, _, of, _)| *divisor == 0 || !of.is_multiple_of(*divisor)) {
            None => Ok(()),
            Some((divisor, whose, of, what)) => {
                Err(Diagnostic::new(format!("{divisor} {whose} do not divide the {of} {what}")))
            }
        }
    }

    /// Elements of the matrices of a layer's attention on a chip.
    pub(super) fn attention_elements(&self) -> u64 {
        let share = self.share();
        match share.extras.latent {
            None => share.hidden * 2 * (share.query_width() + share.kv_width()),
            Some(Latent { query, key, plain, rotated, value }) => {
                let narrow = share.hidden * (query.unwrap_or(0) + key + rotated);
                let wide =
                    query.unwrap_or(share.hidden) * (plain + rotated) + key * (plain + value) + share.hidden * value;
                narrow + share.heads * wide
            }
        }
    }

    /// Refuses layers of stages that are not the model's.
    fn check_stages(&self) -> Result<(), Diagnostic> {
        let Some(list) = &self.stage_layers else { return Ok(()) };
        let (pp, layers) = (self.parallel.pp, self.architecture.layers);
        let sum = list.iter().fold(0u64, |sum, layers| sum.saturating_add(*layers));
        if list.len() as u64 != pp || sum != layers || list.contains(&0) {
            let title = format!("`--stage-layers` has {} counts that add up to {sum} layers", list.len());
            return Err(Diagnostic::new(title).with_help(format!("expected {pp} counts that add up to {layers}")));
        }
        if self.experts().is_some() || self.architecture.extras.mamba.is_some() {
            let title = format!("{}: stages of different depth have layers of one kind here", self.model);
            return Err(Diagnostic::new(title).with_help("leave `--stage-layers` out"));
        }
        Ok(())
    }

    /// Layers of a stage.
    pub fn layers_of_stage(&self, stage: u64) -> u64 {
        let own = self.stage_layers.as_ref().and_then(|list| list.get(stage as usize)).copied();
        own.unwrap_or(self.architecture.layers / self.parallel.pp)
    }

    /// What the layers of a stage are, in a model with recurrences.
    pub(super) fn hybrid(&self, stage: u64) -> Option<HybridLayers> {
        let layers = self.layers_of_stage(stage);
        let of = |mamba: Mamba| match self.parallel.pp {
            1 => mamba.counts(),
            _ => mamba.order.of(stage * layers..(stage + 1) * layers),
        };
        self.architecture.extras.mamba.map(of)
    }

    /// Blocks of a stage.
    pub fn blocks(&self, stage: u64) -> ServedBlocks {
        if let Some(stack) = &self.stack {
            return self.layered_blocks(stack, stage);
        }
        let layers = self.layers_of_stage(stage);
        let (Some(of), Some(mamba)) = (self.hybrid(stage), self.architecture.extras.mamba) else {
            return ServedBlocks { attention: layers, recurrent: 0, feeds: layers };
        };
        let (attention, recurrent) = (of.attention.into(), of.recurrent.into());
        let behind = if mamba.has_feed { attention + recurrent } else { 0 };
        ServedBlocks { attention, recurrent, feeds: behind + u64::from(of.feeds) }
    }

    /// Blocks of the model.
    pub fn all_blocks(&self) -> ServedBlocks {
        let parallel = Parallel { pp: 1, ..self.parallel };
        let whole = Self { parallel, stage_layers: None, ..self.clone() };
        whole.blocks(0)
    }

    fn stages(&self) -> std::ops::Range<u64> {
        0..self.parallel.pp
    }

    /// The widths of a chip's share of a stage.
    pub(super) fn share(&self) -> Architecture {
        let (a, t) = (self.architecture, self.parallel.tp);
        let mut extras = a.extras;
        extras.head_width = (t > 1).then(|| a.head()).or(extras.head_width);
        extras.mamba = extras.mamba.map(|mamba| mamba.share(t));
        Architecture {
            layers: self.layers_of_stage(0),
            heads: (a.heads / t).max(1),
            kv_heads: self.kv_heads_of_chip(),
            feed_forward: (a.feed_forward / t).max(1),
            vocabulary: a.vocabulary.div_ceil(t),
            extras,
            ..a
        }
    }

    /// What the workload file of a chip's share is written from.
    pub(super) fn options(&self, phase: Phase, users: u64, tokens: u64) -> Options {
        let cache = self.storage.cache.clone().filter(|_| phase == Phase::Decode);
        Options {
            sparsity: self.density.map(|density| Sparsity { density, block: 16 }),
            storage: Storage { cache, ..self.storage.clone() },
            activations: self.activations.clone(),
            expert_load: self.expert_load.clone(),
            ..Options::new("the part of the model on one chip", self.share(), phase, users, tokens)
        }
    }

    /// Parameters of a stage on a chip; of matrices, stored elements.
    pub fn parameters(&self, stage: u64) -> Parameters {
        if let Some(stack) = &self.stack {
            return self.layered_parameters(stack, stage);
        }
        let share = self.share();
        let kept = |elements: u64| (elements as f64 * self.density.unwrap_or(1.0)).ceil() as u64;
        let matrices = share.feed_matrices();
        let (wide, narrow) = (share.query_width(), share.kv_width());
        let blocks = self.blocks(stage);
        let attention = self.attention_elements();
        let fed = |width: u64| share.hidden * matrices * width;
        // Of a layer: columns that ranks divide, and rows behind a sum.
        let biases = |of: (u64, u64)| if share.bias { of } else { (0, 0) };
        let (of_attention, of_feed) =
            (biases((wide + 2 * narrow, share.hidden)), biases(((matrices - 1) * share.feed_forward, share.hidden)));
        // In a layer with experts every token meets the block that they share, if there is one.
        let with = self.mixed_layers().1;
        let without = blocks.feeds.saturating_sub(with);
        let experts = self.expert_parameters();
        let shared = self.experts().map_or(0, |experts| experts.shared / self.parallel.tp);
        let norm = share.hidden * if share.norm == Norm::Layer { 2 } else { 1 };
        let extras = &share.extras;
        // Of queries, keys and values alone; gains of norms of queries and keys; norms behind the blocks.
        let of_heads = if extras.attention_bias && !share.bias { wide + 2 * narrow } else { 0 };
        let of_heads = of_heads + if extras.head_norm { wide + narrow } else { 0 };
        let norms = if extras.branch_norm { 2 * blocks.all() } else { blocks.all() };
        let table = share.vocabulary * share.hidden;
        let recurrent = share.extras.mamba.map_or(0, |mamba| kept(mamba.matrices(share.hidden)) + mamba.vectors());
        let layers_fed = |layers: u64, width: u64| layers * kept(fed(width));
        let mut all = Parameters {
            own: blocks.attention * (kept(attention) + of_attention.0 + of_heads)
                + layers_fed(without, share.feed_forward)
                + layers_fed(with, shared)
                + blocks.feeds * of_feed.0
                + blocks.recurrent * recurrent
                + experts.own,
            copied: blocks.attention * of_attention.1 + blocks.feeds * of_feed.1 + norms * norm + experts.copied,
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

    /// Bytes of the weights of the fullest stage on a chip.
    pub fn most_weight_bytes(&self) -> u64 {
        (0..self.parallel.pp).map(|stage| self.weight_bytes(stage)).max().unwrap_or(0)
    }

    /// Bytes of keys and values that a chip of a stage holds for a token of a user.
    pub fn kv_bytes_of_stage(&self, stage: u64) -> u64 {
        if let Some(stack) = &self.stack {
            return self.layered_cache_bytes(stack, stage, 2) - self.layered_cache_bytes(stack, stage, 1);
        }
        let of_token = match self.architecture.extras.latent {
            // Every tensor rank has the latent vectors of all heads.
            Some(latent) => latent.key + latent.rotated,
            None => 2 * self.kv_heads_of_chip() * self.architecture.head(),
        };
        let elements = self.blocks(stage).attention * of_token;
        (elements * self.cache_bits()).div_ceil(8)
    }

    /// Bytes of states that a chip of a stage holds for a user, whatever the context: those of recurrences, and inputs of their
    /// convolutions.
    pub fn state_bytes_of_stage(&self, stage: u64) -> u64 {
        if let Some(stack) = &self.stack {
            return self.layered_cache_bytes(stack, stage, 0);
        }
        let held = self.share().extras.mamba.map_or(0, |mamba| mamba.held());
        ELEMENT * self.blocks(stage).recurrent * held
    }

    /// Bytes that a chip of a stage holds for a user with so many tokens.
    pub fn cache_bytes(&self, stage: u64, tokens: u64) -> u64 {
        if let Some(stack) = &self.stack {
            return self.layered_cache_bytes(stack, stage, tokens);
        }
        tokens.saturating_mul(self.kv_bytes_of_stage(stage)).saturating_add(self.state_bytes_of_stage(stage))
    }

    /// Bytes of keys and values that a chip of the stage with most of them holds for a token of a user.
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.stages().map(|stage| self.kv_bytes_of_stage(stage)).max().unwrap_or(0)
    }

    /// What users hold on a chip, in words.
    pub fn cache_name(&self) -> &'static str {
        let has_states = self.architecture.extras.mamba.is_some() || self.blocks(0).recurrent > 0;
        if has_states { "states, keys, values" } else { "keys and values" }
    }

    /// What a request takes of the caches of the fullest chip, in tokens of keys and values: nothing but its tokens, or with states as
    /// many more; where there are no keys and values, a state is the unit.
    pub fn request_size(&self) -> RequestSize {
        if let Some(stack) = &self.stack {
            return self.layered_request(stack);
        }
        let (each, state) = (self.kv_bytes_per_token(), self.state_bytes());
        match each {
            0 => RequestSize { unit_bytes: state.max(1), state: 1, grows: false },
            _ => RequestSize { unit_bytes: each, state: state.div_ceil(each), grows: true },
        }
    }

    /// Bytes of states of a user on the chip that has most of them.
    pub fn state_bytes(&self) -> u64 {
        self.stages().map(|stage| self.state_bytes_of_stage(stage)).max().unwrap_or(0)
    }

    /// FLOP of products for `new` tokens of one user, the last of a context, all with logits.
    pub(super) fn flops_of_pass(&self, new: u64, context: u64) -> f64 {
        let logits = 2.0 * (self.architecture.hidden * self.architecture.vocabulary) as f64;
        self.flops(new, (context + 1).saturating_sub(new).max(1)) + (new - 1) as f64 * logits
    }

    /// FLOP of products for the tokens of one user: `count` new ones, of which the first meets `first` keys, itself
    /// included, and each further one a key more; logits of the last one.
    pub fn flops(&self, count: u64, first: u64) -> f64 {
        if let Some(stack) = &self.stack {
            return Self::layered_flops(stack, count, first);
        }
        let a = &self.architecture;
        let matrices = a.feed_matrices();
        let (wide, narrow) = (a.query_width(), a.kv_width());
        let blocks = self.all_blocks();
        let (of_attention, of_pair) = match a.extras.latent {
            None => (a.hidden * (2 * wide + 2 * narrow), 4 * wide),
            Some(of) => {
                let one = Self { parallel: Parallel { tp: 1, ..self.parallel }, ..self.clone() };
                (one.attention_elements(), 2 * a.heads * (of.plain + of.rotated + of.value))
            }
        };
        let of_attention = (blocks.attention * of_attention) as f64;
        let fed = match self.experts() {
            None => (blocks.feeds * a.hidden * matrices * a.feed_forward) as f64,
            Some(_) => self.fed_products(),
        };
        // Of a state every element is multiplied and added to twice: once it takes a token, once it gives one.
        let (of_recurrences, of_states) = a.extras.mamba.map_or((0, 0), |mamba| {
            (blocks.recurrent * mamba.matrices(a.hidden), blocks.recurrent * 2 * mamba.width() * u64::from(mamba.state))
        });
        let products = of_attention + fed + of_recurrences as f64;
        let (count, first) = (count as f64, first as f64);
        let keys = count * first + count * (count - 1.0) / 2.0;
        let layers = 2.0 * count * (products * self.density.unwrap_or(1.0) + of_states as f64)
            + keys * (blocks.attention * of_pair) as f64;
        layers + 2.0 * (a.hidden * a.vocabulary) as f64
    }
}
