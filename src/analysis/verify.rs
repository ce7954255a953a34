//! Do the configurations compute what the graph says?

use crate::arch::Chip;
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::verify::{
    Retargeting, Scaling, Verdict, graph_flops, retargeted_from_full_size, scaled, verify as verify_all,
};
use crate::workload::Workload;

use super::execute::{Source, Stage, configurations};

/// What is verified.
#[derive(Debug, Clone)]
pub struct VerifyRequest<'a> {
    /// Within the limits of its mapping.
    pub chip: &'a Chip,
    /// Modes whose configurations run.
    pub modes: &'a [Mode],
    /// Most operations of the graph that runs: named dimensions are made smaller.
    pub max_flops: u64,
    /// Seed of the numbers.
    pub seed: u64,
    /// Where configurations come from.
    pub source: Source,
}

/// What came out.
#[derive(Debug)]
pub struct Verified {
    /// The verdict on every mode.
    pub verdict: Verdict,
    /// The graph that ran.
    pub workload: Workload,
    /// The configurations that ran.
    pub configurations: Vec<Compiled>,
    /// Modes that do not compute what the graph says.
    pub failed: Vec<&'static str>,
}

/// Runs configurations of the workload that `load` gives, with overrides, on numbers. `scaling` hears first how the workload is
/// made smaller; `ended` is called as stages end.
///
/// # Errors
/// What `load`, the compiler and the sizes refuse.
pub fn verify(
    request: &VerifyRequest<'_>,
    load: &dyn Fn(&[Override]) -> Result<Workload, Diagnostic>,
    scaling: &mut dyn FnMut(&Scaling),
    ended: &mut dyn FnMut(Stage),
) -> Result<Verified, Diagnostic> {
    let VerifyRequest { chip, modes, .. } = *request;
    let (workload, scaled) = scaled(chip, request.max_flops, load)?;
    if let Some(scaled) = &scaled {
        scaling(scaled);
    }
    let (compiled, retargetings): (Vec<Compiled>, Vec<Retargeting>) =
        if scaled.is_none() || matches!(request.source, Source::File(_)) {
            (configurations(&request.source, chip, &workload, modes)?, Vec::new())
        } else {
            let like = retargeted_from_full_size(chip, &load(&[])?, &workload, modes)?;
            let unmeasured = |configuration| Compiled { configuration, runs: Vec::new() };
            like.into_iter().map(|(configuration, retargeting)| (unmeasured(configuration), retargeting)).unzip()
        };
    ended(Stage::Compiled);
    let mut runs = verify_all(chip, &workload, compiled.iter().map(|compiled| &compiled.configuration), request.seed);
    for (run, retargeting) in runs.iter_mut().zip(retargetings) {
        run.mapping = Some(retargeting);
    }
    ended(Stage::Simulated);
    let failed = runs.iter().filter(|run| !run.passed).map(|run| run.mode).collect();
    let verdict = Verdict::new(&chip.name, &workload, graph_flops(&workload), scaled, runs);
    Ok(Verified { verdict, workload, configurations: compiled, failed })
}
