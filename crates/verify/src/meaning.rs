//! What operators mean where a workload file leaves a number open, and which pairs causality keeps: the definitions that
//! both sides of a comparison must share. `docs/verify.md` lists them.

use rdusim_base::index::Id;
use rdusim_graph::workload::{CausalAxis, GemmForm, Operator, OperatorKind, TensorId, Workload};

/// The constant of a `scale`, and what `causal_mask` scales by: that of heads of 64.
pub(super) const SCALE: f64 = 0.125;
/// One element of so many is dropped.
const DROPPED_OF: u64 = 10;
/// Base of the angles of a rotation.
pub(super) const ROTARY_BASE: f64 = 10_000.0;
/// Steps of the optimisers, and the moments of Adam.
pub(super) const SGD_RATE: f64 = 0.01;
pub(super) const ADAM_RATE: f64 = 0.001;
pub(super) const ADAM_FIRST: f64 = 0.9;
pub(super) const ADAM_SECOND: f64 = 0.999;
pub(super) const ADAM_EPSILON: f64 = 1e-8;

/// Whether dropout keeps an element: the same in the forward and in the backward phase.
pub(super) fn is_kept(row: u64, column: u64) -> bool {
    let mut z = (row << 32 ^ column).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    !(z ^ (z >> 31)).is_multiple_of(DROPPED_OF)
}

/// What kept elements are multiplied with.
pub(super) const KEPT_SCALE: f64 = DROPPED_OF as f64 / (DROPPED_OF - 1) as f64;

/// Scores of `queries` that are the last of `keys` (or the first, with fewer keys), heads side by side, sequence after
/// sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scores {
    pub(super) queries: u64,
    pub(super) keys: u64,
}

impl Scores {
    /// Whether the query sees the key.
    pub(super) fn sees(self, query: u64, key: u64) -> bool {
        key <= query + self.keys.saturating_sub(self.queries)
    }

    /// Whether the element of a matrix of scores is one that causality keeps.
    pub(super) fn keeps(self, row: u64, column: u64) -> bool {
        self.sees(row % self.queries, column % self.keys)
    }
}

/// Of a causal GEMM, the pairs it leaves out, by row and by column (or depth) within one product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Causal {
    pub(super) axis: CausalAxis,
    scores: Scores,
    /// Rows are keys and the depth queries.
    turned: bool,
}

impl Causal {
    /// Of an operator; `None` if it leaves nothing out.
    pub(super) fn of(operator: &Operator, form: &GemmForm) -> Option<Self> {
        let axis = form.causal?;
        let turned = operator.options.transpose_a;
        let (of_rows, others) = match axis {
            CausalAxis::Columns => (form.m, form.n),
            // Of a sum over a group of heads, each has the same depth.
            CausalAxis::Depth => (form.m, form.k / group(operator)),
        };
        let scores =
            if turned { Scores { queries: others, keys: of_rows } } else { Scores { queries: of_rows, keys: others } };
        Some(Self { axis, scores, turned })
    }

    /// Whether the pair of a row of a product and a column (or step of the depth) is kept.
    pub(super) fn keeps(&self, row: u64, other: u64) -> bool {
        if self.turned {
            self.scores.sees(other % self.scores.queries, row)
        } else {
            self.scores.sees(row, other % self.scores.keys)
        }
    }
}

/// Heads that are summed in one product: of the gradient of keys or values that a group of queries shares.
pub(super) fn group(operator: &Operator) -> u64 {
    let options = &operator.options;
    if options.transpose_a { options.heads / options.kv_heads } else { 1 }
}

/// The scores that a mask masks: of the product nearest to it along operators that keep the shape; the whole matrix where
/// there is none.
pub(super) fn scores(workload: &Workload, masked: &Operator) -> Scores {
    let shape = |t: TensorId| (workload.tensors[t].rows, workload.tensors[t].columns);
    let wanted = shape(masked.output);
    let mut seen = vec![false; workload.tensors.len()];
    let mut open = vec![masked.inputs[0], masked.output];
    while let Some(tensor) = open.pop() {
        if std::mem::replace(&mut seen[tensor.index()], true) || shape(tensor) != wanted {
            continue;
        }
        for operator in &workload.operators {
            let reads = operator.inputs.contains(&tensor);
            if !reads && operator.output != tensor {
                continue;
            }
            match (operator.kind, operator.form) {
                (OperatorKind::Gemm, Some(form)) if operator.output == tensor => {
                    return Scores { queries: form.m, keys: form.n };
                }
                (OperatorKind::Gemm, Some(form)) if operator.inputs[0] == tensor && !operator.options.transpose_a => {
                    return Scores { queries: form.m, keys: form.k };
                }
                (OperatorKind::Gemm, _) => {}
                _ => open.extend(operator.inputs.iter().chain([&operator.output])),
            }
        }
    }
    Scores { queries: wanted.0, keys: wanted.1 }
}

/// Elements of a weight that share one word of an optimiser's result.
pub(super) fn in_a_word(workload: &Workload, update: &Operator) -> u64 {
    (4 / workload.tensors[update.inputs[0]].dtype.bytes()).max(1)
}
