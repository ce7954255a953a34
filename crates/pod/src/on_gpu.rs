//! Seconds of the passes of a part of the model on a GPU: its kernels one after the other, what the host takes to launch them, and
//! the collectives between them.

use super::choices::Context;
use super::experts::Rows;
use super::kernels::{self, Passes};
use super::on_chips::{Member, check_no_tiles, check_norms_in_front};
use super::parallel::{Job, Recompute};
use super::pass::{Pass, PieceTime, Pieces};
use super::system::{Stack, StackKind, System};
use super::tensor_comm::TensorComm;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::Gpu;
use rdusim_machines::gpu::{KernelCall, KernelCost, kernel_cost};
use rdusim_models::model::Architecture;

impl Member for Gpu {
    fn check_layers(&self, model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
        check_norms_in_front(model, architecture)
    }
    fn pieces(&self, _: &System, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
        check_no_tiles(job)?;
        job.check_swapped()?;
        on_gpu(self, stack, job, comm)
    }
    fn times_single_layers(&self) -> bool {
        true
    }
}

/// Times of a layer of either kind, the embedding and the logits.
///
/// # Errors
/// What is not modelled on GPUs, and what the chip's simulation refuses.
fn on_gpu(gpu: &Gpu, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    if job.density.is_some() {
        return Err(Diagnostic::new("sparse weights are not modelled on systems of GPUs"));
    }
    if job.parallel.cp > 1 && job.parallel.context == Context::Ring && stack.kind != StackKind::Flash {
        let title = format!("keys and values go around fused attention only, which {} has not", stack.kind.name());
        return Err(Diagnostic::new(title).with_help("use `--stack flash`, or context=ulysses"));
    }
    let timer = Timer { gpu, stack, job, comm };
    let fed = timer.experts()?;
    // A layer without experts and one with, in a part of a sequence.
    let layers = |chunk: u64| -> Result<[PieceTime; 2], Diagnostic> {
        let plain = timer.layer(&kernels::layer(job, stack.kind, chunk), &Fed::default())?;
        let Some(experts) = job.experts() else { return Ok([plain, PieceTime::default()]) };
        let mixed = timer.layer(&kernels::expert_layer(job, stack.kind, chunk, &experts), &fed)?;
        Ok([plain, mixed])
    };
    let first = layers(0)?;
    let last = if job.parallel.seq_chunks > 1 { layers(job.parallel.seq_chunks - 1)? } else { first };
    let mut core = [0.0; 2];
    if job.parallel.cp > 1 {
        for (seconds, calls) in core.iter_mut().zip(kernels::attention_core(job, stack.kind)) {
            *seconds = timer.pass(&calls)?.compute;
        }
    }
    Ok(Pieces {
        core,
        products: [fed.products[0].compute, fed.products[1].compute],
        layers: first[0],
        expert_layers: first[1],
        embedding: timer.plain(&kernels::embedding(job), comm.single, 0.0)?,
        logits: timer.plain(&kernels::logits(job), 0.0, comm.single)?,
        later: [0, 1].map(|at| last[at].plus(first[at].scaled(-1.0))),
        ..Pieces::default()
    })
}

/// What the experts of a layer add to it, forward, backward and for gradients of weights.
#[derive(Debug, Clone, Copy, Default)]
struct Fed {
    /// Their products.
    products: [Pass; 3],
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
    /// Time and energy of kernels one after the other.
    fn pass(&self, calls: &[KernelCall]) -> Result<Pass, Diagnostic> {
        let (factor, gap) = (self.stack.kernel_factor, self.gpu.launch.gap_us / 1e6);
        let mut sum = Pass::default();
        for call in calls {
            let cost = kernel_cost(self.gpu, call)?;
            sum.compute += cost.seconds * factor + gap;
            sum.joules += cost.joules;
        }
        Ok(sum)
    }

    /// Seconds of a layer's tensor collectives that its products do not hide: with sequence parallelism, in as many parts as the stack
    /// has, all parts but one go beside the products of another (Transformer Engine's user buffers).
    fn unhidden(&self, collectives: f64, calls: &[KernelCall]) -> Result<f64, Diagnostic> {
        let parts = self.stack.tensor_parts;
        if parts < 2 || !self.job.parallel.sp || collectives <= 0.0 {
            return Ok(collectives);
        }
        // Products on scores are of many heads.
        let of_weights = |call: &&KernelCall| matches!(call, KernelCall::Product { count: 1, .. });
        let products: Vec<KernelCall> = calls.iter().filter(of_weights).cloned().collect();
        Ok(exposed_parts(collectives, self.pass(&products)?.compute, parts))
    }

    fn forward_host(&self, launches: u64) -> f64 {
        launches as f64 * self.stack.host_us / 1e6
    }

    fn backward_host(&self, launches: u64) -> f64 {
        launches as f64 * self.stack.backward_host_us / 1e6
    }

    /// A backward pass and its pass for gradients of weights, if the schedule has one, with their launches.
    fn split(&self, passes: &Passes) -> Result<([Pass; 2], [u64; 2]), Diagnostic> {
        let (mut all, launches) = (self.pass(&passes.backward)?, passes.backward.len() as u64);
        if !self.job.parallel.schedule.splits_weights() {
            return Ok(([all, Pass::default()], [launches, 0]));
        }
        let (weights, of_weights) = (self.pass(&passes.weights)?, passes.weights.len() as u64);
        all.compute = (all.compute - weights.compute).max(0.0);
        all.joules = (all.joules - weights.joules).max(0.0);
        Ok(([all, weights], [launches - of_weights, of_weights]))
    }

    /// Products and exchanges of a layer with experts: the mean of all draws of how tokens fall.
    fn experts(&self) -> Result<Fed, Diagnostic> {
        let (job, of) = (self.job, self.job.parallel.experts);
        let Some(experts) = job.experts() else { return Ok(Fed::default()) };
        let draws = Rows::new(job).draws;
        let mut fed = Fed::default();
        for rows in &draws {
            let passes = kernels::expert_products(job, &experts, rows, of.parts);
            let forward = self.pass(&passes.forward)?;
            let ([backward, weights], [back, behind]) = self.split(&passes)?;
            for (sum, pass) in fed.products.iter_mut().zip([forward, backward, weights]) {
                *sum = sum.plus(pass.scaled(of.parts as f64 / draws.len() as f64));
            }
            let exchanges = self.comm.experts.launches();
            fed.launches = [passes.forward.len() as u64 + exchanges, back + exchanges, behind].map(|n| n * of.parts);
        }
        let exposed = |pass: Pass| self.comm.experts.exposed(of.parts, pass.compute / of.parts as f64);
        fed.exposed = [exposed(fed.products[0]), exposed(fed.products[1])];
        Ok(fed)
    }

    fn layer(&self, layer: &Passes, fed: &Fed) -> Result<PieceTime, Diagnostic> {
        let (job, comm) = (self.job, self.comm);
        let attention = self.pass(&layer.attention)?;
        let exchanged = |is_backward: bool| -> Result<f64, Diagnostic> {
            let step = self.pass(&[kernels::attention_step(job, is_backward)])?.compute;
            Ok(comm.context.exposed(is_backward, step))
        };
        let context_comm = [exchanged(false)?, exchanged(true)?];
        let exchanges = [comm.context.launches(false), comm.context.launches(true)];
        let forward = Pass {
            tensor_comm: self.unhidden(comm.forward, &layer.forward)?,
            context_comm: context_comm[0],
            expert_comm: fed.exposed[0],
            ..self.pass(&layer.forward)?.plus(fed.products[0])
        };
        let [gathers, scatters] = job.parallel.sharding_launches();
        let launches = layer.forward.len() as u64 + comm.launches + exchanges[0] + fed.launches[0];
        let (again, again_launches) = match job.parallel.recompute {
            Recompute::None => (Pass::default(), 0),
            Recompute::Selective => {
                let (recompute, compute) = (attention.compute, 0.0);
                let again = Pass { recompute, compute, context_comm: context_comm[0], ..attention };
                (again, layer.attention.len() as u64 + exchanges[0])
            }
            Recompute::Full => (Pass { compute: 0.0, recompute: forward.compute, ..forward }, launches),
        };
        let forward = forward.launched(self.forward_host(launches + gathers));
        let again = again.launched(self.forward_host(again_launches));
        let ([own, of_weights], [launches, behind]) = self.split(layer)?;
        let backward = Pass {
            tensor_comm: self.unhidden(comm.backward, &layer.backward)?,
            context_comm: context_comm[1],
            expert_comm: fed.exposed[1],
            ..own.plus(fed.products[1])
        };
        let launches = launches + comm.launches + exchanges[1] + scatters + fed.launches[1];
        let backward = again.plus(backward.launched(self.backward_host(launches)));
        let host = self.backward_host(behind + fed.launches[2]);
        let weights = of_weights.plus(fed.products[2]).launched(host);
        Ok(PieceTime { forward, backward, weights, update: KernelCost::default() })
    }

    /// The embedding or the logits.
    fn plain(&self, passes: &Passes, forward_comm: f64, backward_comm: f64) -> Result<PieceTime, Diagnostic> {
        let forward = Pass { tensor_comm: forward_comm, ..self.pass(&passes.forward)? };
        let forward = forward.launched(self.forward_host(passes.forward.len() as u64));
        let ([own, of_weights], [launches, behind]) = self.split(passes)?;
        let backward = Pass { tensor_comm: backward_comm, ..own }.launched(self.backward_host(launches));
        let weights = of_weights.launched(self.backward_host(behind));
        Ok(PieceTime { forward, backward, weights, update: KernelCost::default() })
    }
}

/// Seconds that collectives take longer than products if a part of either goes beside a part of the other: one part, and what the others
/// take longer than the products beside them.
fn exposed_parts(collectives: f64, products: f64, parts: u64) -> f64 {
    let beside = 1.0 - 1.0 / parts as f64;
    collectives / parts as f64 + (beside * (collectives - products)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::exposed_parts;

    #[test]
    fn products_hide_all_parts_of_a_collective_but_one() {
        // 8 s in 4 parts beside 10 s of products: the first part of 2 s.
        assert!((exposed_parts(8.0, 10.0, 4) - 2.0).abs() < 1e-12);
        // Beside 4 s: three parts of 2 s take 3 s longer than three of 1 s.
        assert!((exposed_parts(8.0, 4.0, 4) - 5.0).abs() < 1e-12);
        // Beside nothing, or in one part, all of it.
        assert!((exposed_parts(8.0, 0.0, 4) - 8.0).abs() < 1e-12);
        assert!((exposed_parts(8.0, 10.0, 1) - 8.0).abs() < 1e-12);
    }
}
