//! Streaming between the memory off the chip and the tiles: while no tile works, or behind computation through I/O tiles.
//!
//! I/O tiles compute nothing; what is read ahead waits in their memory, and what was written waits there to leave. A program of
//! operators is a line of reads, computations and writes; the link moves bytes whenever the buffer lets it. What waits is never more
//! than the buffer, and no byte moves faster than the link.

use crate::arch::Bsp;

/// What an operator reads and writes off the chip, and how long it computes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Streaming {
    /// Bytes it needs before it starts.
    pub(super) read: f64,
    /// Bytes that leave behind it.
    pub(super) written: f64,
    /// Cycles of its supersteps.
    pub(super) cycles: f64,
}

impl Streaming {
    /// The same in equal parts, one after the other.
    pub(super) fn parts(self, parts: u64) -> impl Iterator<Item = Self> {
        let of = |all: f64| all / parts.max(1) as f64;
        let part = Self { read: of(self.read), written: of(self.written), cycles: of(self.cycles) };
        (0..parts.max(1)).map(move |_| part)
    }
}

/// The link and the buffer before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes a cycle.
    pub(super) rate: f64,
    /// Cycles to the first byte.
    pub(super) latency: f64,
    /// Bytes of the buffer; without one, nothing is read ahead or written behind.
    pub(super) buffer: f64,
}

impl Link {
    /// Of a chip whose `io_tiles` have all their memory for tensors as a buffer.
    pub(super) fn of(chip: &Bsp) -> Self {
        let latency_ns = chip.memory.iter().map(|tier| tier.latency_ns).fold(0.0, f64::max);
        Self {
            rate: chip.memory_bytes_per_cycle(),
            latency: latency_ns * chip.clock_hz as f64 / 1e9,
            buffer: (chip.tile.io_tiles * chip.tensor_bytes()) as f64,
        }
    }
}

/// The buffer, from operator to operator.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Waiting {
    /// Bytes that were read ahead.
    ahead: f64,
    /// Bytes that have not left yet.
    behind: f64,
}

/// Cycles that `times` runs of a line of operators wait for the link, one after the other, until the last byte has left.
pub(super) fn exposed(link: &Link, line: &[Streaming], times: u64) -> f64 {
    let bytes: f64 = line.iter().map(|one| one.read + one.written).sum();
    if bytes <= 0.0 || times == 0 {
        return 0.0;
    }
    if link.buffer <= 0.0 {
        let waits = |one: &Streaming| {
            let moved = one.read + one.written;
            if moved > 0.0 { link.latency + moved / link.rate } else { 0.0 }
        };
        return line.iter().map(waits).sum::<f64>() * times as f64;
    }
    let mut waiting = Waiting::default();
    let mut all = 0.0;
    // Behind the first runs the buffer is as it was a run before, and every further run waits as long.
    for run in 0..times {
        let before = waiting;
        let last = one_run(link, line, &mut waiting, run + 1 < times);
        all += last;
        if before == waiting && run > 0 && run + 2 < times {
            let mut end = waiting;
            let further = last * (times - run - 2) as f64;
            return all + further + one_run(link, line, &mut end, false) + end.behind / link.rate;
        }
    }
    all + waiting.behind / link.rate
}

/// Cycles that one run waits. The link reads for what comes next, of the next run too if there is one.
fn one_run(link: &Link, line: &[Streaming], waiting: &mut Waiting, is_followed: bool) -> f64 {
    let mut waited = 0.0;
    for (at, one) in line.iter().enumerate() {
        let lacking = one.read - waiting.ahead;
        if lacking > 0.0 {
            // What has to leave goes first only as far as the buffer is full; reads are waited for.
            waited += link.latency + lacking / link.rate;
            waiting.ahead = 0.0;
        } else {
            waiting.ahead -= one.read;
        }
        let later: f64 = line[at + 1..].iter().map(|next| next.read).sum();
        let later = later + if is_followed { line.iter().map(|next| next.read).sum() } else { 0.0 };
        let mut moves = (one.cycles - link.latency).max(0.0) * link.rate;
        let leaves = moves.min(waiting.behind);
        waiting.behind -= leaves;
        moves -= leaves;
        let room = (link.buffer - waiting.ahead - waiting.behind).max(0.0);
        waiting.ahead += moves.min(room).min((later - waiting.ahead).max(0.0));
        waiting.behind += one.written;
        // What the buffer has no room for is waited for.
        let over = (waiting.ahead + waiting.behind - link.buffer).clamp(0.0, waiting.behind);
        waited += over / link.rate;
        waiting.behind -= over;
    }
    waited
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: [Streaming; 2] = [
        Streaming { read: 100.0, written: 0.0, cycles: 200.0 },
        Streaming { read: 100.0, written: 0.0, cycles: 200.0 },
    ];

    fn link(buffer: f64) -> Link {
        Link { rate: 1.0, latency: 10.0, buffer }
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    #[test]
    fn without_a_buffer_every_byte_is_waited_for() {
        assert!(is_near(exposed(&link(0.0), &LINE, 3), 3.0 * 2.0 * 110.0));
    }

    #[test]
    fn behind_longer_computation_only_the_first_read_is_waited_for() {
        assert!(is_near(exposed(&link(100.0), &LINE, 50), 110.0));
    }

    #[test]
    fn half_a_buffer_hides_half() {
        // 50 of 100 bytes come ahead, the others take 10 cycles and 50; the first comes whole.
        assert!(is_near(exposed(&link(50.0), &LINE, 2), 110.0 + 3.0 * 60.0));
    }

    #[test]
    fn what_is_written_last_leaves_last() {
        let line = [Streaming { read: 0.0, written: 40.0, cycles: 30.0 }];
        // 20 of 40 bytes leave behind each of the later runs, and the buffer has no room for more than 40.
        assert!(is_near(exposed(&link(40.0), &line, 2), 20.0 + 40.0));
    }

    proptest! {
        #[test]
        fn the_link_is_never_faster_than_its_rate_and_a_buffer_never_hurts(
            parts in proptest::collection::vec((0.0_f64..200.0, 0.0_f64..200.0, 0.0_f64..400.0), 1..6),
            buffer in 0.0_f64..300.0,
            times in 1_u64..30,
        ) {
            let line: Vec<Streaming> =
                parts.iter().map(|&(read, written, cycles)| Streaming { read, written, cycles }).collect();
            let found = exposed(&link(buffer), &line, times);
            let all = |of: fn(&Streaming) -> f64| line.iter().map(of).sum::<f64>() * times as f64;
            prop_assert!(found + all(|one| one.cycles) + 1e-6 >= all(|one| one.read + one.written));
            prop_assert!(found <= exposed(&link(0.0), &line, times) + 1e-6);
        }
    }
}
