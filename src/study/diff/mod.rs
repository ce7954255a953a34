//! `diff`: two results of `compare` or `run`, what changed between them and why.

mod difference;
mod read;
mod text;

use indexmap::IndexMap;
use serde_json::Value;

use crate::diagnostics::Diagnostic;
use crate::report::METRICS;
pub use difference::{Change, Difference, Figure, InputChange, RunChange, SectionChange};
use read::{Inputs, ResultFile, Run, Section};

/// Compares two results; each is the file's name and its text.
///
/// # Errors
/// A text that is no result of this program.
pub fn diff(a: (&str, &str), b: (&str, &str)) -> Result<Difference, Diagnostic> {
    let (first, second) = (read::read(a.0, a.1)?, read::read(b.0, b.1)?);
    let has = |file: &ResultFile, mode: &str| file.runs.iter().any(|run| run.mode == mode);
    let only = |one: &ResultFile, other: &ResultFile| {
        one.runs.iter().map(|run| run.mode.clone()).filter(|mode| !has(other, mode)).collect()
    };
    let pairs =
        first.runs.iter().filter_map(|run| Some((run, second.runs.iter().find(|other| other.mode == run.mode)?)));
    let mut inputs = match (&first.inputs, &second.inputs) {
        (Some(a), Some(b)) => input_fields(a, b),
        _ => Vec::new(),
    };
    let shown = fields("arch", &first.arch, &second.arch);
    for change in shown.into_iter().chain(fields("workload", &first.workload, &second.workload)) {
        if inputs.iter().all(|known| known.field != change.field) {
            inputs.push(change);
        }
    }
    Ok(Difference {
        schema: 1,
        a: a.0.to_owned(),
        b: b.0.to_owned(),
        inputs,
        inputs_recorded: [first.inputs.is_some(), second.inputs.is_some()],
        runs: pairs.map(|(a, b)| run_change(a, b)).collect(),
        only_in_a: only(&first, &second),
        only_in_b: only(&second, &first),
        speedup: first.speedup.zip(second.speedup).map(|(a, b)| Change::new(a, b)),
        speedup_range: [first.speedup_range, second.speedup_range],
        speedup_over_epilogue_range: [first.speedup_over_epilogue_range, second.speedup_over_epilogue_range],
        speedup_over_epilogue: first
            .speedup_over_epilogue
            .zip(second.speedup_over_epilogue)
            .map(|(a, b)| Change::new(a, b)),
    })
}

fn fields(root: &str, a: &IndexMap<String, Value>, b: &IndexMap<String, Value>) -> Vec<InputChange> {
    let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
    let value = |map: &IndexMap<String, Value>, key: &str| map.get(key).cloned().unwrap_or(Value::Null);
    keys.map(|key| InputChange { field: format!("{root}.{key}"), a: value(a, key), b: value(b, key) })
        .filter(|change| !is_same(&change.a, &change.b))
        .collect()
}

/// Whether two values say the same: `1` and `1.0` do.
fn is_same(a: &Value, b: &Value) -> bool {
    let is_whole = |value: &Value| value.is_u64() || value.is_i64();
    match (a.as_f64(), b.as_f64()) {
        (Some(one), Some(other)) if !(is_whole(a) && is_whole(b)) => one.to_bits() == other.to_bits(),
        _ => a == b,
    }
}

/// Fields of the inputs that differ: of the chip, the workload, the options, and the other chips.
fn input_fields(a: &Inputs, b: &Inputs) -> Vec<InputChange> {
    let none = IndexMap::new();
    let against = [&a.against, &b.against].map(|fields| fields.as_ref().unwrap_or(&none));
    let mut list = [
        fields("arch", &a.arch, &b.arch),
        fields("workload", &a.workload, &b.workload),
        fields("options", &a.options, &b.options),
        fields("against", against[0], against[1]),
    ]
    .concat();
    for at in 0..a.against_further.len().max(b.against_further.len()) {
        let further = [a, b].map(|of| of.against_further.get(at).unwrap_or(&none));
        list.extend(fields(&format!("against_further[{at}]"), further[0], further[1]));
    }
    list
}

fn run_change(a: &Run, b: &Run) -> RunChange {
    let figure = |name: &str, of: &dyn Fn(&Run) -> f64| (name.to_owned(), Change::new(of(a), of(b)));
    let count = |name: &str, of: &dyn Fn(&Run) -> u64| (name.to_owned(), Change::new(of(a), of(b)));
    let mut figures: IndexMap<String, Change> = [
        figure("time_s", &|run| run.time_s),
        count("cycles", &|run| run.cycles),
        count("bound_cycles", &|run| run.bound_cycles),
        count("launches", &|run| run.launches),
        figure("utilization", &|run| run.utilization),
        figure("tflops_executed", &|run| run.tflops_executed),
        count("off_chip_read_bytes", &|run| run.traffic.off_chip_read_bytes),
        count("off_chip_write_bytes", &|run| run.traffic.off_chip_write_bytes),
        count("network_bytes", &|run| run.traffic.network_bytes),
        count("sram_read_bytes", &|run| run.traffic.sram_read_bytes),
        count("sram_write_bytes", &|run| run.traffic.sram_write_bytes),
    ]
    .into();
    for (place, joules) in &a.energy_j {
        if let Some(other) = b.energy_j.get(place) {
            figures.insert(format!("energy_{place}_j"), Change::new(*joules, *other));
        }
    }
    for metric in &METRICS {
        let of = |run: &Run| {
            let value = run.others.get(metric.key)?;
            value.as_u64().map(Figure::Whole).or_else(|| value.as_f64().map(Figure::Real))
        };
        if let Some((a, b)) = of(a).zip(of(b)) {
            figures.insert(metric.key.to_owned(), Change::new(a, b));
        }
    }
    let mut tensors: IndexMap<String, Change> = IndexMap::new();
    let names = a.traffic.by_tensor.keys().chain(b.traffic.by_tensor.keys());
    for name in names {
        let bytes =
            |run: &Run| run.traffic.by_tensor.get(name).map_or(0, |t| t.off_chip_read_bytes + t.off_chip_write_bytes);
        let change = Change::new(bytes(a), bytes(b));
        if !change.is_none() {
            tensors.insert(name.clone(), change);
        }
    }
    let sections = sections(a, b);
    let reasons = reasons(a, b, &sections, &tensors);
    RunChange { mode: a.mode.clone(), figures, sections, tensors, reasons }
}

fn sections(a: &Run, b: &Run) -> Vec<SectionChange> {
    let seconds = |run: &Run, section: &Section| run.time_s * section.cycles as f64 / (run.cycles.max(1)) as f64;
    let side =
        |run: &Run, section: Option<&Section>| (section.map(|s| seconds(run, s)), section.map(|s| s.bound_by.clone()));
    let change = |operators: &[String], one: Option<&Section>, other: Option<&Section>| {
        let ((a_time_s, a_bound_by), (b_time_s, b_bound_by)) = (side(a, one), side(b, other));
        SectionChange { operators: operators.to_vec(), a_time_s, b_time_s, a_bound_by, b_bound_by }
    };
    let same = |list: &[Section], operators: &[String]| list.iter().position(|s| s.operators == operators);
    let mut list: Vec<SectionChange> = a
        .sections
        .iter()
        .map(|one| change(&one.operators, Some(one), same(&b.sections, &one.operators).map(|at| &b.sections[at])))
        .collect();
    let new = b.sections.iter().filter(|other| same(&a.sections, &other.operators).is_none());
    list.extend(new.map(|other| change(&other.operators, None, Some(other))));
    list
}

/// What explains a change of time, in sentences.
fn reasons(a: &Run, b: &Run, sections: &[SectionChange], tensors: &IndexMap<String, Change>) -> Vec<String> {
    let mut reasons = Vec::new();
    if a.fidelity != b.fidelity {
        reasons
            .push(format!("The fidelity is {} in A and {} in B: times are not of one kind.", a.fidelity, b.fidelity));
    }
    if a.launches != b.launches {
        let launched = |run: &Run| {
            run.sections.iter().map(|s| s.launch_cycles).sum::<u64>() as f64 * run.time_s / run.cycles.max(1) as f64
        };
        reasons.push(format!(
            "B starts {} sections, A {}: launching takes {} instead of {}.",
            b.launches,
            a.launches,
            text::seconds(launched(b)),
            text::seconds(launched(a))
        ));
    }
    let mut moved: Vec<(&SectionChange, f64)> = sections
        .iter()
        .map(|s| (s, s.b_time_s.unwrap_or(0.0) - s.a_time_s.unwrap_or(0.0)))
        .filter(|(_, delta)| delta.abs() > 1e-3 * a.time_s.max(b.time_s))
        .collect();
    moved.sort_by(|x, y| y.1.abs().total_cmp(&x.1.abs()));
    for (section, delta) in moved {
        let name = section.operators.join("+");
        let word = if delta > 0.0 { "longer" } else { "shorter" };
        let change = text::seconds(delta.abs());
        reasons.push(match (&section.a_bound_by, &section.b_bound_by) {
            (Some(one), Some(other)) if one == other => {
                format!("Section {name} takes {change} {word}, bound by {one} in both.")
            }
            (Some(one), Some(other)) => {
                format!("Section {name} takes {change} {word}: bound by {one} in A, by {other} in B.")
            }
            (Some(one), None) => format!("Section {name} ({change}, bound by {one}) is in A alone."),
            (None, Some(other)) => format!("Section {name} ({change}, bound by {other}) is in B alone."),
            (None, None) => continue,
        });
    }
    let mut tensors: Vec<(&String, &Change)> = tensors.iter().collect();
    tensors.sort_by(|x, y| y.1.distance().total_cmp(&x.1.distance()));
    for (name, change) in tensors {
        reasons.push(format!(
            "Off-chip bytes of {name}: {} in A, {} in B.",
            text::bytes(change.a.real()),
            text::bytes(change.b.real())
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = r#"{"schema": 1, "arch": {"name": "x", "pcus": 4}, "workload": {"name": "w"},
        "runs": [{"mode": "fused", "fidelity": "event", "cycles": 100, "time_s": 1.0, "launches": 1,
        "utilization": 0.5, "tflops_executed": 1.0, "bound_cycles": 90,
        "traffic": {"off_chip_read_bytes": 10, "off_chip_write_bytes": 2, "network_bytes": 3, "sram_read_bytes": 4,
        "sram_write_bytes": 5, "by_tensor": {"t": {"off_chip_read_bytes": 10, "off_chip_write_bytes": 2}}},
        "energy_j": {"total": 1.0},
        "sections": [{"operators": ["f", "g"], "cycles": 100, "launch_cycles": 10, "bound_by": "compute"}]}]}"#;

    #[test]
    fn a_result_does_not_differ_from_itself() {
        let same = diff(("a", A), ("b", A)).unwrap();
        assert!(same.inputs.is_empty() && same.runs[0].reasons.is_empty() && same.runs[0].tensors.is_empty());
        assert!(same.to_text().contains("Nothing differs"), "{}", same.to_text());
    }

    #[test]
    fn changes_are_told_with_their_reasons() {
        let b = A
            .replace("\"pcus\": 4", "\"pcus\": 8")
            .replace("\"time_s\": 1.0", "\"time_s\": 0.5")
            .replace("compute", "memory:ddr")
            .replace("{\"t\": {\"off_chip_read_bytes\": 10", "{\"t\": {\"off_chip_read_bytes\": 20");
        let found = diff(("a", A), ("b", &b)).unwrap();
        assert_eq!(found.inputs[0].field, "arch.pcus");
        assert_eq!(found.runs[0].figures["time_s"].ratio, Some(0.5));
        assert_eq!(
            found.runs[0].reasons,
            [
                "Section f+g takes 500.0 ms shorter: bound by compute in A, by memory:ddr in B.",
                "Off-chip bytes of t: 12 B in A, 22 B in B."
            ]
        );
        assert!(found.to_text().contains("500.0 ms"));
    }

    #[test]
    fn counts_beyond_what_a_float_holds_are_told_apart() {
        let of = |cycles: u64| A.replace("\"cycles\": 100, \"time_s\"", &format!("\"cycles\": {cycles}, \"time_s\""));
        let found = diff(("a", &of(1 << 53)), ("b", &of((1 << 53) + 1))).unwrap();
        let change = found.runs[0].figures["cycles"];
        assert!(!change.is_none() && !found.to_text().contains("Nothing differs"), "{}", found.to_text());
        assert!(found.to_json().contains("\"b\": 9007199254740993"), "{}", found.to_json());
    }

    #[test]
    fn inputs_are_compared_field_by_field_where_both_record_them() {
        let with = |inputs: &str| A.replace("\"runs\"", &format!("\"inputs\": {inputs}, \"runs\""));
        let a = with(r#"{"arch": {"x": 1, "y.z": 2, "gone": [1]}, "workload": {"k": "v"}, "options": {"seed": 0}}"#);
        let b = with(r#"{"arch": {"x": 1.0, "y.z": 3}, "workload": {"k": "w"}, "options": {"seed": 1}}"#);
        let found = diff(("a", &a), ("b", &b)).unwrap();
        let fields: Vec<&str> = found.inputs.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, ["arch.y.z", "arch.gone", "workload.k", "options.seed"]);
        assert_eq!(found.inputs_recorded, [true, true]);
        // An older result still has the figures of its chip.
        let found = diff(("a", A), ("b", &b.replace("\"pcus\": 4", "\"pcus\": 8"))).unwrap();
        assert_eq!((found.inputs.len(), found.inputs_recorded), (1, [false, true]));
        let text = found.to_text();
        assert!(text.contains("A does not record the fields of its inputs"), "{text}");
    }

    #[test]
    fn what_is_no_result_is_refused_with_its_place() {
        for (text, wanted) in [
            ("{", "b.json:1:"),
            ("{\"schema\": 2}", "schema"),
            ("[]", "b.json:1:"),
            (&A.replace("\"cycles\": 100, \"time_s\"", "\"time_s\"")[..], "cycles"),
        ] {
            let error = diff(("a.json", A), ("b.json", text)).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("b.json"), "{error}");
        }
    }
}
