"""What a change of the contract is called, and which version step it asks for: one row per row of ``docs/diff.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from bundle_cases import artifact, manifest_of, port, two_nodes

from leapp import cli
from leapp._spec import NodeSpec, PipelineSpec
from leapp.bundle import contract, write
from leapp.bundle._diff_contract import match_ports, port_findings
from leapp.bundle.advice import advise
from leapp.bundle.diff import Step, diff, explain
from leapp.bundle.samples import RawTensor, write_tensors
from leapp.bundle.schema import PortEntry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leapp._spec import Port

TOOLS = {"leapp config version": "1.3", "torch version": "2.13.0", "os": "linux-x86_64"}


def write_bundle(folder: Path, spec: PipelineSpec, **changes: Any) -> Path:
    """A sealed bundle of a pipeline, without graphs."""
    folder.mkdir()
    manifests = []
    for node in spec.nodes:
        model = artifact(folder, node.name, "onnx", b"model")
        manifests.append(manifest_of(node, *([] if changes.get("no_models") else [model])))
        (folder / "nodes" / node.name / "manifest.json").write_bytes(write.node_manifest_bytes(manifests[-1]))
    initial = None
    fed = sorted(port for ports in spec.feedback_flow.values() for port in ports)
    if fed:
        file = folder / "two_initial_values.safetensors"
        write_tensors(file, {name: RawTensor("float32", (3,), bytes(12)) for name in fed})
        initial = (file.name, "0" * 64)
    (folder / "two.yaml").write_bytes(
        contract.contract_yaml(spec, manifests, initial_values=initial, toolchain=changes.get("tools", TOOLS))
    )
    write.seal(folder, name="two", version=changes.get("version", "1.0.0"), status="ok")
    return folder


# --- ports, one by one ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    name: str
    before: Port
    after: Port
    kind: str
    step: Step
    said: str = ""
    word: str = "input"


LEGS = [f"{leg}_{joint}" for leg in ("FL", "FR") for joint in ("hip", "knee")]
ROWS = (
    Row("dtype", port("x", 3), port("x", 3, dtype="float64"), "dtype", Step.MAJOR, "float32 -> float64"),
    Row("shape", port("x", 3), port("x", 4), "shape", Step.MAJOR, "[3] -> [4]"),
    Row("kind", port("x", kind="a"), port("x", kind="b"), "kind", Step.MAJOR, "a -> b"),
    Row("kind added", port("x"), port("x", kind="b"), "kind", Step.MINOR, "added: b"),
    Row("kind removed", port("x", kind="b"), port("x"), "kind", Step.MAJOR, "removed: b"),
    Row("unit", port("x", unit="rad"), port("x", unit="deg"), "unit", Step.MAJOR, "rad -> deg"),
    Row("input takes more", port("x", range=[-1, 1]), port("x", range=[-2, 1]), "range", Step.MINOR),
    Row("input takes less", port("x", range=[-2, 1]), port("x", range=[-1, 1]), "range", Step.MAJOR),
    Row("output gives less", port("x", range=[-2, 2]), port("x", range=[-1, 1]), "range", Step.MINOR, word="output"),
    Row("output gives more", port("x", range=[-1, 1]), port("x", range=[-1, 2]), "range", Step.MAJOR, word="output"),
    Row("ranges by element", port("x", range=[[0, 1]]), port("x", range=[[0, 2]]), "range", Step.MAJOR),
    Row("period", port("x", temporal_period_ms=20), port("x", temporal_period_ms=10), "rate", Step.MAJOR),
    Row("start", port("x"), port("x", start="first-input:y"), "state-start", Step.MAJOR),
    Row("free fact", port("x", sensor="imu"), port("x", sensor="imu2"), "fact", Step.MINOR),
    Row("free fact added", port("x"), port("x", sensor="imu"), "fact", Step.MINOR),
    Row("a frame", port("x", frame="world"), port("x", frame="base"), "fact", Step.MAJOR),
    Row("prose", port("x", description="a"), port("x", description="b"), "fact", Step.PATCH),
    Row(
        "joints reordered", port("x", 4, element_names=[LEGS]), port("x", 4, element_names=[LEGS[2:] + LEGS[:2]]),
        "elements-reordered", Step.MAJOR, "4 of 4 moved: FL_hip 0 -> 2, FL_knee 1 -> 3",
    ),
    Row(
        "joints of a trajectory", port("x", 2, 2, element_names=["__temporal_axis__", ["a", "b"]]),
        port("x", 2, 2, element_names=["__temporal_axis__", ["b", "a"]]), "elements-reordered", Step.MAJOR, "of axis 1",
    ),
    Row(
        "joints renamed", port("x", 2, element_names=[["a", "b"]]), port("x", 2, element_names=[["a", "c"]]),
        "elements", Step.MAJOR, "1 of 2 have another name: b -> c",
    ),
    Row(
        "one joint less", port("x", 2, element_names=[["a", "b"]]), port("x", 2, element_names=[["a"]]),
        "elements", Step.MAJOR, "without 'b'",
    ),
    Row("names added", port("x", 2), port("x", 2, element_names=[["a", "b"]]), "elements", Step.MINOR),
    Row("names gone", port("x", 2, element_names=[["a", "b"]]), port("x", 2), "elements", Step.MAJOR),
    Row(
        "quaternion", port("base", 4, element_names=[["qw", "qx", "qy", "qz"]]),
        port("base", 4, element_names=[["qx", "qy", "qz", "qw"]]),
        "rotation-convention", Step.MAJOR, "another rotation convention: wxyz -> xyzw",
    ),
    Row(
        "quaternion renamed", port("base", 4, element_names=[["base_w", "base_x", "base_y", "base_z"]]),
        port("base", 4, element_names=[["x", "y", "z", "w"]]),
        "rotation-convention", Step.MAJOR, "another rotation convention: wxyz -> xyzw",
    ),
    Row(
        "Euler", port("a", 3, element_names=[["roll", "pitch", "yaw"]]),
        port("a", 3, element_names=[["yaw", "pitch", "roll"]]), "rotation-convention", Step.MAJOR, "rpy -> ypr",
    ),
    Row(
        "axes of a rotation", port("euler", 3, element_names=[["x", "y", "z"]]),
        port("euler", 3, element_names=[["z", "y", "x"]]), "rotation-convention", Step.MAJOR, "xyz -> zyx",
    ),
    Row(
        "axes of a position are elements", port("p", 3, element_names=[["x", "y", "z"]]),
        port("p", 3, element_names=[["z", "y", "x"]]), "elements-reordered", Step.MAJOR, "2 of 3 moved",
    ),
    Row(
        "convention in the kind", port("q", 4, kind="state/rotation/quaternion_wxyz"),
        port("q", 4, kind="state/rotation/quaternion_xyzw"), "kind", Step.MAJOR, "convention: wxyz -> xyzw",
    ),
    Row(
        "convention in a free field", port("q", 4, layout="wxyz"), port("q", 4, layout="xyzw"), "fact", Step.MAJOR,
        "another rotation convention: wxyz -> xyzw",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_fact_of_a_port(row):
    (found,) = port_findings("n", row.word, PortEntry.of(row.before), PortEntry.of(row.after))
    assert (found.kind, found.step) == (row.kind, row.step)
    assert row.said in found.text()
    assert repr(row.after.name) in found.part


def test_equal_ports_have_nothing_to_say():
    for row in ROWS:
        assert [*port_findings("n", "input", PortEntry.of(row.before), PortEntry.of(row.before))] == []


def test_ports_are_matched_by_name_then_by_what_they_are():
    before = [PortEntry.of(each) for each in (port("a", 3), port("b", 3), port("c", 1, unit="m"))]
    after = [PortEntry.of(each) for each in (port("c2", 1, unit="m"), port("a", 3), port("b2", 3), port("d", 9))]
    found = match_ports(before, after)
    assert (found.pairs, found.removed, found.added) == (((0, 1), (1, 2), (2, 0)), (), (3,))


def test_of_two_that_could_be_meant_neither_is():
    before = [PortEntry.of(port("a", 3))]
    after = [PortEntry.of(each) for each in (port("x"), port("b", 3), port("c", 3))]
    assert match_ports(before, after).removed == (0,)


# --- the pipeline --------------------------------------------------------------------------------------------------


def estimator(spec: PipelineSpec) -> NodeSpec:
    return spec.nodes[0]


def changed(change: Callable[[dict[str, Any]], None]) -> PipelineSpec:
    """The pipeline of two nodes, its parts given to ``change`` as lists and maps."""
    spec = two_nodes()
    parts: dict[str, Any] = {
        "estimator": {"inputs": [*spec.nodes[0].inputs], "outputs": [*spec.nodes[0].outputs]},
        "policy": {"inputs": [*spec.nodes[1].inputs], "outputs": [*spec.nodes[1].outputs]},
        "data_flow": {key: [*value] for key, value in spec.data_flow.items()},
        "feedback_flow": {key: [*value] for key, value in spec.feedback_flow.items()},
        "inputs": {key: [*value] for key, value in spec.inputs.items()},
        "outputs": {key: [*value] for key, value in spec.outputs.items()},
        "configs": {"frequency": 50},
    }
    change(parts)
    nodes = tuple(
        NodeSpec(name, tuple(parts[name]["inputs"]), tuple(parts[name]["outputs"])) for name in ("estimator", "policy")
    )
    wires = ("data_flow", "feedback_flow", "inputs", "outputs")
    maps = {key: {name: tuple(value) for name, value in parts[key].items()} for key in wires}
    return PipelineSpec("two", nodes, configs=parts["configs"], **maps)


def outer_input(parts):
    parts["estimator"]["inputs"].append(port("imu", 6))
    parts["inputs"]["estimator"].append("imu")


def inner_input(parts):
    parts["policy"]["inputs"].append(port("features2", 3))
    parts["data_flow"]["estimator/features"].append("policy/features2")


def new_state(parts):
    parts["policy"]["inputs"].append(port("cell", 3))
    parts["policy"]["outputs"].append(port("cell", 3))
    parts["feedback_flow"]["policy/cell"] = ["policy/cell"]


def new_output(parts):
    parts["policy"]["outputs"].append(port("value", 1))
    parts["outputs"]["policy"].append("value")


def output_gone(parts):
    del parts["policy"]["outputs"][0]
    parts["outputs"]["policy"].remove("actions")


def renamed(parts):
    parts["estimator"]["inputs"][0] = port(
        "q", 3, unit="rad", kind="state/joint/position", element_names=[["hip", "knee", "ankle"]]
    )
    parts["inputs"]["estimator"] = ["q"]


def cut_wire(parts):
    parts["data_flow"] = {}
    parts["inputs"]["policy"] = ["features"]
    parts["outputs"]["estimator"] = ["features"]


def now_fed(parts):
    parts["feedback_flow"]["policy/memory_out"].append("estimator/joint_pos")
    parts["inputs"] = {}


PIPELINES = {
    "rate": (lambda parts: parts["configs"].update(frequency=100), {("rate", "rate", Step.MAJOR)}),
    "rate gone": (lambda parts: parts["configs"].clear(), {("rate", "rate", Step.MAJOR)}),
    "setting": (
        lambda parts: parts["configs"].update(robot="go2"), {("setting", "pipeline.configs.robot", Step.MINOR)},
    ),
    "outer input": (outer_input, {("port-added", "input 'imu'", Step.MAJOR)}),
    "inner input": (inner_input, {("port-added", "input 'features2'", Step.MINOR)}),
    "new state": (
        new_state,
        {
            ("port-added", "input 'cell'", Step.MAJOR),
            ("port-added", "output 'cell'", Step.MINOR),
            ("state-start", "initial value of 'policy/cell'", Step.NONE),
        },
    ),
    "new output": (new_output, {("port-added", "output 'value'", Step.MINOR)}),
    "output gone": (output_gone, {("port-removed", "output 'actions'", Step.MAJOR)}),
    "renamed": (renamed, {("port-renamed", "name of input 0", Step.MAJOR)}),
    "reordered": (
        lambda parts: parts["policy"]["inputs"].reverse(), {("ports-reordered", "order of inputs", Step.MAJOR)},
    ),
    "wire cut": (
        cut_wire,
        {
            ("wire", "what feeds input 'features'", Step.MAJOR),
            ("outer-output", "output 'features'", Step.MINOR),
        },
    ),
    "an outer input that is fed now": (
        now_fed,
        {
            ("wire", "what feeds input 'joint_pos'", Step.MAJOR),
            ("state-start", "initial value of 'estimator/joint_pos'", Step.NONE),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_the_pipeline(tmp_path, name):
    change, expected = PIPELINES[name]
    a = write_bundle(tmp_path / "a", two_nodes())
    b = write_bundle(tmp_path / "b", changed(change))
    found = diff(a, b)
    assert {(each.kind, each.part, each.step) for each in found.findings} == expected
    assert found.advice.step == max(step for _, _, step in expected)


def test_a_rate_where_none_was_is_minor(tmp_path):
    a = write_bundle(tmp_path / "a", changed(lambda parts: parts["configs"].clear()))
    b = write_bundle(tmp_path / "b", two_nodes())
    assert [(each.kind, each.step) for each in diff(a, b).findings] == [("rate", Step.MINOR)]


def test_formats(tmp_path):
    a = write_bundle(tmp_path / "a", two_nodes())
    b = write_bundle(tmp_path / "b", two_nodes(), no_models=True)
    gone = {(each.kind, each.part, each.step) for each in diff(a, b).findings}
    assert gone == {("format-removed", "model as onnx", Step.MAJOR)}
    new = {(each.kind, each.part, each.step) for each in diff(b, a).findings}
    assert new == {("format-added", "model as onnx", Step.MINOR)}


def test_a_node_without_inputs_from_outside_is_minor_and_its_removal_major(tmp_path):
    small = two_nodes()
    small = PipelineSpec(
        "two", small.nodes[:1], feedback_flow={}, inputs={"estimator": ("joint_pos", "memory")},
        outputs={"estimator": ("features",)}, configs={"frequency": 50},
    )  # fmt: skip
    node = NodeSpec("policy", (port("features", 3),), (port("actions", 4),))
    large = PipelineSpec(
        "two", (*small.nodes, node), data_flow={"estimator/features": ("policy/features",)}, inputs=small.inputs,
        outputs={"estimator": ("features",), "policy": ("actions",)}, configs={"frequency": 50},
    )  # fmt: skip
    a, b = write_bundle(tmp_path / "a", small), write_bundle(tmp_path / "b", large)
    assert [(each.kind, each.step) for each in diff(a, b).findings] == [("node-added", Step.MINOR)]
    assert [(each.kind, each.step) for each in diff(b, a).findings] == [("node-removed", Step.MAJOR)]


# --- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "next_version", "given", "enough", "said"),
    [
        (("1.2.3", "1.2.3"), "2.0.0", Step.NONE, False, ": 2.0.0; the version is still 1.2.3"),
        (("1.2.3", "1.3.0"), "2.0.0", Step.MINOR, False, ": 2.0.0; 1.3.0 is not enough"),
        (("1.2.3", "2.0.0-rc.1"), "2.0.0", Step.MAJOR, True, ": 2.0.0; 2.0.0-rc.1 is enough"),
        (("0.2.3", "0.3.0"), "0.3.0", Step.MAJOR, True, ": 0.3.0 is enough"),
        (("0.2.3", "0.2.4"), "0.3.0", Step.MINOR, False, ": 0.3.0; 0.2.4 is not enough"),
        (("1.2.3", "1.0.0"), "2.0.0", None, False, ": 2.0.0; 1.0.0 is not enough"),
        (("nightly", "1.0.0"), "", None, False, ""),
        (("1.2.3", "nightly"), "2.0.0", None, False, ": 2.0.0; nightly is not enough"),
    ],
)
def test_how_far_a_version_was_moved(versions, next_version, given, enough, said):
    findings = [*port_findings("n", "input", PortEntry.of(port("x", 3)), PortEntry.of(port("x", 4)))]
    advice = advise(findings, (), equal=False, versions=versions)
    assert (advice.step, advice.version, advice.given, advice.enough) == (Step.MAJOR, next_version, given, enough)
    assert advice.line == f"asks for a major step{said}"
    assert advise(findings, (), equal=False, versions=versions, digests_only=True).line.startswith("may ask for a ")


def test_a_version_alone_asks_for_nothing(tmp_path):
    a = write_bundle(tmp_path / "a", two_nodes())
    b = write_bundle(tmp_path / "b", two_nodes(), version="1.1.0")
    advice = diff(a, b).advice
    assert (advice.step, advice.version, advice.given, advice.line) == (Step.NONE, "", Step.MINOR, "")
    assert advice.reasons == ("only the version differs: the models and the contract are the same",)
    assert diff(a, a).advice.reasons == ("nothing differs",)


def test_a_tool_chain_alone_is_a_patch(tmp_path):
    a = write_bundle(tmp_path / "a", two_nodes())
    b = write_bundle(tmp_path / "b", two_nodes(), tools=TOOLS | {"torch version": "2.14.0"})
    found = diff(a, b)
    assert (found.advice.step, found.advice.version) == (Step.PATCH, "1.0.1")


# --- long lists of names -------------------------------------------------------------------------------------------

JOINTS = [f"{leg}_{joint}" for leg in ("FL", "FR", "RL", "RR") for joint in ("hip", "thigh", "calf")]
SWAPPED = [*JOINTS[3:6], *JOINTS[:3], *JOINTS[6:]]
MOVED = "6 of 12 moved: FL_hip 0 -> 3, FL_thigh 1 -> 4, FL_calf 2 -> 5, FR_hip 3 -> 0, ..."


def walker(joints: list[str]) -> PipelineSpec:
    """Five ports of the same joints."""
    names = {"element_names": [joints]}
    inputs = tuple(port(each, 12, **names) for each in ("position", "velocity", "last"))
    outputs = tuple(port(each, 12, **names) for each in ("target", "torque"))
    ports = {"act": tuple(each.name for each in inputs)}, {"act": tuple(each.name for each in outputs)}
    return PipelineSpec("two", (NodeSpec("act", inputs, outputs),), inputs=ports[0], outputs=ports[1], configs={})


def test_joints_that_moved_are_told_by_what_moved(tmp_path):
    a, b = write_bundle(tmp_path / "a", walker(JOINTS)), write_bundle(tmp_path / "b", walker(SWAPPED))
    found = diff(a, b)
    assert [each.kind for each in found.findings] == ["elements-reordered"] * 5
    assert explain(found)[0] == (
        f"contract of node 'act' changed: input 'position': element names: {MOVED}; and 4 more"
    )
    assert found.advice.reasons == (f"node 'act': input 'position': element names: {MOVED}; and 4 more alike",)
    assert found.findings[1].text() == f"node 'act': input 'velocity': element names: {MOVED}"
    assert found.findings[1].as_json()["second"] == ", ".join(SWAPPED)


def test_long_lists_of_names_are_shown_once_in_full(tmp_path, capsys):
    a, b = write_bundle(tmp_path / "a", walker(JOINTS)), write_bundle(tmp_path / "b", walker(SWAPPED))
    assert cli.main(["diff", str(a), str(b)]) == 1
    out = capsys.readouterr().out
    assert out.count(", ".join(SWAPPED[:4])) == out.count(", ".join(JOINTS[:4])) == 1
    assert "input 'velocity': element names:" in out
    assert out.count("as at input 'position' above") == 4


def test_short_lists_of_names_are_shown_as_they_are(tmp_path):
    finding, *_ = port_findings(
        "n", "input", *(PortEntry.of(port("p", 2, element_names=[names])) for names in (["l", "r"], ["r", "l"]))
    )
    assert finding.text() == "node 'n': input 'p': element names: l, r -> r, l; 2 of 2 moved: l 0 -> 1, r 1 -> 0"
