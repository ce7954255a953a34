//! Dynamic sparsity: every so many steps the pattern of a sparse weight changes. Its smallest elements are pruned, as many
//! grow again elsewhere, and what is stored then is written again.

use super::form::GemmOptions;
use super::graph::{Operator, OperatorId, Tensor, TensorId, TensorRole};
use super::kind::{OperatorKind, Phase};
use super::resolve::{Builder, Written};
use super::spec::PatternSpec;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Source, Table};
use toml::Spanned;

/// The largest number of steps.
const MOST_STEPS: u64 = 1 << 40;

/// What `[training.pattern]` asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PatternOptions {
    /// Steps from one change to the next.
    every: u64,
    /// Share of the stored elements that is replaced at the step in question.
    fraction: f64,
    /// Elements grow where the gradient of the whole weight is largest (else anywhere).
    by_gradient: bool,
}

/// Reads `[training.pattern]`.
pub(super) fn options(source: &Source, spec: &Spanned<Table<PatternSpec>>) -> Result<PatternOptions, Diagnostic> {
    let spec = spec.get_ref();
    let every = source.count("training.pattern.every", &spec.every, 1..=MOST_STEPS)?;
    let fraction = source.real("training.pattern.fraction", &spec.fraction, 0.0..=1.0)?;
    let regrow = source.keyword("training.pattern.regrow", &spec.regrow, &["random", "gradient"])?;
    let step =
        spec.step.as_ref().map(|step| source.count("training.pattern.step", step, 0..=MOST_STEPS)).transpose()?;
    let steps =
        spec.steps.as_ref().map(|steps| source.count("training.pattern.steps", steps, 1..=MOST_STEPS)).transpose()?;
    let at = step.unwrap_or(0);
    if let (Some(spec), Some(steps)) = (&spec.step, steps.filter(|&steps| at > steps)) {
        let title = format!("`training.pattern.step` is {at}, behind the last of {steps} steps");
        return Err(source.error(spec.span(), title, "expected at most `steps`"));
    }
    // Cosine decay, from all of the fraction at the first step to nothing at the last (RigL, arXiv:1911.11134).
    let decay = steps.map_or(1.0, |steps| 0.5 * (1.0 + (std::f64::consts::PI * at as f64 / steps as f64).cos()));
    Ok(PatternOptions { every, fraction: fraction * decay, by_gradient: regrow == 1 })
}

/// Adds the change of every sparse weight's pattern, behind the step.
pub(super) fn derive(graph: &mut Builder, options: PatternOptions, weights: &[(TensorId, TensorId)]) {
    for &(weight, gradient) in weights {
        if graph.tensors[weight].mask.is_some() {
            change(graph, options, weight, gradient);
        }
    }
}

fn change(graph: &mut Builder, options: PatternOptions, weight: TensorId, gradient: TensorId) {
    let of = graph.tensors[weight].clone();
    let Some(mask) = of.mask.clone() else { return };
    let (name, columns) = (of.name.clone(), of.columns);
    let stored = of.stored_elements();
    let rows = stored.div_ceil(columns);
    let replaced = |count: u64| (options.fraction * count as f64).round() as u64;
    let tensor = |name: String, rows: u64, columns: u64, role| Tensor {
        name,
        rows,
        columns,
        role,
        mask: None,
        view: None,
        ..of.clone()
    };
    let update = graph.operators.iter_enumerated().find(|(_, op)| op.name == format!("update_{name}"));
    let place = update.map_or((None, 1), |(_, op)| (op.block, op.repeat));
    let add = |graph: &mut Builder, kind, name: String, inputs, output, options_of: GemmOptions| {
        let written = Written { inputs, options: options_of };
        let mut operator = graph.operator(&name, kind, &written, output);
        (operator.block, operator.repeat) = place;
        (operator.phase, operator.every) = (Phase::Pattern, options.every);
        graph.push(operator, written);
    };
    let plain = GemmOptions::default();
    // What is pruned is not written: the largest of every row of stored elements stay.
    let old = graph.view(weight, rows, columns, false);
    let most = (columns - replaced(columns)).max(1);
    let kept = graph.tensors.push(tensor(format!("{name}.kept"), rows, most, TensorRole::Intermediate));
    add(graph, OperatorKind::Select, format!("prune_{name}"), vec![old], kept, plain);
    if options.by_gradient
        && let Some((inputs, of_product)) = product(graph, gradient)
    {
        // The whole gradient, once: what grows is not among what is stored.
        let whole = graph.tensors.push(tensor(format!("{name}.growth"), of.rows, columns, TensorRole::Intermediate));
        add(graph, OperatorKind::Gemm, format!("grow_{name}.dw"), inputs, whole, of_product);
        let grown = replaced(stored).div_ceil(of.rows).clamp(1, columns);
        let chosen = graph.tensors.push(tensor(format!("{name}.grown"), of.rows, grown, TensorRole::Output));
        add(graph, OperatorKind::Select, format!("grow_{name}"), vec![whole], chosen, plain);
    }
    // The stored elements in their new order, zeros where they grow, and the metadata beside them.
    let metadata = mask.metadata_bytes().div_ceil(rows * of.dtype.bytes());
    let new = graph.tensors.push(tensor(format!("{name}.new"), rows, columns + metadata, TensorRole::Output));
    add(graph, OperatorKind::Reformat, format!("reformat_{name}"), vec![kept], new, plain);
}

/// Operands of the product that is the gradient of a weight, or part of it.
fn product(graph: &Builder, gradient: TensorId) -> Option<(Vec<TensorId>, GemmOptions)> {
    let maker = |tensor: TensorId| graph.operators.iter_enumerated().find(|(_, op)| op.output == tensor);
    let (id, operator): (OperatorId, &Operator) = maker(gradient)?;
    match operator.kind {
        OperatorKind::Gemm => graph.written.get(id).map(|w| (w.inputs.clone(), w.options)),
        OperatorKind::Add => operator.inputs.iter().find_map(|&part| product(graph, part)),
        _ => None,
    }
}
