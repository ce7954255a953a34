//! Measured collectives and training steps as cases of a system.

use super::line::Line;
use super::run::{SetPart, SetRow};
use crate::diagnostics::Diagnostic;
use crate::model::{Architecture, Position, preset};
use crate::pod::{
    Algorithm, Call, CollectiveKind, Detail, Job, Network, Parallel, Recompute, StackKind, System, plan, step,
};

/// Names of the kinds.
pub(super) const COLLECTIVES: &str = "collectives";
pub(super) const TRAINING: &str = "training-steps";

/// Bytes from which a message is a large one.
const LARGE_BYTES: u64 = 1 << 20;

/// Whether cases of a kind are of a system.
pub(super) fn is_of_systems(kind: &str) -> bool {
    matches!(kind, COLLECTIVES | TRAINING)
}

/// A case in words, and its seconds.
pub(super) fn simulated(kind: &str, line: &Line, system: &System) -> Result<(String, f64), Diagnostic> {
    if kind == COLLECTIVES { collective(line, system) } else { training(line, system) }
}

/// What tells the parts of a set apart: bytes of a message; tensor ranks of a step.
pub(super) fn feature(kind: &str, line: &Line) -> Result<u64, Diagnostic> {
    if kind == COLLECTIVES { Ok(line.count("message_size")? * line.dtype()?.bytes()) } else { line.count("tp") }
}

fn collective(line: &Line, system: &System) -> Result<(String, f64), Diagnostic> {
    let found = line.text("collective");
    let kinds = CollectiveKind::NAMES;
    let names = kinds.map(|(name, _)| name).join(", ");
    let kind = kinds.iter().find(|(name, _)| *name == found).ok_or_else(|| line.error("collective", found, &names))?.1;
    let library = line.text("library");
    let library = if library.starts_with("trtllm") {
        "trtllm"
    } else if library.is_empty() || library.starts_with("nccl") {
        "nccl"
    } else {
        return Err(line.error("library", library, "nccl ... or trtllm ..."));
    };
    let gpus = line.count("gpus")?;
    if gpus > system.most_chips() {
        return Err(line.error("gpus", line.text("gpus"), &format!("at most {}", system.most_chips())));
    }
    let bytes = line.count("message_size")? * line.dtype()?.bytes();
    let groups = [(0..gpus).collect::<Vec<u64>>()];
    let call = Call { kind, groups: &groups, bytes };
    let planned = plan(&Network::new(system), &system.protocols, library, None::<Algorithm>, &call)?;
    Ok((format!("{found} {bytes} B on {gpus}, {library} {}", planned.protocol), planned.seconds))
}

fn training(line: &Line, system: &System) -> Result<(String, f64), Diagnostic> {
    let count = |column: &str| line.count(column);
    let (hidden, sequence) = (count("hidden")?, count("seq")?);
    let (gpt, _) = preset("gpt")?;
    let heads = count("heads")?;
    let architecture = Architecture {
        hidden,
        layers: count("layers")?,
        heads,
        kv_heads: heads,
        feed_forward: 4 * hidden,
        vocabulary: VOCABULARY,
        position: Position::Learned(sequence),
        ..gpt
    };
    // Megatron-DeepSpeed: layers are computed again, plain 1F1B.
    let (tp, pp, dp) = (count("tp")?, count("pp")?, count("dp")?);
    let parallel = Parallel { tp, pp, dp, recompute: Recompute::Full, ..Parallel::default() };
    if parallel.chips() != count("gpus")? {
        return Err(line.error("gpus", line.text("gpus"), &format!("tp x pp x dp = {}", parallel.chips())));
    }
    let (batch, micro_batch) = (count("global_batch")?, count("micro_batch")?);
    let job = Job { model: "gpt".to_owned(), architecture, parallel, batch, micro_batch, sequence, density: None };
    let stack = system.stacks.iter().find(|stack| stack.kind == StackKind::Megatron).ok_or_else(|| {
        Diagnostic::new(format!("{} has no stack {:?}", system.name, StackKind::Megatron.name()))
    })?;
    let step = step(system, stack, &job, Detail::Grouped)?;
    let layers = job.architecture.layers;
    Ok((format!("hidden {hidden}, {layers} layers, tp {tp} dp {dp} pp {pp}, {batch} by {micro_batch}"), step.step_s))
}

/// Rows of the token table of the measured models, assumed by those who measured.
const VOCABULARY: u64 = 51_200;

/// Odd lines, which constants were fitted to, and even lines, which were predicted; and those that targets are set for.
pub(super) fn parts(rows: &[SetRow], features: &[u64]) -> Vec<SetPart> {
    let is_collective = rows.first().is_some_and(|row| row.label.contains(" B on "));
    let half = |i: usize, odd: bool| (i % 2 == 0) == odd;
    let large = |i: usize| features[i] > LARGE_BYTES;
    let mut list = vec![SetPart::new("odd lines", rows, |i, _| half(i, true)), SetPart::new("even lines", rows, |i, _| half(i, false))];
    if is_collective {
        list.extend([
            SetPart::new("even lines above 1 MiB", rows, |i, _| half(i, false) && large(i)),
            SetPart::new("even lines up to 1 MiB", rows, |i, _| half(i, false) && !large(i)),
        ]);
    } else if features.iter().any(|&tp| tp > 8) {
        list.extend([
            SetPart::new("odd lines, tp <= 8", rows, |i, _| half(i, true) && features[i] <= 8),
            SetPart::new("even lines, tp <= 8", rows, |i, _| half(i, false) && features[i] <= 8),
        ]);
    }
    list.into_iter().flatten().collect()
}
