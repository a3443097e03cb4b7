"""Finished models that nodes bring along: the file as it is, its ports checked, its answers compared."""

import functools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import leapp
from leapp import _api, annotate, errors
from leapp._canonical import sha256_file
from leapp.bundle.read import load, verify
from leapp.trace import current as sessions

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def save_onnx(path, *, external=None, weight=WEIGHT, rows=1):
    """``features = tanh(image @ W) + bias`` and ``peak``, the largest of them: two inputs, two outputs."""
    nodes = [
        helper.make_node("MatMul", ["image", "W"], ["product"]),
        helper.make_node("Tanh", ["product"], ["squashed"]),
        helper.make_node("Add", ["squashed", "bias"], ["features"]),
        helper.make_node("ReduceMax", ["features"], ["peak"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "perception",
        [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [rows, 4]),
            helper.make_tensor_value_info("bias", TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("features", TensorProto.FLOAT, [rows, 3]),
            helper.make_tensor_value_info("peak", TensorProto.FLOAT, []),
        ],
        [numpy_helper.from_array(weight, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model.doc_string = "made elsewhere"
    options = {} if external is None else {
        "save_as_external_data": True, "location": external, "size_threshold": 0, "convert_attribute": False,
    }  # fmt: skip
    onnx.save(model, str(path), **options)
    return path


class Gain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(WEIGHT))

    def forward(self, image: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.tanh(image @ self.weight) + bias
        return features, features.amax()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One model as a file of each format."""
    folder = tmp_path_factory.mktemp("models")
    save_onnx(folder / "gain.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(Gain()).save(folder / "gain.pt")
    torch.export.save(torch.export.export(Gain(), (torch.zeros(1, 4), torch.zeros(3))), folder / "gain.pt2")
    return folder


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    if sessions.current() is not None:
        sessions.end("stop")
    _api._process.stopped = None


def perceive(image, bias, path, **params):
    """The file as its user runs it: outputs are plain arrays."""
    image, bias = annotate.input_tensors("perception", {"image": image, "bias": bias})
    session = onnxruntime.InferenceSession(path)
    features, peak = session.run(None, {"image": image, "bias": bias})
    return annotate.output_tensors(
        "perception", {"features": features, "peak": peak}, export_with=None,
        backend_params={"model_path": path, **params},
    )  # fmt: skip


def inputs(rows=1):
    return np.random.default_rng().normal(size=(rows, 4)).astype(np.float32), np.ones(3, np.float32)


def policy(features):
    features = annotate.input_tensors("policy", {"features": features})
    return annotate.output_tensors("policy", {"action": np.tanh(features) * 2}, export_with="torchscript")


def recorded(tmp_path, run, times=1, **options):
    leapp.start("demo", save_path=tmp_path, **options)
    for _ in range(times):
        run()
    leapp.stop()
    result = leapp.compile_graph()
    assert verify(tmp_path / "demo").ok
    return load(tmp_path / "demo"), result


def test_an_onnx_file_is_copied_wired_and_checked(tmp_path, models):
    path = models / "gain.onnx"
    bundle, result = recorded(tmp_path, lambda: policy(perceive(*inputs(), path)[0]), times=3, max_cached_io=2)
    assert result == {"perception": True, "policy": True}
    copy = bundle.artifact("perception")
    assert copy == bundle.folder / "nodes" / "perception" / "gain.onnx"
    assert copy.read_bytes() == path.read_bytes()
    parameters = bundle.contract["models"]["perception"]["parameters"]
    assert parameters["model_path"] == "nodes/perception/gain.onnx"
    assert parameters["sha256sum"] == sha256_file(path)
    assert parameters["backend"] == "onnx"
    assert parameters["opset_version"] == 17
    assert bundle.contract["pipeline"]["data_flow"] == {"perception/features": ["policy/features"]}
    manifest = bundle.node("perception")
    assert [each.method for each in manifest.artifacts] == ["brought"]
    assert (manifest.graph_sha256, manifest.constants, dict(manifest.ops)) == (None, (), {})
    assert not (bundle.folder / "nodes" / "perception" / "graph.json").exists()
    assert len({key.split("/")[0] for key in _samples(bundle, "perception")}) == 2
    assert "node perception: brings gain.onnx, entered 3 times" in (bundle.folder / "log.txt").read_text()


def test_inspect_and_the_page_tell_of_it(tmp_path, models, capsys):
    from leapp.cli import main

    for words in ({}, {"copy_original_model": False}):
        bundle, _ = recorded(tmp_path, functools.partial(perceive, *inputs(), models / "gain.onnx", **words))
        assert main(["inspect", str(bundle.folder)]) == 0
        said = capsys.readouterr().out
        assert "node perception  a model that was brought along" in said
        assert "gain.onnx" in said
        page = (bundle.folder / "evidence" / "report.html").read_text()
        assert "gain.onnx" in page
        assert "brought" in page


def _samples(bundle, node):
    from leapp.bundle.samples import read_tensors

    return read_tensors(bundle.folder / "evidence" / "samples" / f"{node}.safetensors")


def test_content_does_not_depend_on_what_went_through(tmp_path, models):
    digests = set()
    for name in ("first", "second"):
        leapp.start("demo", save_path=tmp_path / name)
        perceive(*inputs(), models / "gain.onnx")
        leapp.stop()
        leapp.compile_graph()
        digests.add(load(tmp_path / name / "demo").manifest.digest)
    assert len(digests) == 1


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_files_of_torch(tmp_path, models, suffix):
    path = models / f"gain{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.load(path) if suffix == ".pt" else torch.export.load(path).module()

    @annotate.method("perception", backend_params={"model_path": str(path)})
    def perceive(image, bias):
        with torch.no_grad():
            features, peak = model(image.detach(), bias.detach())
        return {"features": features, "peak": peak}

    bundle, result = recorded(tmp_path, lambda: perceive(torch.randn(1, 4), torch.randn(3)), times=2)
    assert result == {"perception": True}
    assert bundle.artifact("perception").read_bytes() == path.read_bytes()
    (artifact,) = bundle.artifacts("perception")
    assert artifact.backend == {".pt": "jit", ".pt2": "pt2"}[suffix]
    assert artifact.method == "brought"


def test_a_file_that_stays_where_it_is(tmp_path, models):
    path = models / "gain.onnx"
    bundle, result = recorded(tmp_path, lambda: perceive(*inputs(), path, copy_original_model=False))
    assert result == {"perception": True}
    parameters = bundle.contract["models"]["perception"]["parameters"]
    assert parameters["model_path"] == "gain.onnx"
    assert parameters["sha256sum"] == sha256_file(path)
    (artifact,) = bundle.artifacts("perception")
    assert artifact.external
    assert not list(bundle.folder.rglob("*.onnx"))


@pytest.mark.parametrize("location", ["gain.bin", "weights/gain.bin"])
def test_data_files_of_onnx_come_along(tmp_path, location):
    source = tmp_path / "source"
    (source / "weights").mkdir(parents=True)
    path = save_onnx(source / "large.onnx", external=location)
    bundle, result = recorded(tmp_path, lambda: perceive(*inputs(), path))
    assert result == {"perception": True}
    (artifact,) = bundle.artifacts("perception")
    assert artifact.data_paths == (f"nodes/perception/{location}",)
    assert (bundle.folder / artifact.data_paths[0]).read_bytes() == (source / location).read_bytes()
    leapp.start("demo", save_path=tmp_path)
    perceive(*inputs(), path, copy_original_model=False)
    leapp.stop()
    with pytest.raises(errors.BroughtModelError, match=f"it keeps weights in {location}, whose digest nobody would"):
        leapp.compile_graph()
    (source / location).unlink()
    leapp.start("demo", save_path=tmp_path)
    annotate.input_tensors("perception", dict(zip(("image", "bias"), inputs(), strict=True)))
    annotate.output_tensors("perception", _answers(), backend_params={"model_path": path})
    leapp.stop()
    with pytest.raises(errors.BroughtModelError, match="gain.bin"):
        leapp.compile_graph()


def _answers(rows=1):
    return {"features": np.zeros((rows, 3), np.float32), "peak": np.zeros((), np.float32)}


def test_ports_stand_in_the_order_of_the_file(tmp_path, models):
    path = models / "gain.onnx"

    def run():
        image, bias = inputs()
        annotate.input_tensors("perception", {"bias": bias, "image": image})
        features, peak = onnxruntime.InferenceSession(path).run(None, {"image": image, "bias": bias})
        annotate.output_tensors("perception", {"peak": peak, "features": features}, backend_params={"model_path": path})

    bundle, result = recorded(tmp_path, run)
    assert result == {"perception": True}
    model = bundle.contract["models"]["perception"]
    assert [port["name"] for port in model["inputs"]] == ["image", "bias"]
    assert [port["name"] for port in model["outputs"]] == ["features", "peak"]


def test_a_buffer_that_is_filled_each_time(tmp_path, models):
    path = models / "gain.onnx"
    features, peak = torch.zeros(1, 3), torch.zeros(())

    def run():
        image, bias = torch.randn(1, 4), torch.randn(3)
        annotate.input_tensors("perception", {"image": image, "bias": bias})
        given = {"image": image.detach().numpy(), "bias": bias.detach().numpy()}
        for buffer, value in zip((features, peak), onnxruntime.InferenceSession(path).run(None, given), strict=True):
            buffer.copy_(torch.from_numpy(value))
        out = annotate.output_tensors(
            "perception", {"features": features, "peak": peak}, backend_params={"model_path": path}
        )
        assert out[0] is features
        policy(features.clone().numpy())

    bundle, result = recorded(tmp_path, run, times=3)
    assert result == {"perception": True, "policy": True}
    assert bundle.contract["pipeline"]["data_flow"] == {"perception/features": ["policy/features"]}
    assert type(features) is torch.Tensor
    values = [np.array(each.numpy()) for key, each in _samples(bundle, "perception").items() if key.endswith("peak")]
    assert len({float(each) for each in values}) == 3


def test_a_method_that_brings_its_model_sees_plain_values(tmp_path, models):
    path = models / "gain.onnx"
    session = onnxruntime.InferenceSession(path)
    seen = []

    @annotate.method(backend_params={"model_path": path})
    def perception(image, bias):
        if float(image.max()) > 100 or bias[0].item() > 100:  # neither a branch nor an escape of anything
            raise ValueError
        seen.append((type(image), type(bias), np.random.random()))  # noqa: NPY002
        features, peak = session.run(None, {"image": image, "bias": bias})
        return features, peak

    @annotate.method(export_with="torchscript")
    def camera(raw):
        return {"image": raw / 2}

    def run():
        raw, bias = inputs()
        features, _ = perception(camera(raw)["image"], bias)
        policy(features)

    bundle, result = recorded(tmp_path, run, times=3, max_cached_io=2)
    assert result == {"camera": True, "perception": True, "policy": True}
    assert [each[1] for each in seen] == [np.ndarray] * 3
    assert bundle.contract["pipeline"]["data_flow"] == {
        "camera/image": ["perception/image"], "perception/features": ["policy/features"],
    }  # fmt: skip
    assert not torch.overrides._get_current_function_mode_stack()


def test_a_scripted_model_that_cannot_be_recorded(tmp_path):
    class Quantised(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool(x.sum() > 0):
                x = -x
            return torch.quantize_per_tensor(x, 0.25, 0, torch.qint8).dequantize()

    path = tmp_path / "quantised.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(Quantised()).save(path)
        model = torch.jit.load(path)

    def run(x):
        return {"y": model(x)}

    bundle, result = recorded(
        tmp_path,
        lambda: annotate.method("n", backend_params={"model_path": path})(run)(torch.randn(5)),
        times=3,
    )
    assert result == {"n": True}
    assert bundle.artifact("n").read_bytes() == path.read_bytes()
    leapp.start("demo", save_path=tmp_path)
    with pytest.raises(errors.TraceError):  # with two calls LEAPP learns of the model too late
        run(annotate.input_tensors("n", {"x": torch.randn(5)}))


def test_a_method_may_give_its_input_back(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    path = tmp_path / "identity.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))

    @annotate.method("same", backend_params={"model_path": path})
    def same(x):
        return {"y": x.clone() if isinstance(x, torch.Tensor) else x}

    def run():
        x = annotate.input_tensors("first", {"x": torch.randn(2)})
        y = annotate.output_tensors("first", {"z": x * 2}, export_with="torchscript")
        y = annotate.input_tensors("last", same(y))
        annotate.output_tensors("last", {"out": y + 1}, export_with="torchscript")

    bundle, _ = recorded(tmp_path, run, times=2)
    assert bundle.contract["pipeline"]["data_flow"] == {"first/z": ["same/x"], "same/y": ["last/y"]}
    recorded(tmp_path, lambda: same(np.ones(2, np.float32)))


def test_what_the_file_does_not_answer_is_found(tmp_path, models):
    path = models / "gain.onnx"
    leapp.start("demo", save_path=tmp_path)
    image, bias = annotate.input_tensors("perception", dict(zip(("image", "bias"), inputs(), strict=True)))
    features, peak = onnxruntime.InferenceSession(path).run(None, {"image": image, "bias": bias})
    annotate.output_tensors("perception", {"features": features + 1, "peak": peak}, backend_params={"model_path": path})
    leapp.stop()
    with pytest.raises(errors.ValidationError, match=r"perception \(onnx\): output 'features'") as caught:
        leapp.compile_graph()
    assert "body and the model file that the node brings compute different values" in str(caught.value)
    assert load(tmp_path / "demo").manifest.status == "failed"


@pytest.mark.parametrize("options", [{"dry_run": True}, {"non_traced": ["perception"]}])
def test_no_model_in_a_dry_run_and_of_nodes_that_get_none(tmp_path, models, options):
    bundle, result = recorded(tmp_path, lambda: perceive(*inputs(), models / "gain.onnx"), **options)
    assert result is True
    assert bundle.contract["models"]["perception"]["parameters"]["backend"] == "none"
    assert not list(bundle.folder.rglob("*.onnx"))


# --- refusals ------------------------------------------------------------------------------------------------------


def declared(path, given, answers, **words):
    annotate.input_tensors("perception", given)
    params = {"model_path": path, **words.pop("backend_params", {})}
    annotate.output_tensors("perception", answers, backend_params=params, **words)


@pytest.mark.parametrize(
    ("name", "words", "error", "text"),
    [
        ("none.onnx", {}, errors.BroughtFileMissingError, r"brings the model none.onnx, and there is no such file"),
        ("gain.pth", {}, errors.BroughtModelError, r"its suffix '.pth' names no format.*\n.*\.onnx, \.pt, \.pt2"),
        ("gain.onnx", {"export_with": "pt2"}, errors.BroughtModelError, "export_with says 'pt2'"),
        ("gain.onnx", {"export_with": ["onnx", "pt2"]}, errors.BroughtModelError, "says 'onnx', 'pt2'"),
        (3, {}, errors.BroughtModelError, "model_path is a int"),
        ("gain.onnx", {"backend_params": {"copy_original_model": "no"}}, errors.OptionError, "True or False"),
        ("gain.onnx", {"backend_params": {"device": 3}}, errors.OptionError, "name of a device"),
    ],
)
def test_words_that_do_not_fit(tmp_path, models, monkeypatch, name, words, error, text):
    monkeypatch.chdir(models)
    leapp.start("demo", save_path=tmp_path)
    with pytest.raises(error, match=text):
        declared(name, dict(zip(("image", "bias"), inputs(), strict=True)), _answers(), **words)


@pytest.mark.parametrize("export_with", ["onnx", "onnx-torchscript", ["onnx"], None])
def test_words_that_fit(tmp_path, models, monkeypatch, export_with):
    monkeypatch.chdir(models)
    leapp.start("demo", save_path=tmp_path)
    declared("gain.onnx", dict(zip(("image", "bias"), inputs(), strict=True)), _answers(), export_with=export_with)
    monkeypatch.chdir(tmp_path)
    leapp.stop()
    leapp.compile_graph(validate=False)
    assert load(tmp_path / "demo").artifact("perception").name == "gain.onnx"


IMAGE, BIAS = np.zeros((1, 4), np.float32), np.zeros(3, np.float32)


@pytest.mark.parametrize("suffix", [".onnx", ".pt", ".pt2"])
@pytest.mark.parametrize(
    ("given", "answers", "text"),
    [
        ({"image": IMAGE}, _answers(), "its inputs are .*image.*, declared are image"),
        ({"image": IMAGE, "bias": BIAS}, {"features": BIAS}, "its outputs are .*, declared are features"),
        ({"image": IMAGE, "offset": BIAS}, _answers(), "onnx: its inputs are .*, declared are image, offset"),
        ({"image": IMAGE, "bias": BIAS.astype(np.float64)}, _answers(), "bias float32.* is declared as bias float64"),
        ({"image": np.zeros((2, 4), np.float32), "bias": BIAS}, _answers(), r"image float32\[1, 4\] is declared as"),
        ({"image": IMAGE, "bias": BIAS}, _answers(rows=2), r"float32\[1, 3\] is declared as features float32\[2, 3\]"),
    ],
    ids=["input missing", "output missing", "other name", "other dtype", "other shape", "other output"],
)
def test_other_ports(tmp_path, models, suffix, given, answers, text, request):
    leapp.start("demo", save_path=tmp_path)
    declared(models / f"gain{suffix}", given, answers)
    leapp.stop()
    case = request.node.callspec.id
    told = "missing" in case or suffix == ".onnx" or (suffix == ".pt2" and "name" not in case)
    if not told:  # the format does not tell, so only its answers can
        leapp.compile_graph(validate=False)
        return
    with pytest.raises(errors.BroughtPortsError, match=text) as caught:
        leapp.compile_graph()
    assert "Declare what the file has. Inputs: image" in str(caught.value)


def test_files_that_are_no_models(tmp_path, models):
    for suffix in (".onnx", ".pt", ".pt2"):
        path = tmp_path / f"text{suffix}"
        path.write_text("no model")
        leapp.start("demo", save_path=tmp_path)
        declared(path, {"image": IMAGE, "bias": BIAS}, _answers())
        leapp.stop()
        with pytest.raises(errors.BroughtModelError, match=f"text{suffix}: it cannot be loaded: "):
            leapp.compile_graph()


def test_torchscript_that_is_no_node(tmp_path):
    class Listed(torch.nn.Module):
        def forward(self, xs: list[torch.Tensor]):
            return xs[0]

    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"y": x}

    for model, text in ((Listed(), r"argument 'xs' is a List\[Tensor\]"), (Named(), r"returns Dict\[str, Tensor\]")):
        path = tmp_path / "model.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.script(model).save(path)
        leapp.start("demo", save_path=tmp_path)
        declared(path, {"x": IMAGE}, {"y": IMAGE})
        leapp.stop()
        with pytest.raises(errors.BroughtModelError, match=text):
            leapp.compile_graph()


def test_free_lengths_of_an_onnx_file_fit_any(tmp_path):
    path = save_onnx(tmp_path / "free.onnx", rows="batch")
    bundle, result = recorded(tmp_path, lambda: perceive(*inputs(rows=5), path))
    assert result == {"perception": True}
    assert bundle.contract["models"]["perception"]["inputs"][0]["shape"] == [5, 4]


def test_values_of_other_nodes_are_no_outputs(tmp_path, models):
    leapp.start("demo", save_path=tmp_path)
    action = policy(np.zeros((1, 3), np.float32))
    annotate.input_tensors("perception", {"image": IMAGE, "bias": BIAS})
    with pytest.raises(errors.ForeignValueError):
        annotate.output_tensors("perception", {"features": action}, backend_params={"model_path": models / "gain.onnx"})


def test_a_recurrent_model_is_fed_back(tmp_path):
    """``h_next = tanh(x + h)``, ``y = 2 h_next``: what the file gives, it gets at the next tick."""
    shape = [2]
    nodes = [
        helper.make_node("Add", ["x", "h"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["h_next"]),
        helper.make_node("Add", ["h_next", "h_next"], ["y"]),
    ]
    ports = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "h", "h_next", "y")}
    graph = helper.make_graph(nodes, "g", [ports["x"], ports["h"]], [ports["y"], ports["h_next"]])
    path = tmp_path / "memory.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    session = onnxruntime.InferenceSession(path)

    @annotate.method(backend_params={"model_path": path})
    def memory(x, h):
        y, h_next = session.run(None, {"x": x, "h": h})
        return y, h_next

    hidden = np.zeros(2, np.float32)

    def tick():
        nonlocal hidden
        _, hidden = memory(np.random.default_rng().normal(size=2).astype(np.float32), hidden)

    bundle, result = recorded(tmp_path, tick, times=3)
    assert result == {"memory": True}
    assert bundle.contract["pipeline"]["feedback_flow"] == {"memory/h_next": ["memory/h"]}
    manager = leapp.InferenceManager(bundle.folder)
    expected = np.zeros(2, np.float32)
    for _ in range(4):
        x = np.random.default_rng().normal(size=2).astype(np.float32)
        got = manager.run_policy({"memory/x": x})
        y, expected = session.run(None, {"x": x, "h": expected})
        np.testing.assert_array_equal(np.asarray(got["memory/y"]), y)


def test_a_manifest_that_asks_for_formats_has_the_recording_exported(tmp_path, models):
    from leapp._compile import compile_session
    from leapp._prepare import CompileOptions
    from leapp._spec import ExportFormat

    asked = CompileOptions(formats_for=lambda node: (ExportFormat.TORCHSCRIPT,), brought_for=lambda node: None)
    for traced in (True, False):
        leapp.start("demo", save_path=tmp_path)
        image, bias = torch.randn(1, 4), torch.randn(3)
        annotate.input_tensors("perception", {"image": image, "bias": bias})
        features = torch.tanh(image @ torch.from_numpy(WEIGHT)) + bias
        peak = features.amax() if traced else torch.zeros(())
        annotate.output_tensors(
            "perception", {"features": features, "peak": peak}, backend_params={"model_path": models / "gain.onnx"}
        )
        leapp.stop()
        session = _api._process.stopped
        if not traced:
            with pytest.raises(errors.BroughtModelError, match="the manifest asks for formats, and not all outputs"):
                compile_session(session, asked)
            continue
        assert compile_session(session, asked).status == "ok"
        bundle = load(tmp_path / "demo")
        assert [each.format for each in bundle.artifacts("perception")] == ["torchscript"]
        assert (bundle.folder / "nodes" / "perception" / "graph.json").exists()
