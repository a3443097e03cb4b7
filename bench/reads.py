"""What it costs to know which files a session reads: an entry that opens 20,000 files, with the recorder and without.

The figure is the whole session: a fresh interpreter that imports torch, as every session does, and an entry that opens
and reads 20,000 small files. Alone, for those who want to know where it goes: what hook and notification add to each
`open(...).read()`, the tightest loop there is, and what the hashes take when all is over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import ratio

FILES = 20_000
RUNS = 7

ENTRY = """
import sys, time
begin = time.perf_counter()
import torch
from pathlib import Path
root, mode = Path(sys.argv[1]), sys.argv[2]
if mode != "none":
    from leapp.build import reads
    if mode == "hook":
        reads.Watch.start = lambda *args, **kwargs: "measured without"
    recorder = reads.ReadRecorder(root)
    recorder.install()
opening = time.perf_counter()
total = 0
for path in [f"{root}/data/{number % 100:02d}/{number}.txt" for number in range(int(sys.argv[3]))]:
    with open(path, encoding="utf-8") as file:
        total += len(file.read())
opened = time.perf_counter()
found = 0
if mode != "none":
    result = recorder.collect()
    found = len(result.project)
    assert result.complete or mode == "hook", result.gaps
end = time.perf_counter()
import json
print(json.dumps([opened - begin, opened - opening, end - opened, found]))
"""


def measure(root: Path, mode: str) -> tuple[float, float, float]:
    """Seconds until the entry is over, of the loop alone, and of collecting."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", ENTRY, str(root), mode, str(FILES)], check=True, capture_output=True, text=True
    )
    whole, loop, collecting, found = json.loads(done.stdout)
    assert mode == "none" or found == FILES, found
    return whole, loop, collecting


def main() -> int:
    """Print each figure; 1 when the session takes more than 10% longer."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve()
        for folder in range(100):
            (root / "data" / f"{folder:02d}").mkdir(parents=True)
        for number in range(FILES):
            (root / "data" / f"{number % 100:02d}" / f"{number}.txt").write_text("x" * 200, encoding="utf-8")
        modes = ("none", "hook", "both")
        # In turns: what else the machine does meets all of them.
        runs = [{mode: measure(root, mode) for mode in modes} for _ in range(RUNS)]
    whole, loop, collecting = ({mode: min(run[mode][part] for run in runs) for mode in modes} for part in range(3))
    fine = ratio(f"session with {FILES} files", whole["both"], "the same without recorder", whole["none"], 1.10)
    for mode, name in (("hook", "audit hook"), ("both", "hook and notification")):
        added = (loop[mode] - loop["none"]) / FILES
        print(
            f"loop alone, {name}: {added * 1e6:+.2f} us a file on {loop['none'] / FILES * 1e6:.2f} us "
            f"({loop[mode] / loop['none'] - 1:+.0%})"
        )
    print(f"afterwards: {collecting['both'] * 1e3:.0f} ms to sort and hash {FILES} files")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
