//! What placement and routing are worth: the fused feed-forward blocks on both chips as the compiler places and routes
//! them, against the same sections with units and buffers at random places, routed by the same router.
//!
//! `cargo run --release --example placement -- [SEED]` prints `reports/placement.md`.

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use rdusim::arch::{self, Chip, Coordinate};
use rdusim::compile::{BufferDraft, Draft, StreamDraft, Validated, compile_measured};
use rdusim::cost::section_load;
use rdusim::index::{Id, IndexVec};
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::{Configuration, Fabric, FlowId, Part, PcuId, Piece, PmuId, Port, Section, SectionGraph};
use rdusim::sim::simulate;
use rdusim::workload::{self, Workload};

const CASES: [(&str, &str); 5] = [
    ("sn10", "gpt13b-mlp"),
    ("sn10", "gpt13b-mlp-sparse"),
    ("sn40l", "gpt13b-mlp"),
    ("sn40l", "gpt13b-mlp-sparse"),
    ("sn40l", "gpt2-small-mlp"),
];

/// What routes cost.
struct Cost {
    /// Flits times links.
    flit_hops: u64,
    /// Flits over the fullest link.
    fullest: u64,
    /// Flits that some link must carry at least, wherever routes go.
    least: u64,
    cycles: u64,
}

fn site(chip: &Chip, port: Port) -> Coordinate {
    match port {
        Port::PmuRead(pmu, _) | Port::PmuWrite(pmu, _) => chip.grid.pmus[pmu.index()],
        Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _) => chip.grid.pcus[pcu.index()],
        Port::Ag(agcu, _) => chip.grid.agcus[agcu as usize].site,
    }
}

/// The least flits over the fullest link, for these places: of one flow, which goes one way; out of a switch and into
/// one, over its links; and across the grid at any column or row, once for each flow with an end on either side.
fn least_fullest(chip: &Chip, fabric: &Fabric, section: &Section, flits: &IndexVec<FlowId, u64>) -> u64 {
    let lanes = u64::from(fabric.lanes());
    let (columns, rows) = (chip.grid.columns, chip.grid.rows);
    let (mut out, mut into) = (BTreeMap::<Coordinate, u64>::new(), BTreeMap::<Coordinate, u64>::new());
    let mut cuts: [Vec<[u64; 2]>; 2] = [vec![[0; 2]; columns as usize], vec![[0; 2]; rows as usize]];
    let mut least = 0;
    for (flow, &flits) in section.flows.iter().zip(flits) {
        let ends: Vec<Coordinate> =
            flow.route.iter().filter_map(|&port| fabric.port_at(port)).map(|port| site(chip, port)).collect();
        let (source, sinks) = (ends[0], &ends[1..]);
        let mut away: Vec<Coordinate> = sinks.iter().copied().filter(|&sink| sink != source).collect();
        away.sort_unstable();
        away.dedup();
        if away.is_empty() {
            continue;
        }
        least = least.max(flits);
        *out.entry(source).or_default() += flits;
        for &sink in &away {
            *into.entry(sink).or_default() += flits;
        }
        for (cut, along) in cuts.iter_mut().zip([|c: &Coordinate| c.x, |c: &Coordinate| c.y]) {
            let (low, high) = (away.iter().map(along).min(), away.iter().map(along).max());
            let from = along(&source);
            for at in from..high.unwrap_or(from).max(from) {
                cut[at as usize][0] += flits;
            }
            for at in low.unwrap_or(from).min(from)..from {
                cut[at as usize][1] += flits;
            }
        }
    }
    let links = |at: &Coordinate| {
        let ways = [at.x > 0, at.x + 1 < columns, at.y > 0, at.y + 1 < rows];
        lanes * ways.into_iter().filter(|&way| way).count() as u64
    };
    for (at, flits) in out.iter().chain(&into) {
        least = least.max(flits.div_ceil(links(at)));
    }
    for (cut, across) in cuts.iter().zip([rows, columns]) {
        let most = cut.iter().flatten().copied().max().unwrap_or(0);
        least = least.max(most.div_ceil(u64::from(across) * lanes));
    }
    least
}

fn cost(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Result<Cost, Box<dyn Error>> {
    let fabric = Fabric::new(chip);
    let mut cost = Cost { flit_hops: 0, fullest: 0, least: 0, cycles: 0 };
    for section in &configuration.sections {
        let load = section_load(chip, workload, &fabric, section).ok_or("no pipeline")?;
        let links = load.resource_flits.iter().zip(0..).filter(|&(_, at)| fabric.link_at(at).is_some());
        let links: Vec<u64> = links.map(|(&flits, _)| flits).collect();
        cost.flit_hops += links.iter().sum::<u64>();
        cost.fullest = cost.fullest.max(links.into_iter().max().unwrap_or(0));
        cost.least = cost.least.max(least_fullest(chip, &fabric, section, &load.flow_flits));
    }
    cost.cycles = simulate(chip, workload, configuration, Fidelity::Event).cycles;
    Ok(cost)
}

/// The same section with its PCUs and its buffers' parts at random places.
fn scattered(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    section: &Section,
    random: &mut Pcg64Mcg,
) -> Result<Section, Box<dyn Error>> {
    let mut pcus: Vec<PcuId> = (0..chip.grid.pcus.len()).map(PcuId::from_index).collect();
    let mut pmus: Vec<PmuId> = (0..chip.grid.pmus.len()).map(PmuId::from_index).collect();
    pcus.shuffle(random);
    pmus.shuffle(random);
    let piece = |piece: &Piece| Piece {
        parts: piece.parts.iter().map(|part| Part { pmu: pmus[part.pmu.index()], ..*part }).collect(),
    };
    let draft = Draft {
        nest: section.schedule.nest(),
        mappings: section.stages.iter().map(|stage| stage.mapping).collect(),
        pcus: section.stages.iter().map(|s| s.pcus.iter().map(|pcu| pcus[pcu.index()]).collect()).collect(),
        buffers: section
            .buffers
            .iter()
            .map(|buffer| BufferDraft {
                role: buffer.spec.role,
                level: buffer.spec.level,
                depth: buffer.spec.depth,
                slot_bytes: buffer.spec.slot_bytes,
                pieces: buffer.pieces.iter().map(piece).collect(),
            })
            .collect(),
        streams: section
            .streams
            .iter()
            .map(|off_chip| StreamDraft {
                tensor: off_chip.stream.tensor,
                writes: off_chip.stream.writes,
                level: off_chip.stream.level,
                ags: off_chip.ags.clone(),
            })
            .collect(),
        estimated_cycles: section.estimated_cycles,
    };
    let fabric = Fabric::new(chip);
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1).ok_or("no pipeline")?;
    let restored = Validated::new(chip, &fabric, &graph, &configuration.tiers, draft);
    let section = restored.and_then(Validated::route);
    Ok(section.map_err(|fault| format!("{}: {}", fault.title, fault.expected))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let seed = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    println!("# Placement and routing\n");
    println!(
        "Made by `cargo run --release --example placement -- {seed}`. Flit-hops: flits times links, all routes together."
    );
    println!(
        "Least: flits that the fullest link must carry for these places, whatever the routes: those of one flow (it is"
    );
    println!(
        "not split), of a switch's busiest side over its links, and of the fullest cut across the grid over its links.\n"
    );
    println!(
        "| fused | places | flit-hops | fullest link | least | over least | cycles |\n|---|---|---|---|---|---|---|"
    );
    for (arch, graph) in CASES {
        let path = |directory: &str, name: &str| PathBuf::from(format!("{directory}/{name}.toml"));
        let chip = arch::load(&path("arch", arch), &[]).map_err(|e| e.render(false))?;
        let workload = workload::load(&path("workloads", graph), &[], 0).map_err(|e| e.render(false))?;
        let measured = compile_measured(&chip, &workload, &[Mode::Fused]).map_err(|e| e.render(false))?;
        let compiled = &measured[0].configuration;
        let sections: Result<Vec<Section>, _> =
            compiled.sections.iter().map(|s| scattered(&chip, &workload, compiled, s, &mut random)).collect();
        let random = Configuration { sections: sections?, ..compiled.clone() };
        for (places, configuration) in [("found", compiled), ("random", &random)] {
            let Cost { flit_hops, fullest, least, cycles } = cost(&chip, &workload, configuration)?;
            let over = fullest as f64 / least.max(1) as f64;
            println!("| {graph} on {arch} | {places} | {flit_hops} | {fullest} | {least} | {over:.2} | {cycles} |");
        }
    }
    Ok(())
}
