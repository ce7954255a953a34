//! Faults put into configurations that are right: every one must be found.

mod buffers;
mod images;
mod onnx;
mod recurrent;
mod sums;

use std::path::Path;
use std::sync::Arc;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::input::Override;
use rdusim_base::mode::Mode;
use rdusim_compile::compile::{compile, legal, retargeted_section};
use rdusim_graph::arch;
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{self, CausalAxis, OperatorKind};
use rdusim_models::model::{Architecture, Options, Phase, Recompute, preset, write};
use rdusim_program::{
    Amount, Buffer, BufferId, BufferRole, Configuration, Flow, FlowId, FlowKind, GemmMapping, Iteration, LoopLevel,
    LoopOrder, Mapping, Nest, OutputTile, Resource, Stage, StageId, Style, TiledAxis,
};

use super::*;

/// A right configuration, and what it is compared with.
#[derive(Clone)]
struct Case {
    chip: Chip,
    workload: Workload,
    configuration: Configuration,
}

impl Case {
    fn new(arch: &str, workload: &str, sets: &[&str], mode: Mode) -> Self {
        let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        let of = |root: &str| sets.iter().filter(|s| s.raw().starts_with(root)).cloned().collect::<Vec<_>>();
        let chip = arch::load(Path::new(arch), &of("arch")).unwrap();
        let workload = workload::load(Path::new(workload), &of("workload"), 0).unwrap();
        let configuration = compile(&chip, &workload, mode).unwrap();
        Self { chip, workload, configuration }
    }

    fn run(&self, mapped: &Workload) -> RunVerdict {
        Check::new(&self.chip, &self.workload, 3).run(mapped, &self.configuration)
    }

    fn plain(&self) -> RunVerdict {
        self.run(&self.workload)
    }

    /// What a mutation of the first section's configuration that applies leads to, `None` if it applies to none.
    fn with(mut self, change: impl Fn(&mut Section) -> bool) -> Option<RunVerdict> {
        let applied = self.configuration.sections.iter_mut().any(change);
        applied.then(|| self.plain())
    }
}

/// A dense block with a cut K, on a chip whose PMUs hold little.
fn dense(mode: Mode) -> Case {
    let sets = [
        "workload.dims.tokens=100",
        "workload.dims.d_model=130",
        "workload.dims.d_ff=400",
        "arch.pmu.capacity_bytes=16384",
    ];
    Case::new("plasticine", "tiny-mlp", &sets, mode)
}

/// The case with a mapping drawn at random of which a section is as is wanted.
fn drawn(case: Case, is_wanted: impl Fn(&Section) -> bool) -> Case {
    let drawn = (0..20_000).filter_map(|seed| legal(&case.chip, &case.workload, seed));
    let found = drawn.into_iter().find(|drawn| drawn.sections.iter().any(&is_wanted));
    Case { configuration: found.expect("such a mapping is drawn"), ..case }
}

/// A dense block whose weights do not fit: column tile after column tile of them meets every row tile.
fn streamed() -> Case {
    let sets = [
        "workload.dims.tokens=120",
        "workload.dims.d_model=64",
        "workload.dims.d_ff=2000",
        "arch.pmu.capacity_bytes=8192",
    ];
    Case::new("plasticine", "tiny-mlp", &sets, Mode::Fused)
}

/// A sparse block.
fn sparse(mode: Mode) -> Case {
    let sets = ["workload.dims.tokens=100", "workload.dims.d_model=208", "workload.dims.d_ff=416"];
    Case::new("sn10", "gpt13b-mlp-sparse", &sets, mode)
}

/// A wide GELU by itself.
fn simd() -> Case {
    let sets = ["workload.dims.tokens=100", "workload.dims.d_model=60", "workload.dims.d_ff=500"];
    Case::new("plasticine", "tiny-mlp", &sets, Mode::Kbk)
}

/// Attention of two sequences, four heads of queries on two of keys, rotated and causal.
fn attention(mode: Mode) -> Case {
    let (llama, _) = preset("llama2-70b").unwrap();
    let options = Options {
        name: "attention".to_owned(),
        stack: None,
        architecture: Architecture {
            hidden: 32,
            layers: 1,
            heads: 4,
            kv_heads: 2,
            feed_forward: 40,
            vocabulary: 23,
            ..llama
        },
        phase: Phase::Forward,
        batch: 2,
        sequence: 12,
        context: 12,
        dtype: "bf16".to_owned(),
        sparsity: None,
        optimizer: "adam".to_owned(),
        recompute: Recompute::None,
        dropout: false,
        storage: rdusim_models::model::Storage::default(),
        activations: None,
        expert_load: rdusim_models::model::ExpertLoad::default(),
        weights: Vec::new(),
        notes: Vec::new(),
    };
    let workload = workload::parse("attention", &write(&options).unwrap(), &[], 0).unwrap();
    let chip = arch::load(Path::new("plasticine"), &[]).unwrap();
    let configuration = compile(&chip, &workload, mode).unwrap();
    Case { chip, workload, configuration }
}

/// A sparse block whose first product gathers.
fn gathered() -> Case {
    let fine = "{ pattern = \"unstructured\", density = 0.1, seed = 1 }";
    let sets = [
        "workload.dims.tokens=100".to_owned(),
        "workload.dims.d_model=130".to_owned(),
        "workload.dims.d_ff=300".to_owned(),
        format!("workload.tensors.w_up.sparsity={fine}"),
        format!("workload.tensors.w_down.sparsity={fine}"),
    ];
    let mut case = Case::new("sn10", "gpt13b-mlp", &sets.each_ref().map(String::as_str), Mode::Kbk);
    for section in &mut case.configuration.sections {
        *section = retargeted_section(&case.chip, &case.workload, section, |m| {
            let (rows_on_lanes, style) = (true, Style::Gather);
            *m = GemmMapping { rows_on_lanes, style, pm: 2, pn: 8, multicast_width: 2, aligned: false, ..*m };
        })
        .unwrap();
    }
    case
}

/// A block, fused, whose products split K over PCUs, not over time.
fn split(of: Case) -> Case {
    let mut case = of;
    for section in &mut case.configuration.sections {
        let (tile_rows, order) = (20, LoopOrder::ColumnTileOuter);
        section
            .change_nest(|nest| *nest = Nest { tile_rows, block_tiles: 5, tiled_axis: None, order, ..*nest })
            .unwrap();
        *section = retargeted_section(&case.chip, &case.workload, section, |m| {
            *m = GemmMapping { rows_on_lanes: false, pm: 2, pn: 4, pk: 3, multicast_width: 2, aligned: false, ..*m };
        })
        .unwrap();
    }
    case
}

fn all() -> Vec<Case> {
    let plain = vec![dense(Mode::Kbk), dense(Mode::Fused), streamed(), sparse(Mode::Kbk), sparse(Mode::Fused), simd()];
    plain
        .into_iter()
        .chain([attention(Mode::Fused), gathered(), split(sparse(Mode::Fused)), images::images(Mode::Fused)])
        .collect()
}

#[track_caller]
fn caught(verdict: &RunVerdict) -> String {
    assert!(!verdict.passed, "not caught: {:?} {:?}", verdict.by_stage, verdict.end_to_end);
    match &verdict.fault {
        Some(fault) => fault.to_string(),
        None => format!("number: {:?} {:?}", verdict.by_stage, verdict.end_to_end),
    }
}

#[test]
fn without_a_fault_every_case_passes() {
    for case in all() {
        let verdict = case.plain();
        assert!(verdict.passed, "{:?} {:?} {:?}", verdict.fault, verdict.by_stage, verdict.end_to_end);
        assert!(verdict.compared > 0 && verdict.firings > 0);
    }
    // The cases have what the faults below need.
    let sections: Vec<Section> = all().into_iter().flat_map(|case| case.configuration.sections).collect();
    assert!(sections.iter().any(|s| s.stages.iter().any(|s| s.k_cut)), "no cut K");
    assert!(sections.iter().any(|s| s.schedule.nest().rows % s.schedule.nest().tile_rows != 0), "no short row tile");
    let shares = |s: &Stage| matches!(s.mapping, Mapping::Gemm(m) if m.multicast_width > 1);
    assert!(sections.iter().any(|s| s.stages.iter().any(shares)), "no multicast");
}

fn sinks(flow: &Flow) -> usize {
    flow.route.len() - 1 - flow.links as usize
}

/// What a flow is, without its ends.
fn kind(flow: &Flow) -> (u8, Amount) {
    let kind = match flow.kind {
        FlowKind::Fill { .. } => 0,
        FlowKind::Copy { .. } => 1,
        FlowKind::Feed { .. } => 2,
        FlowKind::Emit { .. } => 3,
        FlowKind::PartialRead { .. } | FlowKind::Merge { .. } | FlowKind::State { .. } => 4,
        FlowKind::PartialWrite { .. } | FlowKind::Forward { .. } => 5,
        FlowKind::Drain { .. } => 6,
    };
    (kind, flow.amount)
}

#[test]
fn swapped_routes_are_caught() {
    let mut swapped = Vec::new();
    for case in [dense(Mode::Kbk), dense(Mode::Fused), sparse(Mode::Fused), simd(), gathered()] {
        let flows = case.configuration.sections[0].flows.clone();
        let mut kinds: Vec<(u8, Amount)> = flows.iter().map(kind).collect();
        kinds.dedup();
        kinds.sort_by_key(|k| k.0);
        kinds.dedup();
        for wanted in kinds {
            // Two flows of one kind, from other units to other units.
            let of_kind: Vec<FlowId> = flows.ids().filter(|&f| kind(&flows[f]) == wanted).collect();
            let other = |a: FlowId, b: FlowId| {
                let ports = |f: FlowId| flows[f].route[..=sinks(&flows[f])].to_vec();
                ports(a).iter().all(|port| !ports(b).contains(port))
            };
            let pairs = of_kind.iter().flat_map(|&a| of_kind.iter().map(move |&b| (a, b)));
            let pairs: Vec<(FlowId, FlowId)> = pairs.filter(|&(a, b)| other(a, b)).take(40).collect();
            if pairs.is_empty() {
                continue;
            }
            // Of numbers that differ by less than rounding no one can tell that they were exchanged: one of the pairs is enough.
            let (mut whole_routes, mut ends_alone) = (false, false);
            for (a, b) in pairs {
                if whole_routes && ends_alone {
                    break;
                }
                let exchange = |section: &mut Section| {
                    let (route, links) = (section.flows[a].route.clone(), section.flows[a].links);
                    section.flows[a].route = std::mem::replace(&mut section.flows[b].route, route);
                    section.flows[a].links = std::mem::replace(&mut section.flows[b].links, links);
                };
                let whole = case.clone().with(|section| {
                    exchange(section);
                    true
                });
                whole_routes |= !whole.expect("it applies").passed;
                // The links and sinks alone: the data starts where it should and ends where it should not.
                let ends = case.clone().with(|section| {
                    let (source_a, source_b) = (section.flows[a].route[0], section.flows[b].route[0]);
                    exchange(section);
                    (section.flows[a].route[0], section.flows[b].route[0]) = (source_a, source_b);
                    true
                });
                ends_alone |= !ends.expect("it applies").passed;
            }
            assert!(whole_routes && ends_alone, "not caught: {wanted:?}");
            swapped.push(wanted.0);
        }
    }
    swapped.sort_unstable();
    swapped.dedup();
    assert!(swapped.len() >= 6, "only flows of kinds {swapped:?} were swapped");
}

#[test]
fn data_at_the_wrong_pcu_gives_a_wrong_number() {
    // The sinks of two row slices change places: every PCU gets a whole tile, but of other rows.
    let mut found = false;
    for case in all() {
        let verdict = case.with(|section| {
            let full = |f: &Flow| matches!(f.kind, FlowKind::Feed { .. }) && f.amount == Amount::Activations;
            let list: Vec<FlowId> = section
                .flows
                .ids()
                .filter(|&f| full(&section.flows[f]) && section.flows[f].reads.is_some_and(|end| end.part == 0))
                .collect();
            let is_other = |a: FlowId, b: FlowId| {
                let (x, y) = (&section.flows[a], &section.flows[b]);
                let (p, q) = (x.reads.unwrap(), y.reads.unwrap());
                x.kind == y.kind
                    && p.buffer == q.buffer
                    && p.slice != q.slice
                    && sinks(x) == sinks(y)
                    && x.share == y.share
                    && x.share.0 == x.share.1
            };
            let pair = list.iter().flat_map(|&a| list.iter().map(move |&b| (a, b))).find(|&(a, b)| is_other(a, b));
            let Some((a, b)) = pair else { return false };
            // Each of the two trees serves both sites, so that only the ports decide.
            let links = |f: FlowId| section.flows[f].route[1 + sinks(&section.flows[f])..].to_vec();
            let mut joined: Vec<Resource> = links(a);
            joined.extend(links(b));
            let ports = |f: FlowId| section.flows[f].route[1..=sinks(&section.flows[f])].to_vec();
            let (ports_a, ports_b) = (ports(a), ports(b));
            for (f, ports) in [(a, ports_b), (b, ports_a)] {
                let flow = &mut section.flows[f];
                flow.route = [vec![flow.route[0]], ports, joined.clone()].concat();
                flow.links = joined.len() as u64;
            }
            true
        });
        if let Some(verdict) = verdict {
            caught(&verdict);
            found = true;
        }
    }
    assert!(found, "no case has two row slices");
}

/// A change of a tile.
type Edit = fn(&mut OutputTile);

#[test]
fn a_tile_off_by_one_is_caught() {
    let edits: [(&str, Edit); 4] = [
        ("a column to the right", |t| t.start += 1),
        // The first tile has no left neighbour: it loses a column.
        ("a column to the left", |t| match t.start.checked_sub(1) {
            Some(start) => t.start = start,
            None => t.columns -= 1,
        }),
        ("a column less", |t| t.columns -= 1),
        ("a column more", |t| t.columns += 1),
    ];
    for mode in [Mode::Kbk, Mode::Fused] {
        for (what, edit) in edits {
            for case in [dense(mode), sparse(mode)] {
                // One of the last tiles of the last GEMM: of weights that are all zero no one can tell where they lie.
                let is_caught = (0..12).any(|nth| {
                    let verdict = case.clone().with(|section| {
                        let Some(stage) = section.stages.iter_mut().rev().find(|stage| !stage.tiles.is_empty()) else {
                            return false;
                        };
                        let mut tiles = stage.tiles.to_vec();
                        let with_columns = tiles.iter_mut().rev().flatten().flatten().filter(|tile| tile.columns > 0);
                        with_columns.into_iter().nth(nth).map(edit);
                        stage.tiles = tiles.into();
                        true
                    });
                    !verdict.unwrap().passed
                });
                assert!(is_caught, "{what} is not caught");
            }
        }
    }
}

#[test]
fn a_dropped_last_k_tile_is_caught() {
    // The mapping leaves out the last row of blocks; all it does is consistent with that.
    for mode in [Mode::Kbk, Mode::Fused] {
        let case = sparse(mode);
        let dropped = with_masks(&case.workload, |mask, k, n| mask.is_kept(k, n) && k + 1 < mask.k_blocks());
        let configuration = compile(&case.chip, &dropped, mode).unwrap();
        let verdict = Check::new(&case.chip, &case.workload, 3).run(&dropped, &configuration);
        assert!(caught(&verdict).starts_with("number"), "{:?}", verdict.fault);
    }
    // The last column tile of a cut K never comes.
    let verdict = dense(Mode::Fused).with(|section| {
        let Some(cut) = section.schedule.tiled_axis().filter(|cut| cut.extent > cut.tile) else { return false };
        let extent = (cut.extent.div_ceil(cut.tile) - 1) * cut.tile;
        section.change_nest(|nest| nest.tiled_axis = Some(TiledAxis { extent, ..cut })).is_ok()
    });
    caught(&verdict.expect("the dense case is cut"));
    // A slice of K does not get the sums of the slice before.
    let dropped = split(dense(Mode::Kbk)).with(|section| {
        let before = section.flows.len();
        section.flows.retain(|flow| !matches!(flow.kind, FlowKind::PartialRead { group: 2, .. }));
        section.flows.len() < before
    });
    assert!(caught(&dropped.expect("K is split")).contains("never arrived"));
    // The sums of the column tiles before are not read back.
    let verdict = dense(Mode::Fused).with(|section| {
        let before = section.flows.len();
        section.flows.retain(|flow| !matches!(flow.kind, FlowKind::PartialRead { .. }));
        section.flows.len() < before
    });
    assert!(caught(&verdict.expect("the dense case has partial sums")).contains("never arrived"));
}

/// A workload whose masks keep block (k, n) where `keeps` says so.
fn with_masks(workload: &Workload, keeps: impl Fn(&BlockMask, u64, u64) -> bool) -> Workload {
    let mut changed = workload.clone();
    for id in workload.tensors.ids() {
        let Some(mask) = &workload.tensors[id].mask else { continue };
        let mut other = BlockMask::empty(mask.rows(), mask.columns(), (mask.block_rows(), mask.block_columns()));
        for (k, n) in (0..mask.k_blocks()).flat_map(|k| (0..mask.n_blocks()).map(move |n| (k, n))) {
            if keeps(mask, k, n) {
                other.keep(k, n);
            }
        }
        changed.tensors[id].mask = Some(Arc::new(other));
    }
    changed
}

#[test]
fn a_shifted_mask_is_caught() {
    for mode in [Mode::Kbk, Mode::Fused] {
        let case = sparse(mode);
        let down = with_masks(&case.workload, |m, k, n| m.is_kept((k + 1) % m.k_blocks(), n));
        let right = with_masks(&case.workload, |m, k, n| m.is_kept(k, (n + 1) % m.n_blocks()));
        for shifted in [down, right] {
            // A mapping of the shifted mask, consistent in itself, gives wrong numbers ...
            let configuration = compile(&case.chip, &shifted, mode).unwrap();
            let verdict = Check::new(&case.chip, &case.workload, 3).run(&shifted, &configuration);
            assert!(caught(&verdict).starts_with("number"), "{:?}", verdict.fault);
            // ... and so does the index of another mask under the right mapping, or it is not what was timed.
            caught(&case.run(&shifted));
        }
    }
}

#[test]
fn a_multicast_that_misses_one_pcu_is_caught() {
    let mut missed = 0;
    for case in all() {
        let wires_chip = case.chip.clone();
        let verdict = case.with(|section| {
            let wires = Wires::new(&wires_chip);
            let reached = |flow: &Flow| wires.trace(flow).sinks.iter().flatten().count();
            let wide = |f: &&mut Flow| matches!(f.kind, FlowKind::Feed { .. }) && sinks(f) > 1;
            for flow in section.flows.iter_mut().filter(|f| wide(f)) {
                for link in 1 + sinks(flow)..flow.route.len() {
                    let mut cut = flow.clone();
                    cut.route.remove(link);
                    cut.links -= 1;
                    if reached(&cut) + 1 == sinks(flow) {
                        *flow = cut;
                        return true;
                    }
                }
            }
            false
        });
        if let Some(verdict) = verdict {
            let fault = caught(&verdict);
            assert!(fault.contains("never arrived") && fault.contains("PCU ("), "{fault}");
            missed += 1;
        }
    }
    assert!(missed > 1, "only {missed} cases have a multicast");
}

#[test]
fn heads_that_are_left_out_are_caught() {
    // Results for all streams of heads but the first.
    let verdict = attention(Mode::Fused).with(|section| {
        let pm = |stage: StageId| section.stages[stage].mapping.pm();
        let of_other_heads = |flow: &Flow| {
            flow.writes.is_some_and(|end| match section.buffers[end.buffer].spec.role {
                BufferRole::Operand { stage, .. } => end.slice >= pm(stage),
                _ => false,
            })
        };
        let kept: IndexVec<FlowId, Flow> = section.flows.iter().filter(|f| !of_other_heads(f)).cloned().collect();
        let changed = kept.len() < section.flows.len();
        section.flows = kept;
        changed
    });
    assert!(caught(&verdict.expect("a stage has streams of heads")).contains("never arrived"));
    // Both sequences meet the keys of the first.
    let verdict = attention(Mode::Fused).with(|section| {
        let blocks = section.schedule.blocks();
        section.change_nest(|nest| nest.block_tiles *= blocks).unwrap();
        blocks > 1
    });
    caught(&verdict.expect("sequences are row blocks"));
}

#[test]
fn a_shifted_causal_mask_is_caught() {
    for mode in [Mode::Kbk, Mode::Fused] {
        let case = attention(mode);
        // Scores of keys after the query, or sums over them, or neither masked: all are wrong numbers.
        let mut changed = 0;
        for id in case.workload.operators.ids() {
            let mut other = case.workload.clone();
            let operator = &mut other.operators[id];
            match (operator.kind, operator.form.map(|form| form.causal)) {
                (OperatorKind::CausalMask, _) => operator.kind = OperatorKind::Scale,
                // Fused, the mask follows in the same stage, and hides what the product leaves in.
                (_, Some(Some(CausalAxis::Columns))) if mode == Mode::Kbk => {
                    operator.form = operator.form.map(|form| workload::GemmForm { causal: None, ..form });
                }
                (OperatorKind::Rotary, _) => operator.is_gradient = true,
                (OperatorKind::Embedding, _) => operator.indices = None,
                _ => continue,
            }
            let what = operator.name.clone();
            let verdict = case.run(&other);
            assert!(!verdict.passed, "{what} is not caught: {:?}", verdict.by_stage);
            changed += 1;
        }
        assert!(changed >= 4, "only {changed} operators");
    }
}

#[test]
fn a_gathered_index_that_is_shifted_is_caught() {
    let case = gathered();
    let gathers = |s: &Stage| matches!(s.mapping, Mapping::Gemm(m) if m.style == Style::Gather);
    assert!(case.configuration.sections.iter().any(|s| s.stages.iter().any(gathers)));
    let shifted = with_masks(&case.workload, |m, k, n| m.is_kept((k + 1) % m.k_blocks(), n));
    caught(&case.run(&shifted));
}

#[test]
fn a_fault_says_its_cycle() {
    let verdict = dense(Mode::Fused).with(|section| {
        let before = section.flows.len();
        section.flows.retain(|flow| !matches!(flow.kind, FlowKind::PartialRead { .. }));
        section.flows.len() < before
    });
    let fault = verdict.and_then(|verdict| verdict.fault).unwrap();
    let launch = dense(Mode::Fused).chip.launch_cycles();
    assert!(fault.cycle.is_some_and(|cycle| cycle > launch), "{fault}");
    assert!(fault.to_string().contains(", cycle ") && fault.row_tile.is_some(), "{fault}");
}

#[test]
fn a_slot_is_not_given_away_before_its_last_read() {
    let case = dense(Mode::Fused);
    let section = &case.configuration.sections[0];
    let buffer = &section.buffers[BufferId::from_index(0)];
    let mut ring = ring::Ring::new(&case.chip, buffer, 10);
    (ring.writers, ring.readers) = (1, 1);
    let depth = ring.depth();
    for slot in 0..depth {
        assert_eq!(ring.claim(slot, Vec::new), Ok(()));
        ring.fill(slot);
    }
    assert!(!ring.has_credit(depth) && ring.claim(depth, Vec::new) == Err(0));
    ring.release(0);
    assert!(ring.has_credit(depth) && ring.claim(depth, Vec::new) == Ok(()));
    let at = Iteration { block: 0, column_tile: 0, row_tile: 0 };
    assert_eq!(section.schedule.ordinal(LoopLevel::ROW_TILE, at), 0);
}
