//! Shapes of operators' outputs, and checks of all that was declared.

use std::ops::Range;

use indexmap::IndexMap;

use super::declare::{Draft, Shape, role_name, text};
use super::form::{FormError, GemmForm, GemmOptions};
use super::head_swap::HeadSwap;
use super::image::ImageOptions;
use super::limits::MAX_DIM;
use super::link::Linked;
use super::{OperatorKind, TensorRole, recurrent};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::Source;

/// Bytes of all tensors and MACs of all operators stay below this, so that sums and small multiples fit 64 bits.
const MAX_TOTAL: u128 = 1 << 62;

/// The role of every tensor: declared, or by where it stands in the graph.
pub(super) fn roles(
    source: &Source,
    operators: &[Linked<'_>],
    drafts: &IndexMap<String, Draft>,
) -> Result<Vec<TensorRole>, Diagnostic> {
    drafts.values().map(|draft| role(source, operators, draft)).collect()
}

fn role(source: &Source, operators: &[Linked<'_>], draft: &Draft) -> Result<TensorRole, Diagnostic> {
    let name = &draft.name;
    let consumed = !draft.consumers.is_empty();
    match (&draft.role, draft.producer) {
        (Some((role @ (TensorRole::Input | TensorRole::Weight), span)), Some(producer)) => {
            let producer = &operators[producer];
            let title =
                format!("tensor {name:?} has role {:?} and is the output of {:?}", role_name(*role), producer.name);
            let spans = [producer.spec.output.span(), span.clone()];
            Err(source.error_among(&spans, title, "an input or weight is not produced"))
        }
        (Some((role @ (TensorRole::Input | TensorRole::Weight), _)), None) if consumed => Ok(*role),
        (Some((TensorRole::Input | TensorRole::Weight, _)), None) => {
            let title = format!("tensor {name:?} is not used by any operator");
            Err(source.error(draft.span.clone(), title, "read by none").with_help("remove it, or name it as an input"))
        }
        (None, None) => {
            let title = format!("tensor {name:?} has no role and no operator produces it");
            let error = source.error(draft.span.clone(), title, "comes from nowhere");
            Err(error.with_help("say role = \"input\" or role = \"weight\""))
        }
        (Some((role, span)), None) => {
            let title = format!("tensor {name:?} has role {:?} and no operator produces it", role_name(*role));
            Err(source.error(span.clone(), title, "comes from nowhere"))
        }
        (Some((TensorRole::Intermediate, span)), Some(_)) if !consumed => {
            let title = format!("tensor {name:?} has role \"intermediate\" and no operator reads it");
            Err(source.error(span.clone(), title, "goes nowhere").with_help("say role = \"output\", or no role"))
        }
        (Some((TensorRole::Output, _)), Some(_)) => Ok(TensorRole::Output),
        (_, Some(_)) => Ok(if consumed { TensorRole::Intermediate } else { TensorRole::Output }),
    }
}

/// The shape of every tensor: declared, inferred, or both and equal.
pub(super) fn shapes(
    source: &Source,
    operators: &[Linked<'_>],
    order: &[usize],
    drafts: &IndexMap<String, Draft>,
) -> Result<Vec<Shape>, Diagnostic> {
    let mut shapes: Vec<Option<Shape>> = Vec::with_capacity(drafts.len());
    for draft in drafts.values() {
        if draft.producer.is_none() && draft.shape.is_none() {
            let title = format!("`tensors.{}.shape` is missing", draft.name);
            let error = source.error(draft.span.clone(), title, "no operator gives it a shape");
            return Err(error.with_help("add shape = [rows, columns]"));
        }
        shapes.push(draft.shape.filter(|_| draft.producer.is_none()));
    }
    for &index in order {
        let operator = &operators[index];
        // In topological order every input has its shape by now.
        let inputs: Vec<Shape> = operator.inputs.iter().filter_map(|&input| shapes[input]).collect();
        let shape = output_shape(source, operator, &inputs, drafts)?;
        for &vector in &operator.vectors {
            let columns = drafts[vector].shape.map_or(0, |(_, columns)| columns);
            let is_taps = operator.kind.has_taps() && operator.vectors[0] == vector;
            let expected = if operator.kind.has_vector_of_heads() { operator.options.heads } else { shape.1 };
            if columns != expected && !is_taps {
                let title = format!(
                    "operator {:?}: vector {:?} has {columns} columns, {} have {expected}",
                    operator.name,
                    drafts[vector].name,
                    if operator.kind.has_vector_of_heads() { "heads" } else { "rows" }
                );
                return Err(source.error_among(
                    &drafts[vector].shape_spans,
                    title,
                    format!("expected [1, {expected}]"),
                ));
            }
        }
        let mut of_heads = inputs.iter().enumerate().filter(|(position, _)| !operator.kind.shares_input(*position));
        if !of_heads.all(|(_, &(_, columns))| columns.is_multiple_of(operator.options.heads))
            && operator.kind != OperatorKind::Gemm
        {
            let title = format!(
                "operator {:?}: {} columns do not divide into {} heads",
                operator.name, inputs[0].1, operator.options.heads
            );
            let spans: Vec<_> = operator.spec.heads.iter().map(toml::Spanned::span).collect();
            return Err(source.error_among(&spans, title, "expected a divisor of the columns"));
        }
        let output = &drafts[operator.output];
        if let Some(declared) = output.shape.filter(|declared| *declared != shape) {
            let title = format!(
                "tensor {:?} is declared as {}, and operator {:?} makes it {}",
                output.name,
                text(declared),
                operator.name,
                text(shape)
            );
            return Err(source.error_among(&output.shape_spans, title, format!("expected {}", text(shape))));
        }
        shapes[operator.output] = Some(shape);
    }
    Ok(shapes.into_iter().flatten().collect())
}

fn output_shape(
    source: &Source,
    operator: &Linked<'_>,
    inputs: &[Shape],
    drafts: &IndexMap<String, Draft>,
) -> Result<Shape, Diagnostic> {
    let (&[first] | &[first, _]) = inputs else { return Ok((0, 0)) };
    if operator.kind.is_view() {
        return view_shape(source, operator, first, drafts);
    }
    if let Some(options) = &operator.image {
        return image_shape(source, operator, options, inputs, drafts);
    }
    if let Some(shape) = recurrent::shape(source, operator, inputs, drafts) {
        return shape;
    }
    let Some(&second) = inputs.get(1) else { return Ok(shape_of_one(operator, first, drafts)) };
    let (a, b) = (&drafts[operator.inputs[0]], &drafts[operator.inputs[1]]);
    let written_with = |spans: [&[Range<usize>]; 2]| -> Vec<Range<usize>> {
        std::iter::once(operator.spec.inputs.span()).chain(spans.concat()).collect()
    };
    let both = format!("{:?} is {} and {:?} is {}", a.name, text(first), b.name, text(second));
    let indexes = matches!(
        operator.kind,
        OperatorKind::Embedding
            | OperatorKind::CrossEntropy
            | OperatorKind::CrossEntropyGrad
            | OperatorKind::EmbeddingGrad
    );
    if a.dtype != b.dtype && !indexes && !operator.kind.mixes_types() {
        let title = format!(
            "operator {:?} mixes data types: {:?} is {} and {:?} is {}",
            operator.name, a.name, a.dtype, b.name, b.dtype
        );
        let spans = written_with([a.dtype_span.as_slice(), b.dtype_span.as_slice()]);
        return Err(source.error_among(&spans, title, "expected inputs of one data type"));
    }
    match operator.kind {
        OperatorKind::Gemm => {
            let form = GemmForm::new(first, second, &operator.options).map_err(|error| {
                let title = format!("operator {:?}: {both}", operator.name);
                let label = match error {
                    FormError::Depths(k, of_b) if operator.options == GemmOptions::default() => {
                        format!("expected as many columns of {:?} as rows of {:?}: {k} and {of_b}", a.name, b.name)
                    }
                    FormError::Depths(k, of_b) => {
                        format!("expected products of one depth: {k} of {:?}, {of_b} of {:?}", a.name, b.name)
                    }
                    FormError::Indivisible(what, extent, of, groups) => {
                        format!("{what} ({extent}) do not divide by {of} ({groups})")
                    }
                };
                source.error_among(&written_with([&a.shape_spans, &b.shape_spans]), title, label)
            })?;
            return Ok(form.output());
        }
        OperatorKind::Embedding if first.1 == 1 => return Ok((first.0, second.1)),
        OperatorKind::CrossEntropy if second == (first.0, 1) => return Ok((first.0, 1)),
        OperatorKind::CrossEntropyGrad if second == (first.0, 1) => return Ok(first),
        OperatorKind::Concat if first.0 == second.0 => return Ok((first.0, first.1 + second.1)),
        OperatorKind::Embedding | OperatorKind::CrossEntropy | OperatorKind::CrossEntropyGrad => {
            let title = format!("operator {:?}: {both}", operator.name);
            let (which, expected) = if operator.kind == OperatorKind::Embedding {
                (a, "expected one column of indices".to_owned())
            } else {
                (b, format!("expected one label a row: [{}, 1]", first.0))
            };
            return Err(source.error_among(&written_with([&which.shape_spans, &[]]), title, expected));
        }
        OperatorKind::Concat => {
            let title = format!("operator {:?}: {both}", operator.name);
            let spans = written_with([&a.shape_spans, &b.shape_spans]);
            return Err(source.error_among(&spans, title, "expected equally many rows"));
        }
        _ => {}
    }
    if first != second {
        let title = format!("operator {:?}: {both}", operator.name);
        let spans = written_with([&a.shape_spans, &b.shape_spans]);
        return Err(source.error_among(&spans, title, "expected equal shapes"));
    }
    Ok(first)
}

/// The shape of what an operator makes of one input.
fn shape_of_one(operator: &Linked<'_>, first: Shape, drafts: &IndexMap<String, Draft>) -> Shape {
    match operator.kind {
        OperatorKind::Transpose => (first.1, first.0),
        OperatorKind::RowSum | OperatorKind::RowMax | OperatorKind::RowScale => (first.0, 1),
        // As many of a row as are declared.
        OperatorKind::Select => {
            let declared = drafts[operator.output].shape;
            declared.filter(|shape| shape.0 == first.0 && shape.1 <= first.1).unwrap_or(first)
        }
        _ => first,
    }
}

/// The declared shape of a view, which must be of the same elements, or of no more rows and columns.
fn view_shape(
    source: &Source,
    operator: &Linked<'_>,
    first: Shape,
    drafts: &IndexMap<String, Draft>,
) -> Result<Shape, Diagnostic> {
    let (x, y) = (&drafts[operator.inputs[0]], &drafts[operator.output]);
    let kind = operator.kind.name();
    let Some(shape) = y.shape else {
        let title = format!("`tensors.{}.shape` is missing: `{kind}` makes the shape that is declared", y.name);
        let error = source.error(operator.spec.output.span(), title, "is not declared");
        return Err(error.with_help(format!("declare {:?} in `tensors` with a shape and no role", y.name)));
    };
    if y.consumers.is_empty() || y.role.as_ref().is_some_and(|(role, _)| *role != TensorRole::Intermediate) {
        let title = format!("operator {:?}: nothing reads {:?}, and `{kind}` computes nothing", operator.name, y.name);
        return Err(source.error(operator.spec.output.span(), title, "goes nowhere").with_help("remove the operator"));
    }
    let elements = |(rows, columns): Shape| u128::from(rows) * u128::from(columns);
    let options = &operator.options;
    let swapped = HeadSwap::new(first.0, first.1, options.batch, options.heads).and_then(|swap| swap.shape(first.0));
    let (fits, expected) = match operator.kind {
        OperatorKind::Reshape => (elements(shape) == elements(first), "expected as many elements"),
        OperatorKind::HeadTranspose => {
            (Some(shape) == swapped, "expected rows by sequences (`batch`) and heads that divide them, exchanged")
        }
        _ => (shape.0 <= first.0 && shape.1 <= first.1, "expected no more rows and no more columns"),
    };
    if !fits || x.dtype != y.dtype {
        let title = format!(
            "operator {:?}: {:?} is {} {} and {:?} is {} {}",
            operator.name,
            x.name,
            text(first),
            x.dtype,
            y.name,
            text(shape),
            y.dtype
        );
        let expected = if fits { "expected the same data type" } else { expected };
        return Err(source.error_among(&y.shape_spans, title, expected));
    }
    Ok(shape)
}

/// The shape of what an operator makes of images.
fn image_shape(
    source: &Source,
    operator: &Linked<'_>,
    options: &ImageOptions,
    inputs: &[Shape],
    drafts: &IndexMap<String, Draft>,
) -> Result<Shape, Diagnostic> {
    let (rows, channels) = inputs[0];
    let x = &drafts[operator.inputs[0]];
    let refused = |what: String, expected: String| {
        let spans: Vec<_> = std::iter::once(operator.spec.inputs.span()).chain(x.shape_spans.iter().cloned()).collect();
        source.error_among(&spans, format!("operator {:?}: {what}", operator.name), expected)
    };
    let [lines, pixels] = options.image;
    if !rows.is_multiple_of(options.pixels()) {
        let what = format!("{:?} is {}, and an image has {lines} x {pixels} pixels", x.name, text(inputs[0]));
        return Err(refused(what, "expected whole images: a row a pixel, a column a channel".to_owned()));
    }
    let [out_lines, out_pixels] = options.output().unwrap_or([1, 1]);
    let images = u128::from(rows / options.pixels());
    let made = images * u128::from(out_lines) * u128::from(out_pixels);
    let Some(made) = u64::try_from(made).ok().filter(|&made| made <= MAX_DIM) else {
        return Err(refused(format!("the result has {made} rows"), format!("expected {MAX_DIM} at most")));
    };
    let Some(&weight) = inputs.get(1) else { return Ok((made, channels)) };
    let w = &drafts[operator.inputs[1]];
    let groups = options.groups;
    if !channels.is_multiple_of(groups) || !weight.1.is_multiple_of(groups) {
        let what = format!("{groups} groups do not divide {channels} channels and {} filters", weight.1);
        return Err(refused(what, "expected a divisor of both".to_owned()));
    }
    let depth = u128::from(channels / groups) * u128::from(options.taps());
    if u128::from(weight.0) != depth {
        let what = format!("{:?} is {} and {:?} is {}", x.name, text(inputs[0]), w.name, text(weight));
        let expected = format!("expected {depth} rows of {:?}: channels of a group times the kernel", w.name);
        return Err(refused(what, expected));
    }
    if groups > 1 && w.sparsity.is_some() {
        return Err(refused(format!("{:?} is sparse", w.name), "expected one group, or a dense weight".to_owned()));
    }
    if x.dtype != w.dtype {
        let what = format!("mixes data types: {:?} is {} and {:?} is {}", x.name, x.dtype, w.name, w.dtype);
        return Err(refused(what, "expected inputs of one data type".to_owned()));
    }
    Ok((made, weight.1))
}

/// Checks that the sums over the whole graph fit.
pub(super) fn totals(
    source: &Source,
    operators: &[Linked<'_>],
    drafts: &IndexMap<String, Draft>,
    shapes: &[Shape],
) -> Result<(), Diagnostic> {
    let mut bytes: u128 = 0;
    for (draft, &(rows, columns)) in drafts.values().zip(shapes) {
        bytes += u128::from(rows) * u128::from(columns) * u128::from(draft.dtype.bytes());
        if bytes >= MAX_TOTAL {
            let title = format!(
                "tensor {:?} is {}: with it the tensors take more than 2^62 bytes",
                draft.name,
                text((rows, columns))
            );
            let spans =
                if draft.shape_spans.is_empty() { std::slice::from_ref(&draft.span) } else { &draft.shape_spans };
            return Err(source.error_among(spans, title, "too large"));
        }
    }
    let mut macs: u128 = 0;
    for operator in operators.iter().filter(|op| op.kind == OperatorKind::Gemm || op.image.is_some()) {
        let (a, b) = (shapes[operator.inputs[0]], operator.inputs.get(1).map_or((1, 1), |&b| shapes[b]));
        let (rows, columns) = shapes[operator.output];
        // Three dimensions of 2^40 fit 128 bits.
        macs += match &operator.image {
            Some(options) if operator.kind.is_pool() => {
                u128::from(rows) * u128::from(columns) * u128::from(options.taps())
            }
            Some(_) => u128::from(rows) * u128::from(b.0) * u128::from(columns),
            None => match GemmForm::new(a, b, &operator.options) {
                Ok(form) => u128::from(form.output().0) * u128::from(form.k) * u128::from(form.output().1),
                Err(_) => 0,
            },
        };
        if macs >= MAX_TOTAL {
            let title = format!(
                "operator {:?} multiplies {} by {}: with it the graph has more than 2^62 multiply-accumulates",
                operator.name,
                text(a),
                text(b)
            );
            let spans: Vec<Range<usize>> = std::iter::once(operator.spec.inputs.span())
                .chain(operator.inputs.iter().flat_map(|&input| drafts[input].shape_spans.clone()))
                .collect();
            return Err(source.error_among(&spans, title, "too much work"));
        }
    }
    Ok(())
}
