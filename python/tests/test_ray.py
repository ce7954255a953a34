"""Ray: two nodes of one CPU on this machine, and what is killed of them while a study runs."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

import rdusim as rs

# Read when Ray is imported: all traffic stays on the loopback address, also that of `ray.init`, which else takes 127.0.0.1 for the
# machine's own address.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

ray = pytest.importorskip("ray", reason="skipped: Ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils")

#: Kills in a run of the tests; twenty for a report.
KILLS = int(os.environ.get("RDUSIM_RAY_KILLS", "2"))
STORE_BYTES = 80 << 20


@pytest.fixture(scope="module")
def cluster():
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    if free < 3 * STORE_BYTES:
        pytest.skip(f"skipped: /dev/shm has {free >> 20} MiB free, Ray's object stores need {3 * STORE_BYTES >> 20}")
    # Paths of sockets have a limit of about a hundred bytes.
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    for name, value in {
        "RAY_TMPDIR": folder,
        "RAYON_NUM_THREADS": "1",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "3",
    }.items():
        os.environ[name] = value
    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**node, "num_cpus": 0}
    )
    nodes = [cluster.add_node(**node) for _ in range(2)]
    assert cluster.address.startswith("127.0.0.1:"), cluster.address
    assert ray._private.services.get_node_ip_address() == "127.0.0.1"
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, nodes, node
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def busy_worker(nodes) -> int:
    """The process of a batch that runs on one of the nodes: a child of its raylet."""
    while True:
        for node in nodes:
            raylet = node.all_processes["raylet"][0].process.pid
            asked = ["pgrep", "-P", str(raylet), "-f", "ray::run_batch"]
            found = subprocess.run(asked, capture_output=True, text=True).stdout.split()
            if found:
                return int(found[0])
        time.sleep(0.02)


def study(points: int) -> rs.Study:
    axes = {"arch.pmu.capacity_bytes": [400_000 + 4096 * i for i in range(points)]}
    return rs.Study("sn10", "gpt13b-mlp-sparse", axes=axes, metrics=["fused.time_s", "status"], compile="coarse")


def test_ray_gives_the_same_bytes_though_workers_and_nodes_die(cluster, tmp_path):
    cluster, nodes, node = cluster
    one = study(40)
    local = rs.sweep(one)
    for kill in range(KILLS):
        out, killed = tmp_path / str(kill), []

        def kill_one() -> None:
            journal = out / "journal.jsonl"
            while not journal.is_file() or len(journal.read_bytes().splitlines()) < 4:
                time.sleep(0.02)
            if kill % 2:
                cluster.remove_node(nodes[0], allow_graceful=False)
            else:
                os.kill(busy_worker(nodes), signal.SIGKILL)
            killed.append(kill)

        thread = threading.Thread(target=kill_one)
        thread.start()
        table = rs.sweep(one, backend="ray", out=out, batch_s=0.3)
        thread.join()
        if kill % 2:
            nodes[0] = cluster.add_node(**node)
        assert killed and table.to_csv() == local.to_csv()
        assert (out / "results.csv").read_text() == local.to_csv()
        points = [line for line in (out / "journal.jsonl").read_text().splitlines()[1:]]
        assert len(points) == len(set(points)) == 40, "no row lost, none twice"


def test_a_driver_that_dies_goes_on(cluster, tmp_path):
    one = study(24)

    class Died(Exception):
        pass

    def die(done: int, of: int) -> None:
        if done >= 8:
            raise Died

    with pytest.raises(Died):
        rs.sweep(one, backend="ray", out=tmp_path, batch_s=0.2, progress=die)
    before = len((tmp_path / "journal.jsonl").read_text().splitlines()) - 1
    told = []
    table = rs.sweep(one, backend="ray", out=tmp_path, progress=lambda done, of: told.append(done))
    assert 8 <= before < 24 and min(told) > before
    assert table.to_csv() == rs.sweep(one).to_csv()
