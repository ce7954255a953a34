//! The shape of a GEMM: plain, or one small product for every head and sequence.

/// The shape of a product: `m` rows by `n` columns, over a depth of `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductShape {
    /// Rows of the first operand and of the result.
    pub m: u64,
    /// Columns of the second operand and of the result.
    pub n: u64,
    /// Columns of the first operand, rows of the second.
    pub k: u64,
}

/// Shape of one product and how many there are. A row of A holds all heads side by side; `instances` groups of rows
/// (sequences) each meet a B of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GemmForm {
    /// Sequences: groups of rows with a B each.
    pub instances: u64,
    /// Heads: groups of columns of A and of the result.
    pub heads: u64,
    /// Heads of B as it is stored; each serves `heads / b_heads` heads of A.
    pub b_heads: u64,
    /// Rows of a product.
    pub m: u64,
    /// Columns of a product.
    pub n: u64,
    /// Depth of a product.
    pub k: u64,
    /// What causal attention leaves out.
    pub causal: Option<CausalAxis>,
}

/// The axis of a product that runs along keys or queries and is cut short by causality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CausalAxis {
    /// Columns: scores of keys after the query are not computed.
    Columns,
    /// Depth: zero scores are not multiplied.
    Depth,
}

/// Why operands of a GEMM do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormError {
    /// An extent is no multiple of the number of groups: what, extent, groups' name, groups.
    Indivisible(&'static str, u64, &'static str, u64),
    /// The depths differ: that of A, that of B.
    Depths(u64, u64),
}

/// How a GEMM operator is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GemmOptions {
    /// Sequences.
    pub batch: u64,
    /// Heads of A and of the result.
    pub heads: u64,
    /// Heads of B (with `transpose_a`: of the result, summed over those of a group).
    pub kv_heads: u64,
    /// A is used transposed, sequence by sequence.
    pub transpose_a: bool,
    /// B is used transposed, sequence by sequence.
    pub transpose_b: bool,
    /// Scores or the products with them leave out keys after the query.
    pub causal: bool,
    /// Rows of A that hold something, of all sequences: the others fill groups of unequal sizes up to one size. They take time, and are
    /// no work that was asked for.
    pub filled_rows: Option<u64>,
}

impl Default for GemmOptions {
    fn default() -> Self {
        Self {
            batch: 1,
            heads: 1,
            kv_heads: 1,
            transpose_a: false,
            transpose_b: false,
            causal: false,
            filled_rows: None,
        }
    }
}

impl GemmForm {
    /// The form of A (rows, columns) times B under `options`.
    pub fn new(a: (u64, u64), b: (u64, u64), options: &GemmOptions) -> Result<Self, FormError> {
        let GemmOptions { batch, heads, kv_heads, transpose_a, transpose_b, causal, .. } = *options;
        let part = |what, extent: u64, of, groups: u64| {
            if extent.is_multiple_of(groups) {
                Ok(extent / groups)
            } else {
                Err(FormError::Indivisible(what, extent, of, groups))
            }
        };
        part("`heads`", heads, "`kv_heads`", kv_heads)?;
        let b_heads = if transpose_a { heads } else { kv_heads };
        let (a_rows, a_columns) =
            (part("rows of A", a.0, "`batch`", batch)?, part("columns of A", a.1, "`heads`", heads)?);
        let b_rows = part("rows of B", b.0, "`batch`", batch)?;
        let b_columns = part("columns of B", b.1, if transpose_a { "`heads`" } else { "`kv_heads`" }, b_heads)?;
        let (m, a_depth) = if transpose_a { (a_columns, a_rows) } else { (a_rows, a_columns) };
        let (n, b_depth) = if transpose_b { (b_rows, b_columns) } else { (b_columns, b_rows) };
        if a_depth != b_depth {
            return Err(FormError::Depths(a_depth, b_depth));
        }
        let axis = if transpose_b && !transpose_a { CausalAxis::Columns } else { CausalAxis::Depth };
        let causal = causal.then_some(axis);
        // Heads of a group add up in one product.
        let (heads, b_heads, k) =
            if transpose_a { (kv_heads, kv_heads, a_depth * (heads / kv_heads)) } else { (heads, kv_heads, a_depth) };
        Ok(Self { instances: batch, heads, b_heads, m, n, k, causal })
    }

    /// One product, as large as the operands.
    pub fn plain(m: u64, n: u64, k: u64) -> Self {
        Self { instances: 1, heads: 1, b_heads: 1, m, n, k, causal: None }
    }

    /// Whether it is one product of the whole operands.
    pub fn is_plain(&self) -> bool {
        self.instances == 1 && self.heads == 1 && self.causal.is_none()
    }

    /// The heads that stream `stream` of `streams` brings, of A and of the result: whole groups that share a head of B.
    pub fn heads_of_stream(&self, streams: u64, stream: u64) -> std::ops::Range<u64> {
        let each = self.b_heads.div_ceil(streams) * (self.heads / self.b_heads);
        (stream * each).min(self.heads)..((stream + 1) * each).min(self.heads)
    }

    /// Rows and columns of the result.
    pub fn output(&self) -> (u64, u64) {
        (self.instances * self.m, self.heads * self.n)
    }

    /// MACs with every element counted.
    pub fn dense_macs(&self) -> u64 {
        self.instances * self.heads * self.m * self.n * self.k
    }

    /// MACs that are left of `dense_macs` when causality is used.
    pub fn causal_macs(&self) -> u64 {
        let each = match self.causal {
            None => self.m * self.n * self.k,
            Some(CausalAxis::Columns) => pairs(self.m, self.n) * self.k,
            Some(CausalAxis::Depth) => {
                // Of a sum over a group of heads, every head is cut in the same way.
                let groups = if self.k > self.m && self.k.is_multiple_of(self.m) && self.b_heads == self.heads {
                    self.k / self.m
                } else {
                    1
                };
                groups * pairs(self.m, self.k / groups) * self.n
            }
        };
        self.instances * self.heads * each
    }

    /// The extent of the causal axis that a row tile of `rows` rows covers: what its last row sees. All of it where causality
    /// leaves nothing out.
    pub fn causal_extent(&self, tile: u64, rows: u64) -> u64 {
        let full = match self.causal {
            Some(CausalAxis::Columns) => self.n,
            Some(CausalAxis::Depth) | None => self.k,
        };
        let before = full.saturating_sub(self.m);
        full.min(before + self.m.min((tile + 1).saturating_mul(rows)))
    }

    /// The mean extent of the causal axis that a token of `rows` rows covers, rounded up to `grain`; all tokens in the same way.
    pub fn mean_causal_extent(&self, rows: u64, grain: u64) -> u64 {
        let full = match self.causal {
            None => return 0,
            Some(CausalAxis::Columns) => self.n,
            Some(CausalAxis::Depth) => self.k,
        };
        let before = full.saturating_sub(self.m);
        let tokens = self.m.div_ceil(rows.max(1));
        let reach = |t: u64| full.min(before + (t + 1) * rows).div_ceil(grain) * grain;
        // A long run of tokens grows evenly: a few stand for all.
        let step = tokens.div_ceil(64).max(1);
        let sampled: Vec<u64> = (0..tokens).step_by(step as usize).map(|t| reach(t + (step - 1) / 2)).collect();
        sampled.iter().sum::<u64>().div_ceil(sampled.len().max(1) as u64).min(full.next_multiple_of(grain))
    }
}

/// Query-key pairs that causality keeps, of `queries` queries that are the last of `keys` keys (or the first, with
/// fewer keys than queries).
fn pairs(queries: u64, keys: u64) -> u64 {
    let (short, long) = (queries.min(keys), queries.max(keys));
    short * (long - short) + short * (short + 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_sequences_make_one_small_product_each() {
        let options =
            GemmOptions { batch: 2, heads: 4, kv_heads: 4, transpose_b: true, causal: true, ..Default::default() };
        let scores = GemmForm::new((2 * 8, 4 * 16), (2 * 8, 4 * 16), &options).unwrap();
        assert_eq!((scores.m, scores.n, scores.k, scores.output()), (8, 8, 16, (16, 32)));
        assert_eq!(scores.dense_macs(), 2 * 4 * 8 * 8 * 16);
        assert_eq!(scores.causal_macs(), 2 * 4 * 36 * 16);
        assert_eq!(scores.mean_causal_extent(1, 1), 5);
        assert_eq!(scores.mean_causal_extent(8, 1), 8);
        let options = GemmOptions { transpose_b: false, ..options };
        let values = GemmForm::new((16, 32), (16, 64), &options).unwrap();
        assert_eq!((values.output(), values.causal_macs()), ((16, 64), 2 * 4 * 36 * 16));
    }

    #[test]
    fn a_group_of_heads_shares_keys() {
        let options = GemmOptions { heads: 8, kv_heads: 2, transpose_b: true, ..Default::default() };
        let scores = GemmForm::new((1, 8 * 4), (10, 2 * 4), &options).unwrap();
        assert_eq!((scores.n, scores.k, scores.output(), scores.b_heads), (10, 4, (1, 80), 2));
        let options = GemmOptions { transpose_a: true, transpose_b: false, ..options };
        let of_keys = GemmForm::new((5, 8 * 5), (5, 8 * 4), &options).unwrap();
        assert_eq!((of_keys.output(), of_keys.k), ((5, 2 * 4), 20));
        let causal = GemmForm { causal: Some(CausalAxis::Depth), ..of_keys };
        assert_eq!(causal.causal_macs(), 2 * 4 * 15 * 4);
    }

    #[test]
    fn what_does_not_divide_is_named() {
        let options = GemmOptions { heads: 3, kv_heads: 3, ..Default::default() };
        assert_eq!(
            GemmForm::new((4, 8), (8, 9), &options),
            Err(FormError::Indivisible("columns of A", 8, "`heads`", 3))
        );
        assert_eq!(GemmForm::new((4, 8), (7, 9), &GemmOptions::default()), Err(FormError::Depths(8, 7)));
    }
}
