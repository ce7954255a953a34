//! A model of several kinds of layers that serves: what a chip of a stage holds and reads of it, kind by kind.

use super::super::choices::{Capacity, Mixture};
use super::chip::Pass;
use super::ranks::ExpertRanks;
use super::service::{ELEMENT, Parameters, RequestSize, ServedBlocks, Service};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::AnyChip;
use rdusim_graph::workload::StoredAs;
use rdusim_machines::gpu::{AttentionCall, ProductFormat, Skew};
use rdusim_models::model::{Divided, ExpertLoad, Feed, LayerKind, Matrix, Mixer, Stack, StorageFormat, linear_chunk};

/// How matrices of experts are called.
const OF_EXPERTS: &str = "w_expert_";
/// What the columns of an expert are called where ranks divide them.
const EXPERT_COLUMNS: &str = "columns of an expert";

/// Bytes of a matrix in a format, or in the data type of products.
fn bytes_of(matrix: &Matrix, copies: u64, format: Option<&StorageFormat>) -> u64 {
    let plain = ELEMENT * matrix.rows * matrix.columns;
    let stored = format.and_then(|format| {
        let StorageFormat { format, group, has_one_scale, has_zero_points, .. } = format;
        let stored =
            StoredAs { format, group: *group, has_one_scale: *has_one_scale, has_zero_points: *has_zero_points };
        stored.bytes(matrix.rows, matrix.columns)
    });
    copies * stored.unwrap_or(plain) + ELEMENT * matrix.bias
}

/// Bytes of the weights of a part of a model on a chip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WeightBytes {
    /// Of matrices that ranks divide.
    divided: u64,
    /// Of all that each rank has whole.
    copied: u64,
    /// Of the experts that a token does not meet.
    unmet: u64,
}

impl Service {
    /// The layers of a stage on one chip.
    pub(super) fn layers_on_chip(&self, stack: &Stack, stage: u64) -> Stack {
        let first = self.first_layer(stage) as usize;
        let layers = self.layers_of_stage(stage) as usize;
        let order = stack.order.get(first..first + layers).unwrap_or_default().to_vec();
        let mut part = Stack { order, ..stack.share(self.parallel.tp) };
        let tensor = self.ranks_of_experts().tensor;
        for (own, whole) in part.kinds.iter_mut().zip(&stack.kinds) {
            if let (Feed::Experts(own), Feed::Experts(whole)) = (&mut own.feed, &whole.feed) {
                own.experts.width = (whole.experts.width / tensor.max(1)).max(1);
            }
        }
        part
    }

    /// How chips share experts out: as the service says, or each expert by its columns over the tensor ranks.
    pub(super) fn ranks_of_experts(&self) -> ExpertRanks {
        let format = ProductFormat::Plain(Dtype::Bf16);
        self.expert_ranks.unwrap_or(ExpertRanks { tensor: self.parallel.tp, groups: 1, format })
    }

    /// How tokens fall on experts, as draws of a benchmark's layer know it.
    pub(super) fn skew(&self) -> Option<Skew> {
        match self.expert_load {
            ExpertLoad::Even => Some(Skew::Even),
            ExpertLoad::Uniform => Some(Skew::Uniform),
            ExpertLoad::Zipf(exponent) => Some(Skew::Zipf(exponent)),
            ExpertLoad::Measured(_) => None,
        }
    }

    /// Whether experts stand in the graph of a chip, as they do in `run`: every layer has some, chips divide each by its columns alone, and
    /// no row is dropped.
    pub(super) fn has_experts_in_graph(&self) -> bool {
        let of = self.parallel.experts;
        let is_plain = self.expert_ranks.is_none() && of.ep == 1 && of.capacity == Capacity::Dropless;
        self.experts().is_some() && is_plain && self.mixed_layers().0 == 0
    }

    /// Replicas whose tokens meet the same experts.
    pub(super) fn replicas_of_experts(&self) -> u64 {
        if self.expert_ranks.is_some() { self.parallel.dp } else { 1 }
    }

    /// The first layer of a stage.
    pub(super) fn first_layer(&self, stage: u64) -> u64 {
        (0..stage).map(|earlier| self.layers_of_stage(earlier)).sum()
    }

    /// Passes of each kind of layers and of what stands around them, on an RDU whose fastest memory holds all of the stage; else none.
    pub(super) fn kinds_apart(&self, chip: &AnyChip, pass: &Pass) -> Vec<Pass> {
        let (Some(stack), Some(chip), None) = (&self.stack, chip.rdu(), pass.kind) else { return Vec::new() };
        let held = self.weight_bytes(pass.stage) + pass.users.saturating_mul(self.cache_bytes(pass.stage, pass.tokens));
        let fits = chip.memory.iter().next().is_some_and(|tier| held <= tier.capacity_bytes / 10 * 9);
        if !fits || pass.layers == 0 {
            return Vec::new();
        }
        let counts = self.layers_on_chip(stack, pass.stage).all_counts();
        let apart = Pass { is_first: false, is_last: false, stage: 0, ..*pass };
        let kinds = (0..).zip(counts).filter(|(_, count)| *count > 0);
        let mut parts: Vec<Pass> = kinds.map(|(kind, layers)| Pass { kind: Some(kind), layers, ..apart }).collect();
        if pass.is_first || pass.is_last {
            parts.push(Pass { kind: Some(0), layers: 0, is_first: pass.is_first, is_last: pass.is_last, ..apart });
        }
        parts
    }

    /// The first stage whose layers are of the same kinds as those of this one; 0 of a model whose layers are all alike.
    pub(super) fn alike(&self, stage: u64) -> u64 {
        let Some(stack) = &self.stack else { return 0 };
        let counts = |stage: u64| self.layers_on_chip(stack, stage).all_counts();
        let own = counts(stage);
        (0..stage).find(|&earlier| counts(earlier) == own).unwrap_or(stage)
    }

    /// Bytes of caches that a new token of a user reads on a chip of a stage.
    pub(super) fn read_of_caches(&self, stage: u64, tokens: u64) -> u64 {
        match &self.stack {
            Some(stack) => self.layered_cache_read(stack, stage, tokens),
            None => self.cache_bytes(stage, tokens),
        }
    }

    /// Kinds of layers of a stage on a chip, each with its number.
    fn kinds_on_chip(&self, stack: &Stack, stage: u64) -> Vec<(LayerKind, u64)> {
        let part = self.layers_on_chip(stack, stage);
        let counts = part.all_counts();
        part.kinds.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Refuses ranks that do not divide what each kind of layers has.
    pub(super) fn check_layers(&self, stack: &Stack) -> Result<(), Diagnostic> {
        let tp = self.parallel.tp;
        self.check_layered_experts(stack)?;
        for Divided { of, count, is_shared } in stack.kinds.iter().flat_map(LayerKind::divided) {
            // Checked by themselves.
            let is_elsewhere = self.expert_ranks.is_some() && of == EXPERT_COLUMNS;
            let fits = is_elsewhere || count.is_multiple_of(tp) || is_shared && tp.is_multiple_of(count);
            if !fits {
                let most = (1..=tp).rev().find(|&ranks| {
                    let all = stack.kinds.iter().flat_map(LayerKind::divided);
                    all.into_iter()
                        .all(|of| of.count.is_multiple_of(ranks) || of.is_shared && ranks.is_multiple_of(of.count))
                });
                let title = format!("tp = {tp} does not divide the {count} {of} of {}", self.model);
                return Err(Diagnostic::new(title).with_help(format!("use tp={}", most.unwrap_or(1))));
            }
        }
        if self.parallel.experts.ep > 1 {
            let title = format!(
                "{}: ep = {}, and experts beside layers of several kinds are divided by tp alone here",
                self.model, self.parallel.experts.ep
            );
            return Err(Diagnostic::new(title).with_help("leave `ep` out"));
        }
        if self.parallel.experts != Mixture::default() {
            let title = format!("{}: capacity, exchange and experts are for experts that `ep` shares out", self.model);
            return Err(
                Diagnostic::new(title).with_help("leave them out: `tp` divides every expert by its columns here")
            );
        }
        if self.density.is_some() {
            let title = format!("{}: layers of several kinds are dense here", self.model);
            return Err(Diagnostic::new(title).with_help("leave `--sparsity` out"));
        }
        Ok(())
    }

    /// Refuses chips that cannot share experts out.
    fn check_layered_experts(&self, stack: &Stack) -> Result<(), Diagnostic> {
        let (Some(ExpertRanks { tensor, groups, .. }), Some(of)) = (self.expert_ranks, stack.experts()) else {
            return Ok(());
        };
        let chips = self.parallel.tp * self.parallel.dp;
        if tensor.checked_mul(groups) != Some(chips) {
            let title = format!("{tensor} x {groups} chips share the experts out, tp x dp are {chips}");
            return Err(Diagnostic::new(title));
        }
        let pairs = [
            (groups, "groups of chips", of.experts.count, "experts of a layer"),
            (tensor, "chips", of.experts.width, EXPERT_COLUMNS),
        ];
        match pairs.into_iter().find(|(divisor, _, count, _)| *divisor == 0 || !count.is_multiple_of(*divisor)) {
            None => Ok(()),
            Some((divisor, whose, count, what)) => {
                Err(Diagnostic::new(format!("{divisor} {whose} do not divide the {count} {what}")))
            }
        }
    }

    /// Layers of a stage that have experts.
    pub(super) fn layers_with_experts(&self, stack: &Stack, stage: u64) -> u64 {
        let kinds = self.kinds_on_chip(stack, stage);
        kinds.iter().filter(|(kind, _)| matches!(kind.feed, Feed::Experts(_))).map(|(_, count)| count).sum()
    }

    /// Blocks of a stage.
    pub(super) fn layered_blocks(&self, stack: &Stack, stage: u64) -> ServedBlocks {
        let mut blocks = ServedBlocks::default();
        for (kind, count) in self.kinds_on_chip(stack, stage) {
            match kind.mixer {
                Mixer::None => {}
                Mixer::Delta(_) | Mixer::Lightning(_) | Mixer::Recurrence(_) => blocks.recurrent += count,
                _ => blocks.attention += count,
            }
            blocks.feeds += count * u64::from(kind.feed != Feed::None);
        }
        blocks
    }

    /// Parameters of a stage on a chip.
    pub(super) fn layered_parameters(&self, stack: &Stack, stage: u64) -> Parameters {
        let part = self.layers_on_chip(stack, stage);
        let mut all = Parameters::default();
        for (kind, count) in part.kinds.iter().zip(part.all_counts()) {
            let elements = part.layer_elements(kind);
            all.own += count * elements.divided;
            all.copied += count * elements.copied;
        }
        let table = part.vocabulary * part.hidden;
        let is_last = stage + 1 == self.parallel.pp;
        if stage == 0 {
            all.own += table;
            all.copied += part.positions.unwrap_or(0) * part.hidden;
        }
        if is_last {
            all.copied += part.norm_elements() + part.last_streams();
            all.own += if stage > 0 || !part.tied { table } else { 0 };
        }
        all
    }

    fn layered_bytes(&self, stack: &Stack, stage: u64) -> WeightBytes {
        let part = self.layers_on_chip(stack, stage);
        let groups = self.ranks_of_experts().groups;
        let mut sum = WeightBytes::default();
        for (kind, count) in part.kinds.iter().zip(part.all_counts()).filter(|(_, count)| *count > 0) {
            let vectors = kind.vectors() + kind.wide_norms() * part.norm_elements() + part.stream_elements(kind);
            sum.copied += count * ELEMENT * vectors;
            for mut matrix in kind.matrices(part.hidden) {
                let format = kind.format_of(matrix.name);
                if matrix.name.starts_with(OF_EXPERTS) {
                    // Groups of chips have experts of their own, of which a token meets as many as of others.
                    matrix.copies /= groups.max(1);
                    matrix.met = (matrix.met / groups.max(1)).min(matrix.copies);
                }
                let bytes = count * bytes_of(&matrix, matrix.copies, format);
                if matrix.is_divided {
                    sum.divided += bytes;
                } else {
                    sum.copied += bytes;
                }
                sum.unmet += count * bytes_of(&matrix, matrix.copies - matrix.met, format);
            }
        }
        let (hidden, columns) = (part.hidden, part.vocabulary);
        let table = Matrix { name: "w_logits", rows: hidden, columns, copies: 1, met: 1, is_divided: true, bias: 0 };
        if stage == 0 {
            sum.divided += bytes_of(&table, 1, None);
        }
        if stage + 1 == self.parallel.pp {
            sum.copied += ELEMENT * (part.norm_elements() + part.last_streams());
            if stage > 0 || !part.tied {
                sum.divided += bytes_of(&table, 1, part.output_format.as_ref());
            }
        }
        sum
    }

    /// Bytes of a stage's weights on a chip that ranks divide.
    pub(super) fn layered_own_bytes(&self, stack: &Stack, stage: u64) -> u64 {
        self.layered_bytes(stack, stage).divided
    }

    /// Bytes of a stage's weights on a chip.
    pub(super) fn layered_weight_bytes(&self, stack: &Stack, stage: u64) -> u64 {
        let WeightBytes { divided, copied, .. } = self.layered_bytes(stack, stage);
        divided + copied
    }

    /// Bytes of weights that a step of a stage reads at least on a chip: a table of tokens is looked up, and a token meets some experts.
    pub(super) fn layered_read_bytes(&self, stack: &Stack, stage: u64) -> u64 {
        let WeightBytes { divided, copied, unmet } = self.layered_bytes(stack, stage);
        let is_looked_up = stage == 0 && !(stack.tied && self.parallel.pp == 1);
        let table = if is_looked_up { ELEMENT * stack.hidden * stack.vocabulary.div_ceil(self.parallel.tp) } else { 0 };
        (divided + copied).saturating_sub(unmet + table)
    }

    /// Bytes that a chip of a stage holds for a user with so many tokens.
    pub(super) fn layered_cache_bytes(&self, stack: &Stack, stage: u64, tokens: u64) -> u64 {
        self.caches(stack, stage, |kind| kind.caches().iter().map(|cache| cache.held(tokens)).sum())
    }

    /// Bytes of caches that a new token of a user with so many tokens reads on a chip of a stage.
    pub(super) fn layered_cache_read(&self, stack: &Stack, stage: u64, tokens: u64) -> u64 {
        self.caches(stack, stage, |kind| kind.caches().iter().map(|cache| cache.read(tokens)).sum())
    }

    fn caches(&self, stack: &Stack, stage: u64, of: impl Fn(&LayerKind) -> u64) -> u64 {
        let kinds = self.kinds_on_chip(stack, stage);
        let elements: u64 = kinds.iter().map(|(kind, count)| count * of(kind)).sum();
        let states: u64 = kinds.iter().map(|(kind, count)| count * kind.state()).sum();
        elements.saturating_mul(self.cache_bits()).div_ceil(8).saturating_add(ELEMENT * states)
    }

    /// What a request takes of the caches of the fullest chip: windows and states as if they were full.
    pub(super) fn layered_request(&self, stack: &Stack) -> RequestSize {
        let stages = 0..self.parallel.pp;
        let of_stage = |stage: u64| {
            let (far, farther) = (1_u64 << 24, 1_u64 << 25);
            let (held, more) =
                (self.layered_cache_bytes(stack, stage, far), self.layered_cache_bytes(stack, stage, farther));
            let each = (more - held).div_ceil(farther - far);
            (each, held.saturating_sub(each.saturating_mul(far)))
        };
        let all: Vec<(u64, u64)> = stages.map(of_stage).collect();
        let each = all.iter().map(|of| of.0).max().unwrap_or(0);
        let fixed = all.iter().map(|of| of.1).max().unwrap_or(0);
        match each {
            0 => RequestSize { unit_bytes: fixed.max(1), state: 1, grows: false },
            _ => RequestSize { unit_bytes: each, state: fixed.div_ceil(each), grows: true },
        }
    }

    /// FLOP of products for tokens of one user: `count` new ones, of which the first meets `first` keys; logits of the last one.
    pub(super) fn layered_flops(stack: &Stack, count: u64, first: u64) -> f64 {
        let (new, first) = (count as f64, first as f64);
        // Keys of the token in the middle: windows bound those of later ones.
        let keys = first + (new - 1.0) / 2.0;
        let layers = stack.kinds.iter().zip(stack.all_counts()).map(|(kind, layers)| {
            let streams = stack.stream_elements(kind);
            layers as f64 * ((kind.products(stack.hidden) + streams) as f64 + kind.mixed(keys))
        });
        2.0 * new * layers.sum::<f64>() + 2.0 * (stack.hidden * stack.vocabulary) as f64
    }

    /// Elements of the widest intermediate of a row on a chip: of scores in a kernel of attention none.
    pub(super) fn widest(&self, stack: &Stack) -> u64 {
        let part = stack.share(self.parallel.tp);
        let of_kind = |kind: &LayerKind| {
            let attended = match &kind.mixer {
                Mixer::None | Mixer::Matrix => part.hidden,
                Mixer::Heads(a) => a.heads * a.key + a.kv_heads * (a.key + a.value) + a.gate,
                Mixer::Latent(a) => {
                    a.heads * (a.latent.plain + a.latent.rotated + a.latent.key) + a.latent.key + a.latent.rotated
                }
                Mixer::Compressed(a) => 2 * a.heads * a.head + a.head,
                Mixer::Delta(net) => net.convolved() + 2 * net.values(),
                Mixer::Lightning(of) => 4 * of.heads * of.head,
                Mixer::Recurrence(m) => 2 * m.width() + 2 * m.of_groups() + u64::from(m.heads),
            };
            let fed = match &kind.feed {
                Feed::None | Feed::Matrix => part.hidden,
                Feed::Dense(block) => (block.activation.matrices() - 1) * block.width,
                Feed::Experts(of) => {
                    let up = of.activation.matrices() - 1;
                    let each = of.experts.each * (up * of.experts.width + 2 * of.latent.unwrap_or(part.hidden));
                    each + up * of.experts.shared + of.experts.count
                }
            };
            attended.max(fed)
        };
        part.kinds.iter().map(of_kind).max().unwrap_or(0).max(part.streams * part.hidden)
    }

    /// The format of products with a matrix that is stored so, in the data type of products if not given.
    pub(super) fn format_of_stored(&self, stored: Option<&str>) -> ProductFormat {
        let plain = ProductFormat::Plain(Dtype::Bf16);
        let Some(stored) = stored else { return plain };
        match (stored, &self.activations) {
            ("nvfp4", Some(_)) => ProductFormat::Nvfp4,
            ("mxfp4", Some(_)) => ProductFormat::Mxfp4Mxfp8,
            ("nvfp4" | "mxfp4" | "int4", _) => ProductFormat::Mxfp4Weights,
            ("fp8_block", Some(_)) => ProductFormat::Fp8Block,
            (_, Some(of)) if of.is_by_token => ProductFormat::Fp8Block,
            (_, Some(of)) => ProductFormat::named(&of.dtype).unwrap_or(plain),
            // Expanded as they are read.
            (_, None) => ProductFormat::ByteWeights,
        }
    }

    /// Tokens of a prompt, filled up to whole chunks of recurrences and runs of compressed keys.
    pub(super) fn filled(stack: &Stack, tokens: u64) -> u64 {
        stack.kinds.iter().fold(tokens, |tokens, kind| match &kind.mixer {
            Mixer::Delta(_) | Mixer::Lightning(_) => {
                let whole = linear_chunk(1 << 20);
                if tokens < whole { tokens.next_power_of_two() } else { tokens.next_multiple_of(whole) }
            }
            Mixer::Recurrence(mamba) => tokens.next_multiple_of(mamba.chunk_of(tokens)),
            Mixer::Compressed(of) if of.ratio > 0 => tokens.next_multiple_of(of.ratio),
            _ => tokens,
        })
    }

    /// Attention of a layer of each kind of a stage over a context, with the number of such layers.
    pub(super) fn attention_calls(
        &self,
        stack: &Stack,
        stage: u64,
        batch: u64,
        tokens: u64,
    ) -> Vec<(AttentionCall, u64)> {
        let call = |heads, kv_heads, head_dim, window| AttentionCall {
            dtype: Dtype::Bf16,
            batch,
            tokens,
            heads,
            kv_heads,
            head_dim,
            window,
        };
        let of_kind = |(kind, count): (LayerKind, u64)| match kind.mixer {
            Mixer::Heads(a) => Some((call(a.heads, a.kv_heads, a.key, a.window.map(|window| window.tokens)), count)),
            Mixer::Latent(a) => {
                let window = a.indexer.map(|indexer| indexer.top);
                Some((call(a.heads, 1, a.latent.key + a.latent.rotated, window), count))
            }
            Mixer::Compressed(a) => Some((call(a.heads, 1, a.head, Some(a.window)), count)),
            _ => None,
        };
        self.kinds_on_chip(stack, stage).into_iter().filter_map(of_kind).collect()
    }

    /// What is to be said of what a chip holds for its users.
    pub(super) fn layered_notes(&self, stack: &Stack) -> Vec<String> {
        let tp = self.parallel.tp;
        let copied = stack.kinds.iter().find_map(|kind| match kind.mixer {
            Mixer::Heads(a) if a.kv_heads < tp => Some((a.kv_heads, "heads of keys and values")),
            Mixer::Latent(_) if tp > 1 => Some((1, "latent vector of keys and values")),
            Mixer::Compressed(_) if tp > 1 => Some((1, "key of all heads")),
            _ => None,
        });
        copied
            .map(|(count, of)| {
                format!("tp {tp} over {count} {of}: {} ranks each hold the same one in their caches", tp / count)
            })
            .into_iter()
            .collect()
    }
}
