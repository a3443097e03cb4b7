"""What comes before the first session: whatever would make the work futile, and a folder for the bundle."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp._canonical import canonical_json, sha256
from leapp._source import find_source
from leapp._version import __version__
from leapp.build._context import environment
from leapp.build.locked import lock_of
from leapp.bundle import read, write
from leapp.errors import (
    BuildCancelledError,
    InterpreterError,
    MissingDependencyError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leapp.build._context import Context
    from leapp.build.plan import PipelinePlan

_ASK_VERSION: Final = "import leapp; print(leapp.__version__)"


def ready(context: Context) -> None:
    """Whatever would make the work futile, before it is done."""
    plan = context.plan
    if context.cancel.is_set():
        raise BuildCancelledError(manifest=plan.manifest.shown)
    if plan.only is None:
        write.ensure_replaceable(plan.target)
        if plan.locked:
            lock_of(plan)  # it can be read: better known now than when all is done
    if not plan.own_interpreter and context.elsewhere is None:
        check_interpreter(plan)


def check_interpreter(plan: PipelinePlan) -> None:
    """The manifest's interpreter starts, and has this very version installed: both ends must speak alike."""
    try:
        answer = subprocess.run(
            [plan.python, "-P", "-c", _ASK_VERSION],
            cwd=plan.manifest.root,
            env=environment(plan, Path(os.devnull), Path(tempfile.gettempdir())),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(manifest=plan.manifest.shown, python=plan.python, why=str(error)) from None
    found = answer.stdout.strip()
    if answer.returncode != 0:
        raise MissingDependencyError(
            what_for=f"The session's interpreter {plan.python}",
            package="leapp-build",
            command=f"{plan.python} -m pip install {shlex.quote(find_source().requirement)}",
        )
    if found != __version__:
        why = f"it has leapp-build {found}, and this build is {__version__}"
        raise InterpreterError(manifest=plan.manifest.shown, python=plan.python, why=why)


@contextlib.contextmanager
def place_for(plan: PipelinePlan) -> Iterator[Path]:
    """A folder that the session's bundle is written to: beside the target, so that publishing is a rename."""
    if plan.only is None:
        plan.target.parent.mkdir(parents=True, exist_ok=True)
        with write.scratch_beside(plan.target) as scratch:
            yield scratch
    else:
        # Kept when the stages succeed: its path is what the user asked for.
        prefix = _only_prefix(plan)
        scratch = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            yield scratch
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        _remove_older(scratch, prefix)


def _only_prefix(plan: PipelinePlan) -> str:
    """The beginning of the names of all scratch folders for one node of one manifest."""
    which = sha256(canonical_json([str(plan.manifest.path), plan.name, plan.only]))
    return f"leapp-only-{plan.name}-{which[:12]}-"


def _remove_older(scratch: Path, prefix: str) -> None:
    """Of all bundles of one node alone, keep the one that was just made and the one before, to be compared with it."""
    found: list[tuple[float, Path]] = []
    for folder in scratch.parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError):  # others may remove theirs at the same time
            status = folder.lstat()
            # Where all write to one folder, a name is no proof that it is ours.
            finished = any(read.is_bundle(each) for each in folder.iterdir())
            if folder != scratch and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and finished:
                found.append((status.st_mtime, folder))
    for _, folder in sorted(found)[:-1]:
        shutil.rmtree(folder, ignore_errors=True)
