"""What a manifest says of ports: put on them in a build, checked against what was recorded, and into ONNX files."""

from __future__ import annotations

import json
import os

import onnx
import pytest
import torch
from build_projects import Project

import leapp
from leapp import TensorSemantics, _api, annotate, errors
from leapp._canonical import canonical_json
from leapp.build._messages import SessionRequest
from leapp.build.plan import make_plan
from leapp.build.run import build
from leapp.build.worker import policy
from leapp.bundle.read import load
from leapp.manifest.load import load_one
from leapp.trace import current as sessions


@pytest.fixture(autouse=True)
def _no_build_left():
    yield
    if sessions.current() is not None:
        sessions.end("stop")
    _api._process.stopped = None
    _api._process.policy = None
    _api._process.counted = None


@pytest.fixture
def built(tmp_path):
    """Run code as a build's session does, in this process: gives the bundle."""

    def run(code, *lines, name="p"):
        path = tmp_path / "p.toml"
        head = [f'schema = 1\n[pipeline]\nname = "{name}"\nversion = "1.0.0"\nentry = "p.py:main"']
        path.write_text("\n".join([*head, *lines]) + "\n")
        (tmp_path / "p.py").touch()
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        _api.install_build(policy(SessionRequest(load_one(path), out), tmp_path))
        leapp.start("as the script says", save_path=tmp_path)
        code()
        leapp.stop()
        leapp.compile_graph(validate=False)
        return load(out / name)

    return run


def arm(kind="state/joint/position", names=None, extra=None, export_with=None):
    q = annotate.input_tensors("arm", TensorSemantics("q", torch.ones(1, 2), kind, names, extra))
    annotate.output_tensors("arm", {"y": q * 2}, export_with=export_with)


def recurrent(export_with=None):
    x = annotate.input_tensors("cell", {"x": torch.ones(2)})
    h = annotate.state_tensors("cell", {"h": torch.zeros(2)})
    annotate.update_state("cell", {"h": torch.tanh(h + x)})
    annotate.output_tensors("cell", {"y": h * 3}, export_with=export_with)


def fields(bundle, node, port):
    model = bundle.contract["models"][node]
    (found,) = (each for each in (*model["inputs"], *model["outputs"]) if each["name"] == port)
    return found


def warned(bundle):
    notes = json.loads((bundle.folder / "evidence" / "notes.json").read_bytes())
    return [each["text"] for each in notes["warnings"] if each["class"] == "ManifestWinsWarning"]


FACTS = """
[nodes.arm.ports.q]
unit = "rad"
range = [-3, 3.5]
description = "As the encoders say."
kind = "state/joint/position"
element_names = ["hip", "knee"]
"""


def test_facts_of_the_manifest_stand_in_the_runtime_file_and_the_node_manifest(built):
    bundle = built(lambda: arm(kind=None), FACTS)
    assert fields(bundle, "arm", "q") == {
        "name": "q", "dtype": "float32", "shape": [1, 2], "type": "tensor", "kind": "state/joint/position",
        "element_names": [None, ["hip", "knee"]], "unit": "rad", "description": "As the encoders say.",
        "range": [-3, 3.5],
    }  # fmt: skip
    assert bundle.node("arm").inputs[0].semantics["range"] == [-3, 3.5]
    assert warned(bundle) == []


def test_the_manifest_wins_over_the_script_with_a_note_and_other_facts_stay(built):
    extra = {"unit": "deg", "range": [-3, 3.5], "source": "encoder"}
    bundle = built(lambda: arm(names=[leapp.TemporalAxis(5), None], extra=extra), FACTS)
    found = fields(bundle, "arm", "q")
    assert (found["unit"], found["source"]) == ("rad", "encoder")
    assert found["element_names"] == [None, ["hip", "knee"]]
    assert "temporal_period_ms" not in found
    texts = warned(bundle)
    assert len(texts) == 2  # neither for the equal kind and range, nor for what only one of them says
    assert "'arm/q': unit = 'deg' of the script gives way to 'rad'" in texts[1]
    assert "p.toml:7, nodes.arm.ports.q" in texts[1]
    assert "element_names" in texts[0]


def test_recorded_and_final_names_are_both_ports(built):
    both = '[nodes.cell.ports]\nh = { unit = "m" }\nx = { unit = "s" }'
    bundle = built(recurrent, both)
    assert [each["unit"] for each in bundle.contract["models"]["cell"]["inputs"]] == ["s", "m"]
    assert fields(built(lambda: recurrent("onnx"), both), "cell", "h_in")["unit"] == "m"
    one = built(
        lambda: recurrent("onnx"), '[nodes.cell.ports]\nh = { description = "both" }\nh_in = { description = "last" }'
    )
    assert fields(one, "cell", "h_in")["description"] == "last"
    assert fields(one, "cell", "h_out")["description"] == "both"


def test_lengths_are_checked_with_the_manifests_line(built):
    with pytest.raises(errors.ElementNamesError) as caught:
        built(lambda: arm(), '[nodes.arm.ports.q]\nelement_names = ["hip", "knee", "toe"]')
    assert "p.toml:6, nodes.arm.ports.q: port 'arm/q': element_names of axis 1 are 3" in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('[nodes.arm.ports.qq]\nunit = "m"', ["p.toml:6, nodes.arm.ports.qq: 'arm/qq' is no port", "mean 'arm/q'?"]),
        ('[allow]\nnot-varied = ["arm/q", "leg/q"]', ["p.toml:7, allow.not-varied[1]: 'leg/q' is no port"]),
        ('[allow]\nno-element-names = ["arm/p"]', ["p.toml:7, allow.no-element-names[0]: 'arm/p' is no port"]),
        ('[probe]\nports."arm/r" = { range = [0, 1] }', ['p.toml:7, probe.ports."arm/r": \'arm/r\' is no port']),
        ('[probe]\nports."arm/y" = { range = [0, 1] }', ["'arm/y' is an output; this is about inputs"]),
        ('[probe]\nports."arm/yy" = { range = [0, 1] }', ["'arm/yy' is no port of this pipeline.\n"]),
        ('[allow]\nnot-varied = ["arm/y"]\nno-element-names = ["a/b"]', ["2 names stand", "'arm/y'", "'a/b'"]),
    ],
)  # fmt: skip
def test_names_that_no_port_has_are_errors(built, lines, words):
    with pytest.raises(errors.NoSuchPortError) as caught:
        built(lambda: arm(names=["hip", "knee"]), lines)
    for word in words:
        assert word in str(caught.value)
    assert "arm/q, arm/y" in str(caught.value)
    assert caught.value.exit_code == 2


def test_names_in_the_scripts_own_allow_are_checked_too(built, tmp_path):
    def script():
        sessions.end("stop")
        _api._process.counted = None
        leapp.start("again", save_path=tmp_path, allow={"no-element-names": ["arm/q", "arm/z"]})
        arm()

    with pytest.raises(errors.NoSuchPortError, match=r"allow\['no-element-names'\]\): 'arm/z'"):
        built(script)


@pytest.mark.parametrize("kind", ["state/joint/effort", "command/joint/torques", "target/joint/velocity"])
def test_a_port_of_joints_needs_element_names_in_a_build(built, tmp_path, kind):
    with pytest.raises(errors.JointNamesMissingError) as caught:
        built(lambda: arm(kind=kind))
    assert f"arm/q, a {kind} of shape [1, 2]" in str(caught.value)
    assert "[nodes.arm.ports.q] with element_names" in str(caught.value)
    assert 'no-element-names = ["arm/q"]' in str(caught.value)
    assert not (tmp_path / "out" / "p").exists()


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (lambda: arm(names=["hip", "knee"]), ""),
        (arm, '[nodes.arm.ports.q]\nelement_names = ["hip", "knee"]'),
        (arm, '[allow]\nno-element-names = ["arm/q"]'),
        (lambda: arm(kind="state/body/pose"), ""),
        (lambda: arm(kind="a/jointly/made up"), ""),
        (lambda: arm(kind=None), ""),
    ],
    ids=["named", "named in the manifest", "allowed", "body", "other", "none"],
)
def test_it_does_not_where_they_are_given_allowed_or_mean_nothing(built, code, lines):
    assert fields(built(code, lines), "arm", "q")["shape"] == [1, 2]


def test_gains_need_names_where_there_are_several(built):
    def gains(*shape):
        x = annotate.input_tensors("n", {"x": torch.ones(2)})
        annotate.output_tensors("n", {"y": x * 2}, TensorSemantics("kp", torch.ones(shape), "kp"), export_with=None)

    with pytest.raises(errors.JointNamesMissingError, match="n/kp"):
        built(lambda: gains(1, 2))
    for shape in ((), (1,), (4, 1)):
        assert fields(built(lambda shape=shape: gains(*shape)), "n", "kp")["kind"] == "kp"


def test_a_plain_script_needs_no_element_names(tmp_path):
    leapp.start("plain", save_path=tmp_path)
    arm()
    leapp.stop()
    leapp.compile_graph()
    assert fields(load(tmp_path / "plain"), "arm", "q")["kind"] == "state/joint/position"


METADATA = """
[export]
formats = ["onnx"]
onnx.metadata = ["licence", "trained", "seeds"]
[nodes.cell]
onnx.metadata = []
[metadata]
licence = "Apache-2.0 \\"or later\\""
trained = 2026-02-03
seeds = { b = [1, 2], a = true }
private = "x"
"""


def test_an_onnx_file_says_what_the_runtime_file_says_and_what_the_manifest_lists(built):
    def both():
        arm(names=["hüfte", "knee"], extra={"unit": "rad", "note": "1e3"}, export_with="pt2")
        recurrent("pt2")

    bundle = built(both, METADATA)
    for node, more in (
        ("arm", {"licence": 'Apache-2.0 "or later"', "trained": "2026-02-03", "seeds": '{"a":true,"b":[1,2]}'}),
        ("cell", {}),
    ):
        model = bundle.contract["models"][node]
        props = [
            (each.key, each.value)
            for each in onnx.load(bundle.folder / model["parameters"]["model_path"]).metadata_props
        ]
        assert props == sorted(props)
        found = dict(props)
        assert found.pop("leapp.config_version") == bundle.contract["system information"]["leapp config version"]
        assert found.pop("leapp.node") == node
        for direction in ("inputs", "outputs"):
            text = found.pop(f"leapp.{direction}")
            assert json.loads(text) == model[direction]
            assert text.encode() + b"\n" == canonical_json(model[direction])
        assert found == {f"leapp.metadata.{key}": value for key, value in more.items()}
    assert "private" not in (bundle.folder / "nodes/arm/arm.onnx").read_bytes().decode("latin1")


def test_a_whole_build_takes_hints_and_permissions_under_either_name(tmp_path):
    """Its names are those of inputs and outputs, so that in ONNX ``h`` is ``h_in`` and ``h_out``."""
    project = Project(tmp_path)
    project.source(
        "entry.py",
        """
        def main():
            torch.manual_seed(3)
            c, d, h = torch.ones(2), torch.ones(2), torch.zeros(2)
            c, d, h = annotate.input_tensors("n", {"c": c, "d": d, "h": h})
            annotate.output_tensors("n", {"c": c + d, "d": c * 2, "h": torch.tanh(h + c)})
        """,
    )
    (tmp_path / "pyproject.toml").touch()
    project.manifest(
        "p",
        "entry.py:main",
        """
        [probe.ports]
        "n/c" = { range = [5, 6] }
        "n/d_in" = { choices = [7] }
        [allow]
        not-varied = ["n/h"]
        no-element-names = ["n/h_out"]
        """,
    )
    text = project.manifests["p"].read_text().replace('["torchscript"]', '["onnx"]')
    project.manifests["p"].write_text(text)
    (result,) = build(make_plan([load_one(project.manifests["p"])], out=tmp_path / "dist", environment=os.environ))
    assert result.error is None, str(result.error)
    assert result.published
    (run,) = json.loads((result.bundle / "evidence" / "probe.json").read_bytes())["runs"]
    assert {"n/c", "n/d"} <= set(run["perturbed"])


def test_a_reset_input_is_a_port_like_others(built):
    lines = '[nodes.cell]\nreset = "fresh"\n[nodes.cell.ports.fresh]\ndescription = "Starts anew."'
    bundle = built(lambda: recurrent("pt2"), lines)
    assert fields(bundle, "cell", "fresh")["description"] == "Starts anew."
    assert fields(bundle, "cell", "fresh")["dtype"] == "bool"
