//! Numbers against the reference: the element that is farthest off for what it may be.

use serde::Serialize;

use rdusim_base::index::Id;
use rdusim_program::PcuId;

use super::bounded_matrix::Bounded;
use super::machine::Emitted;
use super::matrix::Matrix;
use super::wires::{Unit, Wires};

/// The element of a comparison that is farthest off, measured by what it may be off.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deviation {
    /// Tensor.
    pub tensor: String,
    /// Row and column in it.
    pub index: [usize; 2],
    /// The unit that computed it, with its coordinates.
    pub unit: String,
    /// Section.
    pub section: String,
    /// Stage, by its main operator.
    pub stage: String,
    /// What the configuration computed.
    pub got: f64,
    /// What the reference says.
    pub want: f64,
    /// |got - want| over the larger of |want| and the tensor's root mean square.
    pub rel_error: f64,
    /// The most that may be, from the data type and the sums behind the element (`docs/verify.md`).
    pub tolerance: f64,
}

impl Deviation {
    /// Whether it is within what it may be.
    pub fn is_tolerated(&self) -> bool {
        self.rel_error <= self.tolerance
    }

    /// How much of the tolerance is used: more than one is too much.
    fn strain(&self) -> f64 {
        if self.rel_error == 0.0 {
            0.0
        } else if self.rel_error.is_nan() {
            f64::INFINITY
        } else {
            self.rel_error / self.tolerance
        }
    }

    /// The worse of two.
    pub(super) fn worse(self, other: Self) -> Self {
        if other.strain() > self.strain() { other } else { self }
    }
}

/// Names of what is compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) tensor: &'a str,
    pub(super) section: &'a str,
    pub(super) stage: &'a str,
}

/// How far apart two numbers are; two of the same infinities are not.
fn off(got: f64, want: f64) -> f64 {
    if got.to_bits() == want.to_bits() { 0.0 } else { (got - want).abs() }
}

/// What of a comparison is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Every element.
    All,
    /// Elements whose bound is below their size (or below the tensor's): beyond, a bound says nothing.
    Bounded,
}

/// Compares every element; `None` where there is nothing to tell.
pub(super) fn compare(
    wires: &Wires<'_>,
    names: Names<'_>,
    got: &Matrix,
    from: &Emitted,
    want: &Bounded,
    told: Told,
) -> Option<Deviation> {
    let values = &want.value.values;
    // Masked scores are infinite.
    let square = values.iter().filter(|v| v.is_finite()).map(|v| v * v).sum::<f64>() / values.len().max(1) as f64;
    let mut size = square.sqrt();
    if !(size > 0.0 && size.is_finite()) {
        size = 1.0;
    }
    let strain = |at: usize| {
        let off = off(got.values[at], values[at]);
        if off == 0.0 {
            0.0
        } else if off.is_nan() {
            f64::INFINITY
        } else {
            off / want.error.values[at]
        }
    };
    let scale = |at: usize| if values[at].is_finite() { values[at].abs().max(size) } else { size };
    let is_told = |at: &usize| told == Told::All || want.error.values[*at] < scale(*at);
    // Of equals the first.
    let worst =
        (0..values.len()).filter(is_told).map(|at| (strain(at), at)).reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let at = worst.1;
    let scale = scale(at);
    Some(Deviation {
        tensor: names.tensor.to_owned(),
        index: [at / got.columns, at % got.columns],
        unit: wires.name(Unit::Pcu(PcuId::from_index(from.from[at] as usize))),
        section: names.section.to_owned(),
        stage: names.stage.to_owned(),
        got: got.values[at],
        want: values[at],
        rel_error: off(got.values[at], values[at]) / scale,
        tolerance: want.error.values[at] / scale,
    })
}
