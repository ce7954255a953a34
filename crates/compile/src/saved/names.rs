//! What units, links and flows are called in a file.

use rdusim_base::index::{Id, IndexVec};
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_graph::workload::{OperatorId, TensorId, Workload};
use rdusim_program::{
    BufferRole, Direction, Fabric, Flow, FlowKind, Port, Resource, ResourceKind, Stage, StageId, StreamId,
};

/// Directions, in the words of a file.
const DIRECTIONS: [(&str, Direction); 4] =
    [("east", Direction::East), ("west", Direction::West), ("south", Direction::South), ("north", Direction::North)];

/// A port, such as `pmu 3,4 read 1`.
pub(super) fn port(chip: &Chip, fabric: &Fabric, resource: Resource) -> String {
    let at = |c: Coordinate| format!("{},{}", c.x, c.y);
    match fabric.port_at(resource) {
        Some(Port::PmuRead(pmu, port)) => format!("pmu {} read {port}", at(chip.grid.pmus[pmu.index()])),
        Some(Port::PmuWrite(pmu, port)) => format!("pmu {} write {port}", at(chip.grid.pmus[pmu.index()])),
        Some(Port::PcuIn(pcu, port)) => format!("pcu {} in {port}", at(chip.grid.pcus[pcu.index()])),
        Some(Port::PcuOut(pcu, port)) => format!("pcu {} out {port}", at(chip.grid.pcus[pcu.index()])),
        Some(Port::Ag(agcu, ag)) => format!("agcu {} generator {ag}", at(chip.grid.agcus[agcu as usize].site)),
        None => String::new(),
    }
}

/// Links as paths: each begins at a site and takes a direction and a lane a hop, such as `3,4 east 0 south 1`. Links
/// that follow each other in the list share a path.
pub(super) fn paths(fabric: &Fabric, links: &[Resource]) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let mut reached = None;
    for &link in links {
        let Some((from, towards, lane)) = fabric.link_at(link) else { continue };
        let word = DIRECTIONS.iter().find(|(_, d)| *d == towards).map_or("east", |(word, _)| *word);
        if reached != Some(from) {
            paths.push(format!("{},{}", from.x, from.y));
        }
        if let Some(path) = paths.last_mut() {
            path.extend([" ", word, " ", &lane.to_string()]);
        }
        reached = step(from, towards);
    }
    paths
}

/// The site across a link, as far as numbers go.
fn step(from: Coordinate, towards: Direction) -> Option<Coordinate> {
    let Coordinate { x, y } = from;
    match towards {
        Direction::East => x.checked_add(1).map(|x| Coordinate { x, y }),
        Direction::West => x.checked_sub(1).map(|x| Coordinate { x, y }),
        Direction::South => y.checked_add(1).map(|y| Coordinate { x, y }),
        Direction::North => y.checked_sub(1).map(|y| Coordinate { x, y }),
    }
}

/// The links of a path such as `3,4 east 0 south 1`; else what was expected.
pub(super) fn path(chip: &Chip, fabric: &Fabric, text: &str) -> Result<Vec<Resource>, String> {
    let shape =
        || "expected a site, then a direction and a lane for every hop, such as `3,4 east 0 south 1`".to_owned();
    let mut words = text.split_whitespace();
    let site = |word: &str| {
        let (x, y) = word.split_once(',')?;
        Some(Coordinate { x: x.parse().ok()?, y: y.parse().ok()? })
    };
    let mut at = words.next().and_then(site);
    let mut links = Vec::new();
    while let Some(word) = words.next() {
        let (_, direction) = DIRECTIONS.iter().find(|(name, _)| *name == word).ok_or_else(shape)?;
        let lane: u32 = words.next().and_then(|word| word.parse().ok()).ok_or_else(shape)?;
        if lane >= fabric.lanes() {
            return Err(format!("expected lanes from 0 to {}", fabric.lanes() - 1));
        }
        let from = at.ok_or_else(shape)?;
        if from.x >= chip.grid.columns || from.y >= chip.grid.rows {
            return Err(format!("expected sites of the {} x {} grid", chip.grid.columns, chip.grid.rows));
        }
        links.push(fabric.link(from, *direction, lane));
        at = step(from, *direction);
    }
    if links.is_empty() { Err(shape()) } else { Ok(links) }
}

/// Source and sinks of a flow's route, and its links.
pub(super) fn parts<'f>(fabric: &Fabric, flow: &'f Flow) -> (Resource, Vec<Resource>, &'f [Resource]) {
    let ports = flow.route.iter().take_while(|&&r| fabric.kind(r) != ResourceKind::Link).count();
    (flow.route[0], flow.route[1..ports].to_vec(), &flow.route[ports..])
}

/// The word for a buffer's purpose.
pub(super) fn role(role: &BufferRole) -> &'static str {
    match role {
        BufferRole::Operand { .. } => "operand",
        BufferRole::Resident { .. } => "resident",
        BufferRole::Weight { .. } => "weight",
        BufferRole::PartialSums { .. } => "partial_sums",
        BufferRole::PartialFifo { .. } => "partial_fifo",
        BufferRole::State { .. } => "state",
        BufferRole::Output { .. } => "output",
    }
}

/// Which of [`ROLES`] a partial-sum FIFO is.
pub(super) const PARTIAL_FIFO: usize = 5;

/// Roles, in the words of a file.
pub(super) const ROLES: [&str; 7] =
    ["operand", "resident", "weight", "partial_sums", "output", "partial_fifo", "state"];

/// The operator a stage is called by.
pub(super) fn stage<'w>(workload: &'w Workload, stage: &Stage) -> &'w str {
    &workload.operators[stage.spec.main].name
}

/// What a flow is for, such as `feed up 0`.
pub(super) fn flow(workload: &Workload, context: &FlowContext, flow: &Flow) -> String {
    let tensor = |stream: StreamId| &workload.tensors[context.tensors[stream]].name;
    let of = |stage: StageId| &workload.operators[context.mains[stage]].name;
    match flow.kind {
        FlowKind::Fill { stream, buffer } => format!("fill {} buffer {buffer}", tensor(stream)),
        FlowKind::Copy { resident } => format!("copy buffer {resident}"),
        FlowKind::Feed { stage, group } => format!("feed {} {group}", of(stage)),
        FlowKind::Emit { stage, group } => format!("emit {} {group}", of(stage)),
        FlowKind::State { stage, group } => format!("state {} {group}", of(stage)),
        FlowKind::PartialRead { stage, group } | FlowKind::Merge { stage, group } => {
            format!("partial read {} {group}", of(stage))
        }
        FlowKind::PartialWrite { stage, group } | FlowKind::Forward { stage, group } => {
            format!("partial write {} {group}", of(stage))
        }
        FlowKind::Drain { stream } => format!("drain {}", tensor(stream)),
    }
}

/// What flows are named after.
pub(super) struct FlowContext {
    /// Main operator of each stage.
    pub mains: IndexVec<StageId, OperatorId>,
    /// Tensor of each stream.
    pub tensors: IndexVec<StreamId, TensorId>,
}
