//! Seconds of the passes of a part of the model on a GPU: its kernels one after the other, what the host takes to launch them, and
//! the collectives between them.

use super::choices::Context;
use super::experts::Rows;
use super::kernels::{self, Passes};
use super::parallel::{Job, Recompute, Schedule};
use super::pass::{Pass, PieceTime, Pieces};
use super::stage::TensorComm;
use super::system::{Stack, StackKind};
use crate::arch::Gpu;
use crate::diagnostics::Diagnostic;
use crate::gpu::{KernelCall, kernel_seconds};

/// Times of a layer of either kind, the embedding and the logits.
///
/// # Errors
/// What is not modelled on GPUs, and what the chip's simulation refuses.
pub(super) fn on_gpu(gpu: &Gpu, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    if job.density.is_some() {
        return Err(Diagnostic::new("sparse weights are modelled on systems of RDUs only"));
    }
    if job.parallel.cp > 1 && job.parallel.context == Context::Ring && stack.kind != StackKind::Flash {
        let title = format!("keys and values go around fused attention only, which {} has not", stack.kind.name());
        return Err(Diagnostic::new(title).with_help("use `--stack flash`, or context=ulysses"));
    }
    let timer = Timer { gpu, stack, job, comm };
    let expert_layers = match job.experts() {
        None => PieceTime::default(),
        Some(experts) => timer.layer(&kernels::expert_layer(job, stack.kind, &experts), &timer.experts()?)?,
    };
    Ok(Pieces {
        layers: timer.layer(&kernels::layer(job, stack.kind), &Fed::default())?,
        expert_layers,
        embedding: timer.plain(&kernels::embedding(job), comm.single, 0.0)?,
        logits: timer.plain(&kernels::logits(job), 0.0, comm.single)?,
        received: 0.0,
    })
}

/// What the experts of a layer add to it, forward, backward and for gradients of weights.
#[derive(Debug, Clone, Copy, Default)]
struct Fed {
    /// Seconds of their products.
    compute: [f64; 3],
    launches: [u64; 3],
    /// Seconds of exchanges that nothing hides, forward and backward.
    exposed: [f64; 2],
}

struct Timer<'a> {
    gpu: &'a Gpu,
    stack: &'a Stack,
    job: &'a Job,
    comm: &'a TensorComm,
}

impl Timer<'_> {
    fn seconds(&self, calls: &[KernelCall]) -> Result<f64, Diagnostic> {
        let (factor, gap) = (self.stack.kernel_factor, self.gpu.launch.gap_us / 1e6);
        calls.iter().map(|call| kernel_seconds(self.gpu, call).map(|seconds| seconds * factor + gap)).sum()
    }

    fn forward_host(&self, launches: u64) -> f64 {
        launches as f64 * self.stack.host_us / 1e6
    }

    fn backward_host(&self, launches: u64) -> f64 {
        launches as f64 * self.stack.backward_host_us / 1e6
    }

    /// Seconds and launches of a backward pass and of its pass for gradients of weights, if the schedule has one.
    fn split(&self, passes: &Passes) -> Result<([f64; 2], [u64; 2]), Diagnostic> {
        let (all, launches) = (self.seconds(&passes.backward)?, passes.backward.len() as u64);
        if self.job.parallel.schedule != Schedule::ZeroBubble {
            return Ok(([all, 0.0], [launches, 0]));
        }
        let (compute, of_weights) = (self.seconds(&passes.weights)?, passes.weights.len() as u64);
        Ok(([(all - compute).max(0.0), compute], [launches - of_weights, of_weights]))
    }

    /// Products and exchanges of a layer with experts: the mean of all draws of how tokens fall.
    fn experts(&self) -> Result<Fed, Diagnostic> {
        let (job, of) = (self.job, self.job.parallel.experts);
        let Some(experts) = job.experts() else { return Ok(Fed::default()) };
        let draws = Rows::new(job).draws;
        let mut fed = Fed::default();
        for rows in &draws {
            let passes = kernels::expert_products(job, &experts, rows, of.parts);
            let forward = self.seconds(&passes.forward)?;
            let ([backward, weights], [back, behind]) = self.split(&passes)?;
            for (sum, seconds) in fed.compute.iter_mut().zip([forward, backward, weights]) {
                *sum += seconds * of.parts as f64 / draws.len() as f64;
            }
            let exchanges = self.comm.experts.launches();
            fed.launches = [passes.forward.len() as u64 + exchanges, back + exchanges, behind].map(|n| n * of.parts);
        }
        let exposed = |compute: f64| self.comm.experts.exposed(of.parts, compute / of.parts as f64);
        fed.exposed = [exposed(fed.compute[0]), exposed(fed.compute[1])];
        Ok(fed)
    }

    fn layer(&self, layer: &Passes, fed: &Fed) -> Result<PieceTime, Diagnostic> {
        let (job, comm) = (self.job, self.comm);
        let forward_s = self.seconds(&layer.forward)? + fed.compute[0];
        let attention_s = self.seconds(&layer.attention)?;
        let exchanged = |is_backward: bool| -> Result<f64, Diagnostic> {
            let step = self.seconds(&[kernels::attention_step(job, is_backward)])?;
            Ok(comm.context.exposed(is_backward, step))
        };
        let context_comm = [exchanged(false)?, exchanged(true)?];
        let exchanges = [comm.context.launches(false), comm.context.launches(true)];
        let forward = Pass {
            compute: forward_s,
            tensor_comm: comm.forward,
            context_comm: context_comm[0],
            expert_comm: fed.exposed[0],
            ..Pass::default()
        };
        let [gathers, scatters] = job.parallel.sharding_launches();
        let launches = layer.forward.len() as u64 + comm.launches + exchanges[0] + fed.launches[0];
        let (again, again_launches) = match job.parallel.recompute {
            Recompute::None => (Pass::default(), 0),
            Recompute::Selective => {
                let again = Pass { recompute: attention_s, context_comm: context_comm[0], ..Pass::default() };
                (again, layer.attention.len() as u64 + exchanges[0])
            }
            Recompute::Full => (Pass { compute: 0.0, recompute: forward_s, ..forward }, launches),
        };
        let forward = forward.launched(self.forward_host(launches + gathers));
        let again = again.launched(self.forward_host(again_launches));
        let ([compute, of_weights], [launches, behind]) = self.split(layer)?;
        let backward = Pass {
            compute: compute + fed.compute[1],
            tensor_comm: comm.backward,
            context_comm: context_comm[1],
            expert_comm: fed.exposed[1],
            ..Pass::default()
        };
        let launches = launches + comm.launches + exchanges[1] + scatters + fed.launches[1];
        let backward = again.plus(backward.launched(self.backward_host(launches)));
        let weights = self.weights(of_weights + fed.compute[2], behind + fed.launches[2]);
        Ok(PieceTime { forward, backward, weights, update: 0.0 })
    }

    /// The pass for gradients of weights.
    fn weights(&self, compute: f64, launches: u64) -> Pass {
        Pass { compute, ..Pass::default() }.launched(self.backward_host(launches))
    }

    /// The embedding or the logits.
    fn plain(&self, passes: &Passes, forward_comm: f64, backward_comm: f64) -> Result<PieceTime, Diagnostic> {
        let compute = self.seconds(&passes.forward)?;
        let forward = Pass { compute, tensor_comm: forward_comm, ..Pass::default() };
        let forward = forward.launched(self.forward_host(passes.forward.len() as u64));
        let ([compute, of_weights], [launches, behind]) = self.split(passes)?;
        let backward = Pass { compute, tensor_comm: backward_comm, ..Pass::default() };
        let backward = backward.launched(self.backward_host(launches));
        Ok(PieceTime { forward, backward, weights: self.weights(of_weights, behind), update: 0.0 })
    }
}
