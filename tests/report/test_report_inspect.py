"""`leapp inspect` on a bundle that was really exported: what it says, and that its programs run that very bundle."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import leapp  # noqa: E402
from leapp import annotate, cli  # noqa: E402
from leapp._source import install_command  # noqa: E402
from leapp.bundle import write  # noqa: E402
from leapp.errors import SnippetError  # noqa: E402
from leapp.report.facts import collect  # noqa: E402
from leapp.report.snippets import python_snippets, snippet  # noqa: E402

NODE = 'see "é"'
"""A name that every language has to write with care."""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.register_buffer("mean", torch.tensor([0.5, -1.0, 2.0, 0.25]))

    def forward(self, x):
        return self.layer(x - self.mean)


class Pipeline:
    """Two nodes: a network with state that starts as stored values, and one that feeds back to the first."""

    def __init__(self):
        torch.manual_seed(3)
        self.net = Net()
        self.gain = torch.tensor([1.0, 2.0, 3.0])
        self.memory = torch.zeros(3)
        self.trend = torch.tensor([[0.5, -0.5, 1.5]])

    def tick(self, x, count, formats=None):
        record = formats is not None
        memory, trend = self.memory, self.trend
        if record:
            x, count, memory = annotate.input_tensors(NODE, {"joint pos": x, "count": count, "memory": memory})
            trend = annotate.state_tensors(NODE, {"trend": trend})
            trend = trend["trend"] if isinstance(trend, dict) else trend
        moved = torch.tanh(self.net(x)) * self.gain + 0.5 * trend
        features = moved + memory + count
        if record:
            annotate.update_state(NODE, {"trend": moved})
            features = annotate.output_tensors(NODE, {"features": features}, export_with=formats)
            features = annotate.input_tensors("act", {"features": features})
        action, memory = torch.sin(features), features[0] * 0.25
        if record:
            action, memory = annotate.output_tensors(
                "act", {"action": action, "memory_out": memory}, export_with=formats
            )
        self.memory, self.trend = memory, moved.detach()
        return action, memory


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inspected")
    pipeline = Pipeline()
    start = pipeline.trend
    leapp.start("seen", save_path=str(folder))
    for number in range(2):
        pipeline.trend = start  # the state starts as these values in every session
        pipeline.tick(torch.randn(1, 4), torch.tensor([number]), ["onnx", "jit", "pt2"])
    leapp.stop()
    assert leapp.compile_graph(graph_configs=leapp.GraphConfigs(frequency=50))
    return folder / "seen"


@pytest.fixture(scope="module")
def facts(bundle):
    return collect(bundle)


@pytest.fixture(scope="module")
def failed(bundle, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("failed") / "seen"
    shutil.copytree(bundle, folder)
    (folder / "bundle.json").unlink()
    write.seal(folder, name="seen", version="0.0.0", status="failed")
    return folder


def test_the_text_says_it_all(bundle, capsys):
    assert cli.main(["inspect", str(bundle)]) == 0
    out = capsys.readouterr().out
    for line in (
        r"seen 0\.0\.0  ok",
        r"frequency  50",
        rf"node {NODE}  \d+ operations, 2 parameters \(60 B\), 1 buffer \(16 B\), 1 constant \(12 B\)",
        r"parameter  layer\.weight +float32  \[3, 4\] +48 B  \S*test_report_inspect\.py:\d+",
        r"buffer     mean +float32  \[4\] +16 B  \S*test_report_inspect\.py:\d+",
        r"constant   _tensor_constant0 +float32  \[3\] +12 B  \S*test_report_inspect\.py:\d+",
        rf"{NODE}/memory +act/memory_out +zeros",
        rf"{NODE}/trend_in +{NODE}/trend_out +stored values",
        r"act/memory_out +\(outside\) +outer output",
    ):
        assert re.search(rf"^{line}", out, re.MULTILINE), line


def test_json_is_complete(bundle, capsys):
    assert cli.main(["inspect", str(bundle), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["ok"] is True
    first, second = record["nodes"]
    assert {each["name"]: each["role"] for each in first["constants"]} == {
        "layer.bias": "parameter",
        "layer.weight": "parameter",
        "mean": "buffer",
        "_tensor_constant0": "constant",
    }
    assert [each["format"] for each in second["artifacts"]] == ["onnx", "torchscript", "pt2"]
    assert record["state"] == [
        {"input": f"{NODE}/memory", "output": "act/memory_out", "start": "zeros", "note": None},
        {"input": f"{NODE}/trend_in", "output": f"{NODE}/trend_out", "start": "stored values", "note": None},
    ]
    assert {(row["node"], row["format"], row["ok"]) for row in record["checks"]} >= {("act", "pt2", True)}


def test_a_failed_bundle_says_so_first_and_exits_with_1(failed, capsys):
    assert cli.main(["inspect", str(failed)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["seen 0.0.0  failed", "A check of its build did not pass: do not deploy it."]
    assert cli.main(["inspect", str(failed), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["ok"], record["status"]) == (False, "failed")
    assert cli.main(["inspect", str(failed), "--snippet", "js"]) == 1


def test_pictures_are_written_where_asked(bundle, tmp_path, capsys):
    pytest.importorskip("pygraphviz")
    assert (bundle / "seen.png").read_bytes().startswith(b"\x89PNG")
    svg, png = tmp_path / "p.svg", tmp_path / "p.png"
    assert cli.main(["inspect", str(bundle), "--svg", str(svg), "--png", str(png)]) == 0
    assert png.read_bytes() == (bundle / "seen.png").read_bytes()
    assert cli.main(["inspect", str(bundle), "--svg", "-"]) == 0
    assert capsys.readouterr().out == svg.read_text("utf-8")
    assert "starts" not in svg.read_text("utf-8")
    assert "from stored values" in svg.read_text("utf-8")
    assert cli.main(["inspect", str(bundle), "--png", str(tmp_path / "none" / "p.png")]) == 2
    assert "could not be written: No such file or directory." in capsys.readouterr().err


def test_without_the_library_the_bundle_is_complete_and_its_log_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    leapp.start("plain", save_path=str(tmp_path))
    x = annotate.input_tensors("n", {"x": torch.ones(2)})
    annotate.output_tensors("n", {"y": x * 2}, export_with="jit")
    leapp.stop()
    assert leapp.compile_graph()
    assert not (tmp_path / "plain" / "plain.png").exists()
    log = (tmp_path / "plain" / "log.txt").read_text("utf-8")
    assert "no picture: Drawing a pipeline needs pygraphviz, which is not installed.\nInstall it: " in log
    assert cli.main(["verify", str(tmp_path / "plain")]) == 0
    assert cli.main(["inspect", str(tmp_path / "plain"), "--png", str(tmp_path / "p.png")]) == 2
    assert f"Install it: {install_command('picture')}\n" in capsys.readouterr().err


def test_nothing_is_drawn_where_no_picture_is_wanted(tmp_path):
    leapp.start("bare", save_path=str(tmp_path))
    x = annotate.input_tensors("n", {"x": torch.ones(2)})
    annotate.output_tensors("n", {"y": x * 2}, export_with="jit")
    leapp.stop()
    assert leapp.compile_graph(visualize=False)
    assert not list((tmp_path / "bare").glob("*.png"))
    assert "no picture" not in (tmp_path / "bare" / "log.txt").read_text("utf-8")


def ticks(seed):
    random = np.random.default_rng(seed)
    return [
        {
            f"{NODE}/joint pos": random.normal(size=(1, 4)).astype("float32"),
            f"{NODE}/count": random.integers(0, 5, (1,)),
        }
        for _ in range(4)
    ]


def expected(rows):
    """What the untraced code gives from its start on, after the ticks on zeros that every program runs."""
    pipeline = Pipeline()
    for _ in range(3):
        pipeline.tick(torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64))
    return [
        tuple(each.detach().numpy() for each in pipeline.tick(*map(torch.from_numpy, row.values()))) for row in rows
    ]


def test_the_python_program_with_leapp_runs_the_bundle(bundle, facts, capsys):
    program, _ = python_snippets(facts, bundle)
    names = {}
    exec(program, names)
    assert capsys.readouterr().out == "{'act/action': (1, 3), 'act/memory_out': (3,)}\n"
    rows = ticks(1)
    for row, (action, memory) in zip(rows, expected(rows), strict=True):
        found = names["runtime"](row)
        np.testing.assert_allclose(found["act/action"], action, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["act/memory_out"], memory, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["onnx", "jit", "pt2"])
def test_the_python_program_without_leapp_runs_the_bundle(bundle, facts, capsys, backend):
    _, program = python_snippets(facts, bundle, (backend,))
    assert "leapp" not in program.replace(str(bundle), "")
    names = {}
    exec(program, names)
    assert capsys.readouterr().out == "{'act/action': (1, 3), 'act/memory_out': (3,)}\n"
    rows = ticks(2)
    for row, (action, memory) in zip(rows, expected(rows), strict=True):
        found = names["tick"](row)
        np.testing.assert_allclose(found["act/action"], action, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["act/memory_out"], memory, rtol=1e-5, atol=1e-6)


def test_the_python_programs_are_printed(bundle, capsys):
    assert cli.main(["inspect", str(bundle), "--snippet", "python"]) == 0
    out = capsys.readouterr().out
    assert compile(out, "printed", "exec")
    assert out.count(json.dumps(str(bundle))) == 2


def test_javascript_names_every_port_with_its_type_and_shape(bundle, facts, tmp_path):
    program = snippet(facts, bundle, "js")
    name = json.dumps(NODE)[1:-1]
    for line in (
        f'"{name}/joint pos": new ort.Tensor("float32", new Float32Array(4), [1, 4]),',
        f'"{name}/count": new ort.Tensor("int64", new BigInt64Array(1), [1]),',
        f'"{name}/memory": new ort.Tensor("float32", new Float32Array(3), [3]),',
        f'"joint pos": values["{name}/joint pos"],',
        f'"features": values["{name}/features"],',
        f'state["{name}/memory"] = values["act/memory_out"];',
        f'BUNDLE + "/nodes/{name}/{name}.onnx"',
    ):
        assert line in program, line
    (offset,) = re.findall(r'trend_in": new ort.Tensor\("float32", new Float32Array\(stored\((\d+), 12\)\)', program)
    data = (bundle / "seen_initial_values.safetensors").read_bytes()
    assert np.frombuffer(data, "<f4", 3, int(offset)).tolist() == [0.5, -0.5, 1.5]
    if shutil.which("node"):
        (tmp_path / "run.mjs").write_text(program, "utf-8")
        subprocess.run(["node", "--check", "run.mjs"], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)


ONNX_RUNTIME = """\
#pragma once
#include <cstddef>
#include <cstdint>
enum ONNXTensorElementDataType { ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 };
enum OrtAllocatorType { OrtArenaAllocator };
enum OrtMemType { OrtMemTypeDefault };
namespace Ort {
struct Env {};
struct RunOptions {};
struct SessionOptions { SessionOptions& SetIntraOpNumThreads(int); };
struct MemoryInfo { static MemoryInfo CreateCpu(OrtAllocatorType, OrtMemType); };
struct Value {
    Value(Value&&); Value(const Value&) = delete;
    static Value CreateTensor(const void*, void*, size_t, const int64_t*, size_t, ONNXTensorElementDataType);
    static Value CreateTensor(const MemoryInfo&, void*, size_t, const int64_t*, size_t, ONNXTensorElementDataType);
};
struct Session {
    Session(const Env&, const char*, const SessionOptions&); Session(Session&&); Session(const Session&) = delete;
    void Run(const RunOptions&, const char* const*, const Value*, size_t, const char* const*, Value*, size_t);
};
}
"""
"""The part of ONNX Runtime's C++ interface that a program uses, as its documentation has it."""


def test_cpp_for_onnx_runtime_is_sound(bundle, facts, tmp_path):
    program = snippet(facts, bundle, "cpp")
    assert '{"act/action", {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {1, 3}, 12}}' in program
    assert r'"see \"\303\251\"/count", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, {1}, 8}' in program
    check_cpp(program, tmp_path, "onnxruntime_cxx_api.h", ONNX_RUNTIME, "-std=c++17")


TORCH = """\
#pragma once
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>
#include <memory>
#include <initializer_list>
#include <cstdint>
namespace torch {
enum Dtype { kFloat32, kInt64 };
struct Sizes {}; std::ostream& operator<<(std::ostream&, Sizes);
struct Tensor { Tensor clone() const; void* data_ptr() const; Sizes sizes() const; };
struct InferenceMode { InferenceMode(); ~InferenceMode(); };
Tensor zeros(std::initializer_list<int64_t>, Dtype);
struct Tuple;
struct IValue { IValue(Tensor); Tensor toTensor() const; std::shared_ptr<Tuple> toTuple() const; };
struct Tuple { const std::vector<IValue>& elements() const; };
namespace jit { struct Module { IValue forward(std::vector<IValue>); }; Module load(const std::string&); }
}
"""
"""Likewise of LibTorch's."""


def test_cpp_for_libtorch_is_sound(facts, bundle, tmp_path):
    program = snippet(only(facts, "jit"), bundle, "cpp")
    assert "torch::zeros({1, 4}, torch::kFloat32)" in program
    (tmp_path / "torch").mkdir()
    check_cpp(program, tmp_path, "torch/script.h", TORCH, "-std=c++20")


@pytest.mark.slow
def test_cpp_for_libtorch_compiles_with_the_headers_of_torch(facts, bundle, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("no g++")
    (tmp_path / "run.cpp").write_text(snippet(only(facts, "jit"), bundle, "cpp"), "utf-8")
    include = Path(torch.__file__).parent / "include"
    folders = ("-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include"))
    command = ["g++", "-std=c++20", "-fsyntax-only", *folders, "run.cpp"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def check_cpp(program, folder, header, stand_in, standard):
    if not shutil.which("g++"):
        return
    (folder / header).write_text(stand_in, "utf-8")
    (folder / "run.cpp").write_text(program, "utf-8")
    command = ["g++", standard, "-Wall", "-Werror", "-fsyntax-only", "-isystem", str(folder), "run.cpp"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def only(facts, *backends):
    from dataclasses import replace

    nodes = [
        replace(node, artifacts=tuple(each for each in node.artifacts if each.backend in backends))
        for node in facts.nodes
    ]
    return replace(facts, nodes=tuple(nodes))


def test_the_page_about_looking_at_bundles_has_commands_that_exist():
    page = (Path(__file__).parents[2] / "docs" / "pictures.md").read_text("utf-8")
    commands = re.findall(r"^leapp (.+)$", page, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert cli._parser().parse_args(shlex.split(command, comments=True)).command == "inspect"


@pytest.mark.parametrize(
    ("backends", "language", "message"),
    [
        (("jit",), "js", f"Nothing in JavaScript runs {NODE!r}: it needs ONNX, and there is: torchscript."),
        (("pt2",), "cpp", f"Nothing in C++ runs {NODE!r}: it needs ONNX, and there is: pt2."),
        ((), "python", f"Nothing in Python runs {NODE!r}: it needs ONNX or TorchScript or PT2, and there is: none."),
    ],
)
def test_what_a_language_cannot_run_is_named(bundle, facts, backends, language, message):
    with pytest.raises(SnippetError, match=f"^{re.escape(message)}"):
        snippet(only(facts, *backends), bundle, language)


@pytest.fixture(scope="module")
def difference(tmp_path_factory) -> Path:
    """A node whose state starts as a copy of an input, exported without ONNX."""
    folder = tmp_path_factory.mktemp("first")
    leapp.start("first", save_path=str(folder))
    x = annotate.input_tensors("n", {"x": torch.tensor([1.0, 2.0])})
    before = annotate.state_tensors("n", {"before": x})
    moved = x - before
    annotate.update_state("n", {"before": x * 1})
    annotate.output_tensors("n", {"moved": moved}, export_with="jit")
    leapp.stop()
    assert leapp.compile_graph(visualize=False)
    return folder / "first"


def test_a_state_that_starts_as_an_input_is_told_and_run(difference, capsys):
    assert cli.main(["inspect", str(difference)]) == 0
    assert re.search(r"^n/before +n/before +the first x", capsys.readouterr().out, re.MULTILINE)
    facts = collect(difference)
    with_leapp, without = python_snippets(facts, difference)
    first, second = {}, {}
    exec(with_leapp, first)
    exec(without, second)
    first["runtime"].reset()
    for number, (value, moved) in enumerate([([3.0, 5.0], [0.0, 0.0]), ([4.0, 1.0], [1.0, -4.0])]):
        inputs = {"n/x": np.array(value, "float32")}
        assert first["runtime"](inputs)["n/moved"].tolist() == moved
        assert second["tick"](inputs, first=number == 0)["n/moved"].tolist() == moved
    assert 'if (number == 0) values["n/before"] = values.at("n/x").clone();' in snippet(facts, difference, "cpp")


def test_models_that_are_not_in_the_bundle_are_to_be_named(bundle, facts):
    from dataclasses import replace

    first, second = facts.nodes
    outside = tuple(replace(each, path="seen.onnx", external=True) for each in first.artifacts)
    program, plain = python_snippets(replace(facts, nodes=(replace(first, artifacts=outside), second)), bundle)
    assert "model_dirs=[...]  # the folders of the model files that are not in the bundle" in program
    assert compile(program, "with", "exec")
    assert 'InferenceSession("seen.onnx")' in plain
