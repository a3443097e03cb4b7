"""``leapp run``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pipelines import Pipeline, counter, port

from leapp import cli
from leapp.bundle.samples import write_tensors
from leapp.runtime.log import read_ticks


@pytest.fixture
def bundle(tmp_path):
    return str(counter(tmp_path / "hand").start(sum__held=np.float32([1, 2])).write())


@pytest.fixture
def leapp(capsys):
    def run(*arguments):
        code = cli.main(["run", *map(str, arguments)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


def test_given_inputs_are_played(bundle, leapp, tmp_path):
    write_tensors(tmp_path / "in", {f"{at}/in/sum/step": np.float32([at, at]) for at in range(4)})
    code, out, err = leapp(bundle, "--inputs", tmp_path / "in", "--log", tmp_path / "log")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"ok  {bundle}  4 ticks"
    assert out.splitlines()[2].split() == ["twice/result", "float32[2]", "[14.", "16.]"]
    ticks = read_ticks(tmp_path / "log").ticks
    assert [tick.feedback["sum/held"].numpy().tolist() for tick in ticks] == [[1, 2], [1, 2], [2, 3], [4, 5]]
    assert [tick.outputs["twice/result"].numpy().tolist() for tick in ticks] == [[2, 4], [4, 6], [8, 10], [14, 16]]
    # A log is a file of inputs: playing it again gives the same log.
    code, _, _ = leapp(bundle, "--inputs", tmp_path / "log", "--log", tmp_path / "again")
    assert code == 0
    assert (tmp_path / "again").read_bytes() == (tmp_path / "log").read_bytes()
    code, out, _ = leapp(bundle, "--inputs", tmp_path / "in", "--steps", 2, "--json")
    record = json.loads(out)
    assert (record["ok"], record["exit_code"], record["ticks"]) == (True, 0, 2)
    assert record["outputs"] == {"twice/result": {"dtype": "float32", "shape": [2], "values": [4.0, 6.0]}}
    assert record["runs_as"] == {"sum": "onnx", "twice": "onnx"}


def test_random_inputs_follow_from_the_seed(bundle, leapp):
    outs = [leapp(bundle, "--steps", 3, *more)[1].splitlines() for more in ((), (), ("--seed", 1))]
    assert outs[0] == outs[1]
    assert outs[0][1:] != outs[2][1:]
    assert outs[2][0] == f"ok  {bundle}  3 ticks of random inputs (seed 1); --inputs FILE gives others"


def test_times_of_nodes_and_ticks(bundle, leapp):
    code, out, _ = leapp(bundle, "--steps", 50, "--time", "--json")
    times = json.loads(out)["time_us"]
    assert code == 0
    for row in (times["tick"], times["nodes"]["sum"], times["nodes"]["twice"]):
        assert 0 < row["p50"] <= row["p99"] <= row["max"]
        assert row["first"] > 0
    assert times["nodes"]["sum"]["p50"] + times["nodes"]["twice"]["p50"] < times["tick"]["max"]
    _, out, _ = leapp(bundle, "--time")
    rows = [line.split() for line in out.splitlines() if " us" in line]
    assert [row[0] for row in rows] == ["sum", "twice", "tick"]
    assert "1000 ticks" in out
    _, out, _ = leapp(bundle, "--time", "--steps", 1)
    assert "p50" not in out


def test_a_tick_that_is_refused_ends_the_run_and_the_log_keeps_what_went_well(tmp_path, leapp):
    pipeline = Pipeline(tmp_path).node("n", [port("x", 2)], [port("y", 2)], [("Identity", "x", "y")])
    path = pipeline.wires(inputs={"n": ["x"]}, outputs={"n": ["y"]}).write()
    values = [[1, 2], [3, np.inf], [5, 6]]
    write_tensors(tmp_path / "in", {f"{at}/in/n/x": np.float32(value) for at, value in enumerate(values)})
    options = (path, "--inputs", tmp_path / "in", "--log", tmp_path / "log")
    code, out, err = leapp(*options, "--guard")
    assert code == 1
    assert out.startswith(f"failed  {path}  1 tick\n")
    assert err.startswith(
        "Tick 1 was not run:\nInput 'n/x' was given inf at [1]; then output 'n/y' is inf at [1]: it is not finite."
    )
    assert len(read_ticks(tmp_path / "log").ticks) == 1
    code, out, _ = leapp(*options, "--guard", "--json")
    record = json.loads(out)
    assert (code, record["ok"], record["ticks"], record["error"]["class"]) == (1, False, 1, "GuardInputError")
    code, out, _ = leapp(*options, "--steps", 2)
    assert out.startswith(f"ok  {path}  2 ticks; not finite at the last tick: n/y\n")
    _, out, _ = leapp(*options, "--steps", 1)
    assert out.startswith(f"ok  {path}  1 tick\n")
    code, out, _ = leapp(*options, "--json", "--steps", 2)
    assert json.loads(out)["outputs"]["n/y"]["values"] == [3.0, "inf"]


def test_large_outputs_are_summed_up(tmp_path, leapp):
    pipeline = Pipeline(tmp_path).node("n", [port("x", 2000)], [port("y", 2000)], [("Identity", "x", "y")])
    path = pipeline.wires(inputs={"n": ["x"]}, outputs={"n": ["y"]}).write()
    value = np.arange(2000, dtype=np.float32)
    value[7] = np.nan
    write_tensors(tmp_path / "in", {"n/x": value})
    _, out, _ = leapp(path, "--inputs", tmp_path / "in")
    assert "0 .. 1999, mean 1000, 1 not finite" in out
    _, out, _ = leapp(path, "--inputs", tmp_path / "in", "--json")
    assert json.loads(out)["outputs"]["n/y"]["values"] is None


def test_bad_input_exits_2_in_words(bundle, leapp, tmp_path):
    write_tensors(tmp_path / "short", {"0/in/sum/step": np.float32([1, 1])})
    write_tensors(tmp_path / "typo", {"sum/stop": np.float32([1, 1])})
    write_tensors(tmp_path / "wrong", {"sum/step": np.float64([1, 1])})
    for options, text in (
        ((tmp_path / "gone",), "gone is not a bundle: it does not exist"),
        ((bundle, "--inputs", tmp_path / "gone"), "it cannot be read: No such file"),
        ((bundle, "--inputs", tmp_path / "short", "--steps", 2), "tick 1 was asked for, and it ends after 1"),
        ((bundle, "--inputs", tmp_path / "typo"), "'sum/stop' is no outer input of this pipeline"),
        ((bundle, "--inputs", tmp_path / "wrong"), "float64[2] was given, float32[2] is expected"),
        ((bundle, "--format", "pt2"), "Node 'sum' has no model file as pt2: it has onnx"),
        ((bundle, "--format", "onx"), "Unknown export format 'onx'"),
        ((bundle, "--format", "som=onnx"), "formats names 'som', which is no node"),
        ((bundle, "--log", tmp_path / "gone" / "log"), "it cannot be written"),
    ):
        code, _, err = leapp(*options)
        assert (code, text in err) == (2, True), err
    for options in (("--steps", "0"), ("--steps", "x"), ("--threads", "0")):
        with pytest.raises(SystemExit) as end:
            cli.main(["run", bundle, *options])
        assert end.value.code == 2


def test_a_format_for_all_nodes_and_another_for_one(bundle, leapp):
    code, _, err = leapp(bundle, "--format", "pt2", "--format", "sum=onnx")
    assert code == 2
    assert "Node 'twice' has no model file as pt2" in err
    code, _, _ = leapp(bundle, "--format", "sum=onnx")
    assert code == 0
