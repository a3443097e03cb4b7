"""Random NumPy programs: the recording gives what the untraced program gives on other inputs."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from judge import WrongError, export
from numpy_judge import judge
from numpy_programs import CHANGES, FORMS, PRELUDE, numpy_programs, printed
from programs import Program

from leapp._spec import ExportFormat

# The same programs in every run; `nox -s programs` draws others.
always = settings(
    max_examples=100,
    database=None,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # what is wrong is made smaller by `nox -s programs`
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


def test_a_recording_is_the_program():
    wrong = []

    @always
    @given(numpy_programs())
    def run(program):
        try:
            judge(program)
        except WrongError as error:
            wrong.append(f"{error}\n{printed(program)}")

    run()
    assert not wrong, wrong


def drawn(count):
    """So many judged programs, always the same; those that a fault makes wrong are the other test's to tell."""
    verdicts, refused = [], []

    @settings(always, max_examples=2 * count)
    @given(numpy_programs())
    def run(program):
        try:
            verdict = judge(program)
        except WrongError:
            return
        (verdicts if verdict.graph is not None else refused).append(verdict)

    run()
    return verdicts[:count], refused


def test_exported_programs_give_the_same(tmp_path):
    verdicts, _ = drawn(12)
    refused = export(verdicts, ExportFormat.ONNX, tmp_path)
    assert len(refused) < len(verdicts) / 3, refused


def test_most_programs_are_recorded():
    verdicts, refused = drawn(60)
    assert len(verdicts) > 2 * len(refused), [each.refused for each in refused]


def of_text(*body, outputs):
    sets = ("np.array([1.0, 2.0, 3.0])",), ("np.array([-4.0, 5.0, 0.5])",)
    return Program((), ("a",), sets, tuple(body), tuple(outputs), rounded=False)


def test_a_frozen_value_is_refused_by_name():
    assert "TraceEscapeWarning" in judge(of_text("v0 = a * float(a[0])", outputs=["v0"])).refused


def test_a_wrong_recording_is_found(monkeypatch):
    from leapp.trace.recorder import Recorder

    program = of_text("v0 = a * 2", "v0[1:] += a[0]", outputs=["v0"])
    assert not judge(program).refused
    call = Recorder.call

    def forgetful(self, op, target, name, args, kwargs, info):
        return call(self, op, target, name, args, kwargs, info._replace(written=()))

    monkeypatch.setattr(Recorder, "call", forgetful)
    with pytest.raises(WrongError, match="out0 of the recording is"):
        judge(program)


def test_a_printed_program_runs():
    program = of_text("v0 = a * 2", "v0[0] = 7", outputs=["v0", "a"])
    exec(compile(printed(program), "printed", "exec"), names := {"__name__": "printed"})
    assert names["program"](*names["SET2"]())["out0"].tolist() == [7.0, 10.0, 1.0]
    assert PRELUDE in printed(program)


def test_every_form_is_one_expression_or_statement():
    for form in (*FORMS["exact"], *FORMS["jumps"], *FORMS["rounds"]):
        text = form
        for sign in "@#$":
            text = text.replace(sign, "a")
        compile(text.replace("{index}", "[0]").replace("{axis}", "0").replace("{number}", "0"), form, "eval")
    for form in CHANGES:
        text = form.replace("~", "a").replace("@", "a").replace("#", "a").replace("$", "a")
        compile(text.replace("{index}", "[0]").replace("{axis}", "0").replace("{number}", "0"), form, "exec")
