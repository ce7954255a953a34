//! Configurations into text.

use std::fmt::Write;

use serde::Serialize;

use rdusim_base::index::Id;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_graph::workload::{OperatorId, TensorId, Workload};
use rdusim_program::{
    Buffer, BufferRole, Configuration, Fabric, Nest, OffChip, Section, SectionGraph, Stage, fingerprint,
};

use super::SCHEMA;
use super::names::{self, FlowContext};

/// The configurations of one workload on one chip as TOML.
pub fn to_toml<'c>(
    chip: &Chip,
    workload: &Workload,
    configurations: impl IntoIterator<Item = &'c Configuration>,
) -> String {
    let fabric = Fabric::new(chip);
    let mut writer = Writer { chip, workload, fabric: &fabric, text: String::new() };
    writer.line(format_args!(
        "# A configuration of rdusim, to be run with --config; docs/configuration-format.md tells how to edit it."
    ));
    writer.line(format_args!("schema = {SCHEMA}"));
    let owner = |name: &str, mark: String| format!("{{ name = {}, fingerprint = \"{mark}\" }}", quoted(name));
    writer.line(format_args!("chip = {}", owner(&chip.name, fingerprint::of_chip(chip))));
    writer.line(format_args!("workload = {}", owner(&workload.name, fingerprint::of_workload(workload))));
    for configuration in configurations {
        writer.run(configuration);
    }
    writer.text
}

/// A string as TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Any value as TOML on one line.
fn inline(value: &impl Serialize) -> String {
    toml::Value::try_from(value).map(|value| value.to_string()).expect("words and numbers always serialise")
}

struct Writer<'a> {
    chip: &'a Chip,
    workload: &'a Workload,
    fabric: &'a Fabric,
    text: String,
}

impl Writer<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string grows");
    }

    fn tensor(&self, tensor: TensorId) -> String {
        quoted(&self.workload.tensors[tensor].name)
    }

    fn operators(&self, operators: impl IntoIterator<Item = OperatorId>) -> String {
        let names: Vec<String> = operators.into_iter().map(|op| quoted(&self.workload.operators[op].name)).collect();
        names.join(", ")
    }

    fn run(&mut self, configuration: &Configuration) {
        self.line(format_args!("\n[[runs]]\nmode = \"{}\"", configuration.mode.name()));
        let notes: Vec<String> = configuration.notes.iter().map(|note| quoted(note)).collect();
        self.line(format_args!("notes = [{}]", notes.join(", ")));
        let tier = |(t, &tier): (usize, &rdusim_graph::arch::TierId)| {
            format!("{} = {}", self.tensor(TensorId::from_index(t)), quoted(&self.chip.memory[tier].name))
        };
        let tiers: Vec<String> = configuration.tiers.iter().enumerate().map(tier).collect();
        self.line(format_args!("tiers = {{ {} }}", tiers.join(", ")));
        for section in &configuration.sections {
            self.section(section);
        }
    }

    fn section(&mut self, section: &Section) {
        let operators = self.operators(section.operators.iter().copied());
        self.line(format_args!("\n[[runs.sections]]\noperators = [{operators}]"));
        self.line(format_args!("estimated_cycles = {}", section.estimated_cycles));
        let nest = self.nest(section);
        self.line(format_args!("nest = {nest}"));
        for stage in &section.stages {
            self.stage(stage);
        }
        for buffer in &section.buffers {
            self.buffer(section, buffer);
        }
        for stream in &section.streams {
            self.stream(stream);
        }
        self.routes(section);
    }

    fn nest(&self, section: &Section) -> String {
        let Nest { tile_rows, block_tiles, order, tiled_axis, .. } = section.schedule.nest();
        let cut = tiled_axis.and_then(|cut| {
            let graph = SectionGraph::new(self.workload, &section.operators, section.operators.len() > 1)?;
            let panels = cut.panels.and_then(|panels| {
                let of = self.workload.tensors.ids().find(|&t| graph.column_axis(t) == Some(panels.axis))?;
                Some(format!(", panels = {{ columns_of = {}, width = {} }}", self.tensor(of), panels.width))
            });
            let panels = panels.unwrap_or_default();
            let along = |side: &str, tensor| {
                format!(", tiled_axis = {{ {side} = {}, tile = {}{panels} }}", self.tensor(tensor), cut.tile)
            };
            let mut ids = self.workload.tensors.ids();
            let columns = ids.find(|&tensor| graph.column_axis(tensor) == Some(cut.axis));
            let rows = || self.workload.tensors.ids().find(|&tensor| graph.row_axis(tensor) == Some(cut.axis));
            columns.map(|t| along("columns_of", t)).or_else(|| rows().map(|t| along("rows_of", t)))
        });
        let order = inline(&order);
        let cut = cut.unwrap_or_default();
        format!("{{ tile_rows = {tile_rows}, block_tiles = {block_tiles}, order = {order}{cut} }}")
    }

    fn stage(&mut self, stage: &Stage) {
        let operators = self.operators([stage.spec.main].into_iter().chain(stage.spec.tail.iter().copied()));
        self.line(format_args!("\n[[runs.sections.stages]]\noperators = [{operators}]"));
        self.line(format_args!("mapping = {}", inline(&stage.mapping)));
        let pcus: Vec<String> = stage.pcus.iter().map(|pcu| site(self.chip.grid.pcus[pcu.index()])).collect();
        self.line(format_args!("pcus = [{}]", pcus.join(", ")));
    }

    fn buffer(&mut self, section: &Section, buffer: &Buffer) {
        let spec = &buffer.spec;
        let (stage, tensor) = match spec.role {
            BufferRole::Operand { stage, tensor }
            | BufferRole::Resident { stage, tensor }
            | BufferRole::Weight { stage, tensor }
            | BufferRole::State { stage, tensor }
            | BufferRole::Output { stage, tensor } => (stage, tensor),
            BufferRole::PartialSums { stage } | BufferRole::PartialFifo { stage, .. } => {
                (stage, section.stages[stage].spec.output)
            }
        };
        let (role, tensor) = (names::role(&spec.role), self.tensor(tensor));
        let stage = quoted(names::stage(self.workload, &section.stages[stage]));
        self.line(format_args!("\n[[runs.sections.buffers]]\nrole = \"{role}\"\nstage = {stage}\ntensor = {tensor}"));
        if let BufferRole::PartialFifo { slice, .. } = spec.role {
            self.line(format_args!("k_slice = {slice}"));
        }
        self.line(format_args!(
            "level = {}\ndepth = {}\nslot_bytes = {}",
            inline(&spec.level),
            spec.depth,
            spec.slot_bytes
        ));
        self.line(format_args!("pieces = ["));
        for piece in &buffer.pieces {
            let part = |part: &rdusim_program::Part| {
                let at = site(self.chip.grid.pmus[part.pmu.index()]);
                let (banks, read, write) = (part.banks, part.read_port, part.write_port);
                format!("{{ pmu = {at}, banks = {banks}, read_port = {read}, write_port = {write} }}")
            };
            let parts: Vec<String> = piece.parts.iter().map(part).collect();
            self.line(format_args!("  [{}],", parts.join(", ")));
        }
        self.line(format_args!("]"));
    }

    fn stream(&mut self, off_chip: &OffChip) {
        let stream = &off_chip.stream;
        let direction = if stream.writes { "write" } else { "read" };
        let generator = |&(agcu, generator): &(u32, u32)| {
            format!("{{ agcu = {}, generator = {generator} }}", site(self.chip.grid.agcus[agcu as usize].site))
        };
        let generators: Vec<String> = off_chip.ags.iter().map(generator).collect();
        let tensor = self.tensor(stream.tensor);
        self.line(format_args!("\n[[runs.sections.streams]]\ntensor = {tensor}\ndirection = \"{direction}\""));
        self.line(format_args!("level = {}\ngenerators = [{}]", inline(&stream.level), generators.join(", ")));
    }

    /// A line a flow: ports for the reader and as a check, links to edit.
    fn routes(&mut self, section: &Section) {
        let context = FlowContext {
            mains: section.stages.iter().map(|stage| stage.spec.main).collect(),
            tensors: section.streams.iter().map(|stream| stream.stream.tensor).collect(),
        };
        let all = |list: &[u32]| {
            let names: Vec<String> = list.iter().map(|&r| quoted(&names::port(self.chip, self.fabric, r))).collect();
            names.join(", ")
        };
        let mut lines = String::new();
        for flow in &section.flows {
            let name = quoted(&names::flow(self.workload, &context, flow));
            let (source, sinks, links) = names::parts(self.fabric, flow);
            let paths: Vec<String> = names::paths(self.fabric, links).iter().map(|path| quoted(path)).collect();
            let (from, to, links) = (all(&[source]), all(&sinks), paths.join(", "));
            writeln!(lines, "  {{ flow = {name}, from = {from}, to = [{to}], links = [{links}] }},")
                .expect("a string grows");
        }
        // Below the last stream, in the section's own table: an inline array under a header of its own.
        self.line(format_args!("\n[runs.sections.network]\nroutes = [\n{lines}]"));
    }
}

fn site(at: Coordinate) -> String {
    format!("[{}, {}]", at.x, at.y)
}
