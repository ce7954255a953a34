//! GEMMs that add up over the rows a section streams: the gradient of a weight, X^T dY, and of keys and values, head by
//! head. Such a stage takes the tokens of X and dY that other stages work on, keeps its sums in PMUs, and its result
//! leaves when the last row has passed: of the section, or of a sequence.

use std::ops::Range;

use crate::arch::Chip;
use crate::index::Id;
use crate::workload::{CausalAxis, GemmForm, OperatorId, OperatorKind, TensorId, Workload};

use super::allocate::{Candidate, useful_splits};
use super::buffers::{StageExtents, StageRoles};
use super::candidates::{StageBases, stretch};
use super::mapping::{GemmMapping, Mapping, PassWork, Style, SystolicShape};
use super::nest::{Cadence, Chunking, LoopOrder, Nest, Step};
use super::section_graph::SectionGraph;

/// The rows that a stage adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sums {
    /// All rows of the section.
    Section,
    /// Those of a row block: of a sequence.
    Block,
}

impl Sums {
    /// How often a result is complete, for a stage along the cut or off it.
    pub fn cadence(self, along_cut: bool) -> Cadence {
        match self {
            Self::Block => Cadence::BlockChunk,
            Self::Section if along_cut => Cadence::Chunk,
            Self::Section => Cadence::Once,
        }
    }

    /// Whether a token is the first that is added up, and whether it is the last.
    pub fn ends(self, nest: &Nest, at: Step) -> (bool, bool) {
        let rows = match self {
            Self::Section => 0..nest.tokens(),
            Self::Block => nest.block_range(at.block),
        };
        (at.token == rows.start, at.token + 1 == rows.end)
    }

    /// Results that are complete in the course of the section, for every chunk.
    pub fn groups(self, nest: &Nest) -> u64 {
        if self == Self::Block { nest.blocks() } else { 1 }
    }

    /// Slots that hold the sums under way.
    pub fn depth(self, nest: &Nest, along_cut: bool) -> u64 {
        let passes_once = nest.order == LoopOrder::ChunkOuter && nest.blocks() == 1;
        if self == Self::Section && along_cut && !passes_once { nest.chunks() } else { 1 }
    }
}

/// The operands X and dY of a GEMM that adds up over the `rows` rows that the others of a section stream; `None` if it
/// does not. What is read off chip alone, and by nobody else here, may as well be streamed the other way.
pub fn adds_up(workload: &Workload, operators: &[OperatorId], op: OperatorId, rows: u64) -> Option<[TensorId; 2]> {
    let operator = &workload.operators[op];
    if operators.len() < 2 || operator.kind != OperatorKind::Gemm || !operator.options.transpose_a {
        return None;
    }
    let &[a, b] = operator.inputs.as_slice() else { return None };
    let view = workload.tensors[a].view?;
    let x = view.base;
    let tensors = [x, b, operator.output].map(|t| &workload.tensors[t]);
    let is_plain = view.of == x && view.window.is_none() && view.transposed && x != b;
    let has_rows = tensors[0].rows == rows && tensors[1].rows == rows;
    if !is_plain || !has_rows || tensors[1].view.is_some() || tensors.iter().any(|t| t.mask.is_some()) {
        return None;
    }
    let mut wanted = false;
    let mut made = false;
    for other in operators.iter().filter(|&&other| other != op).map(|&other| &workload.operators[other]) {
        if other.inputs.iter().any(|&input| workload.base(input) == operator.output) {
            return None;
        }
        made |= other.output == x || other.output == b;
        let turned = other.kind == OperatorKind::Gemm && other.options.transpose_a;
        wanted |= !turned && (other.inputs.contains(&x) || other.inputs.contains(&b));
    }
    (made || wanted || tensors[2].rows != rows).then_some([x, b])
}

/// Rows of the pipeline that operators make: those of the first that adds nothing up.
pub fn streamed_rows(workload: &Workload, operators: &[OperatorId]) -> u64 {
    let turned = |op: &&OperatorId| {
        let operator = &workload.operators[**op];
        operator.kind == OperatorKind::Gemm && operator.options.transpose_a
    };
    let first = operators.iter().find(|op| !turned(op)).unwrap_or(&operators[0]);
    workload.tensors[workload.operators[*first].output].rows
}

/// Pairs of tensors, of those a section uses, that an elementwise operator anywhere in the graph ties column by column:
/// what the forward phase left behind is cut where its gradient is.
pub fn tied_columns(workload: &Workload, used: &[bool]) -> Vec<(TensorId, TensorId)> {
    let mut ties = Vec::new();
    for operator in &workload.operators {
        if operator.kind == OperatorKind::Gemm || operator.kind.is_row_wise() || !used[operator.output.index()] {
            continue;
        }
        let of = &workload.tensors[operator.output];
        for &input in &operator.inputs {
            let tensor = &workload.tensors[input];
            if used[input.index()] && (tensor.rows, tensor.columns) == (of.rows, of.columns) && tensor.view.is_none() {
                ties.push((operator.output, input));
            }
        }
    }
    ties
}

/// A stage that adds up over rows, in its nest and mapping. Rows and columns are those of its result.
#[derive(Debug, Clone, Copy)]
pub struct Reducer {
    /// Rows and columns of a head's result, heads, and heads of the operands that are added up in each.
    m: u64,
    n: u64,
    heads: u64,
    group: u64,
    /// Cut along the rows, or the columns.
    row_cut: Option<Chunking>,
    column_cut: Option<Chunking>,
    /// Rows that a mean token of causal attention adds to.
    reached: Option<u64>,
    mapping: GemmMapping,
    row_grain: u64,
    column_grain: u64,
}

impl Reducer {
    /// Stage `stage` of a section in the array shape of its mapping; `None` if it adds nothing up.
    pub fn new(
        graph: &SectionGraph<'_>,
        chunking: Option<Chunking>,
        token_rows: u64,
        stage: usize,
        mapping: &GemmMapping,
        shape: &SystolicShape,
    ) -> Option<Self> {
        let spec = &graph.stages[stage];
        spec.sums?;
        let tensors = &graph.workload.tensors;
        let along = |axis: Option<usize>| chunking.filter(|cut| axis == Some(cut.axis));
        let (x, dy) = (*spec.activations.first()?, *spec.activations.get(1)?);
        let mut reducer = Self {
            m: tensors[x].columns,
            n: tensors[dy].columns,
            heads: 1,
            group: 1,
            row_cut: along(graph.column_axis(x)),
            column_cut: along(graph.column_axis(dy)),
            reached: None,
            mapping: *mapping,
            row_grain: shape.row_grain,
            column_grain: shape.column_grain,
        };
        if let Some(form) = graph.form(stage) {
            let rows = (graph.rows / form.instances).max(1);
            (reducer.m, reducer.n, reducer.heads, reducer.group) = (form.m, form.n, form.heads, (form.k / rows).max(1));
            // Row slices of PCUs go on in step: the first has keys in every token.
            if form.causal.is_some() && mapping.pm == 1 {
                let pairs = GemmForm { m: rows, n: form.m, causal: Some(CausalAxis::Columns), ..form };
                reducer.reached = Some(pairs.mean_causal_extent(token_rows, shape.row_grain));
            }
        }
        Some(reducer)
    }

    /// Columns of PCUs that share a stream of heads.
    fn each(&self) -> u64 {
        self.mapping.pn / self.mapping.streams
    }

    /// Rows of the result that a chunk makes.
    pub fn rows(&self, chunk: u64) -> Range<u64> {
        range(self.row_cut, chunk, self.m)
    }

    /// Columns of a head's result that a chunk makes.
    pub fn columns(&self, chunk: u64) -> Range<u64> {
        range(self.column_cut, chunk, self.n)
    }

    /// Heads of the operands for each of the result.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// Rows and columns of one head's operands.
    pub fn widths(&self) -> (u64, u64) {
        (self.m, self.n)
    }

    /// Rows of the result that row slice `i` of the PCUs makes.
    pub fn rows_of(&self, chunk: u64, i: u64) -> Range<u64> {
        slice(self.rows(chunk), self.mapping.pm, self.row_grain, i)
    }

    /// Columns, of each of its heads, that PCU column `q` makes.
    pub fn columns_of(&self, chunk: u64, q: u64) -> Range<u64> {
        slice(self.columns(chunk), self.each(), self.column_grain, q % self.each())
    }

    /// Heads of the result that PCU column `q` makes.
    pub fn heads_of(&self, q: u64) -> Range<u64> {
        let each = self.heads.div_ceil(self.mapping.streams);
        let stream = q / self.each();
        (stream * each).min(self.heads)..((stream + 1) * each).min(self.heads)
    }

    /// Columns of an operand, counted from the chunk's first, that a PCU takes: of X by its rows of the result, of dY by
    /// its columns.
    pub fn wanted(&self, chunk: u64, operand: usize, (i, q): (u64, u64)) -> Vec<Range<u64>> {
        let (width, whole, part) = if operand == 0 {
            (self.m, self.rows(chunk), self.rows_of(chunk, i))
        } else {
            (self.n, self.columns(chunk), self.columns_of(chunk, q))
        };
        let heads = self.heads_of(q);
        let heads = heads.start * self.group..heads.end * self.group;
        let runs = heads.map(|head| head * width + part.start - whole.start..head * width + part.end - whole.start);
        runs.filter(|run| run.start < run.end).collect()
    }

    /// Columns of an operand in a chunk.
    pub fn width(&self, chunk: u64, operand: usize) -> u64 {
        let of_head = if operand == 0 { self.rows(chunk) } else { self.columns(chunk) };
        self.heads * self.group * (of_head.end - of_head.start)
    }

    /// Row passes of the busiest PCU in a token of a chunk.
    pub fn passes(&self, chunk: u64) -> u64 {
        let rows = self.rows(chunk);
        let rows = self.reached.unwrap_or(rows.end - rows.start);
        rows.div_ceil(self.row_grain).div_ceil(self.mapping.pm)
    }

    /// Tiles of a row pass of the busiest PCU.
    pub fn tiles(&self, chunk: u64) -> u64 {
        let (heads, columns) = (self.heads_of(0), self.columns(chunk));
        (heads.end - heads.start) * (columns.end - columns.start).div_ceil(self.column_grain).div_ceil(self.each())
    }

    /// Most useful row slices and columns of PCUs.
    pub fn most_splits(&self) -> (u64, u64) {
        let (rows, columns) = (self.rows(0), self.columns(0));
        let tiles = (columns.end - columns.start).div_ceil(self.column_grain);
        ((rows.end - rows.start).div_ceil(self.row_grain), self.heads * tiles)
    }

    /// Sums that the busiest PCU keeps of a chunk.
    pub fn sums(&self, chunk: u64) -> u64 {
        let (rows, columns, heads) = (self.rows_of(chunk, 0), self.columns_of(chunk, 0), self.heads_of(0));
        (rows.end - rows.start) * (columns.end - columns.start) * (heads.end - heads.start)
    }

    /// Depth of a tile in a token of `rows` rows.
    pub fn depth(&self, rows: u64) -> u64 {
        rows * self.group
    }

    /// Work of one row pass of a full token in a chunk.
    fn work(&self, shape: &SystolicShape, chunk: u64, token_rows: u64) -> PassWork {
        let (tiles, depth) = (self.tiles(chunk), self.depth(token_rows));
        let (rows, columns) = (self.rows(chunk), self.columns(chunk));
        let columns = (columns.end - columns.start) * self.heads;
        PassWork {
            cycles: tiles * shape.tile_cycles(depth),
            tiles,
            a_flits: tiles * shape.a_flits(depth),
            w_flits: tiles * shape.w_flits(depth),
            columns,
            stored: (rows.end - rows.start) * columns * self.group,
        }
    }

    fn is_cut(&self) -> bool {
        self.row_cut.or(self.column_cut).is_some()
    }
}

fn range(cut: Option<Chunking>, chunk: u64, extent: u64) -> Range<u64> {
    match cut {
        Some(cut) => (chunk * cut.width).min(extent)..((chunk + 1) * cut.width).min(extent),
        None => 0..extent,
    }
}

/// Part `at` of a range dealt to `parts` in whole tiles of `grain`; the last parts may have fewer, or none.
fn slice(whole: Range<u64>, parts: u64, grain: u64, at: u64) -> Range<u64> {
    let each = (whole.end - whole.start).div_ceil(grain).div_ceil(parts) * grain;
    let upto = |at: u64| (whole.start + at * each).min(whole.end);
    upto(at)..upto(at + 1)
}

/// Work of a stage, `[chunk][bundle]`: it has one bundle.
pub fn reducer_work(
    reducer: &Reducer,
    shape: &SystolicShape,
    chunking: Option<Chunking>,
    token_rows: u64,
) -> Vec<Vec<PassWork>> {
    let chunks = chunking.filter(|_| reducer.is_cut()).map_or(1, |cut| cut.extent.div_ceil(cut.width));
    (0..chunks).map(|chunk| vec![reducer.work(shape, chunk, token_rows)]).collect()
}

/// Sizes of a stage's buffers: of its sums those of the widest chunk, the first.
pub fn reducer_extents(reducer: &Reducer, shape: &SystolicShape) -> StageExtents {
    let (activation_rate, weight_rate) = shape.stream_rates();
    StageExtents {
        row_grain: shape.row_grain,
        weight_slot_bytes: 0,
        columns_per_pcu: reducer.sums(0),
        activation_rate,
        weight_rate,
        ..StageExtents::default()
    }
}

/// A mapping that no other beats in both PCUs and work, whatever the token size.
#[derive(Debug, Clone, Copy)]
pub struct SumsBase {
    mapping: GemmMapping,
    /// Tiles of the busiest PCU in a token, over all chunks.
    tiles: u64,
    extents: StageExtents,
}

/// The useful mappings of a stage that adds up, for one cut; `token_rows` matters to causal attention only.
pub fn sums_bases(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    chunking: Option<Chunking>,
    stage: usize,
    token_rows: u64,
    shape: impl Fn(bool) -> Option<SystolicShape>,
) -> Vec<SumsBase> {
    let heads = graph.form(stage).map_or(1, |form| form.heads);
    let most = if heads > 1 { chip.pcus() } else { chip.pcus_per_operator() };
    let mut list = Vec::new();
    for rows_on_lanes in [false, true] {
        let Some(shape) = shape(rows_on_lanes) else { continue };
        // The least tiles of each number of PCUs.
        let mut least: Vec<Option<SumsBase>> = vec![None; most as usize + 1];
        let one = GemmMapping {
            rows_on_lanes,
            pm: 1,
            pn: 1,
            pk: 1,
            share: 1,
            streams: 1,
            aligned: false,
            style: Style::Skip,
        };
        let alone = |mapping| Reducer::new(graph, chunking, token_rows, stage, &mapping, &shape);
        let Some(whole) = alone(one) else { continue };
        let (row_tiles, column_tiles) = whole.most_splits();
        let chunks = chunking.filter(|_| whole.is_cut()).map_or(1, |cut| cut.extent.div_ceil(cut.width));
        for streams in useful_splits(heads, most) {
            for each in useful_splits(column_tiles / heads, most / streams) {
                let pn = streams * each;
                for pm in useful_splits(row_tiles, most / pn) {
                    let mapping = GemmMapping { pm, pn, share: pn, streams, ..one };
                    let Some(reducer) = alone(mapping) else { continue };
                    let of = |chunk| reducer.passes(chunk) * reducer.tiles(chunk);
                    // All chunks but the last are alike.
                    let tiles = of(0).saturating_mul(chunks - 1).saturating_add(of(chunks - 1));
                    let slot = &mut least[(pm * pn) as usize];
                    if slot.is_none_or(|base| tiles < base.tiles) {
                        *slot = Some(SumsBase { mapping, tiles, extents: reducer_extents(&reducer, &shape) });
                    }
                }
            }
        }
        let mut fewest = u64::MAX;
        list.extend(least.into_iter().flatten().filter(|base| {
            let keeps = base.tiles < fewest;
            fewest = fewest.min(base.tiles);
            keeps
        }));
    }
    list
}

/// The useful mappings of a stage that adds up; with `turned`, only with rows of its result along the lanes, or across.
pub fn reducer_mappings(
    graph: &SectionGraph<'_>,
    bases: &StageBases<'_>,
    nest: &Nest,
    roles: &StageRoles,
    stage: usize,
    turned: Option<bool>,
) -> Vec<Candidate> {
    let stretch = stretch(nest, roles, stage, false);
    let (full, last) = (graph.rows / nest.token_rows, graph.rows % nest.token_rows);
    let rows = (graph.rows / graph.form(stage).map_or(1, |form| form.instances)).max(1);
    let group = graph.form(stage).map_or(1, |form| (form.k / rows).max(1));
    // Cycles of one tile over all tokens.
    let tile = [false, true].map(|way| {
        let shape = bases.shape(stage, way)?;
        let of = |rows: u64| if rows == 0 { 0 } else { shape.tile_cycles(rows * group) };
        Some(full.saturating_mul(of(nest.token_rows)).saturating_add(of(last)))
    });
    let wanted = |base: &&SumsBase| turned.is_none_or(|turned| turned == base.mapping.rows_on_lanes);
    let candidate = |base: &SumsBase| {
        let tile = tile[usize::from(base.mapping.rows_on_lanes)]?;
        Some(Candidate {
            pcus: base.mapping.pm * base.mapping.pn,
            cycles: tile.saturating_mul(base.tiles).saturating_mul(stretch),
            stretch,
            mapping: Mapping::Gemm(base.mapping),
            extents: base.extents,
        })
    };
    bases.sums(stage, nest.token_rows).iter().filter(wanted).filter_map(candidate).collect()
}
