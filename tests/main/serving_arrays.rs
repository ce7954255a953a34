//! Serving on systems of systolic arrays: every phase answers, bounds hold, and what is not modelled is refused.

use serde_json::Value;

use crate::serving::rdusim;

fn pod(system: &str, model: &str, rest: &[&str]) -> Result<Value, String> {
    let output = rdusim(&[&["pod", system, "--model", model, "--format", "json"], rest].concat());
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn seconds(found: &Value, key: &str) -> f64 {
    found[key].as_f64().unwrap_or_else(|| panic!("{key} of {found}"))
}

/// Heads in groups, a recurrence, experts in every layer, latent attention beside dense layers, windows with sinks.
#[test]
fn models_of_every_kind_decode_above_their_bound() {
    for model in ["llama3-8b", "mamba2-2.7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"] {
        for system in ["tpu-v7-64", "gaudi3-8"] {
            let of = ["--phase", "decode", "--batch", "8", "--seq", "1024", "--parallel", "tp=8"];
            let found = pod(system, model, &of).expect("an answer");
            let (token, bound) = (seconds(&found, "token_s"), seconds(&found, "bound_s"));
            assert!(0.0 < bound && bound <= token, "{model} on {system}: {bound} s and {token} s");
        }
    }
}

#[test]
fn more_users_and_longer_contexts_take_no_less_time() {
    let step = |batch: u64, tokens: u64| {
        let (batch, tokens) = (batch.to_string(), tokens.to_string());
        let of = ["--phase", "decode", "--batch", &batch, "--seq", &tokens, "--parallel", "tp=4"];
        seconds(&pod("tpu-v6e-256", "llama3-8b", &of).expect("an answer"), "token_s")
    };
    let by_users: Vec<f64> = (0..6).map(|power| step(1 << power, 1024)).collect();
    assert!(by_users.windows(2).all(|pair| pair[0] <= pair[1]), "{by_users:?}");
    let by_tokens: Vec<f64> = (8..13).map(|power| step(8, 1 << power)).collect();
    assert!(by_tokens.windows(2).all(|pair| pair[0] <= pair[1]), "{by_tokens:?}");
}

#[test]
fn requests_run_and_what_is_not_modelled_is_refused() {
    let requests = ["--phase", "requests", "--arrivals", "5", "--requests", "50", "--batch", "8", "--parallel", "tp=8"];
    let found = pod("tpu-v6e-256", "llama3-8b", &requests).expect("an answer");
    assert!(seconds(&found["token_s"], "p50") > 0.0, "{found}");
    let decode = ["--phase", "decode", "--batch", "8", "--seq", "512"];
    let refused = |system: &str, model: &str, more: &[&str]| {
        pod(system, model, &[&decode[..], more].concat()).expect_err("a refusal")
    };
    let experts = refused("gaudi3-8", "mixtral-8x7b", &["--parallel", "dp=8,ep=8"]);
    assert!(experts.contains("ep = 8") && experts.contains("leave `ep` out"), "{experts}");
    for more in ["capacity=1", "exchange=overlapped:4", "experts=far"] {
        let words = format!("tp=4,{more}");
        let error = refused("gaudi3-8", "mixtral-8x7b", &["--parallel", &words]);
        assert!(error.contains("capacity, exchange and experts are for"), "{more}: {error}");
    }
    let sparse = refused("tpu-v6e-256", "llama3-8b", &["--parallel", "tp=8", "--sparsity", "0.9"]);
    assert!(sparse.contains("sparse"), "{sparse}");
    let wafers = refused("cs3-cluster", "llama3-8b", &["--parallel", "dp=1"]);
    assert!(wafers.contains("no stack that serves") && wafers.contains("tpu-v6e-256"), "{wafers}");
}
