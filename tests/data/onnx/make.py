#!/usr/bin/env python3
"""Makes the networks of this folder and what they compute, by the reference implementation of the ONNX standard.

    python3 -m venv VENV && VENV/bin/pip install onnx numpy && VENV/bin/python tests/data/onnx/make.py

Each NAME.onnx has random weights of a fixed seed; NAME.json has its inputs, its weights and its outputs as lists of numbers. No
weight is square, so that a matrix that was read the wrong way round does not fit. `crates/verify/src/tests/onnx.rs` imports the networks
and evaluates the graphs that come out.
"""
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = pathlib.Path(__file__).parent
RNG = np.random.default_rng(70)


def numbers(*shape):
    """Numbers from -1 to 1 that float32 has exactly and JSON writes in a few digits."""
    return (RNG.integers(-64, 65, shape) / 64).astype(np.float32)


def save(name, nodes, inputs, weights, outputs, constants=None):
    info = lambda of: [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, shape in of.items()]
    graph = helper.make_graph(
        nodes, name, info(inputs), info(outputs), [numpy_helper.from_array(value, key) for key, value in {**weights, **(constants or {})}.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    given = {key: numbers(*shape) for key, shape in inputs.items()}
    made = ReferenceEvaluator(model).run(list(outputs), given)
    values = lambda array: [float(f"{x:.7g}") for x in array.ravel()]
    listed = lambda of: {key: {"shape": list(np.shape(array)), "values": values(np.asarray(array))} for key, array in of.items()}
    result = {"inputs": listed(given), "weights": listed(weights), "outputs": listed(dict(zip(outputs, made)))}
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString())
    (HERE / f"{name}.json").write_text(json.dumps(result) + "\n")
    print(name, {key: np.asarray(value).shape for key, value in zip(outputs, made)})


node = helper.make_node

# Products with a weight on the right, transposed by the attribute, with and without a bias.
save("mlp",
     [node("Gemm", ["x", "w1", "b1"], ["h"], transB=1), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "w2"], ["p"]),
      node("Add", ["p", "x"], ["y"])],
     {"x": [4, 6]}, {"w1": numbers(10, 6), "b1": numbers(10), "w2": numbers(10, 6)}, {"y": [4, 6]})

# A gated block: two products of one input, a sigmoid, an elementwise product.
save("gated",
     [node("MatMul", ["x", "wg"], ["g"]), node("Sigmoid", ["g"], ["s"]), node("Mul", ["g", "s"], ["a"]),
      node("MatMul", ["x", "wu"], ["u"]), node("Mul", ["a", "u"], ["m"]), node("MatMul", ["m", "wd"], ["y"])],
     {"x": [5, 6]}, {"wg": numbers(6, 9), "wu": numbers(6, 9), "wd": numbers(9, 6)}, {"y": [5, 6]})

# A weight on the left: y = w x.
save("left",
     [node("MatMul", ["w", "x"], ["h"]), node("Tanh", ["h"], ["y"])],
     {"x": [6, 5]}, {"w": numbers(8, 6)}, {"y": [8, 5]})

# A norm of rows with gain and bias, then a product whose first operand is transposed by a node.
save("norm",
     [node("LayerNormalization", ["x", "gain", "bias"], ["n"], axis=-1, epsilon=1e-5), node("MatMul", ["n", "w"], ["y"])],
     {"x": [4, 8]}, {"gain": numbers(8), "bias": numbers(8), "w": numbers(8, 5)}, {"y": [4, 5]})

# Attention of two heads of three columns on four rows; then the same where a row sees no row after it.
def attention(mask):
    nodes = []
    for part in "qkv":
        nodes += [node("MatMul", ["x", f"w{part}"], [f"{part}1"]), node("Reshape", [f"{part}1", "split"], [f"{part}2"])]
    masked = [node("Add", ["s", "mask"], ["t"])] if mask else []
    return nodes + [
        node("Transpose", ["q2"], ["q3"], perm=[0, 2, 1, 3]), node("Transpose", ["k2"], ["k3"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v2"], ["v3"], perm=[0, 2, 1, 3]), node("MatMul", ["q3", "k3"], ["s"]), *masked,
        node("Softmax", ["t" if mask else "s"], ["p"], axis=-1), node("MatMul", ["p", "v3"], ["o"]),
        node("Transpose", ["o"], ["o2"], perm=[0, 2, 1, 3]), node("Reshape", ["o2", "join"], ["o3"]),
        node("MatMul", ["o3", "wo"], ["y"]),
    ]


SHAPES = {"split": np.array([1, 4, 2, 3], np.int64), "join": np.array([1, 4, 6], np.int64)}
LATER = np.triu(np.full((4, 4), -1e9, np.float32), 1).reshape(1, 1, 4, 4)
for name, constants in [("attention", SHAPES), ("causal", {**SHAPES, "mask": LATER})]:
    save(name, attention("mask" in constants), {"x": [1, 4, 8]},
         {"wq": numbers(8, 6), "wk": numbers(8, 6), "wv": numbers(8, 6), "wo": numbers(6, 8)}, {"y": [1, 4, 8]}, constants)

# Softmax of rows, and a product with what it makes.
save("rows",
     [node("MatMul", ["x", "w"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1), node("Gemm", ["p", "v", "c"], ["y"], transB=0)],
     {"x": [3, 7]}, {"w": numbers(7, 5), "v": numbers(5, 4), "c": numbers(4)}, {"y": [3, 4]})
