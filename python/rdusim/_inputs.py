"""Chips and workloads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from ._errors import InputError
from ._view import View

#: Of requests that are of a workload alone.
_NO_CHIP = {"arch": {"name": ""}}

Value = bool | int | float | str | Sequence[Any] | Mapping[str, Any]


def toml_value(value: Any) -> str:
    """A value as TOML, for an override."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(str(key))} = {toml_value(item)}" for key, item in value.items())
        return "{ " + inside + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if hasattr(value, "item"):  # a number of numpy
        return toml_value(value.item())
    raise TypeError(f"a field takes a number, a string, a bool, a list or a dict, not {type(value).__name__}")


class _Input:
    """A file or a text, and overrides."""

    _root = ""
    _kind = ""

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any], *, name: str | None = None) -> None:
        self._text: str | None = None
        self._sets: tuple[str, ...] = ()
        if isinstance(source, Mapping):
            self._text = _native.to_toml(json.dumps(source))
            self._name = name or f"<{self._kind} {source.get('name', '')}>"
        elif isinstance(source, str) and "\n" in source:
            self._text, self._name = source, name or f"<{self._kind}>"
        else:
            self._name = os.fspath(source)

    def _with(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        sets = [f"{self._root}.{path.replace('__', '.')}={toml_value(value)}" for path, value in fields.items()]
        return (*self._sets, *sets)

    def _input(self) -> dict[str, Any]:
        return {"name": self._name, "text": self._text}

    @property
    def sets(self) -> tuple[str, ...]:
        """Overrides, as ``--set`` takes them."""
        return self._sets

    def to_toml(self) -> str:
        """The text of the file, without overrides."""
        text = self._text if self._text is not None else _native.text_of(self._name)
        if text is None:
            raise InputError(f"cannot read {self._name!r}")
        return text

    def __repr__(self) -> str:
        changed = "".join(f", {one}" for one in self._sets)
        return f"{type(self).__name__}({self._name!r}{changed})"


class Chip(_Input):
    """A chip: a built-in name (``sn10``, ``sn40l``, ``a100``), the path of a TOML file, TOML text, or a dict.

    A name or path that is neither is refused at once, with the names that are built in; the file is checked when something runs on it,
    or by ``info``. Errors: ``InputError``.
    """

    _root, _kind = "arch", "chip"

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any], *, name: str | None = None) -> None:
        super().__init__(source, name=name)
        if self._text is None and _native.text_of(self._name) is None:
            _native.chip_json(json.dumps({"arch": self._input(), "sets": []}))

    def with_(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> Chip:
        """The chip with fields changed. Paths are those of the file, ``__`` for ``.``:
        ``with_(pmu__capacity_bytes=2**20)`` or ``with_({"memory.hbm.bandwidth_gb_per_s": 900})``."""
        changed = Chip.__new__(Chip)
        changed._text, changed._name = self._text, self._name
        changed._sets = self._with({**(fields or {}), **more})
        return changed

    @property
    def info(self) -> View:
        """Name, units, peak in TFLOP/s, SRAM in bytes, off-chip bandwidth in GB/s. Errors: ``InputError``."""
        request = {"arch": self._input(), "sets": list(self._sets)}
        return View(json.loads(_native.chip_json(json.dumps(request))))


class Workload(_Input):
    """A workload: a built-in name, the path of a TOML, ONNX, ``.pt2`` or ``config.json`` file, TOML text, or a dict.

    A model file takes ``dim`` (sizes that it leaves open), ``skip_unsupported`` and ``dtype``; a ``config.json`` also ``phase``,
    ``batch``, ``seq``, ``context`` and, with experts, ``expert_load`` (``even``, ``uniform``, ``zipf:EXPONENT`` or the path of a
    file with a number for each expert). It is read when something runs it, or by ``info``. Errors: ``InputError``.
    """

    _root, _kind = "workload", "workload"

    def __init__(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        *,
        name: str | None = None,
        dim: Mapping[str, int] | None = None,
        skip_unsupported: bool = False,
        phase: str | None = None,
        batch: int | None = None,
        seq: int | None = None,
        context: int | None = None,
        dtype: str | None = None,
        expert_load: str | None = None,
    ) -> None:
        super().__init__(source, name=name)
        self._preset: dict[str, Any] | None = None
        self._flags: dict[str, Any] = {
            "dim": [f"{key}={size}" for key, size in (dim or {}).items()],
            "skip_unsupported": skip_unsupported,
            "phase": phase,
            "batch": batch,
            "seq": seq,
            "context": context,
            "dtype": dtype,
            "expert_load": expert_load,
        }

    @classmethod
    def model(cls, name: str, **options: Any) -> Workload:
        """A model by its name (``gpt-13b``, ``llama2-7b``, ... or the family ``gpt`` or ``llama``).

        Options: ``phase`` (forward, training, prefill, decode), ``batch``, ``seq``, ``context`` (tokens), ``dtype``, ``sparsity``
        (share of the layers' weights that is pruned), ``block``, ``optimizer``, ``recompute``, ``dropout``,
        ``weight_storage`` and ``cache_storage`` (``FORMAT`` or ``FORMAT:GROUP``, such as ``int4:128``), ``activations`` (``fp8_e4m3``, ``fp8_e5m2`` or ``int8``, with ``:token`` for a scale a row), ``chunk`` (rows of a chunk of Mamba-2), and dimensions ``hidden``, ``layers``, ``heads``, ``kv_heads``, ``ffn``, ``vocabulary``. Errors: ``InputError``.
        """
        unknown = set(options) - _MODEL_OPTIONS
        if unknown:
            raise TypeError(f"a model takes no {sorted(unknown)}: it takes {sorted(_MODEL_OPTIONS)}")
        text = _native.model_text(json.dumps({"name": name, **options}))
        made = cls(text, name=f"<model {name}>")
        made._preset = {"name": name, **options}
        return made

    @classmethod
    def from_onnx(cls, path: str | os.PathLike[str], **options: Any) -> Workload:
        """An ONNX network; options as of ``Workload``."""
        return cls(path, **options)

    def with_(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> Workload:
        """The workload with fields changed: ``with_(dims__tokens=4096)``."""
        changed = Workload.__new__(Workload)
        changed._text, changed._name = self._text, self._name
        changed._preset, changed._flags = self._preset, self._flags
        changed._sets = self._with({**(fields or {}), **more})
        return changed

    def _request(self, seed: int = 0) -> dict[str, Any]:
        """A request that is of the workload alone."""
        return {**_NO_CHIP, "workload": self._input(), "sets": list(self._sets), "model": self._flags, "seed": seed}

    @property
    def info(self) -> View:
        """Name, ``dims``, operators (name, kind) and tensors (name, rows, columns, dtype). Errors: ``InputError``."""
        return View(json.loads(_native.workload_json(json.dumps(self._request()))))


_MODEL_OPTIONS = frozenset(
    "phase batch seq context dtype sparsity block optimizer recompute dropout weight_storage cache_storage activations chunk"
    " hidden layers heads kv_heads ffn vocabulary".split()
)


class Graph:
    """A workload built operator by operator.

    Shapes are ``(rows, columns)``, each a count or the name of a dimension. Names are checked when the workload is read, and errors
    point into its TOML text.

    >>> import rdusim as rs
    >>> g = rs.Graph("mlp", tokens=64, d_model=64, d_ff=128)
    >>> x = g.input("x", ("tokens", "d_model"))
    >>> h = g.gemm("up", x, g.weight("w_up", ("d_model", "d_ff")))
    >>> y = g.gemm("down", g.op("gelu", "gelu", h), g.weight("w_down", ("d_ff", "d_model")))
    >>> g.workload().info.dims.tokens
    64
    """

    def __init__(self, name: str, *, dtype: str = "bf16", **dims: int) -> None:
        self._data: dict[str, Any] = {"schema": 1, "name": name, "dtype": dtype, "dims": dims}
        self._tensors: list[dict[str, Any]] = []
        self._operators: list[dict[str, Any]] = []

    def tensor(self, name: str, shape: tuple[int | str, int | str], role: str, **more: Any) -> str:
        """Declares a tensor (``role``: input, weight, intermediate, output); returns its name."""
        self._tensors.append({"name": name, "shape": list(shape), "role": role, **more})
        return name

    def input(self, name: str, shape: tuple[int | str, int | str], **more: Any) -> str:
        """A tensor that comes from off chip."""
        return self.tensor(name, shape, "input", **more)

    def weight(self, name: str, shape: tuple[int | str, int | str], **more: Any) -> str:
        """A parameter; ``sparsity={"pattern": "block", "density": 0.125, "block": [16, 16]}`` prunes it."""
        return self.tensor(name, shape, "weight", **more)

    def op(self, name: str, kind: str, *inputs: str, output: str | None = None, **more: Any) -> str:
        """An operator of any kind (docs/workload-format.md); returns the name of its output."""
        output = output or f"{name}_out"
        self._operators.append({"name": name, "kind": kind, "inputs": list(inputs), "output": output, **more})
        return output

    def gemm(self, name: str, a: str, b: str, **more: Any) -> str:
        """``a`` (rows x K) times ``b`` (K x columns)."""
        return self.op(name, "gemm", a, b, **more)

    def to_dict(self) -> dict[str, Any]:
        """The workload file as a dict."""
        data = {key: value for key, value in self._data.items() if value != {}}
        tensors = {"tensors": self._tensors} if self._tensors else {}
        return {**data, **tensors, "operators": self._operators}

    def workload(self) -> Workload:
        """The workload as it stands."""
        return Workload(self.to_dict())


def as_chip(chip: Chip | str | os.PathLike[str] | Mapping[str, Any]) -> Chip:
    """A chip, or what makes one."""
    return chip if isinstance(chip, Chip) else Chip(chip)


def as_workload(workload: Workload | Graph | str | os.PathLike[str] | Mapping[str, Any]) -> Workload:
    """A workload, or what makes one."""
    if isinstance(workload, Graph):
        return workload.workload()
    return workload if isinstance(workload, Workload) else Workload(workload)


def from_torch(
    module: Any,
    example_inputs: tuple[Any, ...],
    *,
    dynamic_shapes: Any = None,
    dim: Mapping[str, int] | None = None,
    skip_unsupported: bool = False,
    dtype: str | None = None,
) -> Workload:
    """A workload of a torch module, by ``torch.export``. Needs torch (``pip install 'rdusim[torch]'``) and nothing else.

    Args:
        module: A ``torch.nn.Module``; it is exported in the mode that it is in, so call ``module.eval()`` before for inference.
        example_inputs: Its arguments; their shapes are the workload's, their values do not matter.
        dynamic_shapes: Shapes that stay open, as ``torch.export.export`` takes them; ``dim`` then gives their sizes by the names
            that the exported program has for them (``s77``; the error for a missing one lists them).
        dim, skip_unsupported, dtype: As of ``Workload``.

    Raises:
        ImportError: There is no torch.
        InputError: Operators that have no counterpart, and open shapes without a size.
    """
    import tempfile

    try:
        import torch
    except ImportError as error:
        raise ImportError("from_torch needs torch: pip install 'rdusim[torch]'") from error
    name = type(module).__name__
    with tempfile.TemporaryDirectory(prefix="rdusim-torch-") as folder:
        path = Path(folder) / f"{name}.pt2"
        torch.export.save(torch.export.export(module, example_inputs, dynamic_shapes=dynamic_shapes), path)
        read = Workload(path, dim=dim, skip_unsupported=skip_unsupported, dtype=dtype)
        text = _native.import_text(json.dumps({**_NO_CHIP, "workload": read._input(), "model": read._flags}))
    return Workload(text, name=f"<torch {name}>")
