//! K of a GEMM split over PCUs: what the search makes of it, and that all fidelities agree on it.

use rdusim::arch::{self, Chip};
use rdusim::compile::{Configuration, GemmMapping, Mapping, remapped};
use rdusim::mode::Mode;
use rdusim::saved;
use rdusim::sim::{Fidelity, Outcome, StopReason, compile_measured, simulate};
use rdusim::workload::{self, Workload};

/// A grid of 8 x 8 sites and a memory that is never in the way.
fn chip() -> Chip {
    let text = include_str!("../../arch/plasticine.toml");
    let sets = ["arch.memory.0.bandwidth_gb_per_s=4000".to_owned(), "arch.memory.0.channels=16".to_owned()];
    arch::parse("plasticine", text, &sets).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

/// `m` rows by a weight of `k` rows and `n` columns.
fn product(m: u64, k: u64, n: u64, sparsity: &str) -> Workload {
    let text = format!(
        "schema = 1\nname = \"product\"\ndtype = \"fp32\"\n\
         [[tensors]]\nname = \"a\"\nshape = [{m}, {k}]\nrole = \"input\"\n\
         [[tensors]]\nname = \"b\"\nshape = [{k}, {n}]\nrole = \"weight\"\n{sparsity}\n\
         [[operators]]\nname = \"gemm\"\nkind = \"gemm\"\ninputs = [\"a\", \"b\"]\noutput = \"c\"\n"
    );
    workload::parse("product", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
}

const SPARSE: &str = "sparsity = { pattern = \"block\", block = [8, 8], density = 0.25, seed = 5 }";

fn compiled(chip: &Chip, workload: &Workload) -> Configuration {
    let mut list = compile_measured(chip, workload, &[Mode::Kbk]).unwrap_or_else(|e| panic!("{}", e.render(false)));
    list.remove(0).configuration
}

/// The configuration with another mapping.
fn with(
    chip: &Chip,
    workload: &Workload,
    of: &Configuration,
    change: impl Fn(&mut GemmMapping) + Copy,
) -> Configuration {
    let mut other = of.clone();
    for section in &mut other.sections {
        *section = remapped(chip, workload, section, change).unwrap();
    }
    other
}

fn splits(configuration: &Configuration) -> Vec<u64> {
    let stages = configuration.sections.iter().flat_map(|section| &section.stages);
    stages.map(|stage| if let Mapping::Gemm(m) = stage.mapping { m.pk } else { 1 }).collect()
}

fn working_cycles(outcome: &Outcome) -> u64 {
    assert_eq!(outcome.stop, StopReason::Drained);
    outcome.sections.iter().map(|section| section.cycles - section.launch_cycles).sum()
}

/// 64 rows and 16 columns are few tiles, and each is 4,096 steps deep.
#[test]
fn a_deep_product_is_split_where_that_is_faster() {
    let chip = chip();
    let workload = product(64, 4096, 16, "");
    let found = compiled(&chip, &workload);
    assert!(splits(&found)[0] > 1, "{:?}", found.sections[0].stages[0].mapping);
    let whole = with(&chip, &workload, &found, |m| m.pk = 1);
    let [split, whole] = [&found, &whole].map(|c| working_cycles(&simulate(&chip, &workload, c, Fidelity::Event)));
    assert!(split * 4 < whole * 3, "{split} split, {whole} whole");
}

#[test]
fn all_fidelities_agree_on_slices_of_k() {
    let chip = chip();
    for (sparsity, columns) in [("", 24), (SPARSE, 48)] {
        let workload = product(96, 1000, columns, sparsity);
        let found = compiled(&chip, &workload);
        for (pk, pn, share) in [(1, 2, 2), (2, 2, 2), (3, 4, 2), (5, 2, 1), (7, 1, 1)] {
            let split = with(&chip, &workload, &found, |m| {
                *m = GemmMapping { rows_on_lanes: true, pm: 1, pn, pk, share, aligned: false, ..*m };
            });
            let [bound, event, cycle] = [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle]
                .map(|fidelity| simulate(&chip, &workload, &split, fidelity));
            let about = format!("{sparsity} {pk} slices, {pn} columns in bundles of {share}");
            for (e, c) in event.sections.iter().zip(&cycle.sections) {
                assert_eq!(e.traffic, c.traffic, "{about}");
            }
            let [bound, event_cycles, cycle] = [&bound, &event, &cycle].map(working_cycles);
            assert!(bound <= event_cycles, "{about}: bound {bound}, event {event_cycles}");
            let error = event_cycles as f64 / cycle as f64 - 1.0;
            assert!(error.abs() < 0.05, "{about}: event {event_cycles}, cycle {cycle}");
        }
    }
}

#[test]
fn a_split_is_saved_and_what_cannot_be_is_refused() {
    let chip = chip();
    let workload = product(64, 4096, 16, "");
    let found = compiled(&chip, &workload);
    let text = saved::to_toml(&chip, &workload, [&found]);
    assert!(text.contains("role = \"relay\"") && text.contains("k_slice = 0"), "{text}");
    let read = |text: &str| saved::parse("saved.toml", text, &chip, &workload, &[Mode::Kbk]);
    let again = read(&text).unwrap_or_else(|error| panic!("{}", error.render(false)));
    assert_eq!(format!("{:?}", again[0]), format!("{found:?}"));
    let pk = format!("pk = {}", splits(&found)[0]);
    for (from, to, told) in [
        (pk.as_str(), "pk = 0", "`pk` is 0"),
        (pk.as_str(), "pk = 5000", "`pk` is 5000"),
        ("k_slice = 0", "k_slice = 77", "expected the relay of its stage with `k_slice = 0`"),
    ] {
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text);
        let refused = read(&edited).map(|_| ()).unwrap_err().render(false);
        assert!(refused.contains(told) && refused.contains("saved.toml:"), "{to}: {refused}");
    }
}
