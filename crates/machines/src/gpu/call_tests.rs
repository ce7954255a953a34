//! Calls of an inference stack: each constant of the kernels does what its description says, and more work never takes less time.

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::ProductShape;

use super::cases::{Case, seconds};
use super::experts::{Experts, Skew};
use super::format::ProductFormat;
use super::latent::{LatentCall, LatentWidths};
use super::serving::AttentionCall;
use super::tests::shipped;

/// Two times that are the same to a thousandth of a nanosecond.
#[track_caller]
fn alike(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6, "{a} and {b} µs");
}

fn attention(batch: u64, tokens: u64, heads: u64, kv_heads: u64) -> AttentionCall {
    AttentionCall { dtype: Dtype::Bf16, batch, tokens, heads, kv_heads, head_dim: 128, window: None }
}

/// Microseconds of a new token of each sequence over a cache.
fn cache_us(gpu: &Gpu, batch: u64, tokens: u64, heads: u64, kv_heads: u64) -> f64 {
    seconds(gpu, &Case::Decode(attention(batch, tokens, heads, kv_heads))).unwrap() * 1e6
}

/// Microseconds of a layer of 256 experts, 8 of a token, on one of so many groups of devices.
fn experts_us(gpu: &Gpu, format: ProductFormat, tokens: u64, expert_parallel: u64) -> f64 {
    let of = Experts {
        format,
        tokens,
        hidden: 2048,
        inner: 1024,
        gated: true,
        chosen: 8,
        experts: 256,
        tensor_parallel: 1,
        expert_parallel,
        skew: Skew::Even,
    };
    seconds(gpu, &Case::Experts(of)).unwrap() * 1e6
}

#[test]
fn a_cache_of_twice_the_length_never_takes_less_time() {
    for name in ["a100", "h100", "h200", "b200", "b300", "gb200"] {
        let gpu = shipped(name, &[]);
        for batch in [1, 4, 16, 64, 256] {
            for (heads, kv_heads) in [(8, 8), (32, 8), (64, 4), (96, 1), (5, 1)] {
                let times: Vec<f64> = (5..18).map(|power| cache_us(&gpu, batch, 1 << power, heads, kv_heads)).collect();
                let is_rising = times.windows(2).all(|pair| pair[0] <= pair[1]);
                assert!(is_rising, "{name}, {batch} sequences, {heads} heads on {kv_heads}: {times:?}");
            }
        }
    }
}

/// Microseconds of a product of a format.
fn product_us(gpu: &Gpu, format: ProductFormat, ProductShape { m, n, k }: ProductShape) -> f64 {
    seconds(gpu, &Case::Gemm { format, m, n, k }).unwrap() * 1e6
}

/// Measured on an H100 and a B200 [S ai-dynamo/aiconfigurator at 095f58a, Apache-2.0]: products whose activations would take longer from
/// memory than the whole product takes.
#[test]
fn activations_that_stay_in_the_l2_are_not_read_again() {
    let bf16 = ProductFormat::Plain(Dtype::Bf16);
    for (name, (m, n, k), measured_us) in
        [("h100", (4096, 32, 3072), 6.985), ("h100", (3840, 128, 768), 4.404), ("b200", (4353, 512, 3584), 12.438)]
    {
        let found = product_us(&shipped(name, &[]), bf16, ProductShape { m, n, k });
        assert!((found / measured_us - 1.0).abs() < 0.2, "{name} {m} x {n} x {k}: {found}");
    }
    // An L2 of a megabyte keeps none of them.
    let kept = product_us(&shipped("h100", &[]), bf16, ProductShape { m: 4096, n: 32, k: 3072 });
    let read = product_us(
        &shipped("h100", &["arch.l2.capacity_bytes=1048576"]),
        bf16,
        ProductShape { m: 4096, n: 32, k: 3072 },
    );
    assert!(read > 1.3 * kept, "{read} and {kept}");
}

/// Measured on a B200 [S the same]: one row or a hundred take the time of a row, which grows with its length.
#[test]
fn a_row_that_a_thread_block_quantises_takes_its_time() {
    let b200 = shipped("b200", &[]);
    for ((m, n, k), measured_us) in [
        ((6, 128, 12_288), 28.011),
        ((32, 1536, 12_288), 28.018),
        ((112, 128, 10_240), 23.910),
        ((4, 3072, 3072), 11.24),
    ] {
        let found = product_us(&b200, ProductFormat::Nvfp4, ProductShape { m, n, k });
        assert!((found / measured_us - 1.0).abs() < 0.15, "{m} x {n} x {k}: {found}");
    }
    // Rows that SMs share out take no such time.
    let shared = shipped("b200", &["arch.quantise.nvfp4.row_gb_per_s=1e5"]);
    let time =
        |gpu: &Gpu, rows: u64| product_us(gpu, ProductFormat::Nvfp4, ProductShape { m: rows, n: 128, k: 12_288 });
    assert!(time(&shared, 6) < 0.5 * time(&b200, 6));
    alike(time(&b200, 4096), time(&shared, 4096));
}

#[test]
fn a_product_behind_another_starts_under_its_end() {
    let (b200, apart) = (shipped("b200", &[]), shipped("b200", &["arch.gemm.hidden_launches=0"]));
    let tiny = |gpu: &Gpu| product_us(gpu, ProductFormat::Plain(Dtype::Bf16), ProductShape { m: 80, n: 128, k: 32 });
    let launch_us = b200.launch.graph_gap_us + b200.launch.ramp_us;
    alike(tiny(&apart) - tiny(&b200), b200.gemm.hidden_launches * launch_us);
}

#[test]
fn few_thread_blocks_are_limited_by_what_each_has_under_way() {
    let base = shipped("b200", &[]);
    // Eight thread blocks of 16 Mi keys cannot be cut finer than one for each SM.
    let alone = |gpu: &Gpu| cache_us(gpu, 1, 1 << 20, 8, 8);
    let half = shipped("b200", &["arch.serving.block_gb_per_s=11.4"]);
    let ratio = alone(&half) / alone(&base);
    assert!((1.9..=2.0).contains(&ratio), "{ratio}");
    // Four on an SM share its rate, which is less for each.
    let free = shipped("b200", &["arch.serving.block_gb_per_s=1e6"]);
    alike(cache_us(&free, 256, 8192, 32, 8), cache_us(&base, 256, 8192, 32, 8));
    assert!(alone(&free) < 0.5 * alone(&base));
    // A file that gives no limit has none.
    alike(alone(&shipped("a100", &[])), alone(&shipped("a100", &["arch.serving.block_gb_per_s=1e6"])));
}

#[test]
fn caches_cut_finer_than_the_sms_leave_none_idle() {
    // 70 caches of 4,096 keys keep 70 of 132 SMs busy, or all of them in two parts each.
    let time = |parts: u64| {
        let set = format!("arch.serving.parts_per_sm={parts}");
        cache_us(&shipped("h100", &[&set]), 70, 4096, 1, 1)
    };
    assert!(time(2) < 0.9 * time(1), "{} and {} µs", time(2), time(1));
    assert!(time(4) < 0.9 * time(1));
    // Without the field, as many as the SMs have room for.
    let room = shipped("a100", &[]).serving.heads_per_sm;
    let given = shipped("a100", &[&format!("arch.serving.parts_per_sm={room}")]);
    alike(cache_us(&given, 70, 4096, 1, 1), cache_us(&shipped("a100", &[]), 70, 4096, 1, 1));
}

#[test]
fn a_library_groups_queries_where_their_thread_blocks_fill_a_quarter_of_the_sms() {
    let (chosen, always, never) = (
        shipped("h100", &[]),
        shipped("h100", &["arch.serving.group_least_keys=1"]),
        shipped("h100", &["arch.serving.most_grouped=1"]),
    );
    // 33 thread blocks are a quarter of 132 SMs: 32 sequences of one part are too few, 33 are enough.
    for (sequences, is_grouped) in [(32, false), (33, true)] {
        let [time, grouped, single] = [&chosen, &always, &never].map(|gpu| cache_us(gpu, sequences, 64, 8, 1));
        assert!((grouped - single).abs() > 0.1, "{grouped} and {single} µs");
        alike(time, if is_grouped { grouped } else { single });
    }
    // Parts of a long cache count.
    alike(cache_us(&chosen, 1, 1 << 16, 8, 1), cache_us(&always, 1, 1 << 16, 8, 1));
}

#[test]
fn a_share_of_the_tensor_cores_rate_is_that_of_prompts_alone() {
    let (base, half) = (shipped("b200", &[]), shipped("b200", &["arch.serving.prefill.tensor_share=0.35"]));
    let prompt = |gpu: &Gpu| seconds(gpu, &Case::Prefill(attention(1, 1 << 15, 32, 8))).unwrap();
    let ratio = prompt(&half) / prompt(&base);
    assert!((1.4..2.0).contains(&ratio), "{ratio}");
    let widths = LatentWidths::DEEPSEEK;
    let latent = |gpu: &Gpu| {
        seconds(gpu, &Case::LatentPrefill(LatentCall { batch: 1, tokens: 8192, heads: 16, cache_bytes: 1, widths }))
            .unwrap()
    };
    // `prompt_share` is its own.
    alike(latent(&half), latent(&base));
}

#[test]
fn tables_of_experts_and_kernels_of_rows_are_those_of_a_format() {
    let block = ProductFormat::Fp8Block;
    let base = shipped("h100", &[]);
    let none = shipped("h100", &["arch.serving.formats.fp8_block.local_expert_ns=0"]);
    // 130 ns for each expert of the device, whether it has rows or not.
    for (tokens, groups) in [(1, 1), (1, 8), (4096, 8)] {
        let more = experts_us(&base, block, tokens, groups) - experts_us(&none, block, tokens, groups);
        let expected = 0.13 * 256.0 / groups as f64;
        assert!((more - expected).abs() < 0.002, "{more} and {expected} µs");
    }
    // Rows cost more time than those of a format without a factor of its own, which takes the stack's.
    let rows = |factor: &str| {
        let set = format!("arch.serving.formats.fp8_block.row_factor={factor}");
        experts_us(&shipped("h100", &[&set]), block, 1 << 14, 1)
    };
    assert!(rows("1.5") < rows("3") && rows("3") < rows("6"));
    let plain = ProductFormat::Plain(Dtype::Bf16);
    let other = shipped("h100", &["arch.serving.formats.fp8_block.row_factor=100"]);
    alike(experts_us(&other, plain, 4096, 1), experts_us(&base, plain, 4096, 1));
    let stack = shipped("h100", &["arch.serving.row_factor=3"]);
    assert!(experts_us(&stack, plain, 4096, 1) > experts_us(&base, plain, 4096, 1));
    alike(experts_us(&stack, block, 4096, 1), experts_us(&base, block, 4096, 1));
}
