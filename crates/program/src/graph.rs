//! The part of the operator graph that one section runs: its stages, its axes, and whether it can be one pipeline.

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Chip;
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{GemmForm, OperatorId, OperatorKind, Tensor, TensorId, TensorRole, Workload};

use super::ids::StageId;
use super::joined_axes::{JoinedAxes, Joining};
use super::key_axis::KeyAxis;
use super::mapping::{GemmMapping, MOST_GATHERED_COLUMNS, Reduction};
use super::nest::TiledAxis;
use super::row_reduction::{Sums, Update, adds_up, streamed_rows, update_of};
use super::sequence::{SequenceRead, may_be_made_here, sequence_read};

/// One stage: a main operator and the elementwise functions that run in its tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageSpec {
    /// The operator that gives the stage its shape.
    pub main: OperatorId,
    /// Elementwise functions of its result, in order, computed in the PCU tail.
    pub tail: Vec<OperatorId>,
    /// Activations that are consumed row tile by row tile.
    pub activations: Vec<TensorId>,
    /// The GEMM's second operand, held or streamed as weights.
    pub weight: Option<TensorId>,
    /// The tensor the stage emits.
    pub output: TensorId,
    /// The rows of its two activations that a GEMM adds up; `None` if it passes rows on.
    pub sums: Option<Sums>,
    /// The optimiser's step that it does on its sums when they are complete, the last of its tail; `None` if it leaves the sums.
    pub update: Option<Update>,
    /// How it reads its second operand if another stage makes it; `None` from off chip.
    pub sequence: Option<SequenceRead>,
}

/// Operators of one section, seen as a pipeline over the rows they share.
#[derive(Debug, Clone)]
pub struct SectionGraph<'a> {
    /// The whole graph.
    pub workload: &'a Workload,
    /// The operators of the section, in topological order.
    pub operators: Vec<OperatorId>,
    /// Stages, in topological order.
    pub stages: IndexVec<StageId, StageSpec>,
    /// Rows that every activation has.
    pub rows: u64,
    /// Column axes that may be cut into column tiles.
    pub axes: Vec<Axis>,
    /// The tensors that the operators use, by their ids: the search asks often. Nothing here is as long as the whole graph: of
    /// thousands of operators, each may be a section.
    uses: Vec<TensorUse>,
    /// Groups of rows that have weights of their own in some stage.
    sequences: u64,
}

/// How a section uses a tensor.
#[derive(Debug, Clone, Copy)]
struct TensorUse {
    tensor: TensorId,
    /// Axes along its columns and its rows.
    axes: [Option<usize>; 2],
    /// The stage that emits it.
    producer: Option<StageId>,
    /// Made here, it must also leave the chip.
    leaves: bool,
}

/// A column axis shared by tensors of the section (for example the FFN width).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Length in elements.
    pub extent: u64,
    /// Column tile widths should be multiples of this (block size of a mask along the axis).
    pub grain: u64,
    /// The attention whose keys it is, if it is one of keys.
    pub keys: Option<KeyAxis>,
}

impl<'a> SectionGraph<'a> {
    /// Builds the pipeline of `operators`; `None` when they cannot be one row-wise pipeline: rows differ, a tensor that is
    /// read in another shape is made inside the section, or a GEMM's second operand is, but not as keys and values are
    /// ([`may_be_made_here`]), sequences differ, or the operators are not repeated together. GEMMs that add up over the
    /// rows ([`adds_up`]) end the pipeline: what they make is complete when it is over. A step of an optimiser may run in the
    /// tail of such a GEMM ([`update_of`]), though it is of another phase.
    pub fn new(workload: &'a Workload, operators: &[OperatorId], fold_tails: bool) -> Option<Self> {
        let rows = streamed_rows(workload, operators);
        let made_here = |tensor: TensorId| operators.iter().any(|&op| workload.operators[op].output == tensor);
        let first = &workload.operators[operators[0]];
        let mut sequences = None;
        for &op in operators {
            let operator = &workload.operators[op];
            let of_gradient = operators
                .iter()
                .filter(|_| operator.is_step())
                .find(|&&sum| update_of(workload, operators, sum, rows).is_some_and(|u| u.operator == op));
            if let Some(&sum) = of_gradient {
                let gradient = &workload.operators[sum];
                if !fold_tails
                    || (operator.block, operator.repeat, operator.every)
                        != (gradient.block, gradient.repeat, gradient.every)
                {
                    return None;
                }
                continue;
            }
            if (operator.block, operator.phase) != (first.block, first.phase) {
                return None;
            }
            let instances = operator.form.map_or(1, |form| form.instances);
            if instances > 1 && *sequences.get_or_insert(instances) != instances {
                return None;
            }
            if adds_up(workload, operators, op, rows).is_some() {
                continue;
            }
            if workload.tensors[operator.output].rows != rows {
                return None;
            }
            if operator.inputs.iter().any(|&input| workload.tensors[input].view.is_some_and(|v| made_here(v.base))) {
                return None;
            }
            let is_second_made = operator.kind == OperatorKind::Gemm && made_here(operator.inputs[1]);
            if is_second_made && !may_be_made_here(workload, op, rows) {
                return None;
            }
        }
        let stages = stages(workload, operators, rows, fold_tails);
        let mut graph = Self {
            workload,
            operators: operators.to_vec(),
            stages,
            rows,
            axes: Vec::new(),
            uses: Vec::new(),
            sequences: 1,
        };
        graph.sequences = graph.stages.ids().filter_map(|s| graph.form(s)).map(|f| f.instances).max().unwrap_or(1);
        graph.uses = graph.tensors_in_use();
        graph.find_axes();
        Some(graph)
    }

    /// The chunkable axis along a tensor's columns.
    #[inline]
    pub fn column_axis(&self, tensor: TensorId) -> Option<usize> {
        self.axes_of(tensor)[0]
    }

    /// The chunkable axis along a weight's rows.
    pub fn row_axis(&self, tensor: TensorId) -> Option<usize> {
        self.axes_of(tensor)[1]
    }

    fn axes_of(&self, tensor: TensorId) -> [Option<usize>; 2] {
        self.use_of(tensor).map_or([None; 2], |of| of.axes)
    }

    fn use_of(&self, tensor: TensorId) -> Option<&TensorUse> {
        self.uses.binary_search_by_key(&tensor, |of| of.tensor).ok().map(|at| &self.uses[at])
    }

    /// The stage that emits a tensor.
    #[inline]
    pub fn producer(&self, tensor: TensorId) -> Option<StageId> {
        self.use_of(tensor)?.producer
    }

    /// Whether the output of a stage must also leave the chip.
    pub fn leaves_section(&self, tensor: TensorId) -> bool {
        self.use_of(tensor).is_some_and(|of| of.leaves)
    }

    fn is_wanted_outside(&self, tensor: TensorId) -> bool {
        self.workload.tensors[tensor].role == TensorRole::Output
            || self.workload.consumers(tensor).any(|op| !self.operators.contains(&op))
    }

    /// Whether a stage is a GEMM.
    pub fn is_gemm(&self, stage: StageId) -> bool {
        self.stages[stage].weight.is_some() || self.stages[stage].sums.is_some()
    }

    /// The stage that adds up over rows for which a slot of a tensor is a part of its result: of what it makes, or of what the
    /// step in its tail reads; with the columns of the tensor for so many of the result's.
    pub fn summed(&self, tensor: TensorId) -> Option<(StageId, (u64, u64))> {
        self.stages.iter_enumerated().filter(|(_, stage)| stage.sums.is_some()).find_map(|(s, stage)| {
            match stage.update {
                Some(update) if update.state == tensor => Some((s, (update.state_columns, update.word))),
                Some(update) if stage.output == tensor => Some((s, (update.result_columns, update.word))),
                None if stage.output == tensor => Some((s, (1, 1))),
                _ => None,
            }
        })
    }

    /// The tensor that a stage's main operator makes: of a stage with a step in its tail, the gradient.
    pub fn main_output(&self, stage: StageId) -> TensorId {
        self.workload.operators[self.stages[stage].main].output
    }

    /// Functions that the tail of a stage's PCUs does for each element of every output tile; a step of an optimiser is left out.
    pub fn tail_functions(&self, stage: StageId) -> u64 {
        let spec = &self.stages[stage];
        (spec.tail.len() - usize::from(spec.update.is_some())) as u64
    }

    /// The same with the step, which is as many functions as it has pipeline stages: of the output tiles whose sums are complete.
    pub fn last_functions(&self, chip: &Chip, stage: StageId) -> u64 {
        let of = |update: Update| {
            let kind = self.workload.operators[update.operator].kind;
            chip.pcu.simd_stages.get(kind.name()).copied().unwrap_or_else(|| kind.assumed_simd_stages()).max(1)
        };
        self.tail_functions(stage) + self.stages[stage].update.map_or(0, of)
    }

    /// Shape of a stage's GEMM if it is one product for every head or sequence.
    pub fn form(&self, stage: StageId) -> Option<GemmForm> {
        self.workload.operators[self.stages[stage].main].form
    }

    /// Groups of rows that have weights of their own in some stage.
    pub fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Columns a SIMD stage works through: the wider of its operands and its result.
    pub fn simd_columns(&self, stage: StageId) -> u64 {
        let spec = &self.stages[stage];
        let columns = |&tensor: &TensorId| self.workload.tensors[tensor].columns;
        spec.activations.iter().chain([&spec.output]).map(columns).max().unwrap_or(1)
    }

    /// Groups of columns that a SIMD stage takes whole: heads, rows, or the elements that share a word of an optimiser's
    /// result; `None` where every column stands for itself.
    pub fn units(&self, stage: StageId) -> Option<u64> {
        let spec = &self.stages[stage];
        let operator = &self.workload.operators[spec.main];
        match operator.kind {
            OperatorKind::Gemm => None,
            OperatorKind::AdamUpdate => {
                let gradient = &self.workload.tensors[operator.inputs[0]];
                let in_a_word = (Dtype::Fp32.bytes() / gradient.dtype.bytes()).max(1);
                // A row whose last word is not full is not cut, as its words are not equal.
                Some(if gradient.columns.is_multiple_of(in_a_word) { gradient.columns / in_a_word } else { 1 })
            }
            kind if kind.is_row_wise() => Some(operator.heads.max(1)),
            _ => None,
        }
    }

    /// Whether every column slice of a SIMD stage takes all columns of a tensor: what its heads share.
    pub fn is_shared(&self, stage: StageId, tensor: TensorId) -> bool {
        let operator = &self.workload.operators[self.stages[stage].main];
        operator.inputs.iter().position(|&input| input == tensor).is_some_and(|at| operator.kind.shares_input(at))
    }

    /// Whether they take the same of it in the same order, so that one multicast feeds them: heads of one group.
    pub fn is_common(&self, stage: StageId, tensor: TensorId) -> bool {
        self.is_shared(stage, tensor) && self.workload.operators[self.stages[stage].main].options.kv_heads <= 1
    }

    /// Bytes of the largest tensor that an elementwise section moves off chip; 0 if the section multiplies matrices.
    pub fn largest_off_chip_bytes(&self) -> u64 {
        if self.stages.iter().any(|stage| self.workload.operators[stage.main].kind == OperatorKind::Gemm) {
            return 0;
        }
        let inputs = self.stages.iter().flat_map(|s| s.activations.iter().chain(&s.weight));
        let states = self.stages.iter().filter_map(|s| s.update).map(|update| update.state);
        let read = inputs.copied().chain(states).filter(|&t| self.producer(t).is_none());
        let written = self.stages.iter().map(|s| s.output).filter(|&t| self.leaves_section(t));
        read.chain(written).map(|t| self.workload.tensors[t].stored_bytes()).max().unwrap_or(0)
    }

    /// Mask of a stage's weight.
    pub fn mask(&self, stage: StageId) -> Option<&BlockMask> {
        self.stages[stage].weight.and_then(|w| self.workload.tensors[w].mask.as_deref())
    }

    /// Mask of the result of a GEMM that is the gradient of a sparse weight: only what is stored of it is computed.
    #[inline]
    pub fn sampled(&self, stage: StageId) -> Option<&BlockMask> {
        let spec = &self.stages[stage];
        let is_plain = spec.weight.is_some() && self.mask(stage).is_none() && self.form(stage).is_none();
        let output = &self.workload.tensors[self.workload.operators[spec.main].output];
        output.mask.as_deref().filter(|_| is_plain)
    }

    /// Kind of a stage's main operator.
    pub fn kind(&self, stage: StageId) -> OperatorKind {
        self.workload.operators[self.stages[stage].main].kind
    }

    /// Element type of a tensor.
    pub fn dtype(&self, tensor: TensorId) -> Dtype {
        self.workload.tensors[tensor].dtype
    }

    /// Lanes of a PCU in the section's data types, at most.
    pub fn widest_lanes(&self, chip: &Chip) -> u64 {
        let of_stage = |stage: StageId| chip.pcu.lanes.get(&self.stage_dtype(stage)).copied();
        self.stages.ids().filter_map(of_stage).max().unwrap_or(1)
    }

    /// The type a stage computes in: that of its first operand.
    pub fn stage_dtype(&self, stage: StageId) -> Dtype {
        self.dtype(self.stages[stage].activations[0])
    }

    /// Whether a cut runs along the K axis of a GEMM stage, so that it accumulates over column tiles.
    pub fn is_k_cut(&self, tiled_axis: Option<TiledAxis>, stage: StageId) -> bool {
        let spec = &self.stages[stage];
        tiled_axis.is_some_and(|c| spec.weight.is_some() && self.column_axis(spec.activations[0]) == Some(c.axis))
    }

    /// Whether a stage's K may be split over PCUs so: that of a plain GEMM. Where column tiles cut it, every slice keeps its own sums
    /// from one to the next, and those of all come together in a tree, in the last.
    pub fn may_split_k(&self, tiled_axis: Option<TiledAxis>, stage: StageId, reduction: Reduction) -> bool {
        let spec = &self.stages[stage];
        spec.weight.is_some()
            && spec.sums.is_none()
            && self.form(stage).is_none()
            && (!self.is_k_cut(tiled_axis, stage) || reduction == Reduction::Tree && self.sampled(stage).is_none())
            && self.workload.tensors[spec.activations[0]].window().is_none()
    }

    /// Whether a mapping may gather the rows of a stage: those of a sparse weight, along the lanes, into no more columns than
    /// [`MOST_GATHERED_COLUMNS`].
    pub fn may_gather(&self, chip: &Chip, stage: StageId, mapping: &GemmMapping) -> bool {
        let columns = mapping.multicast_width.saturating_mul(chip.pcu.stages);
        self.mask(stage).is_some() && mapping.rows_on_lanes && columns <= MOST_GATHERED_COLUMNS
    }

    /// Lines of a PCU array that a row of a GEMM takes: heads that share a head of the second operand stand side by side as rows do.
    pub fn lines_of_row(&self, stage: StageId) -> u64 {
        let form = self.form(stage).filter(|_| self.stages[stage].sums.is_none());
        form.map_or(1, |form| form.heads / form.b_heads)
    }

    /// K rows that slices of K should be multiples of: those of a block of the weight's mask.
    pub fn k_grain(&self, stage: StageId) -> u64 {
        self.mask(stage).map_or(1, BlockMask::block_rows)
    }

    /// Slices that a stage's K can be split into: one for each block of rows of its weight, in every column tile.
    pub fn most_k_slices(&self, tiled_axis: Option<TiledAxis>, stage: StageId) -> u64 {
        let rows = |weight: TensorId| match tiled_axis.filter(|_| self.is_k_cut(tiled_axis, stage)) {
            Some(cut) => cut.extent - (cut.extent - 1) / cut.tile * cut.tile,
            None => self.workload.tensors[weight].rows,
        };
        self.stages[stage].weight.map_or(1, |weight| rows(weight).div_ceil(self.k_grain(stage)))
    }

    /// Longest distance in stages from a producer (`None`: off chip) to stage `to`.
    pub fn distance(&self, from: Option<StageId>, to: StageId) -> u64 {
        let first = from.map_or(0, |from| from.index() + 1);
        // Of stages from the first behind `from`, in topological order; 0 where no path leads.
        let mut longest = vec![0u64; (to.index() + 1).saturating_sub(first)];
        for at in first..=to.index() {
            let spec = &self.stages[StageId::from_index(at)];
            let second = spec.weight.iter().filter(|_| spec.sequence.is_some());
            let of = |&tensor: &TensorId| {
                let producer = self.producer(tensor);
                let before = producer.filter(|p| p.index() >= first).map_or(0, |p| longest[p.index() - first]);
                if producer == from { 1 } else { before + u64::from(before > 0) }
            };
            longest[at - first] = spec.activations.iter().chain(second).map(of).max().unwrap_or(0);
        }
        longest.last().copied().unwrap_or(0)
    }

    /// The tensors that the operators use, each once, in the order of their ids.
    fn tensors_in_use(&self) -> Vec<TensorUse> {
        let mut list: Vec<TensorId> = Vec::new();
        for &op in &self.operators {
            let operator = &self.workload.operators[op];
            list.extend(operator.inputs.iter().chain([&operator.output]));
            list.extend(adds_up(self.workload, &self.operators, op, self.rows).into_iter().flatten());
        }
        list.sort_unstable();
        list.dedup();
        let mut emitted: Vec<(TensorId, StageId)> =
            self.stages.iter_enumerated().map(|(s, of)| (of.output, s)).collect();
        emitted.sort_unstable();
        let of_tensor = |tensor| {
            let producer = emitted.binary_search_by_key(&tensor, |of| of.0).ok().map(|at| emitted[at].1);
            let leaves = producer.is_some() && self.is_wanted_outside(tensor);
            TensorUse { tensor, axes: [None; 2], producer, leaves }
        };
        list.into_iter().map(of_tensor).collect()
    }

    /// Sequences that must be complete, one after the other, before each stage can begin: second operands of which it, or a
    /// stage before it, reads all rows. What passes these by has to be held for as many sequences.
    pub fn complete_before(&self) -> IndexVec<StageId, u64> {
        let mut complete: IndexVec<StageId, u64> = IndexVec::new();
        for spec in &self.stages {
            let of = |tensor| self.producer(tensor).and_then(|producer| complete.get(producer)).copied().unwrap_or(0);
            let before = spec.activations.iter().map(|&tensor| of(tensor)).max().unwrap_or(0);
            let behind = spec.sequence.zip(spec.weight).map(|(read, weight)| of(weight) + u64::from(!read.is_prefix));
            complete.push(before.max(behind.unwrap_or(0)));
        }
        complete
    }

    /// Column axes joined by the operators; axes that some operator needs whole are left out.
    fn find_axes(&mut self) {
        let section = Joining { workload: self.workload, operators: &self.operators, rows: self.rows };
        let mut joined = JoinedAxes::new(section, self.uses.iter().map(|of| of.tensor).collect());
        for &op in &self.operators {
            if !self.stages.iter().any(|stage| stage.update.is_some_and(|update| update.operator == op)) {
                joined.join(section, op);
            }
        }
        let is_cut = joined.settle(self.workload);
        let tensors = joined.in_use.len();
        let mut axis_of_root: Vec<Option<usize>> = vec![None; 2 * tensors];
        for node in (0..2 * tensors).filter(|&node| is_cut[node]) {
            let root = joined.sets.find(node);
            let tensor = &self.workload.tensors[joined.in_use[node % tensors]];
            let (extent, block) = length_and_block(tensor, node >= tensors);
            let axis = *axis_of_root[root].get_or_insert_with(|| {
                let is_along = |keys: &&KeyAxis| joined.sets.find(joined.place(keys.along)) == root;
                let keys = joined.keys.iter().find(is_along).cloned();
                let extent = keys.as_ref().map_or(extent, |keys| keys.extent);
                self.axes.push(Axis { extent, grain: 1, keys });
                self.axes.len() - 1
            });
            let grain = self.axes[axis].grain;
            self.axes[axis].grain = lcm(grain, block.unwrap_or(1));
            self.uses[node % tensors].axes[node / tensors] = Some(axis);
        }
        self.cut_steps();
    }

    /// What a step in a tail reads and makes is cut as the gradient is, between words.
    fn cut_steps(&mut self) {
        for stage in &self.stages {
            let Some(update) = stage.update else { continue };
            let of_gradient = self.axes_of(self.workload.operators[stage.main].output);
            if let [Some(columns), _] = of_gradient {
                self.axes[columns].grain = lcm(self.axes[columns].grain, update.word);
            }
            for tensor in [update.state, stage.output] {
                let at = self.uses.partition_point(|other| other.tensor < tensor);
                self.uses[at].axes = of_gradient;
            }
        }
    }
}

/// Elements along the columns of a tensor, or its rows, and of a block of its mask.
fn length_and_block(tensor: &Tensor, is_rows: bool) -> (u64, Option<u64>) {
    let mask = tensor.mask.as_ref();
    if is_rows {
        (tensor.rows, mask.map(|m| m.block_rows()))
    } else {
        (tensor.columns, mask.map(|m| m.block_columns()))
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Groups operators into stages; with `fold_tails`, unary functions of a GEMM's only use go into its tail.
fn stages(workload: &Workload, operators: &[OperatorId], rows: u64, fold_tails: bool) -> IndexVec<StageId, StageSpec> {
    let mut stages: IndexVec<StageId, StageSpec> = IndexVec::new();
    for &op in operators {
        let operator = &workload.operators[op];
        let updates = |stage: &StageSpec| stage.update.is_some_and(|update| update.operator == op);
        if let Some(stage) = stages.position(updates) {
            stages[stage].tail.push(op);
            stages[stage].output = operator.output;
            continue;
        }
        let folds_into = stages.position(|stage| {
            fold_tails
                && operator.kind.folds_into_a_tail()
                && stage.output == operator.inputs[0]
                && workload.operators[stage.main].kind == OperatorKind::Gemm
                && stage.update.is_none()
                && workload.tensors[stage.output].role != TensorRole::Output
                && workload.consumers(stage.output).count() == 1
        });
        if let Some(stage) = folds_into {
            stages[stage].tail.push(op);
            stages[stage].output = operator.output;
            continue;
        }
        if let Some(activations) = adds_up(workload, operators, op, rows) {
            let blocks = operator.form.is_some_and(|form| form.instances > 1);
            let sums = Some(if blocks { Sums::Block } else { Sums::Section });
            let (activations, output) = (activations.to_vec(), operator.output);
            let update = update_of(workload, operators, op, rows);
            stages.push(StageSpec {
                main: op,
                tail: Vec::new(),
                activations,
                weight: None,
                output,
                sums,
                update,
                sequence: None,
            });
            continue;
        }
        let is_gemm = operator.kind == OperatorKind::Gemm;
        let mut activations = if is_gemm { vec![operator.inputs[0]] } else { operator.inputs.clone() };
        activations.dedup();
        stages.push(StageSpec {
            main: op,
            tail: Vec::new(),
            activations,
            weight: is_gemm.then(|| operator.inputs[1]),
            output: operator.output,
            sums: None,
            update: None,
            sequence: sequence_read(workload, operators, op),
        });
    }
    stages
}
