#!/usr/bin/env python3
"""Makes real ONNX files to try imports on, with nothing installed but Python 3.11 and pip.

    python3 examples/onnx/make.py DIR

In a throw-away virtual environment in DIR (about 1.5 GB while it is there):
- copies the networks that the `onnx` package ships for its own tests (ResNet-50, DenseNet-121, ...: their weights are
  constants without values),
- exports a transformer encoder (BERT) and a GPT-2 with random weights, by transformers and tf2onnx,
- counts parameters and multiply-accumulates of each with `onnx` alone (see `count`), into DIR/counts.csv,
- converts each to other operator sets from 9 to 21, by `onnx`'s own converter, into DIR/opsets.
Nothing of it is to be committed.
"""
import csv
import pathlib
import subprocess
import sys

PACKAGES = ["tensorflow-cpu==2.15.1", "tf2onnx==1.16.1", "transformers==4.38.2", "numpy<2", "onnx<1.17"]

EXPORT = r"""
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf, tf2onnx
from transformers import BertConfig, TFBertModel, GPT2Config, TFGPT2LMHeadModel
def save(model, name):
    spec = tf.TensorSpec((2, 128), tf.int32, name="input_ids")
    call = tf.function(lambda input_ids: model(input_ids, training=False)[0])
    network, _ = tf2onnx.convert.from_function(call, input_signature=[spec], opset=13)
    open(f"{sys.argv[1]}/{name}.onnx", "wb").write(network.SerializeToString())
small = dict(vocab_size=8000)
save(TFBertModel(BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, **small)), "bert-4")
save(TFGPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=4, n_head=4, n_positions=256, use_cache=False, **small)), "gpt-4")
"""

COUNT = r"""
import csv, pathlib, sys
import numpy as np, onnx
from onnx import numpy_helper, shape_inference
def count(path):
    '''Parameters: elements of constant float tensors of more than one element that products, convolutions, norms, look-ups
    and additions read, once each, without the statistics of batch norms. MACs: of Conv, Gemm, MatMul by their shapes.'''
    model = shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    graph = model.graph
    shapes = {}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        shapes[value.name] = dims
    constants = {}
    for tensor in graph.initializer:
        constants[tensor.name] = tensor
        shapes[tensor.name] = list(tensor.dims)
    filled = {n.output[0]: n for n in graph.node if n.op_type == "ConstantOfShape"}
    for name, node in filled.items():
        if node.input[0] in constants:
            shapes[name] = [int(x) for x in numpy_helper.to_array(constants[node.input[0]])]
    def is_weight(name):
        if name in filled:
            return True
        return name in constants and constants[name].data_type in (1, 10, 11, 16)
    parameters, macs = {}, 0
    for node in graph.node:
        reads = list(node.input)
        if node.op_type == "BatchNormalization":
            reads = reads[:3]
        if node.op_type in ("Conv", "Gemm", "MatMul", "BatchNormalization", "Gather", "Add", "Mul", "Sub", "Unsqueeze", "Reshape", "Transpose", "LRN"):
            for name in reads:
                if is_weight(name) and np.prod(shapes[name]) > 1:
                    parameters[name] = int(np.prod(shapes[name]))
        out = shapes.get(node.output[0], [])
        if node.op_type == "Conv":
            macs += int(np.prod(out)) * int(np.prod(shapes[node.input[1]][1:]))
        elif node.op_type == "Gemm":
            k = shapes[node.input[1]][1 if any(a.name == "transB" and a.i for a in node.attribute) else 0]
            macs += int(np.prod(out)) * k
        elif node.op_type == "MatMul":
            macs += int(np.prod(out)) * shapes[node.input[0]][-1]
    return sum(parameters.values()), macs
rows = csv.writer(sys.stdout)
rows.writerow(["network", "parameters", "macs"])
for path in sys.argv[1:]:
    rows.writerow([pathlib.Path(path).stem, *count(path)])
"""

CONVERT = r"""
import pathlib, sys
import onnx
from onnx import version_converter
out = pathlib.Path(sys.argv[1])
for path in sys.argv[2:]:
    model = onnx.load(path)
    for opset in (9, 11, 13, 15, 17, 18, 20, 21):
        try:
            onnx.save(version_converter.convert_version(model, opset), out / f"{pathlib.Path(path).stem}-{opset}.onnx")
        except Exception as why:
            print(f"{pathlib.Path(path).stem}: not to opset {opset}: {str(why).splitlines()[0][-60:]}", file=sys.stderr)
"""


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    python = directory / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    find = "import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / 'backend/test/data/light')"
    light = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
    for path in sorted(pathlib.Path(light).glob("light_*.onnx")):
        (directory / path.name.removeprefix("light_")).write_bytes(path.read_bytes())
    subprocess.run([python, "-c", EXPORT, directory], check=True)
    networks = sorted(directory.glob("*.onnx"))
    counts = subprocess.run([python, "-c", COUNT, *networks], check=True, capture_output=True, text=True).stdout
    (directory / "counts.csv").write_text(counts)
    print(counts, end="")
    (directory / "opsets").mkdir(exist_ok=True)
    subprocess.run([python, "-c", CONVERT, directory / "opsets", *networks], check=True)


if __name__ == "__main__":
    main()
