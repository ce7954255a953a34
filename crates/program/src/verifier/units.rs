//! Checks of the units a section takes: PCUs and address generators.

use crate::configuration::Section;
use crate::ids::{PcuId, StageId, StreamId};
use rdusim_base::index::Id;
use rdusim_graph::workload::TensorId;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// PCUs that stages have taken so far.
pub struct Pcus<'v> {
    verifier: &'v Verifier<'v>,
    is_taken: Vec<bool>,
}

impl<'v> Pcus<'v> {
    /// None taken.
    pub fn new(verifier: &'v Verifier<'v>) -> Self {
        Self { verifier, is_taken: vec![false; verifier.chip.grid.pcus.len()] }
    }

    /// Takes the PCUs of a stage whose mapping takes `needed`.
    ///
    /// # Errors
    /// A wrong count, a PCU that is not on the grid, or one that is taken.
    pub fn take(&mut self, stage: StageId, pcus: &[PcuId], needed: u64) -> Result<(), Fault> {
        if pcus.len() as u64 != needed {
            let title = format!("the stage has {} PCUs, its mapping takes {needed}", pcus.len());
            return Err(Fault::new(Place::Pcus(stage), title, format!("expected {needed}")));
        }
        for (i, pcu) in pcus.iter().enumerate() {
            let place = Place::Pcu(stage, i);
            let Some(is_taken) = self.is_taken.get_mut(pcu.index()) else {
                let title = format!("there is no PCU {} on the grid", pcu.index());
                return Err(Fault::new(place, title, format!("expected one of {} PCUs", self.is_taken.len())));
            };
            if std::mem::replace(is_taken, true) {
                let at = self.verifier.chip.grid.pcus[pcu.index()];
                let title = format!("the PCU at [{}, {}] is given twice", at.x, at.y);
                return Err(Fault::new(place, title, "expected a PCU that no stage has yet"));
            }
        }
        Ok(())
    }
}

/// PCUs of every stage.
pub(super) fn pcus(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let mut taken = Pcus::new(verifier);
    for (s, stage) in section.stages.iter_enumerated() {
        taken.take(s, &stage.pcus, stage.mapping.pcus())?;
    }
    Ok(())
}

/// Address generators that streams have taken so far.
pub struct Generators<'v> {
    verifier: &'v Verifier<'v>,
    /// Generators of the streams so far, and the tensor of each.
    taken: rustc_hash::FxHashMap<(u32, u32), TensorId>,
}

impl<'v> Generators<'v> {
    /// None taken.
    pub fn new(verifier: &'v Verifier<'v>) -> Self {
        Self { verifier, taken: rustc_hash::FxHashMap::default() }
    }

    /// Takes the generators of stream `stream`, which moves `tensor`.
    ///
    /// # Errors
    /// No generator, one that does not exist, or one that is taken.
    pub fn take(&mut self, stream: StreamId, tensor: TensorId, ags: &[(u32, u32)]) -> Result<(), Fault> {
        if ags.is_empty() {
            return Err(Fault::new(Place::Stream(stream), "a stream without a generator", "expected at least one"));
        }
        for (g, &ag) in ags.iter().enumerate() {
            let place = Place::Generator(stream, g);
            let agcus = &self.verifier.chip.grid.agcus;
            let Some(agcu) = agcus.get(ag.0 as usize).filter(|agcu| u64::from(ag.1) < agcu.ags) else {
                let title = format!("there is no generator {} in an AGCU {}", ag.1, ag.0);
                return Err(Fault::new(place, title, format!("expected one of {} AGCUs", agcus.len())));
            };
            if let Some(other) = self.taken.insert(ag, tensor) {
                let title =
                    format!("generator {} of the AGCU at [{}, {}] is given twice", ag.1, agcu.site.x, agcu.site.y);
                let expected = format!("the stream of `{}` has it", self.verifier.tensor(other));
                return Err(Fault::new(place, title, expected));
            }
        }
        Ok(())
    }
}

/// Address generators of every stream.
pub(super) fn generators(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let mut taken = Generators::new(verifier);
    for (s, off_chip) in section.streams.iter_enumerated() {
        taken.take(s, off_chip.stream.tensor, &off_chip.ags)?;
    }
    Ok(())
}
