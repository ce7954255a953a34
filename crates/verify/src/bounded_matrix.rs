//! Matrices of the reference, with a bound on how far each of the chip's values may be off.

use rdusim_base::units::{Dtype, ElementFormat};

use super::matrix::Matrix;
use super::number::{round_int8, rounded_error};

/// Values, and how far a chip's may be off from each.
#[derive(Debug, Clone)]
pub(super) struct Bounded {
    pub(super) value: Matrix,
    pub(super) error: Matrix,
}

impl Bounded {
    /// Values that are exact.
    pub(super) fn exact(value: Matrix) -> Self {
        let error = Matrix::filled(value.rows, value.columns, 0.0);
        Self { value, error }
    }

    /// Rounds to a tensor's data type: only integers change their value, for the reference of the others is not rounded; floats of
    /// 8 bits end at their largest.
    pub(super) fn rounded(mut self, dtype: Dtype) -> Self {
        for (value, error) in self.value.values.iter_mut().zip(&mut self.error.values) {
            *error = rounded_error(dtype, *value, *error);
            match dtype.element() {
                Some(ElementFormat::Int(_)) => *value = round_int8(*value),
                Some(format) => *value = value.clamp(-format.most(), format.most()),
                None => {}
            }
        }
        self
    }
}
