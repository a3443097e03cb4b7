"""A session's process: its environment, its end, and nothing left behind."""

from __future__ import annotations

import json
import os
import sysconfig
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leapp.build._messages import EndingKind
from leapp.build.first import _of_variable
from leapp.build.isolate import FRESH, HowEnded, Launch, Process, environment_digests, session_environment
from leapp.build.observe import is_local
from leapp.build.worker import users_line, wanted_variable
from leapp.errors import LeftTraceError


def environment(outer, **options):
    return session_environment(
        outer, home=Path("/h"), temporary=Path("/t"), **{"seed": 3, "threads": 2, "pass_env": ()} | options
    )


def test_environment_is_what_is_kept_and_set_and_nothing_else():
    found = environment({"PATH": "/bin", "SECRET": "x", "PYTHONPATH": "/evil", "LC_ALL": "de_DE", "HOME": "/root"})
    assert found == {
        "PATH": "/bin",
        "HOME": "/h",
        "TMPDIR": "/t",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "3",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "NUMEXPR_NUM_THREADS": "2",
        "VECLIB_MAXIMUM_THREADS": "2",
    }


def test_pass_env_adds_what_is_set_and_cannot_undo_what_is_pinned():
    found = environment({"GIVEN": "t", "TZ": "Asia/Tokyo"}, pass_env=("GIVEN", "TZ", "ABSENT"))
    assert found["GIVEN"] == "t"
    assert found["TZ"] == "UTC"
    assert "ABSENT" not in found


def test_variables_are_recorded_as_digests():
    found = environment_digests({"B": "secret", "C": "no"}, ["B", "A", "B"])
    assert list(found) == ["A", "B"]
    assert found["A"] is None
    assert found["B"] == "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("", True),
        ("0.0.0.0", True),  # noqa: S104
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("example.org", False),
        ("::2", False),
    ],
)
def test_what_stays_on_this_machine(host, local):
    assert is_local(host) is local


def test_session_is_pinned(project):
    project.source(
        "entry.py",
        """
        import json, random
        import numpy as np

        def main():
            print(json.dumps({
                "environment": dict(os.environ), "cwd": os.getcwd(), "random": random.random(),
                "numpy": float(np.random.rand()), "torch": float(torch.rand(())), "threads": torch.get_num_threads(),
                "deterministic": torch.are_deterministic_algorithms_enabled(), "stdin": sys.stdin.read(),
                "home": os.listdir(os.path.expanduser("~")), "argv": sys.argv, "bytecode": sys.dont_write_bytecode,
            }))
            raise SystemExit(9)
        """,
    )
    project.manifest("pinned", "entry.py:main", "[session]\nseed = 5\npass_env = ['LEAPP_TEST_A']\n")
    outcome = project.session("pinned", outer={**os.environ, "LEAPP_TEST_A": "t", "LEAPP_TEST_B": "o"})
    assert (outcome.ending.kind, outcome.ending.exit_code) == (EndingKind.EXITED, 3)
    assert "status 9" in outcome.ending.text
    seen = json.loads(outcome.log.read_text().splitlines()[0])
    assert "LEAPP_TEST_B" not in seen["environment"]
    assert seen["environment"]["LEAPP_TEST_A"] == "t"
    assert seen["environment"]["PYTHONHASHSEED"] == "5"
    assert seen["cwd"] == str(project.root)
    assert seen["stdin"] == ""
    assert seen["home"] == []
    assert (seen["threads"], seen["deterministic"], seen["bytecode"]) == (1, True, True)
    import random

    import numpy as np
    import torch

    assert seen["random"] == random.Random(5).random()  # noqa: S311
    assert seen["numpy"] == float(np.random.RandomState(5).rand())
    assert seen["torch"] == float(torch.rand((), generator=torch.Generator().manual_seed(5)))
    assert not list(project.root.rglob("__pycache__"))


ONLY = "build hands on only the variables that its manifest names, below [session]"


@pytest.mark.parametrize(
    ("passed", "outer", "said"),
    [
        ((), {"SEED": "1"}, f'SEED is set here, but a {ONLY}: pass_env = ["SEED"].'),
        (("A",), {}, f'SEED has to be set, and a {ONLY}: pass_env = ["A", "SEED"].'),
        (("SEED",), {}, "[session] pass_env hands SEED on, and it is not set here: set it."),
    ],
)
def test_what_to_do_about_a_variable(passed, outer, said):
    session = SimpleNamespace(pass_env=passed)
    plan = SimpleNamespace(manifest=SimpleNamespace(session=session), outer_environment=outer)
    assert _of_variable(SimpleNamespace(plan=plan), "SEED") == said


def test_only_the_environment_wants_variables(monkeypatch):
    monkeypatch.delenv("LEAPP_TEST_C", raising=False)

    def raised(function):
        with pytest.raises((KeyError, RuntimeError)) as caught:
            function()
        return wanted_variable(caught.value)

    def instead():
        try:
            os.environ["LEAPP_TEST_C"]
        except KeyError:
            raise RuntimeError("set it") from None

    assert raised(lambda: os.environ["LEAPP_TEST_C"]) == "LEAPP_TEST_C"
    assert raised(instead) == "LEAPP_TEST_C"
    assert raised(lambda: {}["LEAPP_TEST_C"]) == ""


def test_users_traceback_has_none_of_our_frames(project):
    project.source(
        "entry.py",
        """
        def main():
            try:
                {}["absent"]
            except KeyError as error:
                raise ValueError("boom") from error
        """,
    )
    project.manifest("boom", "entry.py:main")
    outcome = project.session("boom")
    ending = outcome.ending
    assert (ending.kind, ending.exit_code, ending.text) == (EndingKind.RAISED, 3, "raised ValueError: boom")
    assert "direct cause" in ending.traceback
    assert ending.traceback.count("entry.py") == 2
    assert "leapp/build" not in ending.traceback
    assert ending.traceback in outcome.log.read_text()


@pytest.mark.parametrize("library", ["purelib", "stdlib"])
def test_an_error_of_ours_is_at_the_users_line_not_at_a_librarys(library):
    there: dict[str, Any] = {}
    file = f"{sysconfig.get_path(library)}/torch/overrides.py"
    exec(compile("def fail(error):\n    raise error\n", file, "exec"), there)  # a file of a library
    with pytest.raises(LeftTraceError) as raised:
        there["fail"](LeftTraceError(detail="it left", warning="RandomOpWarning"))
    error = raised.value
    assert users_line(error).startswith(f"Raised by {__file__}:")
    # Of an entry that is installed itself, there is no other line.
    error = error.with_traceback(error.__traceback__.tb_next)
    assert users_line(error).startswith(f"Raised by {file}:2, in fail")


class OnceItPrinted:
    """Fresh interpreters, started for as long as it takes them to print so many words: a loaded machine takes its time.

    A session's time counts from when it is started.
    """

    def __init__(self, words: int) -> None:
        self.words = words

    def start(self, launch: Launch) -> Process:
        process = FRESH.start(launch)
        while len(launch.log.read_text().split()) < self.words and not process.has_exited():
            time.sleep(0.05)
        return process


def test_time_out_ends_the_whole_tree(project):
    """Also a child that ignores the polite signal, and one that left the process group."""
    project.source(
        "entry.py",
        """
        import subprocess, time

        CODE = '''
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        time.sleep(60)
        '''

        def main():
            for outside in (False, True):
                subprocess.Popen([sys.executable, "-c", CODE], start_new_session=outside)
            time.sleep(60)
        """,
        head="import sys\n",
    )
    project.manifest("slow", "entry.py:main", timeout_s=0.5)
    outcome = project.session("slow", starter=OnceItPrinted(2))
    assert outcome.how is HowEnded.TIMEOUT
    assert outcome.ending is None
    pids = [int(word) for word in outcome.log.read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5  # a signal is on its way for a moment
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    assert not [pid for pid in pids if alive(pid)]


def test_cancelling_ends_a_session_at_once(project):
    project.source("entry.py", "import time\ntime.sleep(60)\n", head="")
    project.manifest("slow", "entry.py")
    cancel = threading.Event()
    threading.Timer(1.0, cancel.set).start()
    started = time.monotonic()
    outcome = project.session("slow", cancel=cancel)
    assert outcome.how is HowEnded.CANCELLED
    assert time.monotonic() - started < 20


def test_a_forked_child_of_the_entry_reports_nothing(project):
    project.source(
        "entry.py",
        """
        def main():
            pid = os.fork()
            if pid == 0:
                raise ValueError("in the fork")
            os.waitpid(pid, 0)
            raise KeyError("in the parent")
        """,
    )
    project.manifest("forks", "entry.py:main")
    assert project.session("forks").ending.text == "raised KeyError: 'in the parent'"


@pytest.mark.parametrize(("allowed", "error"), [("false", "NetworkRefusedError"), ("true", "NothingAnnotatedError")])
def test_connections_are_refused_unless_allowed(project, allowed, error):
    project.source(
        "entry.py",
        """
        import socket
        here = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(here.getsockname()).close()
        with socket.socket(type=socket.SOCK_DGRAM) as away:
            away.connect(("192.0.2.1", 9))  # a datagram socket: nothing is sent
        """,
        head="",
    )
    project.manifest("net", "entry.py", f"[session]\nnetwork = {allowed}\n")
    ending = project.session("net").ending
    assert (ending.kind, ending.error_class, ending.exit_code) == (EndingKind.REFUSED, error, 1)
    assert ("192.0.2.1:9" in str(ending.error())) is (allowed == "false")


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
