"""What the scripts share: repeated timings, the best of which is the least disturbed, and how a ratio is printed."""

from __future__ import annotations

import gc
import math
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def best_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Shortest wall-clock time of several runs."""
    times = []
    for _ in range(repeats):
        gc.collect()
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def best_cpu_seconds(command: list[str], repeats: int = 5) -> float:
    """Least user plus system time of a child process over several runs."""
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "NO_COLOR": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


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
