"""What the text of a file says of its callables, and where it says nothing."""

import subprocess
import sys

import pytest

from leapp.errors import ManifestError
from leapp.manifest.callables import missing_callable
from leapp.manifest.load import load_one

SOURCE = """\
import json as js, os.path
from math import sin as sine
def main(): ...
async def later(): ...
class Robot:
    gain = 1
    def export(self): ...
class Child(Robot): ...
made = Robot().export
if made:
    def sometimes(): ...
else:
    (first, *rest) = 1, 2
def _hidden():
    global told
    def inner(): ...
try: ...
except ImportError as problem: ...
"""


@pytest.mark.parametrize(
    "name",
    [
        "main", "later", "Robot", "Robot.export", "Robot.gain", "Robot.mro", "Child.export", "Child.absent", "made",
        "made.absent", "sometimes", "first", "rest", "told", "problem", "js", "os", "sine", "_hidden",
    ],
)  # fmt: skip
def test_what_is_bound_may_be_there(name):
    assert missing_callable(SOURCE.encode(), name) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mian", "has no 'mian'. Did you mean 'main'?"),
        ("walk", "has no 'walk'. Callables there: Child, Robot, main."),
        ("inner", "has no 'inner'."),
        ("json", "has no 'json'."),
        ("robot.export", "has no 'robot'. Did you mean 'Robot'?"),
        ("Robot.exprot", "has no 'exprot'. Did you mean 'export'?"),
    ],
)
def test_what_is_bound_nowhere_is_missing(name, said):
    assert missing_callable(SOURCE.encode(), name).startswith(said)


@pytest.mark.parametrize(
    "line",
    [
        "from os.path import *", "globals()['mian'] = main", "exec(text)", "setattr(os, 'x', 1)",
        "def __getattr__(n): 1", "sys.modules[__name__].mian = main", "def other(a=(mian := 1)): ...",
        "sys.modules[__name__].__dict__.update(x)", "match 1:\n    case mian: ...", "print(mian := main)",
        "for mian in (): ...", "type mian = for", "\0",
    ],
)  # fmt: skip
def test_nothing_is_said_where_it_is_not_certain(line):
    assert missing_callable(f"{SOURCE}{line}\n".encode(), "mian") == ""


def test_nothing_is_said_of_an_empty_file():
    assert missing_callable(b"# soon\n", "main") == ""


def test_what_is_put_into_a_class_from_outside_may_be_there():
    assert missing_callable(f"{SOURCE}Robot.exprot = main\n".encode(), "Robot.exprot") == ""


def test_a_manifest_is_told_with_its_line_and_nothing_is_run(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "miss.py").write_text("raise SystemExit('it ran')\ndef main(): ...\n")
    path = tmp_path / "a.toml"
    path.write_text('schema = 1\n[pipeline]\nname = "a"\nversion = "1.0.0"\nentry = "miss.py:mian"\n')
    with pytest.raises(ManifestError) as raised:
        load_one(path)
    (problem,) = raised.value.facts["problems"]
    assert str(problem) == f"{path}:5, pipeline.entry: 'miss.py' has no 'mian'. Did you mean 'main'?"
    done = subprocess.run([sys.executable, "-m", "leapp", "check", path], capture_output=True, text=True, check=False)
    assert (done.returncode, "Did you mean 'main'?" in done.stderr) == (2, True)
