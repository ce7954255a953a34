//! The `rdusim` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    rdusim::cli::run(std::env::args_os())
}
