"""Each cause alone, told apart from the others, and only that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from bundle_cases import TOOLCHAIN, make, manifest_of, reseal, rewrite_json, rewrite_yaml, stage, two_nodes

from leapp._canonical import readable_json
from leapp.bundle import read, write
from leapp.bundle.diff import BundleDiff, Cause, Change, diff, explain
from leapp.bundle.samples import RawTensor, write_tensors
from leapp.errors import BundleDigestError, BundleFormatError, NotABundleError

GRAPH = {
    "schema": 1,
    "node": "estimator",
    "inputs": [],
    "ops": [
        {"id": "scale", "op": "get_attr", "target": "_tensor_constant0", "args": [], "kwargs": {}},
        {
            "id": "mul", "op": "call_function", "target": "torch.mul", "args": [{"ref": "x"}, 2.0],
            "kwargs": {"out": None}, "dtype": "float32", "shape": [3],
        },
    ],
    "outputs": [],
}  # fmt: skip


@pytest.fixture
def pair(tmp_path):
    """Two equal bundles with a graph and source lines."""
    folders = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        stage(folder)
        (folder / "nodes/estimator/graph.json").write_bytes(readable_json(GRAPH))
        lines = {"mul": {"file": "src/net.py", "line": 7}, "scale": {"file": "src/net.py", "line": 5}}
        (folder / "evidence/sources/estimator.json").write_bytes(readable_json(lines))
        write.seal(folder, name="two", version="1.0.0", status="ok")
        folders.append(folder)
    return folders


def node_manifest(folder, change, node="estimator"):
    rewrite_json(folder / "nodes" / node / "manifest.json", change)
    reseal(folder)


def causes(found: BundleDiff) -> dict[str, tuple[Cause, ...]]:
    return {each.path: each.causes for each in found.files}


def test_equal_bundles_are_equal_whatever_their_evidence_says(pair):
    a, b = pair
    (b / "log.txt").write_text("another run\n")
    write.index_evidence(b, "two")
    found = diff(a, b)
    assert found.equal
    assert (found.files, found.findings, found.causes, found.keys) == ((), (), (), frozenset())


def test_a_model_that_differs_in_bytes_alone(pair):
    a, b = pair
    model = b / "nodes/estimator/estimator.onnx"
    model.write_bytes(model.read_bytes() + b"!")
    reseal(b)
    found = diff(a, b)
    assert not found.equal
    assert causes(found) == {"nodes/estimator/estimator.onnx": (Cause.BYTES,)}
    assert found.files[0].change is Change.DIFFERS
    assert found.keys == {"file:nodes/estimator/estimator.onnx"}


def test_files_that_repeat_digests_take_the_cause_of_what_they_repeat(tmp_path):
    make(tmp_path / "a", marker="one")
    make(tmp_path / "b", marker="two")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert {"two.yaml", "nodes/policy/manifest.json", "nodes/policy/policy.pt"} < set(causes(found))
    assert set(causes(found).values()) == {(Cause.BYTES,)}
    assert found.findings == ()


def test_a_constant_is_named_with_its_line(pair):
    a, b = pair

    def change(manifest):
        manifest["constants"][0]["sha256"] = "5" * 64
        manifest["weights_sha256"] = "6" * 64

    node_manifest(b, change)
    model = b / "nodes/estimator/estimator.onnx"
    model.write_bytes(model.read_bytes() + b"!")
    reseal(b)
    found = diff(a, b)
    assert found.causes == (Cause.CONSTANTS,)
    assert causes(found)["nodes/estimator/estimator.onnx"] == (Cause.CONSTANTS,)
    (finding,) = found.findings
    assert (finding.node, finding.part, finding.source) == ("estimator", "constant '_tensor_constant0'", "src/net.py:5")
    assert "node 'estimator': constant '_tensor_constant0' differs (src/net.py:5)" in found.lines()[-1]


@pytest.mark.parametrize(("target", "said"), [("_tensor_constant0", "output 'kp'"), ("gains.kp", "gains.kp")])
def test_a_constant_that_an_output_hands_out_is_called_by_that_port(pair, target, said):
    """A gain that stands in static_outputs has no name but the port's; one of a module keeps its own."""
    handed = {"name": "kp", "dtype": "float32", "shape": [2], "value": {"ref": "scale"}}
    computed = {"name": "y", "dtype": "float32", "shape": [2], "value": {"ref": "mul"}}

    def graph(content):
        content["ops"][0]["target"] = target
        content["outputs"] = [computed, handed]

    for folder, digest in zip(pair, "45", strict=True):
        rewrite_json(folder / "nodes/estimator/graph.json", graph)
        node_manifest(
            folder, lambda manifest, digest=digest: manifest["constants"][0].update(name=target, sha256=digest * 64)
        )
    found = diff(*pair)
    (finding,) = found.findings
    assert (finding.part, finding.output) == (f"constant {target!r}", "kp")
    assert finding.as_json()["output"] == "kp"
    assert f"changed: {said}" in explain(found)[0]
    assert f"constant {target!r} (output 'kp') differs" in found.lines()[-1]


def test_a_constant_that_is_computed_with_is_no_output(pair):
    a, b = pair
    node_manifest(b, lambda manifest: manifest["constants"][0].update(sha256="5" * 64))
    found = diff(a, b)
    assert found.findings[0].output == ""
    assert "changed: _tensor_constant0 (src/net.py:5)" in explain(found)[0]


def test_a_constant_of_another_shape_says_so(pair):
    a, b = pair
    node_manifest(b, lambda manifest: manifest["constants"][0].update(shape=[3], dtype="float64"))
    assert "float32[2] -> float64[3]" in diff(a, b).findings[0].text()


def test_a_constant_that_only_one_has(pair):
    a, b = pair
    node_manifest(b, lambda manifest: manifest.update(constants=[]))
    assert [(each.cause, each.change) for each in diff(a, b).findings] == [(Cause.CONSTANTS, Change.ONLY_FIRST)]
    assert [each.change for each in diff(b, a).findings] == [Change.ONLY_SECOND]


def test_the_first_operation_that_differs_is_shown_with_its_line(pair):
    a, b = pair

    def change(graph):
        graph["ops"][1]["args"][1] = 3.0

    rewrite_json(b / "nodes/estimator/graph.json", change)
    node_manifest(b, lambda manifest: manifest.update(graph_sha256="7" * 64))
    found = diff(a, b)
    assert found.causes == (Cause.GRAPH,)
    assert causes(found)["nodes/estimator/graph.json"] == (Cause.GRAPH,)
    (finding,) = found.findings
    assert finding.first == "%mul = torch.mul(%x, 2.0, out=null) -> float32[3]"
    assert finding.second == "%mul = torch.mul(%x, 3.0, out=null) -> float32[3]"
    assert (finding.part, finding.source) == ("operation 2", "src/net.py:7")


def test_every_operation_with_another_argument_is_named(pair):
    a, b = pair
    ops = [{"id": f"op{i}", "target": "torch.add", "args": [i], "kwargs": {}} for i in range(5)]
    rewrite_json(a / "nodes/estimator/graph.json", lambda graph: graph.update(ops=ops))
    changed = [op | {"args": [op["args"][0] + 10 * (index % 2)]} for index, op in enumerate(ops)]
    changed[3] = changed[3] | {"target": "torch.sub"}
    changed[4] = changed[4] | {"args": [9]}
    rewrite_json(b / "nodes/estimator/graph.json", lambda graph: graph.update(ops=changed))
    reseal(a)
    node_manifest(b, lambda manifest: manifest.update(graph_sha256="7" * 64))
    found = diff(a, b)
    assert [(each.part, each.kind) for each in found.findings] == [
        ("operation 2", "op-changed"),
        ("operation 4", "op-replaced"),
        ("operation 5", "op-changed"),
    ]
    assert {f"graph:estimator:{each.part}" for each in found.findings} <= found.keys


def test_an_operation_more(pair):
    a, b = pair
    rewrite_json(b / "nodes/estimator/graph.json", lambda graph: graph["ops"].append({"id": "add", "target": "t.add"}))
    node_manifest(b, lambda manifest: manifest.update(graph_sha256="7" * 64))
    (finding,) = diff(a, b).findings
    assert (finding.part, finding.change, finding.second) == ("operation 3", Change.ONLY_SECOND, "%add = t.add()")


def test_ports_tolerances_and_artifacts_are_contract(pair):
    a, b = pair
    node_manifest(b, lambda manifest: manifest["tolerances"].update(rtol=0.5))
    node_manifest(b, lambda manifest: manifest["inputs"][0]["semantics"].update(unit="deg"))
    found = diff(a, b)
    assert found.causes == (Cause.CONTRACT,)
    assert {(each.part, each.first, each.second) for each in found.findings} == {
        ("tolerances.rtol", "0.001", "0.5"),
        ("input 'joint_pos': unit", "rad", "deg"),
    }


def test_wires_and_settings_of_the_pipeline_are_contract(pair):
    a, b = pair

    def change(contract):
        contract["pipeline"]["configs"]["frequency"] = 100
        contract["pipeline"]["data_flow"]["estimator/features"] = ["policy/hidden"]

    rewrite_yaml(b, change)
    found = diff(a, b)
    assert causes(found) == {"two.yaml": (Cause.CONTRACT,)}
    assert {(each.node, each.part, each.first, each.second) for each in found.findings} == {
        ("", "rate", "50 Hz", "100 Hz"),
        ("policy", "what feeds input 'features'", "estimator/features (wire)", "outside"),
        ("policy", "what feeds input 'hidden'", "policy/hidden (feedback)", "estimator/features (wire)"),
    }


def test_another_tool_chain_explains_models_that_differ_in_nothing_else(pair):
    a, b = pair
    rewrite_yaml(b, lambda contract: contract["system information"].update({"torch version": "2.12.0"}))
    model = b / "nodes/estimator/estimator.onnx"
    model.write_bytes(model.read_bytes() + b"!")
    reseal(b)
    found = diff(a, b)
    assert found.causes == (Cause.TOOL_CHAIN,)
    assert causes(found) == {"nodes/estimator/estimator.onnx": (Cause.TOOL_CHAIN,), "two.yaml": (Cause.TOOL_CHAIN,)}
    assert found.findings[0].text() == 'torch version: "2.13.0" -> "2.12.0"'


def test_first_tick_values_are_constants_by_name(pair):
    a, b = pair
    write_tensors(b / "two_initial_values.safetensors", {"estimator/memory": RawTensor("float32", (3,), b"\1" * 12)})
    reseal(b)
    found = diff(a, b)
    assert causes(found) == {"two_initial_values.safetensors": (Cause.CONSTANTS,)}
    assert found.findings[0].short() == (
        "initial value of 'estimator/memory': zeros -> [2.369e-38, 2.369e-38, 2.369e-38]"
    )


def test_version_and_status_are_contract(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", version="2.0.0", status="failed")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.files == ()
    assert not found.equal
    assert [each.text() for each in found.findings] == [
        "version: 1.0.0 -> 2.0.0",
        "status: ok -> failed; a check of its build did not pass: do not deploy it",
    ]
    assert explain(found)[:2] == [each.text() for each in found.findings]


def test_models_that_a_build_of_one_node_left_out_are_no_difference(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b")
    rewrite_json(tmp_path / "b/nodes/policy/manifest.json", lambda manifest: manifest.update(artifacts=[]))

    def gone(status):
        rewrite_json(tmp_path / "b/bundle.json", lambda bundle: bundle.update(status=status))
        reseal(tmp_path / "b")
        found = diff(tmp_path / "a", tmp_path / "b")
        return [each.node for each in found.findings if each.kind == "format-removed"], explain(found)[0]

    assert gone("ok")[0] == ["policy"]
    nodes, said = gone("partial")
    assert nodes == []
    assert said.startswith("status: ok -> partial; it has the models of one node alone")


def test_a_node_and_its_files_that_only_one_has(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", nodes=("estimator", "other"))
    rewrite_json(tmp_path / "b/nodes/other/manifest.json", lambda manifest: manifest.update(ops={"torch.sub": 1}))
    reseal(tmp_path / "b")
    found = diff(tmp_path / "a", tmp_path / "b")
    nodes = {(each.node, each.change) for each in found.findings if each.cause is Cause.GRAPH}
    assert nodes == {("policy", Change.ONLY_FIRST), ("other", Change.ONLY_SECOND)}
    changes = {each.path: each.change for each in found.files}
    assert changes["nodes/policy/policy.pt"] is Change.ONLY_FIRST
    assert changes["nodes/other/other.pt"] is Change.ONLY_SECOND
    assert changes["two.yaml"] is Change.DIFFERS
    assert causes(found)["nodes/policy/policy.pt"] == (Cause.GRAPH,)


def test_a_node_by_another_name(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", nodes=("estimator", "other"))
    found = diff(tmp_path / "a", tmp_path / "b")
    assert [(each.kind, each.node, each.first, each.second) for each in found.findings] == [
        ("node-renamed", "other", "policy", "other")
    ]
    assert {each.path: each.causes for each in found.files}["nodes/policy/policy.pt"] == (Cause.GRAPH,)
    assert found.advice.step.word == "major"


def test_an_unknown_content_file_is_bytes_only(pair):
    a, b = pair
    (b / "nodes/estimator/extra.bin").write_bytes(b"x")
    (b / "bundle.json").unlink()
    (b / "evidence/index.json").unlink()
    write.seal(b, name="two", version="1.0.0", status="ok")
    found = diff(a, b)
    assert [(each.path, each.change, each.causes) for each in found.files] == [
        ("nodes/estimator/extra.bin", Change.ONLY_SECOND, (Cause.BYTES,))
    ]


def test_rows_and_json(pair):
    a, b = pair
    node_manifest(b, lambda manifest: manifest["tolerances"].update(rtol=0.5))
    found = diff(a, b)
    assert found.rows() == [
        ("nodes/estimator/manifest.json", "differs", "contract (node 'estimator': tolerances.rtol: 0.001 -> 0.5)")
    ]
    record = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert record["causes"] == ["contract"]
    assert record["files"][0]["causes"] == ["contract"]
    assert record["findings"][0]["part"] == "tolerances.rtol"
    assert (record["first"], record["second"]) == (read.load(a).digest, read.load(b).digest)


def test_a_damaged_file_is_not_taken_for_a_reason(pair):
    a, b = pair
    node_manifest(b, lambda manifest: manifest["tolerances"].update(rtol=0.5))
    (b / "nodes/estimator/manifest.json").write_text("{}")
    with pytest.raises(BundleDigestError):
        diff(a, b)


def test_what_is_no_bundle_is_named(tmp_path, bundle):
    with pytest.raises(NotABundleError):
        diff(bundle, tmp_path / "absent")


def test_it_needs_neither_torch_nor_numpy():
    code = "import sys, leapp.bundle.diff; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'onnx')))"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0


def test_another_tool_chain_is_seen_in_the_runtime_file_alone(tmp_path):
    """The same through the writer of the runtime file, not by editing it."""
    from leapp.bundle import contract

    spec = two_nodes()
    texts = []
    for toolchain in (TOOLCHAIN, TOOLCHAIN | {"os": "linux-aarch64"}):
        folder = tmp_path / toolchain["os"]
        folder.mkdir()
        manifests = [manifest_of(node) for node in spec.nodes]
        for manifest in manifests:
            (folder / "nodes" / manifest.node).mkdir(parents=True)
            (folder / "nodes" / manifest.node / "manifest.json").write_bytes(write.node_manifest_bytes(manifest))
        initial = folder / "two_initial_values.safetensors"
        write_tensors(initial, {"estimator/memory": RawTensor("float32", (3,), bytes(12))})
        (folder / "two.yaml").write_bytes(
            contract.contract_yaml(spec, manifests, initial_values=(initial.name, "0" * 64), toolchain=toolchain)
        )
        write.seal(folder, name="two", version="1.0.0", status="ok")
        texts.append(folder)
    found = diff(*texts)
    assert causes(found) == {"two.yaml": (Cause.TOOL_CHAIN,)}
    assert found.findings[0].text() == 'os: "linux-x86_64" -> "linux-aarch64"'


MALFORMED = {
    "wires that are no map": ("yaml", lambda y: y["pipeline"].update(data_flow=[1]), "pipeline.data_flow"),
    "an end that is no name": ("yaml", lambda y: y["pipeline"].update(inputs={"a": [["b"]]}), "pipeline.inputs"),
    "settings": ("yaml", lambda y: y["pipeline"].update(configs=3), "pipeline.configs"),
    "scene": ("yaml", lambda y: y.update(semantic={"scene": None}), "semantic.scene"),
    "initial values": ("yaml", lambda y: y["pipeline"].update(initial_values=[]), "pipeline.initial_values"),
    "operations": ("graph", lambda g: g.update(ops=None), "ops"),
    "an operation": ("graph", lambda g: g["ops"][0].pop("id"), "ops"),
    "arguments": ("graph", lambda g: g["ops"][0].update(args=3), "the arguments of 'scale'"),
    "an input": ("graph", lambda g: g.update(inputs=["x"]), "inputs"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_in_our_form_is_named(pair, name):
    a, b = pair
    file, change, said = MALFORMED[name]
    if file == "yaml":
        rewrite_yaml(b, change)
    else:
        rewrite_json(b / "nodes/estimator/graph.json", change)
        node_manifest(b, lambda manifest: manifest.update(graph_sha256="7" * 64))
    for sides in ((a, b), (b, a)):
        with pytest.raises(BundleFormatError, match=said):
            diff(*sides)


def test_what_is_odd_in_the_arguments_is_shown_as_it_is(pair):
    a, b = pair
    odd = [{"ref": ["x"]}, {"slice": 3}, {"float": "nan"}, None]
    rewrite_json(b / "nodes/estimator/graph.json", lambda graph: graph["ops"][1].update(args=odd))
    node_manifest(b, lambda manifest: manifest.update(graph_sha256="7" * 64))
    (found,) = diff(a, b).findings
    assert found.second.startswith('%mul = torch.mul({"ref": ["x"]}, {"slice": 3}, {"float": "nan"}, null')
