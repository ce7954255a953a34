//! What only chips of tiles do: a second axis of tensor ranks, and phases.
//!
//! With two axes (graphcore/examples `nlp/gpt3_175B/popxl`, `GPTDecoderBlockTP2D`) the columns of the model are divided over `tp2` ranks
//! that are neighbours, heads and the feed-forward block over the others. A product of a part of the model's columns is added up over
//! the ranks that share them, one that makes them over the ranks that share heads: eight sums a layer, forward and backward.

use super::collective::{Call, CollectiveKind, Planned, plan};
use super::network::Network;
use super::parallel::{Job, Parallel, Recompute, Schedule};
use super::system::{Stack, System};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::ByteSize;

impl Parallel {
    /// The order of micro-batches, as on the command line.
    pub fn schedule_name(&self) -> String {
        if self.tiled.is_phased() { format!("phased:{}", self.tiled.phase_layers) } else { self.schedule.name() }
    }

    /// Tensor ranks that share heads and the feed-forward block.
    pub fn tp1(&self) -> u64 {
        self.tp / self.tiled.tp2.max(1)
    }
}

impl Job {
    /// Refuses what cannot be divided or does not go together.
    ///
    /// # Errors
    /// The key, and what to change.
    pub(super) fn check_tiled(&self) -> Result<(), Diagnostic> {
        let job = self;
        let (p, a, tiled) = (&job.parallel, &job.architecture, &job.parallel.tiled);
        if !p.tp.is_multiple_of(tiled.tp2) || !a.hidden.is_multiple_of(tiled.tp2) {
            let title =
                format!("tp2 = {} does not divide tp = {} and the {} columns of the model", tiled.tp2, p.tp, a.hidden);
            return Err(
                Diagnostic::new(title).with_help("tp counts all tensor ranks, tp2 those of them that share columns")
            );
        }
        if tiled.tp2 > 1 && (p.sp || p.cp > 1) {
            return Err(Diagnostic::new("tp2 divides activations by columns: it does not go with sp=1 or cp"));
        }
        if !tiled.is_phased() {
            return Ok(());
        }
        let fits = p.pp == 1 && p.cp == 1 && p.recompute == Recompute::Full;
        if !fits || p.schedule != Schedule::OneForwardOneBackward || job.stage_layers.is_some() {
            let title = "phases take pp = 1, cp = 1, recompute=full, and no `--stage-layers`";
            return Err(Diagnostic::new(title).with_help("use schedule=1f1b for a pipeline"));
        }
        if !a.layers.is_multiple_of(tiled.phase_layers) {
            let title = format!("schedule=phased:{} does not divide the {} layers", tiled.phase_layers, a.layers);
            return Err(Diagnostic::new(title));
        }
        Ok(())
    }
}

/// The chips of a replica and stage that share columns (`true`), or heads.
fn axis(p: &Parallel, shares_columns: bool) -> Vec<Vec<u64>> {
    let (tp1, tp2) = (p.tp1(), p.tiled.tp2);
    let (groups, members) = if shares_columns { (tp1, tp2) } else { (tp2, tp1) };
    let rank = |group: u64, member: u64| if shares_columns { group * tp2 + member } else { member * tp2 + group };
    let of = |replica: u64| {
        (0..groups)
            .map(move |group| (0..members).map(|member| p.chip(0, replica, rank(group, member))).collect::<Vec<u64>>())
    };
    (0..p.replicas()).flat_map(of).collect()
}

/// A collective of all groups of an axis at once.
///
/// # Errors
/// No protocol of the stack's library does it.
fn along(
    system: &System,
    stack: &Stack,
    p: &Parallel,
    shares_columns: bool,
    kind: CollectiveKind,
    bytes: u64,
) -> Result<Option<Planned>, Diagnostic> {
    let groups = axis(p, shares_columns);
    if groups.first().is_none_or(|group| group.len() < 2) {
        return Ok(None);
    }
    let network = Network::new(system);
    plan(&network, &system.protocols, &stack.library, None, &Call { kind, groups: &groups, bytes }).map(Some)
}

/// Seconds and bytes by level of collectives one after the other.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) seconds: f64,
    pub(super) by_level: Vec<u64>,
}

impl Sum {
    fn of(list: &[&Option<Planned>]) -> Self {
        let mut sum = Self::default();
        for planned in list.iter().filter_map(|planned| planned.as_ref()) {
            sum.seconds += planned.seconds;
            let bytes = planned.by_level();
            sum.by_level.resize(bytes.len().max(sum.by_level.len()), 0);
            sum.by_level.iter_mut().zip(bytes).for_each(|(all, own)| *all += own);
        }
        sum
    }

    pub(super) fn bytes(&self) -> f64 {
        self.by_level.iter().sum::<u64>() as f64
    }
}

/// Collectives of tensor ranks on two axes.
#[derive(Debug)]
pub(super) struct TwoAxes {
    /// Of a layer's forward pass, and of its backward pass.
    pub(super) forward: Sum,
    pub(super) backward: Sum,
    /// On the columns of an activation that a rank has.
    pub(super) single: Sum,
    /// Of the logits.
    pub(super) logits: Sum,
    /// Gathering what another stage has sent.
    pub(super) received: Sum,
}

/// The collectives of tensor ranks on two axes.
///
/// # Errors
/// No protocol of the stack's library does them.
pub(super) fn two_axes(system: &System, stack: &Stack, job: &Job) -> Result<TwoAxes, Diagnostic> {
    let (p, a) = (&job.parallel, &job.architecture);
    let rows = 2 * job.micro_batch * job.tokens();
    let (wide, kv) = (a.query_width(), a.kv_width());
    let sum = |shares_columns: bool, columns: u64| {
        along(system, stack, p, shares_columns, CollectiveKind::AllReduce, rows * columns)
    };
    let outputs = sum(false, a.hidden / p.tiled.tp2)?;
    let qkv = sum(true, (wide + 2 * kv) / p.tp1())?;
    let attended = sum(true, wide / p.tp1())?;
    let wide = sum(true, a.feed_forward / p.tp1())?;
    let scores = 2 * job.micro_batch * job.predicted_tokens() * a.vocabulary.div_ceil(p.tp1());
    let logits = along(system, stack, p, true, CollectiveKind::AllReduce, scores)?;
    let received = along(system, stack, p, false, CollectiveKind::AllGather, rows * a.hidden / p.tiled.tp2)?;
    Ok(TwoAxes {
        forward: Sum::of(&[&qkv, &outputs, &wide, &outputs]),
        backward: Sum::of(&[&outputs, &wide, &outputs, &attended]),
        single: Sum::of(&[&outputs]),
        logits: Sum::of(&[&logits]),
        received: Sum::of(&[&received]),
    })
}

/// Seconds in which a chip gathers an activation between phases, of which the ranks that share heads keep a part each.
///
/// # Errors
/// No protocol of the stack's library does it.
pub(super) fn activation_gather(system: &System, stack: &Stack, job: &Job) -> Result<f64, Diagnostic> {
    let bytes = 2 * job.micro_batch * job.tokens() * job.architecture.hidden / job.parallel.tiled.tp2;
    let planned = along(system, stack, &job.parallel, false, CollectiveKind::AllGather, bytes)?;
    Ok(planned.map_or(0.0, |planned| planned.seconds))
}

/// Seconds in which all replicas gather so many parameters of a chip, each of which has its part.
///
/// # Errors
/// No protocol of the stack's library does it.
pub(super) fn weight_gather(system: &System, stack: &Stack, job: &Job, parameters: u64) -> Result<f64, Diagnostic> {
    let p = &job.parallel;
    if p.sharding()[2] < 2 {
        return Ok(0.0);
    }
    let replicas = |rank: u64| (0..p.replicas()).map(|replica| p.chip(0, replica, rank)).collect::<Vec<u64>>();
    let groups: Vec<Vec<u64>> = (0..p.tp).map(replicas).collect();
    let network = Network::new(system);
    let call = Call { kind: CollectiveKind::AllGather, groups: &groups, bytes: 2 * parameters };
    plan(&network, &system.protocols, &stack.library, None, &call).map(|planned| planned.seconds)
}

/// What the phases stream, in a sentence.
pub(super) fn note(system: &System, job: &Job, [bytes, most]: [f64; 2]) -> Option<String> {
    let p = &job.parallel;
    let chip = system.chip.bsp()?;
    if !p.tiled.is_phased() {
        return None;
    }
    let own = 2.0 * job.stage_parameters(0) as f64 / p.sharding()[2] as f64;
    let rate = chip.memory_bytes_per_cycle() * chip.clock_hz as f64;
    let order =
        if p.prefetch > 0 { "ahead of their phase where I/O tiles have room" } else { "at the start of their phase" };
    Some(format!(
        "{} phases of {} layers, which all {} micro-batches go through: a chip streams {} of weights a pass, {:.1} ms, {order}, \
         and gathers the rest from other replicas; with activations and gradients {} a step; a tile holds at most {} of {}",
        job.architecture.layers / p.tiled.phase_layers,
        p.tiled.phase_layers,
        job.micro_batches(),
        ByteSize(own as u64),
        own / rate * 1e3,
        ByteSize(bytes as u64),
        ByteSize(most as u64 + chip.tile.reserved_bytes),
        ByteSize(chip.tile.sram_bytes)
    ))
}
