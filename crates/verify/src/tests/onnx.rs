//! Networks in the ONNX form, imported and evaluated, against what the standard's reference implementation computed of them
//! (`tests/data/onnx/make.py`). FLOP and bytes by hand.

use std::path::Path;

use serde_json::Value;

use super::super::meaning::SCALE;
use super::super::{Matrix, reference};
use super::*;
use rdusim_graph::workload::{self, Tensor, TensorRole};
use rdusim_models::import::{Options, import};

/// Most that an element may be off: roundings to fp32 of sums of at most 90 products of numbers below 8.
const TOLERANCE: f64 = 1e-4;

/// A matrix of an array that ONNX has, in the shape of a tensor: leading axes are rows, and where only the transposed shape fits,
/// the transposed array.
fn matrix(array: &Value, tensor: &Tensor) -> Matrix {
    let shape: Vec<usize> =
        array["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap() as usize).collect();
    let values: Vec<f64> = array["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    let columns = *shape.last().unwrap();
    let rows = values.len() / columns;
    let wanted = (tensor.rows as usize, tensor.columns as usize);
    if wanted == (rows, columns) {
        return Matrix { rows, columns, values };
    }
    assert_eq!(wanted, (columns, rows), "{} of {shape:?}", tensor.name);
    let turned = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    Matrix { rows: columns, columns: rows, values: turned.map(|at| values[at]).collect() }
}

fn opened(name: &str) -> (Workload, Value) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/data/onnx");
    let options = Options { dtype: "fp32".to_owned(), ..Options::default() };
    let text = import(&folder.join(format!("{name}.onnx")), &options).unwrap().graph.into_text();
    let numbers = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    (workload::parse(name, &text, &[], 0).unwrap(), serde_json::from_str(&numbers).unwrap())
}

/// How far the outputs of an imported network are from those of the reference implementation, at most.
fn error(workload: &Workload, numbers: &Value) -> f64 {
    let input = |tensor: &Tensor| {
        let is_given = matches!(tensor.role, TensorRole::Input | TensorRole::Weight) && tensor.view.is_none();
        let array = [&numbers["inputs"], &numbers["weights"]].into_iter().find_map(|of| of.get(&tensor.name));
        is_given.then(|| matrix(array.unwrap_or_else(|| panic!("{} is not in the network", tensor.name)), tensor))
    };
    let mut inputs: Vec<Option<Matrix>> = workload.tensors.iter().map(input).collect();
    // A mask scales scores as heads of 64 have it, whatever the network's constant is: the queries' weight takes that back.
    if workload.operators.iter().any(|operator| operator.kind == OperatorKind::CausalMask) {
        let (id, _) = workload.tensors.iter_enumerated().find(|(_, tensor)| tensor.name == "wq").unwrap();
        inputs[id.index()].as_mut().unwrap().values.iter_mut().for_each(|x| *x /= SCALE);
    }
    let made = reference::graph(workload, &inputs);
    let mut worst: f64 = 0.0;
    for (name, array) in numbers["outputs"].as_object().unwrap() {
        let (id, tensor) = workload.tensors.iter_enumerated().find(|(_, tensor)| tensor.name == *name).unwrap();
        let (found, wanted) = (&made[id.index()].as_ref().unwrap().value, matrix(array, tensor));
        assert_eq!(found.values.len(), wanted.values.len(), "{name}");
        let off = found.values.iter().zip(&wanted.values).map(|(found, wanted)| (found - wanted).abs());
        worst = off.fold(worst, f64::max);
    }
    worst
}

#[test]
fn imported_networks_compute_what_the_standard_says() {
    // FLOP of products, those of them that causality keeps, and elements of weights.
    let products = 3 * 2 * 4 * 8 * 6 + 2 * 4 * 6 * 8;
    for (name, dense, kept, elements) in [
        ("mlp", 2 * (4 * 6 * 10 + 4 * 10 * 6), None, 60 + 10 + 60),
        ("gated", 3 * 2 * 5 * 6 * 9, None, 3 * 54),
        ("left", 2 * 8 * 6 * 5, None, 48),
        ("norm", 2 * 4 * 8 * 5, None, 8 + 8 + 40),
        // Two heads of three columns: scores and values of four rows and four keys, or of ten pairs of them.
        ("attention", products + 2 * 2 * 2 * 16 * 3, None, 4 * 48),
        ("causal", products + 2 * 2 * 2 * 16 * 3, Some(products + 2 * 2 * 2 * 10 * 3), 4 * 48),
        ("rows", 2 * (3 * 7 * 5 + 3 * 5 * 4), None, 35 + 20 + 4),
    ] {
        let (workload, numbers) = opened(name);
        let off = error(&workload, &numbers);
        assert!(off <= TOLERANCE, "{name} is off by {off}");
        let flops = |macs: fn(&Workload, OperatorId) -> u64| {
            2 * workload.operators.ids().map(|id| macs(&workload, id)).sum::<u64>()
        };
        assert_eq!(flops(Workload::dense_macs), dense, "{name}");
        assert_eq!(flops(Workload::stored_macs), kept.unwrap_or(dense), "{name}");
        let weights = workload.tensors.iter().filter(|tensor| tensor.role == TensorRole::Weight);
        assert_eq!(weights.map(Tensor::stored_bytes).sum::<u64>(), 4 * elements, "{name}");
    }
}

#[test]
fn a_network_that_is_imported_wrongly_is_off() {
    let (mut workload, numbers) = opened("gated");
    // The gate and the other product change places, as a wrong reading of the graph would have it.
    let named = |workload: &Workload, name: &str| {
        workload.tensors.iter_enumerated().find(|(_, tensor)| tensor.name == name).map(|(id, _)| id).unwrap()
    };
    let (gate, up) = (named(&workload, "wg"), named(&workload, "wu"));
    for operator in &mut workload.operators {
        for input in &mut operator.inputs {
            *input = if *input == gate {
                up
            } else if *input == up {
                gate
            } else {
                *input
            };
        }
    }
    assert!(error(&workload, &numbers) > 100.0 * TOLERANCE);
}
