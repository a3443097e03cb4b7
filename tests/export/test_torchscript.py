from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
import warnings

import pytest
import torch

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError, UnsupportedOpError
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph.check import run_graph

SCRIPT, TRACE = ExportFormat.TORCHSCRIPT, ExportFormat.TORCHSCRIPT_TRACE


@pytest.mark.parametrize("format", [SCRIPT, TRACE])
def test_gives_what_was_recorded(case, check, format):
    info = check(format, case)
    assert info.details == {"method": "script" if format is SCRIPT else "trace"}


def test_torch_itself_loads_and_runs_the_file(record, export):
    recording = record(lambda x, y: (torch.sub(x, y), x), torch.rand(3), torch.rand(3))
    _, info = export(SCRIPT, recording, (torch.rand(3), torch.rand(3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.load(info.paths[0])
    x, y = torch.rand(3), torch.rand(3)
    for _ in range(4):  # the third run is the optimised one
        difference, same = model(x, y)
        assert torch.equal(difference, x - y)
        assert torch.equal(same, x)
        same.zero_()
        assert x.any()


def test_optimised_runs_do_not_share_a_constant(record, export):
    recording = record(lambda x: (x + 1, torch.tensor([1.0, 2.0])), torch.rand(2))
    for format in (SCRIPT, TRACE):
        _, info = export(format, recording, (torch.rand(2),))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = torch.jit.load(info.paths[0])
        for _ in range(4):
            constant = model(torch.rand(2))[1]
            assert constant.tolist() == [1.0, 2.0]
            constant.zero_()


def test_traces_what_scripting_has_no_form_for(record, export):
    x = torch.rand(3, 4)
    recording = record(lambda x: torch.sum(x[[0, 2]], axis=1), x)
    run, info = export(SCRIPT, recording, (x,))
    assert info.details == {"method": "trace"}
    other = torch.rand(3, 4)
    assert torch.equal(run(other)["out0"], other[[0, 2]].sum(1))


def test_traces_where_scripting_means_another_dtype(record, export):
    # Scripted, True becomes the integer 1 and the product an int64 tensor; in eager torch it stays bool.
    x = torch.tensor([True, False])
    recording = record(lambda x: torch.mul(x, True), x)
    run, info = export(SCRIPT, recording, (x,))
    assert info.details == {"method": "trace"}
    assert run(torch.tensor([False, True]))["out0"].tolist() == [False, True]


@pytest.mark.parametrize("how", ["disable", "replace"])
def test_works_when_torchscript_is_switched_off(record, export, monkeypatch, how):
    if how == "disable":
        monkeypatch.setattr(torch.jit._state._enabled, "enabled", False)
    else:
        monkeypatch.setattr(torch.jit, "script", lambda fn, *_args, **_kwargs: fn)
    off = torch.jit.script
    recording = record(lambda x: torch.nn.functional.softmax(x, dim=-1), torch.rand(3))
    run, info = export(SCRIPT, recording, (torch.rand(3),))
    assert info.details == {"method": "script"}
    other = torch.rand(3)
    assert torch.equal(run(other)["out0"], torch.softmax(other, -1))
    assert torch.jit.script is off
    assert torch.jit._state._enabled.enabled is (how != "disable")


PYTORCH_JIT_0 = """
import sys, torch
from pathlib import Path
from leapp._spec import ExportFormat, NodeSpec, Port, TensorSpec
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import NodeGraph
graph = torch.fx.Graph()
x = graph.placeholder("x")
graph.output(graph.call_function(torch.nn.functional.elu, (x,), {"alpha": 1.0, "inplace": False}))
port = TensorSpec("float32", (2,))
recording = NodeGraph(NodeSpec("n", (Port("x", port),), (Port("y", port),)), graph, {})
for format in (ExportFormat.TORCHSCRIPT, ExportFormat.TORCHSCRIPT_TRACE, ExportFormat.ONNX_TORCHSCRIPT):
    path = Path(sys.argv[1]) / f"{format.value}{format.suffix}"
    backend = backend_for(format)
    info = backend.write(recording, (torch.ones(2),), path, ExportOptions())
    value = backend.open(path, recording.spec)({"x": torch.tensor([-1.0, 2.0])})["y"]
    assert torch.allclose(value, torch.tensor([-0.6321, 2.0]), atol=1e-4), value
    print(format.value, info.details.get("method"))
"""


def test_works_when_torchscript_was_never_there(tmp_path):
    environment = {**os.environ, "PYTORCH_JIT": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PYTORCH_JIT_0, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["torchscript script", "jit-trace trace", "onnx-torchscript None"]


@pytest.mark.parametrize("format", [SCRIPT, TRACE])
def test_20000_chained_operations(record, chain, export, format):
    x = torch.rand(2)
    recording = record(chain(20_000), x)
    started = time.perf_counter()
    run, info = export(format, recording, (x,))
    assert time.perf_counter() - started < 60
    assert info.details == {"method": "script" if format is SCRIPT else "trace"}
    other = torch.rand(2)
    assert torch.equal(run(other)["out0"], run_graph(recording, {"in0": other})["out0"])


@pytest.mark.slow
@pytest.mark.parametrize("format", [SCRIPT, TRACE])
def test_20000_chained_operations_elsewhere(record, chain, export, format):
    # Whoever loads the file has an ordinary stack, and an executor that optimises.
    recording = record(chain(20_000), torch.rand(2))
    _, info = export(format, recording, (torch.rand(2),))
    program = (
        "import sys, torch; model = torch.jit.load(sys.argv[1])\nfor _ in range(3): print(model(torch.zeros(2)).shape)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(info.paths[0])], check=False)
    assert done.returncode == 0


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x * 2


def doubled(x):
    return _Doubled.apply(x)


def test_names_the_op_that_it_cannot_hold(record, tmp_path):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    one = graph.call_function(torch.add, (x, 1))
    graph.output(graph.call_function(torch.linalg.matrix_rank, (one,), {"tol": "much"}))
    good = record(lambda x: torch.add(x, 1), torch.rand(2, 2))
    recording = type(good)(good.spec, graph, {}, {"linalg_matrix_rank": next(iter(good.sources.values()))})
    path = tmp_path / "policy.pt"
    with pytest.raises(UnsupportedOpError) as caught:
        backend_for(SCRIPT).write(recording, (torch.rand(2, 2),), path, ExportOptions())
    facts = caught.value.facts
    assert facts["op"] == "torch.linalg.matrix_rank"
    assert facts["where"] == "user.py:1"
    assert facts["format"] == "torchscript"
    assert "\n" not in facts["why"]
    assert not list(tmp_path.iterdir())


def test_names_python_code_that_it_cannot_hold(record, tmp_path):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(doubled, (x,)))
    recording = record(graph, torch.rand(2))
    with pytest.raises(UnsupportedOpError, match="_Doubled"):
        backend_for(SCRIPT).write(recording, (torch.rand(2),), tmp_path / "policy.pt", ExportOptions())
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none(record, tmp_path):
    path = tmp_path / "policy.pt"
    path.write_bytes(b"not a model")
    spec = record(lambda x: x + 1, torch.rand(2)).spec
    with pytest.raises(ArtifactLoadError, match=r"policy\.pt"):
        backend_for(SCRIPT).open(path, spec)
    with pytest.raises(ArtifactLoadError, match=r"missing\.pt"):
        backend_for(SCRIPT).open(tmp_path / "missing.pt", spec)


@pytest.mark.parametrize("format", list(ExportFormat))
def test_the_users_process_is_left_alone(record, export, format, capfd):
    x = torch.rand(3, 4)
    weight = torch.nn.Parameter(torch.rand(4, 4))
    module = torch.nn.Linear(4, 4)
    recording = record(lambda x: torch.nn.functional.linear(x, module.weight.detach(), weight.detach()[0]), x)
    torch.manual_seed(3)
    random.seed(3)
    torch.set_default_dtype(torch.float64)
    try:
        before = _state()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _, info = export(format, recording, (x,))
        after = _state()
    finally:
        torch.set_default_dtype(torch.float32)
    assert before == after
    assert info.paths[0].exists()
    assert module.training
    assert weight.requires_grad
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""


def _state():
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        torch._dynamo.config.get_config_copy(),
        logging.root.manager.disable,
        logging.getLogger().level,
        len(logging.getLogger("torch").handlers),
        len(warnings.filters),
        torch.jit._state._enabled.enabled,
        torch._C._get_graph_executor_optimize(),
        sys.getrecursionlimit(),
        torch.are_deterministic_algorithms_enabled(),
    )


@pytest.mark.parametrize("format", list(ExportFormat))
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_any_grad_mode_will_do(record, export, format, mode):
    with mode():
        weight = torch.rand(4)
        recording = record(lambda x: x * weight, torch.rand(4))
        run, _ = export(format, recording, (torch.rand(4),))
        other = torch.rand(4)
        assert torch.equal(run(other)["out0"], other * weight)


@pytest.mark.parametrize("format", list(ExportFormat))
def test_names_of_any_kind(record, export, format):
    # Names of constants and words of Python and ONNX among them, and names that exporters use themselves.
    names = ("observation.state", "class", "関節 positions", "add_1", "self", "v1_", "net.0.weight", "")
    outputs = ("action.out", "return", "выход", "sin", "out_0", "input", "args_0", "val_0")
    constant = torch.rand(2)
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{index}") for index in range(len(names))]
    weight = graph.get_attr("net.0.weight")
    graph.output(tuple(graph.call_function(torch.mul, (x, weight)) for x in inputs))
    example = tuple(torch.rand(2) for _ in names)
    recording = record(
        graph, *example, input_names=(*names[:-1], "x y"), output_names=outputs, constants={"net.0.weight": constant}
    )
    run, info = export(format, recording, example)
    other = [torch.rand(2) for _ in names]
    results = run(*other)
    assert list(results) == list(outputs)
    for value, x in zip(results.values(), other, strict=True):
        assert torch.equal(value, x * constant)
    assert info.paths[0].exists()


@pytest.mark.parametrize("format", list(ExportFormat))
def test_the_device_of_the_process_does_not_matter(record, export, format):
    recording = record(lambda x: torch.add(torch.zeros_like(x), x), torch.rand(2))
    torch.set_default_device("meta")
    try:
        run, _ = export(format, recording, (torch.ones(2, device="cpu"),))
    finally:
        torch.set_default_device(None)
    assert torch.equal(run(torch.ones(2))["out0"], torch.ones(2))
