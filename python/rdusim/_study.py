"""What-if studies: axes over any field of chip and workload, and their tables."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from . import _native
from ._analyses import ChipLike, WorkloadLike
from ._inputs import Chip, Workload, _Input, as_chip, as_workload
from ._progress import Progress, told
from ._view import html_table

Axes = Mapping[str, Sequence[Any] | Mapping[str, Any]]


class Study:
    """Axes over fields of a chip and a workload, and what is measured at each point.

    Args:
        chip, workload: What is varied.
        axes: Values by path: ``{"arch.memory.hbm.bandwidth_gb_per_s": [900, 1800]}``. ``"arch"`` and ``"workload"`` take whole chips
            and workloads, ``"run.seed"`` seeds; a dict ``{"range": {...}}`` or ``{"log_range": {...}}`` as in study files.
        metrics: Columns, such as ``fused.time_s``, ``speedup``, ``bound_cycles`` (docs/studies.md).
        fidelity: ``event``, ``mapped_bound``, or ``bound`` (nothing is compiled).
        constraints: Expressions that points must satisfy, such as ``"area_mm2 <= 800"``.
        more: Further keys of a study file: ``design``, ``points``, ``modes``, ``compile``, ``pareto``, ``best``, ``plots``, ``model``.

    Raises:
        InputError: What is wrong with it, with its place in ``study.to_toml()``.
    """

    def __init__(
        self,
        chip: ChipLike,
        workload: WorkloadLike,
        *,
        axes: Axes,
        metrics: Sequence[str],
        name: str = "study",
        fidelity: Literal["bound", "mapped_bound", "event"] = "event",
        constraints: Sequence[str] = (),
        mapping: Literal["ideal", "vendor"] | None = None,
        seed: int = 0,
        **more: Any,
    ) -> None:
        texts: dict[str, str] = {}
        chip, workload = as_chip(chip), as_workload(workload)
        data: dict[str, Any] = {
            "schema": 1,
            "name": name,
            "arch": _named(chip, texts),
            "workload": _named(workload, texts),
            "fidelity": fidelity,
            "seed": seed,
            "metrics": list(metrics),
            "axes": [_axis(path, values, texts) for path, values in axes.items()],
            **({"constraints": list(constraints)} if constraints else {}),
            **more,
        }
        flags = {key: value for key, value in workload._flags.items() if value and key in _MODEL_KEYS}
        if flags:
            data["model"] = {**flags, **data.get("model", {})}
        unsupported = [key for key in ("dim", "skip_unsupported") if workload._flags[key]]
        if unsupported:
            raise ValueError(f"a study of a model file takes no {unsupported}: import it to a workload first")
        self._begin(
            {
                "study": {"name": "<study>", "text": _native.to_toml(json.dumps(data))},
                "texts": texts,
                "sets": [*chip.sets, *workload.sets],
                "mapping": mapping,
            }
        )

    def _begin(self, payload: dict[str, Any]) -> None:
        self._payload = json.dumps(payload)
        self._native = _native.Study(self._payload)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        sets: Mapping[str, Any] | None = None,
        mapping: Literal["ideal", "vendor"] | None = None,
    ) -> Study:
        """A study file, or a built-in name; ``sets`` are fields that hold at every point. Errors: ``InputError``."""
        from ._inputs import toml_value

        study = cls.__new__(cls)
        study._begin(
            {
                "study": {"name": os.fspath(path), "text": None},
                "texts": {},
                "sets": [f"{field}={toml_value(value)}" for field, value in (sets or {}).items()],
                "mapping": mapping,
            }
        )
        return study

    def __reduce__(self) -> tuple[Any, ...]:
        return (_of_payload, (self._payload,))

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def columns(self) -> list[str]:
        """Axis paths, then metrics."""
        return self._native.columns

    def __len__(self) -> int:
        return self._native.points

    def to_toml(self) -> str:
        """The study file."""
        given = json.loads(self._payload)["study"]
        text = given["text"] if given["text"] is not None else _native.text_of(given["name"])
        return text or ""

    def keys(self) -> list[str | None]:
        """For each point, a hash of everything that its result depends on."""
        return self._native.keys()

    def __repr__(self) -> str:
        return f"Study({self.name!r}, {len(self)} points, columns {self.columns})"


_MODEL_KEYS = ("phase", "batch", "seq", "context", "dtype", "expert_load")


def _of_payload(payload: str) -> Study:
    study = Study.__new__(Study)
    study._begin(json.loads(payload))
    return study


def _named(given: _Input, texts: dict[str, str]) -> str:
    """How a study names an input: a path that holds from anywhere, a built-in name, or that of a text."""
    if given._text is None:
        return os.path.abspath(given._name) if os.path.isfile(given._name) else given._name
    name, number = given._name, 1
    while texts.setdefault(name, given._text) != given._text:
        number += 1
        name = f"{given._name} {number}"
    return name


def _axis(path: str, values: Sequence[Any] | Mapping[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    if isinstance(values, Mapping):
        return {"path": path, **values}
    made = []
    for value in values:
        if path in ("arch", "workload"):
            given: _Input = as_chip(value) if path == "arch" else as_workload(value)
            if given.sets:
                raise ValueError(f"an axis {path!r} takes files: give fields of their own axis, not {list(given.sets)}")
            made.append(_named(given, texts))
        else:
            made.append(value.item() if hasattr(value, "item") else value)
    return {"path": path, "values": made}


class Table:
    """The rows of a study, in the order of its points.

    ``pl.DataFrame(table)``, ``pa.table(table)``, ``pd.DataFrame.from_arrow(table)`` and duckdb take it through the Arrow PyCapsule
    interface, without a copy through text; ``table["fused.time_s"]`` is a column, ``list(table)`` rows as dicts.
    """

    def __init__(self, native: _native.Table) -> None:
        self._native = native
        self._columns: list[str] = native.columns

    @property
    def columns(self) -> list[str]:
        """Axis paths, then metrics."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Any:
        names = self._columns
        return (dict(zip(names, map(_cell, row), strict=True)) for row in self._native.rows)

    def __getitem__(self, column: str) -> list[Any]:
        at = self._columns.index(column)
        return [_cell(row[at]) for row in self._native.rows]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def to_csv(self) -> str:
        """The bytes of ``results.csv`` of ``rdusim sweep --out``."""
        return self._native.csv()

    @property
    def summary(self) -> dict[str, Any]:
        """What stands out: counts, best points, the front. The object of ``rdusim sweep --format json``."""
        summary: dict[str, Any] = json.loads(self._native.json())
        return summary

    def to_json(self) -> str:
        """The bytes of ``rdusim sweep --format json``."""
        return self._native.json()

    @property
    def warnings(self) -> list[str]:
        """What of a journal was not believed."""
        return self._native.warnings

    def _repr_html_(self) -> str:
        rows = self._native.rows
        more = f"<p>{len(rows)} rows in all</p>" if len(rows) > 20 else ""
        return f"{html_table(self._columns, rows[:20])}{more}<pre>{html.escape(self._native.text())}</pre>"

    def __repr__(self) -> str:
        return f"<rdusim.Table {len(self)} rows x {len(self._columns)} columns>\n{self._native.text()}"


def _cell(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text or None


def sweep(
    study: Study | str | os.PathLike[str],
    *,
    backend: Literal["local", "process", "ray"] = "local",
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    shard: tuple[int, int] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress = None,
    **options: Any,
) -> Table:
    """Runs the points of a study. Whatever the backend and the order, the table is the same, byte for byte.

    Args:
        backend: ``local`` (threads of this process), ``process`` (processes of this machine) or ``ray`` (a Ray cluster; options
            ``address``, ``batch_s``, ``max_in_flight``, ``max_retries``).
        out: A directory for table, summary, pictures and page, and for a journal: after a kill, the same call goes on there.
        threads: Threads, or processes; as many as the machine has if not given.
        shard: Part i of n, from 1; ``local`` only. ``merge`` joins the parts.
        cache: A folder, shared by whoever has access to it, in which points are found that ran before; not ``local``.

    Raises:
        InputError: The study, or the journal of another one in ``out``.
        FileError: What cannot be written.
    """
    if not isinstance(study, Study):
        study = Study.open(study)
    where = Path(out) if out is not None else None
    bar = told(progress, study.name)
    if backend == "local" and cache is None:
        if options:
            raise TypeError(f"the local backend takes no {sorted(options)}")
        return Table(study._native.sweep(threads, where, shard, bar))
    if shard is not None:
        raise ValueError("shards are for the local backend: others spread the points themselves")
    from . import _backends

    return Table(_backends.sweep(study, backend, where, threads, cache, bar, **options))


def merge(
    study: Study | str | os.PathLike[str],
    directories: Sequence[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str] | None = None,
) -> Table:
    """Joins the shards of a study, each there once. Errors: ``InputError`` for points that are missing or there twice."""
    if not isinstance(study, Study):
        study = Study.open(study)
    return Table(study._native.merge([Path(d) for d in directories], Path(out) if out is not None else None))
