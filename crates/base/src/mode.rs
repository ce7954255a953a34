//! The ways of running a graph.

/// How the graph is cut into sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Kernel by kernel: one operator a section.
    Kbk,
    /// Kernel by kernel, elementwise operators folded into the GEMM before them, as GPU libraries do.
    Epilogue,
    /// Fused: as many operators a section as pay.
    Fused,
}

impl Mode {
    /// Every mode, in the order in which results name them.
    pub const ALL: [Self; 3] = [Self::Kbk, Self::Epilogue, Self::Fused];

    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kbk => "kbk",
            Self::Epilogue => "epilogue",
            Self::Fused => "fused",
        }
    }

    /// The mode of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
