//! A model by its layers: what stands in each of them, kind by kind.
//!
//! Every layer of a model is one of a few kinds. A kind has something that mixes the tokens of a sequence (attention, a recurrence) and
//! a feed-forward block, each of which may be missing. Parameters, caches, FLOP and the graph of a layer all follow from its kind.

mod attention;
mod count;
mod feed;
mod kinds;
mod plain;
mod recurrence;
mod share;
mod write;
mod write_attention;
mod write_feed;
mod write_recurrence;

pub use attention::{Compressed, HeadAttention, Indexer, LatentAttention, Window};
pub use count::{Cache, Matrix};
pub use feed::{Expertise, Feed, FeedBlock};
pub use kinds::{BlockNorms, LayerKind, MOST_KINDS, Mixer, Stack};
pub use plain::{outline, plain};
pub use recurrence::{Decay, DeltaNet, Lightning, chunk_of as linear_chunk};
pub use share::Divided;
