//! Random pairs over wide ranges of every field that moves an engine's result: hops, FIFOs, links, channels, latencies,
//! turnarounds and grids, in bf16 and fp32; and a family of graphs for each kind of section.
//!
//! Seeds 1 to 99 are for development. Figures are reported on seeds that were drawn afterwards.

use proptest::prelude::*;
use proptest::sample::select;

use super::images::over_images;
use super::{ChipValues, GraphValues, Growth, chips, drawn, grown, sparsities, widths};

/// Chips of 1 x 3 to 16 x 16 sites.
fn wide_chips() -> impl Strategy<Value = ChipValues> {
    let grid = prop_oneof![
        4 => (1u64..=6, 3u64..=6),
        2 => (6u64..=10, 4u64..=10),
        1 => (10u64..=16, 10u64..=16),
    ];
    let network =
        (select(vec![1u64, 2, 3, 4, 6, 8, 12, 16, 20]), select(vec![2u64, 4, 6, 8, 12, 16, 24, 32, 64]), 1u64..=4);
    let tiers = (
        select(vec![1u64, 2, 3, 4, 6, 8, 12, 16, 32]),
        select(vec![0u64, 20, 100, 350, 1_000, 5_000, 20_000]),
        prop_oneof![3 => Just(0u64), 1 => select(vec![8u64, 15, 60])],
        prop_oneof![3 => Just(0u64), 1 => select(vec![5u64, 20, 45])],
    );
    (chips(), grid, network, tiers).prop_map(|(mut chip, grid, network, tiers)| {
        chip.grid = grid;
        if grid.0 == 1 {
            // The other patterns have no memory unit in their first column.
            chip.pattern = r#"["CM", "MC"]"#;
        }
        (chip.hop_cycles, chip.fifo_flits, chip.links) = network;
        for tier in &mut chip.tiers {
            (tier.channels, tier.latency_ns, tier.turnaround_ns, tier.non_sequential_ns) = tiers;
        }
        chip
    })
}

/// Graphs of `rows` that grow by what `growth` makes, one to `most` times.
fn of_rows(
    rows: impl Strategy<Value = u64>,
    growth: impl Strategy<Value = Growth>,
    most: usize,
) -> impl Strategy<Value = GraphValues> {
    let dtype = prop_oneof![4 => Just("bf16"), 1 => Just("fp32")];
    (rows, widths(), dtype, prop::collection::vec(growth, 1..=most))
        .prop_map(|(rows, columns, dtype, growth)| GraphValues::new(rows, columns, dtype, growth))
}

/// Families of pairs, by the kind of section that they are made of.
pub fn wide_families() -> Vec<(&'static str, BoxedStrategy<(ChipValues, GraphValues)>)> {
    let rows = || prop_oneof![1 => 1u64..=8, 4 => 8u64..=300, 1 => select(vec![512u64, 1000])];
    let gemm = || widths().prop_map(|n| Growth::Gemm(n, None));
    let masked = || (widths(), sparsities()).prop_map(|(n, s)| Growth::Gemm(n, Some(s)));
    let unary = |kinds: &[&'static str]| select(kinds.to_vec()).prop_map(Growth::Unary);
    let skip = || (1usize..4).prop_map(Growth::Skip);
    let all = || {
        prop_oneof![
            4 => gemm(),
            2 => masked(),
            2 => unary(&["relu", "gelu", "softmax", "layer_norm"]),
            1 => skip(),
            1 => widths().prop_map(Growth::Gated),
            1 => Just(Growth::Tied),
        ]
    };
    // Few rows and columns of a long K: what is left to split is K.
    let deep = (1u64..=8, select(vec![256u64, 512, 1024, 2048]), 1u64..=16)
        .prop_map(|(rows, columns, n)| GraphValues::new(rows, columns, "bf16", vec![Growth::Gemm(n, None)]));
    let plain = any::<bool>().prop_map(|made_here| Growth::Attention { made_here });
    let shapes = (select(vec![(1u64, 1u64), (2, 2), (4, 2), (4, 4), (6, 3), (8, 1)]), select(vec![8u64, 16, 32, 64]));
    let heads = (shapes, select(vec![1u64, 1, 2, 4]), any::<bool>())
        .prop_map(|((heads, columns), sequences, causal)| Growth::Heads { heads, columns, sequences, causal });
    let attention = prop_oneof![1 => plain, 2 => heads];
    vec![
        ("gemm", (wide_chips(), of_rows(rows(), gemm(), 2)).boxed()),
        ("split-K", (wide_chips(), deep).boxed()),
        (
            "elementwise",
            (wide_chips(), of_rows(rows(), prop_oneof![3 => unary(&["relu", "gelu"]), 1 => skip()], 4)).boxed(),
        ),
        ("norms", (wide_chips(), of_rows(rows(), prop_oneof![2 => unary(&["layer_norm"]), 1 => gemm()], 3)).boxed()),
        ("softmax", (wide_chips(), of_rows(rows(), prop_oneof![2 => unary(&["softmax"]), 1 => gemm()], 3)).boxed()),
        ("attention", (wide_chips(), of_rows(1u64..=128, attention, 1)).boxed()),
        ("sparse", (wide_chips(), of_rows(rows(), masked(), 3)).boxed()),
        ("decode", (wide_chips(), of_rows(1u64..=4, all(), 5)).boxed()),
        ("many sections", (wide_chips(), of_rows(1u64..=64, all(), 12)).boxed()),
        ("starved memory", (wide_chips().prop_map(ChipValues::with_slow_memory), grown(all())).boxed()),
        ("congested links", (wide_chips().prop_map(ChipValues::with_narrow_network), grown(all())).boxed()),
        ("any", (wide_chips(), grown(all())).boxed()),
        ("training", (wide_chips(), trained()).boxed()),
        ("images", (wide_chips(), images()).boxed()),
    ]
}

/// Layers, dense and sparse, with their gradients and the steps of an optimiser.
fn trained() -> impl Strategy<Value = GraphValues> {
    let gemm = || (widths(), prop::option::weighted(0.5, sparsities())).prop_map(|(n, s)| Growth::Gemm(n, s));
    let more = prop_oneof![
        3 => gemm(),
        2 => select(vec!["relu", "gelu", "softmax", "layer_norm"]).prop_map(Growth::Unary),
        1 => Just(Growth::Skip(1)),
        1 => widths().prop_map(Growth::Gated),
    ];
    let rows = prop_oneof![1 => 1u64..=8, 4 => 8u64..=200];
    (of_rows(rows, more, 2), gemm(), select(vec!["sgd", "adam"])).prop_map(|(mut graph, first, optimizer)| {
        // Without a weight there is nothing to train.
        graph.growth.insert(0, first);
        GraphValues { optimizer: Some(optimizer), ..graph }
    })
}

/// Networks of up to four images of up to 24 x 24 pixels.
fn images() -> impl Strategy<Value = GraphValues> {
    let growth = prop_oneof![
        4 => over_images(),
        1 => select(vec!["relu", "gelu"]).prop_map(Growth::Unary),
        1 => widths().prop_map(|n| Growth::Gemm(n, None)),
    ];
    let size = (1u64..=4, [1u64..=24, 1u64..=24]);
    (size, of_rows(Just(1u64), growth, 4)).prop_map(|((images, image), mut graph)| {
        graph.columns = graph.columns.min(64);
        GraphValues { rows: images * image[0] * image[1], image, ..graph }
    })
}

/// The wide pair with a number, always the same for a seed, and the name of its family.
pub fn wide_pair(seed: u64, number: usize) -> (&'static str, ChipValues, GraphValues) {
    let families = wide_families();
    let (family, strategy) = &families[number % families.len()];
    let (chip, graph) = drawn(strategy, seed, number);
    (family, chip, graph)
}

/// The pair with a number of one family, whatever the number of families.
pub fn wide_pair_of(family: &str, seed: u64, number: usize) -> (&'static str, ChipValues, GraphValues) {
    let families = wide_families();
    let (family, strategy) = families.iter().find(|known| known.0 == family).expect("a family");
    let (chip, graph) = drawn(strategy, seed, number);
    (family, chip, graph)
}
