//! Which servers have something to look at, and when: a timing wheel (Varghese and Lauck 1987) of bit sets.
//!
//! Times are asked for in rising order, and no entry is skipped: a cycle's servers come out in the order of their numbers,
//! each once. What is more than a turn of the wheel ahead waits in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cycles of a turn of the wheel.
const TURN: u64 = 64;

/// Servers by the cycle in which they are due.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Words of a bit set.
    words: usize,
    /// A bit set for each cycle of the turn.
    sets: Vec<u64>,
    /// Which of them have a bit.
    used: u64,
    far: BinaryHeap<Reverse<(u64, u32)>>,
    now: u64,
    /// Word of the present cycle's set at hand.
    word: usize,
}

impl Agenda {
    /// An empty agenda of so many servers.
    pub(super) fn new(servers: usize) -> Self {
        let words = servers.div_ceil(64);
        Self { words, sets: vec![0; words * TURN as usize], ..Self::default() }
    }

    /// A server is due in a cycle, at once if that has passed.
    pub(super) fn add(&mut self, server: u32, at: u64) {
        let at = at.max(self.now);
        if at - self.now >= TURN {
            self.far.push(Reverse((at, server)));
            return;
        }
        let turn = at % TURN;
        self.used |= 1 << turn;
        self.sets[turn as usize * self.words + server as usize / 64] |= 1 << (server % 64);
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
        (self.now, self.word) = (now, 0);
        while let Some(&Reverse((at, server))) = self.far.peek().filter(|entry| entry.0.0 < now + TURN) {
            self.far.pop();
            self.add(server, at);
        }
    }

    /// Another server of this cycle, the least number first; at the end, those that came behind their turn are left for
    /// the next cycle.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let turn = (self.now % TURN) as usize;
        if self.used & (1 << turn) == 0 {
            return None;
        }
        let set = turn * self.words;
        while self.word < self.words {
            let bits = &mut self.sets[set + self.word];
            if *bits != 0 {
                let bit = bits.trailing_zeros();
                *bits &= *bits - 1;
                return Some(self.word as u32 * 64 + bit);
            }
            self.word += 1;
        }
        self.used &= !(1 << turn);
        self.now += 1;
        for word in 0..self.words {
            let mut bits = std::mem::take(&mut self.sets[set + word]);
            while bits != 0 {
                self.add(word as u32 * 64 + bits.trailing_zeros(), self.now);
                bits &= bits - 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(agenda: &mut Agenda, now: u64) -> Vec<u32> {
        agenda.begin(now);
        std::iter::from_fn(|| agenda.pop()).collect()
    }

    #[test]
    fn servers_come_in_their_cycle_in_order_and_once() {
        let mut agenda = Agenda::new(200);
        for (server, at) in [(150, 3), (7, 3), (7, 3), (64, 0), (9, 500), (10, 67)] {
            agenda.add(server, at);
        }
        assert_eq!((agenda.next(), all(&mut agenda, 0)), (Some(0), vec![64]));
        assert_eq!((agenda.next(), all(&mut agenda, 3)), (Some(3), vec![7, 150]));
        assert_eq!((agenda.next(), all(&mut agenda, 67)), (Some(67), vec![10]));
        assert_eq!((agenda.next(), all(&mut agenda, 500)), (Some(500), vec![9]));
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn who_comes_behind_its_turn_is_left_for_the_next_cycle() {
        let mut agenda = Agenda::new(3);
        agenda.add(1, 5);
        agenda.begin(5);
        assert_eq!(agenda.pop(), Some(1));
        agenda.add(2, 5);
        agenda.add(0, 4);
        assert_eq!((agenda.pop(), agenda.pop()), (Some(0), Some(2)));
        assert_eq!(agenda.pop(), None);
        agenda.add(1, 5);
        assert_eq!((agenda.next(), all(&mut agenda, 6)), (Some(6), vec![1]));
    }
}
