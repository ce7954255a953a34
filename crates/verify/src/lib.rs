//! Verification on numbers: the compiled configuration computes what the graph says.
//!
//! Every section is run on tensors: loads put tiles into the slots of buffers, flows carry them link by link to PCUs, PCUs
//! compute in the chip's arithmetic, results and partial sums go where routes lead, stores write the off-chip tensors.
//! What comes out is compared with a reference in f64 that knows nothing of the mapping. `docs/verify.md` explains both.

mod actors;
mod address;
mod block;
mod bounded;
mod bounded_matrix;
mod compare;
mod compute;
mod data;
mod fault;
mod flow_share;
mod functions;
mod group;
mod image_reference;
mod inbox;
mod keys;
mod layout;
mod machine;
mod made;
mod matrix;
mod meaning;
mod number;
mod recurrent_functions;
mod recurrent_reference;
mod reference;
mod retargeted;
mod ring;
mod row_functions;
mod row_reference;
mod running;
mod scale;
mod second;
mod sums;
#[cfg(test)]
mod tests;
mod transport;
mod verdict;
mod view_reference;
mod weights;
mod when;
mod windows;
mod wires;

pub use actors::{FiringRule, firing_rules};
pub use compare::Deviation;
pub use fault::Fault;
pub use retargeted::{RetargetedSection, Retargeting, retargeted_from_full_size};
pub use scale::{ScaledDim, Scaling, graph_flops, scaled};
pub use verdict::{Place, RunVerdict, Verdict};

use bounded_matrix::Bounded;
use compare::{Names, Told, compare};
use machine::{Emitted, Machine, Order};
use matrix::Matrix;
use wires::Wires;

use std::collections::BTreeMap;

use rdusim_base::index::Id;
use rdusim_base::interrupt;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, Tensor, TensorRole, Workload};
use rdusim_program::{Configuration, Section, StageId};

/// Runs configurations of `workload` on random numbers and compares with the reference. `seed` fixes the numbers.
pub fn verify<'c>(
    chip: &Chip,
    workload: &Workload,
    configurations: impl IntoIterator<Item = &'c Configuration>,
    seed: u64,
) -> Vec<RunVerdict> {
    let check = Check::new(chip, workload, seed);
    configurations.into_iter().map(|configuration| check.run(workload, configuration)).collect()
}

/// Numbers of a tensor, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Rows one after the other.
    pub values: Vec<f64>,
}

/// The random numbers of every input and weight that [`verify`] draws from a seed, by the tensor's name.
pub fn drawn(workload: &Workload, seed: u64) -> BTreeMap<String, Numbers> {
    named(workload, data::inputs(workload, seed).into_iter())
}

/// What the graph defines on given inputs and weights, in f64: every tensor by its name, as [`verify`] compares with. An input that is
/// not given has no numbers, and neither has what is made of it.
pub fn evaluate(workload: &Workload, given: &BTreeMap<String, Numbers>) -> BTreeMap<String, Numbers> {
    let of = |tensor: &Tensor| given.get(&tensor.name).filter(|_| tensor.view.is_none());
    let matrix =
        |numbers: &Numbers| Matrix { rows: numbers.rows, columns: numbers.columns, values: numbers.values.clone() };
    let inputs: Vec<Option<Matrix>> = workload.tensors.iter().map(|tensor| of(tensor).map(matrix)).collect();
    let made = reference::graph(workload, &inputs);
    named(workload, made.into_iter().map(|made| made.map(|made| made.value)))
}

fn named(workload: &Workload, made: impl Iterator<Item = Option<Matrix>>) -> BTreeMap<String, Numbers> {
    let mut numbers = BTreeMap::new();
    for (tensor, matrix) in workload.tensors.iter().zip(made) {
        if let Some(Matrix { rows, columns, values }) = matrix {
            numbers.insert(tensor.name.clone(), Numbers { rows, columns, values });
        }
    }
    numbers
}

/// Inputs, and what the graph makes of them.
struct Check<'a> {
    chip: &'a Chip,
    workload: &'a Workload,
    inputs: Vec<Option<Matrix>>,
    plain: Vec<Option<Bounded>>,
}

/// What of a run has been compared.
struct Tally<'a> {
    verdict: RunVerdict,
    /// Section and stage that made each tensor, and the PCU of every element.
    makers: Vec<Option<(&'a Section, StageId, Emitted)>>,
}

impl<'a> Check<'a> {
    fn new(chip: &'a Chip, workload: &'a Workload, seed: u64) -> Self {
        let inputs = data::inputs(workload, seed);
        let plain = reference::graph(workload, &inputs);
        Self { chip, workload, inputs, plain }
    }

    /// Runs a configuration. `mapped` is the workload it was compiled from: tests put faults into either.
    fn run(&self, mapped: &Workload, configuration: &Configuration) -> RunVerdict {
        let mut tally = Tally {
            verdict: RunVerdict {
                mode: configuration.mode.name(),
                passed: false,
                sections: configuration.sections.len(),
                compared: 0,
                firings: 0,
                mapping: None,
                fault: None,
                by_stage: None,
                end_to_end: None,
            },
            makers: vec![None; mapped.tensors.len()],
        };
        let wires = Wires::new(self.chip);
        let mut memory = self.inputs.clone();
        for section in &configuration.sections {
            match self.section(mapped, section, &wires, memory, &mut tally) {
                Ok(written) => memory = written,
                Err(mut fault) => {
                    fault.cycle = when::cycle(self.chip, mapped, configuration, section, &fault);
                    tally.verdict.fault = Some(fault);
                    return tally.verdict;
                }
            }
        }
        self.outputs(&wires, &memory, &mut tally);
        let worst = tally.verdict.by_stage.iter().chain(&tally.verdict.end_to_end);
        tally.verdict.passed = tally.verdict.by_stage.is_some() && worst.clone().all(Deviation::is_tolerated);
        tally.verdict
    }

    /// Runs one section in both orders and compares each stage; returns what is off chip then.
    fn section<'c>(
        &self,
        mapped: &'c Workload,
        section: &'c Section,
        wires: &Wires<'_>,
        memory: Vec<Option<Matrix>>,
        tally: &mut Tally<'c>,
    ) -> Result<Vec<Option<Matrix>>, Fault> {
        let start = |memory| Machine::new(self.chip, mapped, wires, section, memory);
        let mut late = start(memory.clone())?;
        late.run(Order::Late)?;
        let mut eager = start(memory)?;
        eager.run(Order::Eager)?;
        tally.verdict.firings += eager.step;
        for ((stage, a), b) in eager.emitted.iter_enumerated().zip(&late.emitted) {
            if a != b {
                return Err(Fault {
                    section: section.name.as_str().into(),
                    stage: eager.layout.stage_name(stage).into(),
                    unit: "".into(),
                    row_tile: None,
                    step: eager.step,
                    cycle: None,
                    firing: None,
                    what: "its results depend on the order in which actors fire".to_owned(),
                });
            }
        }
        for (stage, s) in section.stages.iter_enumerated() {
            interrupt::check();
            let want = self.stage_reference(&eager, stage);
            let names = Names {
                tensor: eager.tensor_name(s.spec.output),
                section: &section.name,
                stage: eager.layout.stage_name(stage),
            };
            let emitted = &eager.emitted[stage];
            tally.verdict.compared += emitted.values.values.len() as u64;
            if let Some(found) = compare(wires, names, &emitted.values, emitted, &want, Told::All) {
                let before = tally.verdict.by_stage.take();
                tally.verdict.by_stage = Some(before.map_or(found.clone(), |before| before.worse(found)));
            }
            tally.makers[s.spec.output.index()] = Some((section, stage, emitted.clone()));
        }
        Ok(eager.memory)
    }

    /// A stage's operators in f64 on the numbers it was given.
    fn stage_reference(&self, machine: &Machine<'_>, stage: StageId) -> Bounded {
        let spec = &machine.section.stages[stage].spec;
        let operators: Vec<OperatorId> = std::iter::once(spec.main).chain(spec.tail.iter().copied()).collect();
        let mut given: Vec<Option<Bounded>> = vec![None; self.workload.tensors.len()];
        for operator in operators.iter().map(|&op| &self.workload.operators[op]) {
            let read = operator.inputs.iter().map(|&input| self.workload.base(input));
            // Indices of a table's gradient belong to the operator that made its rows.
            let makers = read.clone().filter_map(|t| self.workload.producer(t));
            let indices = makers.filter_map(|op| self.workload.operators[op].indices);
            for tensor in read.chain(operator.vectors.iter().copied()).chain(operator.indices).chain(indices) {
                let made_here = machine.section.stages.position(|s| s.spec.output == tensor);
                let values = made_here.map(|s| &machine.emitted[s].values).or(machine.memory[tensor.index()].as_ref());
                let scales = machine.layout.rescales(stage) && tensor == spec.activations[0];
                let tiles = if scales { machine.layout.tiling.column_tiles() } else { 0 };
                given[tensor.index()] = values.cloned().map(|values| keys::bounded(values, tiles));
            }
        }
        reference::chain(self.workload, &operators, &|tensor| given[tensor.index()].as_ref())
    }

    /// Compares the graph's outputs, as they lie off chip, with the reference of the whole graph.
    fn outputs(&self, wires: &Wires<'_>, memory: &[Option<Matrix>], tally: &mut Tally<'_>) {
        for (id, tensor) in self.workload.tensors.iter_enumerated() {
            let at = id.index();
            let wanted = tensor.role == TensorRole::Output;
            let (Some(got), Some((section, stage, from)), Some(want)) =
                (&memory[at], &tally.makers[at], &self.plain[at])
            else {
                continue;
            };
            if !wanted {
                continue;
            }
            let main = section.stages[*stage].spec.main;
            let stage = &self.workload.operators[main].name;
            let names = Names { tensor: &tensor.name, section: &section.name, stage };
            tally.verdict.compared += got.values.len() as u64;
            if let Some(found) = compare(wires, names, got, from, want, Told::Bounded) {
                let before = tally.verdict.end_to_end.take();
                tally.verdict.end_to_end = Some(before.map_or(found.clone(), |before| before.worse(found)));
            }
        }
    }
}
