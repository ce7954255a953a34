//! Operators, linked to the tensors they name and put in topological order.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use indexmap::IndexMap;

use toml::Spanned;

use super::declare::{Draft, default_dtype, extent};
use super::form::GemmOptions;
use super::image::ImageOptions;
use super::spec::{Extent, OperatorSpec, WorkloadSpec};
use super::{OperatorKind, TensorRole};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Source, suggest};

/// An operator whose tensors are rows of the table of drafts.
#[derive(Debug)]
pub(super) struct Linked<'a> {
    pub(super) spec: &'a OperatorSpec,
    pub(super) name: String,
    pub(super) kind: OperatorKind,
    pub(super) inputs: Vec<usize>,
    pub(super) output: usize,
    /// Row vectors of parameters.
    pub(super) vectors: Vec<usize>,
    /// How a GEMM takes its operands; `heads` also of a softmax or rotation.
    pub(super) options: GemmOptions,
    /// How it walks over images.
    pub(super) image: Option<ImageOptions>,
    /// The block it belongs to.
    pub(super) block: Option<usize>,
}

/// A block of operators that is repeated.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) repeat: u64,
}

/// Links the operators, in file order; outputs that are not declared join the drafts.
pub(super) fn link<'a>(
    source: &Source,
    spec: &'a WorkloadSpec,
    dims: &IndexMap<String, u64>,
    blocks: &[Block],
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
            storage: None,
            pruning: None,
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
        let kinds: Vec<&str> = OperatorKind::ALL.iter().map(|kind| kind.name()).collect();
        let kind = source.keyword(&format!("operators.{name}.kind"), &operator.kind, &kinds)?;
        let kind = OperatorKind::ALL[kind];
        let inputs = inputs(source, operator, &name, kind, drafts)?;
        let vectors = vectors(source, operator, &name, kind, drafts)?;
        for &input in inputs.iter().chain(&vectors) {
            let consumers = &mut drafts[input].consumers;
            if consumers.last() != Some(&index) {
                consumers.push(index);
            }
        }
        let output = drafts.get_index_of(operator.output.get_ref().as_str()).unwrap_or_default();
        let options = options(source, operator, &name, kind, dims)?;
        let image = image(source, operator, &name, kind, dims)?;
        let block = block(source, operator, &name, blocks)?;
        linked.push(Linked { spec: operator, name, kind, inputs, output, vectors, options, image, block });
    }
    Ok(linked)
}

/// `[[blocks]]`, in order.
pub(super) fn blocks(
    source: &Source,
    spec: &WorkloadSpec,
    dims: &IndexMap<String, u64>,
) -> Result<Vec<Block>, Diagnostic> {
    let mut list: Vec<Block> = Vec::with_capacity(spec.blocks.len());
    for block in &spec.blocks {
        let name = source.name("blocks.name", &block.name)?;
        if list.iter().any(|known| known.name == name) {
            let title = format!("two blocks are named {name:?}");
            return Err(source.error(block.name.span(), title, "the second of them"));
        }
        if !spec.operators.get_ref().iter().any(|op| op.block.as_ref().is_some_and(|b| *b.get_ref() == name)) {
            let title = format!("block {name:?} has no operators");
            let error = source.error(block.name.span(), title, "empty");
            return Err(error.with_help(format!("say block = {name:?} in the operators that are repeated")));
        }
        let repeat = extent(source, &format!("blocks.{name}.repeat"), &block.repeat, dims)?;
        list.push(Block { name, repeat });
    }
    Ok(list)
}

fn block(source: &Source, operator: &OperatorSpec, name: &str, blocks: &[Block]) -> Result<Option<usize>, Diagnostic> {
    let Some(word) = &operator.block else { return Ok(None) };
    let index = blocks.iter().position(|block| block.name == *word.get_ref());
    index.map(Some).ok_or_else(|| {
        let known: Vec<&str> = blocks.iter().map(|block| block.name.as_str()).collect();
        let title = format!("`operators.{name}.block` names the block {:?}, which is not in `blocks`", word.get_ref());
        suggest(source.error(word.span(), title, "no such block"), word.get_ref(), &known)
    })
}

/// Heads and sequences of an operator, and how a GEMM takes its operands.
fn options(
    source: &Source,
    operator: &OperatorSpec,
    name: &str,
    kind: OperatorKind,
    dims: &IndexMap<String, u64>,
) -> Result<GemmOptions, Diagnostic> {
    let is_gemm = kind == OperatorKind::Gemm;
    let has_heads = is_gemm || has_heads(kind);
    let has_groups = is_gemm || has_groups(kind);
    let refused = |key: &str, span: std::ops::Range<usize>| {
        let title = format!("`operators.{name}.{key}`: `{}` has no `{key}`", kind.name());
        Err(source.error(span, title, "means nothing here"))
    };
    let count = |key: &str, spec: &Option<Spanned<Extent>>, allowed: bool, default: u64| match spec {
        None => Ok(default),
        Some(spec) if !allowed => refused(key, spec.span()),
        Some(spec) => extent(source, &format!("operators.{name}.{key}"), spec, dims),
    };
    let flag = |key: &str, spec: &Option<Spanned<bool>>| match spec {
        Some(spec) if *spec.get_ref() && !is_gemm => refused(key, spec.span()).map(|_: u64| false),
        spec => Ok(spec.as_ref().is_some_and(|spec| *spec.get_ref())),
    };
    let heads = count("heads", &operator.heads, has_heads, 1)?;
    Ok(GemmOptions {
        batch: count("batch", &operator.batch, is_gemm || kind.is_carried() || kind == OperatorKind::HeadTranspose, 1)?,
        heads,
        kv_heads: count("kv_heads", &operator.kv_heads, has_groups, heads)?,
        transpose_a: flag("transpose_a", &operator.transpose_a)?,
        transpose_b: flag("transpose_b", &operator.transpose_b)?,
        causal: flag("causal", &operator.causal)?,
        filled_rows: match operator.filled_rows {
            Some(_) => Some(count("filled_rows", &operator.filled_rows, is_gemm, 1)?),
            None => None,
        },
    })
}

/// Whether heads of a function may share those of its second operand.
fn has_groups(kind: OperatorKind) -> bool {
    use OperatorKind::{Contract, DecayBefore, DecayMask, Outer};
    matches!(kind, Outer | Contract | DecayMask | DecayBefore)
}

/// Whether a function takes heads.
fn has_heads(kind: OperatorKind) -> bool {
    use OperatorKind::{HeadScale, HeadTranspose, LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad, Rotary};
    use OperatorKind::{Scan, ScanBefore, Softmax, SoftmaxGrad};
    let of_rows = matches!(kind, Softmax | SoftmaxGrad | Rotary | LayerNorm | LayerNormGrad | RmsNorm | RmsNormGrad);
    of_rows || has_groups(kind) || matches!(kind, HeadScale | Scan | ScanBefore | HeadTranspose)
}

/// Lines and pixels, kernels, steps and paddings stay below this.
const MOST_PIXELS: u64 = 1 << 20;

/// How an operator walks over images; keys of it are refused elsewhere.
fn image(
    source: &Source,
    operator: &OperatorSpec,
    name: &str,
    kind: OperatorKind,
    dims: &IndexMap<String, u64>,
) -> Result<Option<ImageOptions>, Diagnostic> {
    let OperatorSpec { image, kernel, stride, padding, dilation, groups, .. } = operator;
    let given: [(&str, Option<std::ops::Range<usize>>, bool); 6] = [
        ("image", image.as_ref().map(Spanned::span), kind.has_windows()),
        ("kernel", kernel.as_ref().map(Spanned::span), kind.has_windows()),
        ("stride", stride.as_ref().map(Spanned::span), kind.has_windows()),
        ("padding", padding.as_ref().map(Spanned::span), kind.has_windows()),
        ("dilation", dilation.as_ref().map(Spanned::span), kind.has_windows()),
        ("groups", groups.as_ref().map(Spanned::span), kind == OperatorKind::Conv),
    ];
    for (key, span, allowed) in given {
        if let Some(span) = span.filter(|_| !allowed) {
            let title = format!("`operators.{name}.{key}`: `{}` has no `{key}`", kind.name());
            return Err(source.error(span, title, "means nothing here"));
        }
    }
    if !kind.has_windows() {
        return Ok(None);
    }
    let counts = |key: &str, spec: &Option<Spanned<Vec<Spanned<Count>>>>, default: Option<[u64; 4]>, n: usize| {
        let field = format!("operators.{name}.{key}");
        let Some(spec) = spec else {
            return default.ok_or_else(|| {
                let title = format!("`{field}` is missing");
                source.error(operator.kind.span(), title, format!("`{}` takes images", kind.name()))
            });
        };
        let list = spec.get_ref();
        if list.len() != n {
            let title = format!("`{field}` has length {}, expected {n}", list.len());
            let expected = if n == 4 { "expected [top, left, bottom, right]" } else { "expected [lines, pixels]" };
            return Err(source.error(spec.span(), title, expected));
        }
        let least = u64::from(n == 2);
        let mut found = [0; 4];
        for (found, count) in found.iter_mut().zip(list) {
            *found = source.count(&field, count, least..=MOST_PIXELS)?;
        }
        Ok(found)
    };
    let pair = |[a, b, ..]: [u64; 4]| [a, b];
    let ones = Some([1; 4]);
    let options = ImageOptions {
        image: pair(counts("image", image, None, 2)?),
        kernel: pair(counts("kernel", kernel, None, 2)?),
        stride: pair(counts("stride", stride, ones, 2)?),
        padding: counts("padding", padding, Some([0; 4]), 4)?,
        dilation: pair(counts("dilation", dilation, ones, 2)?),
        groups: match groups {
            Some(groups) => extent(source, &format!("operators.{name}.groups"), groups, dims)?,
            None => 1,
        },
    };
    if options.output().is_none() {
        let title = format!("operator {name:?}: the kernel is larger than the padded image");
        let span = kernel.as_ref().map_or(operator.kind.span(), Spanned::span);
        return Err(source.error(span, title, "expected a kernel that fits"));
    }
    Ok(Some(options))
}

/// Row vectors of parameters.
fn vectors(
    source: &Source,
    operator: &OperatorSpec,
    name: &str,
    kind: OperatorKind,
    drafts: &IndexMap<String, Draft>,
) -> Result<Vec<usize>, Diagnostic> {
    let none = Vec::new();
    let found = operator.vectors.as_ref().map_or(&none, Spanned::get_ref);
    let span = operator.vectors.as_ref().map_or(operator.kind.span(), Spanned::span);
    let most = kind.most_vectors();
    let wrong = found.len() > most || (kind == OperatorKind::Bias && found.len() != 1);
    if wrong {
        let title = format!("`operators.{name}.vectors` has length {}, `{}` takes {most}", found.len(), kind.name());
        return Err(source.error(span, title, format!("expected {most}")));
    }
    let mut vectors = Vec::with_capacity(found.len());
    for vector in found {
        let Some(index) = drafts.get_index_of(vector.get_ref().as_str()) else {
            let known: Vec<&str> = drafts.keys().map(String::as_str).collect();
            let title = format!("operator {name:?} reads tensor {:?}, which nothing declares", vector.get_ref());
            return Err(suggest(source.error(vector.span(), title, "no such tensor"), vector.get_ref(), &known));
        };
        let draft = &drafts[index];
        let is_vector = draft.shape.is_some_and(|(rows, _)| rows == 1) && draft.sparsity.is_none();
        if !is_vector || draft.role.as_ref().is_none_or(|(role, _)| *role != TensorRole::Weight) {
            let title = format!("`operators.{name}.vectors`: {:?} is no row vector of parameters", draft.name);
            let error = source.error(vector.span(), title, "expected a dense weight of one row");
            return Err(error.with_help("declare it with shape = [1, columns] and role = \"weight\""));
        }
        vectors.push(index);
    }
    Ok(vectors)
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
        if drafts[index].sparsity.is_some()
            && !(matches!(kind, OperatorKind::Gemm | OperatorKind::Conv) && position == 1)
        {
            let title =
                format!("sparse weight {:?} can only be the second input of a `gemm` or `conv`", input.get_ref());
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
