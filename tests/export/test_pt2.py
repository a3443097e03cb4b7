from __future__ import annotations

import gc
import json
import time
import weakref
import zipfile

import pytest
import torch

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError, UnsupportedOpError
from leapp.export import pt2
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph.check import run_graph

PT2 = ExportFormat.PT2


def test_gives_what_was_recorded(case, check):
    info = check(PT2, case)
    assert info.details == {}
    assert len(info.paths) == 1


def test_torch_itself_loads_and_runs_the_file(record, export):
    recording = record(lambda x, y: (torch.sub(x, y), x), torch.rand(3), torch.rand(3))
    _, info = export(PT2, recording, (torch.rand(3), torch.rand(3)))
    program = torch.export.load(info.paths[0])
    x, y = torch.rand(3), torch.rand(3)
    difference, same = program.module()(x, y)
    assert torch.equal(difference, x - y)
    same.zero_()
    assert x.any()


def test_weights_keep_their_names_and_inputs_theirs(record, export):
    weight = torch.rand(2)
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.mul, (graph.placeholder("speed"), graph.get_attr("net.0.weight"))))
    recording = record(graph, torch.rand(2), constants={"net.0.weight": weight})
    _, info = export(PT2, recording, (torch.rand(2),))
    program = torch.export.load(info.paths[0])
    assert list(program.state_dict) == ["net.0.weight"]
    assert program.graph_signature.user_inputs == ("speed",)


def test_constants_may_be_called_anything(record, export):
    names = ("graph", "graph_", "forward", "type", "meta", "code.weight", "training.0.bias", "self.0", "0.bias")
    constants = {name: torch.rand(2) for name in names}
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for name in names:
        value = graph.call_function(torch.add, (value, graph.create_node("get_attr", name)))
    graph.output(value)
    x, other = torch.rand(2), torch.rand(2)
    recording = record(lambda x: x + 1, x)
    recording = type(recording)(recording.spec, graph, constants)
    run, _ = export(PT2, recording, (x,))
    expected = other
    for constant in constants.values():
        expected = expected + constant
    assert torch.equal(run(other)["out0"], expected)


def test_holds_no_example_and_no_source(record, export):
    secret = torch.tensor([1234.5678, 8765.4321, 1234.5678])
    recording = record(lambda x: torch.sin(x) + 1, torch.rand(3))
    _, info = export(PT2, recording, (secret,))
    with zipfile.ZipFile(info.paths[0]) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert any(name.endswith("model.json") for name in content)
    for name, data in content.items():
        assert secret.numpy().tobytes()[:4] not in data, name
        for word in (b"recorded as", b".py", b"eval_with_key", b"leapp"):
            assert word not in data, (name, word)
    model = next(json.loads(data) for name, data in content.items() if name.endswith("model.json"))
    nodes = model["graph_module"]["graph"]["nodes"]
    assert nodes
    assert not any("stack_trace" in node["metadata"] for node in nodes)


def test_writes_the_same_program_whoever_came_before(record, tmp_path):
    recording = record(lambda x: torch.sin(x) + 1, torch.rand(3))
    programs = []
    for order in ([PT2, ExportFormat.ONNX], [ExportFormat.ONNX, PT2]):
        fresh = type(recording)(recording.spec, recording.graph, recording.constants)
        for format in order:
            path = tmp_path / f"policy{format.suffix}"
            backend_for(format).write(fresh, (torch.rand(3),), path, ExportOptions())
        with zipfile.ZipFile(tmp_path / "policy.pt2") as archive:
            name = next(name for name in archive.namelist() if name.endswith("model.json"))
            programs.append(archive.read(name))
    assert programs[0] == programs[1]


def test_one_export_serves_pt2_and_onnx(record, tmp_path, monkeypatch):
    calls = []
    export = torch.export.export

    def counted(*args, **kwargs):
        calls.append(args)
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", counted)
    recording = record(lambda x: x + 1, torch.rand(3))
    for format in (PT2, ExportFormat.ONNX, PT2):
        backend_for(format).write(recording, (torch.rand(3),), tmp_path / f"p{format.suffix}", ExportOptions())
    assert len(calls) == 1
    backend_for(PT2).write(record(lambda x: x - 1, torch.rand(3)), (torch.rand(3),), tmp_path / "q", ExportOptions())
    assert len(calls) == 2


def test_an_exported_program_goes_with_its_recording(record, tmp_path):
    recording = record(lambda x: x + 1, torch.rand(3))
    backend_for(PT2).write(recording, (torch.rand(3),), tmp_path / "p.pt2", ExportOptions())
    program = weakref.ref(pt2._kept.program)
    del recording
    gc.collect()
    assert pt2._kept is None
    assert program() is None


def test_weights_are_taken_by_reference(record):
    weight = torch.rand(4)
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.mul, (graph.placeholder("x"), graph.get_attr("w"))))
    recording = record(graph, torch.rand(4), constants={"w": weight})
    program = pt2.exported_program(recording, (torch.rand(4),), PT2)
    assert program.state_dict["w"].data_ptr() == recording.constants["w"].data_ptr()


def test_names_the_op_that_it_cannot_hold(record, tmp_path):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.add, (x, 1))
    close = graph.call_function(torch.allclose, (y, x))
    graph.output(graph.call_function(torch.mul, (y, close)))
    recording = record(graph, torch.rand(2))
    path = tmp_path / "policy.pt2"
    with pytest.raises(UnsupportedOpError) as caught:
        backend_for(PT2).write(recording, (torch.rand(2),), path, ExportOptions())
    facts = caught.value.facts
    assert facts["op"] == "torch.allclose"
    assert facts["where"] == "user.py:2"
    assert facts["node"] == "policy"
    assert "\n" not in facts["why"]
    assert not list(tmp_path.iterdir())


def test_long_chains(record, chain, export):
    x = torch.rand(2)
    recording = record(chain(1500), x)
    run, _ = export(PT2, recording, (x,))
    other = torch.rand(2)
    assert torch.equal(run(other)["out0"], run_graph(recording, {"in0": other})["out0"])


@pytest.mark.slow
def test_20000_chained_operations(record, chain, export):
    x = torch.rand(2)
    recording = record(chain(20_000), x)
    started = time.perf_counter()
    run, _ = export(PT2, recording, (x,))
    assert time.perf_counter() - started < 200
    other = torch.rand(2)
    assert torch.equal(run(other)["out0"], run_graph(recording, {"in0": other})["out0"])


def test_a_file_that_is_none(record, tmp_path):
    path = tmp_path / "policy.pt2"
    path.write_bytes(b"not a model")
    spec = record(lambda x: x + 1, torch.rand(2)).spec
    with pytest.raises(ArtifactLoadError, match=r"policy\.pt2"):
        backend_for(PT2).open(path, spec)
    with pytest.raises(ArtifactLoadError, match=r"missing\.pt2"):
        backend_for(PT2).open(tmp_path / "missing.pt2", spec)
