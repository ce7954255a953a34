//! The command line: arguments in, results on standard output, messages on standard error, an exit code.
//!
//! Commands are short: they read inputs, call the library, and hand what it returns to [`crate::report`].

mod args;
mod break_even;
mod check;
mod compare;
mod configured;
mod diff;
mod execute;
mod explain;
mod failure;
mod fleet_args;
mod import;
mod interrupt;
mod list;
mod made;
mod map;
mod model;
mod output;
mod overwritten;
mod panics;
mod pod;
mod pod_fleet;
mod pod_goodput;
mod pod_search;
mod progress;
mod prove;
mod ranged;
mod report;
mod run_args;
mod serving;
mod serving_request;
mod sparsity;
mod study_args;
mod sweep;
mod takes;
mod validate;
mod values;
mod verbose;
mod verify;
mod verify_tiles;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::args::{Cli, Command};
use self::failure::Failure;

/// Runs the command that `arguments` (the program's name first) ask for, and returns the exit code: 0 done, 1 a run
/// or a file could not be finished, 2 the arguments or inputs cannot be used. A panic is said to be a bug and ends with 1.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    interrupt::answered();
    panics::reported(&arguments, &mut io::stderr(), || command(&arguments))
}

fn command(arguments: &[OsString]) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(message) => {
            // Help goes to standard output and is a result; there is nowhere left to complain about a closed standard
            // error.
            let printed = message.print().and_then(|()| io::stdout().flush());
            if !message.use_stderr()
                && let Err(failure) = output::result_of(printed)
            {
                return failure.report();
            }
            return u8::try_from(message.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    if let Some(refusal) = overwritten::refusal(arguments) {
        return Failure::from(refusal).report();
    }
    verbose::tell(cli.verbose);
    panics::if_a_test_asks();
    // What clap has parsed is a command that has a name; flags alone may stand before it.
    let names = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    let name = names.into_iter().find(|argument| !argument.starts_with('-')).unwrap_or_else(|| "rdusim".into());
    let (done, took) = execute::timed(|| progress::never_silent(&name, || dispatch(cli.command)));
    verbose::time(&format!("{name} {:.3} s in all", took.as_secs_f64()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Compare(args) => compare::compare(&args),
        Command::Run(args) => compare::run(&args),
        Command::Map(args) => map::map(&args),
        Command::Model(args) => model::model(&args),
        Command::Import(args) => import::import(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Merge(args) => sweep::merge(&args),
        Command::BreakEven(args) => break_even::break_even(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Sparsity(args) => sparsity::sparsity(&args),
        Command::Validate(args) => validate::validate(&args),
        Command::Calibrate(args) => validate::calibrate(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Report(args) => report::report(&args),
        Command::Check(args) => check::check(&args),
        Command::List(args) => list::list(&args, Cli::command()),
        Command::New(args) => list::new(&args),
        Command::Pod(args) => serving::pod(&args),
        Command::Prove(args) => prove::prove(&args),
        Command::CheckProof(args) => prove::check_proof(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rdusim", &mut script);
            output::print(&script)
        }
    }
}
