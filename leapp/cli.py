"""The ``leapp`` command: arguments -> functions of the package; errors -> exit codes.

Every command imports what it needs when it runs, so that ``--help``, ``check`` and ``verify`` start at once and work
where neither torch nor NumPy is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leapp._version import __version__
from leapp.errors import (
    CacheFolderError,
    LeappError,
    MissingDependencyError,
    NoManifestsError,
    OutputFileError,
    ReplayArgumentsError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leapp._spec import JSON
    from leapp.build._context import Elsewhere
    from leapp.build.cache import Cache
    from leapp.build.merge import Merged
    from leapp.build.plan import BuildPlan
    from leapp.build.result import Checked, PipelineResult
    from leapp.build.shards import Costs, Shard
    from leapp.errors import LockNotMetError
    from leapp.manifest.load import Known
    from leapp.manifest.model import Manifest
    from leapp.report.facts import Facts
    from leapp.report.text import Cell

EXIT_OK: Final = 0
EXIT_CHECK_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_FAULT: Final = 70
EXIT_INTERRUPTED: Final = 130

_BUILD_MORE: Final = """\
Each pipeline is traced, and its models are compared with what was traced. Its
entry then runs again on other data, to find values that were frozen, and once
more in other circumstances, to prove that the same bytes come out. Where a lock
lies beside the manifest, the bundle must be the one that is locked.

examples:
  leapp build                        all of manifests/, into dist/
  leapp build manifests/arm.toml     one pipeline
  leapp build manifests/arm.toml --only policy
                                     one node of it, in a temporary folder
  leapp build --shard 2/4            on the second of four machines
  leapp build --merge d1 d2 d3 d4    gather what they left, into dist/
"""
_PLAN_MORE: Final = """\
examples:
  leapp plan                         what is built, and how long each took
  leapp plan --json > plan.jsonl     one record per pipeline, for CI matrices
  leapp plan --shard 2/4 --costs plan.jsonl
                                     what `leapp build` would build with them
"""
_LOCK_MORE: Final = """\
Commit the locks: `leapp build` then fails where it gives another bundle, and
says why. What is already locked stays as it is, unless --update accepts it.

examples:
  leapp lock                         a lock for each manifest in manifests/
  leapp lock manifests/arm.toml --update
                                     accept what a build refused
"""
_VERIFY_MORE: Final = """\
examples:
  leapp verify dist/*/*              all bundles
  leapp verify dist/arm/1.0.0 --lock manifests/
                                     must be the one that is locked there
"""
_CACHE_MORE: Final = """\
examples:
  leapp cache path                   the folder; LEAPP_CACHE names another one
  leapp cache gc --max-size 5GB      keep to a size, as before CI saves it
"""
DEFAULT_MANIFESTS: Final = "manifests"
DEFAULT_OUT: Final = "dist"
_NO_LOGS: Final = frozenset({".yaml", ".yml", ".json", ".onnx", ".pt", ".pt2", ".zip", ".tar", ".gz", ".toml"})
_RUN_PACKAGES: Final = frozenset({"numpy", "onnxruntime", "safetensors"})
_BUILD_PACKAGES: Final = frozenset({"torch", "numpy", "onnx", "onnxscript", "onnxruntime", "safetensors"})

_EXIT_CODES: Final = """\
exit codes:
  0   done
  1   a check failed, or the entry broke a rule of LEAPP
  2   bad input: arguments, manifests, entries or nodes that do not exist
  3   the entry raised an error of its own, exited, was killed or ran out of time
  70  a fault of LEAPP
  130 interrupted (Ctrl-C)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    arguments.told = []
    try:
        # Also then sessions are ended and scratch folders removed.
        with _sigterm_is_ctrl_c():
            command: Callable[[argparse.Namespace], int] = arguments.run
            code = _answer(command, arguments)
        return max(code, _answer(_hand_on, arguments))
    except KeyboardInterrupt:
        _say("Interrupted.")
        _answer(_hand_on, arguments)  # what was done by then
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: that is its right. Nothing may be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """What was asked for. Exits where that cannot be understood, with a record for whoever reads records."""
    try:
        arguments = _parser().parse_args(argv)
        _check_together(arguments)
    except _WrongArgumentsError as wrong:
        if "--json" in argv:
            command = next((each for each in argv if not each.startswith("-")), None)
            error: JSON = {
                "class": "ArgumentError",
                "message": wrong.message,
                "details": "",
                "problems": [],
                "log": None,
            }
            _print_json({"schema": 1, "command": command, "ok": False, "exit_code": EXIT_BAD_INPUT, "error": error})
        argparse.ArgumentParser.error(wrong.parser or _parser(), wrong.message)
    return arguments


def _check_together(arguments: argparse.Namespace) -> None:
    """Refuse arguments of which one would be ignored because of another."""
    given = {name for name, value in vars(arguments).items() if value is not None and value is not False}
    wrong = ""
    if "svg" in given and arguments.svg == Path("-") and arguments.json:
        wrong = "argument --svg: - is stdout, which --json has: name a file"
    for option, others, why in (
        ("merge", ("only", "shard", "costs", "dask"), "it builds nothing"),
        ("dask", ("only",), "what is not published stays on the worker"),
    ):
        wrong = next(
            (f"argument --{option}: not allowed with --{each}: {why}" for each in others if {option, each} <= given),
            wrong,
        )
    if "merge" in given:
        wrong = wrong or next(filter(None, map(_why_not_merged, arguments.merge)), "")
    if "max_size" in given and arguments.action != "gc":
        wrong = f"argument --max-size: it is of `leapp cache gc`, not of `leapp cache {arguments.action}`"
    if wrong:
        raise _WrongArgumentsError(getattr(arguments, "parser", None), wrong)


def _why_not_merged(folder: Path) -> str:
    """``--merge`` takes all words after it, and with them manifests that were meant to be manifests."""
    if folder.suffix == ".toml" and not folder.is_dir():
        what = "is a manifest"
    elif any(each.name != "pyproject.toml" for each in folder.glob("*.toml")):
        what = "holds manifests"
    else:
        return ""
    shown = shlex.quote(str(folder))
    return f"argument --merge: {folder} {what}; manifests come before it: leapp build {shown} --merge DIR..."


class _WrongArgumentsError(Exception):
    """Arguments that make no sense, before anything is printed of it."""

    def __init__(self, parser: argparse.ArgumentParser | None, message: str) -> None:
        super().__init__(message)
        self.parser, self.message = parser, message


class _Help(argparse.HelpFormatter):
    """Paragraphs are wrapped; those with indented lines, such as examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        paragraphs = text.strip().split("\n\n")
        filled = [each if "\n  " in each else fill(each, width, indent) for each in paragraphs]
        return "\n\n".join(filled)


class _Parser(argparse.ArgumentParser):
    """Tells ``main`` what is wrong and what was probably meant, where argparse would print it and exit."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse, also for a command's own arguments."""
        if message.endswith(("required: BUNDLE", "required: BUNDLE|LOG", "required: MANIFEST|BUNDLE")):
            from leapp.bundle._mistaken import bundles_in

            message += f". {bundles_in(Path(DEFAULT_OUT))}"
        raise _WrongArgumentsError(self, message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options that a command does not know are its own to refuse: the parser above it knows none of its options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return found, unknown

    def _meant(self, word: str) -> str:
        from leapp.manifest.problems import hint, nearest

        if word.startswith("-"):
            options = [each for action in self._actions for each in action.option_strings]
            near = hint(nearest(word.partition("=")[0], options))
            return f".{near}" if near else ""
        if word.endswith(".py") and any("--from" in action.option_strings for action in self._actions):
            return f". Did you mean '--from {word}'?"
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from leapp.manifest.problems import hint, nearest

        known = [str(each) for each in action.choices]
        what = "there is no command" if isinstance(action, argparse._SubParsersAction) else "invalid choice:"
        near = hint(nearest(str(value), known), f"There are {', '.join(known)}.")
        raise argparse.ArgumentError(action, f"{what} {value!r}.{near}")


def _answer(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except LeappError as error:
        return _refuse(error, arguments)
    except ModuleNotFoundError as error:
        if error.name not in _BUILD_PACKAGES:
            from leapp._other import other_error

            other = other_error(error)
            return _fault(error, arguments) if other is None else _refuse(other, arguments)
        from leapp._source import install_command

        # Models in ONNX run without torch, which is most of what the extra for builds brings.
        extra = "onnx" if arguments.command == "run" and error.name in _RUN_PACKAGES else "build"
        missing = MissingDependencyError(
            what_for=f"leapp {arguments.command}", package=error.name, command=install_command(extra)
        )
        return _refuse(missing, arguments)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001  # the last place where a fault can become a short text and a log
        return _fault(error, arguments)


def _refuse(error: LeappError, arguments: argparse.Namespace, **record: JSON) -> int:
    from leapp.build._messages import error_json

    _tell(arguments, {**record, "ok": False, "error": error_json(error)}, error.exit_code)
    if not arguments.json:
        _say(str(error), "bad")
    return error.exit_code


def _fault(error: Exception, arguments: argparse.Namespace) -> int:
    with tempfile.NamedTemporaryFile("w", prefix="leapp-fault-", suffix=".log", delete=False) as log:
        log.write("".join(traceback.format_exception(error)))
    text = "".join(traceback.format_exception_only(error)).strip()
    fault: JSON = {"class": type(error).__name__, "message": text, "details": "", "problems": [], "log": log.name}
    _tell(arguments, {"error": fault}, EXIT_FAULT)
    _say(f"leapp {arguments.command} failed: {text}", "bad")
    _say(f"This is a fault of LEAPP; please report it with the log {log.name}.")
    return EXIT_FAULT


@contextlib.contextmanager
def _sigterm_is_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only there may a handler be set
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- arguments -----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="leapp",
        description="Turn annotated PyTorch and NumPy code into reproducible, checked model bundles.",
        epilog=f"`leapp COMMAND --help` shows the options of a command.\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"leapp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parser.set_defaults(run=_first_words)

    init = _command(commands, "init", _init, "write what a project needs to build its pipelines; overwrite nothing")
    init.add_argument(
        "--from",
        metavar="SCRIPT",
        type=Path,
        dest="script",
        help="annotated script that gets a manifest; it is read, not run",
    )
    init.add_argument("--ci", choices=("github",), help="write a workflow as well: cache, export, verify, upload")
    init.add_argument(
        "--force",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="replace this file if it is there (repeatable)",
    )

    build = _command(commands, "build", _build, "build pipelines from manifests and publish their bundles", _BUILD_MORE)
    _add_manifests(build)
    _add_out(build)
    _add_version(build)
    build.add_argument(
        "--only",
        metavar="NODE",
        help="while you work on one node: write and check its models alone, in a temporary folder; publish nothing",
    )
    build.add_argument(
        "--strict",
        action="store_true",
        help="fail at the first line where a value leaves the trace, that is, where the model would not do what the "
        "code does",
    )
    _add_reproduce(build)
    build.add_argument(
        "--no-cache", action="store_true", help="build everything, also what has not changed since it was built"
    )
    build.add_argument("--explain", action="store_true", help="list all that changed since each pipeline was built")
    _add_jobs(build)
    build.add_argument(
        "--fresh", action="store_true", help="start every session in a new interpreter, not forked from a warm one"
    )
    _add_junit(build)
    several = build.add_argument_group("several machines")
    _add_shard(several)
    several.add_argument(
        "--merge",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="build nothing: gather the bundles that shards left in these folders; manifests come before it",
    )
    several.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="build on the workers of a Dask cluster: address of its scheduler (tcp://host:8786), or scheduler file",
    )

    plan = _command(
        commands, "plan", _plan, "show what a build would build, and how long each took; nothing is run", _PLAN_MORE
    )
    _add_manifests(plan)
    _add_out(plan)
    _add_version(plan)
    _add_shard(plan)

    lock = _command(
        commands,
        "lock",
        _lock,
        "write NAME.lock beside each manifest: the digests it must give from now on",
        _LOCK_MORE,
    )
    _add_manifests(lock)
    lock.add_argument(
        "--update", action="store_true", help="accept bundles that differ from what is locked: lock and publish them"
    )
    _add_out(lock, "folder of the bundles; what it lacks is built and published there")
    _add_reproduce(lock)
    _add_jobs(lock)

    check = _command(commands, "check", _check, "validate manifests without building")
    _add_manifests(check)
    _add_junit(check)

    _command(commands, "schema", _schema, "print the JSON Schema of manifests, for editors")

    verify = _command(
        commands, "verify", _verify, "check digests and structure of bundles; nothing is executed", _VERIFY_MORE
    )
    _add_bundles(verify, "+")
    verify.add_argument(
        "--lock",
        metavar="FILE",
        type=Path,
        help="compare with this lock, or with those of a folder (default: the lock beside the manifest that a bundle "
        "was built from, where it is found)",
    )
    _add_junit(verify)

    difference = _command(commands, "diff", _diff, "show why two bundles differ, and which version step that asks for")
    difference.add_argument("first", metavar="A", type=Path, help="a bundle's folder, or a lock (NAME.lock)")
    difference.add_argument("second", metavar="B", type=Path, help="likewise; what became of A")

    replay = _command(
        commands, "replay", _replay, "run a bundle's recorded samples and ticks, or a log of ticks, through its models"
    )
    replay.add_argument(
        "bundles",
        nargs="+",
        metavar="BUNDLE|LOG",
        type=Path,
        help="bundles; or one, and a .safetensors file as `leapp run --log` writes it",
    )
    replay.add_argument("--rtol", type=tolerance, help="relative tolerance (default: the node's own)")
    replay.add_argument("--atol", type=tolerance, help="absolute tolerance, in each output's unit (default: likewise)")
    replay.add_argument(
        "--format", metavar="[NODE=]NAME", action="append", default=[],
        help="onnx, pt2 or torchscript alone (repeatable; default: all; of a log, the first)",
    )  # fmt: skip
    replay.add_argument(
        "--model-dir", metavar="DIR", action="append", default=[], type=Path, help="holds models the bundle lacks"
    )
    replay.add_argument(
        "--statistics", action="store_true", help="mean, percentiles and what is not finite, for each output"
    )
    _add_junit(replay)

    run = _command(commands, "run", _run, "run a bundle tick by tick, on given or random inputs")
    run.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder of a bundle, or a runtime file (.yaml)")
    run.add_argument("--steps", metavar="N", type=count, help="default: the ticks of --inputs, else 1")
    run.add_argument(
        "--inputs", metavar="FILE", type=Path, help=".safetensors, keys NODE/PORT or TICK/in/NODE/PORT, or a --log"
    )
    run.add_argument("--seed", metavar="N", type=int, default=0, help="of the random inputs used without --inputs")
    run.add_argument("--log", metavar="FILE", type=Path, help="write inputs, outputs and feedback of each tick")
    run.add_argument("--time", action="store_true", help="show how long ticks and nodes take (1000 ticks by default)")
    run.add_argument(
        "--format", metavar="[NODE=]NAME", action="append", default=[], help="onnx, pt2 or torchscript (repeatable)"
    )
    run.add_argument(
        "--model-dir", metavar="DIR", action="append", default=[], type=Path, help="holds models the bundle lacks"
    )
    run.add_argument("--threads", metavar="N", type=count, default=1, help="per node (default: %(default)s)")
    run.add_argument(
        "--guard", action="store_true", help="stop where a port is out of its range, or an output not finite"
    )

    reproduce = _command(
        commands, "reproduce", _reproduce, "build again with everything varied, and compare byte for byte"
    )
    reproduce.add_argument(
        "targets",
        nargs="+",
        metavar="MANIFEST|BUNDLE",
        type=Path,
        help="manifests are built into a scratch folder first; bundles are compared as they are",
    )
    reproduce.add_argument(
        "--vary", metavar="NAMES", type=names, help="vary these alone, separated by commas; '' varies nothing"
    )
    reproduce.add_argument("--manifest", metavar="FILE", type=Path, help="what a bundle was built from")
    _add_junit(reproduce)

    inspect = _command(commands, "inspect", _inspect, "show nodes, ports, wiring, model files and digests of a bundle")
    _add_bundles(inspect, None)
    inspect.add_argument("--snippet", choices=("python", "cpp", "js"), help="print a program that runs this bundle")
    inspect.add_argument("--svg", metavar="FILE", type=Path, help="draw the pipeline instead, as SVG; - is stdout")
    inspect.add_argument("--png", metavar="FILE", type=Path, help="draw the pipeline instead, as PNG")

    cache = _command(
        commands, "cache", _cache, "show where built bundles are kept, check them, or remove old ones", _CACHE_MORE
    )
    cache.add_argument(
        "action",
        choices=("path", "verify", "gc"),
        help="path: show the folder. verify: read all, drop what is damaged. gc: remove what was not used for longest",
    )
    cache.add_argument(
        "--max-size", metavar="SIZE", type=size, help="of gc: how much may stay, as 500MB, or 0 (default: 20GB)"
    )

    _command(commands, "doctor", _doctor, "show what is installed, what is missing, and the command that brings it")
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, more: str = ""
) -> argparse.ArgumentParser:
    """A command. ``more``: a paragraph and examples for its own help, each line as it is to stand there."""
    about, title, examples = more.partition("examples:\n")
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{about}".strip(),
        epilog=title + examples,
        formatter_class=_Help,
        # An option that is cut short is as likely mistyped: it must not turn into one that changes files.
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="machine-readable records on stdout, one per line")
    parser.set_defaults(run=run, parser=parser)
    return parser


def _add_manifests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "manifests",
        nargs="*",
        metavar="MANIFEST",
        type=Path,
        default=[Path(DEFAULT_MANIFESTS)],
        help=f"files, or folders that are searched for *.toml (default: {DEFAULT_MANIFESTS}/)",
    )


def _add_out(parser: argparse.ArgumentParser, what: str = "folder that bundles are published to") -> None:
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path(DEFAULT_OUT), help=f"{what} (default: %(default)s/)"
    )


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="V", dest="as_version", help="version to build, instead of the manifests'")


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", "-j", metavar="N", type=count, help="pipelines built at once (default: one per CPU)")


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-reproduce",
        action="store_true",
        help="do not build once more in other circumstances, which proves that the same bytes come out",
    )


def _add_shard(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--shard", metavar="I/N", type=shard, help="this part alone, as 2/4: all parts together are all pipelines"
    )
    parser.add_argument(
        "--costs",
        metavar="FILE",
        type=Path,
        help="weigh shards by this file of `leapp plan --json`, the same on all machines (default: all weigh the same)",
    )


def _add_junit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write all checks as JUnit XML, for CI servers")


def _add_bundles(parser: argparse.ArgumentParser, count: str | None) -> None:
    name = "bundles" if count else "bundle"
    parser.add_argument(name, nargs=count, metavar="BUNDLE", type=Path, help="folder that holds a bundle.json")


def count(text: str) -> int:
    """Read ``--jobs``, ``--steps`` and ``--threads``."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return number


def shard(text: str) -> Shard:
    """Read ``--shard``."""
    from leapp.build.shards import Shard

    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def size(text: str) -> int:
    """Read ``--max-size``, in bytes."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+) ?([kMGT]?)B?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a size such as 500MB, 20GB or 0, got {text!r}")
    return int(float(found[1]) * 1000 ** " kMGT".index(found[2] or " "))


def names(text: str) -> list[str]:
    """Read ``--vary``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def tolerance(text: str) -> float:
    """Read ``--rtol`` and ``--atol``."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a finite number, zero or more, got {text!r}")
    return number


# --- commands ------------------------------------------------------------------------------------------------------


def _first_words(_arguments: argparse.Namespace) -> int:
    from leapp.init.first import show_first_words
    from leapp.report.text import Printer

    show_first_words(Path.cwd(), Printer(sys.stdout))
    return EXIT_BAD_INPUT  # a script that lost its command must not pass for one that worked


def _init(arguments: argparse.Namespace) -> int:
    from leapp.init.command import initialize, show
    from leapp.report.text import Printer

    done = initialize(Path.cwd(), script=arguments.script, ci=arguments.ci, force=arguments.force)
    _tell(arguments, done.as_json())
    if not arguments.json:
        show(done, Printer(sys.stdout))
    return EXIT_OK


def _build(arguments: argparse.Namespace) -> int:
    from leapp.build.cache import Cache, default_root
    from leapp.build.plan import make_plan
    from leapp.build.result import WithoutNode
    from leapp.report.progress import BuildProgress, show_summary
    from leapp.report.text import Printer

    if arguments.merge:
        return _merge(arguments)
    cache = None if arguments.no_cache or arguments.only else Cache(default_root(os.environ))
    manifests = _manifests(arguments, version=arguments.as_version, known=None if cache is None else cache.known)
    plan = make_plan(manifests, out=arguments.out, environment=os.environ, only=arguments.only, strict=arguments.strict)
    plan, _ = _sharded(plan, arguments)
    # A cluster knows itself how much it can do at once.
    at_once = len(plan.pipelines) if arguments.dask else len(os.sched_getaffinity(0))
    jobs = min(arguments.jobs or at_once, len(plan.pipelines))
    # One node alone is for trying things out, and is not published.
    reproduce = not (arguments.no_reproduce or arguments.only)
    warm = not arguments.fresh
    apart = WithoutNode()
    if arguments.json:
        results = _restored_or_built(
            plan,
            cache,
            reproduce,
            jobs=jobs,
            cluster=arguments.dask,
            warm=warm,
            on_result=apart.after(lambda result: _tell(arguments, result.as_json())),
        )
        results = apart.settled(results)
    else:
        with BuildProgress(Printer(sys.stderr), explain=arguments.explain) as progress:

            def on_result(result: PipelineResult) -> None:
                _tell(arguments, result.as_json())
                progress.on_result(result)

            results = _restored_or_built(
                plan,
                cache,
                reproduce,
                jobs=jobs,
                cluster=arguments.dask,
                warm=warm,
                on_stage=progress.on_stage,
                on_result=apart.after(on_result),
            )
            results = apart.settled(results)
        show_summary(results, Printer(sys.stdout))
    if apart.left_out:
        _say(f"Left out, since node {arguments.only!r} is not in them: {', '.join(apart.left_out)}.")
    if cache is not None and (trouble := cache.trouble()):
        _say(trouble, "warn")
    return max((result.exit_code for result in results), default=EXIT_OK)


def _merge(arguments: argparse.Namespace) -> int:
    from leapp.build.merge import merge
    from leapp.build.plan import make_plan
    from leapp.report.text import Printer

    # A machine that only gathers needs no manifests; where they are, nothing may be missing.
    usual = arguments.manifests == [Path(DEFAULT_MANIFESTS)] and not os.path.lexists(DEFAULT_MANIFESTS)
    manifests = [] if usual else _manifests(arguments, version=arguments.as_version)
    plan = make_plan(manifests, out=arguments.out, environment=os.environ) if manifests else None
    merged = merge(arguments.merge, arguments.out, plan)
    for each in merged:
        _tell(arguments, each.as_json(), each.exit_code)
    if arguments.json:
        return max((each.exit_code for each in merged), default=EXIT_OK)
    rows = [
        (
            each.name,
            each.version,
            str(each.bundle or "-"),
            each.digest[:12] or "-",
            _merged_cell(each),
        )
        for each in merged
    ]
    Printer(sys.stdout).table(("Pipeline", "Version", "Bundle", "Digest", "Result"), rows)
    for each in merged:
        if each.error is not None:
            _say(str(each.error), "bad")
        elif each.lock is not None and each.lock.note:
            _say(f"note: {each.lock.note}", "warn")
    return max((each.exit_code for each in merged), default=EXIT_OK)


def _merged_cell(merged: Merged) -> Cell:
    from leapp.errors import ShardMissingError
    from leapp.report.text import Cell

    if merged.error is not None:
        return Cell("missing" if isinstance(merged.error, ShardMissingError) else "refused", "bad")
    return Cell("as it was" if merged.already else "gathered", "good")


def _plan(arguments: argparse.Namespace) -> int:
    from leapp.build.plan import make_plan
    from leapp.build.shards import planned
    from leapp.report.text import Printer

    manifests = _manifests(arguments, version=arguments.as_version)
    plan, costs = _sharded(make_plan(manifests, out=arguments.out, environment=os.environ), arguments)
    found = planned(plan, costs)
    for each in found:
        _tell(arguments, each.as_json())
    if not arguments.json:
        rows = [
            (
                each.plan.name,
                each.plan.version,
                each.plan.manifest.shown,
                ", ".join(each.formats) or "-",
                "-" if each.key is None else each.key[:12],
                "-" if each.cost_s is None else f"{each.cost_s:.1f} s",
            )
            for each in found
        ]
        printer = Printer(sys.stdout)
        printer.table(("Pipeline", "Version", "Manifest", "Formats", "Key", "Took"), rows, numbers=(5,))
        if not rows:
            printer.line(f"Shard {arguments.shard} has nothing to build: there are fewer pipelines than shards.")
        elif arguments.shard is not None and arguments.costs is None:
            printer.line("Divided by number. To divide by time, give every machine the same file:")
            printer.line(f"  leapp plan --json > plan.jsonl, then --shard {arguments.shard} --costs plan.jsonl")
    return EXIT_OK


def _sharded(plan: BuildPlan, arguments: argparse.Namespace) -> tuple[BuildPlan, Costs | None]:
    """The part of a plan that was asked for, and the costs that were given; None where none were."""
    if arguments.shard is None and arguments.costs is None:
        return plan, None
    from leapp.build.shards import part_of, read_costs

    costs = None if arguments.costs is None else read_costs(arguments.costs, plan)
    # What this machine knows of former builds has no say: another one would divide otherwise, and leave a gap.
    return (plan if arguments.shard is None else part_of(plan, arguments.shard, costs or {})), costs


def _lock(arguments: argparse.Namespace) -> int:
    from leapp.build.plan import make_plan
    from leapp.build.relock import lock_manifests
    from leapp.build.reproduce import chosen
    from leapp.report.locks import show
    from leapp.report.progress import BuildProgress
    from leapp.report.text import Printer

    plan = make_plan(
        _manifests(arguments),
        out=arguments.out,
        environment=os.environ,
        vary=None if arguments.no_reproduce else chosen(None),
    )
    jobs = min(arguments.jobs or len(os.sched_getaffinity(0)), len(plan.pipelines))
    with _opened_cache() as cache:
        if arguments.json:
            locked = lock_manifests(plan, update=arguments.update, jobs=jobs, cache=cache)
        else:
            with BuildProgress(Printer(sys.stderr)) as progress:
                locked = lock_manifests(
                    plan, update=arguments.update, jobs=jobs, cache=cache, on_stage=progress.on_stage
                )
            show(locked, Printer(sys.stdout))
    for each in locked:
        _tell(arguments, each.as_json(), each.exit_code)
    return max((each.exit_code for each in locked), default=EXIT_OK)


@contextlib.contextmanager
def _opened_cache() -> Iterator[Cache]:
    """The cache of commands that look into it; what is wrong with it is told at the end."""
    from leapp.build.cache import Cache, default_root

    cache = Cache(default_root(os.environ))
    try:
        yield cache
    finally:
        cache.close()
    if trouble := cache.trouble():
        _say(trouble, "warn")


def _restored_or_built(
    plan: BuildPlan,
    cache: Cache | None,
    reproduce: bool,
    *,
    jobs: int,
    on_result: Callable[..., None],
    cluster: str | None = None,
    **told: Any,
) -> list[PipelineResult]:
    """The cache first: where nothing has changed, what builds pipelines is not even imported."""
    ready = [None] * len(plan.pipelines) if cache is None else cache.ready(plan)
    for result in ready:
        if result is not None:
            on_result(result)
    waiting = [each for each, result in zip(plan.pipelines, ready, strict=True) if result is None]
    built: Iterator[PipelineResult] = iter(())
    try:
        if waiting:
            from leapp.build.reproduce import chosen
            from leapp.build.run import build

            vary = chosen(None) if reproduce else None
            rest = dataclasses.replace(plan, pipelines=tuple(dataclasses.replace(each, vary=vary) for each in waiting))
            with _elsewhere(cluster) as elsewhere:
                told |= {"elsewhere": elsewhere}
                built = iter(build(rest, jobs=min(jobs, len(waiting)), cache=cache, on_result=on_result, **told))
    finally:
        if cache is not None:
            cache.close()
    return [result or next(built) for result in ready]


def _elsewhere(cluster: str | None) -> contextlib.AbstractContextManager[Elsewhere | None]:
    """What makes bundles on a cluster; None where there is none."""
    if cluster is None:
        return contextlib.nullcontext()
    from leapp.build.dask_cluster import DaskCluster

    return DaskCluster(cluster)


def _cache(arguments: argparse.Namespace) -> int:
    from leapp.build.cache import Cache, default_root
    from leapp.report.text import Printer, size_text

    cache = Cache(default_root(os.environ))
    printer = Printer(sys.stdout)
    try:
        if arguments.action == "path":
            record: dict[str, JSON] = {"path": str(cache.root)}
            lines = [str(cache.root)]
        elif arguments.action == "verify":
            report = cache.verify()
            record = {"objects": report.objects, "size_bytes": report.size_bytes, "dropped": list(report.dropped)}
            lines = [f"dropped {digest}: its bytes were not those of its digest" for digest in report.dropped]
            lines.append(f"{report.objects} objects ({size_text(report.size_bytes)}) are sound.")
        else:
            freed = cache.gc(arguments.max_size)
            record = dataclasses.asdict(freed)
            removed = f"Removed {freed.objects} objects ({size_text(freed.size_bytes)})"
            lines = [f"{removed}; {freed.kept_objects} ({size_text(freed.kept_bytes)}) stay."]
    except OSError as error:
        raise CacheFolderError(folder=cache.root, why=error.strerror or str(error)) from error
    if arguments.json:
        _tell(arguments, record)
    else:
        for line in lines:
            printer.line(line)
    return EXIT_OK


def _check(arguments: argparse.Namespace) -> int:
    from leapp.report.text import Printer, counted

    manifests = _manifests(arguments)
    for manifest in manifests:
        if os.path.lexists(manifest.path.with_suffix(".lock")):
            from leapp import lock

            lock.read(lock.beside(manifest.path), name=manifest.pipeline.name)
    for manifest in manifests:
        pipeline = manifest.pipeline
        record = {"manifest": manifest.shown, "root": str(manifest.root), "name": pipeline.name}
        _tell(arguments, {**record, "version": pipeline.version, "entry": pipeline.entry.text})
    if arguments.json:
        return EXIT_OK
    rows = [(each.shown, each.pipeline.name, each.pipeline.version, each.pipeline.entry.text) for each in manifests]
    printer = Printer(sys.stdout)
    printer.table(("Manifest", "Pipeline", "Version", "Entry"), rows)
    printer.line(f"{counted(len(manifests), 'manifest')}, no problems.")
    return EXIT_OK


def _schema(arguments: argparse.Namespace) -> int:
    from leapp.manifest.schema import json_schema

    if arguments.json:
        _tell(arguments, {"json_schema": json_schema()})
    else:
        print(json.dumps(json_schema(), indent=2))
    return EXIT_OK


def _verify(arguments: argparse.Namespace) -> int:
    from leapp.build._messages import error_json
    from leapp.build.locked import check_bundle
    from leapp.bundle.read import load, verify
    from leapp.bundle.schema import PARTIAL
    from leapp.errors import LockNotMetError
    from leapp.report.text import Cell, Printer

    def one(path: Path) -> int:
        report = verify(path)
        sound = report.ok and report.status == "ok"
        lock, differs = None, None
        partial = report.ok and report.status == PARTIAL
        # A damaged bundle is not what it says that it is, and part of one never what is locked.
        if report.ok and not partial:
            try:
                lock = check_bundle(load(path), arguments.lock)
            except LockNotMetError as error:
                differs, sound = error, False
        code = EXIT_OK if sound else EXIT_CHECK_FAILED
        problems: list[JSON] = [
            {"kind": each.kind.value, "path": each.path, "detail": each.detail} for each in report.problems
        ]
        record: dict[str, JSON] = {
            "bundle": str(path),
            "name": report.name,
            "version": report.version,
            "status": report.status,
            "digest": report.digest,
            "problems": problems,
            "notes": list(report.notes),
            "lock": _lock_json(lock, differs),
            "error": error_json(differs),
        }
        _tell(arguments, record, code)
        if not arguments.json:
            printer = Printer(sys.stdout)
            state = Cell("ok", "good") if sound else Cell(PARTIAL if partial else "failed", "bad")
            printer.line(state, f"  {path}  ", Cell(f"sha256:{report.digest}", "soft"))
            printer.table(
                ("Problem", "File", "Detail"), [(each.kind.value, each.path, each.detail) for each in report.problems]
            )
            if report.problems:
                printer.line("It is not what was built: fetch it again, or build it again.")
            for note in report.notes:
                printer.line(Cell(f"note: {note}", "warn"))
            if differs is not None:
                _say(str(differs), "bad")
            elif lock is not None:
                printer.line(Cell("  lock  ", "soft"), f"{lock.file} ({lock.platform}): {lock.standing}")
        return code

    return _each(arguments, arguments.bundles, one)


def _lock_json(lock: Checked | None, differs: LockNotMetError | None) -> JSON:
    if differs is not None:
        facts = differs.facts
        lines: list[JSON] = [*facts["lines"]]
        return {
            "file": str(facts["lock"]),
            "platform": facts["platform"],
            "standing": "differs",
            "version": None,
            "differences": lines,
        }
    return None if lock is None else lock.as_json()


def _diff(arguments: argparse.Namespace) -> int:
    from leapp.compared import compare
    from leapp.report.difference import show
    from leapp.report.text import Printer

    compared = compare(arguments.first, arguments.second)
    for each in compared:
        record: dict[str, JSON] = {"paths": [str(arguments.first), str(arguments.second)], **each.as_json()}
        _tell(arguments, record, EXIT_OK if each.equal else EXIT_CHECK_FAILED)
    if not arguments.json:
        show(compared, Printer(sys.stdout))
    return EXIT_OK if all(each.equal for each in compared) else EXIT_CHECK_FAILED


def _replay(arguments: argparse.Namespace) -> int:
    from leapp.report.replayed import show_bundle
    from leapp.report.text import Printer

    logs = [path for path in arguments.bundles if _is_log(path)]
    bundles = [path for path in arguments.bundles if path not in logs]
    if logs:
        if len(logs) != 1 or len(bundles) != 1:
            raise ReplayArgumentsError(bundles=len(bundles), logs=len(logs))
        return _replay_log(arguments, bundles[0], logs[0])
    from leapp.build.replay import replay_bundle

    def one(path: Path) -> int:
        found = replay_bundle(
            path,
            rtol=arguments.rtol,
            atol=arguments.atol,
            format=_formats(path, arguments.format),
            model_dirs=arguments.model_dir,
        )
        code = EXIT_OK if found.ok else EXIT_CHECK_FAILED
        _tell(arguments, {"bundle": str(path), **found.as_json()}, code)
        if not arguments.json:
            show_bundle(found, str(path), Printer(sys.stdout), statistics=arguments.statistics)
        return code

    return _each(arguments, bundles, one)


def _is_log(path: Path) -> bool:
    """A bundle is a folder, or a file in it that describes it; model files and archives are neither."""
    return path.suffix == ".safetensors" or (path.is_file() and path.suffix not in _NO_LOGS)


def _replay_log(arguments: argparse.Namespace, bundle: Path, log: Path) -> int:
    from leapp.report.replayed import show_log
    from leapp.report.text import Printer
    from leapp.runtime.against_log import replay_log

    found = replay_log(
        bundle,
        log,
        formats=_formats(bundle, arguments.format),
        rtol=arguments.rtol,
        atol=arguments.atol,
        model_dirs=arguments.model_dir,
    )
    code = EXIT_OK if found.ok else EXIT_CHECK_FAILED
    _tell(arguments, {"bundle": str(bundle), "log": str(log), **found.as_json()}, code)
    if not arguments.json:
        show_log(found, str(bundle), str(log), Printer(sys.stdout), statistics=arguments.statistics)
    return code


def _run(arguments: argparse.Namespace) -> int:
    import warnings

    from leapp.report.text import Printer
    from leapp.report.ticks import as_json, show
    from leapp.runtime.inference import InferenceManager
    from leapp.runtime.log import read_ticks
    from leapp.runtime.play import play

    inputs = None if arguments.inputs is None else read_ticks(arguments.inputs)
    with warnings.catch_warnings(record=True) as noticed:
        manager = InferenceManager(
            arguments.bundle,
            arguments.model_dir,
            formats=_formats(arguments.bundle, arguments.format),
            threads=arguments.threads,
            guard=arguments.guard,
        )
    for each in noticed:
        _say(str(each.message), "warn")
    ticks = len(inputs.ticks) if inputs is not None else 0
    steps = arguments.steps or ticks or (1000 if arguments.time else 1)
    played = play(manager, steps, inputs=inputs, seed=arguments.seed, log=arguments.log, timed=arguments.time)
    record = {"bundle": str(arguments.bundle), **as_json(played, manager.pipeline, manager.backends)}
    if not arguments.json:
        seed = arguments.seed if inputs is None else None
        show(played, manager.pipeline, manager.backends, str(arguments.bundle), Printer(sys.stdout), seed=seed)
    if played.error is not None:
        if not arguments.json:
            _say(f"Tick {played.ticks} was not run:", "bad")
        return _refuse(played.error, arguments, **record)
    _tell(arguments, record)
    return EXIT_OK


def _formats(bundle: Path, given: Sequence[str]) -> str | dict[str, str] | None:
    """``--format NAME`` for all nodes, ``--format NODE=NAME`` for one."""
    by_node = dict(each.rsplit("=", 1) for each in given if "=" in each)
    for_all = [each for each in given if "=" not in each]
    if not by_node or not for_all:
        return by_node or (for_all[-1] if for_all else None)
    from leapp.runtime.files import open_files

    files = open_files(bundle)
    nodes = [*files.contract["models"]]
    if files.bundle is not None:  # what is meant for all is not meant for nodes without any model
        nodes = [name for name, node in files.bundle.nodes.items() if node.artifacts]
    return {**dict.fromkeys(nodes, for_all[-1]), **by_node}


def _reproduce(arguments: argparse.Namespace) -> int:
    from leapp.build.rebuild import reproduce_bundle, reproduce_manifests
    from leapp.bundle._mistaken import no_bundle
    from leapp.bundle.read import is_bundle
    from leapp.report.progress import BuildProgress
    from leapp.report.reproduction import show
    from leapp.report.text import Printer

    def one(path: Path) -> int:
        if path.is_file() and path.suffix != ".toml":
            raise no_bundle(path)
        if is_bundle(path):
            rebuilt = [reproduce_bundle(path, manifest=arguments.manifest, vary=arguments.vary)]
        elif arguments.json:
            rebuilt = [*reproduce_manifests(path, vary=arguments.vary, cache=cache)]
        else:
            with BuildProgress(Printer(sys.stderr)) as progress:
                rebuilt = [*reproduce_manifests(path, vary=arguments.vary, on_stage=progress.on_stage, cache=cache)]
        for each in rebuilt:
            _tell(arguments, each.as_json(), each.exit_code)
            if not arguments.json:
                show(each, Printer(sys.stdout))
        return max((each.exit_code for each in rebuilt), default=EXIT_OK)

    with _opened_cache() as cache:
        return _each(arguments, arguments.targets, one)


def _inspect(arguments: argparse.Namespace) -> int:
    from leapp.bundle.read import load
    from leapp.report.facts import collect
    from leapp.report.inspect import as_json, show
    from leapp.report.text import Printer

    facts = collect(load(arguments.bundle).folder)
    code = EXIT_OK if facts.status == "ok" else EXIT_CHECK_FAILED
    program = None
    if arguments.snippet is not None:
        from leapp.report.snippets import snippet

        program = snippet(facts, arguments.bundle.resolve(), arguments.snippet)
    pictures = [path for path in (arguments.svg, arguments.png) if path is not None]
    if pictures and program is None:
        _draw(facts, arguments)
    drawn: list[JSON] = [] if program is not None else [str(path) for path in pictures]
    _tell(arguments, {**as_json(facts), "snippet": program, "drawn": drawn}, code)
    if arguments.json:
        return code
    if program is not None:
        print(program, end="")
    elif not pictures:
        show(facts, Printer(sys.stdout))
    return code


def _draw(facts: Facts, arguments: argparse.Namespace) -> None:
    from leapp.report.picture import picture_png, picture_svg

    if arguments.svg == Path("-"):
        sys.stdout.write(picture_svg(facts))
    elif arguments.svg is not None:
        _write(arguments.svg, picture_svg(facts).encode())
    if arguments.png is not None:
        _write(arguments.png, picture_png(facts))
    if facts.status != "ok":
        _say(f"{arguments.bundle} is marked as {facts.status}.", "bad")


def _doctor(arguments: argparse.Namespace) -> int:
    from leapp.doctor import diagnose, show
    from leapp.report.text import Printer

    diagnosis = diagnose()
    code = EXIT_OK if diagnosis.ok else EXIT_CHECK_FAILED
    _tell(arguments, diagnosis.as_json(), code)
    if not arguments.json:
        show(diagnosis, Printer(sys.stdout))
    return code


# --- helpers -------------------------------------------------------------------------------------------------------


def _manifests(
    arguments: argparse.Namespace, *, version: str | None = None, known: Known | None = None
) -> list[Manifest]:
    """The manifests that were named, else all of ``manifests/``; ``known``: as ``leapp.manifest.load`` takes it."""
    from leapp.manifest.load import find_root, load

    usual = Path(DEFAULT_MANIFESTS)
    if arguments.manifests == [usual] and not os.path.lexists(usual):
        root = find_root(Path.cwd() / "any.toml")
        advice = "`leapp init --from SCRIPT` writes one for an annotated script."
        if (root / usual).is_dir():
            advice = f"The project's are in {root / usual}: name that folder, or work in {root}."
        raise NoManifestsError(folder=DEFAULT_MANIFESTS, here=str(Path.cwd()), advice=advice)
    return load(arguments.manifests, version=version, known=known)


def _each(arguments: argparse.Namespace, paths: Sequence[Path], one: Callable[[Path], int]) -> int:
    """Do the same for several bundles: an error in one leaves the others alone, and the highest exit code counts."""
    highest = EXIT_OK
    for path in paths:
        try:
            code = one(path)
        except LeappError as error:
            code = _refuse(error, arguments, bundle=str(path))
        highest = max(highest, code)
    return highest


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputFileError(path=str(path), why=error.strerror or str(error)) from error


def _tell(arguments: argparse.Namespace, record: dict[str, JSON], code: int = EXIT_OK) -> None:
    """A record of one thing, for whoever reads records: stdout with ``--json``, a JUnit file, GitHub.

    Args:
        arguments: of the command.
        record: what docs/json.md says of this command; the keys that all records have need not be in it.
        code: what the command exits with on account of this thing.
    """
    common: dict[str, JSON] = {"schema": 1, "command": arguments.command, "ok": code == EXIT_OK, "exit_code": code}
    whole = {**common, "error": None, **record}
    arguments.told.append(whole)
    if arguments.json:
        _print_json(whole)


def _hand_on(arguments: argparse.Namespace) -> int:
    """Tell those who do not read the terminal: a JUnit file, and GitHub where it runs us."""
    asked = getattr(arguments, "junit", None)
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if asked is None and not on_github:
        return EXIT_OK
    from leapp.report.outcomes import suites

    has_checks = "junit" in arguments
    found = suites(each for each in arguments.told if has_checks or each["error"] is not None)
    if asked is not None:
        from leapp.report.junit import junit_xml, write_whole

        write_whole(asked, junit_xml(found, command=arguments.command))
    if on_github:
        from leapp.report import github

        # GitHub reads both streams, and stdout may be full of records.
        for line in github.commands(found, here=str(Path.cwd()), workspace=os.environ.get("GITHUB_WORKSPACE", "")):
            print(line, file=sys.stderr)
        page = os.environ.get("GITHUB_STEP_SUMMARY")
        if page and has_checks:
            github.add_to_page(Path(page), github.summary(found, command=arguments.command))
    return EXIT_OK


def _print_json(record: dict[str, JSON]) -> None:
    """One record on one line, at once: a reader may wait for it. Whole lines, also from several threads."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a file name that is no text, or a terminal that has no such letters
        text = json.dumps(record, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say(text: str, style: str = "") -> None:
    from leapp.report.text import Cell, Printer

    printer = Printer(sys.stderr)
    for at, line in enumerate(text.splitlines()):
        printer.line(Cell(line, style if at == 0 else ""))


if __name__ == "__main__":
    sys.exit(main())
