//! Certificates: how far a mapping is from the best of all, in a form that others can check.
//!
//! A certificate lists the leaves of the search: for every section that a partition of the graph may have, every class of
//! loop nests (`bound::nests`), each with cycles that no member of the class beats. The least sum over all partitions follows by
//! shortest paths (`bound::lattice`). The checker enumerates sections and classes by itself, computes every bound again, and refuses a
//! certificate that leaves one out or claims more than it finds.
//!
//! Nothing here compiles or simulates: what a mapping takes is claimed, and reproduced by `rdusim run`. `docs/proof.md` derives
//! the bounds.

mod certificate;
mod check;
mod space;

pub use certificate::{Certificate, GroupEntry, Leaf, Mapped, NestEntry, SectionEntry, gap};
pub use check::{Checker, Refusal, check};
pub use space::{certify, floor_of, least_bytes, least_cycles};

/// Version of a certificate's shape.
pub const SCHEMA: u32 = 1;
