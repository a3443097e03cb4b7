"""What a session read and wrote. Each test runs a program of its own in a process of its own, as a build does."""

from __future__ import annotations

import _ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from leapp.build import _inotify
from leapp.build._openers import Openers
from leapp.build.reads import FileRead, Link, Lister, Listing, ReadRecorder, Written
from leapp.errors import ChangedInputError, UndeclaredInputError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file-system notification is Linux's")


def digest(content: str | bytes) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()


def test_all_ways_in_which_python_opens_a_file(session):
    names = [
        *("text.txt", "bytes.bin", "low.bin", "path.txt", "conf.json", "conf.yaml", "descriptor.txt", "line.txt"),
        *("updated.txt", "array.npy", "tree/deep/below.txt", "mapped.bin"),
    ]
    for name in names:
        session.file(name, "[1, 2]")
    session.file("not_read.txt")
    got = session.run(
        """
        import io, json, linecache, mmap, os, pathlib, yaml
        open("text.txt").read()
        open(b"bytes.bin", "rb").read()
        low = os.open("low.bin", os.O_RDONLY); os.close(low)
        pathlib.Path("path.txt").read_text()
        json.load(open("conf.json")); yaml.safe_load(open("conf.yaml"))
        number = os.open("descriptor.txt", os.O_RDONLY)
        with open(number) as file: file.read()
        linecache.getlines("line.txt")
        open("updated.txt", "r+").close()
        io.FileIO("array.npy").read()
        os.chdir("tree"); open("deep/below.txt").read(); os.chdir("..")
        with open("mapped.bin", "rb") as file: kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        """
    )
    assert got.paths() == sorted(names)
    assert all(each == FileRead(each.path, digest("[1, 2]"), 6) for each in got.reads.project)
    assert got.reads.complete
    assert got.reads.undeclared == ()
    assert got.reads.written == (Written("updated.txt", "changed"),)


def test_relative_paths_follow_the_working_folder_of_their_moment(session):
    session.file("same.txt", "outer")
    session.file("a/same.txt", "inner")
    got = session.run("import os\nopen('same.txt').read()\nos.chdir('a')\nopen('same.txt').read()\nos.chdir('..')")
    assert [(each.path, each.sha256) for each in got.reads.project] == [
        ("a/same.txt", digest("inner")),
        ("same.txt", digest("outer")),
    ]


def test_imports_count_as_their_sources(session):
    session.file("plain.py", "value = 1")
    session.file("package/__init__.py", "")
    session.file("package/part.py", "from . import other")
    session.file("package/other.py", "")
    session.file("spaces/one/piece.py", "")
    session.file("unused.py", "")
    archive = session.root / "zipped.zip"
    import zipfile

    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("from_zip.py", "value = 2")
    # With a compiled module in place, Python opens that and not the source.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "plain.py"], cwd=session.root, check=True)
    assert list((session.root / "__pycache__").glob("plain.*.pyc"))
    got = session.run(
        """
        import importlib.metadata, pkgutil, sys
        importlib.metadata.version("pytest"); list(pkgutil.iter_modules(["spaces"]))
        import plain, package.part, spaces.one.piece
        sys.path.insert(0, "zipped.zip")
        import from_zip
        """
    )
    assert got.paths() == [
        *("package/__init__.py", "package/other.py", "package/part.py"),
        *("plain.py", "spaces/one/piece.py", "zipped.zip"),
    ]
    assert not any(each.native for each in got.reads.project)
    assert {each.path for each in got.reads.listings if each.by is Lister.IMPORT} >= {
        ".",
        "package",
        "spaces",
        "spaces/one",
    }
    assert all(each.by is Lister.IMPORT for each in got.reads.listings)


def test_a_compiled_module_without_source_counts_itself(session):
    session.file("only.py", "value = 1")
    subprocess.run([sys.executable, "-m", "compileall", "-b", "-q", "only.py"], cwd=session.root, check=True)
    (session.root / "only.py").unlink()
    assert session.run("import only").paths() == ["only.pyc"]


def test_native_readers(session):
    """None of these opens its file through Python."""
    make = """
        import torch, safetensors.torch, numpy as np, onnx, cv2
        cv2.imwrite("frame.png", np.zeros((4, 4, 3), np.uint8))
        from onnx import helper as h, TensorProto as T
        torch.jit.script(torch.nn.Linear(2, 2)).save("model.pt")
        safetensors.torch.save_file({"a": torch.ones(3)}, "data/a.safetensors")
        safetensors.torch.save_file({"a": torch.ones(3)}, "data/b.safetensors")
        port = lambda n: h.make_tensor_value_info(n, T.FLOAT, [2])
        graph = h.make_graph([h.make_node("Abs", ["x"], ["y"])], "g", [port("x")], [port("y")])
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), "net.onnx")
        """
    (session.root / "data").mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(make)], cwd=session.root, check=True, timeout=100
    )
    got = session.run(
        """
        import warnings; warnings.simplefilter("ignore")
        import torch, safetensors.torch, safetensors, onnxruntime, os, cv2
        assert cv2.imread("frame.png") is not None
        torch.jit.load("model.pt")
        safetensors.torch.load_file("data/a.safetensors")
        with safetensors.safe_open(os.path.abspath("data/b.safetensors"), "pt") as file: file.get_tensor("a")
        onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
        """
    )
    assert got.paths() == ["data/a.safetensors", "data/b.safetensors", "frame.png", "model.pt", "net.onnx"]
    assert [each.native for each in got.reads.project] == [True] * 5
    assert got.reads.project[3].sha256 == digest((session.root / "model.pt").read_bytes())
    assert got.reads.complete
    assert got.reads.undeclared == ()


def test_other_processes(session):
    session.file("shell.txt")
    session.file("python.txt")
    session.file("forked.txt")
    session.file("tool.sh", "#!/bin/sh\ncat shell.txt\n").chmod(0o755)
    got = session.run(
        """
        import os, subprocess, sys
        subprocess.run(["./tool.sh"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-c", "open('python.txt').read()"], check=True)
        pid = os.fork()
        if pid == 0:
            try: open("forked.txt").read(); recorder.close()
            finally: os._exit(0)
        os.waitpid(pid, 0)
        try: os.wait()
        except ChildProcessError: print("no child of ours")
        """
    )
    assert got.paths() == ["forked.txt", "python.txt", "shell.txt", "tool.sh"]
    assert all(each.native for each in got.reads.project)
    assert got.reads.started == tuple(sorted({"./tool.sh", sys.executable}))
    assert "no child of ours" in got.printed


def test_folders_made_later_are_watched_and_hold_no_inputs(session):
    session.file("kept.txt", "x")
    got = session.run(
        """
        import os, subprocess, time
        os.makedirs("made/deep")
        open("made/deep/own.txt", "w").write("x")
        open("made/deep/own.txt").read()
        subprocess.run(["sh", "-c", "mkdir -p native/deep && cp kept.txt native/deep/copy && cat native/deep/copy"],
                       stdout=subprocess.DEVNULL, check=True)
        time.sleep(0.05)
        subprocess.run(["sh", "-c", "echo y > native/deep/late && cat native/deep/late"],
                       stdout=subprocess.DEVNULL, check=True)
        open("native/deep/late").read()
        """
    )
    assert got.paths() == ["kept.txt"]
    assert got.reads.written == (
        Written("made/deep/own.txt", "created"),
        Written("native/deep/copy", "created", native=True),
        Written("native/deep/late", "created", native=True),
    )


def test_links_are_recorded_with_their_targets(session):
    session.file("real/weights.bin", "w")
    session.file("far.bin", "f", of=session.outside)
    (session.root / "link.bin").symlink_to("real/weights.bin")
    (session.root / "folder").symlink_to("real")
    (session.root / "away.bin").symlink_to(session.outside / "far.bin")
    (session.root / "loop").symlink_to("loop")
    got = session.run(
        """
        open("link.bin").read(); open("folder/weights.bin").read(); open("away.bin").read()
        try: open("loop")
        except OSError: pass
        """,
        inputs=["away.bin"],
    )
    assert got.paths() == ["real/weights.bin"]
    assert got.reads.declared == (FileRead("away.bin", digest("f"), 1),)
    far = str(session.outside / "far.bin")
    assert {Link("link.bin", "real/weights.bin"), Link("folder", "real"), Link("away.bin", far)} <= {*got.reads.links}


def test_files_outside_are_declared_or_not(session):
    session.file("a.pt", "a", of=session.outside)
    session.file("b.pt", "b", of=session.outside)
    session.file("c.txt", "c", of=session.outside)
    session.file("e.pt", "e", of=session.outside)
    session.file("scratch.txt", "own", of=session.own)
    absolute = str(session.outside / "b.pt")
    got = session.run(
        """
        import os, ssl, locale, mimetypes, zoneinfo, subprocess, torch
        out = os.environ["OUTSIDE"]
        open("../outside/a.pt").read()
        subprocess.run(["cat", out + "/b.pt"], stdout=subprocess.DEVNULL, check=True)  # no Python: notification
        open(out + "/c.txt").read()
        open(os.path.expanduser("~/scratch.txt")).read()
        mimetypes.init(); zoneinfo.ZoneInfo("Europe/Berlin"); ssl.create_default_context()
        open("/proc/self/status").read(); open(torch.__file__).read(); open(os.__file__).read()
        """,
        inputs=["../outside/a.pt", absolute, "../outside/e.pt"],
    )
    assert got.reads.declared == (
        FileRead("../outside/a.pt", digest("a"), 1),
        FileRead(absolute, digest("b"), 1, native=True),
    )
    assert got.reads.undeclared == (FileRead(str(session.outside / "c.txt"), digest("c"), 1),)
    assert got.reads.project == ()
    assert got.reads.written == ()
    with pytest.raises(UndeclaredInputError, match=r"m\.toml: .*outside/c\.txt"):
        got.reads.require_declared("m.toml")


def test_this_package_in_its_own_checkout_is_no_input():
    """The repository builds its own examples: there the package lies in the project and still is the tool chain."""
    root = Path(_inotify.__file__).parents[2]
    code = (
        "import sys\nfrom pathlib import Path\nfrom leapp.build.reads import ReadRecorder\n"
        f"recorder = ReadRecorder(Path({str(root)!r}))\nrecorder.install()\nimport leapp.doctor\n"
        f"open({str(root / 'pyproject.toml')!r}).read()\n"
        "reads = recorder.collect()\n"
        "print([each.path for each in reads.project if not each.native], [each.path for each in reads.undeclared])"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "['pyproject.toml'] []"


def test_virtual_environments_in_the_project_are_the_tool_chain_or_not_watched(session):
    session.file("env/pyvenv.cfg", "")
    session.file("env/data.txt")
    session.file("node_modules/x.txt")
    session.file("dist/old.txt")
    session.file("lib/dist/kept.txt")
    got = session.run(
        """
        import subprocess
        names = ["env/data.txt", "node_modules/x.txt", "dist/old.txt", "lib/dist/kept.txt"]
        subprocess.run(["cat", *names], stdout=subprocess.DEVNULL, check=True)
        open("dist/old.txt").read()
        """
    )
    assert got.paths() == ["dist/old.txt", "lib/dist/kept.txt"]


def test_paths_that_are_not_there_are_recorded(session):
    got = session.run(
        """
        import os, torch
        for name in ("local.yaml", "sub/none.txt"):
            try: open(name)
            except FileNotFoundError: pass
        try: os.open("low.txt", os.O_RDONLY)
        except FileNotFoundError: pass
        """
    )
    # The event of the last one does not tell relative to which folder it is.
    low = () if got.reads.mixed else ("low.txt",)
    assert got.reads.absent == ("local.yaml", *low, "sub/none.txt")
    assert got.reads.gaps == ()


def test_files_that_may_not_be_read(session):
    session.file("secret.txt").chmod(0)
    powers = "-dac_override,-dac_read_search"
    plain = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}", sys.executable]
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may read everything")
    code = "try: open('secret.txt')\nexcept PermissionError: print('refused')"
    got = session.run(code, python=plain if os.geteuid() == 0 else [sys.executable])
    assert got.printed.strip() == "refused"
    assert got.reads.unreadable == ("secret.txt",)


def test_strange_names(session):
    session.file("with space\nand line.txt", "s")
    session.file("ünï.txt", "u")
    (Path(os.fsdecode(os.fsencode(session.root) + b"/raw\xff.txt"))).write_text("r")
    got = session.run(
        """
        import subprocess
        open("with space\\nand line.txt").read()
        subprocess.run(["cat", "ünï.txt"], stdout=subprocess.DEVNULL, check=True)
        open(b"raw\\xff.txt").read()
        """
    )
    assert got.paths() == ["raw\\xff.txt", "with space\nand line.txt", "ünï.txt"]
    assert got.reads.project[0].sha256 == digest("r")


def test_listings(session):
    session.file("data/a.txt")
    session.file("data/b.txt")
    session.file("native/a.txt")
    code = """
        import os, pathlib, subprocess
        os.listdir("data"); [*pathlib.Path("data").iterdir()]
        subprocess.run(["ls", "native"], stdout=subprocess.DEVNULL, check=True)
        open("data/new.txt", "w").close()
        os.remove("data/b.txt")
        os.makedirs("fresh"); os.listdir("fresh")
        """
    names = digest('["a.txt","b.txt"]\n')
    assert session.run(code).reads.listings == (
        Listing("data", Lister.PROGRAM, names, 2),
        Listing("native", Lister.NATIVE, digest('["a.txt"]\n'), 1),
    )


def test_what_was_written(session):
    session.file("changed.txt", "old")
    session.file("removed.txt", "old")
    session.file("moved.txt", "old")
    session.file("native.txt", "old")
    got = session.run(
        """
        import os, pathlib, shutil, subprocess
        pathlib.Path("created.txt").write_text("x")
        pathlib.Path("changed.txt").write_text("x")
        os.remove("removed.txt")
        shutil.move("moved.txt", "moved_here.txt")
        pathlib.Path("passing.txt").write_text("x"); os.remove("passing.txt")
        subprocess.run(["sh", "-c", "echo x > native.txt; echo x > native_new.txt"], check=True)
        open(os.environ["OUTSIDE"] + "/out.txt", "w").close()
        open(os.path.expanduser("~/own.txt"), "w").close()
        os.mkdir("folder")
        """
    )
    assert got.reads.written == tuple(
        sorted(
            [
                Written(str(session.outside / "out.txt"), "created"),
                Written("changed.txt", "changed"),
                Written("created.txt", "created"),
                Written("moved.txt", "removed"),
                Written("moved_here.txt", "created"),
                Written("native.txt", "changed", native=True),
                Written("native_new.txt", "created", native=True),
                Written("removed.txt", "removed"),
            ]
        )
    )
    assert got.paths() == []


CHANGES = {
    "overwritten by the entry": "open('in.txt').read()\nopen('in.txt', 'w').write('new')",
    "under another name": "import os\nopen('in.txt').read()\nopen(os.path.abspath('sub/../in.txt'), 'w').write('new')",
    "appended to": "open('in.txt').read()\nopen('in.txt', 'a').write('new')",
    "appended to, then read": "open('in.txt', 'a').write('new')\nopen('in.txt').read()",
    "updated in place": "f = open('in.txt', 'r+'); f.write('new'); f.close()",
    "removed by the entry": "import os\nopen('in.txt').read()\nos.remove('in.txt')",
    "replaced by the entry": "import os\nopen('in.txt').read()\nopen('t', 'w').close()\nos.replace('t', 'in.txt')",
    "read natively, then overwritten": "run('cat in.txt > /dev/null')\nopen('in.txt', 'w').write('new')",
    "overwritten by another process": "open('in.txt').read()\nrun('echo new > in.txt')",
    "same size, same time": "open('in.txt').read()\nrun('printf OLD > in.txt; touch -r ref.txt in.txt')",
    "replaced by another process": "open('in.txt').read()\nrun('cp -p ref.txt t; mv t in.txt')",
    "removed by another process": "open('in.txt').read()\nrun('rm in.txt')",
    "its folder moved": "import os\nopen('sub/in.txt').read()\nos.rename('sub', 'other')",
    "through a hard link": "open('in.txt').read()\nrun('echo new > ../outside/alias')",
}


@pytest.mark.parametrize("code", CHANGES.values(), ids=CHANGES)
def test_a_file_that_changes_after_it_was_read_is_an_error(session, code):
    inside = session.file("in.txt", "old")
    session.file("sub/in.txt", "old")
    session.file("ref.txt", "ref")
    os.utime(session.root / "ref.txt", (1_000_000_000, 1_000_000_000))
    os.link(inside, session.outside / "alias")
    head = "import subprocess\nrun = lambda line: subprocess.run(['sh', '-c', line], check=True)\n"
    got = session.run(head + code)
    assert got.error == ChangedInputError.__name__
    assert "in.txt (" in got.text


HARMLESS = {
    "read and changed by others": ("run('cat in.txt > /dev/null; echo new > in.txt')", ["in.txt"]),
    "written, then read": ("open('in.txt', 'w').write('new')\nopen('in.txt').read()", []),
    "the same bytes again": ("open('in.txt').read()\nopen('in.txt', 'w').write('old')", ["in.txt"]),
    "opened twice": ("open('in.txt').read()\nopen('in.txt').read()", ["in.txt"]),
    "a link made to it": ("import os\nopen('in.txt').read()\nrun('ln in.txt ../outside/alias')", ["in.txt"]),
    "its permissions": ("open('in.txt').read()\nrun('chmod 600 in.txt')", ["in.txt"]),
    "saved natively over an old one": ("run('echo new > in.txt')", []),
    "saved and read back": ("run('echo new > in.txt')\nopen('in.txt').read()", ["in.txt"]),
    "a new one, saved natively and read back": ("run('echo new > fresh.txt')\nopen('fresh.txt').read()", []),
    "a temporary one put in its place": ("open('t', 'w').close()\nimport os\nos.replace('t', 'in.txt')", []),
}


@pytest.mark.parametrize(("code", "expected"), HARMLESS.values(), ids=HARMLESS)
def test_what_is_no_change_of_an_input(session, code, expected):
    session.file("in.txt", "old")
    head = "import subprocess\nrun = lambda line: subprocess.run(['sh', '-c', line], check=True)\n"
    got = session.run(head + code)
    assert got.error == ""
    assert got.paths() == expected


def test_a_declared_input_that_changes_is_an_error(session):
    session.file("a.pt", "a", of=session.outside)
    code = "open('../outside/a.pt').read()\nopen('../outside/a.pt', 'w').close()"
    got = session.run(code, inputs=["../outside/*.pt"])
    assert "../outside/a.pt (" in got.text


def test_a_lost_queue_is_said(session):
    """The reader of notifications is stopped until the kernel has thrown events away."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(3):
        session.file(f"{number}.txt")
    got = session.run(
        f"""
        import os, signal
        os.kill(reader(), signal.SIGSTOP)
        for number in range({limit} // 2 + 1000):
            descriptor = os.open(f"{{number % 3}}.txt", os.O_RDONLY); os.read(descriptor, 1); os.close(descriptor)
        os.kill(reader(), signal.SIGCONT)
        """
    )
    assert got.paths() == ["0.txt", "1.txt", "2.txt"]
    assert not got.reads.complete
    assert "fs.inotify.max_queued_events" in got.reads.gaps[0]


def test_a_reader_that_was_killed_is_said(session):
    session.file("a.txt")
    got = session.run(
        """
        import os
        os.kill(reader(), 9)
        open("a.txt").read()
        """
    )
    assert got.paths() == ["a.txt"]
    assert got.reads.gaps == ("the reader of file-system notifications was ended by somebody",)


def test_without_notification_python_s_reads_are_known_and_the_rest_is_said(session):
    session.file("a.txt", "a")
    session.file("b.txt", "b")
    code = "import subprocess\nopen('a.txt').read()\nsubprocess.run(['cat', 'b.txt'], stdout=subprocess.DEVNULL)"
    off = "reads.Watch.start = lambda *args, **kwargs: 'this platform has none'"
    got = session.run(code, before=off)
    assert got.paths() == ["a.txt"]
    assert "this platform has none" in got.reads.gaps[0]
    for change in ("open('a.txt', 'w').write('n')", "subprocess.run(['sh', '-c', 'echo n > a.txt'])"):
        session.file("a.txt", "a")
        assert session.run(f"{code}\n{change}", before=off).error == ChangedInputError.__name__


def test_an_error_of_the_recorder_never_reaches_the_program(session):
    session.file("a.txt")
    broken = "def fail(*a, **k): raise ValueError('broken')\nrecorder._note_write = fail\nrecorder._place = fail"
    got = session.run(
        "import os\nopen('a.txt').read()\nopen('new.txt', 'w').write('x')\nos.listdir('.')\nprint('fine')",
        after_made=broken,
    )
    assert got.printed.strip() == "fine"
    assert got.paths() == ["a.txt"]
    assert any("ValueError" in each for each in got.reads.gaps)


def test_threads(session):
    for number in range(400):
        session.file(f"data/{number:03d}.txt", str(number))
    got = session.run(
        """
        import concurrent.futures, os
        def read(number):
            with open(f"data/{number:03d}.txt") as file: text = file.read()
            with open(f"out{number % 7}.txt", "a") as file: file.write(text)
        with concurrent.futures.ThreadPoolExecutor(8) as pool: list(pool.map(read, range(400)))
        """
    )
    assert got.paths() == [f"data/{number:03d}.txt" for number in range(400)]
    assert len(got.reads.written) == 7
    assert got.reads.complete


def test_a_result_in_between_and_nothing_after_the_end(session):
    session.file("early.txt")
    session.file("late.txt")
    session.file("after.txt")
    got = session.run(
        """
        open("early.txt").read()
        between = recorder.snapshot()
        open("late.txt").read()
        print([each.path for each in between.project])
        whole = recorder.collect()
        print([each.path for each in whole.project])
        noted = len(recorder._raw.opened)
        open("after.txt").read(); open("new.txt", "w").close()
        print(len(recorder._raw.opened) == noted, len(recorder._raw.writes))
        """
    )
    assert got.printed.splitlines() == ["['early.txt']", "['early.txt', 'late.txt']", "True 0"]


def test_an_sqlite_database_and_a_library_of_the_project(session):
    import sqlite3

    with sqlite3.connect(session.root / "data.db") as database:
        database.execute("create table t (a)")
    database.close()
    got = session.run("import sqlite3\nsqlite3.connect('data.db').execute('select * from t').fetchall()")
    assert got.paths() == ["data.db"]
    assert not got.reads.project[0].native


def test_what_is_opened_to_be_written_and_only_read_is_no_change(session):
    """As SQLite and h5py open what they read."""
    import sqlite3

    with sqlite3.connect(session.root / "data.db") as database:
        database.execute("create table t (a)")
    database.close()
    time.sleep(0.1)
    code = "import sqlite3\nd = sqlite3.connect('data.db')\nd.execute('select * from t').fetchall()\nd.close()\n"
    got = session.run(code)
    assert got.paths() == ["data.db"]
    assert got.reads.written == ()
    # Of these SQLite asks whether they are there, and takes what is in them for part of the database.
    assert got.reads.absent == ("data.db-journal", "data.db-wal")
    changes = code.replace("select * from t", "insert into t values (1)").replace("d.close", "d.commit(); d.close")
    got = session.run(changes)
    assert (got.error, "data.db" in got.text) == ("ChangedInputError", True)


def test_who_python_code_connects_to_is_noted(session):
    got = session.run(
        """
        import os, socket
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", 9)), (socket.AF_INET, ("127.0.0.1", 53)), (socket.AF_INET6, ("::1", 9)),
            (socket.AF_UNIX, "none.sock"), (socket.AF_UNIX, os.environ["HOME"] + "/own.sock"),
            (socket.AF_UNIX, "\\0abc"),
        ):
            with socket.socket(family) as one:
                one.settimeout(1)
                try: one.connect_ex(address)
                except OSError: pass
        """
    )
    assert got.reads.talked == (f"{session.root}/none.sock", "127.0.0.1:9", "::1:9", "@abc")
    assert not got.reads.gaps


def test_shared_memory_is_no_folder_of_the_system(session):
    path = Path("/dev/shm", f"leapp-test-{os.getpid()}.txt")
    if not path.parent.is_dir():
        pytest.skip("no shared memory here")
    path.write_text("weights")
    try:
        got = session.run(f"open({str(path)!r}).read()\nopen('/proc/self/status').read()")
    finally:
        path.unlink()
    assert got.paths("undeclared") == [str(path)]


def test_equal_sessions_give_equal_records(session):
    for name in ("b.txt", "a.txt", "c/d.txt"):
        session.file(name)
    one = session.run("import os\nopen('b.txt').read()\nopen('a.txt').read()\nopen('c/d.txt').read()\nos.listdir('c')")
    two = session.run("import os\nos.listdir('c')\nopen('c/d.txt').read()\nopen('a.txt').read()\nopen('b.txt').read()")
    assert one.reads == two.reads


def test_a_recorder_is_installed_once(session, monkeypatch):
    monkeypatch.setattr(sys, "addaudithook", lambda hook: None)
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: None)
    # Nor may the kernel's filter be put on: it would stay on all that this process starts.
    monkeypatch.setattr(Openers, "begin", classmethod(lambda cls: "not in a test"))
    recorder = ReadRecorder(session.root)
    recorder.install()
    try:
        with pytest.raises(RuntimeError, match="once"):
            recorder.install()
    finally:
        recorder.close()


def test_a_library_is_an_input_unless_it_lies_where_systems_keep_theirs(session, monkeypatch):
    place = session.outside / "libown.so"
    place.parent.mkdir(exist_ok=True)
    shutil.copyfile(_ctypes.__file__, place)
    code = f"import ctypes; ctypes.CDLL({str(place)!r}); ctypes.CDLL({_ctypes.__file__!r})"
    assert session.run(code).paths("undeclared") == [str(place)]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(session.outside))
    assert session.run(code).paths("undeclared") == []
