//! Activations of which a model keeps N of every M neighbours, as the first operands of products.
//!
//! 2:4 activations behind a squared `ReLU`: Haziza et al. 2025, arXiv:2503.16672.

use rdusim_base::units::saturating_u64;

/// How an activation is pruned: the largest `n` of every `m` neighbours in a row, which lie along the depth of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrunedActivation {
    /// Kept of a group.
    pub n: u64,
    /// Elements of a group.
    pub m: u64,
}

impl PrunedActivation {
    /// Whether tensor cores with a 2:4 mode multiply it as their sparse operand.
    pub fn is_two_of_four(self) -> bool {
        self.m == 4 && self.n <= 2
    }

    /// Bytes of the kept values, and of their places in their groups (log2 M bits each); a last group that is shorter is filled up.
    pub fn bytes(self, rows: u64, columns: u64, element_bytes: u64) -> u64 {
        let values = u128::from(rows) * u128::from(columns.div_ceil(self.m)) * u128::from(self.n);
        let bits = u128::from(self.m.next_power_of_two().ilog2());
        saturating_u64(values * u128::from(element_bytes) + (values * bits).div_ceil(8))
    }
}
