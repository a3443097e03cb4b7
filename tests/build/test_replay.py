"""``leapp replay``: bundles whose wires, states or models were altered, and logs, are told apart from sound ones."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import leapp
from leapp import annotate, cli, errors
from leapp.build.replay import replay_bundle
from leapp.bundle import write
from leapp.bundle.samples import RawTensor, read_tensors, write_tensors

WEIGHT = torch.linspace(-1, 1, 9).reshape(3, 3)


def estimate(x, memory):
    return torch.tanh(x @ WEIGHT) + 0.5 * memory


def control(features, h, c):
    next_h = torch.tanh(features + 0.5 * h - c)
    next_c = 0.9 * c + features * h
    return next_h - next_c, 0.3 * next_h, next_h, next_c


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Two nodes, a forward wire, feedback between them, two states; four ticks, the third begins a new episode."""
    folder = tmp_path_factory.mktemp("sound")
    generator = torch.Generator().manual_seed(3)
    memory, h, c = torch.zeros(3), torch.full((3,), 0.5), torch.zeros(3)
    leapp.start("loop", save_path=folder)
    for tick in range(4):
        if tick == 2:
            h, c = torch.rand(3, generator=generator), torch.zeros(3)
        x = torch.randn(3, generator=generator)
        x, memory = annotate.input_tensors("estimator", {"x": x, "memory": memory})
        features = annotate.output_tensors("estimator", {"features": estimate(x, memory)}, export_with="jit")
        features = annotate.input_tensors("policy", {"features": features})
        h, c = annotate.state_tensors("policy", {"h": h, "c": c})
        action, memory, h, c = control(features, h, c)
        annotate.update_state("policy", {"h": h, "c": c})
        action, memory = annotate.output_tensors(
            "policy", {"action": action, "memory": memory}, export_with=["jit", "pt2"]
        )
    leapp.stop()
    assert leapp.compile_graph(visualize=False) == {"estimator": True, "policy": True}
    return folder / "loop"


@pytest.fixture
def altered(sound, tmp_path):
    """``altered(edit)``: a copy of the bundle that ``edit(folder)`` changed, with digests that fit again."""

    def make(edit):
        folder = tmp_path / "altered"
        shutil.copytree(sound, folder)
        edit(folder)
        (folder / "bundle.json").unlink()
        write.seal(folder, name="loop", version="0.0.0", status="ok")
        write.index_evidence(folder, "loop")
        return folder

    return make


def in_yaml(old, new):
    def edit(folder):
        path = folder / "loop.yaml"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    return edit


def starting_with(key, change):
    def edit(folder):
        path = folder / "loop_initial_values.safetensors"
        values = read_tensors(path)
        values[key] = RawTensor.of(change(values[key].torch()))
        write_tensors(path, values)
        digest = write.size_and_sha256(path)[1]
        contract = folder / "loop.yaml"
        lines = contract.read_text("utf-8").splitlines()
        lines = [
            f'  initial_values_sha256sum: "{digest}"' if "initial_values_sha256" in each else each for each in lines
        ]
        contract.write_text("\n".join(lines) + "\n", "utf-8")

    return edit


def problems(path, **options):
    found = replay_bundle(path, **options)
    return found, [line for report in found.nodes for line in report.lines()]


def test_a_sound_bundle_agrees_and_the_new_episode_is_noted(sound):
    found, lines = problems(sound)
    assert (found.ok, lines, found.pipeline.ticks, found.pipeline.formats) == (True, [], 4, ("torchscript", "pt2"))
    assert found.pipeline.notes == (
        "tick 2: 'policy/c' did not come from 'policy/c': given the traced value",
        "tick 2: 'policy/h' did not come from 'policy/h': given the traced value",
    )


def test_the_evidence_holds_what_was_compared(sound):
    checks = json.loads((sound / "evidence" / "checks.json").read_bytes())
    assert checks["pipeline"]["ticks"] == 4
    (policy,) = (each for each in checks["nodes"] if each["node"] == "policy")
    (port,) = (each for each in policy["formats"][0]["ports"] if each["port"] == "action")
    assert (port["samples"], port["statistics"]["elements"], port["statistics"]["beyond"]) == (4, 12, 0)
    log = (sound / "log.txt").read_text("utf-8")
    assert "policy torchscript: 'action': ok, 4 compared, 0 of 12 elements out of tolerance" in log
    assert "whole pipeline: ok, 4 ticks in torchscript, pt2" in log


def test_a_swapped_state_is_named(altered):
    def swap(folder):
        in_yaml("policy/c: [policy/c]", "policy/c: [policy/h]")(folder)
        in_yaml("policy/h: [policy/h]", "policy/h: [policy/c]")(folder)

    found, lines = problems(altered(swap))
    assert not found.ok
    assert any(
        line.startswith("policy (whole pipeline, wiring): input 'h' (fed by policy/c): element [")
        and "] of tick 1: recorded" in line
        and line.endswith("at tick 1 it was traced with the value of 'policy/h' at tick 0")
        for line in lines
    ), lines
    assert "hand over the very output" in lines[-1]


def test_a_wire_from_another_output_is_named(altered):
    edit = in_yaml("policy/memory: [estimator/memory]", "policy/action: [estimator/memory]")
    _, lines = problems(altered(edit))
    assert lines[0].startswith("estimator (whole pipeline, wiring): input 'memory' (fed by policy/action): element [")
    assert lines[0].endswith("at tick 1 it was traced with the value of 'policy/memory' at tick 0")


@pytest.mark.parametrize("ticks", ["recorded", "lost"])
def test_an_altered_start_is_named_with_both_values(altered, ticks):
    def edit(folder):
        starting_with("policy/h", lambda value: value + torch.tensor([0.0, 0.25, 0.0]))(folder)
        if ticks == "lost":
            (folder / "evidence" / "ticks.json").unlink()

    found, lines = problems(altered(edit))
    assert not found.ok
    assert lines[0].startswith(
        "policy (whole pipeline, torchscript): input 'h' (its start): element [1] of entry 1: recorded 0.5, "
        "the pipeline brings 0.75: apart by 0.25, allowed 0"
    )
    assert "say how it starts in [nodes.policy.state]" in lines[-1]


def test_a_sample_that_is_nan_is_counted_as_recorded(altered):
    def edit(folder):
        path = folder / "evidence" / "samples" / "policy.safetensors"
        tensors = read_tensors(path)
        tensors["3/out/action"] = RawTensor.of(torch.tensor([float("nan"), 0.0, 0.0]))
        write_tensors(path, tensors)

    found, lines = problems(altered(edit))
    assert not found.ok
    assert "of entry 4: recorded nan, the model gives " in lines[0]
    assert "NaN: 1 recorded, 0 in the model" in lines[0]


def test_one_format_alone(sound):
    found, _ = problems(sound, format="pt2")
    assert (found.ok, found.pipeline.formats, [report.node for report in found.nodes]) == (True, ("pt2",), ["policy"])
    assert any("estimator: no model that can be compared" in note for note in found.pipeline.notes)


def test_a_format_for_one_node(sound):
    found, _ = problems(sound, format={"policy": "pt2"})
    formats = {report.node: [each.format for each in report.formats] for report in found.nodes}
    assert formats["policy"] == ["pt2"]
    assert len(formats["estimator"]) >= 1
    with pytest.raises(
        errors.NoModelError, match=r"'estimator' has no model file as pt2: it has torchscript\.\nLeave out --format"
    ):
        problems(sound, format={"policy": "pt2", "estimator": "pt2"})
    with pytest.raises(errors.NoModelError, match="as onnx: and no other node has one either"):
        problems(sound, format="onnx")
    with pytest.raises(errors.UnknownNodeNameError, match="--format names 'polcy'"):
        problems(sound, format={"polcy": "pt2"})
    with pytest.raises(errors.UnknownFormatError, match="Did you mean 'onnx'"):
        problems(sound, format={"policy": "onx"})


# --- logs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(sound, tmp_path_factory):
    """Twelve ticks of the untraced code."""
    path = tmp_path_factory.mktemp("log") / "robot.safetensors"
    generator = torch.Generator().manual_seed(8)
    memory, h, c = torch.zeros(3), torch.full((3,), 0.5), torch.zeros(3)
    stored = {}
    for tick in range(12):
        x = torch.randn(3, generator=generator)
        stored[f"{tick}/in/estimator/x"] = x
        action, memory, h, c = control(estimate(x, memory), h, c)
        stored[f"{tick}/out/policy/action"] = action
        stored[f"{tick}/out/policy/memory"] = memory
    write_tensors(path, stored)
    return path


@pytest.fixture
def other_log(log, tmp_path):
    """``other_log(change)``: the log with other tensors."""

    def make(change):
        tensors = {key: raw.torch() for key, raw in read_tensors(log).items()}
        change(tensors)
        path = tmp_path / "other.safetensors"
        write_tensors(path, tensors)
        return path

    return make


def replayed(capsys, *arguments):
    code = cli.main(["replay", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("options", [[], ["--format", "pt2"]])
def test_a_log_of_the_untraced_code_agrees(sound, log, capsys, options):
    if options:
        assert cli.main(["replay", str(sound), str(log), *options]) == 2
        assert "Node 'estimator' has no model file as pt2" in capsys.readouterr().err
        return
    code, record = replayed(capsys, sound, log)
    assert (code, record["ok"], record["ticks"], record["first"]) == (0, True, 12, None)
    assert {(row["port"], row["samples"]) for row in record["checks"]} == {("action", 12), ("memory", 12)}


def test_the_first_tick_port_and_element_that_part_are_named(sound, other_log, capsys):
    def change(tensors):
        tensors["5/out/policy/memory"][1] += 0.5
        tensors["7/out/policy/action"][2] += 3.0
        tensors["9/out/policy/memory"][0] += 9.0

    path = other_log(change)
    code, record = replayed(capsys, sound, path)
    assert code == 1
    first = record["first"]
    assert (first["node"], first["port"], first["tick"], first["where"]) == ("policy", "memory", 5, [1])
    assert first["apart"] == pytest.approx(0.5, rel=1e-5)
    assert first["failed"] == [5, 9]
    assert (first["statistics"]["beyond"], first["statistics"]["elements"]) == (2, 36)
    assert cli.main(["replay", str(sound), str(path)]) == 1
    text = capsys.readouterr().out
    assert "policy: output 'memory': element [1] of tick 5: recorded" in text
    assert "1 more part as well" in text
    assert cli.main(["replay", str(sound), str(path), "--atol", "10"]) == 0


def test_a_log_that_begins_in_the_middle_brings_its_state(sound, other_log, log, capsys):
    run = leapp.InferenceManager(sound)
    ticks = {key: raw.torch() for key, raw in read_tensors(log).items()}
    for tick in range(4):
        run({"estimator/x": ticks[f"{tick}/in/estimator/x"]})
    held = run.feedback_inputs

    def change(tensors):
        tensors.clear()
        for tick in range(4, 12):
            tensors |= {
                f"{tick - 4}{key.removeprefix(str(tick))}": value
                for key, value in ticks.items()
                if key.startswith(f"{tick}/")
            }
        tensors |= {f"0/feedback/{key}": value for key, value in held.items()}

    code, record = replayed(capsys, sound, other_log(change))
    assert (code, record["ticks"]) == (0, 8)
    assert record["notes"] == [
        "the log begins with other values than the pipeline in estimator/memory, policy/c, policy/h: they were put in"
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.update({"0/in/estimator/y": t["0/in/estimator/x"]}),
         "'0/in/estimator/y' names no outer input of the pipeline; it has estimator/x"),
        (lambda t: t.update({"3/out/policy/torque": t["0/in/estimator/x"]}), "'3/out/policy/torque' names no output"),
        (lambda t: t.update({"3/in/policy/features": t["0/in/estimator/x"]}), "names no outer input"),
        (lambda t: t.pop("4/in/estimator/x"), "tick 4 has no input 'estimator/x'"),
        (lambda t: [t.pop(key) for key in list(t) if key.startswith("4/")], "tick 4 is missing"),
        (lambda t: t.update({"2/in/estimator/x": torch.zeros(4)}),
         "'2/in/estimator/x' is float32[4], the pipeline has float32[3]"),
        (lambda t: t.update({"2/out/policy/action": torch.zeros(3, dtype=torch.float64)}), "is float64[3]"),
        (lambda t: [t.pop(key) for key in list(t) if "/out/" in key], "it holds no outputs"),
        (lambda t: (t.clear(), t.update({"estimator/x": torch.zeros(3)})), "there is nothing to compare with"),
    ],
)  # fmt: skip
def test_a_log_that_does_not_fit_is_refused_before_anything_runs(sound, other_log, capsys, change, text):
    assert cli.main(["replay", str(sound), str(other_log(change))]) == 2
    assert text in capsys.readouterr().err


def test_one_log_takes_one_bundle(sound, log, capsys, tmp_path):
    assert cli.main(["replay", str(sound), str(sound), str(log)]) == 2
    assert "2 bundles and 1 log were given" in capsys.readouterr().err
    assert cli.main(["replay", str(log)]) == 2
    capsys.readouterr()
    assert cli.main(["replay", str(sound), str(tmp_path / "gone.safetensors")]) == 2
    assert "gone.safetensors: it cannot be read" in capsys.readouterr().err


def test_what_leapp_run_logs_is_replayed(sound, tmp_path, capsys):
    path = tmp_path / "run.safetensors"
    assert cli.main(["run", str(sound), "--steps", "6", "--log", str(path)]) == 0
    capsys.readouterr()
    code, record = replayed(capsys, sound, path)
    assert (code, record["ticks"], record["notes"]) == (0, 6, [])
