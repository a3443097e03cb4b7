"""Six small pipelines on a Dask cluster of two worker processes, against a local build with ``--jobs 2``.

Wall-clock time of the command, local and on the cluster in turn, the best of each. The workers have built nothing
before: like the local build they start by importing torch, each in its own warm interpreter where the local build has
one for both. What the same workers need for the next build is printed as well. All caches are empty or not asked.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _measure import ratio, small_pipelines
from distributed import LocalCluster

COUNT = 6
JOBS = 2
REPEATS = 2
LIMIT = 1.2


def main() -> int:
    """Print each ratio; 1 when one is above its limit."""
    fine = True
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LEAPP_CACHE"] = str(folder / "cache")
        small_pipelines(folder / "project", COUNT)
        for label, options in (("", ["--no-reproduce"]), (", reproduced", [])):
            rounds = [_round(folder, options, number) for number in range(REPEATS)]
            local, first, again = (min(times) for times in zip(*rounds, strict=True))
            what = f"{COUNT} pipelines on Dask{label}"
            fine &= ratio(what, first, f"local --jobs {JOBS}", local, LIMIT, unit="s")
            fine &= ratio(f"{what}, workers warm", again, f"local --jobs {JOBS}", local, math.inf, unit="s")
    return 0 if fine else 1


def _round(folder: Path, options: list[str], number: int) -> tuple[float, float, float]:
    """Seconds of a local build, of the first build of a cluster, and of its second one."""
    local = _seconds(folder, [*options, "--jobs", str(JOBS)])
    # Objects of former builds are those of another machine: nothing is there before it is fetched.
    store = str(folder / f"worker-cache-{number}-{len(options)}")
    with LocalCluster(
        n_workers=JOBS, threads_per_worker=1, dashboard_address=":0", env={"LEAPP_CACHE": store}
    ) as cluster:
        on_dask = [*options, "--dask", cluster.scheduler_address]
        return local, _seconds(folder, on_dask), _seconds(folder, on_dask)


def _seconds(folder: Path, options: list[str]) -> float:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "leapp", "build", str(folder / "project" / "manifests"), "--no-cache"]
        begin = time.perf_counter()
        subprocess.run([*command, "--json", "--out", out, *options], check=True, capture_output=True)
        return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
