//! The chip under the limits in force: as a mapping of a quality, and as one section, finds it.

use std::borrow::Cow;

use super::chip::{Chip, Tier};
use super::vendor::{Quality, Vendor};
use rdusim_base::diagnostics::Diagnostic;

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
        self.limits().map_or(u64::MAX, Vendor::effective_pcus).min(self.pcus())
    }

    /// The chip as one section finds it: under vendor limits its streams share a rate, which follows the largest tensor
    /// that an elementwise section moves off chip (0: it multiplies matrices).
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
