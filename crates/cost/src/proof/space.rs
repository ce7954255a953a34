//! The whole search space of a graph in a mode: its groups, their sections, and the least cycles of all partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bound::lattice::{Group, Partitions};
use crate::bound::nests::{ANY, NestBox};
use crate::bound::path::Length;
use crate::bound::section::{Floor, SectionFloor, share};
use crate::bound::stage::{MaskFloors, StageFloor};
use crate::bound::traffic;
use crate::cost::compulsory_bytes;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, OperatorKind, Workload, kernels_with_epilogues};
use rdusim_program::{Nest, SectionGraph, fingerprint, gradient_of, is_whole_block, tensor_tiers};

use super::certificate::{Certificate, GroupEntry, Leaf, Mapped, NestEntry, SectionEntry, gap, names};

/// Multipliers that are tried: sections give their idle memory away if they take at most so many thousandths longer than what
/// memory moves.
const GIVES_PERMILLE: [u64; 5] = [5, 20, 60, 200, u64::MAX];

/// Floors of sections of one graph on one chip, each worked out once: a section of several modes has the same in all of them.
#[derive(Debug)]
pub(super) struct Floors<'a> {
    pub(super) chip: &'a Chip,
    pub(super) workload: &'a Workload,
    /// Where each tensor lies.
    tiers: Vec<TierId>,
    masks: MaskFloors,
    known: BTreeMap<Vec<OperatorId>, Option<Arc<SectionFloor>>>,
}

impl<'a> Floors<'a> {
    /// `None` where a tensor fits no tier of the chip.
    pub(super) fn new(chip: &'a Chip, workload: &'a Workload) -> Option<Self> {
        let tiers = tensor_tiers(chip, workload).ok()?;
        Some(Self { chip, workload, tiers, masks: MaskFloors::default(), known: BTreeMap::new() })
    }

    /// The floor of a section with these operators; `None` if they cannot share one, or no nest of theirs is possible.
    pub(super) fn of(&mut self, operators: &[OperatorId]) -> Option<Arc<SectionFloor>> {
        if let Some(known) = self.known.get(operators) {
            return known.clone();
        }
        let Self { chip, workload, tiers, masks, .. } = self;
        let floor = SectionFloor::new(chip, workload, tiers, masks, operators);
        let floor = floor.filter(|floor| floor.least().is_some()).map(Arc::new);
        self.known.insert(operators.to_vec(), floor.clone());
        floor
    }
}

/// A certificate of a mapping. A tensor that fits no tier has none: it is `None`.
pub fn certify(chip: &Chip, workload: &Workload, mode: Mode, mapped: &[Mapped]) -> Option<Certificate> {
    let mut floors = Floors::new(chip, workload)?;
    let mut groups = Vec::new();
    for group in groups_of(workload, mode) {
        groups.push(Space::new(&mut floors, group, mode).entry(&floors));
    }
    let sections = mapped.iter().map(|section| SectionEntry {
        operators: names(workload, &section.operators),
        cycles: section.cycles,
        nest: NestEntry::from(&section.nest),
    });
    let cycles = mapped.iter().map(|section| section.cycles).sum();
    let least_cycles = groups.iter().map(|group| group.least_cycles).fold(0, u64::saturating_add);
    Some(Certificate {
        mode: mode.name().to_owned(),
        chip: fingerprint::of_chip(chip),
        workload: fingerprint::of_workload(workload),
        cycles,
        sections: sections.collect(),
        groups,
        least_cycles,
        gap: gap(cycles, least_cycles),
    })
}

/// Of each of some modes, cycles that no mapping beats: as a certificate has them. `None` where a tensor fits no tier.
pub fn least_cycles(chip: &Chip, workload: &Workload, modes: &[Mode]) -> Option<Vec<u64>> {
    let mut floors = Floors::new(chip, workload)?;
    let mut all = Vec::with_capacity(modes.len());
    for &mode in modes {
        let mut least = 0u64;
        for group in groups_of(workload, mode) {
            let space = Space::new(&mut floors, group, mode);
            least = least.saturating_add(space.best(&floors).cycles);
        }
        all.push(least);
    }
    Some(all)
}

/// Of each of some modes, bytes off chip that no mapping moves less of; `None` where a tensor fits no tier, or a mode has no mapping.
pub fn least_bytes(chip: &Chip, workload: &Workload, modes: &[Mode]) -> Vec<Option<u64>> {
    let Ok(tiers) = tensor_tiers(chip, workload) else { return vec![None; modes.len()] };
    let mut masks = MaskFloors::default();
    let mut known: BTreeMap<Vec<OperatorId>, Option<u64>> = BTreeMap::new();
    let mut of_group = |group: &Group, mode: Mode| {
        let partitions = match mode {
            Mode::Fused => group.partitions(workload),
            Mode::Kbk | Mode::Epilogue => Some(Partitions::of_kernel(&group.operators)),
        };
        let Some(partitions) = partitions else {
            let moved = compulsory_bytes(chip, workload, &tiers, &group.operators, 1);
            return Some(moved.into_iter().fold(0, u64::saturating_add));
        };
        let of_section = |operators: &Vec<OperatorId>| {
            let least = || traffic::least_bytes(chip, workload, &tiers, &mut masks, operators);
            *known.entry(operators.clone()).or_insert_with(least)
        };
        let lengths = partitions.sections.iter().map(of_section);
        let lengths: Vec<Option<Length>> = lengths.map(|bytes| bytes.map(Length::of)).collect();
        Some(partitions.shortest(&lengths, 1)).filter(|&bytes| bytes < u64::MAX)
    };
    let mut of_mode = |&mode: &Mode| {
        let mut sum = 0u64;
        for group in groups_of(workload, mode) {
            let bytes = of_group(&group, mode)?.saturating_mul(group.repeat) / group.every;
            sum = sum.saturating_add(bytes);
        }
        Some(sum)
    };
    modes.iter().map(&mut of_mode).collect()
}

/// Cycles, launch excluded, that no mapping of a section beats whose loop nest is in the class of `nest`; `None` if the
/// operators cannot share a section, or no nest of that class is possible.
pub fn floor_of(chip: &Chip, workload: &Workload, operators: &[OperatorId], nest: &Nest) -> Option<u64> {
    let tiers = tensor_tiers(chip, workload).ok()?;
    let floor = SectionFloor::new(chip, workload, &tiers, &mut MaskFloors::default(), operators)?;
    let (_, of_class) = floor.boxes.iter().find(|(of, _): &&(NestBox, _)| of.contains(nest.into()))?;
    of_class.map(|floor| floor.alone)
}

/// The groups of a graph in a mode: operators that may share sections.
pub(super) fn groups_of(workload: &Workload, mode: Mode) -> Vec<Group> {
    let kernel = |operators: Vec<OperatorId>| {
        let of = &workload.operators[operators[0]];
        Group { repeat: of.repeat, every: of.every, operators }
    };
    match mode {
        Mode::Kbk => workload.operators.ids().map(|op| kernel(vec![op])).collect(),
        Mode::Epilogue => kernels_with_epilogues(workload).into_iter().map(kernel).collect(),
        Mode::Fused => Group::all(workload),
    }
}

/// The least cycles of a group that are found with any multiplier, and the multiplier.
struct Best {
    cycles: u64,
    gives_permille: Option<u64>,
}

/// The sections and partitions of a group.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) group: Group,
    mode: Mode,
    /// Without, the group as a whole.
    partitions: Option<Partitions>,
    /// Of every section, by its operators.
    pub(super) sections: Vec<(Vec<OperatorId>, Arc<SectionFloor>)>,
    /// Of the partitions' sections, which of `sections`.
    floors: Vec<Option<usize>>,
}

impl Space {
    pub(super) fn new(of: &mut Floors<'_>, group: Group, mode: Mode) -> Self {
        let partitions = match mode {
            Mode::Fused => group.partitions(of.workload),
            Mode::Kbk | Mode::Epilogue => Some(Partitions::of_kernel(&group.operators)),
        };
        let (mut sections, mut floors) = (Vec::new(), Vec::new());
        for operators in partitions.iter().flat_map(|partitions| &partitions.sections) {
            floors.push(of.of(operators).map(|floor| {
                sections.push((operators.clone(), floor));
                sections.len() - 1
            }));
        }
        Self { group, mode, partitions, sections, floors }
    }

    /// Whether partitions are bounded, and not the group as a whole.
    pub(super) fn is_by_sections(&self) -> bool {
        self.partitions.is_some()
    }

    /// The greatest lower bound that a multiplier gives.
    fn best(&self, floors: &Floors<'_>) -> Best {
        let least: Vec<Option<Floor>> = self.sections.iter().map(|(_, floor)| floor.least()).collect();
        let mut best = Best { cycles: self.least(floors, &least, None), gives_permille: None };
        if self.may_give(floors.chip) {
            for permille in GIVES_PERMILLE {
                let cycles = self.least(floors, &least, Some(permille));
                if cycles > best.cycles {
                    best = Best { cycles, gives_permille: Some(permille) };
                }
            }
        }
        best
    }

    /// As a certificate has it, with the multiplier that serves best.
    fn entry(&self, floors: &Floors<'_>) -> GroupEntry {
        let leaf = |(operators, floor): &(Vec<OperatorId>, Arc<SectionFloor>)| {
            let boxes = floor.boxes.iter().filter_map(|(of, floor)| Some((of, (*floor)?)));
            Leaf {
                operators: self.places(operators),
                boxes: boxes.map(|(of, floor)| (of.name(), [floor.alone, floor.prefetched])).collect(),
            }
        };
        let best = self.best(floors);
        GroupEntry {
            operators: names(floors.workload, &self.group.operators),
            by_sections: self.is_by_sections(),
            gives_permille: best.gives_permille,
            leaves: self.sections.iter().map(leaf).collect(),
            least_cycles: best.cycles,
        }
    }

    /// Places of operators in the group's list.
    pub(super) fn places(&self, operators: &[OperatorId]) -> Vec<usize> {
        operators.iter().filter_map(|op| self.group.operators.iter().position(|other| other == op)).collect()
    }

    /// Whether idle memory may be given away: the time that loading sooner saves must be no longer than what it takes of the one
    /// tier that holds all weights.
    pub(super) fn may_give(&self, chip: &Chip) -> bool {
        self.mode == Mode::Fused
            && self.is_by_sections()
            && self.weight_tier().is_some_and(|tier| {
                let of_ags = chip.grid.ags() * chip.ag_bytes_per_cycle.min(chip.network.flit_bytes);
                of_ags as f64 >= chip.tier_rate(tier).bytes_per_cycle()
            })
    }

    fn weight_tier(&self) -> Option<TierId> {
        let mut tiers = self.sections.iter().flat_map(|(_, floor)| &floor.weight_tiers);
        let first = *tiers.next()?;
        tiers.all(|&tier| tier == first).then_some(first)
    }

    /// Cycles that no partition beats, where no section beats `least`.
    pub(super) fn least(&self, of: &Floors<'_>, least: &[Option<Floor>], gives: Option<u64>) -> u64 {
        let Some(partitions) = &self.partitions else { return self.least_as_a_whole(of) / self.group.every };
        let lengths: Vec<Option<Length>> = self
            .floors
            .iter()
            .map(|&at| {
                let (operators, floor) = &self.sections[at?];
                let Floor { alone, prefetched } = least[at?]?;
                let total = |run: u64| self.with_launches(of, operators, run);
                let (alone, prefetched) = if self.mode == Mode::Fused { (alone, prefetched) } else { (alone, alone) };
                let memory = self.weight_tier().and_then(|tier| floor.memory.get(tier.index()));
                let given = gives.zip(memory).filter(|(permille, (memory, _))| {
                    let most = u128::from(*memory) * (1000 + u128::from(*permille));
                    u128::from(alone) * 1000 <= most || *permille == u64::MAX
                });
                let given = given.map(|(_, &(all, without))| (total(all.min(alone)), total(without.min(prefetched))));
                Some(Length { alone: total(alone), prefetched: total(prefetched), given })
            })
            .collect();
        partitions.shortest(&lengths, self.group.repeat) / self.group.every
    }

    /// All repetitions of a section, launches included, and all steps that share them.
    pub(super) fn with_launches(&self, of: &Floors<'_>, operators: &[OperatorId], run: u64) -> u64 {
        let (launch, repeat) = (of.chip.launch_cycles(), self.group.repeat);
        let is_looped = self.mode == Mode::Fused && is_whole_block(of.workload, operators);
        let launches = if is_looped { 1 } else { repeat };
        launch.saturating_mul(launches).saturating_add(run.saturating_mul(repeat))
    }

    /// Cycles of the group whatever its sections: a launch, all arithmetic on all PCUs, and what enters and leaves the group.
    fn least_as_a_whole(&self, of: &Floors<'_>) -> u64 {
        let Floors { chip, workload, tiers, .. } = of;
        let operators = &self.group.operators;
        let mut masks = MaskFloors::default();
        let mut work = |&op: &OperatorId| {
            let operator = &workload.operators[op];
            let dtype = workload.tensors[operator.inputs[0]].dtype;
            let at_peak = workload.stored_macs(op) / chip.pcu_macs_per_cycle(dtype).unwrap_or(u64::MAX);
            // What a GEMM's tail does, or a sum over rows, is left out.
            if operator.kind.folds_into_a_tail()
                || gradient_of(workload, op).is_some()
                || (operator.kind == OperatorKind::Gemm && operator.options.transpose_a)
            {
                return at_peak;
            }
            let floor = SectionGraph::new(workload, &[op], false).and_then(|graph| {
                let stage = graph.stages.ids().next()?;
                Some(StageFloor::new(chip, &graph, stage, &mut masks)?.work(ANY, None))
            });
            floor.unwrap_or(at_peak)
        };
        let work: u64 = operators.iter().map(&mut work).sum();
        let bytes = compulsory_bytes(chip, workload, tiers, operators, 1);
        let moved = bytes.iter().enumerate().map(|(t, &bytes)| {
            let rate = chip.tier_rate(TierId::from_index(t));
            share(bytes, (rate.cycles, rate.bytes))
        });
        let run = moved.max().unwrap_or(0).max(work.div_ceil(chip.pcus()));
        // Steps beside others may loop by themselves, and leave a whole block behind.
        let has_steps = operators.iter().any(|&op| gradient_of(workload, op).is_some());
        let launches = if has_steps || is_whole_block(workload, operators) { 1 } else { self.group.repeat };
        let launch = chip.launch_cycles().saturating_mul(launches);
        launch.saturating_add(run.saturating_mul(self.group.repeat))
    }
}
