"""docs/json.md says of every command's records what the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from leapp import cli

PAGE = Path(__file__).parents[1] / "docs" / "json.md"
COMMON = ("schema", "command", "ok", "exit_code", "error")
ENTRY = """\
import torch
import leapp
from leapp import annotate

def main():
    x = annotate.input_tensors("scale", {"x": torch.randn(3)})
    annotate.output_tensors("scale", {"y": torch.tanh(x) * 2.0})
"""
BUNDLE = "dist/p/1.0.0"


def documented() -> dict[str, list[str]]:
    """Keys by section, in the order of the page."""
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = {}
    for section in sections[1:]:
        title, _, text = section.partition("\n")
        cells = re.findall(r"^\| (`[^|]*) \|", text, flags=re.MULTILINE)
        if cells:
            found[title] = [key for cell in cells for key in re.findall(r"`(\w+)`", cell)]
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("json")
    (root / "pyproject.toml").touch()
    (root / "entry.py").write_text(ENTRY)
    (root / "manifests").mkdir()
    (root / "manifests" / "p.toml").write_text(
        'schema = 1\n[pipeline]\nname = "p"\nversion = "1.0.0"\nentry = "entry.py:main"\n'
        '[export]\nformats = ["torchscript"]\n'
    )
    return root


@pytest.fixture(scope="module")
def printed(project):
    """What each command printed, by its section of the page; the build comes first."""
    import contextlib
    import io

    commands = {
        "build": ["build"],
        "plan": ["plan"],
        "lock": ["lock"],
        "check": ["check"],
        "verify": ["verify", BUNDLE],
        "run": ["run", BUNDLE, "--steps", "2", "--log", "log.safetensors"],
        "replay": ["replay", BUNDLE],
        "replay LOG": ["replay", BUNDLE, "log.safetensors"],
        "reproduce": ["reproduce", BUNDLE, "--vary", ""],
        "diff": ["diff", BUNDLE, BUNDLE],
        "inspect": ["inspect", BUNDLE],
        "build --merge": ["build", "--merge", "dist", "--out", "all"],
        "cache path": ["cache", "path"],
        "cache verify": ["cache", "verify"],
        "cache gc": ["cache", "gc"],
        "doctor": ["doctor"],
        "schema": ["schema"],
        "init": ["init"],
    }
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setenv("LEAPP_CACHE", str(project / "cache"))
        for section, arguments in commands.items():
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = cli.main([*arguments, "--json"])
            (line,) = out.getvalue().splitlines()
            found[section] = json.loads(line)
            assert found[section]["exit_code"] == code == 0, line
    return found


def test_every_record_has_the_keys_of_the_page(printed):
    page = documented()
    for section, record in printed.items():
        assert tuple(record)[:5] == COMMON, section
        assert record["command"] == section.split()[0]
        assert sorted([*record][5:]) == sorted(page[section]), section


def test_values_within_records_have_the_keys_of_the_page(printed):
    page = documented()
    for section in ("build", "replay", "replay LOG", "inspect"):
        for row in printed[section]["checks"]:
            assert [*sorted(row)] == sorted(page["check of a port"]), section
    for section in ("build", "reproduce"):
        assert sorted(printed[section]["reproduction"]) == sorted(page["reproduction"])


def test_every_command_has_records_on_the_page(printed):
    (commands,) = (each for each in cli._parser()._subparsers._group_actions)
    for name, parser in commands.choices.items():
        assert "--json" in parser.format_help(), name
        assert {name, f"{name} path"} & set(documented()), f"docs/json.md has no section for {name}"


@pytest.mark.parametrize("arguments", [["verify", "gone"], ["check", "gone"], ["build", "--jobs", "0"], ["nonsense"]])
def test_errors_have_the_keys_of_the_page(project, monkeypatch, capsys, arguments):
    monkeypatch.chdir(project)
    try:
        code = cli.main([*arguments, "--json"])
    except SystemExit as end:
        code = end.code
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert tuple(record)[:5] == COMMON
    assert (record["ok"], record["exit_code"], code) == (False, 2, 2)
    assert [*record["error"]] == documented()["error"]
