//! Cases of one tier, calculated by hand.

use super::*;

/// Six channels in stripes of 1 KiB, at a byte a tick together; an access takes 100 ticks.
fn server() -> TierServer {
    TierServer::idle(Rate { bytes: TICKS_PER_CYCLE, cycles: 1 }, 6, 1024, 64, 100, IndexVec::filled(2, false))
}

fn transfer(urgency: u64, stream: usize, slot: u64, moved_bytes: u64) -> Transfer {
    Transfer { urgency, stream: StreamId::from_index(stream), slot, moved_bytes, runs: 1 }
}

/// Serves channels when they are due, until none is; what becomes known, in order: when, stream, slot, first.
fn run(tier: &mut TierServer) -> Vec<(Ticks, usize, u64, bool)> {
    while !tier.due.is_empty() {
        tier.due.sort_by_key(|due| std::cmp::Reverse(due.1));
        if let Some((channel, at)) = tier.due.pop().filter(|&(channel, at)| tier.is_due(channel, at)) {
            tier.serve(channel, at);
        }
    }
    let mut told: Vec<_> = tier.arrivals.drain(..).map(|a| (a.at, a.stream.index(), a.slot, a.first)).collect();
    told.sort_unstable();
    told
}

#[test]
fn a_transfer_comes_at_the_rate_of_the_channels_it_lies_on() {
    // 6 KiB are a stripe on every channel: each gives a sixth of a byte a tick, 1024 x 6 = 6144 ticks. The first
    // 64 B take 64 x 6 = 384.
    let mut tier = server();
    tier.request(transfer(0, 0, 0, 6144), 0);
    assert_eq!(run(&mut tier), [(484, 0, 0, true), (6244, 0, 0, false)]);
    assert_eq!((tier.free_at(), tier.busy()), (6144, 6144));
    // The next 512 B are half a stripe on the first channel, and take 512 x 6 ticks there.
    tier.request(transfer(1, 0, 1, 512), 10_000);
    assert_eq!(run(&mut tier), [(10_484, 0, 1, true), (13_172, 0, 1, false)]);
}

#[test]
fn the_most_urgent_goes_first_and_slots_complete_in_order() {
    let mut tier = server();
    tier.request(transfer(3, 0, 0, 1024 + 64), 0);
    tier.request(transfer(2, 1, 0, 64), 0);
    tier.request(transfer(7, 0, 1, 64), 0);
    let told = run(&mut tier);
    // Slot 0 of stream 0 begins on the first channel, where its last byte is served after 6144 ticks. On the second,
    // stream 1 goes first, then the end of that slot, then slot 1, after 3 x 384 ticks: it is told in its turn.
    assert!(told.contains(&(484, 1, 0, false)) || told.contains(&(485, 1, 0, false)));
    assert_eq!(
        told.iter().filter(|t| t.1 == 0 && !t.3).map(|t| (t.0, t.2)).collect::<Vec<_>>(),
        [(6144 + 100, 0), (6144 + 101, 1)]
    );
}

#[test]
fn a_channel_serves_no_two_things_at_a_time() {
    let mut tier = server();
    tier.request(transfer(0, 0, 0, 1024), 0);
    assert_eq!(run(&mut tier), [(484, 0, 0, true), (6244, 0, 0, false)]);
    // What becomes known late was asked for while the channel was busy: it comes behind what has been served since.
    tier.request(transfer(1, 1, 0, 6 * 1024), 3000);
    let told = run(&mut tier);
    assert_eq!(told.iter().find(|t| !t.3), Some(&(2 * 6144 + 100, 1, 0, false)));
    assert_eq!(tier.free_at(), 2 * 6144);
}

#[test]
fn what_is_more_urgent_interrupts_at_the_next_grain() {
    let mut tier = server();
    tier.request(transfer(5, 0, 0, 1024), 0);
    tier.serve(0, 0);
    // 1000 ticks are 2.6 grains of 384: the third is ended.
    tier.request(transfer(1, 0, 1, 6 * 1024 - 1024), 1000);
    tier.request(transfer(1, 0, 2, 64), 1000);
    let told = run(&mut tier);
    let end = |slot| told.iter().find(|t| t.2 == slot && !t.3).map(|t| t.0);
    // Slot 2 takes the first channel from 1152 to 1536, and slot 0 what is left: 6144 + 384. Slot 1 is served on the
    // others from 1000 on, and what came before it is told behind it.
    assert_eq!(end(0), Some(6144 + 384 + 100));
    assert_eq!(end(1), Some(1000 + 6144 + 100));
    assert_eq!(end(2), Some(1000 + 6144 + 101));
}

#[test]
fn what_is_served_takes_the_same_however_it_is_cut() {
    // A byte takes 6 x 64 / (7 x 64) ticks, a stripe of 16 B 13.7: 32 are a unit, of 438.9.
    let rate = Rate { bytes: 7 * TICKS_PER_CYCLE, cycles: 1 };
    let tier = TierServer::idle(rate, 6, 16, 16, 100, IndexVec::filled(1, false));
    assert_eq!((tier.ticks(16), tier.unit_bytes, tier.unit_ticks), (14, 512, 439));
    for cuts in [vec![16_384], vec![64; 256], vec![1000, 15_000, 384], vec![1; 16_384]] {
        let mut from = 0;
        let parts = cuts.into_iter().map(|bytes| {
            from += bytes;
            tier.part_ticks(from - bytes, bytes)
        });
        assert_eq!(parts.sum::<Ticks>(), 32 * 439);
    }
}

#[test]
fn who_turns_or_jumps_loses_time() {
    let (mut recent, read, write) = (Recent::default(), 0, 1);
    let mut serve = |stream: usize, from: u64, bytes: u64| {
        let (transfer, row) = (transfer(0, stream, 0, bytes), 0);
        let part = Part { transfer, row, bytes, from, run_bytes: bytes, into_run: 0 };
        let jump = if recent.goes_on(&part) { 0 } else { 3 };
        let lost = jump + if recent.turns(128, stream == write) { 10 } else { 0 };
        recent.last = Some((part.transfer.stream, from + bytes));
        recent.written += if stream == write { bytes } else { 0 };
        lost
    };
    // The first access, and what follows it.
    assert_eq!((serve(read, 0, 64), serve(read, 64, 64)), (0, 0));
    // Elsewhere in the same stream; another stream, and on in it.
    assert_eq!((serve(read, 640, 64), serve(write, 0, 64), serve(write, 64, 64)), (3, 3, 0));
    // A batch has been written, and something read before it.
    assert_eq!((serve(write, 128, 256), serve(write, 384, 64), serve(read, 704, 64)), (10, 0, 3));
    // Half a batch, then the rest of it: who writes next has turned again.
    assert_eq!((serve(write, 448, 64), serve(read, 768, 64), serve(write, 512, 64)), (3, 3, 13));
}

#[test]
fn every_run_of_a_slot_loses_time_however_it_is_cut() {
    let mut tier = server();
    // One channel of six gives 64 B in 384 ticks; a run that does not follow takes 2 cycles more.
    tier.penalties = Penalties { write_batch_bytes: 1024, jump_milli_cycles: 2000, ..Penalties::default() };
    // 1 KiB on the first channel in 4 runs of 256 B: three go elsewhere, and nothing was served before the first.
    tier.request(Transfer { runs: 4, ..transfer(5, 0, 0, 1024) }, 0);
    tier.serve(0, 0);
    // At 2000 ticks the fourth grain (384 x 4) is through, and the fifth, which begins a run, is under way.
    tier.request(transfer(1, 0, 1, 5 * 1024), 2000);
    tier.request(transfer(1, 0, 2, 64), 2000);
    let told = run(&mut tier);
    let end = |slot| told.iter().find(|t| t.2 == slot && !t.3).map(|t| t.0);
    // 16 grains, three jumps in the first slot, one to slot 2 and one back.
    let cycle = TICKS_PER_CYCLE;
    assert_eq!(end(0), Some(6144 + 384 + (3 + 1 + 1) * 2 * cycle + 100));
}

#[test]
fn what_is_lost_makes_transfers_later_and_a_channel_busy() {
    let mut tier = server();
    tier.penalties = Penalties { write_batch_bytes: 1024, jump_milli_cycles: 6000, ..Penalties::default() };
    for slot in 0..2 {
        for stream in 0..2 {
            tier.request(transfer(slot, stream, slot, 1024), 0);
        }
    }
    // Each stream goes on on the next channel: nobody jumps but on the channel where both meet, and that once.
    let told = run(&mut tier);
    let end = |stream, slot| told.iter().find(|t| (t.1, t.2, t.3) == (stream, slot, false)).map(|t| t.0);
    assert_eq!((end(0, 0), end(1, 0)), (Some(6144 + 100), Some(6144 + 100)));
    assert_eq!(end(0, 1), Some(2 * 6144 + 100 + 6 * TICKS_PER_CYCLE));
    assert_eq!((end(1, 1), tier.busy()), (Some(6144 + 101), 4 * 1024 + TICKS_PER_CYCLE));
}

#[test]
fn many_small_parts_keep_a_tier_no_busier_than_it_can_be() {
    // 1 GB/s at 0.7 GHz on six channels, a byte a stripe: a byte takes 44.8 ticks of the tier. Rounded byte by byte, 960 of them would
    // count for 3 cycles more than they take.
    let rate = Rate::from_bandwidth(1_000_000_000, 700_000_000);
    let mut tier = TierServer::idle(rate, 6, 1, 1, 0, IndexVec::filled(1, false));
    for slot in 0..160 {
        tier.request(transfer(slot, 0, slot, 6), 0);
    }
    run(&mut tier);
    assert_eq!(tier.busy(), 960 * 448 / 10);
    assert!(tier.busy() <= tier.free_at(), "{} of {}", tier.busy(), tier.free_at());
}

#[test]
fn a_transfer_without_bytes_is_there_at_once() {
    let mut tier = server();
    tier.request(transfer(0, 0, 0, 0), 7);
    assert_eq!(run(&mut tier), [(7, 0, 0, true), (8, 0, 0, false)]);
    assert_eq!(tier.busy(), 0);
}
