"""What it costs to know which files a session reads: an entry that opens 20,000 files, with the recorder and without.

The figure is the whole session: a fresh interpreter that imports torch, as every session does, and an entry that opens
and reads 20,000 small files. Counted is the session's processor time, which other work on the machine disturbs least.
Notifications, and what the kernel tells of each call that opens a file, are taken in by two other processes; the second
line adds their time, as if there were one core only. Then, for those who want to know where it goes: what each of the
three adds to each `open(...).read()`, the tightest loop there is, by the clock, and what sorting and hashing take when
all is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import ratio

FILES = 20_000
RUNS = 7
PR_SET_CHILD_SUBREAPER = 36

ENTRY = """
import sys, time, torch
import leapp.manifest.model  # a session has its manifest at hand
from pathlib import Path
root, mode = Path(sys.argv[1]), sys.argv[2]
if mode != "none":
    from leapp.build import reads
    if mode == "hook":
        reads.Watch.start = lambda *args, **kwargs: "measured without"
    if mode != "all":
        reads.Openers.begin = lambda: "measured without"
    recorder = reads.ReadRecorder(root)
    recorder.install()
opening, clock = time.process_time(), time.perf_counter()
total = 0
for path in [f"{root}/data/{number % 100:02d}/{number}.txt" for number in range(int(sys.argv[3]))]:
    with open(path, encoding="utf-8") as file:
        total += len(file.read())
opened, clock = time.process_time(), time.perf_counter() - clock
found = 0
if mode != "none":
    result = recorder.collect()
    found = len(result.project)
    assert result.complete or mode == "hook", result.gaps
    assert not result.mixed or mode != "all", result.mixed
end = time.process_time()
import json
print(json.dumps([clock, end - opened, found]))
"""


def used() -> float:
    """Processor time of all processes that were started here and are over."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(root: Path, mode: str) -> tuple[float, float, float, float]:
    """Seconds: of processor in the session, in all processes, by the clock in the loop, of processor to collect."""
    before = used()
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, str(root), mode, str(FILES)], check=True, capture_output=True, text=True
    )
    session = used() - before
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # the other two: orphans, and so ours
    loop, collecting, found = json.loads(done.stdout)
    assert mode == "none" or found == FILES, found
    return session - collecting, used() - before - collecting, loop, collecting


def main() -> int:
    """Print each figure; 1 when the session takes more than 10% longer, or 25% where it is told who opened a file."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve()
        for folder in range(100):
            (root / "data" / f"{folder:02d}").mkdir(parents=True)
        for number in range(FILES):
            (root / "data" / f"{number % 100:02d}" / f"{number}.txt").write_text("x" * 200, encoding="utf-8")
        modes = ("none", "hook", "notified", "all")
        # In turns: what else the machine does meets all of them.
        runs = [{mode: measure(root, mode) for mode in modes} for _ in range(RUNS)]
    session, whole, loop, collecting = (
        {mode: min(run[mode][part] for run in runs) for mode in modes} for part in range(4)
    )
    told = f"session with {FILES} files"
    fine = ratio(told, session["notified"], "the same without recorder", session["none"], 1.10)
    # Each file waits for the listener: two changes of process. Sessions open some hundreds.
    fine &= ratio(f"{told}, and who opened them", session["all"], "the same without recorder", session["none"], 1.25)
    print(f"with the processes beside it: {whole['all'] / whole['none']:.2f}x")
    for mode, name in (("hook", "audit hook"), ("notified", "hook and notification"), ("all", "all three")):
        added = (loop[mode] - loop["none"]) / FILES
        print(
            f"loop alone, {name}: {added * 1e6:+.2f} us a file on {loop['none'] / FILES * 1e6:.2f} us "
            f"({loop[mode] / loop['none'] - 1:+.0%})"
        )
    print(f"afterwards: {collecting['all'] * 1e3:.0f} ms to sort and hash {FILES} files")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
