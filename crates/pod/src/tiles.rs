//! Passes of a part of the model on a chip of tiles, from its supersteps.
//!
//! A step is one program, so that nothing is started anew. What other micro-batches keep on a stage takes memory from it, and
//! weights, gradients and the optimiser's state lie on the replicas in parts where they share them: what then cannot be resident is
//! streamed, and counted. In phases all micro-batches go through some layers before the next come.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::graph::{self, Piece};
use super::memory;
use super::on_chips::{Member, check_adam, check_sequences_at_once, check_whole_sequences};
use super::parallel::{Job, Parallel, Schedule};
use super::pass::{Pass, PieceTime, Pieces};
use super::phased;
use super::system::{Stack, System};
use super::tensor_comm::TensorComm;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{Bsp, BspPart};
use rdusim_graph::workload::{Phase, Workload};
use rdusim_machines::bsp::{self, PhaseJob};
use rdusim_machines::gpu::KernelCost;
use rdusim_models::model::Architecture;

/// How many times its memory a tile has where memory is no matter: more than any model of the presets takes.
const LARGE: u64 = 1 << 12;

impl Member for Bsp {
    fn check_layers(&self, model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
        if architecture.extras.experts.is_some() {
            let title = format!("{model} has experts, which are not modelled on chips of tiles");
            return Err(Diagnostic::new(title).with_help("use a system of GPUs or RDUs, or a model without experts"));
        }
        Ok(())
    }
    fn pieces(&self, system: &System, stack: &Stack, job: &Job, _: &TensorComm) -> Result<Pieces, Diagnostic> {
        check_whole_sequences(job)?;
        check_sequences_at_once(job)?;
        if job.parallel.offload.moves_in_passes() {
            let title =
                "offload of activations and weights is not modelled on chips of tiles, which stream them themselves";
            return Err(Diagnostic::new(title).with_help("use offload=optimizer, or none"));
        }
        check_adam(job)?;
        pieces(system, self, stack, job)
    }
}

/// Times of all pieces.
///
/// # Errors
/// What does not fit the tiles, and what is not modelled on them.
fn pieces(system: &System, chip: &Bsp, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    if job.parallel.schedule.splits_weights() {
        let title = "zb-h1 and zb-v are not modelled on chips of tiles";
        return Err(Diagnostic::new(title).with_help("use 1f1b or interleaved:PARTS"));
    }
    let chip = job.parallel.tiled.on(chip)?;
    let chip = &chip;
    if job.parallel.tiled.is_phased() {
        return in_phases(system, chip, stack, job);
    }
    let waiting = memory::waiting(job, stack.kind, 0);
    let mut resident = chip.clone();
    resident.part = part(job);
    let streamed = resident.clone();
    resident.tile.reserved_bytes += waiting.div_ceil(chip.tile.count);
    let has_room = resident.tile.reserved_bytes < chip.tile.sram_bytes;
    let attention = attention_share(chip, job)?;
    let all = |chip: &Bsp, stack: &Stack, job: &Job| all(chip, stack, job).map(|of| Pieces { attention, ..of });
    let on_tiles = if has_room { Some(all(&resident, stack, job)) } else { None };
    if waiting == 0 {
        return on_tiles.unwrap_or_else(|| all(&resident, stack, job));
    }
    // What waits lies on the tiles or off the chip, whichever is faster: there it goes, and comes back, once a micro-batch.
    let each = memory::waiting_of_one(job, stack.kind, 0) as f64;
    let moving = each / chip.clock_hz as f64 / chip.memory_bytes_per_cycle();
    let off_chip = all(&streamed, stack, job).map(|mut pieces| {
        pieces.layers.forward.compute += moving;
        pieces.layers.backward.compute += moving;
        pieces
    });
    let seconds = |pieces: &Pieces| pieces.layers.forward.seconds() + pieces.layers.backward.seconds();
    match (on_tiles, off_chip) {
        (Some(Ok(on_tiles)), Ok(off_chip)) if seconds(&off_chip) < seconds(&on_tiles) => Ok(off_chip),
        (Some(Ok(on_tiles)), _) => Ok(on_tiles),
        (_, off_chip) => off_chip,
    }
}

/// Share of a layer's time that is its attention block, where stages have other numbers of those than of feed-forward blocks.
fn attention_share(chip: &Bsp, job: &Job) -> Result<f64, Diagnostic> {
    if !job.has_uneven_blocks() {
        return Ok(0.5);
    }
    let workload = graph_of(job, Piece::Layers(1))?;
    // Operators of the backward pass have the names of those of the forward pass, with something behind.
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let forward = || workload.operators.iter().filter(|operator| operator.phase == Phase::Forward);
    let behind =
        forward().skip_while(|operator| !operator.name.starts_with("up") && !operator.name.starts_with("gate"));
    let of_block: BTreeSet<String> = behind.map(|operator| stem(&operator.name)).collect();
    let (mut attention, mut all) = (0.0, 0.0);
    for operator in bsp::layout(chip, &workload, Mode::Fused)? {
        if operator.phase == Phase::Update {
            continue;
        }
        let cycles: f64 = operator.steps.iter().map(|step| step.cycles * step.times as f64).sum();
        all += cycles;
        let is_of_block = of_block.contains(&stem(&workload.operators[operator.op].name));
        attention += if is_of_block { 0.0 } else { cycles };
    }
    Ok(if all > 0.0 { attention / all } else { 0.5 })
}

/// What of the model's tensors a chip has.
fn part(job: &Job) -> BspPart {
    let [state_shards, gradient_shards, weight_shards] = job.parallel.sharding();
    BspPart { state_shards, gradient_shards, weight_shards, ..BspPart::ALL }
}

/// The graph of a piece.
fn graph_of(job: &Job, piece: Piece) -> Result<Workload, Diagnostic> {
    graph::workload_on_tiles(job, piece)?.workload("the part of the model on one chip", 0)
}

/// Times of all pieces on a chip with so much memory.
fn all(chip: &Bsp, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    Pieces::each(job, |piece| of_piece(chip, stack, job, piece))
}

fn of_piece(chip: &Bsp, stack: &Stack, job: &Job, piece: Piece) -> Result<PieceTime, Diagnostic> {
    let outcome = bsp::run(chip, &graph_of(job, piece)?, &[Mode::Fused])?.remove(0);
    Ok(PieceTime::of_program(job, piece, stack, chip.clock_hz, &outcome))
}

/// Times of one layer, the embedding and the logits that no stage goes below: of tiles whose memory holds everything, so that nothing is
/// streamed and no operator runs in parts. A layer counts as what another one adds to it, where that is less.
///
/// # Errors
/// What is not modelled on tiles.
pub(super) fn least_pieces(chip: &Bsp, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    let mut chip = job.parallel.tiled.on(chip)?;
    chip.tile.sram_bytes = chip.tile.sram_bytes.saturating_mul(LARGE);
    let architecture = Architecture { layers: 1, ..job.architecture };
    let parallel = Parallel { pp: 1, schedule: Schedule::OneForwardOneBackward, ..job.parallel };
    let job = Job { architecture, parallel, ..job.clone() };
    let one = all(&chip, stack, &job)?;
    let two = of_piece(&chip, stack, &job, Piece::Layers(2))?;
    let least = |alone: Pass, both: Pass| {
        let added = both.plus(alone.scaled(-1.0));
        if added.seconds() < alone.seconds() { added } else { alone }
    };
    let mut layers = one.layers;
    layers.forward = least(one.layers.forward, two.forward);
    layers.backward = least(one.layers.backward, two.backward);
    // A plan that is slower may take fewer joules.
    let without = |piece: PieceTime| PieceTime {
        forward: Pass { joules: 0.0, ..piece.forward },
        backward: Pass { joules: 0.0, ..piece.backward },
        update: KernelCost { joules: 0.0, ..piece.update },
        ..piece
    };
    let [layers, embedding, logits] = [layers, one.embedding, one.logits].map(without);
    Ok(Pieces { layers, embedding, logits, ..one })
}

/// Times of all pieces as phases. A micro-batch's pass has its share of what a phase waits for; the update is that of all phases.
fn in_phases(system: &System, chip: &Bsp, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    let p = &job.parallel;
    let layers = p.tiled.phase_layers;
    let micro = job.micro_batches();
    let whole = 2 * job.micro_batch * job.tokens() * job.architecture.hidden;
    let part = BspPart { activation_shards: p.tp1(), ..part(job) };
    let gather = phased::activation_gather(system, stack, job)?;
    let streamed = Cell::new([0.0, 0.0]);
    let run = |piece: Piece| -> Result<PieceTime, Diagnostic> {
        // Passes that read and write activations between phases, and those that weights come for.
        let (piece, parameters, reads, writes, loads) = match piece {
            Piece::Layers(_) | Piece::Routed => {
                (Piece::Layers(layers), layers * job.layer_parameters(), [1.0, 1.0], [0.0, 1.0], [true; 2])
            }
            Piece::Embedding => (piece, job.embedding_parameters(), [0.0, 1.0], [1.0, 0.0], [true; 2]),
            // Forward and backward pass of a micro-batch follow each other.
            Piece::Logits => (piece, job.logits_parameters(), [1.0, 0.0], [0.0, 1.0], [true, false]),
        };
        let phases = if matches!(piece, Piece::Layers(_)) { job.architecture.layers / layers } else { 1 };
        let around = PhaseJob {
            micro_batches: micro,
            phases,
            activation_bytes: (whole / p.tp) as f64,
            activation_gather_s: gather,
            reads,
            writes,
            loads,
            weight_gather_s: phased::weight_gather(system, stack, job, parameters)?,
            reads_ahead: p.prefetch > 0,
            part,
        };
        let found = bsp::phases(chip, &graph_of(job, piece)?, &around)?;
        let [bytes, most] = streamed.get();
        streamed.set([bytes + found.off_chip_bytes.iter().sum::<f64>(), f64::max(most, found.peak_tile_bytes)]);
        let pass = |at: usize| {
            let each = |seconds: f64| seconds / micro as f64 * stack.kernel_factor;
            let joules = found.joules[at] / micro as f64;
            Pass { compute: each(found.compute[at]), waiting: each(found.waiting[at]), joules, ..Pass::default() }
        };
        let (forward, mut backward) = (pass(0), pass(1));
        if matches!(piece, Piece::Layers(_)) {
            backward.recompute = forward.compute.min(backward.compute);
            backward.compute -= backward.recompute;
        }
        let update = KernelCost { seconds: found.update, joules: found.joules[2] };
        Ok(PieceTime { forward, backward, weights: Pass::default(), update })
    };
    let pieces = Pieces::each(job, run)?;
    Ok(Pieces { streamed: streamed.get(), ..pieces })
}
