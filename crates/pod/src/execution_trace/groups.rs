//! The groups of chips whose collectives traces name.

use super::super::context;
use super::super::experts;
use super::super::parallel::Job;
use super::super::sharded::has_tied_table;

/// What a group does together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Shares the matrices of layers.
    Tensor,
    /// Has the same weights.
    Replicas,
    /// The first and the last stage, which both have the table of tokens.
    Table,
    /// Shares the tokens of a sequence.
    Context,
    /// Shares the experts of a layer out.
    Experts,
    /// Has the same experts.
    Holders,
}

/// How many roles there are.
const ROLES: usize = 6;

/// All groups, and those of each chip.
#[derive(Debug)]
pub(super) struct Groups {
    /// The chips of each, in order.
    pub list: Vec<Vec<u64>>,
    /// By chip and role.
    of_chip: Vec<[Option<usize>; ROLES]>,
}

impl Groups {
    pub(super) fn new(job: &Job) -> Self {
        let p = &job.parallel;
        let mut all = Self { list: Vec::new(), of_chip: vec![[None; ROLES]; p.chips() as usize] };
        let replicas = p.replicas();
        for stage in 0..p.pp {
            let of = |replica: u64| (0..p.tp).map(|rank| p.chip(stage, replica, rank)).collect();
            all.add(Role::Tensor, (0..replicas).map(of));
        }
        for stage in 0..p.pp {
            let of = |rank: u64| (0..replicas).map(|replica| p.chip(stage, replica, rank)).collect();
            all.add(Role::Replicas, (0..p.tp).map(of));
        }
        if has_tied_table(job) {
            for replica in 0..replicas {
                let of = |rank: u64| vec![p.chip(0, replica, rank), p.chip(p.pp - 1, replica, rank)];
                all.add(Role::Table, (0..p.tp).map(of));
            }
        }
        for stage in (0..p.pp).filter(|_| p.cp > 1) {
            all.add(Role::Context, context::groups(p, stage));
        }
        let places = (0..p.pp).flat_map(|stage| (0..p.tp).map(move |rank| (stage, rank)));
        for place in places.filter(|_| job.experts().is_some()) {
            all.add(Role::Experts, experts::groups(p, place.0, place.1, false).into_iter());
            all.add(Role::Holders, experts::groups(p, place.0, place.1, true).into_iter());
        }
        all
    }

    /// The group of a chip; `None` if it has none of this role.
    pub(super) fn of(&self, chip: u64, role: Role) -> Option<usize> {
        self.of_chip[chip as usize][role as usize]
    }

    /// Adds groups, but for those of one chip that nothing names.
    fn add(&mut self, role: Role, groups: impl Iterator<Item = Vec<u64>>) {
        let is_optional = matches!(role, Role::Context | Role::Experts | Role::Holders);
        for group in groups.filter(|group| !is_optional || group.len() > 1) {
            for &chip in &group {
                self.of_chip[chip as usize][role as usize] = Some(self.list.len());
            }
            self.list.push(group);
        }
    }
}
