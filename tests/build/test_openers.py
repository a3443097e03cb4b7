"""Who opened a file: the session and what it starts, or somebody else at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leapp.build import _listener, _openers
from leapp.build._openers import Openers
from leapp.build.cache import not_proved
from leapp.build.first import _writes
from leapp.build.reads import Lister, Reads, Written
from leapp.errors import ChangedInputError

pytestmark = pytest.mark.skipif(bool(_openers._unfit()), reason="the kernel cannot tell here who opens a file")

NATIVE = """
import ctypes, os, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def native(path, folder=-100, flags=0):
    number = libc.openat(folder, os.fsencode(path), flags)
    if number < 0:
        return
    buffer = ctypes.create_string_buffer(100)
    libc.read(number, buffer, 100)
    libc.close(number)
"""
"""Reads that no hook of Python's sees."""


def native_paths(got):
    assert got.reads.mixed == ()
    assert got.reads.complete
    return [each.path for each in got.reads.project if each.native]


def touch_everything(root: Path) -> None:
    """What an editor, git and another build do: read, list, make, write, rename, remove."""
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()
    (root / "made.txt").write_text("made")
    (root / "made.txt").rename(root / "saved.txt")
    (root / "gone.txt").unlink(missing_ok=True)
    with (root / "edited.txt").open("a") as file:
        file.write("more")
    (root / "new" / "below").mkdir(parents=True)
    (root / "new" / "below" / "file.txt").write_text("new")


def test_what_others_do_meanwhile_is_none_of_the_session_s(session):
    for name in ("mine.txt", "native.txt", "theirs.txt", "gone.txt", "edited.txt", "data/theirs.txt"):
        session.file(name)
    got = session.run(
        NATIVE + "open('mine.txt').read()\nnative('native.txt')\nothers_work()\nopen('mine.txt').read()",
        others=lambda: touch_everything(session.root),
    )
    assert got.paths() == ["mine.txt", "native.txt"]
    assert native_paths(got) == ["native.txt"]
    assert got.reads.written == got.reads.listings == got.reads.absent == ()


def test_what_native_code_looks_for_in_vain_is_noted(session):
    (session.root / "data").mkdir()
    got = session.run(
        NATIVE
        + "native('a.bin')\nos.chdir('data')\nnative('b.bin')\nnative('/nowhere/c.bin')\n"
        + "native('new.bin')\nopen('new.bin', 'w').close()\n"
        + "native('made.bin', flags=os.O_RDWR | os.O_CREAT)\n"
        + "subprocess.run(['/bin/sh', '-c', 'read x < d.bin; echo > e.bin'])\n",
        others=None,
    )
    assert native_paths(got) == []
    assert got.reads.absent == ("a.bin", "data/b.bin", "data/d.bin")


def test_what_the_session_reads_as_well_is_its_own(session):
    for name in ("one.txt", "two.txt"):
        session.file(name)
    got = session.run(
        NATIVE + "native('one.txt')\nothers_work()\nnative('two.txt')", others=lambda: touch_everything(session.root)
    )
    assert native_paths(got) == ["one.txt", "two.txt"]


@pytest.mark.parametrize(
    "code",
    [
        "native('a.txt')",
        "native(os.path.abspath('a.txt'))",
        "os.chdir('deep'); native('../a.txt')",
        "native('a.txt', folder=os.open('.', os.O_PATH))",
        "native('../a.txt', folder=os.open('deep', os.O_PATH))",
        "native('/proc/self/cwd/a.txt')",
        "native('link.txt')",
        # A moment later the name means another file.
        "native('link.txt'); os.unlink('link.txt'); os.symlink('deep', 'link.txt')",
        "native('folder/../a.txt')",
        "native('a.txt'); os.rename('a.txt', 'b.txt'); os.rename('b.txt', 'a.txt')",
        "how = (ctypes.c_uint64 * 3)(); libc.syscall(437, -100, b'a.txt', how, 24)",
        (
            "file = ctypes.c_void_p.in_dll(libc, 'stdin'); libc.fopen.restype = ctypes.c_void_p; "
            "libc.fgetc(ctypes.c_void_p(libc.fopen(b'a.txt', b'r')))"
        ),
        "native('a.txt', flags=os.O_RDWR)",
        "subprocess.run(['cat', 'a.txt'], stdout=subprocess.DEVNULL)",
        "subprocess.run(['sh', '-c', 'cat < a.txt'], stdout=subprocess.DEVNULL)",
        # Whoever started it is gone by then.
        (
            "subprocess.run(['sh', '-c', '(sleep 0.3; cat a.txt; touch $HOME/done) &'], stdout=subprocess.DEVNULL)\n"
            "while not os.path.exists(os.environ['HOME'] + '/done'): time.sleep(0.01)"
        ),
        "pid = os.fork()\nif pid == 0:\n    open('a.txt').read(); os._exit(0)\nos.waitpid(pid, 0)",
        "pid = os.fork()\nif pid == 0:\n    native('a.txt'); os._exit(0)\nos.waitpid(pid, 0)",
        (
            "import multiprocessing as m\np = m.get_context('fork').Process(target=native, args=('a.txt',))\n"
            "p.start(); p.join()"
        ),
        "each = threading.Thread(target=native, args=('a.txt',)); each.start(); each.join()",
        # The kernel opens it by itself.
        "subprocess.run(['./run'])",
    ],
)
def test_no_way_to_read_a_file_is_lost(session, code):
    session.file("a.txt", "#!/bin/sh\n")
    (session.root / "a.txt").chmod(0o755)
    session.file("deep/x.txt")
    (session.root / "link.txt").symlink_to("a.txt")
    (session.root / "folder").symlink_to("deep")
    script = session.file("run", f"#!{session.root}/a.txt\n")
    script.chmod(0o755)
    got = session.run(f"import time\n{NATIVE}others_work()\n{code}", others=lambda: touch_everything(session.root))
    assert got.reads is not None, got.text
    assert "a.txt" in native_paths(got)
    assert "deep/x.txt" not in got.paths()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_a_project_that_is_mounted_twice(session):
    session.file("a.txt")
    session.file("b.txt")
    again = session.outside / "again"
    again.mkdir()
    if subprocess.run(["mount", "--bind", session.root, again], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        got = session.run(
            NATIVE + f"others_work()\nnative('{again}/a.txt')", others=lambda: (session.root / "b.txt").read_text()
        )
    finally:
        subprocess.run(["umount", again], check=True)
    assert native_paths(got) == ["a.txt"]


def test_a_file_that_gets_the_number_of_one_that_the_session_had_opened_and_removed(session):
    def replaced() -> None:
        for number in range(50):
            session.file(f"{number}.new").read_text()

    got = session.run(
        NATIVE
        + "for n in range(50):\n    native(f'{n}.old', flags=0o102); native(f'{n}.old'); os.unlink(f'{n}.old')\n"
        + "others_work()",
        others=replaced,
    )
    assert not [path for path in got.paths() if path.endswith(".new")]


def test_listings_and_writes_by_native_code_are_the_session_s_and_those_of_others_are_not(session):
    for name in ("data/a.txt", "more/b.txt", "edited.txt", "old.txt", "far/old.txt"):
        session.file(name)
    got = session.run(
        """
        import subprocess
        others_work()
        steps = "ls data; echo x > out.txt; echo x >> edited.txt; rm old.txt; mkdir n; echo > n/new.txt; mv far near"
        subprocess.run(steps, shell=True, stdout=subprocess.DEVNULL)
        """,
        others=lambda: [[*(session.root / "more").iterdir()], (session.root / "others.txt").write_text("x")],
    )
    assert [(each.path, each.by) for each in got.reads.listings] == [("data", Lister.NATIVE)]
    assert {(each.path, each.how) for each in got.reads.written} >= {
        ("edited.txt", "changed"),
        ("n/new.txt", "created"),
        ("old.txt", "removed"),
        ("out.txt", "created"),
    }
    assert "others.txt" not in [each.path for each in got.reads.written]
    assert got.reads.mixed == ()


def test_a_file_that_another_process_made_meanwhile_is_an_input(session):
    got = session.run(
        NATIVE + "others_work()\nopen('by_python.txt').read()\nnative('by_native.txt')\nnative('own.txt', flags=0o102)"
        "\nnative('own.txt')",
        others=lambda: [session.file("by_python.txt"), session.file("by_native.txt"), session.file("unread.txt")],
    )
    assert got.paths() == ["by_native.txt", "by_python.txt"]
    assert [each.path for each in got.reads.written] == ["own.txt"]


def test_a_file_that_changed_after_it_was_read_and_who_did_it(session):
    session.file("a.txt")
    got = session.run("open('a.txt').read()\nothers_work()", others=lambda: session.file("a.txt", "others"))
    assert got.error == ChangedInputError.__name__
    assert "a.txt (written by a process that has nothing to do with the entry)" in got.text
    got = session.run("import subprocess\nopen('a.txt').read()\nsubprocess.run('echo > a.txt', shell=True)")
    assert "a.txt (written by native code of the entry, or by a program that it started)" in got.text


@pytest.mark.parametrize(
    ("before", "code", "why"),
    [
        ("reads.Openers.begin = lambda: 'not on this system'", "", "not on this system"),
        ("reads.Openers._put_on = lambda self: 'the kernel refused it'", "", "the kernel refused it"),
        ("", "libc.unshare(0x20000)", "unshare"),
        ("", "libc.chroot(b'/')", "chroot"),
        # Whoever is there may read a file for the session.
        ("", "import socket; socket.socket().connect_ex(('127.0.0.1', 1))", "port 1"),
        ("", "import socket; socket.socket(socket.AF_INET6).connect_ex(('::1', 1))", "port 1"),
        ("", "import socket; socket.socket(socket.AF_UNIX).connect_ex('/no/such')", "/no/such"),
        ("", "libc.syscall(425, 1, ctypes.create_string_buffer(120))", "io_uring_setup"),
    ],
)
def test_where_it_cannot_be_told_everything_counts_and_the_record_says_so(session, before, code, why):
    for name in ("mine.txt", "theirs.txt", "edited.txt", "gone.txt"):
        session.file(name)
    got = session.run(
        f"{NATIVE}{code}\nopen('mine.txt').read()\nnative('mine.txt')\nothers_work()\nopen('mine.txt').read()",
        before=before,
        others=lambda: touch_everything(session.root),
    )
    assert {"mine.txt", "theirs.txt"} <= set(got.paths())
    assert "saved.txt" in [each.path for each in got.reads.written]
    assert got.reads.complete
    assert len(got.reads.mixed) == 1
    assert why in got.reads.mixed[0]


def test_the_session_s_own_sockets_and_those_of_the_c_library_are_nobody_else_s(session):
    session.file("theirs.txt")
    got = session.run(
        """
        import os, pwd, socket
        place = os.environ["HOME"] + "/socket"
        server = socket.socket(socket.AF_UNIX); server.bind(place); server.listen()
        socket.socket(socket.AF_UNIX).connect(place)
        socket.socket(socket.AF_UNIX).connect_ex("/var/run/nscd/socket")
        pwd.getpwuid(os.getuid())
        # Other machines, and who looks up their names.
        for address in (("127.0.0.53", 53), ("192.0.2.1", 80)):
            socket.socket(type=socket.SOCK_DGRAM).connect_ex(address)
        others_work()
        """,
        others=lambda: (session.root / "theirs.txt").read_text(),
    )
    assert got.reads.mixed == got.reads.project == ()


def test_memory_that_may_not_be_read_is_found_out_before_anything_is_stopped(session):
    session.file("a.txt")
    refused = "ask = reads.Openers._ask; reads.Openers._ask = lambda *given: {**ask(*given), 'text': ''}"
    got = session.run("open('a.txt').read()", before=refused)
    assert got.paths() == ["a.txt"]
    assert "read the memory" in got.reads.mixed[0]


def test_a_listener_that_was_ended_leaves_no_hole(session):
    session.file("a.txt")
    session.file("b.txt")
    got = session.run(
        """
        open("a.txt").read(); others_work()
        recorder._openers._channel.shutdown(2)
        """,
        others=lambda: (session.root / "b.txt").read_text(),
    )
    assert got.paths() == ["a.txt", "b.txt"]
    assert "ended by somebody" in got.reads.mixed[0]


def test_whoever_is_left_behind_may_open_files(session):
    session.run("import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 1; cat /etc/hostname > $HOME/late; exit'])")
    for _ in range(600):
        if (session.own / "late").exists() and (session.own / "late").read_text():
            return
        subprocess.run(["sleep", "0.05"], check=True)
    pytest.fail("a process of a session that is over could not open a file")


def test_who_is_asked_to_end_may_still_open_files(session):
    got = session.run(
        """
        import os, signal
        signal.signal(signal.SIGTERM, lambda *_: print(len(open("/etc/passwd").read()) > 0))
        os.killpg(0, signal.SIGTERM)
        """,
        python=("setsid", "--wait", sys.executable) if shutil.which("setsid") else (sys.executable,),
    )
    assert got.printed.strip() == "True"


def test_signals_do_not_interrupt_native_code_that_opens_a_file(session):
    session.file("a.txt")
    got = session.run(
        NATIVE
        + """
import signal
hits = 0
def tick(*_):
    global hits
    hits += 1
signal.signal(signal.SIGALRM, tick)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
failed = 0
while hits < 100:
    number = libc.open(b"a.txt", 0)
    failed += number < 0
    libc.close(number)
    open("a.txt").close()
signal.setitimer(signal.ITIMER_REAL, 0)
print(failed)
"""
    )
    assert got.printed.strip() == "0"


def test_many_threads_and_processes_at_once(session):
    for number in range(200):
        session.file(f"data/{number}.txt")
    got = session.run(
        NATIVE
        + """
def some(first):
    for number in range(first, 200, 8): native(f"data/{number}.txt")
pids = []
for first in range(4):
    if not (pid := os.fork()):
        some(first); os._exit(0)
    pids.append(pid)
threads = [threading.Thread(target=some, args=(first,)) for first in range(4, 8)]
for each in threads: each.start()
for each in threads: each.join()
for pid in pids: os.waitpid(pid, 0)
""",
        others=lambda: None,
    )
    assert len(native_paths(got)) == 200


def test_the_filter_tells_of_the_calls_in_the_table_and_lets_all_others_pass():
    for processor, numbers in _listener.NUMBERS.values():
        program = [*_openers._INSTRUCTION.iter_unpack(_openers._filter(numbers, processor))]
        told = {number for name, number in numbers.items() if name != "seccomp"}
        for number in range(600):
            assert (_run(program, number, processor) == _openers._TELL) == (number in told)
        assert _run(program, 0, processor + 1) == _openers._TELL
        assert _run(program, _openers._X32 + 2, processor) == _openers._TELL


def _run(program, number, processor):
    """What the kernel makes of the program."""
    at, value = 0, 0
    while True:
        code, yes, no, operand = program[at]
        at += 1
        if code == _openers._LOAD:
            value = {0: number, 4: processor}[operand]
        elif code == _openers._RETURN:
            return operand
        else:
            met = value == operand if code == _openers._EQUAL else value >= operand
            at += yes if met else no


def test_a_listener_that_is_not_wanted_goes_by_itself():
    openers = Openers.begin()
    assert isinstance(openers, Openers)
    openers._process.wait()
    process = Path(f"/proc/{openers._ask({})['pid']}")
    assert b"_listener.py" in (process / "cmdline").read_bytes()
    openers.close()
    deadline = time.monotonic() + 30
    while process.exists() and "State:\tZ" not in (process / "status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_entry_is_not_accused_of_what_may_be_another_s_work():
    native, own = Written("a.txt", "changed", native=True), Written("b.txt", "created")
    assert list(_writes(Reads(written=(native, own)))) == [
        "The entry wrote outside its session's folders: a.txt, b.txt."
    ]
    assert list(_writes(Reads(written=(native, own), mixed=("no kernel",)))) == [
        "The entry wrote outside its session's folders: b.txt.",
        "While the entry ran, its native code or some other process wrote to the project: a.txt.",
    ]
    mixed = Reads(written=(native,), mixed=("no kernel",))
    record = type("Record", (), {"complete": True, "notes": ()})()
    why = not_proved([mixed], record, root=Path("/project"))
    assert why == "it or some other process writes outside its session's folders (a.txt)"
