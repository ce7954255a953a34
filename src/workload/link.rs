//! Operators, linked to the tensors they name and put in topological order.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use indexmap::IndexMap;

use super::OperatorKind;
use super::declare::{Draft, default_dtype};
use super::spec::{OperatorSpec, WorkloadSpec};
use crate::diagnostics::Diagnostic;
use crate::input::{Source, suggest};

/// An operator whose tensors are rows of the table of drafts.
#[derive(Debug)]
pub(super) struct Linked<'a> {
    pub(super) spec: &'a OperatorSpec,
    pub(super) name: String,
    pub(super) kind: OperatorKind,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
}

/// Links the operators, in file order; outputs that are not declared join the drafts.
pub(super) fn link<'a>(
    source: &Source,
    spec: &'a WorkloadSpec,
    drafts: &mut IndexMap<String, Draft>,
) -> Result<Vec<Linked<'a>>, Diagnostic> {
    let operators = spec.operators.get_ref();
    if operators.is_empty() {
        return Err(source.error(spec.operators.span(), "`operators` is empty", "expected at least one operator"));
    }
    let (dtype, dtype_span) = default_dtype(source, spec)?;
    for (index, operator) in operators.iter().enumerate() {
        let output = source.name("operators.output", &operator.output)?;
        let draft = drafts.entry(output.clone()).or_insert_with(|| Draft {
            name: output,
            span: operator.output.span(),
            shape: None,
            shape_spans: Vec::new(),
            dtype,
            dtype_span: dtype_span.clone(),
            role: None,
            sparsity: None,
            producer: None,
            consumers: Vec::new(),
        });
        if let Some(first) = draft.producer.replace(index) {
            let title = format!("tensor {:?} is the output of two operators", draft.name);
            let label = format!("already the output of {:?}", operators[first].name.get_ref());
            return Err(source.error_among(&[operator.output.span(), operators[first].output.span()], title, label));
        }
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut linked = Vec::with_capacity(operators.len());
    for (index, operator) in operators.iter().enumerate() {
        let name = source.name("operators.name", &operator.name)?;
        if !names.insert(operator.name.get_ref()) {
            let title = format!("two operators are named {name:?}");
            return Err(source.error(operator.name.span(), title, "the second of them"));
        }
        let kinds = OperatorKind::ALL.map(OperatorKind::name);
        let kind = source.keyword(&format!("operators.{name}.kind"), &operator.kind, &kinds)?;
        let kind = OperatorKind::ALL[kind];
        let inputs = inputs(source, operator, &name, kind, drafts)?;
        for &input in &inputs {
            let consumers = &mut drafts[input].consumers;
            if consumers.last() != Some(&index) {
                consumers.push(index);
            }
        }
        let output = drafts.get_index_of(operator.output.get_ref().as_str()).unwrap_or_default();
        linked.push(Linked { spec: operator, name, kind, inputs, output });
    }
    Ok(linked)
}

fn inputs(
    source: &Source,
    operator: &OperatorSpec,
    name: &str,
    kind: OperatorKind,
    drafts: &IndexMap<String, Draft>,
) -> Result<Vec<usize>, Diagnostic> {
    let found = operator.inputs.get_ref();
    if found.len() != kind.arity() {
        let (kind, arity) = (kind.name(), kind.arity());
        let title = format!("`operators.{name}.inputs` has length {}, `{kind}` takes {arity}", found.len());
        let spans = [operator.inputs.span(), operator.kind.span()];
        return Err(source.error_among(&spans, title, format!("expected {arity}")));
    }
    let mut inputs = Vec::with_capacity(found.len());
    for (position, input) in found.iter().enumerate() {
        let Some(index) = drafts.get_index_of(input.get_ref().as_str()) else {
            let known: Vec<&str> = drafts.keys().map(String::as_str).collect();
            let title =
                format!("operator {name:?} reads tensor {:?}, which nothing declares or produces", input.get_ref());
            return Err(suggest(source.error(input.span(), title, "no such tensor"), input.get_ref(), &known));
        };
        if drafts[index].sparsity.is_some() && (kind, position) != (OperatorKind::Gemm, 1) {
            let title = format!("sparse weight {:?} can only be the second input of a `gemm`", input.get_ref());
            return Err(source.error(input.span(), title, format!("here it is an input of `{}`", kind.name())));
        }
        inputs.push(index);
    }
    Ok(inputs)
}

/// The operators' indices in topological order; among those that are ready, the earlier in the file goes first.
pub(super) fn order(
    source: &Source,
    operators: &[Linked<'_>],
    drafts: &IndexMap<String, Draft>,
) -> Result<Vec<usize>, Diagnostic> {
    let producers = |operator: usize| operators[operator].inputs.iter().filter_map(|&input| drafts[input].producer);
    let mut waits_for: Vec<usize> = Vec::with_capacity(operators.len());
    for operator in operators {
        // An operator that reads a tensor twice waits for it once.
        let mut inputs = operator.inputs.clone();
        inputs.sort_unstable();
        inputs.dedup();
        waits_for.push(inputs.iter().filter(|&&input| drafts[input].producer.is_some()).count());
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..operators.len()).filter(|&operator| waits_for[operator] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(operators.len());
    while let Some(Reverse(operator)) = ready.pop() {
        order.push(operator);
        for &consumer in &drafts[operators[operator].output].consumers {
            waits_for[consumer] -= 1;
            if waits_for[consumer] == 0 {
                ready.push(Reverse(consumer));
            }
        }
    }
    if order.len() == operators.len() {
        return Ok(order);
    }
    // Whatever waits has a producer that waits: going back from any of them leads into a cycle.
    let mut trail: Vec<usize> = (0..operators.len()).find(|&operator| waits_for[operator] > 0).into_iter().collect();
    let mut place = vec![None; operators.len()];
    while let Some(&last) = trail.last() {
        place[last] = Some(trail.len() - 1);
        let Some(producer) = producers(last).find(|&producer| waits_for[producer] > 0) else { break };
        if let Some(start) = place[producer] {
            trail.drain(..start);
            break;
        }
        trail.push(producer);
    }
    // The trail went against the data; a reader wants it with the data.
    trail.reverse();
    let mut names: Vec<String> = trail.iter().map(|&operator| format!("{:?}", operators[operator].name)).collect();
    names.extend(names.first().cloned());
    let spans: Vec<_> = trail.iter().map(|&operator| operators[operator].spec.inputs.span()).collect();
    let title = format!("the operators form a cycle: {}", names.join(" -> "));
    Err(source.error_among(&spans, title, "reads what depends on its own output"))
}
