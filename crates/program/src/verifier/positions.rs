//! Where a PCU stands in its stage.

use crate::configuration::Section;
use crate::ids::{PcuId, StageId};
use crate::mapping::Mapping;
use crate::stage::Stage;
use rdusim_base::index::Id;

/// Place of a PCU in its stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Stage.
    pub stage: StageId,
    /// Lockstep group.
    pub group: u64,
    /// Row slice.
    pub row: u64,
    /// Column within the group (SIMD: column slice).
    pub column: u64,
    /// Place in its chain; 0 for a GEMM.
    pub link: u64,
}

/// The position of every PCU that a section uses.
pub(super) struct Positions(Vec<Option<Position>>);

impl Positions {
    /// Positions in a section whose PCUs are checked.
    pub(super) fn new(pcus: usize, section: &Section) -> Self {
        let mut of = vec![None; pcus];
        for (s, stage) in section.stages.iter_enumerated() {
            let (pm, wide, chain) = shape(stage);
            for (index, pcu) in (0..).zip(&stage.pcus) {
                let (rest, place) = (index / wide, index % wide);
                let position =
                    Position { stage: s, group: rest / pm, row: rest % pm, column: place / chain, link: place % chain };
                of[pcu.index()] = Some(position);
            }
        }
        Self(of)
    }

    /// Where a PCU stands; `None` if no stage has it.
    pub(super) fn of(&self, pcu: PcuId) -> Option<Position> {
        self.0.get(pcu.index()).copied().flatten()
    }
}

/// Row slices, PCUs of a row slice of a lockstep group, and PCUs of a chain.
fn shape(stage: &Stage) -> (u64, u64, u64) {
    match &stage.mapping {
        Mapping::Gemm(m) => (m.pm, m.multicast_width, 1),
        Mapping::Simd(m) => (m.pm, m.pn * m.chain, m.chain),
    }
}
