//! Keys and values made in the section that attends to them: a stage's second operand comes from another stage, row tile by
//! row tile, is read as a causal prefix or as a whole sequence, and is freed with the sequence.

use crate::kinds::{hold, read_again, violations};
use crate::sums;
use proptest::prelude::*;
use rdusim::arch::Chip;
use rdusim::compile::{compile, compile_measured, retargeted_section};
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::program::{BufferRole, Configuration, GemmMapping, LoopLevel, SectionGraph};
use rdusim::sim::simulate;
use rdusim::verify::verify;
use rdusim::workload::{self, Workload};

/// A small attention.
#[derive(Debug, Clone, Copy)]
struct Attention {
    batch: u64,
    length: u64,
    heads: u64,
    kv_heads: u64,
    /// Columns of a head.
    size: u64,
    causal: bool,
    /// Keys and queries are turned by a function of their own behind the product.
    rotary: bool,
}

const PLAIN: Attention =
    Attention { batch: 1, length: 96, heads: 4, kv_heads: 4, size: 16, causal: true, rotary: false };

/// Operators of an attention, in order.
fn operators(of: Attention) -> Vec<&'static str> {
    let mut list = vec!["norm", "key", "value", "query", "scores", "mask", "softmax", "mix", "project", "add"];
    if !of.causal {
        list.retain(|&name| name != "mask");
    }
    if of.rotary {
        list.splice(2..2, ["turn_key"]);
        list.splice(5..5, ["turn_query"]);
    }
    list
}

impl Attention {
    fn text(self) -> String {
        let Self { batch, length, heads, kv_heads, size, causal, rotary } = self;
        let (rows, wide, narrow) = (batch * length, heads * size, kv_heads * size);
        let tensor = |name: &str, rows: u64, columns: u64, role: &str| {
            format!("[[tensors]]\nname = \"{name}\"\nshape = [{rows}, {columns}]\nrole = \"{role}\"\n")
        };
        let operator = |name: &str, kind: &str, inputs: &[&str], output: &str, more: &str| {
            format!(
                "[[operators]]\nname = \"{name}\"\nkind = \"{kind}\"\ninputs = {inputs:?}\noutput = \"{output}\"\n{more}\n"
            )
        };
        let mut text = "schema = 1\nname = \"attention\"\ndtype = \"bf16\"\n".to_owned();
        text += &tensor("x", rows, wide, "input");
        text += &tensor("w_key", wide, narrow, "weight");
        text += &tensor("w_value", wide, narrow, "weight");
        text += &tensor("w_query", wide, wide, "weight");
        text += &tensor("w_project", wide, wide, "weight");
        let grouped = format!("batch = {batch}\nheads = {heads}\nkv_heads = {kv_heads}\ncausal = {causal}");
        let (key, query) = if rotary { ("k_plain", "q_plain") } else { ("k", "q") };
        text += &operator("norm", "rms_norm", &["x"], "n", "");
        text += &operator("key", "gemm", &["n", "w_key"], key, "");
        if rotary {
            text += &operator("turn_key", "rotary", &[key], "k", &format!("heads = {kv_heads}"));
        }
        text += &operator("value", "gemm", &["n", "w_value"], "v", "");
        text += &operator("query", "gemm", &["n", "w_query"], query, "");
        if rotary {
            text += &operator("turn_query", "rotary", &[query], "q", &format!("heads = {heads}"));
        }
        text += &operator("scores", "gemm", &["q", "k"], "s", &format!("transpose_b = true\n{grouped}"));
        let probabilities = if causal { "sm" } else { "s" };
        if causal {
            text += &operator("mask", "causal_mask", &["s"], "sm", "");
        }
        text += &operator("softmax", "softmax", &[probabilities], "p", &format!("heads = {heads}"));
        text += &operator("mix", "gemm", &["p", "v"], "o", &grouped);
        text += &operator("project", "gemm", &["o", "w_project"], "a", "");
        text += &operator("add", "add", &["x", "a"], "y", "");
        text
    }

    fn workload(self) -> Workload {
        let text = self.text() + &format!("[[sections]]\noperators = {:?}\n", operators(self));
        workload::parse("attention", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
    }
}

/// Runs a configuration on numbers, and in all fidelities; a line that says how far apart the engines are.
fn prove(chip: &Chip, workload: &Workload, configuration: &Configuration, about: &str, most: f64) -> String {
    let verdict = verify(chip, workload, [configuration], 5);
    assert!(verdict[0].passed, "{about}: {:?}", verdict[0]);
    let line = hold(chip, workload, configuration, about, most);
    let outcome = simulate(chip, workload, configuration, Fidelity::Event);
    for (name, bytes) in &outcome.traffic().by_tensor {
        let is_inside = ["k", "v", "q", "p", "s"].contains(&name.as_str());
        assert!(!is_inside || bytes.off_chip_read_bytes + bytes.off_chip_write_bytes == 0, "{about}: `{name}` moves");
    }
    line
}

fn one_section(chip: &Chip, of: Attention) -> (Workload, Configuration) {
    let workload = of.workload();
    let configuration = compile(chip, &workload, Mode::Fused).unwrap_or_else(|error| panic!("{of:?}: {error:?}"));
    assert_eq!(configuration.sections.len(), 1);
    (workload, configuration)
}

#[test]
fn keys_and_values_made_in_the_section_give_the_numbers() {
    let chip = sums::chip(&[]);
    let cases = [
        PLAIN,
        Attention { causal: false, ..PLAIN },
        Attention { batch: 3, length: 64, ..PLAIN },
        Attention { batch: 3, length: 64, causal: false, ..PLAIN },
        Attention { heads: 6, kv_heads: 2, batch: 2, length: 48, ..PLAIN },
        Attention { heads: 6, kv_heads: 3, causal: false, rotary: true, ..PLAIN },
        Attention { batch: 2, length: 72, rotary: true, size: 12, ..PLAIN },
        Attention { length: 101, ..PLAIN },
    ];
    for of in cases {
        let (workload, configuration) = one_section(&chip, of);
        println!("{}", prove(&chip, &workload, &configuration, &format!("{of:?}"), 0.08));
    }
}

/// Sections of more than 5,000 cycles: as near the reference model as others are.
#[test]
fn long_sections_take_the_cycles_of_the_reference_model() {
    let chip = sums::chip(&[]);
    for of in [
        Attention { batch: 2, length: 256, heads: 4, kv_heads: 2, size: 32, ..PLAIN },
        Attention { batch: 3, length: 160, heads: 4, kv_heads: 4, size: 32, causal: false, ..PLAIN },
        Attention { length: 512, heads: 2, kv_heads: 2, size: 64, rotary: true, ..PLAIN },
    ] {
        let workload = of.workload();
        let configuration = compile(&chip, &workload, Mode::Fused).unwrap_or_else(|error| panic!("{of:?}: {error:?}"));
        let cycles = simulate(&chip, &workload, &configuration, Fidelity::Event).cycles;
        assert!(cycles - chip.launch_cycles() >= 5_000, "{of:?}: {cycles} cycles");
        println!("{}", hold(&chip, &workload, &configuration, &format!("{of:?}"), 0.03));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Numbers, bytes, bounds, skipping and saved files, of any shape.
    #[test]
    fn every_attention_holds_its_laws(
        (batch, length) in (1u64..4, 4u64..90), (groups, kv_heads, size) in (1u64..4, 1u64..4, 3u64..20), causal: bool, rotary: bool,
    ) {
        let chip = sums::chip(&[]);
        let size = if rotary { 2 * size } else { size };
        let of = Attention { batch, length, heads: groups * kv_heads, kv_heads, size, causal, rotary };
        // One head of one sequence is a plain product, which takes its second operand from off chip.
        prop_assume!(causal || batch > 1 || groups * kv_heads > 1);
        let (workload, configuration) = one_section(&chip, of);
        prove(&chip, &workload, &configuration, &format!("{of:?}"), 0.5);
        read_again(&chip, &workload, &configuration, &format!("{of:?}"));
    }
}

/// Row tiles of every size, and arrays that the search does not choose.
#[test]
fn keys_come_in_row_tiles_of_any_size() {
    let chip = sums::chip(&[]);
    for of in [
        Attention { heads: 4, kv_heads: 2, ..PLAIN },
        Attention { batch: 2, length: 48, ..PLAIN },
        Attention { batch: 2, length: 48, causal: false, ..PLAIN },
    ] {
        let (workload, configuration) = one_section(&chip, of);
        let changes: [fn(&mut GemmMapping); 4] = [
            |_| {},
            |m| m.rows_on_lanes = !m.rows_on_lanes,
            |m| m.pm = 2,
            |m| (m.pn, m.multicast_width) = (2 * m.pn, 2 * m.multicast_width),
        ];
        let mut tried = 0;
        for tile_rows in [5, 8, 12, 16, 24, 48] {
            if of.batch > 1 && of.length % tile_rows != 0 {
                continue;
            }
            for (c, change) in changes.into_iter().enumerate() {
                let mut other = configuration.clone();
                let rows = of.batch * of.length;
                other.sections[0]
                    .change_nest(|nest| {
                        nest.tile_rows = tile_rows;
                        nest.block_tiles = (rows / of.batch).div_ceil(tile_rows);
                    })
                    .expect("rows");
                let Ok(section) = retargeted_section(&chip, &workload, &other.sections[0], change) else { continue };
                other.sections[0] = section;
                tried += 1;
                let about = format!("{of:?}, row tiles of {tile_rows}, change {c}");
                println!("{}", prove(&chip, &workload, &other, &about, 0.2));
            }
        }
        assert!(tried >= 8, "{tried} mappings of {of:?}");
    }
}

/// All keys of a sequence are held until its last row tile, and what passes by while they are made as well: with fewer slots
/// the verifier refuses the section, and an engine that runs it all the same ends in a deadlock.
#[test]
fn a_sequence_that_is_not_held_is_refused() {
    let chip = sums::chip(&[]);
    for causal in [true, false] {
        let (workload, mut configuration) = one_section(&chip, Attention { batch: 2, length: 96, causal, ..PLAIN });
        let block_tiles = 12;
        configuration.sections[0]
            .change_nest(|nest| (nest.tile_rows, nest.block_tiles) = (8, block_tiles))
            .expect("row tiles of 8 rows");
        let section = retargeted_section(&chip, &workload, &configuration.sections[0], |_| {}).expect("a mapping");
        configuration.sections[0] = section;
        assert!(violations(&chip, &workload, &configuration).is_empty());
        let section = &configuration.sections[0];
        let of_sequence = section.buffers.ids().filter(|&b| {
            let spec = &section.buffers[b].spec;
            matches!(spec.role, BufferRole::Weight { .. }) && spec.level == LoopLevel::ROW_TILE
        });
        let mut refused: Vec<_> = of_sequence.map(|b| (b, "sequences", block_tiles - 1)).collect();
        assert_eq!(refused.len(), 2, "keys and values");
        if !causal {
            // Queries wait for all keys.
            let query = workload.tensors.iter().position(|tensor| tensor.name == "q").expect("q");
            let is_query = |&b: &rdusim::program::BufferId| match section.buffers[b].spec.role {
                BufferRole::Operand { tensor, .. } => rdusim::index::Id::index(tensor) == query,
                _ => false,
            };
            refused.extend(section.buffers.ids().find(is_query).map(|b| (b, "credits", 2)));
        }
        for (buffer, check, depth) in refused {
            let mut other = configuration.clone();
            let spec = &mut other.sections[0].buffers[buffer].spec;
            let fewer = spec.depth - depth;
            spec.depth -= fewer;
            let unused = spec.slot_bytes * spec.slices * spec.copies * fewer;
            other.sections[0].sram_bank_loss_bytes += unused;
            let found = violations(&chip, &workload, &other);
            assert!(found.iter().any(|violation| violation.check == check), "{found:?}");
            let outcome = simulate(&chip, &workload, &other, Fidelity::Event);
            assert!(matches!(outcome.stop, StopReason::Deadlock(_)), "{:?}", outcome.stop);
        }
    }
}

/// What a section cannot make itself: a second operand of other rows, and one without heads or sequences.
#[test]
fn other_second_operands_still_come_from_off_chip() {
    let text = "schema = 1\nname = \"square\"\n[[tensors]]\nname = \"x\"\nshape = [64, 64]\nrole = \"input\"\n\
        [[tensors]]\nname = \"w\"\nshape = [64, 64]\nrole = \"weight\"\n\
        [[operators]]\nname = \"in\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"h\"\n\
        [[operators]]\nname = \"out\"\nkind = \"gemm\"\ninputs = [\"x\", \"h\"]\noutput = \"y\"\n";
    let workload = workload::parse("square", text, &[], 0).expect("a graph");
    let all: Vec<_> = workload.operators.ids().collect();
    assert!(SectionGraph::new(&workload, &all, true).is_none());
}

/// The partition finds such a section by itself, and it moves fewer bytes.
#[test]
fn the_partition_fuses_projections_with_attention() {
    let chip = sums::chip(&[]);
    let text = Attention { batch: 2, length: 128, ..PLAIN }.text();
    let workload = workload::parse("attention", &text, &[], 0).expect("a graph");
    let compiled = compile_measured(&chip, &workload, &[Mode::Fused]).expect("it fits");
    let configuration = &compiled[0].configuration;
    let made = |section: &rdusim::program::Section| {
        section.stages.iter().filter(|stage| stage.spec.sequence.is_some()).count()
    };
    assert!(configuration.sections.iter().map(made).sum::<usize>() > 0, "{} sections", configuration.sections.len());
}
