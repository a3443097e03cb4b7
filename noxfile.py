"""What a person or CI does with this repository: ``nox -l`` lists it, ``nox -s NAME -- ARGUMENTS`` does it.

All sessions but `zoo` and `floors` share one environment, installed once for each state of pyproject.toml and
constraints.txt. Under ``--no-venv`` nothing is installed: the sessions use the Python that is there, as in an image
prepared beforehand.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.metadata
import json
import platform
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import nox
from nox import virtualenv
from packaging.requirements import Requirement
from packaging.version import Version

nox.needs_version = ">=2025.11"
nox.options.sessions = ["lint", "tests"]

CONSTRAINTS: Final = "constraints.txt"
ENVIRONMENT: Final = "shared"
DIST: Final = Path("dist")
FLOOR_PIPELINES: Final = ("numpy_pipeline", "recurrent_policy", "torch_pipeline")
FLOOR_TESTS: Final = (
    *("tests/trace", "tests/graph"),
    *("tests/export/test_onnx.py", "tests/export/test_pt2.py", "tests/export/test_torchscript.py"),
)
TOOLCHAIN_FILES: Final = ("pyproject.toml", CONSTRAINTS, "leapp/_version.py")


def _shared_environment(location: str, **settings: Any) -> virtualenv.VirtualEnv:
    """Stand in for the environment that nox would make for one session."""
    return virtualenv.VirtualEnv(str(Path(location).with_name(ENVIRONMENT)), venv_backend="virtualenv", **settings)


# A backend of our own keeps all that nox does with an environment, and --no-venv still overrides it.
virtualenv.ALL_VENVS[ENVIRONMENT] = _shared_environment
_session = functools.partial(nox.session, venv_backend=ENVIRONMENT, reuse_venv=True, allow_parallel=False)


@_session
def export(session: nox.Session) -> None:
    """Build every pipeline of manifests/ into dist/ and verify the bundles. Arguments: those of `leapp build`."""
    _install(session)
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--out", type=Path, default=DIST)
    options.add_argument("--only")
    known, _ = options.parse_known_args(session.posargs)

    _python(session, "-m", "leapp", "check")
    _python(session, "-m", "leapp", "build", "--out", str(DIST), *session.posargs)
    if known.only is not None:  # publishes nothing
        return
    bundles = _bundles(known.out)
    _python(session, "-m", "leapp", "verify", *map(str, bundles))
    for bundle in bundles:
        session.log(f"Report: {bundle / 'evidence' / 'report.html'}")


@_session
def verify(session: nox.Session) -> None:
    """Build all bundles elsewhere, compare with locks, and with dist/ where there is none. Arguments: of `leapp build`.

    What lies in dist/ is verified first.
    """
    _install(session)
    if published := _bundles(DIST):
        _python(session, "-m", "leapp", "verify", *map(str, published))

    # Without the cache: what is restored proves nothing.
    again = Path(session.create_tmp()) / "dist"
    shutil.rmtree(again, ignore_errors=True)
    # A build fails where a bundle is not the one that is locked.
    _python(session, "-m", "leapp", "build", *session.posargs, "--no-cache", "--out", str(again))
    built = _bundles(again)
    unlocked = [bundle.relative_to(again) for bundle in built if not _is_locked(bundle)]
    differences = [line for name in unlocked for line in _differences(DIST, again, name)]
    for line in differences:
        session.warn(line)
    if differences:
        session.error(f"What was built again lies in {again}")
    compared = f"{len(built) - len(unlocked)} as locked, {len(unlocked)} equal to those in {DIST}/"
    session.log(f"{len(built)} bundle(s) built again, byte for byte the same: {compared}.")


@_session
def tests(session: nox.Session) -> None:
    """Run the test suite on two cores. Arguments: those of pytest."""
    _install(session)
    # Two workers on two cores: torch must not start a thread per core in each.
    _python(session, "-m", "pytest", "-n", "2", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@_session
def walks(session: nox.Session) -> None:
    """Run the tests that take minutes each, such as exports of 20,000 operations. Arguments: those of pytest."""
    _install(session)
    _python(session, "-m", "pytest", "-n", "2", "-m", "slow", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@_session
def programs(session: nox.Session) -> None:
    """Judge 10,000 random programs of torch and of NumPy. Arguments: how many, --language, --exported, --seed."""
    _install(session)
    _python(session, "tests/property/walk_programs.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@_session
def ops(session: nox.Session) -> None:
    """Record and export every function of torch, or find it in a reviewed list. Arguments: names, --formats, --most.

    Those of NumPy are counted first.
    """
    _install(session)
    _python(session, "tests/ops/walk_numpy.py")
    _python(session, "tests/ops/walk_ops.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@_session
def lint(session: nox.Session) -> None:
    """Check style, format and types. Arguments: those of `ruff check`, such as --fix."""
    _install(session)
    _python(session, "-m", "ruff", "check", *session.posargs)
    _python(session, "-m", "ruff", "format", "--check")
    _python(session, "-m", "mypy")


@_session
def bench(session: nox.Session) -> None:
    """Measure what this project promises, against its floors. Arguments: names of scripts in bench/."""
    _install(session)
    known = sorted(path.stem for path in Path("bench").glob("[!_]*.py"))
    names = session.posargs or known
    if unknown := [name for name in names if name not in known]:
        session.error(f"bench/ has no {', '.join(unknown)}; it has {', '.join(known)}")
    missed = []
    for name in names:
        try:
            _python(session, f"bench/{name}.py")
        except nox.command.CommandFailed:  # the others are worth knowing all the same
            missed.append(name)
    if missed:
        session.error(f"Failed or missed a limit: {', '.join(missed)}")


@nox.session(venv_backend="virtualenv", reuse_venv=True)
def zoo(session: nox.Session) -> None:
    """Record and export public layers and models, beside torch's own tools. Arguments: names or parts, --resume."""
    # An environment of its own: the packages of the zoo are many, and nothing else needs them.
    _install(session, "zoo", extras="build")
    _python(session, "tests/zoo/run.py", *session.posargs)


@nox.session(venv_backend="virtualenv", reuse_venv=True)
def floors(session: nox.Session) -> None:
    """Try the lowest versions that pyproject.toml allows: builds, then tests. Arguments: those of pytest.

    `--force-python 3.13` tries them on another Python that is there. What is not declared is as new as it gets.
    """
    # An environment of its own. pip takes torch with CUDA from PyPI: PIP_EXTRA_INDEX_URL may name an index without.
    scratch = Path(session.create_tmp())
    lowest = scratch / "floors.txt"
    project = nox.project.load_toml("pyproject.toml")
    lowest.write_text("\n".join(_floors(project, Path(CONSTRAINTS).read_text("utf-8"))), "utf-8")
    if session.venv_backend != "none":
        tools = nox.project.dependency_groups(project, "tests")
        session.install("-c", str(lowest), "-e", ".[build,picture,examples]", *tools)
    _python(session, "-m", "leapp", "doctor")
    # Without their locks, which hold what the pinned versions give.
    manifests = scratch / "manifests"
    shutil.rmtree(manifests, ignore_errors=True)
    manifests.mkdir()
    for name in FLOOR_PIPELINES:
        shutil.copy(Path("manifests", f"{name}.toml"), manifests)
    built = scratch / "dist"
    _python(session, "-m", "leapp", "build", str(manifests), "--no-cache", "--out", str(built))
    _python(session, "-m", "leapp", "verify", *map(str, _bundles(built)))
    tests = session.posargs or FLOOR_TESTS
    _python(session, "-m", "pytest", "-n", "2", *tests, env={"OMP_NUM_THREADS": "1"})


@_session
def docs(session: nox.Session) -> None:
    """Write docs/errors.md from leapp/errors.py and check all links. Arguments: --check writes nothing."""
    _install(session)
    _python(session, "docs/generate.py", *session.posargs)


def _install(session: nox.Session, *groups: str, extras: str = "build,picture,dask,examples") -> None:
    """Install the pinned tool chain and this checkout, unless the environment holds just that.

    Args: groups: dependency groups of pyproject.toml; those of the shared environment unless some are named.
    """
    if session.venv_backend == "none":
        return
    wanted = hashlib.sha256(b"".join(Path(file).read_bytes() for file in TOOLCHAIN_FILES)).hexdigest()
    location = session.virtualenv.location
    stamp = Path(location, "toolchain.sha256")
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    session.log(f"Installing the tool chain of {CONSTRAINTS} into {location}: minutes, and only when it changed.")
    project = nox.project.load_toml("pyproject.toml")
    wished = nox.project.dependency_groups(project, *(groups or ("lint", "tests")))
    pins = ("-c", CONSTRAINTS, "--build-constraint", CONSTRAINTS)
    session.install(*pins, "-e", f".[{extras}]", *wished)
    # As an install step it is skipped together with the install, under --no-install.
    session.run_install(
        "python",
        "-c",
        "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])",
        str(stamp),
        wanted,
        log=False,
    )


def _floors(project: dict[str, Any], pins: str) -> list[str]:
    """Constraints: the lowest version of all that users may have, and the pinned one of each tool of the tests.

    Args: pins: the text of constraints.txt.
    """
    extras = project["project"]["optional-dependencies"].values()
    declared = [text for texts in (project["project"]["dependencies"], *extras) for text in texts]
    lowest: dict[str, Version] = {}
    for requirement in map(Requirement, declared):
        (floor,) = requirement.specifier
        found = Version(floor.version)
        # Two extras may begin at different versions: a build needs the higher one.
        lowest[requirement.name] = max(found, lowest.get(requirement.name, found))
    tools = {Requirement(text).name for text in project["dependency-groups"]["tests"] if isinstance(text, str)}
    pinned = [line for line in pins.splitlines() if line.partition("==")[0] in tools - lowest.keys()]
    return [f"{name}=={version}" for name, version in sorted(lowest.items())] + pinned


def _python(session: nox.Session, *command: str, env: dict[str, str] | None = None) -> None:
    """Run the Python of the environment. Under ``--no-venv`` nox's own, if LEAPP is there, else that of PATH."""
    python = "python"
    if session.venv_backend == "none":
        try:
            importlib.metadata.distribution("leapp-build")
        except importlib.metadata.PackageNotFoundError:
            pass
        else:
            python = sys.executable
    session.run(python, *command, env=env, external=session.venv_backend == "none")


def _bundles(folder: Path) -> list[Path]:
    """The bundles that `leapp build --out FOLDER` published."""
    return sorted(path.parent for path in folder.glob("*/*/bundle.json"))


def _is_locked(bundle: Path) -> bool:
    """Whether the manifest of a bundle that was built just now has a lock for this platform: then it is met."""
    session = json.loads((bundle / "evidence" / "session.json").read_text("utf-8"))
    lock = Path(session["manifest"]).with_suffix(".lock")
    return lock.is_file() and f"{sys.platform}-{platform.machine()}" in tomllib.loads(lock.read_text("utf-8"))


def _differences(published: Path, again: Path, name: Path) -> list[str]:
    """What differs between two builds of a bundle; nothing if their digests agree."""
    if not (published / name / "bundle.json").is_file():
        return [
            f"{name} has no lock and is not in {published}/: `leapp lock` writes one, `nox -s export` publishes it."
        ]
    before, after = (json.loads((folder / name / "bundle.json").read_text("utf-8")) for folder in (published, again))
    if before["digest"] == after["digest"]:
        return []
    files_before, files_after = ({file["path"]: file["sha256"] for file in each["files"]} for each in (before, after))
    changed = [
        f"{name}: {path} differs"
        for path in sorted(files_before | files_after)
        if files_before.get(path) != files_after.get(path)
    ]
    return changed or [f"{name}: bundle.json differs"]
