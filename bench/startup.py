"""CPU time of what must start fast: the import and the commands that run no model, against an empty interpreter."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _measure import best_cpu_seconds

SCRIPT = """
import torch, leapp
from leapp import annotate
leapp.start("demo", save_path={folder!r})
x = annotate.input_tensors("n", {{"x": torch.zeros(3)}})
annotate.output_tensors("n", {{"y": x * 2}})
leapp.stop()
leapp.compile_graph()
"""

MANIFEST = """
schema = 1
[pipeline]
name = "demo"
version = "1.0.0"
entry = "entry.py"
"""


def main() -> int:
    """Print each figure; 1 when one is above its limit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").touch()
        (folder / "entry.py").write_text(SCRIPT.format(folder=name))
        (folder / "demo.toml").write_text(MANIFEST)
        best_cpu_seconds([sys.executable, str(folder / "entry.py")], repeats=1)
        floor = best_cpu_seconds([sys.executable, "-c", "pass"])
        print(f"python -c pass: {floor:.3f} s CPU, the floor")
        leapp = [sys.executable, "-m", "leapp"]
        rows = (
            ("import leapp", [sys.executable, "-c", "import leapp"], 0.15),
            ("leapp --help", [*leapp, "--help"], 0.3),
            ("leapp check", [*leapp, "check", str(folder / "demo.toml")], 0.3),
            ("leapp verify", [*leapp, "verify", str(folder / "demo")], 0.3),
        )
        fine = True
        for label, command, limit in rows:
            seconds = best_cpu_seconds(command)
            fine &= seconds < limit
            verdict = "ok" if seconds < limit else "MISSED"
            print(f"{label}: {seconds:.3f} s CPU = {seconds / floor:.1f}x of the floor, limit {limit} s {verdict}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
