"""``leapp reproduce`` and the stage of a build, end to end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from build_projects import Project

from leapp import cli
from leapp.build.plan import make_plan
from leapp.build.reproduce import BY_NAME, CHANGED_SINCE
from leapp.build.run import build
from leapp.bundle import read
from leapp.errors import NotReproducibleError
from leapp.manifest.load import load

ENTRY = """
def sound():
    record(factor=float(open("gain.txt").read()))


def hashes():
    record(factor=float(hash("x") % 1000))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project with one published bundle, built with reproduction, and one manifest that cannot be reproduced."""
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").touch()
    project = Project(root)
    project.source("src/entry.py", ENTRY)
    (root / "gain.txt").write_text("2.0")
    for name in ("sound", "hashes"):
        path = project.manifest(name, f"src/entry.py:{name}")
        path.write_text(path.read_text().replace('formats = ["torchscript"]', "formats = []"))
    code = cli.main(["build", str(project.manifests["sound"]), "--out", str(root / "dist")])
    assert code == 0
    return project, root / "dist" / "sound" / "1.0.0"


def test_a_build_reproduces_and_keeps_the_record(built):
    _, bundle = built
    record = json.loads((bundle / "evidence/reproduction.json").read_text())
    assert record["reproduced"] is True
    assert record["digest"] == read.load(bundle).digest
    assert set(record["varied"]) >= BY_NAME.keys() - {"inputs"}
    assert read.verify(bundle).ok


def test_what_does_not_come_out_the_same_is_not_published(built):
    project, _ = built
    out = project.root / "other"
    plan = make_plan(
        load([project.manifests["hashes"]]), out=out, environment=os.environ, vary=("hash-seed",), probe=False
    )
    (result,) = build(plan)
    assert type(result.error) is NotReproducibleError
    assert result.exit_code == 1
    assert "torch.mul(%tanh, " in str(result.error)
    assert not result.published
    assert not (out / "hashes" / "1.0.0").exists()
    record = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert [blame["variations"] for blame in record["reproduction"]["blames"]] == [["hash-seed"]]


def test_a_second_session_without_any_variation_is_one_too(built, capsys, monkeypatch):
    _, bundle = built
    monkeypatch.chdir(bundle)
    assert cli.main(["reproduce", ".", "--vary", ""]) == 0
    assert "byte-identical with nothing varied" in capsys.readouterr().out


def test_a_bundle_is_reproduced_from_the_manifest_that_its_evidence_names(built, capsys, monkeypatch, tmp_path):
    _, bundle = built
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", str(bundle), "--vary", "hash-seed,umask"]) == 0
    text = capsys.readouterr().out
    assert f"sha256:{read.load(bundle).digest}" in text
    assert "byte-identical with hash-seed, umask varied" in text


def test_a_bundle_of_a_project_that_changed_since_is_told_from_one_that_is_not_stable(built, capsys, tmp_path):
    project, bundle = built
    copy = tmp_path / "project"
    shutil.copytree(project.root, copy, ignore=shutil.ignore_patterns("dist", "other"))
    (copy / "gain.txt").write_text("3.0")
    manifest = copy / "manifests" / "sound.toml"
    assert cli.main(["reproduce", str(bundle), "--manifest", str(manifest), "--vary", "umask", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [blame["text"] for blame in record["reproduction"]["blames"]] == [CHANGED_SINCE]
    (finding,) = [each for each in record["reproduction"]["difference"]["findings"] if each["cause"] == "graph"]
    assert (finding["first"], finding["second"]) == (
        "%mul = torch.mul(%tanh, 2.0) -> float32[3]",
        "%mul = torch.mul(%tanh, 3.0) -> float32[3]",
    )


def test_a_manifest_is_built_in_a_scratch_folder(built, capsys, monkeypatch):
    project, _ = built
    monkeypatch.chdir(project.root)
    before = sorted(path for path in project.root.rglob("*"))
    path = str(project.manifests["hashes"])
    assert cli.main(["reproduce", path, "--vary", "hash-seed"]) == 1
    text = capsys.readouterr().out
    assert "nodes/n/graph.json" not in text
    assert "nodes/scale/graph.json" in text
    assert "hash-seed: it depends on hash()" in text
    assert cli.main(["reproduce", path, "--vary", "umask", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reproduction"]["reproduced"] is True
    assert sorted(path for path in project.root.rglob("*")) == before


def test_bad_input_is_named(built, capsys, tmp_path):
    project, bundle = built
    assert cli.main(["reproduce", str(bundle), "--vary", "hashseed"]) == 2
    assert "no variation 'hashseed'" in capsys.readouterr().err
    lost = tmp_path / "lost" / "sound" / "1.0.0"
    shutil.copytree(bundle, lost, ignore=shutil.ignore_patterns("evidence"))
    assert cli.main(["reproduce", str(lost)]) == 2
    assert "--manifest FILE" in capsys.readouterr().err
    shutil.copytree(bundle / "evidence", lost / "evidence")
    assert cli.main(["reproduce", str(lost)]) == 2
    assert "'manifests/sound.toml' for 'sound' is not in or above" in capsys.readouterr().err
    assert cli.main(["reproduce", str(tmp_path / "absent.toml")]) == 2
    assert Path(project.root, "manifests").is_dir()
