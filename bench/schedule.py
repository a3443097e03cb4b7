"""What 200 pipelines on two jobs cost beside their sessions: threads, polling, checks, store, cache, publishing.

CPU time, not wall-clock time: it is what a machine full of other work does not change. Eight real pipelines, of one
node and one format each, say what the sessions of a pipeline take (first one, probe, reproduction), and what the build
itself takes for it. 200 real ones would take a quarter of an hour; in their place the same command builds 200 manifests
with *stand-ins* for the sessions: short processes that copy a bundle that was made before. All else is as it is in any
build, with an empty cache. What the build takes for each of the 200 is held against the sessions of a real one; a
session that is over at once is polled less often, so the real eight are held to the same limit.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _measure import renamed, small_pipelines

REAL = 8
MANY = 200
JOBS = 2
LIMIT = 0.05
TEMPLATE = "real-000"


def main() -> int:
    """Print the figures; 1 when one is above its limit."""
    with tempfile.TemporaryDirectory(prefix="leapp-bench-schedule-") as name:
        place = Path(name)
        real = build(place, "real", REAL)
        for number in range(MANY):
            pipeline = f"many-{number:03}"
            renamed(place / "template" / "first" / TEMPLATE, place / "bundles" / pipeline, pipeline)
        many = build(place, "many", MANY)
    session_s = (real["sessions_s"] - real["server_s"]) / REAL
    print(f"a real pipeline: {session_s:.2f} s CPU of sessions (mean of {REAL}: first one, probe, reproduction)")
    print(f"the warm interpreter that forks them: {real['server_s']:.2f} s CPU, once; it counts among the many below")
    # What every command takes, whatever it builds, counts fully among the many and not among the few.
    few_s = (real["own_s"] - started()) / REAL
    many_s = (many["own_s"] + real["server_s"]) / MANY
    fine = within(f"{REAL} real pipelines", few_s, session_s)
    fine &= within(f"{MANY} pipelines with stand-ins for their sessions", many_s, session_s)
    print(f"wall-clock time: {real['wall_s']:.1f} s for {REAL}, {many['wall_s']:.1f} s for {MANY} with stand-ins")
    return 0 if fine else 1


def within(name: str, beside_s: float, session_s: float) -> bool:
    """Print what is not the sessions themselves; gives whether it is within the limit."""
    ok = beside_s <= LIMIT * session_s
    share = f"{beside_s * 1e3:.0f} ms CPU each = {beside_s / session_s:.1%} of a real one's sessions"
    print(f"{name}, beside their sessions: {share}, limit {LIMIT:.0%} {'ok' if ok else 'MISSED'}")
    return ok


def build(place: Path, kind: str, count: int) -> dict[str, float]:
    """Build so many pipelines in a process of their own; what it and its children took."""
    project = place / kind
    small_pipelines(project, count, kind=kind)
    command = [sys.executable, __file__, "--build", kind, str(place)]
    environment = {**os.environ, "LEAPP_CACHE": str(place / f"cache-{kind}"), "NO_COLOR": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr + done.stdout)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert len([*(project / "dist").glob("*/*/bundle.json")]) == count
    assert len([*(place / f"cache-{kind}").glob("actions/*/*.json")]) == count
    return found


def started() -> float:
    """CPU time of a process that has imported what builds, and builds nothing."""
    code = "import leapp.cli, leapp.build.cache, leapp.build.run, leapp.report.progress, resource; "
    code += "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


# --- the process that builds ----------------------------------------------------------------------------------------


def measured(kind: str, place: Path) -> int:
    """Run the command, and print what it took."""
    from leapp import cli

    options = ["--jobs", str(JOBS), "--out", str(place / kind / "dist")]
    server_s: list[float] = []
    if kind == "real":
        watch_servers(server_s)
        keep_template(place / "template")
    else:
        replace_sessions(place)
        options.append("--fresh")
    began = time.monotonic()
    code = cli.main(["build", str(place / kind / "manifests"), *options])
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    took = {
        "own_s": own.ru_utime + own.ru_stime,
        "sessions_s": children.ru_utime + children.ru_stime,
        "server_s": sum(server_s),
        "wall_s": time.monotonic() - began,
    }
    print(json.dumps(took))
    return code


def watch_servers(found: list[float]) -> None:
    """Note what warm interpreters took themselves, without the sessions that they forked."""
    from leapp.build import warm

    kind: Any = warm.WarmStarter
    close = kind.close

    def closing(starter: warm.WarmStarter) -> None:
        for server in starter._servers.values():
            if server._process is not None and server._process.poll() is None:
                fields = Path(f"/proc/{server._process.pid}/stat").read_text().rpartition(")")[2].split()
                found.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        close(starter)

    kind.close = closing


def keep_template(template: Path) -> None:
    """Keep what the sessions of one pipeline leave, for the stand-ins."""
    from leapp.build import run

    stages: Any = run
    run_session = stages.run_session

    def kept(request: Any, *, folder: Path, **options: Any) -> Any:
        outcome = run_session(request, folder=folder, **options)
        if request.pipeline.name == TEMPLATE:
            role = template / ("first" if request.probe is None else "probe")
            role.mkdir(parents=True)
            for name in ("compiled.json", "ending.json", "reads.json"):
                shutil.copyfile(folder / name, role / name)
            if request.probe is None:
                shutil.copytree(outcome.compiled.bundle, role / TEMPLATE)
                shutil.copytree(request.record, role / "record")
            else:
                shutil.copyfile(request.probe.report, role / "report.json")
        return outcome

    stages.run_session = kept


def replace_sessions(place: Path) -> None:
    """Start stand-ins where workers would be started. What they are asked for they read as JSON."""
    from leapp.build import _messages, isolate

    kind: Any = _messages.SessionRequest
    starting: Any = isolate
    write = kind.write

    def written(request: _messages.SessionRequest, path: Path) -> None:
        write(request, path)
        told = {
            "name": request.pipeline.name,
            "save_path": str(request.save_path),
            "record": None if request.record is None else str(request.record),
            "report": None if request.probe is None else str(request.probe.report),
        }
        Path(f"{path}.json").write_text(json.dumps(told))

    kind.write = written
    stand_in = Path(__file__).with_name("_stand_in.py")
    starting.WORKER_OPTIONS = ("-I", "-S", "-B", str(stand_in), str(place / "template"), str(place / "bundles"))


if __name__ == "__main__":
    sys.exit(measured(sys.argv[2], Path(sys.argv[3])) if sys.argv[1:2] == ["--build"] else main())
