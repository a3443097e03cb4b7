"""Forms of nodes through the public functions: what goes through unchanged, what is fixed, retries."""

import contextlib
import json
import warnings

import numpy as np
import pytest
import torch

import leapp
from leapp import _api, annotate, errors
from leapp._spec import ExportFormat
from leapp.bundle.read import load, verify
from leapp.export._backend import backend_for
from leapp.trace import current as sessions

KP = torch.tensor([2.0, 3.0])
LIMITS = np.array([0.5], np.float32)


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    if sessions.current() is not None:
        sessions.end("stop")
    _api._process.stopped = None


@pytest.fixture
def begun(tmp_path):
    """Start a session; gives what stops it and hands back the session and, when asked to, the bundle."""

    def begin(**options):
        leapp.start("demo", save_path=tmp_path, **options)

        def end(compiled=True):
            leapp.stop()
            session = _api._process.stopped
            if not compiled:
                return session
            leapp.compile_graph()
            assert verify(tmp_path / "demo").ok
            return load(tmp_path / "demo")

        return end

    return begin


def wires(session, node):
    return [{port: str(origin) for port, origin in entry.wires.items()} for entry in session.nodes[node].recordings]


def run(bundle, node, format, inputs):
    """A node of a bundle on other inputs."""
    manifest = bundle.node(node)
    spec = leapp._spec.NodeSpec(
        node, tuple(each.port() for each in manifest.inputs), tuple(each.port() for each in manifest.outputs)
    )
    return backend_for(ExportFormat(format)).open(bundle.artifact(node, format), spec)(inputs)


def through(x, y):
    """An input as an output, one value twice, and what is fixed."""
    x, y = annotate.input_tensors("n", {"x": x, "y": y})
    z = x * KP + y
    given = {"sum": z, "again": z, "x": x, "y_copy": y, "y_twice": y}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.UnusedInputWarning)
        return annotate.output_tensors(
            "n", given, static_outputs={"kp": KP, "limits": {"low": LIMITS}},
            export_with=["torchscript", "pt2", "onnx"],
        )  # fmt: skip


def test_what_is_returned_unchanged_and_what_is_fixed(begun):
    end = begun()
    for _ in range(3):
        through(torch.randn(2), torch.randn(2))
    bundle = end()
    assert [port["name"] for port in bundle.contract["models"]["n"]["outputs"]] == [
        "sum", "again", "x_out", "y_copy", "y_twice", "kp", "limits_low",
    ]  # fmt: skip
    notes = json.loads((bundle.folder / "evidence" / "notes.json").read_text())
    assert notes["renamed"] == {"n/x": ["x_in", "x_out"]}
    assert "node n: 'x' is the input 'x_in' and the output 'x_out'" in (bundle.folder / "log.txt").read_text()
    assert type(KP) is torch.Tensor
    fresh = torch.randn(2), torch.randn(2)
    expected = [*through(*fresh), KP, torch.from_numpy(LIMITS)]
    for format in ("torchscript", "pt2", "onnx"):
        got = run(bundle, "n", format, {"x_in": fresh[0], "y": fresh[1]})
        for value, true in zip(got.values(), expected, strict=True):
            torch.testing.assert_close(value, true)


def test_an_output_of_another_node_that_passes_through_is_wired_on(begun):
    end = begun()
    for _ in range(2):
        y = annotate.input_tensors("first", {"x": torch.randn(2)}) * 2
        annotate.output_tensors("first", {"y": y})
        y = annotate.input_tensors("second", {"y": y})
        annotate.output_tensors("second", {"z": y + 1, "y": y})
        y = annotate.input_tensors("third", {"y": y})
        annotate.output_tensors("third", {"out": y * 3})
    session = end(compiled=False)
    assert wires(session, "second") == [{"y": "first/y"}] * 2
    assert wires(session, "third") == [{"y": "second/y"}] * 2


def test_a_static_output_is_wired_where_it_is_declared_and_a_constant_elsewhere(begun):
    end = begun()
    for _ in range(2):
        for node in ("first", "other"):
            x = annotate.input_tensors(node, {"x": torch.randn(2)})
            annotate.output_tensors(node, {"y": x * KP}, static_outputs={"kp": KP} if node == "first" else None)
    annotate.output_tensors("second", {"y": annotate.input_tensors("second", {"gains": KP}) + 1})
    session = end(compiled=False)
    assert wires(session, "second") == [{"gains": "first/kp"}]
    for node in ("first", "other"):
        assert [list(entry.graph.constants) for entry in session.nodes[node].recordings] == [["_tensor_constant0"]] * 2


def test_a_static_output_that_was_written_since_is_no_wire(begun):
    end = begun()
    gains = torch.ones(2)
    x = annotate.input_tensors("first", {"x": torch.randn(2)})
    annotate.output_tensors("first", {"y": x * 2}, static_outputs={"gains": gains})
    gains.fill_(3)
    annotate.output_tensors("second", {"y": annotate.input_tensors("second", {"gains": gains}) + 1})
    assert wires(end(compiled=False), "second") == [{}]


def test_a_computed_value_is_not_frozen_by_being_called_static(begun):
    end = begun()
    x = annotate.input_tensors("n", {"x": torch.randn(2)})
    annotate.output_tensors("n", {"y": x * 2}, static_outputs={"z": x * 3})
    graph = end(compiled=False).nodes["n"].recordings[0].graph
    fresh = torch.randn(2)
    assert torch.equal(graph.module()(fresh)[1], fresh * 3)


def test_a_static_output_that_changes_between_entries_is_named(begun):
    end = begun()
    for tick in range(2):
        x = annotate.input_tensors("n", {"x": torch.randn(2)})
        annotate.output_tensors(
            "n", {"y": x * 2}, static_outputs={"z": torch.full((2,), float(tick))}, export_with=None
        )
    with pytest.raises(
        errors.RecordingsDifferError, match=r"Node 'n' was recorded 2 times and its computation differs"
    ):
        end()


@pytest.mark.filterwarnings("ignore::leapp.errors.TraceEscapeWarning")
def test_the_lines_that_left_the_trace_are_named_where_entries_differ(begun):
    end = begun()
    mean = 0.0
    for _ in range(2):
        x = annotate.input_tensors("n", {"x": torch.randn(3)})
        mean = 0.9 * mean + float(x.mean())
        annotate.output_tensors("n", {"y": x - mean}, export_with="torchscript")
    with pytest.raises(errors.RecordingsDifferError, match=r"^float\(\) at .*test_patterns.py:\d+ reads a traced"):
        end()


def in_training_mode(norm, given):
    for _ in range(2):
        x = annotate.input_tensors("n", {"x": torch.randn(2, 3, 4)})
        if given:
            annotate.module("n", norm)
        annotate.output_tensors("n", {"y": norm(x)}, export_with="torchscript")


@pytest.mark.filterwarnings("ignore::leapp.errors.LeappWarning")
@pytest.mark.parametrize(
    ("norm", "given"),
    [
        (torch.nn.BatchNorm1d(3, momentum=None), True),
        (torch.nn.BatchNorm1d(3, momentum=None), False),
        (torch.nn.InstanceNorm1d(3, track_running_stats=True), False),
    ],
)
def test_a_normalisation_that_learns_is_named_with_its_remedy_which_works(begun, norm, given):
    end = begun()
    in_training_mode(norm, given)
    with pytest.raises(errors.RecordingsDifferError, match=r"in training mode: call \.eval\(\) on its module"):
        end()
    end = begun()
    in_training_mode(norm.eval(), given)
    end()


def failing(x, fail):
    x = annotate.input_tensors("n", {"x": x})
    y = x * 2
    if fail:
        raise ValueError("the user's own")
    return annotate.output_tensors("n", {"y": y}, export_with=None)


def test_the_call_is_made_again_after_an_exception(begun):
    end = begun(max_cached_io=2)
    x = torch.randn(2)
    for tick in range(4):
        with pytest.raises(ValueError, match="the user's own"):
            failing(x, fail=True)
        with pytest.warns(errors.UnfinishedEntryWarning, match=r"'n' was opened again at .*test_patterns.py:\d+"):
            failing(x, fail=False)
        assert sessions.current().nodes["n"].entries == tick + 1
    bundle = end()
    assert "UnfinishedEntryWarning" in (bundle.folder / "evidence" / "notes.json").read_text()


def test_values_of_an_unfinished_entry_belong_to_no_other(begun):
    begun()
    kept = []

    def step(x, fail):
        annotate.input_tensors("n", {"x": x})
        kept.append(x * 2)
        if fail:
            raise ValueError
        annotate.output_tensors("n", {"y": kept[0] + x})

    first, x = torch.randn(2), torch.randn(2)
    with pytest.raises(ValueError, match="^$"):
        step(first, fail=True)
    with pytest.warns(errors.UnfinishedEntryWarning), pytest.raises(errors.StaleValueError):
        step(x, fail=False)


@pytest.mark.filterwarnings("ignore::leapp.errors.RandomOpWarning", "ignore::leapp.errors.UnfinishedEntryWarning")
def test_what_an_unfinished_entry_was_warned_of_is_forgotten(begun):
    end = begun()
    for fail in (True, False):
        x = torch.randn(2)  # the second one with the node still open
        with contextlib.suppress(ValueError):
            failing(x, fail)
    session = end(compiled=False)
    assert session.nodes["n"].entries == 1
    assert not [note for note in session.escapes.notes if note.kind == "random"]


def test_inputs_in_a_loop_on_one_line_are_one_entry(begun):
    end = begun(max_cached_io=1)
    for _ in range(3):
        given = {name: torch.randn(2) for name in "abc"}
        for name, value in given.items():
            annotate.input_tensors("n", {name: value})
        annotate.output_tensors("n", {"y": given["a"] * given["b"] + given["c"]}, export_with=None)
    assert [port["name"] for port in end().contract["models"]["n"]["inputs"]] == ["a", "b", "c"]


def test_methods_in_a_bundle(begun):
    class Controller:
        def __init__(self):
            self.layer = torch.nn.Linear(2, 2)

        @annotate.method
        def features(self, state):
            return torch.tanh(self.layer(state))

        @annotate.method("policy", export_with=["torchscript", "onnx"], backend_params={"opset_version": 18})
        def act(self, features, command=None, scale=0.5):
            return {"action": features * scale if command is None else features * scale + command}

    controller = Controller()
    end = begun()
    for _ in range(2):
        controller.act(controller.features(torch.randn(2)), command=torch.randn(2))
    bundle = end()
    assert bundle.contract["pipeline"]["data_flow"] == {"features/out0": ["policy/features"]}
    assert bundle.contract["pipeline"]["inputs"] == {"features": ["state"], "policy": ["command"]}
    assert bundle.contract["models"]["policy"]["parameters"]["backend"] == "jit"
    (_, onnx) = bundle.artifacts("policy")
    assert onnx.opset_version == 18
    fresh = torch.randn(2), torch.randn(2)
    with torch.no_grad():
        expected = controller.act(controller.features(fresh[0]), fresh[1])["action"]
    features = run(bundle, "features", "onnx", {"state": fresh[0]})["out0"]
    for format in ("torchscript", "onnx"):
        got = run(bundle, "policy", format, {"features": features, "command": fresh[1]})
        torch.testing.assert_close(got["action"], expected)


def test_a_node_without_outputs_is_no_model(begun):
    end = begun()
    annotate.input_tensors("sink", {"x": torch.randn(2)})
    with pytest.warns(errors.UnusedInputWarning):
        annotate.output_tensors("sink", {})
    with pytest.raises(errors.NoOutputsError, match=r"Node 'sink' has no outputs.*test_patterns.py:\d+"):
        end()


def test_nodes_that_get_no_model_by_name(begun):
    end = begun(non_traced=["first", "frist"])
    annotate.output_tensors("first", {"y": annotate.input_tensors("first", {"x": torch.randn(2)}) * 2})
    with pytest.warns(errors.UnknownNodeWarning, match="names 'frist', and no node") as caught:
        assert end().contract["models"]["first"]["parameters"]["backend"] == "none"
    assert caught[0].filename == __file__


def test_dry_run_wires_and_exports_nothing(begun):
    end = begun(dry_run=True)
    hidden = torch.zeros(2)
    for _ in range(2):
        y = annotate.input_tensors("first", {"x": torch.randn(2)}) * 2
        annotate.output_tensors("first", {"y": y})
        y, hidden = annotate.input_tensors("second", {"y": y, "hidden": hidden})
        hidden = annotate.output_tensors("second", {"next": torch.tanh(y + hidden)}, export_with=["onnx", "pt2"])
    bundle = end()
    pipeline = bundle.contract["pipeline"]
    assert pipeline["data_flow"] == {"first/y": ["second/y"]}
    assert pipeline["feedback_flow"] == {"second/next": ["second/hidden"]}
    assert not list((bundle.folder / "nodes").rglob("*.onnx"))
    assert [model["parameters"]["backend"] for model in bundle.contract["models"].values()] == ["none", "none"]
