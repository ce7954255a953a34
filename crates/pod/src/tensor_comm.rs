//! Collectives in the passes of a layer: of chips that share its matrices, its tokens or its experts.

use super::collective::{Call, CollectiveKind, plan};
use super::context::ContextComm;
use super::experts::ExpertComm;
use super::network::Network;
use super::parallel::Job;
use super::phased;
use super::system::{Stack, System};
use rdusim_base::diagnostics::Diagnostic;

/// Collectives of a micro-batch between the chips that share its layers or its tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct TensorComm {
    /// Seconds of those of a layer's forward pass.
    pub forward: f64,
    /// Those of the backward pass, without what is computed again.
    pub backward: f64,
    /// Seconds of one on the whole activation: of embedding and logits.
    pub single: f64,
    /// Bytes by level of one on the whole activation.
    pub single_by_level: Vec<u64>,
    /// Seconds of those of the logits' forward pass, where tensor ranks share the columns of the model.
    pub logits: f64,
    /// Their bytes by level.
    pub logits_by_level: Vec<u64>,
    /// How many launches each pass has for them.
    pub launches: u64,
    /// Bytes by level of a forward pass of a layer, all groups of a stage.
    pub by_level: Vec<u64>,
    /// Passes' worth of them in a backward pass, over a forward pass.
    pub backward_ratio: f64,
    /// Seconds of gathering an activation from the parts that the ranks have received.
    pub received: f64,
    /// Its bytes by level.
    pub received_by_level: Vec<u64>,
    /// What chips that share a sequence exchange in a layer.
    pub context: ContextComm,
    /// What chips that share experts exchange in a layer.
    pub experts: ExpertComm,
}

/// The collectives of the tensor groups of the first stage, all at the same time, and of those that share a sequence.
///
/// # Errors
/// No protocol of the stack's library does them.
pub(super) fn tensor_comm(system: &System, stack: &Stack, job: &Job) -> Result<TensorComm, Diagnostic> {
    let p = &job.parallel;
    let (context, experts) = (ContextComm::new(system, job), ExpertComm::new(system, stack, job)?);
    if p.tp < 2 {
        return Ok(TensorComm { context, experts, ..TensorComm::default() });
    }
    if p.tiled.tp2 > 1 {
        let of = phased::two_axes(system, stack, job)?;
        return Ok(TensorComm {
            forward: of.forward.seconds,
            backward: of.backward.seconds,
            single: of.single.seconds,
            single_by_level: of.single.by_level,
            logits: of.logits.seconds,
            logits_by_level: of.logits.by_level,
            launches: 4,
            backward_ratio: of.backward.bytes() / of.forward.bytes().max(1.0),
            by_level: of.forward.by_level,
            received: of.received.seconds,
            received_by_level: of.received.by_level,
            context,
            experts,
        });
    }
    let groups: Vec<Vec<u64>> =
        (0..p.replicas()).map(|replica| (0..p.tp).map(|rank| p.chip(0, replica, rank)).collect()).collect();
    let network = Network::new(system);
    let bytes = job.micro_batch * job.tokens() * job.architecture.hidden * 2;
    let run = |kind| plan(&network, &system.protocols, &stack.library, None, &Call { kind, groups: &groups, bytes });
    let all = run(CollectiveKind::AllReduce)?;
    if !p.sp {
        let received = stack.scatter_gather.then(|| run(CollectiveKind::AllGather)).transpose()?;
        let by_level = all.by_level().iter().map(|bytes| 2 * bytes).collect();
        let pass = 2.0 * all.seconds;
        return Ok(TensorComm {
            forward: pass,
            backward: pass,
            single: all.seconds,
            single_by_level: all.by_level(),
            launches: 2,
            by_level,
            backward_ratio: 1.0,
            received: received.as_ref().map_or(0.0, |gather| gather.seconds),
            received_by_level: received.map_or_else(Vec::new, |gather| gather.by_level()),
            context,
            experts,
            ..TensorComm::default()
        });
    }
    let (gather, scatter) = (run(CollectiveKind::AllGather)?, run(CollectiveKind::ReduceScatter)?);
    let by_level: Vec<u64> =
        gather.by_level().iter().zip(scatter.by_level()).map(|(gather, scatter)| 2 * (gather + scatter)).collect();
    let pass = 2.0 * (gather.seconds + scatter.seconds);
    // Inputs of the products are gathered again for the gradients of their weights.
    Ok(TensorComm {
        forward: pass,
        backward: pass + 2.0 * gather.seconds,
        single: all.seconds,
        single_by_level: all.by_level(),
        launches: 4,
        by_level,
        backward_ratio: 1.5,
        context,
        experts,
        ..TensorComm::default()
    })
}
