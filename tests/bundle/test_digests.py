"""One digest moves for each reason, and no other."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
from bundle_cases import make, reseal, rewrite_json, rewrite_yaml

from leapp._canonical import readable_json
from leapp.bundle import write
from leapp.bundle.digests import digests_of
from leapp.bundle.read import load


def moved(before, after) -> set[str]:
    """Names of the digests that are not the same."""
    found = {
        each.name for each in dataclasses.fields(before) if getattr(before, each.name) != getattr(after, each.name)
    }
    if "nodes" in found:
        found.remove("nodes")
        for name, node in before.nodes.items():
            found |= {
                f"{name}.{each.name}"
                for each in dataclasses.fields(node)
                if getattr(node, each.name) != getattr(after.nodes[name], each.name)
            }
    return found - {"bundle"}


def manifest(folder, change):
    rewrite_json(folder / "nodes/estimator/manifest.json", change)
    reseal(folder)


CASES = {
    "unit": (lambda f: manifest(f, lambda m: m["inputs"][0]["semantics"].update(unit="deg")), {"estimator.ports"}),
    "tolerance": (lambda f: manifest(f, lambda m: m["tolerances"].update(atol=1.0)), {"estimator.settings"}),
    "opset": (lambda f: manifest(f, lambda m: m["artifacts"][0].update(opset_version=21)), {"estimator.settings"}),
    "graph": (lambda f: manifest(f, lambda m: m.update(graph_sha256="5" * 64)), {"estimator.graph"}),
    "weights": (lambda f: manifest(f, lambda m: m.update(weights_sha256="5" * 64)), {"estimator.weights"}),
    "constant": (lambda f: manifest(f, lambda m: m["constants"][0].update(sha256="5" * 64)), {"estimator.constants"}),
    "model": (lambda f: manifest(f, lambda m: m["artifacts"][1].update(sha256="5" * 64)), {"estimator.artifacts"}),
    "rate": (lambda f: rewrite_yaml(f, lambda y: y["pipeline"]["configs"].update(frequency=9)), {"contract"}),
    "tool": (lambda f: rewrite_yaml(f, lambda y: y["system information"].update(os="a-b")), {"toolchain", "platform"}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_change_moves_its_own_digest(bundle, case):
    before = digests_of(load(bundle))
    change, expected = CASES[case]
    change(bundle)
    after = digests_of(load(bundle))
    assert before.bundle != after.bundle
    assert moved(before, after) == expected


def test_version_and_initial_values(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", version="2.0.0")
    a, b = (digests_of(load(tmp_path / name)) for name in "ab")
    assert moved(a, b) == {"version"}
    assert a.platform == "linux-x86_64"
    file = tmp_path / "b/two_initial_values.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    reseal(tmp_path / "b")
    assert moved(b, digests_of(load(tmp_path / "b"))) == {"initial_values"}


def test_inputs_come_from_the_evidence_where_it_is(bundle):
    assert digests_of(load(bundle)).inputs is None
    read = {"path": "src/net.py", "sha256": "1" * 64}, {"path": "../net.pt", "sha256": "2" * 64}
    record = {"schema": 1, "project": [read[0]], "declared": [read[1]], "undeclared": []}
    (bundle / "evidence/reads.json").write_bytes(readable_json(record))
    write.index_evidence(bundle, "two")
    assert digests_of(load(bundle)).inputs == {"../net.pt": "2" * 64, "src/net.py": "1" * 64}


def test_it_needs_neither_torch_nor_numpy(bundle):
    code = (
        "import sys; from leapp.bundle.digests import digests_of; from leapp.bundle.read import load;"
        "digests_of(load(sys.argv[1])); sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'onnx')))"
    )
    assert subprocess.run([sys.executable, "-c", code, bundle], env=dict(os.environ), check=False).returncode == 0


def test_what_it_was_built_with_comes_from_the_evidence_where_it_is(bundle):
    assert (digests_of(load(bundle)).packages, digests_of(load(bundle)).builder) == (None, None)
    for record, expected in (
        ({"packages": {"onnx": "1.23.2"}, "builder": {"processor": "x"}}, ({"onnx": "1.23.2"}, {"processor": "x"})),
        ({"packages": ["onnx"]}, (None, None)),
    ):
        (bundle / "evidence/session.json").write_bytes(readable_json(record))
        write.index_evidence(bundle, "two")
        found = digests_of(load(bundle))
        assert (found.packages, found.builder) == expected
