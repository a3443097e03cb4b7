"""What ``leapp`` says when it is given no command: what is here, and what to type next."""

from __future__ import annotations

import importlib.util
import os
import shlex
from typing import TYPE_CHECKING

from leapp._version import __version__
from leapp.bundle._tree import BUNDLE_FILE
from leapp.manifest.load import find_root
from leapp.report.text import Cell, counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leapp.report.text import Printer


def show_first_words(folder: Path, printer: Printer) -> None:
    """A few lines for whoever stands in ``folder``."""
    here, commands = _here(folder), [*_commands(folder), ("leapp --help", "all commands")]
    printer.line(Cell(f"leapp {__version__}", "title"), f": {here}")
    width = max(len(command) for command, _ in commands)
    for command, what in commands:
        printer.line(Cell(f"  {command:<{width}}", "title"), Cell(f"  # {what}", "soft"))


def _here(folder: Path) -> str:
    if (folder / BUNDLE_FILE).is_file():
        return "this folder is a bundle."
    manifests, bundles = len(_manifests(folder)), len(_bundles(folder))
    found = [counted(manifests, "manifest")] * bool(manifests) + [counted(bundles, "bundle")] * bool(bundles)
    if found:
        return f"{' and '.join(found)} here."
    root = find_root(folder / "any.toml")
    return "no manifests/ here yet." if not _manifests(root) else f"the project is {root}."


def _commands(folder: Path) -> Iterator[tuple[str, str]]:
    if importlib.util.find_spec("torch") is None:
        yield "leapp doctor", "what building needs that is missing here"
    if (folder / BUNDLE_FILE).is_file():
        yield from (("leapp verify .", "are its files what they were?"), ("leapp inspect .", "what is in it?"))
        return
    root = find_root(folder / "any.toml")
    bundles = _bundles(folder)
    if _manifests(folder):
        yield "leapp build", "all of manifests/, into dist/"
        if not bundles:
            yield "leapp check", "are the manifests in order?"
    elif _manifests(root):
        yield f"cd {shlex.quote(os.path.relpath(root, folder))} && leapp build", "all of its manifests/, into its dist/"
    elif not bundles:
        yield "leapp init --from SCRIPT", "a manifest for an annotated script"
    if bundles:
        last = shlex.quote(str(bundles[-1]))
        yield f"leapp verify {last}", "are its files what they were?"
        yield f"leapp replay {last}", "do its models give what was recorded?"


def _manifests(folder: Path) -> list[Path]:
    return sorted((folder / "manifests").glob("**/*.toml"))


def _bundles(folder: Path) -> list[Path]:
    """Bundles that builds and scripts leave here, the newest last; relative to ``folder``."""
    found = [*folder.glob(f"dist/*/*/{BUNDLE_FILE}"), *folder.glob(f"*/{BUNDLE_FILE}")]
    return [each.parent.relative_to(folder) for each in sorted(found, key=lambda each: each.stat().st_mtime)]
