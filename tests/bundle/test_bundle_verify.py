"""Every way to tamper with a bundle is found and named; what is whole is left in peace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from bundle_cases import make, reseal, rewrite_json, rewrite_yaml, sign
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leapp.bundle import read, write
from leapp.bundle.schema import UNFIT
from leapp.errors import (
    BundleDigestError,
    BundleFormatError,
    BundleTooNewError,
    LeappError,
    NotABundleError,
    NotInBundleError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def found(folder: Path) -> list[tuple[str, str]]:
    return [(str(problem.kind), problem.path) for problem in read.verify(folder).problems]


def test_a_sealed_bundle_is_sound(bundle: Path) -> None:
    report = read.verify(bundle)
    assert report.ok
    assert report.problems == report.notes == ()
    assert (report.name, report.version, report.status) == ("two", "1.0.0", "ok")
    assert report.digest == read.load(bundle).digest


def flip(path: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / path).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / path).write_bytes(data)

    return change


def grow(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).write_bytes((folder / path).read_bytes() + b" ") and None


def drop(*paths: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for path in paths:
            if (folder / path).is_dir():
                shutil.rmtree(folder / path)
            else:
                (folder / path).unlink()

    return change


def add(path: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")

    return change


def rename(old: str, new: str) -> Callable[[Path], None]:
    return lambda folder: (folder / old).rename(folder / new) and None


def link(path: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        if (folder / path).exists():
            (folder / path).unlink()
        (folder / path).symlink_to(target)

    return change


def link_equal_file(folder: Path) -> None:
    outside = folder.parent / "outside.pt"
    (folder / "nodes/policy/policy.pt").rename(outside)
    (folder / "nodes/policy/policy.pt").symlink_to(outside)


def link_equal_folder(folder: Path) -> None:
    (folder / "nodes/policy").rename(folder.parent / "outside")
    (folder / "nodes/policy").symlink_to(folder.parent / "outside")


def folder_for_file(folder: Path) -> None:
    (folder / "nodes/policy/policy.pt").unlink()
    (folder / "nodes/policy/policy.pt").mkdir()


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "nodes/policy/pipe")  # opening it would wait for ever


def bundle_json(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: rewrite_json(folder / "bundle.json", lambda value: value.update(changes))


def reformat(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).write_text(json.dumps(json.loads((folder / path).read_text()))) and None


PT = "nodes/policy/policy.pt"
SAMPLES = "evidence/samples/estimator.safetensors"

TAMPERED = {
    "model flipped": (flip(PT), [("changed", PT)]),
    "model longer": (grow(PT), [("changed", PT)]),
    "model empty": (lambda f: (f / PT).write_bytes(b"") and None, [("changed", PT)]),
    "model gone": (drop(PT), [("missing", PT)]),
    "model renamed": (rename(PT, "nodes/policy/other.pt"), [("extra", "nodes/policy/other.pt"), ("missing", PT)]),
    "model in another case": (rename(PT, "nodes/policy/Policy.pt"), [("case", PT)]),
    "model linked": (link_equal_file, [("link", PT)]),
    "model a folder": (folder_for_file, [("missing", PT)]),
    "node linked": (
        link_equal_folder,
        [
            ("link", "nodes/policy"),
            ("missing", "nodes/policy/graph.txt"),
            ("missing", "nodes/policy/manifest.json"),
            ("missing", PT),
        ],
    ),
    "dangling link": (link("x", "nowhere"), [("link", "x")]),
    "pipe": (pipe, [("link", "nodes/policy/pipe")]),
    "contract flipped": (flip("two.yaml"), [("changed", "two.yaml")]),
    "contract gone": (drop("two.yaml"), [("missing", "two.yaml")]),
    "initial values flipped": (flip("two_initial_values.safetensors"), [("changed", "two_initial_values.safetensors")]),
    "manifest flipped": (flip("nodes/policy/manifest.json"), [("changed", "nodes/policy/manifest.json")]),
    "graph flipped": (flip("nodes/policy/graph.txt"), [("changed", "nodes/policy/graph.txt")]),
    "old model left": (add("nodes/policy/policy.onnx"), [("extra", "nodes/policy/policy.onnx")]),
    "hidden file": (add(".cache/x"), [("extra", ".cache/x")]),
    "other picture": (add("other.png"), [("extra", "other.png")]),
    "status": (bundle_json(status="failed"), [("changed", "bundle.json")]),
    "version": (bundle_json(version="9"), [("changed", "bundle.json")]),
    "new key": (bundle_json(more=1), [("changed", "bundle.json")]),
    "digest": (bundle_json(digest="0" * 64), [("changed", "bundle.json")]),
    "white space": (grow("bundle.json"), [("changed", "bundle.json")]),
    "other form": (reformat("bundle.json"), [("changed", "bundle.json")]),
    "samples flipped": (flip(SAMPLES), [("evidence-changed", SAMPLES)]),
    "samples longer": (grow(SAMPLES), [("evidence-changed", SAMPLES)]),
    "samples gone": (drop(SAMPLES), [("evidence-missing", SAMPLES)]),
    "log flipped": (flip("log.txt"), [("evidence-changed", "log.txt")]),
    "log gone": (drop("log.txt"), [("evidence-missing", "log.txt")]),
    "picture flipped": (flip("two.png"), [("evidence-changed", "two.png")]),
    "new evidence": (add("evidence/x"), [("evidence-extra", "evidence/x")]),
    "index gone": (drop("evidence/index.json"), [("evidence-missing", "evidence/index.json")]),
    "index broken": (
        lambda f: (f / "evidence/index.json").write_text("{") and None,
        [("evidence-changed", "evidence/index.json")],
    ),
    "index in another form": (reformat("evidence/index.json"), [("evidence-changed", "evidence/index.json")]),
    "evidence linked": (link("evidence/x", "/etc/hostname"), [("link", "evidence/x")]),
    "log linked": (link("log.txt", "/etc/hostname"), [("link", "log.txt")]),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_named(bundle: Path, name: str) -> None:
    change, expected = TAMPERED[name]
    change(bundle)
    assert found(bundle) == expected


def test_a_problem_says_what_is_wrong(bundle: Path) -> None:
    grow(PT)(bundle)
    flip("log.txt")(bundle)
    first, second = read.verify(bundle).problems
    assert str(first).startswith("evidence-changed: log.txt: sha256 ")
    assert str(second) == f"changed: {PT}: 16 bytes instead of 15"


def test_evidence_may_be_absent_as_a_whole(bundle: Path) -> None:
    digest = read.verify(bundle).digest
    drop("evidence", "log.txt", "two.png")(bundle)
    report = read.verify(bundle)
    assert report.ok
    assert report.notes == ()
    assert report.digest == digest


def test_without_the_evidence_folder_what_lies_beside_it_is_noted(bundle: Path) -> None:
    drop("evidence")(bundle)
    report = read.verify(bundle)
    assert report.ok
    assert report.notes == (
        "log.txt is not covered by any digest: the evidence folder is absent",
        "two.png is not covered by any digest: the evidence folder is absent",
    )


def test_content_cannot_hide_in_the_evidence_index(bundle: Path) -> None:
    add("rogue.pt")(bundle)
    entry = {
        "path": "rogue.pt",
        "size": 1,
        "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
    }
    rewrite_json(bundle / "evidence/index.json", lambda value: value["files"].append(entry))
    assert ("evidence-changed", "evidence/index.json") in found(bundle)


@pytest.mark.parametrize(("status", "why"), UNFIT.items())
def test_a_bundle_that_is_not_to_be_used_is_whole_and_says_so(tmp_path: Path, status: str, why: str) -> None:
    make(tmp_path / "b", status=status)
    report = read.verify(tmp_path / "b")
    assert report.ok
    assert report.status == status
    assert report.notes[0] == f"the bundle is whole; status {status}: {why}"


def node_json(change: Callable[[Any], Any], node: str = "policy") -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        rewrite_json(folder / "nodes" / node / "manifest.json", change)
        reseal(folder)

    return forge


def yaml_value(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: rewrite_yaml(folder, change)


def model(value: Any, node: str = "policy") -> Any:
    return value["models"][node]


def forged_model(folder: Path) -> None:
    (folder / PT).write_bytes(b"another one")
    reseal(folder)


def forged_initial_values(folder: Path) -> None:
    flip("two_initial_values.safetensors")(folder)
    reseal(folder)


def unlisted(path: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        value = json.loads((folder / "bundle.json").read_text())
        value["files"] = [entry for entry in value["files"] if entry["path"] != path]
        (folder / path).unlink()
        sign(folder, value)

    return forge


MANIFEST = "nodes/policy/manifest.json"

FORGED = {
    "model swapped": (forged_model, MANIFEST, "another size or digest of 'nodes/policy/policy.pt'"),
    "initial values swapped": (forged_initial_values, "two.yaml", "another digest of 'two_initial_values"),
    "contract dropped": (unlisted("two.yaml"), "bundle.json", "does not list the runtime file 'two.yaml'"),
    "manifest dropped": (unlisted(MANIFEST), "two.yaml", f"node 'policy' has no {MANIFEST}"),
    "model dropped": (unlisted(PT), MANIFEST, "does not list its model file 'nodes/policy/policy.pt'"),
    "initial values dropped": (
        unlisted("two_initial_values.safetensors"),
        "two.yaml",
        "does not list the initial values",
    ),
    "manifest of another node": (node_json(lambda v: v.update(node="x")), MANIFEST, "describes the node 'x'"),
    "manifest broken": (node_json(lambda v: v.pop("ops")), MANIFEST, "ops: it is missing"),
    "data file": (
        node_json(lambda v: v["artifacts"][0].update(data_paths=["nodes/policy/w"])),
        MANIFEST,
        "does not list its data file 'nodes/policy/w'",
    ),
    "port dtype": (
        node_json(lambda v: v["inputs"][0].update(dtype="float64")),
        "two.yaml",
        "the inputs of node 'policy'",
    ),
    "port order": (node_json(lambda v: v["outputs"].reverse()), "two.yaml", "the outputs of node 'policy' differ"),
    "port unit": (
        yaml_value(lambda v: model(v, "estimator")["inputs"][0].update(unit="deg")),
        "two.yaml",
        "the inputs of node 'estimator' differ",
    ),
    "port shape": (
        yaml_value(lambda v: model(v)["inputs"][0].update(shape=[4])),
        "two.yaml",
        "the inputs of node 'policy'",
    ),
    "yaml digest": (
        yaml_value(lambda v: model(v)["parameters"].update(sha256sum="0" * 64)),
        "two.yaml",
        "the parameters of node 'policy' differ",
    ),
    "yaml path": (
        yaml_value(lambda v: model(v)["parameters"].update(model_path="../../evil.pt")),
        "two.yaml",
        "the parameters of node 'policy' differ",
    ),
    "yaml variants": (
        yaml_value(lambda v: model(v, "estimator")["parameters"].pop("variants")),
        "two.yaml",
        "the parameters of node 'estimator' differ",
    ),
    "node dropped": (yaml_value(lambda v: v["models"].pop("policy")), MANIFEST, "its node is not in two.yaml"),
    "wire to nowhere": (
        yaml_value(lambda v: v["pipeline"]["data_flow"].update({"estimator/features": ["policy/gone"]})),
        "two.yaml",
        "'policy/gone' is wired and is none of the inputs",
    ),
    "wire from an input": (
        yaml_value(lambda v: v["pipeline"]["data_flow"].update({"estimator/joint_pos": ["policy/features"]})),
        "two.yaml",
        "'estimator/joint_pos' is wired and is none of the outputs",
    ),
    "outer input": (
        yaml_value(lambda v: v["pipeline"]["inputs"].update(policy=["x"])),
        "two.yaml",
        "'policy/x' is wired and is none of the inputs",
    ),
    "feedback under its other name": (
        yaml_value(lambda v: v["pipeline"]["feedback_connections"].clear()),
        "two.yaml",
        "feedback_connections and feedback_flow differ",
    ),
    "no initial values": (
        yaml_value(lambda v: v["pipeline"].pop("initial_values")),
        "two.yaml",
        "there is feedback and no initial_values",
    ),
    "no flows": (yaml_value(lambda v: v["pipeline"].pop("data_flow")), "two.yaml", "does not have the form"),
    "models of another kind": (
        yaml_value(lambda v: v["models"].update(policy=[1])),
        "two.yaml",
        "does not have the form",
    ),
    "no yaml": (lambda f: (f / "two.yaml").write_text("- 1\n") and reseal(f), "two.yaml", "expected a map"),
}


@pytest.mark.parametrize("name", FORGED)
def test_files_that_contradict_each_other_are_named(bundle: Path, name: str) -> None:
    forge, path, message = FORGED[name]
    forge(bundle)
    problems = read.verify(bundle).problems
    assert {problem.kind for problem in problems} == {read.ProblemKind.STRUCTURE}
    assert any(problem.path == path and message in problem.detail for problem in problems), problems


def test_a_model_that_was_not_copied_is_not_looked_for(bundle: Path) -> None:
    node_json(lambda v: v["artifacts"][0].update(external=True))(bundle)
    unlisted(PT)(bundle)
    assert read.verify(bundle).ok
    with pytest.raises(NotInBundleError, match="no model file 'policy'"):
        read.load(bundle).artifact("policy")


def test_an_untouched_bundle_can_be_resigned(bundle: Path) -> None:
    """The forger's tools of this file change nothing by themselves, or the tests above would prove little."""
    before = (bundle / "bundle.json").read_bytes()
    reseal(bundle)
    assert (bundle / "bundle.json").read_bytes() == before


@pytest.mark.parametrize("path", ["../outside", "/etc/hostname", "nodes/../../outside", "nodes\\x"])
@pytest.mark.parametrize("use", [read.load, read.verify])
def test_paths_that_lead_outside_are_refused(bundle: Path, path: str, use: Callable[[Path], Any]) -> None:
    (bundle.parent / "outside").write_text("secret")
    value = json.loads((bundle / "bundle.json").read_text())
    value["files"][0]["path"] = path
    sign(bundle, value)
    with pytest.raises(BundleFormatError, match="cannot be used"):
        use(bundle)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", BundleFormatError),
        (b"\x00" * 100, BundleFormatError),
        (b"[1]", BundleFormatError),
        (b"{}", BundleFormatError),
        (b'{"requires": 1}', BundleFormatError),
        (b'{"requires": 2}', BundleTooNewError),
        (b'{"a":' * 200_000, BundleFormatError),
        (b'{"requires": 1, "requires": 1}', BundleFormatError),
    ],
    ids=["empty", "zeros", "list", "no keys", "one key", "newer", "deep", "twice"],
)
@pytest.mark.parametrize("use", [read.load, read.verify])
def test_a_broken_bundle_json_is_refused(
    bundle: Path, data: bytes, error: type[LeappError], use: Callable[[Path], Any]
) -> None:
    (bundle / "bundle.json").write_bytes(data)
    with pytest.raises(error) as caught:
        use(bundle)
    assert str(bundle / "bundle.json") in str(caught.value)


@pytest.mark.parametrize("use", [read.load, read.verify])
def test_a_huge_bundle_json_is_refused_unread(bundle: Path, use: Callable[[Path], Any]) -> None:
    os.truncate(bundle / "bundle.json", 1 << 40)  # sparse: reading it would need a terabyte
    with pytest.raises(BundleFormatError, match="too large"):
        use(bundle)


@pytest.mark.parametrize("use", [read.load, read.verify])
def test_a_linked_bundle_json_is_refused(bundle: Path, use: Callable[[Path], Any]) -> None:
    (bundle / "bundle.json").rename(bundle.parent / "b.json")
    (bundle / "bundle.json").symlink_to(bundle.parent / "b.json")
    with pytest.raises(BundleFormatError, match="a symbolic link"):
        use(bundle)


@pytest.mark.parametrize("use", [read.load, read.verify])
def test_what_is_no_bundle_is_named(tmp_path: Path, use: Callable[[Path], Any]) -> None:
    (tmp_path / "file").write_text("x")
    for path, why in (
        (tmp_path, "holds no bundle.json"),
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "file", "is not a bundle: it is neither a folder nor a runtime file"),
    ):
        with pytest.raises(NotABundleError, match=why):
            use(path)


def test_a_newer_bundle_is_refused_by_level(bundle: Path) -> None:
    value = json.loads((bundle / "bundle.json").read_text())
    sign(bundle, value | {"requires": 2})
    for use in (read.load, read.verify):
        with pytest.raises(BundleTooNewError, match="needs reader level 2"):
            use(bundle)


def test_a_later_schema_of_our_level_is_read_and_its_additions_are_covered(bundle: Path) -> None:
    value = json.loads((bundle / "bundle.json").read_text())
    sign(bundle, value | {"schema": 5, "colour": "blue"})
    assert read.verify(bundle).ok
    rewrite_json(bundle / "bundle.json", lambda v: v.update(colour="red"))
    assert found(bundle) == [("changed", "bundle.json")]
    with pytest.raises(BundleDigestError):
        read.load(bundle)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_changed_byte_anywhere_is_found(bundle: Path, data: st.DataObject) -> None:
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    file = data.draw(st.sampled_from(files), label="file")
    before = file.read_bytes()
    place = data.draw(st.integers(0, len(before) - 1), label="place")
    byte = data.draw(st.integers(1, 255), label="difference")
    changed = bytearray(before)
    changed[place] ^= byte
    file.write_bytes(changed)
    try:
        try:
            report = read.verify(bundle)
        except (BundleFormatError, BundleTooNewError):
            assert file.name == "bundle.json"  # nothing is left to compare with
        else:
            relative = file.relative_to(bundle).as_posix()
            if relative in {"bundle.json", "evidence/index.json"}:
                assert not report.ok
            else:
                assert [problem.path for problem in report.problems] == [relative]
    finally:
        file.write_bytes(before)


def test_a_bundle_that_is_replaced_meanwhile_is_looked_at_again(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "new", marker="longer than before")
    original = read.scan

    def scan_after_exchange(folder: Path) -> Any:
        if (tmp_path / "new").exists():
            bundle.rename(tmp_path / "old")
            (tmp_path / "new").rename(bundle)
        return original(folder)

    monkeypatch.setattr(read, "scan", scan_after_exchange)
    report = read.verify(bundle)
    assert report.ok
    assert report.digest == read.load(bundle).digest


PROBE = """
import sys, time
from leapp.bundle.read import verify, load
report = verify(sys.argv[1])
assert report.ok, report
bundle = load(sys.argv[1])
assert list(bundle.nodes) == ["estimator", "policy"] and bundle.artifact("policy").exists()
heavy = {"torch", "numpy", "onnx", "onnxruntime", "safetensors", "warp", "pydantic"} & set(sys.modules)
assert not heavy, heavy
print(time.process_time())
"""


def test_verify_is_quick_and_needs_no_heavy_library(bundle: Path) -> None:
    command = [sys.executable, "-c", PROBE, str(bundle)]
    cpu_s = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    assert min(cpu_s) < 0.3, cpu_s


# --- load ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "bundle.json", "two.yaml"])
def test_a_bundle_is_opened_by_its_folder_or_a_file_of_it(bundle: Path, name: str) -> None:
    opened = read.load(bundle / name)
    assert (opened.name, opened.version, opened.status) == ("two", "1.0.0", "ok")
    assert opened.folder == bundle


def test_what_a_bundle_says(bundle: Path) -> None:
    opened = read.load(str(bundle))
    assert list(opened.nodes) == ["estimator", "policy"]
    assert [each.backend for each in opened.artifacts("estimator")] == ["onnx", "pt2"]
    assert opened.artifact("estimator") == bundle / "nodes/estimator/estimator.onnx"
    assert opened.artifact("estimator", "pt2") == bundle / "nodes/estimator/estimator.pt2"
    assert opened.artifact("policy", "jit") == opened.artifact("policy", "torchscript") == bundle / PT
    assert opened.initial_values == bundle / "two_initial_values.safetensors"
    assert opened.samples("estimator") == bundle / SAMPLES
    assert opened.samples("policy") is None
    assert opened.sources("estimator") == bundle / "evidence/sources/estimator.json"
    assert opened.contract["pipeline"]["configs"] == {"frequency": 50}
    drop("evidence")(bundle)
    assert read.load(bundle).samples("estimator") is None


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda b: b.node("gone"), "no node 'gone'"),
        (lambda b: b.artifact("policy", "onnx"), "no model file 'policy as onnx'"),
        (lambda b: b.content("nodes/x"), "no file 'nodes/x'"),
        (lambda b: b.content("../two/two.yaml"), "no file '../two/two.yaml'"),
    ],
)
def test_what_a_bundle_lacks_is_named_with_what_it_has(
    bundle: Path, ask: Callable[[read.Bundle], Any], message: str
) -> None:
    with pytest.raises(NotInBundleError) as caught:
        ask(read.load(bundle))
    assert message in str(caught.value)
    assert isinstance(caught.value, LookupError)


def test_a_file_that_is_gone_is_said_to_be_missing(bundle: Path) -> None:
    opened = read.load(bundle)
    path = next(iter(opened.files))
    (bundle / path).unlink()
    with pytest.raises(NotInBundleError) as caught:
        opened.content(path)
    assert f"{bundle / path} is missing; it is part of the bundle {bundle}.\nCopy the bundle again" in str(caught.value)
    assert "It has" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "ask"),
    [
        (flip(PT), lambda b: b.artifact("policy")),
        (grow(PT), lambda b: b.content(PT)),
        (flip("two.yaml"), lambda b: b.contract),
        (flip(MANIFEST), lambda b: b.nodes),
        (flip("two_initial_values.safetensors"), lambda b: b.initial_values),
        (flip(SAMPLES), lambda b: b.samples("estimator")),
    ],
)
def test_nothing_that_was_changed_is_ever_handed_out(
    bundle: Path, change: Callable[[Path], None], ask: Callable[[read.Bundle], Any]
) -> None:
    opened = read.load(bundle)
    change(bundle)
    with pytest.raises(BundleDigestError) as caught:
        ask(opened)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("change", [link_equal_file, link_equal_folder, folder_for_file])
def test_links_are_not_followed_even_to_equal_files(bundle: Path, change: Callable[[Path], None]) -> None:
    opened = read.load(bundle)
    assert opened.nodes
    change(bundle)
    with pytest.raises(BundleFormatError):
        opened.content(PT)


def test_a_bundle_reached_over_a_link_is_fine(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(bundle)
    assert read.verify(tmp_path / "current").ok
    assert read.load(tmp_path / "current").artifact("policy").exists()


def test_is_bundle_knows_ours(bundle: Path, tmp_path: Path) -> None:
    assert read.is_bundle(bundle)
    assert not read.is_bundle(tmp_path)
    rewrite_json(bundle / "bundle.json", lambda v: v.update(requires=99, schema=7))
    assert read.is_bundle(bundle)  # a later leapp's is ours too
    (bundle / "bundle.json").write_text('{"name": "a JavaScript bundle"}')
    assert not read.is_bundle(bundle)


def test_sealing_and_verifying_agree_on_evidence(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("x")
    (tmp_path / "log.txt").write_text("x")
    write.seal(tmp_path, name="p", version="1", status="ok")
    assert [each.kind for each in read.verify(tmp_path).problems] == ["structure"]  # p.yaml is no contract


def test_a_folder_that_is_no_bundle_is_told_without_looking_around(tmp_path, monkeypatch):
    # Every write asks it of all folders above its target; an error's advice would list what lies below each.
    def looked_around(*_):
        pytest.fail("the advice of an error that nobody sees was made")

    monkeypatch.setattr(read, "no_bundle", looked_around)
    assert not read.is_bundle(tmp_path)
    assert not read.is_bundle(tmp_path / "missing")
