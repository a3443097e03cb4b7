"""compile_graph plays the traced ticks through what it wrote: programs that are no pipeline are named, others pass."""

from __future__ import annotations

import json
import re
import runpy
import warnings
from pathlib import Path

import pytest
import torch

import leapp
from leapp import annotate, cli
from leapp.build.replay import replay_bundle
from leapp.bundle.samples import write_tensors
from leapp.errors import UnseenCopyWarning, ValidationError, ValidationWarning

WEIGHT = torch.linspace(-0.9, 0.9, 9).reshape(3, 3)


@pytest.fixture
def session(tmp_path):
    """A script: ``session(program)`` traces it, compiles, and gives the folder and the result."""

    def run(program, allow=None, **options):
        leapp.start("whole", save_path=tmp_path, allow=allow)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program(torch.Generator().manual_seed(1))
            leapp.stop()
        return tmp_path / "whole", leapp.compile_graph(visualize=False, **options)

    yield run
    if leapp._api.sessions.current() is not None:
        leapp.stop()


def played(folder):
    return json.loads((folder / "evidence" / "checks.json").read_bytes())["pipeline"]


def test_feedback_copied_out_of_sight_is_told_with_its_line(session):
    def program(rng):
        last = torch.zeros(2)
        for _ in range(3):
            x, last = annotate.input_tensors("n", {"x": torch.randn(2, generator=rng), "last": last})
            y = annotate.output_tensors("n", {"y": torch.tanh(x + last / 2)}, export_with="torchscript")
            last = torch.tensor(y.tolist())

    with pytest.warns(UnseenCopyWarning, match=r"input 'last' \(\S+_pipeline.py:\d+\) held, bit for bit, n/y at each"):
        session(program)


def seen(x, export_with="jit"):
    """Node ``see``: features of an input."""
    x = annotate.input_tensors("see", {"x": x})
    return annotate.output_tensors("see", {"features": torch.tanh(x @ WEIGHT)}, export_with=export_with)


def acted(features, last, export_with="jit"):
    """Node ``act``: an action from features and an earlier action."""
    features, last = annotate.input_tensors("act", {"features": features, "last": last})
    return annotate.output_tensors("act", {"action": features - 0.5 * last}, export_with=export_with)


def fresh(generator):
    return torch.randn(3, generator=generator)


# --- what passes -----------------------------------------------------------------------------------------------------


def test_feedback_over_several_ticks(session):
    def program(generator):
        last = torch.zeros(3)
        for _ in range(7):
            last = acted(seen(fresh(generator)), last)

    folder, result = session(program)
    assert result == {"see": True, "act": True}
    assert played(folder) == {"ok": True, "ticks": 5, "formats": ["torchscript"], "notes": []}


def test_a_new_episode_starts_from_values_of_the_program(session):
    def program(generator):
        last = torch.zeros(3)
        for tick in range(5):
            last = acted(seen(fresh(generator)), fresh(generator) if tick == 3 else last)

    folder, result = session(program)
    assert result == {"see": True, "act": True}
    assert played(folder)["ticks"] == 5
    assert played(folder)["notes"] == ["tick 3: 'act/last' did not come from 'act/action': given the traced value"]


def test_a_state_that_is_written_in_place_between_ticks(session):
    def program(generator):
        last = torch.zeros(3)
        for tick in range(4):
            last = acted(seen(fresh(generator)), last)
            if tick == 1:
                last[0] = 0.0

    folder, result = session(program)
    assert result == {"see": True, "act": True}
    assert played(folder)["ticks"] == 4
    assert played(folder)["notes"] == ["tick 2: 'act/last' did not come from 'act/action': given the traced value"]


def test_a_slow_node_is_played_where_it_was_entered(session):
    def program(generator):
        last = torch.zeros(3)
        for tick in range(5):
            if tick % 3 == 0:
                features = seen(fresh(generator))
            last = acted(features, last)

    folder, result = session(program)
    assert result == {"see": True, "act": True}
    assert played(folder)["ticks"] == 2
    assert played(folder)["notes"] == [
        "ticks 1, 2, 4 of the traced run: not played, 1 node (see) had no part in it",
    ]


def test_a_node_that_runs_alone_before_the_loop(session):
    def program(generator):
        last = torch.zeros(3)
        seen(fresh(generator))
        for _ in range(3):
            last = acted(seen(fresh(generator)), last)

    folder, result = session(program)
    assert result == {"see": True, "act": True}
    assert played(folder)["ticks"] == 3


def test_samples_from_outside_are_no_ticks(session):
    def program(generator):
        last = torch.zeros(3)
        for tick in range(4):
            features = seen(fresh(generator))
            last = acted(fresh(generator) if tick == 2 else features, last)

    folder, result = session(program)
    assert result == {"see": True, "act": True}
    assert played(folder)["ticks"] == 3
    assert "tick 2: 'act/features' came from outside" in played(folder)["notes"][0]


def test_a_node_without_a_model_gives_what_was_traced(session):
    def program(generator):
        last = torch.zeros(3)
        for _ in range(3):
            last = acted(seen(fresh(generator), export_with=None), last)

    folder, result = session(program)
    assert result == {"act": True}
    assert (played(folder)["ok"], played(folder)["ticks"]) == (True, 3)
    assert "see: no model that can be compared" in played(folder)["notes"][0]


def test_what_is_not_checked_is_not_played(session):
    folder, result = session(lambda generator: seen(fresh(generator)), validate=False)
    assert result is True
    assert played(folder) is None


def noisy(generator):
    for _ in range(3):
        x = annotate.input_tensors("noise", {"x": fresh(generator)})
        kept = torch.nn.functional.dropout(x, 0.5, training=True)
        kept = annotate.output_tensors("noise", {"kept": kept}, export_with="jit")
        seen(kept)


def test_a_model_that_may_draw_is_run_and_not_compared(session):
    folder, result = session(noisy, allow={"random": ["test_whole_pipeline:noisy"]})
    assert result == {"noise": True, "see": True}
    assert (played(folder)["ok"], played(folder)["ticks"]) == (True, 3)
    assert played(folder)["notes"] == ["noise: no model that can be compared; the traced outputs were fed in"]
    assert "noise torchscript: ok: it draws random numbers: only dtypes and shapes" in (folder / "log.txt").read_text()
    again = replay_bundle(folder)
    assert (again.ok, again.pipeline.ticks) == (True, 3)
    assert again.nodes[0].formats[0].note.startswith("it draws random numbers")


def test_a_model_that_may_not_draw_is_wrong(session):
    with pytest.raises(ValidationError, match="dropout at .* draws random numbers"):
        session(noisy)


# --- what does not ---------------------------------------------------------------------------------------------------


def older(generator):
    before, last = torch.zeros(3), torch.zeros(3)
    for _ in range(4):
        before, last = last, acted(seen(fresh(generator)), before)


def test_an_action_of_two_ticks_ago_is_no_feedback(session, tmp_path):
    with pytest.raises(ValidationError) as caught:
        session(older)
    text = str(caught.value)
    assert "act (whole pipeline, wiring): input 'last' (fed by act/action): element [" in text
    assert "] of tick 1: recorded 0.0, the pipeline brings " in text
    assert "at tick 2 it was traced with the value of 'act/action' at tick 0" in text
    assert "or declare what is kept longer as state" in text
    assert set(caught.value.facts["reports"]) == {"act"}
    assert json.loads((tmp_path / "whole" / "bundle.json").read_bytes())["status"] == "failed"


def test_without_strict_the_reports_come_back_and_count_as_false(session):
    with pytest.warns(ValidationWarning, match="input 'last'"):
        _, result = session(older, strict=False)
    assert result["see"] is True
    report = result["act"]
    assert not report
    assert all(each.ok for each in report.formats)
    (wiring,) = report.pipeline
    (port,) = (each for each in wiring.ports if not each.ok)
    assert (port.port, port.source, port.label) == ("last", "act/action", "tick 1")


def test_a_node_that_is_entered_twice_a_tick_is_no_pipeline(session):
    def program(generator):
        for _ in range(2):
            left, right = seen(fresh(generator)), seen(fresh(generator))
            left, right = annotate.input_tensors("join", {"left": left, "right": right})
            annotate.output_tensors("join", {"both": left + 2 * right}, export_with="jit")

    with pytest.raises(ValidationError, match="input 'left' \\(fed by see/features\\)"):
        session(program)


def test_old_features_are_no_forward_wire(session):
    def program(generator):
        features, last = None, torch.zeros(3)
        for _ in range(3):
            now = seen(fresh(generator))
            last = acted(now if features is None else features, last)
            features = now

    with pytest.raises(ValidationError, match="input 'features' \\(fed by see/features\\).* of tick 1: "):
        session(program)


# --- docs/validation.md ----------------------------------------------------------------------------------------------


def test_the_page_on_validation_shows_what_happens(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs" / "validation.md").read_text("utf-8")
    (script,) = re.findall(r"^<!-- file: controller.py -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (raised,) = re.findall(r"^<!-- raises: controller.py -->\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^<!-- output: leapp replay .*?-->\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("controller.py").write_text(script, "utf-8")
    with pytest.raises(ValidationError) as caught:
        runpy.run_path("controller.py")
    assert f"ValidationError: {caught.value}".startswith(raised)

    right = script.replace('"older": before', '"older": last')
    assert right != script
    Path("controller.py").write_text(right, "utf-8")
    runpy.run_path("controller.py")
    inputs = {"policy/x": torch.tensor([0.1, 0.2]), "policy/older": torch.zeros(2)}
    stored = {}
    for tick in range(4):
        x = inputs["policy/x"] * (tick + 1)
        inputs["policy/older"] = torch.tanh(x) - inputs["policy/older"] / 2
        stored |= {f"{tick}/in/policy/x": x, f"{tick}/out/policy/action": inputs["policy/older"].clone()}
    write_tensors(Path("right.safetensors"), stored)
    assert cli.main(["replay", "controller", "right.safetensors"]) == 0
    stored["2/out/policy/action"][1] += 0.25
    write_tensors(Path("robot.safetensors"), stored)
    capsys.readouterr()
    assert cli.main(["replay", "controller", "robot.safetensors"]) == 1
    assert shown in capsys.readouterr().out
