"""A build in which nothing changed: 20 manifests, two checkpoints of 200 MB each that all of them read.

The bundles are made up; what is measured is the command, which cannot tell.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _measure import best_cpu_seconds, ratio

from leapp._canonical import sha256_file
from leapp.build.cache import Cache, Miss
from leapp.build.plan import PipelinePlan, make_plan
from leapp.build.reads import FileRead, Reads
from leapp.build.result import PipelineResult
from leapp.bundle import write
from leapp.manifest.load import load

PIPELINES = 20
CHECKPOINT_BYTES = 200_000_000
LIMIT_S = 0.3
MANIFEST = """\
schema = 1
[pipeline]
name = "p{number}"
version = "1.0.0"
entry = "entry.py:main"
args = {{ number = {number} }}
"""


def main() -> int:
    """Print the figure; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="leapp-bench-cache-") as folder:
        root = Path(folder, "project")
        os.environ["LEAPP_CACHE"] = str(Path(folder, "cache"))
        (root / "manifests").mkdir(parents=True)
        (root / "pyproject.toml").touch()
        (root / "entry.py").write_text("def main(number): ...\n")
        for name in ("one.pt", "two.pt"):
            with (root / name).open("wb") as file:
                file.truncate(CHECKPOINT_BYTES)
        for number in range(PIPELINES):
            (root / "manifests" / f"p{number}.toml").write_text(MANIFEST.format(number=number))
        plan = make_plan(load([root / "manifests"]), out=root / "dist", environment=os.environ)
        cache = Cache(Path(os.environ["LEAPP_CACHE"]))
        names = ("entry.py", "one.pt", "two.pt")
        reads = Reads(project=tuple(FileRead(name, sha256_file(root / name), 1) for name in names))
        for pipeline in plan.pipelines:
            keep(cache, pipeline, reads)
        time.sleep(2.5)  # digests of files younger than two seconds are taken again
        cache.ready(plan)
        cache.close()
        command = [sys.executable, "-m", "leapp", "build", str(root / "manifests"), "--out", str(root / "dist")]
        best_cpu_seconds(command, 1)  # the bundles that were published just now settle
        spent_s = best_cpu_seconds(command)
    return 0 if ratio("nothing changed, 20 manifests, CPU", spent_s, "0.3 s", LIMIT_S, 1.0, "s") else 1


def keep(cache: Cache, plan: PipelinePlan, reads: Reads) -> None:
    """Put a bundle of some files into the cache, as a build does."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder)
        for number in range(8):
            (bundle / f"model-{number}.txt").write_text(f"{plan.name} {number}\n" * 1000)
            (bundle / "evidence").mkdir(exist_ok=True)
            (bundle / "evidence" / f"{number}.json").write_text("{}")
        digest = write.seal(bundle, name=plan.name, version=plan.version, status="ok")
        proved: Any = SimpleNamespace(complete=True, notes=())
        result = PipelineResult(plan, digest=digest, nodes=("n",), artifacts=8, reproduction=proved)
        miss = cache.lookup(plan)
        assert isinstance(miss, Miss)
        why = cache.remember(plan, miss, bundle, [reads], result, wall_s=1.0)
        assert not why, why


if __name__ == "__main__":
    sys.exit(main())
