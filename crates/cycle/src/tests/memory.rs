//! One tier of the reference model: banks, and accesses under way.

use crate::memory::{Progress, Tier};
use rdusim_base::index::{Id, IndexVec};
use rdusim_graph::arch::{self, Penalties, TierId};
use rdusim_graph::workload::TensorId;
use rdusim_program::{LoopLevel, OffChip, Stream, StreamId};

const SMALL: &str = include_str!("../../../../tests/cases/small.toml");

/// Cycles in which one stream of a chip with one channel, at 16 B a cycle and without latency, reads bytes in so many
/// runs; `set` is set in its memory.
fn read(set: &str, bytes: u64, runs: u64) -> (u64, Penalties) {
    let text = SMALL.replace("bandwidth_gb_per_s = 64", &format!("bandwidth_gb_per_s = 16\n{set}"));
    let text = text.replace("latency_ns = 100", "latency_ns = 0");
    let chip = arch::parse("small.toml", &text, &[]).expect("a chip");
    let tensor = TensorId::from_index(0);
    let (level, passes) = (LoopLevel::ONCE, 1);
    let stream = Stream { tensor, level, writes: false, weight: false, tensor_bytes: bytes, passes };
    let tier = TierId::from_index(0);
    let streams = IndexVec::from_iter([OffChip { stream, tier, ags: vec![(0, 0)] }]);
    let mut server = Tier::new(&chip, tier, &streams);
    server.ask((0, StreamId::from_index(0), 0), bytes, bytes, runs, 0);
    let mut progress = Vec::new();
    let mut now = 0;
    while progress.last().is_none_or(|last: &Progress| last.bytes < last.of) {
        server.tick(now);
        now = server.next_at().max(now);
        server.arrive(now, &mut progress);
    }
    (now, chip.tier_penalties(tier))
}

#[test]
fn rows_of_a_stream_open_while_it_goes_on() {
    // 64 rows of 8 KiB, or 512 of 1 KiB, in 16 banks: 512 KiB at 16 B a cycle.
    for part in ["ddr4-2666", "hbm2e"] {
        assert_eq!(read(&format!("part = \"{part}\""), 1 << 19, 1).0, 1 << 15, "{part}");
    }
}

#[test]
fn scattered_runs_lose_on_average_what_the_closed_form_says() {
    for part in ["ddr4-2666", "ddr4-3200", "hbm2e", "hbm3"] {
        for run in [64, 256, 1024] {
            let (cycles, penalties) = read(&format!("part = \"{part}\""), 4096 * run, 4096);
            let expected = 4096 * run / 16 + 4096 * penalties.run_milli_cycles(run) / 1000;
            // Within 10 %: the mean of the waits is not the wait of the mean.
            assert!(
                cycles.abs_diff(expected) * 10 < expected,
                "{part}, runs of {run} B: {cycles} cycles, {expected} expected"
            );
        }
    }
}
