//! Optimisers and compressed gradients: what they keep, move and compute. What they do to a model's quality is not simulated; what was
//! published of it stands beside the result.

use super::choices::{Gradients, Optimizer};
use super::parallel::Job;
use super::system::StackKind;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::ProductShape;
use rdusim_machines::gpu::{KernelCall, KernelCost, kernel_cost};
use rdusim_models::model::{Activation, Position};

/// Elements of a block of 8-bit state, which has a maximum in fp32 (Dettmers et al., 2022).
const BLOCK: u64 = 2048;

/// Rows and columns of the matrices of a layer on a chip, in the order of a forward pass.
pub(super) fn matrices(job: &Job) -> Vec<(u64, u64)> {
    let (a, t) = (&job.architecture, job.parallel.tp);
    let (wide, kv) = (a.query_width(), a.kv_width());
    let up = if a.activation == Activation::GatedSilu { 2 } else { 1 };
    vec![
        (a.hidden, (wide + 2 * kv) / t),
        (wide / t, a.hidden),
        (a.hidden, up * a.feed_forward / t),
        (a.feed_forward / t, a.hidden),
    ]
}

/// The matrices of a stage on a chip, each with how many there are: those of layers, and tables; and those of experts.
fn of_stage(job: &Job, stage: u64) -> [Vec<(u64, u64, u64)>; 2] {
    let (a, p) = (&job.architecture, &job.parallel);
    let (_, with) = job.mixed_layers();
    let with = with * p.schedule.parts();
    let layers = job.layers_of_stage(stage).ceil() as u64;
    let mut list = Vec::new();
    let mut of_experts = Vec::new();
    for (at, (n, m)) in matrices(job).into_iter().enumerate() {
        // Of layers with experts the first two, of attention.
        let count = if at < 2 { layers } else { layers - with };
        list.push((count, n, m));
    }
    if let Some(experts) = job.experts() {
        let up = if a.activation == Activation::GatedSilu { 2 } else { 1 };
        let block = |width: u64| [(a.hidden, up * width / p.tp), (width / p.tp, a.hidden)];
        let local = with * (experts.count / p.experts.ep);
        of_experts.extend(block(experts.width).map(|(n, m)| (local, n, m)));
        list.push((with, a.hidden, experts.count));
        list.extend(block(experts.shared).into_iter().filter(|_| experts.shared > 0).map(|(n, m)| (with, n, m)));
    }
    let tokens = (1, a.vocabulary.div_ceil(p.tp), a.hidden);
    if stage == 0 {
        list.push(a.extras.patches.map_or(tokens, |values| (1, u64::from(values), a.hidden)));
        if let Position::Learned(rows) = a.position {
            list.push((1, rows, a.hidden));
        }
    }
    if job.has_logits(stage) && (stage > 0 || !a.tied) {
        list.push(tokens);
    }
    [list, of_experts]
}

/// Bytes of the optimiser's state of a stage on a chip, with the master weights in fp32, before it is divided: of what every replica
/// has, and of experts.
pub(super) fn state_parts(job: &Job, stage: u64) -> [u64; 2] {
    let (parts, matrices) = (job.stage_parts(stage), of_stage(job, stage));
    [0, 1].map(|at| {
        let parameters = parts[at];
        match job.parallel.optimizer {
            Optimizer::Adam => 12 * parameters,
            // Two moments of a byte.
            Optimizer::Adam8bit => 6 * parameters + 2 * 4 * parameters.div_ceil(BLOCK),
            Optimizer::Lion => 8 * parameters,
            // Sums of the rows and of the columns of each matrix.
            Optimizer::Adafactor => {
                4 * parameters + matrices[at].iter().map(|(count, n, m)| 4 * count * (n + m)).sum::<u64>()
            }
            Optimizer::Sgd => 4 * parameters,
        }
    })
}

impl Job {
    /// As what replicas add up gradients.
    pub fn gradients(&self) -> Gradients {
        self.parallel.gradients.unwrap_or_default()
    }

    /// Bytes of a gradient that a chip keeps: as `--parallel` says, else as the stack does. Megatron-LM has those of bf16 weights in fp32
    /// (its `accumulate_allreduce_grads_in_fp32`), while measured runs of 2021, with fp16 weights, add up 16 bits. Where gradients are
    /// scattered in every pass, and with weights that lie with the host, they are those of `DeepSpeed`, in the weights' type.
    pub fn gradient_bytes(&self, stack: StackKind) -> u64 {
        let p = &self.parallel;
        let is_whole = !p.shards_passes() && !p.offload.weights;
        let usual = if stack == StackKind::Megatron && is_whole { Gradients::Fp32 } else { Gradients::Bf16 };
        p.gradients.unwrap_or(usual).bytes()
    }

    /// Whether the products that give gradients of weights add them to those in fp32, so that no kernel does: Megatron-LM's layers since
    /// they divide along the sequence (`LinearWithGradAccumulationAndAsyncCommunication`), and whoever asks for fp32.
    pub(super) fn fuses_accumulation(&self, stack: StackKind) -> bool {
        let p = &self.parallel;
        self.gradient_bytes(stack) == Gradients::Fp32.bytes() && (p.sp || p.gradients.is_some())
    }
}

/// Bytes that a chip's gradients of a stage are when replicas add them up: of what every replica has, and of experts.
pub(super) fn gradient_parts(job: &Job, stage: u64) -> [u64; 2] {
    let (parts, matrices) = (job.stage_parts(stage), of_stage(job, stage));
    [0, 1].map(|at| {
        let parameters = parts[at];
        match job.gradients() {
            of @ (Gradients::Bf16 | Gradients::Fp32) => of.bytes() * parameters,
            Gradients::Int8 => parameters + 4 * parameters.div_ceil(BLOCK),
            // Two factors of each matrix; biases and norms as they are.
            Gradients::PowerSgd(rank) => {
                let list = &matrices[at];
                let in_matrices: u64 = list.iter().map(|(count, n, m)| count * n * m).sum();
                let factors: u64 = list.iter().map(|(count, n, m)| count * rank_of(rank, *n, *m) * (n + m)).sum();
                2 * (factors + parameters.saturating_sub(in_matrices))
            }
        }
    })
}

/// A matrix has no more than its smaller side.
fn rank_of(rank: u64, n: u64, m: u64) -> u64 {
    rank.min(n).min(m)
}

/// Bytes that a chip keeps of what compressing left out of the gradients of a stage.
pub(super) fn left_out_bytes(job: &Job, stage: u64) -> u64 {
    if matches!(job.parallel.gradients, Some(Gradients::PowerSgd(_))) { 2 * job.stage_parameters(stage) } else { 0 }
}

/// Kernels that compress the gradients of a stage and expand what comes of them.
fn compression(job: &Job, stage: u64) -> Vec<KernelCall> {
    let parameters = job.stage_parameters(stage) as f64;
    let stream = |bytes: f64| KernelCall::Stream { bytes: bytes * parameters, operations: 2.0 * parameters };
    match job.parallel.gradients {
        None | Some(Gradients::Bf16 | Gradients::Fp32) => Vec::new(),
        // Read, and written as bytes; and back.
        Some(Gradients::Int8) => vec![stream(3.0), stream(3.0)],
        // What was left out is added; both factors, and their product; what is left out now.
        Some(Gradients::PowerSgd(rank)) => {
            let mut list = vec![stream(6.0), stream(6.0)];
            for (count, n, m) in of_stage(job, stage).into_iter().flatten() {
                let r = rank_of(rank, n, m);
                for (m, n, k) in [(n, r, m), (m, r, n), (n, m, r)] {
                    let shape = ProductShape { m, n, k };
                    list.push(KernelCall::Product { dtype: Dtype::Bf16, count, shape });
                }
            }
            list
        }
    }
}

/// What the update of a stage takes on a GPU, if `share` replicas share it out.
///
/// # Errors
/// What the chip's simulation refuses.
pub(super) fn update(gpu: &Gpu, job: &Job, stage: u64, share: f64) -> Result<KernelCost, Diagnostic> {
    let p = &job.parallel;
    // Gradients are scaled and their norm taken; then the state is read and written, gradients read and weights written.
    let of_gradients = if share > 1.0 { p.sharding()[1] as f64 } else { 1.0 };
    let (parts, states) = (job.stage_parts(stage), state_parts(job, stage));
    // Experts are shared out over those that have the same alone.
    let fewer = [1.0, p.experts.ep as f64];
    let gradient = job.gradients().bytes() as f64;
    let bytes = |at: usize| {
        let parameters = parts[at] as f64;
        let of_state = 2.0 * states[at] as f64 + (gradient + 2.0) * parameters;
        3.0 * gradient * parameters / (of_gradients / fewer[at]).max(1.0) + of_state / (share / fewer[at]).max(1.0)
    };
    let bytes = bytes(0) + bytes(1);
    let update = KernelCall::Stream { bytes, operations: bytes / 4.0 };
    let mut sum = KernelCost::default();
    for call in compression(job, stage).iter().chain([&update]) {
        let cost = kernel_cost(gpu, call)?;
        sum = KernelCost { seconds: sum.seconds + cost.seconds, joules: sum.joules + cost.joules };
    }
    Ok(sum)
}

/// What was published of the quality that this keeps, if it is not the usual.
pub(super) fn notes(job: &Job, stack: StackKind) -> Vec<String> {
    let p = &job.parallel;
    let optimizer = match p.optimizer {
        Optimizer::Adam => None,
        Optimizer::Adam8bit => Some(
            "adam-8bit: state in bytes with a maximum for every 2,048; published as equal to 32-bit state over language, vision and \
             translation models (Dettmers et al., 8-bit Optimizers via Block-wise Quantization, 2022)",
        ),
        Optimizer::Lion => Some(
            "lion: one moment; published as equal to or better than Adam on language models (Chen et al., Symbolic Discovery of \
             Optimization Algorithms, 2023), with a smaller learning rate and more weight decay",
        ),
        Optimizer::Adafactor => Some(
            "adafactor: sums of rows and columns in place of the second moment, no first one; published as comparable to Adam on \
             translation (Shazeer and Stern, Adafactor, 2018)",
        ),
        Optimizer::Sgd => {
            Some("sgd: no state beside master weights; transformers are published as training worse with it")
        }
    };
    let gradients = match job.gradients() {
        Gradients::Bf16 if job.gradient_bytes(stack) > 2 => {
            Some("gradients are kept in fp32, 4 bytes a parameter, and added up over replicas in bf16".to_owned())
        }
        Gradients::Bf16 => None,
        Gradients::Fp32 => Some("gradients are kept and added up in fp32: 4 bytes a parameter".to_owned()),
        Gradients::Int8 => {
            Some("gradients are added up as bytes: no published result on models of this size is cited".to_owned())
        }
        Gradients::PowerSgd(rank) => Some(format!(
            "powersgd:{rank}: published as reaching the accuracy of whole gradients on small image and language models (Vogels et al., \
             PowerSGD, 2019)"
        )),
    };
    let stash = p.gist.then(|| {
        "stash=gist: kept activations in 8 bits, masks in one; published with 8 to 16 bits as keeping the accuracy of convolutional networks \
         (Jain et al., Gist: Efficient Data Encoding for Deep Neural Network Training, 2018); no result on transformers is cited"
            .to_owned()
    });
    optimizer.map(str::to_owned).into_iter().chain(gradients).chain(stash).collect()
}
