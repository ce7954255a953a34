//! The model of a config, by its structure or by the rules of its family.

use super::families::{Fields, Model};
use super::quantization::Quantisation;
use super::structure::Read;
use crate::model::{Architecture, Experts, Extras, Mixer, Phase, Stack, outline, plain};
use rdusim_base::diagnostics::Diagnostic;

/// What a config says of a model.
pub(super) struct Subject {
    /// The class or family whose names the weights have.
    pub(super) family: String,
    /// Its dimensions: all of them without a stack.
    pub(super) architecture: Architecture,
    /// Its layers, where the dimensions do not say all of them.
    pub(super) stack: Option<Stack>,
    /// Its layers, whether or not the dimensions say all of them; none of families with rules of their own.
    pub(super) layers: Option<Stack>,
    /// The most tokens of a sequence.
    pub(super) sequence: u64,
    /// How matrices are stored, of a model without a stack.
    pub(super) quantisation: Quantisation,
}

/// What is done with the model.
pub(super) struct Purpose<'a> {
    /// The phase.
    pub(super) phase: Phase,
    /// Data type of products.
    pub(super) dtype: &'a str,
    /// Why formats of matrices are not applied, if they are not.
    pub(super) why_plain: Option<&'a str>,
}

impl Fields {
    /// The model, for a purpose.
    ///
    /// # Errors
    /// Keys that are missing, impossible or not known.
    pub(super) fn subject(&self, purpose: &Purpose<'_>, notes: &mut Vec<String>) -> Result<Subject, Diagnostic> {
        let name = self.family_name()?;
        if let Some(family) = Self::family(&name) {
            let Model { architecture, sequence, notes: of_model } = self.model(family, purpose.phase)?;
            notes.extend(of_model);
            let quantisation = self.quantization(&architecture, family, purpose.dtype, purpose.why_plain, notes);
            let (family, stack, layers) = (family.to_owned(), None, None);
            return Ok(Subject { family, architecture, stack, layers, sequence, quantisation });
        }
        let Read { mut stack, sequence, notes: of_model } = self.structure(&name)?;
        notes.extend(of_model);
        let experts = stack.experts().map(|of| of.experts);
        let is_trained = purpose.phase == Phase::Training;
        // A window that is as long as any sequence is none.
        drop_windows(&mut stack, sequence);
        let mut architecture = plain(&stack);
        if architecture.is_none() && is_trained {
            let mut unlimited = stack.clone();
            drop_windows(&mut unlimited, 0);
            architecture = plain(&unlimited);
            if architecture.is_some() {
                stack = unlimited;
                notes.push(
                    "windows of attention are not modelled where a model is trained: every token meets all before it"
                        .to_owned(),
                );
            }
        }
        if let Some(architecture) = &mut architecture {
            let dense = architecture.extras.dense_layers;
            match architecture.extras.experts {
                Some(experts) => {
                    architecture.extras.experts = None;
                    architecture.extras.dense_layers = dense;
                    self.with_experts(architecture, experts, purpose.phase, notes)?;
                }
                None => self.no_expert_load()?,
            }
        } else {
            if is_trained && !self.keeps_experts {
                let why = "its layers are of kinds that are not trained here: their graphs have no gradients";
                return Err(self.refused(why).with_help("choose `--phase forward`, `prefill` or `decode`"));
            }
            match experts {
                Some(experts) => self.expert_notes(&experts, notes)?,
                None => self.no_expert_load()?,
            }
        }
        if let Some(architecture) = architecture {
            let mut of_formats = Vec::new();
            let family = self.class_name(&name);
            let quantisation =
                self.quantization(&architecture, &family, purpose.dtype, purpose.why_plain, &mut of_formats);
            let says = self.says_formats();
            let is_uniform = !of_formats.iter().any(|note| note.contains("otherwise in some layers"));
            let is_dense = architecture.extras.experts.is_none() && architecture.extras.latent.is_none();
            let is_uniform = is_uniform && is_dense;
            let is_applied =
                !says || purpose.why_plain.is_some() || is_uniform && quantisation != Quantisation::default();
            let mut layers = stack.clone();
            let mut unsaid = Vec::new();
            if purpose.why_plain.is_none() {
                self.formats(&mut layers, &mut unsaid);
            }
            if is_applied {
                notes.extend(of_formats);
                notes.extend(unsaid.into_iter().filter(|_| !says));
                let layers = Some(layers);
                return Ok(Subject { family, architecture, stack: None, layers, sequence, quantisation });
            }
        }
        let mut quantisation = Quantisation::default();
        if purpose.why_plain.is_none() {
            quantisation.cache = self.formats(&mut stack, notes);
        } else if let Some(why) = purpose.why_plain.filter(|_| self.says_formats()) {
            notes.push(format!(
                "`quantization_config` is not applied: {why}; the matrices are stored in the data type of products"
            ));
        }
        let family = self.class_name(&name);
        let (architecture, layers) = (outline(&stack), Some(stack.clone()));
        Ok(Subject { family, architecture, stack: Some(stack), layers, sequence, quantisation })
    }

    fn no_expert_load(&self) -> Result<(), Diagnostic> {
        if self.expert_load == crate::model::ExpertLoad::default() {
            return Ok(());
        }
        Err(self.refused("`--expert-load` is for models with experts, and this one has none"))
    }

    fn expert_notes(&self, experts: &Experts, notes: &mut Vec<String>) -> Result<(), Diagnostic> {
        let mut scratch = outline_of_experts();
        self.with_experts(&mut scratch, *experts, Phase::Forward, notes)
    }
}

/// Leaves out windows of at least so many tokens; layers that are of one kind then are one kind.
fn drop_windows(stack: &mut Stack, least: u64) {
    for kind in &mut stack.kinds {
        if let Mixer::Heads(heads) = &mut kind.mixer
            && heads.window.is_some_and(|window| window.tokens >= least)
        {
            heads.window = None;
        }
    }
    let kinds = std::mem::take(&mut stack.kinds);
    let mut places: Vec<u16> = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let known = stack.kinds.iter().position(|other| *other == kind);
        places.push(known.unwrap_or(stack.kinds.len()) as u16);
        if known.is_none() {
            stack.kinds.push(kind);
        }
    }
    for kind in &mut stack.order {
        *kind = places[usize::from(*kind)];
    }
}

/// An architecture that takes experts, to say what is said of them.
fn outline_of_experts() -> Architecture {
    let stack = Stack {
        hidden: 1,
        vocabulary: 1,
        tied: true,
        norm: crate::model::Norm::Rms,
        positions: None,
        streams: 1,
        output_format: None,
        kinds: Vec::new(),
        order: Vec::new(),
    };
    Architecture { extras: Extras::default(), ..outline(&stack) }
}
