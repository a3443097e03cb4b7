"""What leaves the trace is named, with file and line."""

import contextlib
import sys
import textwrap
import warnings

import pytest
import torch

from leapp import errors
from leapp.trace.escapes import is_guard


def line_of(function, offset):
    return f"tests/trace/test_trace_escapes.py:{function.__code__.co_firstlineno + offset}"


@pytest.mark.parametrize(
    ("read", "spelling"),
    [
        (lambda a: a.sum().item(), r"\.item\(\)"),
        (lambda a: float(a.sum()), r"float\(\)"),
        (lambda a: int(a.sum()), r"int\(\)"),
        (lambda a: a.tolist(), r"\.tolist\(\)"),
        (lambda a: f"{a.sum():.2f}", r"format\(\)"),
        (lambda a: range(3)[a.argmax()], r"int\(\)"),
        (lambda a: torch.equal(a, a), "equal"),
    ],
)
def test_reads_warn_and_give_the_users_value(record, read, spelling):
    x = torch.tensor([0.5, -1.0, 0.25])
    expected = read(x.clone())
    got = []

    def function(a):
        got.append(read(a))
        return a * 2

    with pytest.warns(errors.TraceEscapeWarning, match=rf"{spelling} at tests/trace/test_trace_escapes.py:\d+ reads"):
        record(function, x)
    assert type(got[0]) is type(expected)
    assert str(got[0]) == str(expected)


def test_a_branch_is_an_error_with_line_and_remedy(record):
    def function(a):
        if a.norm() < 0.1:
            return a * 0
        return a

    with pytest.raises(errors.DataDependentBranchError, match="torch.where") as raised:
        record(function, torch.randn(3))
    assert line_of(function, 1) in str(raised.value)
    assert "test_a_branch_is_an_error_with_line_and_remedy.<locals>.function" in str(raised.value)


@pytest.mark.parametrize(
    "branch",
    [
        lambda a: a if a.sum() > 0 else -a,
        lambda a: a.sum() > 0 and a,
        lambda a: not a.any(),
        lambda a: max(a[0], a[1]),
        sorted,
        lambda a: 1.0 in a,
    ],
)
def test_every_kind_of_branch(record, branch):
    with pytest.raises(errors.DataDependentBranchError):
        record(lambda a: (branch(a), a * 2)[1], torch.randn(3))


def test_guards_are_notes(record):
    def function(a):
        assert a.isfinite().all(), "not finite"
        if (a > 100).any():
            raise ValueError("too large")
        return a * 2

    recorded = record(function, torch.randn(3))
    assert [note.kind for note in recorded.session.escapes.notes] == ["guard", "guard"]
    with pytest.raises(ValueError, match="too large"):
        record(function, torch.full((3,), 200.0))


def test_an_if_that_does_more_than_raise_is_no_guard(record):
    def function(a):
        if (a > 100).any():
            a = a / 2
        return a * 2

    with pytest.raises(errors.DataDependentBranchError):
        record(function, torch.randn(3))


def test_the_argument_checks_of_distributions_are_guards(record, monkeypatch):
    # Torch's compiler, once it is imported, switches them off for the whole process.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    recorded = record(lambda a: torch.distributions.Normal(a, a.exp()).log_prob(a), torch.randn(3))
    fresh = torch.randn(3)
    expected = torch.distributions.Normal(fresh, fresh.exp()).log_prob(fresh)
    assert torch.equal(recorded(fresh), expected)
    assert {note.kind for note in recorded.session.escapes.notes} == {"guard"}


def limited(a):
    limit = float(a.abs().mean())
    return a.clamp(-limit, limit)


def test_allowed_functions_are_notes(record):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorded = record(limited, torch.randn(3), allow={"escapes": ["test_trace_escapes:limited"]})
    assert [note.kind for note in recorded.session.escapes.notes] == ["escape-allowed"]

    def branching(a):
        return a if a.sum() > -1e9 else -a

    name = f"{__name__}:{branching.__qualname__}"
    record(lambda a: branching(a) * 1, torch.randn(3), allow={"branches": [name]})


def test_strict_raises_at_the_line(record):
    with pytest.raises(errors.LeftTraceError, match="float"):
        record(limited, torch.randn(3), strict=True)


def test_strict_by_environment(record, monkeypatch):
    monkeypatch.setenv("LEAPP_STRICT", "1")
    with pytest.raises(errors.LeftTraceError, match="float"):
        record(limited, torch.randn(3))


def test_a_line_warns_once(record):
    def function(a):
        for _ in range(5):
            a.sum().item()
        return a * 2

    with pytest.warns(errors.TraceEscapeWarning) as caught:
        record(function, torch.randn(3))
    assert len([w for w in caught if isinstance(w.message, errors.TraceEscapeWarning)]) == 1


def test_exploration_noise_is_said_aloud(record):
    with pytest.warns(errors.RandomOpWarning, match="torch.randn at .* one draw is frozen"):
        record(lambda a: a + torch.randn(a.shape), torch.randn(3))


def test_dropout_in_train_mode_is_said_aloud(record):
    with pytest.warns(errors.RandomOpWarning, match="dropout at .* the draw is part of the exported model"):
        record(lambda a: torch.nn.functional.dropout(a, 0.5, training=True), torch.randn(3))


def test_a_draw_that_no_call_names_is_noticed(record):
    generator = torch.default_generator

    def function(a):
        state = generator.get_state()
        state[0] += 1
        generator.set_state(state)
        return a * 2

    with pytest.warns(errors.RandomOpWarning):
        record(function, torch.randn(3))


def test_user_gets_the_same_random_numbers(record):
    torch.manual_seed(7)
    expected = torch.randn(3), torch.rand(2)
    torch.manual_seed(7)
    drawn = []
    with pytest.warns(errors.RandomOpWarning):
        record(lambda a: (drawn.extend((torch.randn(3), torch.rand(2))), a * 2)[1], torch.zeros(3))
    assert all(torch.equal(x, y) for x, y in zip(drawn, expected, strict=True))


GUARDS = [
    "if x: raise ValueError",
    "if not x:\n    message = f'{y}'\n    raise ValueError(message)",
    "assert x, 'no'",
    "assert y or (x and\n    x)",
    "if (y or\n    x):\n    raise KeyError",
    "if x and y:\n    raise KeyError",
    "assert any([x, 1])",
    "if bool(x): raise KeyError",
]
NO_GUARDS = [
    "if (z := bool(x)): raise KeyError",
    "while x:\n    break",
    "if x:\n    y = 1",
    "if x:\n    raise KeyError\nelse:\n    y = 1",
    "if x:\n    print(y)\n    y = 2",
    "z = 1 if x else 2",
    "w = x and 3",
    "z = not x",
    "bool(x)",
    "if y == 1: raise KeyError\nbool(x)",
    "v = [i for i in range(1) if x]",
    "if y:\n    z = 1 if x else 2\nelse:\n    raise KeyError",
]


class Asks:
    def __init__(self, value):
        self.value = value
        self.answers = []

    def __bool__(self):
        self.answers.append(is_guard(sys._getframe(1)))
        return self.value


@pytest.mark.parametrize(
    ("source", "expected"), [(each, True) for each in GUARDS] + [(each, False) for each in NO_GUARDS]
)
@pytest.mark.parametrize("value", [True, False])
def test_guards_are_told_by_the_running_instruction(tmp_path, source, expected, value):
    path = tmp_path / "code.py"
    path.write_text(f"def function(x, y):\n{textwrap.indent(source, '    ')}\n")
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    x = Asks(value)
    with contextlib.suppress(ValueError, KeyError, AssertionError):
        namespace["function"](x, 0 if "y or" in source else 2)
    assert x.answers
    assert set(x.answers) == {expected}


def test_without_source_nothing_is_a_guard():
    namespace = {}
    exec(compile("def function(x):\n    assert x", "gone.py", "exec"), namespace)
    x = Asks(True)
    namespace["function"](x)
    assert x.answers == [False]


@pytest.mark.parametrize(
    ("function", "spelling"),
    [
        (lambda a: a * len(a[a > 0]), r"len\(\)"),
        (lambda a: a / a[a > 0].shape[0], r"\.shape"),
        (lambda a: a * (a > 0).nonzero().size(0), r"\.size\(\)"),
        (lambda a: a * torch.unique(a).numel(), r"\.numel\(\)"),
        (lambda a: a * (a[a > 0] * 2 + 1).shape[0], r"\.shape"),
        (lambda a: a * torch.where(a > 0)[0].shape[0], r"\.shape"),
    ],
)
def test_the_length_of_a_selection_is_a_read(record, function, spelling):
    with pytest.warns(errors.TraceEscapeWarning, match=rf"{spelling} at tests/trace"):
        record(function, torch.tensor([0.5, -1.0, 0.25]))


def test_lengths_that_do_not_follow_the_data_are_no_reads(record):
    mask = torch.tensor([True, False, True])

    def function(a):
        total = a[a > 0].sum()
        return a * total.reshape(()).dim() + a[mask].shape[0] * len(a) + total

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorded = record(function, torch.tensor([0.5, -1.0, 0.25]))
    fresh = torch.tensor([0.5, 1.0, 0.25])
    assert torch.equal(recorded(fresh), function(fresh))


def test_an_object_made_by_calling_the_class(record):
    recorded = record(lambda a: type(a)(a) * 2 + a, torch.randn(3))
    fresh = torch.randn(3)
    assert torch.equal(recorded(fresh), fresh * 3)
