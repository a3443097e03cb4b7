"""Random programs with views and writes: the recording gives what the untraced program gives on other inputs."""

import inspect
import re

import programs as language
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from judge import FORMATS, WrongError, computes_complex, export, judge
from programs import Program, programs

from leapp._spec import ExportFormat
from leapp.ops import torch_table
from leapp.trace.recorder import Recorder

# The same programs in every run; `nox -s programs` draws others.
always = settings(
    max_examples=150,
    database=None,
    deadline=None,
    derandomize=True,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


@always
@given(programs())
def test_a_recording_is_the_program(program):
    verdict = judge(program)
    assume(not verdict.skipped)


def drawn(count):
    """So many judged programs, always the same."""
    verdicts = []

    @settings(always, max_examples=2 * count, phases=[Phase.generate])
    @given(programs())
    def run(program):
        verdict = judge(program)
        if verdict.graph is not None and len(verdicts) < count:
            verdicts.append(verdict)

    run()
    return verdicts


@pytest.mark.parametrize("format", FORMATS, ids=lambda each: each.value)
def test_exported_programs_give_the_same(format, tmp_path):
    verdicts = drawn(40 if format is not ExportFormat.ONNX else 16)
    if format is ExportFormat.ONNX:
        verdicts = [each for each in verdicts if not computes_complex(each)]
    refused = export(verdicts, format, tmp_path)
    assert len(refused) < len(verdicts) / 4, refused


def of_text(*body, outputs, outside=()):
    sets = ("torch.tensor([1.0, 2.0, 3.0])",), ("torch.tensor([-4.0, 5.0, 0.5])",)
    return Program(tuple(outside), ("a",), sets, tuple(body), tuple(outputs), rounded=False)


def test_a_lost_write_is_found(monkeypatch):
    program = of_text("v0 = a * 2", "v1 = v0[1:]", "v1.add_(a[0])", outputs=["v0"])
    assert not judge(program).refused
    call = Recorder.call

    def forgetful(self, op, target, name, args, kwargs, info):
        return call(self, op, target, name, args, kwargs, info._replace(written=()))

    monkeypatch.setattr(Recorder, "call", forgetful)
    with pytest.raises(WrongError, match="out0 of the recording is"):
        judge(program)


def test_a_frozen_value_is_found():
    with pytest.raises(WrongError, match="out0 of the recording is"):
        judge(of_text("v0 = a * float(a[0])", outputs=["v0"]))


def test_a_change_of_what_lies_outside_is_found(monkeypatch):
    from leapp.trace import tensor

    program = of_text("p0.add_(a)", "v1 = p0 * 1", outputs=["v1"], outside=["p0 = torch.zeros(3)"])
    assert not judge(program).refused
    record = tensor._record

    def twice(func, row, args, kwargs, recording):
        if row.name == "add_":
            record(func, row, args, kwargs, recording)
        return record(func, row, args, kwargs, recording)

    monkeypatch.setattr(tensor, "_record", twice)
    with pytest.raises(WrongError, match=r"p0 is .* while it was traced"):
        judge(program)


def test_a_printed_program_runs(capsys):
    program = of_text("v0 = a.view(-1)", "v0[0] = 7", outputs=["v0", "a"])
    exec(compile(program.text, "printed", "exec"), names := {"__name__": "printed"})
    first = names["program"](*names["SET2"]())
    assert first["out0"].tolist() == [7.0, 5.0, 0.5]
    monkey = {"__name__": "__main__"}
    exec(compile(program.text, "printed", "exec"), monkey)
    assert "7.0" in capsys.readouterr().out


NOT_DRAWN = {
    "__div__": "Python 2", "__rdiv__": "Python 2", "__idiv__": "Python 2",
    "__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rtruediv__": "/", "__rfloordiv__": "//", "__rmod__": "%",
    "__rpow__": "**", "__rmatmul__": "@", "__rand__": "&", "__ror__": "|", "__rxor__": "^", "__rlshift__": "<<",
    "__rrshift__": ">>",
    "cuda": "another device", "ipu": "another device", "mtia": "another device", "xpu": "another device",
    "polygamma": "takes a number first", "combinations": "vectors only; the walk over all functions calls it",
}  # fmt: skip
"""Operators of the table that the programs reach by another spelling, or not at all, and why."""

SPELLED = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
    "__pow__": "**", "__matmul__": "@", "__and__": "&", "__or__": "|", "__xor__": "^", "__invert__": "~@",
    "__lshift__": "<<", "__rshift__": ">>", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=",
    "__gt__": ">", "__ge__": ">=", "__neg__": "-@", "__pos__": "+@", "__abs__": "abs(@)", "__getitem__": "[{index}]",
    "__setitem__": "[{index}] {operator}", "__iadd__": "+=", "__isub__": "-=", "__imul__": "*=", "__itruediv__": "/=",
    "__ifloordiv__": "//=", "__imod__": "%=", "__ipow__": "**=", "__iand__": "&=", "__ior__": "|=", "__ixor__": "^=",
    "__ilshift__": "<<=", "__irshift__": ">>=", "__reversed__": "reversed(@)", "__deepcopy__": "copy.deepcopy(@)",
}  # fmt: skip


def test_every_row_of_the_table_can_be_drawn():
    text = inspect.getsource(language)
    missing = [name for name in torch_table._OPERATORS if name not in NOT_DRAWN and SPELLED[name] not in text]
    missing += [
        name
        for name in (*torch_table._METHODS, *torch_table._PROPERTIES)
        if name not in NOT_DRAWN and not re.search(rf"(\.|\b){name}\b", text)
    ]
    assert not missing


HARD = (
    r"\.diagonal\(", r"as_strided", r"unfold", r"view_as_real", r"\+= ", r"index_put_|index_add_|scatter", r"out=",
    r"masked_fill_", r"\.data", r"\[\(.* > 0\)\] ", r"m0\(", r"big", r"\.numpy\(\)", r"\.conj\(\)", r"unbind",
)  # fmt: skip


def test_what_makes_programs_hard_is_no_rare_luck():
    texts = []

    @settings(always, max_examples=500, phases=[Phase.generate])
    @given(programs())
    def run(program):
        texts.append("\n".join((*program.outside, *program.body)))

    run()
    counts = {pattern: sum(bool(re.search(pattern, text)) for text in texts) for pattern in HARD}
    assert min(counts.values()) > 1, counts


def test_most_programs_answer_to_their_inputs():
    """One that gives the same on both sets proves little."""
    verdicts = drawn(30)
    moved = [
        any(not torch.equal(each.first[name], value) for name, value in each.expected.items()) for each in verdicts
    ]
    assert sum(moved) > 20
