//! The part of each layer that one of several tensor ranks has.

use super::attention::{Compressed, HeadAttention, LatentAttention};
use super::feed::{Expertise, Feed, FeedBlock};
use super::kinds::{LayerKind, Mixer, Stack};
use super::recurrence::{DeltaNet, Lightning};
use crate::model::experts::Experts;

/// A count that must be divided by the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divided {
    /// What is counted.
    pub of: &'static str,
    /// How many.
    pub count: u64,
    /// Where there are fewer, several ranks have the same one.
    pub is_shared: bool,
}

impl LayerKind {
    /// What ranks divide.
    pub fn divided(&self) -> Vec<Divided> {
        let whole = |of, count| Divided { of, count, is_shared: false };
        let shared = |of, count| Divided { of, count, is_shared: true };
        let mut list = match &self.mixer {
            Mixer::None | Mixer::Matrix => Vec::new(),
            Mixer::Heads(a) => vec![whole("query heads", a.heads), shared("key and value heads", a.kv_heads)],
            Mixer::Latent(a) => vec![whole("query heads", a.heads)],
            Mixer::Compressed(a) => vec![whole("query heads", a.heads), shared("groups of heads", a.groups)],
            Mixer::Delta(net) => {
                vec![whole("heads of values", net.value_heads), shared("heads of keys", net.key_heads)]
            }
            Mixer::Lightning(of) => vec![whole("heads", of.heads)],
            Mixer::Recurrence(m) => vec![
                whole("heads of the recurrence", m.heads.into()),
                shared("groups of heads of the recurrence", m.groups.into()),
            ],
        };
        match &self.feed {
            Feed::None | Feed::Matrix => {}
            Feed::Dense(block) => list.push(whole("columns of the feed-forward block", block.width)),
            Feed::Experts(of) => {
                list.push(whole("columns of an expert", of.experts.width));
                if of.experts.shared > 0 {
                    list.push(whole("columns of the block beside the experts", of.experts.shared));
                }
            }
        }
        list
    }

    /// The part of one of `ranks` ranks.
    #[must_use]
    pub fn share(&self, ranks: u64) -> Self {
        let part = |count: u64| (count / ranks.max(1)).max(1);
        let mixer = match self.mixer {
            Mixer::Heads(a) => Mixer::Heads(HeadAttention {
                heads: part(a.heads),
                kv_heads: part(a.kv_heads),
                gate: if a.gate > 0 { part(a.gate) } else { 0 },
                ..a
            }),
            Mixer::Latent(a) => Mixer::Latent(LatentAttention { heads: part(a.heads), ..a }),
            Mixer::Compressed(a) => Mixer::Compressed(Compressed { heads: part(a.heads), groups: part(a.groups), ..a }),
            Mixer::Delta(net) => {
                Mixer::Delta(DeltaNet { key_heads: part(net.key_heads), value_heads: part(net.value_heads), ..net })
            }
            Mixer::Lightning(of) => Mixer::Lightning(Lightning { heads: part(of.heads), ..of }),
            Mixer::Recurrence(m) => Mixer::Recurrence(m.share(ranks)),
            other @ (Mixer::None | Mixer::Matrix) => other,
        };
        let feed = match self.feed {
            Feed::Dense(block) => Feed::Dense(FeedBlock { width: part(block.width), ..block }),
            Feed::Experts(of) => {
                let shared = if of.experts.shared > 0 { part(of.experts.shared) } else { 0 };
                let experts = Experts { width: part(of.experts.width), shared, ..of.experts };
                Feed::Experts(Expertise { experts, ..of })
            }
            other @ (Feed::None | Feed::Matrix) => other,
        };
        Self { mixer, feed, norms: self.norms, formats: self.formats.clone() }
    }
}

impl Stack {
    /// The part of one of `ranks` ranks.
    #[must_use]
    pub fn share(&self, ranks: u64) -> Self {
        Self {
            vocabulary: self.vocabulary.div_ceil(ranks.max(1)),
            kinds: self.kinds.iter().map(|kind| kind.share(ranks)).collect(),
            ..self.clone()
        }
    }
}
