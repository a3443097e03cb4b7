"""What a session does differently on request, inside its own process, before the entry runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from leapp._spec import ExportFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from leapp.build._messages import SessionRequest

STRAYS_FILE: Final = "strays"
"""Paths of the project itself, one a line, that a session in a copy of it opened all the same."""
_EDITABLE: Final = "__editable__"
"""Beginning of the names of modules by which setuptools finds packages installed in editable mode."""


def vary(request: SessionRequest, folder: Path) -> None:
    """Do what the request asks for. The caller draws its seeds again afterwards.

    Args:
        request: its ``varied`` says what.
        folder: takes what another export writes.
    """
    varied = request.varied
    if varied.umask:
        set_another_umask()
    if varied.listings:
        reorder_listings()
    if varied.moved_from is not None:
        follow_the_project(varied.moved_from, request.manifest.root)
        note_strays(varied.moved_from, folder / STRAYS_FILE)
    if varied.other_exports:
        export_another(folder / "neighbour", _formats(request))


def set_another_umask() -> None:
    """Files of this process are for its owner alone, or for all where they were so before."""
    before = os.umask(0o077)
    if before == 0o077:
        os.umask(0o022)


class _Scan:
    """Entries in an order of ours, with all that the result of ``os.scandir`` can do."""

    def __init__(self, entries: Iterable[os.DirEntry[Any]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give no further entry."""
        self._entries = iter(())


def another_order(names: list[Any], key: Callable[[Any], Any] | None = None) -> list[Any]:
    """From Z to A, or from A to Z where they came that way."""
    backwards = sorted(names, key=key, reverse=True)
    return backwards[::-1] if backwards == names else backwards


def reorder_listings() -> None:
    """From now on folders are listed in another order: no file system promises one, and most keep theirs for years."""
    listdir, scandir = os.listdir, os.scandir

    def backwards(path: Any = ".") -> list[Any]:
        return another_order(listdir(path))

    def scan_backwards(path: Any = ".") -> _Scan:
        with scandir(path) as entries:
            return _Scan(another_order(list(entries), key=lambda entry: entry.name))

    os.listdir, os.scandir = backwards, scan_backwards  # type: ignore[assignment]
    os.supports_fd |= {backwards, scan_backwards}


def follow_the_project(original: Path, root: Path) -> None:
    """Let imports of a project that is installed in editable mode find its copy.

    The interpreter's own folders stay, also where they lie inside the project.
    """
    own = _interpreters_own(original)

    def moved(text: str) -> str:
        path = Path(text)
        if not text or not path.is_relative_to(original) or any(path.is_relative_to(each) for each in own):
            return text
        return str(root / path.relative_to(original))

    sys.path[:] = [moved(each) for each in sys.path]
    for name, module in list(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None)
        if name.startswith(_EDITABLE) and isinstance(mapping, dict):
            mapping.update({package: moved(place) for package, place in mapping.items()})


def _interpreters_own(project: Path) -> set[Path]:
    """Folders that belong to the tool chain, also where they lie inside the project."""
    return {Path(each) for each in (sys.prefix, sys.exec_prefix, sys.base_prefix)} - {project}


def note_strays(original: Path, file: Path) -> None:
    """From now on write down which files of the project itself Python opens: this session is to do with the copy."""
    inside = f"{original}{os.sep}"
    own = tuple(f"{each}{os.sep}" for each in (*_interpreters_own(original), Path(__file__).parents[1]))
    seen: set[str] = set()
    lines = file.open("a", encoding="utf-8", errors="surrogateescape", buffering=1)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and args[0].startswith(inside):
            path = args[0]
            if path not in seen and not path.startswith(own):
                seen.add(path)
                lines.write(f"{path.removeprefix(inside)}\n")

    sys.addaudithook(watch)


def export_another(folder: Path, formats: list[str]) -> None:
    """Record and export a pipeline of our own: what a process did before must not show in what it does next."""
    import torch

    import leapp
    from leapp import _api, annotate

    weight, bias = torch.rand(3, 3), torch.rand(3)
    leapp.start("neighbour", save_path=folder)
    # ONNX once: its exporter sets itself up anew for every model, which takes longer than all the rest.
    for node, used in (("first", [name for name in formats if name != ExportFormat.ONNX]), ("second", formats)):
        x = annotate.input_tensors(node, {"x": torch.rand(2, 3)})
        annotate.output_tensors(node, {"y": torch.relu(x @ weight) + bias}, export_with=used)
    leapp.stop()
    leapp.compile_graph(validate=False)
    # The entry must not find this session when it calls compile_graph() without one of its own.
    _api._process.stopped = None


def _formats(request: SessionRequest) -> list[str]:
    """TorchScript, whose names depend on what a process scripted before, and what the manifest asks for."""
    manifest = request.manifest
    named = [manifest.export.formats, *(each.formats for each in manifest.nodes.values())]
    suffixes = {each.suffix for formats in named for each in formats or ()}
    if manifest.export.formats is None:
        suffixes.add(ExportFormat.ONNX.suffix)
    others = (ExportFormat.PT2, ExportFormat.ONNX)
    return [ExportFormat.TORCHSCRIPT.value, *(each.value for each in others if each.suffix in suffixes)]
