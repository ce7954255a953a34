//! What the vendor's compiler and runtime were measured to reach.

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
    /// The rate of elementwise sections with a large tensor, if that is another.
    pub large: Option<LargeTensors>,
    /// PCUs that an operator is given at most.
    pub pcus_per_operator: u64,
    /// Share of their peak that those PCUs reach: an operator computes as fast as so many fewer at their peak.
    pub pcu_efficiency: f64,
}

/// Elementwise sections that move a large tensor get more streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LargeTensors {
    /// Bytes from which a tensor is large.
    pub tensor_bytes: u64,
    /// Rate of all off-chip streams together of a section that moves one, bytes a second.
    pub stream_bytes_per_s: u64,
}

impl Vendor {
    /// PCUs at their peak that are as fast as those an operator is given.
    pub fn effective_pcus(&self) -> u64 {
        ((self.pcus_per_operator as f64 * self.pcu_efficiency).round() as u64).max(1)
    }

    /// Rate of all off-chip streams of a section, bytes a second; `largest_bytes` is the largest tensor it moves,
    /// 0 if it multiplies matrices: only elementwise operators were measured at the rate of large tensors.
    pub fn section_bytes_per_s(&self, largest_bytes: u64) -> u64 {
        match self.large {
            Some(large) if largest_bytes >= large.tensor_bytes => large.stream_bytes_per_s,
            _ => self.stream_bytes_per_s,
        }
    }
}
