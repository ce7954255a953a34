//! Hand-made inputs for the tests: the GPT-13B FFN at 2,048 tokens on an SN10-like chip.

use std::sync::Arc;

use indexmap::IndexMap;

use rdusim_base::index::IndexVec;
use rdusim_base::mode::Mode;
use rdusim_base::units::{Dtype, MIB};
use rdusim_graph::arch::{
    Agcu, Chip, Coordinate, Energy, Grid, Launch, LaunchTimes, Network, Orchestration, Pcu, Pmu, Quality, Tier,
    TierEnergy, UnitKind,
};
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{Operator, OperatorKind, Phase, Tensor, TensorId, TensorRole, Workload};
use rdusim_outcome::{
    BoundBy, Busy, EnergyJ, Fidelity, HeldBy, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};

const LAUNCH: u64 = 30_000;

/// 640 PCUs of 32 x 6 at 1.25 GHz, 100 GB/s.
pub(crate) fn sn10() -> Chip {
    let site = |i: usize| Coordinate { x: i as u32 % 40, y: i as u32 / 40 };
    let kind = |i: usize| if site(i).x % 2 == site(i).y % 2 { UnitKind::Pcu } else { UnitKind::Pmu };
    let sites = |wanted: UnitKind| (0..1280).filter(|&i| kind(i) == wanted).map(site).collect();
    let times = LaunchTimes { program_load_us: 20.0, argument_load_us: 2.0, execute_us: 2.0 };
    Chip {
        name: "SN10".into(),
        clock_hz: 1_250_000_000,
        grid: Grid {
            shapes: None,
            columns: 40,
            rows: 32,
            tile: (20, 16),
            die: (40, 32),
            units: (0..1280).map(kind).collect(),
            pcus: sites(UnitKind::Pcu),
            pmus: sites(UnitKind::Pmu),
            agcus: vec![Agcu { site: Coordinate { x: 0, y: 0 }, ags: 32 }],
        },
        emulated: rdusim_graph::arch::Emulated::new(),
        pcu: Pcu {
            lanes: [(Dtype::Bf16, 32), (Dtype::Fp32, 16)].into(),
            stages: 6,
            accumulator_sets: 2,
            tail_elements: 16,
            vector_inputs: 3,
            vector_outputs: 3,
            simd_stages: [("gelu".to_owned(), 6)].into(),
        },
        pmu: Pmu {
            capacity_bytes: 512 << 10,
            banks: 16,
            read_ports: 2,
            write_ports: 1,
            port_bytes: 64,
            gathers_out_of_order: false,
        },
        network: Network {
            flit_bytes: 64,
            links_per_direction: 2,
            hop_cycles: 1,
            die_hop_cycles: 4,
            fifo_depth_flits: 8,
            max_packet_flits: 8,
        },
        ag_bytes_per_cycle: 64,
        ag_outstanding: None,
        memory: [tier("ddr", 100_000_000_000)].into_iter().collect(),
        launch: Launch {
            orchestration: Orchestration::Software,
            software: times,
            hardware: times,
            program_bytes_per_unit: 2048,
        },
        energy: Energy {
            mac_pj: [(Dtype::Bf16, 0.59), (Dtype::Fp32, 1.5)].into(),
            sram_pj_per_byte: 1.1,
            network_pj_per_bit_hop: 0.05,
            static_w: 60.0,
            zero_mac_share: 1.0,
        },
        area: None,
        vendor: None,
        quality: Quality::Ideal,
        assumed: Arc::default(),
        text: Arc::default(),
    }
}

/// A memory tier.
pub(crate) fn tier(name: &str, bandwidth_bytes_per_s: u64) -> Tier {
    Tier {
        name: name.into(),
        channels: 6,
        bandwidth_bytes_per_s,
        latency_ns: 100.0,
        burst_bytes: 64,
        interleave_bytes: 4096,
        turnaround_ns: 0.0,
        write_batch_bytes: 4096,
        non_sequential_ns: 0.0,
        banks: None,
        capacity_bytes: 1 << 40,
        energy: TierEnergy { pj_per_bit: 20.3, items: None },
    }
}

/// GEMM, GELU, GEMM; both weights at `density`, blocks of 16 x 16.
pub(crate) fn ffn(density: Option<f64>) -> Workload {
    let mut tensors: IndexVec<TensorId, Tensor> = IndexVec::new();
    let mut tensor = |name: &str, rows, columns, role| {
        let sparse = density.filter(|_| role == TensorRole::Weight);
        let mask = sparse.map(|density| Arc::new(BlockMask::random(rows, columns, (16, 16), density, 1)));
        tensors.push(Tensor {
            name: name.into(),
            rows,
            columns,
            dtype: Dtype::Bf16,
            role,
            mask,
            packed: None,
            pruned: None,
            declared: None,
            view: None,
            repeat: 1,
        })
    };
    let x = tensor("x", 2048, 5120, TensorRole::Input);
    let w_up = tensor("w_up", 5120, 20480, TensorRole::Weight);
    let h = tensor("h", 2048, 20480, TensorRole::Intermediate);
    let h_act = tensor("h_act", 2048, 20480, TensorRole::Intermediate);
    let w_down = tensor("w_down", 20480, 5120, TensorRole::Weight);
    let y = tensor("y", 2048, 5120, TensorRole::Output);
    let operator =
        |name: &str, kind, inputs: &[TensorId], output| Operator::new(name.into(), kind, inputs.to_vec(), output);
    let operators = [
        operator("up", OperatorKind::Gemm, &[x, w_up], h),
        operator("gelu", OperatorKind::Gelu, &[h], h_act),
        operator("down", OperatorKind::Gemm, &[h_act, w_down], y),
    ];
    let dims = IndexMap::from([("tokens".to_owned(), 2048)]);
    Workload::new("GPT-13B FFN".into(), dims, tensors, operators.into_iter().collect())
}

/// No operators, no tensors.
pub(crate) fn empty_workload() -> Workload {
    Workload::new("empty".into(), IndexMap::new(), IndexVec::new(), IndexVec::new())
}

/// A run of nothing.
pub(crate) fn empty_outcome() -> Outcome {
    Outcome {
        mode: Mode::Kbk,
        fidelity: Fidelity::Bound,
        stop: StopReason::Drained,
        cycles: 0,
        bound_cycles: 0,
        least_cycles: Some(0),
        sections: Vec::new(),
        notes: Vec::new(),
    }
}

/// A section with one stage an operator, `cycles` beside the launch, and off-chip MiB by tensor (read, written).
pub(crate) fn section(
    name: &str,
    operators: &[&str],
    cycles: u64,
    bound_by: BoundBy,
    by_tensor: &[(&str, u64, u64)],
) -> SectionOutcome {
    let mut traffic = Traffic {
        network_bytes: cycles * 900,
        network_byte_hops: cycles * 5400,
        sram_read_bytes: cycles * 700,
        sram_write_bytes: cycles * 310,
        program_bytes: 1280 * 2048,
        waste_bytes: 4096,
        ..Traffic::default()
    };
    for &(tensor, read, written) in by_tensor {
        let bytes = TensorTraffic { off_chip_read_bytes: read * MIB, off_chip_write_bytes: written * MIB };
        traffic.off_chip_read_bytes += bytes.off_chip_read_bytes;
        traffic.off_chip_write_bytes += bytes.off_chip_write_bytes;
        traffic.by_tensor.insert(tensor.into(), bytes);
    }
    let pcus = 640 / operators.len() as u64;
    SectionOutcome {
        name: name.into(),
        operators: operators.iter().map(ToString::to_string).collect(),
        repeat: 1,
        launches: 1,
        every: 1,
        phase: Phase::Forward,
        cycles: cycles + LAUNCH,
        launch_cycles: LAUNCH,
        bound_by,
        pcus: pcus * operators.len() as u64,
        pmus: 620,
        sram_peak_bytes: 300 * MIB,
        sram_bank_loss_bytes: 3 * MIB,
        held: vec![(HeldBy::Weights, 200 * MIB), (HeldBy::Activations, 100 * MIB)],
        moved: vec![("ddr".into(), traffic.off_chip_bytes())],
        energy: EnergyJ {
            compute: cycles as f64 * 4.4e-8,
            zeros: 0.0,
            sram: traffic.sram_read_bytes as f64 * 1.1e-12,
            network: traffic.network_byte_hops as f64 * 8.0 * 0.05e-12,
            off_chip: traffic.off_chip_bytes() as f64 * 8.0 * 20.3e-12,
            off_chip_items: [0.0; 3],
            static_: (cycles + LAUNCH) as f64 / 1.25e9 * 60.0,
        },
        traffic,
        links: Arc::default(),
        busy: Busy {
            tiers: vec![("ddr".into(), cycles * 9 / 10)],
            ag: cycles / 2,
            link: cycles / 3,
            pcu_port: cycles / 4,
            pmu_port: cycles / 5,
        },
        stages: operators
            .iter()
            .map(|operator| StageOutcome {
                operators: vec![(*operator).into()],
                pcus,
                busiest_cycles: cycles * 6 / 10,
                mean_cycles: cycles as f64 * 0.57,
                groups: Vec::new(),
                mapping: format!("systolic, {pcus} PCUs as 16 x {} x 1, tile 128 x 512 x 5120", pcus / 16),
            })
            .collect(),
    }
}

/// A drained run of sections.
pub(crate) fn outcome(mode: Mode, bound_cycles: u64, sections: Vec<SectionOutcome>) -> Outcome {
    let cycles = sections.iter().map(|section| section.cycles).sum();
    let stop = StopReason::Drained;
    let least_cycles = Some(bound_cycles);
    Outcome { mode, fidelity: Fidelity::Event, stop, cycles, bound_cycles, least_cycles, sections, notes: Vec::new() }
}

/// Runs of the dense FFN in every mode.
pub(crate) fn outcomes() -> Vec<Outcome> {
    let ddr = || BoundBy::Memory("ddr".into());
    let kbk = vec![
        section("up", &["up"], 3_958_204, ddr(), &[("x", 20, 0), ("w_up", 200, 0), ("h", 0, 80)]),
        section("gelu", &["gelu"], 2_101_377, ddr(), &[("h", 80, 0), ("h_act", 0, 80)]),
        section("down", &["down"], 3_961_118, ddr(), &[("h_act", 80, 0), ("w_down", 200, 0), ("y", 0, 20)]),
    ];
    let epilogue = vec![
        section("up+gelu", &["up", "gelu"], 3_961_300, ddr(), &[("x", 20, 0), ("w_up", 200, 0), ("h_act", 0, 80)]),
        section("down", &["down"], 3_961_118, ddr(), &[("h_act", 80, 0), ("w_down", 200, 0), ("y", 0, 20)]),
    ];
    let fused = vec![section(
        "ffn",
        &["up", "gelu", "down"],
        5_841_922,
        ddr(),
        &[("x", 20, 0), ("w_up", 200, 0), ("w_down", 200, 0), ("y", 0, 20)],
    )];
    let mut fused = outcome(Mode::Fused, LAUNCH + 5_767_168, fused);
    fused.notes = vec![
        "The weights (400 MiB) do not fit the 320 MiB of SRAM: they are streamed in 16 chunks along d_ff, each read \
         once, while x and the fp32 sums of y stay on chip."
            .into(),
    ];
    let epilogue = outcome(Mode::Epilogue, 2 * LAUNCH + 7_864_320, epilogue);
    vec![outcome(Mode::Kbk, 3 * LAUNCH + 9_961_472, kbk), epilogue, fused]
}

/// Both runs of a layer of `operators` operators with one tensor each, of very different sizes; the fused one in
/// fewer sections. Names are as long and as hostile as `name` makes them.
pub(crate) fn many_sections(operators: u64, name: &dyn Fn(u64) -> String) -> Vec<Outcome> {
    let bounds = [
        BoundBy::Compute,
        BoundBy::Imbalance,
        BoundBy::Memory("hbm".into()),
        BoundBy::Ag,
        BoundBy::Link,
        BoundBy::PmuPort,
        BoundBy::Launch,
        BoundBy::Fill,
    ];
    let one = |i: u64| {
        let (name, next) = (name(i), name(i + 1));
        let cycles = 10 + i * i * 40_000;
        let tensors = [(name.as_str(), i * i, 0), (next.as_str(), 0, 1 + i)];
        section(&name, &[&name], cycles, bounds[i as usize % bounds.len()].clone(), &tensors)
    };
    let kbk: Vec<SectionOutcome> = (0..operators).map(one).collect();
    let fused: Vec<SectionOutcome> = (0..operators).filter(|i| i % 4 == 0).map(one).collect();
    vec![outcome(Mode::Kbk, 1_000_000, kbk), outcome(Mode::Fused, 400_000, fused)]
}
