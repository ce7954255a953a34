//! Random small chips and operator graphs, as texts of the files that would describe them.

use std::fmt::{self, Write};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rdusim_graph::arch::{self, Chip};
use rdusim_graph::workload::{self, Workload};

mod images;
pub mod wide;

use images::ImageWalk;

/// A chip file's values. Shrinks towards a small, plain chip.
#[derive(Clone)]
pub struct ChipValues {
    /// Columns and rows of sites.
    pub grid: (u64, u64),
    pattern: &'static str,
    /// Address generators at each position of the left and of the right edge.
    pub ags: (u64, u64),
    clock_ghz: f64,
    lanes: u64,
    stages: u64,
    accumulator_sets: u64,
    tail_elements: u64,
    pcu_ports: (u64, u64),
    simd_stages: u64,
    banks: u64,
    /// Bytes of a PMU bank.
    pub bank_bytes: u64,
    pmu_ports: (u64, u64),
    port_bytes: u64,
    flit_bytes: u64,
    links: u64,
    hop_cycles: u64,
    fifo_flits: u64,
    ag_bytes: u64,
    /// Memory tiers, in order.
    pub tiers: Vec<TierValues>,
    launch_us: f64,
}

/// One memory tier's values.
#[derive(Debug, Clone, Copy)]
pub struct TierValues {
    channels: u64,
    /// Bandwidth.
    pub gb_per_s: f64,
    latency_ns: u64,
    burst: u64,
    bursts_a_stripe: u64,
    /// Lost when a channel turns between reading and writing, ...
    turnaround_ns: u64,
    /// ... and before an access that does not follow its last.
    non_sequential_ns: u64,
    /// Capacity.
    pub capacity: u64,
}

impl TierValues {
    /// Makes the tier one that DRAM parts may make up, of which a channel sustains so much.
    pub fn fit_parts(&mut self, channel_gb_per_s: f64) {
        (self.burst, self.bursts_a_stripe) = (64, self.bursts_a_stripe.max(4));
        self.gb_per_s = self.gb_per_s.min(channel_gb_per_s * self.channels as f64);
    }

    /// Its table of a chip file.
    fn write(&self, index: usize, text: &mut String) {
        let TierValues { channels, gb_per_s, latency_ns, burst, bursts_a_stripe, capacity, .. } = self;
        let interleave = burst * bursts_a_stripe;
        let _ = write!(
            text,
            "[[memory]]\nname = \"tier{index}\"\nchannels = {channels}\nbandwidth_gb_per_s = {gb_per_s}\n\
             latency_ns = {latency_ns}\nburst_bytes = {burst}\ninterleave_bytes = {interleave}\n\
             capacity_bytes = {capacity}\npj_per_bit = 10\n"
        );
        let penalties = [("turnaround_ns", self.turnaround_ns), ("non_sequential_ns", self.non_sequential_ns)];
        for (field, ns) in penalties.into_iter().filter(|&(_, ns)| ns > 0) {
            let _ = writeln!(text, "{field} = {ns}");
        }
    }
}

impl ChipValues {
    /// The chip file.
    pub fn text(&self) -> String {
        let Self { grid, ags, pcu_ports, pmu_ports, .. } = self;
        let right = if ags.1 > 0 { format!(", right = {{ ags = {} }}", ags.1) } else { String::new() };
        let mut text = format!(
            r#"schema = 1
name = "random"
clock_ghz = {clock}
grid = {{ columns = {columns}, rows = {rows}, pattern = {pattern}, agcus = {{ left = {{ ags = {left} }}{right} }} }}
ag = {{ bytes_per_cycle = {ag_bytes} }}
[pcu]
lanes = {{ bf16 = {lanes}, fp32 = {wide_lanes} }}
stages = {stages}
accumulator_sets = {sets}
tail_elements = {tail}
vector_inputs = {inputs}
vector_outputs = {outputs}
simd_stages = {{ relu = 1, add = 1, mul = 1, gelu = {simd}, softmax = {simd}, layer_norm = {norm} }}
[pmu]
capacity_bytes = {capacity}
banks = {banks}
read_ports = {reads}
write_ports = {writes}
port_bytes = {port_bytes}
[network]
flit_bytes = {flit}
links_per_direction = {links}
hop_cycles = {hop}
fifo_depth_flits = {fifo}
max_packet_flits = {packet}
[launch]
orchestration = "software"
program_bytes_per_unit = 256
software = {{ program_load_us = {launch}, argument_load_us = 0, execute_us = 0 }}
hardware = {{ program_load_us = 0, argument_load_us = 0, execute_us = 0 }}
[energy]
mac_pj = {{ bf16 = 0.5, fp32 = 1.5 }}
sram_pj_per_byte = 1
network_pj_per_bit_hop = 0.1
static_w = 10
"#,
            clock = self.clock_ghz,
            columns = grid.0,
            rows = grid.1,
            pattern = self.pattern,
            left = ags.0,
            ag_bytes = self.ag_bytes,
            lanes = self.lanes,
            wide_lanes = self.lanes.div_ceil(2),
            stages = self.stages,
            sets = self.accumulator_sets,
            tail = self.tail_elements,
            inputs = pcu_ports.0,
            outputs = pcu_ports.1,
            simd = self.simd_stages,
            norm = self.simd_stages + 2,
            capacity = self.banks * self.bank_bytes,
            banks = self.banks,
            reads = pmu_ports.0,
            writes = pmu_ports.1,
            port_bytes = self.port_bytes,
            flit = self.flit_bytes,
            links = self.links,
            hop = self.hop_cycles,
            fifo = self.fifo_flits,
            packet = self.fifo_flits.min(8),
            launch = self.launch_us,
        );
        for (index, tier) in self.tiers.iter().enumerate() {
            tier.write(index, &mut text);
        }
        text
    }

    /// The chip.
    pub fn chip(&self) -> Chip {
        arch::parse("random chip", &self.text(), &[])
            .unwrap_or_else(|error| panic!("{}\n{}", error.render(false), self.text()))
    }
}

impl ChipValues {
    /// The same chip with lanes for integers.
    pub fn chip_of_integers(&self) -> Chip {
        let lanes = format!(", int8 = {} }}\nstages", 2 * self.lanes);
        let text =
            self.text().replacen(" }\nstages", &lanes, 1).replacen("fp32 = 1.5 }", "fp32 = 1.5, int8 = 0.2 }", 1);
        arch::parse("random chip", &text, &[]).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
    }

    /// The same chip with an eighth of the bandwidth, at most 8 GB/s.
    fn with_slow_memory(mut self) -> Self {
        self.tiers.iter_mut().for_each(|tier| tier.gb_per_s = (tier.gb_per_s / 8.0).clamp(0.5, 8.0));
        self
    }

    /// The same chip with one link, narrow flits and few ports.
    fn with_narrow_network(mut self) -> Self {
        (self.links, self.flit_bytes, self.port_bytes) = (1, 16, self.port_bytes.min(32));
        (self.pmu_ports, self.pcu_ports) = ((1, 1), (self.pcu_ports.0.min(2), 1));
        self
    }

    /// The same chip with more of one resource, and what.
    pub fn richer(&self) -> Vec<(&'static str, Self)> {
        let with = |change: &dyn Fn(&mut Self)| {
            let mut values = self.clone();
            change(&mut values);
            values
        };
        vec![
            ("columns of units", with(&|v| v.grid.0 += 1)),
            ("rows of units", with(&|v| v.grid.1 *= 2)),
            ("address generators", with(&|v| v.ags.0 += 1)),
            ("bytes in a bank", with(&|v| v.bank_bytes *= 2)),
            ("banks", with(&|v| v.banks *= 2)),
            ("bandwidth of a tier", with(&|v| v.tiers[0].gb_per_s *= 1.5)),
            ("bandwidth", with(&|v| v.tiers.iter_mut().for_each(|t| t.gb_per_s *= 3.0))),
            ("links", with(&|v| v.links += 1)),
        ]
    }
}

fn tiers() -> impl Strategy<Value = Vec<TierValues>> {
    let tier = (
        select(vec![1u64, 2, 6]),
        select(vec![64.0, 1.0, 8.0, 20.5, 100.0, 500.0]),
        select(vec![0u64, 1, 37, 100, 400]),
        select(vec![64u64, 1, 16, 256]),
        select(vec![16u64, 1, 4]),
        select(vec![1u64 << 40, 1 << 30, 1 << 16]),
    )
        .prop_map(|(channels, gb_per_s, latency_ns, burst, bursts_a_stripe, capacity)| TierValues {
            channels,
            gb_per_s,
            latency_ns,
            burst,
            bursts_a_stripe,
            turnaround_ns: 0,
            non_sequential_ns: 0,
            capacity,
        });
    prop::collection::vec(tier, 1..=2).prop_map(|mut tiers| {
        // The last tier holds whatever the others do not.
        if let Some(last) = tiers.last_mut() {
            last.capacity = 1 << 40;
        }
        tiers
    })
}

/// Random small chips: 2 x 2 to 8 x 6 sites.
pub fn chips() -> impl Strategy<Value = ChipValues> {
    let grid =
        (2u64..=8, 2u64..=6, select(vec![r#"["CM", "MC"]"#, r#"["CMC", "MCM"]"#, r#"["CM"]"#, r#"["CM.", "CCM"]"#]));
    let edges = (prop_oneof![2 => 4u64..=8, 1 => 1u64..=3], 0u64..=3, select(vec![64u64, 16, 128]));
    let pcu = (
        select(vec![4u64, 1, 3, 8, 16, 32]),
        select(vec![4u64, 1, 2, 6, 12]),
        1u64..=2,
        select(vec![32u64, 1, 4, 16]),
        (1u64..=4, 1u64..=3),
        prop_oneof![3 => 1u64..=6, 1 => 7u64..=16],
    );
    let pmu = (
        select(vec![16u64, 1, 4, 32]),
        prop_oneof![3 => select(vec![65536u64, 16384, 4096]), 1 => select(vec![1024u64, 256, 64])],
        (1u64..=3, 1u64..=2),
        select(vec![64u64, 16, 32, 128]),
    );
    let network = (select(vec![64u64, 16, 32]), 1u64..=3, 1u64..=3);
    let rest = (select(vec![1.0, 0.7, 1.25]), select(vec![0.0, 0.1, 5.0, 24.0]));
    (grid, edges, pcu, pmu, network, tiers(), rest).prop_map(|(grid, edges, pcu, pmu, network, tiers, rest)| {
        ChipValues {
            grid: (grid.0, grid.1),
            pattern: grid.2,
            ags: (edges.0, edges.1),
            clock_ghz: rest.0,
            lanes: pcu.0,
            stages: pcu.1,
            accumulator_sets: pcu.2,
            tail_elements: pcu.3,
            pcu_ports: pcu.4,
            simd_stages: pcu.5,
            banks: pmu.0,
            bank_bytes: pmu.1,
            pmu_ports: pmu.2,
            port_bytes: pmu.3,
            flit_bytes: network.0,
            links: network.1,
            hop_cycles: network.2,
            fifo_flits: 16,
            ag_bytes: edges.2,
            tiers,
            launch_us: rest.1,
        }
    })
}

/// One more operator, or a few, behind the tensor made last.
#[derive(Debug, Clone)]
enum Growth {
    /// A GEMM to so many columns, its weight dense or with a block mask.
    Gemm(u64, Option<(f64, (u64, u64))>),
    /// One input, one output.
    Unary(&'static str),
    /// Adds the earlier tensor of this shape that is so far back (none: nothing happens).
    Skip(usize),
    /// Two GEMMs of the same tensor, multiplied.
    Gated(u64),
    /// Scores against keys, softmax, and a mix of values: GEMMs whose second operands are activations.
    Attention { made_here: bool },
    /// Attention of so many heads, and heads of keys, of so many columns, in this many sequences if they divide the rows.
    Heads { heads: (u64, u64), columns: u64, sequences: u64, causal: bool },
    /// Two GEMMs with one weight, which keeps the columns.
    Tied,
    /// A convolution in so many groups of so many filters each.
    Conv(ImageWalk, (u64, u64)),
    /// A pooling.
    Pool(&'static str, ImageWalk),
    /// The tensor is also wanted off chip.
    AlsoOutput,
}

/// A workload: how it grows from its input.
#[derive(Clone)]
pub struct GraphValues {
    rows: u64,
    columns: u64,
    dtype: &'static str,
    growth: Vec<Growth>,
    /// Lines and pixels of the images that the rows are; single pixels of other graphs.
    image: [u64; 2],
    /// With a gradient of everything, and steps of this optimiser.
    optimizer: Option<&'static str>,
}

impl GraphValues {
    fn new(rows: u64, columns: u64, dtype: &'static str, growth: Vec<Growth>) -> Self {
        Self { rows, columns, dtype, growth, image: [1, 1], optimizer: None }
    }

    /// The workload file.
    pub fn text(&self) -> String {
        let mut builder = Builder {
            rows: self.rows,
            image: self.image,
            tensors: format!(
                "[[tensors]]\nname = \"x\"\nshape = [{}, {}]\nrole = \"input\"\n",
                self.rows, self.columns
            ),
            operators: String::new(),
            made: vec![("x".to_owned(), self.columns)],
            count: 0,
            outputs: Vec::new(),
        };
        for growth in &self.growth {
            builder.grow(growth);
        }
        if builder.count == 0 {
            builder.grow(&Growth::Unary("relu"));
        }
        let mut text = format!("schema = 1\nname = \"random\"\ndtype = \"{}\"\n", self.dtype);
        if let Some(optimizer) = self.optimizer {
            let _ = writeln!(text, "[training]\noptimizer = \"{optimizer}\"");
        }
        text.push_str(&builder.tensors);
        for (name, columns) in &builder.outputs {
            let _ =
                write!(text, "[[tensors]]\nname = \"{name}\"\nshape = [{}, {columns}]\nrole = \"output\"\n", self.rows);
        }
        text.push_str(&builder.operators);
        text
    }

    /// The same graph in another data type.
    #[must_use]
    pub fn in_type(&self, dtype: &'static str) -> Self {
        Self { dtype, ..self.clone() }
    }

    /// The workload.
    pub fn workload(&self) -> Workload {
        workload::parse("random workload", &self.text(), &[], 0)
            .unwrap_or_else(|error| panic!("{}\n{}", error.render(false), self.text()))
    }
}

struct Builder {
    rows: u64,
    /// Lines and pixels of the images that the tensor made last has.
    image: [u64; 2],
    tensors: String,
    operators: String,
    /// Activations with `rows` rows, by name, with their columns.
    made: Vec<(String, u64)>,
    count: usize,
    outputs: Vec<(String, u64)>,
}

impl Builder {
    fn last(&self) -> (String, u64) {
        self.made[self.made.len() - 1].clone()
    }

    fn operator(&mut self, kind: &str, inputs: &[&str], columns: u64) -> String {
        let output = format!("t{}", self.count);
        let _ = write!(
            self.operators,
            "[[operators]]\nname = \"{kind}{}\"\nkind = \"{kind}\"\ninputs = {inputs:?}\noutput = \"{output}\"\n",
            self.count
        );
        self.count += 1;
        self.made.push((output.clone(), columns));
        output
    }

    fn given(&mut self, role: &str, shape: (u64, u64), sparsity: Option<(f64, (u64, u64))>) -> String {
        let name = format!("{role}{}", self.count);
        let keeps = |(density, block): &(f64, (u64, u64))| {
            (density * (shape.0.div_ceil(block.0) * shape.1.div_ceil(block.1)) as f64).round() >= 1.0
        };
        let sparsity = sparsity.filter(keeps).map_or(String::new(), |(density, (rows, columns))| {
            format!("sparsity = {{ pattern = \"block\", density = {density}, block = [{rows}, {columns}] }}\n")
        });
        let _ = write!(
            self.tensors,
            "[[tensors]]\nname = \"{name}\"\nshape = [{}, {}]\nrole = \"{role}\"\n{sparsity}",
            shape.0, shape.1
        );
        name
    }

    fn gemm(&mut self, from: &(String, u64), columns: u64, sparsity: Option<(f64, (u64, u64))>) -> String {
        let weight = self.given("weight", (from.1, columns), sparsity);
        self.operator("gemm", &[&from.0, &weight], columns)
    }

    fn grow(&mut self, growth: &Growth) {
        let last = self.last();
        match growth {
            Growth::Gemm(columns, sparsity) => {
                self.gemm(&last, *columns, *sparsity);
            }
            Growth::Unary(kind) => {
                self.operator(kind, &[&last.0], last.1);
            }
            Growth::Skip(back) => {
                let same: Vec<&(String, u64)> = self.made.iter().rev().filter(|t| t.1 == last.1).collect();
                let other = same[back % same.len()].0.clone();
                self.operator("add", &[&last.0, &other], last.1);
            }
            Growth::Gated(columns) => {
                let gate = self.gemm(&last, *columns, None);
                let value = self.gemm(&last, *columns, None);
                self.operator("mul", &[&gate, &value], *columns);
            }
            Growth::Attention { made_here } => {
                let keys = self.given("input", (last.1, self.rows), None);
                let scores = self.operator("gemm", &[&last.0, &keys], self.rows);
                let shares = self.operator("softmax", &[&scores], self.rows);
                let values = if *made_here { last.0.clone() } else { self.given("input", (self.rows, last.1), None) };
                self.operator("gemm", &[&shares, &values], last.1);
            }
            &Growth::Heads { heads: (heads, kv_heads), columns, sequences, causal } => {
                let batch = if self.rows.is_multiple_of(sequences) { sequences } else { 1 };
                let options = format!("batch = {batch}\nheads = {heads}\nkv_heads = {kv_heads}\ncausal = {causal}\n");
                let query = self.gemm(&last, heads * columns, None);
                let keys = self.given("input", (self.rows, kv_heads * columns), None);
                let seen = heads * (self.rows / batch);
                let scores = self.operator("gemm", &[&query, &keys], seen);
                let _ = write!(self.operators, "transpose_b = true\n{options}");
                let shares = self.operator("softmax", &[&scores], seen);
                let _ = writeln!(self.operators, "heads = {heads}");
                let values = self.given("input", (self.rows, kv_heads * columns), None);
                self.operator("gemm", &[&shares, &values], heads * columns);
                self.operators += &options;
            }
            Growth::Tied => {
                let weight = self.given("weight", (last.1, last.1), None);
                let once = self.operator("gemm", &[&last.0, &weight], last.1);
                self.operator("gemm", &[&once, &weight], last.1);
            }
            Growth::Conv(walk, filters) => self.over_images("conv", walk, Some(*filters)),
            Growth::Pool(kind, walk) => self.over_images(kind, walk, None),
            Growth::AlsoOutput => {
                if self.count > 0 && !self.outputs.contains(&last) {
                    self.outputs.push(last);
                }
            }
        }
    }
}

fn widths() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![3 => 1u64..=96, 1 => select(vec![1u64, 16, 32, 64, 128, 256])]
}

fn sparsities() -> impl Strategy<Value = (f64, (u64, u64))> {
    (select(vec![0.5, 0.125, 0.9]), select(vec![(16u64, 16u64), (4, 4), (8, 3), (1, 1), (32, 32)]))
}

/// Random small graphs, of up to a dozen or so operators.
pub fn graphs() -> impl Strategy<Value = GraphValues> {
    let (width, sparsity) = (widths(), sparsities());
    let growth = prop_oneof![
        6 => (width.clone(), prop::option::weighted(0.3, sparsity)).prop_map(|(n, s)| Growth::Gemm(n, s)),
        4 => select(vec!["relu", "gelu"]).prop_map(Growth::Unary),
        2 => select(vec!["softmax", "layer_norm"]).prop_map(Growth::Unary),
        2 => (1usize..4).prop_map(Growth::Skip),
        1 => width.clone().prop_map(Growth::Gated),
        1 => any::<bool>().prop_map(|made_here| Growth::Attention { made_here }),
        1 => Just(Growth::Tied),
        1 => Just(Growth::AlsoOutput),
    ];
    grown(growth)
}

/// Graphs that grow by what `growth` makes.
fn grown(growth: impl Strategy<Value = Growth>) -> impl Strategy<Value = GraphValues> {
    let rows = prop_oneof![1 => Just(1u64), 6 => 1u64..=200, 1 => select(vec![64u64, 256, 1000])];
    (rows, widths(), prop_oneof![5 => Just("bf16"), 1 => Just("fp32")], prop::collection::vec(growth, 1..=6))
        .prop_map(|(rows, columns, dtype, growth)| GraphValues::new(rows, columns, dtype, growth))
}

/// Families of pairs, by what they are short of or made of.
pub fn families() -> Vec<(&'static str, BoxedStrategy<(ChipValues, GraphValues)>)> {
    let dense = || widths().prop_map(|n| Growth::Gemm(n, None));
    let unary = || select(vec!["relu", "gelu", "softmax", "layer_norm"]).prop_map(Growth::Unary);
    let chains = grown(prop_oneof![3 => dense(), 1 => unary()]);
    let skips = (1usize..4).prop_map(Growth::Skip);
    let branches = grown(prop_oneof![
        3 => dense(),
        1 => unary(),
        2 => skips,
        2 => widths().prop_map(Growth::Gated),
        1 => Just(Growth::Tied),
        1 => Just(Growth::AlsoOutput),
    ]);
    let masked = (widths(), sparsities()).prop_map(|(n, s)| Growth::Gemm(n, Some(s)));
    let sparse = grown(prop_oneof![4 => masked, 1 => unary()]);
    vec![
        ("any", (chips(), graphs()).boxed()),
        ("chains", (chips(), chains).boxed()),
        ("branches", (chips(), branches).boxed()),
        ("sparse", (chips(), sparse).boxed()),
        ("starved memory", (chips().prop_map(ChipValues::with_slow_memory), graphs()).boxed()),
        ("congested links", (chips().prop_map(ChipValues::with_narrow_network), graphs()).boxed()),
    ]
}

/// Pairs so small that every mapping can be measured: a handful of units, one to three operators, dimensions up to 24.
fn small() -> impl Strategy<Value = (ChipValues, GraphValues)> {
    let chip = (chips(), (2u64..=4, 2u64..=3), 1u64..=4, 1u64..=4).prop_map(|(mut chip, grid, lanes, stages)| {
        (chip.grid, chip.lanes, chip.stages) = (grid, lanes, stages);
        chip
    });
    let width = || 2u64..=24;
    let growth = prop_oneof![
        5 => width().prop_map(|n| Growth::Gemm(n, None)),
        2 => select(vec!["relu", "gelu", "softmax"]).prop_map(Growth::Unary),
        1 => Just(Growth::Skip(1)),
    ];
    let graph = (2u64..=24, width(), prop::collection::vec(growth, 1..=3));
    let graph = graph.prop_map(|(rows, columns, growth)| GraphValues::new(rows, columns, "bf16", growth));
    (chip, graph)
}

/// The small pair with a number, always the same for a seed.
pub fn small_pair(seed: u64, number: usize) -> (ChipValues, GraphValues) {
    drawn(&small(), seed, number)
}

/// The pair with a number, always the same for a seed, and the name of its family.
pub fn pair(seed: u64, number: usize) -> (&'static str, ChipValues, GraphValues) {
    let families = families();
    let (family, strategy) = &families[number % families.len()];
    let (chip, graph) = drawn(strategy, seed, number);
    (family, chip, graph)
}

fn drawn(
    strategy: &impl Strategy<Value = (ChipValues, GraphValues)>,
    seed: u64,
    number: usize,
) -> (ChipValues, GraphValues) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    strategy.new_tree(&mut runner).expect("no value is filtered out").current()
}

impl fmt::Debug for ChipValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n--- chip.toml\n{}", self.text())
    }
}

impl fmt::Debug for GraphValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n--- workload.toml\n{}", self.text())
    }
}
