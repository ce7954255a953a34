//! Lower bounds on the cycles of mappings: boxes of loop nests, the floor of a section in a box, and the lattice of sections.
//!
//! A floor holds for every nest of its box, every allocation of PCUs, residency, split of K and style. The search (`compile`) walks
//! boxes by their floors, the certificate (`proof`) lists them. Nothing here compiles or simulates.

pub(crate) mod lattice;
mod mask;
pub(crate) mod nests;
pub(crate) mod path;
pub(crate) mod section;
pub(crate) mod stage;
