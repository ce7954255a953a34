//! The picture of a section coloured by where the time of its run went.

use crate::map::{RunEntry, StageTime};
use crate::report::figures::quotient;
use crate::report::human::{percent, shorten, whole};
use rdusim_graph::arch::UnitKind;

use super::super::frame::MARGIN;
use super::super::grid::Plan;
use super::super::heat;
use super::super::palette::{Color, GREEN, GRID, MUTED, ORANGE, PURPLE, SKY, WHITE};
use super::super::scene::{Area, Scene};
use super::{Keys, MOST_NAMED, MapChart, color, gauge_of, ring};

/// What a PCU does with its time, from below.
const PARTS: [(Color, &str); 4] = [
    (GREEN, "works"),
    (SKY, "starved: waits for inputs"),
    (ORANGE, "stalled: waits for room, or for results to leave"),
    (GRID, "launch, and after its last row tile"),
];
const PMU: Color = PURPLE;

impl MapChart<'_> {
    /// The run in a line: cycles, what bounds it, and what is busiest.
    pub(super) fn told(run: &RunEntry) -> String {
        let busiest = run.busy.iter().map(|(what, share)| format!("{} {}", name_of(what), percent(*share)));
        format!(
            "{} cycles, {} of them launch; bound by {}. Busy: {}",
            whole(run.cycles),
            whole(run.launch_cycles),
            run.bound_by,
            busiest.collect::<Vec<_>>().join(", "),
        )
    }

    /// Every PCU as a column of its time, every PMU filled as far as its busiest port is used.
    pub(super) fn units_in(self, run: &RunEntry, scene: &mut Scene, plan: &Plan<'_>) {
        let (workers, grid) = (self.workers(), &self.chip.grid);
        for y in 0..grid.rows {
            for x in 0..grid.columns {
                let area = plan.unit([x, y]);
                match grid.units[y as usize * grid.columns as usize + x as usize] {
                    UnitKind::Pcu => match (run.units.get(&[x, y]), workers.get(&[x, y])) {
                        (Some(time), Some(&stage)) => column(scene, area, color(stage), time),
                        _ => scene.fill(area, GRID),
                    },
                    UnitKind::Pmu => match run.ports.get(&[x, y]) {
                        Some(&share) => gauge_of(scene, area, PMU, PMU.tint(0.3), share),
                        None => gauge_of(scene, area, GRID, GRID, 0.0),
                    },
                    UnitKind::None => {}
                }
            }
        }
    }

    /// What everything means; returns where it ends.
    pub(super) fn legend_of(self, run: &RunEntry, scene: &mut Scene, top: f64) -> f64 {
        let section = self.section();
        let mut keys = Keys { x: MARGIN, y: top, right: scene.width - MARGIN };
        keys.say(scene, "PCU, shares of the section's cycles from below:");
        for (part, text) in PARTS {
            let area = keys.add(scene, 16.0, text);
            scene.fill(area, part);
        }
        keys.new_line();
        for (index, stage) in section.stages.iter().enumerate().take(MOST_NAMED) {
            let Some(time) = stage.time else { continue };
            let name = shorten(&stage.operators.join("+"), 40);
            let mut text = format!("{name}: busy {}", percent(time.busy));
            for (what, share) in [("starved", time.starved), ("stalled", time.stalled)] {
                if let Some(share) = share {
                    text.extend([", ", what, " ", &percent(share)]);
                }
            }
            let area = keys.add(scene, 16.0, &text);
            column(scene, area, color(index), &time);
        }
        if section.stages.len() > MOST_NAMED {
            let area = keys.add(scene, 16.0, &format!("and {} more stages", section.stages.len() - MOST_NAMED));
            scene.frame(area, MUTED);
        }
        keys.new_line();
        let area = keys.add(scene, 16.0, "PMU: filled as far as its busiest port moves flits");
        gauge_of(scene, area, PMU, PMU.tint(0.3), 0.6);
        keys.new_line();
        keys.say(scene, &format!("Links, flits over the run's {} cycles:", whole(run.cycles)));
        for (step, end) in heat::ENDS.into_iter().enumerate() {
            let area = keys.add(scene, 30.0, &format!("to {end} %"));
            heat::sample(scene, area, step);
        }
        let fullest = section.network.fullest_flits;
        if fullest > 0 {
            let share = percent(quotient(fullest as f64, run.cycles as f64));
            let area = keys.add(scene, 16.0, &format!("the fullest: {share}"));
            ring(scene, area);
        }
        keys.y + 10.0
    }
}

fn name_of(what: &str) -> &str {
    match what {
        "ag" => "AG",
        "pcu_port" => "PCU port",
        "pmu_port" => "PMU port",
        other => other,
    }
}

/// A box in parts from below, in a frame of the stage's colour.
fn column(scene: &mut Scene, area: Area, frame: Color, time: &StageTime) {
    scene.fill(area, WHITE);
    let shares = [time.busy, time.starved.unwrap_or(0.0), time.stalled.unwrap_or(0.0)];
    let mut bottom = area.bottom();
    let mut sum = 0.0;
    for (share, (part, _)) in shares.into_iter().zip(PARTS) {
        sum += share;
        let top = area.bottom() - (area.height * sum.clamp(0.0, 1.0)).round();
        if top < bottom {
            scene.fill(Area { top, height: bottom - top, ..area }, part);
            bottom = top;
        }
    }
    if bottom > area.top {
        scene.fill(Area { height: bottom - area.top, ..area }, GRID);
    }
    scene.frame(area, frame);
}
