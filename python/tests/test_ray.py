"""Ray: a cluster in a process of its own, of which workers, nodes and drivers are killed while a study runs.

The cluster has limits of time. One that cannot be started skips the test; one that was started and does not end fails it.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray_cluster

#: Kills: one of each kind; twenty for a report.
KILLS = int(os.environ.get("RDUSIM_RAY_KILLS", "3"))
#: Seconds until a cluster is started, and of each kill.
START_S, KILL_S = 120, 120


@pytest.mark.skipif(sys.platform != "linux", reason="processes of a cluster are found in /proc")
def test_a_table_is_the_local_one_though_workers_nodes_and_drivers_die(tmp_path):
    why = ray_cluster.why_not()
    if why is not None:
        pytest.skip(why)
    told = tmp_path / "told"
    command = [sys.executable, ray_cluster.__file__, "kills", "--kills", str(KILLS)]
    with told.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    start, limit = time.monotonic(), START_S
    is_started = False
    try:
        while process.poll() is None and time.monotonic() < start + limit:
            time.sleep(0.1)
            if not is_started and "\nstarted\n" in told.read_text():
                is_started, start, limit = True, time.monotonic(), KILL_S * (KILLS + 1)
    finally:
        is_over = process.poll() is not None
        end(process, told)
    text = told.read_text()
    if not is_started:
        pytest.skip(f"Ray did not start: {text.strip().splitlines()[-1:] or 'it said nothing'}")
    assert is_over, f"the cluster hung:\n{text}"
    assert process.returncode == 0, text
    assert text.count("| same bytes |") == KILLS and f"\n{KILLS} of {KILLS}\n" in text, text
    assert "from the cache alone: same bytes, no point ran" in text, text


def end(process: subprocess.Popen, told: Path) -> None:
    """Ends what is left of a cluster."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for line in told.read_text().splitlines():
        if line.startswith("folder "):
            ray_cluster.end_processes_of(line.removeprefix("folder "))
