//! Rows and heads of a sequence exchanged: `[B R, H N]` seen as `[B H, R N]`, what frameworks write as a transposition of two inner
//! axes. Nothing is moved: runs of N elements lie where they lay.

/// The shape of what is seen with rows and heads exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeadSwap {
    /// Rows of a sequence as it is stored: pieces side by side in a row of the view.
    pub rows: u64,
    /// Heads side by side as it is stored: rows of the view, of each sequence.
    pub heads: u64,
    /// Elements of a head in a row, which lie side by side in both.
    pub width: u64,
}

impl HeadSwap {
    /// Of a stored matrix of `shape` rows and columns; `None` if sequences or heads do not divide it.
    pub fn new(rows: u64, columns: u64, sequences: u64, heads: u64) -> Option<Self> {
        let divides = |extent: u64, by: u64| by > 0 && extent.is_multiple_of(by);
        (divides(rows, sequences) && divides(columns, heads)).then(|| Self {
            rows: rows / sequences,
            heads,
            width: columns / heads,
        })
    }

    /// Rows and columns of the view of a stored matrix of `rows` rows.
    pub fn shape(&self, rows: u64) -> Option<(u64, u64)> {
        Some(((rows / self.rows.max(1)).checked_mul(self.heads)?, self.rows.checked_mul(self.width)?))
    }

    /// Where an element of the view is stored.
    pub fn stored(&self, row: u64, column: u64) -> (u64, u64) {
        let (sequence, head) = (row / self.heads, row % self.heads);
        (sequence * self.rows + column / self.width, head * self.width + column % self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanged_twice_every_element_is_where_it_was() {
        // Two sequences of 3 rows and 4 heads of 5.
        let there = HeadSwap::new(6, 20, 2, 4).unwrap();
        assert_eq!((there, there.shape(6)), (HeadSwap { rows: 3, heads: 4, width: 5 }, Some((8, 15))));
        let back = HeadSwap::new(8, 15, 2, 3).unwrap();
        // Row 6 of the view is head 2 of sequence 1; column 11 is element 1 of its row 2.
        assert_eq!(there.stored(6, 11), (5, 11));
        for (row, column) in (0..6).flat_map(|row| (0..20).map(move |column| (row, column))) {
            let (seen_row, seen_column) = back.stored(row, column);
            assert_eq!(there.stored(seen_row, seen_column), (row, column));
        }
        assert_eq!(HeadSwap::new(7, 20, 2, 4), None);
    }
}
