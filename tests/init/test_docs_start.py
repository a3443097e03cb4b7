"""docs/start.md and the README's step 4 show commands that are there and a script that is read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from leapp import cli
from leapp.init.script import read_script

ROOT = Path(__file__).parents[2]
START = (ROOT / "docs/start.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", START, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("leapp ")]


def test_there_are_commands():
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_shown_is_one(line):
    arguments = cli._arguments(shlex.split(line, comments=True)[1:])
    assert arguments.run is not None


def test_the_hook_shown_is_ours():
    (shown,) = (yaml.safe_load(block)["repos"][0] for block in blocks("yaml"))
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [each["id"] for each in shown["hooks"]] == [hook["id"]]


def test_the_readme_script_is_read_as_its_manifest_has_it(tmp_path):
    files = dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    (tmp_path / "controller.py").write_text(files["controller.py"])
    found = read_script(tmp_path / "controller.py", tmp_path)
    assert f'entry = "{found.entry}"' in files["manifests/controller.toml"]
    assert (found.name, found.missing, list(found.nodes)) == ("controller", ("ticks",), ["observe", "decide"])
