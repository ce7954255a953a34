//! No input makes a reader panic, and every error renders.

use proptest::prelude::*;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Override, Root, Source};

use crate::{arch, workload};

const CHIPS: [&str; 2] = [include_str!("../../../arch/sn40l.toml"), include_str!("../../../arch/plasticine.toml")];
const WORKLOADS: [&str; 2] =
    [include_str!("../../../workloads/tiny-mlp.toml"), include_str!("../../../workloads/gpt13b-mlp-sparse.toml")];

/// Text to put where text was.
fn snippet() -> impl Strategy<Value = String> {
    let pieces = [
        "",
        "\n",
        "\"",
        "'",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ",",
        ".",
        "#",
        "0",
        "-1",
        "1e400",
        "nan",
        "inf",
        "-0.0",
        "9223372036854775807",
        "18446744073709551616",
        "1.5",
        "true",
        "1979-05-27",
        "é",
        "\u{feff}",
        "\0",
        "\r\n",
        "\"\"\"",
        "name = \"x\"\n",
        "[pmu]\n",
        "[[memory]]\n",
        "[[tensors]]\n",
        "[[operators]]\n",
        "\"tokens\"",
        "\"d_ff\"",
        "\"h\"",
    ];
    prop_oneof![
        4 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => ".{0,6}",
    ]
}

/// A few places, as shares of the text, each with what replaces how many bytes.
fn mutations() -> impl Strategy<Value = Vec<(f64, usize, String)>> {
    prop::collection::vec((0.0..1.0, 0usize..12, snippet()), 1..4)
}

fn mutated(text: &str, mutations: &[(f64, usize, String)], keep: f64) -> String {
    let mut text = text.to_owned();
    for (at, length, by) in mutations {
        let start = text.floor_char_boundary((at * text.len() as f64) as usize);
        let end = text.ceil_char_boundary((start + length).min(text.len()));
        text.replace_range(start..end, by);
    }
    text.truncate(text.floor_char_boundary((keep * text.len() as f64) as usize));
    text
}

/// Overrides of fields that files have, lack, or cannot have.
fn overrides() -> impl Strategy<Value = Vec<String>> {
    let paths = [
        "arch.pmu.banks",
        "arch.pmu",
        "arch.memory.ddr.channels",
        "arch.memory.hbm.name",
        "arch.memory",
        "arch.name",
        "arch.grid.die_rows",
        "arch.grid.agcus.left.every",
        "arch.grid.agcus.bottom.ags",
        "arch.pcu.lanes.int8",
        "arch.x.y.z",
        "arch.pcu.simd_stages.gelu",
        "arch.\"\".\"é\"",
        "workload.dims.tokens",
        "workload.dtype",
        "workload.tensors.x.dtype",
        "workload.tensors.w_up.sparsity.seed",
        "workload.operators.up.inputs",
        "workload.operators.up.kind",
        "workload.operators",
        "workload.tensors.x.shape",
        "workload.dims",
    ];
    prop::collection::vec((prop::sample::select(paths.to_vec()), snippet()), 0..3)
        .prop_map(|sets| sets.into_iter().map(|(path, value)| format!("{path}={value}")).collect())
}

fn parsed(sets: &[String]) -> Vec<Override> {
    sets.iter().filter_map(|set| Override::parse(set).map_err(|error| check(&error)).ok()).collect()
}

fn check(error: &Diagnostic) {
    assert!(error.render(false).starts_with("error: "));
    assert!(!error.render(true).is_empty() && !error.to_string().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_chips_never_panic(file in 0..2usize, edits in mutations(), keep in 0.2..1.3f64, sets in overrides()) {
        let text = mutated(CHIPS[file], &edits, keep.min(1.0));
        if let Err(error) = arch::parse("a.toml", &text, &parsed(&sets)) {
            check(&error);
        }
    }

    #[test]
    fn damaged_workloads_never_panic(file in 0..2usize, edits in mutations(), keep in 0.2..1.3f64, sets in overrides()) {
        let text = mutated(WORKLOADS[file], &edits, keep.min(1.0));
        if let Err(error) = workload::parse("w.toml", &text, &parsed(&sets), 0) {
            check(&error);
        }
    }

    #[test]
    fn overrides_of_sound_files_never_panic(file in 0..2usize, sets in overrides()) {
        if let Err(error) = arch::parse("a.toml", CHIPS[file], &parsed(&sets)) {
            check(&error);
        }
        if let Err(error) = workload::parse("w.toml", WORKLOADS[file], &parsed(&sets), 0) {
            check(&error);
        }
    }

    #[test]
    fn any_argument_parses_or_is_refused(argument in "(arch|workload|x)?[.a-z\"= ]{0,12}=?.{0,8}") {
        if let Err(error) = Override::parse(&argument) {
            check(&error);
        }
    }

    #[test]
    fn spans_lead_back_to_the_file(sets in overrides()) {
        // Whatever was overridden, the value of `clock_ghz` is shown where the file has it.
        let text = CHIPS[0];
        let at = text.find("1.6\n").expect("has a clock");
        if let Ok(source) = Source::new("a.toml", text, Root::Arch, &parsed(&sets)) {
            let shifted = source.text().find("1.6\n").expect("still has it");
            let error = source.error(shifted..shifted + 3, "t", "l");
            let origin = error.origin().expect("has one");
            prop_assert_eq!(&origin.span, &(at..at + 3));
            prop_assert_eq!(origin.path.as_str(), "a.toml");
        }
    }
}
