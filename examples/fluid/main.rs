//! What max-min fair sharing of links does with the transfer groups of a section: `cargo run --release --example fluid`.
//!
//! Replays a recorded period (`sn40l-sparse.txt`, or the file given) twelve times at several link rates, and prints how much the solver does
//! for a firing of a lockstep group, how the finish times compare with those that the event engine booked, and whether the
//! states after all events of a period return exactly in the next. `cargo bench --bench fluid` measures the time that it takes.

#![expect(clippy::print_stdout, reason = "a command")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;

use rdusim::fluid::RATE_BITS;
use rdusim_testing::replay::{Recording, Replay, capacity};

const PERIODS: u64 = 12;
/// Rates of links and ports, in percent of what they have.
const PERCENTS: [u64; 5] = [100, 80, 60, 55, 50];

fn main() -> ExitCode {
    let text = match std::env::args().nth(1) {
        None => Some(include_str!("sn40l-sparse.txt").to_owned()),
        Some(path) => std::fs::read_to_string(path).ok(),
    };
    let Some(recording) = text.and_then(|text| Recording::read(&text)) else {
        println!("no recording");
        return ExitCode::FAILURE;
    };
    let transfers = recording.transfers.len() as f64;
    let uses: usize = recording.transfers.iter().map(|transfer| recording.groups[transfer.group].len()).sum();
    println!(
        "{} firings and {} transfers a period of {} ticks, over {} links and ports; {:.1} of them for each transfer",
        recording.firings,
        recording.transfers.len(),
        recording.period_ticks,
        recording.resources,
        uses as f64 / transfers
    );
    for percent in PERCENTS {
        report(&recording, percent);
    }
    ExitCode::SUCCESS
}

fn report(recording: &Recording, percent: u64) {
    let mut replay = Replay::new(recording, percent);
    let mut late: Vec<f64> = Vec::new();
    let mut slowed = 0;
    // After each event of each period, the time in the period and the state, as a hash.
    let mut states: Vec<Vec<u64>> = Vec::new();
    let mut overbooked = 0u64;
    let capacity = u64::from(capacity(percent)) << RATE_BITS;
    for period in 0..PERIODS {
        let end = |(of_period, transfer): (u64, usize), at: u64| {
            let transfer = &recording.transfers[transfer];
            let took = at - of_period * recording.period_ticks - transfer.at;
            late.push((took as f64 - transfer.booked as f64) / transfer.booked.max(1) as f64);
            slowed += u64::from(took > transfer.alone() + 1);
        };
        let mut of_period = Vec::new();
        // Loads after each event of two periods: the others are like the second, or their links are too slow for good.
        let check = |replay: &mut Replay<'_>| {
            let mut hasher = DefaultHasher::new();
            (replay.fluid.now() - period * recording.period_ticks, replay.state()).hash(&mut hasher);
            of_period.push(hasher.finish());
            if period < 2 {
                for link in replay.links.clone() {
                    overbooked += u64::from(replay.fluid.load(link) > capacity);
                }
            }
        };
        replay.run(period, end, check);
        states.push(of_period);
    }
    let firings = (PERIODS * recording.firings) as f64;
    let counters = replay.fluid.counters();
    let each = |count: u64| count as f64 / firings;
    let of_contended = |count: u64| count as f64 / counters.contended_solves.max(1) as f64;
    println!("\nlinks and ports at {percent} %");
    println!(
        "  a firing: {:.2} solves, {:.3} of them contended, {:.2} rates changed; {:.1} transfers under way, {:.3} waits",
        each(counters.solves),
        each(counters.contended_solves),
        each(counters.changes),
        replay.active_ticks as f64 / (PERIODS * recording.period_ticks) as f64,
        each(replay.waits)
    );
    println!(
        "  a contended solve: {:.1} transfers, {:.1} links and ports, {:.1} rounds of filling",
        of_contended(counters.activities),
        of_contended(counters.resources),
        of_contended(counters.rounds)
    );
    late.sort_by(f64::total_cmp);
    let at = |percentile: usize| 100.0 * late[(late.len() - 1) * percentile / 100];
    println!(
        "  ends against those booked, in percent of the transfer: least {:.2}, 5th {:.2}, median {:.2}, 95th {:.2}, 99th \
         {:.2}, most {:.2}; {:.2} % of transfers slowed by others",
        at(0),
        at(5),
        at(50),
        at(95),
        at(99),
        at(100),
        100.0 * slowed as f64 / late.len() as f64
    );
    let first = (0..states.len() - 1).find(|&first| states[first..].iter().all(|period| *period == states[first]));
    match first {
        Some(first) => {
            println!("  all states from period {} on return, after each of {} events", first + 1, states[first].len());
        }
        None => println!("  the states do not return in {PERIODS} periods"),
    }
    println!("  loads above capacity: {overbooked}");
}
