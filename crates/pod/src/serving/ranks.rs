//! The division of experts over chips that serve.

use rdusim_machines::gpu::ProductFormat;

/// How chips that serve together share experts out: as many chips as have the attention, in another division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertRanks {
    /// Chips that share the matrices of an expert.
    pub tensor: u64,
    /// Groups of them, each of which has experts of its own.
    pub groups: u64,
    /// Format of the experts' products.
    pub format: ProductFormat,
}
