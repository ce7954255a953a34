//! The map of a configuration: what lies where on the chip, with names and coordinates in place of ids.
//!
//! A [`Map`] is plain data, made once from a `Configuration` and written out as JSON as it stands; text and pictures
//! are made from it by `report`, which so needs to know nothing of the compiler.

mod entries;
mod json;
mod summary;
mod tiles;
mod times;

pub use self::entries::{
    ArchEntry, BufferEntry, GeneratorEntry, LinkEntry, Map, MappingEntry, NestEntry, NetworkEntry, PanelsEntry,
    PartEntry, RouteEntry, RunEntry, SCHEMA, Section, Site, StageEntry, StageTime, StreamEntry, TiledAxisEntry,
    WorkloadEntry,
};
pub use self::summary::summarize;
pub use self::tiles::{MappedOperator, MappedStep, StepPlace, TileArch, TileMap, tile_map};
pub use self::times::tell_times;

#[cfg(test)]
mod tests;
