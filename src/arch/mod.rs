//! Chips: read from `arch/*.toml`, checked, and resolved to units at coordinates.

mod chip;

pub use chip::{
    Agcu, Chip, Coordinate, Energy, Grid, Launch, LaunchTimes, Network, Orchestration, Pcu, Pmu, Tier, TierId, UnitKind,
};
