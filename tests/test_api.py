"""The public functions: lifecycle, their words, and their errors."""

import json
import subprocess
import sys
import warnings

import onnxruntime
import pytest
import torch

import leapp
from leapp import _api, annotate, errors
from leapp._canonical import canonical_json, sha256
from leapp._source import install_command
from leapp.bundle.read import load, verify
from leapp.trace import current as sessions


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    if sessions.current() is not None:
        sessions.end("stop")
    _api._process.stopped = None


def controller(x, export_with="onnx"):
    x = annotate.input_tensors("n", {"x": x})
    y = torch.tanh(x) * 2
    return annotate.output_tensors("n", {"y": y}, export_with=export_with)


def test_a_plain_script_writes_a_checked_bundle(tmp_path):
    leapp.start("demo", save_path=tmp_path)
    controller(torch.zeros(3))
    leapp.stop()
    assert leapp.compile_graph() == {"n": True}
    bundle = tmp_path / "demo"
    assert verify(bundle).ok
    session = onnxruntime.InferenceSession(bundle / "nodes" / "n" / "n.onnx")
    fresh = torch.randn(3)
    (got,) = session.run(["y"], {"x": fresh.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), controller(fresh))


def test_outside_a_session_annotations_hand_back_the_very_objects():
    x, y = torch.randn(2), torch.randn(2)
    assert annotate.input_tensors("n", {"x": x}) is x
    assert annotate.input_tensors("n", {"x": x, "y": y}) == (x, y)
    nested = {"a": [x, y]}
    assert annotate.input_tensors("n", {"s": nested}) is nested
    assert annotate.output_tensors("n", {"x": x}, export_with="no such format") is x
    assert type(x) is torch.Tensor
    assert annotate.constant(x) is x


def test_inside_a_session_the_form_is_the_same(tmp_path):
    leapp.start("demo", save_path=tmp_path)
    x, y, nested = torch.randn(2), torch.randn(2), {"a": [torch.randn(2)]}
    got = annotate.input_tensors("n", {"x": x, "y": y, "s": nested})
    assert got[0] is x
    assert got[1] is y
    assert got[2] is nested
    out = annotate.output_tensors("n", {"z": x + y + nested["a"][0]})
    assert isinstance(out, torch.Tensor)


def test_many_formats_from_one_recording(tmp_path):
    leapp.start("demo", save_path=tmp_path)
    controller(torch.zeros(3), export_with=["torchscript", "pt2", "onnx"])
    leapp.stop()
    leapp.compile_graph(graph_configs=leapp.GraphConfigs(frequency=50, extra={"robot": "g1"}))
    bundle = load(tmp_path / "demo")
    parameters = bundle.contract["models"]["n"]["parameters"]
    assert parameters["backend"] == "jit"
    assert [each["backend"] for each in parameters["variants"]] == ["pt2", "onnx"]
    assert bundle.contract["pipeline"]["configs"] == {"frequency": 50, "robot": "g1"}
    fresh = torch.randn(3)
    expected = controller(fresh)
    folder = tmp_path / "demo" / "nodes" / "n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch announces the end of TorchScript
        assert torch.equal(torch.jit.load(folder / "n.pt")(fresh), expected)
    assert torch.equal(torch.export.load(folder / "n.pt2").module()(fresh), expected)
    (got,) = onnxruntime.InferenceSession(folder / "n.onnx").run(None, {"x": fresh.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), expected)


def test_no_artifact_dry_run_and_non_traced(tmp_path):
    for name, options, export_with in (
        ("none", {}, None),
        ("dry", {"dry_run": True}, "onnx"),
        ("skipped", {"non_traced": ["n"]}, "onnx"),
    ):
        leapp.start(name, save_path=tmp_path, **options)
        controller(torch.zeros(3), export_with=export_with)
        leapp.stop()
        assert leapp.compile_graph() is True
        bundle = load(tmp_path / name)
        assert bundle.contract["models"]["n"]["parameters"]["backend"] == "none"
        assert verify(tmp_path / name).ok


def test_names_with_folders_and_absolute_names(tmp_path):
    for name in ("a/b/policy", str(tmp_path / "elsewhere" / "policy")):
        leapp.start(name, save_path=tmp_path)
        controller(torch.zeros(3), export_with=None)
        leapp.stop()
        leapp.compile_graph()
    assert (tmp_path / "a" / "b" / "policy" / "policy.yaml").exists()
    assert (tmp_path / "elsewhere" / "policy" / "policy.yaml").exists()


def test_an_export_over_an_older_one_leaves_only_the_new(tmp_path):
    for export_with in (["torchscript"], ["onnx"]):
        leapp.start("demo", save_path=tmp_path)
        controller(torch.zeros(3), export_with=export_with)
        leapp.stop()
        leapp.compile_graph()
    assert not (tmp_path / "demo" / "nodes" / "n" / "n.pt").exists()
    assert verify(tmp_path / "demo").ok


def test_compiling_twice_gives_one_bundle_and_the_digest_is_that_of_the_recording(tmp_path):
    """Whatever passes do for the formats, they do to a graph of their own."""
    leapp.start("twice", save_path=tmp_path)
    x = annotate.input_tensors("n", {"x": torch.randn(3)})
    kept = torch.where(x > 0, True, x > 1)  # becomes a constant
    annotate.output_tensors("n", {"y": kept, "z": x.view(3)}, export_with="jit")  # a view is copied
    leapp.stop()
    digests = set()
    for _ in range(2):
        leapp.compile_graph()
        bundle = load(tmp_path / "twice")
        digests.add(bundle.digest)
        graph = json.loads(bundle.read_bytes("nodes/n/graph.json"))
        assert bundle.node("n").graph_sha256 == sha256(canonical_json(graph))
        assert sum(bundle.node("n").ops.values()) == sum(each["op"].startswith("call_") for each in graph["ops"])
    assert len(digests) == 1


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("mine")
    leapp.start("demo", save_path=tmp_path)
    controller(torch.zeros(3))
    leapp.stop()
    with pytest.raises(errors.ForeignFolderError, match="is not empty and holds no bundle.json of ours"):
        leapp.compile_graph()
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
    assert (tmp_path / "demo" / "thesis.txt").read_text() == "mine"


def test_calls_at_the_wrong_time(tmp_path):
    with pytest.raises(errors.NoSessionError, match=r"leapp.stop\(\) was called, but no trace session is open"):
        leapp.stop()
    with pytest.raises(errors.NoSessionError, match=r"leapp.compile_graph\(\) was called"):
        leapp.compile_graph()
    leapp.start("demo", save_path=tmp_path)
    with pytest.raises(errors.SessionStillOpenError, match="while the session 'demo' is still open"):
        leapp.compile_graph()
    leapp.stop()
    with pytest.raises(errors.NothingAnnotatedError, match="recorded no node"):
        leapp.compile_graph()
    leapp.start("demo", save_path=tmp_path)
    annotate.input_tensors("n", {"x": torch.randn(2)})
    leapp.stop()
    with pytest.raises(errors.NodeNotClosedError, match=r"Node 'n', opened at .*test_api.py:\d+, was never closed"):
        leapp.compile_graph()


def test_a_second_start_drops_the_first(tmp_path):
    leapp.start("first", save_path=tmp_path)
    x = torch.zeros(3)
    annotate.input_tensors("n", {"x": x})
    with pytest.warns(errors.SessionReplacedWarning, match="'first' is dropped"):
        leapp.start("second", save_path=tmp_path)
    assert type(x) is torch.Tensor
    controller(torch.zeros(3), export_with=None)
    leapp.stop()
    leapp.compile_graph()
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"name": ""}, errors.PipelineNameError, "cannot name a pipeline"),
        ({"name": "../x"}, errors.PipelineNameError, "cannot name a pipeline"),
        ({"name": "-x"}, errors.PipelineNameError, "its last part is '-x'"),
        ({"name": "a/.x"}, errors.PipelineNameError, "its last part is '.x'"),
        ({"name": "x\ny"}, errors.PipelineNameError, r"its last part is 'x\\ny'"),
        ({"name": "x", "max_cached_io": 0}, errors.OptionError, "max_cached_io=0: it must be an integer of at least 1"),
        ({"name": "x", "allow": {"escape": []}}, errors.OptionError, "its keys are branches, escapes"),
        ({"name": "x", "allow": {"escapes": "f"}}, errors.OptionError, "it must be a list of strings"),
    ],
)
def test_arguments_out_of_range(arguments, error, text):
    with pytest.raises(error, match=text):
        leapp.start(**arguments)
    assert sessions.current() is None


def test_format_names(tmp_path):
    leapp.start("demo", save_path=tmp_path)
    x = torch.zeros(3)
    annotate.input_tensors("n", {"x": x})
    y = x + 1
    with pytest.raises(errors.UnknownFormatError, match="Unknown export format 'onnyx' for node 'n'") as raised:
        annotate.output_tensors("n", {"y": y}, export_with="onnyx")
    assert "jit-script" in str(raised.value)
    with pytest.raises(errors.FormatConflictError, match=r"'torchscript' and 'jit-trace' both write 'n.pt'"):
        annotate.output_tensors("n", {"y": y}, export_with=["jit", "jit-trace"])
    with pytest.raises(errors.OptionError, match="opset"):
        annotate.output_tensors("n", {"y": y}, backend_params={"opset": 18})


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("jit", ".pt"), ("jit-script", ".pt"), ("torchscript", ".pt"), ("jit-trace", ".pt"), ("pt2", ".pt2"),
        ("exported-program", ".pt2"), ("onnx", ".onnx"), ("onnx-dynamo", ".onnx"), ("onnx-torchscript", ".onnx"),
    ],
)  # fmt: skip
def test_every_format_name_exports(tmp_path, name, suffix):
    leapp.start("demo", save_path=tmp_path)
    controller(torch.zeros(3), export_with=name)
    leapp.stop()
    assert leapp.compile_graph() == {"n": True}
    assert (tmp_path / "demo" / "nodes" / "n" / f"n{suffix}").exists()


def test_an_op_that_a_format_cannot_hold(tmp_path):
    """The other formats are still written when not strict, and the op is named with file and line."""

    def node():
        x = annotate.input_tensors("n", {"x": torch.randn(4)})
        y = torch.special.bessel_j0(x)
        annotate.output_tensors("n", {"y": y}, export_with=["torchscript", "onnx"])

    line = node.__code__.co_firstlineno + 2
    leapp.start("demo", save_path=tmp_path)
    node()
    leapp.stop()
    with pytest.raises(errors.UnsupportedOpError, match="onnx cannot hold") as raised:
        leapp.compile_graph()
    assert f"test_api.py:{line}" in str(raised.value)
    assert "bessel_j0" in str(raised.value)
    with pytest.warns(errors.ValidationWarning, match="bessel_j0"):
        result = leapp.compile_graph(strict=False)
    assert not result["n"]
    bundle = tmp_path / "demo"
    assert (bundle / "nodes" / "n" / "n.pt").exists()
    assert not (bundle / "nodes" / "n" / "n.onnx").exists()
    assert load(bundle).manifest.status == "failed"


def test_a_value_frozen_from_the_data_fails_at_the_second_sample(tmp_path):
    def node(x):
        annotate.input_tensors("n", {"x": x})
        limit = float(x.abs().max())
        annotate.output_tensors("n", {"y": torch.clamp(x * 2, -limit, limit)}, export_with="torchscript")

    leapp.start("demo", save_path=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.TraceEscapeWarning)
        for scale in (1.0, 3.0):
            node(torch.tensor([0.5, 1.0]) * scale)
    leapp.stop()
    with pytest.raises((errors.ValidationError, errors.RecordingsDifferError), match="clamp"):
        leapp.compile_graph()
    assert load(tmp_path / "demo").manifest.status == "failed"


def test_names_that_only_generated_code_cannot_have(tmp_path):
    leapp.start("demo", save_path=tmp_path)
    x = annotate.input_tensors("Isaac-Velocity-Flat-G1-v0", {"observation.state": torch.randn(3)})
    annotate.output_tensors("Isaac-Velocity-Flat-G1-v0", {"class": x * 2}, export_with=["torchscript", "pt2", "onnx"])
    leapp.stop()
    leapp.compile_graph()
    folder = tmp_path / "demo" / "nodes" / "Isaac-Velocity-Flat-G1-v0"
    session = onnxruntime.InferenceSession(folder / "Isaac-Velocity-Flat-G1-v0.onnx")
    assert [each.name for each in session.get_inputs()] == ["observation.state"]
    assert [each.name for each in session.get_outputs()] == ["class"]


def test_importing_the_package_is_light():
    script = (
        "import sys, leapp; leapp.__version__; leapp.LeappError; dir(leapp)\n"
        "heavy = {'torch', 'numpy', 'onnx', 'onnxruntime', 'yaml', 'pydantic', 'rich'} & set(sys.modules)\n"
        "from leapp import annotate; t = object()\n"
        "assert annotate.output_tensors('n', {'y': t}) is t\n"
        "heavy |= {'torch', 'numpy', 'onnx'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_are_public():
    assert sorted(leapp.__all__) == dir(leapp)
    for name in leapp.__all__:
        assert getattr(leapp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        leapp.nothing


def test_without_torch_the_remedy_is_named():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import leapp\n"
        "try:\n    leapp.start\nexcept leapp.LeappError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == (f"leapp.start needs torch, which is not installed.\nInstall it: {install_command()}\n"), (
        done.stderr
    )
