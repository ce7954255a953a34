"""Studies on processes and clusters.

A point is a pure function of the study's inputs, so running it twice does no harm. Workers send lines with checksums; the driver
takes each point once into the journal of ``out``, on disk before it counts. Scheduling, placement and retries are the engine's.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from . import _native
from ._study import Study, _of_payload

Bar = Callable[[int, int], object] | None

#: Seconds of work in a batch: long enough that sending it costs little.
_BATCH_S = 1.0
#: Most points of a batch, whatever they take.
_MOST_POINTS = 4096
#: Times that a batch is sent again when its worker dies.
_RETRIES = 20

_studies: dict[str, Study] = {}


def run_batch(payload: str, indices: list[int]) -> tuple[list[str], float]:
    """Runs points in this process, on one thread: their lines, and the seconds that they took."""
    if payload not in _studies:
        _studies.clear()
        _studies[payload] = _of_payload(payload)
    start = time.perf_counter()
    lines = _studies[payload]._native.run_points(indices, 1)
    return lines, time.perf_counter() - start


class Cache:
    """Lines of points by the hash of their inputs, one file each, written whole; damaged files count as missing."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key[2:]

    def get(self, key: str, index: int) -> str | None:
        try:
            return _native.line_of(self._path(key).read_text(encoding="utf-8"), index)
        except (OSError, UnicodeDecodeError):
            return None

    def put(self, key: str, line: str) -> None:
        content = _native.line_content(line)
        if content is None:
            return
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(content)
        os.replace(file.name, path)


class Engine(Protocol):
    """Runs batches somewhere, several at a time."""

    workers: int

    def submit(self, indices: list[int]) -> None:
        """Takes a batch."""

    def results(self) -> Iterator[tuple[list[str], float]]:
        """At least one batch that has ended; raises if one cannot end."""

    def close(self) -> None:
        """Gives up what runs."""


class _Batches:
    """Cuts points into batches of some seconds, by what points have taken so far."""

    def __init__(self, points: list[int], batch_s: float, workers: int) -> None:
        self._points, self._batch_s, self._workers = points, batch_s, workers
        self._done, self._took, self._at = 0, 0.0, 0

    def ended(self, points: int, took: float) -> None:
        self._done, self._took = self._done + points, self._took + took

    def next(self) -> list[int]:
        if self._done:
            size = max(1, min(_MOST_POINTS, round(self._batch_s * self._done / max(self._took, 1e-9))))
            # At the end, no worker is left with much while others have nothing.
            left = len(self._points) - self._at
            size = min(size, max(1, -(-left // (2 * self._workers))))
        else:
            size = 1
        batch = self._points[self._at : self._at + size]
        self._at += len(batch)
        return batch


def sweep(
    study: Study,
    backend: str,
    out: Path | None,
    workers: int | None,
    cache: str | os.PathLike[str] | None,
    bar: Bar,
    *,
    batch_s: float = _BATCH_S,
    max_in_flight: int | None = None,
    **options: Any,
) -> _native.Table:
    """Runs the points that the journal and the cache do not have."""
    collector = study._native.collector(out)
    try:
        pending = collector.pending()
        store = Cache(cache) if cache is not None else None
        keys = study.keys() if store is not None else []
        if store is not None:
            found = [line for i in pending if (key := keys[i]) is not None and (line := store.get(key, i)) is not None]
            collector.add(found)
            pending = collector.pending()
        if pending:
            engine = _engine(backend, study._payload, workers, **options)
            try:
                for lines in _run(engine, _Batches(pending, batch_s, engine.workers), max_in_flight):
                    # The cache first: a driver that dies in between finds there what its journal lacks, and not the other way round.
                    if store is not None:
                        for line in lines:
                            if (key := keys[_index(line)]) is not None:
                                store.put(key, line)
                    collector.add(lines)
                    if bar is not None:
                        bar(len(study) - len(collector.pending()), len(study))
            finally:
                engine.close()
        return collector.finish()
    finally:
        collector.close()


def _index(line: str) -> int:
    import json

    return int(json.loads(line)["i"])


def _run(engine: Engine, batches: _Batches, most: int | None) -> Iterator[list[str]]:
    # Two batches a worker: one runs, one waits.
    most = most or 2 * engine.workers
    flying = 0
    while True:
        while flying < most and (batch := batches.next()):
            engine.submit(batch)
            flying += 1
        if not flying:
            return
        for lines, took in engine.results():
            flying -= 1
            batches.ended(len(lines), took)
            yield lines


def _engine(backend: str, payload: str, workers: int | None, **options: Any) -> Engine:
    if backend == "process":
        return _Processes(payload, workers, **options)
    if backend == "ray":
        return _Ray(payload, workers, **options)
    if backend == "local":
        return _Processes(payload, workers, **options)
    raise ValueError(f"there is no backend {backend!r}: expected local, process or ray")


class _Processes:
    """Processes of this machine. A worker that dies takes its pool with it; its batches are sent to a new one."""

    def __init__(self, payload: str, workers: int | None, *, max_retries: int = _RETRIES) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._payload, self._retries = payload, max_retries
        self._flying: dict[Any, list[int]] = {}
        self._pool = self._new()

    def _new(self) -> Any:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, indices: list[int]) -> None:
        from concurrent.futures.process import BrokenProcessPool

        try:
            self._flying[self._pool.submit(run_batch, self._payload, indices)] = indices
        except BrokenProcessPool:
            self._again([indices])

    def _again(self, lost: list[list[int]]) -> None:
        """A new pool for the batches of one that broke."""
        if self._retries == 0:
            raise RuntimeError("workers died too often: see max_retries; what is done is in the journal of out")
        self._retries -= 1
        lost = [*self._flying.values(), *lost]
        self._flying.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._new()
        for indices in lost:
            self.submit(indices)

    def results(self) -> Iterator[tuple[list[str], float]]:
        from concurrent.futures import FIRST_COMPLETED, wait
        from concurrent.futures.process import BrokenProcessPool

        while True:
            done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
            lost: list[list[int]] = []
            ended = []
            for future in done:
                indices = self._flying.pop(future)
                try:
                    ended.append(future.result())
                except BrokenProcessPool:
                    lost.append(indices)
            if lost:
                self._again(lost)
            if ended:
                yield from ended
                return

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Ray:
    """A Ray cluster: Ray places batches, and runs them again elsewhere when a node dies."""

    def __init__(
        self, payload: str, workers: int | None, *, address: str | None = None, max_retries: int = _RETRIES
    ) -> None:
        try:
            # Read when Ray is imported. A cluster of its own stays on the loopback address, which Ray else takes for the machine's.
            if address is None:
                os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            import ray
        except ImportError as error:
            raise ImportError("backend='ray' needs Ray: pip install 'rdusim[ray]'") from error
        self._ray: Any = ray
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            own: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address is None else {}
            ray.init(address=address, log_to_driver=False, **own)
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._payload = ray.put(payload)
        self._remote = ray.remote(num_cpus=1, max_retries=max_retries)(run_batch)
        self._flying: dict[Any, tuple[list[int], int]] = {}
        self._retries = max_retries

    def submit(self, indices: list[int], tries: int = 0) -> None:
        self._flying[self._remote.remote(self._payload, indices)] = (indices, tries)

    def results(self) -> Iterator[tuple[list[str], float]]:
        ray = self._ray
        while True:
            done, _ = ray.wait(list(self._flying), num_returns=1)
            is_lost = False
            for reference in done:
                indices, tries = self._flying.pop(reference)
                try:
                    yield ray.get(reference)
                except (ray.exceptions.RayTaskError, ray.exceptions.TaskCancelledError):
                    raise
                except ray.exceptions.RayError:
                    # Ray has given up on it, or lost its result: points are pure, so it runs again.
                    if tries >= self._retries:
                        raise
                    self.submit(indices, tries + 1)
                    is_lost = True
            if not is_lost:
                return

    def close(self) -> None:
        for reference in self._flying:
            self._ray.cancel(reference, force=True)
