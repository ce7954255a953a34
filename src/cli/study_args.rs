//! What can be typed after `explain`, `sweep`, `merge` and `diff`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser as _;

use super::run_args::SharedArgs;
use super::values::{Format, Mapping, Mode};

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  # what bounds every section, and what one more of each resource would save
  rdusim explain --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # one mode, as JSON
  rdusim explain --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --format json

  # how much do the chip file's assumptions matter?
  rdusim explain --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --uncertainty

  # how much off-chip traffic would more SRAM save?
  rdusim explain --traffic-curve --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --set arch.pmu.capacity_bytes=32Ki --out results";

pub(super) const SWEEP_EXAMPLES: &str = "\
Examples:
  # every point of a study: results.csv, a summary and pictures in results/
  rdusim sweep workloads/studies/launch.toml --out results

  # after a kill, the same command goes on where it stopped; one of four machines runs
  rdusim sweep workloads/studies/launch.toml --shard 1/4 --out shard-1

  # no point takes longer than a minute; what did runs again with a longer limit
  rdusim sweep workloads/studies/launch.toml --timeout-per-point 60 --out results";

pub(super) const MERGE_EXAMPLES: &str = "\
Examples:
  # join two shards, checking that every point is there once
  rdusim merge workloads/studies/launch.toml shard-1 shard-2 --out results";

pub(super) const DIFF_EXAMPLES: &str = "\
Examples:
  # what changed between two results, and why
  rdusim diff before/result.json after/result.json";

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// How the graph is cut into sections; every mode if not given
    #[arg(long, value_enum)]
    pub(super) mode: Option<Mode>,
    /// Also vary every assumed field of the chip file by a factor of 2
    #[arg(long)]
    pub(super) uncertainty: bool,
    /// Tell instead why the search took its mappings: every decision, of all sections or of one (as in up+gelu)
    #[arg(long, value_name = "SECTION", num_args = 0..=1, default_missing_value = "", conflicts_with = "uncertainty")]
    pub(super) search: Option<String>,
    /// Draw instead the least off-chip traffic against SRAM, with what the mapping that was found moves
    #[arg(long, conflicts_with_all = ["uncertainty", "search"])]
    pub(super) traffic_curve: bool,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
}

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// Study file (TOML), or a built-in name (`rdusim list`)
    #[arg(value_name = "STUDY")]
    pub(super) study: PathBuf,
    /// Change a field of every point: arch.PATH=VALUE or workload.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Write table, summary and pictures into this directory, and keep a journal there to go on from
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Run one part of N: every Nth point from the Ith on
    #[arg(long, value_name = "I/N")]
    pub(super) shard: Option<String>,
    /// How good mappings are taken to be; as the study file says if not given
    #[arg(long, value_enum)]
    pub(super) mapping: Option<Mapping>,
    /// Threads; as many as the machine has if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024).map(usize::from))]
    pub(super) threads: Option<usize>,
    /// Stop a point that takes longer and go on; with a longer limit the same command runs it again
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout_per_point: Option<Duration>,
    /// Form of the summary on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// A limit of time; at least a millisecond, at most a year.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.001..=3.2e7).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.001 to 32000000, such as 60".to_owned())
}

#[derive(Debug, Args)]
pub(super) struct MergeArgs {
    /// Study file (TOML) or built-in name, as the shards were run with
    #[arg(value_name = "STUDY")]
    pub(super) study: PathBuf,
    /// Directories of the shards
    #[arg(value_name = "DIR", required = true)]
    pub(super) shards: Vec<PathBuf>,
    /// Change a field of every point, as the shards were run with; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// How good mappings are taken to be, as the shards were run with
    #[arg(long, value_enum)]
    pub(super) mapping: Option<Mapping>,
    /// Write table, summary and pictures into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Form of the summary on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Result of compare or run (JSON)
    pub(super) a: PathBuf,
    /// The one to compare it with
    pub(super) b: PathBuf,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::Cli;
    use super::*;

    #[test]
    fn the_examples_of_the_help_parse_and_fit_a_terminal() {
        let mut examples = 0;
        for text in [EXPLAIN_EXAMPLES, SWEEP_EXAMPLES, MERGE_EXAMPLES, DIFF_EXAMPLES] {
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
            for line in text.replace("\\\n", "").lines().filter(|line| line.starts_with("  rdusim ")) {
                examples += 1;
                if let Err(error) = Cli::try_parse_from(line.split_whitespace()) {
                    panic!("{line}: {error}");
                }
            }
        }
        assert_eq!(examples, 9);
    }
}
