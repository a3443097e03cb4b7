"""A check that fails says first what the trace had warned of: line and remedy, as a warning of its own would."""

import math
import warnings
from collections import deque

import numpy as np
import pytest
import torch

import leapp
from leapp import _api, annotate, errors
from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.build.first import _warned
from leapp.replay import Cause, FormatReport, NodeReport, replay
from leapp.report.outcomes import suites
from leapp.trace import current as sessions
from leapp.trace.escapes import state_name

WEIGHT = torch.arange(12.0).reshape(3, 4) / 10
DROPOUT = torch.nn.Dropout(0.5)


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    if sessions.current() is not None:
        sessions.end("stop")
    _api._process.stopped = None


def by_float(x):
    scale = float(x.norm())  # here
    return WEIGHT @ (x * scale)


def by_math(x):
    gain = math.cos(x[0])  # here
    return WEIGHT @ (x * gain)


def by_noise(x):
    noise = 0.01 * torch.randn_like(x)  # here
    return WEIGHT @ (x + noise)


def by_dropout(x):
    kept = DROPOUT(x)  # here
    return WEIGHT @ kept


def by_savgol(x):
    from scipy.signal import savgol_filter

    smooth = savgol_filter(x, 3, 1)  # here
    return WEIGHT.numpy() @ smooth + x[:3]


def refused(computation, path, *, arrays=False, entries=3):
    """The error that compiling a few entries on fresh inputs ends with; warnings go unheard, as they do in a build."""
    generator = torch.Generator().manual_seed(1)
    leapp.start("demo", save_path=path)
    with warnings.catch_warnings(), pytest.raises(errors.LeappError) as raised:
        warnings.simplefilter("ignore")
        for _ in range(entries):
            x = torch.randn(4, generator=generator)
            x = annotate.input_tensors("n", {"x": x.numpy() if arrays else x})
            annotate.output_tensors("n", {"y": computation(x)}, export_with="torchscript")
        leapp.stop()
        leapp.compile_graph(visualize=False)
    return raised.value


def line_of(computation):
    """Where the line is that a case is about."""
    import inspect

    lines, first = inspect.getsourcelines(computation)
    return first + next(index for index, line in enumerate(lines) if line.rstrip().endswith("# here"))


CASES = [
    (by_float, False, errors.RecordingsDifferError, "float()", "Stay in tensors"),
    (by_math, False, errors.RecordingsDifferError, "float()", "Stay in tensors"),
    (by_noise, False, errors.ValidationError, "randn_like", "move the draw out of the node"),
    (by_dropout, False, errors.ValidationError, "dropout", "Call .eval()"),
    (by_savgol, True, errors.RecordingsDifferError, "savgol_filter", "FunctionPatch"),
]


@pytest.mark.parametrize(("computation", "arrays", "error", "op", "remedy"), CASES)
def test_the_error_begins_with_the_line_that_froze_a_value(computation, arrays, error, op, remedy, tmp_path):
    if computation is by_savgol:
        pytest.importorskip("scipy")
    found = refused(computation, tmp_path, arrays=arrays)
    assert type(found) is error
    lines = str(found).splitlines()
    first = lines[error is errors.ValidationError]  # whose own first line counts the nodes
    assert f"test_causes.py:{line_of(computation)}" in first
    assert op in first
    assert remedy in first


@pytest.mark.parametrize("computation", [by_noise, by_dropout])
def test_where_numbers_are_drawn_no_tolerance_is_recommended(computation, tmp_path):
    text = str(refused(computation, tmp_path))
    assert "may be rounding" not in text
    assert "raise rtol" not in text


@pytest.mark.parametrize(("computation", "arrays"), [(by_float, False), (by_dropout, False), (by_savgol, True)])
def test_the_annotation_of_a_ci_lands_at_that_line_first(computation, arrays, tmp_path):
    if computation is by_savgol:
        pytest.importorskip("scipy")
    error = refused(computation, tmp_path, arrays=arrays)
    said = {"class": type(error).__name__, "message": str(error), "details": "", "problems": []}
    (suite,) = suites([{"command": "build", "manifest": "demo.toml", "error": said, "ok": False, "exit_code": 1}])
    first = next(suite.places())
    assert first.file.endswith("test_causes.py")
    assert first.line == line_of(computation)


def test_of_several_warnings_the_one_just_before_the_difference_comes_first(tmp_path):
    def computation(x):
        unused = float(x[3])
        assert abs(unused) >= 0.0
        scale = float(x.norm())
        y = x * scale
        return y + float(x[1])

    first, second = str(refused(computation, tmp_path)).splitlines()[:2]
    start = computation.__code__.co_firstlineno
    assert f"test_causes.py:{start + 3}" in first
    assert f"test_causes.py:{start + 1}" in second


def test_a_shared_line_is_a_cause_in_every_node_that_passes_it(make_session):
    session = make_session()
    x, y = torch.ones(2), torch.ones(2)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for node, value in (("a", x), ("b", y)):
            session.input_tensors(node, {"x": value})
            by_float_of(value)
            session.output_tensors(node, {"y": value * 2})
    assert len([each for each in heard if each.category is errors.TraceEscapeWarning]) == 1
    for node in "ab":
        (cause,) = session.escapes.causes(node)
        assert f"node {node!r}" in cause.text


def by_float_of(value):
    return float(value[0])


def test_what_was_allowed_is_no_cause(make_session):
    session = make_session(allow={"escapes": [f"{__name__}:by_float_of"]})
    x = torch.ones(2)
    session.input_tensors("a", {"x": x})
    by_float_of(x)
    session.output_tensors("a", {"y": x * 2})
    assert session.escapes.notes
    assert session.escapes.causes("a") == ()


def report(*causes, off=1e-5, explained=False):
    spec = NodeSpec("n", (), (Port("y", TensorSpec("float32", (1,))),))
    ports = replay(
        lambda _: {"y": torch.tensor([1.0 + off])}, spec, [({}, {"y": torch.tensor([1.0])})], rtol=0, atol=1e-6
    )
    return NodeReport("n", (FormatReport("torchscript", ports),), causes=causes, explained=explained)


def test_rounding_is_still_named_where_nothing_was_drawn():
    assert "may be rounding" in report().lines()[-1]
    lines = report(Cause("escape", "float() at a.py:1")).lines()
    assert lines[0] == "float() at a.py:1"
    assert "may be rounding" in lines[-1]


def test_a_report_lists_a_handful_of_causes_and_counts_the_others():
    lines = report(*(Cause("escape", f"float() at a.py:{line}") for line in range(6))).lines()
    assert lines[3:5] == ["float() at a.py:3", "2 more warnings stand in evidence/notes.json."]


def test_what_an_error_explains_is_not_explained_twice():
    (line,) = report(Cause("escape", "float() at a.py:1"), explained=True).lines()
    assert line.startswith("n (torchscript): output 'y'")


def test_the_report_of_a_node_that_passes_says_nothing():
    assert report(Cause("random", "randn at a.py:1"), off=0.0).lines() == []


def test_a_recording_that_cannot_be_replayed_says_what_the_trace_warned_of():
    error = errors.NotReplayableError(
        node="n", port="y", detail="it is off", signs="", seen="float() at a.py:1 reads\n"
    )
    assert str(error).startswith("float() at a.py:1 reads\nNode 'n': the recorded graph")


def by_rotation(x):
    from scipy.spatial.transform import Rotation

    matrix = Rotation.from_quat(x).as_matrix()
    return matrix @ x[:3]  # here


def test_a_constant_that_nobody_saw_being_made_is_told_as_such(tmp_path):
    """Compiled code that fills memory of its own warns of nothing: the line that takes its result is what is known."""
    pytest.importorskip("scipy")
    text = str(refused(by_rotation, tmp_path, arrays=True))
    assert text.startswith("Node 'n' was recorded 2 times")
    assert f"test_causes.py:{line_of(by_rotation)}" in text
    assert "what made the constant was not recorded" in text
    assert "FunctionPatch" in text


HISTORY = np.zeros((3, 4), np.float32)
STATE_WEIGHT = np.arange(36, dtype=np.float32).reshape(3, 12) / 9


def by_ring(x):
    HISTORY[:-1] = HISTORY[1:]
    HISTORY[-1] = x  # here
    return STATE_WEIGHT @ HISTORY.ravel() + x[:3]


def by_ring_alone(x):
    HISTORY[:-1] = HISTORY[1:]
    HISTORY[-1] = x  # here
    return STATE_WEIGHT @ HISTORY.ravel()


@pytest.mark.parametrize(
    ("computation", "error"),
    [(by_ring, errors.RecordingsDifferError), (by_ring_alone, errors.OutputNotTracedError)],
)
def test_a_ring_buffer_outside_the_node_is_called_state_at_the_line_that_writes_it(computation, error, tmp_path):
    HISTORY[:] = 0
    found = refused(computation, tmp_path, arrays=True)
    assert type(found) is error
    first = str(found).splitlines()[0]
    assert first.startswith("HISTORY[-1] = x at ")
    assert f"test_causes.py:{line_of(computation)}" in first
    assert "it is state" in first
    assert "HISTORY = annotate.state_tensors('n', {'HISTORY': HISTORY})" in first


def test_what_the_remedy_of_a_ring_buffer_says_works(tmp_path):
    history = np.zeros((3, 4), np.float32)
    leapp.start("demo", save_path=tmp_path)
    for seed in range(4):
        x = annotate.input_tensors("n", {"x": np.random.default_rng(seed).normal(size=4).astype(np.float32)})
        history = annotate.state_tensors("n", {"history": history})
        history[:-1] = history[1:]
        history[-1] = x
        y = STATE_WEIGHT @ history.ravel()
        annotate.update_state("n", {"history": history})
        annotate.output_tensors("n", {"y": y}, export_with="torchscript")
    leapp.stop()
    assert leapp.compile_graph(visualize=False)


def test_an_array_made_in_the_node_is_no_state(tmp_path):
    def computation(x):
        row = np.frombuffer(bytearray(16), np.float32)
        row[:] = x
        return STATE_WEIGHT[:, :4] @ row + x[:3]

    first = str(refused(computation, tmp_path, arrays=True)).splitlines()[0]
    assert "writes a traced value" in first
    assert "Make the array inside the node" in first


def test_a_remedy_names_no_state_as_an_input_is_called(tmp_path):
    kept = deque([np.zeros(4, np.float32)] * 3, maxlen=3)

    def computation(x):
        kept.append(x)
        return STATE_WEIGHT @ np.concatenate(kept)

    x = np.ones(4, np.float32)
    leapp.start("demo", save_path=tmp_path)
    with pytest.raises(errors.StaleValueError, match=r"x_state = annotate.state_tensors\('n', {'x_state': x_state}\)"):
        for _ in range(2):
            traced = annotate.input_tensors("n", {"x": x})
            annotate.output_tensors("n", {"y": computation(traced)})


@pytest.mark.parametrize(("inputs", "name"), [((), "x"), (("x",), "x_state"), (("x", "x_state"), "x_state2")])
def test_the_name_of_a_state_is_a_free_one(inputs, name):
    assert state_name(inputs) == name


def test_a_build_notes_what_to_do_about_a_lost_wire():
    lost = errors.WireLostWarning(node="n", port="last", source="n/action", where="a.py:7")
    (note,) = _warned({"warnings": [{"class": "WireLostWarning", "text": str(lost)}], "escapes": []})
    assert "so the wire is lost (a.py:7). Move that computation into a node, or call annotate.mirror_leapp_tags" in note
    assert "\n" not in note
