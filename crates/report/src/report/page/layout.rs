//! Where the stages, buffers and links of a run lie: what the page's grid shows.
//!
//! A page holds thousands of units and links, so they are written shortly: a site is one number, units that did the same
//! are counted, and links of equal load are letters.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::map::{Map, RouteEntry, Section};
use rdusim_graph::arch::{Chip, UnitKind};
use rdusim_outcome::{GroupOutcome, Outcome, SectionOutcome, StageOutcome};

/// The grid of one run. A site is `row * columns + column`, counted from the upper left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Which of the page's results it belongs to.
    #[serde(default)]
    pub result: usize,
    /// The mode's name.
    pub mode: String,
    /// Columns of sites.
    pub columns: u32,
    /// Rows of sites.
    pub rows: u32,
    /// Banks of a PMU.
    pub banks_per_pmu: u64,
    /// Parallel links a direction between neighbouring sites.
    pub links_per_direction: u64,
    /// A letter a site, row by row: `C` PCU, `M` PMU, `.` neither.
    pub kinds: String,
    /// Sections in order.
    pub sections: Vec<SectionLayout>,
}

/// One section on the grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionLayout {
    /// Name.
    pub name: String,
    /// Cycles, launch included.
    pub cycles: u64,
    /// Times it runs, which `cycles` counts; links are those of one time.
    pub repeat: u64,
    /// Stages in order.
    pub stages: Vec<StageLayout>,
    /// Buffers in order.
    pub buffers: Vec<BufferLayout>,
    /// Loads that links have, no load first.
    pub loads: Vec<LinkLoads>,
    /// The load of the links that leave each site: of all sites to the east, then west, south and north. Each is an index
    /// into `loads` in digits 0-9, A-Z, a-z, of equally many digits.
    pub links: String,
}

/// One stage on its PCUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageLayout {
    /// Its operators, joined by `+`.
    pub name: String,
    /// Sites of its PCUs.
    pub pcus: Vec<u32>,
    /// What they did, in their order.
    pub units: Vec<UnitShares>,
}

/// What some PCUs did, which is equal for all: shares of the section's time, launch included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitShares {
    /// How many PCUs.
    pub pcus: usize,
    /// Working. Where single units are not known, the stage's mean.
    pub busy: f64,
    /// Waiting for inputs; known at the `event` fidelity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled_on_input: Option<f64>,
    /// Waiting for room in buffers, or for results to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled_on_output: Option<f64>,
}

/// One buffer in its PMUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferLayout {
    /// `operand`, `home`, `weight`, `partial` or `store`.
    pub role: String,
    /// Tensor.
    pub tensor: String,
    /// Index of the stage it serves.
    pub stage: usize,
    /// Site and banks of each PMU it lies in.
    pub parts: Vec<[u64; 2]>,
}

/// What the parallel links between two sites carry one way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkLoads {
    /// Flits over all of them, to three digits.
    pub flits: u64,
    /// Stages whose operands or results they are, by index.
    pub stages: Vec<usize>,
}

/// Digits of indices in `links`.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIRECTIONS: [&str; 4] = ["east", "west", "south", "north"];

impl Layout {
    /// The layout of a run, from the map of its configuration and its outcome.
    pub fn new(chip: &Chip, map: &Map, outcome: &Outcome) -> Self {
        let kind = |unit: &UnitKind| match unit {
            UnitKind::Pcu => 'C',
            UnitKind::Pmu => 'M',
            UnitKind::None => '.',
        };
        Self {
            result: 0,
            mode: map.mode.to_owned(),
            columns: map.arch.columns,
            rows: map.arch.rows,
            banks_per_pmu: map.arch.banks_per_pmu,
            links_per_direction: map.arch.links_per_direction,
            kinds: chip.grid.units.iter().map(kind).collect(),
            sections: map.sections.iter().zip(&outcome.sections).map(|(s, ran)| section_layout(map, s, ran)).collect(),
        }
    }

    /// Checks that every site and every index is one.
    pub(super) fn check(&self) -> Result<(), String> {
        let sites = u64::from(self.columns) * u64::from(self.rows);
        if sites != self.kinds.chars().count() as u64 {
            return Err(format!("`kinds` has another length than {} x {}", self.columns, self.rows));
        }
        self.sections.iter().try_for_each(|section| {
            section.check(sites).map_err(|what| format!("section `{}` names {what}", section.name))
        })
    }
}

impl SectionLayout {
    fn check(&self, sites: u64) -> Result<(), String> {
        let pcus = self.stages.iter().flat_map(|stage| &stage.pcus).map(|&site| u64::from(site));
        let pmus = self.buffers.iter().flat_map(|buffer| &buffer.parts).map(|&[site, _]| site);
        if let Some(site) = pcus.chain(pmus).find(|&site| site >= sites) {
            return Err(format!("the site {site} of {sites}"));
        }
        let of_buffers = self.buffers.iter().map(|buffer| buffer.stage);
        let of_links = self.loads.iter().flat_map(|load| &load.stages).copied();
        if let Some(stage) = of_buffers.chain(of_links).find(|&stage| stage >= self.stages.len()) {
            return Err(format!("the stage {stage} of {}", self.stages.len()));
        }
        let links = 4 * sites as usize;
        let digits = digits(self.loads.len());
        if self.links.len() != links * digits {
            return Err(format!("{} digits of links, expected {links} times {digits}", self.links.len()));
        }
        let index = |code: &[u8]| {
            code.iter().try_fold(0, |sum, digit| Some(sum * 62 + DIGITS.iter().position(|known| known == digit)?))
        };
        let known = |code: &[u8]| index(code).is_some_and(|index| index < self.loads.len());
        match self.links.as_bytes().chunks(digits).find(|code| !known(code)) {
            Some(code) => Err(format!("the link load `{}`", String::from_utf8_lossy(code))),
            None => Ok(()),
        }
    }
}

/// Digits that indices below `count` are written in.
fn digits(count: usize) -> usize {
    let mut digits = 1;
    while 62_usize.saturating_pow(digits) < count {
        digits += 1;
    }
    digits as usize
}

fn section_layout(map: &Map, section: &Section, ran: &SectionOutcome) -> SectionLayout {
    let columns = map.arch.columns;
    let at = |[x, y]: [u32; 2]| y * columns + x;
    let stages = section.stages.iter().enumerate().map(|(s, stage)| StageLayout {
        name: stage.operators.join("+"),
        pcus: stage.pcus.iter().map(|&site| at(site)).collect(),
        units: ran.stages.get(s).map_or_else(Vec::new, |outcome| units(outcome, stage.pcus.len(), ran.cycles)),
    });
    let buffers = section.buffers.iter().map(|buffer| {
        let parts = buffer.pieces.iter().flatten().map(|part| [u64::from(at(part.pmu)), part.banks]);
        let (role, tensor) = (buffer.role.to_owned(), buffer.tensor.clone());
        BufferLayout { role, tensor, stage: buffer.stage, parts: parts.collect() }
    });
    let sites = columns as usize * map.arch.rows as usize;
    let links = link_loads(section, sites, &|x, y| at([x, y]) as usize);
    let mut loads: IndexMap<LinkLoads, usize> = IndexMap::from([(LinkLoads::default(), 0)]);
    let codes: Vec<usize> = links
        .into_iter()
        .map(|load| {
            let next = loads.len();
            *loads.entry(load).or_insert(next)
        })
        .collect();
    let width = digits(loads.len());
    let written = codes
        .into_iter()
        .flat_map(|code| (0..width).rev().map(move |place| char::from(DIGITS[code / 62_usize.pow(place as u32) % 62])));
    SectionLayout {
        name: section.name.clone(),
        cycles: ran.cycles,
        repeat: ran.repeat,
        stages: stages.collect(),
        buffers: buffers.collect(),
        links: written.collect(),
        loads: loads.into_keys().collect(),
    }
}

/// What leaves each of `sites` to the east, then west, south and north.
fn link_loads(section: &Section, sites: usize, at: &dyn Fn(u32, u32) -> usize) -> Vec<LinkLoads> {
    let mut loads = vec![LinkLoads::default(); 4 * sites];
    let place = |direction: &str| DIRECTIONS.iter().position(|&known| known == direction).unwrap_or(0) * sites;
    for link in &section.links {
        loads[place(link.direction) + at(link.from[0], link.from[1])].flits += link.flits;
    }
    for route in &section.routes {
        let Some(stage) = stage_of(section, route) else { continue };
        for &(x, y, direction, _) in &route.links {
            let stages = &mut loads[place(direction) + at(x, y)].stages;
            if let Err(place) = stages.binary_search(&stage) {
                stages.insert(place, stage);
            }
        }
    }
    for load in &mut loads {
        load.flits = rounded(load.flits);
        if load.flits == 0 {
            load.stages.clear();
        }
    }
    loads
}

/// The stage that a flow serves.
fn stage_of(section: &Section, route: &RouteEntry) -> Option<usize> {
    let of_buffer = |buffer: usize| section.buffers.get(buffer).map(|buffer| buffer.stage);
    let of_stream = |stream: usize| {
        let tensor = &section.streams.get(stream)?.tensor;
        section.buffers.iter().find(|buffer| buffer.tensor == *tensor).map(|buffer| buffer.stage)
    };
    route.stage.or_else(|| route.buffer.and_then(of_buffer)).or_else(|| route.stream.and_then(of_stream))
}

/// To three digits, so that many links share a load.
fn rounded(flits: u64) -> u64 {
    let unit = 10_u64.pow(flits.max(1).ilog10().saturating_sub(2));
    (flits + unit / 2) / unit * unit
}

/// What the PCUs of a stage did. The PCUs of a lockstep group stand together and work in lockstep.
fn units(stage: &StageOutcome, pcus: usize, cycles: u64) -> Vec<UnitShares> {
    // Four digits are enough for a colour.
    let share = |of: f64| (of / cycles.max(1) as f64 * 1e4).round() / 1e4;
    if stage.groups.is_empty() || !pcus.is_multiple_of(stage.groups.len()) {
        let busy = share(stage.mean_cycles);
        return vec![UnitShares { pcus, busy, stalled_on_input: None, stalled_on_output: None }];
    }
    let wide = pcus / stage.groups.len();
    let of_group = |group: &GroupOutcome| UnitShares {
        pcus: wide,
        busy: share(group.busy_cycles as f64),
        stalled_on_input: Some(share(group.starved_cycles as f64)),
        stalled_on_output: Some(share(group.stalled_cycles as f64)),
    };
    let mut runs: Vec<UnitShares> = Vec::new();
    for unit in stage.groups.iter().map(of_group) {
        match runs.last_mut() {
            Some(last) if (UnitShares { pcus: wide, ..*last }) == unit => last.pcus += wide,
            _ => runs.push(unit),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_keep_three_digits() {
        assert_eq!([0, 7, 999, 1004, 1005, 123_456].map(rounded), [0, 7, 999, 1000, 1010, 123_000]);
    }

    #[test]
    fn indices_have_as_many_digits_as_they_need() {
        assert_eq!([1, 62, 63, 3844, 3845].map(digits), [1, 1, 2, 2, 3]);
    }

    fn small() -> Layout {
        let section = SectionLayout {
            name: "s".to_owned(),
            cycles: 10,
            repeat: 1,
            stages: vec![StageLayout { name: "a".to_owned(), pcus: vec![0], units: Vec::new() }],
            buffers: vec![BufferLayout { role: "resident".into(), tensor: "x".into(), stage: 0, parts: vec![[1, 2]] }],
            loads: vec![LinkLoads::default(), LinkLoads { flits: 5, stages: vec![0] }],
            links: "01000000".to_owned(),
        };
        Layout {
            result: 0,
            mode: "fused".to_owned(),
            columns: 2,
            rows: 1,
            banks_per_pmu: 16,
            links_per_direction: 2,
            kinds: "CM".to_owned(),
            sections: vec![section],
        }
    }

    #[test]
    fn a_layout_off_the_grid_is_refused() {
        assert_eq!(small().check(), Ok(()));
        let refused = |change: fn(&mut SectionLayout)| {
            let mut layout = small();
            change(&mut layout.sections[0]);
            layout.check().unwrap_err()
        };
        assert!(refused(|s| s.stages[0].pcus[0] = 2).contains("site 2 of 2"));
        assert!(refused(|s| s.buffers[0].parts[0][0] = 9).contains("site 9"));
        assert!(refused(|s| s.buffers[0].stage = 1).contains("stage 1 of 1"));
        assert!(refused(|s| s.links.push('0')).contains("9 digits"));
        assert!(refused(|s| s.links.replace_range(0..1, "2")).contains("load `2`"));
        assert!(refused(|s| s.links.replace_range(0..1, "<")).contains("load `<`"));
        assert!(Layout { columns: 3, ..small() }.check().unwrap_err().contains("3 x 1"));
    }
}
