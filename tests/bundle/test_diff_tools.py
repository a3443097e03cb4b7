"""Packages and machines as the likely cause of a bundle that is another one."""

from __future__ import annotations

import pytest
from bundle_cases import make, reseal, rewrite_json, rewrite_yaml

from leapp._canonical import readable_json
from leapp._spec import LEAPP_SOURCE
from leapp.bundle import write
from leapp.bundle.diff import Cause, Step, diff, diff_digests, explain
from leapp.bundle.digests import digests_of
from leapp.bundle.read import load

PACKAGES = {"numpy": "2.4.6", "onnx": "1.23.2", "onnxscript": "0.7.1", "torch": "2.13.0+cpu", "zoo": "1"}
BUILDER = {"processor": "one", "Python": "CPython 3.11.7", LEAPP_SOURCE: "1" * 64}


def tell(folder, packages, builder=BUILDER, digest="1"):
    """Say in the evidence what a bundle was built with, and from what."""
    session = {"packages": packages, "builder": builder}
    (folder / "evidence/session.json").write_bytes(readable_json(session))
    row = {"path": "net.py", "sha256": digest * 64}
    (folder / "evidence/reads.json").write_bytes(readable_json({"project": [row]}))
    write.index_evidence(folder, "two")


@pytest.fixture
def pair(tmp_path):
    """Two bundles of which one model has other bytes."""
    for name in "ab":
        make(tmp_path / name)
        tell(tmp_path / name, PACKAGES)
    a, b = tmp_path / "a", tmp_path / "b"
    model = b / "nodes/policy/policy.pt"
    model.write_bytes(model.read_bytes() + b"!")
    rewrite_json(b / "nodes/policy/manifest.json", lambda manifest: manifest["artifacts"][0].update(sha256="8" * 64))
    reseal(b)
    return a, b


def both(pair):
    """As bundles, and as what locks hold of them."""
    return diff(*pair), diff_digests(*(digests_of(load(each)) for each in pair))


CASES = {
    "a writer": ({"onnxscript": "0.7.2"}, {}, "tool chain changed: onnxscript 0.7.1 -> 0.7.2"),
    "writers come first": (
        {"zoo": "2", "numpy": "2.5.0", "onnx": "1.24.0"},
        {},
        "tool chain changed: onnx 1.23.2 -> 1.24.0, numpy 2.4.6 -> 2.5.0, zoo 1 -> 2",
    ),
    "another build of torch": ({"torch": "2.13.0+xpu"}, {}, "tool chain changed: torch 2.13.0+cpu -> 2.13.0+xpu"),
    "gone": ({"zoo": None}, {}, "tool chain changed: zoo 1 -> none"),
    "Python": ({}, {"Python": "CPython 3.11.8"}, "tool chain changed: Python CPython 3.11.7 -> CPython 3.11.8"),
    "one came, one went": (
        {"zoo": None, "yes": "1", "onnx": "1.24.0"},
        {},
        "tool chain changed: onnx 1.23.2 -> 1.24.0, yes none -> 1, zoo 1 -> none",
    ),
    "many came": (
        {"a": "1", "b": "1", "c": "1", "zoo": "2"},
        {},
        "tool chain changed: zoo 1 -> 2 and 3 packages that only one has",
    ),
    "only came": ({"a": "1", "b": "1", "c": "1"}, {}, "tool chain changed: 3 packages that only one has"),
    "many changed": (
        dict.fromkeys(PACKAGES, "9") | {"c": "1", "b": "1", "a": "1"},
        {LEAPP_SOURCE: "2" * 64, "Python": "CPython 3.11.8"},
        (
            f"tool chain changed: {LEAPP_SOURCE}, Python CPython 3.11.7 -> CPython 3.11.8, onnxscript 0.7.1 -> 9, "
            "onnx 1.23.2 -> 9, numpy 2.4.6 -> 9, torch 2.13.0+cpu -> 9 and 1 more and 3 packages that only one has"
        ),
    ),
    "LEAPP": ({}, {LEAPP_SOURCE: "2" * 64}, f"tool chain changed: {LEAPP_SOURCE}"),
    "machine": ({}, {"processor": "two"}, "machine of the build changed: processor one -> two"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_was_built_with_another_tool_says_so(pair, case):
    packages, builder, said = CASES[case]
    tell(pair[1], {name: each for name, each in (PACKAGES | packages).items() if each}, BUILDER | builder)
    for found in both(pair):
        lines = explain(found)
        stayed = "contract, graph, weights, tool chain" if case == "machine" else "contract, graph, weights"
        assert lines == [said, "written otherwise: nodes/policy/policy.pt", f"unchanged: {stayed}"]
        (file,) = [each for each in found.files if each.path == "nodes/policy/policy.pt"]
        assert file.causes == (Cause.TOOL_CHAIN,)
        assert (found.advice.step, found.advice.reasons) == (
            Step.PATCH,
            ("nodes/policy/policy.pt: the same model, written otherwise",),
        )


def test_the_same_tools_explain_nothing(pair):
    for found in both(pair):
        assert explain(found)[0] == "bytes only: nodes/policy/policy.pt is written otherwise"


@pytest.mark.parametrize("side", [0, 1])
def test_no_record_is_no_difference(pair, side):
    (pair[side] / "evidence/session.json").unlink()
    write.index_evidence(pair[side], "two")
    for found in both(pair):
        assert found.causes == (Cause.BYTES,)


def test_what_the_runtime_file_says_is_not_said_again(pair):
    tell(pair[1], PACKAGES | {"torch": "2.14.0+cpu"}, BUILDER | {"Python": "CPython 3.12.1"})
    rewrite_yaml(pair[1], lambda y: y["system information"].update({"torch version": "2.14.0"}))
    for found in both(pair):
        assert explain(found)[0] == (
            "tool chain changed: torch 2.13.0 -> 2.14.0, Python CPython 3.11.7 -> CPython 3.12.1"
        )


def test_a_package_that_a_changed_script_imports_is_no_cause(pair):
    tell(pair[1], PACKAGES | {"scipy": "1.17.1"}, digest="2")
    for found in both(pair):
        assert not any("scipy" in line for line in explain(found))
    tell(pair[1], PACKAGES | {"scipy": "1.17.1"})
    for found in both(pair):
        assert explain(found)[0] == "tool chain changed: scipy none -> 1.17.1"


def test_tools_ask_for_no_version_step_of_their_own(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", version="1.0.1")
    tell(tmp_path / "a", PACKAGES)
    tell(tmp_path / "b", PACKAGES | {"numpy": "2.5.0"})
    found = diff(tmp_path / "a", tmp_path / "b")
    assert (found.advice.step, explain(found)[-2]) == (Step.NONE, "tool chain changed: numpy 2.4.6 -> 2.5.0")


def test_equal_bundles_of_other_tools_are_equal(tmp_path):
    for name, packages in ("a", PACKAGES), ("b", PACKAGES | {"numpy": "2.5.0"}):
        make(tmp_path / name)
        tell(tmp_path / name, packages)
    for found in both((tmp_path / "a", tmp_path / "b")):
        assert (found.equal, found.findings, explain(found)) == (True, (), [])
