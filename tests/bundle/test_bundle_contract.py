"""The runtime file: the example of the contract, key order, and text that YAML would take for something else."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundle_cases import TOOLCHAIN, artifact, manifest_of, port, two_nodes
from hypothesis import example, given
from hypothesis import strategies as st

from leapp import __config_version__, __version__
from leapp._spec import NodeSpec, PipelineSpec
from leapp.bundle.contract import contract_yaml, parse_contract, toolchain
from leapp.errors import BundleFormatError, BundleValueError

EXPECTED = """\
models:
  estimator:
    inputs:
    - {name: joint_pos, dtype: float32, shape: [3], type: tensor, kind: state/joint/position, element_names: [[hip, knee, ankle]], unit: rad}
    - {name: memory, dtype: float32, shape: [3], type: tensor}
    outputs:
    - {name: features, dtype: float32, shape: [3], type: tensor}
    parameters:
      backend: onnx
      model_path: nodes/estimator/estimator.onnx
      sha256sum: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
      md5sum: "9dd4e461268c8034f5c8564e155c67a6"
      opset_version: 20
      warp_segments: 0
      variants:
      - {backend: pt2, model_path: nodes/estimator/estimator.pt2, sha256sum: "a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa"}
  policy:
    inputs:
    - {name: features, dtype: float32, shape: [3], type: tensor}
    - {name: hidden, dtype: float32, shape: [3], type: tensor}
    outputs:
    - {name: actions, dtype: float32, shape: [4, 3], type: tensor, kind: target/joint/position, element_names: [__temporal_axis__, [hip, knee, ankle]], temporal_period_ms: 20}
    - {name: memory_out, dtype: float32, shape: [3], type: tensor}
    - {name: hidden, dtype: float32, shape: [3], type: tensor}
    parameters:
      backend: jit
      model_path: nodes/policy/policy.pt
      sha256sum: "594e519ae499312b29433b7dd8a97ff068defcba9755b6d5d00e84c524d67b06"
      md5sum: "fbade9e36a3f36d3d676c1b808451dd7"
      warp_segments: 0
pipeline:
  configs:
    frequency: 50
  data_flow:
    estimator/features: [policy/features]
  feedback_connections:
    policy/hidden: [policy/hidden]
    policy/memory_out: [estimator/memory]
  feedback_flow:
    policy/hidden: [policy/hidden]
    policy/memory_out: [estimator/memory]
  initial_values: two_initial_values.safetensors
  initial_values_sha256sum: "1e10000000000000000000000000000000000000000000000000000000000000"
  inputs:
    estimator: [joint_pos]
  outputs:
    policy: [actions, memory_out]
system information:
  leapp config version: '1.3'
  leapp version: 0.1.0
  torch version: 2.13.0
  python version: '3.11'
  warp version: null
  cuda version: null
  os: linux-x86_64
semantic:
  scene:
    dt: 0.02
"""  # noqa: E501  # the lines of the file


def one_node(*, configs: dict[str, Any] | None = None, **semantics: Any) -> PipelineSpec:
    return PipelineSpec("p", (NodeSpec("n", (port("x", 2, **semantics),), (port("y"),)),), configs=configs or {})


def written(spec: PipelineSpec, **options: Any) -> bytes:
    manifests = [manifest_of(node) for node in spec.nodes]
    return contract_yaml(spec, manifests, toolchain=TOOLCHAIN, **options)


def test_the_example_of_the_contract_byte_for_byte(tmp_path: Path) -> None:
    spec = two_nodes()
    estimator, policy = spec.nodes
    onnx = artifact(tmp_path, "estimator", "onnx", b"x")
    manifests = [
        # Given in another order than the nodes, which is the one that counts.
        manifest_of(policy, artifact(tmp_path, "policy", "pt", b"z")),
        manifest_of(estimator, onnx, artifact(tmp_path, "estimator", "pt2", b"y")),
    ]
    initial = ("two_initial_values.safetensors", "1e1" + "0" * 61)
    data = contract_yaml(spec, manifests, initial_values=initial, toolchain=TOOLCHAIN)
    assert data.decode() == EXPECTED
    page = (Path(__file__).parents[2] / "docs" / "contract.md").read_text("utf-8")
    assert f"```yaml\n{EXPECTED}```\n" in page


def test_maps_that_are_empty_are_written_as_such() -> None:
    value = yaml.safe_load(written(one_node()))
    empty = ("configs", "data_flow", "feedback_connections", "feedback_flow", "inputs", "outputs")
    assert value["pipeline"] == {key: {} for key in empty}
    text = written(one_node()).decode()
    for key in empty:
        assert f"  {key}: {{}}\n" in text
    assert list(value) == ["models", "pipeline", "system information"]
    assert value["models"]["n"]["parameters"] == {"backend": "none", "warp_segments": 0}


def test_free_fields_follow_ours_sorted_whatever_order_they_came_in() -> None:
    spec = one_node(zeta=1, alpha={"b": 1, "a": 2}, temporal_period_ms=5, element_names=[["a", "b"]], kind="kp")
    line = next(each for each in written(spec).decode().splitlines() if "name: x" in each)
    assert line == (
        "    - {name: x, dtype: float32, shape: [2], type: tensor, kind: kp, element_names: [[a, b]], "
        "temporal_period_ms: 5, alpha: {a: 2, b: 1}, zeta: 1}"
    )


def test_a_variant_only_where_there_is_more_than_one_artifact(tmp_path: Path) -> None:
    spec = one_node()
    models = [artifact(tmp_path, "n", suffix, suffix.encode()) for suffix in ("pt", "onnx", "pt2")]

    def parameters(count: int) -> dict[str, Any]:
        data = contract_yaml(spec, [manifest_of(spec.nodes[0], *models[:count])], toolchain=TOOLCHAIN)
        found: dict[str, Any] = yaml.safe_load(data)["models"]["n"]["parameters"]
        return found

    assert list(parameters(1)) == ["backend", "model_path", "sha256sum", "md5sum", "warp_segments"]
    assert [each["backend"] for each in parameters(3)["variants"]] == ["onnx", "pt2"]
    assert [list(each) for each in parameters(2)["variants"]] == [["backend", "model_path", "sha256sum"]]


TRICKY = [
    "1e3", "0x1F", "0o7", "1.5", ".5", "-.inf", ".nan", "1_000", "12:30:45", "2024-01-01", "yes", "No", "on", "y", "n",
    "null", "~", "", " ", "true", "=", "<<", "*a", "&a", "!t", "- a", "a: b", "a #b", "#", "[x]", "{x}", "a,b", "?",
    "? a", "'", '"', "it's", "\n", "a\nb", "\t", "\x07", "\x85", "\u2028", "\ufeff", "\U0001f600", "% a", "@a", "`a",
    "|", ">", "x" * 300, "key with spaces " * 20, "--- a", "...", "+1", "-1", "0", "1e10" + "0" * 60, "0b1", "1.",
    "a: ", ":a", "日本",
]  # fmt: skip


@pytest.mark.parametrize("text", TRICKY, ids=ascii)
def test_text_stays_text_as_value_and_as_key(text: str) -> None:
    spec = one_node(configs={"k": text, f"k{text}": [text], text: {text: text}}, note=text, unit=[text, {text: text}])
    value = parse_contract(written(spec), "p.yaml")
    assert value["pipeline"]["configs"] == {"k": text, f"k{text}": [text], text: {text: text}}
    first = value["models"]["n"]["inputs"][0]
    assert first["note"] == text
    assert first["unit"] == [text, {text: text}]


@pytest.mark.parametrize("text", ["1e3", "0o7", "12:30:45", "1_000", "y", "N", ".5", "0x1F", "1.", "+.inf"])
def test_text_that_other_readers_take_for_numbers_is_quoted(text: str) -> None:
    assert f"unit: '{text}'" in written(one_node(unit=text)).decode()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(node=NAMES, name=NAMES, extra=st.dictionaries(TEXTS, VALUES, max_size=3))
@example(node="a b", name="1e5", extra={"x": 1e-5, "y": -0.0, "z": 1e300})
def test_whatever_is_written_loads_back_equal(node: str, name: str, extra: dict[str, Any]) -> None:
    extra = {key: value for key, value in extra.items() if key not in {"name", "dtype", "shape", "type"}}
    known = ("kind", "element_names", "temporal_period_ms")
    spec = PipelineSpec(
        "p",
        (NodeSpec(node, (port(name, 1, **extra),), ()),),
        data_flow={f"{node}/{name}": (f"{node}/{name}",)},
        inputs={node: (name,)},
        configs={key: value for key, value in extra.items() if key != "frequency"},
    )
    data = written(spec)
    value = parse_contract(data, "p.yaml")
    expected = {key: each for key, each in extra.items() if each is not None or key not in known}
    found = dict(value["models"][node]["inputs"][0])
    assert found.pop("name") == name
    assert (found.pop("dtype"), found.pop("shape"), found.pop("type")) == ("float32", [1], "tensor")
    assert found == expected
    assert value["pipeline"]["data_flow"] == {f"{node}/{name}": [f"{node}/{name}"]}
    assert value["pipeline"]["inputs"] == {node: [name]}
    assert yaml.load(data, Loader=yaml.SafeLoader) == value  # the pure reader agrees with the fast one
    assert written(spec) == data


@pytest.mark.parametrize(("rate", "dt"), [(50, 0.02), (400.0, 0.0025), (0.5, 2.0), (3, 1 / 3)])
def test_a_rate_gives_the_step_last(rate: float, dt: float) -> None:
    value = yaml.safe_load(written(one_node(configs={"frequency": rate, "robot": "a"})))
    assert list(value)[-1] == "semantic"
    assert value["semantic"] == {"scene": {"dt": dt}}
    assert value["pipeline"]["configs"] == {"frequency": rate, "robot": "a"}


@pytest.mark.parametrize("rate", [0, -1, float("inf"), True, "50"])
def test_a_rate_that_is_none_is_named(rate: Any) -> None:
    with pytest.raises(BundleValueError, match="frequency"):
        written(one_node(configs={"frequency": rate}))


@pytest.mark.parametrize(
    ("semantics", "message"),
    [
        ({"type": "x"}, "n/x: the free field 'type' is a field of LEAPP"),
        ({"limit": float("nan")}, "n/x.limit: nan is not a finite number"),
        ({"fn": print}, "n/x.fn: a builtin_function_or_method cannot be written"),
    ],
)
def test_a_free_field_that_cannot_be_written_is_named(semantics: dict[str, Any], message: str) -> None:
    with pytest.raises(BundleValueError) as caught:
        written(one_node(**semantics))
    assert message in str(caught.value)


def test_manifests_must_be_of_the_pipelines_nodes() -> None:
    spec = one_node()
    with pytest.raises(BundleValueError, match=r"no manifest was given for \['n'\]"):
        contract_yaml(spec, [], toolchain=TOOLCHAIN)
    other = manifest_of(replace(spec.nodes[0], inputs=(port("x", 3),)))
    with pytest.raises(BundleValueError, match="describes other inputs"):
        contract_yaml(spec, [other], toolchain=TOOLCHAIN)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a map"),
        (b"a: [", "not valid YAML"),
        (b"a: 1", "the map 'models' is missing"),
        (b"models: {}\npipeline: {}\nsystem information: {}", "config version None"),
        (b"models: {}\npipeline: {}\nsystem information: {leapp config version: '2.0'}", "config version 2.0"),
        (b"models: {a: 1, a: 2}\n", "occurs twice"),
        (b"a: &x [1]\nb: *x\n", "aliases are not allowed"),
        (b"a: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"[" * 20_000, "not valid YAML"),
    ],
    ids=["empty", "broken", "models", "no-version", "version", "twice", "alias", "object", "bytes", "deep"],
)
def test_what_is_no_runtime_file_is_named(data: bytes, message: str) -> None:
    with pytest.raises(BundleFormatError) as caught:
        parse_contract(data, "p.yaml")
    assert message in str(caught.value)
    assert "p.yaml" in str(caught.value)


def test_an_asterisk_in_text_is_no_alias() -> None:
    assert parse_contract(written(one_node(unit="kg*m*s^-2")), "p")["models"]["n"]["inputs"][0]["unit"] == "kg*m*s^-2"


def test_the_tool_chain_is_found_without_importing_it() -> None:
    code = (
        "import sys; from leapp.bundle.contract import toolchain; found = toolchain(); "
        "assert not {'torch', 'numpy', 'onnx', 'warp'} & set(sys.modules); print(found)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(toolchain())
    assert toolchain()["leapp config version"] == __config_version__
    assert toolchain()["leapp version"] == __version__
    assert list(toolchain()) == list(TOOLCHAIN)
    assert toolchain()["python version"] == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_the_tool_chain_says_what_torch_says() -> None:
    torch = pytest.importorskip("torch")
    assert toolchain()["torch version"] == torch.__version__.split("+")[0]
    assert toolchain()["cuda version"] == torch.version.cuda
