//! From a configuration to its map.

use std::collections::BTreeSet;

use rdusim_base::index::Id;
use rdusim_cost::cost::{SectionLoad, section_load};
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_graph::workload::{OperatorId, TensorId, Workload};
use rdusim_program::{
    self as program, Buffer, BufferRole, Configuration, Direction, Fabric, Flow, FlowKind, LoopOrder, Mapping, OffChip,
    Part, Resource, SectionGraph, Stage,
};

use super::entries::{
    ArchEntry, BufferEntry, GeneratorEntry, LinkEntry, Map, MappingEntry, NestEntry, NetworkEntry, PanelsEntry,
    PartEntry, RouteEntry, SCHEMA, Section, Site, StageEntry, StreamEntry, TiledAxisEntry, WorkloadEntry,
};

/// Draws the map of a configuration of `workload` on `chip`.
pub fn summarize(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Map {
    let fabric = Fabric::new(chip);
    let summarizer = Summarizer { chip, workload, fabric: &fabric };
    Map {
        schema: SCHEMA,
        arch: ArchEntry {
            name: chip.name.clone(),
            columns: chip.grid.columns,
            rows: chip.grid.rows,
            pcus: chip.pcus(),
            pmus: chip.pmus(),
            banks_per_pmu: chip.pmu.banks,
            address_generators: chip.grid.ags(),
            links_per_direction: chip.network.links_per_direction,
            flit_bytes: chip.network.flit_bytes,
        },
        workload: WorkloadEntry { name: workload.name.clone() },
        mode: configuration.mode.name(),
        sections: configuration.sections.iter().filter_map(|section| summarizer.section(section)).collect(),
        notes: configuration.notes.clone(),
    }
}

struct Summarizer<'a> {
    chip: &'a Chip,
    workload: &'a Workload,
    fabric: &'a Fabric,
}

impl Summarizer<'_> {
    fn section(&self, section: &program::Section) -> Option<Section> {
        let load = section_load(self.chip, self.workload, self.fabric, section)?;
        let graph = SectionGraph::new(self.workload, &section.operators, section.operators.len() > 1)?;
        let links = self.links(&load);
        let routes = section.flows.iter().zip(&load.flow_flits).map(|(flow, &flits)| self.route(flow, flits));
        Some(Section {
            name: section.name.clone(),
            operators: self.operators(&section.operators),
            bound: load.bound_cycles,
            nest: self.nest(section, &graph),
            stages: section.stages.iter().map(|stage| self.stage(stage)).collect(),
            buffers: section.buffers.iter().map(|buffer| self.buffer(section, buffer)).collect(),
            streams: section.streams.iter().map(|stream| self.stream(stream)).collect(),
            network: self.network(section, &links),
            routes: routes.collect(),
            links,
            run: None,
        })
    }

    fn operators(&self, operators: &[OperatorId]) -> Vec<String> {
        operators.iter().map(|&op| self.workload.operators[op].name.clone()).collect()
    }

    fn tensor(&self, tensor: TensorId) -> String {
        self.workload.tensors[tensor].name.clone()
    }

    fn nest(&self, section: &program::Section, graph: &SectionGraph<'_>) -> NestEntry {
        let nest = section.schedule.nest();
        let tiled_axis = nest.tiled_axis.map(|cut| {
            let along = |axis: usize, axis_of: &dyn Fn(TensorId) -> Option<usize>| {
                self.workload.tensors.ids().filter(|&t| axis_of(t) == Some(axis)).map(|t| self.tensor(t)).collect()
            };
            TiledAxisEntry {
                columns_of: along(cut.axis, &|tensor| graph.column_axis(tensor)),
                rows_of: along(cut.axis, &|tensor| graph.row_axis(tensor)),
                extent: cut.extent,
                tile: cut.tile,
                column_tiles: nest.column_tiles(),
                panels: cut.panels.map(|panels| PanelsEntry {
                    columns_of: along(panels.axis, &|tensor| graph.column_axis(tensor)),
                    extent: panels.extent,
                    width: panels.width,
                    panels: panels.count(),
                }),
            }
        });
        NestEntry {
            rows: nest.rows,
            tile_rows: nest.tile_rows,
            row_tiles: nest.row_tiles(),
            block_tiles: nest.block_tiles,
            blocks: nest.blocks(),
            tiled_axis,
            order: match nest.order {
                LoopOrder::ColumnTileOuter => "column_tile_outer",
                LoopOrder::RowTileOuter => "row_tile_outer",
            },
        }
    }

    fn stage(&self, stage: &Stage) -> StageEntry {
        let operators: Vec<OperatorId> = [stage.spec.main].into_iter().chain(stage.spec.tail.iter().copied()).collect();
        StageEntry {
            operators: self.operators(&operators),
            mapping: match stage.mapping {
                Mapping::Gemm(m) => MappingEntry::Gemm {
                    pm: m.pm,
                    pn: m.pn,
                    pk: m.pk,
                    multicast_width: m.multicast_width,
                    rows_on_lanes: m.rows_on_lanes,
                    aligned: m.aligned,
                    style: m.style,
                },
                Mapping::Simd(m) => MappingEntry::Simd { pm: m.pm, pn: m.pn, chain: m.chain, passes: m.passes },
            },
            level: stage.level.name(),
            k_cut: stage.k_cut,
            n_cut: stage.n_cut,
            pcus: stage.pcus.iter().map(|pcu| site(self.chip.grid.pcus[pcu.index()])).collect(),
            time: None,
        }
    }

    fn buffer(&self, section: &program::Section, buffer: &Buffer) -> BufferEntry {
        let spec = &buffer.spec;
        let (role, tensor, stage) = match spec.role {
            BufferRole::Operand { stage, tensor } => ("operand", tensor, stage),
            BufferRole::Resident { stage, tensor } => ("resident", tensor, stage),
            BufferRole::Weight { stage, tensor } => ("weight", tensor, stage),
            BufferRole::PartialSums { stage } => ("partial_sums", section.stages[stage].spec.output, stage),
            BufferRole::PartialFifo { stage, .. } => ("partial_fifo", section.stages[stage].spec.output, stage),
            BufferRole::State { stage, tensor } => ("state", tensor, stage),
            BufferRole::Output { tensor, stage } => ("output", tensor, stage),
        };
        let part = |part: &Part| PartEntry { pmu: site(self.chip.grid.pmus[part.pmu.index()]), banks: part.banks };
        let pieces: Vec<Vec<PartEntry>> =
            buffer.pieces.iter().map(|piece| piece.parts.iter().map(part).collect()).collect();
        let pmus: BTreeSet<Site> = pieces.iter().flatten().map(|part| part.pmu).collect();
        BufferEntry {
            role,
            tensor: self.tensor(tensor),
            stage: stage.index(),
            k_slice: if let BufferRole::PartialFifo { slice, .. } = spec.role { Some(slice) } else { None },
            level: spec.level.name(),
            depth: spec.depth,
            slices: spec.slices,
            copies: spec.copies,
            slot_bytes: spec.slot_bytes,
            pmus: pmus.len() as u64,
            banks: pieces.iter().flatten().map(|part| part.banks).sum(),
            pieces,
        }
    }

    fn stream(&self, off_chip: &OffChip) -> StreamEntry {
        let stream = &off_chip.stream;
        let generator = |&(agcu, generator): &(u32, u32)| GeneratorEntry {
            agcu,
            site: site(self.chip.grid.agcus[agcu as usize].site),
            generator,
        };
        StreamEntry {
            tensor: self.tensor(stream.tensor),
            direction: if stream.writes { "write" } else { "read" },
            tier: self.chip.memory[off_chip.tier].name.clone(),
            level: stream.level.name(),
            passes: stream.passes,
            bytes: stream.tensor_bytes.saturating_mul(stream.passes),
            generators: off_chip.ags.iter().map(generator).collect(),
        }
    }

    /// Every link that moves flits, in the fabric's order.
    fn links(&self, load: &SectionLoad) -> Vec<LinkEntry> {
        let loaded = load.resource_flits.iter().enumerate().filter(|&(_, &flits)| flits > 0);
        let link = |(resource, &flits): (usize, &u64)| {
            let (from, towards, lane) = self.fabric.link_at(resource as Resource)?;
            Some(LinkEntry { from: site(from), direction: direction(towards), lane, flits })
        };
        loaded.filter_map(link).collect()
    }

    fn network(&self, section: &program::Section, links: &[LinkEntry]) -> NetworkEntry {
        let fullest = links.iter().map(|link| link.flits).max().unwrap_or(0);
        let mut histogram = [0; 10];
        for link in links {
            let tenth = u128::from(link.flits) * 10 / u128::from(fullest.max(1));
            histogram[(tenth as usize).min(9)] += 1;
        }
        let (columns, rows) = (u64::from(self.chip.grid.columns), u64::from(self.chip.grid.rows));
        let pairs = columns.saturating_sub(1) * rows + columns * rows.saturating_sub(1);
        NetworkEntry {
            flows: section.flows.len() as u64,
            links: 2 * pairs * self.chip.network.links_per_direction,
            links_used: links.len() as u64,
            tree_links: section.flows.iter().map(|flow| flow.links).sum(),
            flit_hops: links.iter().map(|link| link.flits).sum(),
            fullest_flits: fullest,
            histogram,
        }
    }

    fn route(&self, flow: &Flow, flits: u64) -> RouteEntry {
        let (kind, stage, stream, buffer) = match flow.kind {
            FlowKind::Fill { stream, buffer } => ("fill", None, Some(stream), Some(buffer)),
            FlowKind::Copy { resident } => ("copy", None, None, Some(resident)),
            FlowKind::Feed { stage, .. } => ("feed", Some(stage), None, None),
            FlowKind::Emit { stage, .. } => ("emit", Some(stage), None, None),
            FlowKind::State { stage, .. } => ("state", Some(stage), None, None),
            FlowKind::PartialRead { stage, .. } | FlowKind::Merge { stage, .. } => {
                ("partial_read", Some(stage), None, None)
            }
            FlowKind::PartialWrite { stage, .. } | FlowKind::Forward { stage, .. } => {
                ("partial_write", Some(stage), None, None)
            }
            FlowKind::Drain { stream } => ("drain", None, Some(stream), None),
        };
        let links = flow.route.iter().filter_map(|&resource| self.fabric.link_at(resource));
        let links = links.map(|(from, towards, lane)| (from.x, from.y, direction(towards), lane)).collect();
        let (stage, stream, buffer) = (stage.map(Id::index), stream.map(Id::index), buffer.map(Id::index));
        RouteEntry { kind, stage, stream, buffer, flits, links }
    }
}

fn site(at: Coordinate) -> Site {
    [at.x, at.y]
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::East => "east",
        Direction::West => "west",
        Direction::South => "south",
        Direction::North => "north",
    }
}
