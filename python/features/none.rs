//! Never built.

fn main() {}
