//! Cases of the reference model's parts, calculated by hand.

mod memory;
