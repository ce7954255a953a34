//! The search for a fleet that serves under targets, against every point of small spaces, and queues against closed forms.

use std::path::Path;

use rdusim::pod::{
    self, Arrivals, Fleet, FleetAsked, FleetObjective, FleetSearch, Grid, Limits, Operated, Policy, Price, Service,
    StackKind, System, Targets, drawn, fleet, replay,
};
use serde_json::Value;

use crate::first_steps::rdusim;
use crate::serving_points::{CLOSED, grid};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn command(words: &str) -> (Option<i32>, String, String) {
    rdusim(Path::new(ROOT), &words.split_whitespace().collect::<Vec<_>>())
}

fn policy(users: u64) -> Policy {
    Policy { users, kv_tokens: None, prefill_tokens: 8192, prefix_share: 0.0, chunk: None, seed: 1, concurrency: None }
}

fn target(text: &str) -> pod::Target {
    pod::Target::parse("--ttft-ms", text).expect("a target")
}

/// Llama-3-8B on up to eight A100s.
fn searched(system: &System, objective: FleetObjective, targets: Targets, tp: Option<u64>, users: u64) -> Fleet {
    let preset = rdusim::model::preset("llama3-8b").expect("a preset");
    let service = Service::new("llama3-8b", preset.0, rdusim::pod::Parallel::default());
    let stack = system.stacks.iter().find(|stack| stack.kind == StackKind::Serving).expect("a stack");
    let search = FleetSearch {
        system,
        stack,
        service: &service,
        speculation: None,
        tp,
        pp: Some(1),
        chips: (1, 8),
        asked: FleetAsked {
            users: None,
            lengths: Arrivals { per_s: 1.0, count: 1, prompt: 512, output: 64, seed: 1 },
            policy: policy(users),
            objective,
            targets,
            price: Price::default(),
        },
    };
    fleet(&search).expect("a fleet")
}

/// Every number of users of every division, one search each: bounds cut nothing, and the last number tried is the one that is asked for.
fn every_point(system: &System, objective: FleetObjective) -> Vec<Operated> {
    let mut all = Vec::new();
    for tp in [1, 2, 4, 8] {
        for users in (1..=96).step_by(8) {
            all.extend(searched(system, objective, Targets::default(), Some(tp), users).points);
        }
    }
    all
}

#[test]
fn the_best_of_a_search_is_within_3_percent_of_every_point() {
    let system = pod::open(Path::new("dgx-a100"), &[]).expect("a system");
    let all = every_point(&system, FleetObjective::Cost);
    for (ttft, token) in [("p99:400", "p99:30"), ("mean:200", "p95:16"), ("p50:150", "mean:60")] {
        let targets = Targets { ttft: Some(target(ttft)), token: Some(target(token)) };
        let keeps =
            |of: &&Operated| target(ttft).is_met(&of.ttft_s) && target(token).is_met(&of.token_s) && of.chips() <= 8;
        let rate = |of: &Operated| (8 / of.chips()) as f64 * of.tokens_per_s;
        let users = |of: &Operated| ((8 / of.chips()) * of.users) as f64;
        let most = |key: &dyn Fn(&Operated) -> f64| all.iter().filter(keeps).map(key).fold(0.0, f64::max);
        let cheapest = all.iter().filter(keeps).map(Operated::chip_s_per_token).fold(f64::INFINITY, f64::min);
        let best = |objective| {
            let found = searched(&system, objective, targets, None, 96);
            *found.best().expect("a division that keeps to the targets").0
        };
        assert!(rate(&best(FleetObjective::Throughput)) >= 0.97 * most(&rate), "{ttft}, {token}");
        assert!(users(&best(FleetObjective::Users)) >= 0.97 * most(&users), "{ttft}, {token}");
        assert!(best(FleetObjective::Cost).chip_s_per_token() <= cheapest / 0.97, "{ttft}, {token}");
    }
}

#[test]
fn no_point_of_the_front_is_beaten_and_every_other_is() {
    let system = pod::open(Path::new("dgx-a100"), &[]).expect("a system");
    let found = searched(&system, FleetObjective::Throughput, Targets::default(), None, 64);
    let speed = |of: &Operated| 1.0 / of.token_s.mean;
    let is_as_good = |a: &Operated, b: &Operated| speed(a) >= speed(b) && a.chip_s_per_token() <= b.chip_s_per_token();
    assert!(found.front.len() > 2 && found.front.windows(2).all(|pair| speed(&pair[0]) < speed(&pair[1])));
    for point in &found.points {
        let is_listed = found.front.contains(point);
        let mut others = found.points.iter().filter(|other| *other != point);
        assert_eq!(others.any(|other| is_as_good(other, point)), !is_listed, "{point:?}");
    }
}

/// A prompt takes a second, and an answer is one token: deterministic service.
#[test]
fn a_replica_of_one_user_is_an_m_d_1_queue() {
    let grid = Grid { prompts: vec![1], ..grid() };
    let limits = Limits { users: 1, prefill_tokens: 1, concurrency: None, ..CLOSED };
    for load in [0.3, 0.5, 0.8] {
        let arrivals = Arrivals { per_s: load, count: 400_000, prompt: 1, output: 1, seed: 7 };
        let requests: Vec<_> = drawn(&arrivals)
            .expect("requests")
            .into_iter()
            .map(|request| pod::Request { prompt: 1, output: 1, ..request })
            .collect();
        let run = replay(&requests, &grid, &limits, 0).expect("a run");
        // Pollaczek and Khinchine: service, and load over 2 (1 - load) of it in the queue.
        let expected = 1.0 + load / (2.0 * (1.0 - load));
        let found = run.answers.iter().map(|answer| answer.latency_s).sum::<f64>() / run.answers.len() as f64;
        assert!((found / expected - 1.0).abs() < 0.01, "load {load}: {found}, expected {expected}");
        // Every token of every request is counted once, and the server works for each a second.
        assert_eq!(run.tokens, requests.len() as u64);
        assert!((run.busy_s - requests.len() as f64).abs() < 1e-3);
    }
}

#[test]
fn a_fleet_is_told_on_a_screen_in_json_and_on_a_page() {
    let words = "pod dgx-a100 --model llama3-8b --phase requests --search --chips 1..8 --ttft-ms p99:500 --tpot-ms 40 \
                 --usd-per-chip-hour 2 --usd-per-kwh 0.1 --prompt-tokens 512 --output-tokens 64 --batch 32";
    let (code, screen, stderr) = command(words);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(screen.lines().count() <= 24, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 120), "{screen}");
    assert!(screen.contains("Cheapest: ") && screen.contains("dollars a million tokens"), "{screen}");
    let out = tempfile::tempdir().expect("a directory");
    let (code, text, stderr) = command(&format!("{words} --format json --out {}", out.path().display()));
    assert_eq!(code, Some(0), "{stderr}");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let best = &json["best"];
    let number = |of: &Value| of.as_f64().expect("a number");
    let replica = &best["replica"];
    assert!(number(&replica["ttft_s"]["p99"]) <= 0.5 && number(&replica["token_s"]["p99"]) <= 0.04);
    let (chips, rate) = (number(&best["chips"]), number(&best["tokens_per_s"]));
    // By hand: the chips' hours and their energy over the tokens that they make.
    let joules = number(&replica["joules_per_million_tokens"]["answers"]);
    let usd = chips * 2.0 / 3600.0 / rate * 1e6 + joules / 3.6e6 * 0.1;
    assert!((number(&replica["usd_per_million_tokens"]["answers"]) / usd - 1.0).abs() < 1e-9, "{replica}");
    // All of the cost over prompts and answers together is less than over either.
    let split = &replica["usd_per_million_tokens"];
    let (all, prompts, answers) = (number(&split["all"]), number(&split["prompts"]), number(&split["answers"]));
    assert!((1.0 / all - (1.0 / prompts + 1.0 / answers)).abs() < 1e-9 / all, "{split}");
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("Front of cost against speed") && out.path().join("front.png").exists());
}

#[test]
fn what_a_search_for_a_fleet_cannot_use_is_refused() {
    let of = "pod dgx-a100 --model llama3-8b --phase requests";
    for (words, expected) in [
        (format!("{of} --search --ttft-ms p98:3"), "expected STATISTIC:MILLISECONDS"),
        (format!("{of} --search --tpot-ms p99:-1"), "expected STATISTIC:MILLISECONDS"),
        (format!("{of} --search --objective time"), "cost, throughput or users"),
        (format!("{of} --search --arrivals 3"), "has no meaning"),
        (format!("{of} --search --parallel dp=2"), "cannot be fixed"),
        (format!("{of} --search --chips 5..3"), "expected a count of chips"),
        (format!("{of} --search --chips 1..999999"), "the most that"),
        (format!("{of} --search --usd-per-chip-hour=-2"), "expected dollars"),
        (format!("{of} --search --usd-per-chip-hour 0"), "expected dollars above 0"),
        (format!("{of} --search --batch 5000"), "`--batch` is 5000"),
        (format!("{of} --search --prompt-tokens {}", u64::MAX), "`--prompt-tokens` is"),
        (format!("{of} --arrivals 3 --parallel tp=1 --ttft-ms 3"), "--search"),
        ("pod dgx-a100 --model gpt-13b --phase training --search --objective cost".to_owned(), "of `--phase requests`"),
        ("pod dgx-a100 --model gpt-13b --phase training --search --chips 2..8".to_owned(), "the most of them alone"),
    ] {
        let (code, stdout, stderr) = command(&words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words}: {stderr}");
        assert!(stderr.contains(expected), "{words}: {stderr}");
    }
}
