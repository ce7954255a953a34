//! Linear recurrences: their two forms give the same numbers, and faults in what is carried are caught.

use super::*;

/// Two layers of Mamba-2, small: sequences of 24 rows in runs of `span`, heads in groups.
fn mamba(span: u32, heads: u32, groups: u16) -> Workload {
    let (architecture, _) = preset("mamba2-130m").unwrap();
    let mut extras = architecture.extras;
    if let Some(mamba) = &mut extras.mamba {
        *mamba = rdusim_models::model::Mamba { layers: 2, heads, groups, head: 8, state: 10, span, ..*mamba };
    }
    let sizes = Architecture { hidden: 12, layers: 2, vocabulary: 17, extras, ..architecture };
    let options = Options { dtype: "fp32".to_owned(), ..Options::new("mamba", sizes, Phase::Forward, 2, 24) };
    workload::parse("mamba", &write(&options).unwrap(), &[], 0).unwrap()
}

/// The form in runs of rows (section 6 of arXiv:2405.21060) against the recurrence row by row, from the same numbers by name, in f64: every
/// head takes the columns of its group.
#[test]
fn runs_of_rows_give_what_the_recurrence_gives() {
    for of in [(3, 1), (6, 3), (4, 2), (4, 4)] {
        agree(of);
    }
}

fn agree(of: (u32, u16)) {
    let rows = mamba(1, of.0, of.1);
    let inputs = data::inputs(&rows, 5);
    let logits = |workload: &Workload, inputs: &[Option<Matrix>]| {
        let made = reference::graph(workload, inputs);
        let output = workload.tensors.iter_enumerated().find(|(_, tensor)| tensor.name == "logits").unwrap().0;
        made[output.index()].clone().unwrap()
    };
    let expected = logits(&rows, &inputs);
    for span in [2, 4, 8, 24] {
        let in_runs = mamba(span, of.0, of.1);
        let of_name = |tensor: &rdusim_graph::workload::Tensor| {
            let known = rows.tensors.iter().position(|other| other.name == tensor.name && other.view == tensor.view);
            known.and_then(|at| inputs[at].clone())
        };
        let same: Vec<_> = in_runs.tensors.iter().map(of_name).collect();
        let found = logits(&in_runs, &same);
        let pairs = expected.value.values.iter().zip(&found.value.values);
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        // The reference rounds what it stores to fp32.
        assert!(worst < 1e-4, "runs of {span}, {of:?}: {worst} off");
        let size = expected.value.values.iter().map(|x| x.abs()).fold(0.0, f64::max);
        assert!(size > 0.1, "there is nothing to compare: {size}");
    }
}

/// A scan over three sequences.
fn scan() -> Case {
    let tensor = |name, shape| format!("[[tensors]]\nname = \"{name}\"\nshape = {shape}\nrole = \"input\"\n");
    let text = [
        "schema = 1\nname = \"scan\"\ndtype = \"fp32\"\n".to_owned(),
        tensor("b", "[48, 40]"),
        tensor("a", "[48, 5]"),
        "[[operators]]\nname = \"scan\"\nkind = \"scan\"\ninputs = [\"b\", \"a\"]\noutput = \"h\"\nheads = 5\nbatch = 3\n"
            .to_owned(),
    ];
    let workload = workload::parse("scan", &text.concat(), &[], 0).unwrap();
    let chip = arch::load(Path::new("plasticine"), &[]).unwrap();
    let configuration = compile(&chip, &workload, Mode::Fused).unwrap();
    Case { chip, workload, configuration }
}

#[test]
fn a_state_that_is_carried_too_far_or_late_is_caught() {
    let case = drawn(scan(), |section| section.schedule.tiling().row_tiles() > 1);
    assert!(case.plain().passed, "{:?}", case.plain());
    let with = |change: &dyn Fn(&mut rdusim_graph::workload::Operator)| {
        let mut mapped = case.workload.clone();
        mapped.operators.iter_mut().for_each(change);
        case.run(&mapped)
    };
    // The state of a sequence goes on into the next; is handed on a row late; is reset in the middle.
    assert!(!with(&|operator| operator.options.batch = 1).passed);
    assert!(!with(&|operator| operator.kind = OperatorKind::ScanBefore).passed);
    assert!(!with(&|operator| operator.options.batch = 6).passed);
}
