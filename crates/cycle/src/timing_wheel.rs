//! Which servers may have a flit to move, and in which cycle: a timing wheel (Varghese and Lauck 1987) of bit sets.
//!
//! Cycles are visited in rising order, and none in which a server is due is left out. The servers of a cycle come in the
//! order of their numbers, each once. Whatever is more than a turn of the wheel ahead waits in a heap. A second level of
//! bits says which words of a set are not empty, so that a cycle costs what is due in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cycles of a turn of the wheel.
const TURN: u64 = 64;

/// Servers by the cycle in which they are due.
#[derive(Debug, Default)]
pub(super) struct TimingWheel {
    /// Words of a bit set, and of the set of its words that are not empty.
    words: usize,
    tops: usize,
    /// A bit set for each cycle of the turn.
    sets: Vec<u64>,
    /// Of each of them the words that are not empty.
    filled: Vec<u64>,
    /// Which of them have a bit.
    used: u64,
    /// Cycle and server of what is further ahead.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// The present cycle.
    now: u64,
    /// Word of the present cycle's `filled` that comes next.
    top: usize,
}

impl TimingWheel {
    /// An empty wheel of so many servers.
    pub(super) fn new(servers: usize) -> Self {
        let words = servers.div_ceil(64);
        let tops = words.div_ceil(64);
        let empty = |length: usize| vec![0; length * TURN as usize];
        Self { words, tops, sets: empty(words), filled: empty(tops), ..Self::default() }
    }

    /// A server is due in a cycle, at once if that has passed.
    #[inline]
    pub(super) fn add(&mut self, server: u32, at: u64) {
        let at = at.max(self.now);
        if at - self.now >= TURN {
            self.far.push(Reverse((at, server)));
            return;
        }
        let turn = (at % TURN) as usize;
        let word = server as usize / 64;
        self.used |= 1 << turn;
        self.filled[turn * self.tops + word / 64] |= 1 << (word % 64);
        self.sets[turn * self.words + word] |= 1 << (server % 64);
    }

    /// The next cycle in which a server is due.
    pub(super) fn next(&self) -> Option<u64> {
        let near = self.used.rotate_right((self.now % TURN) as u32);
        let near = (near != 0).then(|| self.now + u64::from(near.trailing_zeros()));
        let far = self.far.peek().map(|Reverse((at, _))| *at);
        near.into_iter().chain(far).min()
    }

    /// A cycle begins: none in which a server is due has been left out.
    pub(super) fn begin(&mut self, now: u64) {
        debug_assert!(self.next().is_none_or(|next| next >= now), "cycle {:?} is left out at {now}", self.next());
        (self.now, self.top) = (now, 0);
        while let Some(&Reverse((at, server))) = self.far.peek().filter(|entry| entry.0.0 < now + TURN) {
            self.far.pop();
            self.add(server, at);
        }
    }

    /// Another server of this cycle, the least number first. Servers that are added meanwhile are due in later cycles.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let turn = (self.now % TURN) as usize;
        if self.used & (1 << turn) == 0 {
            return None;
        }
        while self.top < self.tops {
            let filled = &mut self.filled[turn * self.tops + self.top];
            if *filled != 0 {
                let word = self.top * 64 + filled.trailing_zeros() as usize;
                let bits = &mut self.sets[turn * self.words + word];
                let server = word as u32 * 64 + bits.trailing_zeros();
                *bits &= *bits - 1;
                if *bits == 0 {
                    *filled &= *filled - 1;
                }
                return Some(server);
            }
            self.top += 1;
        }
        self.used &= !(1 << turn);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(wheel: &mut TimingWheel, now: u64) -> Vec<u32> {
        wheel.begin(now);
        std::iter::from_fn(|| wheel.pop()).collect()
    }

    #[test]
    fn servers_come_in_their_cycle_in_order_and_once() {
        let mut wheel = TimingWheel::new(200);
        for (server, at) in [(150, 3), (7, 3), (7, 3), (64, 0), (9, 500), (10, 67)] {
            wheel.add(server, at);
        }
        assert_eq!((wheel.next(), all(&mut wheel, 0)), (Some(0), vec![64]));
        assert_eq!((wheel.next(), all(&mut wheel, 3)), (Some(3), vec![7, 150]));
        assert_eq!((wheel.next(), all(&mut wheel, 67)), (Some(67), vec![10]));
        assert_eq!((wheel.next(), all(&mut wheel, 500)), (Some(500), vec![9]));
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn what_is_added_in_a_cycle_comes_in_a_later_one() {
        let mut wheel = TimingWheel::new(70);
        wheel.add(1, 5);
        wheel.begin(5);
        assert_eq!(wheel.pop(), Some(1));
        wheel.add(0, 6);
        wheel.add(69, 5 + TURN);
        assert_eq!(wheel.pop(), None);
        assert_eq!((wheel.next(), all(&mut wheel, 6)), (Some(6), vec![0]));
        assert_eq!((wheel.next(), all(&mut wheel, 69)), (Some(69), vec![69]));
    }
}
