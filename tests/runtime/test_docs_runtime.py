"""The page on running a bundle: its scripts run, and what it says of the interface is there."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import leapp
from leapp import cli

PAGE = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for name, script in re.findall(r"^<!-- file: (\S+) -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(script, "utf-8")
    return folder


def test_the_scripts_run_and_agree(folder):
    outs = []
    for script in ("walker.py", "run.py"):
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", script],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outs.append(done.stdout)
    run = leapp.InferenceManager(folder / "walker", formats="pt2")
    given = torch.tensor([[0.1, -2.0, 0.3], [0.2, -1.5, 0.1]])
    assert outs[1] == "".join(f"{run({'filter/angles': each})['policy/action']}\n" for each in given)


def test_the_commands_are_taken(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    write, play = re.findall(r"^leapp (run walker[^#\n]*)", PAGE, re.MULTILINE)
    assert cli.main([*write.split(), "--log", "episode.safetensors"]) == 0
    assert cli.main(play.split()) == 0
    assert "1000 ticks" in capsys.readouterr().out


def test_all_names_are_on_the_page():
    names = [name for name in dir(leapp.InferenceManager) if not name.startswith("_")]
    names += list(inspect.signature(leapp.InferenceManager).parameters)[1:]
    assert [
        name for name in names if f"`{name}" not in PAGE and f"`{name}(" not in PAGE and f".{name}" not in PAGE
    ] == []
