//! Experts of a model that serves: what a layer of them takes of the busiest chip, from the kernels and the exchange of a forward
//! pass in training (`pod::experts`). Replicas that share experts out run together.

use super::super::experts::{ExpertComm, Rows, most_rows};
use super::super::kernels;
use super::super::parallel::Job;
use super::super::system::{Stack, System};
use super::service::{ELEMENT, Parameters, Service};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::Gpu;
use rdusim_machines::gpu::{KernelCall, kernel_cost};
use rdusim_models::model::{Architecture, Experts, Extras};

/// What a layer's experts take of the busiest chip, in the mean of all draws of how tokens fall on them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fed {
    /// Seconds of the router, of ordering rows, of the block that every token meets and of the experts' products.
    pub seconds: f64,
    /// Of these, of the products, which an exchange can go on beside.
    pub products: f64,
    /// Kernels.
    pub launches: u64,
    /// Joules without static power.
    pub joules: f64,
}

/// What the exchanges of a layer take.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchanged {
    /// Seconds that nothing hides.
    pub seconds: f64,
    /// Bytes by level of both ways of all groups of a stage.
    pub by_level: Vec<u64>,
    /// Launches.
    pub launches: u64,
}

impl Service {
    /// The experts of the layers that have some.
    pub(super) fn experts(&self) -> Option<Experts> {
        self.architecture.extras.experts.filter(|_| self.stack.is_none())
    }

    /// A step of training on as many rows, whose forward pass has the same experts.
    pub(super) fn job(&self, rows: u64) -> Job {
        Job {
            model: self.model.clone(),
            architecture: Architecture {
                extras: Extras { experts: self.experts(), ..self.architecture.extras },
                ..self.architecture
            },
            parallel: self.parallel,
            batch: rows.saturating_mul(self.parallel.dp),
            micro_batch: rows,
            sequence: 1,
            density: self.density,
            predicted: None,
            stage_layers: None,
            expert_load: self.expert_load.clone(),
        }
    }

    /// Layers of a stage without and with experts.
    pub(super) fn mixed_layers(&self) -> (u64, u64) {
        if let Some(stack) = &self.stack {
            let with = if self.expert_ranks.is_some() { self.layers_with_experts(stack, 0) } else { 0 };
            return (self.layers_of_stage(0) - with, with);
        }
        match self.expert_ranks {
            Some(_) => {
                let dense = self.architecture.extras.dense_layers;
                (dense, self.architecture.layers.saturating_sub(dense))
            }
            None => self.job(1).mixed_layers(),
        }
    }

    /// Parameters of a stage's layers on a chip beyond those of layers without experts: of a router, and of its part of the experts.
    pub(super) fn expert_parameters(&self) -> Parameters {
        let Some(experts) = self.experts() else { return Parameters::default() };
        let (share, with) = (self.share(), self.mixed_layers().1);
        let router = share.hidden * (experts.count + u64::from(experts.shared_gate));
        let own = match &self.expert_ranks {
            Some(ranks) => experts.count / ranks.groups * self.expert_elements(experts.width) / ranks.tensor,
            None => self.job(1).expert_layer_parameters()[1],
        };
        Parameters { own: with * own, copied: with * router }
    }

    /// Elements of the matrices of a feed-forward block of this width.
    pub(super) fn expert_elements(&self, width: u64) -> u64 {
        self.architecture.feed_matrices() * self.architecture.hidden * width
    }

    /// Parameters that experts of a stage have on a chip and no pass needs: a token meets some, which may all lie on other chips.
    pub(super) fn unread_experts(&self) -> u64 {
        let Some(experts) = self.experts() else { return 0 };
        let own = self.expert_parameters().own;
        let groups = self.expert_ranks.map_or(self.parallel.experts.ep, |ranks| ranks.groups);
        let here = experts.count / groups;
        own.saturating_sub(own / here.max(1) * (experts.each / groups))
    }

    /// Products of a token in all layers beyond those of attention; elements of matrices.
    pub(super) fn fed_products(&self) -> f64 {
        let a = &self.architecture;
        let matrices = a.feed_matrices() as f64;
        let job = self.job(1);
        a.layers as f64 * (a.hidden as f64 * matrices * job.mean_width() + job.mean_router_products())
    }

    /// Bytes of a pass of so many rows for experts: rows of those that a chip has, in and out and within; and rows that are exchanged.
    pub(super) fn expert_bytes(&self, rows: u64) -> (u64, u64) {
        let Some(experts) = self.experts() else { return (0, 0) };
        let job = self.job(rows);
        let held = most_rows(&job);
        let width = experts.width / self.parallel.tp;
        let up = (self.architecture.feed_matrices() - 1) * width;
        let hidden = self.architecture.hidden;
        let activations = ELEMENT * held.saturating_mul(2 * hidden + up);
        let exchanged = ELEMENT * hidden * (held.saturating_add(rows.saturating_mul(experts.each)));
        (activations, if self.parallel.experts.ep > 1 { exchanged } else { 0 })
    }
}

/// The experts of a layer on a GPU.
///
/// # Errors
/// A data type that the tensor cores lack.
pub(super) fn fed(gpu: &Gpu, job: &Job) -> Result<Fed, Diagnostic> {
    let Some(experts) = job.experts() else { return Ok(Fed::default()) };
    let gap = if gpu.fusion.graphs { gpu.launch.graph_gap_us } else { gpu.launch.gap_us } / 1e6;
    let sum = |calls: &[KernelCall]| -> Result<(f64, f64), Diagnostic> {
        let mut sum = (0.0, 0.0);
        for call in calls {
            let cost = kernel_cost(gpu, call)?;
            sum = (sum.0 + cost.seconds + gap, sum.1 + cost.joules);
        }
        Ok(sum)
    };
    let (parts, draws) = (job.parallel.experts.parts, Rows::new(job).draws);
    let around = kernels::expert_feed(job, &experts).forward;
    let (seconds, joules) = sum(&around)?;
    let mut fed = Fed { seconds, joules, launches: around.len() as u64, products: 0.0 };
    let share = parts as f64 / draws.len().max(1) as f64;
    for (at, rows) in draws.iter().enumerate() {
        let calls = kernels::expert_products(job, &experts, rows, parts).forward;
        let (seconds, joules) = sum(&calls)?;
        fed.products += seconds * share;
        fed.joules += joules * share;
        fed.launches += if at == 0 { calls.len() as u64 * parts } else { 0 };
    }
    fed.seconds += fed.products;
    Ok(fed)
}

/// The exchanges of a layer with experts, beside products that take so many seconds.
///
/// # Errors
/// No protocol of the stack's library does them.
pub(super) fn exchanged(system: &System, stack: &Stack, job: &Job, products: f64) -> Result<Exchanged, Diagnostic> {
    let comm = ExpertComm::new(system, stack, job)?;
    if comm.launches() == 0 {
        return Ok(Exchanged::default());
    }
    let parts = job.parallel.experts.parts;
    Ok(Exchanged {
        seconds: comm.exposed(parts, products / parts as f64),
        by_level: comm.by_level.iter().map(|bytes| 2 * bytes).collect(),
        launches: comm.launches() * parts,
    })
}
