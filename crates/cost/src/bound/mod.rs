//! Lower bounds on the cycles of mappings: boxes of loop nests, the floor of a section in a box, and the lattice of sections.
//!
//! A floor holds for every nest of its box, every allocation of PCUs, residency, split of K and style. The search (`compile`) walks
//! boxes by their floors, the certificate (`proof`) lists them. Nothing here compiles or simulates.

mod held;
pub mod lattice;
mod mask;
pub mod nests;
mod panels;
pub(crate) mod path;
pub mod section;
pub mod stage;
pub(crate) mod traffic;
