//! Serving in rounds and mixed passes: a model that drafts for another, and prompts that go with the tokens of those that run.

use proptest::prelude::*;
use rdusim::model::{Architecture, Phase};
use rdusim::pod::{
    Chunk, Cost, Drafted, Grid, Limits, Load, Mixed, Policy, Range, Request, RequestSize, Round, Served, Server,
    Service, Speculation, System, replay, serve, stream,
};

use crate::serving::{rdusim, service, serving, system};

fn drafting(parallel: &str, tokens: u64, accept: f64) -> Speculation {
    Speculation { draft: service("llama3-8b", parallel), tokens, accept }
}

/// A round of Llama-3-70B, for which Llama-3-8B drafts.
fn round(parallel: &str, tokens: u64, accept: f64, batch: u64) -> Round {
    let (system, service) = (system("dgx-a100"), service("llama3-70b", parallel));
    let speculation = drafting(parallel, tokens, accept);
    let load = Load::filling(&service.parallel, batch, 1024);
    let server = Server::new(&system, serving(&system), &service).expect("a server");
    let server = server.with_draft(&speculation, &load).expect("a draft");
    server.round(&load).expect("a round").expect("another model drafts")
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} is not {b}");
}

#[test]
fn a_round_gives_the_tokens_of_a_geometric_sum() {
    // 1 + 1/2 + 1/4; of none accepted one, of all accepted three.
    for (accept, expected) in [(0.5, 1.75), (0.0, 1.0), (1.0, 3.0)] {
        near(drafting("tp=8", 2, accept).expected(), expected);
    }
    // (1 - a^(K+1)) / (1 - a), as Leviathan et al. have it.
    near(drafting("tp=8", 5, 0.8).expected(), (1.0 - 0.8_f64.powi(6)) / 0.2);
}

#[test]
fn a_round_is_its_steps_and_one_pass_over_all_rows() {
    let (system, k, users) = (system("dgx-a100"), 3, 4);
    let stack = serving(&system);
    let round = round("tp=8", k, 0.7, users);
    let load = Load { batch: users, micro_batch: users, tokens: 1024 };
    let (own, small) = (service("llama3-70b", "tp=8"), service("llama3-8b", "tp=8"));
    let step = |of: &Service| Server::new(&system, stack, of).expect("a server").decode(&load).expect("a step");
    let (plain, draft) = (step(&own), step(&small));
    // A step that drafts hands nothing to users.
    near(round.draft.seconds, draft.seconds - users as f64 * stack.token_us / 1e6);
    near(round.seconds(), 3.0 * round.draft.seconds + round.verify.seconds);
    near(round.token_s(), round.seconds() / (1.0 + 0.7 + 0.49 + 0.343));
    // The pass reads the weights once, and has four times the rows.
    assert!(round.verify.seconds > plain.seconds && round.verify.seconds < 1.5 * plain.seconds, "{round:?} {plain:?}");
    // 160 all-reduces of layers and one behind the embedding, in which each of 8 ranks sends 7/8 of its operand twice or all of it
    // to all others; and the logits. Four times the rows are four times the bytes.
    let bytes = |phase: &rdusim::pod::ServedPhase| phase.traffic.first().expect("a level").1;
    assert_eq!(bytes(&round.verify), 4 * bytes(&plain));
    let phase = round.phase(0.0);
    near(phase.seconds, phase.time.sum());
    assert!(phase.bound_s > 0.0 && phase.bound_s < phase.seconds);
}

#[test]
fn no_token_that_is_accepted_leaves_one_a_round_and_more_are_never_slower() {
    let rounds: Vec<f64> = [0.0, 0.25, 0.5, 0.75, 1.0].map(|accept| round("tp=8", 4, accept, 1).token_s()).to_vec();
    assert!(rounds.windows(2).all(|pair| pair[0] > pair[1]), "{rounds:?}");
    let none = round("tp=8", 4, 0.0, 1);
    near(none.token_s(), none.seconds());
    // With one token drafted and none accepted a round is slower than a step; with all accepted faster.
    let served = |accept: f64| {
        let (system, service) = (system("dgx-a100"), service("llama3-70b", "tp=8"));
        let load = Load::filling(&service.parallel, 1, 1024);
        let of = drafting("tp=8", 4, accept);
        serve(&system, serving(&system), &service, &load, Phase::Decode, Some(&of)).expect("a batch")
    };
    let (none, all) = (served(0.0), served(1.0));
    assert!(none.notes.iter().all(|note| !note.contains("  ")), "{:?}", none.notes);
    // One stage waits for no other.
    let bubble = none.decode.time.bubble.max(none.round_phase.as_ref().expect("a round").time.bubble);
    assert!(bubble.abs() < f64::MIN_POSITIVE, "{bubble}");
    assert!(none.token_s() > none.decode.seconds && all.token_s() < all.decode.seconds);
    // Both models lie on the chips.
    let weights = |model: &str| service(model, "tp=8").weight_bytes(0);
    assert_eq!(none.memory.weights, weights("llama3-70b") + weights("llama3-8b"));
    let kept = |model: &str| 1024 * service(model, "tp=8").kv_bytes_per_token();
    assert_eq!(none.memory.kv_cache, kept("llama3-70b") + kept("llama3-8b"));
    assert_eq!(none.tiers.iter().map(|tier| tier.weights).sum::<u64>(), none.memory.weights);
}

#[test]
fn what_is_verified_is_part_of_the_context() {
    let (system, service) = (system("dgx-a100"), service("llama3-70b", "tp=8"));
    let of = drafting("tp=8", 8, 0.5);
    let rounds = [1, 9, 512].map(|tokens| {
        let load = Load::filling(&service.parallel, 1, tokens);
        let server = Server::new(&system, serving(&system), &service).expect("a server");
        server.with_draft(&of, &load).expect("a draft").round(&load).expect("a round").expect("a draft").verify.seconds
    });
    near(rounds[0], rounds[1]);
    assert!(rounds[1] <= rounds[2], "{rounds:?}");
}

#[test]
fn stages_of_both_models_draft_and_verify() {
    let round = round("tp=4,pp=2", 2, 0.5, 4);
    near(round.phase(0.0).time.sum(), round.seconds());
    assert!(round.draft.seconds < round.verify.seconds);
}

/// A small model, so that what an RDU compiles is small.
fn small(name: &str, hidden: u64, layers: u64) -> Service {
    let of = service("gpt2", "tp=2");
    let architecture = Architecture {
        hidden,
        layers,
        heads: hidden / 64,
        kv_heads: hidden / 64,
        feed_forward: 4 * hidden,
        ..of.architecture
    };
    Service { model: name.to_owned(), architecture: Architecture { vocabulary: 4096, ..architecture }, ..of }
}

#[test]
fn an_rdu_verifies_with_sections_of_all_rows_and_both_models_share_its_tiers() {
    let mut system = system("sn40l-16");
    let own = small("large", 256, 2);
    let of = Speculation { draft: small("small", 128, 1), tokens: 3, accept: 0.5 };
    let load = Load::filling(&own.parallel, 2, 64);
    let run = |system: &System| serve(system, serving(system), &own, &load, Phase::Decode, Some(&of)).expect("a batch");
    let served = run(&system);
    let round = served.round.as_ref().expect("a round");
    // Launches and weights are most of it: the pass is no four steps.
    let verify = round.verify.seconds / served.decode.seconds;
    assert!(verify > 0.99 && verify < 2.0, "{verify}");
    // 2 layers and 1; 2 heads and one of 64 a rank, keys and values of 2 bytes; 2 users of 64 tokens.
    let held: u64 = served.tiers.iter().map(|tier| tier.kv_cache).sum();
    assert_eq!(held, (2 * 2 + 1) * 64 * 2 * 2 * 2 * 64);
    // In a fast memory that has room for the small model alone the large one finds the rest.
    let least = |served: &Served| served.tiers.iter().map(|tier| tier.weights).min().unwrap_or(0);
    assert_eq!(least(&served), 0, "{:?}", served.tiers);
    let chip = system.chip.rdu_mut().expect("an RDU");
    let fast = chip.memory.iter_mut().max_by_key(|tier| tier.bandwidth_bytes_per_s).expect("a tier");
    fast.capacity_bytes = 3 << 20;
    let tight = run(&system);
    assert!(least(&tight) > 0 && tight.token_s() > served.token_s(), "{:?}", tight.tiers);
}

fn request(arrival_s: f64, prompt: u64, output: u64) -> Request {
    Request { arrival_s, prompt, output }
}

fn cost(seconds: f64) -> Cost {
    Cost { seconds, joules: 2.0 * seconds }
}

/// A grid of one point: an iteration takes `step` seconds, a prompt of 8 tokens 1 s.
fn one_point(step: f64, mixed: Option<Mixed>) -> Grid {
    let (users, contexts, prompts) = (vec![1], vec![64], vec![8]);
    let (decode, prefill) = (vec![vec![cost(step)]], vec![cost(1.0)]);
    Grid { inputs: String::new(), users, contexts, decode, parts: Vec::new(), prompts, prefill, mixed }
}

fn limits(chunk: Option<u64>, drafted: Option<Drafted>) -> Limits {
    Limits {
        users: 4,
        kv_tokens: 1000,
        size: RequestSize::TOKENS,
        prefill_tokens: 1000,
        prefix_share: 0.0,
        chunk,
        drafted,
        concurrency: None,
        prompts_first: false,
        grows_caches: false,
        request_s: 0.0,
        first_s: 0.0,
    }
}

#[test]
fn rounds_give_as_many_tokens_as_are_accepted() {
    let grid = one_point(0.5, None);
    let drafted = |accept: f64| Some(Drafted { tokens: 2, accept, seed: 1 });
    // The prompt gives one of seven tokens, two rounds of three the others.
    let all = replay(&[request(0.0, 8, 7)], &grid, &limits(None, drafted(1.0)), 0).expect("a run");
    near(all.end_s, 1.0 + 2.0 * 0.5);
    assert_eq!((all.tokens, all.iterations), (7, 3));
    // An answer ends with its last token, whatever else was accepted.
    let short = replay(&[request(0.0, 8, 6)], &grid, &limits(None, drafted(1.0)), 0).expect("a run");
    assert_eq!((short.tokens, short.iterations), (6, 3));
    let none = replay(&[request(0.0, 8, 7)], &grid, &limits(None, drafted(0.0)), 0).expect("a run");
    let plain = replay(&[request(0.0, 8, 7)], &grid, &limits(None, None), 0).expect("a run");
    assert_eq!(none, plain);
    // In the mean a round gives 1.75 tokens.
    let list: Vec<Request> = (0..400).map(|at| request(f64::from(at) * 1000.0, 8, 176)).collect();
    let half = replay(&list, &grid, &limits(None, drafted(0.5)), 0).expect("a run");
    let rounds = (half.iterations - 400) as f64 / 400.0;
    assert!((rounds / (175.0 / 1.75) - 1.0).abs() < 0.02, "{rounds}");
    // Replicas draw for themselves, each the same again.
    let of = |replica: u64| replay(&list, &grid, &limits(None, drafted(0.5)), replica).expect("a run");
    assert_eq!(of(0), half);
    assert!(of(1).answers != half.answers && of(2).answers != of(1).answers);
}

/// Products of r rows take r seconds, a part of c tokens behind p takes c + c p / 100.
fn made_up() -> Mixed {
    let (rows, chunks, before) = (vec![1, 2, 4, 16], vec![1, 4], vec![0, 100]);
    let products = rows.iter().map(|&rows| cost(rows as f64)).collect();
    let part = |chunk: u64, before: u64| cost(chunk as f64 + (chunk * before) as f64 / 100.0);
    let parts = chunks.iter().map(|&chunk| before.iter().map(|&before| part(chunk, before)).collect()).collect();
    Mixed { rows, products, chunks, before, parts, token_s: 0.125 }
}

#[test]
fn a_mixed_pass_is_worked_by_hand() {
    let grid = one_point(1.5, Some(made_up()));
    let chunk = |tokens: u64, before: u64, ends: bool| Chunk { tokens, before, ends };
    // 5 rows; the token's attention takes 1.5 - 1, that of the part nothing, or 4 x 50 / 100, and a token is handed over.
    near(grid.mixed(1, 64.0, &[chunk(4, 0, false)]).seconds, 5.0 + 0.5);
    near(grid.mixed(1, 64.0, &[chunk(4, 50, true)]).seconds, 5.0 + 0.5 + 2.0 + 0.125);
    // Two parts, between the sizes that were simulated; nobody runs.
    near(grid.mixed(0, 0.0, &[chunk(1, 100, false), chunk(2, 50, false)]).seconds, 3.0 + 1.0 + 1.0);
    near(grid.mixed(1, 64.0, &[]).seconds, 1.5);
}

#[test]
fn parts_of_prompts_go_with_the_tokens_of_those_that_run() {
    let grid = one_point(1.5, Some(made_up()));
    let run = |list: &[Request], chunk: u64| replay(list, &grid, &limits(Some(chunk), None), 0).expect("a run");
    // Alone: two parts of four tokens, the second behind the first, then two steps.
    let one = run(&[request(0.0, 8, 3)], 4);
    near(one.answers[0].ttft_s, 4.0 + (4.0 + 0.16 + 0.125));
    near(one.end_s, 8.285 + 2.0 * 1.5);
    assert_eq!((one.tokens, one.iterations), (3, 4));
    // The second comes while the first runs: its parts and the tokens of the first share passes.
    let two = run(&[request(0.0, 8, 4), request(8.2, 8, 1)], 4);
    near(two.answers[1].latency_s, 8.285 + (5.0 + 0.5) + (5.0 + 0.5 + 0.16 + 0.125) - 8.2);
    assert_eq!((two.tokens, two.iterations), (5, 5));
    // What a pass has left of a prompt is filled up with the next one.
    let three = run(&[request(0.0, 6, 1), request(0.0, 2, 1)], 4);
    assert_eq!((three.iterations, three.tokens), (2, 2));
    near(three.answers[0].ttft_s, three.answers[1].ttft_s);
    assert!(replay(&[request(0.0, 990, 11)], &grid, &limits(Some(4), None), 0).is_err());
}

#[test]
fn samples_of_a_long_run_are_even() {
    // 100,000 steps of one request: as many samples in each tenth of the time.
    let grid = one_point(0.5, None);
    let limits = Limits { kv_tokens: 1 << 20, ..limits(None, None) };
    let run = replay(&[request(0.0, 8, 100_000)], &grid, &limits, 0).expect("a run");
    let part = |tenth: u32| {
        let within =
            |at: f64| at > run.end_s / 10.0 * f64::from(tenth) && at <= run.end_s / 10.0 * f64::from(tenth + 1);
        run.samples.iter().filter(|sample| within(sample.at_s)).count()
    };
    let (least, most) = ((0..10).map(part).min().unwrap_or(0), (0..10).map(part).max().unwrap_or(0));
    assert!(least > 30 && most - least <= 2, "{least} to {most}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_token_is_given_once_however_passes_are_mixed(
        list in proptest::collection::vec((0.0..50.0_f64, 1_u64..40, 1_u64..20), 1..30), chunk in 1_u64..20, accept in 0.0..=1.0_f64
    ) {
        let mut requests: Vec<Request> = list.into_iter().map(|(at, prompt, output)| request(at, prompt, output)).collect();
        requests.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
        let tokens: u64 = requests.iter().map(|request| request.output).sum();
        let grid = one_point(1.5, Some(made_up()));
        let drafted = Some(Drafted { tokens: 3, accept, seed: 5 });
        for limits in [limits(Some(chunk), None), limits(None, drafted)] {
            let run = replay(&requests, &grid, &limits, 0).expect("a run");
            prop_assert_eq!(run.tokens, tokens);
            prop_assert!(run.most_kv_tokens <= limits.kv_tokens && run.samples.iter().all(|sample| sample.running <= 4));
            prop_assert!(run.answers.iter().all(|answer| answer.ttft_s > 0.0 && answer.latency_s >= answer.ttft_s));
        }
    }
}

/// How far an interpolated mixed pass is from one that is simulated as a whole.
#[test]
fn interpolated_mixed_passes_are_near_simulated_ones() {
    let (system, service) = (system("dgx-a100"), service("llama3-8b", "tp=2"));
    let server = Server::new(&system, serving(&system), &service).expect("a server");
    let range = Range { most_users: 64, prompts: (128, 4096), most_context: 6000, chunk: Some(512) };
    let grid = Grid::new(&server, &service, &range).expect("a grid");
    let mut errors = Vec::new();
    for (users, context) in [(1, 300), (3, 700), (8, 1500), (20, 3000), (32, 1000), (50, 2500), (64, 6000)] {
        for (tokens, before) in [(512, 0), (512, 700), (512, 3000), (300, 512), (128, 1024), (60, 200), (10, 3000)] {
            let chunk = Chunk { tokens, before, ends: false };
            let direct =
                server.mixed(&Load::filling(&service.parallel, users, context), &chunk).expect("a pass").seconds;
            let made = grid.mixed(users, context as f64, &[chunk]).seconds;
            let apart = grid.decode(users, context as f64).seconds + grid.prefill(tokens).seconds;
            errors.push((made / direct - 1.0).abs());
            println!(
                "{users} {context} {tokens} {before}: {:.4} of {direct}; apart {:.3}",
                made / direct - 1.0,
                apart / direct
            );
        }
    }
    errors.sort_by(f64::total_cmp);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    println!("median {median}, worst {worst}");
    assert!(median < 0.02 && worst < 0.10, "median {median}, worst {worst}");
}

#[test]
fn a_pass_with_more_of_a_prompt_takes_no_less() {
    let (system, service) = (system("dgx-a100"), service("llama3-8b", "tp=1"));
    let server = Server::new(&system, serving(&system), &service).expect("a server");
    let pass = |tokens: u64, before: u64| {
        let load = Load::filling(&service.parallel, 16, 1024);
        server.mixed(&load, &Chunk { tokens, before, ends: false }).expect("a pass").seconds
    };
    let list = [1, 64, 128, 256, 512].map(|tokens| pass(tokens, 512));
    assert!(list.windows(2).all(|pair| pair[0] <= pair[1]), "{list:?}");
    assert!(pass(256, 0) <= pass(256, 2048));
    // Weights are read once: 64 rows more take far less than the passes alone.
    let step = server.decode(&Load::filling(&service.parallel, 16, 1024)).expect("a step").seconds;
    let prompt = server.prefill(&Load::filling(&service.parallel, 1, 64)).expect("a prefill").seconds;
    assert!(pass(64, 0) < 0.7 * (step + prompt), "{} {step} {prompt}", pass(64, 0));
}

#[test]
fn an_rdu_mixes_passes_from_their_products_and_attention() {
    let (system, service) = (system("sn40l-16"), small("small", 128, 1));
    let server = Server::new(&system, serving(&system), &service).expect("a server");
    let range = Range { most_users: 2, prompts: (64, 64), most_context: 64, chunk: Some(32) };
    let grid = Grid::new(&server, &service, &range).expect("a grid");
    let chunk = Chunk { tokens: 32, before: 32, ends: true };
    let pass = grid.mixed(2, 64.0, &[chunk]).seconds;
    let (step, prompt) = (grid.decode(2, 64.0).seconds, grid.prefill(32).seconds);
    assert!(pass > step && pass < step + prompt, "{pass} {step} {prompt}");
    let refused = server.mixed(&Load::filling(&service.parallel, 2, 64), &chunk).expect_err("refused").to_string();
    assert!(refused.contains("on GPUs only"), "{refused}");
}

#[test]
fn mixed_passes_give_the_first_tokens_of_many_sooner() {
    let (system, service) = (system("dgx-a100"), service("llama3-8b", "tp=1"));
    let list: Vec<Request> = (0..200).map(|at| request(f64::from(at) * 0.06, 400 + at as u64, 100)).collect();
    let run = |chunk: Option<u64>| {
        let policy = Policy {
            users: 32,
            kv_tokens: None,
            prefill_tokens: 8192,
            prefix_share: 0.0,
            chunk,
            seed: 1,
            concurrency: None,
        };
        stream(&system, serving(&system), &service, None, &list, &policy, None).expect("a run")
    };
    let (apart, mixed) = (run(None), run(Some(512)));
    assert_eq!(apart.tokens, mixed.tokens);
    assert!(mixed.end_s < apart.end_s, "{} {}", mixed.end_s, apart.end_s);
    assert!(apart.notes.iter().chain(&mixed.notes).all(|note| !note.contains("  ")), "{:?}", mixed.notes);
}

#[test]
fn keys_and_values_leave_room_for_the_rows_of_any_pass() {
    let (system, own) = (system("dgx-a100"), service("llama3-8b", "tp=1"));
    let list: Vec<Request> = (0..8).map(|_| request(0.0, 64, 4)).collect();
    let room = |of: Option<&Speculation>, chunk: Option<u64>| {
        let policy = Policy {
            users: 8,
            kv_tokens: None,
            prefill_tokens: 8192,
            prefix_share: 0.0,
            chunk,
            seed: 1,
            concurrency: None,
        };
        stream(&system, serving(&system), &own, of, &list, &policy, None).expect("a run").limits.kv_tokens
    };
    // A row has the residual stream twice and two widths of 14,336, of 2 bytes, a row of logits 128,256; a token's keys and values
    // take 128 KiB, those of two such models twice as many.
    let (row, logits, token) = (2 * (2 * 4096 + 2 * 14336), 2 * 128_256, 128 << 10);
    let (plain, mixed) = (room(None, None), room(None, Some(4096)));
    let more = (4096 + 8 - 64) * row + (9 - 1) * logits;
    assert!((plain - mixed).abs_diff(more / token) <= 1, "{plain} {mixed}");
    let draft = |tokens: u64| Speculation { draft: own.clone(), tokens, accept: 0.5 };
    let (few, many) = (room(Some(&draft(15)), None), room(Some(&draft(31)), None));
    let more = 8 * 16 * (row + logits);
    assert!((few - many).abs_diff(more / (2 * token)) <= 1, "{few} {many}");
}

const POD: [&str; 4] = ["pod", "arch/systems/dgx-a100.toml", "--model=llama3-70b", "--parallel=tp=8"];
const DRAFT: [&str; 3] = ["--draft=llama3-8b", "--speculate=4", "--accept=0.7"];

#[test]
fn the_binary_says_what_drafting_brings() {
    let output = rdusim(&[&POD[..], &["--phase=decode", "--batch=2", "--seq=1024", "--format=json"], &DRAFT].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let of = |key: &str| object[key].as_f64().expect("a number");
    let part = |key: &str| object["speculation"][key].as_f64().expect("a number");
    near(of("step_s"), part("round_s"));
    near(part("round_s"), part("draft_s") + part("verify_s"));
    near(of("token_s"), part("round_s") / part("expected_tokens"));
    near(of("tokens_per_s"), 2.0 / of("token_s"));
    near(part("speedup"), part("token_s_without") / of("token_s"));
    let sum: f64 = object["time_s"].as_object().expect("times").values().filter_map(serde_json::Value::as_f64).sum();
    near(sum, of("step_s"));
    assert!(of("mfu") < of("hfu"));
    let table = rdusim(&[&POD[..], &["--phase=decode", "--batch=2", "--seq=1024"], &DRAFT].concat());
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("4 tokens are drafted") && table.contains("verifying"), "{table}");
}

#[test]
fn requests_are_served_in_rounds_and_in_mixed_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked =
        ["--phase=requests", "--batch=4", "--arrivals=2", "--requests=20", "--prompt-tokens=200", "--format=json"];
    let run = |more: &[&str]| -> serde_json::Value {
        let output = rdusim(&[&POD[..], &asked, more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("an object")
    };
    let (plain, drafted, mixed) = (run(&[]), run(&DRAFT), run(&["--prefill-chunk=128"]));
    let token = |of: &serde_json::Value| of["token_s"]["mean"].as_f64().expect("a time");
    assert!(token(&drafted) < token(&plain));
    assert_eq!((&plain["tokens"], &plain["tokens"]), (&drafted["tokens"], &mixed["tokens"]));
    assert_eq!(mixed["limits"]["prefill_chunk"], 128);
    assert!(plain["grid"].get("mixed").is_none() && mixed["grid"]["mixed"]["chunks"][2] == 128);
    // Points of mixed passes serve again, with the same parts alone.
    let path = folder.path().join("result.json");
    std::fs::write(&path, serde_json::to_string(&mixed).expect("text")).expect("a file");
    let grid = format!("--grid={}", path.display());
    near(token(&run(&["--prefill-chunk=128", &grid])), token(&mixed));
    let other = rdusim(&[&POD[..], &asked, &["--prefill-chunk=256", &grid]].concat());
    assert!(String::from_utf8_lossy(&other.stderr).contains("128 tokens of prompts, not 256"), "{other:?}");
    // What is no time, no energy or no list of that length is refused, before anything is made of it.
    for (at, value, why) in [
        ("/grid/decode/0/0/seconds", 0.0.into(), "none"),
        ("/grid/decode/0/0/seconds", 1e300.into(), "none"),
        ("/grid/prefill/0/joules", (-1.0).into(), "none"),
        ("/grid/mixed/products/0/joules", 1e300.into(), "none"),
        ("/grid/mixed/token_s", (-1.0).into(), "none"),
        ("/grid/parts/0/compute", 1e300.into(), "none"),
        ("/grid/users", serde_json::json!([1, 2, 1_u64 << 40]), "do not fit each other"),
        ("/grid/mixed/chunks/0", 0.into(), "do not fit each other"),
    ] {
        let mut hostile = mixed.clone();
        let known = hostile.pointer_mut(at).expect(at);
        *known = value;
        let refused = Grid::read("r.json", &hostile.to_string()).expect_err(at).to_string();
        assert!(refused.contains(why), "{at}: {refused}");
    }
}

#[test]
fn what_cannot_draft_or_mix_is_named() {
    let refused = |more: &[&str]| {
        let output = rdusim(&[&POD[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let decode = "--phase=decode";
    assert!(refused(&[decode, "--draft=llama3-8b"]).contains("--speculate"));
    assert!(
        refused(&[decode, "--draft=gpt2", "--speculate=2", "--accept=0.5"]).contains("50257 tokens in its vocabulary")
    );
    assert!(refused(&[decode, "--draft=llama3-8b", "--speculate=0", "--accept=0.5"]).contains("`--speculate` is 0"));
    assert!(refused(&[decode, "--draft=llama3-8b", "--speculate=2", "--accept=1.5"]).contains("`--accept` is 1.5"));
    assert!(refused(&[&["--phase=prefill"], &DRAFT[..]].concat()).contains("nothing is drafted"));
    assert!(refused(&[&["--phase=training"], &DRAFT[..]].concat()).contains("`--draft` is for"));
    let large = refused(&[&[decode, "--batch=256", "--seq=8192"], &DRAFT[..]].concat());
    assert!(large.contains("does not fit") && large.contains("the model that drafts"), "{large}");
    let requests = ["--phase=requests", "--arrivals=1", "--requests=4"];
    let chunk = |more: &[&str]| refused(&[&requests, more].concat());
    assert!(chunk(&["--prefill-chunk=0"]).contains("`--prefill-chunk` is 0"));
    let large = chunk(&["--prefill-chunk=131072", "--batch=32"]);
    assert!(large.contains("`--prefill-chunk` is 131072 beside the tokens of 32 users"), "{large}");
    assert!(chunk(&[&["--prefill-chunk=128"], &DRAFT[..]].concat()).contains("leave one of them out"));
    assert!(chunk(&["--prefill-chunk=128", "--prefill-tokens=512"]).contains("cannot be used with"));
    let staged = rdusim(&[&POD[..3], &["--parallel=tp=4,pp=2"], &requests[..], &["--prefill-chunk=128"]].concat());
    assert!(String::from_utf8_lossy(&staged.stderr).contains("pp is 2"), "{staged:?}");
}
