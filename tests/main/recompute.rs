//! Tensors that are recomputed in every column tile, in place of being kept for a row block.

use rdusim::arch::{self, Chip};
use rdusim::compile::compile_measured;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::program::Configuration;
use rdusim::sim::simulate;
use rdusim::workload::{self, Workload};
use rdusim::{saved, verify};

/// A narrow tensor is made wide and goes through a square weight: `z` is far larger than `x`.
fn widened(rows: u64, rank: u64, width: u64) -> Workload {
    let text = format!(
        "schema = 1\nname = \"widened\"\ndtype = \"bf16\"\n\
         [[tensors]]\nname = \"x\"\nshape = [{rows}, {rank}]\nrole = \"input\"\n\
         [[tensors]]\nname = \"v\"\nshape = [{rank}, {width}]\nrole = \"weight\"\n\
         [[tensors]]\nname = \"w\"\nshape = [{width}, {width}]\nrole = \"weight\"\n\
         [[operators]]\nname = \"widen\"\nkind = \"gemm\"\ninputs = [\"x\", \"v\"]\noutput = \"z\"\n\
         [[operators]]\nname = \"gemm\"\nkind = \"gemm\"\ninputs = [\"z\", \"w\"]\noutput = \"y\"\n"
    );
    workload::parse("widened", &text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn chip(text: &str, sets: &[&str]) -> Chip {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    arch::parse("chip", text, &sets).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn fused(chip: &Chip, workload: &Workload) -> Configuration {
    let mut list = compile_measured(chip, workload, &[Mode::Fused]).unwrap_or_else(|e| panic!("{}", e.render(false)));
    list.remove(0).configuration
}

fn again(configuration: &Configuration) -> Vec<bool> {
    configuration.sections.iter().flat_map(|section| &section.stages).map(|stage| stage.recomputed).collect()
}

/// 10 MiB of SRAM for 128 MiB of `z` and 32 MiB of `w`: kept, `z` comes in row blocks that read `w` 25 times.
#[test]
fn what_has_no_room_is_recomputed_where_that_is_faster() {
    let chip = chip(include_str!("../../arch/sn10.toml"), &["arch.pmu.capacity_bytes=16384"]);
    let workload = widened(16_384, 64, 4096);
    let found = fused(&chip, &workload);
    assert_eq!(again(&found), [true, false]);
    let outcome = simulate(&chip, &workload, &found, Fidelity::Event);
    let read = |name: &str| {
        let traffic = &outcome.sections[0].traffic;
        let tensor = workload.tensors.iter().find(|tensor| tensor.name == name).expect("a tensor");
        (traffic.off_chip_read_bytes, tensor.stored_bytes())
    };
    let (all, w) = read("w");
    // `w` once, and `x` in every column tile.
    assert!(all < 3 * w, "{all} bytes read, `w` has {w}");
    // 11.4 M cycles were the best with `z` kept.
    assert!(outcome.cycles < 5_000_000, "{} cycles", outcome.cycles);
}

#[test]
fn all_fidelities_and_the_numbers_agree() {
    let text = include_str!("../../arch/plasticine.toml");
    for (bytes, width) in [("2048", 320), ("2048", 400), ("4096", 560)] {
        let chip = chip(text, &["arch.pmu.banks=8", &format!("arch.pmu.capacity_bytes={bytes}")]);
        let workload = widened(480, 6, width);
        let found = fused(&chip, &workload);
        assert!(again(&found).contains(&true), "{bytes} bytes, {width} columns");
        let [bound, event, cycle] = [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle]
            .map(|fidelity| simulate(&chip, &workload, &found, fidelity));
        assert_eq!((event.stop, cycle.stop), (StopReason::Drained, StopReason::Drained));
        for ((b, e), c) in bound.sections.iter().zip(&event.sections).zip(&cycle.sections) {
            assert_eq!(e.traffic, c.traffic, "{bytes} bytes, {width} columns");
            assert!(b.cycles <= e.cycles, "bound {}, event {}", b.cycles, e.cycles);
            let [event, cycle] = [e, c].map(|section| (section.cycles - section.launch_cycles) as f64);
            assert!((event / cycle - 1.0).abs() < 0.05, "{bytes} bytes, {width} columns: event {event}, cycle {cycle}");
        }
        let verdicts = verify::verify(&chip, &workload, [&found], 5);
        assert!(verdicts.iter().all(|verdict| verdict.passed), "{verdicts:?}");
        let text = saved::to_toml(&chip, &workload, [&found]);
        let read = saved::parse("saved.toml", &text, &chip, &workload, &[Mode::Fused]);
        let read = read.unwrap_or_else(|error| panic!("{}", error.render(false)));
        assert_eq!(format!("{:?}", read[0]), format!("{found:?}"));
    }
}
