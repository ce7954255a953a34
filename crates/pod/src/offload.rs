//! Activations and weights in the memory of the host, brought back before they are needed (Ren et al., *`ZeRO-Offload`*, 2021;
//! Rajbhandari et al., *`ZeRO-Infinity`*, 2021).
//!
//! What a forward pass keeps goes over the chip's link to the host beside the passes that follow, and comes back beside those before
//! its backward pass: two micro-batches are on the chip, the one that computes and the one that moves. Weights come for the passes
//! that read them, forward and backward, the next layers while one computes: those of a pass beside that pass. Both directions of the link
//! work at the same time. Where forward and backward passes take turns, a micro-batch's activations have both of its passes to move beside,
//! as far as weights leave the link free, else each direction has the passes of its own kind.

use super::parallel::Job;
use rdusim_base::diagnostics::Diagnostic;

/// Micro-batches whose activations are on the chip: the one that computes, and the one that moves.
pub(super) const RESIDENT: u64 = 2;

impl Job {
    /// Refuses what is not modelled together.
    pub(super) fn check_offload(&self) -> Result<(), Diagnostic> {
        let p = &self.parallel;
        if !p.offload.moves_in_passes() {
            return Ok(());
        }
        let wrong = |why: String, help: &str| {
            Err(Diagnostic::new(format!("offload={}: {why}", p.offload.name())).with_help(help))
        };
        if p.zero >= 2 {
            return wrong(format!("zero={} moves weights or gradients in the passes too", p.zero), "use zero=0 or 1");
        }
        if p.schedule.never_drains() && p.offload.weights {
            let why = format!("{} keeps versions of the weights on the chip", p.schedule.name());
            return wrong(why, "use schedule=1f1b, or offload=activations");
        }
        if self.stage_layers.is_some() {
            return wrong(
                "stages of different depth are not modelled with it".to_owned(),
                "leave `--stage-layers` out",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::Schedule;
    use super::super::pass::{Moving, Pass};

    #[test]
    fn what_the_link_takes_longer_than_the_passes_is_exposed() {
        let pass = |compute: f64| Pass { compute, ..Pass::default() };
        let of = |schedule, activations: f64, weights: f64| {
            let moving = Moving { rate: 2.0, activations, weights, reads_ahead: true };
            moving.exposed(schedule, [pass(1.0), pass(2.0)], 0.0).map(|pass| (pass.offload * 1e6).round() as u64)
        };
        // 6 bytes take 3 s each way: beside both passes where they take turns, else 2 and 1 s too long.
        assert_eq!(of(Schedule::OneForwardOneBackward, 6.0, 0.0), [0, 0]);
        assert_eq!(of(Schedule::GPipe, 6.0, 0.0), [2_000_000, 1_000_000]);
        // Weights come for each pass: 2 s are 1 s longer than a forward pass, and as long as a backward pass.
        assert_eq!(of(Schedule::OneForwardOneBackward, 0.0, 4.0), [1_000_000, 0]);
        // 1.5 s are longer than the forward pass, though both are shorter than both passes.
        assert_eq!(of(Schedule::OneForwardOneBackward, 0.0, 3.0), [500_000, 0]);
        // Activations have what weights leave of the link: nothing of 1 + 2 + 1 s; of 1.5 s twice in 3.5 s half a second.
        assert_eq!(of(Schedule::OneForwardOneBackward, 2.0, 4.0), [1_000_000, 1_000_000]);
        assert_eq!(of(Schedule::OneForwardOneBackward, 2.0, 3.0), [500_000, 500_000]);
        // Without reading ahead nothing computes while weights come.
        let exposed = Moving { rate: 2.0, activations: 0.0, weights: 4.0, reads_ahead: false };
        for schedule in [Schedule::OneForwardOneBackward, Schedule::GPipe] {
            let [forward, backward] = exposed.exposed(schedule, [pass(1.0), pass(2.0)], 0.0);
            assert_eq!((forward.offload, backward.offload), (2.0, 2.0));
        }
        assert_eq!(Moving::default().exposed(Schedule::GPipe, [pass(1.0), pass(2.0)], 0.0), [pass(1.0), pass(2.0)]);
    }
}
