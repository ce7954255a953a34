//! What the passes of a stage are made of, and what its replicas gather and scatter during them.
//!
//! From `ZeRO`-2 gradients, and with `ZeRO`-3 weights (Rajbhandari et al., 2020; Zhao et al., *`PyTorch` FSDP*, 2023), lie on
//! the replicas in parts. A unit is a layer, the embedding or the logits: its weights are gathered before each pass that
//! reads them and given up after it, its gradients are scattered after each backward pass. Otherwise a pass is one unit.

use super::collective::{Call, CollectiveKind, Planned};
use super::engine::{Collective, Passes, ReductionPhase, Stream, Unit};
use super::parallel::{Job, Parallel};
use super::pass::{Pass, PieceTime, Pieces};
use super::system::StackKind;
use super::unit_calls::{BACKWARD, EMBEDDING, EXPERTS, LAYER, LOGITS, UnitCall, UnitCalls};
use rdusim_base::diagnostics::Diagnostic;

/// A part of a stage: one of the runs of layers that an interleaved schedule gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StagePart {
    /// The stage, from 0.
    pub stage: u64,
    /// The part, from 0.
    pub part: u64,
}

/// What a part of a stage is made of: so many equal units of a kind, and the time of all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) kind: usize,
    pub(super) time: PieceTime,
    pub(super) count: u64,
}

/// Whole nanoseconds.
pub(super) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The pieces of a part of a stage in the order of a forward pass.
pub(super) fn pieces_of(job: &Job, pieces: &Pieces, StagePart { stage, part }: StagePart) -> Vec<Piece> {
    let p = &job.parallel;
    let mut list = Vec::new();
    match job.mixed_layers() {
        (count, 0) => list.push(Piece { kind: LAYER, time: pieces.layers, count }),
        (without, with) => {
            // The last of as many layers has experts.
            let (each, count) = (1.0 / with as f64, without / with);
            let group = [
                Piece { kind: LAYER, time: pieces.layers.scaled(each), count },
                Piece { kind: EXPERTS, time: pieces.expert_layers.scaled(each), count: 1 },
            ];
            list.extend((0..with).flat_map(|_| group).filter(|piece| piece.count > 0));
        }
    }
    if stage == 0 && part == 0 {
        list.insert(0, Piece { kind: EMBEDDING, time: pieces.embedding, count: 1 });
    }
    if job.has_logits(stage) && part + 1 == p.schedule.parts() {
        list.push(Piece { kind: LOGITS, time: pieces.logits, count: 1 });
    }
    list
}

/// Collectives of the replicas of a stage on its parameters after the last backward pass, one after the other.
pub(super) fn end_collectives(stack: StackKind, p: &Parallel) -> &'static [CollectiveKind] {
    match p.zero {
        _ if p.replicas() == 1 || stack.reduces_on_the_way() => &[],
        // Weights are gathered at the start of every phase.
        3 if p.tiled.is_phased() => &[CollectiveKind::ReduceScatter],
        2 if p.tiled.is_phased() => &[CollectiveKind::ReduceScatter, CollectiveKind::AllGather],
        0 => &[CollectiveKind::AllReduce],
        1 => &[CollectiveKind::ReduceScatter, CollectiveKind::AllGather],
        // Gradients were scattered during the backward passes.
        2 => &[CollectiveKind::AllGather],
        _ => &[],
    }
}

/// Bytes of the gradients of a table of tokens that the first and the last stage add up, if both have it. Of gradients that are
/// divided, each replica adds its part.
pub(super) fn tied_bytes(job: &Job) -> Option<u64> {
    let all = job.gradients().bytes() * job.logits_parameters();
    has_tied_table(job).then(|| all.div_ceil(job.parallel.sharding()[1]))
}

/// Whether the first and the last stage have the same table of tokens.
pub(super) fn has_tied_table(job: &Job) -> bool {
    let p = &job.parallel;
    job.architecture.tied && p.pp > 1 && !p.schedule.is_v()
}

/// What the forward and the backward pass of a part of a stage take first: gathering what other stages have sent.
pub(super) fn received(job: &Job, pieces: &Pieces, StagePart { stage, part }: StagePart) -> [Pass; 2] {
    let p = &job.parallel;
    let (last, is_last) = (stage + 1 == p.pp, part + 1 == p.schedule.parts());
    let first = stage == 0 && part == 0;
    let is_end = if p.schedule.is_v() {
        [first || last && is_last, job.has_logits(stage) && is_last || last && part == 0]
    } else {
        [first, last && is_last]
    };
    is_end.map(|is_end| {
        let tensor_comm = if is_end || p.pp == 1 { 0.0 } else { pieces.received };
        Pass { tensor_comm, ..Pass::default() }
    })
}

/// Forward pass, backward pass and pass for gradients of weights of a part of a stage.
pub(super) fn pass_times(job: &Job, pieces: &Pieces, place: StagePart) -> [Pass; 3] {
    let [forward, backward] = received(job, pieces, place);
    let mut sum = [forward, backward, Pass::default()];
    for Piece { kind, time, .. } in pieces_of(job, pieces, place) {
        let share = if kind == LAYER { job.time_share(place.stage, pieces.attention) } else { 1.0 };
        let own = [time.forward, time.backward, time.weights].map(|pass| pass.scaled(share));
        sum = [0, 1, 2].map(|at| sum[at].plus(own[at]));
    }
    let [forward, backward, weights] = sum;
    if pieces.swapped.rate > 0.0 {
        let of = [pieces.layers, pieces.embedding, pieces.logits];
        let waits = pieces.swapped.exposed(of.map(|piece| [piece.forward.seconds(), piece.backward.seconds()]));
        let [forward, backward] =
            [(forward, waits[0]), (backward, waits[1])].map(|(pass, offload)| Pass { offload, ..pass });
        return [forward, backward, weights];
    }
    let [forward, backward] = pieces.moving.exposed(job.parallel.schedule, [forward, backward], weights.seconds());
    [forward, backward, weights]
}

/// The passes of a stage as the engine takes them; `update_ns` is the optimiser's step of a micro-batch or batch.
pub(super) fn passes(job: &Job, pieces: &Pieces, stage: u64, update_ns: u64) -> Passes {
    let p = &job.parallel;
    let whole = |ns: u64| vec![Unit { ns, ..Unit::default() }];
    let chunks = p.seq_chunks;
    let mut all = Passes { chunks, ..Passes::default() };
    // A stage has several parts, or a sequence has.
    for (part, chunk) in (0..p.schedule.parts()).flat_map(|part| (0..chunks).map(move |chunk| (part, chunk))) {
        let pieces = &pieces.of_chunk(chunk, chunks);
        let place = StagePart { stage, part };
        all.update.push(whole(update_ns));
        let [forward, backward, weights] = if p.shards_passes() {
            unit_passes(job, pieces, place)
        } else {
            pass_times(job, pieces, place).map(|pass| whole(ns(pass.seconds())))
        };
        all.forward.push(forward);
        all.backward.push(backward);
        all.weights.push(weights);
    }
    all
}

/// Passes of a part in units, of which each has its gathers and scatters.
fn unit_passes(job: &Job, pieces: &Pieces, place: StagePart) -> [Vec<Unit>; 3] {
    let p = &job.parallel;
    let (mut forward, mut backward, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for Piece { kind, time, count } in pieces_of(job, pieces, place) {
        let gather = (p.zero >= 3).then_some(kind);
        forward.extend(split(time.forward, count, Unit { gather, ..Unit::default() }));
        // The gradient of a table needs no row of it.
        let gather = gather.filter(|kind| *kind != EMBEDDING).map(|kind| kind + BACKWARD);
        let scatter = Some(kind);
        if p.schedule.splits_weights() {
            backward.extend(split(time.backward, count, Unit { gather, ..Unit::default() }));
            weights.extend(split(time.weights, count, Unit { scatter, ..Unit::default() }));
        } else {
            backward.extend(split(time.backward, count, Unit { gather, scatter, ..Unit::default() }));
        }
    }
    backward.reverse();
    weights.reverse();
    for (pass, received) in [&mut forward, &mut backward].into_iter().zip(received(job, pieces, place)) {
        if received.tensor_comm > 0.0 {
            pass.insert(0, Unit { ns: ns(received.tensor_comm), ..Unit::default() });
        }
    }
    [forward, backward, weights]
}

/// A pass as equal units that add up to it; the first has what is left of rounding.
fn split(pass: Pass, count: u64, unit: Unit) -> impl Iterator<Item = Unit> {
    let all = ns(pass.seconds());
    let each = all / count.max(1);
    (0..count).map(move |at| Unit { ns: if at == 0 { all - each * (count - 1) } else { each }, ..unit })
}

/// Chips of a stage that gather and scatter together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharers<'g> {
    /// All replicas of each tensor rank.
    pub replicas: &'g [Vec<u64>],
    /// Those of them that have the same experts.
    pub holders: &'g [Vec<u64>],
    /// The actors that they are.
    pub actors: &'g [usize],
}

/// The streams of scatters and, with `ZeRO`-3, of gathers of the replicas of a stage; `run` plans a collective.
///
/// # Errors
/// No protocol of the stack's library does them.
pub(super) fn streams(
    job: &Job,
    calls: &UnitCalls,
    sharers: Sharers<'_>,
    run: impl Fn(&Call<'_>) -> Result<Planned, Diagnostic>,
) -> Result<Vec<Stream>, Diagnostic> {
    let collective = |kind: CollectiveKind, list: &[UnitCall]| -> Result<Collective, Diagnostic> {
        let mut phases = Vec::new();
        for call in list {
            let groups = if call.of_holders { sharers.holders } else { sharers.replicas };
            let mut planned = run(&Call { kind, groups, bytes: call.bytes })?;
            planned.latency_s += call.beside_s;
            phases.extend(phases_of(&planned));
        }
        Ok(Collective { phases })
    };
    let stream = |kind, lists: &[Vec<UnitCall>]| -> Result<Stream, Diagnostic> {
        let collectives = lists.iter().map(|list| collective(kind, list)).collect::<Result<Vec<_>, Diagnostic>>()?;
        Ok(Stream { actors: sharers.actors.to_vec(), collectives })
    };
    let mut streams = vec![stream(CollectiveKind::ReduceScatter, &calls.scatters)?];
    if job.parallel.zero >= 3 {
        streams.push(stream(CollectiveKind::AllGather, &calls.gathers)?);
    }
    Ok(streams)
}

/// The phases of a collective as the engine takes them.
pub(super) fn phases_of(planned: &Planned) -> Vec<ReductionPhase> {
    let phases = planned.phases.iter().enumerate().map(|(at, phase)| {
        let delay_ns = if at == 0 { ns(planned.latency_s + planned.own_copy_s) } else { 0 };
        ReductionPhase { delay_ns, demand: phase.demand.clone(), rate_share: planned.rate_share }
    });
    phases.collect()
}
