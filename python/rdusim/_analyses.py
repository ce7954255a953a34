"""Analyses of a workload on a chip, and their results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from . import _native
from ._errors import MismatchError
from ._inputs import Chip, Graph, Workload, as_chip, as_workload
from ._picture import Picture, framed, preformatted
from ._progress import Progress, told
from ._view import Run, View

Mode: TypeAlias = Literal["kbk", "epilogue", "fused"]
Chart: TypeAlias = Literal[
    "traffic",
    "time",
    "roofline",
    "power",
    "bandwidth",
    "utilization",
    "memory",
    "energy-by-section",
    "energy-by-tensor",
]
Fidelity: TypeAlias = Literal["bound", "event", "cycle"]
Mapping_: TypeAlias = Literal["ideal", "vendor"]
ValueType: TypeAlias = Literal["bf16", "fp16", "fp32", "int8", "fp8_e4m3", "fp8_e5m2"]
Effort: TypeAlias = Literal["quick", "normal", "thorough"]
ChipLike: TypeAlias = Chip | str | os.PathLike[str] | Mapping[str, Any]
WorkloadLike: TypeAlias = Workload | Graph | str | os.PathLike[str] | Mapping[str, Any]


class _Json(View):
    """A result that is a JSON text, and what the command line prints of it."""

    __slots__ = ("_json", "_text")

    def __init__(self, text: str, table: str) -> None:
        super().__init__(json.loads(text))
        self._json, self._text = text, table

    def to_json(self) -> str:
        """The result as the command line prints it with ``--format json``, byte for byte."""
        return self._json

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return preformatted(self._text)


class Runs(View):
    """Runs of a workload on a chip, and what they are compared by: ``runs.fused.time_s``, ``runs.speedup``, ``runs.runs``."""

    __slots__ = ()

    arch: View
    speedup: float
    speedup_over_epilogue: float
    off_chip_traffic_ratio: float | None

    @property
    def speedup_range(self) -> tuple[float, float] | None:
        """What ``speedup`` can be, from least to most, as the gaps of both runs allow; ``None`` where they are not known."""
        return self._range("speedup_range")

    @property
    def speedup_over_epilogue_range(self) -> tuple[float, float] | None:
        """The same of ``speedup_over_epilogue``."""
        return self._range("speedup_over_epilogue_range")

    @property
    def speedup_notes(self) -> list[str]:
        """A sentence on each speed-up whose gaps allow another verdict."""
        return list(self._data.get("speedup_notes", []))

    def _range(self, key: str) -> tuple[float, float] | None:
        found = self._data.get(key)
        return None if found is None else (float(found[0]), float(found[1]))

    def __getattr__(self, name: str) -> Any:
        # A property that raises AttributeError ends here.
        return self._run(name) if name in ("kbk", "epilogue", "fused") else super().__getattr__(name)

    def _run(self, mode: str) -> Run:
        for run in self._data["runs"]:
            if run["mode"] == mode:
                return Run(run)
        raise AttributeError(f"the mode {mode!r} did not run: there are {[run['mode'] for run in self._data['runs']]}")

    @property
    def kbk(self) -> Run:
        """The run kernel by kernel."""
        return self._run("kbk")

    @property
    def epilogue(self) -> Run:
        """The run of kernels with epilogues."""
        return self._run("epilogue")

    @property
    def fused(self) -> Run:
        """The fused run."""
        return self._run("fused")

    @property
    def runs(self) -> list[Run]:
        """Every run, in the order of the modes."""
        return [Run(run) for run in self._data["runs"]]


class Result(Runs):
    """Runs of a workload on a chip: ``result.fused.time_s``, ``result.speedup``, ``result.runs``.

    Keys as of ``rdusim compare --format json``. A notebook shows the report page.
    """

    __slots__ = ("_runs",)

    def __init__(self, runs: _native.Runs) -> None:
        super().__init__(json.loads(runs.json()))
        self._runs = runs

    @property
    def others(self) -> list[Runs]:
        """Runs on each chip of ``against``, in their order; ``speedups`` are its times over this chip's, by mode."""
        first = self._data.get("against")
        return [] if first is None else [Runs(first), *(Runs(one) for one in self._data.get("against_further", []))]

    def to_json(self) -> str:
        """The result as the command line prints it with ``--format json``, byte for byte."""
        return self._runs.json()

    def table(self) -> str:
        """The table that the command line prints."""
        return self._runs.table()

    def plot(self, chart: Chart = "time") -> Picture:
        """A chart. Errors: ``ValueError`` for a name of none."""
        return Picture(self._runs.svg(chart), chart)

    def page(self) -> str:
        """The report page, one HTML file that needs no network."""
        return self._runs.page()

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the files of ``--out DIR``: JSON, CSV, pictures, page. Errors: ``FileError``."""
        self._runs.write(Path(directory))

    def _repr_html_(self) -> str:
        return framed(self.page())

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return self.table()


def _listed(against: ChipLike | Sequence[ChipLike] | None) -> list[ChipLike]:
    """The chips of ``against``: none, one, or several."""
    if against is None:
        return []
    if isinstance(against, (Chip, str, os.PathLike, Mapping)):
        return [against]
    return list(against)


def request(
    chip: ChipLike,
    workload: WorkloadLike,
    *,
    modes: Sequence[str],
    against: ChipLike | Sequence[ChipLike] | None = None,
    **more: Any,
) -> str:
    """What the native half is asked for, as JSON."""
    chip, workload = as_chip(chip), as_workload(workload)
    asked: dict[str, Any] = {
        "arch": chip._input(),
        "workload": workload._input(),
        "sets": [*chip.sets, *workload.sets],
        "model": workload._flags,
        "modes": list(modes),
        **{key: value for key, value in more.items() if value is not None},
    }
    others = [as_chip(other) for other in _listed(against)]
    asked["against"] = [[other._input(), list(other.sets)] for other in others]
    asked["command"] = f"rdusim (Python): {chip!r}, {workload!r}"
    return json.dumps(asked)


def compare(
    chip: ChipLike,
    workload: WorkloadLike,
    *,
    against: ChipLike | Sequence[ChipLike] | None = None,
    fidelity: Fidelity = "event",
    mapping: Mapping_ = "ideal",
    effort: Effort = "normal",
    seed: int = 0,
    uncertainty: bool = False,
    samples: int = 40,
) -> Result:
    """Simulates a workload kernel by kernel, with epilogues and fused.

    Args:
        against: Another chip or a list of others, whose runs stand beside the first's: ``result.others``.
        fidelity: ``bound`` (closed form), ``event``, or ``cycle`` (the reference model, for small inputs).
        mapping: ``ideal``, or ``vendor`` for the limits of the vendor's stack.
        effort: How long the compiler searches.
        seed: Of random masks.
        uncertainty: Adds 5-to-95 % ranges from ``samples`` draws of the chip file's uncertain fields.

    Raises:
        InputError: Chip, workload or field cannot be used.
        DeadlockError, LimitError: A run did not end.
    """
    asked = request(
        chip,
        workload,
        modes=[],
        against=against,
        fidelity=fidelity,
        mapping=mapping,
        effort=effort,
        seed=seed,
        uncertainty=uncertainty,
        samples=samples,
    )
    return Result(_native.compare(asked))


def run(
    chip: ChipLike,
    workload: WorkloadLike,
    mode: Mode = "fused",
    *,
    fidelity: Fidelity = "event",
    mapping: Mapping_ = "ideal",
    effort: Effort = "normal",
    seed: int = 0,
) -> Result:
    """Simulates a workload in one mode. Arguments and errors as of ``compare``."""
    asked = request(chip, workload, modes=[mode], fidelity=fidelity, mapping=mapping, effort=effort, seed=seed)
    return Result(_native.compare(asked))


class Explanation(_Json):
    """What bounds each section, and what one more of each resource saves. Keys as of ``rdusim explain --format json``."""


def explain(
    chip: ChipLike,
    workload: WorkloadLike,
    mode: Mode | None = None,
    *,
    fidelity: Fidelity = "event",
    mapping: Mapping_ = "ideal",
    seed: int = 0,
    uncertainty: bool = False,
    progress: Progress = None,
) -> Explanation:
    """Says what bounds each section and what one more of each resource saves; every mode if none is given.

    ``uncertainty`` also varies every assumed field of the chip file by a factor of 2. Ctrl-C stops it at the next run.
    Errors: ``InputError``.
    """
    modes = [mode] if mode else []
    asked = request(
        chip, workload, modes=modes, fidelity=fidelity, mapping=mapping, seed=seed, uncertainty=uncertainty
    )
    return Explanation(*_native.explain(asked, told(progress, "explaining")))


class Mask(_Json):
    """The numbers of a mask: density, histograms, imbalance, bytes in each format. Keys as of ``rdusim sparsity --format json``."""

    __slots__ = ("_svg",)

    def __init__(self, text: str, table: str, svg: str) -> None:
        super().__init__(text, table)
        self._svg = svg

    def plot(self) -> Picture:
        """What the mask keeps."""
        return Picture(self._svg, "mask")

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self._svg


def sparsity(
    source: Workload | Graph | str | os.PathLike[str],
    *,
    key: str | None = None,
    shape: tuple[int, int] | None = None,
    block: tuple[int, int] | None = None,
    density: float | None = None,
    exponent: float = 1.0,
    transpose: bool = False,
    dtype: ValueType = "bf16",
    pcus: int = 640,
    seed: int = 0,
) -> Mask:
    """Looks a mask over.

    Args:
        source: A pattern (``unstructured``, ``block``, ``banded``, ``row_skewed``, ``column_skewed``, or N:M such as ``2:4``), the path
            of a file (.smtx, .mtx, .npy, .npz, .safetensors, or a workload .toml), or a workload or its built-in name.
        key: Array, tensor or weight of a source with several.
        shape: Rows (K) and columns (N); a pattern needs them.
        block: Rows and columns of a block.
        density: Share of the blocks that is kept; of a file, those of the largest magnitudes.
        exponent: Of the power law of the skewed patterns.
        transpose: The file has columns where the matrix has rows.
        dtype: Type of the values, for the bytes; a weight of a workload has its own.
        pcus: Units over which the work is spread.
        seed: Of random masks.

    Raises:
        InputError: Source or numbers cannot be used.
    """
    named = None if isinstance(source, (Workload, Graph)) else os.fspath(source)
    workload = as_workload(source) if named is None or named.endswith(".toml") or named in builtins("workload") else None
    asked = {
        "source": named if workload is None else workload._name,
        "workload": None if workload is None else workload._request(seed),
        "key": key,
        "shape": shape,
        "block": block,
        "density": density,
        "exponent": exponent,
        "transpose": transpose,
        "dtype": dtype,
        "pcus": pcus,
        "seed": seed,
    }
    return Mask(*_native.sparsity(json.dumps(asked)))


class Difference(_Json):
    """What changed between two results, and why. Keys as of ``rdusim diff --format json``."""


def diff(a: Result, b: Result) -> Difference:
    """Says what changed from one result of ``compare`` or ``run`` to another: inputs, figures, sections. Errors: ``InputError``."""
    return Difference(*_native.diff(a.to_json(), b.to_json()))


class Map(_Json):
    """A mapping with names and coordinates: units, buffers, routes. Keys as of ``rdusim map --format json``."""


def map(  # noqa: A001 - the name of the command
    chip: ChipLike,
    workload: WorkloadLike,
    mode: Mode = "fused",
    *,
    fidelity: Fidelity = "event",
    mapping: Mapping_ = "ideal",
    effort: Effort = "normal",
    seed: int = 0,
) -> Map:
    """Says how a workload is placed and routed on the chip, in one mode. Arguments and errors as of ``compare``."""
    asked = request(chip, workload, modes=[mode], fidelity=fidelity, mapping=mapping, effort=effort, seed=seed)
    return Map(*_native.map(asked))


class Verdict(_Json):
    """Whether configurations compute what the graph says. Keys as of ``rdusim verify --format json``."""


def verify(
    chip: ChipLike,
    workload: WorkloadLike,
    mode: Mode | None = None,
    *,
    max_flops: int = 500_000_000,
    mapping: Mapping_ = "ideal",
    effort: Effort = "normal",
    seed: int = 0,
    check: bool = True,
) -> Verdict:
    """Runs the configurations on numbers and compares with a plain reference.

    Named dimensions are made smaller until the graph needs no more than ``max_flops`` operations. Errors: ``InputError``, and
    ``MismatchError`` with ``check`` if a mode does not compute what the graph says.
    """
    modes = [mode] if mode else []
    asked = request(chip, workload, modes=modes, mapping=mapping, effort=effort, seed=seed, max_flops=max_flops)
    text, table, failed = _native.verify(asked)
    if check and failed:
        raise MismatchError(f"the {' and the '.join(failed)} configuration does not compute what the graph says\n{table}")
    return Verdict(text, table)


class Validation(_Json):
    """Simulated against published measurements. Keys as of ``rdusim validate --format json``."""


def validate(chip: ChipLike | None = None, *, only: list[str] | None = None) -> Validation:
    """Simulates published sets (all, or those named by ``only``) on the shipped chips, or on the chip file given.

    Errors: ``InputError``.
    """
    arch, sets = None, []
    if chip is not None:
        given = as_chip(chip)
        if given._text is not None:
            raise TypeError("validate takes a chip file or a built-in name: sets are found by it")
        arch, sets = given._name, list(given.sets)
    return Validation(*_native.validate(json.dumps({"arch": arch, "sets": sets, "only": only or []})))


class Proof(_Json):
    """A certificate of how far a mapping is from what no mapping beats. Keys as of the file of ``rdusim prove --out``."""

    __slots__ = ("_inputs",)

    def __init__(self, text: str, table: str, inputs: str) -> None:
        super().__init__(text, table)
        self._inputs = inputs

    @property
    def gap(self) -> float:
        """Cycles over the least of any mapping, less 1."""
        return float(self._data["certificate"]["gap"])

    def check(self) -> None:
        """Recomputes every bound. Errors: ``ProofError`` if it does not hold."""
        _native.check_proof(self._json, self._inputs)


def prove(
    chip: ChipLike, workload: WorkloadLike, mode: Mode = "fused", *, mapping: Mapping_ = "ideal", seed: int = 0
) -> Proof:
    """Maps, simulates, and writes down what no mapping beats. Errors: ``InputError``, ``DeadlockError``, ``LimitError``."""
    asked = request(chip, workload, modes=[mode], mapping=mapping, seed=seed)
    inputs = json.loads(asked)
    return Proof(*_native.prove(asked), json.dumps([inputs["arch"], inputs["workload"]]))


def builtins(kind: Literal["chip", "system", "workload", "study"] | None = None) -> Iterator[str]:
    """Names that come with the program, of one kind or of all."""
    return (name for known, name in _native.builtins() if kind in (None, known))
