//! Energy of a step: what the chips' passes and updates take, and static power of all chips for as long as it lasts. Links, hosts and
//! switches are not counted: no figure of theirs is at hand.

use super::parallel::Job;
use super::pass::Pieces;
use super::sharded::{StagePart, pass_times};
use super::system::System;

/// Joules of all chips for so many seconds, without what they do in them.
pub(super) fn static_joules(system: &System, job: &Job, seconds: f64) -> f64 {
    system.chip.device().static_w() * job.parallel.chips() as f64 * seconds
}

/// Joules of the passes of a step on all chips.
pub(super) fn pass_joules(job: &Job, pieces: &Pieces) -> f64 {
    let p = &job.parallel;
    let pieces = pieces.mean(p.seq_chunks);
    let places = (0..p.pp).flat_map(|stage| (0..p.schedule.parts()).map(move |part| StagePart { stage, part }));
    let of_a_chip: f64 = places.flat_map(|place| pass_times(job, &pieces, place)).map(|pass| pass.joules).sum();
    of_a_chip * job.passes() as f64 * (p.tp * p.replicas()) as f64
}
