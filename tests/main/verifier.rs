//! The verifier of programs: what the compiler makes has no violation, and every check refuses what it is for.

use std::path::Path;

use crate::legal::found_quickly;
use crate::random::pair;
use rdusim::arch::{self, Chip, TierId};
use rdusim::compile::{compile, retargeted_section};
use rdusim::index::Id;
use rdusim::mode::Mode;
use rdusim::program::verifier::{Verifier, violations};
use rdusim::program::{
    Buffer, BufferId, BufferRole, Configuration, Fabric, Flow, FlowId, FlowKind, GemmMapping, LoopLevel, Mapping, Nest,
    PcuId, PmuId, Reduction, Section, SectionGraph, SimdMapping, StageId, StreamId,
};
use rdusim::workload::{self, Workload};

const MODES: [Mode; 3] = Mode::ALL;
/// Random pairs that are compiled.
const PAIRS: usize = 40;
const SEED: u64 = 11;

fn shipped(arch: &str, graph: &str) -> (Chip, Workload) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chip = arch::load(&root.join(format!("arch/{arch}.toml")), &[]).expect("a shipped chip");
    let workload = workload::load(&root.join(format!("workloads/{graph}.toml")), &[], 0).expect("a shipped workload");
    (chip, workload)
}

fn parsed(text: &str) -> Workload {
    workload::parse("graph", text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn shipped_pairs_have_no_violation() {
    for (arch, graph) in [("sn10", "tiny-mlp"), ("sn40l", "gpt2-small-mlp"), ("plasticine", "relu")] {
        let (chip, workload) = shipped(arch, graph);
        let compiled = found_quickly(&chip, &workload, &MODES).unwrap_or_else(|e| panic!("{}", e.render(false)));
        for compiled in &compiled {
            let found = violations(&chip, &workload, &Fabric::new(&chip), &compiled.configuration);
            assert!(found.is_empty(), "{graph} on {arch}: {}", found[0]);
        }
    }
}

#[test]
fn random_pairs_have_no_violation() {
    let mut sections = 0;
    for number in 0..PAIRS {
        let (family, chip, graph) = pair(SEED, number);
        let (chip, workload) = (chip.chip(), graph.workload());
        let Ok(compiled) = found_quickly(&chip, &workload, &MODES) else { continue };
        for compiled in &compiled {
            let found = violations(&chip, &workload, &Fabric::new(&chip), &compiled.configuration);
            assert!(found.is_empty(), "pair {number}, {family}: {}", found[0]);
            sections += compiled.configuration.sections.len();
        }
    }
    assert!(sections > PAIRS, "{sections} sections were checked");
}

/// A section that holds, to be spoilt.
struct Good {
    chip: Chip,
    workload: Workload,
    configuration: Configuration,
}

impl Good {
    fn new(chip: Chip, workload: Workload) -> Self {
        let configuration = compile(&chip, &workload, Mode::Fused).unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(configuration.sections.len(), 1);
        Self { chip, workload, configuration }
    }

    /// A feed-forward block whose width is cut: weights come in column tiles, partial sums are kept, `x` stays on chip.
    fn feed_forward() -> Self {
        let (chip, workload) = shipped("sn10", "gpt13b-mlp");
        Self::new(chip, workload)
    }

    /// A GEMM and a row function that takes a chain of PCUs.
    fn with_softmax() -> Self {
        let (chip, _) = shipped("sn10", "tiny-mlp");
        let workload = parsed(
            "schema = 1\nname = \"scores\"\ndtype = \"bf16\"\n\
             [[tensors]]\nname = \"x\"\nshape = [96, 64]\nrole = \"input\"\n\
             [[tensors]]\nname = \"w\"\nshape = [64, 160]\nrole = \"weight\"\n\
             [[operators]]\nname = \"gemm\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"s\"\n\
             [[operators]]\nname = \"softmax\"\nkind = \"softmax\"\ninputs = [\"s\"]\noutput = \"p\"\n",
        );
        Self::new(chip, workload)
    }

    /// A GEMM whose K is split over PCUs.
    fn split_k() -> Self {
        let mut good = Self::with_softmax();
        good.split(2, Reduction::Chain);
        good
    }

    /// The same, with sums that come together in a tree.
    fn tree() -> Self {
        let mut good = Self::with_softmax();
        good.split(4, Reduction::Tree);
        good
    }

    /// Splits K of the first section's GEMM over PCUs alone.
    fn split(&mut self, pk: u64, reduction: Reduction) {
        let section = &mut self.configuration.sections[0];
        section.change_nest(|nest| nest.tiled_axis = None).expect("tiles have elements");
        let split = retargeted_section(&self.chip, &self.workload, section, |m| (m.pk, m.reduction) = (pk, reduction));
        *section = split.expect("K can be split");
    }

    /// Checks that fail for a section.
    fn fails(&self, section: &Section) -> Vec<&'static str> {
        let graph = SectionGraph::new(&self.workload, &section.operators, true).expect("a pipeline");
        let (fabric, tiers) = (Fabric::new(&self.chip), &self.configuration.tiers);
        let verifier = Verifier { chip: &self.chip, fabric: &fabric, graph: &graph, tiers };
        let found = verifier.violations(section);
        assert_eq!(verifier.section(section).is_err(), !found.is_empty());
        found.iter().map(|violation| violation.check).collect()
    }

    /// Spoils the section, and sees that the check fails.
    #[track_caller]
    fn refuses(&self, check: &str, spoil: impl Fn(&mut Section)) {
        let good = &self.configuration.sections[0];
        assert_eq!(self.fails(good), [""; 0], "the section is good to begin with");
        let mut section = good.clone();
        spoil(&mut section);
        let found = self.fails(&section);
        assert!(found.contains(&check), "`{check}` does not fail, but {found:?}");
    }

    /// The same of its nest, which has no schedule at all where tiles are empty.
    #[track_caller]
    fn refuses_nest(&self, spoil: impl Fn(&mut Nest)) {
        let mut section = self.configuration.sections[0].clone();
        if section.change_nest(&spoil).is_ok() {
            self.refuses("nest", |section| section.change_nest(&spoil).expect("tiles have elements"));
        }
    }

    /// The same over the whole configuration.
    #[track_caller]
    fn refuses_whole(&self, check: &str, spoil: impl Fn(&mut Configuration)) {
        let mut configuration = self.configuration.clone();
        spoil(&mut configuration);
        let found = violations(&self.chip, &self.workload, &Fabric::new(&self.chip), &configuration);
        assert!(found.iter().any(|found| found.check == check), "`{check}` does not fail, but {found:?}");
    }
}

fn stage_id(row: usize) -> StageId {
    StageId::from_index(row)
}

fn buffer_id(row: usize) -> BufferId {
    BufferId::from_index(row)
}

fn stream_id(row: usize) -> StreamId {
    StreamId::from_index(row)
}

fn flow_id(row: usize) -> FlowId {
    FlowId::from_index(row)
}

fn buffer(section: &mut Section, is: impl Fn(&BufferRole) -> bool) -> &mut Buffer {
    section.buffers.iter_mut().find(|buffer| is(&buffer.spec.role)).expect("such a buffer")
}

fn is_weight(role: &BufferRole) -> bool {
    matches!(role, BufferRole::Weight { .. })
}

fn is_operand(role: &BufferRole) -> bool {
    matches!(role, BufferRole::Operand { .. })
}

fn is_partial(role: &BufferRole) -> bool {
    matches!(role, BufferRole::PartialSums { .. })
}

fn gemm(s: &mut Section) -> &mut GemmMapping {
    let of = s.stages.iter_mut().find_map(|stage| match &mut stage.mapping {
        Mapping::Gemm(m) => Some(m),
        Mapping::Simd(_) => None,
    });
    of.expect("a GEMM")
}

fn simd(s: &mut Section) -> &mut SimdMapping {
    let of = s.stages.iter_mut().find_map(|stage| match &mut stage.mapping {
        Mapping::Simd(m) => Some(m),
        Mapping::Gemm(_) => None,
    });
    of.expect("a function")
}

#[test]
fn nests_that_cannot_be_are_refused() {
    let good = Good::feed_forward();
    good.refuses_nest(|nest| nest.rows += 1);
    good.refuses_nest(|nest| nest.tile_rows = 0);
    good.refuses_nest(|nest| nest.tile_rows = nest.rows + 1);
    good.refuses_nest(|nest| nest.block_tiles = 0);
    good.refuses_nest(|nest| nest.block_tiles = nest.row_tiles() + 1);
    good.refuses_nest(|nest| nest.tiled_axis.as_mut().expect("a cut").tile = 0);
    good.refuses_nest(|nest| nest.tiled_axis.as_mut().expect("a cut").extent += 1);
    good.refuses_nest(|nest| nest.tiled_axis.as_mut().expect("a cut").axis = 99);
    good.refuses("stages", |s| s.stages[stage_id(0)].level = LoopLevel::ROW_TILE);
    good.refuses("stages", |s| s.stages[stage_id(0)].n_cut ^= true);
    good.refuses("stages", |s| s.stages[stage_id(1)].k_cut ^= true);
    good.refuses("stages", |s| s.stages[stage_id(0)].recomputed = true);
    good.refuses("stages", |s| _ = s.stages.pop());
    good.refuses("stages", |s| _ = s.stages[stage_id(0)].spec.tail.pop());
}

#[test]
fn mappings_and_units_that_cannot_be_are_refused() {
    let good = Good::split_k();
    good.refuses("mapping", |s| gemm(s).pm = 0);
    good.refuses("mapping", |s| gemm(s).multicast_width = gemm(s).pn + 1);
    good.refuses("mapping", |s| gemm(s).streams = 2);
    good.refuses("mapping", |s| gemm(s).pk = 65);
    good.refuses("mapping", |s| (gemm(s).pn, gemm(s).multicast_width) = (640, 1));
    good.refuses("mapping", |s| simd(s).chain += 1);
    good.refuses("mapping", |s| simd(s).passes = 1);
    good.refuses("mapping", |s| simd(s).pn = 9);
    good.refuses("mapping", |s| s.stages[stage_id(0)].mapping = s.stages[stage_id(1)].mapping);
    good.refuses("pcus", |s| _ = s.stages[stage_id(0)].pcus.pop());
    good.refuses("pcus", |s| s.stages[stage_id(0)].pcus[0] = s.stages[stage_id(1)].pcus[0]);
    good.refuses("pcus", |s| s.stages[stage_id(0)].pcus[0] = PcuId::from_index(100_000));
    good.refuses("generators", |s| s.streams[stream_id(0)].ags.clear());
    good.refuses("generators", |s| s.streams[stream_id(0)].ags[0] = s.streams[stream_id(1)].ags[0]);
    good.refuses("generators", |s| s.streams[stream_id(0)].ags[0] = (0, 99));
}

#[test]
fn trees_of_sums_that_cannot_be_are_refused() {
    let tree = Good::tree();
    tree.refuses("mapping", |s| gemm(s).pk = 1);
    // The sums of slice 1 go to slice 3, and no longer to slice 2.
    tree.refuses("flow_ends", |s| gemm(s).reduction = Reduction::Chain);
    Good::split_k().refuses("mapping", |s| (gemm(s).pk, gemm(s).reduction) = (1, Reduction::Tree));
    let merge = |flow: &Flow| matches!(flow.kind, FlowKind::Merge { .. });
    tree.refuses("buffer_ends", |s| s.flows.retain(|flow| !merge(flow)));
    tree.refuses("flow_ends", |s| {
        let at = s.flows.position(merge).expect("a tree");
        let FlowKind::Merge { stage, group } = s.flows[at].kind else { return };
        s.flows[at].kind = FlowKind::PartialRead { stage, group };
    });
    // Where K is cut over time, a slice of K has sums of its own, and none of another to start from.
    Good::feed_forward().refuses("mapping", |s| {
        let accumulates = s.stages.iter_mut().find(|stage| stage.k_cut).expect("a stage that accumulates");
        let Mapping::Gemm(m) = &mut accumulates.mapping else { return };
        m.pk = 2;
    });
}

#[test]
fn buffers_that_cannot_be_are_refused() {
    let good = Good::feed_forward();
    good.refuses("roles", |s| _ = s.buffers.pop());
    good.refuses("roles", |s| _ = s.buffers.push(s.buffers[buffer_id(0)].clone()));
    good.refuses("roles", |s| buffer(s, is_weight).spec.slices += 1);
    good.refuses("roles", |s| s.buffers[buffer_id(0)].spec.role = BufferRole::PartialSums { stage: stage_id(99) });
    good.refuses("cadences", |s| buffer(s, is_operand).spec.level = LoopLevel::ONCE);
    good.refuses("cadences", |s| buffer(s, is_weight).spec.level = LoopLevel::ROW_TILE);
    good.refuses("banks", |s| buffer(s, is_weight).spec.depth = 0);
    good.refuses("banks", |s| buffer(s, is_weight).spec.depth = 1 << 40);
    good.refuses("banks", |s| _ = buffer(s, is_weight).pieces.pop());
    good.refuses("banks", |s| buffer(s, is_weight).pieces[0].parts[0].banks = 0);
    good.refuses("banks", |s| buffer(s, is_weight).pieces[0].parts[0].banks = 1 << 20);
    good.refuses("banks", |s| buffer(s, is_weight).pieces[0].parts[0].pmu = PmuId::from_index(100_000));
    good.refuses("banks", |s| buffer(s, is_weight).pieces[0].parts[0].read_port = 99);
    good.refuses("banks", |s| buffer(s, is_weight).pieces[0].parts[0].write_port = 99);
    good.refuses("slots", |s| buffer(s, is_weight).spec.slot_bytes /= 2);
    good.refuses("slots", |s| buffer(s, is_operand).spec.slot_bytes /= 2);
    good.refuses("slots", |s| buffer(s, is_partial).spec.slot_bytes /= 2);
    good.refuses("partial_sums", |s| buffer(s, is_partial).spec.depth = 1);
    good.refuses("sram", |s| s.sram_bytes += 1);
    good.refuses("sram", |s| s.pmus -= 1);
    let split = Good::split_k();
    let is_partial_fifo = |role: &BufferRole| matches!(role, BufferRole::PartialFifo { .. });
    split.refuses("roles", |s| s.buffers.retain(|buffer| !is_partial_fifo(&buffer.spec.role)));
    split.refuses("slots", |s| buffer(s, is_partial_fifo).spec.slot_bytes = 4);
}

#[test]
fn streams_that_cannot_be_are_refused() {
    let good = Good::feed_forward();
    good.refuses("ends", |s| _ = s.streams.pop());
    good.refuses("ends", |s| s.streams[stream_id(0)].stream.level = LoopLevel::ONCE);
    good.refuses("ends", |s| {
        let mut other = s.streams[stream_id(0)].clone();
        // A generator that nobody has yet.
        let is_free = |ag: &(u32, u32)| !s.streams.iter().any(|stream| stream.ags.contains(ag));
        other.ags = vec![(0..99).flat_map(|agcu| (0..99).map(move |ag| (agcu, ag))).find(is_free).expect("one")];
        other.stream.writes ^= true;
        s.streams.push(other);
    });
    good.refuses("tiers", |s| s.streams[stream_id(0)].tier = TierId::from_index(7));
    good.refuses("bytes", |s| s.streams[stream_id(0)].stream.passes += 1);
    good.refuses("bytes", |s| s.streams[stream_id(0)].stream.tensor_bytes -= 1);
}

#[test]
fn routes_that_cannot_be_are_refused() {
    let good = Good::with_softmax();
    let flows = &good.configuration.sections[0].flows;
    let long = flows.position(|flow| flow.links > 2).expect("a flow over links");
    good.refuses("resources", |s| s.flows[flow_id(0)].route.clear());
    good.refuses("resources", |s| s.flows[flow_id(0)].links = s.flows[flow_id(0)].route.len() as u64);
    good.refuses("resources", |s| s.flows[flow_id(0)].route[0] = 0);
    good.refuses("resources", |s| *s.flows[long].route.last_mut().expect("a link") = u32::MAX);
    good.refuses("trees", |s| {
        let flow = &mut s.flows[long];
        flow.route.pop();
        flow.links -= 1;
    });
    good.refuses("trees", |s| {
        let flow = &mut s.flows[long];
        let last = *flow.route.last().expect("a link");
        flow.route.push(last);
        flow.links += 1;
    });
    good.refuses("trees", |s| s.flows[flow_id(0)].hop_cycles += 1);
    good.refuses("trees", |s| s.flows[flow_id(0)].pmu_sinks += 1);
    good.refuses("trees", |s| s.flows[flow_id(0)].from_pmu ^= true);
}

/// A tier has room for the tensors that lie in it.
#[test]
fn tiers_without_room_are_refused() {
    let good = Good::with_softmax();
    let tensors = good.workload.tensors.iter();
    let bytes: u64 = tensors.map(rdusim::workload::Tensor::stored_bytes).sum();
    let with_room = |bytes: u64| {
        let set = format!("arch.memory.ddr.capacity_bytes={bytes}");
        let set = rdusim::input::Override::parse(&set).expect("a field");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("arch/sn10.toml");
        let chip = arch::load(&path, &[set]).expect("a chip");
        let found = violations(&chip, &good.workload, &Fabric::new(&chip), &good.configuration);
        found.iter().map(|found| found.check).collect::<Vec<_>>()
    };
    assert_eq!(with_room(bytes), [""; 0]);
    assert_eq!(with_room(bytes / 4), ["tiers"]);
}

#[test]
fn flows_with_other_ends_are_refused() {
    for good in [Good::with_softmax(), Good::split_k(), Good::feed_forward()] {
        // Whatever is taken from where it belongs, the check of ends shows it.
        let flows = good.configuration.sections[0].flows.clone();
        let mut seen = Vec::new();
        for (f, flow) in flows.iter_enumerated() {
            if seen.contains(&std::mem::discriminant(&flow.kind)) {
                continue;
            }
            seen.push(std::mem::discriminant(&flow.kind));
            let reads = flow.reads.is_some();
            good.refuses("flow_ends", |s| {
                let flow = &mut s.flows[f];
                let end = if reads { &mut flow.reads } else { &mut flow.writes };
                end.as_mut().expect("an end").slice = 1 << 40;
            });
            good.refuses("flow_ends", |s| (s.flows[f].reads, s.flows[f].writes) = (None, None));
            good.refuses("flow_ends", |s| s.flows[f].share = (0, 1));
            good.refuses("flow_ends", |s| {
                let other = s
                    .flows
                    .position(|other| std::mem::discriminant(&other.kind) != std::mem::discriminant(&s.flows[f].kind));
                s.flows[f].kind = s.flows[other.expect("another kind")].kind;
            });
        }
        let first = buffer_id(0);
        good.refuses("buffer_ends", |s| s.flows.retain(|flow| flow.writes.is_none_or(|end| end.buffer != first)));
        good.refuses("buffer_ends", |s| s.flows.retain(|flow| flow.reads.is_none_or(|end| end.buffer != first)));
    }
}

#[test]
fn flows_that_do_not_carry_all_are_refused() {
    for good in [Good::with_softmax(), Good::split_k(), Good::feed_forward()] {
        let flows = good.configuration.sections[0].flows.clone();
        let mut seen = Vec::new();
        for (f, flow) in flows.iter_enumerated() {
            if !seen.contains(&std::mem::discriminant(&flow.kind)) {
                seen.push(std::mem::discriminant(&flow.kind));
                good.refuses("shares", |s| s.flows[f].share.1 *= 2);
            }
        }
        let chained = flows.position(|flow| matches!(flow.kind, FlowKind::Feed { .. }) && flow.reads.is_none());
        if let Some(f) = chained {
            good.refuses("shares", |s| _ = s.flows.remove(f));
        }
    }
}

#[test]
fn work_that_misses_a_column_is_refused() {
    let good = Good::feed_forward();
    good.refuses("coverage", |s| s.stages[stage_id(0)].work[0][0].columns -= 1);
    good.refuses("coverage", |s| s.stages[stage_id(0)].work[0][0].stored += 1);
    good.refuses("coverage", |s| s.stages[stage_id(1)].work[0][0].tiles = 0);
    good.refuses("coverage", |s| _ = s.stages[stage_id(0)].work.pop());
    good.refuses("coverage", |s| _ = s.stages[stage_id(0)].work[0].pop());
    // Columns that two tiles have, and others that none has.
    good.refuses("coverage", |s| {
        let mut tiles = s.stages[stage_id(0)].tiles.to_vec();
        tiles[0][0][0].start += 1;
        s.stages[stage_id(0)].tiles = tiles.into();
    });
    let good = Good::with_softmax();
    good.refuses("coverage", |s| s.stages[stage_id(1)].work = s.stages[stage_id(0)].work.clone());
}

#[test]
fn buffers_in_which_the_pipeline_would_stop_are_refused() {
    let good = Good::feed_forward();
    let row_tiles = good.configuration.sections[0].schedule.nest().block_tiles;
    let of_block = |s: &Section| s.buffers.position(|b| !is_partial(&b.spec.role) && b.spec.depth == row_tiles);
    let b = of_block(&good.configuration.sections[0]).expect("an operand stays on chip");
    good.refuses("credits", |s| {
        s.buffers[b].spec.depth = row_tiles / 2;
        // The section states what is left over.
        let unused = (row_tiles - row_tiles / 2) * s.buffers[b].spec.slot_bytes * s.buffers[b].pieces.len() as u64;
        s.sram_bank_loss_bytes += unused;
    });
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let (chip, workload) = shipped("sn10", "tiny-mlp");
    let configuration = compile(&chip, &workload, Mode::Kbk).unwrap_or_else(|e| panic!("{}", e.render(false)));
    let good = Good { chip, workload, configuration };
    good.refuses_whole("operators", |c| _ = c.sections.pop());
    good.refuses_whole("operators", |c| c.sections.swap(0, 1));
    good.refuses_whole("operators", |c| c.sections.push(c.sections[0].clone()));
    good.refuses_whole("tiers", |c| _ = c.tiers.pop());
    good.refuses_whole("tiers", |c| c.tiers[0] = TierId::from_index(7));
    good.refuses_whole("loads", |c| c.sections[1].prefetched.push(stream_id(0)));
    good.refuses_whole("stages", |c| {
        let all = c.sections.iter().flat_map(|section| section.operators.clone()).collect();
        c.sections.truncate(1);
        c.sections[0].operators = all;
    });
}
