//! Which layers which kinds of chips train and serve: what a step and a pass refuse before anything is simulated.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::AnyChip;
use rdusim_models::model::{Architecture, Position};

/// Refuses a training step of layers that a kind of chip does not have.
///
/// # Errors
/// What the layers have that is not modelled.
pub fn check_trained(chip: &AnyChip, model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
    let (has_experts, name) = (architecture.extras.experts.is_some(), chip.device().name());
    let graphs = |what: &str, help: &str| {
        let title = format!("{what}: not modelled on {name}, whose passes are graphs of whole layers");
        Err(Diagnostic::new(title).with_help(help))
    };
    match chip {
        AnyChip::Bsp(_) if has_experts => {
            let title = format!("{model} has experts, which are not modelled on chips of tiles");
            Err(Diagnostic::new(title).with_help("use a system of GPUs or RDUs, or a model without experts"))
        }
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if architecture.post_norm => {
            let title = format!("{model}: layers with their norms behind them are modelled on chips of tiles only");
            Err(Diagnostic::new(title).with_help("use a pre-norm GPT or Llama model, or a system such as ipu-pod16"))
        }
        AnyChip::Systolic(_) | AnyChip::Wafer(_) if has_experts => {
            graphs("experts", "`rdusim pod dgx-a100` trains them")
        }
        AnyChip::Systolic(_) | AnyChip::Wafer(_) if architecture.post_norm => {
            graphs("norms behind the layers", "use a pre-norm GPT or Llama model")
        }
        AnyChip::Wafer(_) if architecture.extras.patches.is_some() => {
            let title =
                format!("{name} has the whole model as one graph: logits of some tokens alone are not modelled there");
            Err(Diagnostic::new(title).with_help("name a model of text"))
        }
        AnyChip::Rdu(_) | AnyChip::Gpu(_) | AnyChip::Bsp(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_) => Ok(()),
    }
}

/// Refuses layers that no pass of serving has.
///
/// # Errors
/// A model of other layers, or without an output.
pub fn check_served_layers(model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
    let a = architecture;
    // Hybrids have no positions where their attention has no rotation.
    let has_distances = a.position == Position::Alibi && a.extras.mamba.is_none();
    if has_distances || a.post_norm || a.parallel || a.embedding_norm || !a.causal || !a.output {
        return Err(Diagnostic::new(format!("{model}: only pre-norm GPT and Llama layers are modelled")));
    }
    Ok(())
}
