//! What every chart has: its width, margins and typefaces, and the heading.

use crate::report::human::shorten;
use crate::report::side::Side;
use rdusim_graph::workload::Workload;

use super::palette::{INK, MUTED};
use super::scene::{Anchor, Face, Scene};

/// Width of every chart.
pub(super) const WIDTH: f64 = 1000.0;
/// Distance of everything from the edges.
pub(super) const MARGIN: f64 = 28.0;

pub(super) const TITLE: Face = Face { em: 21.0, bold: true, color: INK };
pub(super) const SUBTITLE: Face = Face { em: 13.0, bold: false, color: MUTED };
pub(super) const LABEL: Face = Face { em: 14.0, bold: false, color: INK };
pub(super) const STRONG: Face = Face { em: 15.0, bold: true, color: INK };
pub(super) const TICK: Face = Face { em: 12.5, bold: false, color: MUTED };

/// Title and what it is about; returns where the rest may start.
pub(super) fn heading(scene: &mut Scene, title: &str, workload: &Workload, sides: &[Side<'_>]) -> f64 {
    scene.text((MARGIN, 36.0), Anchor::Start, TITLE, title);
    let outcomes = sides.iter().flat_map(|side| side.outcomes);
    let mut fidelities: Vec<&str> = outcomes.map(|outcome| outcome.fidelity.name()).collect();
    fidelities.dedup();
    let chips: Vec<String> = sides.iter().map(|side| shorten(side.chip.name(), 32)).collect();
    let (workload, chips) = (shorten(&workload.name, 48), chips.join(" and "));
    let about = format!("{workload} on {chips}, fidelity {}", fidelities.join(" and "));
    scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &about);
    84.0
}

/// The longest shortening of `text` that is at most `room` wide, or `None` if that would say nothing.
pub(super) fn fitted(text: &str, face: Face, room: f64) -> Option<String> {
    let most = text.chars().count();
    let full = shorten(text, most);
    if face.width(&full) <= room {
        return Some(full);
    }
    (8..most).rev().map(|length| shorten(text, length)).find(|text| face.width(text) <= room)
}
