"""``leapp diff``: bundles, locks, one of each; what it says, in which words, and its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bundle_cases import make, reseal, rewrite_json, rewrite_yaml, stage

from leapp import cli, lock
from leapp._canonical import readable_json
from leapp.bundle import write
from leapp.bundle.diff import diff, diff_digests, explain
from leapp.bundle.digests import digests_of
from leapp.bundle.read import load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pair(tmp_path):
    """Two equal bundles."""
    for name in "ab":
        make(tmp_path / name)
    return tmp_path / "a", tmp_path / "b"


def weights(folder, digest="5"):
    def change(manifest):
        manifest["constants"][0].update(sha256=digest * 64, name="net.weight")
        manifest["weights_sha256"] = digest * 64

    rewrite_json(folder / "nodes/policy/manifest.json", change)
    reseal(folder)


def torch_upgrade(folder):
    rewrite_yaml(folder, lambda contract: contract["system information"].update({"torch version": "2.14.0"}))
    (folder / "nodes/policy/policy.pt").write_bytes(b"of another torch")
    rewrite_json(
        folder / "nodes/policy/manifest.json", lambda manifest: manifest["artifacts"][0].update(sha256="7" * 64)
    )
    reseal(folder)


def answer(capsys, *arguments):
    code = cli.main(["diff", *map(str, arguments)])
    return code, capsys.readouterr().out


def records(capsys, *arguments):
    code, out = answer(capsys, *arguments, "--json")
    return code, [json.loads(line) for line in out.splitlines()]


def locked(folder, path):
    lock.write(path, lock.of_bundle(folder))
    return path


# --- in words ------------------------------------------------------------------------------------------------------


def test_equal_bundles_are_one_line_and_exit_code_0(pair, capsys):
    code, out = answer(capsys, *pair)
    assert code == 0
    assert out == f"equal  two 1.0.0 (linux-x86_64)  sha256:{load(pair[0]).digest}\n"
    code, (record,) = records(capsys, *pair)
    assert (code, record["equal"], record["summary"], record["advice"]["step"]) == (0, True, [], "none")


def test_a_weight(pair, capsys):
    weights(pair[0], "4")
    weights(pair[1], "5")
    code, out = answer(capsys, *pair)
    assert code == 1
    assert "  weights of node 'policy' changed: net.weight\n  unchanged: contract, graph, tool chain\n" in out
    assert "version step  minor  1.0.0 -> 1.1.0" in out
    assert out.index("weights of node") < out.index("\nconstants\n") < out.index("version step")


def test_a_tool_chain_says_what_stayed(pair, capsys):
    torch_upgrade(pair[1])
    assert explain(diff(*pair)) == [
        "tool chain changed: torch 2.13.0 -> 2.14.0",
        "written otherwise: nodes/policy/policy.pt",
        "unchanged: contract, graph, weights",
    ]
    _, out = answer(capsys, *pair)
    assert "version step  patch  1.0.0 -> 1.0.1" in out


def test_one_line_for_each_cause_and_node(pair):
    weights(pair[1])

    def change(contract):
        contract["pipeline"]["configs"]["frequency"] = 100

    rewrite_yaml(pair[1], change)
    rewrite_json(
        pair[1] / "nodes/estimator/manifest.json",
        lambda manifest: manifest["inputs"][0]["semantics"].update(
            unit="deg", element_names=[["knee", "hip", "ankle"]]
        ),
    )
    reseal(pair[1])
    second, first, third, stayed = explain(diff(*pair))
    assert first.startswith("contract of the pipeline changed: rate: 50 Hz -> 100 Hz (")
    assert second.startswith("contract of node 'estimator' changed: input 'joint_pos': ")
    assert second.endswith("; and 1 more")
    assert third.startswith("weights and constants of node 'policy' changed: ")
    assert stayed == "unchanged: graph, tool chain"


def test_bytes_alone(pair, capsys):
    model = pair[1] / "nodes/policy/policy.pt"
    model.write_bytes(model.read_bytes() + b"!")
    reseal(pair[1])
    code, (record,) = records(capsys, *pair)
    assert (code, record["causes"], record["advice"]["step"]) == (1, ["bytes only"], "patch")
    assert record["summary"] == [
        "bytes only: nodes/policy/policy.pt is written otherwise",
        "unchanged: contract, graph, weights, tool chain",
    ]


def test_files_that_the_builds_read_are_named_and_are_no_difference(tmp_path):
    for name, digest in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        stage(tmp_path / name, marker=name)
        read = {"path": "src/net.py", "sha256": digest * 64}
        (tmp_path / name / "evidence/reads.json").write_bytes(readable_json({"project": [read]}))
        write.seal(tmp_path / name, name="two", version="1.0.0", status="ok")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert "files read changed: src/net.py" in explain(found)
    assert found.findings == ()


def test_a_version_that_was_not_moved_far_enough(pair, capsys):
    rewrite_yaml(pair[1], lambda contract: contract["pipeline"]["configs"].update(frequency=100))
    value = json.loads((pair[1] / "bundle.json").read_text())
    value["version"] = "1.0.1"
    (pair[1] / "bundle.json").write_bytes(readable_json(value))
    reseal(pair[1])
    _, out = answer(capsys, *pair)
    assert "version step  major  1.0.0 -> 2.0.0" in out
    assert out.endswith("  1.0.1 was given: a patch step, not enough.\n")
    _, (record,) = records(capsys, *pair)
    assert (record["advice"]["given"], record["advice"]["enough"]) == ("patch", False)


def test_another_model_that_was_brought_is_not_bytes_only(pair):
    for folder, digest in zip(pair, "45", strict=True):
        rewrite_json(
            folder / "nodes/policy/manifest.json",
            lambda m, digest=digest: (
                m.update(graph_sha256=None, constants=[]) or m["artifacts"][0].update(sha256=digest * 64)
            ),
        )
        (folder / "nodes/policy/policy.pt").write_bytes(digest.encode())
        reseal(folder)
    found = diff(*pair)
    assert [each.kind for each in found.findings] == ["brought-model"]
    assert explain(found)[0].startswith("graph of node 'policy' changed: model torchscript: it was brought")
    assert found.advice.step.word == "minor"
    by_digests = diff_digests(*(digests_of(load(each)) for each in pair))
    assert [each.kind for each in by_digests.findings] == ["brought-model"]
    assert by_digests.advice.step.word == "minor"


@pytest.mark.parametrize("name", ["it's", 'a "quote"', "back\\slash", "net.0.weight"])
def test_any_name_of_a_constant(pair, name):
    for folder, digest in zip(pair, "45", strict=True):
        rewrite_json(
            folder / "nodes/policy/manifest.json",
            lambda m, digest=digest: m["constants"][0].update(name=name, sha256=digest * 64),
        )
        reseal(folder)
    assert explain(diff(*pair))[0] == f"weights of node 'policy' changed: {name}"


# --- locks ---------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_met(pair, capsys, tmp_path):
    path = locked(pair[0], tmp_path / "two.lock")
    for sides in ((path, pair[1]), (pair[1], path), (path, path)):
        code, out = answer(capsys, *sides)
        assert (code, out.split()[0]) == (0, "equal")


def test_a_lock_and_a_bundle(pair, capsys, tmp_path):
    weights(pair[0], "4")
    path = locked(pair[0], tmp_path / "two.lock")
    weights(pair[1])
    code, (record,) = records(capsys, path, pair[1])
    assert (code, record["platform"], record["digests_only"]) == (1, "linux-x86_64", True)
    assert record["summary"] == [
        "weights of node 'policy' changed: net.weight",
        "unchanged: contract, graph, tool chain",
    ]
    assert record["advice"]["step"] == "minor"
    _, (back,) = records(capsys, pair[1], path)
    assert (back["first"], back["second"]) == (record["second"], record["first"])


def test_a_tool_chain_in_a_lock(pair, tmp_path):
    path = locked(pair[0], tmp_path / "two.lock")
    torch_upgrade(pair[1])
    found = diff_digests(lock.read(path).sections["linux-x86_64"], lock.section_of(pair[1]))
    assert explain(found) == [
        "tool chain changed: torch 2.13.0 -> 2.14.0",
        "written otherwise: nodes/policy/policy.pt",
        "unchanged: contract, graph, weights",
    ]
    assert [(each.path, each.causes) for each in found.files] == [("nodes/policy/policy.pt", ("tool chain",))]


CHANGES = {
    "ports": (
        lambda f: rewrite_json(
            f / "nodes/policy/manifest.json", lambda m: m["inputs"][0]["semantics"].update(unit="m")
        ),
        "contract of node 'policy' changed: the list of ports (digests do not hold what: compare the bundles)", "major",
    ),
    "tolerance": (
        lambda f: rewrite_json(f / "nodes/policy/manifest.json", lambda m: m["tolerances"].update(rtol=1.0)),
        "contract of node 'policy' changed: formats or tolerances (digests do not hold what: compare the bundles)",
        "minor",
    ),
    "graph": (
        lambda f: rewrite_json(f / "nodes/policy/manifest.json", lambda m: m.update(graph_sha256="9" * 64)),
        "graph of node 'policy' changed", "minor",
    ),
    "rate": (
        lambda f: rewrite_yaml(f, lambda y: y["pipeline"]["configs"].update(frequency=9)),
        "contract of the pipeline changed: wires, rate or settings (digests do not hold what: compare the bundles)",
        "major",
    ),
    "start": (
        lambda f: (f / "two_initial_values.safetensors").write_bytes(b"1"),
        "start of state changed", "major",
    ),
    "bytes": (
        lambda f: rewrite_json(f / "nodes/policy/manifest.json", lambda m: m["artifacts"][0].update(sha256="8" * 64)),
        "bytes only: nodes/policy/policy.pt is written otherwise", "patch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_digests_can_tell(pair, name):
    change, said, step = CHANGES[name]
    change(pair[1])
    reseal(pair[1])
    found = diff_digests(*(digests_of(load(each)) for each in pair))
    assert explain(found)[0] == said
    assert found.advice.step.word == step


def test_nodes_that_only_one_lock_has(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", nodes=("estimator", "other"))
    found = diff_digests(*(digests_of(load(tmp_path / name)) for name in "ab"))
    kinds = {(each.node, each.kind) for each in found.findings if each.kind.startswith("node")}
    assert kinds == {("policy", "node-removed"), ("other", "node-added")}
    assert found.advice.step.word == "major"


def test_two_locks_are_compared_platform_by_platform(pair, capsys, tmp_path):
    weights(pair[1])
    section = lock.section_of(pair[0])
    both = lock.Lock("two", {"linux-x86_64": section, "linux-aarch64": section})
    lock.write(tmp_path / "old.lock", both)
    lock.write(tmp_path / "new.lock", lock.of_bundle(pair[1]))
    code, found = records(capsys, tmp_path / "old.lock", tmp_path / "new.lock")
    assert code == 1
    assert [(each["platform"], each["equal"], each["only"]) for each in found] == [
        ("linux-aarch64", False, "first"),
        ("linux-x86_64", False, ""),
    ]
    _, out = answer(capsys, tmp_path / "old.lock", tmp_path / "new.lock")
    assert "linux-aarch64: only the first lock speaks of it" in out
    assert out.endswith("2 platforms compared, 2 differ.\n")


def test_the_page_lists_every_kind_of_finding():
    sources = (ROOT / "leapp/bundle").glob("*diff*.py")
    kinds = {
        kind
        for path in sources
        for kind in re.findall(r"""(?:kind[:=, ]+|kind = |kind, step = )"([a-z-]{4,})\"""", path.read_text())
    }
    assert {"rate", "op-changed", "constant-rearranged", "node-added"} <= kinds
    page = (ROOT / "docs/diff.md").read_text()
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in page] == []


# --- bad input -----------------------------------------------------------------------------------------------------


def test_bad_input_is_exit_code_2(pair, capsys, tmp_path):
    (tmp_path / "broken.lock").write_text("schema = ")
    lock.write(tmp_path / "arm.lock", lock.Lock("two", {"linux-aarch64": lock.section_of(pair[0])}))
    for second, said in (
        (tmp_path / "absent", "is not a bundle"),
        (tmp_path / "absent.lock", "absent.lock"),
        (tmp_path / "broken.lock", "broken.lock:1"),
        (tmp_path / "arm.lock", "has no section for linux-x86_64; it has linux-aarch64"),
    ):
        assert cli.main(["diff", str(pair[0]), str(second)]) == 2
        assert said in capsys.readouterr().err
        code, (record,) = records(capsys, pair[0], second)
        assert (code, record["exit_code"], record["ok"]) == (2, 2, False)


def test_a_diff_of_metadata_imports_no_numpy(pair):
    torch_upgrade(pair[1])
    code = (
        "import sys; from leapp import cli; code = cli.main(['diff', *sys.argv[1:]]);"
        "sys.exit(9 if {'torch', 'numpy', 'onnx'} & set(sys.modules) else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, pair)], env=dict(os.environ), check=False, capture_output=True
    )
    assert done.returncode == 1, done.stderr
