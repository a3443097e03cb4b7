"""The cache in real builds of one tiny pipeline: built once, then never while nothing changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from build_projects import Project

from leapp import cli, lock

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
HEAVY = ("torch", "numpy", "onnx")
RUN = """\
import sys
from leapp.cli import main
code = main(sys.argv[1:])
print(*(name for name in %r if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def build(project: Project, *arguments: str) -> tuple[dict[str, Any], str]:
    """The record of one build, and which heavy modules the command imported."""
    command = [sys.executable, "-c", RUN % (HEAVY,), "build", str(project.root / "manifests"), "--json"]
    environment = {**os.environ, "LEAPP_CACHE": str(project.root.parent / "cache")}
    done = subprocess.run(  # noqa: PLW1510  # what failed is shown below
        [*command, "--out", str(project.root / "dist"), *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, Any]]:
    root = tmp_path_factory.mktemp("cached") / "project"
    root.mkdir()
    (root / "pyproject.toml").touch()
    project = Project(root)
    project.source("helper.py", "FACTOR = 2.0\n", head="")
    project.source("entry.py", "from helper import FACTOR\ndef main():\n    record(factor=FACTOR)\n")
    project.manifest("tiny", "entry.py:main")
    record, _ = build(project)
    return project, record


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_ino, path.read_bytes()) for path in found}


def test_what_nothing_changed_is_neither_built_nor_written(built: tuple[Project, dict[str, Any]]) -> None:
    project, first = built
    assert first["cache"] == {
        "state": "built",
        "reason": "it was not built here before",
        "changes": [],
        "not_kept": None,
        "built": None,
    }
    before = files(project.root / "dist")
    record, heavy = build(project)
    assert (record["cache"]["state"], record["digest"], heavy) == ("unchanged", first["digest"], "")
    assert files(project.root / "dist") == before
    # A build that proves less takes what was proved.
    assert build(project, "--no-reproduce")[0]["cache"]["state"] == "unchanged"


def test_another_folder_gets_the_same_files(built: tuple[Project, dict[str, Any]]) -> None:
    project, _ = built
    record, heavy = build(project, "--out", str(project.root.parent / "other"))
    assert (record["cache"]["state"], heavy) == ("restored", "")
    contents = [
        {name: data for name, (_, data) in files(folder).items()}
        for folder in (project.root / "dist", project.root.parent / "other")
    ]
    assert contents[0] == contents[1]


def test_a_changed_helper_is_named_and_changing_it_back_is_no_build(built: tuple[Project, dict[str, Any]]) -> None:
    project, first = built
    project.source("helper.py", "FACTOR = 3.0\n", head="")
    record, _ = build(project, "--no-reproduce")
    assert record["digest"] != first["digest"]
    assert record["cache"]["reason"] == "helper.py changed"
    assert "was not reproduced" in record["cache"]["not_kept"]
    project.source("helper.py", "FACTOR = 2.0\n", head="")
    record, _ = build(project)
    assert (record["cache"]["state"], record["digest"]) == ("restored", first["digest"])


@pytest.fixture
def no_session(built: tuple[Project, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Commands of the built project, in which no entry may run."""
    project, _ = built

    def session(*_arguments: Any, **_options: Any) -> None:
        pytest.fail("a session was started")

    monkeypatch.setattr("leapp.build.first.run_session", session)
    monkeypatch.setenv("LEAPP_CACHE", str(project.root.parent / "cache"))
    monkeypatch.chdir(project.root)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = cli.main([*arguments, "--json"])
        (line,) = capsys.readouterr().out.splitlines()
        return code, json.loads(line)

    return run


def test_a_lock_is_written_without_a_session_from_what_the_cache_has(
    built: tuple[Project, dict[str, Any]], no_session: Any
) -> None:
    project, first = built
    shutil.rmtree(project.root / "dist")
    code, record = no_session("lock")
    assert (code, record["state"], record["digest"], record["built"]) == (0, "locked", first["digest"], None)
    assert (project.root / "dist/tiny/1.0.0/bundle.json").exists()
    # A manifest with another comment is another file, and no other pipeline.
    text = project.manifests["tiny"].read_text()
    project.manifests["tiny"].write_text(text + "# a comment\n")
    code, record = no_session("lock")
    assert (code, record["state"], record["built"]) == (0, "unchanged", None)
    project.manifests["tiny"].write_text(text)
    (project.root / "manifests/tiny.lock").unlink()


def test_a_bundle_of_the_cache_that_is_not_the_locked_one_is_refused_and_accepted_without_a_session(
    built: tuple[Project, dict[str, Any]], no_session: Any
) -> None:
    project, first = built
    assert no_session("lock")[0] == 0
    file = project.root / "manifests/tiny.lock"
    locked = file.read_text()
    refused = project.root / "dist/.refused/tiny/1.0.0/bundle.json"
    for gone in (False, True):
        if gone:
            shutil.rmtree(project.root / "dist")
        file.write_text(locked.replace(first["digest"], "1" * 64))
        code, record = no_session("build")
        assert (code, record["error"]["class"], record["cache"]["state"]) == (1, "LockNotMetError", "restored")
        assert json.loads(refused.read_text())["digest"] == first["digest"]
    code, record = no_session("lock")
    assert (code, record["state"]) == (1, "refused")
    code, record = no_session("lock", "--update")
    assert (code, record["state"], record["digest"], record["built"]) == (0, "updated", first["digest"], None)
    assert lock.read(file).sections.popitem()[1].bundle == first["digest"]
    assert (project.root / "dist/tiny/1.0.0/bundle.json").exists()
    assert not refused.exists()
    file.unlink()


def test_a_manifest_is_reproduced_against_what_the_cache_has(
    built: tuple[Project, dict[str, Any]], no_session: Any
) -> None:
    project, first = built
    before = files(project.root.parent / "cache" / "actions")
    code, record = no_session("reproduce", "manifests", "--vary", "umask")
    assert code == 0, record
    assert record["reproduction"]["digest"] == first["digest"]
    assert any("that the cache has" in note for note in record["reproduction"]["notes"])
    assert files(project.root.parent / "cache" / "actions") == before
