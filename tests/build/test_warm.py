"""Sessions in children of a warm interpreter: what they see, what they give, and what is left when something dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from build_projects import Project

from leapp import cli
from leapp.build import run
from leapp.build.isolate import FRESH, ProcessKind
from leapp.build.server import _hidden
from leapp.build.warm import WarmStarter, supported
from leapp.bundle import read

pytestmark = pytest.mark.skipif(not supported(), reason="needs Linux 5.3")

SEEN = """
import json, os, random, resource, signal, sys, tempfile
import numpy as np
import torch

def main():
    environment = dict(os.environ)
    print(json.dumps({
        "environment": environment, "order": [*environment], "cwd": os.getcwd(), "path": sys.path, "argv": sys.argv,
        "orig_argv": sys.orig_argv, "flags": repr(sys.flags), "main": sys.modules["__main__"].__spec__.name,
        "random": [random.random(), float(np.random.rand()), float(torch.rand(()))], "hash": hash("text"),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), len(os.listdir("/proc/self/task"))],
        "deterministic": torch.are_deterministic_algorithms_enabled(), "stdin": sys.stdin.read(),
        "streams": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through, sys.stderr.encoding],
        "home": os.listdir(os.path.expanduser("~")), "temporary": tempfile.gettempdir(), "umask": os.umask(0o022),
        "descriptors": [os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in (0, 1, 2)],
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()], "nice": os.nice(0),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "signals": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "children": os.path.exists(f"/proc/self/task/{os.getpid()}/children"),
        "marked": f"HOME={os.environ['HOME']}".encode() in open("/proc/self/environ", "rb").read().split(b"\\0"),
    }))
    raise SystemExit(9)
"""

ENTRIES = """
import signal, subprocess, time


def fine():
    record()


def two():
    record(factor=2.0)
    record("other", factor=3.0)


def hangs_up():
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves():
    os._exit(5)


def daemon():
    # Without a program of its own, in a session of its own: only its memory tells whose it is.
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(120)
        os._exit(0)
    os.wait()
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_server():
    if "leapp.build.server" in open(f"/proc/{os.getppid()}/cmdline").read():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    record()


def waits():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
    open(os.environ["LEAPP_TEST_MARK"] + str(os.getpid()), "w").close()
    time.sleep(120)
"""
NAMES = ("fine", "two", "hangs_up", "leaves", "daemon", "kills_its_server")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").touch()
    found = Project(root)
    found.source("seen.py", SEEN, head="")
    found.source("entry.py", ENTRIES)
    for name in NAMES:
        found.manifest(name, f"entry.py:{name}")
    return found


@pytest.fixture(scope="module")
def warm():
    with WarmStarter() as starter:
        yield starter


def running_with(text: str) -> list[int]:
    """Processes whose first environment or command line holds ``text``, this one aside."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            shown = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if text.encode() in shown and not ended and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def gone(text: str, within_s: float = 20) -> list[int]:
    deadline = time.monotonic() + within_s
    while (left := running_with(text)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def test_a_forked_session_sees_what_a_fresh_one_sees(place, warm):
    seen = []
    for name, starter in (("fresh", FRESH), ("forked", warm)):
        place.manifest(name, "seen.py:main", "[session]\nseed = 5\npass_env = ['LEAPP_TEST_A']\n")
        outcome = place.session(name, starter=starter, outer={**os.environ, "LEAPP_TEST_A": "t"})
        assert (outcome.process, outcome.note) == (ProcessKind(name), "")
        assert "status 9" in outcome.ending.text
        # Its folders have its own name in them.
        seen.append(json.loads(outcome.log.read_text().replace(f"sessions/{name}", "sessions/X")))
    fresh, forked = seen
    assert forked["environment"].items() ^ fresh["environment"].items() == set()
    assert forked == fresh
    assert fresh["marked"]
    assert fresh["threads"] == [1, 1, 1]


def test_one_childs_end_is_no_ones_else(place, warm):
    """A segfault, an exit without a word, a killed one with a daemon, and two that are fine, all at once."""
    outcomes = {}
    names = ("fine", "hangs_up", "leaves", "daemon", "two")
    threads = [
        threading.Thread(target=lambda name=name: outcomes.update({name: place.session(name, starter=warm)}))
        for name in names
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {name: outcome.process for name, outcome in outcomes.items()} == dict.fromkeys(names, ProcessKind.FORKED)
    assert [outcomes[name].status for name in names] == [0, -signal.SIGSEGV, 5, -signal.SIGKILL, 0]
    assert [name for name in names if outcomes[name].compiled is not None] == ["fine", "two"]
    assert "Segmentation fault" in outcomes["hangs_up"].log.read_text()
    assert not gone(str(place.root / "sessions"))


def test_a_dead_server_is_replaced_by_fresh_interpreters(place):
    with WarmStarter() as starter:
        again = place.session("kills_its_server", starter=starter)
        assert (again.process, again.status) == (ProcessKind.FRESH, 0)
        assert again.compiled is not None
        assert "run again, in a fresh interpreter, because the warm one was killed" in again.note
        place.manifest("after", "entry.py:fine")
        after = place.session("after", starter=starter)
        assert (after.process, after.compiled.status) == (ProcessKind.FRESH, "ok")
        assert "because the warm one was killed" in after.note


@pytest.fixture(scope="module")
def both_ways(place, tmp_path_factory):
    """One manifest with all formats, built from the command line: (evidence of its session, bundle) each."""
    place.manifest("formats", "entry.py:two", '[nodes.scale]\nformats = ["torchscript", "onnx", "pt2"]\n')
    found = {}
    for name, options in (("forked", []), ("fresh", ["--fresh"])):
        out = tmp_path_factory.mktemp(name)
        manifest = str(place.manifests["formats"])
        assert cli.main(["build", manifest, "--no-reproduce", "--out", str(out), *options, "--json"]) == 0
        bundle = read.load(out / "formats" / "1.0.0")
        found[name] = json.loads((bundle.folder / "evidence" / "session.json").read_bytes()), bundle
    return found


def test_the_bytes_are_those_of_a_fresh_interpreter(both_ways):
    (said, forked), (said_fresh, fresh) = both_ways["forked"], both_ways["fresh"]
    assert (said["process"], said_fresh["process"]) == ("forked", "fresh")
    assert forked.digest == fresh.digest
    assert forked.files == fresh.files
    assert [*fresh.node("scale").artifacts]


def test_the_recorded_reads_are_the_same(both_ways):
    forked, fresh = (
        json.loads((bundle.folder / "evidence" / "reads.json").read_bytes()) for _, bundle in both_ways.values()
    )
    assert forked == fresh
    assert [each["path"] for each in forked["project"]] == ["entry.py"]


def test_no_process_of_a_killed_build_is_left(place, tmp_path):
    place.manifest("waits", "entry.py:waits", "[session]\npass_env = ['LEAPP_TEST_MARK']\n")
    place.manifest("waits_too", "entry.py:waits", "[session]\npass_env = ['LEAPP_TEST_MARK']\n")
    mark = f"{tmp_path}/mark-"
    command = [sys.executable, "-m", "leapp", "build", "--jobs", "2", "--out", str(tmp_path / "dist")]
    build = subprocess.Popen(
        [*command, *(str(place.manifests[name]) for name in ("waits", "waits_too"))],
        env={**os.environ, "LEAPP_TEST_MARK": mark, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 100
        while len(list(tmp_path.glob("mark-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(list(tmp_path.glob("mark-*"))) == 2
        assert len(running_with(mark)) >= 8  # the build, its server, two sessions, and two children of each
    finally:
        build.kill()
        build.wait()
    assert not gone(mark)
    assert not list(tmp_path.glob("leapp-server-*"))


def test_who_gets_a_fresh_interpreter(place):
    plan = place.plan("fine")
    session = plan.manifest.session

    def starter(plan, warm):
        return run._Context(plan, place.root, threading.Event(), lambda *_: None, 1.0, warm).starter

    with WarmStarter() as warm:
        assert starter(plan, warm) is warm
        assert starter(plan, None) is FRESH
        two_threads = replace(plan, manifest=replace(plan.manifest, session=replace(session, threads=2)))
        assert starter(two_threads, warm) is FRESH
        assert starter(replace(plan, python="/usr/bin/python3"), warm) is FRESH


@pytest.mark.parametrize("file", ["onnx.py", "onnx/__init__.py"])
def test_a_project_may_hide_a_package_that_is_loaded_already(tmp_path, file):
    assert not _hidden(("onnx", "xml"), (str(tmp_path),))
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert str(path) in _hidden(("onnx", "xml"), (str(tmp_path / "other"), str(tmp_path)))


def test_a_project_that_does_gets_what_it_would_import(project, warm):
    project.source("networkx.py", "MINE = 3.0\n", head="")
    project.source("entry.py", "import networkx\ndef main():\n    record(factor=networkx.MINE)\n")
    project.manifest("hides", "entry.py:main")
    outcome = project.session("hides", starter=warm)
    assert (outcome.process, outcome.note, outcome.compiled.status) == (ProcessKind.FRESH, "", "ok")
