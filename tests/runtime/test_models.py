"""Models in every loader: dtypes and shapes at the edge, foreign models with manners of their own, torch's settings."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from pipelines import Pipeline, onnx_file, port

import leapp
from leapp import errors

FLOATS = "float16 bfloat16 float32 float64".split()
DTYPES = [*FLOATS, *"int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()]


def scripted(module):
    data = io.BytesIO()
    torch.jit.save(torch.jit.script(module), data)
    return data.getvalue()


def exported(module, *example):
    data = io.BytesIO()
    torch.export.save(torch.export.export(module, example), data)
    return data.getvalue()


def one_node(folder, inputs, outputs, ops=None, **files):
    pipeline = Pipeline(folder).node("n", inputs, outputs, ops, **files)
    names = {"inputs": {"n": [each["name"] for each in inputs]}, "outputs": {"n": [each["name"] for each in outputs]}}
    return pipeline.wires(**names)


class Same(torch.nn.Module):
    def forward(self, x):
        return x.clone()


# --- dtypes and shapes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    """A node per dtype and shape that gives its input again, chained over three loaders."""
    folder = tmp_path_factory.mktemp("same")
    pipeline = Pipeline(folder)
    data = scripted(Same())
    flows, ports = {}, {}
    for dtype in DTYPES:
        for at, shape in enumerate([(), (3,), (2, 0), (2, 1, 2)]):
            name = f"{dtype}{at}"
            x, y = port("x", *shape, dtype=dtype), port("y", *shape, dtype=dtype)
            pipeline.node(f"{name}a", [x], [y], [("Identity", "x", "y")])
            pipeline.node(f"{name}b", [x], [y], jit=data)
            pipeline.node(f"{name}c", [x], [y], [("Identity", "x", "y")])
            flows |= {f"{name}a/y": [f"{name}b/x"], f"{name}b/y": [f"{name}c/x"]}
            ports[name] = (dtype, shape)
    wires = {"inputs": {f"{name}a": ["x"] for name in ports}, "outputs": {f"{name}c": ["y"] for name in ports}}
    run = leapp.InferenceManager(pipeline.wires(data_flow=flows, **wires).write())
    return run, ports


@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_every_dtype_and_shape_goes_through_unchanged(same, kind):
    run, ports = same
    rng = np.random.default_rng(5)
    given = {}
    for name, (dtype, shape) in ports.items():
        tensor = torch.from_numpy(rng.integers(0, 100, shape).astype(np.float64)).to(getattr(torch, dtype))
        given[f"{name}a/x"] = tensor
    inputs = given
    if kind == "array":
        inputs = {
            key: tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype is torch.bfloat16 else tensor.numpy()
            for key, tensor in given.items()
        }
    for _ in range(2):
        results = run(inputs)
    for key, tensor in given.items():
        result = results[key.replace("a/x", "c/y")]
        assert (result.dtype, result.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(result, tensor)


def test_mock_inputs_fit(same):
    run, ports = same
    mock = run.get_mock_input()
    assert {key: (str(value.dtype).removeprefix("torch."), tuple(value.shape)) for key, value in mock.items()} == {
        f"{name}a/x": facts for name, facts in ports.items()
    }
    run(mock)
    again = run.get_mock_input()
    assert any(not torch.equal(mock[key], again[key]) for key in mock)


def test_mock_inputs_keep_to_the_range_and_can_be_had_again(tmp_path):
    x, k = port("x", 100, range=[2, 3]), port("k", 100, dtype="int64", range=[5, 9])
    outputs = [port("y", 100), port("j", 100, dtype="int64")]
    path = one_node(tmp_path, [x, k], outputs, [("Identity", "x", "y"), ("Identity", "k", "j")]).write()
    runs = [leapp.InferenceManager(path) for _ in range(2)]
    first, other = (run.get_mock_input() for run in runs)
    assert torch.equal(first["n/x"], other["n/x"])
    assert 2 <= first["n/x"].min() < first["n/x"].max() <= 3
    assert 5 <= first["n/k"].min() < first["n/k"].max() <= 9
    assert not torch.equal(runs[0].get_mock_input(seed=4)["n/x"], first["n/x"])
    assert torch.equal(runs[0].get_mock_input(seed=0)["n/x"], first["n/x"])


def test_parameters_scalars_and_odd_layouts_are_taken(tmp_path):
    ports = [port("x", 2, 3)], [port("y", 2, 3)]
    run = leapp.InferenceManager(one_node(tmp_path, *ports, [("Identity", "x", "y")]).write())
    x = torch.arange(6.0).reshape(2, 3)
    for value in (torch.nn.Parameter(x), x.T.contiguous().T, x.numpy().T.copy().T, x.requires_grad_().clone()):
        result = run({"n/x": value})["n/y"]
        assert torch.equal(result, x)
        assert not result.requires_grad
    x = np.zeros((2, 3), "f")
    x.flags.writeable = False
    assert run({"n/x": x})["n/y"].tolist() == x.tolist()


# --- foreign models ------------------------------------------------------------------------------------------------


class Writes(torch.nn.Module):
    """Writes its input, and hands the very object back."""

    def forward(self, x, k):
        x += k
        return x


class WritesWeighed(torch.nn.Module):
    """The same, with constants, which an exported graph has before its inputs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.ones(2))
        self.register_buffer("two", 2 * torch.ones(2))

    def forward(self, k, x):
        x[0:1].add_((k * self.one)[0:1])
        x[1] += (k * self.two)[1]
        return x * self.one


class Remembers(torch.nn.Module):
    """Keeps state in ways of its own, and has a layer that would while it is trained."""

    def __init__(self):
        super().__init__()
        self.register_buffer("h", torch.zeros(2))
        self.register_buffer("c", torch.zeros(2))
        self.register_buffer("constant", torch.ones(2))
        self.layer = torch.nn.BatchNorm1d(2)

    def forward(self, x):
        self.h = self.h + x * self.constant
        self.c[0:1] += x[0]
        return self.layer((self.h + self.c).reshape(1, 2)).reshape(2)


class Named(torch.nn.Module):
    def forward(self, x):
        return {"b": x + 1, "a": x * 2}


class Listed(torch.nn.Module):
    def forward(self, x):
        return [x + 1, x * 2]


@pytest.mark.parametrize("backend", ["jit", "pt2"])
def test_a_model_that_writes_its_inputs_harms_nobody(tmp_path, backend):
    x, k = port("x", 2), port("k", 2)
    data = scripted(Writes()) if backend == "jit" else exported(Writes(), torch.zeros(2), torch.zeros(2))
    pipeline = (
        Pipeline(tmp_path)
        .node("first", [port("x", 2)], [port("y", 2)], jit=scripted(Same()))
        .node("writes", [x, k], [port("y", 2)], **{backend: data})
        .node("state", [port("held", 2), k], [port("next", 2)], **{backend: data})
        .wires(
            data_flow={"first/y": ["writes/x"]},
            feedback_flow={"state/next": ["state/held"]},
            inputs={"first": ["x"], "writes": ["k"], "state": ["k"]},
            outputs={"first": ["y"], "writes": ["y"], "state": ["next"]},
        )
        .start(state__held=np.float32([0, 0]))
    )
    run = leapp.InferenceManager(pipeline.write())
    inputs = {"first/x": torch.ones(2), "writes/k": torch.ones(2), "state/k": torch.ones(2)}
    for tick in range(1, 6):
        results = run(inputs)
        assert results["first/y"].tolist() == [1, 1]
        assert results["writes/y"].tolist() == [2, 2]
        assert results["state/next"].tolist() == [tick, tick]
    assert all(value.tolist() == [1, 1] for value in inputs.values())


@pytest.mark.parametrize("backend", ["jit", "pt2"])
def test_written_inputs_are_told_from_constants(tmp_path, backend):
    data = scripted(WritesWeighed()) if backend == "jit" else exported(WritesWeighed(), torch.zeros(2), torch.zeros(2))
    k, x = port("k", 2), port("x", 2)
    pipeline = one_node(tmp_path, [k, x], [port("y", 2)], **{backend: data})
    pipeline.node("first", [port("x", 2)], [port("y", 2)], jit=scripted(Same()))
    pipeline.wires(
        data_flow={"first/y": ["n/x"]}, inputs={"first": ["x"], "n": ["k"]}, outputs={"first": ["y"], "n": ["y"]}
    )
    run = leapp.InferenceManager(pipeline.write())
    for _ in range(3):
        results = run({"first/x": torch.ones(2), "n/k": torch.ones(2)})
        assert results["first/y"].tolist() == [1, 1]
        assert results["n/y"].tolist() == [2, 3]


@pytest.mark.parametrize("backend", ["jit", "pt2"])
def test_a_model_that_keeps_state_inside_itself_is_named(tmp_path, backend):
    module = Remembers().eval()
    data = scripted(module) if backend == "jit" else exported(module, torch.zeros(2))
    path = one_node(tmp_path, [port("x", 2)], [port("y", 2)], **{backend: data}).write()
    with pytest.warns(errors.HiddenModelStateWarning, match=r"Node 'n': .*inside itself \(c, h\)") as noticed:
        leapp.InferenceManager(path)
    assert noticed[0].filename == __file__


@pytest.mark.parametrize(("module", "expected"), [(Named(), {"a": [2], "b": [2]}), (Listed(), {"a": [2], "b": [2]})])
def test_outputs_by_name_and_in_a_list(tmp_path, module, expected):
    outputs = [port("a", 1), port("b", 1)]
    run = leapp.InferenceManager(one_node(tmp_path, [port("x", 1)], outputs, jit=scripted(module)).write())
    assert {key: value.tolist() for key, value in run({"n/x": np.float32([1])}).items()} == {
        f"n/{name}": value for name, value in expected.items()
    }


WRONG_OUTPUTS = [
    ([port("y", 3)], "output 'y' is float32[2], the runtime file has float32[3]"),
    ([port("y", 2, dtype="float64")], "output 'y' is float32[2], the runtime file has float64[2]"),
    ([port("y", 2), port("z", 2)], "it gave 1 instead of 2 outputs"),
]


@pytest.mark.parametrize(("outputs", "why"), WRONG_OUTPUTS, ids=[why for _, why in WRONG_OUTPUTS])
def test_torch_models_that_give_something_else(tmp_path, outputs, why):
    run = leapp.InferenceManager(one_node(tmp_path, [port("x", 2)], outputs, jit=scripted(Same())).write())
    with pytest.raises(errors.NodeFailedError, match="Node 'n' failed as jit: ") as caught:
        run(run.get_mock_input())
    assert why in str(caught.value)


def test_torch_models_with_other_inputs_are_refused(tmp_path):
    two = [port("x", 2), port("z", 2)]
    for at, files in enumerate(({"jit": scripted(Same())}, {"pt2": exported(Same(), torch.zeros(2))})):
        path = one_node(tmp_path / str(at), two, [port("y", 2)], **files).write()
        with pytest.raises(errors.ArtifactLoadError, match=r"it takes \['x'\], the runtime file has \['x', 'z'\]"):
            leapp.InferenceManager(path)


ONNX_PORTS = [
    ([port("x", 3)], [port("y", 2)], r"its input 'x' is float32\[2\], the runtime file has float32\[3\]"),
    ([port("x", 2, dtype="float64")], [port("y", 2)], r"is float32\[2\], the runtime file has float64\[2\]"),
    ([port("x", 2)], [port("y", 1, 2)], r"its output 'y' is float32\[2\], the runtime file has float32\[1, 2\]"),
    ([port("q", 2), port("r", 2)], [port("y", 2)], r"its inputs are \['x'\], the runtime file has \['q', 'r'\]"),
    ([port("x", 2)], [port("y", 2), port("z", 2)], r"its outputs are \['y'\], the runtime file has \['y', 'z'\]"),
]


@pytest.mark.parametrize(("inputs", "outputs", "why"), ONNX_PORTS, ids=["size", "dtype", "rank", "inputs", "outputs"])
def test_onnx_models_with_other_ports_are_refused(tmp_path, inputs, outputs, why):
    onnx_file(tmp_path / "m.onnx", {"inputs": [port("x", 2)], "outputs": [port("y", 2)]}, [("Identity", "x", "y")])
    path = one_node(tmp_path, inputs, outputs, onnx=(tmp_path / "m.onnx").read_bytes()).write()
    with pytest.raises(errors.ArtifactLoadError, match=why):
        leapp.InferenceManager(path)


def test_onnx_models_without_unused_inputs_and_with_more_outputs(tmp_path):
    own = {"inputs": [port("x", 2)], "outputs": [port("w", 2), port("y", 2)]}
    onnx_file(tmp_path / "m.onnx", own, [("Add", "x x", "y"), ("Neg", "x", "w")])
    ports = [port("unused", 3), port("x", 2)], [port("y", 2)]
    run = leapp.InferenceManager(one_node(tmp_path, *ports, onnx=(tmp_path / "m.onnx").read_bytes()).write())
    result = run({"n/unused": np.zeros(3, "f"), "n/x": np.float32([1, 2])})
    assert {key: value.tolist() for key, value in result.items()} == {"n/y": [2, 4]}


def test_onnx_models_with_names_of_their_own_are_fed_in_order(tmp_path):
    own = {"inputs": [port("in0", "n"), port("in1", "n")], "outputs": [port("out", "n")]}
    onnx_file(tmp_path / "m.onnx", own, [("Sub", "in0 in1", "out")])
    ports = [port("b", 2), port("a", 2)], [port("y", 2)]
    run = leapp.InferenceManager(one_node(tmp_path, *ports, onnx=(tmp_path / "m.onnx").read_bytes()).write())
    assert run({"n/a": np.float32([1, 1]), "n/b": np.float32([5, 6])})["n/y"].tolist() == [4, 5]


def test_an_onnx_model_whose_result_has_another_shape_fails_by_name(tmp_path):
    own = {"inputs": [port("x", "n")], "outputs": [port("y", "m")]}
    onnx_file(tmp_path / "m.onnx", own, [("Identity", "x", "y")])
    path = one_node(tmp_path, [port("x", 3)], [port("y", 2)], onnx=(tmp_path / "m.onnx").read_bytes()).write()
    run = leapp.InferenceManager(path)
    with pytest.raises(errors.NodeFailedError, match="Node 'n' failed as onnx"):
        run(run.get_mock_input())
    assert run.outputs["n/y"].tolist() == [0, 0]


def test_files_that_are_no_models(tmp_path):
    for at, backend in enumerate(("onnx", "jit", "pt2")):
        path = one_node(tmp_path / str(at), [port("x", 2)], [port("y", 2)], **{backend: b"no model"}).write()
        with pytest.raises(errors.ArtifactLoadError, match="could not be loaded as"):
            leapp.InferenceManager(path)


# --- torch's settings ----------------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """One layer in both of torch's formats, fed back to itself, and the layer."""
    torch.manual_seed(2)
    module = Layer().eval()
    x, y = port("x", 3), port("y", 3)
    folder = tmp_path_factory.mktemp("layers")
    pipeline = Pipeline(folder).node("n", [x], [y], jit=scripted(module), pt2=exported(module, torch.zeros(3)))
    pipeline.wires(feedback_flow={"n/y": ["n/x"]}, inputs={}, outputs={"n": ["y"]})
    return pipeline.start(n__x=np.float32([1, 2, 3])).write(), module


@pytest.mark.parametrize("format", ["torchscript", "pt2"])
def test_what_the_caller_set_in_torch_neither_disturbs_nor_is_changed(layers, format):
    path, module = layers
    with torch.no_grad():
        once = module(torch.tensor([1.0, 2.0, 3.0]))
        twice = module(once)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    torch._C._set_graph_executor_optimize(True)  # as it is unless someone changed it
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            run = leapp.InferenceManager(path, formats=format)
            first = run()["n/y"]
            assert torch.is_autocast_enabled("cpu")
        torch.testing.assert_close(first, once)
        second = run({})["n/y"]
        torch.testing.assert_close(second, twice)
        assert not second.requires_grad
        assert torch.is_grad_enabled()
        assert torch.get_num_threads() == 3
        assert torch._C._get_graph_executor_optimize()
    finally:
        torch.set_num_threads(before)


def test_models_run_on_as_many_threads_as_were_asked_for(tmp_path):
    seen = []

    def look(inputs):
        seen.append(torch.get_num_threads())
        return {"y": inputs["x"]}

    path = one_node(tmp_path, [port("x", 2)], [port("y", 2)]).write()
    before = torch.get_num_threads()
    for threads in (1, 2):
        run = leapp.InferenceManager(path, threads=threads, callables={"n": look})
        run(run.get_mock_input())
    assert seen == [1, 2]
    assert torch.get_num_threads() == before
    for threads in (0, -1, 1.0, True, None):
        with pytest.raises(errors.OptionError, match=r"threads=(.|\n)*Give InferenceManager\(threads="):
            leapp.InferenceManager(path, threads=threads)


# --- formats -------------------------------------------------------------------------------------------------------


def test_the_format_is_chosen_for_all_nodes_or_for_some(tmp_path):
    x, y = [port("x", 2)], [port("y", 2)]
    onnx_file(tmp_path / "m.onnx", {"inputs": x, "outputs": y}, [("Identity", "x", "y")])
    onnx, jit = (tmp_path / "m.onnx").read_bytes(), scripted(Same())
    pipeline = Pipeline(tmp_path).node("a", x, y, onnx=onnx, jit=jit).node("b", x, y, jit=jit, onnx=onnx)
    path = (
        pipeline.node("c", x, y, onnx=onnx)
        .wires(data_flow={"a/y": ["b/x"], "b/y": ["c/x"]}, inputs={"a": ["x"]}, outputs={"c": ["y"]})
        .write()
    )
    for formats, backends in (
        (None, {"a": "onnx", "b": "jit", "c": "onnx"}),
        ("onnx", {"a": "onnx", "b": "onnx", "c": "onnx"}),
        ({"a": "torchscript", "b": "onnx-dynamo"}, {"a": "jit", "b": "onnx", "c": "onnx"}),
        ({}, {"a": "onnx", "b": "jit", "c": "onnx"}),
    ):
        run = leapp.InferenceManager(path, formats=formats)
        assert run.backends == backends
        assert run({"a/x": np.float32([3, 4])})["c/y"].tolist() == [3, 4]
    with pytest.raises(
        errors.NoModelError, match="Node 'c' has no model file as torchscript: it has onnx(.|\n)*--format c=onnx"
    ):
        leapp.InferenceManager(path, formats="jit")
    with pytest.raises(
        errors.UnknownFormatError,
        match=r"'onx' for node 'b'\.\nDid you mean 'onnx'\? Known formats: onnx, pt2, torchscript\.",
    ):
        leapp.InferenceManager(path, formats={"b": "onx"})
    with pytest.raises(errors.UnknownNodeNameError, match="formats names 'd'"):
        leapp.InferenceManager(path, formats={"d": "onnx"})
