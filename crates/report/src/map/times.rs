//! What a run adds to a map: how units, ports and memory spent its time.

use std::collections::BTreeMap;

use rdusim_base::index::Id;
use rdusim_graph::arch::Chip;
use rdusim_outcome::{GroupOutcome, Outcome, SectionOutcome, StageOutcome};
use rdusim_program::{self as program, Configuration, Fabric};

use super::entries::{Map, RunEntry, Section, Site, StageTime};

/// Adds to the map of `configuration` how its sections spent the run that `outcome` tells of.
pub fn tell_times(map: &mut Map, chip: &Chip, configuration: &Configuration, outcome: &Outcome) {
    let fabric = Fabric::new(chip);
    let sections = map.sections.iter_mut().zip(&configuration.sections);
    for ((section, configured), ran) in sections.zip(&outcome.sections) {
        let share = |cycles: f64| cycles / ran.cycles.max(1) as f64;
        let mut units = BTreeMap::new();
        for (stage, spent) in section.stages.iter_mut().zip(&ran.stages) {
            // Cycles and counts are those of all repetitions.
            let mean = |of: fn(&GroupOutcome) -> u64| {
                let sum: u64 = spent.groups.iter().map(of).sum();
                (!spent.groups.is_empty()).then(|| share(sum as f64 / spent.groups.len() as f64))
            };
            let time = StageTime {
                busy: share(spent.mean_cycles),
                starved: mean(|group| group.starved_cycles),
                stalled: mean(|group| group.stalled_cycles),
            };
            stage.time = Some(time);
            let each = stage.pcus.len() / spent.groups.len().max(1);
            for (index, &site) in stage.pcus.iter().enumerate() {
                units.insert(site, of_group(spent, index / each.max(1), &share).unwrap_or(time));
            }
        }
        section.run = Some(run(chip, &fabric, section, configured, ran, units));
    }
}

/// How a lockstep group of a stage spent the run; `None` where nothing waits.
fn of_group(spent: &StageOutcome, group: usize, share: &impl Fn(f64) -> f64) -> Option<StageTime> {
    let group = spent.groups.get(group)?;
    Some(StageTime {
        busy: share(group.busy_cycles as f64),
        starved: Some(share(group.starved_cycles as f64)),
        stalled: Some(share(group.stalled_cycles as f64)),
    })
}

fn run(
    chip: &Chip,
    fabric: &Fabric,
    section: &Section,
    configured: &program::Section,
    ran: &SectionOutcome,
    units: BTreeMap<Site, StageTime>,
) -> RunEntry {
    let share = |cycles: u64| cycles as f64 / ran.cycles.max(1) as f64;
    let mut busy: Vec<(String, f64)> =
        ran.busy.tiers.iter().map(|(tier, cycles)| (tier.clone(), share(*cycles))).collect();
    let kinds = [
        ("ag", ran.busy.ag),
        ("link", ran.busy.link),
        ("pcu_port", ran.busy.pcu_port),
        ("pmu_port", ran.busy.pmu_port),
    ];
    busy.extend(kinds.map(|(kind, cycles)| (kind.to_owned(), share(cycles))));
    // Flits are those of one repetition, cycles those of all.
    let repeat = ran.repeat.max(1);
    let flits: BTreeMap<u32, u64> = ran.links.iter().map(|load| (load.resource, load.flits)).collect();
    let mut ports = BTreeMap::new();
    for part in configured.buffers.iter().flat_map(|buffer| &buffer.pieces).flat_map(|piece| &piece.parts) {
        let at = chip.grid.pmus[part.pmu.index()];
        let reads = (0..chip.pmu.read_ports).map(|port| fabric.pmu_read(part.pmu, port));
        let writes = (0..chip.pmu.write_ports).map(|port| fabric.pmu_write(part.pmu, port));
        let once = |port: u32| flits.get(&port).copied().unwrap_or(0) * fabric.cycles_per_flit(port);
        let cycles = |port: u32| once(port).saturating_mul(repeat);
        ports.entry([at.x, at.y]).or_insert_with(|| share(reads.chain(writes).map(cycles).max().unwrap_or(0)));
    }
    debug_assert_eq!(section.stages.len(), ran.stages.len());
    RunEntry {
        cycles: ran.cycles / repeat,
        launch_cycles: ran.launch_cycles / repeat,
        bound_by: ran.bound_by.to_string(),
        busy,
        units,
        ports,
    }
}
