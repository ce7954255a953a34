//! Phased execution: a part of a model that all micro-batches go through before the next part comes.
//!
//! Weights come before the first micro-batch and are on the tiles until the last; activations between phases, and the inputs of layers
//! for the backward phase, lie off the chip. The vendor's GPT-3 runs so (graphcore/examples `nlp/gpt3_175B/popxl`, batch
//! serialisation). What is read ahead waits in the I/O tiles' memory, as for every program.

use super::account::{counted, joules};
use super::stream::{self, Link, PhaseLine, Streaming};
use super::{check_types, planned};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{Bsp, BspPart};
use rdusim_graph::workload::{Phase, TensorRole, Workload};

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
    /// Joules beside static power, of both passes and of the update.
    pub joules: [f64; 3],
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
    let of_phase = |phase: Phase| -> f64 {
        let of_phase = plans.iter().filter(|one| workload.operators[one.op].phase == phase);
        of_phase.map(|one| joules(chip, workload, one)).sum()
    };
    let off_chip = |bytes: f64| chip.memory.iter().next().map_or(0.0, |tier| tier.energy.joules(bytes));
    let (micro_batches, all_phases) = (job.micro_batches as f64, job.phases as f64);
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
        time.off_chip_bytes[at] = (of_micro + of_weights + gradients) * all_phases;
        // What operators stream is in their joules already.
        let around = (job.reads[at] + job.writes[at]) * job.activation_bytes * micro_batches + of_weights + gradients;
        time.joules[at] = (of_phase(phase) * micro_batches + off_chip(around)) * all_phases;
    }
    let update = lines(Phase::Update);
    let all: f64 = update.iter().map(|one| one.cycles).sum();
    time.update = seconds(all + stream::exposed(&link, &update, 1)) * all_phases;
    // Of an operator that runs once in many micro-batches, one has its share.
    time.joules[2] = of_phase(Phase::Update) * micro_batches * all_phases;
    Ok(time)
}

/// Cycles in which bytes go from the I/O tiles to the others, or back.
fn to_tiles(chip: &Bsp, bytes: f64) -> f64 {
    if chip.tile.io_tiles == 0 { 0.0 } else { bytes / chip.tile.io_tiles as f64 / chip.exchange.bytes_per_cycle }
}

#[cfg(test)]
mod tests {
    use super::super::tests::chip;
    use super::*;
    use rdusim_base::units::Dtype;
    use rdusim_graph::workload;

    /// A feed-forward block that trains on four micro-batches, `layers` times.
    fn block(layers: u64) -> Workload {
        let text = format!(
            "schema = 1\nname = \"block\"\ndtype = \"fp16\"\n[dims]\nt = 512\nd = 512\nf = 2048\n\
             [training]\noptimizer = \"adam\"\nactivations = \"recomputed\"\nmicro_batches = 4\n\
             [[blocks]]\nname = \"layer\"\nrepeat = {layers}\n\
             [[tensors]]\nname = \"x\"\nshape = [\"t\", \"d\"]\nrole = \"input\"\n\
             [[tensors]]\nname = \"up\"\nshape = [\"d\", \"f\"]\nrole = \"weight\"\n\
             [[tensors]]\nname = \"down\"\nshape = [\"f\", \"d\"]\nrole = \"weight\"\n\
             [[operators]]\nname = \"a\"\nkind = \"gemm\"\ninputs = [\"x\", \"up\"]\noutput = \"h\"\nblock = \"layer\"\n\
             [[operators]]\nname = \"g\"\nkind = \"gelu\"\ninputs = [\"h\"]\noutput = \"i\"\nblock = \"layer\"\n\
             [[operators]]\nname = \"b\"\nkind = \"gemm\"\ninputs = [\"i\", \"down\"]\noutput = \"y\"\nblock = \"layer\"\n"
        );
        workload::parse("block.toml", &text, &[], 0).unwrap()
    }

    const X: f64 = 512.0 * 512.0 * 2.0;
    const W: f64 = 2.0 * 512.0 * 2048.0 * 2.0;

    fn job(phases: u64, part: BspPart) -> PhaseJob {
        PhaseJob {
            micro_batches: 4,
            phases,
            activation_bytes: X / part.activation_shards as f64,
            activation_gather_s: 0.0,
            reads: [1.0, 1.0],
            writes: [0.0, 1.0],
            loads: [true; 2],
            weight_gather_s: 0.0,
            reads_ahead: false,
            part,
        }
    }

    #[test]
    fn a_phase_moves_its_weights_once_and_activations_for_every_micro_batch() {
        let bow = chip("bow", &["arch.tile.io_tiles=64"]);
        for (layers, phases) in [(1, 2), (2, 1)] {
            let found = phases_of(&bow, layers, phases, BspPart::ALL);
            // Forward: an activation in for a phase, the input of every layer out. Backward: those in, a gradient in and out of a
            // phase, and the sums of gradients out.
            let (all, of_phases) = ((layers * phases) as f64, phases as f64);
            let forward = all * W + 4.0 * X * (of_phases + all);
            let backward = 2.0 * all * W + 4.0 * X * (all + 2.0 * of_phases);
            let expected = [forward, backward];
            for (found, expected) in found.off_chip_bytes.into_iter().zip(expected) {
                assert!((found / expected - 1.0).abs() < 1e-6, "{layers} x {phases}: {found}, expected {expected}");
            }
            assert!(found.compute[1] > 2.0 * found.compute[0]);
            // Joules: what is multiplied, and what moves off the chip, are a lower bound of each pass.
            let macs = 4.0 * all * W / 2.0 * 512.0;
            let of_macs = macs * bow.energy.mac_pj[&Dtype::Fp16] * 1e-12;
            let least = of_macs + bow.memory.iter().next().unwrap().energy.joules(found.off_chip_bytes[0]);
            assert!((least..3.0 * least).contains(&found.joules[0]), "{} {least}", found.joules[0]);
            assert!(found.joules[1] > found.joules[0] && found.joules[2] > 0.0);
        }
    }

    #[test]
    fn parts_on_other_chips_are_not_moved() {
        let bow = chip("bow", &["arch.tile.io_tiles=64"]);
        let part =
            BspPart { state_shards: 4, gradient_shards: 4, weight_shards: 4, activation_shards: 2, is_phase: true };
        let found = phases_of(&bow, 1, 1, part);
        let expected = [W / 4.0 + 4.0 * X, W / 2.0 + 4.0 * 1.5 * X];
        for (found, expected) in found.off_chip_bytes.into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found}, expected {expected}");
        }
    }

    fn phases_of(bow: &Bsp, layers: u64, phases: u64, part: BspPart) -> PhaseTime {
        super::phases(bow, &block(layers), &job(phases, part)).unwrap()
    }
}
