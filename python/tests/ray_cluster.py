"""A Ray cluster of two nodes of one CPU on the loopback address, and what is killed of it while studies run on it.

    python python/tests/ray_cluster.py kills --kills 20
    python python/tests/ray_cluster.py throughput --rounds 5

Both start a cluster of their own and print a table. Each driver is a process of its own, as the studies of users are. `test_ray.py` runs
the first with a limit of time; `reports/cluster` has the results.

Nothing leaves the machine: the process first moves to a network of its own, with a loopback interface alone. To bind to the loopback
address is not enough, as Ray asks the metadata address of clouds where it is and tells a server that usage statistics are off.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rdusim as rs

STORE_BYTES = 80 << 20
#: Exit code where the cluster cannot be started.
CANNOT_START = 75
#: Kinds of kills, in turn.
KINDS = ("worker", "node", "driver")
NODE = {
    "num_cpus": 1,
    "object_store_memory": STORE_BYTES,
    "include_dashboard": False,
    "node_ip_address": "127.0.0.1",
}
#: Read when Ray is imported, by this process, drivers, nodes and workers: so it is set before.
ENVIRONMENT = {
    # The machine's own address is then the loopback address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAYON_NUM_THREADS": "1",
    # A node that was killed is found out within two seconds.
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
os.environ.update(ENVIRONMENT)


def alone() -> None:
    """Moves this process to a network of its own with a loopback interface alone. Errors: ``OSError``."""
    new_user, new_network = 0x1000_0000, 0x4000_0000
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(new_network) != 0:
        # Without the right to it, in a name space of users in which this one has it.
        if libc.unshare(new_user | new_network) != 0:
            raise OSError(ctypes.get_errno(), "this process cannot have a network of its own")
        for name, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)
    get_flags, set_flags, is_up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as of_kernel:
        flags = struct.unpack("16sh", fcntl.ioctl(of_kernel, get_flags, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(of_kernel, set_flags, struct.pack("16sh", b"lo", flags | is_up))
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    if others:
        raise OSError(f"the network of its own has {others}")


def why_not() -> str | None:
    """Why a cluster cannot be started here."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed"
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    if free < 3 * STORE_BYTES:
        return f"/dev/shm has {free >> 20} MiB free, Ray's object stores need {3 * STORE_BYTES >> 20}"
    return None


class Cluster:
    """A head without CPUs, and two nodes of one CPU."""

    def __init__(self) -> None:
        # Paths of sockets have a limit of about a hundred bytes.
        self.folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
        print(f"folder {self.folder}", flush=True)
        os.environ["RAY_TMPDIR"] = self.folder
        from ray._private.services import get_node_ip_address
        from ray.cluster_utils import Cluster as Ray

        # Else drivers would look for the cluster at another address.
        if get_node_ip_address() != "127.0.0.1":
            raise RuntimeError(f"Ray takes {get_node_ip_address()} for this machine's address, not the loopback address")
        self._ray: Any = Ray(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
        self.nodes = [self._ray.add_node(**NODE) for _ in range(2)]
        self.address: str = self._ray.address
        if not self.address.startswith("127.0.0.1:"):
            raise RuntimeError(f"Ray listens on {self.address}, not on the loopback address")

    def kill_worker(self, driver: Driver) -> bool:
        """Kills the process of a batch that runs on one of the nodes, a child of its raylet; false if the driver ends before."""
        while driver.process.poll() is None:
            for node in self.nodes:
                for pid in _children(node.all_processes["raylet"][0].process.pid):
                    if b"run_batch" in _command(pid):
                        os.kill(pid, signal.SIGKILL)
                        return True
            time.sleep(0.01)
        return False

    def kill_node(self) -> None:
        """Kills all processes of the first node."""
        self._ray.remove_node(self.nodes[0], allow_graceful=False)

    def replace_node(self) -> None:
        """Starts another in its place."""
        self.nodes[0] = self._ray.add_node(**NODE)

    def close(self) -> None:
        try:
            self._ray.shutdown()
        finally:
            end_processes_of(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)


def end_processes_of(folder: str) -> None:
    """Kills what a cluster has left: every process that was started with its folder."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and folder.encode() in _command(int(name)):
            try:
                os.kill(int(name), signal.SIGKILL)
            except ProcessLookupError:
                pass


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster, as long as it is needed."""
    one = Cluster()
    print("started", flush=True)
    try:
        yield one
    finally:
        one.close()


def study(points: int) -> rs.Study:
    """Points of some tenths of a second."""
    axes = {"arch.pmu.capacity_bytes": [400_000 + 4096 * i for i in range(points)]}
    return rs.Study("sn10", "gpt13b-mlp-sparse", axes=axes, metrics=["fused.time_s", "status"], compile="coarse")


def drive(address: str, points: int, out: str, cache: str) -> None:
    """A driver: the study, on the cluster. Leaves how many rows there were when its first batch came, if one did."""
    told: list[int] = []
    one = study(points)
    rs.sweep(
        one,
        backend="ray",
        address=address,
        out=out,
        cache=cache,
        batch_s=0.3,
        progress=lambda done, of: told.append(done),
    )
    Path(out, "first.json").write_text(json.dumps(min(told, default=None)))


class Driver:
    """A driver in a process of its own."""

    def __init__(self, address: str, points: int, out: Path, cache: Path) -> None:
        self._out = out
        command = [sys.executable, __file__, "drive", address, str(points), str(out), str(cache)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def journal(self) -> list[str]:
        """Lines of points that are on disk."""
        path = self._out / "journal.jsonl"
        return path.read_text().split("\n")[1:-1] if path.is_file() else []

    def wait_for_rows(self, rows: int) -> int:
        while (there := len(self.journal())) < rows:
            if self.process.poll() is not None:
                raise RuntimeError(f"the driver ended with {there} rows and exit code {self.process.returncode}")
            time.sleep(0.01)
        return there

    def finished(self) -> int | None:
        """The rows that were there when its first batch came, or none if it ran no batch."""
        if self.process.wait() != 0:
            raise RuntimeError(f"a driver ended with exit code {self.process.returncode}")
        first: int | None = json.loads((self._out / "first.json").read_text())
        return first


def killed_once(nodes: Cluster, kind: str, points: int, folder: Path, local: str) -> tuple[str, bool] | None:
    """A study of which something is killed: a row of the table, and whether all is well. None if it ended before."""
    out, cache, start = folder / "out", folder / "cache", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    driver = Driver(nodes.address, points, out, cache)
    rows = driver.wait_for_rows(3)
    if kind == "worker":
        is_killed = nodes.kill_worker(driver)
    elif kind == "node":
        is_killed = driver.process.poll() is None
        nodes.kill_node()
    else:
        driver.process.send_signal(signal.SIGKILL)
        is_killed = driver.process.wait() == -signal.SIGKILL
        rows = len(driver.journal())
        driver = Driver(nodes.address, points, out, cache)
    first = driver.finished()
    if kind == "node":
        nodes.replace_node()
    if not is_killed:
        return None
    lines = driver.journal()
    is_whole = sorted(json.loads(line)["i"] for line in lines) == list(range(points))
    is_same = (out / "results.csv").read_text() == local
    # A new driver goes on: its first batch comes after all rows of the one that died.
    went_on = kind != "driver" or (first is not None and first > rows)
    once = len(lines) if is_whole else f"{len(lines)} WRONG"
    told = "same bytes" if is_same and went_on else "BEGAN ANEW" if is_same else "DIFFERS"
    seconds = time.monotonic() - start
    return f"{kind} | {rows} | {once} | {told} | {seconds:.1f}", is_whole and is_same and went_on


def kills(count: int, points: int) -> bool:
    """Kills in turn a worker, a node and a driver while a study runs; whether all tables were the local one's."""
    local = rs.sweep(study(points), threads=1).to_csv()
    folder = Path(tempfile.mkdtemp(prefix="rdusim-kills-"))
    passed = 0
    try:
        with cluster() as nodes:
            print("| kill | of | rows on disk then | rows after, each once | table | seconds |")
            print("| ---: | --- | ---: | ---: | --- | ---: |", flush=True)
            for kill in range(count):
                kind = KINDS[kill % len(KINDS)]
                made = None
                while made is None:
                    made = killed_once(nodes, kind, points, folder / str(kill), local)
                passed += made[1]
                print(f"| {kill + 1} | {made[0]} |", flush=True)
            # What the last study left in its cache is all that another one needs.
            again = Driver(nodes.address, points, folder / "again", folder / f"{count - 1}/cache")
            ran = again.finished() is not None
            is_same = (folder / "again/results.csv").read_text() == local
            print(f"from the cache alone: {'same bytes' if is_same else 'DIFFERS'}, {'points RAN' if ran else 'no point ran'}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} of {count}", flush=True)
    return passed == count and is_same and not ran


def _others_busy(seconds: float) -> float:
    """CPUs that are busy with something else, over a while in which this process sleeps."""

    def ticks() -> tuple[int, int]:
        words = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(words) - words[3] - words[4], sum(words)

    busy, all_ = ticks()
    time.sleep(seconds)
    later, all_later = ticks()
    return (later - busy) / max(1, all_later - all_) * (os.cpu_count() or 1)


def throughput(rounds: int, points: int) -> None:
    """The same study on two threads of rayon and on two nodes of Ray, one after the other and in turn first."""
    one = study(points)
    with cluster() as nodes:
        import ray

        ray.init(address=nodes.address, log_to_driver=False)

        def seconds(backend: str) -> float:
            start = time.monotonic()
            options: dict[str, Any] = {"threads": 2} if backend == "local" else {}
            rs.sweep(one, backend=backend, **options)  # type: ignore[arg-type]
            return time.monotonic() - start

        cold = seconds("ray")
        print(f"first sweep of a driver, with the start of its workers: {cold:.1f} s")
        print(f"{points} points\n| round | CPUs busy with others | rayon, s | Ray, s | Ray of rayon's throughput |")
        print("| ---: | ---: | ---: | ---: | ---: |", flush=True)
        ratios = []
        for turn in range(rounds):
            busy = _others_busy(1.0)
            order = ("local", "ray") if turn % 2 == 0 else ("ray", "local")
            took = {backend: seconds(backend) for backend in order}
            ratios.append(took["local"] / took["ray"])
            print(f"| {turn + 1} | {busy:.2f} | {took['local']:.2f} | {took['ray']:.2f} | {ratios[-1]:.3f} |", flush=True)
        print(f"median {statistics.median(ratios):.3f}; {took['local'] / points * 2:.2f} s a point")
        ray.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_kills = commands.add_parser("kills")
    of_kills.add_argument("--kills", type=int, default=len(KINDS))
    of_kills.add_argument("--points", type=int, default=24)
    of_throughput = commands.add_parser("throughput")
    of_throughput.add_argument("--rounds", type=int, default=5)
    of_throughput.add_argument("--points", type=int, default=60)
    of_drive = commands.add_parser("drive")
    for name, kind in (("address", str), ("points", int), ("out", str), ("cache", str)):
        of_drive.add_argument(name, type=kind)
    asked = parser.parse_args()
    if asked.command == "drive":
        drive(asked.address, asked.points, asked.out, asked.cache)
        return 0
    why = why_not()
    try:
        # Before there are threads, which would keep the network that they have.
        alone()
    except OSError as error:
        why = why or str(error)
    if why is not None:
        print(f"skipped: {why}", flush=True)
        return CANNOT_START
    if asked.command == "kills":
        return 0 if kills(asked.kills, asked.points) else 1
    throughput(asked.rounds, asked.points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
