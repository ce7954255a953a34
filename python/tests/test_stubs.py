"""The stubs say what the native module has."""

import ast
import inspect
from pathlib import Path

import rdusim as rs
from rdusim import _native


def parameters(node: ast.FunctionDef) -> list[tuple[str, bool]]:
    names = [argument.arg for argument in node.args.args]
    needed = len(names) - len(node.args.defaults)
    return [(name, at >= needed) for at, name in enumerate(names) if name not in ("self", "cls")]


def real(function: object) -> list[tuple[str, bool]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.default is not p.empty) for p in found if p.name != "self"]


def test_stubs_are_the_modules():
    tree = ast.parse(Path(rs.__file__).with_name("_native.pyi").read_text())
    told = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            told.add(node.name)
            assert parameters(node) == real(getattr(_native, node.name)), node.name
        elif isinstance(node, ast.ClassDef):
            told.add(node.name)
            of_class = getattr(_native, node.name)
            methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
            public = {name for name in vars(of_class) if not name.startswith("_")}
            assert public == {name for name in methods if not name.startswith("_")}, node.name
            for name, item in methods.items():
                if not item.decorator_list and name != "__new__":
                    assert parameters(item) == real(getattr(of_class, name)), f"{node.name}.{name}"
    assert told == {name for name in vars(_native) if not name.startswith("_")}


def test_everything_public_has_a_docstring():
    for name in rs.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(rs, name)), name
