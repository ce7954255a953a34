//! A workload on one chip or several, in some modes: runs, their document, ranges and page.

use crate::arch::{self, AnyChip, Gpu, Quality};
use crate::compile::Compiled;
use crate::input::{Given, Override};
use crate::map::summarize;
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome};
use crate::program::divided_over_tiers;
use crate::report::{Document, File, Layout, Made, Page, Side};
use crate::study::uncertainty::{self, Draws};
use crate::study::{add_least_cycles, run_plain};
use crate::units::Dtype;
use crate::workload::{Operator, OperatorKind, Workload};

use super::execute::{Execution, Source, Stage, execute};
use super::failure::Failure;

/// How a workload is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How closely time is modelled.
    pub fidelity: Fidelity,
    /// How good the mapping is taken to be.
    pub quality: Quality,
    /// Periods of a steady state are skipped: the same result, sooner.
    pub skip: bool,
    /// Where configurations come from.
    pub source: Source,
}

/// A chip and what ran on it.
#[derive(Debug)]
pub struct Ran {
    /// The chip, within the limits of its mapping.
    pub chip: AnyChip,
    /// The graph that ran, where it is not the workload's: with blocks divided over memory tiers.
    pub divided: Option<Workload>,
    /// Configurations; an RDU alone has any.
    pub configurations: Vec<Compiled>,
    /// Runs, in the order of the modes.
    pub outcomes: Vec<Outcome>,
}

impl Ran {
    /// Runs a workload on a chip in each of some modes. `ended` is called as stages end.
    ///
    /// # Errors
    /// What cannot be compiled or simulated, and runs that do not drain.
    pub fn on(
        chip: AnyChip,
        workload: &Workload,
        modes: &[Mode],
        options: &Options,
        ended: &mut dyn FnMut(Stage),
    ) -> Result<Self, Failure> {
        let mut ran = match chip.into_rdu() {
            Ok(chip) => {
                let chip = chip.under(options.quality)?;
                let how = (options.fidelity, options.skip);
                let divided = divided_over_tiers(&chip, workload);
                let graph = divided.as_ref().unwrap_or(workload);
                let Execution { configurations, mut outcomes } =
                    execute(&chip, graph, modes, how.0, how.1, &options.source, ended)?;
                add_least_cycles(&chip, graph, &mut outcomes);
                ended(Stage::Bounded);
                Self { chip: chip.into(), divided, configurations, outcomes }
            }
            Err(chip) => {
                let outcomes = run_plain(&chip, workload, modes)?;
                ended(Stage::Simulated);
                Self { chip, divided: None, configurations: Vec::new(), outcomes }
            }
        };
        ran.carry_notes(workload);
        Ok(ran)
    }

    /// Lets every run say what its workload says, whatever chip it ran on.
    fn carry_notes(&mut self, workload: &Workload) {
        let mut notes = workload.notes.clone();
        if let Some(gpu) = self.chip.gpu() {
            notes.extend(rounded_operands(gpu, workload));
        }
        let products = workload.operators.iter().filter(|operator| operator.kind == OperatorKind::Gemm);
        let operands = products.flat_map(|operator| &operator.inputs).map(|&input| workload.tensors[input].dtype);
        notes.extend(arch::emulated_products(self.chip.device(), &operands.collect::<Vec<_>>()));
        for outcome in &mut self.outcomes {
            for note in &notes {
                if !outcome.notes.contains(note) {
                    outcome.notes.push(note.clone());
                }
            }
        }
    }

    /// Refuses runs that did not end.
    ///
    /// # Errors
    /// The first deadlock or limit.
    pub fn drained(&self) -> Result<(), Failure> {
        self.outcomes.iter().try_for_each(Failure::unless_drained)
    }

    /// The graph that ran, of which the configurations are: the workload's, or one with blocks divided over memory tiers.
    pub fn graph<'a>(&'a self, workload: &'a Workload) -> &'a Workload {
        self.divided.as_ref().unwrap_or(workload)
    }

    /// For reports.
    pub fn side(&self) -> Side<'_> {
        Side { chip: self.chip.device(), outcomes: &self.outcomes }
    }

    fn layouts(&self, workload: &Workload) -> Vec<Layout> {
        let Some(chip) = self.chip.rdu() else { return Vec::new() };
        let graph = self.graph(workload);
        let pairs = self.configurations.iter().zip(&self.outcomes);
        let layout = |(measured, outcome): (&Compiled, &Outcome)| {
            Layout::new(chip, &summarize(chip, graph, &measured.configuration), outcome)
        };
        pairs.map(layout).collect()
    }
}

/// A sentence on products of fp32 that tensor cores multiply, if there are any: they round both operands.
fn rounded_operands(gpu: &Gpu, workload: &Workload) -> Option<String> {
    let on_cores = gpu.sm.tensor_macs.get(&Dtype::Fp32).is_some_and(|&macs| macs > gpu.sm.vector_lanes);
    let is_product = |operator: &Operator| {
        operator.kind == OperatorKind::Gemm && workload.tensors[operator.inputs[0]].dtype == Dtype::Fp32
    };
    (on_cores && workload.operators.iter().any(is_product)).then(|| {
        "products of fp32 run on the tensor cores, which round both operands to TF32 (10 bits of mantissa); in fp32 proper they \
         take the vector units' time"
            .to_owned()
    })
}

/// The page and the layouts of a result, as files of `--out DIR`: the document with its ranges, of one chip or several.
///
/// An RDU alone has configurations, and a grid to be shown.
pub fn page(workload: &Workload, sides: &[Ran], document: &Document, made: Made) -> Vec<File> {
    let mut page = Page::new(made);
    page.add(&workload.name, document, sides.iter().map(|ran| ran.layouts(workload)));
    vec![
        File { name: "layout.json".to_owned(), bytes: page.beside().into_bytes() },
        File { name: "report.html".to_owned(), bytes: page.html().into_bytes() },
    ]
}

/// How ranges are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Uncertainty {
    /// Draws.
    pub samples: u64,
    /// Seed of the draws.
    pub seed: u64,
}

/// Runs every side on draws of its chip's uncertain fields, and puts the ranges into the document. `files`: the chip of each
/// side with its overrides.
///
/// # Errors
/// Chip files that cannot be read.
pub fn add_ranges(
    document: &mut Document,
    how: Uncertainty,
    options: &Options,
    workload: &Workload,
    modes: &[Mode],
    files: &[(Given, &[Override])],
    sides: &[Ran],
) -> Result<(), Failure> {
    let mut sampled = Vec::with_capacity(sides.len());
    for (at, ((given, sets), ran)) in files.iter().zip(sides).enumerate() {
        let template = arch::Template::take(given, sets)?;
        let known: Vec<&Override> = sets.iter().collect();
        // Of several chips, each has draws of its own.
        let seed = how.seed.wrapping_add(at as u64);
        let draws = Draws::new(template.text(), &known, how.samples as usize, seed);
        sampled.push(match ran.chip.rdu() {
            Some(own) => {
                let chip = |sets: &[Override]| {
                    let sets: Vec<&Override> = sets.iter().collect();
                    template.chip(&sets)?.under(options.quality)
                };
                uncertainty::of_rdu(draws, own, ran.graph(workload), &ran.configurations, options.fidelity, &chip)
            }
            None => uncertainty::of_plain(draws, workload, modes, &|sets: &[Override]| {
                let sets: Vec<&Override> = sets.iter().collect();
                template.any(&sets)
            }),
        });
    }
    if let Some(first) = sampled.first() {
        uncertainty::ranges(document, first, how.seed);
    }
    if let Some((first, others)) = sampled.split_first() {
        uncertainty::versus(document, first, others);
    }
    Ok(())
}
