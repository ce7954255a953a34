//! Arguments that the commands which run a workload have in common.

use std::path::PathBuf;

use clap::Args;

use super::import::ModelFileArgs;
use super::values::{Effort, Fidelity, Format, Mapping};

/// Where the configuration comes from, and where it goes.
#[derive(Debug, Default, Args)]
pub(super) struct ConfigArgs {
    /// Write the configuration to this file, to be edited and run again
    #[arg(long, value_name = "FILE")]
    pub(super) save_config: Option<PathBuf>,
    /// Run the configuration of this file instead of compiling one
    #[arg(long, value_name = "FILE", conflicts_with = "sections")]
    pub(super) config: Option<PathBuf>,
    /// Cut the graph into the sections of this file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(super) sections: Option<PathBuf>,
    /// How long the compiler searches: levels differ in budgets alone
    #[arg(long, value_enum, default_value_t = Effort::Normal, conflicts_with = "config")]
    pub(super) effort: Effort,
}

/// What `compare` and `run` have in common.
#[derive(Debug, Args)]
pub(super) struct SharedArgs {
    /// Chip file (TOML), or a built-in name (`rdusim list`)
    #[arg(long, value_name = "FILE")]
    pub(super) arch: PathBuf,
    /// Workload file (TOML), a built-in name, or a model (.onnx, .pt2, config.json)
    #[arg(long, value_name = "FILE")]
    pub(super) workload: PathBuf,
    #[command(flatten)]
    pub(super) model: ModelFileArgs,
    /// Change a field: arch.PATH=VALUE or workload.PATH=VALUE; may be repeated. Numbers may end in Ki, Mi, Gi, k, M or G. In `compare`
    /// and `run` several values start a study: FROM..TO*FACTOR, FROM..TO+STEP, or A,B,C
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// How closely time is modelled
    #[arg(long, value_enum, default_value_t = Fidelity::Event)]
    pub(super) fidelity: Fidelity,
    /// How good the mapping is taken to be
    #[arg(long, value_enum, default_value_t = Mapping::Ideal)]
    pub(super) mapping: Mapping,
    /// Seed of random masks and of the compiler's choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Also write JSON, CSV and pictures into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) configuration: ConfigArgs,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Write a timeline of the event engine that Perfetto and Chrome open (JSON)
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Simulate every event, even where the run only repeats itself: the same result, in more time
    #[arg(long)]
    pub(super) no_skip: bool,
    /// Print all tables, not one screen of what decides
    #[arg(long)]
    pub(super) full: bool,
}

/// Whether answers come with ranges.
#[derive(Debug, Args)]
pub(super) struct RangeArgs {
    /// Also give 5-to-95 % ranges, from draws of the chip file's uncertain fields
    #[arg(long)]
    pub(super) uncertainty: bool,
    /// Draws for `--uncertainty`
    #[arg(long, requires = "uncertainty", value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub(super) samples: u64,
}
