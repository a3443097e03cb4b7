"""The content store: what goes in comes out, or does not come out at all."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from leapp._canonical import sha256
from leapp.build.store import Store
from leapp.errors import StoreObjectError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def put(store: Store, tmp_path: Path, data: bytes) -> str:
    source = tmp_path / "source"
    source.write_bytes(data)
    return store.put_file(source)


def corrupt(store: Store, digest: str, data: bytes) -> None:
    path = store.path(digest)
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("data", [b"", b"abc", b"x" * ((1 << 20) + 1)])
def test_what_is_put_comes_back(store: Store, tmp_path: Path, data: bytes) -> None:
    digest = put(store, tmp_path, data)
    assert digest == sha256(data)
    store.fetch(digest, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_a_fetched_file_is_the_callers_own(store: Store, tmp_path: Path) -> None:
    digest = put(store, tmp_path, b"abc")
    back = tmp_path / "back"
    store.fetch(digest, back)
    assert back.stat().st_ino != store.path(digest).stat().st_ino
    back.write_bytes(b"changed")
    assert store.path(digest).read_bytes() == b"abc"


def test_nothing_is_left_beside_the_object(store: Store, tmp_path: Path) -> None:
    digest = put(store, tmp_path, b"abc")
    put(store, tmp_path, b"abc")
    assert [path for path in store.root.rglob("*") if path.is_file()] == [store.path(digest)]
    assert store.path(digest).stat().st_mode & 0o777 == 0o444


def test_a_corrupted_object_is_noticed_dropped_and_taken_again(store: Store, tmp_path: Path) -> None:
    digest = put(store, tmp_path, b"abc")
    corrupt(store, digest, b"abd")
    with pytest.raises(StoreObjectError, match="its bytes have the digest"):
        store.fetch(digest, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not store.has(digest)
    put(store, tmp_path, b"abc")
    store.fetch(digest, tmp_path / "back")


def test_an_object_cut_short_is_written_again(store: Store, tmp_path: Path) -> None:
    digest = put(store, tmp_path, b"abc")
    corrupt(store, digest, b"a")
    put(store, tmp_path, b"abc")
    assert store.path(digest).read_bytes() == b"abc"


def test_a_missing_object(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreObjectError, match="is not there"):
        store.fetch("0" * 64, tmp_path / "back")
    digest = put(store, tmp_path, b"abc")
    with pytest.raises(FileNotFoundError):
        store.fetch(digest, tmp_path / "no" / "folder")
    assert store.has(digest)


@pytest.mark.parametrize("digest", ["", "abc", "../" * 21 + "x", "A" * 64])
def test_what_is_no_digest_names_no_file(store: Store, digest: str) -> None:
    with pytest.raises(ValueError, match="not a SHA-256 digest"):
        store.has(digest)


def test_an_existing_target_is_left_alone(store: Store, tmp_path: Path) -> None:
    digest = put(store, tmp_path, b"abc")
    (tmp_path / "mine").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        store.fetch(digest, tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_verify_drops_what_is_wrong(store: Store, tmp_path: Path) -> None:
    good, bad = put(store, tmp_path, b"good"), put(store, tmp_path, b"bad")
    corrupt(store, bad, b"BAD")
    report = store.verify()
    assert (report.objects, report.size_bytes, report.dropped) == (1, 4, (bad,))
    assert store.has(good)
    assert not store.has(bad)
    assert store.verify().dropped == ()


def test_gc_drops_what_was_not_used_for_the_longest(store: Store, tmp_path: Path) -> None:
    digests = [put(store, tmp_path, bytes([each]) * 10) for each in range(4)]
    for age, digest in enumerate(digests):
        os.utime(store.path(digest), (time.time() - 1000 * age,) * 2)
    store.fetch(digests[3], tmp_path / "back")  # the oldest is used again
    freed = store.gc(20)
    assert (freed.objects, freed.size_bytes, freed.kept_objects, freed.kept_bytes) == (2, 20, 2, 20)
    assert [store.has(each) for each in digests] == [True, False, False, True]


def test_gc_believes_its_caller_about_use(store: Store, tmp_path: Path) -> None:
    first, second = (put(store, tmp_path, data) for data in (b"first", b"second"))
    now = time.time()
    os.utime(store.path(first), (now - 500,) * 2)
    store.gc(6, {first: now, second: now - 9})
    assert store.has(first)
    assert not store.has(second)


def test_gc_of_nothing(store: Store) -> None:
    assert store.gc(0).objects == 0
    assert store.verify().objects == 0
    assert store.size_bytes() == 0


def test_gc_removes_what_a_killed_process_left(store: Store, tmp_path: Path) -> None:
    put(store, tmp_path, b"abc")
    old, new = (store.root / "objects" / f".new-1-{name}" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    store.gc(1 << 20)
    assert (old.exists(), new.exists()) == (False, True)


def test_many_writers_of_one_object(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * (1 << 20))
    digests: list[str] = []
    threads = [threading.Thread(target=lambda: digests.append(store.put_file(source))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(digests) == {sha256(source.read_bytes())}
    assert len(digests) == 8
    assert store.verify().objects == 1
