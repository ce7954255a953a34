//! Mutation testing of rdusim with all mutants in one build (mutant schemata), each switched on by an environment variable.
//!
//! `build` draws a sample of each module's mutants and builds the tests of an instrumented copy under `target/mutants`; `reach`
//! runs each test once and notes which mutants it reaches; `run` runs for each mutant the tests that reach it until one fails;
//! `report` prints figures and what was missed. Each goes on where it was stopped.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod find;
mod report;
mod run;
mod tree;
mod values;
mod weave;

use tree::{Outcome, Places};

#[derive(Parser)]
#[command(about = "Mutation testing of rdusim with all mutants in one build")]
struct Arguments {
    /// The repository.
    #[arg(long, default_value = ".")]
    repository: PathBuf,
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Print how many mutants modules have.
    Count { modules: Vec<String> },
    /// Draw a sample and build the tests of an instrumented copy.
    Build {
        modules: Vec<String>,
        /// Mutants of each module.
        #[arg(long, default_value_t = 260)]
        sample: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run each test without a mutant and note which ones it reaches.
    Reach {
        /// Tests at a time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Run tests whose names begin so even if they were run before.
        #[arg(long)]
        again: Vec<String>,
        /// Longest time of a test, s; longer ones are left out.
        #[arg(long, default_value_t = 600)]
        longest: u64,
    },
    /// Run for each mutant the tests that reach it until one fails.
    Run {
        /// Modules; all that were built if none is named.
        modules: Vec<String>,
        /// Mutants at a time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Part of the mutants: `2/4` is the second of four.
        #[arg(long, default_value = "1/1", value_parser = shard)]
        shard: (u32, u32),
        /// Usual time of the tests that a mutant is given, in all, s.
        #[arg(long, default_value_t = 60.0)]
        seconds: f64,
        /// Run those that were missed again.
        #[arg(long)]
        again: bool,
        /// Begin no mutant after so many minutes.
        #[arg(long, default_value_t = 1e9)]
        minutes: f64,
    },
    /// Print figures of each module and the mutants that were missed.
    Report,
}

fn shard(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    parts.filter(|&(part, of): &(u32, u32)| 1 <= part && part <= of).ok_or(format!("`{text}` is no part like 2/4"))
}

fn execute(arguments: Arguments) -> Outcome<()> {
    let places = Places::new(&arguments.repository)?;
    match arguments.command {
        Task::Count { modules } => print(&tree::count(&places.repository, &modules)?),
        Task::Build { modules, sample, seed } => {
            tree::build(&places, &tree::Request { modules: &modules, sample, seed })?;
        }
        Task::Reach { jobs, again, longest } => run::reach(&places, jobs, &again, longest)?,
        Task::Run { modules, jobs, shard, seconds, again, minutes } => {
            run::run(&places, &run::Request { jobs, shard, seconds, again, minutes, modules })?;
        }
        Task::Report => {
            print(&report::table(&places)?);
            for (mutant, verdict) in report::missed(&places)? {
                println!("{} ({} of {} tests)", mutant.name(), verdict.passed.len(), verdict.reaching);
            }
        }
    }
    Ok(())
}

fn print(lines: &[String]) {
    for line in lines {
        println!("{line}");
    }
}

fn main() -> ExitCode {
    match execute(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
