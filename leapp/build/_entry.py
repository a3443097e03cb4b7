"""Start an entry in its own form: the import path, ``sys.argv`` and ``__main__`` that Python itself would give it."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from leapp.errors import EntryMissingError
from leapp.manifest.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import CodeType

    from leapp.build._messages import SessionRequest


def run_entry(request: SessionRequest) -> None:
    """Run the entry to its end. What it raises is passed on as it is.

    Import path, as Python has it: a file's own folder comes first, for a module the project root (the working folder).

    Raises:
        EntryMissingError: file, module or callable does not exist, or cannot be called as the manifest says.
    """
    entry = request.entry
    if entry.is_script:
        _run_script(request) if entry.file else _run_module(request)
    else:
        module = _import_file(request) if entry.file else _import_module(request)
        result = _callable(request, module)(**request.pipeline.args)
        if _is_unstarted(result):
            raise _not_run(request)


def _run_script(request: SessionRequest) -> None:
    path = _file(request)
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv[:] = [request.entry.file or "", *request.pipeline.argv]
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    # From the source, as Python runs a script: a cached compilation of it as a module is another program.
    code = loader.source_to_code(path.read_bytes(), str(path))
    _run_main(code, file=str(path), loader=loader, spec=None, package=None)


def _run_module(request: SessionRequest) -> None:
    sys.path.insert(0, str(request.manifest.root))
    sys.argv[:] = ["-m", *request.pipeline.argv]  # what Python shows while it looks for the module
    name = request.entry.module or ""
    spec = _find_spec(request, name)
    if spec.submodule_search_locations is not None:
        spec = _find_spec(request, f"{name}.__main__")
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"{spec.name} holds no Python code",
            advice="Name a module that Python can run.",
        )
    sys.argv[0] = spec.origin or name
    _run_main(code, file=sys.argv[0], loader=loader, spec=spec, package=spec.parent)


def _run_main(code: CodeType, *, file: str, loader: object, spec: object, package: str | None) -> None:
    """Run ``code`` as ``__main__``.

    Unlike ``runpy``, leave the module in place: its threads, exit handlers and pickled classes still need it after the
    last line.
    """
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=file, __loader__=loader, __spec__=spec, __package__=package, __builtins__=__builtins__
    )
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102  # running the user's program is what we are for


def _import_file(request: SessionRequest) -> ModuleType:
    path = _file(request)
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv[:] = [request.entry.file or ""]
    # The module's name is the file's stem: `[allow]` names functions that way, and classes pickle under it.
    name = path.stem
    if name in sys.modules:
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"the file's name hides the module {name!r}, which is loaded already",
            advice="Rename the file.",
        )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise EntryMissingError(
            entry=request.entry.text, why="it is not a Python file", advice="Name a file that ends in .py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(request: SessionRequest) -> ModuleType:
    name = request.entry.module or ""
    sys.path.insert(0, str(request.manifest.root))
    sys.argv[:] = [name]
    _find_spec(request, name)
    return importlib.import_module(name)


def _is_unstarted(result: object) -> bool:
    """Whether a call gave a coroutine or generator, of which nothing has run. It is closed then."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return False
    close = getattr(result, "close", None)
    if close is not None:
        close()
    return True


def _callable(request: SessionRequest, module: ModuleType) -> Callable[..., object]:
    name = request.entry.callable or ""
    try:
        function: Any = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        local = [name for name in names if getattr(vars(module)[name], "__module__", None) == module.__name__]
        there = sorted(local or names)
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"{name!r} does not exist there",
            advice=f"{did_you_mean(name, there)}Callables there: {', '.join(there) or 'none'}.",
        ) from None
    if not callable(function):
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"{name!r} is a {type(function).__name__}, which cannot be called",
            advice="Name a function.",
        )
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise _not_run(request)
    try:
        inspect.signature(function).bind(**request.pipeline.args)
    except TypeError as error:
        given = ", ".join(sorted(request.pipeline.args))
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"it cannot be called with {f'the keywords {given}' if given else 'no keywords'}: {error}",
            advice="Set [pipeline] args to the function's parameters, as args = { NAME = VALUE }.",
        ) from None
    except ValueError:
        pass  # a builtin without a signature says so itself when it is called
    runnable: Callable[..., object] = function
    return runnable


def _not_run(request: SessionRequest) -> EntryMissingError:
    return EntryMissingError(
        entry=request.entry.text,
        why="calling it runs nothing: it is a coroutine or a generator",
        advice="Name a plain function, for example one that calls asyncio.run().",
    )


def _file(request: SessionRequest) -> Path:
    path = request.manifest.root / (request.entry.file or "")
    if not path.is_file():
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"there is no file {path}",
            advice=f"The file is looked up from the project root, {request.manifest.root}.",
        )
    return path


def _find_spec(request: SessionRequest, name: str) -> importlib.machinery.ModuleSpec:
    """The module's spec. Its parent packages are imported; an error of theirs is the entry's own."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # Only a missing part of the name itself is bad input; a package that imports something missing is broken.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None:
        raise EntryMissingError(
            entry=request.entry.text,
            why=f"there is no module {name!r}",
            advice=f"Modules are looked up in {request.manifest.root}, then among the installed ones.",
        )
    return spec
