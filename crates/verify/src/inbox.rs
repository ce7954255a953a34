//! What arrives at a PCU, and which of its operands it is for.

use std::rc::Rc;

use super::block::Block;

/// What a PCU's input is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// Position in the stage's activations.
    Activation(usize),
    Weights,
    Partials,
    /// What the step in the tail reads.
    State,
    /// Sums of another slice of K, by its number, that are added to the PCU's own.
    Merged(u64),
}

/// A block that has arrived at a PCU.
#[derive(Debug, Clone)]
pub(super) struct Incoming {
    pub(super) operand: Operand,
    pub(super) block: Rc<Block>,
}
