"""What ports mean: kinds, element names, free fields; how they are said, checked and carried into the bundle."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import leapp
from leapp import GraphConfigs, InputKindEnum, OutputKindEnum, TemporalAxis, TensorSemantics, _api, annotate, errors
from leapp.bundle.read import load
from leapp.semantics import RESERVED_FIELDS
from leapp.trace import current as sessions

if TYPE_CHECKING:
    from pathlib import Path

# Contract 2, "Kinds, inputs: ..." and the rule for member names, written out from the text.
INPUT_PATHS = """
state/joint/position JOINT_POSITION        state/joint/velocity JOINT_VELOCITY        state/joint/effort JOINT_EFFORT
state/body/pose BODY_POSE                  state/body/velocity BODY_VEL               state/body/acceleration BODY_ACC
state/body/linear_acceleration BODY_LINEAR_ACCELERATION       state/body/linear_velocity BODY_LINEAR_VELOCITY
state/body/angular_acceleration BODY_ANGULAR_ACCELERATION     state/body/angular_velocity BODY_ANGULAR_VELOCITY
state/body/rotation BODY_ROTATION          state/body/position BODY_POSITION
state/wrench WRENCH                        state/vector3d VECTOR3D
command/joint/position COMMAND_JOINT_POSITION                 command/joint/velocity COMMAND_JOINT_VELOCITY
command/joint/torques COMMAND_JOINT_TORQUES                   command/body/rotation COMMAND_BODY_ROTATION
command/body/velocity COMMAND_BODY_VELOCITY                   command/body/pose COMMAND_POSE
"""
OUTPUT_PATHS = """
kp KP   kd KD
target/joint/position JOINT_POSITION       target/joint/velocity JOINT_VELOCITY
target/joint/torques JOINT_TORQUES         target/joint/effort JOINT_EFFORT
target/body/position BODY_POSITION         target/body/linear_acceleration BODY_LINEAR_ACCELERATION
target/body/orientation BODY_ORIENTATION   target/body/linear_velocity BODY_LINEAR_VELOCITY
target/body/angular_acceleration BODY_ANGULAR_ACCELERATION
"""


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    if sessions.current() is not None:
        sessions.end("stop")
    _api._process.stopped = None


@pytest.fixture
def session(tmp_path):
    leapp.start("p", save_path=tmp_path)
    return tmp_path / "p"


def ports(bundle: Path, node: str = "n") -> dict[str, dict[str, object]]:
    """The fields of each port in the runtime file."""
    model = load(bundle).contract["models"][node]
    return {port["name"]: port for port in (*model["inputs"], *model["outputs"])}


@pytest.mark.parametrize(("enum", "text"), [(InputKindEnum, INPUT_PATHS), (OutputKindEnum, OUTPUT_PATHS)])
def test_every_kind_of_the_contract_has_its_member(enum, text):
    words = text.split()
    assert {each.name: each.value for each in enum} == dict(zip(words[1::2], words[::2], strict=True))
    assert all(isinstance(each, str) for each in enum)


def test_the_old_import_paths_give_the_same_objects_and_need_no_torch():
    code = (
        "import sys; from leapp.utils.tensor_description import TensorSemantics, TemporalAxis\n"
        "from leapp.utils.enums import InputKindEnum, OutputKindEnum\n"
        "import leapp\n"
        "assert TensorSemantics is leapp.TensorSemantics and TemporalAxis is leapp.TemporalAxis\n"
        "assert InputKindEnum is leapp.InputKindEnum and OutputKindEnum is leapp.OutputKindEnum\n"
        "leapp.GraphConfigs(frequency=1)\n"
        "print({'torch', 'numpy', 'onnx'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


# --- what is said, and its form in the file ------------------------------------------------------------------------


class OwnKind(Enum):
    GRIP = "gripper/width"


@pytest.mark.parametrize(
    ("said", "shape", "fields"),
    [
        ({"kind": InputKindEnum.JOINT_POSITION}, (2,), {"kind": "state/joint/position"}),
        ({"kind": "my own kind"}, (2,), {"kind": "my own kind"}),
        ({"kind": OwnKind.GRIP}, (2,), {"kind": "gripper/width"}),
        ({"element_names": ["a", "b"]}, (2,), {"element_names": [["a", "b"]]}),
        ({"element_names": ("a", "b")}, (4, 2), {"element_names": [None, ["a", "b"]]}),
        ({"element_names": "a"}, (4, 1), {"element_names": [None, ["a"]]}),
        ({"element_names": "a"}, (), {"element_names": [["a"]]}),
        ({"element_names": [None, ["a", "b"]]}, (1, 2), {"element_names": [None, ["a", "b"]]}),
        ({"element_names": [["x", "y"], None]}, (2, 3), {"element_names": [["x", "y"], None]}),
        (
            {"element_names": [["f", "r"], ["x", "y", "z"]]}, (1, 2, 3),
            {"element_names": [None, ["f", "r"], ["x", "y", "z"]]},
        ),
        ({"element_names": [["a", "b"]]}, (1, 2), {"element_names": [None, ["a", "b"]]}),
        ({"element_names": [None, None]}, (1, 2), {}),
        (
            {"element_names": [TemporalAxis(20), ["a", "b"]]}, (4, 2),
            {"element_names": ["__temporal_axis__", ["a", "b"]], "temporal_period_ms": 20},
        ),
        (
            {"element_names": [None, TemporalAxis(np.float64(2.5))]}, (4, 2),
            {"element_names": [None, "__temporal_axis__"], "temporal_period_ms": 2.5},
        ),
        (
            {"extra": {"unit": "rad", "range": (-1, np.float32(0.5)), "zeta": OwnKind.GRIP, "Alpha": {"b": [1, None]}}},
            (2,),
            {"Alpha": {"b": [1, None]}, "range": [-1, 0.5], "unit": "rad", "zeta": "gripper/width"},
        ),
        ({"extra": {"unit": None, "range": None, "frame": None}}, (2,), {"frame": None}),
        ({"extra": {"gains": np.array([[1, 2]]), "n": np.int64(3)}}, (2,), {"gains": [[1, 2]], "n": 3}),
    ],
)  # fmt: skip
def test_facts_take_the_form_of_the_runtime_file(said, shape, fields):
    facts = TensorSemantics("x", torch.zeros(shape), **said).facts("Port 'n/x'", shape)
    assert facts == fields
    assert list(facts) == list(fields)
    assert all(type(value) in (str, list, dict, int, float, type(None)) for value in facts.values())


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ({"kind": 3}, TypeError, "kind is a int"),
        ({"kind": ""}, ValueError, "kind is empty"),
        ({"element_names": {"a": 1}}, TypeError, "element_names is a dict"),
        ({"element_names": []}, ValueError, "are empty"),
        ({"element_names": ["a", "b", "a"]}, ValueError, "of the last axis: 'a' stands there 2 times"),
        ({"element_names": [None, ["a", "a"]]}, ValueError, "of axis 1: 'a' stands there 2 times"),
        ({"element_names": ["a", ""]}, ValueError, "name 1 is empty"),
        ({"element_names": [["a"], "b"]}, TypeError, "hold 'b' as the entry of axis 1"),
        ({"element_names": [["a", 3]]}, TypeError, "element name 1 of axis 0 is a int"),
        ({"element_names": [["a"], 20]}, TypeError, "hold a int as the entry of axis 1"),
        ({"element_names": [TemporalAxis(1), TemporalAxis(2)]}, ValueError, "more than one TemporalAxis"),
        ({"extra": [1]}, TypeError, "extra is a list"),
        ({"extra": {1: 2}}, TypeError, "extra has the key 1"),
        ({"extra": {"a": {"b": float("nan")}}}, ValueError, "a.b is nan"),
        ({"extra": {"a": [torch.zeros(1)]}}, TypeError, "a[0] is a torch.Tensor"),
        ({"extra": {"unit": 3}}, TypeError, "unit is a int"),
        ({"extra": {"description": ["x"]}}, TypeError, "description is a list"),
        ({"extra": {"range": 3}}, ValueError, "range is 3"),
        ({"extra": {"range": [1, 0]}}, ValueError, "range is [1, 0]: 1 is above 0"),
        ({"extra": {"range": [[0, 3], 2]}}, ValueError, "3 is above 2"),
        ({"extra": {"range": [[0, 3], [1, 4, 5]]}}, ValueError, "its lists are 2 and 3 long"),
        ({"extra": {"range": [0, "1"]}}, ValueError, "range is [0, '1']"),
        ({"extra": {"range": [0, True]}}, ValueError, "range is [0, True]"),
        ({"extra": {"range": [[[0]], 1]}}, ValueError, "neither numbers nor lists"),
        *(({"extra": {key: 1}}, ValueError, f"the free field {key!r} is a field of LEAPP") for key in RESERVED_FIELDS),
    ],
)  # fmt: skip
def test_a_wrong_fact_is_named_as_soon_as_it_is_said(said, error, words):
    with pytest.raises(error) as caught:
        TensorSemantics("pos", torch.zeros(3), **said)
    assert isinstance(caught.value, errors.LeappError)
    assert words in str(caught.value)
    assert "Port 'pos'" in str(caught.value)


@pytest.mark.parametrize("period", [0, -1, float("inf"), float("nan"), True, "20", None])
def test_a_period_is_a_positive_number(period):
    with pytest.raises(errors.SemanticsError, match="period_ms"):
        TemporalAxis(period)


# --- in annotations ------------------------------------------------------------------------------------------------


def test_lists_of_semantics_name_ports_and_hand_back_the_values(session):
    q, v, w = torch.ones(1, 2), torch.ones(1, 2), np.ones(2, np.float32)
    got = annotate.input_tensors(
        "n",
        [
            TensorSemantics("q", q, InputKindEnum.JOINT_POSITION, ["hip", "knee"], {"unit": "rad", "source": "data"}),
            TensorSemantics("v", v, kind="state/joint/velocity"),
        ],
    )  # fmt: skip
    assert got[0] is q
    assert got[1] is v
    w = annotate.input_tensors("n", TensorSemantics("w", w, element_names=["a", "b"]))
    kp = torch.ones(2)
    out = annotate.output_tensors(
        "n",
        TensorSemantics("target", q * 2 + v * torch.from_numpy(w), "target/joint/position", [None, ["hip", "knee"]]),
        static_outputs=[TensorSemantics("kp", kp, OutputKindEnum.KP, ["hip", "knee"])],
        export_with=None,
    )  # fmt: skip
    assert torch.equal(out, torch.full((1, 2), 3.0))
    leapp.stop()
    leapp.compile_graph()
    found = ports(session)
    assert found["q"] == {
        "name": "q", "dtype": "float32", "shape": [1, 2], "type": "tensor", "kind": "state/joint/position",
        "element_names": [None, ["hip", "knee"]], "source": "data", "unit": "rad",
    }  # fmt: skip
    assert found["v"]["kind"] == "state/joint/velocity"
    assert found["w"]["element_names"] == [["a", "b"]]
    assert found["target"]["kind"] == "target/joint/position"
    assert found["kp"]["element_names"] == [["hip", "knee"]]
    node = load(session).nodes["n"]
    assert node.inputs[0].semantics["unit"] == "rad"


def test_outside_a_session_the_values_come_back_in_the_same_form():
    x, y = torch.zeros(2), torch.zeros(3)
    one = TensorSemantics("x", x, element_names=["too", "many", "names"])
    assert annotate.input_tensors("n", one) is x
    assert annotate.input_tensors("n", [one]) is x
    got = annotate.output_tensors("n", [one, TensorSemantics("y", y)])
    assert isinstance(got, tuple)
    assert got[0] is x
    assert got[1] is y


@dataclass
class Command:
    vx: torch.Tensor
    heading: torch.Tensor


def test_a_nesting_may_be_a_ref_without_facts_and_one_tensor_in_it_with_facts(session):
    command = Command(torch.ones(2), torch.ones(1))
    got = annotate.input_tensors("n", [TensorSemantics("c", command), TensorSemantics("d", {"a": torch.ones(2)}, "k")])
    assert got[0] is command
    annotate.output_tensors("n", {"y": command.vx * command.heading + got[1]["a"]}, export_with=None)
    leapp.stop()
    leapp.compile_graph()
    assert list(ports(session)) == ["c_vx", "c_heading", "d_a", "y"]
    assert ports(session)["d_a"]["kind"] == "k"


def test_facts_about_a_nesting_are_refused_with_the_remedy(session):
    with pytest.raises(errors.SemanticsError) as caught:
        annotate.input_tensors("n", TensorSemantics("c", Command(torch.ones(2), torch.ones(1)), kind="k"))
    assert "input 'c'" in str(caught.value)
    assert "'c_vx', 'c_heading'" in str(caught.value)
    assert "manifest" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda t: {"a": TensorSemantics("a", t)}, "input 'a' is a TensorSemantics inside a dict"),
        (lambda t: {"a": [TensorSemantics("a", t)]}, "input 'a_0' is a TensorSemantics inside a dict"),
        (lambda t: [TensorSemantics("a", t), t], "item 1 of the inputs is a torch.Tensor"),
        (lambda t: [{"b": t}, TensorSemantics("a", t)], "item 0 of the inputs is a dict"),
        (lambda t: [t, t], "the inputs are a list of a torch.Tensor, and nothing names them"),
        (lambda t: TensorSemantics("a", TensorSemantics("b", t)), "input 'a' is a TensorSemantics inside"),
    ],
)
def test_semantics_in_other_places_are_refused(session, given, words):
    with pytest.raises(errors.SemanticsFormError) as caught:
        annotate.input_tensors("n", given(torch.ones(2)))
    assert words in str(caught.value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("names", "shape", "words"),
    [
        (["a", "b"], (3,), "of axis 0 are 2, and that axis of [3] is 3 long: a, b"),
        ([None, ["a"]], (1, 3), "of axis 1 are 1, and that axis of [1, 3] is 3 long"),
        ([["a"], ["b"], ["c"]], (1, 1), "for 3 axes of a port of shape [1, 1]"),
        ([TemporalAxis(5)], (2, 3), "for one axis of a port of shape [2, 3]"),
        (["a", "b"], (), "of axis 0 are 2"),
        ([None], (), "for one axis of a port of shape []"),
    ],
)
def test_lengths_are_checked_against_the_shape_when_traced(session, names, shape, words):
    said = TensorSemantics("pos", torch.zeros(shape), element_names=names)
    with pytest.raises(errors.ElementNamesError) as caught:
        annotate.input_tensors("arm", said)
    assert words in str(caught.value)
    assert "Port 'arm/pos'" in str(caught.value)


def test_bounds_of_a_range_fit_the_last_axis(session):
    said = TensorSemantics("pos", torch.zeros(2, 3), extra={"range": [[-1, -2], np.float32(4)]})
    with pytest.raises(errors.SemanticsError, match=r"list of 2 values, and the last axis of \[2, 3\] is 3 long"):
        annotate.input_tensors("arm", said)
    fits = TensorSemantics("pos", torch.zeros(2, 3), extra={"range": [[-1, -2, -3], np.array([1, 1, 1])]})
    annotate.input_tensors("arm", fits)


def test_outputs_are_checked_as_well_and_names_may_not_collide(session):
    x = annotate.input_tensors("n", {"x": torch.ones(2)})
    with pytest.raises(errors.ElementNamesError, match="n/y"):
        annotate.output_tensors("n", TensorSemantics("y", x * 2, element_names=["a"]))
    with pytest.raises(errors.PortCollisionError, match="'y'"):
        annotate.output_tensors("n", TensorSemantics("y", x * 2), static_outputs=TensorSemantics("y", torch.ones(1)))
    with pytest.raises(errors.PortCollisionError, match="'y'"):
        annotate.output_tensors("n", [TensorSemantics("y", x * 2), TensorSemantics("y", x * 3)])
    annotate.output_tensors("n", TensorSemantics("y", x * 2))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"kind": "k"}, "lost its element_names"),
        ({"kind": "other", "element_names": ["a", "b"]}, "has kind = 'other' instead of 'k'"),
        ({"kind": "k", "element_names": ["a", "c"]}, "has element_names = "),
        ({"kind": "k", "element_names": ["a", "b"], "extra": {"unit": "m"}}, "got unit = 'm'"),
    ],
)
@pytest.mark.parametrize("direction", ["input", "output"])
@pytest.mark.parametrize("kept", [5, 1])
def test_a_later_entry_must_say_the_same(tmp_path, kept, direction, second, words):
    leapp.start("p", save_path=tmp_path, max_cached_io=kept)
    first = {"kind": "k", "element_names": ["a", "b"]}

    def enter(facts):
        x = annotate.input_tensors("n", TensorSemantics("x", torch.ones(2), **(facts if direction == "input" else {})))
        annotate.output_tensors("n", TensorSemantics("y", x * 2, **(facts if direction == "output" else {})))

    for facts in (first, first):
        enter(facts)
    with pytest.raises(errors.SampleMismatchError) as caught:
        enter(second)
    assert f"{direction} '{'x' if direction == 'input' else 'y'}'" in str(caught.value)
    assert words in str(caught.value)


# --- the whole pipeline --------------------------------------------------------------------------------------------


def test_configs_are_flat_sorted_and_plain():
    configs = GraphConfigs(frequency=np.float64(50.0), extra={"robot": "g1", "Zed": (1, 2), "gain": np.float32(0.5)})
    assert configs.as_json() == {"Zed": [1, 2], "frequency": 50.0, "gain": 0.5, "robot": "g1"}
    assert list(configs.as_json()) == ["Zed", "frequency", "gain", "robot"]
    assert type(configs.frequency) is float
    assert type(GraphConfigs(frequency=50).frequency) is int
    assert GraphConfigs().as_json() == {}


def test_configs_of_another_kind_are_refused_before_anything_is_written(session):
    leapp.stop()
    with pytest.raises(errors.OptionError, match=r"it must be a leapp.GraphConfigs\(frequency, extra\)"):
        leapp.compile_graph(graph_configs={"frequency": 50})
    assert not session.exists()


@pytest.mark.parametrize("frequency", [0, -5, float("inf"), float("nan"), "50", True])
def test_a_rate_is_a_positive_number(frequency):
    with pytest.raises(errors.OptionError, match="frequency"):
        GraphConfigs(frequency=frequency)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"frequency": 50}, "'frequency' is a field of LEAPP"),
        ({"a": torch.ones(1)}, "a is a torch.Tensor"),
        ({"a": {"b": float("inf")}}, "a.b is inf"),
        ([("a", 1)], "extra is a list"),
        ({2: 1}, "extra has the key 2"),
    ],
)
def test_free_fields_of_a_pipeline_are_checked(extra, words):
    with pytest.raises(errors.SemanticsError) as caught:
        GraphConfigs(extra=extra)
    assert words in str(caught.value)
    assert "GraphConfigs" in str(caught.value)


# --- wires ---------------------------------------------------------------------------------------------------------


def test_ends_of_a_wire_that_contradict_each_other_are_named(session):
    def two(first, second, unit):
        x = annotate.input_tensors("a", {"x": torch.ones(2)})
        y = annotate.output_tensors("a", TensorSemantics("y", x * 2, None, first, {"unit": "rad"}), export_with=None)
        y = annotate.input_tensors("b", TensorSemantics("y", y, None, second, {"unit": unit}))
        annotate.output_tensors("b", {"z": y * 2}, export_with=None)
        leapp.stop()

    two(["hip", "knee"], ["knee", "hip"], "deg")
    with pytest.warns(errors.WireMeaningWarning) as caught:
        leapp.compile_graph()
    assert caught[0].filename == __file__
    texts = [str(each.message) for each in caught]
    assert len(texts) == 2
    assert "Wire a/y -> b/y: element_names is [['hip', 'knee']] where it begins and [['knee', 'hip']]" in texts[0]
    assert "unit is 'rad'" in texts[1]
    assert "WireMeaningWarning" in (session / "log.txt").read_text()


def test_ends_that_agree_or_of_which_one_says_nothing_are_not(session, recwarn):
    x = annotate.input_tensors("a", {"x": torch.ones(2)})
    said = TensorSemantics("y", x * 2, "target/joint/position", ["hip", "knee"], {"unit": "rad"})
    y = annotate.output_tensors("a", said, export_with=None)
    y = annotate.input_tensors("b", TensorSemantics("y", y, "state/joint/position", extra={"unit": "rad"}))
    annotate.output_tensors("b", {"z": y * 2}, export_with=None)
    leapp.stop()
    leapp.compile_graph()
    assert [each for each in recwarn if issubclass(each.category, leapp.LeappWarning)] == []


# --- state ---------------------------------------------------------------------------------------------------------


def test_a_state_may_be_described_and_its_next_value_means_the_same(session):
    for _ in range(2):
        x = annotate.input_tensors("n", {"x": torch.ones(2)})
        last = annotate.state_tensors(
            "n", TensorSemantics("last", torch.zeros(2), "target/joint/position", ["hip", "knee"])
        )
        annotate.update_state("n", {"last": last + x})
        annotate.output_tensors("n", {"y": last * 2}, export_with=None)
    leapp.stop()
    leapp.compile_graph()
    model = load(session).contract["models"]["n"]
    for port in (model["inputs"][1], model["outputs"][1]):
        assert (port["name"], port["kind"]) == ("last", "target/joint/position")
        assert port["element_names"] == [["hip", "knee"]]


def test_a_described_state_is_checked(session):
    x = annotate.input_tensors("n", {"x": torch.ones(2)})
    with pytest.raises(errors.ElementNamesError, match="n/h"):
        annotate.state_tensors("n", TensorSemantics("h", torch.zeros(2), element_names=["a"]))
    with pytest.raises(errors.SemanticsFormError, match="state 'h' is a TensorSemantics inside a dict"):
        annotate.state_tensors("n", {"h": TensorSemantics("h", torch.zeros(2))})
    with pytest.raises(errors.StateNameError, match="given twice"):
        annotate.state_tensors("n", [TensorSemantics("h", torch.zeros(2)), TensorSemantics("h", torch.zeros(2))])
    h, g = annotate.state_tensors("n", [TensorSemantics("h", torch.zeros(2)), TensorSemantics("g", torch.zeros(2))])
    got = annotate.update_state("n", [TensorSemantics("g", g + 1), TensorSemantics("h", h + 2)])
    annotate.output_tensors("n", {"y": h + g + x}, export_with=None)
    assert torch.equal(got[1], torch.full((2,), 2.0))
