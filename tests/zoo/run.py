"""Run the zoo: public layers and models, recorded and exported, compared on fresh inputs; and torch's own tools beside.

Two processes take the items one by one. One that dies costs one cell of the table: another goes on behind it.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCES: Final = ("zoo_torch", "zoo_vision", "zoo_text", "zoo_robots", "zoo_geometry")
"""Modules beside this file, each with a list ITEMS."""

FOLDER: Final = Path(__file__).parents[2] / "build" / "zoo"
ITEM_LIMIT_S: Final = 300
LEAST_OK: Final = 0.99


def items(sources: Iterable[str] = SOURCES) -> dict[str, Any]:
    """All items by name, in order."""
    import importlib

    found: dict[str, Any] = {}
    for source in sources:
        for item in importlib.import_module(source).ITEMS:
            if item.name in found:
                raise ValueError(f"two items are called {item.name}")
            found[item.name] = item
    return found


def selected(names: Iterable[str], patterns: list[str]) -> list[str]:
    """The names that a pattern matches as a whole or in part; all without patterns."""
    return [
        name
        for name in names
        if not patterns or any(fnmatch.fnmatchcase(name, each) or each in name for each in patterns)
    ]


# --- the child -------------------------------------------------------------------------------------------------------


def work() -> None:
    """Read ``{"item", "columns"}`` from standard input, write one line per column and one at each item's end."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to the log
    # Only one thread: two processes share two cores, and sums come out alike.
    import torch

    torch.set_num_threads(1)
    import zoo_judge

    known = items()
    print(json.dumps({"items": list(known)}), file=answers)
    for line in sys.stdin:
        task = json.loads(line)
        try:
            for column, verdict in zoo_judge.judge(known[task["item"]], task["columns"]):
                cell = {"status": verdict.status, "detail": verdict.detail, "seconds": verdict.seconds}
                print(json.dumps({"column": column, **cell}), file=answers)
            print(json.dumps({"done": True}), file=answers)
        except Exception:  # noqa: BLE001 - reported to the parent, as an item that does not run untraced
            print(json.dumps({"broken": traceback.format_exc(limit=-3)}), file=answers)


# --- the parent ------------------------------------------------------------------------------------------------------


class Child:
    """A working process, started anew when it died."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def start(self) -> list[str]:
        """Start the process and wait for the names of its items."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--work"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
            )  # fmt: skip
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(self._process.stdout, self._lines), daemon=True).start()
        first = self._line()
        if first is None:
            self._ended()
            raise SystemExit(f"The zoo's packages cannot be imported: {self._log.read_text('utf-8')[-2000:]}")
        names: list[str] = first["items"]
        return names

    def run(self, name: str, columns: list[str]) -> Iterator[dict[str, Any]]:
        """The lines of one item; the last one says ``done``, ``broken`` or ``died``."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"item": name, "columns": columns}) + "\n")
        self._process.stdin.flush()
        while True:
            line = self._line()
            if line is None:
                yield {"died": self._ended()}
                return
            yield line
            if "column" not in line:
                return

    def end(self) -> None:
        """Let the process finish."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._ended()

    def _line(self) -> dict[str, Any] | None:
        try:
            text = self._lines.get(timeout=ITEM_LIMIT_S)
        except queue.Empty:
            return None
        return json.loads(text) if text else None

    def _ended(self) -> str:
        """Wait for the process, or kill it, and say how it ended."""
        assert self._process is not None
        process, self._process = self._process, None
        try:
            return f"the process died with {process.wait(10)}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"no answer within {ITEM_LIMIT_S} s"


def _pump(stream: Any, lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


class Table:
    """All cells, kept in a file line by line, so that an interrupted run can be resumed."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.cells: dict[str, dict[str, Any]] = {}
        self.broken: dict[str, str] = {}
        if resume and path.is_file():
            for line in path.read_text("utf-8").splitlines():
                self._take(json.loads(line))
        elif path.is_file():
            path.unlink()
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, **line: Any) -> None:
        """Keep one cell, or what an item that does not run untraced raised."""
        with self._lock:
            self._take(line)
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def _take(self, line: dict[str, Any]) -> None:
        if "broken" in line:
            self.broken[line["item"]] = line["broken"]
        else:
            self.cells.setdefault(line["item"], {})[line["column"]] = line


def fill(table: Table, names: list[str], columns: list[str], log: Path, jobs: int) -> None:
    """Run every cell that the table lacks."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)

    def take() -> None:
        child = Child(log)
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                child.end()
                return
            run_item(child, name)

    def run_item(child: Child, name: str) -> None:
        while missing := [column for column in columns if column not in table.cells.get(name, {})]:
            for line in child.run(name, missing):
                if "column" in line:
                    table.add(item=name, **line)
                    missing.remove(line["column"])
                elif "broken" in line:
                    table.add(item=name, broken=line["broken"])
                    return
                elif "died" in line and missing:
                    table.add(item=name, column=missing[0], status="failed", detail=line["died"], seconds=0.0)
        show(table, name, columns)

    threads = [threading.Thread(target=take) for _ in range(jobs)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


MARKS: Final = {"ok": "ok", "refused": "refused", "wrong": "WRONG", "failed": "failed"}


def show(table: Table, name: str, columns: list[str]) -> None:
    """One line of the table."""
    cells = table.cells[name]
    seconds = sum(cells[column]["seconds"] for column in columns)
    print(
        f"{name:<56}" + "".join(f"{MARKS[cells[column]['status']]:>16}" for column in columns) + f"{seconds:8.1f} s",
        flush=True,
    )


def report(table: Table, names: list[str], columns: list[str], seconds: float) -> int:
    """Every cell that is not ok with its reason, then the counts. Returns the exit status."""
    from zoo_judge import FORMATS, RECORDING, TOOLS

    for name in names:
        if name in table.broken:
            print(f"\n{name}: does not run untraced\n{table.broken[name]}")
        for column in columns:
            cell = table.cells.get(name, {}).get(column)
            if cell is not None and cell["status"] != "ok":
                print(f"\n{name} | {column} | {MARKS[cell['status']]}\n    " + cell["detail"].replace("\n", "\n    "))
    counts = {
        column: {status: sum(table.cells.get(name, {}).get(column, {}).get("status") == status for name in names)
                 for status in MARKS}
        for column in columns
    }  # fmt: skip
    print(f"\n{len(names)} items in {seconds:.0f} s" + (f", {len(table.broken)} do not run" if table.broken else ""))
    print(f"{'':<18}" + "".join(f"{status:>9}" for status in MARKS) + f"{'share ok':>11}")
    for column, count in counts.items():
        print(
            f"{column:<18}" + "".join(f"{count[status]:>9}" for status in MARKS) + f"{count['ok'] / len(names):>11.1%}"
        )
    best = max((counts[column]["ok"] for column in TOOLS if column in columns), default=0)
    missed = [f"{name} does not run untraced" for name in names if name in table.broken]
    for column in (RECORDING, *FORMATS):
        if column not in columns:
            continue
        count = counts[column]
        missed += [f"{column}: {count[status]} {status}" for status in ("wrong", "failed") if count[status]]
        least = LEAST_OK * len(names)
        if count["ok"] < max(least, best):
            missed.append(
                f"{column}: {count['ok']} ok; at least {least:.1f}, and {best} as the best of torch's own tools"
            )
    for line in missed:
        print(line)
    return 1 if missed else 0


def main(arguments: list[str]) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted run found")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the cells and the log are kept")
    parser.add_argument("--columns", help="comma separated; all by default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work()
        return 0
    from zoo_judge import COLUMNS

    columns = options.columns.split(",") if options.columns else list(COLUMNS)
    options.folder.mkdir(parents=True, exist_ok=True)
    log = options.folder / "log.txt"
    log.unlink(missing_ok=True)
    table = Table(options.folder / "cells.jsonl", resume=options.resume)
    began = time.monotonic()
    names = selected(_names(log), options.patterns)
    if not names:
        raise SystemExit(f"No item is called {' or '.join(options.patterns)}")
    print(f"{'':<56}" + "".join(f"{column:>16}" for column in columns))
    fill(table, names, columns, log, min(options.jobs, len(names)))
    return report(table, names, columns, time.monotonic() - began)


def _names(log: Path) -> list[str]:
    child = Child(log)
    names = child.start()
    child.end()
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
