//! `[serving]` and `[quantise]` of a GPU's file: what an inference stack's kernels take.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::gpu::{AttentionKernel, ExpertFormat, LatentKernels, Quantise, ServingStack};
use super::limits;
use super::spec::Named;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Real, Source, Table};

/// `[attention]`, and `[serving.prefill]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttentionSpec {
    tile_queries: Spanned<Count>,
    tile_keys: Spanned<Count>,
    forward_operations: Spanned<Real>,
    backward_operations: Spanned<Real>,
    overlap_share: Spanned<Real>,
    block_us: Spanned<Real>,
    tensor_share: Option<Spanned<Real>>,
    window_steps: Option<Spanned<Real>>,
}

/// `[serving]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServingSpec {
    call_us: Spanned<Real>,
    prefill: Table<AttentionSpec>,
    most_grouped: Spanned<Count>,
    group_tile: Spanned<Count>,
    group_block_us: Spanned<Real>,
    groups_per_sm: Spanned<Count>,
    head_block_us: Spanned<Real>,
    heads_per_sm: Spanned<Count>,
    part_keys: Spanned<Count>,
    sm_gb_per_s: Spanned<Real>,
    routing_kernels: Spanned<Count>,
    grouped_share: Spanned<Real>,
    prompt_kernels: Option<Spanned<Count>>,
    group_key_ns: Option<Spanned<Real>>,
    block_gb_per_s: Option<Spanned<Real>>,
    parts_per_sm: Option<Spanned<Count>>,
    group_least_keys: Option<Spanned<Count>>,
    skipped_key_ns: Option<Spanned<Real>>,
    row_factor: Option<Spanned<Real>>,
    routed_ns: Option<Spanned<Real>>,
    expert_ns: Option<Spanned<Real>>,
    formats: Option<Named<ExpertFormatSpec>>,
    latent: Option<Table<LatentSpec>>,
}

/// `[serving.formats.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpertFormatSpec {
    call_us: Spanned<Real>,
    grouped_share: Spanned<Real>,
    local_expert_ns: Option<Spanned<Real>>,
    row_factor: Option<Spanned<Real>>,
}

/// `[serving.latent]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LatentSpec {
    prompt_call_us: Spanned<Real>,
    cache_call_us: Spanned<Real>,
    prompt_share: Spanned<Real>,
    cache_share: Spanned<Real>,
    cache_tile: Spanned<Count>,
    cache_block_us: Spanned<Real>,
}

/// `[quantise.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuantiseSpec {
    call_us: Spanned<Real>,
    passes: Spanned<Real>,
    l2_sm_gb_per_s: Spanned<Real>,
    memory_sm_gb_per_s: Spanned<Real>,
    row_gb_per_s: Option<Spanned<Real>>,
}

const TILE: std::ops::RangeInclusive<u64> = 8..=1024;
/// Shares of a rate: of nothing, a kernel would never end.
const SHARE: std::ops::RangeInclusive<f64> = 0.01..=1.0;
/// Factors of a time.
const FACTOR: std::ops::RangeInclusive<f64> = 0.0..=100.0;
/// Nanoseconds of a key, a row or an expert.
const NANOSECONDS: std::ops::RangeInclusive<f64> = 0.0..=1e6;

/// Checks the attention kernel at a path.
pub(super) fn attention(source: &Source, path: &str, spec: &AttentionSpec) -> Result<AttentionKernel, Diagnostic> {
    let count = |key: &str, value| source.count(&format!("{path}.{key}"), value, TILE);
    let real = |key: &str, value, range| source.real(&format!("{path}.{key}"), value, range);
    Ok(AttentionKernel {
        tile_queries: count("tile_queries", &spec.tile_queries)?,
        tile_keys: count("tile_keys", &spec.tile_keys)?,
        forward_operations: real("forward_operations", &spec.forward_operations, 0.0..=1e4)?,
        backward_operations: real("backward_operations", &spec.backward_operations, 0.0..=1e4)?,
        overlap_share: real("overlap_share", &spec.overlap_share, 0.0..=1.0)?,
        block_us: real("block_us", &spec.block_us, limits::LAUNCH_US)?,
        tensor_share: match &spec.tensor_share {
            Some(share) => real("tensor_share", share, SHARE)?,
            None => 1.0,
        },
        window_steps: match &spec.window_steps {
            Some(steps) => real("window_steps", steps, 0.0..=100.0)?,
            None => 0.0,
        },
    })
}

/// Checks the inference stack.
pub(super) fn serving(source: &Source, spec: &ServingSpec) -> Result<ServingStack, Diagnostic> {
    let count = |key: &str, value| source.count(&format!("serving.{key}"), value, 1..=1024);
    let time = |key: &str, value| source.real(&format!("serving.{key}"), value, limits::LAUNCH_US);
    let optional = |key: &str, value: &Option<Spanned<Real>>, range, default: f64| match value {
        Some(value) => source.real(&format!("serving.{key}"), value, range),
        None => Ok(default),
    };
    Ok(ServingStack {
        call_us: time("call_us", &spec.call_us)?,
        prefill: attention(source, "serving.prefill", &spec.prefill)?,
        most_grouped: count("most_grouped", &spec.most_grouped)?,
        group_tile: count("group_tile", &spec.group_tile)?,
        group_block_us: time("group_block_us", &spec.group_block_us)?,
        groups_per_sm: count("groups_per_sm", &spec.groups_per_sm)?,
        head_block_us: time("head_block_us", &spec.head_block_us)?,
        heads_per_sm: count("heads_per_sm", &spec.heads_per_sm)?,
        part_keys: count("part_keys", &spec.part_keys)?,
        sm_gb_per_s: source.real("serving.sm_gb_per_s", &spec.sm_gb_per_s, limits::BANDWIDTH_GB_PER_S)?,
        routing_kernels: count("routing_kernels", &spec.routing_kernels)?,
        grouped_share: source.real("serving.grouped_share", &spec.grouped_share, SHARE)?,
        prompt_kernels: match &spec.prompt_kernels {
            Some(kernels) => source.count("serving.prompt_kernels", kernels, 0..=1024)?,
            None => 0,
        },
        group_key_ns: optional("group_key_ns", &spec.group_key_ns, NANOSECONDS, 0.0)?,
        block_gb_per_s: optional(
            "block_gb_per_s",
            &spec.block_gb_per_s,
            limits::BANDWIDTH_GB_PER_S,
            *limits::BANDWIDTH_GB_PER_S.end(),
        )?,
        parts_per_sm: spec.parts_per_sm.as_ref().map(|value| count("parts_per_sm", value)).transpose()?,
        group_least_keys: spec.group_least_keys.as_ref().map(|value| count("group_least_keys", value)).transpose()?,
        skipped_key_ns: optional("skipped_key_ns", &spec.skipped_key_ns, NANOSECONDS, 0.0)?,
        row_factor: optional("row_factor", &spec.row_factor, FACTOR, 1.0)?,
        routed_ns: optional("routed_ns", &spec.routed_ns, NANOSECONDS, 0.0)?,
        expert_ns: optional("expert_ns", &spec.expert_ns, NANOSECONDS, 0.0)?,
        formats: formats(source, spec)?,
        latent: latent(source, spec)?,
    })
}

fn formats(source: &Source, spec: &ServingSpec) -> Result<BTreeMap<String, ExpertFormat>, Diagnostic> {
    let mut formats = BTreeMap::new();
    for (name, format) in spec.formats.iter().flatten() {
        let (name, format) = (name.get_ref(), format.get_ref());
        let path = format!("serving.formats.{name}");
        let real = |key: &str, value, range| source.real(&format!("{path}.{key}"), value, range);
        let value = ExpertFormat {
            local_expert_ns: match &format.local_expert_ns {
                Some(value) => real("local_expert_ns", value, NANOSECONDS)?,
                None => 0.0,
            },
            row_factor: format.row_factor.as_ref().map(|value| real("row_factor", value, FACTOR)).transpose()?,
            call_us: source.real(&format!("{path}.call_us"), &format.call_us, limits::LAUNCH_US)?,
            grouped_share: source.real(&format!("{path}.grouped_share"), &format.grouped_share, SHARE)?,
        };
        formats.insert(name.clone(), value);
    }
    Ok(formats)
}

fn latent(source: &Source, spec: &ServingSpec) -> Result<LatentKernels, Diagnostic> {
    let Some(latent) = &spec.latent else { return Ok(LatentKernels::default()) };
    let real = |key: &str, value, range| source.real(&format!("serving.latent.{key}"), value, range);
    Ok(LatentKernels {
        prompt_call_us: real("prompt_call_us", &latent.prompt_call_us, limits::LAUNCH_US)?,
        cache_call_us: real("cache_call_us", &latent.cache_call_us, limits::LAUNCH_US)?,
        prompt_share: real("prompt_share", &latent.prompt_share, SHARE)?,
        cache_share: real("cache_share", &latent.cache_share, SHARE)?,
        cache_tile: source.count("serving.latent.cache_tile", &latent.cache_tile, TILE)?,
        cache_block_us: real("cache_block_us", &latent.cache_block_us, limits::LAUNCH_US)?,
    })
}

/// Checks what quantising activations takes, by the format's name.
pub(super) fn quantise(
    source: &Source,
    spec: Option<&Named<QuantiseSpec>>,
) -> Result<BTreeMap<String, Quantise>, Diagnostic> {
    let mut all = BTreeMap::new();
    for (name, quantise) in spec.into_iter().flatten() {
        let (name, quantise) = (name.get_ref(), quantise.get_ref());
        let real = |key: &str, value, range| source.real(&format!("quantise.{name}.{key}"), value, range);
        let value = Quantise {
            call_us: real("call_us", &quantise.call_us, limits::LAUNCH_US)?,
            passes: real("passes", &quantise.passes, 0.0..=100.0)?,
            l2_sm_gb_per_s: real("l2_sm_gb_per_s", &quantise.l2_sm_gb_per_s, limits::BANDWIDTH_GB_PER_S)?,
            memory_sm_gb_per_s: real("memory_sm_gb_per_s", &quantise.memory_sm_gb_per_s, limits::BANDWIDTH_GB_PER_S)?,
            row_gb_per_s: (quantise.row_gb_per_s.as_ref())
                .map(|value| real("row_gb_per_s", value, limits::BANDWIDTH_GB_PER_S))
                .transpose()?,
        };
        all.insert(name.clone(), value);
    }
    Ok(all)
}
