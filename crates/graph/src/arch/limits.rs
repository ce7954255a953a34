//! The range of every number in a chip file.
//!
//! Together they keep later integer arithmetic inside 64 bits, with room for products with counts of the workload:
//!
//! - MACs a cycle: 10^6 sites x 2^12 lanes x 2^12 stages < 2^44;
//! - scratchpad: 10^6 sites x 2^40 bytes < 2^60;
//! - cycles of a launch: 3 x 10^8 us x 10^6 cycles/us < 2^49, times 1000 (milli-cycles) < 2^59;
//! - cycles of a latency: 10^9 ns x 10^3 cycles/ns = 10^12;
//! - off-chip capacity: 2^8 tiers x 2^52 bytes = 2^60;
//! - program: 10^6 sites x 2^30 bytes < 2^50.

use std::ops::RangeInclusive;

/// Columns or rows of sites; their product is at most [`MAX_SITES`].
pub(super) const SIDE: RangeInclusive<u64> = 1..=MAX_SITES;
/// Sites of a grid.
pub(super) const MAX_SITES: u64 = 1_000_000;
/// PCUs for each PMU.
pub(super) const PCUS_PER_PMU: RangeInclusive<f64> = 0.001..=1000.0;
/// Address generators of one AGCU.
pub(super) const AGS: RangeInclusive<u64> = 1..=1024;
/// Clock.
pub(super) const CLOCK_GHZ: RangeInclusive<f64> = 0.001..=1000.0;
/// Lanes of a PCU, elements of its tail.
pub(super) const LANES: RangeInclusive<u64> = 1..=4096;
/// Stages of a PCU, stages of a function.
pub(super) const STAGES: RangeInclusive<u64> = 1..=4096;
/// Accumulator sets of a PCU.
pub(super) const ACCUMULATOR_SETS: RangeInclusive<u64> = 1..=2;
/// Ports of a unit, links between switches.
pub(super) const PORTS: RangeInclusive<u64> = 1..=1024;
/// Accesses that an address generator has under way.
pub(super) const OUTSTANDING: RangeInclusive<u64> = 1..=1 << 20;
/// Bytes of a port, a flit, or an address generator's cycle.
pub(super) const WIDTH_BYTES: RangeInclusive<u64> = 1..=1 << 16;
/// Scratchpad of one PMU.
pub(super) const PMU_BYTES: RangeInclusive<u64> = 1..=1 << 40;
/// Banks of one PMU.
pub(super) const BANKS: RangeInclusive<u64> = 1..=1 << 16;
/// Cycles of one hop.
pub(super) const HOP_CYCLES: RangeInclusive<u64> = 1..=1_000_000;
/// Flits of a FIFO or a packet.
pub(super) const FLITS: RangeInclusive<u64> = 1..=1 << 20;
/// Memory tiers.
pub(super) const MAX_TIERS: usize = 256;
/// Channels of a tier.
pub(super) const CHANNELS: RangeInclusive<u64> = 1..=1 << 16;
/// Bandwidth of a tier.
pub(super) const BANDWIDTH_GB_PER_S: RangeInclusive<f64> = 0.001..=1e6;
/// Latency of a tier.
pub(super) const LATENCY_NS: RangeInclusive<f64> = 0.0..=1e9;
/// Burst of a tier: every row of a cut tensor may be rounded up to one.
pub(super) const BURST_BYTES: RangeInclusive<u64> = 1..=1 << 16;
/// Interleave of a tier.
pub(super) const INTERLEAVE_BYTES: RangeInclusive<u64> = 1..=1 << 30;
/// Capacity of a tier.
pub(super) const TIER_BYTES: RangeInclusive<u64> = 1..=1 << 52;
/// One part of a launch.
pub(super) const LAUNCH_US: RangeInclusive<f64> = 0.0..=1e8;
/// Program of one unit.
pub(super) const PROGRAM_BYTES: RangeInclusive<u64> = 0..=1 << 30;
/// Picojoule or watt.
pub(super) const ENERGY: RangeInclusive<f64> = 0.0..=1e9;
/// Square millimetres of a part.
pub(super) const AREA_MM2: RangeInclusive<f64> = 0.0..=1e6;
/// How many times denser a node is.
pub(super) const SHRINK: RangeInclusive<f64> = 0.001..=1e6;
