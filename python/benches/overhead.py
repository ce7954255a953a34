"""What Python costs over the command line, and how fast 10,000 lower bounds are.

    python python/benches/overhead.py [--rounds 15]

Rounds take turns, so that a machine that is busy slows both. Time on the processor is told beside that of the clock: on a busy
machine only the first compares. A process of Python starts once, as a notebook does; each run of the command line is a process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import rdusim as rs

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("RDUSIM", ROOT / "target/release/rdusim"))
CHIP, WORKLOAD = "sn10", "gpt13b-mlp-sparse"


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and on processors, of this process and those it waited for."""

    def processor() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    start, before = time.monotonic(), processor()
    work()
    return time.monotonic() - start, processor() - before


def command() -> None:
    words = [BINARY, "compare", "--arch", CHIP, "--workload", WORKLOAD, "--format", "json"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def package() -> None:
    rs.compare(CHIP, WORKLOAD).to_json()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    command()
    package()
    took: dict[str, list[tuple[float, float]]] = {"command": [], "package": []}
    for turn in range(rounds):
        both = [("command", command), ("package", package)]
        for name, work in both if turn % 2 == 0 else reversed(both):
            took[name].append(timed(work))
    print(f"`compare` of {WORKLOAD} on {CHIP}, medians of {rounds} rounds that take turns")
    print("| | clock, s | processors, s |\n| --- | ---: | ---: |")
    for name, times in took.items():
        print(f"| {name} | {statistics.median(t[0] for t in times):.3f} | {statistics.median(t[1] for t in times):.3f} |")
    pairs = list(zip(took["package"], took["command"], strict=True))
    over = [statistics.median(a[at] / b[at] for a, b in pairs) - 1 for at in (0, 1)]
    print(f"package over command: {over[0]:+.1%} by the clock, {over[1]:+.1%} on processors")
    bounds = rs.Study.open(ROOT / "workloads/studies/bound-space.toml")
    all_bounds = sorted(timed(lambda: rs.sweep(bounds)) for _ in range(5))
    print(f"10,000 bounds of bound-space: {all_bounds[2][0]:.2f} s by the clock, {all_bounds[2][1]:.2f} s on processors (medians of 5)")


if __name__ == "__main__":
    main()
