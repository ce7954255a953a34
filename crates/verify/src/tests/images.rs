//! Faults in windows, pixels and shapes.

use super::*;
use rdusim_graph::workload::ImageOptions;

/// A convolution with uneven edges, a filter for each channel, both poolings, a batch norm that stays alone, half of the
/// columns, and rows made of images.
const NET: &str = r#"
schema = 1
name = "images"
[[tensors]]
name = "x"
shape = [240, 4]
role = "input"
[[tensors]]
name = "w"
shape = [24, 12]
role = "weight"
[[tensors]]
name = "own"
shape = [9, 12]
role = "weight"
[[tensors]]
name = "gain"
shape = [1, 12]
role = "weight"
[[tensors]]
name = "bias"
shape = [1, 12]
role = "weight"
[[tensors]]
name = "half"
shape = [60, 5]
[[tensors]]
name = "flat"
shape = [2, 150]
[[tensors]]
name = "classes"
shape = [150, 7]
role = "weight"
[[operators]]
name = "conv"
kind = "conv"
inputs = ["x", "w"]
output = "a"
image = [12, 10]
kernel = [3, 2]
padding = [2, 1, 1, 1]
stride = [2, 1]
[[operators]]
name = "each"
kind = "conv"
inputs = ["a", "own"]
output = "b"
image = [7, 11]
kernel = [3, 3]
padding = [1, 1, 1, 1]
groups = 12
[[operators]]
name = "norm"
kind = "batch_norm"
inputs = ["b"]
output = "c"
vectors = ["gain", "bias"]
[[operators]]
name = "most"
kind = "max_pool"
inputs = ["c"]
output = "d"
image = [7, 11]
kernel = [3, 3]
padding = [1, 0, 0, 1]
[[operators]]
name = "mean"
kind = "average_pool"
inputs = ["d"]
output = "e"
image = [6, 10]
kernel = [2, 3]
padding = [0, 1, 1, 1]
stride = [2, 1]
[[operators]]
name = "part"
kind = "slice"
inputs = ["e"]
output = "half"
[[operators]]
name = "flatten"
kind = "reshape"
inputs = ["half"]
output = "flat"
[[operators]]
name = "classify"
kind = "gemm"
inputs = ["flat", "classes"]
output = "y"
"#;

/// The network on a chip of small PMUs.
pub(super) fn images(mode: Mode) -> Case {
    let workload = workload::parse("images", NET, &[], 0).unwrap();
    let chip = arch::load(Path::new("plasticine"), &[]).unwrap();
    let configuration = compile(&chip, &workload, mode).unwrap();
    Case { chip, workload, configuration }
}

/// A change of how an operator walks over images.
type EditOfImage = fn(&mut ImageOptions);

#[test]
fn a_shifted_window_is_caught() {
    let edits: [(&str, EditOfImage); 6] = [
        ("a line up", |i| (i.padding[0], i.padding[2]) = (i.padding[0] + 1, i.padding[2].saturating_sub(1))),
        ("a line down", |i| (i.padding[0], i.padding[2]) = (i.padding[0].saturating_sub(1), i.padding[2] + 1)),
        ("a pixel to the left", |i| (i.padding[1], i.padding[3]) = (i.padding[1] + 1, i.padding[3].saturating_sub(1))),
        ("a pixel to the right", |i| (i.padding[1], i.padding[3]) = (i.padding[1].saturating_sub(1), i.padding[3] + 1)),
        ("images on their side", |i| i.image.swap(0, 1)),
        ("every second line", |i| {
            (i.dilation[0], i.padding[0], i.padding[2]) = (2, i.padding[0] + 1, i.padding[2] + 1);
        }),
    ];
    for mode in [Mode::Kbk, Mode::Fused] {
        let case = images(mode);
        for (what, edit) in edits {
            let mut changed = 0;
            for id in case.workload.tensors.ids() {
                let mut other = case.workload.clone();
                let Some(window) = other.tensors[id].view.as_mut().and_then(|view| view.window.as_mut()) else {
                    continue;
                };
                let before = window.image;
                edit(&mut window.image);
                let places = |image: &ImageOptions| image.output().map(|[lines, pixels]| lines * pixels);
                if window.image == before || places(&window.image) != places(&before) {
                    continue;
                }
                let verdict = case.run(&other);
                assert!(!verdict.passed, "{what}, {}: {before:?} is not caught", mode.name());
                changed += 1;
            }
            assert!(changed >= 1, "{what}: no window");
        }
    }
}

#[test]
fn a_slot_too_small_for_its_pixels_is_caught() {
    let whole = images(Mode::Kbk);
    let sections = whole.configuration.sections.len();
    let mut found = 0;
    for number in 0..sections {
        let mut case = whole.clone();
        let holds_pixels = |buffer: &&mut Buffer| match buffer.spec.role {
            BufferRole::Operand { tensor, .. } => case.workload.tensors[tensor].window().is_some(),
            _ => false,
        };
        let section = &mut case.configuration.sections[number];
        let Some(buffer) = section.buffers.iter_mut().find(holds_pixels) else { continue };
        buffer.spec.slot_bytes = 1;
        let fault = caught(&case.plain());
        assert!(fault.contains("bytes in one piece"), "{fault}");
        found += 1;
    }
    assert_eq!(found, 4);
}

#[test]
fn other_shapes_and_swapped_vectors_are_caught() {
    for mode in [Mode::Kbk, Mode::Fused] {
        let case = images(mode);
        let named =
            |name: &str| case.workload.tensors.ids().find(|&id| case.workload.tensors[id].name == name).unwrap();
        // The elements of the part one after the other instead of its rows.
        let mut flat = case.workload.clone();
        flat.tensors[named("half")].view.as_mut().unwrap().is_part = false;
        assert!(caught(&case.run(&flat)).starts_with("number"));
        // The whole tensor's first elements instead of those of the part.
        let mut whole = case.workload.clone();
        whole.tensors[named("flat")].view.as_mut().unwrap().of = named("e");
        assert!(caught(&case.run(&whole)).starts_with("number"));
        // Gain and bias change places; a pooling takes the greatest for the mean.
        let mut other = case.workload.clone();
        for id in case.workload.operators.ids() {
            let operator = &mut other.operators[id];
            let before = (operator.vectors.clone(), operator.kind);
            match operator.kind {
                OperatorKind::BatchNorm => operator.vectors.reverse(),
                OperatorKind::MaxPool => operator.kind = OperatorKind::AveragePool,
                _ => continue,
            }
            let what = operator.name.clone();
            assert!(caught(&case.run(&other)).starts_with("number"), "{what}");
            (other.operators[id].vectors, other.operators[id].kind) = before;
        }
    }
}
