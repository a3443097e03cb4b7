"""Scripted and traced code inside a node: walked op by op, with TorchScript's own values."""

import inspect
import io
import linecache
import os
import subprocess
import sys
import warnings

import pytest
import scripted_cases as cases
import torch

from leapp import errors
from leapp._spec import ExportFormat
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import run_passes
from leapp.graph.passes import EXPORT_PASSES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


def fresh(seed):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)) * 2


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def assert_same(first, second):
    for one, other in zip(as_tuple(first), as_tuple(second), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one.detach().nan_to_num(), other.detach().nan_to_num())


def unoptimised(scripted):
    def call(x):
        with torch.jit.optimized_execution(False):
            return scripted(x)

    return call


def check(record, scripted, count=3):
    """The user's value is the native one, on the first and on later calls; the recording holds for other inputs.

    Compared with TorchScript's optimiser off: after the second call it writes ``addmm`` as ``mm`` and ``add``, and then
    TorchScript's own values differ in their last bits from those of its first call, which are the ones that hold here.
    """
    scripted = unoptimised(scripted)
    for seed in range(count):
        native = scripted(fresh(seed))
        recorded = record(lambda a: scripted(a), fresh(seed))
        assert_same(recorded.result, native)
    for seed in range(10, 12):
        assert_same(recorded(fresh(seed)), scripted(fresh(seed)))
    return recorded


@pytest.mark.parametrize("function", cases.FUNCTIONS, ids=lambda each: each.__name__)
def test_scripted_functions(record, function):
    recorded = check(record, torch.jit.script(function))
    assert recorded.targets


@pytest.mark.parametrize("module", cases.MODULES, ids=lambda each: each.__name__)
def test_scripted_modules(record, module):
    torch.manual_seed(0)
    made = module().eval()
    recorded = check(record, torch.jit.script(made))
    names = dict(made.named_parameters()) | dict(made.named_buffers())
    assert {name for name in recorded.graph.constants if not name.startswith("_tensor_constant")} <= set(names)
    assert any(name in names for name in recorded.graph.constants)


def traced_function(x):
    y = x * 2.5
    z = y.reshape(y.shape[0] * 1, -1)
    z[0] = 1
    return z + torch.ones(3), torch.conv2d(torch.ones(1, 1, 3, 3) * y.sum(), torch.ones(1, 1, 2, 2))


def reloaded(scripted):
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return torch.jit.load(file)


def test_traced_functions(record):
    check(record, torch.jit.trace(traced_function, fresh(5)))


@pytest.mark.parametrize("load", [lambda made: made, reloaded], ids=["made", "loaded"])
def test_traced_modules(record, load):
    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.LayerNorm(3))
    recorded = check(record, load(torch.jit.trace(made, fresh(5))))
    assert list(recorded.graph.constants) == ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize("module", [cases.Outer, cases.Attention], ids=lambda each: each.__name__)
def test_loaded_modules(record, module):
    check(record, reloaded(torch.jit.script(module().eval())))


def test_tied_weights_are_one_constant_and_named_from_the_outermost_module(record):
    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = torch.jit.script(cases.Outer().eval())

        def forward(self, x):
            return self.policy(x)

    recorded = check(record, Wrapper())
    names = [name for name in recorded.graph.constants if "blocks" in name]
    assert sorted(names) == ["policy.blocks.0.bias", "policy.blocks.0.weight", "policy.blocks.1.bias"]


def line_of(text):
    lines = inspect.getsource(cases).splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_ops_carry_the_scripted_line(record):
    recorded = record(torch.jit.script(cases.nested_calls), fresh(0))
    assert {source.line for source in recorded.graph.sources.values()} == {
        line_of("return x * n + scale"),
        line_of("return helper(helper(x), n=3)"),
    }
    assert recorded.graph.sources["mul"].function == "scripted_cases:helper"


def test_a_branch_on_a_traced_value_is_an_error_at_the_scripted_line(record):
    with pytest.raises(errors.DataDependentBranchError) as caught:
        record(torch.jit.script(cases.branch), fresh(0))
    assert f"scripted_cases.py:{line_of('if bool(x.sum() > 0)')}" in str(caught.value)
    assert "scripted_cases:branch" in str(caught.value)


def test_a_loop_that_ends_by_a_traced_value_is_an_error(record):
    with pytest.raises(errors.DataDependentBranchError, match=f"scripted_cases.py:{line_of('while bool(')}"):
        record(torch.jit.script(cases.endless), fresh(0))


def test_a_branch_can_be_allowed(record):
    scripted = torch.jit.script(cases.branch)
    recorded = record(scripted, fresh(0).abs(), allow={"branches": ["scripted_cases:branch"]})
    assert_same(recorded(fresh(1)), fresh(1) * 2)
    assert [note.kind for note in recorded.session.escapes.notes] == ["branch-allowed"]


def test_guards_are_noted(record):
    recorded = record(torch.jit.script(cases.guards), fresh(0))
    notes = [(note.kind, note.line) for note in recorded.session.escapes.notes]
    assert {kind for kind, _ in notes} == {"guard"}
    assert line_of("if bool(torch.isnan(x)") in {line for _, line in notes}


def test_reads_are_warned_of_at_the_scripted_line(record):
    with pytest.warns(errors.TraceEscapeWarning, match=f"scripted_cases.py:{line_of('float(x.sum())')}"):
        record(torch.jit.script(cases.escapes), fresh(0))


def test_errors_are_those_of_torchscript(make_session):
    scripted = torch.jit.script(cases.raising)
    for shape in ((2, 3), (3, 3), (4, 3)):
        caught = []
        for inside in (False, True):
            session = make_session()
            x = torch.ones(shape)
            if inside:
                session.input_tensors(f"n{shape[0]}", {"x": x})
            with pytest.raises((RuntimeError, torch.jit.Error)) as error:
                scripted(x)
            caught.append((error.type, str(error.value).strip().splitlines()[-1]))
            session.stop()
        assert caught[0] == caught[1]


def test_wrong_arguments_are_refused_by_torchscript(record):
    scripted = torch.jit.script(cases.nested_calls)
    with pytest.raises(RuntimeError, match="expected at most 1 argument"):
        record(lambda a: scripted(a, 1), fresh(0))


def test_state_is_written_as_natively(record):
    first, second = torch.jit.script(cases.Stateful()), torch.jit.script(cases.Stateful())
    for seed in range(2):
        first(fresh(seed))
    record(lambda a: second(second(a)), fresh(0), allow={})
    plain, traced = dict(first.named_buffers()), dict(second.named_buffers())
    assert plain["count"] == traced["count"] == 2
    assert first.seen == second.seen == [3, 3]


def test_arguments_and_results_are_converted_as_natively(record):
    scripted = torch.jit.script(cases.structured)
    names = {"one": fresh(1)}
    items = [fresh(2)]

    def call(a):
        out = scripted(a, items, names, 2)
        assert type(out).__name__ == "Pose"
        assert out.scale == 2.0
        assert len(items) == 1
        return out.position

    recorded = record(call, fresh(0))
    assert_same(recorded(fresh(7)), scripted(fresh(7), items, names, 2).position)


def test_unknown_code_is_refused_by_name(record):
    scripted = torch.jit.script(cases.unknown)
    with pytest.raises(errors.UnrecordableOpError, match="scripted_cases.py:"):
        record(scripted, fresh(0))


def test_scripting_switched_off_later(record, monkeypatch):
    scripted = torch.jit.script(cases.loops)
    monkeypatch.setattr(torch.jit._state._enabled, "enabled", False)
    check(record, scripted)


@pytest.mark.parametrize("name", ["torchscript", "pt2", "onnx"])
def test_scripted_code_leaves_in_three_formats(record, tmp_path, name):
    torch.manual_seed(0)
    policy = torch.jit.script(cases.Outer().eval())
    recorded = record(lambda a: policy(a) + torch.ops.aten.sigmoid(a), fresh(0))
    format = ExportFormat(name)
    graph = run_passes(recorded.graph, EXPORT_PASSES)
    path = tmp_path / f"policy{format.suffix}"
    backend_for(format).write(graph, (fresh(1),), path, ExportOptions())
    run = backend_for(format).open(path, graph.spec)
    for seed in (20, 21):
        x = fresh(seed)
        torch.testing.assert_close(run({"a": x})["out0"], policy(x).detach() + x.sigmoid())


def test_a_process_without_torchscript():
    code = (
        "import torch, pathlib\n"
        "from leapp.trace.session import Session, SessionOptions\n"
        "f = torch.jit.script(lambda x: x * 2)\n"
        "session = Session(SessionOptions(name='t', folder=pathlib.Path('u')))\n"
        "x = torch.ones(3)\n"
        "session.input_tensors('n', {'x': x})\n"
        "session.output_tensors('n', {'y': f(x)})\n"
        "session.stop()\n"
        "print([n.name for n in session.completed[0].recordings[0].graph.graph.nodes])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTORCH_JIT": "0"}, capture_output=True, text=True, check=True
    )
    assert "mul" in done.stdout


def test_the_files_that_a_saved_model_was_made_from_are_not_read(record, tmp_path, monkeypatch):
    (tmp_path / "made_elsewhere.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.tanh(x) * 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import made_elsewhere

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(made_elsewhere.Model(), torch.zeros(2)).save(tmp_path / "model.pt")
        loaded = torch.jit.load(tmp_path / "model.pt")
    monkeypatch.delitem(sys.modules, "made_elsewhere")
    linecache.clearcache()
    recorded = record(loaded, torch.randn(2))
    assert str(tmp_path / "made_elsewhere.py") not in linecache.cache
    fresh = torch.randn(2)
    assert torch.equal(recorded(fresh), torch.tanh(fresh) * 2)
    assert str(recorded.graph.sources["tanh"]).endswith("made_elsewhere.py:6")
