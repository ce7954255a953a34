//! Checks of mappings in themselves: their kind, divisors, and how many PCUs they take.

use crate::configuration::Section;
use crate::ids::StageId;
use crate::mapping::{GemmMapping, MOST_GATHERED_COLUMNS, Mapping, Reduction, SimdMapping, Style};
use crate::nest::Nest;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::OperatorKind;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// What is wrong, and what was expected.
type Refusal = (String, String);

/// A count of a mapping that must be from 1 to `most`.
pub fn from_one(what: &str, found: u64, most: u64) -> Result<(), Refusal> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err((format!("`{what}` is {found}"), format!("expected from 1 to {most} for this stage and nest")))
}

fn exactly(what: &str, found: u64, must: u64) -> Result<(), Refusal> {
    if found == must {
        return Ok(());
    }
    Err((format!("`{what}` is {found}"), format!("expected {must} for this function")))
}

fn divides_pn(what: &str, found: u64, pn: u64) -> Result<(), Refusal> {
    if found > 0 && pn.is_multiple_of(found) {
        return Ok(());
    }
    Err((format!("`{what}` is {found}"), format!("expected a divisor of `pn`, {pn}")))
}

impl Verifier<'_> {
    /// A mapping's kind and fields.
    ///
    /// # Errors
    /// The first field that cannot be for the stage and the nest.
    pub fn mapping(&self, nest: &Nest, stage: StageId, mapping: &Mapping) -> Result<(), Fault> {
        let found = match mapping {
            Mapping::Gemm(m) if self.graph.is_gemm(stage) => self.gemm(nest, stage, m),
            Mapping::Simd(m) if !self.graph.is_gemm(stage) => self.simd(nest, stage, m),
            _ => {
                let kind = if self.graph.is_gemm(stage) { "gemm" } else { "simd" };
                Err(("the mapping is of another kind than the stage".into(), format!("expected `{kind}`")))
            }
        };
        found.map_err(|(title, expected)| Fault::new(Place::Mapping(stage), title, expected))
    }

    /// A mapping takes no more PCUs than the chip has.
    ///
    /// # Errors
    /// How many it takes.
    pub fn has_pcus(&self, stage: StageId, mapping: &Mapping) -> Result<(), Fault> {
        let pcus = match mapping {
            Mapping::Gemm(_) => mapping.pcus(),
            Mapping::Simd(m) => m.pm.saturating_mul(m.pn).saturating_mul(m.chain),
        };
        if pcus <= self.chip.pcus() {
            return Ok(());
        }
        let expected = format!("{} has {}", self.chip.name, self.chip.pcus());
        Err(Fault::new(Place::Mapping(stage), format!("the mapping takes {pcus} PCUs"), expected))
    }

    fn gemm(&self, nest: &Nest, stage: StageId, m: &GemmMapping) -> Result<(), Refusal> {
        let (graph, most) = (self.graph, self.chip.pcus());
        from_one("multicast_width", m.multicast_width, most)?;
        from_one("pn", m.pn, most)?;
        divides_pn("multicast_width", m.multicast_width, m.pn)?;
        if m.style == Style::Gather && !graph.may_gather(self.chip, stage, m) {
            let why = format!(
                "expected `skip`: only rows of a sparse weight are gathered, with `rows_on_lanes`, into {MOST_GATHERED_COLUMNS} columns at most"
            );
            return Err(("`style` is `gather`".into(), why));
        }
        from_one("pk", m.pk, graph.most_k_slices(nest.tiled_axis, stage).min(most))?;
        if m.pk > 1 && !graph.may_split_k(nest.tiled_axis, stage, m.reduction) {
            if graph.may_split_k(nest.tiled_axis, stage, Reduction::Tree) {
                let why = "expected `tree`: K is cut over time too, and every slice keeps sums of its own";
                return Err(("`reduction` is `chain`".into(), why.into()));
            }
            let why = "expected 1: K is split over PCUs in plain GEMMs, and of products that a mask samples where it is not cut over time";
            return Err((format!("`pk` is {}", m.pk), why.into()));
        }
        if m.pk <= 1 && m.reduction != Reduction::Chain {
            return Err(("`reduction` is `tree`".into(), "expected none: K is not split over PCUs".into()));
        }
        let (adds_up, form) = (graph.stages[stage].sums.is_some(), graph.form(stage));
        if !adds_up {
            match form {
                None => exactly("streams", m.streams, 1)?,
                Some(form) => {
                    exactly("multicast_width", m.multicast_width, m.pn)?;
                    from_one("streams", m.streams, form.b_heads)?;
                    divides_pn("streams", m.streams, m.pn)?;
                }
            }
        }
        from_one("pm", m.pm, most)?;
        if adds_up {
            exactly("multicast_width", m.multicast_width, m.pn)?;
            from_one("streams", m.streams, form.map_or(1, |form| form.heads))?;
            divides_pn("streams", m.streams, m.pn)?;
        }
        Ok(())
    }

    fn simd(&self, nest: &Nest, stage: StageId, m: &SimdMapping) -> Result<(), Refusal> {
        let (chip, graph) = (self.chip, self.graph);
        let kind = graph.kind(stage);
        exactly("chain", m.chain, chain(chip, kind))?;
        exactly("passes", m.passes, kind.passes())?;
        // Rows that carry a state are worked on in order.
        from_one("pm", m.pm, if kind.is_carried() { 1 } else { nest.tile_rows })?;
        let lanes = chip.pcu.lanes.get(&graph.stage_dtype(stage)).copied().unwrap_or(1);
        let width = if self.cuts_columns(nest, graph.stages[stage].output) {
            self.columns(nest, graph.stages[stage].activations[0], 0)
        } else {
            graph.simd_columns(stage)
        };
        let kept = graph.running_statistics(nest.tiled_axis, stage, nest.tile_rows.div_ceil(m.pm.max(1)), m.pn);
        if kept > lanes * chip.pcu.stages {
            let expected = format!("expected at most {}: the registers of a PCU", lanes * chip.pcu.stages);
            return Err((format!("a pipeline keeps {kept} maxima and sums between column tiles"), expected));
        }
        let of_columns = || width.div_ceil(lanes);
        // Row functions are cut between heads only.
        from_one("pn", m.pn, graph.units(stage).filter(|_| kind.is_row_wise()).unwrap_or_else(of_columns))
    }
}

/// PCUs chained for one pipeline of a SIMD function.
fn chain(chip: &Chip, kind: OperatorKind) -> u64 {
    let stages = chip.pcu.simd_stages.get(kind.name()).copied().unwrap_or_else(|| kind.assumed_simd_stages());
    stages.div_ceil(chip.pcu.stages).max(1)
}

/// Every stage's mapping.
pub(super) fn check(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (s, stage) in section.stages.iter_enumerated() {
        verifier.mapping(&section.schedule.nest(), s, &stage.mapping)?;
        verifier.has_pcus(s, &stage.mapping)?;
    }
    Ok(())
}
