//! Counts of an outcome: what adding, repeating and sharing do to bytes, energy and cycles.

use std::sync::Arc;

use indexmap::IndexMap;
use proptest::prelude::*;
use rdusim::mode::Mode;
use rdusim::outcome::{
    BoundBy, Busy, EnergyJ, Fidelity, HeldBy, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};
use rdusim::workload::Phase;

/// Traffic whose off-chip bytes are those of its tensors.
fn traffic() -> impl Strategy<Value = Traffic> {
    let tensors = prop::collection::vec((0..4_u8, 0..1_u64 << 40, 0..1_u64 << 40), 0..4);
    (prop::array::uniform6(0..1_u64 << 40), tensors).prop_map(|(counts, tensors)| {
        let [network_bytes, network_byte_hops, sram_read_bytes, sram_write_bytes, waste_bytes, program_bytes] = counts;
        let mut by_tensor = IndexMap::new();
        for (name, off_chip_read_bytes, off_chip_write_bytes) in tensors {
            by_tensor.insert(format!("t{name}"), TensorTraffic { off_chip_read_bytes, off_chip_write_bytes });
        }
        Traffic {
            off_chip_read_bytes: by_tensor.values().map(|bytes| bytes.off_chip_read_bytes).sum(),
            off_chip_write_bytes: by_tensor.values().map(|bytes| bytes.off_chip_write_bytes).sum(),
            network_bytes,
            network_byte_hops,
            sram_read_bytes,
            sram_write_bytes,
            waste_bytes,
            program_bytes,
            by_tensor,
        }
    })
}

/// Every count of a traffic, tensors last.
fn counts(traffic: &Traffic) -> Vec<u64> {
    let mut counts = vec![
        traffic.network_bytes,
        traffic.network_byte_hops,
        traffic.sram_read_bytes,
        traffic.sram_write_bytes,
        traffic.waste_bytes,
        traffic.program_bytes,
    ];
    for bytes in traffic.by_tensor.values() {
        counts.extend([bytes.off_chip_read_bytes, bytes.off_chip_write_bytes]);
    }
    counts
}

fn is_of_its_tensors(traffic: &Traffic) -> bool {
    let read: u64 = traffic.by_tensor.values().map(|bytes| bytes.off_chip_read_bytes).sum();
    let written: u64 = traffic.by_tensor.values().map(|bytes| bytes.off_chip_write_bytes).sum();
    (traffic.off_chip_read_bytes, traffic.off_chip_write_bytes) == (read, written)
        && traffic.off_chip_bytes() == read + written
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Repeating is adding so often.
    #[test]
    fn times_is_a_repeated_sum(one in traffic(), repeat in 0..6_u64) {
        let mut sum = Traffic::default();
        for _ in 0..repeat {
            sum.add(&one);
        }
        let times = one.clone().times(repeat);
        prop_assert!(is_of_its_tensors(&times));
        if repeat > 0 {
            prop_assert_eq!(&times, &sum);
        } else {
            prop_assert!(counts(&times).iter().all(|&count| count == 0));
        }
    }

    /// A loop differs from so many runs by the program only, which is loaded once a launch.
    #[test]
    fn a_loop_loads_its_program_once_a_launch(one in traffic(), repeat in 1..6_u64, launches in 0..6_u64) {
        let looped = one.clone().looped(repeat, launches);
        prop_assert_eq!(looped.program_bytes, one.program_bytes * launches);
        let program_bytes = one.program_bytes * repeat;
        prop_assert_eq!(Traffic { program_bytes, ..looped }, one.times(repeat));
    }

    /// The shares of all steps are the whole, but for less than a byte a step and count.
    #[test]
    fn shares_add_up(one in traffic(), every in 1..9_u64) {
        let share = one.clone().shared_by(every);
        prop_assert!(is_of_its_tensors(&share));
        for (part, whole) in counts(&share).into_iter().zip(counts(&one)) {
            prop_assert!(part * every >= whole && part * every < whole + every, "{part} x {every} of {whole}");
        }
        prop_assert_eq!(share.by_tensor.len(), one.by_tensor.len());
    }

    /// Sums commute, count by count and tensor by tensor.
    #[test]
    fn sums_commute(a in traffic(), b in traffic()) {
        let (mut ab, mut ba) = (a.clone(), b.clone());
        ab.add(&b);
        ba.add(&a);
        prop_assert_eq!(&ab, &ba);
        prop_assert!(is_of_its_tensors(&ab));
        for (name, bytes) in &ab.by_tensor {
            let of = |traffic: &Traffic| traffic.by_tensor.get(name).copied().unwrap_or_default();
            prop_assert_eq!(bytes.off_chip_read_bytes, of(&a).off_chip_read_bytes + of(&b).off_chip_read_bytes);
            prop_assert_eq!(bytes.off_chip_write_bytes, of(&a).off_chip_write_bytes + of(&b).off_chip_write_bytes);
        }
        prop_assert_eq!(ab.program_bytes, a.program_bytes + b.program_bytes);
    }
}

/// Powers of two in place of energies: a sum tells its terms.
fn energy(scale: f64) -> EnergyJ {
    EnergyJ {
        compute: scale,
        zeros: scale * 2.0,
        sram: scale * 4.0,
        network: scale * 8.0,
        off_chip: scale * 16.0,
        off_chip_items: [scale * 32.0, scale * 64.0, scale * 128.0],
        static_: scale * 256.0,
    }
}

fn stage(busiest_cycles: u64) -> StageOutcome {
    StageOutcome {
        operators: vec!["a".to_owned()],
        pcus: 1,
        busiest_cycles,
        mean_cycles: 1.0,
        groups: Vec::new(),
        mapping: String::new(),
    }
}

/// A section of 10 cycles of launch, 3 and 4 cycles of two tiers, and stages of 5, 9 and 2 cycles.
fn section(cycles: u64, scale: f64) -> SectionOutcome {
    SectionOutcome {
        name: "section".to_owned(),
        operators: Vec::new(),
        repeat: 1,
        launches: 1,
        every: 1,
        phase: Phase::Forward,
        cycles,
        launch_cycles: 10,
        bound_by: BoundBy::Compute,
        pcus: 1,
        pmus: 1,
        sram_peak_bytes: 0,
        sram_bank_loss_bytes: 0,
        held: Vec::new(),
        moved: Vec::new(),
        traffic: Traffic { sram_read_bytes: cycles, ..Traffic::default() },
        energy: energy(scale),
        links: Arc::from([]),
        busy: Busy { tiers: vec![("hbm".to_owned(), 3), ("ddr".to_owned(), 4)], ..Busy::default() },
        stages: vec![stage(5), stage(9), stage(2)],
    }
}

/// Launch, memory and the busiest stage one after the other: 10 + (3 + 4) + 9 = 26, unless the run itself was longer.
#[test]
fn serial_cycles_by_hand() {
    assert_eq!(section(20, 1.0).serial_cycles(), 26);
    assert_eq!(section(27, 1.0).serial_cycles(), 27);
    let none = SectionOutcome { stages: Vec::new(), ..section(1, 1.0) };
    assert_eq!(none.serial_cycles(), 17);
}

#[test]
fn an_outcome_is_the_sum_of_its_sections() {
    let outcome = Outcome {
        mode: Mode::Fused,
        fidelity: Fidelity::Event,
        stop: StopReason::Drained,
        cycles: 47,
        bound_cycles: 1,
        least_cycles: Some(40),
        sections: vec![section(20, 1.0), section(27, 1024.0)],
        notes: Vec::new(),
    };
    assert_eq!(outcome.gap(), Some(47.0 / 40.0 - 1.0));
    assert_eq!(Outcome { stop: StopReason::Deadlock(Vec::new()), ..outcome.clone() }.gap(), None);
    assert_eq!(Outcome { least_cycles: None, ..outcome.clone() }.gap(), None);
    assert_eq!(outcome.serial_cycles(), 26 + 27);
    assert_eq!(outcome.traffic().sram_read_bytes, 47);
    assert_eq!(outcome.energy(), energy(1025.0));
    // Zeros are a part of computing, and the items are parts of off-chip memory: 1 + 4 + 8 + 16 + 256.
    assert!((energy(1.0).total() - 285.0).abs() < 1e-12);
}

/// Names are an interface: results and studies hold them.
#[test]
fn names_of_results() {
    let fidelities = [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle, Fidelity::Kernel];
    assert_eq!(fidelities.map(Fidelity::name), ["bound", "event", "cycle", "kernel"]);
    let bounds = [
        BoundBy::Compute,
        BoundBy::Imbalance,
        BoundBy::Memory("hbm".to_owned()),
        BoundBy::Ag,
        BoundBy::Link,
        BoundBy::PmuPort,
        BoundBy::Launch,
        BoundBy::Fill,
    ];
    let expected = ["compute", "imbalance", "memory:hbm", "ag", "link", "pmu_port", "launch", "fill"];
    assert_eq!(bounds.map(|bound| bound.to_string()), expected);
    let uses = ["weights", "activations", "sums", "results", "prefetched", "tiles"];
    assert_eq!(HeldBy::ALL.map(HeldBy::name), uses);
}
