"""``leapp init``: look at the project, decide what is missing, write it, and say what comes next."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp._source import TOOL_CHAIN, find_source, versions
from leapp.errors import ManifestError, ScriptError
from leapp.init.chain import tool_chain, wishes_of
from leapp.init.files import NOXFILE, VARIABLE, Action, File, manifest_file, noxfile, workflow, write_files
from leapp.init.script import Script, read_script
from leapp.manifest.load import find_root, load
from leapp.report.text import Cell, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leapp._spec import JSON
    from leapp.report.text import Printer

_NOT_SEARCHED: Final = frozenset(("dist", "build", "node_modules", "site-packages", "__pycache__", "tests", "test"))
_MOST_SEARCHED: Final = 5_000
"""Python files that are looked at where no script was named."""
_MOST_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Initialized:
    """What was done, and what is left to do."""

    root: Path
    files: tuple[tuple[File, Action], ...]
    script: Script | None = None
    notes: tuple[str, ...] = ()
    next: tuple[tuple[str, str], ...] = field(default=())
    """Commands and what each does."""

    def as_json(self) -> dict[str, JSON]:
        """One record for machines; texts only of files that were kept, which is what they would be."""
        return {
            "schema": 1,
            "ok": True,
            "exit_code": 0,
            "root": str(self.root),
            "files": [
                {"path": file.path, "action": action.value, "text": file.text if action is Action.KEPT else None}
                for file, action in self.files
            ],
            "entry": None if self.script is None else self.script.entry,
            "nodes": [] if self.script is None else list(self.script.nodes),
            "notes": list(self.notes),
            "next": [command for command, _ in self.next],
        }


def initialize(
    folder: Path, *, script: Path | None = None, ci: str | None = None, force: Sequence[Path] = ()
) -> Initialized:
    """Write what the project around ``folder`` lacks.

    Args:
        folder: any folder of the project.
        script: annotated script that gets a manifest; None: the only one of the project, where there is one.
        ci: ``github`` for a workflow.
        force: files that may be replaced.

    Raises:
        ScriptError: the script cannot be read, or annotates nothing.
        NotWrittenByInitError: ``force`` names something else.
        OutputFileError: the operating system refused.
    """
    root = find_root(folder / "any.toml")
    notes: list[str] = []
    has_manifests = any((root / "manifests").rglob("*.toml"))
    if script is None and not has_manifests:
        script = _only_script(root, notes)
    found = None if script is None else read_script(script, root)
    source = find_source()
    files = [] if found is None else [manifest_file(found)]
    wishes, own_index = wishes_of(root)
    chain = tool_chain(versions(), wishes, own_index=own_index, wanted=TOOL_CHAIN)
    files.append(noxfile(source, chain, root))
    if ci == "github":
        files.append(workflow(source, root))
    done = tuple(write_files(root, files, force=force))
    if source.local is not None and not source.local.is_relative_to(root):
        notes.append(f"LEAPP runs from {source.local}; other machines need {VARIABLE}, for pip.")
    if lacking := _lacking_sessions(root, done):
        notes.append(f"{NOXFILE} has no session {', '.join(lacking)}: take what you need of the text above.")
    notes += chain.notes
    notes += [] if found is None else _of_script(found)
    notes += _problems(root, found)
    notes += _not_ignored(root)
    manifest = f"manifests/{found.name}.toml" if found is not None else ""
    return Initialized(root, done, found, tuple(notes), tuple(_next(root, folder, found, manifest, has_manifests)))


def _only_script(root: Path, notes: list[str]) -> Path | None:
    """The one annotated script of a project; where there are several, a note that lists them."""
    found = sorted(_annotated(root))
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(each.relative_to(root).as_posix() for each in found[:_MOST_SHOWN])
        more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        notes.append(f"Annotated: {shown}{more}. `leapp init --from SCRIPT` writes the manifest of one.")
    else:
        notes.append("No file here calls leapp.annotate yet, so there is no manifest to write.")
    return None


def _annotated(root: Path) -> Iterator[Path]:
    """Python files of a project that annotate by themselves, without tests and environments."""
    seen = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".") and each not in _NOT_SEARCHED and not Path(folder, each, "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            if not name.endswith(".py") or name == "noxfile.py":
                continue
            seen += 1
            if seen > _MOST_SEARCHED:
                return
            path = Path(folder, name)
            try:
                if b"leapp" not in path.read_bytes():
                    continue
                script = read_script(path, root)
            except (OSError, ScriptError):
                continue
            places = (*script.nodes.values(), *script.computed)
            if any(place.file == script.file for place in places):
                yield path


def _lacking_sessions(root: Path, done: Sequence[tuple[File, Action]]) -> list[str]:
    """Sessions that the project's own noxfile does not have and that a workflow would run."""
    ours, action = next(each for each in done if each[0].path == NOXFILE)
    if action is not Action.KEPT:
        return []
    try:
        text = (root / NOXFILE).read_text("utf-8")
    except (OSError, ValueError):
        return []
    wanted = re.findall(r"^def (\w+)\(session\):", ours.text, re.MULTILINE)
    return [name for name in wanted if not re.search(rf"\b{name}\b", text)]


def _of_script(script: Script) -> Iterator[str]:
    """What the manifest of a script cannot settle."""
    if len(script.starts) > 1:
        first, *others = script.starts
        others_too = f"{script.file} starts {', '.join(others)} as well as {first}"
        yield f"{others_too}: `trace` says that this manifest is for {first}; another can be for another."
    if script.beside:
        names = ", ".join(script.beside)
        yield f"{script.file} names {names} as if it ran in its own folder; a build runs in the project."
    outside = [each for each in script.inputs if each.startswith("../")]
    if outside:
        yield f"{', '.join(outside)}: outside the project, so other machines need it at the same place."
    if script.absent:
        names = ", ".join(script.absent)
        yield f"{script.file} names {names}, not there yet: what it reads belongs into [session] inputs."
    if script.variables_if_set:
        names = ", ".join(script.variables_if_set)
        yield f"{script.file} reads {names} where it is set; in a build it never is, unless pass_env names it."
    unset = [each for each in script.variables if each not in os.environ]
    if unset:
        yield f"{script.file} reads {', '.join(unset)}, which is not set here; pass_env hands it to the build."


def _problems(root: Path, script: Script | None) -> list[str]:
    """What ``leapp check`` says of the manifests that are there now."""
    if script is None:
        return []
    try:
        load([root / "manifests"])
    except ManifestError as error:
        return [str(error)]
    return []


def _not_ignored(root: Path) -> list[str]:
    if not (root / ".git").exists():
        return []
    try:
        lines = {line.strip().strip("/") for line in (root / ".gitignore").read_text("utf-8").splitlines()}
    except (OSError, ValueError):
        lines = set()
    missing = [f"{each}/" for each in ("dist", ".nox") if each not in lines]
    return [f"Add {' and '.join(missing)} to .gitignore: they are built."] if missing else []


def _next(
    root: Path, folder: Path, script: Script | None, manifest: str, has_manifests: bool
) -> Iterator[tuple[str, str]]:
    if root.absolute() != folder.absolute():
        yield f"cd {os.path.relpath(root, folder)}", "the project"
    if script is None and not has_manifests:
        yield "leapp init --from SCRIPT", "a manifest, once a script is annotated"
        return
    if script is not None and script.missing:
        key = "args" if ":" in script.entry else "argv"
        yield f"$EDITOR {manifest}", f"fill in {key}: {', '.join(script.missing)}"
    yield f"leapp build {manifest}".rstrip(), "build, check and prove it, into dist/"
    yield "leapp lock", "write its digests down, for CI"
    nox = "" if importlib.util.find_spec("nox") else "pip install nox && "
    yield f"{nox}nox -s export", "all of them, as CI does it"


def show(done: Initialized, printer: Printer) -> None:
    """What was done, for people."""
    styles = {Action.WRITTEN: "good", Action.REPLACED: "warn", Action.KEPT: "warn", Action.SAME: "soft"}
    for file, action in done.files:
        printer.line(Cell(f"{action.value:<9}", styles[action]), file.path)
        if action is Action.KEPT:
            printer.line(f"         It is there and stays as it is; --force {file.path} replaces it with:")
            for line in file.text.splitlines():
                printer.line(Cell(f"         | {line}".rstrip(), "soft"))
    if done.script is not None:
        script = done.script
        nodes = f": {', '.join(script.nodes)}" if script.nodes else ""
        count = len(script.nodes) + len(script.computed)
        printer.line()
        printer.line(f"{script.file}: entry {script.entry}, {counted(count, 'node')}{nodes}")
    for note in done.notes:
        for at, line in enumerate(note.splitlines()):
            printer.line(Cell(f"{'note:' if at == 0 else '     '} {line}", "warn"))
    printer.line()
    printer.line("Next:")
    width = max(len(command) for command, _ in done.next)
    for command, what in done.next:
        printer.line(Cell(f"  {command:<{width}}", "title"), Cell(f"  # {what}", "soft"))
