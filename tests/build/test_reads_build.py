"""Whose reads are whose when pipelines of one project are built at the same time and others are at work in it."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from build_projects import Project

from leapp.build import _openers
from leapp.build.plan import make_plan
from leapp.build.run import build
from leapp.manifest.load import load_one

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(_openers._unfit()), reason="the kernel cannot tell here who opens a file")

ENTRY = """
def main():
    import ctypes
    libc = ctypes.CDLL(None)
    root = os.path.dirname(__file__)
    open(f"{root}/data/OWN.txt").read()
    libc.close(libc.open(f"{root}/data/OWN.bin".encode(), 0))
    READ_SHARED
    record()
"""
BY_PYTHON = "open(f'{root}/data/shared.txt').read()"
BY_NATIVE = "libc.close(libc.open(f'{root}/data/shared.txt'.encode(), 0))"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    # Without git, and with folders that no session has to do with.
    root = tmp_path_factory.mktemp("reads") / "project"
    for name in ("data", "other/deep"):
        (root / name).mkdir(parents=True)
    (root / "pyproject.toml").touch()
    project = Project(root)
    for own, how in (("one", BY_PYTHON), ("two", BY_NATIVE), ("three", "pass")):
        project.source(f"{own}.py", ENTRY.replace("OWN", own).replace("READ_SHARED", how))
        project.manifest(own, f"{own}.py:main")
        for suffix in ("txt", "bin"):
            (root / "data" / f"{own}.{suffix}").write_text(own)
    (root / "data" / "shared.txt").write_text("shared")
    return project


@pytest.fixture
def noise(project: Project) -> Iterator[None]:
    """An editor, ``git status``, a formatter: somebody who reads, lists and writes all the time."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            for path in [*project.root.glob("*.py"), *project.root.glob("data/*"), *project.root.glob("manifests/*")]:
                path.read_bytes()
            saved = project.root / "other" / "notes.txt"
            saved.with_suffix(".new").write_text("notes")
            saved.with_suffix(".new").replace(saved)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()


def reads_of(project: Project, *, jobs: int) -> dict[str, Any]:
    out = project.root / "dist"
    names = sorted(project.manifests)
    manifests = [load_one(project.manifests[name]) for name in names]
    results = build(make_plan(manifests, out=out, environment=os.environ, probe=False), jobs=jobs)
    assert [each.error for each in results] == [None] * len(names)
    assert not [note for each in results for note in each.notes if "wrote" in note]
    return {name: json.loads((out / name / "1.0.0" / "evidence" / "reads.json").read_text()) for name in names}


def test_pipelines_built_at_once_read_what_they_read_alone(project: Project, noise: None) -> None:
    alone = reads_of(project, jobs=1)
    for own, shared in (("one", False), ("two", True), ("three", None)):
        files = {each["path"]: each["native"] for each in alone[own]["project"]}
        expected = {f"data/{own}.bin": True, f"data/{own}.txt": False, f"{own}.py": False}
        assert files == expected | ({} if shared is None else {"data/shared.txt": shared})
        assert [(each["path"], each["by"]) for each in alone[own]["listings"]] == [(".", "import")]
        assert alone[own]["written"] == alone[own]["gaps"] == alone[own]["mixed"] == []
    for _ in range(2):
        assert reads_of(project, jobs=3) == alone
