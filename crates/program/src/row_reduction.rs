//! GEMMs that add up over the rows a section streams: the gradient of a weight, X^T dY, and of keys and values, head by
//! head. Such a stage takes the row tiles of X and dY that other stages work on, keeps its sums in PMUs, and its result
//! leaves when the last row has passed: of the section, or of a sequence.

use rdusim_base::index::Id;
use rdusim_base::units::Dtype;
use rdusim_graph::workload::{OperatorId, OperatorKind, TensorId, TensorRole, Workload};

use super::nest::{LoopLevel, LoopOrder, Nest};
use super::schedule::Schedule;

/// The rows that a stage adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sums {
    /// All rows of the section.
    Section,
    /// Those of a row block: of a sequence.
    Block,
}

impl Sums {
    /// How often a result is complete, for a stage along the cut or off it.
    pub fn level(self, along_cut: bool) -> LoopLevel {
        match self {
            Self::Block => LoopLevel::BLOCK_COLUMN,
            Self::Section if along_cut => LoopLevel::COLUMN,
            Self::Section => LoopLevel::ONCE,
        }
    }

    /// Results that are complete in the course of the section, for every column tile.
    pub fn completions(self, schedule: &Schedule) -> u64 {
        if self == Self::Block { schedule.blocks() } else { 1 }
    }

    /// Slots that hold the sums under way.
    pub fn depth(self, nest: &Nest, along_cut: bool) -> u64 {
        let passes_once = nest.order == LoopOrder::ColumnTileOuter && nest.blocks() == 1;
        if self == Self::Section && along_cut && !passes_once { nest.column_tiles() } else { 1 }
    }
}

/// A step of an optimiser in the tail of the GEMM whose sums are its gradient: it begins when they are complete, part by part
/// beside the PCUs, so that the gradient is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Update {
    /// The step.
    pub operator: OperatorId,
    /// What it reads beside the gradient: the optimiser's state, or the old weight.
    pub state: TensorId,
    /// Columns of the gradient that share a word of the result.
    pub word: u64,
    /// Columns of the state for so many ...
    pub state_columns: u64,
    /// ... and of the result.
    pub result_columns: u64,
}

impl Update {
    /// The gradient that a step of an optimiser reads, or a running sum takes, and the step; `None` of other operators.
    fn of(workload: &Workload, op: OperatorId) -> Option<(TensorId, Self)> {
        let operator = &workload.operators[op];
        operator.updates?;
        let (flat, state) = match (operator.kind, operator.inputs.as_slice()) {
            (OperatorKind::AdamUpdate, &[flat, state]) => (flat, state),
            // A running sum over micro-batches is updated in place.
            (OperatorKind::SgdUpdate | OperatorKind::Add, &[state, flat])
                if workload.base(operator.output) == workload.base(state) =>
            {
                (flat, state)
            }
            _ => return None,
        };
        let gradient = workload.base(flat);
        let [of, flat, state_of, result] = [gradient, flat, state, operator.output].map(|t| &workload.tensors[t]);
        let is_plain = flat.view.is_some_and(|view| !view.transposed && !view.is_part && view.window.is_none());
        if !is_plain || (flat.rows, flat.columns) != (of.rows, of.columns) {
            return None;
        }
        let word =
            if operator.kind == OperatorKind::AdamUpdate { (Dtype::Fp32.bytes() / of.dtype.bytes()).max(1) } else { 1 };
        let words = of.columns / word;
        let is_whole = [of.columns, state_of.columns, result.columns]
            .iter()
            .zip([word, words, words])
            .all(|(c, by)| by > 0 && c.is_multiple_of(by));
        let has_rows = state_of.rows == of.rows && result.rows == of.rows;
        let is_dense = [of, state_of, result].iter().all(|tensor| tensor.mask.is_none());
        let (state_columns, result_columns) =
            (state_of.columns.checked_div(words)?, result.columns.checked_div(words)?);
        (is_whole && has_rows && is_dense)
            .then_some((gradient, Self { operator: op, state, word, state_columns, result_columns }))
    }
}

/// The row reduction that makes the gradient of a step of an optimiser, in whose tail the step may run: both run equally often.
pub fn gradient_of(workload: &Workload, step: OperatorId) -> Option<OperatorId> {
    let (gradient, _) = Update::of(workload, step)?;
    let maker = workload.producer(gradient)?;
    let place = |op: OperatorId| {
        let operator = &workload.operators[op];
        (operator.block, operator.repeat, operator.every)
    };
    (is_turned(workload, maker) && place(maker) == place(step)).then_some(maker)
}

/// Whether an operator is a product with a turned first operand: over rows that others pass on.
pub fn is_turned(workload: &Workload, op: OperatorId) -> bool {
    let operator = &workload.operators[op];
    operator.kind == OperatorKind::Gemm && operator.options.transpose_a
}

/// The step of an optimiser that may run in the tail of a GEMM which adds up over rows: it is in the section, and nothing else
/// reads the gradient.
pub(super) fn update_of(workload: &Workload, operators: &[OperatorId], sum: OperatorId, rows: u64) -> Option<Update> {
    if !is_turned(workload, sum) {
        return None;
    }
    let gradient = workload.operators[sum].output;
    let of = |&op: &OperatorId| Update::of(workload, op).filter(|(of, _)| *of == gradient).map(|(_, update)| update);
    let update = operators.iter().find_map(of)?;
    let is_plain = workload.operators[sum].form.is_none() && workload.tensors[gradient].role != TensorRole::Output;
    let is_read_once = workload.consumers(gradient).take(2).count() == 1;
    (is_plain && is_read_once && adds_up(workload, operators, sum, rows).is_some()).then_some(update)
}

/// The operands X and dY of a GEMM that adds up over the `rows` rows that the others of a section stream; `None` if it
/// does not. What is read off chip alone, and by nobody else here, may as well be streamed the other way.
pub(super) fn adds_up(
    workload: &Workload,
    operators: &[OperatorId],
    op: OperatorId,
    rows: u64,
) -> Option<[TensorId; 2]> {
    let operator = &workload.operators[op];
    if operators.len() < 2 || !is_turned(workload, op) {
        return None;
    }
    let &[a, b] = operator.inputs.as_slice() else { return None };
    let view = workload.tensors[a].view?;
    let x = view.base;
    let tensors = [x, b, operator.output].map(|t| &workload.tensors[t]);
    let is_plain = view.of == x && view.window.is_none() && view.transposed && x != b;
    let has_rows = tensors[0].rows == rows && tensors[1].rows == rows;
    if !is_plain || !has_rows || tensors[1].view.is_some() || tensors.iter().any(|t| t.mask.is_some()) {
        return None;
    }
    let mut wanted = false;
    let mut made = false;
    for other in operators.iter().filter(|&&other| other != op).map(|&other| &workload.operators[other]) {
        if other.inputs.iter().any(|&input| workload.base(input) == operator.output) {
            if !other.is_step() {
                return None;
            }
            wanted = true;
        }
        made |= other.output == x || other.output == b;
        let is_turned = other.kind == OperatorKind::Gemm && other.options.transpose_a;
        wanted |= !is_turned && (other.inputs.contains(&x) || other.inputs.contains(&b));
    }
    (made || wanted || tensors[2].rows != rows).then_some([x, b])
}

/// Rows of the pipeline that operators make: those of the first that neither adds anything up nor is a step of an optimiser; if
/// steps go with the sums, those that the sums add up.
pub(super) fn streamed_rows(workload: &Workload, operators: &[OperatorId]) -> u64 {
    let is_turned = |op: &OperatorId| is_turned(workload, *op);
    let is_update = |op: &OperatorId| workload.operators[*op].is_step();
    let rows = |tensor: TensorId| workload.tensors[tensor].rows;
    let first = operators.iter().find(|op| !is_update(op) && !is_turned(op));
    let summed = || {
        let first = operators.iter().find(|op| is_turned(op)).filter(|_| operators.iter().any(is_update))?;
        workload.operators[*first].inputs.get(1).map(|&dy| rows(dy))
    };
    let of = |op: OperatorId| rows(workload.operators[op].output);
    first.map(|&op| of(op)).or_else(summed).unwrap_or_else(|| of(operators[0]))
}

/// Pairs of tensors, of those a section uses, that an elementwise operator anywhere in the graph ties column by column:
/// what the forward phase left behind is cut where its gradient is.
pub fn tied_columns(workload: &Workload, used: &[bool]) -> Vec<(TensorId, TensorId)> {
    let mut ties = Vec::new();
    for operator in &workload.operators {
        if operator.kind == OperatorKind::Gemm || operator.kind.is_row_wise() || !used[operator.output.index()] {
            continue;
        }
        let of = &workload.tensors[operator.output];
        for &input in &operator.inputs {
            let tensor = &workload.tensors[input];
            if used[input.index()] && (tensor.rows, tensor.columns) == (of.rows, of.columns) && tensor.view.is_none() {
                ties.push((operator.output, input));
            }
        }
    }
    ties
}
