"""Publishing: the target is the old bundle or the new one, whole, whatever happens in between."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bundle_cases import make, rewrite_json

from leapp.bundle import read, write
from leapp.errors import (
    BundleWriteError,
    ForeignFolderError,
    LeappError,
    NestedBundleError,
    NotABundleError,
    NotAFolderError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def publish(target: Path, **options: Any) -> str:
    with write.scratch_beside(target) as scratch:
        digest = make(scratch, **options)
        write.publish(scratch, target)
    return digest


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(params=["exchange", "no exchange"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of file system: with RENAME_EXCHANGE, and one that refuses it."""
    if request.param == "no exchange":

        def refuse(*_: Any) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(write, "_exchange", refuse)
    return str(request.param)


def bundles_beside(target: Path) -> list[str]:
    return [name for name in names(target.parent) if name != target.name]


@pytest.mark.parametrize("place", ["two", "a/b/c/1.0.0", "zwei Knöten/v 1", "x" * 250])
def test_a_new_target_is_made_with_its_parents(tmp_path: Path, place: str, file_system: str) -> None:
    target = tmp_path / place
    digest = publish(target)
    assert read.verify(target).ok
    assert read.load(target).digest == digest
    assert len(bundles_beside(target)) == (0 if file_system == "exchange" else 1)


def test_an_older_bundle_is_replaced_as_a_whole(tmp_path: Path, file_system: str) -> None:
    target = tmp_path / "two"
    publish(target, nodes=("old", "older"))
    (target / "notes of mine.txt").write_text("x")
    count = len(bundles_beside(target))
    for marker in ("b", "c", "b"):
        digest = publish(target, marker=marker)
        report = read.verify(target)
        assert report.ok
        assert report.digest == digest
    assert sorted(read.load(target).nodes) == ["estimator", "policy"]
    assert not (target / "nodes/old").exists()
    assert len(bundles_beside(target)) == count


def test_an_empty_folder_is_taken(tmp_path: Path, file_system: str) -> None:
    target = tmp_path / "two"
    target.mkdir()
    publish(target)
    assert read.verify(target).ok


def test_a_folder_made_by_other_tools_is_replaced_without_exchange_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "two"
    publish(target, marker="old")
    assert not target.is_symlink()

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(write, "_exchange", refuse)
    digest = publish(target)
    assert read.verify(target).digest == digest
    assert target.is_symlink()
    assert len(bundles_beside(target)) == 1
    monkeypatch.undo()  # moved to a file system that can exchange: the link and its store go
    digest = publish(target, marker="third")
    assert read.verify(target).digest == digest
    assert not target.is_symlink()
    assert bundles_beside(target) == []


def test_of_a_link_made_by_others_only_the_link_is_replaced(tmp_path: Path, file_system: str) -> None:
    elsewhere = tmp_path / "elsewhere" / "two"
    publish(elsewhere, marker="elsewhere")
    before = read.load(elsewhere).digest
    target = tmp_path / "out" / "two"
    target.parent.mkdir()
    target.symlink_to(elsewhere)
    digest = publish(target)
    assert read.load(target).digest == digest
    assert read.verify(elsewhere).ok
    assert read.load(elsewhere).digest == before


def foreign(target: Path) -> None:
    target.mkdir()
    (target / "thesis.tex").write_text("x")


def foreign_bundle_json(target: Path) -> None:
    target.mkdir()
    (target / "bundle.json").write_text('{"name": "webpack", "files": []}')


def foreign_subfolder(target: Path) -> None:
    (target / ".git").mkdir(parents=True)


def a_file(target: Path) -> None:
    target.write_text("x")


def dangling(target: Path) -> None:
    target.symlink_to("nowhere")


def inner_bundle(target: Path) -> None:
    make(target)
    make(target / "nodes" / "inner")


def file_above(target: Path) -> None:
    target.parent.rmdir()
    target.parent.write_text("x")


def bundle_above(target: Path) -> None:
    make(target.parent)


OCCUPIED = [
    (foreign, ForeignFolderError),
    (foreign_bundle_json, ForeignFolderError),
    (foreign_subfolder, ForeignFolderError),
    (a_file, NotAFolderError),
    (dangling, NotAFolderError),
    (file_above, NotAFolderError),
    (inner_bundle, NestedBundleError),
    (bundle_above, NestedBundleError),
]


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        str(path): path.read_bytes() if path.is_file() else path.is_symlink() and path.readlink()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(("occupy", "error"), OCCUPIED)
def test_what_is_not_ours_is_left_alone(
    tmp_path: Path, occupy: Callable[[Path], None], error: type[LeappError], file_system: str
) -> None:
    target = tmp_path / "out" / "two"
    target.parent.mkdir()
    occupy(target)
    staging = tmp_path / "staging"
    make(staging)
    before = snapshot(tmp_path)
    with pytest.raises(error):
        write.ensure_replaceable(target)
    with pytest.raises(error):
        write.publish(staging, target)
    assert snapshot(tmp_path) == before


def test_what_may_be_replaced(tmp_path: Path) -> None:
    write.ensure_replaceable(tmp_path / "missing" / "too")
    (tmp_path / "empty").mkdir()
    write.ensure_replaceable(tmp_path / "empty")
    make(tmp_path / "ours")
    write.ensure_replaceable(tmp_path / "ours")
    rewrite_json(tmp_path / "ours/bundle.json", lambda v: v.update(requires=9))
    write.ensure_replaceable(tmp_path / "ours")


def test_a_folder_that_appears_after_the_check_is_given_its_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "two"
    publish(target)
    original = write._sync_tree

    def then_a_foreign_folder(folder: Path) -> None:
        original(folder)
        shutil.rmtree(target)
        foreign(target)

    monkeypatch.setattr(write, "_sync_tree", then_a_foreign_folder)
    with pytest.raises(ForeignFolderError):
        publish(target, marker="new")
    assert names(target) == ["thesis.tex"]
    assert bundles_beside(target) == []


def test_only_sealed_folders_are_published(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging/x").write_text("x")
    with pytest.raises(NotABundleError, match="not sealed"):
        write.publish(tmp_path / "staging", tmp_path / "two")
    assert names(tmp_path) == ["staging"]


def test_a_relative_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    publish(Path("out/../two"))
    assert read.verify(Path("two")).ok


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), write.scratch_beside(tmp_path / "two") as scratch:
        make(scratch)
        1 / 0
    assert names(tmp_path) == []


def test_staging_on_another_file_system_is_copied(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system to write to")
    staging = other / f"leapp-test-{os.getpid()}"
    try:
        digest = make(staging)
        write.publish(staging, tmp_path / "two")
        assert not staging.exists()
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    assert read.verify(tmp_path / "two").digest == digest
    assert names(tmp_path) == ["two"]


def failing(name: str, nth: int) -> Callable[[pytest.MonkeyPatch], None]:
    """The nth call of a function of ``os`` fails as on a full disk."""

    def install(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(os, name)
        count = iter(range(1, 1000))

        def call(*args: Any, **options: Any) -> Any:
            if next(count) == nth:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(*args, **options)

        monkeypatch.setattr(os, name, call)

    return install


@pytest.mark.parametrize(
    "fault",
    [failing("fsync", 1), failing("fsync", 7), failing("rename", 1)],
    ids=["first sync", "later sync", "rename"],
)
@pytest.mark.parametrize("old", [True, False])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], old: bool
) -> None:
    target = tmp_path / "two"
    before = publish(target, marker="old") if old else None
    with write.scratch_beside(target) as scratch:
        make(scratch)
        fault(monkeypatch)
        with pytest.raises(BundleWriteError, match="No space left on device") as caught:
            write.publish(scratch, target)
        monkeypatch.undo()
        assert isinstance(caught.value, OSError)
        assert read.verify(scratch).ok  # and can be published elsewhere
    assert names(tmp_path) == (["two"] if old else [])
    if old:
        assert read.verify(target).digest == before


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
def test_a_failing_exchange_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    target = tmp_path / "two"
    before = publish(target, marker="old")

    def fail(*_: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(write, "_exchange", fail)
    with pytest.raises(BundleWriteError):
        publish(target)
    assert read.verify(target).digest == before
    assert names(tmp_path) == ["two"]


def test_a_file_size_limit_leaves_the_old_bundle(tmp_path: Path) -> None:
    target = tmp_path / "two"
    before = publish(target, marker="old")
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(OSError), write.scratch_beside(target) as scratch:
            make(scratch)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, old_limit[1]))
            (scratch / "log.txt").write_text("new")
            write.seal(scratch, name="two", version="1", status="ok")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert read.verify(target).digest == before
    assert names(tmp_path) == ["two"]


def test_all_bytes_reach_the_disk_before_the_target_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "two"
    publish(target, marker="old")
    events: list[str] = []
    fsync, exchange = os.fsync, write._exchange

    def record_sync(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        events.append(path.relative_to(tmp_path).as_posix())
        fsync(file)

    def record_exchange(first: Path, second: Path) -> None:
        events.append("exchange")
        exchange(first, second)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(write, "_exchange", record_exchange)
    with write.scratch_beside(target) as scratch:
        make(scratch)
        everything = {scratch.name, *(path.relative_to(tmp_path).as_posix() for path in scratch.rglob("*"))}
        events.clear()
        write.publish(scratch, target)
    at = events.index("exchange")
    assert set(events[:at]) == everything
    assert events[at + 1 :] == ["."]


# --- left-overs ----------------------------------------------------------------------------------------------------


def test_left_overs_of_dead_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    dead = f".two.leapp-{dead_pid()}-0123456789abcdef"
    other = f".other name.leapp-{dead_pid()}-fedcba9876543210"
    mine = f".two.leapp-{os.getpid()}-0123456789abcdef"
    init = ".two.leapp-1-0123456789abcdef"
    strangers = [".two.leapp-notes", "two.leapp-99999999-0123456789abcdef", ".two.leapp-99999999-0123", ".git", "three"]
    for name in (dead, other, mine, init, *strangers):
        (tmp_path / name / "nodes").mkdir(parents=True)
        (tmp_path / name / "nodes/x").write_text("x")
    (tmp_path / dead / "nodes").chmod(0o500)
    publish(tmp_path / "two")
    assert names(tmp_path) == sorted([mine, init, *strangers, "two"])


def test_a_locked_left_over_is_somebodys_in_another_container(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from leapp.bundle import write\n"
        "os.getpid = lambda: int(sys.argv[2])\n"  # what a process in another pid namespace looks like
        "with write.scratch_beside(Path(sys.argv[1])) as scratch:\n"
        "    (scratch / 'x').write_text('x'); print(scratch.name, flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "two"), str(dead_pid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        publish(tmp_path / "two")
        assert names(tmp_path) == sorted([name, "two"])
        process.kill()
    publish(tmp_path / "two")
    assert names(tmp_path) == ["two"]


# --- kills and races -----------------------------------------------------------------------------------------------

LOOP = """
import errno, sys, itertools
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from bundle_cases import make
from leapp.bundle import write
if sys.argv[3] == "no exchange":
    def refuse(*_):
        raise OSError(errno.EINVAL, "Invalid argument")
    write._exchange = refuse
target = Path(sys.argv[2])
for count in range(int(sys.argv[4])) if len(sys.argv) > 4 else itertools.count():
    with write.scratch_beside(target) as scratch:
        make(scratch, marker=str(count) * 1000)
        write.publish(scratch, target)
    if not count:
        print("first", flush=True)
"""


def looping(target: Path, file_system: str, *count: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOOP, str(Path(__file__).parent), str(target), file_system, *count]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_at_any_point_the_target_is_whole(tmp_path: Path, file_system: str) -> None:
    target = tmp_path / "two"
    publish(target, marker="old")
    rng = random.Random(4)  # noqa: S311
    for _ in range(12):
        with looping(target, file_system) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "first\n"
            time.sleep(rng.uniform(0, 0.03))
            process.kill()
        report = read.verify(target)
        assert report.ok, report.problems
        # What a kill leaves behind is bounded: the next one cleans up.
        assert len(bundles_beside(target)) <= 4
    publish(target)
    assert len(bundles_beside(target)) == (0 if file_system == "exchange" else 1)


CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "ctypes.dlsym"}


def publish_until(target: Path, nth: int) -> int:
    """In a child that ends itself, as by a kill, right before its nth change to the file system; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    armed = False
    count = 0

    def cut(event: str, _: Any) -> None:
        nonlocal count
        if armed and event in CHANGES:
            count += 1
            if count == nth:
                os._exit(9)

    sys.addaudithook(cut)
    try:
        with write.scratch_beside(target) as scratch:
            make(scratch, marker="new")
            armed = True
            write.publish(scratch, target)
    except BaseException:  # noqa: BLE001
        os._exit(1)
    os._exit(0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_cut_off_before_each_change_the_target_is_whole(tmp_path: Path, file_system: str) -> None:
    target = tmp_path / "two"
    old = publish(target, marker="old")
    new = make(tmp_path / "new", marker="new")
    seen = []
    for nth in range(1, 200):
        code = publish_until(target, nth)
        assert code in {0, 9}
        report = read.verify(target)
        assert report.ok, (nth, report.problems)
        seen.append(report.digest)
        if code == 0:
            break
        publish(target, marker="old")
    assert code == 0
    turn = seen.index(new)
    assert turn >= 2  # it was cut off before the exchange, and after it
    assert seen == [old] * turn + [new] * (len(seen) - turn)
    assert len(seen) - turn >= 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_cut_off_before_each_change_a_first_bundle_is_whole_or_not_there(tmp_path: Path, file_system: str) -> None:
    for nth in range(1, 200):
        target = tmp_path / str(nth)
        code = publish_until(target, nth)
        assert not os.path.lexists(target) or read.verify(target).ok
        if code == 0:
            break
    assert code == 0
    assert nth > 1
    assert read.verify(target).ok


def folder_of(target: Path) -> tuple[int, int]:
    """Which folder a target is at this moment, through a link too; a new folder may get the number of a removed one."""
    status = target.stat()
    return status.st_ino, status.st_ctime_ns


@contextlib.contextmanager
def ended(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    """Leave no process behind when a check fails: other tests would be told of it."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_two_publishers_at_once_leave_one_whole_bundle(tmp_path: Path, file_system: str) -> None:
    target = tmp_path / "two"
    processes = [looping(target, file_system, "15") for _ in range(2)]
    with ended(processes):
        while any(process.poll() is None for process in processes):
            if target.exists():
                before = folder_of(target)
                try:
                    report = read.verify(target)
                except NotABundleError:  # the folder that was being read is gone
                    assert folder_of(target) != before
                    continue
                # A reader that is overtaken may find files gone; one that is not has a whole bundle before it.
                assert report.ok or folder_of(target) != before, report.problems
            time.sleep(0.005)
        for process in processes:
            _, errors = process.communicate()
            assert process.returncode == 0, errors
    assert read.verify(target).ok
    publish(target)
    assert len(bundles_beside(target)) == (0 if file_system == "exchange" else 1)


def test_threads_of_one_process_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "two"
    failed: list[BaseException] = []

    def work(marker: str) -> None:
        try:
            for _ in range(5):
                publish(target, marker=marker)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(marker,)) for marker in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert read.verify(target).ok
    assert names(tmp_path) == ["two"]
