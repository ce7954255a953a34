//! The `rdusim` command.
fn main() {}
