//! Cases of single chips in files of measurements: what a line asks for, in words and as a call.

use super::line::Line;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_machines::gpu::{AttentionCall, Case, Experts, LatentCall, LatentWidths, ProductFormat, Skew};

/// Kind of latent attention over prompts and caches.
pub(super) const LATENT: &str = "attention-latent";
/// Heads of DeepSeek-V3, that ranks divide.
const LATENT_HEADS: u64 = 128;
/// Experts whose function is the square of `ReLU`, without a gate: width of the model and of an expert [P Nemotron-H, arXiv:2504.03624;
/// Nemotron 3 Nano and Super, their `config.json`].
const UNGATED: [(u64, u64); 2] = [(2688, 1856), (4096, 2688)];

/// A case in words, and its call; the call is an error where a line asks for what no chip here has.
pub(super) struct Asked {
    /// Words.
    pub(super) label: String,
    /// The call.
    pub(super) case: Result<Case, Diagnostic>,
}

/// The case of a line.
///
/// # Errors
/// A cell that is no number of its kind.
pub(super) fn asked(kind: &str, line: &Line) -> Result<Asked, Diagnostic> {
    match kind {
        "attention-prefill" => {
            let (label, of) = attention(line, "isl", "tokens")?;
            Ok(Asked { label, case: of.map(Case::Prefill) })
        }
        "attention-decode" => {
            let (label, of) = attention(line, "cached", "cached")?;
            Ok(Asked { label, case: of.map(Case::Decode) })
        }
        "experts" => experts(line),
        LATENT => latent(line),
        _ => {
            let (m, n, k) = (line.count("m")?, line.count("n")?, line.count("k")?);
            let case = line.format("dtype").map(|format| Case::Gemm { format, m, n, k });
            Ok(Asked { label: format!("{m} x {n} x {k}"), case })
        }
    }
}

fn attention(line: &Line, tokens: &str, word: &str) -> Result<(String, Result<AttentionCall, Diagnostic>), Diagnostic> {
    let window = match line.text("window_size") {
        "" | "0" => None,
        _ => Some(line.count("window_size")?),
    };
    let (heads, kv_heads) = (line.count("heads")?, line.count("kv_heads")?);
    if heads % kv_heads != 0 {
        return Err(line.error("kv_heads", line.text("kv_heads"), &format!("a divisor of the {heads} heads")));
    }
    let of = AttentionCall {
        dtype: Dtype::Bf16,
        batch: line.count("batch")?,
        tokens: line.count(tokens)?,
        heads,
        kv_heads,
        head_dim: line.count("head_dim")?,
        window,
    };
    let within = window.map_or_else(String::new, |window| format!(", window of {window}"));
    let label = format!("{} x {} {word}, {heads}/{kv_heads} heads of {}{within}", of.batch, of.tokens, of.head_dim);
    Ok((label, line.dtype().map(|dtype| AttentionCall { dtype, ..of })))
}

fn experts(line: &Line) -> Result<Asked, Diagnostic> {
    let found = line.text("distribution");
    let skew = match found.strip_prefix("power_law_").map(str::parse::<f64>) {
        Some(Ok(exponent)) if (0.0..=8.0).contains(&exponent) => Skew::PowerLaw(exponent),
        None if matches!(found, "uniform" | "balanced") => Skew::Uniform,
        _ => return Err(line.error("distribution", found, "uniform, balanced or power_law_EXPONENT")),
    };
    let (hidden, inner) = (line.count("hidden_size")?, line.count("inter_size")?);
    let of = Experts {
        format: ProductFormat::Plain(Dtype::Bf16),
        tokens: line.count("num_tokens")?,
        hidden,
        inner,
        gated: !UNGATED.contains(&(hidden, inner)),
        chosen: line.count("topk")?,
        experts: line.count("num_experts")?,
        tensor_parallel: line.count("moe_tp_size")?,
        expert_parallel: line.count("moe_ep_size")?,
        skew,
    };
    if of.chosen > of.experts || of.experts > 1 << 16 {
        return Err(line.error("num_experts", line.text("num_experts"), "at least `topk` and at most 65,536"));
    }
    let label = format!(
        "{} tokens, {hidden} x {inner}, {} of {}, tp {} ep {}, {found}",
        of.tokens, of.chosen, of.experts, of.tensor_parallel, of.expert_parallel
    );
    Ok(Asked { label, case: line.format("dtype").map(|format| Case::Experts(Experts { format, ..of })) })
}

/// Tokens of prompts are in `isl`, those of a cache before the new one in `step`, which is 0 for prompts.
fn latent(line: &Line) -> Result<Asked, Diagnostic> {
    let (batch, heads) = (line.count("batch_size")?, line.count("num_heads")?);
    let (new, cached) = (line.count("isl")?, line.text("step"));
    let cached = if cached == "0" { 0 } else { line.count("step")? };
    if heads > LATENT_HEADS {
        return Err(line.error("num_heads", line.text("num_heads"), "at most 128"));
    }
    let label = format!("{batch} x {new} tokens behind {cached}, {heads} latent heads");
    let of = LatentCall { batch, tokens: new + cached, heads, cache_bytes: 2, widths: LatentWidths::DEEPSEEK };
    let of_products = line.format("mla_dtype");
    let of_cache = line.format("kv_cache_dtype");
    let case = match (of_products, of_cache) {
        (Ok(ProductFormat::Plain(Dtype::Bf16)), Ok(ProductFormat::Plain(cache))) => {
            let of = LatentCall { cache_bytes: cache.bytes(), ..of };
            match (new, cached) {
                (_, 0) => Ok(Case::LatentPrefill(of)),
                (1, _) => Ok(Case::LatentDecode(of)),
                _ => Err(line.error("step", line.text("step"), "0, or one new token in `isl`")),
            }
        }
        (Err(reason), _) | (_, Err(reason)) => Err(reason),
        (Ok(_), Ok(_)) => Err(line.error("mla_dtype", line.text("mla_dtype"), "bf16, over a cache of one data type")),
    };
    Ok(Asked { label, case })
}
