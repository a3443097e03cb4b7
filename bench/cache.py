"""A build in which nothing changed: 20 manifests, two checkpoints of 200 MB each that all of them read.

Measured is the command that a person or CI runs, without and with locks beside the manifests. One bundle is compiled;
those of the pipelines are copies of it, under their names, which the command cannot tell. Python finds LEAPP compiled,
as an installed package is; what it takes where no compiled files may be kept, as in many containers of CI, is held to
the same limit, and in a terminal printed alone.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _measure import best_cpu_seconds, ratio, renamed

import leapp
from leapp import lock
from leapp._canonical import sha256_file
from leapp.build.cache import Cache, Miss
from leapp.build.plan import PipelinePlan, make_plan
from leapp.build.reads import FileRead, Reads
from leapp.build.result import PipelineResult
from leapp.manifest.load import load

PIPELINES = 20
CHECKPOINT_BYTES = 200_000_000
LIMIT_S = 0.3
TEMPLATE = "made"
SCRIPT = """
import torch, leapp
from leapp import annotate
leapp.start("{name}", save_path={folder!r})
x = annotate.input_tensors("n", {{"x": torch.zeros(3)}})
annotate.output_tensors("n", {{"y": x * 2}}, export_with=["torchscript", "onnx", "pt2"])
leapp.stop()
leapp.compile_graph()
"""
MANIFEST = """\
schema = 1
[pipeline]
name = "{name}"
version = "1.0.0"
entry = "entry.py:main"
args = {{ number = {number} }}
[export]
formats = ["torchscript", "onnx", "pt2"]
[metadata]
licence = "Apache-2.0"
"""


def main() -> int:
    """Print the figures; gives the exit code."""
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
            text = MANIFEST.format(name=f"p-{number:02}", number=number)
            (root / "manifests" / f"p-{number:02}.toml").write_text(text)
        script = SCRIPT.format(name=TEMPLATE, folder=folder)
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True)
        plan = make_plan(load([root / "manifests"]), out=root / "dist", environment=os.environ)
        cache = Cache(Path(os.environ["LEAPP_CACHE"]))
        names = ("entry.py", "one.pt", "two.pt")
        reads = Reads(project=tuple(FileRead(name, sha256_file(root / name), 1) for name in names))
        for pipeline in plan.pipelines:
            keep(cache, pipeline, reads, Path(folder, TEMPLATE))
        time.sleep(2.5)  # digests of files younger than two seconds are taken again
        cache.ready(plan)
        cache.close()
        fine = measure(root, "")
        for pipeline in plan.pipelines:
            lock.write(lock.beside(pipeline.manifest.path), lock.of_bundle(pipeline.target))
        fine &= measure(root, ", with locks")
    return 0 if fine else 1


def keep(cache: Cache, plan: PipelinePlan, reads: Reads, made: Path) -> None:
    """Put a bundle into the cache, as a build does."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder, plan.name)
        digest = renamed(made, bundle, plan.name)
        proved: Any = SimpleNamespace(complete=True, notes=())
        result = PipelineResult(plan, digest=digest, nodes=("n",), artifacts=3, reproduction=proved)
        miss = cache.lookup(plan)
        assert isinstance(miss, Miss)
        why = cache.remember(plan, miss, bundle, [reads], result, wall_s=1.0)
        assert not why, why


def measure(root: Path, what: str) -> bool:
    """Print what the command takes; gives whether it is within the limit everywhere."""
    command = [sys.executable, "-m", "leapp", "build", str(root / "manifests"), "--out", str(root / "dist")]
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(root.with_name("compiled"))}
    settled = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **compiled})
    assert settled.stdout.count("nothing changed") + settled.stderr.count("nothing changed") == PIPELINES, settled
    ways: list[tuple[str, dict[str, str], bool, float]] = [
        ("", compiled, False, 1.0),
        (", in a terminal", compiled, True, 1.0),
    ]
    if not Path(leapp.__file__).with_name("__pycache__").exists():
        never = {"PYTHONDONTWRITEBYTECODE": "1"}
        ways += [(", not compiled", never, False, 1.0), (", not compiled, in a terminal", never, True, math.inf)]
    fine = True
    for label, variables, terminal, limit in ways:
        spent_s = best_cpu_seconds(command, variables=variables, terminal=terminal)
        title = f"nothing changed, {PIPELINES} manifests{what}{label}, CPU"
        fine &= ratio(title, spent_s, f"{LIMIT_S} s", LIMIT_S, limit, "s")
    return fine


if __name__ == "__main__":
    sys.exit(main())
