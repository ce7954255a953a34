//! Products between `QuantizeLinear` and `DequantizeLinear`: both operands are integers of eight bits, so that the product is of them.

use super::draft::{Draft, Role};

impl Draft<'_> {
    /// Lets products of quantised activations with weights that are stored as integers read integers of both: what is quantised is
    /// written once, by a `scale`.
    pub(super) fn quantise(&mut self, dtype: &str) {
        let weight_of = |draft: &Self, at: usize| {
            let operator = &draft.operators[at];
            operator.inputs.get(1).copied().filter(|_| operator.is_narrow)
        };
        let is_stored = |draft: &Self, weight: usize| {
            let reads = |at: &usize| draft.operators[*at].inputs.contains(&weight);
            draft.tensors[weight].storage.is_some()
                && draft.is_storable(weight, dtype)
                && (0..draft.operators.len()).filter(reads).all(|at| weight_of(draft, at) == Some(weight))
        };
        let narrow: Vec<(usize, usize)> = (0..self.operators.len())
            .filter_map(|at| weight_of(self, at).map(|weight| (at, weight)))
            .filter(|&(_, weight)| is_stored(self, weight))
            .collect();
        let mut integers: Vec<Option<usize>> = vec![None; self.tensors.len()];
        for &(at, weight) in &narrow {
            self.tensors[weight].dtype = Some("int8");
            let from = self.operators[at].inputs[0];
            let of = integers[from].unwrap_or_else(|| {
                let (name, shape) = (self.tensors[from].name.clone(), self.tensors[from].shape);
                let made = self.tensor(&format!("{name}_int8"), shape, Role::Made);
                self.tensors[made].dtype = Some("int8");
                self.push(&format!("quantize_{name}"), "scale", vec![from], made);
                made
            });
            integers[from] = Some(of);
            self.operators[at].inputs[0] = of;
        }
    }
}
