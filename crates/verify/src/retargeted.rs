//! Configurations of a smaller graph that are as near to those of the full one as its sizes allow, and what differs.

use serde::Serialize;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_compile::compile::{compile_measured, retargeted};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::Configuration;

/// How the configuration that was verified relates to that of the full-size graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retargeting {
    /// Sections, stages, loop orders, cut axes, residency, styles and orientations are those of the full size.
    pub kept: bool,
    /// Why not, if they are not: the smaller graph was mapped by itself.
    pub why: Option<String>,
    /// What differs in number, section by section.
    pub sections: Vec<RetargetedSection>,
}

/// Numbers of one section, at full size and as verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetargetedSection {
    /// Section.
    pub section: String,
    /// Row tiles.
    pub row_tiles: [u64; 2],
    /// Row blocks.
    pub blocks: [u64; 2],
    /// Column tiles of the cut axis; one without a cut.
    pub column_tiles: [u64; 2],
    /// PCUs.
    pub pcus: [u64; 2],
}

impl Retargeting {
    fn own_mapping(why: String) -> Self {
        Self { kept: false, why: Some(why), sections: Vec::new() }
    }

    fn kept(full: &Configuration, small: &Configuration) -> Self {
        let pcus = |section: &rdusim_program::Section| section.stages.iter().map(|s| s.pcus.len() as u64).sum();
        let of = |(full, small): (&rdusim_program::Section, &rdusim_program::Section)| RetargetedSection {
            section: full.name.clone(),
            row_tiles: [full.schedule.tiling().row_tiles(), small.schedule.tiling().row_tiles()],
            blocks: [full.schedule.blocks(), small.schedule.blocks()],
            column_tiles: [full.schedule.tiling().column_tiles(), small.schedule.tiling().column_tiles()],
            pcus: [pcus(full), pcus(small)],
        };
        let sections = full.sections.iter().zip(&small.sections).map(of).collect();
        Self { kept: true, why: None, sections }
    }
}

/// Configurations of `small` with the choices of those of `full`, the same graph at full size; where a choice has no place
/// at the smaller size, or the full size none on the chip, a configuration of its own.
///
/// # Errors
/// When the smaller graph cannot be compiled.
pub fn retargeted_from_full_size(
    chip: &Chip,
    full: &Workload,
    small: &Workload,
    modes: &[Mode],
) -> Result<Vec<(Configuration, Retargeting)>, Diagnostic> {
    let own_mapping = |mode: Mode, why: String| {
        let own = compile_measured(chip, small, &[mode])?.into_iter().map(|c| c.configuration).next();
        own.map(|own| (own, Retargeting::own_mapping(why))).ok_or_else(|| Diagnostic::new("no mode was asked for"))
    };
    match compile_measured(chip, full, modes) {
        Err(why) => modes.iter().map(|&mode| own_mapping(mode, format!("at full size, {}", why.title()))).collect(),
        Ok(compiled) => compiled
            .iter()
            .map(|of| match retargeted(chip, small, &of.configuration) {
                Ok(like) => {
                    let retargeting = Retargeting::kept(&of.configuration, &like);
                    Ok((like, retargeting))
                }
                Err(why) => own_mapping(of.configuration.mode, why),
            })
            .collect(),
    }
}
