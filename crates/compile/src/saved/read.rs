//! Text into configurations, every choice checked.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;

use crate::compile::{BufferDraft, Draft, StreamDraft, Validated};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::{Id, IndexVec};
use rdusim_base::input::{Root, Source};
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{Chip, Coordinate, TierId};
use rdusim_graph::workload::{OperatorId, TensorId, Workload, kernels_with_epilogues};
use rdusim_program::verifier::{self, Fault, Place};
use rdusim_program::{
    BufferId, BufferRole, Configuration, Fabric, FlowId, LoopLevel, LoopOrder, Nest, Panels, Part, PcuId, Piece, PmuId,
    Section, SectionGraph, StageId, StreamId, TiledAxis, fingerprint,
};

use super::SCHEMA;
use super::names::{self, FlowContext, PARTIAL_FIFO};
use super::spec::{
    BufferSpec, FileSpec, NestSpec, OwnerSpec, PanelsSpec, PartSpec, RouteSpec, RunSpec, SectionSpec, StreamSpec,
};

/// Reads a saved file: the configurations of `modes`, in that order.
///
/// # Errors
/// What cannot be, with its place: another chip or workload, no such mode, or a choice that contradicts another.
pub fn load(path: &Path, chip: &Chip, workload: &Workload, modes: &[Mode]) -> Result<Vec<Configuration>, Diagnostic> {
    resolve(&Source::open(path, Root::Workload, &[])?, chip, workload, modes)
}

/// Reads a saved text; `name` stands for the file in errors.
///
/// # Errors
/// As [`load`].
pub fn parse(
    name: &str,
    text: &str,
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
) -> Result<Vec<Configuration>, Diagnostic> {
    resolve(&Source::new(name, text, Root::Workload, &[])?, chip, workload, modes)
}

fn resolve(
    source: &Source,
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
) -> Result<Vec<Configuration>, Diagnostic> {
    let spec: FileSpec = source.read()?;
    source.count("schema", &spec.schema, SCHEMA..=SCHEMA)?;
    owner(source, "chip", &spec.chip, &chip.name, &fingerprint::of_chip(chip))?;
    owner(source, "workload", &spec.workload, &workload.name, &fingerprint::of_workload(workload))?;
    let fabric = Fabric::new(chip);
    let reader = Reader { source, chip, workload, fabric: &fabric };
    let mut found: Vec<(Mode, &RunSpec)> = Vec::new();
    for run in spec.runs.get_ref() {
        let mode = Mode::ALL[source.keyword("runs.mode", &run.mode, &Mode::ALL.map(Mode::name))?];
        if found.iter().any(|(other, _)| *other == mode) {
            let title = format!("two runs are `{}`", mode.name());
            return Err(source.error(run.mode.span(), title, "expected one run a mode"));
        }
        found.push((mode, run));
    }
    let wanted = |&mode: &Mode| {
        let run = found.iter().find(|(found, _)| *found == mode).map(|(_, run)| *run).ok_or_else(|| {
            let title = format!("the file has no `{}` run", mode.name());
            source.error(spec.runs.span(), title, format!("expected a run with mode = \"{}\"", mode.name()))
        })?;
        reader.run(mode, run)
    };
    modes.iter().map(wanted).collect()
}

/// Whether the file is for this chip, or this workload.
fn owner(source: &Source, what: &str, spec: &OwnerSpec, name: &str, mark: &str) -> Result<(), Diagnostic> {
    if spec.name.get_ref() != name {
        let title = format!("the configuration is for the {what} `{}`, this one is `{name}`", spec.name.get_ref());
        return Err(source.error(spec.name.span(), title, format!("expected `{name}`")));
    }
    if spec.fingerprint.get_ref() != mark {
        let title = format!("the configuration is for another {what} `{name}`: some field or override differs");
        let help =
            format!("give the {what}, `--set` and `--seed` it was saved with, or compile again with --save-config");
        return Err(source.error(spec.fingerprint.span(), title, format!("this one has {mark}")).with_help(help));
    }
    Ok(())
}

struct Reader<'a> {
    source: &'a Source,
    chip: &'a Chip,
    workload: &'a Workload,
    fabric: &'a Fabric,
}

impl Reader<'_> {
    fn error(&self, span: Range<usize>, title: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        self.source.error(span, title, label)
    }

    fn run(&self, mode: Mode, spec: &RunSpec) -> Result<Configuration, Diagnostic> {
        let tiers = self.tiers(spec)?;
        let mut sections = Vec::new();
        let mut done: Vec<OperatorId> = Vec::new();
        let kernels = if mode == Mode::Epilogue { kernels_with_epilogues(self.workload) } else { Vec::new() };
        for section in spec.sections.get_ref() {
            let operators = self.operators(section, &done)?;
            if mode == Mode::Kbk && operators.len() > 1 {
                let title = "a section of a kbk run has one operator";
                return Err(self.error(section.operators.span(), title, format!("found {}", operators.len())));
            }
            if mode == Mode::Epilogue && operators.len() > 1 && !kernels.iter().any(|k| k.starts_with(&operators)) {
                let title = "a section of an epilogue run has one operator, or a GEMM and its epilogue from the start";
                return Err(self.error(section.operators.span(), title, self.epilogue(&kernels, operators[0])));
            }
            done.extend(&operators);
            sections.push(self.section(section, &operators, &tiers)?);
        }
        if let Some((_, missing)) = self.workload.operators.iter_enumerated().find(|(id, _)| !done.contains(id)) {
            let title = format!("no section runs the operator `{}`", missing.name);
            return Err(self.error(spec.sections.span(), title, "expected every operator once"));
        }
        let configuration = Configuration { mode, sections, tiers, notes: spec.notes.clone() };
        // Each section is verified where it is restored.
        match verifier::of_all(self.chip, self.workload, &configuration).into_iter().next() {
            Some(found) => Err(self.error(spec.sections.span(), found.fault.title, found.fault.expected)),
            None => Ok(configuration),
        }
    }

    /// What may stand in one section behind an operator.
    fn epilogue(&self, kernels: &[Vec<OperatorId>], first: OperatorId) -> String {
        let name = |&op: &OperatorId| self.workload.operators[op].name.as_str();
        let kernel = kernels.iter().find(|kernel| kernel[0] == first).cloned().unwrap_or_else(|| vec![first]);
        format!("expected the first of {}", kernel.iter().map(name).collect::<Vec<_>>().join(", "))
    }

    /// The tier of every tensor; each tier must hold what it is given.
    fn tiers(&self, spec: &RunSpec) -> Result<Vec<TierId>, Diagnostic> {
        let mut tiers: Vec<Option<TierId>> = vec![None; self.workload.tensors.len()];
        let mut free: Vec<u64> = self.chip.memory.iter().map(|tier| tier.capacity_bytes).collect();
        let known: Vec<&str> = self.chip.memory.iter().map(|tier| tier.name.as_str()).collect();
        for (name, tier) in spec.tiers.get_ref() {
            let tensor = self.tensor("runs.tiers", name)?;
            let at = self.source.keyword("runs.tiers", tier, &known)?;
            let bytes = self.workload.tensors[tensor].stored_bytes();
            if bytes > free[at] {
                let title = format!("the tier `{}` has no room for `{}`: {bytes} B", known[at], name.get_ref());
                return Err(self.error(tier.span(), title, format!("{} B are left", free[at])));
            }
            free[at] -= bytes;
            tiers[tensor.index()] = Some(TierId::from_index(at));
        }
        let tier = |(tensor, tier): (usize, Option<TierId>)| {
            tier.ok_or_else(|| {
                let name = &self.workload.tensors[TensorId::from_index(tensor)].name;
                let title = format!("the tensor `{name}` has no tier");
                self.error(spec.tiers.span(), title, format!("expected `{name} = TIER`"))
            })
        };
        tiers.into_iter().enumerate().map(tier).collect()
    }

    fn tensor(&self, field: &str, name: &Spanned<String>) -> Result<TensorId, Diagnostic> {
        let known: Vec<&str> = self.workload.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        self.source.keyword(field, name, &known).map(TensorId::from_index)
    }

    fn operator(&self, field: &str, name: &Spanned<String>) -> Result<OperatorId, Diagnostic> {
        let known: Vec<&str> = self.workload.operators.iter().map(|op| op.name.as_str()).collect();
        self.source.keyword(field, name, &known).map(OperatorId::from_index)
    }

    /// Operators of a section: none of an earlier one, and every input made before.
    fn operators(&self, spec: &SectionSpec, done: &[OperatorId]) -> Result<Vec<OperatorId>, Diagnostic> {
        let mut list: Vec<OperatorId> = Vec::new();
        for name in spec.operators.get_ref() {
            let operator = self.operator("runs.sections.operators", name)?;
            if done.contains(&operator) || list.contains(&operator) {
                let title = format!("the operator `{}` runs twice", name.get_ref());
                return Err(self.error(name.span(), title, "expected every operator once"));
            }
            for &input in &self.workload.operators[operator].inputs {
                let made = self.workload.producer(input);
                if made.is_some_and(|made| !done.contains(&made) && !list.contains(&made)) {
                    let input = &self.workload.tensors[input].name;
                    let title = format!("the operator `{}` runs before its input `{input}` is made", name.get_ref());
                    return Err(self.error(name.span(), title, "expected behind it"));
                }
            }
            list.push(operator);
        }
        if list.is_empty() {
            return Err(self.error(spec.operators.span(), "a section without operators", "expected at least one"));
        }
        list.sort_unstable();
        Ok(list)
    }

    fn section(&self, spec: &SectionSpec, operators: &[OperatorId], tiers: &[TierId]) -> Result<Section, Diagnostic> {
        let Some(graph) = SectionGraph::new(self.workload, operators, operators.len() > 1) else {
            let title = "these operators are no pipeline: their rows differ, or one makes another's second operand";
            return Err(self.error(spec.operators.span(), title, "expected operators over the same rows"));
        };
        let draft = self.draft(spec, &graph)?;
        let restored =
            Validated::new(self.chip, self.fabric, &graph, tiers, draft).map_err(|fault| self.refusal(spec, fault))?;
        let Some(network) = &spec.network else {
            return restored.route().map_err(|fault| self.refusal(spec, fault));
        };
        let context = FlowContext {
            mains: graph.stages.iter().map(|stage| stage.main).collect(),
            tensors: spec
                .streams
                .get_ref()
                .iter()
                .map(|stream| self.tensor("runs.sections.streams.tensor", &stream.tensor))
                .collect::<Result<_, _>>()?,
        };
        let (flows, routes) = (restored.flows(), network.routes.get_ref());
        if flows.len() != routes.len() {
            let title = format!("the section has {} routes, its flows are {}", routes.len(), flows.len());
            return Err(self.stale(network.routes.span(), title, format!("expected {}", flows.len())));
        }
        let mut links = IndexVec::new();
        for (flow, route) in flows.iter().zip(routes) {
            let route = route.get_ref();
            let (source, sinks, _) = names::parts(self.fabric, flow);
            self.same(&route.flow, &names::flow(self.workload, &context, flow))?;
            self.same(&route.from, &names::port(self.chip, self.fabric, source))?;
            let to = route.to.get_ref();
            if to.len() != sinks.len() {
                let title = format!("the route goes to {} ports, its flow to {}", to.len(), sinks.len());
                return Err(self.stale(route.to.span(), title, format!("expected {}", sinks.len())));
            }
            for (found, &sink) in to.iter().zip(&sinks) {
                self.same(found, &names::port(self.chip, self.fabric, sink))?;
            }
            links.push(self.links(route)?);
        }
        restored.over(&links).map_err(|fault| self.refusal(spec, fault))
    }

    /// A name of a route that must be what the units make it.
    fn same(&self, found: &Spanned<String>, expected: &str) -> Result<(), Diagnostic> {
        if found.get_ref() == expected {
            return Ok(());
        }
        let title = format!("the route says `{}` where the section's units say `{expected}`", found.get_ref());
        Err(self.stale(found.span(), title, format!("expected `{expected}`")))
    }

    /// An error about routes that do not fit the units any more.
    fn stale(&self, span: Range<usize>, title: String, label: String) -> Diagnostic {
        self.error(span, title, label)
            .with_help("leave out the section's table `network`, and every flow is routed by the compiler")
    }

    fn links(&self, route: &RouteSpec) -> Result<Vec<u32>, Diagnostic> {
        let mut links = Vec::new();
        for path in route.links.get_ref() {
            let of_path = names::path(self.chip, self.fabric, path.get_ref())
                .map_err(|expected| self.error(path.span(), format!("`{}` is no path", path.get_ref()), expected))?;
            links.extend(of_path);
        }
        Ok(links)
    }

    fn draft(&self, spec: &SectionSpec, graph: &SectionGraph<'_>) -> Result<Draft, Diagnostic> {
        let stages = spec.stages.get_ref();
        if stages.len() != graph.stages.len() {
            let title = format!("the section has {} stages, its operators make {}", stages.len(), graph.stages.len());
            return Err(self.error(spec.stages.span(), title, format!("expected {}", graph.stages.len())));
        }
        let (mut mappings, mut pcus) = (IndexVec::new(), IndexVec::new());
        for (stage, wanted) in stages.iter().zip(&graph.stages) {
            let expected: Vec<&str> =
                [wanted.main].iter().chain(&wanted.tail).map(|&op| self.workload.operators[op].name.as_str()).collect();
            if !stage.operators.get_ref().iter().map(|name| name.get_ref().as_str()).eq(expected.iter().copied()) {
                let title = "another stage stands here than the section's operators make";
                let label = format!("expected {expected:?}");
                return Err(self.error(stage.operators.span(), title, label));
            }
            mappings.push(*stage.mapping.get_ref());
            pcus.push(stage.pcus.get_ref().iter().map(|at| self.pcu(at)).collect::<Result<Vec<_>, _>>()?);
        }
        let nest = self.nest(spec.nest.get_ref(), graph)?;
        let buffers = spec.buffers.get_ref().iter().map(|b| self.buffer(b, graph)).collect::<Result<_, _>>()?;
        let streams = spec.streams.get_ref().iter().map(|s| self.stream(s)).collect::<Result<_, _>>()?;
        let field = "runs.sections.estimated_cycles";
        let estimated_cycles = self.source.count(field, &spec.estimated_cycles, 0..=u64::MAX)?;
        Ok(Draft { nest, mappings, pcus, buffers, streams, estimated_cycles })
    }

    fn nest(&self, spec: &NestSpec, graph: &SectionGraph<'_>) -> Result<Nest, Diagnostic> {
        let count = |key: &str, value| self.source.count(&format!("runs.sections.nest.{key}"), value, 1..=1 << 40);
        let orders = [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter];
        let order = orders
            [self.source.keyword("runs.sections.nest.order", &spec.order, &["column_tile_outer", "row_tile_outer"])?];
        let tiled_axis = match &spec.tiled_axis {
            None => None,
            Some(cut) => {
                let axis = match (&cut.get_ref().columns_of, &cut.get_ref().rows_of) {
                    (Some(name), None) => (name, graph.column_axis(self.tensor("tiled_axis.columns_of", name)?)),
                    (None, Some(name)) => (name, graph.row_axis(self.tensor("tiled_axis.rows_of", name)?)),
                    _ => {
                        let title = "a tiled axis is along the columns of a tensor or along the rows of a weight";
                        return Err(self.error(cut.span(), title, "expected `columns_of` or `rows_of`"));
                    }
                };
                let (name, Some(axis)) = axis else {
                    let title = format!("the section has no axis along `{}` that can be tiled", axis.0.get_ref());
                    return Err(self.error(axis.0.span(), title, "an operator needs it whole, or none has it"));
                };
                debug_assert!(axis < graph.axes.len(), "{name:?}");
                let tile = count("tiled_axis.tile", &cut.get_ref().tile)?;
                let panels = cut.get_ref().panels.as_ref().map(|of| self.panels(of.get_ref(), graph)).transpose()?;
                Some(TiledAxis { panels, ..TiledAxis::new(axis, graph.axes[axis].extent, tile) })
            }
        };
        let (tile_rows, block_tiles) = (count("tile_rows", &spec.tile_rows)?, count("block_tiles", &spec.block_tiles)?);
        Ok(Nest { rows: graph.rows, tile_rows, block_tiles, tiled_axis, order })
    }

    fn panels(&self, spec: &PanelsSpec, graph: &SectionGraph<'_>) -> Result<Panels, Diagnostic> {
        let name = &spec.columns_of;
        let axis = graph.column_axis(self.tensor("tiled_axis.panels.columns_of", name)?);
        let Some(axis) = axis else {
            let title = format!("the section has no axis along `{}` that can be cut into panels", name.get_ref());
            return Err(self.error(name.span(), title, "an operator needs it whole, or none has it"));
        };
        let width = self.source.count("runs.sections.nest.tiled_axis.panels.width", &spec.width, 1..=1 << 40)?;
        Ok(Panels { axis, extent: graph.axes[axis].extent, width })
    }

    fn pcu(&self, at: &Spanned<[u32; 2]>) -> Result<PcuId, Diagnostic> {
        self.unit(at, &self.chip.grid.pcus, "PCU").map(PcuId::from_index)
    }

    /// The index of the unit at a site, in a row-major list.
    fn unit(&self, at: &Spanned<[u32; 2]>, units: &[Coordinate], what: &str) -> Result<usize, Diagnostic> {
        let [x, y] = *at.get_ref();
        units.binary_search_by_key(&(y, x), |c| (c.y, c.x)).map_err(|_| {
            self.error(at.span(), format!("there is no {what} at [{x}, {y}]"), format!("expected the site of a {what}"))
        })
    }

    fn level(&self, field: &str, word: &Spanned<String>) -> Result<LoopLevel, Diagnostic> {
        let known = [
            LoopLevel::FIRING,
            LoopLevel::ROW_TILE,
            LoopLevel::PANEL_ROW,
            LoopLevel::BLOCK_COLUMN,
            LoopLevel::COLUMN,
            LoopLevel::ONCE,
        ];
        let words = ["firing", "row_tile", "panel_row", "block_column", "column", "once"];
        self.source.keyword(field, word, &words).map(|index| known[index])
    }

    fn buffer(&self, spec: &BufferSpec, graph: &SectionGraph<'_>) -> Result<BufferDraft, Diagnostic> {
        let mains: Vec<&str> =
            graph.stages.iter().map(|stage| self.workload.operators[stage.main].name.as_str()).collect();
        let stage = StageId::from_index(self.source.keyword("runs.sections.buffers.stage", &spec.stage, &mains)?);
        let tensor = self.tensor("runs.sections.buffers.tensor", &spec.tensor)?;
        let role = self.source.keyword("runs.sections.buffers.role", &spec.role, &names::ROLES)?;
        if let Some(slice) = spec.k_slice.as_ref().filter(|_| role != PARTIAL_FIFO) {
            let title = "only a partial-sum FIFO has a `k_slice`";
            return Err(self.error(slice.span(), title, "leave it out, or make it `role = \"partial_fifo\"`"));
        }
        let role = match role {
            0 => BufferRole::Operand { stage, tensor },
            1 => BufferRole::Resident { stage, tensor },
            2 => BufferRole::Weight { stage, tensor },
            3 => BufferRole::PartialSums { stage },
            PARTIAL_FIFO => BufferRole::PartialFifo {
                stage,
                slice: if let Some(slice) = &spec.k_slice {
                    self.source.count("runs.sections.buffers.k_slice", slice, 0..=1 << 40)?
                } else {
                    let title = "a partial-sum FIFO has no `k_slice`";
                    let expected = "expected the slice of K whose partial sums it takes to the next: 0, 1, ...";
                    return Err(self.error(spec.role.span(), title, expected));
                },
            },
            6 => BufferRole::State { stage, tensor },
            _ => BufferRole::Output { tensor, stage },
        };
        let pieces = spec.pieces.get_ref().iter().map(|piece| {
            let parts = piece.get_ref().iter().map(|part| self.part(part.get_ref())).collect::<Result<_, _>>()?;
            Ok(Piece { parts })
        });
        let most = 1 << 60;
        Ok(BufferDraft {
            role,
            level: self.level("runs.sections.buffers.level", &spec.level)?,
            depth: self.source.count("runs.sections.buffers.depth", &spec.depth, 1..=1 << 40)?,
            slot_bytes: self.source.count("runs.sections.buffers.slot_bytes", &spec.slot_bytes, 0..=most)?,
            pieces: pieces.collect::<Result<_, Diagnostic>>()?,
        })
    }

    fn part(&self, spec: &PartSpec) -> Result<Part, Diagnostic> {
        let count =
            |key: &str, value| self.source.count(&format!("runs.sections.buffers.pieces.{key}"), value, 0..=1 << 40);
        Ok(Part {
            pmu: self.unit(&spec.pmu, &self.chip.grid.pmus, "PMU").map(PmuId::from_index)?,
            banks: count("banks", &spec.banks)?,
            read_port: count("read_port", &spec.read_port)?,
            write_port: count("write_port", &spec.write_port)?,
        })
    }

    fn stream(&self, spec: &StreamSpec) -> Result<StreamDraft, Diagnostic> {
        let field = "runs.sections.streams";
        let mut ags = Vec::new();
        for generator in spec.generators.get_ref() {
            let [x, y] = *generator.get_ref().agcu.get_ref();
            let Some(agcu) = self.chip.grid.agcus.iter().position(|agcu| agcu.site == Coordinate { x, y }) else {
                let title = format!("there is no AGCU at [{x}, {y}]");
                return Err(self.error(generator.get_ref().agcu.span(), title, "expected the site of an AGCU"));
            };
            let last = self.chip.grid.agcus[agcu].ags.saturating_sub(1);
            let number = self.source.count(&format!("{field}.generator"), &generator.get_ref().generator, 0..=last)?;
            ags.push((agcu as u32, number as u32));
        }
        Ok(StreamDraft {
            tensor: self.tensor(&format!("{field}.tensor"), &spec.tensor)?,
            writes: self.source.keyword(&format!("{field}.direction"), &spec.direction, &["read", "write"])? == 1,
            level: self.level(&format!("{field}.level"), &spec.level)?,
            ags,
        })
    }

    /// A fault where the file says what is wrong.
    fn refusal(&self, spec: &SectionSpec, fault: Fault) -> Diagnostic {
        let names: Vec<&str> = spec.operators.get_ref().iter().map(|name| name.get_ref().as_str()).collect();
        let title = format!("section `{}`: {}", names.join("+"), fault.title);
        self.error(span_of(spec, fault.place).unwrap_or_else(|| spec.operators.span()), title, fault.expected)
    }
}

/// The bytes of the file that a place of a section stands at.
fn span_of(spec: &SectionSpec, place: Place) -> Option<Range<usize>> {
    let nest = spec.nest.get_ref();
    let stage = |s: StageId| spec.stages.get_ref().get(s.index());
    let buffer = |b: BufferId| spec.buffers.get_ref().get(b.index());
    let stream = |s: StreamId| spec.streams.get_ref().get(s.index());
    let route = |r: FlowId| spec.network.as_ref()?.routes.get_ref().get(r.index());
    match place {
        Place::TileRows => Some(nest.tile_rows.span()),
        Place::BlockTiles => Some(nest.block_tiles.span()),
        Place::Width => nest.tiled_axis.as_ref().map(|cut| cut.get_ref().tile.span()),
        Place::Nest => Some(spec.nest.span()),
        Place::Mapping(s) => stage(s).map(|stage| stage.mapping.span()),
        Place::Section => None,
        Place::Stage(s) => stage(s).map(|stage| stage.operators.span()),
        Place::Pcus(s) => stage(s).map(|stage| stage.pcus.span()),
        Place::Pcu(s, i) => stage(s)?.pcus.get_ref().get(i).map(Spanned::span),
        Place::Buffers => Some(spec.buffers.span()),
        Place::Buffer(b) => buffer(b).map(|buffer| buffer.role.span()),
        Place::Depth(b) => buffer(b).map(|buffer| buffer.depth.span()),
        Place::SlotBytes(b) => buffer(b).map(|buffer| buffer.slot_bytes.span()),
        Place::Pieces(b) => buffer(b).map(|buffer| buffer.pieces.span()),
        Place::Part(b, p, k) => {
            let piece = buffer(b)?.pieces.get_ref().get(p)?;
            Some(piece.get_ref().get(k).map_or(piece.span(), Spanned::span))
        }
        Place::Streams => Some(spec.streams.span()),
        Place::Stream(s) => stream(s).map(|stream| stream.tensor.span()),
        Place::Generator(s, g) => stream(s)?.generators.get_ref().get(g).map(Spanned::span),
        Place::Route(r) => route(r).map(|route| route.get_ref().links.span()),
        Place::Link(r, link) => {
            let paths = route(r)?.get_ref().links.get_ref();
            // A site, then two words a link.
            let mut links = paths.iter().map(|path| path.get_ref().split_whitespace().count() / 2);
            let mut before = 0;
            let path = links.position(|count| {
                before += count;
                before > link
            })?;
            Some(paths[path].span())
        }
    }
}
