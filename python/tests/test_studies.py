"""Studies: one table, whatever ran its points."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import rdusim as rs
from rdusim import _backends

AXES = {"arch.memory.hbm.bandwidth_gb_per_s": [600, 900, 1800], "workload.dims.tokens": [64, 128]}


def study(**more):
    more = {"metrics": ["fused.time_s", "fused.bound_by", "speedup", "status"], "axes": AXES, **more}
    return rs.Study("sn40l", "tiny-mlp", **more)


def test_a_table_is_rows_columns_and_csv(cli, tmp_path):
    table = rs.sweep(study())
    assert table.columns[-4:] == ["speedup", "speedup_least", "speedup_most", "status"]
    assert all(row["speedup_least"] <= row["speedup"] <= row["speedup_most"] for row in table)
    assert len(table) == 6 and table.columns[:2] == list(AXES) and table["workload.dims.tokens"] == [64, 128] * 3
    file = tmp_path / "study.toml"
    file.write_text(study().to_toml())
    cli("sweep", str(file), "--out", str(tmp_path / "cli"))
    assert (tmp_path / "cli/results.csv").read_text() == table.to_csv()
    assert table.summary["counts"]["ran"] == 6
    one = rs.sweep(study(), out=tmp_path / "out")
    assert (tmp_path / "out/results.csv").read_text() == one.to_csv() == table.to_csv()
    assert "<table>" in table._repr_html_()


def test_arrow_gives_what_the_csv_says():
    polars = pytest.importorskip("polars")
    import io

    table = rs.sweep(study(constraints=["workload.dims.tokens >= 64"]))
    frame = polars.DataFrame(table)
    assert frame.columns == table.columns and frame.rows(named=True) == list(table)
    assert frame.equals(polars.read_csv(io.StringIO(table.to_csv())))
    many = rs.sweep(study(fidelity="bound", axes={"run.seed": list(range(300))}, metrics=["fused.cycles", "status"]))
    assert polars.DataFrame(many)["run.seed"].to_list() == list(range(300))


@pytest.mark.parametrize("reader", ["pyarrow", "pandas", "duckdb"])
def test_other_readers_of_arrow_give_what_the_csv_says(reader):
    pytest.importorskip(reader)
    table = rs.sweep(study(axes={"arch.pmu.banks": [0, 16], "workload.dims.tokens": [64, 128]}, metrics=["fused.cycles", "status"]))
    if reader == "pyarrow":
        import pyarrow

        made = pyarrow.table(table)
        assert made.schema.field("fused.cycles").type == pyarrow.int64()
        rows = made.to_pylist()
    elif reader == "pandas":
        import pandas

        pytest.importorskip("pyarrow")
        frame = pandas.DataFrame.from_arrow(table)
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    else:
        import duckdb

        rows_of_study = table
        found = duckdb.sql("select * from rows_of_study")
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    assert rows == list(table) and rows[0]["fused.cycles"] is None and rows[2]["fused.cycles"] > 0


def test_cells_without_a_value_are_null():
    polars = pytest.importorskip("polars")
    table = rs.sweep(study(axes={"arch.pmu.banks": [0, 16]}, metrics=["fused.cycles", "status"]))
    frame = polars.DataFrame(table)
    assert frame["fused.cycles"].null_count() == 1 and frame["fused.cycles"].dtype == polars.Int64
    assert frame["status"][0].startswith("refused") and frame["status"][1] == "ok"


def test_chips_and_workloads_can_be_axes_and_texts():
    own = rs.Chip("sn40l").to_toml().replace('name = "SN40L"', 'name = "mine"')
    axes = {"arch": [rs.Chip("sn10"), rs.Chip(own)], "workload": ["tiny-mlp", rs.Workload("tiny-mlp").to_toml()]}
    table = rs.sweep(study(axes=axes, metrics=["fused.time_s"]))
    times = table["fused.time_s"]
    assert times[0] == times[1] == rs.run("sn10", "tiny-mlp").fused.time_s
    assert times[2] == times[3] == rs.run("sn40l", "tiny-mlp").fused.time_s


def test_processes_give_the_same_bytes_and_use_the_cache(tmp_path):
    one = study()
    table = rs.sweep(one)
    cache = tmp_path / "cache"
    other = rs.sweep(one, backend="process", threads=2, cache=cache, out=tmp_path / "out")
    assert other.to_csv() == table.to_csv() and other.to_json() == table.to_json()
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert len(kept) == 6
    # Another study with the same points runs nothing: no worker is even started.
    again = study(name="again", axes={"workload.dims.tokens": [128, 64], **{k: v[::-1] for k, v in AXES.items() if "hbm" in k}})
    engine, _backends._engine = _backends._engine, lambda *_, **__: pytest.fail("a point ran again")
    try:
        assert sorted(map(str, rs.sweep(one, backend="process", cache=cache))) == sorted(map(str, table))
        assert len(set(again.keys()) | set(one.keys())) == 6 and len(again) == 6
        assert sorted(row["fused.time_s"] for row in rs.sweep(again, backend="process", cache=cache)) == sorted(
            table["fused.time_s"]
        )
    finally:
        _backends._engine = engine
    # A damaged entry is as none: its point runs again.
    kept[0].write_text(kept[0].read_text().replace("ok", "no"))
    assert rs.sweep(one, backend="process", threads=1, cache=cache).to_csv() == table.to_csv()


def test_a_key_is_of_everything_that_matters():
    base = set(study().keys())
    assert len(base) == 6 and base == set(study(name="other").keys())
    changes = [
        {"fidelity": "mapped_bound"},
        {"seed": 1},
        {"metrics": ["fused.time_s", "status"]},
        {"compile": "coarse"},
        {"modes": ["kbk", "epilogue", "fused"]},
        {"constraints": ["workload.dims.tokens > 1"]},
    ]
    for change in changes:
        assert not base & set(study(**change).keys()), change


def test_a_collector_takes_each_point_once_in_any_order(tmp_path):
    one = study()
    table = rs.sweep(one)
    lines = one._native.run_points(list(range(6)))
    collector = one._native.collector(tmp_path)
    assert collector.add([lines[4], lines[1], lines[4]]) == 2
    assert collector.add([lines[1]]) == 0
    with pytest.raises(rs.InputError, match="damaged"):
        collector.add([lines[0].replace("0.", "1.", 1)])
    content = rs._native.line_content(lines[0])
    with pytest.raises(rs.InputError, match="two different results"):
        collector.add([rs._native.line_of(content, 4)])
    collector.close()
    # The driver died here; another goes on from the journal.
    collector = one._native.collector(tmp_path)
    assert collector.pending() == [0, 2, 3, 5]
    collector.add([lines[i] for i in (5, 3, 2, 0)])
    assert collector.finish().csv() == table.to_csv()
    assert (tmp_path / "results.csv").read_text() == table.to_csv()


def test_shards_are_merged(tmp_path):
    one = study()
    for part in (1, 2):
        rs.sweep(one, out=tmp_path / str(part), shard=(part, 2))
    assert rs.merge(one, [tmp_path / "2", tmp_path / "1"]).to_csv() == rs.sweep(one).to_csv()
    with pytest.raises(rs.InputError, match="in none of the shards"):
        rs.merge(one, [tmp_path / "2"])


def test_a_killed_worker_loses_no_row():
    one = study(axes={"arch.memory.hbm.bandwidth_gb_per_s": list(range(600, 660))})
    killed = []

    def kill():
        while not killed:
            children = multiprocessing.active_children()
            if children:
                time.sleep(1.0)
                os.kill(children[0].pid, signal.SIGKILL)
                killed.append(children[0].pid)
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    table = rs.sweep(one, backend="process", threads=2, batch_s=0.05)
    thread.join()
    assert killed and table.to_csv() == rs.sweep(one).to_csv()


def test_errors_of_studies_are_the_same_from_every_backend():
    for backend in ("local", "process"):
        with pytest.raises(rs.InputError, match="pmu.banks"):
            rs.sweep(study(axes={"arch.pmu.banks": [0, -1]}), backend=backend)
    with pytest.raises(rs.InputError) as caught:
        study(metrics=["fused.speed"])
    assert caught.value.file == "<study>" and caught.value.field == "metrics"
    with pytest.raises(rs.InputError, match="prunes"):
        rs.sweep(study(pareto={"minimize": ["fused.time_s"], "prune": True}), backend="process")


def test_a_study_is_pickled_by_its_inputs():
    one = study()
    assert pickle.loads(pickle.dumps(one)).keys() == one.keys()


def test_progress_is_told():
    told = []
    rs.sweep(study(), progress=lambda done, of: told.append((done, of)))
    assert told and told[-1] == (6, 6) and told == sorted(told)
    with pytest.raises(ZeroDivisionError):
        rs.sweep(study(), progress=lambda done, of: 1 / 0)


def test_a_search_finds_the_front_and_several_workers_share_it(tmp_path):
    pytest.importorskip("optuna")
    fields = {"arch.memory.hbm.bandwidth_gb_per_s": {"low": 300, "high": 1800}, "workload.dims.tokens": [64, 128, 256]}
    ask = dict(fields=fields, minimize=["fused.time_s"], trials=12)
    found = rs.search("sn40l", "tiny-mlp", **ask)
    assert found.best == rs.search("sn40l", "tiny-mlp", **ask).best
    assert sum(found.counts().values()) == 12 and found.counts().get("simulated", 0) >= 1
    point = found.best
    chip = rs.Chip("sn40l").with_({"memory.hbm.bandwidth_gb_per_s": point["arch.memory.hbm.bandwidth_gb_per_s"]})
    workload = rs.Workload("tiny-mlp").with_({"dims.tokens": point["workload.dims.tokens"]})
    assert rs.run(chip, workload).fused.time_s == point["fused.time_s"]
    two = dict(fields=fields, minimize=["fused.time_s"], maximize=["fused.tflops_executed"], journal=tmp_path / "j.log")
    rs.search("sn40l", "tiny-mlp", trials=4, **two)
    more = rs.search("sn40l", "tiny-mlp", trials=8, **two)
    assert len(more.optuna.trials) == 8 and more.front and more.plot().svg.startswith("<svg")


def test_workers_of_one_journal_share_the_trials_and_try_different_points(tmp_path):
    pytest.importorskip("optuna")
    script = f"""
import rdusim as rs
rs.search("sn40l", "tiny-mlp", fields={{"arch.memory.hbm.bandwidth_gb_per_s": {{"low": 300, "high": 1800}}}},
          minimize=["area_mm2"], maximize=["fused.tflops_executed"], constraints=["area_mm2 > 0"], trials=16, journal={str(tmp_path / "j")!r})
"""
    workers = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    optuna = pytest.importorskip("optuna")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(tmp_path / "j")))
    found = optuna.load_study(study_name="search", storage=storage)
    assert 16 <= len(found.trials) <= 17
    tried = [tuple(trial.params.values()) for trial in found.trials]
    assert len(set(tried)) > len(tried) * 3 / 4
