"""What the scripts share: repeated timings, the best of which is the least disturbed, and how a ratio is printed."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import pty
import resource
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_ENTRY = """
import torch
from leapp import annotate

def main(factor):
    x = annotate.input_tensors("policy", {"x": torch.randn(3)})
    annotate.output_tensors("policy", {"y": torch.tanh(x) * factor})
"""

_MANIFEST = """
schema = 1
[pipeline]
name = "{name}"
version = "1.0.0"
entry = "entry.py:main"
args = {{ factor = {index}.5 }}
[export]
formats = [{formats}]
"""


def small_pipelines(
    project: Path, count: int, formats: Sequence[str] = ("torchscript",), kind: str = "small"
) -> list[Path]:
    """Write a project with pipelines ``<kind>-000``... of one small node each; gives their manifests."""
    folder = project / "manifests"
    folder.mkdir(parents=True, exist_ok=True)
    (project / "pyproject.toml").touch()
    (project / "entry.py").write_text(_ENTRY)
    manifests = [folder / f"{kind}-{index:03}.toml" for index in range(count)]
    listed = ", ".join(f'"{each}"' for each in formats)
    for index, manifest in enumerate(manifests):
        manifest.write_text(_MANIFEST.format(name=manifest.stem, index=index, formats=listed))
    return manifests


def best_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Least CPU time of this process over several runs: what else the machine does does not count."""
    times = []
    for _ in range(repeats):
        gc.collect()
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def best_cpu_seconds(
    command: list[str], repeats: int = 5, *, variables: Mapping[str, str] | None = None, terminal: bool = False
) -> float:
    """Least user plus system time of a child process over several runs.

    Args:
        command: what is run; it has to succeed.
        repeats: how often.
        variables: of its environment, beside our own.
        terminal: it is run in a terminal, as a person does, rather than into a pipe.
    """
    environment = {**os.environ, **(variables or {})}
    if terminal:
        environment = {name: each for name, each in environment.items() if name not in {"NO_COLOR", "CI"}}
        environment["TERM"] = "xterm-256color"
    else:
        environment["NO_COLOR"] = "1"
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if terminal:
            _run_in_terminal(command, environment)
        else:
            subprocess.run(command, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def _run_in_terminal(command: list[str], environment: Mapping[str, str]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
            while some := os.read(ours, 1 << 16):
                shown += some
    os.close(ours)
    if process.returncode != 0:
        sys.exit(shown.decode("utf-8", "replace"))


def renamed(bundle: Path, target: Path, new: str) -> str:
    """Copy a bundle, as that of a pipeline with another name of the same length; gives its digest."""
    from leapp.bundle import write

    old = bundle.name
    assert len(old) == len(new)
    shutil.copytree(bundle, target)
    for path in [each for each in target.rglob("*") if each.is_file()]:
        data = path.read_bytes()
        if old.encode() in data:
            path.write_bytes(data.replace(old.encode(), new.encode()))
        if old in path.name:
            path.rename(path.with_name(path.name.replace(old, new)))
    return write.seal(target, name=new, version="1.0.0", status="ok")


def peak_bytes(script: str, *arguments: str) -> tuple[float, int]:
    """Run a Python script text in a fresh process; its own seconds (last line it prints) and its peak memory."""
    # Not ru_maxrss: a child begins with the peak of the process that forked it.
    probe = "\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    done = subprocess.run(
        [sys.executable, "-c", script + probe, *arguments], check=True, capture_output=True, text=True
    )
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak) * 1024


def ratio(name: str, ours: float, floor_name: str, floor: float, limit: float, unit: str = "ms") -> bool:
    """Print one figure against its floor; gives whether it is within the limit, which may be ``math.inf``."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0, "MB": 1e-6}[unit]
    ok = ours <= floor * limit
    verdict = "no limit" if limit == math.inf else f"limit {limit:.2f}x {'ok' if ok else 'MISSED'}"
    figure = f"{ours * scale:.2f} {unit} = {ours / floor:.2f}x of {floor_name} ({floor * scale:.2f} {unit})"
    print(f"{name}: {figure}, {verdict}")
    return ok
