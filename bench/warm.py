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

from _measure import best_cpu_seconds, ratio

COUNT = 8
JOBS = 2
LIMIT = 0.45

SCRIPT = """
import torch
from leapp import annotate

def main(factor):
    x = annotate.input_tensors("policy", {"x": torch.randn(3)})
    annotate.output_tensors("policy", {"y": torch.tanh(x) * factor})
"""

MANIFEST = """
schema = 1
[pipeline]
name = "small{index}"
version = "1.0.0"
entry = "entry.py:main"
args = {{ factor = {index}.5 }}
[export]
formats = [{formats}]
"""


def main() -> int:
    """Print each ratio; 1 when one is above its limit."""
    fine = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").touch()
        (folder / "entry.py").write_text(SCRIPT)
        limited = "--limited" in sys.argv[1:]
        for formats in (("torchscript",), ("torchscript", "onnx", "pt2")):
            for index in range(COUNT):
                text = MANIFEST.format(index=index, formats=", ".join(f'"{each}"' for each in formats))
                (folder / f"small{index}.toml").write_text(text)
            for label, options, limit in (
                ("", ["--no-reproduce"], LIMIT),
                (", reproduced", [], math.inf),
            ):
                if limited and (limit == math.inf or len(formats) > 1):
                    continue
                (forked, forked_wall), (fresh, fresh_wall) = (
                    _seconds(folder, [*options, *extra]) for extra in ([], ["--fresh"])
                )
                what = f"{COUNT} pipelines, {' + '.join(formats)}{label}, CPU"
                fine &= ratio(what, forked, "fresh interpreters", fresh, limit, unit="s")
                print(f"  wall-clock time {forked_wall:.1f} s = {forked_wall / fresh_wall:.2f}x of {fresh_wall:.1f} s")
    return 0 if fine else 1


def _seconds(folder: Path, options: list[str]) -> tuple[float, float]:
    """CPU time and wall-clock time of one build."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        build = [sys.executable, "-m", "leapp", "build", "--json", "--jobs", str(JOBS), "--out", out, *options]
        manifests = [str(folder / f"small{index}.toml") for index in range(COUNT)]
        cpu_s = best_cpu_seconds([*build, "--no-cache", *manifests], repeats=1)
    return cpu_s, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
