"""The copy of a project, and what a session does differently inside its process."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from leapp.build._vary import another_order, follow_the_project
from leapp.build.mirror import SHIFT_LINES, Inputs, Kind, make_mirror, project_files, shifted
from leapp.manifest.model import Entry, Manifest, Pipeline, Session

if TYPE_CHECKING:
    from pathlib import Path


def manifest(root: Path, *inputs: str) -> Manifest:
    return Manifest(
        root / "m.toml", "m.toml", root, Pipeline("p", "1.0.0", Entry.parse("a.py")), session=Session(inputs=inputs)
    )


def write(root: Path, *names: str, text: str = "x") -> list[Path]:
    paths = [root / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


# --- lines -----------------------------------------------------------------------------------------------------------

LINE = b"import inspect\nline = inspect.currentframe().f_lineno\n"


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"", b""),
        (b"#!/usr/bin/env python\n", b"#!/usr/bin/env python\n"),
        (b"# -*- coding: latin-1 -*-\n# \xe9\n", b"# -*- coding: latin-1 -*-\n"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\ns = '\xe9'\n", b"#!/usr/bin/python\n# vim: set file"),
        (b"\n# coding=latin-1\ns = '\xe9'\n", b"\n# coding=latin-1\n"),
        (b"\xef\xbb\xbfx = 1\n", b"\xef\xbb\xbf"),
        (b'"""A docstring."""\nfrom __future__ import annotations\n', b""),
        (b"x = 1\n# coding: no-such-codec\n", b""),
        (b"x = 1\r\n", b""),
    ],
    ids=["plain", "shebang", "cookie", "both", "second line", "mark", "future", "no cookie", "crlf"],
)
def test_lines_move_and_nothing_else_does(tmp_path, head, kept):
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_bytes(head + LINE)
    after.write_bytes(shifted(head + LINE))
    assert after.read_bytes().startswith(kept)
    first, second = runpy.run_path(str(before)), runpy.run_path(str(after))
    assert second["line"] == first["line"] + SHIFT_LINES
    assert second.get("s") == first.get("s")
    assert second["__doc__"] == first["__doc__"]


def test_a_source_of_one_line_without_an_end():
    assert shifted(b"#!/bin/sh").startswith(b"#!/bin/sh\n#")
    assert shifted(b"").count(b"\n") == SHIFT_LINES


# --- the copy --------------------------------------------------------------------------------------------------------


def test_only_what_is_listed_is_copied_where_it_lies(tmp_path):
    root = tmp_path / "a" / "project"
    files = write(root, "src/entry.py", "data/x.bin") + write(tmp_path, "assets/deep/y.bin")
    write(root, "data/secret.bin", "pyproject.toml")
    (root / ".git").mkdir()
    inputs = Inputs(Kind.RECORDED, (*files, root / "gone.txt"), (root / "empty" / "one",))
    mirror = make_mirror(root, inputs, tmp_path / "place", shift=True)
    assert mirror.root.name != root.name
    assert tree(mirror.root) == {"src/entry.py", "data/x.bin", "pyproject.toml"}
    assert (mirror.root / "empty" / "one").is_dir()
    assert (mirror.root / ".git").is_dir()
    assert (mirror.root / "../../assets/deep/y.bin").read_text() == "x"
    assert (mirror.root / "src/entry.py").read_text().count("#") == SHIFT_LINES
    assert (mirror.root / "data/x.bin").read_text() == "x"


def test_copies_can_be_written_and_the_project_stays_as_it_is(tmp_path):
    root = tmp_path / "project"
    (path,) = write(root, "run.py")
    path.chmod(0o555)
    mirror = make_mirror(root, Inputs(Kind.RECORDED, (path,)), tmp_path / "place", shift=True)
    copy = mirror.root / "run.py"
    assert os.access(copy, os.X_OK)
    copy.write_text("other")
    assert path.read_text() == "x"


def test_links_of_the_project_lead_into_the_copy(tmp_path):
    root = tmp_path / "project"
    files = write(root, "data/v2/x.bin")
    links = ((root / "data/latest", "v2"), (root / "absolute", str(root / "data/v2")))
    mirror = make_mirror(root, Inputs(Kind.RECORDED, tuple(files), links=links), tmp_path / "place")
    for name in ("data/latest/x.bin", "absolute/x.bin"):
        assert (mirror.root / name).resolve() == (mirror.root / "data/v2/x.bin").resolve()


def test_messages_name_the_project_again(tmp_path):
    root = tmp_path / "a" / "project"
    (outside,) = write(tmp_path, "assets/y.bin")
    mirror = make_mirror(root, Inputs(Kind.RECORDED, (outside,)), tmp_path / "place")
    assert mirror.back(f"no file '{mirror.root}/data/x'") == "no file 'data/x'"
    assert mirror.back(f"in {mirror.root}.") == f"in {root}."
    assert mirror.back(f"no file '{mirror.root.parent.parent}/assets/z'") == f"no file '{tmp_path}/assets/z'"


# --- files of a project ----------------------------------------------------------------------------------------------


def test_without_git_all_but_what_tools_make(tmp_path):
    write(tmp_path, "m.toml", "a.py", "pkg/b.py", "dist/p/bundle.json", ".venv/lib/x.py", "pkg/__pycache__/b.pyc")
    write(tmp_path, "environment/pyvenv.cfg", "environment/lib/x.py", "out/old.bin")
    found = project_files(manifest(tmp_path), without=[tmp_path / "out"])
    assert found.kind is Kind.WHOLE
    assert {path.relative_to(tmp_path).as_posix() for path in found.files} == {"m.toml", "a.py", "pkg/b.py"}


def test_with_git_what_it_knows_and_what_is_declared(tmp_path):
    root = tmp_path / "project"
    write(root, "m.toml", "a.py", "new.py", "ignored.log", "weights/w.pt", "../outside.bin")
    (root / ".gitignore").write_text("*.log\nweights/\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "a.py"], check=True)
    found = project_files(manifest(root, "weights/*.pt", "../outside.bin"))
    assert found.kind is Kind.GIT
    assert {os.path.relpath(path, root) for path in found.files} == {
        "m.toml", "a.py", "new.py", ".gitignore", "weights/w.pt", "../outside.bin",
    }  # fmt: skip


def test_a_folder_that_git_ignores_as_a_whole_is_taken_whole(tmp_path):
    write(tmp_path, ".gitignore", text="scratch/\n")
    write(tmp_path / "scratch", "m.toml", "a.py")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    found = project_files(manifest(tmp_path / "scratch"))
    assert found.kind is Kind.WHOLE
    assert len(found.files) == 2


# --- inside the process ----------------------------------------------------------------------------------------------

LISTS = """
import glob, json, os, sys
from pathlib import Path
from leapp.build._vary import reorder_listings
folder = sys.argv[1]
def seen():
    with os.scandir(folder) as entries:
        scanned = [(entry.name, entry.is_file()) for entry in entries]
    descriptor = os.open(folder, os.O_RDONLY)
    return [
        os.listdir(folder), [each.decode() for each in os.listdir(folder.encode())], os.listdir(descriptor), scanned,
        [path.name for path in Path(folder).iterdir()], [path.name for path in Path(folder).glob("*")],
        [os.path.basename(path) for path in glob.glob(folder + "/*")], next(os.walk(folder))[2],
    ]
before = seen()
reorder_listings()
print(json.dumps([before, seen()]))
"""


def test_every_way_to_list_a_folder_gives_the_same_names_in_another_order(tmp_path):
    write(tmp_path, *"abcdef")
    answer = subprocess.run(
        [sys.executable, "-c", LISTS, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    before, after = json.loads(answer)
    for first, second in zip(before, after, strict=True):
        assert first != second
        assert sorted(first) == sorted(second)


def test_another_order_is_another_one_always():
    assert another_order(["b", "a", "c"]) == ["c", "b", "a"]
    assert another_order(["c", "b", "a"]) == ["a", "b", "c"]
    assert another_order([]) == []


def test_imports_of_an_installed_project_follow_it(tmp_path, monkeypatch):
    original, copy = tmp_path / "project", tmp_path / "copy"
    finder = type(sys)("__editable___thing_finder")
    finder.MAPPING = {"thing": str(original / "src" / "thing"), "other": "/elsewhere/other"}
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    monkeypatch.setattr(sys, "prefix", str(original / ".venv"))
    monkeypatch.setattr(sys, "path", [str(original), str(original / "src"), str(original / ".venv/lib"), "/other", ""])
    follow_the_project(original, copy)
    assert sys.path == [str(copy), str(copy / "src"), str(original / ".venv/lib"), "/other", ""]
    moved = finder.MAPPING
    assert moved == {"thing": str(copy / "src" / "thing"), "other": "/elsewhere/other"}


def test_a_manifest_keeps_its_declared_inputs_when_its_root_moves(tmp_path):
    root = tmp_path / "project"
    paths = write(root, "w.pt", "m.toml")
    mirror = make_mirror(root, Inputs(Kind.RECORDED, tuple(paths)), tmp_path / "place")
    moved = replace(manifest(root, "*.pt"), root=mirror.root)
    assert moved.input_files() == (mirror.root / "w.pt",)
