//! Cost: the arithmetic that the search and the event engine share.
//!
//! Cycles and flits of tiles and firings, bytes of slots and transfers, and the lower bounds that follow from them. Nothing
//! here passes time or decides anything.

#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod array;
mod assignment;
mod counts;
mod floor;
mod footprint;
mod gather;
mod heads;
mod io_bound;
mod lower_bound;
mod reducer;
mod sampled;
mod section_bound;
mod section_load;
mod simd;
mod slots;
mod stage_work;
mod stop;
mod tile_tables;
mod tiles;
mod time;
mod transfer;
mod usage;

pub use array::SystolicShape;
pub use assignment::{Assignment, TileTable, assign, pass_work};
pub use counts::{Limits, SectionRun, SkippedPeriod, SkippedPeriods, Stopped, StreamBytes, Waits};
pub use floor::{least_cycles, least_memory_cycles, least_memory_cycles_of};
pub use footprint::{StageFootprint, weight_slot_bytes};
pub use gather::{GatherPorts, cycles as gather_cycles};
pub use heads::{heads_footprint, heads_work, made_columns};
pub use lower_bound::{bound_cycles, compulsory_bytes, moving_cycles};
pub use reducer::{Reducer, reducer_footprint, reducer_work};
pub use section_bound::{bound_section, busy_cycles, flow_flits, transfer_flits, window_cycles};
pub use section_load::{SectionLoad, section_load};
pub use simd::{chain, simd_stages};
pub use slots::{different_slots, reduced_extent, slot_bytes};
pub use stage_work::StageWork;
pub use stop::Stop;
pub use tile_tables::{TileTables, WeightRange};
pub use tiles::{Cut, Tile, sample, tiles};
pub use time::{Cycles, TICKS_PER_CYCLE, Ticks, cycles, to_cycles};
pub use transfer::{SlotBytes, first_load_cycles, first_slot_bytes, transfer_bytes, transfer_runs};
pub use usage::{FlitCounts, Usage};
