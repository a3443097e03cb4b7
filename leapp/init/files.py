"""The texts that ``leapp init`` writes, and how they come to lie on disk: nothing that is there is overwritten."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.errors import NotWrittenByInitError, OutputFileError
from leapp.init.chain import installed_by, project_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp._source import Source
    from leapp.init.chain import Chain
    from leapp.init.script import Script

NOXFILE: Final = "noxfile.py"
WORKFLOW: Final = ".github/workflows/leapp.yml"
VARIABLE: Final = "LEAPP_REQUIREMENT"
"""Names another source of LEAPP to a written noxfile."""
NOX_FLOOR: Final = "2025.2.9"
"""Since then a session may require another one."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class File:
    """A file that is to be there."""

    path: str
    """Relative to the project."""
    text: str


class Action(StrEnum):
    """What became of a file."""

    WRITTEN = "written"
    REPLACED = "replaced"
    SAME = "same"
    """It is there already, as it would be written."""
    KEPT = "kept"
    """It is there, is another one, and was left alone."""


# --- texts ----------------------------------------------------------------------------------------------------------


def manifest_file(script: Script) -> File:
    """``manifests/NAME.toml`` for a script; what the script does not say stands there as a comment."""
    lines = [
        f"# The pipeline of {_printable(script.file)}: `leapp build manifests/{script.name}.toml` builds it, and",
        "# `leapp schema` prints all keys that a manifest may have.",
        "schema = 1",
        "",
        "[pipeline]",
        f"name = {_toml(script.name)}",
        'version = "0.1.0"',
        f"entry = {_toml(script.entry)}",
        *_traced(script),
        *_arguments(script),
        *_rate(script),
        "",
        *_nodes(script),
        "# [export]",
        '# formats = ["onnx", "pt2"]  # for all nodes; without it the script\'s export_with, else ONNX',
    ]
    session = []
    if script.inputs:
        session.append(f"inputs = {_toml([*map(glob.escape, script.inputs)])}  # files that the entry reads")
    if script.variables:
        session.append(f"pass_env = {_toml(script.variables)}  # variables that it reads; a record has their digests")
    if script.variables_if_set:
        both = [*script.variables, *script.variables_if_set]
        session.append(f"# pass_env = {_toml(both)}  # with those that it reads where they are set")
    if session:
        lines += ["", "[session]", *session]
    lines += ["", *_probe(script)]
    return File(f"manifests/{script.name}.toml", "\n".join(lines) + "\n")


def _traced(script: Script) -> list[str]:
    if len(script.starts) < 2:
        return []
    others = ", ".join(map(_printable, script.starts[1:]))
    return [f"trace = {_toml(script.starts[0])}  # of the sessions that it starts; there are also {others}"]


def _arguments(script: Script) -> list[str]:
    is_script = ":" not in script.entry  # a callable takes keywords, a script a command line
    if script.missing and is_script:
        words = (
            [_toml(each), _toml(each.lstrip("-").upper())] if each.startswith("-") else [_toml(each.upper())]
            for each in script.missing
        )
        wanted = ", ".join(word for pair in words for word in pair)
        return [f"# argv = [{wanted}]  # its command line needs these: fill them in"]
    if script.missing:
        wanted = ", ".join(f"{name} = ..." for name in script.missing)
        also = "".join(f"{_toml_key(name)} = {_toml(value)}, " for name, value in script.args.items())
        return [f"# args = {{ {also}{wanted} }}  # the entry needs these: fill them in"]
    if script.args:
        return [f"args = {_toml(dict(script.args))}"]
    may_have = f": {', '.join(map(_printable, script.options))}" if script.options else ""
    return [f"# argv = []  # its command line{may_have}"] if is_script else []


def _rate(script: Script) -> list[str]:
    if script.frequency_hz is None:
        return ["# frequency_hz = 50  # how often a runtime has to run it"]
    return [f"frequency_hz = {_toml(script.frequency_hz)}"]


def _nodes(script: Script) -> list[str]:
    lines = []
    if script.nodes:
        lines.append("# Nodes, each of which may have settings of its own below [nodes.NAME]:")
        lines += [f"#   {_printable(name)} ({_printable(str(place))})" for name, place in script.nodes.items()]
    if script.computed:
        places = ", ".join(map(str, script.computed[:3]))
        lines.append(f"# Nodes whose names only running tells: {_printable(places)}")
    return [*lines, ""] if lines else []


def _probe(script: Script) -> list[str]:
    lines = ["# A second run on other data shows what was frozen from the first one's."]
    if script.seed is None:
        return [*lines, '# [probe]  # args, argv or inputs of it; ports."NODE/PORT" = { range = [-1, 1] }']
    if ":" in script.entry:
        return [*lines, "[probe]", f"args = {{ seed = {script.seed + 1} }}"]
    if script.missing:  # this would take the place of them
        return [*lines, f'# [probe]  # argv: that of [pipeline], and "--seed", "{script.seed + 1}"']
    return [*lines, "[probe]", f'argv = ["--seed", "{script.seed + 1}"]']


def noxfile(source: Source, chain: Chain, root: Path) -> File:
    """``noxfile.py`` with the sessions ``export`` and ``verify``."""
    text = _NOXFILE.format(
        requirement=_requirement(source, root),
        variable=VARIABLE,
        nox=NOX_FLOOR,
        chain="\n".join(("[", *chain.rest, "]")) if chain.rest else "[]",
        torch=_TORCH.format(arguments=json.dumps(chain.torch)) if chain.torch else "",
        first='    session.install("--no-deps", *TORCH)  # from there nothing else\n' if chain.torch else "",
        project=json.dumps(project_install(root)),
    )
    return File(NOXFILE, text)


def _requirement(source: Source, root: Path) -> str:
    """The requirement as Python; a path inside the project stays right where the project is elsewhere."""
    if source.local is not None and source.local.is_relative_to(root):
        inside = source.local.relative_to(root).as_posix()
        head = source.requirement.partition("@")[0]
        return f'f"{head}@ {{Path({inside!r}).resolve().as_uri()}}"'
    return json.dumps(source.requirement)


_TORCH: Final = """\
# torch without the libraries of graphics cards, which are gigabytes: models are recorded and checked on the CPU. Where
# the entries need such a card, take the index out; the public one has torch with them.
TORCH = {arguments}
"""

_NOXFILE: Final = '''\
"""`nox -l` lists what there is, `nox -s NAME -- ARGUMENTS` runs it. Written by `leapp init`, yours to change."""

import json
import os
from pathlib import Path

import nox

nox.needs_version = ">={nox}"
nox.options.sessions = ["export"]

# LEAPP from where it came when this was written. (The name `leapp` on the public index is another package.)
LEAPP = os.environ.get("{variable}") or {requirement}
# These versions decide the bytes of a bundle: change them when you mean to, then `leapp lock --update`.
{torch}TOOL_CHAIN = {chain}
# What the entries import.
PROJECT = {project}


@nox.session(reuse_venv=True, default=False)
def environment(session):
    """Install all that into .nox/environment, where the other sessions run."""
    if session.venv_backend == "none":  # under `nox --no-venv`, what is there is taken
        return
{first}    session.install(LEAPP, *TOOL_CHAIN, *PROJECT)
    if " @ " in LEAPP:  # pip takes one of the same version for this one, whichever commit it is of
        session.install("--force-reinstall", "--no-deps", LEAPP)
    os.environ["PATH"] = os.pathsep.join((session.bin, os.environ["PATH"]))


@nox.session(venv_backend="none", requires=["environment"])
def export(session):
    """Build all of manifests/ into dist/, each checked and reproduced. Arguments: those of `leapp build`."""
    leapp(session, "check")
    leapp(session, "build", "--out", "dist", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def verify(session):
    """Hold the bundles in dist/ against their digests and locks, build each again, and compare the bytes.

    Each manifest of manifests/ must have one there.
    """
    bundles = sorted(str(each.parent) for each in Path("dist").glob("*/*/bundle.json"))
    if not bundles:
        session.error("dist/ holds no bundle: `nox -s export` makes them.")
    printed = session.run(
        *("python", "-m", "leapp", "check", "--json"), external=True, silent=True, env={{"GITHUB_STEP_SUMMARY": ""}}
    )
    names = [json.loads(line)["name"] for line in printed.splitlines() if line.startswith("{{")]
    lacking = [name for name in names if not any(Path("dist", name).glob("*/bundle.json"))]
    if lacking:
        session.error(f"dist/ holds no bundle of {{', '.join(lacking)}}: `nox -s export` makes them.")
    leapp(session, "verify", *bundles)
    leapp(session, "reproduce", *bundles, *session.posargs)


def leapp(session, *arguments):
    session.run("python", "-m", "leapp", *arguments, external=True)
'''


def workflow(source: Source, root: Path) -> File:
    """A GitHub workflow: cache, export, verify, upload."""
    with_checkout = ["persist-credentials: false # entries are programs, and need no token"]
    if _mentions(root / ".gitattributes", "filter=lfs"):
        with_checkout.append("lfs: true")
    else:
        with_checkout.append("# lfs: true # where weights lie in Git LFS")
    if (root / ".gitmodules").is_file():
        with_checkout.append("submodules: recursive")
    environment = ""
    if source.local is not None and not source.local.is_relative_to(root):
        environment = (
            f"\n    env:"
            f"\n      # LEAPP came from {_printable(str(source.local))}, which is not there. This variable of the"
            f"\n      # repository says where pip finds it: leapp-build[build] @ git+https://...@COMMIT"
            f"\n      {VARIABLE}: ${{{{ vars.{VARIABLE} }}}}"
        )
    values = {
        "CHECKOUT": "".join(f"\n          {each}" for each in with_checkout),
        "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
        "ENV": environment,
        "PINNED": "".join(f"\n            {each}" for each in (NOXFILE, *installed_by(root))),
        "NOX": NOX_FLOOR,
    }
    text = re.sub("@([A-Z]+)@", lambda found: values[found[1]], _WORKFLOW)
    return File(WORKFLOW, text)


_WORKFLOW: Final = """\
# Builds the pipelines of manifests/ on every push, proves them, and keeps the bundles. Written by `leapp init`.
name: leapp

on:
  push:
  pull_request:

permissions:
  contents: read

concurrency: # a newer push ends the run of an older one, but for the default branch
  group: ${{ github.workflow }}-${{ github.ref }}
  cancel-in-progress: ${{ github.ref_name != github.event.repository.default_branch }}

jobs:
  bundles:
    # The branch of a pull request is built when it is pushed, except in forks.
    if: github.event_name == 'push' || github.event.pull_request.head.repo.full_name != github.repository
    runs-on: ubuntu-24.04 # a fixed image: locks hold digests per platform
    timeout-minutes: 60@ENV@
    steps:
      - uses: actions/checkout@v5
        with:@CHECKOUT@
      - uses: actions/setup-python@v6
        with:
          python-version: "@PYTHON@"
          cache: pip
          cache-dependency-path: |@PINNED@
      # Pipelines that nothing changed for are taken from here, not built.
      - uses: actions/cache/restore@v4
        with:
          path: ~/.cache/leapp
          key: leapp-${{ runner.os }}-${{ runner.arch }}-${{ github.sha }}-${{ github.run_attempt }}
          restore-keys: leapp-${{ runner.os }}-${{ runner.arch }}-
      - run: python -m pip install "nox>=@NOX@"
      - run: python -m nox -s export
        id: export
      - run: python -m nox -R -s verify # in the environment that is there now
      # Of what a repository may keep, GitHub removes the oldest above 10 GB.
      - run: .nox/environment/bin/python -m leapp cache gc --max-size 1GB
        if: ${{ always() && steps.export.outcome != 'skipped' }}
      # One pipeline that fails costs none of the others: what was built is kept.
      - uses: actions/cache/save@v4
        if: ${{ always() && steps.export.outcome != 'skipped' }}
        with:
          path: ~/.cache/leapp
          key: leapp-${{ runner.os }}-${{ runner.arch }}-${{ github.sha }}-${{ github.run_attempt }}
      - uses: actions/upload-artifact@v4
        if: ${{ !cancelled() }} # of a failed build, what its sessions printed
        with:
          name: bundles
          path: dist/
          include-hidden-files: true # dist/.logs
          if-no-files-found: ignore
"""


def _mentions(path: Path, word: str) -> bool:
    try:
        return word in path.read_text("utf-8", "replace")
    except OSError:
        return False


def _printable(text: str) -> str:
    """Text that can stand in a comment."""
    return text if text.isprintable() else ascii(text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml_key(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's other scalars are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml(key)


# --- disk -----------------------------------------------------------------------------------------------------------


def write_files(root: Path, files: Sequence[File], *, force: Sequence[Path] = ()) -> list[tuple[File, Action]]:
    """Write what is not there yet, and replace what ``force`` names.

    Raises:
        NotWrittenByInitError: ``force`` names a file that is none of these; nothing is written then.
        OutputFileError: the operating system refused.
    """
    targets = {os.path.normpath((root / file.path).absolute()): file for file in files}
    forced = {os.path.normpath(each.absolute()): each for each in force}
    for path, given in forced.items():
        if path not in targets:
            raise NotWrittenByInitError(file=str(given), known=", ".join(file.path for file in files) or "nothing")
    return [(file, _write(Path(path), file.text, forced=path in forced)) for path, file in targets.items()]


def _write(path: Path, text: str, *, forced: bool) -> Action:
    data = text.encode()
    try:
        if os.path.lexists(path):
            if path.is_file() and path.read_bytes() == data:
                return Action.SAME
            if not forced:
                return Action.KEPT
            _replace(path, data)
            return Action.REPLACED
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:  # not even one that appeared since is overwritten
            file.write(data)
    except FileExistsError:
        return Action.KEPT
    except OSError as error:
        raise OutputFileError(path=str(path), why=error.strerror or str(error)) from error
    return Action.WRITTEN


def _replace(path: Path, data: bytes) -> None:
    """In one step: whoever reads meanwhile sees the old file or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
