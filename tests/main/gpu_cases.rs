//! Measured calls of GPUs as cases: windows, formats, latent attention, and rows that a chip cannot simulate.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The set of a file of cases on a chip or a system.
fn set(arch: &str, text: &str) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cases.csv");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("a path");
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(["validate", "--arch", arch, "--data", path, "--format", "json"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("an object");
    document["sets"][0].clone()
}

/// Microseconds of each row.
fn times(arch: &str, header: &str, lines: &[&str]) -> Vec<f64> {
    let set = set(arch, &format!("{header},time_us\n{},1\n", lines.join(",1\n")));
    let rows = set["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["simulated"].as_f64().expect("a time")).collect()
}

const PROMPT: &str = "batch,isl,heads,kv_heads,head_dim,window_size";
const CACHE: &str = "batch,cached,heads,kv_heads,head_dim,window_size";
const EXPERTS: &str = "dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution";
const LATENT: &str = "mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_size,step";

#[test]
fn rows_that_a_chip_cannot_simulate_have_a_reason_and_no_error() {
    let text = "dtype,m,n,k,latency_ms\nbfloat16,64,64,64,0.01\nnvfp4,64,64,64,0.01\nfp7,64,64,64,0.01\n";
    let set = set("h100", text);
    let rows = set["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    let refused: Vec<&Value> = rows.iter().filter(|row| row["error"].is_null()).collect();
    let reason = |row: &Value| row["reason"].as_str().expect("a reason").to_owned();
    assert_eq!(refused.len(), 2);
    assert!(reason(refused[0]).contains("do not multiply nvfp4"), "{refused:?}");
    assert!(reason(refused[1]).contains("fp7"), "{refused:?}");
    // A chip without latent attention says so of every row.
    let latent =
        "mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_size,step,latency_ms\nbfloat16,fp8,16,4,1,8,1023,0.02\n";
    let set = self::set("a100", latent);
    assert!(reason(&set["rows"][0]).contains("latent"), "{set}");
}

#[test]
fn a_window_bounds_what_attention_meets() {
    let prompt =
        times("h100", PROMPT, &["1,16384,32,8,64,0", "1,16384,32,8,64,128", "1,64,32,8,64,0", "1,64,32,8,64,128"]);
    assert!(prompt[1] < 0.2 * prompt[0], "{prompt:?}");
    assert!((prompt[2] - prompt[3]).abs() < 1e-9, "a window beyond the prompt cuts off nothing: {prompt:?}");
    let cache = times("h100", CACHE, &["64,32768,8,8,64,0", "64,32768,8,8,64,128", "64,32768,8,8,64,4096"]);
    assert!(cache[1] < cache[2] && cache[2] < cache[0], "{cache:?}");
}

/// A product of fp8 is quantised before it is multiplied: small ones take longer than in bf16, large ones less.
#[test]
fn products_of_fp8_include_the_kernels_that_quantise() {
    let lines = ["bf16,16,1024,1024", "fp8,16,1024,1024", "bf16,8192,8192,8192", "fp8,8192,8192,8192"];
    let time = times("h100", "dtype,m,n,k", &lines);
    assert!(time[1] > time[0] + 8.0, "{time:?}");
    assert!((1.4..2.0).contains(&(time[2] / time[3])), "{time:?}");
}

#[test]
fn experts_in_few_bits_read_fewer_bytes() {
    let line = |dtype: &str, width: &str| format!("{dtype},64,{width},8,128,1,1,balanced");
    let lines = [
        line("bf16", "4096,1536"),
        line("fp8", "4096,1536"),
        line("w4a16_mxfp4", "4096,1536"),
        line("bf16", "4096,2688"),
        line("bf16", "4096,2689"),
    ];
    let time = times("h100", EXPERTS, &lines.each_ref().map(String::as_str));
    assert!(time[1] < 0.65 * time[0] && time[2] < time[1], "{time:?}");
    // Experts of Nemotron-H have no gate: two matrices in place of three.
    assert!((0.6..0.75).contains(&(time[3] / time[4])), "{time:?}");
}

#[test]
fn latent_caches_are_read_once_for_all_heads() {
    let lines =
        ["bfloat16,bfloat16,1,64,1,128,16383", "bfloat16,bfloat16,16,64,1,8,16383", "bfloat16,fp8,16,64,1,8,16383"];
    let time = times("h100", LATENT, &lines);
    assert!(time[1] < 1.1 * time[0], "{time:?}");
    assert!(time[2] < 0.7 * time[1], "{time:?}");
    let bytes = 64.0 * 16384.0 * 576.0 * 2.0;
    assert!(time[0] * 1e-6 > bytes / 3.35e12, "{time:?}");
}

/// Products of small depth stream their results: no chip with more memory bandwidth is slower.
#[test]
fn an_h100_is_no_slower_than_an_a100_on_products_of_little_depth() {
    let mut lines = Vec::new();
    for k in [1, 2, 4, 8] {
        for m in [1, 3, 16, 256] {
            for n in [10_000, 1_000_000, 5_000_000] {
                lines.push(format!("bf16,{m},{n},{k}"));
            }
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (new, old) = (times("h100", "dtype,m,n,k", &lines), times("a100", "dtype,m,n,k", &lines));
    for ((line, new), old) in lines.iter().zip(new).zip(old) {
        assert!(new <= old, "{line}: {new} µs and {old} µs");
    }
}

/// Within a node the switch adds up large messages; all-to-all is called as measurement files call it, too.
#[test]
fn collectives_of_a_node_follow_their_algorithms() {
    let text = "collective,gpus,message_size,dtype,time_us\nall_reduce,8,134217728,half,1\nall_reduce,2,134217728,half,1\n\
                alltoall,8,1048576,half,1\nall_to_all,8,1048576,half,1\nall_reduce,16,134217728,half,1\n";
    let set = set("dgx-h100", text);
    let label = |row: usize| set["rows"][row]["point"].as_str().expect("a label").to_owned();
    assert!(label(0).ends_with("NVLS") && label(1).ends_with("Simple"), "{set}");
    assert!(label(2).ends_with("Simple pairs"), "{set}");
    assert_eq!(set["rows"][2]["simulated"], set["rows"][3]["simulated"]);
    assert!(!label(4).contains("NVLS"), "no switch has two nodes: {set}");
}

/// What stays on a device is copied, too: of two GPUs half, of eight an eighth. Microseconds of NCCL on B200s [S
/// ai-dynamo/aiconfigurator at 095f58a, Apache-2.0].
#[test]
fn a_gather_copies_the_part_that_stays() {
    let measured = "collective,gpus,message_size,dtype,time_us\nall_gather,2,268435456,half,612.6\n\
                    all_gather,4,268435456,half,711.5\nall_gather,8,268435456,half,760.3\n\
                    alltoall,4,134217728,half,425.6\nalltoall,8,268435456,half,831.8\n";
    let set = set("dgx-b200", measured);
    for row in set["rows"].as_array().expect("rows") {
        assert!(row["error"].as_f64().expect("an error").abs() < 0.1, "{row}");
    }
}
