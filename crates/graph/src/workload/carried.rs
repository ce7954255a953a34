//! What of an operator that carries a state can run side by side: a column of a sequence needs no other column and no other sequence,
//! and its rows follow one another.

use super::graph::{OperatorId, Workload};

/// Columns of sequences, each worked on row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chains {
    /// Sequences.
    pub sequences: u64,
    /// Columns of the result.
    pub columns: u64,
    /// Rows of a sequence, one after the other.
    pub rows: u64,
}

impl Chains {
    /// All of them.
    pub fn count(&self) -> u64 {
        self.sequences.saturating_mul(self.columns)
    }

    /// Vectors that a unit with so many chains works on one after the other, `lanes` chains side by side.
    pub fn vectors(&self, chains: u64, lanes: u64) -> u64 {
        chains.div_ceil(lanes.max(1)).saturating_mul(self.rows)
    }
}

impl Workload {
    /// The chains of an operator that carries a state from row to row; `None` of others.
    pub fn chains(&self, op: OperatorId) -> Option<Chains> {
        let operator = &self.operators[op];
        let output = &self.tensors[operator.output];
        let sequences = operator.options.batch.max(1);
        operator.kind.is_carried().then_some(Chains {
            sequences,
            columns: output.columns,
            rows: (output.rows / sequences).max(1),
        })
    }

    /// Bytes of all operands that a unit with so many chains of an operator needs, chains of neighbouring columns together: its
    /// columns, the factors of their heads, and of an operand that heads share what any of its columns meets.
    pub fn chain_bytes(&self, op: OperatorId, chains: u64) -> u64 {
        let Some(all) = self.chains(op) else { return 0 };
        let operator = &self.operators[op];
        let own = chains.min(all.columns);
        let rows = chains.div_ceil(all.columns.max(1)).saturating_mul(all.rows);
        let of = |(position, &input): (usize, &super::TensorId)| {
            let tensor = &self.tensors[input];
            let columns = if operator.kind.shares_input(position) {
                own.min(tensor.columns)
            } else {
                (u128::from(own) * u128::from(tensor.columns)).div_ceil(u128::from(all.columns.max(1))) as u64
            };
            rows.saturating_mul(columns).saturating_mul(tensor.dtype.bytes())
        };
        operator.inputs.iter().enumerate().map(of).sum()
    }

    /// Bytes of the state of a chain: a number of fp32, or the rows before that a convolution takes.
    pub fn chain_state_bytes(&self, op: OperatorId) -> u64 {
        let operator = &self.operators[op];
        let output = &self.tensors[operator.output];
        if !operator.kind.has_taps() {
            return 4;
        }
        let taps = operator.vectors.first().map_or(1, |&taps| self.tensors[taps].columns / output.columns.max(1));
        taps.saturating_sub(1) * output.dtype.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse;

    #[test]
    fn a_unit_needs_its_columns_and_the_factors_of_their_heads() {
        let tensor = |name: &str, columns: u64, dtype: &str| {
            format!("[[tensors]]\nname = \"{name}\"\nshape = [24, {columns}]\ndtype = \"{dtype}\"\nrole = \"input\"\n")
        };
        let text = [
            "schema = 1\nname = \"s\"\n".to_owned(),
            tensor("x", 12, "bf16"),
            tensor("a", 3, "fp32"),
            tensor("scores", 8, "bf16"),
            "[[operators]]\nname = \"scan\"\nkind = \"scan\"\ninputs = [\"x\", \"a\"]\noutput = \"h\"\nheads = 3\nbatch = 2\n"
                .to_owned(),
            "[[operators]]\nname = \"mask\"\nkind = \"decay_mask\"\ninputs = [\"scores\", \"a\"]\noutput = \"m\"\nheads = 3\n\
             kv_heads = 1\nbatch = 3\n"
                .to_owned(),
        ];
        let workload = parse("s", &text.concat(), &[], 0).unwrap();
        let [scan, mask] = ["scan", "mask"]
            .map(|name| workload.operators.iter_enumerated().find(|(_, operator)| operator.name == name).unwrap().0);
        assert_eq!(workload.chains(scan), Some(Chains { sequences: 2, columns: 12, rows: 12 }));
        assert_eq!(workload.chains(mask), Some(Chains { sequences: 3, columns: 24, rows: 8 }));
        // 12 rows of 5 columns, which lie in 2 heads of 4.
        assert_eq!(workload.chain_bytes(scan, 5), 12 * (5 * 2 + 2 * 4));
        // Two whole sequences.
        assert_eq!(workload.chain_bytes(scan, 24), 24 * (12 * 2 + 3 * 4));
        // Ten columns are keys of two heads, which share the 8 scores of a row.
        assert_eq!(workload.chain_bytes(mask, 10), 8 * (8 * 2 + 2 * 4));
        assert_eq!(workload.chains(scan).map(|chains| chains.vectors(5, 4)), Some(24));
        assert_eq!(workload.chain_state_bytes(scan), 4);
    }
}
