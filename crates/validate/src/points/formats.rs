//! How the matrices of a measured point are stored and multiplied, where its model is served layer by layer.
//!
//! A file names precisions; what of a model is in them, its checkpoint says. Where the checkpoint of a row stores matrices in elements of as
//! many bits, its formats hold, matrix by matrix. Else the row's format is that of the matrices which such checkpoints quantise.

use super::row::Row;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_machines::gpu::ProductFormat;
use rdusim_models::model::{ActivationFormat, LayerKind, Stack, StorageFormat};

/// Matrices that checkpoints leave in the type of the model whatever their format: routers and what makes gates and rates.
const LEFT_ALONE: [&str; 6] =
    ["w_router", "w_shared_open", "w_learn", "w_decay", "w_index_weight", "w_compress_weight"];
/// Matrices of feed-forward blocks and of the block beside experts. Checkpoints of four bits leave attention alone where there are experts
/// [P `quantization_config` of Kimi-K2.5-NVFP4, MiniMax-M2.5-NVFP4, Qwen3.5-397B-A17B-NVFP4 and GLM-5.1-NVFP4].
const OF_FEEDS: [&str; 6] = ["w_gate", "w_up", "w_down", "w_shared_gate", "w_shared_up", "w_shared_down"];
/// Matrices of experts.
const OF_EXPERTS: &str = "w_expert_";

/// Layers with formats, and the type that activations are quantised to.
pub(super) struct Stored {
    pub(super) stack: Stack,
    pub(super) activations: Option<ActivationFormat>,
}

/// Bits of an element of a format of matrices.
fn bits(format: &str) -> u64 {
    match format {
        "nvfp4" | "mxfp4" | "int4" => 4,
        _ => 8,
    }
}

/// The formats of the matrices of a row.
///
/// # Errors
/// A precision that is not modelled.
pub(super) fn stored(row: &Row, gpu: &Gpu, stack: &Stack) -> Result<Stored, Diagnostic> {
    let wanted = match row.precision.as_str() {
        "bf16" => 16,
        "fp8" => 8,
        "fp4" | "int4" => 4,
        other => {
            let title = format!("products in {other} ({}) are not modelled", row.formats.0);
            return Err(Diagnostic::new(title));
        }
    };
    let has = |kind: &LayerKind| kind.formats.iter().any(|(_, format)| bits(&format.format) == wanted);
    let stack = if stack.kinds.iter().any(has) { stack.clone() } else { in_format(row, wanted, stack) };
    let named = |wanted: &str| {
        let mut formats = stack.kinds.iter().flat_map(|kind| &kind.formats);
        formats.any(|(_, format)| format.format == wanted)
    };
    let narrow = |is_by_token| ActivationFormat { dtype: Dtype::Fp8E4m3.name().to_owned(), is_by_token };
    let activations = match wanted {
        8 => Some(narrow(named("fp8_block"))),
        // Chips that multiply four bits multiply MXFP4 by MXFP8 [M TensorRT-LLM and vLLM on Blackwell]; Hopper's expand it.
        4 if (named("nvfp4") || named("mxfp4")) && gpu.sm.fp4_macs.is_some() => Some(narrow(false)),
        _ => None,
    };
    Ok(Stored { stack, activations })
}

/// Layers in the format that a row names, of elements of so many bits.
fn in_format(row: &Row, bits: u64, stack: &Stack) -> Stack {
    let is_of_experts = |matrix: &str| matrix.starts_with(OF_EXPERTS);
    let format_of = |matrix: &str| -> Option<StorageFormat> {
        if LEFT_ALONE.contains(&matrix) {
            return None;
        }
        let format = match bits {
            8 => {
                let of = if is_of_experts(matrix) { &row.formats.1 } else { &row.formats.0 };
                match ProductFormat::named(of) {
                    Some(ProductFormat::Fp8Block) => "fp8_block",
                    _ => Dtype::Fp8E4m3.name(),
                }
            }
            4 if row.precision == "int4" => return is_of_experts(matrix).then(int4),
            4 if is_of_experts(matrix) || OF_FEEDS.contains(&matrix) => "nvfp4",
            _ => return None,
        };
        Some(StorageFormat::new(format))
    };
    let mut stack = stack.clone();
    stack.output_format = None;
    for kind in &mut stack.kinds {
        let matrices = kind.matrices(stack.hidden);
        kind.formats =
            matrices.iter().filter_map(|matrix| Some((matrix.name.to_owned(), format_of(matrix.name)?))).collect();
    }
    stack
}

/// Weights of four bits as Kimi's: a scale for 32 elements [P `quantization_config` of Kimi-K2.5].
fn int4() -> StorageFormat {
    StorageFormat { group: Some(32), ..StorageFormat::new("int4") }
}
