//! Phased execution: a part of a model that all micro-batches go through before the next part comes.
//!
//! Weights come before the first micro-batch and are on the tiles until the last; activations between phases, and the inputs of layers
//! for the backward phase, lie off the chip. The vendor's GPT-3 runs so (graphcore/examples `nlp/gpt3_175B/popxl`, batch
//! serialisation). What is read ahead waits in the I/O tiles' memory, as for every program.

use super::account::counted;
use super::stream::{self, Link, PhaseLine, Streaming};
use super::{check_types, planned};
use crate::arch::{Bsp, BspPart};
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::workload::{Phase, TensorRole, Workload};

/// What goes on around the graph of a phase, in its forward and in its backward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseJob {
    /// Micro-batches that go through a phase.
    pub micro_batches: u64,
    /// Phases, one after the other.
    pub phases: u64,
    /// Bytes of an activation between phases that this chip keeps.
    pub activation_bytes: f64,
    /// Seconds in which chips gather such an activation of their parts.
    pub activation_gather_s: f64,
    /// Such activations that a micro-batch brings in, beside the inputs of layers, by pass.
    pub reads: [f64; 2],
    /// Those that it leaves.
    pub writes: [f64; 2],
    /// Whether the weights come for a pass.
    pub loads: [bool; 2],
    /// Seconds in which chips gather the weights of a phase of their parts.
    pub weight_gather_s: f64,
    /// The weights of the next phase may come while this one computes.
    pub reads_ahead: bool,
    /// How the chip's share of tensors is divided; `is_phase` is set.
    pub part: BspPart,
}

/// Seconds of all phases and micro-batches.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PhaseTime {
    /// Of the supersteps, in the forward and in the backward pass.
    pub compute: [f64; 2],
    /// Waiting for what comes from off the chip and goes there, in both.
    pub waiting: [f64; 2],
    /// Bytes that the chip reads and writes off the chip in both, with the phases' weights and gradients.
    pub off_chip_bytes: [f64; 2],
    /// The update of all weights, with what it streams.
    pub update: f64,
    /// Bytes of a tile that are in use at most.
    pub peak_tile_bytes: f64,
}

/// Runs a part of a model, with its backward pass and its update, as phases.
///
/// # Errors
/// As [`super::run`].
pub fn phases(chip: &Bsp, workload: &Workload, job: &PhaseJob) -> Result<PhaseTime, Diagnostic> {
    check_types(chip, workload)?;
    let mut computing = chip.computing();
    computing.part = BspPart { is_phase: true, ..job.part };
    let chip = &computing;
    let program_of = vec![0; workload.operators.len()];
    let (live, plans) = planned(chip, workload, Mode::Fused, &program_of)?;
    let seconds = |cycles: f64| cycles / chip.clock_hz as f64;
    let cycles = |seconds: f64| seconds * chip.clock_hz as f64;
    // The operators of a phase with its repetitions, in order.
    let lines = |phase: Phase| -> Vec<Streaming> {
        let mut groups: Vec<(u64, Vec<Streaming>)> = Vec::new();
        for one in plans.iter().filter(|one| workload.operators[one.op].phase == phase) {
            let repeat = workload.operators[one.op].repeat;
            let mut streaming = counted(chip, workload, one);
            let is_gathered = one.stream_reads.iter().any(|(t, _)| live.is_carried(workload, *t));
            streaming.read_cycles += if is_gathered { cycles(job.activation_gather_s) } else { 0.0 };
            let parts: Vec<Streaming> = streaming.parts(one.parts).collect();
            match groups.last_mut() {
                Some((known, list)) if *known == repeat => list.extend(parts),
                _ => groups.push((repeat, parts)),
            }
        }
        groups.into_iter().flat_map(|(repeat, list)| vec![list; repeat as usize].concat()).collect()
    };
    let link = Link::of(chip);
    let bytes: f64 = workload
        .tensors
        .iter()
        .filter(|tensor| tensor.role == TensorRole::Weight && tensor.view.is_none())
        .map(|tensor| tensor.stored_bytes() as f64 * tensor.repeat as f64)
        .sum();
    let mut time = PhaseTime {
        peak_tile_bytes: plans.iter().map(|plan| plan.peak_bytes).fold(0.0, f64::max),
        ..PhaseTime::default()
    };
    for (at, phase) in [Phase::Forward, Phase::Backward].into_iter().enumerate() {
        let activation = |count: f64| Streaming {
            read: count * job.activation_bytes,
            read_cycles: count * (job.activation_bytes / link.rate + cycles(job.activation_gather_s)),
            ..Streaming::default()
        };
        let mut micro = vec![activation(job.reads[at])];
        micro.extend(lines(phase));
        let leaves = job.writes[at] * job.activation_bytes;
        micro.push(Streaming { written: leaves, ..Streaming::default() });
        let own = bytes / job.part.weight_shards as f64;
        let (loading, gathering) = (own / link.rate, cycles(job.weight_gather_s));
        // Tensor by tensor where one phase's come while another computes, else one after the other.
        let both = if job.reads_ahead { loading.max(gathering) } else { loading + gathering };
        let head = Streaming { read: bytes, read_cycles: both, written: 0.0, cycles: to_tiles(chip, bytes) };
        let gradients = if phase == Phase::Backward { bytes / job.part.gradient_shards as f64 } else { 0.0 };
        let line = PhaseLine {
            head: if job.loads[at] { vec![head] } else { Vec::new() },
            micro,
            times: job.micro_batches,
            tail: Streaming { written: gradients, cycles: to_tiles(chip, gradients), ..Streaming::default() },
        };
        time.compute[at] = seconds(line.cycles()) * job.phases as f64;
        time.waiting[at] = seconds(stream::exposed_phases(&link, &line, job.phases, job.reads_ahead));
        let moved = |one: &Streaming| one.read + one.written;
        let of_micro: f64 = line.micro.iter().map(moved).sum::<f64>() * job.micro_batches as f64;
        let of_weights = if job.loads[at] { own } else { 0.0 };
        time.off_chip_bytes[at] = (of_micro + of_weights + gradients) * job.phases as f64;
    }
    let update = lines(Phase::Update);
    let all: f64 = update.iter().map(|one| one.cycles).sum();
    time.update = seconds(all + stream::exposed(&link, &update, 1)) * job.phases as f64;
    Ok(time)
}

/// Cycles in which bytes go from the I/O tiles to the others, or back.
fn to_tiles(chip: &Bsp, bytes: f64) -> f64 {
    if chip.tile.io_tiles == 0 { 0.0 } else { bytes / chip.tile.io_tiles as f64 / chip.exchange.bytes_per_cycle }
}
