//! A feed-forward block as a pipeline of seven nodes over bounded channels, timing only:
//! `cargo run --release --example pipeline -- --tokens 1000000 --capacity 64 --no-skip`.

use std::time::Instant;

use clap::Parser;
use rdusim_testing::pipeline::Pipeline;

/// GEMM -> GELU -> GEMM with the nodes that feed and drain it, token by token.
#[derive(Debug, Parser)]
struct Args {
    /// Tokens that go through
    #[arg(long, default_value_t = 1_000_000)]
    tokens: u64,
    /// Tokens a channel holds
    #[arg(long, default_value_t = 64)]
    capacity: u64,
    /// Simulate every token, even where the pipeline only repeats itself
    #[arg(long)]
    no_skip: bool,
}

#[expect(clippy::disallowed_methods, reason = "it tells how long the run took")]
#[expect(clippy::print_stdout, reason = "its result")]
fn main() {
    let args = Args::parse();
    // Service and latency in cycles: two stages take longest, as the GEMMs of such a block do; no chip's numbers.
    let stages = [
        ("load x", 1_536, 100),
        ("copy x", 1_920, 8),
        ("up", 54_613, 42),
        ("gelu", 40_960, 6),
        ("down", 54_613, 42),
        ("scale", 10_240, 6),
        ("store y", 1_536, 100),
    ];
    let mut pipeline = Pipeline::default();
    let nodes: Vec<usize> =
        stages.iter().map(|(name, service, latency)| pipeline.node(name, *service, *latency)).collect();
    for pair in nodes.windows(2) {
        pipeline.channel(pair[0], pair[1], args.capacity);
    }
    let start = Instant::now();
    let run = pipeline.run(args.tokens, !args.no_skip);
    let seconds = start.elapsed().as_secs_f64();
    let rate = run.transfers as f64 / seconds / 1e6;
    println!(
        "transfers {}  cycles {}  seconds {seconds:.6}  ({rate:.1} million transfers a second)",
        run.transfers, run.cycles
    );
    if run.skipped_tokens > 0 {
        println!("of {} tokens {} repeated a period and were not simulated", args.tokens, run.skipped_tokens);
    }
    for ((name, ..), node) in stages.iter().zip(&run.nodes) {
        println!(
            "{name:8}  busy {:>14}  starved {:>14}  stalled {:>14}",
            node.busy_cycles, node.starved_cycles, node.stalled_cycles
        );
    }
}
