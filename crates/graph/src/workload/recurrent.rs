//! Shapes of the operators that linear recurrences are made of: scans, their factors, convolutions along the rows.

use indexmap::IndexMap;

use super::OperatorKind;
use super::declare::{Draft, Shape, text};
use super::link::Linked;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Source;

/// The shape of what such an operator makes, or what is wrong with its inputs; `None` of other operators.
pub(super) fn shape(
    source: &Source,
    operator: &Linked<'_>,
    inputs: &[Shape],
    drafts: &IndexMap<String, Draft>,
) -> Option<Result<Shape, Diagnostic>> {
    let taps = operator.vectors.first().and_then(|&taps| drafts[taps].shape).map(|shape| shape.1);
    let found = made(operator, inputs, taps)?;
    let types_differ = || {
        let dtypes: Vec<_> = operator.inputs.iter().map(|&input| drafts[input].dtype).collect();
        !operator.kind.mixes_types() && dtypes.windows(2).any(|pair| pair[0] != pair[1])
    };
    let found = found
        .and_then(|shape| if types_differ() { Err("expected inputs of one data type".to_owned()) } else { Ok(shape) });
    Some(found.map_err(|expected| {
        let of = |(&input, &shape): (&usize, &Shape)| format!("{:?} is {}", drafts[input].name, text(shape));
        let both: Vec<String> = operator.inputs.iter().zip(inputs).map(of).collect();
        let title = format!("operator {:?}: {}", operator.name, both.join(" and "));
        let mut spans = vec![operator.spec.inputs.span()];
        spans.extend(operator.inputs.iter().flat_map(|&input| drafts[input].shape_spans.clone()));
        source.error_among(&spans, title, expected)
    }))
}

/// The shape of the result, or what was expected.
fn made(operator: &Linked<'_>, inputs: &[Shape], taps: Option<u64>) -> Option<Result<Shape, String>> {
    let (&first, second) = (inputs.first()?, inputs.get(1).copied());
    let options = &operator.options;
    let (heads, groups, sequences) = (options.heads, options.kv_heads, options.batch);
    let (rows, columns) = first;
    let is_carried = operator.kind.is_carried();
    if is_carried && !rows.is_multiple_of(sequences) {
        return Some(Err(format!("expected rows that divide into {sequences} sequences (`batch`)")));
    }
    let same_rows = second.is_none_or(|second| second.0 == rows);
    let divides = columns.is_multiple_of(heads) && heads.is_multiple_of(groups);
    let of_groups = || second.filter(|second| second.1.is_multiple_of(groups)).map(|second| second.1 / groups);
    let is_twice = operator.inputs.first() == operator.inputs.get(1);
    Some(match operator.kind {
        OperatorKind::HeadScale | OperatorKind::Quantize | OperatorKind::Scan | OperatorKind::ScanBefore => {
            let factors = (rows, heads);
            let fits = divides && second == Some(factors);
            if fits { Ok(first) } else { Err(format!("expected {heads} heads, and factors {}", text(factors))) }
        }
        OperatorKind::Outer => match of_groups().filter(|_| divides && same_rows && !is_twice) {
            Some(length) => columns.checked_mul(length).map(|columns| (rows, columns)).ok_or_else(too_wide),
            None => Err(format!("expected two tensors of equally many rows, in {heads} heads and {groups} groups")),
        },
        OperatorKind::Contract => {
            let fits = |length: &u64| {
                heads.checked_mul(*length).is_some_and(|of_heads| of_heads > 0 && columns.is_multiple_of(of_heads))
            };
            match of_groups().filter(|length| divides && same_rows && !is_twice && fits(length)) {
                Some(length) => Ok((rows, columns / length)),
                None => {
                    Err(format!("expected {heads} heads of whole runs, each as long as a row of the {groups} groups"))
                }
            }
        }
        OperatorKind::DecayMask | OperatorKind::DecayBefore => {
            let length = rows / sequences;
            let scores = groups.checked_mul(length);
            let fits = heads.is_multiple_of(groups) && scores == Some(columns) && second == Some((rows, heads));
            if fits && !is_twice {
                heads.checked_mul(length).map(|columns| (rows, columns)).ok_or_else(too_wide)
            } else {
                Err(format!(
                    "expected {groups} groups of {length} scores a row, and a factor for each of {heads} heads"
                ))
            }
        }
        OperatorKind::RunningProduct => Ok(first),
        OperatorKind::CausalConv | OperatorKind::ConvStep => {
            let each = taps.filter(|taps| taps.is_multiple_of(columns)).map(|taps| taps / columns);
            let before = each.map(|each| (rows, (each - 1) * columns));
            match (operator.kind, each) {
                (_, None | Some(0)) => {
                    Err(format!("expected `vectors` of whole taps: [1, {columns} times their number]"))
                }
                (OperatorKind::ConvStep, _) if second != before => {
                    let before = before.map_or_else(String::new, text);
                    Err(format!("expected the rows before of every column: {before}"))
                }
                _ => Ok(first),
            }
        }
        _ => return None,
    })
}

fn too_wide() -> String {
    "expected fewer columns: they do not fit 64 bits".to_owned()
}
