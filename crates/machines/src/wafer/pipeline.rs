//! A small model as a pipeline: every operator has cores of its own, which keep its weights, and items follow one another through all.
//!
//! A core of a product has a slice of the depth and a group of the columns. An activation that arrives triggers a multiplication by
//! the stored elements of its row in that group (AXPY); sums are passed on along the slices. Cores are dealt out so that the slowest
//! stage is as fast as may be: the least period for which all stages find their cores, by bisection over the periods that stages can
//! have. An item is a sequence where operators mix the rows of one (attention), or a chunk of it (recurrences), else a row. Items come in
//! the order of their rows, so that a state stays on its cores from one item of a sequence to the next.

use super::account;
use super::outside::runs_outside;
use super::product::{CoreGrid, SUM_BYTES, Stored};
use crate::kernels::{self, Limit, Timed};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_base::units::ByteSize;
use rdusim_graph::arch::Wafer;
use rdusim_graph::workload::{
    Chains, EXPANSION_STEPS, OperatorId, OperatorKind, Phase, TensorId, TensorRole, Uses, Workload, most_elements,
};
use rdusim_outcome::Outcome;

/// One way to lay a stage on cores.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Way {
    cores: u64,
    /// Cycles that it takes for an item, and whether links are what takes them.
    cycles: f64,
    on_links: bool,
    slices: u64,
    groups: u64,
    /// Bytes over links for an item.
    link_bytes: f64,
}

/// An operator with what is computed behind it, as often as it is repeated.
struct Stage {
    copies: u64,
    /// From few cores to many, each faster than the one before.
    ways: Vec<Way>,
    /// Multiplications of an item, and bytes between memories and units.
    macs: f64,
    sram_bytes: f64,
    /// Elements of a matrix in another format that are expanded for an item.
    expanded: f64,
    /// Bytes of its weights.
    weight_bytes: f64,
}

/// A product of a stage, for one item.
struct Matrix {
    /// Matrices side by side: heads.
    count: u64,
    rows: f64,
    columns: u64,
    depth: u64,
    element_bytes: f64,
    macs: u64,
    stored: Stored,
    /// It is a weight: it takes memory throughout.
    stays: bool,
    /// Bytes of a stored element.
    stored_bytes: f64,
    /// Vector operations that expand so many elements as a vector operation multiplies; 0 where none are expanded.
    expansion_steps: f64,
}

/// Runs a graph as a pipeline.
///
/// # Errors
/// Operators of a training step, and weights or activations that the cores have no room for.
pub(super) fn run(
    chip: &Wafer,
    workload: &Workload,
    uses: &Uses,
    lists: &[Vec<OperatorId>],
) -> Result<Outcome, Diagnostic> {
    if let Some(trained) = workload.operators.iter().find(|operator| operator.phase != Phase::Forward) {
        let title = format!("`program.execution` is \"pipeline\", and `{}` is of a training step", trained.name);
        return Err(Diagnostic::new(title).with_help("use \"streaming\": a pipeline has forward phases alone"));
    }
    let items = items(workload);
    let stages: Vec<Stage> = lists.iter().map(|list| stage(chip, workload, list, items as f64)).collect();
    let (inward, outward) = crossing(workload);
    let io = (bytes(&inward) + bytes(&outward)) / items as f64 / chip.memory_bytes_per_cycle();
    let chosen = chosen(&stages, chip.core.count).ok_or_else(|| too_large(chip, workload, &stages))?;
    let held = stages.iter().map(|stage| stage.weight_bytes * stage.copies as f64).sum::<f64>()
        + waiting(workload, uses, lists, items as f64);
    if held > chip.activation_bytes() {
        return Err(too_large_bytes(chip, workload, held));
    }
    let slowest = chosen.iter().fold(chosen[0], |most, way| if way.cycles > most.cycles { *way } else { most });
    let period = slowest.cycles.max(io);
    let hops = |way: &Way| (way.slices + way.groups) as f64 * chip.fabric.hop_cycles;
    let latency = chip.memory.iter().next().map_or(0.0, |tier| tier.latency_ns * chip.clock_hz as f64 / 1e9);
    let fill: f64 =
        stages.iter().zip(&chosen).map(|(stage, way)| stage.copies as f64 * (way.cycles + hops(way))).sum::<f64>()
            + latency;
    // Nothing moves faster than the edge: of few items the first ones' own ways in and out count.
    let edge = latency + io * items as f64;
    let steady = (period * items.saturating_sub(1) as f64).max(edge - fill);
    let limit = match () {
        () if edge >= fill + period * items.saturating_sub(1) as f64 => Limit::Memory,
        () if fill > steady => Limit::Fill,
        () if io > slowest.cycles => Limit::Memory,
        () if slowest.on_links => Limit::Link,
        () => Limit::Compute,
    };
    let timed: Vec<Timed> = stages
        .iter()
        .zip(&chosen)
        .zip(lists)
        .map(|((stage, way), list)| {
            let moved = |tensors: &[(TensorId, f64)], is_of: &dyn Fn(TensorId) -> bool| {
                tensors.iter().copied().filter(|(tensor, _)| is_of(*tensor)).collect::<Vec<_>>()
            };
            let first_reader =
                |tensor: TensorId| uses.consumers(workload, tensor).first().is_some_and(|op| list.contains(op));
            let maker =
                |tensor: TensorId| list.iter().any(|&op| workload.base(workload.operators[op].output) == tensor);
            let busy = way.cycles * items as f64;
            // What a repeated operator moves is counted once for every repetition.
            let of_a_copy = |list: Vec<(TensorId, f64)>| {
                list.into_iter().map(|(tensor, bytes)| (tensor, bytes / stage.copies as f64)).collect()
            };
            Timed {
                cycles: busy,
                limit,
                busiest_cycles: busy,
                mean_cycles: busy,
                units: way.cores * stage.copies,
                reads: of_a_copy(moved(&inward, &first_reader)),
                writes: of_a_copy(moved(&outward, &maker)),
                buffer_bytes: stage.sram_bytes * items as f64,
                link_bytes: way.link_bytes * items as f64,
                macs: stage.macs * items as f64,
                zero_macs: 0.0,
                expanded: stage.expanded * items as f64,
                held,
                told: format!(
                    "{} x ({} slices x {} groups), {:.0} cycles an item of {items}",
                    stage.copies, way.slices, way.groups, way.cycles
                ),
            }
        })
        .collect();
    let machine = account::machine(chip, workload, Mode::Fused);
    let mut outcome = kernels::pipeline(&machine, workload, lists, &timed, fill + steady, limit);
    let copies: u64 = stages.iter().map(|stage| stage.copies).sum();
    outcome.notes = vec![
        format!(
            "a pipeline of {copies} operators side by side: {items} items, a period of {period:.0} cycles, {fill:.0} cycles through all"
        ),
        held_note(chip, held),
    ];
    Ok(outcome)
}

fn held_note(chip: &Wafer, held: f64) -> String {
    format!(
        "weights stay on the wafer; with what waits between operators they take {} of {}",
        ByteSize(held as u64),
        ByteSize(chip.activation_bytes() as u64)
    )
}

fn bytes(list: &[(TensorId, f64)]) -> f64 {
    list.iter().map(|(_, bytes)| bytes).sum()
}

/// Sequences where rows of one are mixed, else rows of the largest product.
fn items(workload: &Workload) -> u64 {
    let products = || workload.operators.iter_enumerated().filter(|(_, operator)| operator.kind == OperatorKind::Gemm);
    let is_weight = |t: TensorId| workload.tensors[workload.base(t)].role == TensorRole::Weight;
    let mixing = products().filter(|(_, operator)| !operator.inputs.iter().any(|&t| is_weight(t)));
    // The largest that any product mixes: a chunk of a recurrence is part of a sequence of attention.
    let instances = mixing.filter_map(|(op, _)| workload.form(op)).map(|form| form.instances).min();
    let rows = || products().filter_map(|(op, _)| workload.form(op)).map(|form| form.m * form.instances).max();
    instances.or_else(rows).unwrap_or(1).max(1)
}

/// Tensors with their bytes.
type Bytes = Vec<(TensorId, f64)>;

/// Tensors that enter the graph and leave it, with their bytes, weights left out.
fn crossing(workload: &Workload) -> (Bytes, Bytes) {
    let of = |role: TensorRole| {
        let all = workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.role == role && tensor.view.is_none());
        all.map(|(id, tensor)| (id, tensor.stored_bytes() as f64 * tensor.repeat as f64)).collect()
    };
    (of(TensorRole::Input), of(TensorRole::Output))
}

/// Bytes of the items that wait between a stage that makes a tensor and the last that reads it, one more than stages between them.
fn waiting(workload: &Workload, uses: &Uses, lists: &[Vec<OperatorId>], items: f64) -> f64 {
    let at = |op: OperatorId| lists.iter().position(|list| list.contains(&op));
    let of = |(made, list): (usize, &Vec<OperatorId>)| {
        let own = list.iter().map(|&op| workload.base(workload.operators[op].output));
        own.map(|tensor| {
            let last = uses.consumers(workload, tensor).iter().filter_map(|&op| at(op)).max().unwrap_or(made);
            let tensor = &workload.tensors[tensor];
            tensor.stored_bytes() as f64 * tensor.repeat as f64 / items * (last.saturating_sub(made) + 1) as f64
        })
        .sum::<f64>()
    };
    lists.iter().enumerate().map(of).sum()
}

fn stage(chip: &Wafer, workload: &Workload, list: &[OperatorId], items: f64) -> Stage {
    let copies = workload.operators[list[0]].repeat;
    let gemm = list.iter().copied().find(|&op| workload.operators[op].kind == OperatorKind::Gemm);
    let matrix = gemm.map(|op| matrix(chip, workload, op, items));
    let functions: Vec<Function> = list.iter().map(|&op| function(chip, workload, op, items)).collect();
    let all_functions: f64 = functions.iter().map(|function| function.cycles).sum();
    let element = workload.tensors[workload.operators[list[0]].output].dtype.bytes() as f64;
    let macs = matrix.as_ref().map_or(0.0, Matrix::all_macs);
    // A core keeps what is stored, and expands a row of it for every activation that arrives.
    let expanded = matrix.as_ref().filter(|matrix| matrix.expansion_steps > 0.0).map_or(0.0, Matrix::all_macs);
    let held = matrix.as_ref().filter(|matrix| matrix.stays).map_or(0.0, Matrix::bytes);
    // Tables, gains and biases.
    let second = gemm.and_then(|op| workload.operators[op].inputs.get(1)).map(|&t| workload.base(t));
    let mut others: Vec<TensorId> =
        list.iter().flat_map(|&op| &workload.operators[op].inputs).map(|&t| workload.base(t)).collect();
    others.sort_unstable();
    others.dedup();
    let is_other = |t: &TensorId| workload.tensors[*t].role == TensorRole::Weight && Some(*t) != second;
    let beside: f64 = others.into_iter().filter(is_other).map(|t| workload.tensors[t].stored_bytes() as f64).sum();
    // States of the sequences that an item has, or is part of.
    let states = list.iter().filter_map(|&op| Some((op, workload.chains(op)?)));
    let of_state = |(op, chains): (OperatorId, Chains)| {
        let sequences = (chains.sequences as f64 / items).max(1.0);
        sequences * (chains.columns * workload.chain_state_bytes(op)) as f64
    };
    let beside = beside + states.map(of_state).sum::<f64>();
    let room = chip.core.sram_bytes as f64 * chip.core.activation_share;
    let least = (beside / room).ceil() as u64;
    Stage {
        copies,
        ways: ways(chip, matrix.as_ref(), &functions, least),
        macs,
        sram_bytes: macs * (element + 2.0 * SUM_BYTES) + all_functions * element,
        expanded,
        weight_bytes: held + beside,
    }
}

/// A function for one item.
#[derive(Debug, Clone, Copy, Default)]
struct Function {
    /// Vector cycles on one core.
    cycles: f64,
    /// Cycles on however many: rows of a sequence that follow one another.
    least: f64,
}

fn function(chip: &Wafer, workload: &Workload, op: OperatorId, items: f64) -> Function {
    let operator = &workload.operators[op];
    if operator.kind == OperatorKind::Gemm || runs_outside(workload, op) {
        return Function::default();
    }
    let lanes = chip.core.macs.get(&workload.tensors[operator.output].dtype).copied().unwrap_or(1);
    let steps = operator.kind.vector_steps() as f64;
    let rows = workload.chains(op).map_or(0.0, |chains| {
        let of_item = (chains.rows * chains.sequences) as f64 / items;
        of_item.min(chains.rows as f64)
    });
    Function { cycles: most_elements(workload, op) as f64 / lanes as f64 * steps / items, least: rows * steps }
}

fn matrix(chip: &Wafer, workload: &Workload, op: OperatorId, items: f64) -> Matrix {
    let operator = &workload.operators[op];
    let (a, b) = (operator.inputs[0], operator.inputs[1]);
    let form = workload.form(op).unwrap_or(rdusim_graph::workload::GemmForm::plain(1, 1, 1));
    let tensor = &workload.tensors[b];
    let dtype = workload.tensors[a].dtype;
    let mask = tensor.mask.as_deref();
    let index = if mask.is_some() { chip.index_bytes } else { 0.0 };
    Matrix {
        count: form.heads.max(1),
        rows: form.m as f64 * form.instances as f64 / items,
        columns: form.n,
        depth: form.k,
        element_bytes: dtype.bytes() as f64,
        macs: chip.core.macs.get(&dtype).copied().unwrap_or(1),
        stored: Stored::of(form.k, form.n, mask),
        stays: workload.tensors[workload.base(b)].role == TensorRole::Weight,
        stored_bytes: tensor.packed_element_bytes().unwrap_or(tensor.dtype.bytes() as f64) + index,
        expansion_steps: if tensor.is_expanded() { EXPANSION_STEPS } else { 0.0 },
    }
}

impl Matrix {
    /// Stored elements of all matrices.
    fn elements(&self) -> f64 {
        self.stored.fullest(self.depth, 1).1 * self.count as f64
    }

    fn bytes(&self) -> f64 {
        self.elements() * self.stored_bytes
    }

    fn all_macs(&self) -> f64 {
        self.elements() * self.rows
    }

    /// An item on cores of so many slices and groups, functions left out; `None` if a core has no room for its part.
    fn way(&self, chip: &Wafer, CoreGrid { slices, groups }: CoreGrid) -> Option<Way> {
        let (depth, columns) = (self.depth.div_ceil(slices) as f64, self.columns.div_ceil(groups) as f64);
        // Elements of a core: of the fullest slice, evenly over its groups.
        let elements = self.stored.fullest(self.depth, slices).0 / groups as f64;
        if elements * self.stored_bytes > chip.core.sram_bytes as f64 * chip.core.activation_share {
            return None;
        }
        let vectors = (elements / depth / self.macs as f64).ceil();
        let passes = if slices > 1 { (columns / self.macs as f64).ceil() } else { 0.0 };
        let of_activation = vectors * (1.0 + self.expansion_steps) + chip.core.weight_cycles;
        let busy = self.rows * (depth * of_activation + passes);
        let sums = if slices > 1 { columns * SUM_BYTES } else { 0.0 };
        let activations = depth * self.element_bytes;
        let links = self.rows * sums.max(activations) / chip.fabric.link_bytes_per_cycle;
        let cores = slices.saturating_mul(groups).saturating_mul(self.count);
        let link_bytes = self.rows * (sums + activations) * cores as f64;
        Some(Way { cores, cycles: busy.max(links), on_links: links > busy, slices, groups, link_bytes })
    }
}

/// Powers of two, and one and a half times them, up to a number, and the number.
fn sizes(most: u64) -> impl Iterator<Item = u64> {
    let powers = std::iter::successors(Some(1u64), |&size| size.checked_mul(2)).take_while(move |&size| size < most);
    powers.flat_map(|size| [size, size + size / 2]).filter(move |&size| size < most).chain([most])
}

/// All ways to lay a stage on the wafer that are faster than any with fewer cores.
///
/// `functions`: those of an item, and `least` cores, which have room for what else the stage keeps.
fn ways(chip: &Wafer, matrix: Option<&Matrix>, functions: &[Function], least: u64) -> Vec<Way> {
    let mut all: Vec<Way> = Vec::new();
    let mut add = |way: Way| {
        if (least..=chip.core.count).contains(&way.cores) {
            let of = |function: &Function| (function.cycles / way.cores as f64).max(function.least);
            let functions: f64 = functions.iter().map(of).sum();
            all.push(Way { cycles: way.cycles + functions, on_links: way.on_links && way.cycles > functions, ..way });
        }
    };
    if let Some(matrix) = matrix {
        for slices in sizes(matrix.depth) {
            sizes(matrix.columns).filter_map(|groups| matrix.way(chip, CoreGrid { slices, groups })).for_each(&mut add);
        }
    } else {
        let of = |cores| Way { cores, cycles: 0.0, on_links: false, slices: cores, groups: 1, link_bytes: 0.0 };
        sizes(chip.core.count).map(of).for_each(add);
    }
    all.sort_by(|a, b| a.cores.cmp(&b.cores).then(a.cycles.total_cmp(&b.cycles)));
    let mut shortest = f64::INFINITY;
    all.retain(|way| {
        let is_faster = way.cycles < shortest;
        shortest = shortest.min(way.cycles);
        is_faster
    });
    all
}

/// The ways with the least period that all cores together allow; `None` if they are too few for any.
fn chosen(stages: &[Stage], cores: u64) -> Option<Vec<Way>> {
    let mut periods: Vec<f64> = stages.iter().flat_map(|stage| stage.ways.iter().map(|way| way.cycles)).collect();
    periods.sort_by(f64::total_cmp);
    let within = |period: f64| -> Option<Vec<Way>> {
        let found: Option<Vec<Way>> =
            stages.iter().map(|stage| stage.ways.iter().find(|way| way.cycles <= period).copied()).collect();
        let needed = |ways: &Vec<Way>| -> u64 {
            stages
                .iter()
                .zip(ways)
                .map(|(stage, way)| stage.copies.saturating_mul(way.cores))
                .fold(0, u64::saturating_add)
        };
        found.filter(|ways| needed(ways) <= cores)
    };
    let first = periods.partition_point(|&period| within(period).is_none());
    periods.get(first).and_then(|&period| within(period))
}

fn too_large(chip: &Wafer, workload: &Workload, stages: &[Stage]) -> Diagnostic {
    let needed: u64 = stages
        .iter()
        .map(|stage| stage.ways.first().map_or(u64::MAX, |way| way.cores.saturating_mul(stage.copies)))
        .fold(0, u64::saturating_add);
    let title = if needed == u64::MAX {
        format!(
            "`{}` as a pipeline does not fit {}: the weights of an operator have no room on all cores",
            workload.name, chip.name
        )
    } else {
        format!(
            "`{}` as a pipeline needs {needed} cores at least for its weights, {} has {}",
            workload.name, chip.name, chip.core.count
        )
    };
    Diagnostic::new(title).with_help("set `program.execution` to \"streaming\", or use a smaller model")
}

fn too_large_bytes(chip: &Wafer, workload: &Workload, held: f64) -> Diagnostic {
    let title = format!(
        "`{}` as a pipeline does not fit {}: weights and what waits between operators take {}, the cores have room for {}",
        workload.name,
        chip.name,
        ByteSize(held as u64),
        ByteSize(chip.activation_bytes() as u64)
    );
    Diagnostic::new(title)
        .with_help("set `program.execution` to \"streaming\", or use a smaller model or shorter sequences")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chip, loaded, scan};
    use super::*;
    use crate::wafer;
    use rdusim_models::model::{Options, Phase};

    fn pipeline(sets: &[&str], workload: &Workload) -> Result<Outcome, Diagnostic> {
        let chip = chip(&[&["arch.program.execution=pipeline"], sets].concat());
        wafer::run(&chip, workload, &[Mode::Fused]).map(|mut outcomes| outcomes.remove(0))
    }

    #[test]
    fn cores_are_dealt_out_for_the_least_period() {
        let way = |cores, cycles| Way { cores, cycles, on_links: false, slices: cores, groups: 1, link_bytes: 0.0 };
        let stage = |copies, ways: Vec<Way>| Stage {
            copies,
            ways,
            macs: 0.0,
            sram_bytes: 0.0,
            expanded: 0.0,
            weight_bytes: 0.0,
        };
        let stages =
            [stage(1, vec![way(1, 100.0), way(2, 50.0), way(4, 25.0)]), stage(2, vec![way(1, 60.0), way(3, 20.0)])];
        let cores = |count| chosen(&stages, count).map(|ways| ways.iter().map(|way| way.cores).collect::<Vec<_>>());
        assert_eq!(cores(2), None);
        assert_eq!(cores(3), Some(vec![1, 1]));
        assert_eq!(cores(4), Some(vec![2, 1]));
        assert_eq!(cores(9), Some(vec![2, 3]));
        assert_eq!(cores(10), Some(vec![4, 3]));
    }

    #[test]
    fn by_hand() {
        // A matrix of 8 x 16 on 2 slices x 4 groups of cores that do 4 multiplications: for a row 4 activations arrive, a vector and
        // a cycle each, and a vector of sums is passed on.
        let chip = chip(&["arch.fabric.link_bytes_per_cycle=64"]);
        let matrix = |stored_bytes: f64, expansion_steps: f64| Matrix {
            count: 1,
            rows: 1.0,
            columns: 16,
            depth: 8,
            element_bytes: 2.0,
            macs: 4,
            stored: Stored::of(8, 16, None),
            stays: true,
            stored_bytes,
            expansion_steps,
        };
        let on = |slices, groups| {
            matrix(2.0, 0.0).way(&chip, CoreGrid { slices, groups }).map(|way| (way.cores, way.cycles, way.link_bytes))
        };
        // Four activations of two bytes and four sums of four for each core.
        assert_eq!(on(2, 4), Some((8, 9.0, 8.0 * 24.0)));
        assert_eq!(on(1, 1), Some((1, 8.0 * 5.0, 16.0)));
        // A vector that is stored in another format takes two operations more each time.
        let packed = |slices, groups| matrix(0.5, 2.0).way(&chip, CoreGrid { slices, groups }).map(|way| way.cycles);
        assert_eq!((packed(2, 4), packed(1, 1)), (Some(4.0 * 4.0 + 1.0), Some(8.0 * 13.0)));
    }

    #[test]
    fn a_state_stays_while_rows_pass() {
        // 128 rows of 8 columns: an item is a row. Two vectors of four and two steps on one core; two steps on any number.
        let (workload, chip) = (scan(64), chip(&[]));
        assert_eq!(items(&workload), 128);
        let op = workload.operators.ids().nth(1).unwrap();
        let function = function(&chip, &workload, op, 128.0);
        assert_eq!((function.cycles, function.least), (4.0, 2.0));
        let of = stage(&chip, &workload, &[op], 128.0);
        assert_eq!(of.ways.iter().map(|way| (way.cores, way.cycles)).collect::<Vec<_>>(), [(1, 4.0), (2, 2.0)]);
        // The state of the sequence that passes.
        assert_eq!(of.weight_bytes as u64, 8 * 4);
        // Two items, a sequence each: 64 rows after one another.
        assert_eq!(super::function(&chip, &workload, op, 2.0).least as u64, 128);
    }

    #[test]
    fn an_item_is_a_chunk_where_recurrences_alone_mix_rows_and_a_sequence_beside_attention() {
        let (mamba, _) = rdusim_models::model::preset("mamba2-130m").unwrap();
        let of = |attention: u32| {
            let mut architecture = mamba;
            if let Some(mamba) = &mut architecture.extras.mamba {
                (mamba.layers, mamba.attention) = (2, attention);
            }
            let options = Options::new("m", architecture, Phase::Forward, 2, 512);
            rdusim_graph::workload::parse("m", &rdusim_models::model::write(&options).unwrap(), &[], 0).unwrap()
        };
        assert_eq!((items(&of(0)), items(&of(1))), (4, 2));
        let outcome = pipeline(&[], &of(1)).unwrap();
        assert!(outcome.bound_cycles <= outcome.cycles);
    }

    #[test]
    fn no_byte_crosses_the_edge_faster_than_it_can() {
        let (gpt2, _) = rdusim_models::model::preset("gpt2").unwrap();
        for (phase, batch, tokens) in
            [(Phase::Prefill, 4, 512), (Phase::Decode, 1, 65_536), (Phase::Decode, 64, 512), (Phase::Forward, 2, 64)]
        {
            let options = Options::new("gpt2", gpt2, phase, batch, tokens);
            let text = rdusim_models::model::write(&options).unwrap();
            let workload = rdusim_graph::workload::parse("gpt2", &text, &[], 0).unwrap();
            let outcome = pipeline(&[], &workload).unwrap();
            let seconds = outcome.cycles as f64 / 1.1e9;
            let moved = outcome.traffic().off_chip_bytes() as f64;
            assert!(moved / seconds <= 150e9, "{phase:?} {batch} {tokens}: {moved} bytes in {seconds} s");
            let own = |role: TensorRole| {
                let all = workload.tensors.iter().filter(|tensor| tensor.role == role && tensor.view.is_none());
                all.map(|tensor| tensor.stored_bytes() * tensor.repeat).sum::<u64>() as f64
            };
            let expected = own(TensorRole::Input) + own(TensorRole::Output);
            assert!((moved / expected - 1.0).abs() < 0.01, "{phase:?}: {moved}, expected {expected}");
        }
    }

    #[test]
    fn more_rows_take_a_period_each_and_more_cores_are_no_slower() {
        let cycles = |tokens: u64, sets: &[&str]| {
            let workload = loaded("gpt13b-mlp", &[format!("workload.dims.tokens={tokens}")]);
            let outcome = pipeline(sets, &workload).expect("it fits");
            assert!(outcome.bound_cycles <= outcome.cycles, "{} of {}", outcome.bound_cycles, outcome.cycles);
            // Only activations cross the edge.
            assert_eq!(outcome.traffic().off_chip_bytes(), 2 * tokens * 5120 * 2);
            outcome.cycles as f64
        };
        let [one, thousand, two] = [1, 1001, 2001].map(|tokens| cycles(tokens, &[]));
        assert!(((two - thousand) / (thousand - one) - 1.0).abs() < 0.01, "{one} {thousand} {two}");
        assert!(cycles(1001, &["arch.core.count=400000"]) >= thousand);
        let refused = pipeline(&["arch.core.count=1000"], &loaded("gpt13b-mlp", &[])).expect_err("no room");
        assert!(refused.to_string().contains("pipeline"), "{refused}");
    }
}
