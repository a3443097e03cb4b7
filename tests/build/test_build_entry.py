"""The four entry forms see what Python itself would show them: import path, argv, __main__."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from leapp.build._entry import run_entry
from leapp.build._messages import SessionRequest
from leapp.errors import EntryMissingError, LeappError
from leapp.manifest.model import Entry, Manifest, Pipeline

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """\
import json, sys
def say(**more):
    main = sys.modules["__main__"]
    print(json.dumps({
        "argv": sys.argv, "path": sys.path[0], "name": __name__, "file": __file__, "package": __package__,
        "main": getattr(main, "__file__", None), "spec": getattr(main.__spec__, "name", None), **more,
    }))
"""

RUN = """\
import sys
from pathlib import Path
from leapp.build._entry import run_entry
from leapp.build._messages import SessionRequest
run_entry(SessionRequest.read(Path(sys.argv[1])))
"""


def request(root: Path, entry: str, **pipeline) -> SessionRequest:
    manifest = Manifest(root / "m.toml", "m.toml", root, Pipeline("p", "1.0.0", Entry.parse(entry), **pipeline))
    return SessionRequest(manifest, root)


def run(root: Path, entry: str, **pipeline) -> dict:
    path = root / "request"
    request(root, entry, **pipeline).write(path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, str(path)], cwd=root, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def python(root: Path, *arguments: str) -> dict:
    done = subprocess.run([sys.executable, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tools" / "export"
    folder.mkdir(parents=True)
    (folder / "neighbour.py").write_text("VALUE = 7\n")
    (folder / "script.py").write_text(
        f"{REPORT}\nimport neighbour\nif __name__ == '__main__': say(near=neighbour.VALUE)\n"
    )
    (folder / "calls.py").write_text(
        f"{REPORT}\nimport neighbour\ndef main(near=0): say(near=near + neighbour.VALUE)\n"
    )
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(
        f"{REPORT}\nfrom . import __name__ as parent\n"
        "def main(near=0): say(parent=parent)\n"
        "if __name__ == '__main__': main()\n"
    )
    (package / "__main__.py").write_text(f"{REPORT}\nsay(parent='run')\n")
    return tmp_path


def test_script_is_what_python_makes_of_it(root):
    assert run(root, "tools/export/script.py", argv=("--a", "1")) == python(root, "tools/export/script.py", "--a", "1")


def test_module_is_what_python_makes_of_it(root):
    assert run(root, "-m package.part", argv=("x",)) == python(root, "-m", "package.part", "x")


def test_package_runs_its_main(root):
    assert run(root, "-m package") == python(root, "-m", "package")


def test_callable_in_a_file_is_a_module_named_after_the_file(root):
    seen = run(root, "tools/export/calls.py:main", args={"near": 10})
    assert seen["near"] == 17
    assert seen["name"] == "calls"
    assert seen["path"] == str(root / "tools" / "export")
    assert seen["argv"] == ["tools/export/calls.py"]


def test_callable_in_a_module_imports_from_the_project_root(root):
    seen = run(root, "package.part:main")
    assert (seen["name"], seen["parent"], seen["path"]) == ("package.part", "package", str(root))


def test_classes_of_a_script_pickle_after_its_last_line(root):
    (root / "late.py").write_text(
        "import atexit, json, pickle\n"
        "class Thing: pass\n"
        "atexit.register(lambda: print(json.dumps({'same': type(pickle.loads(pickle.dumps(Thing()))) is Thing})))\n"
    )
    assert run(root, "late.py") == {"same": True}


BROKEN = """\
import math
async def later(): ...
def stream(): yield 1
lazy = lambda: later()
NUMBER = 3
def takes(a, *, b=1): ...
def _hidden(): ...
"""


@pytest.mark.parametrize(
    ("entry", "args", "said"),
    [
        ("broken.py:absent", {}, "'absent' does not exist there"),
        ("broken.py:NUMBER", {}, "is a int, which cannot be called"),
        ("broken.py:later", {}, "coroutine or a generator"),
        ("broken.py:stream", {}, "coroutine or a generator"),
        ("broken.py:lazy", {}, "coroutine or a generator"),
        ("broken.py:takes", {"c": 1}, "with the keywords c: "),
        ("broken.py:takes", {}, "with no keywords: missing a required argument: 'a'"),
        ("gone.py:main", {}, "there is no file"),
        ("gone.py", {}, "there is no file"),
        ("no.such.module:main", {}, "there is no module 'no.such.module'"),
        ("-m no_such_module", {}, "there is no module 'no_such_module'"),
        ("json.py:main", {}, "hides the module 'json'"),
    ],
)
def test_bad_entries_are_named(tmp_path, monkeypatch, entry, args, said):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "json.py").write_text("def main(): ...\n")
    sys.modules.pop("broken", None)
    with pytest.raises(EntryMissingError) as raised:
        run_entry(request(tmp_path, entry, args=args))
    assert said in str(raised.value)
    assert raised.value.exit_code == 2


def test_callables_that_exist_are_listed_without_imported_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    (tmp_path / "broken.py").write_text(f"from json import dumps\n{BROKEN}")
    sys.modules.pop("broken", None)
    with pytest.raises(EntryMissingError, match="later, lazy, stream, takes") as raised:
        run_entry(request(tmp_path, "broken.py:take"))
    assert "Did you mean 'takes'?" in str(raised.value)
    assert "dumps" not in str(raised.value)
    assert "_hidden" not in str(raised.value)


def test_an_import_that_fails_inside_the_entry_is_the_entrys_own_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    (tmp_path / "needy").mkdir()
    (tmp_path / "needy" / "__init__.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "needy" / "part.py").write_text("def main(): ...\n")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere") as raised:
        run_entry(request(tmp_path, "needy.part:main"))
    assert not isinstance(raised.value, LeappError)
