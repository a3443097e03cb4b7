"""The cache in real builds of one tiny pipeline: built once, then never while nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from build_projects import Project

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
