"""What a person meets first: one sentence that says what is wrong, and the next command."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from leapp import cli

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = 'schema = 1\n[pipeline]\nname = "p"\nversion = "1.0.0"\nentry = "entry.py:main"\n'


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *arguments: str) -> str:
    """What a command that refuses its arguments says."""
    assert cli.main([*arguments]) == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("command", ["build", "check"])
def test_no_manifests_yet(here, capsys, command):
    text = said(capsys, command)
    assert text.splitlines() == [
        f"There is no manifests/ in {here}, where manifests are looked for unless some are named.",
        "`leapp init --from SCRIPT` writes one for an annotated script.",
    ]


def test_manifests_of_the_project_above_are_named(here, capsys, monkeypatch):
    (here / "manifests").mkdir()
    (here / "src").mkdir()
    monkeypatch.chdir(here / "src")
    assert f"name that folder, or work in {here}." in said(capsys, "build")


def test_no_manifests_is_a_record_for_machines(here, capsys):
    assert cli.main(["build", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "NoManifestsError"


FOREIGN = {
    "policy.pt": ("it is a model file", "`leapp build` writes it there."),
    "policy.onnx": ("it is a model file", "`leapp build` writes it there."),
    "config.yaml": ("", "`leapp build` writes it there."),
    "bundle.zip": ("it is an archive", "Unpack it"),
    "p.toml": ("it is a manifest", "`leapp build p.toml` builds it."),
    "folder": ("it holds no bundle.json", "`leapp build` writes it there."),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("command", ["verify", "inspect", "replay", "run"])
def test_something_else_where_a_bundle_is_expected(here, capsys, command, name):
    if name == "folder":
        (here / name).mkdir()
    elif name == "bundle.zip":
        zipfile.ZipFile(here / name, "w").close()
    else:
        (here / name).write_text("learning_rate: 0.1\n")
    why, advice = FOREIGN[name]
    text = said(capsys, command, name)
    assert text.startswith(f"{name} is not a bundle: {why}")
    assert advice in text
    assert len(text.splitlines()) == 2


def test_a_model_file_of_a_bundle_leads_to_the_bundle(here, capsys):
    model = here / "dist/p/1.0.0/nodes/n/n.onnx"
    model.parent.mkdir(parents=True)
    model.touch()
    (here / "dist/p/1.0.0/bundle.json").write_text("{}")
    assert f"It lies in the bundle {here}/dist/p/1.0.0: name that folder." in said(capsys, "verify", str(model))


def test_bundles_that_are_there_are_named(here, capsys):
    (here / "dist/p/1.0.0").mkdir(parents=True)
    (here / "dist/p/1.0.0/bundle.json").write_text("{}")
    assert "Bundles in dist: dist/p/1.0.0." in said(capsys, "verify", "dist")
    assert "Bundles in dist: dist/p/1.0.0." in said(capsys, "inspect", "nowhere")


def test_a_bundle_of_a_newer_schema(here, capsys):
    (here / "bundle.json").write_text('{"schema": 9, "requires": 9}')
    for command in ("verify", "inspect", "run"):
        text = said(capsys, command, ".")
        assert "needs reader level 9; this leapp reads up to 1." in text
        assert "`leapp doctor`" in text


def test_a_manifest_of_a_newer_schema(here, capsys):
    (here / "p.toml").write_text(MANIFEST.replace("schema = 1", "schema = 2") + "[novelty]\n")
    text = said(capsys, "check", "p.toml")
    assert "reads manifests with schema = 1, not 2. A newer leapp-build wrote it; `leapp doctor`" in text
    assert "novelty" not in text


def test_the_project_file_is_no_manifest(here, capsys):
    (here / "p.toml").write_text(MANIFEST)
    (here / "entry.py").touch()
    (here / "pyproject.toml").write_text('[project]\nname = "x"\n')
    text = said(capsys, "build", "p.toml", "pyproject.toml")
    assert "1 problem(s)" in text
    assert "pyproject.toml: a project file, not a manifest: leave it out" in text


def test_a_manifest_outside_any_project(here, capsys):
    (here / ".git").rmdir()
    (here / "manifests").mkdir()
    (here / "manifests/p.toml").write_text(MANIFEST + '[session]\ninputs = ["w/*.pt"]\n')
    text = said(capsys, "check")
    hint = "No folder above has a pyproject.toml or .git, so paths are looked up beside the manifest; `git init`"
    assert text.count(hint) == 2
    (here / ".git").mkdir()
    assert hint not in said(capsys, "check")
