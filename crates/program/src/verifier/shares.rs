//! Checks of what flows carry together: the shares of those that fill a slice, drain it, feed a PCU or leave one are all
//! of it.

use rustc_hash::FxHashMap;

use crate::buffer::BufferRole;
use crate::configuration::Section;
use crate::fabric::Port;
use crate::flow::{Flow, FlowKind};
use crate::ids::{BufferId, StageId, StreamId};
use crate::mapping::{Mapping, SimdMapping};
use crate::stage::Stage;
use rdusim_base::index::Id;
use rdusim_graph::workload::TensorId;

use super::context::Verifier;
use super::fault::{Fault, Place};
use super::flows::takes_output;
use super::routes::parts;
use super::streams::is_end;

/// How far a sum of shares may be from what it must be: rounding of their quotients.
const ROUNDING: f64 = 1e-6;

/// What flows add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whole {
    /// A slice of a buffer that a stream fills or drains: stream, buffer, slice.
    Slot(StreamId, BufferId, u64),
    /// A slice of a resident copy, in the operand buffer it is copied to: operand buffer, slice.
    Copied(BufferId, u64),
    /// An operand of a PCU: PCU, buffer; no buffer along a chain.
    Operand(usize, Option<BufferId>),
    /// Partial sums that a PCU reads: PCU, buffer.
    Read(usize, BufferId),
    /// Partial sums that a PCU writes: PCU, buffer.
    Written(usize, BufferId),
    /// Results of a PCU: PCU, buffer.
    Result(usize, BufferId),
    /// Results that come into a slice of a buffer: buffer, slice.
    Filled(BufferId, u64),
}

/// Shares of the flows of a section, summed up.
struct Sums<'a> {
    verifier: &'a Verifier<'a>,
    section: &'a Section,
    of: FxHashMap<Whole, f64>,
}

/// All shares of a section.
pub(super) fn check(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let mut sums = Sums { verifier, section, of: FxHashMap::default() };
    for flow in &section.flows {
        sums.add(flow);
    }
    sums.streams()?;
    sums.copies()?;
    for (s, stage) in section.stages.iter_enumerated() {
        match &stage.mapping {
            Mapping::Simd(m) => sums.simd_feeds(s, stage, m)?,
            Mapping::Gemm(_) if stage.spec.sums.is_some() => sums.reduced_feeds(s, stage)?,
            Mapping::Gemm(_) => sums.feeds(s, stage)?,
        }
        sums.partial_sums(s, stage)?;
        sums.state(s, stage)?;
        sums.results(s, stage)?;
    }
    Ok(())
}

impl Sums<'_> {
    fn add(&mut self, flow: &Flow) {
        let share = flow.share.0 as f64 / flow.share.1 as f64;
        let Some((source, sinks, _)) = parts(flow) else { return };
        let fabric = self.verifier.fabric;
        let unit = |resource| match fabric.port_at(resource) {
            Some(Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _)) => pcu.index(),
            _ => usize::MAX,
        };
        let read = flow.reads.map(|end| end.buffer);
        let mut add = |whole| *self.of.entry(whole).or_insert(0.0) += share;
        match (flow.kind, flow.reads, flow.writes) {
            (FlowKind::Fill { stream, .. }, _, Some(end)) | (FlowKind::Drain { stream }, Some(end), _) => {
                add(Whole::Slot(stream, end.buffer, end.slice));
            }
            (FlowKind::Copy { .. }, _, Some(end)) => add(Whole::Copied(end.buffer, end.slice)),
            (FlowKind::Feed { .. }, _, _) => sinks.iter().for_each(|&sink| add(Whole::Operand(unit(sink), read))),
            (FlowKind::PartialRead { .. } | FlowKind::Merge { .. } | FlowKind::State { .. }, Some(end), _) => {
                add(Whole::Read(unit(sinks[0]), end.buffer));
            }
            (FlowKind::PartialWrite { .. } | FlowKind::Forward { .. }, _, Some(end)) => {
                add(Whole::Written(unit(source), end.buffer));
            }
            (FlowKind::Emit { .. }, _, Some(end)) => {
                add(Whole::Result(unit(source), end.buffer));
                add(Whole::Filled(end.buffer, end.slice));
            }
            _ => {}
        }
    }

    fn sum(&self, whole: Whole) -> f64 {
        self.of.get(&whole).copied().unwrap_or(0.0)
    }

    /// Whether flows carry `whole` of something once; `more`: at least, as copies in other parts take the largest.
    fn is_whole(&self, whole: Whole, of: f64, more: bool) -> bool {
        let sum = self.sum(whole) / of;
        sum >= 1.0 - ROUNDING && (more || sum <= 1.0 + ROUNDING)
    }

    fn require(&self, whole: Whole, of: f64, more: bool, what: &str, buffer: BufferId) -> Result<(), Fault> {
        if self.is_whole(whole, of, more) {
            return Ok(());
        }
        let title = format!("flows carry {:.4} of {what}", self.sum(whole) / of);
        Err(Fault::new(Place::Buffer(buffer), title, format!("expected all of it, once: {whole:?}")))
    }

    /// Streams fill and drain every slice.
    fn streams(&self) -> Result<(), Fault> {
        for stream in self.section.streams.ids() {
            for (b, buffer) in self.section.buffers.iter_enumerated() {
                if !is_end(self.verifier, self.section, b, stream) {
                    continue;
                }
                let of = 1.0 / buffer.spec.slices as f64;
                for slice in 0..buffer.spec.slices {
                    let whole = Whole::Slot(stream, b, slice);
                    self.require(whole, of, buffer.spec.copies > 1, "a slice between memory and a buffer", b)?;
                }
            }
        }
        Ok(())
    }

    /// Resident copies come whole into the operand buffers beside the PCUs.
    fn copies(&self) -> Result<(), Fault> {
        for resident in &self.section.buffers {
            let BufferRole::Resident { stage, tensor } = resident.spec.role else { continue };
            let Some(operand) = self.operand(stage, tensor) else { continue };
            for slice in 0..resident.spec.slices {
                let of = 1.0 / resident.spec.slices as f64;
                let more = self.section.buffers[operand].spec.copies > 1;
                self.require(Whole::Copied(operand, slice), of, more, "a slice of a resident copy", operand)?;
            }
        }
        Ok(())
    }

    /// The operand buffer of a stage for a tensor.
    fn operand(&self, stage: StageId, tensor: TensorId) -> Option<BufferId> {
        let role = BufferRole::Operand { stage, tensor };
        self.section.buffers.position(|buffer| buffer.spec.role == role)
    }

    fn buffer(&self, role: BufferRole) -> Option<BufferId> {
        self.section.buffers.position(|buffer| buffer.spec.role == role)
    }

    /// Every PCU of a GEMM is fed all of its part of each operand and of the weight.
    fn feeds(&self, s: StageId, stage: &Stage) -> Result<(), Fault> {
        let operands = stage.spec.activations.iter().filter_map(|&tensor| self.operand(s, tensor));
        let weight = stage.spec.weight.and_then(|tensor| self.buffer(BufferRole::Weight { stage: s, tensor }));
        for buffer in operands.chain(weight) {
            for pcu in &stage.pcus {
                let whole = Whole::Operand(pcu.index(), Some(buffer));
                self.require(whole, 1.0, false, "the operand of a PCU", buffer)?;
            }
        }
        Ok(())
    }

    /// PCUs that add up over rows are fed both operands, or have nothing to do; the first has.
    fn reduced_feeds(&self, s: StageId, stage: &Stage) -> Result<(), Fault> {
        let buffers: Vec<BufferId> = stage.spec.activations.iter().filter_map(|&t| self.operand(s, t)).collect();
        for (i, pcu) in stage.pcus.iter().enumerate() {
            let of = |buffer: BufferId| Whole::Operand(pcu.index(), Some(buffer));
            // A PCU beyond the last row or column of the result is fed one operand at most.
            if i > 0 && buffers.iter().any(|&buffer| self.sum(of(buffer)) < ROUNDING) {
                continue;
            }
            for &buffer in &buffers {
                self.require(of(buffer), 1.0, true, "the operand of a PCU", buffer)?;
            }
        }
        Ok(())
    }

    /// PCUs of a function are fed all of their columns, and what follows in a chain all that comes before.
    fn simd_feeds(&self, s: StageId, stage: &Stage, m: &SimdMapping) -> Result<(), Fault> {
        for &tensor in &stage.spec.activations {
            let Some(buffer) = self.operand(s, tensor) else { continue };
            for (i, j) in (0..m.pm).flat_map(|i| (0..m.pn).map(move |j| (i, j))) {
                let pcu = stage.pcu(0, i, j * m.chain);
                if self.has_columns(s, tensor, m.pn, j) {
                    let whole = Whole::Operand(pcu.index(), Some(buffer));
                    self.require(whole, 1.0, true, "the columns of a PCU", buffer)?;
                }
            }
        }
        let Some(buffer) = stage.spec.activations.first().and_then(|&tensor| self.operand(s, tensor)) else {
            return Ok(());
        };
        for (i, place) in (0..m.pm).flat_map(|i| (0..m.pn * m.chain).map(move |place| (i, place))) {
            if place % m.chain > 0 {
                let whole = Whole::Operand(stage.pcu(0, i, place).index(), None);
                self.require(whole, 1.0, false, "what a PCU of a chain leaves to the next", buffer)?;
            }
        }
        Ok(())
    }

    /// Whether a column slice of a function has columns of an operand, in full column tiles or in the short last one.
    fn has_columns(&self, stage: StageId, tensor: TensorId, pn: u64, slice: u64) -> bool {
        let (nest, graph) = (&self.section.schedule.nest(), self.verifier.graph);
        let output = graph.stages[stage].output;
        let first = graph.stages[stage].activations[0];
        let width = |column_tile| {
            let is_cut = self.verifier.cuts_columns(nest, output);
            if is_cut { self.verifier.columns(nest, first, column_tile) } else { graph.simd_columns(stage) }
        };
        if graph.is_shared(stage, tensor) {
            return true;
        }
        [0, nest.column_tiles() - 1].into_iter().any(|column_tile| {
            let cut = self.verifier.cuts_columns(nest, tensor);
            let columns = if cut { width(column_tile) } else { graph.workload.tensors[tensor].columns };
            let units = graph.units(stage).unwrap_or(width(column_tile)).max(1);
            slice * units.div_ceil(pn) * columns.div_ceil(units) < columns
        })
    }

    /// What the step in a tail reads comes whole to every PCU.
    fn state(&self, s: StageId, stage: &Stage) -> Result<(), Fault> {
        let Some(update) = stage.spec.update else { return Ok(()) };
        let Some(buffer) = self.buffer(BufferRole::State { stage: s, tensor: update.state }) else { return Ok(()) };
        for pcu in &stage.pcus {
            let whole = Whole::Read(pcu.index(), buffer);
            self.require(whole, 1.0, false, "the state that a PCU reads", buffer)?;
        }
        Ok(())
    }

    /// Partial sums leave and come whole: between column tiles, and from one slice of K to the next.
    fn partial_sums(&self, s: StageId, stage: &Stage) -> Result<(), Fault> {
        let (pk, groups) = (stage.mapping.pk(), stage.mapping.groups().max(1));
        let of_group = stage.pcus.len() as u64 / groups;
        for (index, pcu) in (0..).zip(&stage.pcus) {
            let slice = stage.mapping.k_slice(index / of_group.max(1));
            let kept = self.buffer(BufferRole::PartialSums { stage: s });
            let fifo = |slice| self.buffer(BufferRole::PartialFifo { stage: s, slice });
            let forwarded = if slice + 1 < pk { fifo(slice) } else { None };
            let taken = stage.mapping.reduction().before(slice, pk).filter_map(fifo);
            for buffer in kept.into_iter().chain(forwarded) {
                let whole = Whole::Written(pcu.index(), buffer);
                self.require(whole, 1.0, false, "the partial sums that a PCU writes", buffer)?;
            }
            for buffer in kept.into_iter().chain(taken) {
                let whole = Whole::Read(pcu.index(), buffer);
                self.require(whole, 1.0, false, "the partial sums that a PCU reads", buffer)?;
            }
        }
        Ok(())
    }

    /// Every PCU with results leaves all of them in every buffer that takes the output. Row slices beyond the last row
    /// of a row tile have none.
    fn results(&self, s: StageId, stage: &Stage) -> Result<(), Fault> {
        let (pm, wide) = (stage.mapping.pm(), stage.group_width());
        let chain = if let Mapping::Simd(m) = &stage.mapping { m.chain } else { 1 };
        let buffers = self.section.buffers.ids().filter(|&b| takes_output(self.section, b, s));
        for b in buffers {
            if self.sum(Whole::Filled(b, 0)) < ROUNDING {
                let title = format!("no results of `{}` come into slice 0 of a buffer", self.verifier.stage(s));
                return Err(Fault::new(Place::Buffer(b), title, "expected those of the first rows"));
            }
            for group in (0..stage.mapping.groups()).filter(|&group| !stage.mapping.forwards_sums(group)) {
                for q in 0..wide {
                    let of = |i: u64| Whole::Result(stage.pcu(group, i, q * chain + chain - 1).index(), b);
                    let mut rows: Vec<u64> = (0..pm).collect();
                    if stage.spec.sums.is_none() {
                        while rows.len() > 1 && rows.last().is_some_and(|&i| self.sum(of(i)) < ROUNDING) {
                            rows.pop();
                        }
                    }
                    for i in rows {
                        // A short last row tile is dealt again: a PCU may leave rows to other slices then, by more flows.
                        self.require(of(i), 1.0, true, "the results of a PCU", b)?;
                    }
                }
            }
        }
        Ok(())
    }
}
