//! From an operator to its supersteps: layouts of its operands, a plan, and what it counts for in traffic and energy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gemm::{self, GemmPlan, Product, Windows};
use super::live::{Live, MOST_PARTS};
use super::sparse::{Blocks, SparsePlan, SparseProduct, dynamic_plan, sampled_plan, static_plan};
use super::step::{Superstep, TileLoad, most_temporary};
use super::vertex;
use rdusim_base::index::Id;
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{Bsp, SparseKernel};
use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::{OperatorId, OperatorKind, Tensor, TensorId, TensorRole, Workload};

/// An operator as supersteps. Counts are of one run.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) op: OperatorId,
    pub(super) steps: Vec<Superstep>,
    /// Tiles at work.
    pub(super) tiles: u64,
    /// How it is split, in words.
    pub(super) shape: String,
    /// Multiply-accumulates, and those among them on elements that are not stored.
    pub(super) macs: u64,
    pub(super) zero_macs: u64,
    /// Elements of a second operand expanded from the format that it is stored in, on all tiles that expand them.
    pub(super) expanded: f64,
    /// Bytes between tile memory and units.
    pub(super) memory_read: f64,
    pub(super) memory_write: f64,
    /// Tensors that come from off the chip for it, and go back.
    pub(super) stream_reads: Vec<(TensorId, f64)>,
    pub(super) stream_writes: Vec<(TensorId, f64)>,
    /// Parts that streamed tensors come in.
    pub(super) parts: u64,
    /// Of a product with a sparse weight: whether a sparse kernel runs it.
    pub(super) sparse: Option<bool>,
    /// Of a dense product: what it is, and its splits.
    pub(super) dense: Option<(Product, gemm::Grid)>,
    /// Of a sparse one: what each tile does and holds in the step of this name.
    pub(super) loads: Arc<[TileLoad]>,
    pub(super) loads_of: &'static str,
    /// Bytes of a tile in use at the step that needs most, and that step.
    pub(super) peak_bytes: f64,
    pub(super) peak_step: usize,
}

/// Plans the operators of a graph in order.
pub(super) struct Operators<'a> {
    pub(super) chip: &'a Bsp,
    pub(super) workload: &'a Workload,
    pub(super) mode: Mode,
    pub(super) live: &'a Live,
    /// The program an operator is in.
    pub(super) program_of: &'a [usize],
    /// Whose layout a tensor has, by the index of its base.
    layout: Vec<Option<Layout>>,
    caches: &'a mut Caches,
}

/// What plans of the same graph on the same chip share, however much of it is streamed.
#[derive(Debug, Default)]
pub(super) struct Caches {
    known: BTreeMap<Key, GemmPlan>,
    blocks: BTreeMap<usize, Blocks>,
}

/// A layout: the operator that chose it, and the program it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    by: usize,
    program: usize,
}

/// What a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    extents: [u64; 4],
    dtype: Dtype,
    home: (bool, bool),
    /// Bytes of an element of the second operand, where it is stored in another format, as bits.
    packed: [Option<u64>; 2],
    /// Pixels of windows, and of their halo.
    pixels: [Option<(u64, u64)>; 2],
    /// In units of 4 KiB.
    available: u64,
}

/// Most parts of the dense columns that follow one another.
const MOST_PASSES: u64 = 64;
/// Memory that plans tell apart.
const MEMORY_STEP: f64 = 4096.0;

impl<'a> Operators<'a> {
    pub(super) fn new(
        chip: &'a Bsp,
        workload: &'a Workload,
        mode: Mode,
        live: &'a Live,
        program_of: &'a [usize],
        caches: &'a mut Caches,
    ) -> Self {
        let layout = vec![None; workload.tensors.len()];
        Self { chip, workload, mode, live, program_of, layout, caches }
    }

    pub(super) fn plan(&mut self, op: OperatorId) -> Planned {
        let layout = self.layout.clone();
        let mut parts = 1;
        let mut planned = loop {
            self.layout.clone_from(&layout);
            let planned = self.plan_in_parts(op, parts);
            let fits = planned.peak_bytes <= self.chip.tensor_bytes() as f64;
            if fits || parts as f64 >= MOST_PARTS || !self.live.streams_in_parts(self.workload, op) {
                break planned;
            }
            parts *= 2;
        };
        planned.stream_reads = self.live.reads(self.workload, op);
        planned.stream_writes = self.live.writes(self.workload, op);
        self.add_io_tiles(&mut planned);
        planned
    }

    /// An operator whose streamed weight or elements come in so many parts, one after the other.
    fn plan_in_parts(&mut self, op: OperatorId, parts: u64) -> Planned {
        let chip = self.chip;
        let resident = self.live.tile_bytes(chip, self.workload, op, parts);
        let share = chip.planner.memory_share * chip.tile.sram_bytes as f64;
        let available = share.min(chip.tensor_bytes() as f64 - resident).max(0.0);
        let is_product = self.workload.operators[op].kind == OperatorKind::Gemm;
        let mut planned = if is_product { self.gemm(op, available, parts) } else { self.vertex(op, available) };
        if self.mode != Mode::Fused {
            self.add_layouts(op, &mut planned, available);
        }
        let tallest =
            planned.steps.iter().enumerate().max_by(|(_, a), (_, b)| a.temporary_bytes.total_cmp(&b.temporary_bytes));
        planned.peak_step = tallest.map_or(0, |(at, _)| at);
        planned.peak_bytes = resident + most_temporary(&planned.steps);
        planned.parts = parts;
        if parts > 1 {
            planned.shape = format!("{}, streamed in {parts} parts", planned.shape);
        }
        planned
    }

    /// Whether a tensor lies as operator `op` wants it. What comes into the graph lies as its first reader wants it.
    fn claims(&mut self, op: OperatorId, tensor: TensorId) -> bool {
        let base = self.workload.base(tensor);
        let role = self.workload.tensors[base].role;
        let loops = self.workload.operators[op].repeat > 1 && role == TensorRole::Input;
        let is_own =
            matches!(role, TensorRole::Weight) || (role == TensorRole::Input && self.mode == Mode::Fused && !loops);
        let own = Layout { by: op.index(), program: self.program_of[op.index()] };
        match &mut self.layout[base.index()] {
            Some(layout) => *layout == own,
            unset => {
                if is_own {
                    *unset = Some(own);
                }
                is_own
            }
        }
    }

    fn gemm(&mut self, op: OperatorId, available: f64, parts: u64) -> Planned {
        let (chip, workload) = (self.chip, self.workload);
        let operator = &workload.operators[op];
        let (a, b) = (operator.inputs[0], operator.inputs[1]);
        let home = (self.claims(op, a), self.claims(op, b));
        self.layout[workload.base(operator.output).index()] =
            Some(Layout { by: op.index(), program: self.program_of[op.index()] });
        let (dtype, packed) = operand_types(chip, [&workload.tensors[a], &workload.tensors[b]]);
        let form = workload.form(op);
        let form = form.unwrap_or(rdusim_graph::workload::GemmForm::plain(1, 1, 1));
        let product = Product {
            count: form.instances * form.heads,
            m: form.m,
            n: form.n.div_ceil(parts),
            k: form.k,
            dtype,
            a_home: home.0,
            b_home: home.1,
            available,
            windows: [a, b].map(|t| windows(workload, t)),
            packed,
        };
        let dense = self.dense(&product);
        let bytes = dtype.bytes() as f64;
        let all = form.dense_macs();
        let elements = [form.m, form.n].map(|lines| (form.instances * form.heads * lines * form.k) as f64);
        let [of_a, of_b] =
            [0, 1].map(|side| if packed[side].is_some() { elements[side] * dense.expansions[side] } else { 0.0 });
        let expanded = of_a + of_b;
        let packed_read = of_a * packed[0].unwrap_or(0.0) + of_b * packed[1].unwrap_or(0.0);
        let stored = workload.stored_macs(op);
        let weight = workload.tensors[b].mask.clone();
        let result = workload.tensors[operator.output].mask.clone();
        let sparse = match (&weight, &result) {
            (Some(mask), _) => self.sparse(mask, workload.base(b), &product),
            (None, Some(mask)) => self.sampled(mask, workload.base(operator.output), &product),
            (None, None) => None,
        };
        let faster = sparse.filter(|plan| {
            let fits = most_temporary(&plan.steps) <= available;
            let dense_fits = most_temporary(&dense.steps) <= available;
            !dense_fits || (fits && plan.cycles < dense.cycles)
        });
        let is_sparse = faster.is_some();
        let mut loads = (Arc::default(), "");
        let (steps, tiles, shape) = if let Some(plan) = faster {
            loads = (plan.loads, plan.loads_of);
            (plan.steps, plan.tiles, format!("{}; imbalance {:.2}", plan.shape, plan.imbalance))
        } else {
            let mut steps = dense.steps;
            for step in &mut steps {
                step.times *= parts;
            }
            (steps, dense.grid.tiles(), told(&dense.grid) + told_expansion(&product, &dense.grid))
        };
        let has_mask = weight.is_some() || result.is_some();
        let macs = if is_sparse { stored } else { all };
        Planned {
            op,
            steps,
            tiles,
            shape,
            macs,
            zero_macs: if has_mask && !is_sparse { all.saturating_sub(stored) } else { 0 },
            expanded,
            memory_read: macs as f64 * (bytes / 16.0 + bytes / gemm_lanes(chip, dtype)) + packed_read,
            memory_write: macs as f64 * bytes / gemm_lanes(chip, dtype) / 4.0 + expanded * bytes,
            stream_reads: Vec::new(),
            stream_writes: Vec::new(),
            parts: 1,
            sparse: has_mask.then_some(is_sparse),
            dense: (!is_sparse).then_some((product, dense.grid)),
            loads: loads.0,
            loads_of: loads.1,
            peak_bytes: 0.0,
            peak_step: 0,
        }
    }

    fn dense(&mut self, product: &Product) -> GemmPlan {
        let available = (product.available / MEMORY_STEP).floor();
        let key = Key {
            extents: [product.count, product.m, product.n, product.k],
            dtype: product.dtype,
            home: (product.a_home, product.b_home),
            packed: product.packed.map(|packed| packed.map(f64::to_bits)),
            pixels: product.windows.map(|of| of.map(|of| (of.elements as u64, of.halo as u64))),
            available: available as u64,
        };
        if let Some(known) = self.caches.known.get(&key) {
            return known.clone();
        }
        let rounded = Product { available: available * MEMORY_STEP, ..*product };
        let none = GemmPlan { grid: gemm::Grid::default(), steps: Vec::new(), cycles: 0.0, expansions: [0.0; 2] };
        let plan = gemm::plan(self.chip, &rounded).unwrap_or(none);
        self.caches.known.insert(key, plan.clone());
        plan
    }

    /// A product of which the stored blocks of the result are wanted.
    fn sampled(&mut self, mask: &BlockMask, result: TensorId, product: &Product) -> Option<SparsePlan> {
        let chip = self.chip;
        let is_result = mask.rows() == product.m && mask.columns() == product.n;
        if product.count > 1 || chip.planner.sparse == SparseKernel::Dense || !is_result {
            return None;
        }
        let blocks = self.caches.blocks.entry(result.index() * 2).or_insert_with(|| Blocks::of(mask));
        let Product { k: columns, dtype, available, .. } = *product;
        sampled_plan(chip, &SparseProduct { blocks, columns, dtype, available })
    }

    fn sparse(&mut self, mask: &BlockMask, weight: TensorId, product: &Product) -> Option<SparsePlan> {
        let chip = self.chip;
        if product.count > 1 || chip.planner.sparse == SparseKernel::Dense {
            return None;
        }
        let transposes = mask.rows() != product.k || mask.columns() != product.n;
        let key = weight.index() * 2 + usize::from(transposes);
        let blocks = self
            .caches
            .blocks
            .entry(key)
            .or_insert_with(|| if transposes { Blocks::of(&mask.transposed()) } else { Blocks::of(mask) });
        let (columns, available) = (product.m, product.available);
        let mut passes = 1;
        loop {
            let part = SparseProduct { blocks, columns: columns.div_ceil(passes), dtype: product.dtype, available };
            let found = match chip.planner.sparse {
                SparseKernel::Dynamic => dynamic_plan(chip, &part),
                SparseKernel::Static | SparseKernel::Dense => static_plan(chip, &part),
            };
            // Where a tile's memory is short, parts of the dense columns come one after the other.
            let fits = found.as_ref().is_some_and(|plan| most_temporary(&plan.steps) <= available);
            if fits || passes >= MOST_PASSES || passes >= columns {
                return found.map(|plan| repeated(plan, passes));
            }
            passes *= 2;
        }
    }

    fn vertex(&mut self, op: OperatorId, available: f64) -> Planned {
        let (chip, workload) = (self.chip, self.workload);
        let operator = &workload.operators[op];
        let own = Layout { by: op.index(), program: self.program_of[op.index()] };
        let output = workload.base(operator.output).index();
        let (steps, tiles) = if operator.kind.is_view() {
            (Vec::new(), 0)
        } else if vertex::is_in_place(operator.kind) {
            let first = self.layout[workload.base(operator.inputs[0]).index()];
            let first = first.filter(|layout| layout.program == own.program).unwrap_or(own);
            let mut foreign = 0.0;
            for (at, &input) in operator.inputs.iter().enumerate() {
                let base = workload.base(input).index();
                let found = self.layout[base];
                let is_held =
                    matches!(workload.tensors[workload.base(input)].role, TensorRole::Weight | TensorRole::Input);
                // Gains, states and weights are laid out with what they meet first.
                if found.is_none() && is_held {
                    self.layout[base] = Some(first);
                } else if at > 0 && found != Some(first) {
                    foreign += workload.tensors[input].stored_bytes() as f64;
                }
            }
            self.layout[output] = Some(first);
            vertex::in_place(chip, workload, op, foreign, available)
        } else {
            self.layout[output] = Some(own);
            vertex::rearranged(chip, workload, op, available)
        };
        let (memory_read, memory_write) = vertex::memory_bytes(workload, op);
        Planned {
            op,
            tiles,
            shape: in_parts(operator.kind.name(), tiles, &steps),
            steps,
            macs: 0,
            zero_macs: 0,
            expanded: 0.0,
            memory_read,
            memory_write,
            stream_reads: Vec::new(),
            stream_writes: Vec::new(),
            parts: 1,
            sparse: None,
            dense: None,
            loads: Arc::default(),
            loads_of: "",
            peak_bytes: 0.0,
            peak_step: 0,
        }
    }

    /// What is streamed through I/O tiles goes over the exchange to the tiles that compute, and comes back: the I/O tiles send,
    /// or receive, at their own rate.
    fn add_io_tiles(&self, planned: &mut Planned) {
        let chip = self.chip;
        if chip.tile.io_tiles == 0 {
            return;
        }
        let step = |name: &str, bytes: f64| {
            let received = bytes / chip.tile.count as f64;
            let mut step = Superstep::compute(chip, name, 0.0, chip.tile.count).receives(chip, received, bytes);
            let of_io_tiles = bytes / chip.tile.io_tiles as f64 / chip.exchange.bytes_per_cycle;
            step.wire_cycles = step.wire_cycles.max(of_io_tiles);
            step
        };
        let sum = |list: &[(TensorId, f64)]| list.iter().map(|(_, bytes)| bytes).sum::<f64>();
        let (read, written) = (sum(&planned.stream_reads), sum(&planned.stream_writes));
        // Behind the others, so that the step that needs most memory keeps its place.
        if read > 0.0 {
            planned.steps.push(step("from I/O tiles", read));
        }
        if written > 0.0 {
            planned.steps.push(step("to I/O tiles", written));
        }
    }

    /// A program of its own takes its inputs from the layout between programs, and puts its results back into it.
    fn add_layouts(&self, op: OperatorId, planned: &mut Planned, available: f64) {
        let (chip, workload) = (self.chip, self.workload);
        let operator = &workload.operators[op];
        let program = self.program_of[op.index()];
        let made_here = |t: TensorId| {
            let producer = workload.producer(workload.base(t));
            producer.is_some_and(|producer| self.program_of[producer.index()] == program)
        };
        let is_weight = |t: TensorId| workload.tensors[workload.base(t)].role == TensorRole::Weight;
        let from: f64 = operator
            .inputs
            .iter()
            .filter(|&&t| !made_here(t) && !is_weight(t))
            .map(|&t| workload.tensors[t].stored_bytes() as f64)
            .sum();
        if from > 0.0 {
            planned.steps.splice(0..0, vertex::moved(chip, "take layout", from, available).0);
        }
        let leaves = workload.consumers(operator.output).any(|reader| self.program_of[reader.index()] != program)
            || workload.tensors[operator.output].role == TensorRole::Output;
        if leaves {
            let bytes = workload.tensors[operator.output].stored_bytes() as f64;
            planned.steps.extend(vertex::moved(chip, "leave layout", bytes, available).0);
        }
    }
}

/// The pixels of an operand that is windows of images.
fn windows(workload: &Workload, t: TensorId) -> Option<Windows> {
    let window = workload.tensors[t].view.and_then(|view| view.window)?;
    Some(Windows { elements: window.elements as f64, halo: window.halo_elements as f64 })
}

/// An operator that is no product, in words.
fn in_parts(name: &str, tiles: u64, steps: &[Superstep]) -> String {
    let parts = steps.first().map_or(1, |step| step.times);
    let told = if parts > 1 { format!(", in {parts} parts") } else { String::new() };
    format!("{name} on {tiles} tiles{told}")
}

/// A plan run so many times, on parts of the dense matrix.
fn repeated(mut plan: SparsePlan, passes: u64) -> SparsePlan {
    plan.steps.iter_mut().for_each(|step| step.times *= passes);
    plan.cycles *= passes as f64;
    if passes > 1 {
        plan.shape = format!("{passes} passes over the dense columns of {}", plan.shape);
    }
    plan
}

/// Results that one load of operands serves.
fn gemm_lanes(chip: &Bsp, dtype: Dtype) -> f64 {
    chip.tile.macs.get(&dtype).map_or(1.0, |&macs| macs as f64 / 4.0)
}

/// The type that two operands are multiplied in, and bytes of an element of each where that is expanded to it: it is stored in another
/// format, or of a type that the units lack.
pub(super) fn operand_types(chip: &Bsp, operands: [&Tensor; 2]) -> (Dtype, [Option<f64>; 2]) {
    let of = operands[0].dtype;
    let wide = chip.emulated.get(&of).copied();
    let packed = operands.map(|tensor| {
        tensor.packed_element_bytes().or_else(|| wide.map(|_| tensor.unmasked_bytes() as f64 / tensor.dense_elements()))
    });
    (wide.unwrap_or(of), packed)
}

/// Where operands in another format are expanded, in words.
fn told_expansion(product: &Product, grid: &gemm::Grid) -> &'static str {
    match (product.packed, grid.expands_first) {
        ([None, None], _) => "",
        (_, true) => ", expanded where it lies",
        (_, false) => ", expanded where it is multiplied",
    }
}

fn told(grid: &gemm::Grid) -> String {
    let passes = if grid.output_passes * grid.depth_passes > 1 {
        format!(", {} x {} passes over outputs x depth", grid.output_passes, grid.depth_passes)
    } else {
        String::new()
    };
    let count = if grid.count > 1 { format!("{} products x ", grid.count) } else { String::new() };
    let axes = if grid.swapped { ("columns", "rows") } else { ("rows", "columns") };
    format!("{count}{} {} x {} {} x {} depth{passes}", grid.rows, axes.0, grid.outputs, axes.1, grid.depth)
}
