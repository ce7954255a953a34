//! What the vendor's compiler and runtime were measured to reach, and the chip seen through it.

use std::borrow::Cow;

use super::{Chip, Tier};
use crate::diagnostics::Diagnostic;

/// How good the mapping is taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quality {
    /// Our compiler at its best on the chip as described.
    #[default]
    Ideal,
    /// Within the limits that measurements of the vendor's stack show: [`Vendor`].
    Vendor,
}

impl Quality {
    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::Vendor => "vendor",
        }
    }
}

/// Limits calibrated on published measurements; they act under [`Quality::Vendor`] only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vendor {
    /// Launch of a section, all of it, microseconds.
    pub launch_us: f64,
    /// Rate of all off-chip streams of a section together, bytes a second.
    pub stream_bytes_per_s: u64,
    /// The rate of sections with a large tensor, if that is another.
    pub large: Option<LargeTensors>,
    /// PCUs that an operator is given at most.
    pub pcus_per_operator: u64,
}

/// Sections that move a large tensor get more streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LargeTensors {
    /// Bytes from which a tensor is large.
    pub tensor_bytes: u64,
    /// Rate of all off-chip streams together of a section that moves one, bytes a second.
    pub stream_bytes_per_s: u64,
}

impl Vendor {
    /// Rate of all off-chip streams of a section, bytes a second; `largest_bytes` is the largest tensor it moves.
    pub fn section_bytes_per_s(&self, largest_bytes: u64) -> u64 {
        match self.large {
            Some(large) if largest_bytes >= large.tensor_bytes => large.stream_bytes_per_s,
            _ => self.stream_bytes_per_s,
        }
    }
}

impl Chip {
    /// The chip as a mapping of this quality finds it.
    ///
    /// # Errors
    /// The chip has no `[vendor]` table and its limits are asked for.
    pub fn under(&self, quality: Quality) -> Result<Self, Diagnostic> {
        let mut chip = self.clone();
        chip.quality = quality;
        if quality == Quality::Ideal {
            return Ok(chip);
        }
        let Some(vendor) = &self.vendor else {
            let title = format!("{} has no vendor limits: its file has no table `vendor`", self.name);
            let help = "use `--mapping ideal`, or add the table (docs/arch-format.md, `rdusim calibrate`)";
            return Err(Diagnostic::new(title).with_help(help));
        };
        chip.launch.scale_to(vendor.launch_us);
        Ok(chip)
    }

    /// The limits in force: none under [`Quality::Ideal`].
    pub fn limits(&self) -> Option<&Vendor> {
        self.vendor.as_ref().filter(|_| self.quality == Quality::Vendor)
    }

    /// PCUs that one operator may be given.
    pub fn pcus_per_operator(&self) -> u64 {
        self.limits().map_or(u64::MAX, |vendor| vendor.pcus_per_operator).min(self.pcus())
    }

    /// The chip as one section finds it: under vendor limits its streams share a rate, which follows the largest tensor
    /// that the section moves off chip.
    pub fn in_section(&self, largest_bytes: u64) -> Cow<'_, Self> {
        let Some(vendor) = self.limits() else { return Cow::Borrowed(self) };
        let rate = vendor.section_bytes_per_s(largest_bytes);
        let capped = |tier: &Tier| {
            let bandwidth_bytes_per_s = tier.bandwidth_bytes_per_s.min(rate);
            Tier { bandwidth_bytes_per_s, ..tier.clone() }
        };
        Cow::Owned(Self { memory: self.memory.iter().map(capped).collect(), ..self.clone() })
    }
}
