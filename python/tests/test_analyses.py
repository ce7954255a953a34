"""Analyses: the same bytes as the command line, errors with their place, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

import rdusim as rs


def test_compare_is_the_command_lines_json(cli):
    text = cli("compare", "--arch", "sn10", "--workload", "tiny-mlp", "--format", "json")
    result = rs.compare("sn10", "tiny-mlp")
    assert result.to_json() == text
    assert result.to_dict() == json.loads(text)
    assert str(result) == cli("compare", "--arch", "sn10", "--workload", "tiny-mlp", "--full")


@pytest.mark.parametrize("mode", ["kbk", "epilogue", "fused"])
def test_run_is_the_command_lines_json(cli, mode):
    sets = ["--set", "arch.pmu.capacity_bytes=1048576", "--set", "workload.dims.tokens=128"]
    text = cli("run", "--mode", mode, "--arch", "sn40l", "--workload", "tiny-mlp", *sets, "--format", "json")
    chip, workload = rs.Chip("sn40l").with_(pmu__capacity_bytes=2**20), rs.Workload("tiny-mlp").with_(dims__tokens=128)
    assert rs.run(chip, workload, mode).to_json() == text


def test_ranges_and_another_chip_are_the_command_lines_json(cli):
    base = ["compare", "--arch", "sn40l", "--workload", "tiny-mlp", "--format", "json"]
    text = cli(*base, "--uncertainty", "--samples", "4", "--against", "a100")
    assert rs.compare("sn40l", "tiny-mlp", against="a100", uncertainty=True, samples=4).to_json() == text
    text = cli(*base, "--against", "a100", "--against", "h100", "--against", "sn10")
    several = rs.compare("sn40l", "tiny-mlp", against=["a100", rs.Chip("h100"), "sn10"])
    assert several.to_json() == text
    assert [other.arch.name for other in several.others] == ["A100-80GB", "H100-80GB", "SN10"]
    alone = rs.run("h100", "tiny-mlp")
    assert several.others[1].fused.to_dict() == alone.fused.to_dict() and rs.compare("sn10", "tiny-mlp").others == []
    assert several.others[1].speedups.fused == alone.fused.time_s / several.fused.time_s


def test_texts_of_other_analyses_are_the_command_lines(cli, tmp_path):
    tiny = ["--arch", "sn10", "--workload", "tiny-mlp"]
    assert rs.explain("sn10", "tiny-mlp", "fused").to_json() == cli("explain", "--mode", "fused", *tiny, "--format", "json")
    assert rs.verify("sn10", "tiny-mlp").to_json() == cli("verify", *tiny, "--format", "json")
    only = ["analytic-traffic", "analytic-systolic"]
    flags = [word for name in only for word in ("--only", name)]
    assert rs.validate(only=only).to_json() == cli("validate", *flags, "--format", "json")
    file = tmp_path / "proof.json"
    cli("prove", *tiny, "--out", str(file))
    proof = rs.prove("sn10", "tiny-mlp")
    assert proof.to_json() == file.read_text()
    proof.check()
    assert 0 <= proof.gap < 1


def test_a_pod_is_the_command_lines_json(cli):
    parallel = dict(tp=4, pp=4, dp=1)
    arguments = ["--model", "gpt-13b", "--phase", "training", "--parallel", "tp=4,pp=4,dp=1"]
    arguments += ["--batch", "4", "--seq", "2048", "--stack", "megatron-2021", "--format", "json"]
    pod = rs.pod("dgx-a100", "gpt-13b", parallel=parallel, batch=4, seq=2048, stack="megatron-2021")
    assert pod.to_json() == cli("pod", "dgx-a100", *arguments)
    model = rs.Workload.model("gpt-13b", phase="training", batch=4, seq=2048)
    assert rs.pod("dgx-a100", model, parallel=parallel, stack="megatron-2021").to_json() == pod.to_json()
    assert pod.timeline().svg.startswith("<svg")
    assert abs(sum(pod.time_s.values()) - pod.step_s) < 1e-9
    failures = ["--mtbf-h", "50000", "--checkpoint-s", "60", "--restart-s", "300"]
    failing = rs.pod("dgx-a100", model, parallel=parallel, stack="megatron-2021", mtbf_h=50000, checkpoint_s=60, restart_s=300)
    assert failing.to_json() == cli("pod", "dgx-a100", *arguments, *failures) and failing.goodput
    stages = ["--stage-layers", "9,11,11,9", "--predicted-tokens", "512"]
    uneven = rs.pod("dgx-a100", model, parallel=parallel, stack="megatron-2021", stage_layers=[9, 11, 11, 9], predicted_tokens=512)
    assert uneven.to_json() == cli("pod", "dgx-a100", *arguments, *stages) and uneven.step_s != pod.step_s
    slow = rs.pod("dgx-a100", model, parallel=parallel, stack="megatron-2021", stragglers="normal:0.02")
    assert slow.to_json() == cli("pod", "dgx-a100", *arguments, "--stragglers", "normal:0.02")
    assert slow.stragglers["step_s"] > slow.step_s
    with pytest.raises(ValueError, match="need each other"):
        rs.pod("dgx-a100", model, parallel=parallel, mtbf_h=50000)


def test_a_pod_with_experts_takes_their_load_and_writes_traces(cli, tmp_path):
    words = ["--model", "switch-1.6t", "--phase", "training", "--stack", "flash", "--batch", "2048", "--seq", "512"]
    words += ["--parallel", "dp=2048,ep=2048,capacity=1.25,zero=1", "--expert-load", "zipf:0.5", "--format", "json"]
    ask = dict(parallel="dp=2048,ep=2048,capacity=1.25,zero=1", batch=2048, seq=512, stack="flash")
    skewed = rs.pod("dgx-a100", "switch-1.6t", expert_load="zipf:0.5", **ask)
    assert skewed.to_json() == cli("pod", "dgx-a100", *words)
    with pytest.raises(rs.InputError, match="expert-load"):
        rs.pod("dgx-a100", "switch-1.6t", expert_load="nowhere", **ask)
    rs.pod("dgx-a100", "gpt2", parallel="dp=2,cp=2", batch=2, stack="flash", chakra=tmp_path / "traces")
    assert sorted(path.name for path in (tmp_path / "traces").iterdir())[:2] == ["comm_groups.json", "rank.0.et"]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_pod_that_serves_is_the_command_lines_json(cli, phase):
    words = ["--model", "llama3-8b", "--phase", phase, "--parallel", "tp=8", "--batch", "16", "--seq", "1024", "--format", "json"]
    served = rs.pod("dgx-a100", "llama3-8b", phase=phase, parallel=dict(tp=8), batch=16, seq=1024)
    assert served.to_json() == cli("pod", "dgx-a100", *words)
    tokens = dict(context=1024) if phase == "decode" else dict(seq=1024)
    model = rs.Workload.model("llama3-8b", phase=phase, batch=16, **tokens)
    assert rs.pod("dgx-a100", model, parallel="tp=8").to_json() == served.to_json()
    with pytest.raises(ValueError, match="no picture 'timeline'"):
        served.timeline()
    with pytest.raises(ValueError, match="training"):
        rs.pod("dgx-a100", model, parallel="tp=8", mtbf_h=50000, checkpoint_s=60)


def test_a_model_that_drafts_is_the_command_lines_json(cli):
    words = ["--model", "llama3-70b", "--parallel", "tp=8", "--batch", "2", "--format", "json"]
    draft = ["--draft", "llama3-8b", "--speculate", "3", "--accept", "0.7"]
    ask = dict(parallel="tp=8", draft="llama3-8b", speculate=3, accept=0.7)
    served = rs.pod("dgx-a100", "llama3-70b", phase="decode", batch=2, seq=1024, **ask)
    assert served.to_json() == cli("pod", "dgx-a100", "--phase", "decode", "--seq", "1024", *words, *draft)
    assert served.speculation["tokens"] == 3 and served.picture("time").svg.startswith("<svg")
    few = ["--phase", "requests", "--arrivals", "2", "--requests", "10", "--prompt-tokens", "128", "--output-tokens", "16"]
    drafted = rs.pod_requests(
        "dgx-a100", "llama3-70b", users=2, arrivals=2, requests=10, prompt_tokens=128, output_tokens=16, **ask
    )
    assert drafted.to_json() == cli("pod", "dgx-a100", *few, *words, *draft)
    with pytest.raises(ValueError, match="need each other"):
        rs.pod("dgx-a100", "llama3-70b", phase="decode", parallel="tp=8", draft="llama3-8b")
    with pytest.raises(ValueError, match="'decode'"):
        rs.pod("dgx-a100", "llama3-70b", phase="training", **ask)


def test_requests_are_the_command_lines_json(cli, tmp_path):
    words = ["--model", "llama3-8b", "--phase", "requests", "--parallel", "tp=1", "--batch", "8", "--format", "json"]
    few = ["--arrivals", "4", "--requests", "20", "--prompt-tokens", "128", "--output-tokens", "16"]
    ask = dict(parallel="tp=1", users=8, prompt_tokens=128, output_tokens=16)
    served = rs.pod_requests("dgx-a100", "llama3-8b", arrivals=4, requests=20, **ask)
    assert served.to_json() == cli("pod", "dgx-a100", *words, *few)
    assert served.throughput().svg.startswith("<svg")
    for name in ["token", "memory", "requests"]:
        assert served.picture(name).svg.startswith("<svg")
    mixed = rs.pod_requests("dgx-a100", "llama3-8b", arrivals=4, requests=20, prefill_chunk=64, **ask)
    assert mixed.to_json() == cli("pod", "dgx-a100", *words, *few, "--prefill-chunk", "64")
    assert mixed.limits["prefill_chunk"] == 64
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,128,16\n0.1,100,10\n")
    grid = tmp_path / "result.json"
    grid.write_text(served.to_json())
    traced = rs.pod_requests("dgx-a100", "llama3-8b", parallel="tp=1", users=8, trace=trace, grid=grid)
    assert traced.to_json() == cli("pod", "dgx-a100", *words, "--trace", str(trace), "--grid", str(grid))
    with pytest.raises(rs.InputError, match="either `trace` or `arrivals`"):
        rs.pod_requests("dgx-a100", "llama3-8b", parallel="tp=1", users=8)


def test_a_search_over_pods_is_the_command_lines_json(cli):
    words = ["--model", "gpt-13b", "--phase", "training", "--search", "--chips", "16", "--batch", "16", "--seq", "2048"]
    words += ["--stack", "megatron-2021", "--parallel", "recompute=full", "--format", "json"]
    model = rs.Workload.model("gpt-13b", phase="training", batch=16, seq=2048, recompute="full")
    told = []
    ask = dict(chips=16, stack="megatron-2021")
    found = rs.pod_search("dgx-a100", model, progress=lambda done, of: told.append((done, of)), **ask)
    assert found.to_json() == cli("pod", "dgx-a100", *words)
    assert found.timeline().svg.startswith("<svg")
    few = rs.pod_search("dgx-a100", model, objective="chips", target_step_s=60.0, **ask)
    target = ["--objective", "chips", "--target-step-s", "60"]
    assert few.to_json() == cli("pod", "dgx-a100", *words, *target)
    with pytest.raises(rs.InputError, match="target_step_s"):
        rs.pod_search("dgx-a100", model, objective="chips", **ask)
    least = rs.pod_search("dgx-a100", model, objective="energy", **ask)
    assert least.to_json() == cli("pod", "dgx-a100", *words, "--objective", "energy")


def test_a_certificate_that_is_not_true_is_refused():
    proof = rs.prove("sn10", "tiny-mlp")
    lie = json.loads(proof.to_json())
    lie["certificate"]["least_cycles"] += 10
    with pytest.raises(rs.ProofError):
        rs.prove.__globals__["Proof"](json.dumps(lie), "", proof._inputs).check()


def test_every_way_to_say_a_workload_is_the_same():
    named = rs.run("sn10", "tiny-mlp").fused
    text = rs.Workload("tiny-mlp").to_toml()
    assert rs.run("sn10", rs.Workload(text)).fused.cycles == named.cycles
    import tomllib

    assert rs.run("sn10", tomllib.loads(text)).fused.cycles == named.cycles
    assert rs.run(tomllib.loads(rs.Chip("sn10").to_toml()), "tiny-mlp").fused.cycles == named.cycles
    graph = rs.Graph("tiny-mlp", tokens=64, d_model=64, d_ff=128)
    h = graph.gemm("up", graph.input("x", ("tokens", "d_model")), graph.weight("w_up", ("d_model", "d_ff")))
    graph.gemm("down", graph.op("gelu", "gelu", h), graph.weight("w_down", ("d_ff", "d_model")))
    assert rs.run("sn10", graph).fused.cycles == named.cycles


def test_models_by_name_and_by_config(tmp_path):
    small = rs.Workload.model("gpt", hidden=64, layers=1, heads=2, vocabulary=128, seq=32)
    assert small.info.dims.hidden == 64
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "gpt2",
                "n_embd": 64,
                "n_layer": 1,
                "n_head": 2,
                "vocab_size": 128,
                "n_positions": 64,
                "activation_function": "gelu_new",
            }
        )
    )
    decode = rs.Workload(config, phase="decode", batch=2, context=16)
    assert decode.info.dims.batch == 2
    with pytest.raises(rs.InputError, match="--phase"):
        rs.run("sn10", rs.Workload("tiny-mlp", phase="decode"))


def test_archives_of_torch_export_are_workloads(cli, tmp_path):
    def meta(*sizes):
        return {"dtype": 7, "sizes": sizes}

    x, w, y = ({"as_tensor": {"name": name}} for name in ("x", "p_w", "y"))
    two, three = {"as_int": 2}, {"as_int": 3}
    batch = {"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)"}}
    call = [{"name": "input", "arg": x}, {"name": "weight", "arg": w}]
    graph = {
        "inputs": [w, x],
        "outputs": [y],
        "nodes": [{"target": "torch.ops.aten.linear.default", "inputs": call, "outputs": [y]}],
        "tensor_values": {"x": meta(batch, two), "p_w": meta(three, two), "y": meta(batch, three)},
    }
    stored = {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "fc.weight"}}
    signature = {"input_specs": [stored, {"user_input": {"arg": x}}]}
    program = {
        "graph_module": {"graph": graph, "signature": signature},
        "schema_version": {"major": 8, "minor": 8},
    }
    path = tmp_path / "layer.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("layer/models/model.json", json.dumps(program))
    layer = rs.Workload(path, dim={"s0": 64})
    assert [(operator.kind, operator.name) for operator in layer.info.operators] == [("gemm", "y")]
    text = cli("run", "--mode", "fused", "--arch", "sn10", "--workload", str(path), "--dim", "s0=64", "--format", "json")
    assert rs.run("sn10", layer, "fused").to_json() == text
    with pytest.raises(rs.InputError, match="--dim s0=N"):
        rs.Workload(path).info


def test_results_have_attributes_and_pictures(tmp_path):
    result = rs.compare("sn10", "tiny-mlp")
    assert result.speedup == result.kbk.time_s / result.fused.time_s
    least, most = result.speedup_range
    assert least == pytest.approx(result.speedup / (1 + result.kbk.gap)) and least <= result.speedup <= most
    assert most == pytest.approx(result.speedup * (1 + result.fused.gap))
    assert result.speedup_over_epilogue_range[0] <= result.speedup_over_epilogue and result.speedup_notes == []
    assert rs.run("a100", "tiny-mlp", "fused").fused.gap is None and rs.run("sn10", "tiny-mlp", "kbk").speedup_range is None
    assert result.fused.bound_by in {section.bound_by for section in result.fused.sections}
    assert sum(section.cycles for section in result.fused.sections) == result.fused.cycles
    assert result.fused.traffic.off_chip_read_bytes + result.fused.traffic.off_chip_write_bytes == result.fused.off_chip_bytes
    assert result.plot("roofline").svg.startswith("<svg")
    assert "<iframe" in result._repr_html_() and result.page().lstrip().lower().startswith("<!doctype html")
    result.save(tmp_path / "out")
    assert (tmp_path / "out/result.json").read_text() == result.to_json()
    assert (tmp_path / "out/report.html").is_file() and (tmp_path / "out/roofline.png").is_file()
    with pytest.raises(AttributeError, match="time_s"):
        result.fused.time
    with pytest.raises(ValueError, match="traffic"):
        result.plot("pie")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="did not run"):
        rs.run("sn10", "tiny-mlp", "kbk").fused


def test_errors_name_file_line_field_and_advice(tmp_path):
    with pytest.raises(rs.InputError) as caught:
        rs.run(rs.Chip("sn10").with_(pmu__banks=0), "tiny-mlp")
    assert caught.value.field == "arch.pmu.banks" and "found 0" in caught.value.message
    file = tmp_path / "chip.toml"
    file.write_text(rs.Chip("sn10").to_toml().replace("clock_ghz = ", "clock_ghz = -"))
    with pytest.raises(rs.InputError) as caught:
        rs.run(file, "tiny-mlp")
    line = file.read_text().splitlines()[caught.value.line - 1]
    assert caught.value.file == str(file) and caught.value.field == "clock_ghz" and line.startswith("clock_ghz")
    with pytest.raises(rs.InputError) as caught:
        rs.run("sn10l", "tiny-mlp")
    assert "sn10" in caught.value.advice
    with pytest.raises(rs.InputError) as caught:
        rs.pod("dgx-a100", "gpt3-175b", parallel=dict(tp=1), seq=2048)
    assert "does not fit" in caught.value.message and caught.value.advice
    with pytest.raises(rs.FileError):
        rs.run("sn10", "tiny-mlp").save(file / "under-a-file")


def test_the_interpreter_is_free_meanwhile():
    counted = 0
    stop = threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    rs.compare("sn40l", "gpt13b-mlp-sparse")
    stop.set()
    thread.join()
    assert counted > 20


def processor_s(pid: int) -> float:
    """Seconds that a process has been on processors (user and system; a name in parentheses comes before)."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


#: Calls that take many seconds on any machine.
LONG = {
    "compare": 'rs.compare("sn10", "gpt13b-mlp-sparse", effort="thorough", uncertainty=True, samples=4000)',
    "run": 'rs.run("sn10", rs.Workload("tiny-mlp").with_(dims__tokens=4096, dims__d_ff=1024), fidelity="cycle")',
    "explain": 'rs.explain("sn10", "gpt13b-mlp-sparse", uncertainty=True)',
    "verify": 'rs.verify("sn10", "gpt13b-mlp", max_flops=10**11)',
    "validate": 'rs.validate()',
    "prove": 'rs.prove("sn10", rs.Workload.model("gpt-13b", phase="training", batch=2, seq=2048))',
    "pod": 'rs.pod("sn40l-16", "llama3-8b", phase="decode", parallel=dict(tp=8), batch=16, seq=1024)',
    "pod_search": 'rs.pod_search("sn40l-16", "gpt-13b", chips=16, batch=16, seq=2048)',
    "sweep": 'rs.sweep(rs.Study("sn10", "gpt13b-mlp-sparse", axes={"run.seed": [0, 1]}, metrics=["fused.time_s"], effort="thorough"))',
}


@pytest.mark.skipif(sys.platform != "linux", reason="times of processes are read from /proc")
@pytest.mark.parametrize("call", LONG)
def test_ctrl_c_stops_the_work_of_a_call(call):
    script = textwrap.dedent(
        f"""
        import time, rdusim as rs
        print("begun", flush=True)
        try:
            # Again and again: on a quick machine one call may be over before it is interrupted.
            while True:
                {LONG[call]}
        except KeyboardInterrupt:
            start = time.process_time()
            print("stopped", flush=True)
            time.sleep(0.5)
            print(time.process_time() - start, flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    start, before = time.monotonic(), processor_s(process.pid)
    assert process.stdout.readline() == "stopped\n"
    took, until_then = time.monotonic() - start, processor_s(process.pid) - before
    after = float(process.communicate(timeout=60)[0])
    # A second on each of two processors; on a busy machine that takes longer by the clock.
    assert until_then < 2 and took < 30 and after < 0.1, (until_then, took, after)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_stops_a_sweep_that_then_goes_on(tmp_path):
    script = textwrap.dedent(
        f"""
        import sys, time, rdusim as rs
        from pathlib import Path
        study = rs.Study("sn10", "gpt13b-mlp", metrics=["fused.time_s"],
                         axes={{"arch.pmu.capacity_bytes": list(range(300000, 500000, 1000))}})
        print("begun", flush=True)
        try:
            rs.sweep(study, out={str(tmp_path)!r}, threads=1)
        except KeyboardInterrupt:
            print("stopped", flush=True)
            assert sum(1 for _ in open({str(tmp_path / "journal.jsonl")!r})) >= 2
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    journal = tmp_path / "journal.jsonl"
    for _ in range(600):
        if journal.is_file() and len(journal.read_text().splitlines()) > 2:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    assert process.communicate(timeout=60)[0] == "stopped\n" and process.returncode == 0
    assert time.monotonic() - start < 30
    assert len(journal.read_text().splitlines()) < 200


def test_an_unknown_chip_is_refused_at_once():
    with pytest.raises(rs.InputError) as refused:
        rs.Chip("sn99")
    assert "sn40l" in str(refused.value)


def test_masks_are_the_command_lines_json(cli):
    asked = ["--block", "16x16", "--shape", "512x256", "--density", "0.125", "--pcus", "8"]
    mask = rs.sparsity("block", block=(16, 16), shape=(512, 256), density=0.125, pcus=8)
    assert mask.to_json() == cli("sparsity", "block", *asked, "--format", "json")
    assert str(mask) == cli("sparsity", "block", *asked)
    assert mask.statistics.density == 0.125 and mask.plot().svg.lstrip().startswith("<svg")
    text = cli("sparsity", "sparse-gemm", "--key", "w", "--format", "json")
    assert rs.sparsity("sparse-gemm", key="w").to_json() == text
    file = "examples/masks/band.smtx"
    assert rs.sparsity(ROOT / file, block=(1, 1)).kept_blocks == rs.sparsity(str(ROOT / file)).kept_blocks
    for wrong in [
        lambda: rs.sparsity("block", shape=(4, 4), density=0.5),
        lambda: rs.sparsity("2:4"),
        lambda: rs.sparsity("unstructured", shape=(0, 4), density=0.5),
        lambda: rs.sparsity(rs.Workload("tiny-mlp")),
        lambda: rs.sparsity("2:4", shape=(4, 4), dtype="fp9"),
    ]:
        with pytest.raises(rs.InputError):
            wrong()


def test_every_result_shows_itself_in_a_notebook():
    result = rs.compare("sn10", "tiny-mlp")
    study = rs.Study("sn10", "tiny-mlp", axes={"arch.clock_ghz": [1.0, 1.25]}, metrics=["fused.time_s"])
    pod = rs.pod("dgx-a100", rs.Workload.model("gpt2", phase="training", batch=8, seq=128), parallel="dp=8")
    shown = [
        (result, "<iframe"),
        (result.fused, "<td>cycles</td>"),
        (result.fused.sections[0], "<td>bound_by</td>"),
        (rs.Workload("tiny-mlp").info, "<table>"),
        (rs.explain("sn10", "tiny-mlp", "fused", progress=False), "<pre"),
        (rs.map("sn10", "tiny-mlp"), "<pre"),
        (rs.diff(result, result), "<pre"),
        (rs.verify("sn10", "tiny-mlp"), "<pre"),
        (rs.validate(only=["analytic-traffic"]), "<pre"),
        (rs.prove("sn10", "tiny-mlp"), "<pre"),
        (rs.sparsity("2:4", shape=(16, 16)), "<svg"),
        (pod, "<svg"),
        (rs.sweep(study, progress=False), "<th>fused.time_s</th>"),
    ]
    for value, wanted in shown:
        assert wanted in value._repr_html_(), type(value).__name__


def test_results_are_compared_and_mappings_shown():
    before = rs.run("sn10", "tiny-mlp", "kbk")
    after = rs.run(rs.Chip("sn10").with_(clock_ghz=2.0), "tiny-mlp", "kbk")
    found = rs.diff(before, after)
    assert found.inputs[0].field.startswith("arch.") and found.runs[0].figures.time_s.ratio < 1.0
    shown = rs.map("sn10", "tiny-mlp")
    assert shown.mode == "fused" and shown.sections
    assert rs.serve is rs.pod_requests
