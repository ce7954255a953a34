//! The two ways of running a graph.

/// How the graph is cut into sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Kernel by kernel: one operator a section.
    Kbk,
    /// Fused: as many operators a section as pay.
    Fused,
}

impl Mode {
    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kbk => "kbk",
            Self::Fused => "fused",
        }
    }
}
