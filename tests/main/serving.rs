//! Serving on pods: prefill, decode, requests that come and go, and `rdusim pod` through the binary.

use std::path::Path;
use std::process::{Command, Output};

use rdusim::model::{Phase, preset};
use rdusim::pod::{
    Arrivals, Cost, Grid, Limits, Load, Parallel, Policy, Range, Request, RequestSize, Served, Server, Service, Stack,
    StackKind, System, drawn, open, read_trace, replay, serve, serving_memory, stream,
};

pub(crate) fn system(name: &str) -> System {
    open(Path::new(&format!("arch/systems/{name}.toml")), &[]).expect("a shipped system")
}

pub(crate) fn serving(system: &System) -> &Stack {
    system.stacks.iter().find(|stack| stack.kind == StackKind::Serving).expect("a stack")
}

pub(crate) fn service(model: &str, parallel: &str) -> Service {
    let (architecture, _) = preset(model).expect("a preset");
    let parallel = Parallel::parse(parallel).expect("a decomposition");
    Service::new(model, architecture, parallel)
}

fn served(system: &System, service: &Service, batch: u64, tokens: u64) -> Served {
    let load = Load::filling(&service.parallel, batch, tokens);
    serve(system, serving(system), service, &load, Phase::Decode, None).expect("a batch")
}

pub(crate) fn rdusim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("the binary runs")
}

#[test]
fn ranks_and_stages_have_the_parameters_of_the_model() {
    for (model, parallel) in [
        ("llama3-8b", "tp=1"),
        ("llama3-8b", "tp=8"),
        ("llama3-8b", "tp=2,pp=4"),
        ("llama3-70b", "tp=8,pp=2"),
        ("llama2-7b", "tp=4,pp=8"),
        ("gpt-13b", "tp=1"),
    ] {
        let service = service(model, parallel);
        let (tp, pp) = (service.parallel.tp, service.parallel.pp);
        let parts = (0..pp).map(|stage| service.parameters(stage));
        let all: u64 = parts.map(|part| tp * part.own + part.copied).sum();
        let published = rdusim::model::PRESETS.iter().find(|preset| preset.name == model).expect("a preset").parameters;
        let difference = all.abs_diff(published) as f64 / published as f64;
        // Presets that are rounded by their authors are held to their dimensions.
        assert!(difference < if model == "gpt-13b" { 1e-3 } else { 1e-9 }, "{model} {parallel}: {all} of {published}");
    }
}

#[test]
fn keys_and_values_take_the_bytes_of_their_heads() {
    // Llama-3-8B: keys and values, 32 layers, 8 heads of 128, 2 bytes.
    let bytes = |parallel: &str| service("llama3-8b", parallel).kv_bytes_per_token();
    assert_eq!(bytes("tp=1"), 2 * 32 * 8 * 128 * 2);
    assert_eq!(bytes("tp=8"), 131_072 / 8);
    assert_eq!(bytes("tp=2,pp=4"), 131_072 / 8);
    // Sixteen ranks, eight heads: two ranks have the same one.
    assert_eq!((bytes("tp=16"), service("llama3-8b", "tp=16").kv_copies()), (131_072 / 8, 2));
    // 16 users of 2,048 tokens on 8 ranks: 16 x 2048 x 16 KiB = 512 MiB.
    let load = Load { batch: 16, micro_batch: 16, tokens: 2048 };
    assert_eq!(serving_memory(&service("llama3-8b", "tp=8"), &load, Phase::Decode).kv_cache, 512 << 20);
    // Half of the users on each of two replicas.
    assert_eq!(serving_memory(&service("llama3-8b", "tp=8,dp=2"), &load, Phase::Decode).kv_cache, 256 << 20);
}

#[test]
fn the_parts_of_a_phase_add_up_and_no_bound_is_above_it() {
    let system = system("dgx-a100");
    for parallel in ["tp=1", "tp=8", "pp=4", "tp=2,pp=4,dp=2", "tp=4,pp=2"] {
        let service = service("llama3-8b", parallel);
        let of = served(&system, &service, 16, 512);
        for (name, phase) in [("prefill", &of.prefill), ("decode", &of.decode)] {
            let (sum, all) = (phase.time.sum(), phase.seconds);
            assert!((sum / all - 1.0).abs() < 1e-9, "{parallel} {name}: {sum} of {all}");
            let t = phase.time;
            let least = [t.compute, t.tensor_comm, t.pipeline_comm, t.bubble, t.other].into_iter().fold(0.0, f64::min);
            assert!(least > -1e-12, "{parallel} {name}: {t:?}");
            assert!(phase.bound_s <= all && phase.bound_s > 0.0, "{parallel} {name}: {} above {all}", phase.bound_s);
            assert!(phase.mfu > 0.0 && phase.mfu < 1.0 && phase.joules > 0.0);
        }
    }
}

#[test]
fn tokens_take_longer_with_context_and_many_users_share_the_weights() {
    let system = system("dgx-a100");
    let service = service("llama3-8b", "tp=2");
    let token_s = |batch: u64, context: u64| served(&system, &service, batch, context).decode.seconds;
    let contexts = [256, 1024, 4096, 16384].map(|context| token_s(8, context));
    assert!(contexts.windows(2).all(|pair| pair[0] < pair[1]), "{contexts:?}");
    // Tokens a second grow with the users as long as weights are most of what moves.
    let rates = [1, 2, 4, 8, 16, 32, 64].map(|batch: u64| batch as f64 / token_s(batch, 256));
    assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{rates:?}");
    let prompts = [128, 512, 2048].map(|tokens| served(&system, &service, 1, tokens).prefill.seconds);
    assert!(prompts.windows(2).all(|pair| pair[0] < pair[1]), "{prompts:?}");
}

#[test]
fn bytes_between_chips_are_the_closed_forms() {
    let system = system("dgx-a100");
    let of = served(&system, &service("llama3-8b", "tp=2"), 4, 1024).decode;
    // Two all-reduces a layer and one behind the embedding, in which 2 ranks send their operand (4 x 4096 x 2 B) each; the
    // logits of 4 users, of which each rank sends its half.
    let expected = (2 * 32 + 1) * 2 * (4 * 4096 * 2) + 4 * 128_256 * 2;
    assert_eq!(of.traffic.first().map(|(_, bytes)| *bytes), Some(expected));
    // Four stages: three borders, each with the activations of 4 groups of one user, and the way back of 4 bytes a user.
    let of = served(&system, &service("llama3-8b", "pp=4"), 4, 1024).decode;
    assert_eq!(of.traffic.first().map(|(_, bytes)| *bytes), Some(3 * 4 * 4096 * 2 + 4 * 4));
}

#[test]
fn stages_that_all_have_users_give_more_tokens() {
    let system = system("dgx-a100");
    let service = service("llama3-8b", "pp=4");
    let server = Server::new(&system, serving(&system), &service).expect("a server");
    let decode = |micro_batch: u64| server.decode(&Load { batch: 16, micro_batch, tokens: 1024 }).expect("a step");
    let (together, groups) = (decode(16), decode(4));
    // All users together: three of four stages idle. Four groups: each stage has one.
    assert!(together.time.bubble > 0.6 * together.seconds, "{together:?}");
    assert!(groups.time.bubble < 0.2 * groups.seconds, "{groups:?}");
    // Each group reads all weights, so that a step of four groups is no faster than one of all users.
    assert!(groups.seconds > 0.9 * together.seconds);
}

#[test]
fn a_second_group_of_prompts_ends_one_stage_later() {
    let system = system("dgx-a100");
    let service = service("llama3-8b", "pp=2");
    let stack = serving(&system);
    let server = Server::new(&system, stack, &service).expect("a server");
    let prefill = |batch: u64| server.prefill(&Load { batch, micro_batch: 1, tokens: 512 }).expect("a prefill");
    let (one, two) = (prefill(1), prefill(2));
    // It follows through the slower stage, and the host hands over a token more.
    let slowest = one.time.compute;
    assert!((two.seconds - one.seconds - slowest - stack.token_us / 1e6).abs() < 1e-9, "{one:?} {two:?}");
    assert!((two.time.compute - 2.0 * slowest).abs() < 1e-12);
}

#[test]
fn an_rdu_serves_with_the_time_of_its_sections() {
    let system = system("sn40l-16");
    let service = service("gpt2", "tp=2");
    let of = served(&system, &service, 2, 256);
    assert!(of.decode.time.compute > 0.0 && of.decode.time.tensor_comm > 0.0);
    assert!(of.decode.bound_s <= of.decode.seconds && of.prefill.seconds > of.decode.seconds);
    let held: u64 = of.tiers.iter().map(|tier| tier.kv_cache).sum();
    // 12 layers, 6 heads of 64, keys and values of 2 bytes; 2 users of 256 tokens.
    assert_eq!(held, 12 * 6 * 64 * 2 * 2 * 2 * 256);
}

fn requests(count: u64) -> Vec<Request> {
    drawn(&Arrivals { per_s: 20.0, count, prompt: 512, output: 128, seed: 7 }).expect("requests")
}

#[test]
fn requests_are_drawn_alike_and_at_their_rate() {
    let list = requests(4000);
    assert_eq!(list, requests(4000));
    let mean = list.last().expect("a request").arrival_s / 4000.0;
    assert!((mean * 20.0 - 1.0).abs() < 0.05, "{mean}");
    assert!(list.iter().all(|request| (256..=768).contains(&request.prompt) && (64..=192).contains(&request.output)));
    let prompts = list.iter().map(|request| request.prompt).sum::<u64>() as f64 / 4000.0;
    assert!((prompts / 512.0 - 1.0).abs() < 0.03, "{prompts}");
}

fn grid(service: &Service, range: &Range) -> Grid {
    let system = system("dgx-a100");
    let server = Server::new(&system, serving(&system), service).expect("a server");
    Grid::new(&server, service, range).expect("a grid")
}

#[test]
fn iterations_are_worked_by_hand() {
    // A grid of one point: a decode step takes d, a prefill p.
    let service = service("llama3-8b", "tp=1");
    let grid = grid(&service, &Range { most_users: 1, prompts: (512, 512), most_context: 512, chunk: None });
    let (d, p) = (grid.decode(1, 512.0).seconds, grid.prefill(512).seconds);
    let at = |arrival_s: f64, output: u64| Request { arrival_s, prompt: 512, output };
    let run = |list: &[Request], users: u64, kv_tokens: u64, prefill_tokens: u64| {
        let limits = Limits {
            users,
            kv_tokens,
            size: RequestSize::TOKENS,
            prefill_tokens,
            prefix_share: 0.0,
            chunk: None,
            drafted: None,
            concurrency: None,
            prompts_first: false,
            grows_caches: false,
            request_s: 0.0,
            first_s: 0.0,
        };
        replay(list, &grid, &limits, 0).expect("a run")
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    // One request: a prefill, then two steps.
    let one = run(&[at(1.0, 3)], 4, 10_000, 10_000);
    near(one.answers[0].ttft_s, p);
    near(one.answers[0].token_s.expect("more than a token"), d);
    near(one.end_s, 1.0 + p + 2.0 * d);
    assert_eq!((one.tokens, one.iterations, one.most_kv_tokens), (3, 3, 515));
    // Two at once: both prompts in the first iteration, then they share steps.
    let two = run(&[at(0.0, 3), at(0.0, 2)], 4, 10_000, 10_000);
    near(two.answers[0].ttft_s, 2.0 * p);
    near(two.end_s, 2.0 * p + 2.0 * d);
    // One prompt an iteration: the second starts while the first has its second token.
    let apart = run(&[at(0.0, 3), at(0.0, 2)], 4, 10_000, 512);
    near(apart.answers[0].ttft_s, p);
    near(apart.answers[1].ttft_s, p + p + d);
    near(apart.end_s, 2.0 * p + 2.0 * d);
    // One user at a time, or caches for one: the second waits for the end of the first.
    for (users, kv_tokens) in [(1, 10_000), (4, 520)] {
        let apart = run(&[at(0.0, 3), at(0.0, 2)], users, kv_tokens, 10_000);
        near(apart.answers[1].ttft_s, p + 2.0 * d + p);
    }
    let limits = Limits {
        users: 4,
        kv_tokens: 514,
        size: RequestSize::TOKENS,
        prefill_tokens: 512,
        prefix_share: 0.0,
        chunk: None,
        drafted: None,
        concurrency: None,
        prompts_first: false,
        grows_caches: false,
        request_s: 0.0,
        first_s: 0.0,
    };
    assert!(replay(&[at(0.0, 3)], &grid, &limits, 0).is_err());
}

#[test]
fn a_cached_prefix_saves_its_prefill() {
    // n + n^2 / 4096 milliseconds: products and scores.
    let cost = |tokens: u64| Cost { seconds: (tokens + tokens * tokens / 4096) as f64 / 1e3, joules: 1.0 };
    let prompts = vec![1024, 3072, 4096];
    let prefill = prompts.iter().map(|&tokens| cost(tokens)).collect();
    let decode = vec![vec![Cost { seconds: 0.1, joules: 1.0 }]];
    let mut grid = Grid {
        inputs: String::new(),
        users: vec![1],
        contexts: vec![4096],
        decode,
        parts: Vec::new(),
        prompts,
        prefill,
        mixed: None,
    };
    // 8.192 s less 1.28 s for the first 1,024, whose keys the later ones still meet; 3,072 alone would take 5.376 s.
    assert!((grid.prefill_behind(1024, 4096).seconds - 6.912).abs() < 1e-9);
    let limits = Limits {
        users: 1,
        kv_tokens: 8192,
        size: RequestSize::TOKENS,
        prefill_tokens: 8192,
        prefix_share: 0.25,
        chunk: None,
        drafted: None,
        concurrency: None,
        prompts_first: false,
        grows_caches: false,
        request_s: 0.0,
        first_s: 0.0,
    };
    let request = Request { arrival_s: 0.0, prompt: 4096, output: 1 };
    let run = replay(&[request], &grid, &limits, 0).expect("a run");
    assert!((run.answers[0].ttft_s - 6.912).abs() < 1e-9);
    assert_eq!((limits.cached(4096), limits.cached(1)), (1024, 0));
    // Where a short prefill is mostly weights, the rest takes no less than it would alone.
    grid.prefill[0].seconds = 5.0;
    assert!((grid.prefill_behind(1024, 4096).seconds - 5.376).abs() < 1e-9);
}

#[test]
fn a_model_is_switched_in_at_the_rate_of_the_slow_memory() {
    // 8.03 G parameters of 2 bytes on 8 sockets of 200 GB/s: 10 ms, as Hot Chips 2024 has it.
    let service = service("llama3-8b", "tp=8");
    let seconds = service.weight_bytes(0) as f64 / 200e9;
    assert!((seconds / 0.010 - 1.0).abs() < 0.02, "{seconds}");
    let of = served(&system("sn40l-16"), &self::service("gpt2", "tp=2"), 1, 64);
    let bytes = self::service("gpt2", "tp=2").weight_bytes(0);
    assert_eq!(of.switch_s, Some(bytes as f64 / 200e9));
    assert_eq!(served(&system("dgx-a100"), &service, 1, 64).switch_s, None);
}

#[test]
fn interpolated_steps_are_near_simulated_ones() {
    let service = service("llama3-8b", "tp=2");
    let system = system("dgx-a100");
    let server = Server::new(&system, serving(&system), &service).expect("a server");
    let grid = grid(&service, &Range { most_users: 64, prompts: (128, 4096), most_context: 6000, chunk: None });
    for (users, context) in [(1, 200), (3, 700), (6, 3000), (12, 1500), (24, 2500), (40, 5000), (50, 300), (64, 4500)] {
        let direct = server.decode(&Load::filling(&service.parallel, users, context)).expect("a step").seconds;
        let error = grid.decode(users, context as f64).seconds / direct - 1.0;
        assert!(error.abs() < 0.04, "{users} users, {context} tokens: {error}");
    }
    // A prompt's time has steps, where a tile of its products is full.
    for tokens in [200, 900, 3000] {
        let direct = server.prefill(&Load::filling(&service.parallel, 1, tokens)).expect("a prefill").seconds;
        let error = grid.prefill(tokens).seconds / direct - 1.0;
        assert!(error.abs() < 0.12, "a prompt of {tokens}: {error}");
    }
    // At its own points a grid is what was simulated.
    let direct = server.decode(&Load::filling(&service.parallel, 64, 6000)).expect("a step").seconds;
    assert!((grid.decode(64, 6000.0).seconds / direct - 1.0).abs() < 1e-12);
}

#[test]
fn a_system_with_more_requests_gives_more_tokens_and_makes_users_wait() {
    let system = system("dgx-a100");
    let service = service("llama3-8b", "tp=1");
    let policy = Policy {
        users: 32,
        kv_tokens: None,
        prefill_tokens: 8192,
        prefix_share: 0.0,
        chunk: None,
        seed: 1,
        concurrency: None,
    };
    let run = |per_s: f64| {
        let list = drawn(&Arrivals { per_s, count: 400, prompt: 512, output: 128, seed: 3 }).expect("requests");
        stream(&system, serving(&system), &service, None, &list, &policy, None).expect("a run")
    };
    let (calm, busy) = (run(1.0), run(30.0));
    assert!(calm.tokens as f64 / calm.end_s < busy.tokens as f64 / busy.end_s);
    assert!(calm.ttft_s.p95 < busy.ttft_s.p95 && calm.token_s.map(|of| of.p50) < busy.token_s.map(|of| of.p50));
    assert!(calm.busy < busy.busy && busy.busy <= 1.0 + 1e-12);
    assert!(busy.ttft_s.p50 <= busy.ttft_s.p95 && busy.ttft_s.p95 <= busy.ttft_s.p99);
    // Every token of every answer is given once, however they are ordered.
    assert_eq!(calm.tokens, busy.tokens);
    assert!(busy.mean_running <= 32.0 && busy.most_kv_tokens <= busy.limits.kv_tokens);
}

#[test]
fn traces_say_what_is_wrong_and_where() {
    let head = "# made up\narrival_s,prompt_tokens,output_tokens\n";
    let list = read_trace("t.csv", &format!("{head}2.5,100,10\n0.5,200,20\n")).expect("a trace").requests;
    assert_eq!(list[0], Request { arrival_s: 0.5, prompt: 200, output: 20 });
    let refused = |text: &str| read_trace("t.csv", text).expect_err("refused").to_string();
    assert!(refused(&format!("{head}0,0,10\n")).contains("t.csv:3: `prompt_tokens` is \"0\""));
    assert!(refused(&format!("{head}-1,5,10\n")).contains("t.csv:3: `arrival_s` is \"-1\""));
    assert!(refused("arrival_s,prompt_tokens\n0,1\n").contains("no column \"output_tokens\""));
    assert!(refused("arrival_s,prompt_tokens,output_tokens,user\n").contains("unknown column \"user\""));
    assert!(refused(head).contains("no requests"));
}

#[test]
fn mooncakes_lines_are_requests_and_results_say_what_is_left_out() {
    let line = |timestamp: u64, input: u64, output: u64, more: &str| {
        format!("{{\"timestamp\": {timestamp}, \"input_length\": {input}, \"output_length\": {output}{more}}}\n")
    };
    let text = line(1500, 300, 4, ", \"hash_ids\": [46, 47]") + "\n" + &line(27, 200, 8, "");
    let trace = read_trace("t.jsonl", &text).expect("a trace");
    let expected =
        [Request { arrival_s: 0.027, prompt: 200, output: 8 }, Request { arrival_s: 1.5, prompt: 300, output: 4 }];
    assert_eq!(trace.requests, expected);
    assert!(trace.notes.len() == 1 && trace.notes[0].contains("hash_ids"));
    let refused = |text: &str| read_trace("t.jsonl", text).expect_err("refused").to_string();
    assert!(refused(&(line(1, 1, 1, "") + &line(1, 0, 1, ""))).contains("t.jsonl:2: `input_length` is 0"));
    assert!(refused("{\"timestamp\": 1, \"input_length\": 2}").contains("t.jsonl:1: no `output_length`"));
    assert!(refused("{\"timestamp\": -1, \"input_length\": 2, \"output_length\": 3}").contains("`timestamp` is -1"));
    assert!(
        refused("{\"timestamp\": 1, \"input_length\": \"x\", \"output_length\": 3}")
            .contains("`input_length` is \"x\"")
    );
    assert!(refused("{\"timestamp\": 1,").contains("t.jsonl:1: not an object of JSON"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let path = format!("--trace={}", file.path().display());
    let output = rdusim(&[
        "pod",
        "dgx-a100",
        "--model=llama3-8b",
        "--phase=requests",
        "--parallel=tp=1",
        &path,
        "--format=json",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert!(result["tokens"] == 12 && result["notes"].to_string().contains("hash_ids"), "{result}");
}

const DECODE: [&str; 5] = ["pod", "arch/systems/dgx-a100.toml", "--model=llama3-8b", "--phase=decode", "--format=json"];

#[test]
fn the_binary_prints_the_object_of_either_phase() {
    let object = |more: &[&str]| -> serde_json::Value {
        let output = rdusim(&[&DECODE[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("an object")
    };
    let decode = object(&["--parallel=tp=2", "--batch=8", "--seq=1024"]);
    let of = |key: &str| decode[key].as_f64().expect("a number");
    assert!((of("step_s") - of("token_s")).abs() < 1e-15 && of("ttft_s") > of("token_s"));
    assert!((of("tokens_per_s") * of("token_s") - 8.0).abs() < 1e-9);
    assert!((of("tokens_per_s_per_user") * of("token_s") - 1.0).abs() < 1e-12);
    // 8 users of 1,024 tokens, 4 of 8 heads a rank.
    assert_eq!(decode["memory_bytes"]["kv_cache"], 8 * 1024 * 131_072 / 2);
    let parts = decode["time_s"].as_object().expect("an object");
    assert_eq!(parts.len(), 11);
    let sum: f64 = parts.values().map(|part| part.as_f64().expect("a time")).sum();
    assert!((sum / of("step_s") - 1.0).abs() < 1e-9);
    let prefill = [&DECODE[..3], &["--phase=prefill", "--format=json", "--parallel=tp=2", "--batch=8", "--seq=1024"]];
    let prefill: serde_json::Value = serde_json::from_slice(&rdusim(&prefill.concat()).stdout).expect("an object");
    assert_eq!((&prefill["ttft_s"], &prefill["token_s"]), (&prefill["step_s"], &decode["token_s"]));
}

#[test]
fn wrong_arguments_of_serving_are_named() {
    let refused = |more: &[&str]| {
        let output = rdusim(&[&["pod", "arch/systems/dgx-a100.toml", "--model=llama3-8b"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let large = refused(&["--phase=decode", "--parallel=tp=1", "--batch=512", "--seq=8192"]);
    assert!(large.contains("does not fit") && large.contains("--batch 64") && large.contains("tp="), "{large}");
    assert!(refused(&["--phase=decode", "--parallel=tp=3"]).contains("does not divide the 32 query heads"));
    assert!(refused(&["--phase=decode", "--parallel=tp=2,dp=3", "--batch=4"]).contains("dp = 3"));
    assert!(refused(&["--phase=decode", "--parallel=tp=2,sp=1"]).contains("`sp` is for training"));
    assert!(refused(&["--phase=decode", "--parallel=tp=2", "--stack=megatron-2021"]).contains("training alone"));
    assert!(refused(&["--phase=training", "--parallel=tp=2", "--stack=serving"]).contains("prefill and decode alone"));
    assert!(refused(&["--phase=requests", "--parallel=tp=2"]).contains("--arrivals"));
    // Options of requests do nothing in another phase.
    for phase in ["training", "prefill", "decode"] {
        for option in [
            "--trace=t.csv",
            "--arrivals=1",
            "--requests=1000",
            "--prompt-tokens=64",
            "--output-tokens=64",
            "--seed=1",
            "--kv-tokens=64",
            "--grid=r.json",
            "--prefix-share=0",
            "--prefill-tokens=64",
            "--prefill-chunk=64",
        ] {
            let said = refused(&[&format!("--phase={phase}"), "--parallel=tp=2", option]);
            let name = option.split('=').next().expect("a name");
            assert!(said.contains(&format!("`{name}` is for `--phase requests`")), "{said}");
        }
    }
    assert!(refused(&["--phase=requests", "--parallel=tp=2", "--arrivals=0"]).contains("requests a second"));
}

#[test]
fn requests_run_through_the_binary_and_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.csv");
    std::fs::write(&trace, "arrival_s,prompt_tokens,output_tokens\n0,512,16\n0.1,300,20\n").expect("a file");
    let out = folder.path().join("out");
    let arguments = [
        "pod",
        "arch/systems/dgx-a100.toml",
        "--model=llama3-8b",
        "--phase=requests",
        "--parallel=tp=2",
        "--batch=4",
        "--format=json",
    ];
    let (trace, out) = (trace.to_str().expect("a path"), out.to_str().expect("a path"));
    let output = rdusim(&[&arguments[..], &["--trace", trace, "--out", out]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!((&result["requests"], &result["tokens"]), (&2.into(), &36.into()));
    // The points of that run serve another one, of the same system and model, and no longer.
    let grid = format!("{out}/result.json");
    let again = |trace: &str, model: &str, more: &[&str]| {
        let other = ["--trace", trace, "--grid", &grid];
        rdusim(&[&arguments[..2], &[model], &arguments[3..], &other, more].concat())
    };
    let known: serde_json::Value = serde_json::from_slice(&again(trace, arguments[2], &[]).stdout).expect("an object");
    let end = |of: &serde_json::Value| of["end_s"].as_f64().expect("a time");
    assert!((end(&known) / end(&result) - 1.0).abs() < 1e-12);
    let other = again(trace, arguments[2], &["--set", "arch.level.node.link_gb_per_s=50"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("are of another system"));
    assert_eq!(again(trace, "--model=llama2-7b", &[]).status.code(), Some(2));
    let long = folder.path().join("long.csv");
    std::fs::write(&long, "arrival_s,prompt_tokens,output_tokens\n0,513,16\n").expect("a file");
    let refused = again(long.to_str().expect("a path"), arguments[2], &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("its points go to"), "{refused:?}");
    for name in ["result.json", "throughput.svg", "throughput.png"] {
        assert!(Path::new(out).join(name).exists(), "{name}");
    }
}

#[test]
fn measured_batches_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cases.csv");
    // Times that nobody measured: whether they are near is not asked.
    let text = "# source: made up\nsockets,model,input_tokens,output_tokens,batch,latency_s,ttft_s\n\
                2,meta-llama/Meta-Llama-3-8B,128,64,1,0.5,\n2,meta-llama/Meta-Llama-3-8B,128,64,4,0.6,0.1\n";
    std::fs::write(&path, text).expect("a file");
    let data = path.to_str().expect("a path");
    let output = rdusim(&["validate", "--data", data, "--arch", "arch/systems/dgx-a100.toml", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let set = &result["sets"][0];
    assert_eq!(set["rows"].as_array().expect("rows").len(), 2);
    let parts = set["parts"].as_array().expect("parts");
    assert!(parts.iter().any(|part| part["name"] == "time to first token" && part["points"] == 1));
    std::fs::write(&path, text.replace("Llama-3-8B", "Nothing")).expect("a file");
    let refused = rdusim(&["validate", "--data", data]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no model"));
}
