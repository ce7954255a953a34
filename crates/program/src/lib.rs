//! The program contract: what a compiled section is, for whoever compiles, runs, checks or draws it.
//!
//! A [`Configuration`] is everything that a simulator needs to know, and nothing that it has to decide. This module knows
//! nothing of searches or engines. [`verifier`] lists what must hold of it.

#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod buffer;
mod configuration;
pub mod dataflow;
mod fabric;
pub mod fingerprint;
mod flow;
mod graph;
mod ids;
mod joined_axes;
mod key_axis;
mod key_tiles;
mod lower;
mod mapping;
mod nest;
mod panels;
mod processes;
mod row_reduction;
mod schedule;
mod sequence;
mod stage;
mod stream;
mod tiers;
mod tree;
pub mod verifier;

pub use buffer::{Buffer, BufferRole, BufferSpec, Part, Piece, resident_of};
pub use configuration::{Configuration, Prefetch, Section, is_whole_block};
pub use fabric::{Direction, Fabric, Port, Resource, ResourceKind, beyond};
pub use flow::{Amount, Flow, FlowEnd, FlowKind, shared};
pub use graph::{Axis, SectionGraph, StageSpec};
pub use ids::{BufferId, FlowId, PcuId, PmuId, StageId, StreamId};
pub use key_axis::KeyAxis;
pub use key_tiles::HeadsTile;
pub use lower::dataflow as lowered;
pub use mapping::{
    GemmMapping, MOST_GATHERED_COLUMNS, Mapping, OutputTile, PassWork, Reduction, SimdMapping, Style, TileLists,
    k_slice,
};
pub use nest::{Iteration, LoopLevel, LoopOrder, Nest, Panels, RowTile, TiledAxis, Tiling};
pub use panels::PanelAxes;
pub use processes::{Input, Process, ProcessFlows, ProcessGraph, ProcessKind, Streamed};
pub use row_reduction::{Sums, Update, gradient_of, is_turned, tied_columns};
pub use schedule::Schedule;
pub use sequence::SequenceRead;
pub use stage::{Stage, continues, emits, forwards, merges};
pub use stream::{OffChip, Stream};
pub use tiers::{divided_over_tiers, tensor_tiers, tier_remarks};
pub use tree::{Broken, Tree, TreeWalk, tree_over};
