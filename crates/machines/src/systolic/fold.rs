//! Folds: parts of a product that fill an array's cells once, and how long an array takes for them in turn.
//!
//! An array of R x C cells through which T steps pass has its last multiplication R + C + T - 2 cycles after the first operand
//! came in: operands enter row by row and column by column, a cycle later each. What cells hold is loaded, or shifted out, in R
//! cycles. So a fold alone takes 2 R + C + T - 2 cycles, which is SCALE-Sim's closed form (Samajdar et al., 2018, arXiv:1811.02883;
//! 2020, ISPASS). With double-buffered cells the next fold is loaded meanwhile and follows without a gap: F folds take
//! R + (F - 1) max(T, R) + T + R + C - 2.

use rdusim_graph::arch::{Arrays, Dataflow};

/// Folds that one array computes in turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Folds {
    /// How many.
    pub(super) count: f64,
    /// Steps that pass through in each: rows of the streamed operand, or of the depth where cells hold sums.
    pub(super) steps: f64,
}

impl Folds {
    /// Those of a product of `rows` x `columns` over `depth` on one array: `depth_folds` folds of the depth for all columns together
    /// where some are empty.
    pub(super) fn of(array: &Arrays, rows: f64, columns: f64, depth: f64, depth_folds: Option<f64>) -> Self {
        let across = (columns / array.columns as f64).ceil();
        match array.dataflow {
            Dataflow::WeightStationary => {
                let chunks = (rows / array.accumulator_rows as f64).ceil();
                let folds = depth_folds.unwrap_or_else(|| across * (depth / array.rows as f64).ceil());
                Self { count: folds * chunks, steps: rows / chunks.max(1.0) }
            }
            Dataflow::OutputStationary => Self { count: (rows / array.rows as f64).ceil() * across, steps: depth },
        }
    }

    /// Cycles, if each cell does `cell_macs` multiply-accumulates a cycle.
    pub(super) fn cycles(self, array: &Arrays, cell_macs: u64) -> f64 {
        let (rows, columns) = (array.rows as f64, array.columns as f64);
        let steps = (self.steps / cell_macs as f64).ceil();
        let alone = steps + rows + columns - 2.0;
        if self.count < 1.0 {
            0.0
        } else if array.is_double_buffered {
            rows + (self.count - 1.0) * steps.max(rows) + alone
        } else {
            self.count * (rows + alone)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use rdusim_base::units::Dtype;

    fn array(dataflow: Dataflow, is_double_buffered: bool) -> Arrays {
        let cell_macs = BTreeMap::from([(Dtype::Bf16, 1)]);
        Arrays { count: 1, rows: 128, columns: 128, cell_macs, dataflow, is_double_buffered, accumulator_rows: 1 << 20 }
    }

    fn cycles(array: &Arrays, product: (f64, f64, f64)) -> f64 {
        Folds::of(array, product.0, product.1, product.2, None).cycles(array, 1)
    }

    #[test]
    fn by_hand() {
        // 2,048 x 640 x 640: 5 x 5 folds of weights through which 2,048 rows stream, 2,048 + 3 * 128 - 2 each.
        let alone = array(Dataflow::WeightStationary, false);
        assert_eq!(Folds::of(&alone, 2048.0, 640.0, 640.0, None), Folds { count: 25.0, steps: 2048.0 });
        assert_eq!(cycles(&alone, (2048.0, 640.0, 640.0)) as u64, 25 * 2430);
        // Double-buffered: the first weights, 25 times 2,048 rows, and the last way through the array.
        let double = array(Dataflow::WeightStationary, true);
        assert_eq!(cycles(&double, (2048.0, 640.0, 640.0)) as u64, 128 + 25 * 2048 + 254);
        // Sums stay: 16 x 5 folds, each over a depth of 640.
        let sums = array(Dataflow::OutputStationary, false);
        assert_eq!(cycles(&sums, (2048.0, 640.0, 640.0)) as u64, 80 * (640 + 382));
        // Few rows: loading weights is what takes time.
        assert_eq!(cycles(&double, (8.0, 256.0, 128.0)) as u64, 128 + 128 + 8 + 254);
        assert_eq!(cycles(&double, (0.0, 256.0, 128.0)) as u64, 0);
    }

    #[test]
    fn more_rows_than_sums_find_room_load_weights_again() {
        let small = Arrays { accumulator_rows: 1024, ..array(Dataflow::WeightStationary, true) };
        assert_eq!(Folds::of(&small, 2048.0, 128.0, 256.0, None), Folds { count: 4.0, steps: 1024.0 });
    }

    /// Every multiplication, cell by cell and cycle by cycle, of one fold.
    #[test]
    fn the_last_multiplication_is_where_the_closed_form_says() {
        for (rows, columns, steps) in [(1u64, 1u64, 1u64), (4, 7, 9), (8, 3, 2), (5, 5, 30)] {
            let last = (0..rows)
                .flat_map(|r| (0..columns).flat_map(move |c| (0..steps).map(move |t| r + c + t)))
                .max()
                .expect("a cell");
            let array = Arrays { rows, columns, ..array(Dataflow::WeightStationary, false) };
            let alone = Folds { count: 1.0, steps: steps as f64 }.cycles(&array, 1);
            assert_eq!(alone as u64, rows + last + 1);
        }
    }
}
