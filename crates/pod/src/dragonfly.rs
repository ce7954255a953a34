//! Minimal routes of a dragonfly: routers of a group are joined pairwise, groups by links of their routers.
//!
//! A route takes at most one link between groups and at most one link between routers in each of the two groups; the links
//! that join two groups have equal parts of what goes between them (Kim, Dally, Scott and Abts, *Technology-Driven,
//! Highly-Scalable Dragonfly Topology*, 2008: minimal routing).

/// Sizes of a dragonfly; its places are numbered router by router, group by group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dragonfly {
    /// Members of a router.
    pub members: u64,
    /// Routers of a group.
    pub routers: u64,
    /// Groups.
    pub groups: u64,
    /// Links of a router to each other router of its group.
    pub local_links: u64,
    /// Links of a router to other groups; those of a group are equally many to each other group.
    pub global_links: u64,
}

/// A link of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Channel {
    /// All links to a router of the same group.
    Local(u64),
    /// One of its links to other groups.
    Global(u64),
}

impl Dragonfly {
    /// Links between two groups.
    pub fn links_between(&self) -> u64 {
        self.routers * self.global_links / (self.groups - 1).max(1)
    }

    /// The routers' links that bytes from one member to another take: router, which of its links, bytes.
    pub(super) fn route(&self, from: u64, to: u64, bytes: u64, mut hop: impl FnMut(u64, Channel, u64)) {
        let (a, b) = (from / self.members, to / self.members);
        let (group_a, group_b) = (a / self.routers, b / self.routers);
        let local = |from: u64, to: u64, bytes: u64, hop: &mut dyn FnMut(u64, Channel, u64)| {
            if from != to {
                hop(from, Channel::Local(to % self.routers), bytes);
            }
        };
        if group_a == group_b {
            return local(a, b, bytes, &mut hop);
        }
        let links = self.links_between();
        let away = (group_b + self.groups - group_a) % self.groups;
        let until = |link: u64| (u128::from(bytes) * u128::from(link) / u128::from(links)) as u64;
        for link in 0..links {
            let part = until(link + 1) - until(link);
            if part == 0 {
                continue;
            }
            let (leaves, port) = self.end_of(group_a, away, link);
            let (enters, _) = self.end_of(group_b, self.groups - away, link);
            local(a, leaves, part, &mut hop);
            hop(leaves, Channel::Global(port), part);
            local(enters, b, part, &mut hop);
        }
    }

    /// The router and its port of one of a group's links to the group that is `away` groups further: consecutive groups lie
    /// on consecutive ports.
    fn end_of(&self, group: u64, away: u64, link: u64) -> (u64, u64) {
        let port = link * (self.groups - 1) + away - 1;
        (group * self.routers + port / self.global_links, port % self.global_links)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The example of the paper: 2 members and 2 global links a router, 4 routers a group, 9 groups.
    const KIM: Dragonfly = Dragonfly { members: 2, routers: 4, groups: 9, local_links: 1, global_links: 2 };

    #[test]
    fn a_route_crosses_between_groups_once() {
        assert_eq!(KIM.links_between(), 1);
        let hops = |from: u64, to: u64| {
            let mut list = Vec::new();
            KIM.route(from, to, 10, |router, channel, bytes| list.push((router, channel, bytes)));
            list
        };
        assert_eq!(hops(0, 1), []);
        assert_eq!(hops(0, 7), [(0, Channel::Local(3), 10)]);
        // Group 0's link to group 1 is on its first router, and group 1's to group 0, 8 away, on its last.
        let far = [(1, Channel::Local(0), 10), (0, Channel::Global(0), 10), (7, Channel::Local(0), 10)];
        assert_eq!(hops(2, 8), far);
        for (from, to) in (0..72).flat_map(|from| (0..72).map(move |to| (from, to))) {
            let list = hops(from, to);
            let crosses = list.iter().filter(|hop| matches!(hop.1, Channel::Global(_))).count();
            assert_eq!(crosses, usize::from(from / 8 != to / 8), "{from} {to}");
            assert!(list.len() <= 3);
        }
    }

    #[test]
    fn all_to_all_loads_every_link_between_groups_alike() {
        let doubled = Dragonfly { global_links: 4, ..KIM };
        for of in [KIM, doubled] {
            let mut global: BTreeMap<(u64, Channel), u64> = BTreeMap::new();
            for (from, to) in (0..72).flat_map(|from| (0..72).map(move |to| (from, to))) {
                of.route(from, to, 6, |router, channel, bytes| {
                    if matches!(channel, Channel::Global(_)) {
                        *global.entry((router, channel)).or_default() += bytes;
                    }
                });
            }
            assert_eq!(global.len() as u64, 36 * of.global_links);
            assert!(global.values().all(|&bytes| bytes == 64 * 6 / of.links_between()));
        }
    }
}
