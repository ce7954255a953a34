//! The axes of a section's tensors, joined where operators tie them column by column: disjoint sets (union-find, Tarjan 1975).

use petgraph::unionfind::UnionFind;

use rdusim_base::index::Id;
use rdusim_graph::workload::{OperatorId, OperatorKind, TensorId, Workload};

use super::key_axis::{KeyAxis, key_axes};
use super::row_reduction::{adds_up, tied_columns};

/// The operators of a section over so many rows.
#[derive(Clone, Copy)]
pub(super) struct Joining<'a> {
    pub(super) workload: &'a Workload,
    pub(super) operators: &'a [OperatorId],
    pub(super) rows: u64,
}

/// Axes of the tensors in use. A node is the column axis of the tensor at place i, at i, or its row axis (of weights), behind
/// all column axes.
pub(super) struct JoinedAxes {
    /// The tensors, by their ids.
    pub(super) in_use: Vec<TensorId>,
    pub(super) sets: UnionFind<usize>,
    /// Attention whose keys are an axis.
    pub(super) keys: Vec<KeyAxis>,
    /// Nodes that operators work along.
    used: Vec<bool>,
    /// Nodes that some operator needs whole.
    whole: Vec<usize>,
    /// K and N of every product.
    gemms: Vec<(usize, usize)>,
    /// Nodes of stages that add up over rows.
    sums: Vec<usize>,
}

impl JoinedAxes {
    /// Axes of the tensors that a section uses, none of them joined.
    pub(super) fn new(of: Joining<'_>, in_use: Vec<TensorId>) -> Self {
        let nodes = 2 * in_use.len();
        Self {
            in_use,
            sets: UnionFind::new(nodes),
            keys: key_axes(of.workload, of.operators),
            used: vec![false; nodes],
            whole: Vec::new(),
            gemms: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// The node of a tensor's columns.
    pub(super) fn place(&self, tensor: TensorId) -> usize {
        self.in_use.partition_point(|&other| other < tensor)
    }

    /// Joins the axes that an operator ties.
    pub(super) fn join(&mut self, of: Joining<'_>, op: OperatorId) {
        let operator = &of.workload.operators[op];
        let tensors = self.in_use.len();
        let out = self.place(operator.output);
        if let Some([x, dy]) = adds_up(of.workload, of.operators, op, of.rows) {
            let (x, dy) = (self.place(x), self.place(dy));
            self.sets.union(x, tensors + out);
            self.sets.union(dy, out);
            self.gemms.push((x, dy));
            if operator.form.is_some() {
                self.whole.extend([x, dy]);
            }
            self.sums.extend([x, dy, tensors + out, out]);
            return;
        }
        self.used[out] = true;
        let first = self.place(operator.inputs[0]);
        self.used[first] = true;
        if let Some((along, other)) = product_of_keys(&self.keys, op, first, out) {
            // Rows of keys and values lie along the scores; heads cut the columns of the rest already.
            let second = tensors + self.place(operator.inputs[1]);
            self.used[second] = true;
            self.sets.union(along, second);
            self.whole.push(other);
        } else if operator.form.is_some() {
            // Heads cut the columns already, those of a second operand that is made here too.
            self.whole.extend([first, out]);
            let second = operator.inputs.get(1).map(|&second| self.place(second));
            self.whole.extend(second.filter(|&second| self.used[second]));
        } else if operator.kind == OperatorKind::Gemm {
            let b = self.place(operator.inputs[1]);
            self.used[b] = true;
            self.used[tensors + b] = true;
            self.sets.union(first, tensors + b);
            self.sets.union(out, b);
            self.gemms.push((first, out));
            if of.workload.tensors[operator.inputs[0]].window().is_some() {
                // Windows are made of whole pixels as they are read.
                self.whole.push(first);
            }
        } else {
            for input in &operator.inputs {
                let at = self.place(*input);
                self.used[at] = true;
                self.sets.union(out, at);
                if of.workload.tensors[*input].columns != of.workload.tensors[operator.output].columns {
                    self.whole.push(out);
                }
            }
            if operator.kind.is_row_wise() && self.keys.iter().all(|keys| keys.softmax != Some(op)) {
                self.whole.push(out);
            }
        }
    }

    /// Of every node, whether its axis may be cut, when all operators are joined.
    pub(super) fn settle(&mut self, workload: &Workload) -> Vec<bool> {
        let passed_on = self.used.clone();
        for &node in &self.sums {
            self.used[node] = true;
        }
        if !self.sums.is_empty() {
            for (a, b) in tied_columns(workload, &flags(workload, &self.in_use, &self.used)) {
                let (a, b) = (self.place(a), self.place(b));
                self.sets.union(a, b);
            }
        }
        let along: Vec<usize> = self.keys.iter().map(|keys| self.place(keys.along)).collect();
        let mut whole = std::mem::take(&mut self.whole);
        whole.extend(met_keys(&along, &self.gemms, |a, b| self.sets.equiv(a, b)));
        whole.extend(self.gemms.iter().filter(|&&(k, n)| self.sets.equiv(k, n)).map(|&(k, _)| k));
        // A cut that no stage but row reductions would notice is none: all others would wait for its column tiles.
        let [mut noticed, mut is_whole] = [(); 2].map(|()| vec![false; self.used.len()]);
        (0..self.used.len()).filter(|&node| passed_on[node]).for_each(|node| noticed[self.sets.find(node)] = true);
        for node in whole {
            is_whole[self.sets.find(node)] = true;
        }
        let is_cut = |node: usize| {
            let root = self.sets.find(node);
            self.used[node] && !is_whole[root] && noticed[root]
        };
        (0..self.used.len()).map(is_cut).collect()
    }
}

/// Which tensors of a graph are among those in use, of which `used` says so.
fn flags(workload: &Workload, in_use: &[TensorId], used: &[bool]) -> Vec<bool> {
    let mut of_graph = vec![false; workload.tensors.len()];
    for (tensor, _) in in_use.iter().zip(used).filter(|(_, used)| **used) {
        of_graph[tensor.index()] = true;
    }
    of_graph
}

/// Of tensors along keys, those whose axis another product of keys has too, or a plain product: keys of two lie differently in a row.
fn met_keys(along: &[usize], gemms: &[(usize, usize)], is_joined: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let is_met = |&(at, &of): &(usize, &usize)| {
        let by_gemm = gemms.iter().any(|&(k, n)| is_joined(of, k) || is_joined(of, n));
        by_gemm || along[..at].iter().any(|&other| is_joined(of, other))
    };
    along.iter().enumerate().filter(is_met).map(|(_, &of)| of).collect()
}

/// The operand or result of a product of keys that keys lie along, and the other; `None` of other operators.
fn product_of_keys(keys: &[KeyAxis], op: OperatorId, first: usize, out: usize) -> Option<(usize, usize)> {
    let of = keys.iter().find(|keys| keys.is_product(op))?;
    Some(if of.scores == Some(op) { (out, first) } else { (first, out) })
}
