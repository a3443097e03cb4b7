"""CPU time of eight small pipelines, built cold: sessions forked from a warm interpreter, against fresh ones.

CPU time is what a machine full of other work changes least; wall-clock time is printed beside it. All is as by default
but that nothing is reproduced in the first pair; a reproduction is a fresh interpreter in both. With ``--limited`` only
the pair that has a limit is measured.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path

from _measure import best_cpu_seconds, ratio, small_pipelines

COUNT = 8
JOBS = 2
LIMIT = 0.45


def main() -> int:
    """Print each ratio; 1 when one is above its limit."""
    fine = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limited = "--limited" in sys.argv[1:]
        for formats in (("torchscript",), ("torchscript", "onnx", "pt2")):
            manifests = small_pipelines(folder, COUNT, formats)
            for label, options, limit in (
                ("", ["--no-reproduce"], LIMIT),
                (", reproduced", [], math.inf),
            ):
                if limited and (limit == math.inf or len(formats) > 1):
                    continue
                (forked, forked_wall), (fresh, fresh_wall) = (
                    _seconds(manifests, [*options, *extra]) for extra in ([], ["--fresh"])
                )
                what = f"{COUNT} pipelines, {' + '.join(formats)}{label}, CPU"
                fine &= ratio(what, forked, "fresh interpreters", fresh, limit, unit="s")
                print(f"  wall-clock time {forked_wall:.1f} s = {forked_wall / fresh_wall:.2f}x of {fresh_wall:.1f} s")
    return 0 if fine else 1


def _seconds(manifests: list[Path], options: list[str]) -> tuple[float, float]:
    """CPU time and wall-clock time of one build."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        build = [sys.executable, "-m", "leapp", "build", "--json", "--jobs", str(JOBS), "--out", out, *options]
        cpu_s = best_cpu_seconds([*build, "--no-cache", *map(str, manifests)], repeats=1)
    return cpu_s, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
