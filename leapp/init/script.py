"""Read an annotated script without running it: its nodes, how it is started, and what a manifest can say of it."""

from __future__ import annotations

import ast
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leapp.errors import ScriptError
from leapp.manifest.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_NODE_CALLS: Final = frozenset(
    f"leapp.annotate.{name}"
    for name in ("input_tensors", "output_tensors", "state_tensors", "update_state", "module", "register_buffer")
)
_METHOD: Final = "leapp.annotate.method"
_STARTS: Final = "leapp.start"
_CONFIGS: Final = "leapp.GraphConfigs"
_OURS: Final = frozenset((_STARTS, "leapp.stop", "leapp.compile_graph"))
_PLAIN_DECORATORS: Final = ("torch.", "leapp.", "functools.", "contextlib.")
"""Decorators that leave a function one that is called with its own parameters."""
_NOT_DATA: Final = frozenset((".py", ".pyi", ".toml", ".md", ".rst"))
_WEIGHTS: Final = frozenset(
    (".pt", ".pth", ".pt2", ".ckpt", ".safetensors", ".onnx", ".npz", ".npy", ".pkl", ".pickle", ".h5", ".hdf5", ".bin")
)
_WRITES: Final = re.compile("save|dump|write|export")
_MOST_FILES: Final = 200
"""Modules of the project that are read for one script; more would be a search, not a look."""
_ADVICE: Final = "Name a Python file that annotates its nodes."
_SET_BY_BUILDS: Final = frozenset(
    ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "PYTHONHASHSEED")
)
_OF_THE_SYSTEM: Final = frozenset(("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"))
"""Folders at the top of a disk that hold nothing of the user's."""
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the project."""

    file: str
    """Relative to the project."""
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Script:
    """What can be told of a script from its text alone."""

    file: str
    """Relative to the project."""
    name: str
    """A name for the pipeline: that of ``start()``, else of the file."""
    entry: str
    """In the form that a manifest wants."""
    nodes: Mapping[str, Place] = field(default_factory=dict)
    """Where each node is first named, the script's own first."""
    computed: tuple[Place, ...] = ()
    """Calls whose node has a name that only running tells."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that the script itself gives its entry, or that a second run should vary."""
    missing: tuple[str, ...] = ()
    """Parameters of the entry that have no default and for which the script gives nothing; or words that its command
    line must have."""
    options: tuple[str, ...] = ()
    """Words that its command line may have."""
    seed: int | None = None
    """What the entry's parameter ``seed``, or its option ``--seed``, is by default, where it has one."""
    frequency_hz: float | None = None
    starts: tuple[str, ...] = ()
    """Names of all ``start()`` calls."""
    inputs: tuple[str, ...] = ()
    """Files that the script names, relative to the project."""
    absent: tuple[str, ...] = ()
    """Names of weights and data that it seems to read, and that are not there yet."""
    beside: tuple[str, ...] = ()
    """Files that it names as if it ran in its own folder; a build runs in the project."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that it cannot do without."""
    variables_if_set: tuple[str, ...] = ()
    """Those that it reads where they are set, and does without elsewhere."""


def read_script(path: Path, root: Path) -> Script:
    """Read a script of the project at ``root``, and the modules of the project that it imports.

    Raises:
        ScriptError: it is no Python, lies outside the project, or annotates nothing.
    """
    shown = str(path)
    if not path.is_file():
        why = "it is a folder" if path.is_dir() else "it does not exist"
        raise ScriptError(script=shown, why=why, advice=_ADVICE)
    file = Path(os.path.relpath(path.absolute(), root)).as_posix()
    if file.startswith("../"):
        advice = f"Work in the project of the script: `cd` there, then `leapp init --from {path.name}`."
        raise ScriptError(script=shown, why=f"it lies outside the project {root}", advice=advice)
    if path.suffix == ".ipynb":
        advice = f"`jupyter nbconvert --to script {shlex.quote(shown)}` makes a Python file of it."
        raise ScriptError(script=shown, why="it is a notebook, and a build runs Python files", advice=advice)
    if path.suffix != ".py":
        raise ScriptError(script=shown, why="its name does not end in .py", advice=_ADVICE)
    main = _Module.read(path, root, shown)
    modules = [main, *_imported(main, root)]
    nodes: dict[str, Place] = {}
    computed: list[Place] = []
    for module in modules:
        for name, place in module.nodes():
            if name is None:
                computed.append(place)
            else:
                nodes.setdefault(name, place)
    if not nodes and not computed:
        raise ScriptError(
            script=shown,
            why="nothing in it, nor in the modules of the project that it imports, calls leapp.annotate",
            advice="Mark where a model begins and ends with annotate.input_tensors() and annotate.output_tensors().",
        )
    starts = tuple(dict.fromkeys(name for module in modules for name in module.starts()))
    variables = tuple(dict.fromkeys(name for module in modules for name in module.variables()))
    if_set = dict.fromkeys(name for module in modules for name in module.variables_if_set())
    name = _NAME.sub("-", starts[0] if starts else path.stem).strip("._-") or "pipeline"
    started = _started(main, file, root)
    try:
        Entry.parse(started.entry)
    except ValueError as error:
        raise ScriptError(script=shown, why=str(error).rstrip("."), advice="Rename the file.") from None
    return Script(
        file=file,
        name=name,
        entry=started.entry,
        nodes=nodes,
        computed=tuple(computed),
        args=started.args,
        missing=started.missing,
        options=started.options,
        seed=started.seed,
        frequency_hz=next((rate for module in modules for rate in module.rates()), None),
        starts=starts,
        inputs=tuple(dict.fromkeys(main.files(root))),
        absent=tuple(main.files_absent(root)),
        beside=tuple(main.files_beside(root)),
        variables=variables,
        variables_if_set=tuple(name for name in if_set if name not in variables),
    )


@dataclass(frozen=True, slots=True)
class _Started:
    """How a script is started."""

    entry: str
    args: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    seed: int | None = None


def _started(main: _Module, file: str, root: Path) -> _Started:
    """A function where calling it is all that running the script does; else the script as it is."""
    whole, of_callable = _forms(main, file, root)
    if main.reads_command_line():
        return _of_command_line(whole, main)  # only a script can be given one
    guards = [each for each in main.tree.body if _is_guard(each)]
    functions = {each.name: each for each in main.tree.body if isinstance(each, _Function)}
    if guards:
        called = _only_call(main, guards[0])
        function = functions.get(called[0]) if called is not None else None
        if called is None or function is None or not _is_plain(main, function):
            return _Started(whole)
        return _of_function(f"{of_callable}:{called[0]}", function, called[1])
    if any(main.runs_at_import(each) for each in main.tree.body):
        return _Started(whole)  # importing it would run it once, and calling something in it a second time
    for name in ("main", *_roots(main, functions)):
        if name in functions and _is_plain(main, functions[name]):
            return _of_function(f"{of_callable}:{name}", functions[name], {})
    return _Started(whole)


def _forms(main: _Module, file: str, root: Path) -> tuple[str, str]:
    """The entry as a whole, and what stands before the colon of a callable: the file, or a module of a package."""
    if not main.relative_imports:
        return file, file
    # Only as a member of its package can it be imported.
    path = root / file
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder != root:
        parts.insert(0, folder.name)
        folder = folder.parent
    module = ".".join(parts)
    return f"-m {module}", module


def _of_function(entry: str, function: _Function, given: Mapping[str, Any]) -> _Started:
    defaults = _defaults(function)
    missing = tuple(name for name, default in defaults.items() if default is _REQUIRED and name not in given)
    value = given.get("seed", defaults.get("seed"))
    seed = value if type(value) is int and value >= 0 else None
    return _Started(entry, given, missing, seed=seed)


def _of_command_line(entry: str, main: _Module) -> _Started:
    """What argparse or click is told of each argument."""
    missing: list[str] = []
    options: list[str] = []
    seed = None
    for call in [*main.calls_of("add_argument"), *main.calls("click.argument", "click.option")]:
        words = [each for each in map(main.value, call.args) if isinstance(each, str)]
        given = {each.arg: main.value(each.value) for each in call.keywords}
        if not words:
            continue
        is_option = words[0].startswith("-")
        word = next((each for each in words if each.startswith("--")), words[0])
        needed = given.get("required", not is_option) is True and given.get("nargs") not in {"?", "*", -1}
        by_default = "default" in given and main.called(call.func) is not None  # argparse wants it all the same
        (missing if needed and not by_default else options).append(word)
        if word == "--seed" and type(given.get("default")) is int:
            seed = given["default"]
    return _Started(entry, missing=tuple(missing), options=tuple(options), seed=seed)


_REQUIRED: Final = object()


def _defaults(function: _Function) -> dict[str, Any]:
    """Parameters that can be given by keyword, each with its default where that is a literal."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    values = [_REQUIRED] * (len(plain) - len(arguments.defaults)) + [_value(each) for each in arguments.defaults]
    keywords = [_REQUIRED if each is None else _value(each) for each in arguments.kw_defaults]
    return {each.arg: value for each, value in zip((*plain, *arguments.kwonlyargs), (*values, *keywords), strict=True)}


def _is_plain(main: _Module, function: _Function) -> bool:
    """Whether calling it runs it, with the parameters that it shows."""
    if isinstance(function, ast.AsyncFunctionDef) or function.args.posonlyargs:
        return False
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(function)):
        return False
    return all(
        (main.called(each) or "").startswith(_PLAIN_DECORATORS)
        for each in (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    )


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """All of a function's body but what belongs to functions in it."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        each = pending.pop()
        yield each
        if not isinstance(each, _Function | ast.Lambda):
            pending += ast.iter_child_nodes(each)


def _is_guard(statement: ast.stmt) -> bool:
    """``if __name__ == "__main__":``."""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
    )


def _only_call(main: _Module, guard: ast.stmt) -> tuple[str, dict[str, Any]] | None:
    """The one function that a guard calls, and the keywords that it gives; calls of LEAPP around it do not count."""
    found: list[tuple[str, dict[str, Any]]] = []
    for statement in guard.body if isinstance(guard, ast.If) else ():
        call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
        if isinstance(call, ast.Call) and main.called(call.func) == "sys.exit" and len(call.args) == 1:
            call = call.args[0]  # sys.exit(main())
        if not isinstance(call, ast.Call):
            return None
        if main.called(call.func) in _OURS:
            continue
        given = _keywords(main, call)
        if not isinstance(call.func, ast.Name) or given is None:
            return None
        found.append((call.func.id, given))
    return found[0] if len(found) == 1 else None


def _keywords(main: _Module, call: ast.Call) -> dict[str, Any] | None:
    """What a call gives a function of the script, by keyword; None where that is no literal, or no JSON value."""
    functions = (each for each in main.tree.body if isinstance(each, _Function) and each.name == _id(call.func))
    names = [each.arg for function in functions for each in function.args.args]
    if len(call.args) > len(names) or any(each.arg is None for each in call.keywords):
        return None
    pairs = [*zip(names, call.args, strict=False), *((each.arg or "", each.value) for each in call.keywords)]
    given = {name: main.value(value) for name, value in pairs}
    return given if all(_is_toml(value) for value in given.values()) else None


def _is_toml(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_toml, value))
    return isinstance(value, str | bool | int | float)


def _roots(main: _Module, functions: Mapping[str, _Function]) -> list[str]:
    """Functions that lead to an annotation and that no other function of the file calls, if there is only one."""
    calls: dict[str, set[str]] = {}
    for each in ast.walk(main.tree):
        if isinstance(each, _Function):
            inner = (call for call in ast.walk(each) if isinstance(call, ast.Call))
            calls.setdefault(each.name, set()).update(_id(call.func) for call in inner)
    reach = {name for name, function in functions.items() if main.annotates(function)}
    methods = {each.name for each in ast.walk(main.tree) if isinstance(each, _Function) and main.annotates(each)}
    reach |= methods
    while more := {name for name, called in calls.items() if called & reach} - reach:
        reach |= more
    inner_names = set().union(*(called - {name} for name, called in calls.items()))
    found = [name for name in functions if name in reach and name not in inner_names and not name.startswith("_")]
    return found if len(found) == 1 else []


def _id(expression: ast.expr) -> str:
    if isinstance(expression, ast.Name):
        return expression.id
    return expression.attr if isinstance(expression, ast.Attribute) else ""


def _value(expression: ast.expr) -> Any:
    """A literal; None for anything else, as None is no value of TOML either."""
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


# --- one file -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Module:
    """A parsed file: which names mean something of ours, and which constants it defines."""

    file: str
    path: Path
    tree: ast.Module
    names: Mapping[str, str]
    """Name in the file -> what it was imported as, with dots."""
    constants: Mapping[str, Any]
    """Constants of the module that are given once."""
    relative_imports: bool
    names_us: bool
    """Whether LEAPP occurs in it at all; most modules of a project have nothing to say here."""

    @classmethod
    def read(cls, path: Path, root: Path, shown: str) -> _Module:
        """Parse a file. Raises ScriptError."""
        try:
            source = path.read_bytes()
            tree = ast.parse(source, filename=str(path))
        except SyntaxError as error:
            why = f"line {error.lineno} is not valid Python: {error.msg.partition('. ')[0]}"
            raise ScriptError(script=shown, why=why, advice="Mend that line; Python cannot run it either.") from None
        except ValueError as error:  # NUL bytes
            raise ScriptError(script=shown, why=f"it is not Python: {error}", advice=_ADVICE) from None
        except OSError as error:
            raise ScriptError(script=shown, why=f"it cannot be read: {error.strerror}", advice=_ADVICE) from None
        names: dict[str, str] = {}
        relative = False
        for each in ast.walk(tree):
            if isinstance(each, ast.Import):
                for alias in each.names:
                    names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(each, ast.ImportFrom):
                relative = relative or bool(each.level)
                if not each.level:
                    names.update({alias.asname or alias.name: f"{each.module}.{alias.name}" for alias in each.names})
        file = Path(os.path.relpath(path.absolute(), root)).as_posix()
        return cls(file, path, tree, names, _constants(tree), relative, b"leapp" in source)

    def called(self, expression: ast.expr) -> str | None:
        """What an expression names, in the words of the imports: ``leapp.annotate.input_tensors``."""
        parts: list[str] = []
        while isinstance(expression, ast.Attribute):
            parts.insert(0, expression.attr)
            expression = expression.value
        if not isinstance(expression, ast.Name) or expression.id not in self.names:
            return None
        return ".".join((self.names[expression.id], *parts))

    def value(self, expression: ast.expr) -> Any:
        """What an expression of literals and of the module's constants comes to; None for anything else."""
        return _evaluated(expression, self.constants)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of these functions, in the order of their lines."""
        found = [each for each in ast.walk(self.tree) if isinstance(each, ast.Call) and self.called(each.func) in names]
        yield from sorted(found, key=lambda each: (each.lineno, each.col_offset))

    def nodes(self) -> Iterator[tuple[str | None, Place]]:
        """Names of nodes and their lines; None where a name is computed."""
        found = [*self._named_nodes(), *self._decorated()]
        yield from sorted(found, key=lambda each: each[1].line)

    def _named_nodes(self) -> Iterator[tuple[str | None, Place]]:
        for call in self.calls(*_NODE_CALLS):
            name = self._argument(call, "node")
            yield (name if isinstance(name, str) else None), Place(self.file, call.lineno)

    def _decorated(self) -> Iterator[tuple[str | None, Place]]:
        for function in ast.walk(self.tree):
            if not isinstance(function, _Function):
                continue
            for each in function.decorator_list:
                place = Place(self.file, each.lineno)
                if isinstance(each, ast.Call) and self.called(each.func) == _METHOD:
                    given = bool(each.args) or any(word.arg == "node_name" for word in each.keywords)
                    name = self._argument(each, "node_name") if given else function.name
                    yield (name if isinstance(name, str) else None), place
                elif self.called(each) == _METHOD:
                    yield function.name, place

    def annotates(self, function: _Function) -> bool:
        """Whether a function opens a node or starts a session by itself."""
        wanted = _NODE_CALLS | {_STARTS}
        decorators = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
        return any(self.called(each) == _METHOD for each in decorators) or any(
            isinstance(each, ast.Call) and self.called(each.func) in wanted for each in ast.walk(function)
        )

    def starts(self) -> Iterator[str]:
        """Names of sessions, without the folders that they may hold."""
        for call in self.calls(_STARTS):
            name = self._argument(call, "name")
            if isinstance(name, str) and Path(name).name:
                yield Path(name).name

    def calls_of(self, method: str) -> Iterator[ast.Call]:
        """Calls of a method of this name, whatever it is called on, in the order of their lines."""
        found = [
            each
            for each in ast.walk(self.tree)
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == method
        ]
        yield from sorted(found, key=lambda each: (each.lineno, each.col_offset))

    def reads_command_line(self) -> bool:
        """Whether argparse or click is given what was typed."""
        names = ("click.command", "click.group")
        if any(
            isinstance(each, ast.Attribute | ast.Name) and self.called(each) in names for each in ast.walk(self.tree)
        ):
            return True
        if not any(each == "argparse" or each.startswith("argparse.") for each in self.names.values()):
            return False
        calls = [call for name in ("parse_args", "parse_known_args") for call in self.calls_of(name)]
        return any(not call.args for call in calls)

    def variables(self) -> Iterator[str]:
        """Variables that are read as ``os.environ["NAME"]`` and not set here."""
        read, written = [], set()
        for each in ast.walk(self.tree):
            if isinstance(each, ast.Subscript) and self.called(each.value) == "os.environ":
                name = self.value(each.slice)
                if isinstance(each.ctx, ast.Load):
                    read.append(name)
                else:
                    written.add(name)
            elif isinstance(each, ast.Call) and self.called(each.func) == "os.environ.setdefault":
                written.add(self.value(each.args[0]) if each.args else None)
        for name in read:
            if isinstance(name, str) and name not in written | _SET_BY_BUILDS:
                yield name

    def variables_if_set(self) -> Iterator[str]:
        """Variables that are read in ways that go on without them: ``get``, ``getenv``, ``in``."""
        for each in ast.walk(self.tree):
            name = None
            if isinstance(each, ast.Call) and self.called(each.func) in {"os.environ.get", "os.getenv"}:
                name = self._argument(each, "key")
            elif isinstance(each, ast.Compare) and self.called(each.comparators[0]) == "os.environ":
                name = self.value(each.left)
            if isinstance(name, str) and name not in _SET_BY_BUILDS:
                yield name

    def rates(self) -> Iterator[float]:
        """Frequencies of ``GraphConfigs``, in Hz."""
        for call in self.calls(_CONFIGS):
            rate = self._argument(call, "frequency")
            if _is_number(rate) and 0 < rate < float("inf"):
                yield rate

    def files(self, root: Path) -> Iterator[str]:
        """Files that a string of the module names, sorted: of the project, and of the user's outside it."""
        for text in self._paths():
            path = root / text
            if not _is_data(path):
                continue
            inside = path.resolve().is_relative_to(root.resolve())
            if inside or path.resolve().parts[1] not in _OF_THE_SYSTEM:
                yield Path(os.path.relpath(path, root)).as_posix()

    def files_beside(self, root: Path) -> Iterator[str]:
        """Files that are there only as seen from the folder of the module, which does not ask where it lies."""
        names = (each.id for each in ast.walk(self.tree) if isinstance(each, ast.Name))
        if "__file__" not in names:
            yield from (
                each for each in self._paths() if _is_data(self.path.parent / each) and not (root / each).exists()
            )

    def files_absent(self, root: Path) -> Iterator[str]:
        """Strings that end as weights and data do, without a file of that name, and that nothing writes, sorted."""
        calls = [each for each in ast.walk(self.tree) if isinstance(each, ast.Call) and _WRITES.search(_id(each.func))]
        written = {each.value for call in calls for each in ast.walk(call) if isinstance(each, ast.Constant)}
        for text in self._paths():
            path = Path(text)
            named = path.suffix.lower() in _WEIGHTS and path.stem and " " not in text and "*" not in text
            if named and text not in written and not (root / path).exists() and not (self.path.parent / path).exists():
                yield text

    def _paths(self) -> list[str]:
        """Strings that may be paths, sorted."""
        values = (each.value for each in ast.walk(self.tree) if isinstance(each, ast.Constant))
        return sorted({each for each in values if isinstance(each, str) and _may_be_path(each)})

    def runs_at_import(self, statement: ast.stmt) -> bool:
        """Whether importing the file already annotates, starts a session, or calls a function of the file."""
        if isinstance(statement, _Function | ast.ClassDef | ast.Import | ast.ImportFrom) or _is_guard(statement):
            return False
        annotating = {each.name for each in self.tree.body if isinstance(each, _Function)}
        ours = _NODE_CALLS | _OURS
        return any(
            isinstance(each, ast.Call) and (self.called(each.func) in ours or _id(each.func) in annotating)
            for each in ast.walk(statement)
        )

    def _argument(self, call: ast.Call, keyword: str) -> Any:
        given = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == keyword), None)
        return None if given is None else self.value(given)


def _evaluated(expression: ast.expr, constants: Mapping[str, Any]) -> Any:
    match expression:
        case ast.Name(id=name):
            return constants.get(name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.Add() | ast.Sub() as op, right=right):
            a, b = _evaluated(left, constants), _evaluated(right, constants)
            return _computed(op, a, b) if _is_number(a) and _is_number(b) else None
    return _value(expression)


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names that a module sets once, to a literal."""
    found: dict[str, Any] = {}
    times: dict[str, int] = {}
    for each in tree.body:
        target = each.targets[0] if isinstance(each, ast.Assign) and len(each.targets) == 1 else None
        target = each.target if isinstance(each, ast.AnnAssign) else target
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and value is not None:
            times[target.id] = times.get(target.id, 0) + 1
            found[target.id] = _evaluated(value, found)
    return {name: value for name, value in found.items() if times[name] == 1 and value is not None}


def _computed(op: ast.operator, a: float, b: float) -> float | None:
    match op:
        case ast.Mult():
            return a * b
        case ast.Div():
            return a / b if b else None
        case ast.Add():
            return a + b
    return a - b


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_data(path: Path) -> bool:
    try:
        return path.is_file() and path.suffix not in _NOT_DATA
    except OSError:  # too long for a path
        return False


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 200 and "\n" not in text and "\0" not in text


def _imported(main: _Module, root: Path) -> Iterator[_Module]:
    """Modules of the project that a script imports, and those that they import, each once."""
    seen = {main.path.absolute()}
    pending = [main]
    while pending and len(seen) <= _MOST_FILES:
        module = pending.pop(0)
        for path in _paths(module, root):
            if path.absolute() in seen:
                continue
            seen.add(path.absolute())
            try:
                found = _Module.read(path, root, str(path))
            except ScriptError:  # nobody asked for this one
                continue
            pending.append(found)
            if found.names_us:
                yield found


def _paths(module: _Module, root: Path) -> Iterator[Path]:
    """Where the imports of a file may lead in the project: as Python would look, and below ``src/``."""
    folder = module.path.absolute().parent
    places: tuple[Path, ...] = (folder, root, root / "src")
    for each in ast.walk(module.tree):
        if isinstance(each, ast.Import):
            wanted = [(places, alias.name) for alias in each.names]
        elif isinstance(each, ast.ImportFrom):
            base = places
            if each.level:
                base = (folder if each.level == 1 else folder.parents[min(each.level - 2, len(folder.parents) - 1)],)
            prefix = f"{each.module}." if each.module else ""
            wanted = [(base, f"{prefix}{alias.name}") for alias in each.names]
            if each.module:
                wanted.append((base, each.module))
        else:
            continue
        for base, name in wanted:
            if base is places and name.partition(".")[0] == "leapp":
                continue  # the annotations themselves
            for place in base:
                target = place.joinpath(*name.split("."))
                found = (target.with_name(f"{target.name}.py"), target / "__init__.py")
                yield from (path for path in found if path.is_file())
