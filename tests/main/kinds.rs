//! The reference model runs every kind of section: gradients and updates of sparse weights, steps of Adam, gathered rows,
//! images, and parts of tensors. It moves the same bytes as the event engine, and takes about as many cycles.

use crate::amounts::{Compared, compare};
use crate::numbers_of_images::{Net, Walk, everything};
use crate::sums;
use rdusim::arch::Chip;
use rdusim::compile::{compile, retargeted_section};
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::program::verifier::{Verifier, Violation};
use rdusim::program::{Configuration, Fabric, GemmMapping, Nest, Section, SectionGraph, Style, tensor_tiers};
use rdusim::saved;
use rdusim::sim::{check_size, simulate, simulate_unskipped};
use rdusim::verify::verify;
use rdusim::workload::{self, Workload};

/// Holds both counts of a configuration against each other, and runs it in all fidelities; the error of all sections together must
/// be at most `most`.
pub(crate) fn hold(chip: &Chip, workload: &Workload, configuration: &Configuration, about: &str, most: f64) -> String {
    let mut compared = Compared::default();
    for section in &configuration.sections {
        compare(chip, workload, section, about, &mut compared);
    }
    assert_eq!(compared.sections, configuration.sections.len(), "{about}: some section is not run");
    check_size(chip, workload, configuration).unwrap_or_else(|error| panic!("{about}: {}", error.title()));
    let [bound, event, cycle] = [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle]
        .map(|fidelity| simulate(chip, workload, configuration, fidelity));
    assert_eq!(cycle.stop, StopReason::Drained, "{about}");
    assert_eq!(event, simulate_unskipped(chip, workload, configuration, Fidelity::Event), "{about}");
    let mut totals = [0, 0];
    for ((bound, event), cycle) in bound.sections.iter().zip(&event.sections).zip(&cycle.sections) {
        assert_eq!(event.traffic, cycle.traffic, "{} of {about}", event.name);
        assert_eq!(bound.traffic, event.traffic, "bound of {} of {about}", event.name);
        assert!(
            bound.cycles <= cycle.cycles,
            "{} of {about}: bound {}, cycle {}",
            event.name,
            bound.cycles,
            cycle.cycles
        );
        let [e, c] = [event, cycle].map(|section| section.cycles - section.launch_cycles);
        totals[0] += e;
        totals[1] += c;
    }
    let error = totals[0] as f64 / totals[1] as f64 - 1.0;
    let line = format!("{about}: event {}, cycle {}, {:+.2} %", totals[0], totals[1], error * 100.0);
    assert!(error.abs() <= most, "{line}");
    line
}

/// What the verifier finds in the first section.
pub(crate) fn violations(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Vec<Violation> {
    let section = &configuration.sections[0];
    let graph = SectionGraph::new(workload, &section.operators, true).expect("a pipeline");
    let (fabric, tiers) = (Fabric::new(chip), tensor_tiers(chip, workload).expect("room"));
    Verifier { chip, fabric: &fabric, graph: &graph, tiers: &tiers }.violations(section)
}

/// What is saved is read again.
pub(crate) fn read_again(chip: &Chip, workload: &Workload, configuration: &Configuration, about: &str) {
    let text = saved::to_toml(chip, workload, [configuration]);
    let read = saved::parse("saved", &text, chip, workload, &[Mode::Fused]);
    let read = read.unwrap_or_else(|error| panic!("{about}: {}", error.render(false)));
    assert_eq!(format!("{configuration:?}"), format!("{:?}", read[0]), "{about}: another configuration is read");
}

/// Compiles a workload in every mode and holds each.
fn hold_all(chip: &Chip, workload: &Workload, about: &str, most: f64) -> String {
    let lines = Mode::ALL.map(|mode| {
        let configuration = compile(chip, workload, mode).expect("a mapping");
        hold(chip, workload, &configuration, &format!("{about}, {mode:?}"), most)
    });
    lines.join("\n")
}

/// Two layers, the second with a sparse weight, trained.
fn trained(training: &str, dtype: &str, sparsity: &str, [rows, inner, columns]: [u64; 3]) -> Workload {
    let text = format!(
        "schema = 1\nname = \"layers\"\ndtype = \"{dtype}\"\n[training]\n{training}\n[[tensors]]\nname = \"x\"\n\
         shape = [{rows}, {inner}]\nrole = \"input\"\n[[tensors]]\nname = \"v\"\nshape = [{inner}, {inner}]\n\
         role = \"weight\"\n[[tensors]]\nname = \"w\"\nshape = [{inner}, {columns}]\nrole = \"weight\"\n{sparsity}\n\
         [[operators]]\nname = \"in\"\nkind = \"gemm\"\ninputs = [\"x\", \"v\"]\noutput = \"h\"\n[[operators]]\n\
         name = \"out\"\nkind = \"gemm\"\ninputs = [\"h\", \"w\"]\noutput = \"y\"\n"
    );
    workload::parse("layers", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
}

#[test]
fn gradients_of_sparse_weights() {
    let chip = sums::chip(&[]);
    for (sparsity, shape) in [
        ("sparsity = { pattern = \"block\", density = 0.125, block = [16, 16] }", [200, 96, 160]),
        ("sparsity = { pattern = \"block\", density = 0.25, block = [24, 8] }", [130, 100, 90]),
        ("sparsity = { pattern = \"unstructured\", density = 0.3, format = \"csr\" }", [64, 80, 120]),
    ] {
        for optimizer in ["sgd", "adam"] {
            let workload = trained(&format!("optimizer = \"{optimizer}\""), "bf16", sparsity, shape);
            println!("{}", hold_all(&chip, &workload, &format!("{optimizer}, {sparsity}"), 0.05));
        }
    }
}

/// The product that makes the gradient of a sparse weight, with K split over PCUs that skip each for itself, and with row slices
/// that skip together: counted equally, no faster than its bound, and right in numbers.
#[test]
fn slices_of_the_gradient_of_a_sparse_weight() {
    let chip = sums::chip(&[]);
    let sparse = "sparsity = { pattern = \"block\", density = 0.125, block = [16, 16] }";
    let workload = trained("optimizer = \"sgd\"", "bf16", sparse, [200, 96, 160]);
    let compiled = compile(&chip, &workload, Mode::Kbk).expect("a mapping");
    let is_gradient = |section: &Section| section.operators.iter().all(|&op| workload.operators[op].name == "out.dw");
    for (pm, pn, pk, multicast_width) in [(1, 2, 2, 1), (1, 2, 3, 2), (2, 2, 2, 1), (2, 3, 1, 1)] {
        for rows_on_lanes in [false, true] {
            let splits = |m: &mut GemmMapping| {
                *m = GemmMapping { rows_on_lanes, pm, pn, pk, multicast_width, aligned: false, ..*m };
            };
            let mut configuration = compiled.clone();
            for section in configuration.sections.iter_mut().filter(|section| is_gradient(section)) {
                *section = retargeted_section(&chip, &workload, section, splits).expect("a mapping");
            }
            let about = format!("{pm} x {pn} x {pk}, {multicast_width} on a stream, turned: {rows_on_lanes}");
            println!("{}", hold(&chip, &workload, &configuration, &about, 0.06));
            for run in verify(&chip, &workload, [&configuration], 3) {
                assert!(run.passed, "{about}: {:?} {:?}", run.fault, run.end_to_end);
            }
        }
    }
}

#[test]
fn steps_of_adam_and_changes_of_patterns() {
    let chip = sums::chip(&[]);
    let sparse = "sparsity = { pattern = \"block\", density = 0.25, block = [16, 16] }";
    let changing = "optimizer = \"adam\"\npattern = { every = 1, fraction = 0.3, regrow = \"gradient\" }";
    println!("{}", hold_all(&chip, &trained(changing, "bf16", sparse, [100, 64, 96]), "patterns", 0.05));
    for dtype in ["bf16", "fp32"] {
        let dense = trained("optimizer = \"adam\"", dtype, "", [150, 61, 133]);
        println!("{}", hold_all(&chip, &dense, &format!("Adam in {dtype}"), 0.05));
    }
}

#[test]
fn gathered_rows() {
    let network = "arch.network.links_per_direction=2";
    for more in ["arch.pcu.vector_inputs=3", "arch.pmu.gather=\"out_of_order\"", "arch.pcu.vector_inputs=2"] {
        let chip = sums::chip(&["arch.memory.ddr.bandwidth_gb_per_s=400", network, "arch.pmu.read_ports=2", more]);
        for (density, columns) in [(0.1, 200), (0.03, 331)] {
            let sparse = format!("sparsity = {{ pattern = \"unstructured\", density = {density}, seed = 1 }}");
            let workload = trained("optimizer = \"sgd\"", "bf16", &sparse, [600, 130, columns]);
            let mut configuration = compile(&chip, &workload, Mode::Kbk).expect("a mapping");
            let mut gathering = 0;
            for section in &mut configuration.sections {
                let names: Vec<&str> =
                    section.operators.iter().map(|&op| workload.operators[op].name.as_str()).collect();
                if names != ["out"] && names != ["out.dx"] {
                    continue;
                }
                let gathers = |m: &mut GemmMapping| {
                    let (rows_on_lanes, style) = (true, Style::Gather);
                    *m = GemmMapping { rows_on_lanes, style, pm: 2, pn: 2, multicast_width: 2, aligned: false, ..*m };
                };
                *section = retargeted_section(&chip, &workload, section, gathers).expect("a mapping that gathers");
                gathering += 1;
            }
            assert_eq!(gathering, 2);
            println!(
                "{}",
                hold(&chip, &workload, &configuration, &format!("gathered, {more}, density {density}"), 0.02)
            );
        }
    }
}

/// A word of columns is gathered at a time, along the lanes, and of a sparse weight only.
#[test]
fn mappings_that_cannot_gather_are_refused() {
    let chip = sums::chip(&[]);
    let sparse = "sparsity = { pattern = \"unstructured\", density = 0.1, seed = 1 }";
    let workload = trained("optimizer = \"sgd\"", "bf16", sparse, [64, 130, 200]);
    let configuration = compile(&chip, &workload, Mode::Kbk).expect("a mapping");
    let of = |name: &str| {
        let is = |op: &rdusim::workload::OperatorId| workload.operators[*op].name == name;
        configuration.sections.iter().find(|section| section.operators.iter().all(is)).expect("a section")
    };
    let gathers = |name: &str, rows_on_lanes: bool, multicast_width: u64| {
        let style = Style::Gather;
        let gather = |m: &mut GemmMapping| {
            let (pm, pn) = (1, multicast_width);
            *m = GemmMapping { rows_on_lanes, style, pm, pn, multicast_width, aligned: false, ..*m };
        };
        retargeted_section(&chip, &workload, of(name), gather).map(|_| ())
    };
    // Six stages: 60 columns on ten PCUs, 66 on eleven.
    assert_eq!(gathers("out", true, 10), Ok(()));
    let refused = Err("rows of a stage cannot be gathered".to_owned());
    for (name, rows_on_lanes, width) in [("out", true, 11), ("out", false, 2), ("in", true, 2), ("out.dw", true, 2)] {
        assert_eq!(gathers(name, rows_on_lanes, width), refused, "{name} on {width}");
    }
}

#[test]
fn images() {
    let chip = sums::chip(&[]);
    println!("{}", hold_all(&chip, &everything("bf16").workload(), "every kind of operator on images", 0.065));
}

/// Windows whose row tiles have unequal shares of the image: 11 x 13 places of a kernel on 25 x 29 pixels.
#[test]
fn row_tiles_of_windows_that_differ() {
    // Slots of whole bursts begin on the same channel, so that only what they hold differs.
    let chip = sums::chip(&["arch.memory.ddr.channels=1", "arch.memory.ddr.interleave_bytes=64"]);
    let walk = Walk { kernel: [4, 3], stride: [2, 2], padding: [0; 4], dilation: [1, 1] };
    let net = || Net::new("bf16", 12, [25, 29, 5]);
    let small = Walk { kernel: [3, 3], ..walk };
    for (name, net, tile_rows) in [
        ("small conv", Net::new("bf16", 200, [5, 5, 1]).conv(small, 1, 8, false), 3),
        ("small pool", Net::new("bf16", 200, [5, 5, 1]).pool("max_pool", small), 3),
        ("conv", net().conv(walk, 1, 24, false), 41),
        ("groups", net().conv(walk, 5, 25, false), 41),
        ("pool", net().pool("max_pool", walk), 41),
    ] {
        let workload = net.workload();
        let mut configuration = compile(&chip, &workload, Mode::Kbk).expect("a mapping");
        for section in &mut configuration.sections {
            section.change_nest(|nest| *nest = Nest { tile_rows, block_tiles: 500, ..*nest }).expect("tiles have rows");
            *section = retargeted_section(&chip, &workload, section, |_| {}).expect("a mapping");
        }
        println!("{}", hold(&chip, &workload, &configuration, name, 0.165));
    }
}

#[test]
fn parts_of_tensors_and_their_neighbours() {
    let chip = sums::chip(&[]);
    let text = "schema = 1\nname = \"parts\"\n[[tensors]]\nname = \"x\"\nshape = [120, 90]\nrole = \"input\"\n\
        [[tensors]]\nname = \"z\"\nshape = [100, 33]\nrole = \"input\"\n[[tensors]]\nname = \"half\"\nshape = [100, 41]\n\
        [[operators]]\nname = \"slice\"\nkind = \"slice\"\ninputs = [\"x\"]\noutput = \"half\"\n\
        [[operators]]\nname = \"gelu\"\nkind = \"gelu\"\ninputs = [\"half\"]\noutput = \"g\"\n\
        [[operators]]\nname = \"concat\"\nkind = \"concat\"\ninputs = [\"g\", \"z\"]\noutput = \"c\"\n\
        [[operators]]\nname = \"turn\"\nkind = \"transpose\"\ninputs = [\"c\"]\noutput = \"t\"\n\
        [[operators]]\nname = \"sum\"\nkind = \"row_sum\"\ninputs = [\"t\"]\noutput = \"s\"\n";
    let workload = workload::parse("parts", text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)));
    println!("{}", hold_all(&chip, &workload, "parts", 0.07));
}
