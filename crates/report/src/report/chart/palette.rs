//! Colours that stay apart for colour-blind readers (Okabe and Ito, 2008).

use plotters::style::RGBColor;

use rdusim_outcome::{BoundBy, HeldBy};

/// An opaque colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color(pub(super) u8, pub(super) u8, pub(super) u8);

pub(super) const WHITE: Color = Color(255, 255, 255);
pub(super) const INK: Color = Color(0x22, 0x22, 0x22);
pub(super) const MUTED: Color = Color(0x5f, 0x5f, 0x5f);
pub(super) const GRID: Color = Color(0xe2, 0xe2, 0xe2);
pub(super) const AXIS: Color = Color(0x9a, 0x9a, 0x9a);
pub(super) const GREY: Color = Color(0x8c, 0x8c, 0x8c);

pub(super) const BLUE: Color = Color(0x00, 0x72, 0xb2);
pub(super) const ORANGE: Color = Color(0xe6, 0x9f, 0x00);
pub(super) const GREEN: Color = Color(0x00, 0x9e, 0x73);
pub(super) const PURPLE: Color = Color(0xcc, 0x79, 0xa7);
pub(super) const SKY: Color = Color(0x56, 0xb4, 0xe9);
pub(super) const VERMILLION: Color = Color(0xd5, 0x5e, 0x00);
pub(super) const YELLOW: Color = Color(0xf0, 0xe4, 0x42);

/// Colours of things without a meaning of their own, in order of use.
pub(super) const SERIES: [Color; 7] = [BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW];

/// Colours of the modes in order, of the first chip and of each other.
pub(super) const RUNS: [[Color; 3]; 2] = [[VERMILLION, GREEN, BLUE], [PURPLE, ORANGE, SKY]];

/// Colours of the low and of the high end of a range.
pub(super) const ENDS: [Color; 2] = [SKY, BLUE];

/// Places of energy with their colours, which are the page's too.
pub(super) const PLACES: [(&str, Color); 5] =
    [("compute", BLUE), ("SRAM", ORANGE), ("network", GREEN), ("off chip", PURPLE), ("static", SKY)];

/// The colour of a memory tier by its row in the chip's list.
pub(super) fn of_tier(row: usize) -> Color {
    [VERMILLION, ORANGE][row.min(1)]
}

/// The colour of what on-chip memory is used for.
pub(super) fn of_use(held: HeldBy) -> Color {
    match held {
        HeldBy::Weights => BLUE,
        HeldBy::Activations => ORANGE,
        HeldBy::Sums => GREEN,
        HeldBy::Results => PURPLE,
        HeldBy::Prefetched => SKY,
        HeldBy::Tiles => GREY,
    }
}

impl Color {
    /// This colour with `share` of white.
    pub(super) fn tint(self, share: f64) -> Self {
        let mix = |c: u8| (f64::from(c) + (255.0 - f64::from(c)) * share).round() as u8;
        Self(mix(self.0), mix(self.1), mix(self.2))
    }

    /// The colour of text on this one.
    pub(super) fn ink(self) -> Self {
        let linear = |c: u8| (f64::from(c) / 255.0).powf(2.2);
        let luminance = 0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2);
        if luminance > 0.25 { INK } else { WHITE }
    }

    pub(super) fn rgb(self) -> RGBColor {
        RGBColor(self.0, self.1, self.2)
    }
}

/// The colour of a resource that bounds a section. `tier` is the row of a memory tier.
pub(super) fn of_bound(bound: &BoundBy, tier: usize) -> Color {
    match bound {
        BoundBy::Compute => BLUE,
        BoundBy::Imbalance => SKY,
        BoundBy::Memory(_) => of_tier(tier),
        BoundBy::Ag => PURPLE,
        BoundBy::Link => GREEN,
        BoundBy::PmuPort => YELLOW,
        BoundBy::Launch => MUTED,
        BoundBy::Fill => GREY.tint(0.4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's colours are the pictures' but for yellow and grey, which are too light or too dark on its paper.
    #[test]
    fn the_page_has_the_colours_of_the_pictures() {
        let style = include_str!("../page/page.css");
        for (at, Color(r, g, b)) in SERIES.into_iter().enumerate().take(6) {
            assert!(style.contains(&format!("--c{at}: #{r:02x}{g:02x}{b:02x};")), "--c{at}");
        }
        let script = include_str!("../page/base.js");
        let at = |color: Color| SERIES.iter().position(|&of| of == color).unwrap();
        for (result, colors) in RUNS.into_iter().enumerate() {
            let [kbk, epilogue, fused] = colors.map(at);
            let wanted = format!("{{ kbk: {kbk}, epilogue: {epilogue}, fused: {fused} }}");
            assert!(script.contains(&wanted), "{result}: {wanted}");
        }
        for bound in [BoundBy::Compute, BoundBy::Imbalance, BoundBy::Ag, BoundBy::Link, BoundBy::PmuPort] {
            assert!(script.contains(&format!("{bound}: {}", at(of_bound(&bound, 0)))), "{bound}");
        }
        assert!(script.contains(&format!("memory: {}", at(of_bound(&BoundBy::Memory(String::new()), 0)))));
    }
}
