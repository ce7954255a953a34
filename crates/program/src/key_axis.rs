//! The keys of attention as an axis of a section: scores, softmax and the product with the values work on a tile of keys at a
//! time, so that no row of scores is ever whole (online softmax, Milakov and Gimelshein 2018; the tiles of flash
//! attention, Dao et al. 2022).
//!
//! The scores of a column tile are those of its keys, head beside head. The softmax keeps the running maximum and sum of every
//! row and head in the registers of its PCUs. Behind the exponentials of a head it leaves its *statistics*: by how much what
//! was added up before shrinks, and the sum so far, in fp32. The product with the values takes them as further steps of its
//! depth: it scales the sums of the column tiles before, adds those of its own, and divides by the sum in the last.

use rdusim_base::units::Dtype;
use rdusim_graph::workload::{GemmForm, OperatorId, OperatorKind, TensorId, TensorRole, Workload};

/// Statistics of a row and head, in fp32: the factor of the sums before, and the sum of exponentials.
pub(super) const STATISTICS: u64 = 2;

/// Attention, or one of its products alone, whose keys are an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAxis {
    /// The product that makes the scores.
    pub scores: Option<OperatorId>,
    /// The product with the values.
    pub context: Option<OperatorId>,
    /// The softmax between them.
    pub softmax: Option<OperatorId>,
    /// A tensor along the axis: what the softmax makes, or the scores or probabilities of a product alone.
    pub along: TensorId,
    /// Keys of a sequence.
    pub extent: u64,
    /// Heads, each with a run of keys of its own in a row of scores.
    pub heads: u64,
    /// Elements that the statistics of a head take behind its exponentials; none without a softmax.
    pub statistics: u64,
}

impl KeyAxis {
    /// Whether an operator is one of its products.
    pub fn is_product(&self, operator: OperatorId) -> bool {
        [self.scores, self.context].contains(&Some(operator))
    }

    /// Elements of statistics in a row of a tensor.
    pub fn statistics_of(&self, tensor: TensorId) -> u64 {
        if self.softmax.is_some() && self.along == tensor { self.heads * self.statistics } else { 0 }
    }
}

/// The attention of a section's operators whose keys may be cut, and products of which the others are not here. Keys and values come
/// from off chip, each for one product, and nothing but the next operator reads the scores of a softmax. Causal products, which
/// leave keys out, are not among them.
pub(super) fn key_axes(workload: &Workload, operators: &[OperatorId]) -> Vec<KeyAxis> {
    let mut found: Vec<KeyAxis> = operators.iter().filter_map(|&op| attention(workload, operators, op)).collect();
    for &op in operators {
        if found.iter().any(|keys| keys.is_product(op)) {
            continue;
        }
        let operator = &workload.operators[op];
        let (of_scores, of_values) = (product(workload, operators, op, true), product(workload, operators, op, false));
        if let Some(form) = of_scores.or(of_values) {
            let is_scores = of_scores.is_some();
            found.push(KeyAxis {
                scores: is_scores.then_some(op),
                context: (!is_scores).then_some(op),
                softmax: None,
                along: if is_scores { operator.output } else { operator.inputs[0] },
                extent: if is_scores { form.n } else { form.k },
                heads: form.heads,
                statistics: 0,
            });
        }
    }
    found
}

/// The shape of a product with heads whose second operand comes from off chip, used transposed or not; `None` of others.
fn product(workload: &Workload, operators: &[OperatorId], op: OperatorId, transpose_b: bool) -> Option<GemmForm> {
    let op = &workload.operators[op];
    let form = op.form.filter(|form| form.causal.is_none())?;
    let second = *op.inputs.get(1)?;
    let tensor = &workload.tensors[second];
    let readers = |op: &&OperatorId| workload.operators[**op].inputs.contains(&second);
    let is_plain = tensor.view.is_none() && tensor.mask.is_none() && op.inputs[0] != second;
    let is_given = operators.iter().all(|&other| workload.operators[other].output != second);
    let is_read_once = operators.iter().filter(readers).count() == 1;
    let first = &workload.tensors[op.inputs[0]];
    (op.kind == OperatorKind::Gemm
        && (op.options.transpose_a, op.options.transpose_b) == (false, transpose_b)
        && first.view.is_none()
        && first.mask.is_none()
        && workload.tensors[op.output].mask.is_none()
        && is_plain
        && is_given
        && is_read_once)
        .then_some(form)
}

fn attention(workload: &Workload, operators: &[OperatorId], scores: OperatorId) -> Option<KeyAxis> {
    // The one operator of the section that reads a tensor which nothing else does.
    let reader = |tensor: TensorId| {
        let mut readers = workload.consumers(tensor);
        let only = readers.next().filter(|op| operators.contains(op) && readers.next().is_none())?;
        (workload.tensors[tensor].role != TensorRole::Output && workload.operators[only].inputs[0] == tensor)
            .then_some(only)
    };
    let form = product(workload, operators, scores, true)?;
    let mut tensor = workload.operators[scores].output;
    let softmax = loop {
        let next = reader(tensor)?;
        let operator = &workload.operators[next];
        let is_elementwise = operator.kind.folds_into_a_tail() && operator.inputs.len() == 1;
        if operator.kind == OperatorKind::Softmax && operator.heads.max(1) == form.heads {
            break next;
        }
        if !is_elementwise || workload.tensors[operator.output].columns != form.heads * form.n {
            return None;
        }
        tensor = operator.output;
    };
    let probabilities = workload.operators[softmax].output;
    let context = reader(probabilities)?;
    let of_values = product(workload, operators, context, false)?;
    let dtypes = [tensor, probabilities].map(|t| workload.tensors[t].dtype);
    let is_float = !dtypes.contains(&Dtype::Int8);
    let has_same_keys = (of_values.instances, of_values.heads, of_values.k) == (form.instances, form.heads, form.n);
    (is_float && has_same_keys).then(|| KeyAxis {
        scores: Some(scores),
        context: Some(context),
        softmax: Some(softmax),
        along: probabilities,
        extent: form.n,
        heads: form.heads,
        statistics: STATISTICS * Dtype::Fp32.bytes().div_ceil(workload.tensors[probabilities].dtype.bytes()),
    })
}
