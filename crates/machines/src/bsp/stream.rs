//! Streaming between the memory off the chip and the tiles: while no tile works, or behind computation through I/O tiles.
//!
//! I/O tiles compute nothing; what is read ahead waits in their memory, and what was written waits there to leave. A program of
//! operators is a line of reads, computations and writes; the link moves bytes whenever the buffer lets it. What waits is never more
//! than the buffer, and no byte moves faster than the link.

use rdusim_graph::arch::Bsp;

/// What an operator reads and writes off the chip, and how long it computes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Streaming {
    /// Bytes it needs before it starts.
    pub(super) read: f64,
    /// Cycles in which they come: those of the link's bytes, or of what chips gather from each other of them.
    pub(super) read_cycles: f64,
    /// Bytes that leave behind it.
    pub(super) written: f64,
    /// Cycles of its supersteps.
    pub(super) cycles: f64,
}

impl Streaming {
    /// The same in equal parts, one after the other.
    pub(super) fn parts(self, parts: u64) -> impl Iterator<Item = Self> {
        let of = |all: f64| all / parts.max(1) as f64;
        let part = Self {
            read: of(self.read),
            read_cycles: of(self.read_cycles),
            written: of(self.written),
            cycles: of(self.cycles),
        };
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
    let moved: f64 = line.iter().map(|one| one.read_cycles + one.written).sum();
    if moved <= 0.0 || times == 0 {
        return 0.0;
    }
    if link.buffer <= 0.0 {
        let waits = |one: &Streaming| {
            let moved = one.read_cycles + one.written / link.rate;
            if moved > 0.0 { link.latency + moved } else { 0.0 }
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
    let next: &[Streaming] = if is_followed { line } else { &[] };
    walk(link, line, waiting, || next.iter())
}

/// Cycles that a line waits; `next` is what comes behind it.
fn walk<'a, I: Iterator<Item = &'a Streaming>>(
    link: &Link,
    line: &'a [Streaming],
    waiting: &mut Waiting,
    next: impl Fn() -> I,
) -> f64 {
    let mut waited = 0.0;
    for (at, one) in line.iter().enumerate() {
        let lacking = one.read - waiting.ahead;
        if lacking > 0.0 {
            // What has to leave goes first only as far as the buffer is full; reads are waited for.
            waited += link.latency + one.read_cycles * lacking / one.read;
            waiting.ahead = 0.0;
        } else {
            waiting.ahead -= one.read;
        }
        let mut moves = (one.cycles - link.latency).max(0.0);
        let leaves = (moves * link.rate).min(waiting.behind);
        waiting.behind -= leaves;
        moves -= leaves / link.rate;
        read_ahead(link, line[at + 1..].iter().chain(next()), waiting, moves);
        waiting.behind += one.written;
        // What the buffer has no room for is waited for.
        let over = (waiting.ahead + waiting.behind - link.buffer).clamp(0.0, waiting.behind);
        waited += over / link.rate;
        waiting.behind -= over;
    }
    waited
}

/// A phase: what comes before its micro-batches, their operators, and what leaves behind the last.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PhaseLine {
    /// Weights.
    pub(super) head: Vec<Streaming>,
    /// Operators of a micro-batch.
    pub(super) micro: Vec<Streaming>,
    /// Micro-batches.
    pub(super) times: u64,
    /// Gradients.
    pub(super) tail: Streaming,
}

/// Micro-batches that the link looks ahead.
const MOST_AHEAD: u64 = 64;

impl PhaseLine {
    /// Cycles of computation.
    pub(super) fn cycles(&self) -> f64 {
        let sum = |list: &[Streaming]| list.iter().map(|one| one.cycles).sum::<f64>();
        sum(&self.head) + sum(&self.micro) * self.times as f64 + self.tail.cycles
    }

    /// Cycles that it waits; `next` is what the phase behind it reads first.
    fn walk(&self, link: &Link, reads: &[Streaming], next: &[Streaming], waiting: &mut Waiting) -> f64 {
        // Reads of the micro-batches that are left behind one, as far as the link looks, and of the next phase.
        let behind = |left: u64| {
            let head = if left <= MOST_AHEAD { next } else { &[] };
            let micro = (0..left.min(MOST_AHEAD)).flat_map(|_| reads.iter());
            micro.chain(head)
        };
        let mut waited = walk(link, &self.head, waiting, || behind(self.times));
        let mut at = 0;
        while at < self.times {
            let before = *waiting;
            let left = self.times - at - 1;
            let one = walk(link, &self.micro, waiting, || behind(left));
            waited += one;
            at += 1;
            // Every micro-batch that sees as much before it waits as long.
            if before == *waiting && left > MOST_AHEAD {
                let alike = left - MOST_AHEAD;
                waited += one * alike as f64;
                at += alike;
            }
        }
        waited + walk(link, std::slice::from_ref(&self.tail), waiting, || next.iter())
    }
}

/// Cycles that so many phases alike wait for the link, until the last byte has left. Where the next phase's weights are not read
/// ahead, a phase begins with an empty buffer.
pub(super) fn exposed_phases(link: &Link, phase: &PhaseLine, phases: u64, reads_ahead: bool) -> f64 {
    if link.buffer <= 0.0 {
        let micro = exposed(link, &phase.micro, phase.times);
        return (exposed(link, &phase.head, 1) + micro + exposed(link, &[phase.tail], 1)) * phases as f64;
    }
    let reads: Vec<Streaming> = phase.micro.iter().copied().filter(|one| one.read > 0.0).collect();
    let alone = |waiting: &mut Waiting, next: &[Streaming]| phase.walk(link, &reads, next, waiting);
    if !reads_ahead {
        let mut waiting = Waiting::default();
        let one = alone(&mut waiting, &[]);
        return (one + waiting.behind / link.rate) * phases as f64;
    }
    let next: Vec<Streaming> = phase.head.iter().chain(&reads).copied().collect();
    let (mut waiting, mut all) = (Waiting::default(), 0.0);
    for at in 0..phases {
        let before = waiting;
        let is_last = at + 1 == phases;
        let one = alone(&mut waiting, if is_last { &[] } else { &next });
        all += one;
        if before == waiting && !is_last {
            all += one * (phases - at - 2) as f64;
            all += alone(&mut waiting, &[]);
            break;
        }
    }
    all + waiting.behind / link.rate
}

/// Reads of what comes next as much as the buffer has room for and `cycles` of the link suffice for.
fn read_ahead<'a>(link: &Link, next: impl Iterator<Item = &'a Streaming>, waiting: &mut Waiting, mut cycles: f64) {
    let mut room = (link.buffer - waiting.ahead - waiting.behind).max(0.0);
    // Of what comes next, the first is there already.
    let mut there = waiting.ahead;
    for one in next.filter(|one| one.read > 0.0) {
        if room <= 0.0 || cycles <= 0.0 {
            return;
        }
        let lacking = (one.read - there).max(0.0);
        there = (there - one.read).max(0.0);
        let each = one.read_cycles / one.read;
        let most = if each > 0.0 { cycles / each } else { lacking };
        let comes = lacking.min(room).min(most);
        waiting.ahead += comes;
        room -= comes;
        cycles -= comes * each;
        if comes < lacking {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: [Streaming; 2] = [
        Streaming { read: 100.0, read_cycles: 100.0, written: 0.0, cycles: 200.0 },
        Streaming { read: 100.0, read_cycles: 100.0, written: 0.0, cycles: 200.0 },
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
    fn what_is_gathered_slowly_comes_slowly() {
        // 100 bytes in 300 cycles: 190 of them behind the computation of the first, and again of the second.
        let slow = LINE.map(|one| Streaming { read_cycles: 300.0, ..one });
        assert!(is_near(exposed(&link(100.0), &slow, 1), 310.0 + 10.0 + 110.0));
    }

    #[test]
    fn what_is_written_last_leaves_last() {
        let line = [Streaming { read: 0.0, read_cycles: 0.0, written: 40.0, cycles: 30.0 }];
        // 20 of 40 bytes leave behind each of the later runs, and the buffer has no room for more than 40.
        assert!(is_near(exposed(&link(40.0), &line, 2), 20.0 + 40.0));
    }

    #[test]
    fn a_phase_waits_for_its_weights_unless_they_come_ahead() {
        let read = |read: f64, cycles: f64| Streaming { read, read_cycles: read, written: 0.0, cycles };
        let phase = PhaseLine {
            head: vec![read(100.0, 0.0)],
            micro: vec![read(10.0, 60.0)],
            times: 200,
            tail: Streaming::default(),
        };
        // 110 cycles for the weights and 20 for the first micro-batch of each phase, or of the first phase alone.
        assert!(is_near(exposed_phases(&link(1000.0), &phase, 5, false), 5.0 * 130.0));
        assert!(is_near(exposed_phases(&link(1000.0), &phase, 5, true), 130.0));
        // Half of the weights have room.
        assert!(is_near(exposed_phases(&link(50.0), &phase, 2, true), 130.0 + 60.0 + 20.0));
        // Without a buffer, all of it.
        assert!(is_near(exposed_phases(&link(0.0), &phase, 2, true), 2.0 * (110.0 + 200.0 * 20.0)));
    }

    proptest! {
        #[test]
        fn the_link_is_never_faster_than_its_rate_and_a_buffer_never_hurts(
            parts in proptest::collection::vec((0.0_f64..200.0, 0.0_f64..200.0, 0.0_f64..400.0), 1..6),
            buffer in 0.0_f64..300.0,
            times in 1_u64..30,
        ) {
            let line: Vec<Streaming> =
                parts.iter().map(|&(read, written, cycles)| Streaming { read, read_cycles: read, written, cycles }).collect();
            let found = exposed(&link(buffer), &line, times);
            let all = |of: fn(&Streaming) -> f64| line.iter().map(of).sum::<f64>() * times as f64;
            prop_assert!(found + all(|one| one.cycles) + 1e-6 >= all(|one| one.read + one.written));
            prop_assert!(found <= exposed(&link(0.0), &line, times) + 1e-6);
        }
    }
}
