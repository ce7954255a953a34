//! Where the stages, buffers and links of a run lie: what the page's grid shows.

use serde::{Deserialize, Serialize};

use crate::arch::{Chip, UnitKind};
use crate::map::{Map, Section};
use crate::sim::{BundleOutcome, Outcome, SectionOutcome, StageOutcome};

/// The grid of one run. Sites are `[column, row]` from the upper left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Which of the page's results it belongs to.
    #[serde(default)]
    pub result: usize,
    /// `kbk` or `fused`.
    pub mode: String,
    /// Columns of sites.
    pub columns: u32,
    /// Rows of sites.
    pub rows: u32,
    /// Banks of a PMU.
    pub banks_per_pmu: u64,
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
    /// Stages in order.
    pub stages: Vec<StageLayout>,
    /// Buffers in order.
    pub buffers: Vec<BufferLayout>,
    /// Flits that leave each site, row by row, in each direction, all lanes together.
    pub links: LinkFlits,
}

/// One stage on its PCUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageLayout {
    /// Its operators, joined by `+`.
    pub name: String,
    /// Its PCUs.
    pub pcus: Vec<[u32; 2]>,
    /// What each of them did.
    pub units: Vec<UnitShares>,
}

/// Shares of the section's time, launch included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitShares {
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
    /// Column, row and banks of each PMU it lies in.
    pub parts: Vec<[u64; 3]>,
}

/// Flits that leave each site.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFlits {
    /// To the right.
    pub east: Vec<u64>,
    /// To the left.
    pub west: Vec<u64>,
    /// Downwards.
    pub south: Vec<u64>,
    /// Upwards.
    pub north: Vec<u64>,
}

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
            kinds: chip.grid.units.iter().map(kind).collect(),
            sections: map.sections.iter().zip(&outcome.sections).map(|(s, ran)| section_layout(map, s, ran)).collect(),
        }
    }
}

fn section_layout(map: &Map, section: &Section, ran: &SectionOutcome) -> SectionLayout {
    let columns = map.arch.columns as usize;
    let sites = columns * map.arch.rows as usize;
    let stages = section.stages.iter().enumerate().map(|(s, stage)| StageLayout {
        name: stage.operators.join("+"),
        pcus: stage.pcus.clone(),
        units: ran.stages.get(s).map_or_else(Vec::new, |outcome| units(outcome, stage.pcus.len(), ran.cycles)),
    });
    let buffers = section.buffers.iter().map(|buffer| BufferLayout {
        role: buffer.role.to_owned(),
        tensor: buffer.tensor.clone(),
        stage: buffer.stage,
        parts: buffer
            .pieces
            .iter()
            .flatten()
            .map(|part| [u64::from(part.pmu[0]), u64::from(part.pmu[1]), part.banks])
            .collect(),
    });
    let mut links = LinkFlits::default();
    for list in [&mut links.east, &mut links.west, &mut links.south, &mut links.north] {
        list.resize(sites, 0);
    }
    for link in &section.links {
        let list = match link.direction {
            "east" => &mut links.east,
            "west" => &mut links.west,
            "south" => &mut links.south,
            _ => &mut links.north,
        };
        list[link.from[1] as usize * columns + link.from[0] as usize] += link.flits;
    }
    SectionLayout { name: section.name.clone(), stages: stages.collect(), buffers: buffers.collect(), links }
}

/// What each PCU of a stage did. The PCUs of a bundle stand together and work in lockstep.
fn units(stage: &StageOutcome, pcus: usize, cycles: u64) -> Vec<UnitShares> {
    // Four digits are enough for a colour.
    let share = |of: f64| (of / cycles.max(1) as f64 * 1e4).round() / 1e4;
    if stage.bundles.is_empty() || !pcus.is_multiple_of(stage.bundles.len()) {
        let busy = share(stage.mean_cycles);
        return vec![UnitShares { busy, stalled_on_input: None, stalled_on_output: None }; pcus];
    }
    let of_bundle = |bundle: &BundleOutcome| UnitShares {
        busy: share(bundle.busy_cycles as f64),
        stalled_on_input: Some(share(bundle.starved_cycles as f64)),
        stalled_on_output: Some(share(bundle.stalled_cycles as f64)),
    };
    let wide = pcus / stage.bundles.len();
    stage.bundles.iter().map(of_bundle).flat_map(|unit| std::iter::repeat_n(unit, wide)).collect()
}
