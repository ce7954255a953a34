//! Which member of a group is the furthest behind: a winner tree (Knuth, The Art of Computer Programming 3, 5.4.1).
//!
//! The root names the member with the least key, also after a member's key has changed and
//! [`update`](WinnerTree::update) was told so. An update costs the logarithm of the members at most, and mostly one match.

use std::cmp::Ordering;

/// No member: it loses every match.
const NOBODY: u32 = u32::MAX;

/// Members `0..n`, of which the least is known.
#[derive(Debug)]
pub(super) struct WinnerTree {
    /// Node 1 is the root, those of node n are 2n and 2n + 1; the second half are the members.
    nodes: Vec<u32>,
}

impl WinnerTree {
    /// A tree of so many members, at least one.
    pub(super) fn new(members: usize, order: impl Fn(usize, usize) -> Ordering) -> Self {
        let leaves = members.next_power_of_two();
        let mut tree = Self { nodes: vec![NOBODY; 2 * leaves] };
        for (member, node) in tree.nodes[leaves..leaves + members].iter_mut().enumerate() {
            *node = member as u32;
        }
        for node in (1..leaves).rev() {
            tree.nodes[node] = tree.winner_of(node, &order);
        }
        tree
    }

    /// The member with the least key.
    #[inline]
    pub(super) fn least(&self) -> usize {
        self.nodes[1] as usize
    }

    /// The key of `member` has changed: whether the least key may have.
    #[inline]
    pub(super) fn update(&mut self, member: usize, order: impl Fn(usize, usize) -> Ordering) -> bool {
        let leaf = self.nodes.len() / 2 + member;
        let mut node = leaf / 2;
        while node > 0 {
            let winner = self.winner_of(node, &order);
            if winner == self.nodes[node] && winner != member as u32 {
                return false;
            }
            self.nodes[node] = winner;
            node /= 2;
        }
        true
    }

    /// Who wins the match at a node.
    #[inline]
    fn winner_of(&self, node: usize, order: &impl Fn(usize, usize) -> Ordering) -> u32 {
        let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        let left_wins = right == NOBODY || (left != NOBODY && order(left as usize, right as usize).is_le());
        if left_wins { left } else { right }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_least_after_every_change() {
        let mut keys = [3, 1, 4, 1, 5];
        let mut tree = WinnerTree::new(keys.len(), |a, b| keys[a].cmp(&keys[b]));
        for (member, key) in [(1, 2), (3, 6), (4, 0), (4, 9), (0, 2), (1, 7), (0, 8), (2, 8)] {
            let before = keys.iter().min().copied();
            keys[member] = key;
            let changed = tree.update(member, |a, b| keys[a].cmp(&keys[b]));
            let least = keys.iter().min().copied();
            assert_eq!(Some(keys[tree.least()]), least);
            assert!(changed || before == least);
        }
        let alone = WinnerTree::new(1, |_, _| Ordering::Equal);
        assert_eq!(alone.least(), 0);
    }
}
