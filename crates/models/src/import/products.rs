//! Products whose operands lie otherwise than rows times a weight: transposed, with the weight in front, with a weight for each of
//! several groups, or with one operand for several others.

use super::layout::Layout;
use super::lower::{Done, Lower, Stop, unsupported};
use super::net::{NetNode, ValueId};
use rdusim_graph::workload::OperatorOptions;

impl Lower<'_, '_> {
    /// The columns of a matrix of activations times a weight with `n` columns.
    pub(super) fn columns_times(&mut self, node: &NetNode<'_>, a: ValueId, weight: usize, n: u64) -> Done {
        let &[_, columns] = self.shape(a)? else { return unsupported("its first operand is no matrix") };
        let x = self.as_rows(a)?;
        let options = OperatorOptions::default().transpose_a();
        let tensor = self.emit(node, "gemm", vec![x.tensor, weight], (columns, n), options);
        self.settle(node, Layout::of_rows(tensor, &[columns, n]))
    }

    /// A weight of M x K times activations of K x N: the transposed activations times the transposed weight.
    pub(super) fn weight_times(&mut self, node: &NetNode<'_>, w: ValueId, b: ValueId) -> Done {
        if self.is_constant(b) {
            return unsupported("two constants");
        }
        let of_weight = self.shape(w)?.to_vec();
        let (Some((&k, leading)), of_b) = (of_weight.split_last(), self.shape(b)?.to_vec()) else {
            return unsupported("a number times a matrix");
        };
        let Some((&m, batch)) = leading.split_last() else { return unsupported("a constant vector times a matrix") };
        if batch.iter().any(|&dim| dim != 1) || of_b.len() < 2 {
            return unsupported("a constant of more than two axes times an activation");
        }
        let weight = self.weight(w, (k, m), true, (0, m));
        if of_b.len() == 2 {
            self.columns_times(node, b, weight, m)?;
            let output = node.output().ok_or(Stop::Behind)?;
            let turned = self.place(output)?.transposed(&[1, 0]);
            return self.settle(node, turned);
        }
        let rank = of_b.len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        let x = self.rows_turned(b)?.transposed(&order);
        let tensor = self.emit(node, "gemm", vec![x.tensor, weight], (x.rows, m), OperatorOptions::default());
        let turned: Vec<u64> = of_b[..rank - 2].iter().copied().chain([of_b[rank - 1], m]).collect();
        self.settle(node, Layout::of_rows(tensor, &turned).transposed(&order))
    }

    /// Groups of rows, each of which meets a weight of its own: experts.
    pub(super) fn grouped(&mut self, node: &NetNode<'_>, a: ValueId, b: ValueId) -> Done {
        let (of_a, of_b) = (self.shape(a)?.to_vec(), self.shape(b)?.to_vec());
        let groups =
            |shape: &[u64]| shape[..shape.len() - 2].iter().copied().skip_while(|&dim| dim == 1).collect::<Vec<_>>();
        if of_a.len() < 2 || groups(&of_a) != groups(&of_b) {
            return unsupported("a weight of more than two axes that are not those of the activation");
        }
        let count: u64 = groups(&of_b).iter().product();
        let (k, n) = (of_b[of_b.len() - 2], of_b[of_b.len() - 1]);
        let x = self.as_rows(a)?;
        let weight = self.weight(b, (count.saturating_mul(k), n), false, (0, n));
        let options = OperatorOptions::default().batch(count);
        let tensor = self.emit(node, "gemm", vec![x.tensor, weight], (x.rows, n), options);
        let output = node.output().ok_or(Stop::Behind)?;
        let shape = self.shape(output)?.to_vec();
        self.settle(node, Layout::of_rows(tensor, &shape))
    }

    /// A product whose second operand stands for several of the first: those lie one below the other as rows of one product.
    pub(super) fn broadcast_product(&mut self, node: &NetNode<'_>, a: ValueId, b: ValueId) -> Done {
        let (of_a, of_b) = (self.shape(a)?.to_vec(), self.shape(b)?.to_vec());
        let rank = of_a.len().max(of_b.len());
        let padded = |shape: &[u64]| [vec![1; rank - shape.len()], shape.to_vec()].concat();
        let (of_a, of_b) = (padded(&of_a), padded(&of_b));
        if node.is_causal {
            return unsupported("a causal product whose operands' axes do not correspond");
        }
        let mut order = Vec::with_capacity(rank);
        for (axis, (&ours, &theirs)) in of_a.iter().zip(&of_b).enumerate().take(rank - 2) {
            if ours == theirs {
                order.push(axis);
            } else if theirs != 1 {
                return unsupported("operands whose axes do not correspond");
            }
        }
        let batch: u64 = order.iter().map(|&axis| of_b[axis]).product();
        let shared: Vec<usize> = (0..rank - 2).filter(|axis| !order.contains(axis)).collect();
        order.extend(shared);
        order.extend([rank - 2, rank - 1]);
        let permuted = |shape: &[u64]| order.iter().map(|&axis| shape[axis]).collect::<Vec<u64>>();
        let wide = |layout: &Layout, shape: &[u64]| {
            layout.reshaped(shape).ok_or_else(|| Stop::Unsupported("operands whose axes do not correspond".to_owned()))
        };
        let placed = self.place(a)?;
        let mut x = wide(&placed, &of_a)?.transposed(&order);
        if !x.is_of_rows() {
            x = self.reread(a, &placed, &Layout::of_rows(0, &permuted(&of_a)))?;
        }
        let y = self.as_rows(b)?;
        let columns = of_b[rank - 1];
        let none = OperatorOptions::default();
        let options = if batch > 1 { none.batch(batch) } else { none };
        let tensor = self.emit(node, "gemm", vec![x.tensor, y.tensor], (x.rows, columns), options);
        let mut made = permuted(&of_a);
        made[rank - 1] = columns;
        let mut back = vec![0; rank];
        for (at, &axis) in order.iter().enumerate() {
            back[axis] = at;
        }
        let output = node.output().ok_or(Stop::Behind)?;
        let shape = self.shape(output)?.to_vec();
        let result = wide(&Layout::of_rows(tensor, &made).transposed(&back), &shape)?;
        self.settle(node, result)
    }
}
