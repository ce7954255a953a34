//! Stacks whose layers are all alike, but for dense ones at the front, as an [`Architecture`].

use super::attention::{HeadAttention, LatentAttention};
use super::feed::{Expertise, Feed, FeedBlock};
use super::kinds::{LayerKind, Mixer, Stack};
use crate::model::extras::Extras;
use crate::model::preset::{Activation, Architecture, Norm, Position};

/// The architecture of a stack, where that says all of it; formats of matrices are not looked at.
pub fn plain(stack: &Stack) -> Option<Architecture> {
    let is_usual = stack.streams == 1 && stack.positions.is_none() && stack.norm == Norm::Rms;
    let first = usize::from(*stack.order.first()?);
    let last = usize::from(*stack.order.last()?);
    let front = stack.order.iter().take_while(|&&kind| usize::from(kind) == first).count();
    let dense = if first == last { 0 } else { front };
    let is_ordered = stack.order[dense..].iter().all(|&kind| usize::from(kind) == last);
    if !is_usual || !is_ordered {
        return None;
    }
    let kind = &stack.kinds[last];
    let base = of_kind(stack, kind)?;
    if dense == 0 {
        return Some(base);
    }
    let before = of_kind(stack, &stack.kinds[first])?;
    let has_experts = base.extras.experts.is_some() && before.extras.experts.is_none();
    let extras = Extras { experts: None, ..base.extras };
    let is_alike = Architecture { feed_forward: before.feed_forward, extras, ..base } == before;
    let extras = Extras { dense_layers: dense as u64, ..base.extras };
    (has_experts && is_alike).then_some(Architecture { feed_forward: before.feed_forward, extras, ..base })
}

fn of_kind(stack: &Stack, kind: &LayerKind) -> Option<Architecture> {
    let norms = kind.norms;
    if !norms.before || norms.parallel {
        return None;
    }
    let (mut bias, mut extras) = (false, Extras { branch_norm: norms.behind, ..Extras::default() });
    let (heads, kv_heads) = match kind.mixer {
        Mixer::Heads(a) => {
            let usual = HeadAttention {
                bias: a.bias,
                output_bias: a.output_bias,
                head_norm: a.head_norm,
                capped: a.capped,
                ..HeadAttention::new(a.heads, a.kv_heads, a.key)
            };
            if a != usual || a.output_bias && !a.bias {
                return None;
            }
            bias = a.output_bias;
            extras.attention_bias = a.bias && !bias;
            extras.head_norm = a.head_norm;
            extras.capped_scores = a.capped;
            extras.head_width = (a.key * a.heads != stack.hidden).then_some(a.key);
            (a.heads, a.kv_heads)
        }
        Mixer::Latent(LatentAttention { heads, latent, indexer: None }) => {
            extras.latent = Some(latent);
            (heads, heads)
        }
        _ => return None,
    };
    let (feed_forward, activation) = match kind.feed {
        Feed::Dense(FeedBlock { width, activation, bias: fed }) if fed == bias => (width, activation),
        Feed::Experts(Expertise { experts, activation: Activation::GatedSilu, bias: false, latent: None }) if !bias => {
            extras.experts = Some(experts);
            (experts.width, Activation::GatedSilu)
        }
        _ => return None,
    };
    Some(Architecture { feed_forward, activation, bias, extras, ..usual(stack, heads, kv_heads) })
}

/// What stacks have in common: rotated positions, norms before the blocks, gated feed-forward blocks as wide as the model.
fn usual(stack: &Stack, heads: u64, kv_heads: u64) -> Architecture {
    Architecture {
        hidden: stack.hidden,
        layers: stack.order.len() as u64,
        heads,
        kv_heads,
        feed_forward: stack.hidden,
        vocabulary: stack.vocabulary,
        position: Position::Rotary,
        norm: stack.norm,
        activation: Activation::GatedSilu,
        bias: false,
        tied: stack.tied,
        causal: true,
        post_norm: false,
        parallel: false,
        embedding_norm: false,
        token_types: 0,
        output: true,
        extras: Extras::default(),
    }
}

/// What of a stack an [`Architecture`] has a place for, where it does not say all of it: widths, vocabulary, layers.
pub fn outline(stack: &Stack) -> Architecture {
    let heads = stack.kinds.iter().find_map(|kind| match kind.mixer {
        Mixer::Heads(a) => Some((a.heads, a.kv_heads, a.key)),
        Mixer::Latent(a) => Some((a.heads, a.heads, a.latent.plain + a.latent.rotated)),
        Mixer::Compressed(a) => Some((a.heads, 1, a.head)),
        _ => None,
    });
    let (heads, kv_heads, head) = heads.unwrap_or((1, 1, stack.hidden));
    let width = stack.kinds.iter().find_map(|kind| match kind.feed {
        Feed::Dense(block) => Some(block.width),
        Feed::Experts(of) => Some(of.experts.width),
        _ => None,
    });
    Architecture {
        feed_forward: width.unwrap_or(stack.hidden),
        position: stack.positions.map_or(Position::Rotary, Position::Learned),
        extras: Extras {
            head_width: (head * heads != stack.hidden).then_some(head),
            experts: stack.experts().map(|of| of.experts),
            ..Extras::default()
        },
        ..usual(stack, heads, kv_heads)
    }
}
