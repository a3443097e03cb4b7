"""Archives: layout, sizes beyond 32 bits, damage."""

import io
import os
import stat
import struct
import zipfile

import numpy as np
import pytest
import torch

from leapp.export import _archive
from leapp.export._archive import Archive, DamagedArchiveError, Kept, View, blank_hidden, rewrite, write

LARGE = np.random.default_rng(0).bytes(3 * (1 << 20) + 7)
MEMBERS = {
    "data/10": b"ten",
    "data/2": LARGE,
    "empty": b"",
    "nämé/ü": "ö".encode(),
    "version": b"3\n",
}


def packed(members=None, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, content in (members or MEMBERS).items():
            archive.writestr(f"some stem/{name}", content)
    return buffer.getvalue()


def rewritten(path, members=None):
    with Archive.open(path) as archive:
        rewrite(path, archive, members or {name: Kept(name) for name in archive.names})
    return path.read_bytes()


@pytest.fixture(params=[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "compressed"])
def path(request, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(packed(compression=request.param))
    return path


def test_layout(path):
    rewritten(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {each.filename: archive.read(each) for each in archive.infolist()} == {
            f"archive/{name}": content for name, content in MEMBERS.items()
        }
        assert archive.namelist() == sorted(archive.namelist())
        for each in archive.infolist():
            assert each.compress_type == zipfile.ZIP_STORED
            assert each.date_time == (1980, 1, 1, 0, 0, 0)
            assert (each.create_system, each.external_attr, each.extra, each.comment) == (0, 0, b"", b"")


def test_data_begins_at_multiples_of_64(path):
    content = rewritten(path)
    with zipfile.ZipFile(path) as archive:
        for each in archive.infolist():
            sizes = struct.unpack_from("<2H", content, each.header_offset + 26)
            begin = each.header_offset + 30 + sum(sizes)
            assert begin % 64 == 0
            assert content[begin : begin + each.file_size] == archive.read(each)
    reader = torch._C.PyTorchFileReader(str(path))
    assert reader.get_record("data/2") == LARGE
    offset = reader.get_record_offset("data/2")
    assert offset % 64 == 0
    assert np.memmap(path, np.uint8, "r", offset, len(LARGE)).tobytes() == LARGE


def test_source_leaves_no_trace(tmp_path):
    results = []
    for index, options in enumerate(({}, {"compression": zipfile.ZIP_DEFLATED}, {"compression": zipfile.ZIP_BZIP2})):
        path = tmp_path / f"{index}.pt"
        members = dict(reversed(MEMBERS.items())) if index else MEMBERS
        path.write_bytes(packed(members, **options))
        results.append(rewritten(path))
        assert rewritten(path) == results[-1]
    assert results[0] == results[1] == results[2]


def test_members_are_replaced_added_and_dropped(path):
    content = rewritten(path, {"data/0": Kept("data/2"), "new": b"content"})
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["archive/data/0", "archive/new"]
        assert archive.read("archive/data/0") == LARGE
        assert archive.read("archive/new") == b"content"
    buffer = io.BytesIO()
    write(buffer, {"data/0": LARGE, "new": b"content"})
    assert buffer.getvalue() == content


def test_mode_stays_and_nothing_is_left_behind(path):
    path.chmod(0o640)
    old = os.umask(0o077)
    try:
        rewritten(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("limit", [50, 1000, len(LARGE) - 1, len(LARGE)])
def test_sizes_and_offsets_beyond_the_limit(path, monkeypatch, limit):
    """Fields of 32 bits hold their largest value then, and readers take the ones of 64 bits."""

    class Small:
        """Packs what a limit of 4 GiB would pack if it were smaller."""

        def __init__(self, real, limited):
            self.size, self._real, self._limited = real.size, real, limited

        def pack(self, *values):
            values = list(values)
            for index in self._limited:
                values[index] = 0xFFFFFFFF if values[index] >= limit else values[index]
            return self._real.pack(*values)

    original = rewritten(path)
    monkeypatch.setattr(_archive, "_LIMIT_32", limit)
    monkeypatch.setattr(_archive, "_LOCAL", Small(_archive._LOCAL, (7, 8)))
    monkeypatch.setattr(_archive, "_CENTRAL", Small(_archive._CENTRAL, (8, 9, 16)))
    monkeypatch.setattr(_archive, "_END", Small(_archive._END, (5, 6)))
    rewritten(path)
    assert path.read_bytes() != original
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("archive/data/2") == LARGE
        assert {each.filename.removeprefix("archive/") for each in archive.infolist()} == MEMBERS.keys()
    reader = torch._C.PyTorchFileReader(str(path))
    for name, content in MEMBERS.items():
        assert reader.get_record(name) == content
        assert reader.get_record_offset(name) % 64 == 0


def test_more_members_than_16_bits_count(tmp_path):
    buffer = io.BytesIO()
    write(buffer, {f"m{index}": b"" for index in range(70_000)})
    with zipfile.ZipFile(buffer) as archive:
        assert len(archive.namelist()) == 70_000
    assert len(Archive(buffer).names) == 70_000


def _damaged(content):
    begin = content.index(LARGE[:64])
    yield "checksum", content[: begin + 5000] + b"\0\1\2\3" + content[begin + 5004 :]
    yield "is no archive", content[: len(content) // 2]
    yield "is no archive", b""
    yield "is no archive", b"no archive at all"
    header = content.index(b"PK\x03\x04", 10)
    yield "damaged", content[:header] + b"XXXX" + content[header + 4 :]


@pytest.mark.parametrize("index", range(5))
def test_damage_is_told_and_the_file_stays(tmp_path, index):
    path = tmp_path / "model.pt"
    why, content = list(_damaged(packed()))[index]
    path.write_bytes(content)
    with pytest.raises(DamagedArchiveError, match=why):
        rewritten(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a/one", "b/two"], "one folder"),
        (["one"], "one folder"),
        (["a/../../one"], "member"),
        (["a//etc/passwd"], "member"),
        (["a/one", "a/one"], "two members"),
        (["a/"], "member"),
    ],
)
def test_foreign_archives(tmp_path, names, why):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    before = path.read_bytes()
    with pytest.raises(DamagedArchiveError, match=why):
        rewritten(path)
    assert path.read_bytes() == before


def test_hidden_elements_are_blank():
    content = np.arange(1, 25, dtype=np.int32)
    views = [View(4, 2, [2], [3]), View(4, 10, [2, 2], [1, 4]), View(4, 20, [], []), View(4, 0, [0, 3], [3, 1])]
    blanked = np.frombuffer(blank_hidden(content.tobytes(), views), np.int32)
    shown = [2, 5, 10, 11, 14, 15, 20]
    assert blanked[shown].tolist() == content[shown].tolist()
    assert not np.delete(blanked, shown).any()


@pytest.mark.parametrize(
    ("view", "covered"),
    [
        (View(4, 0, [2, 3], [3, 1]), True),
        (View(4, 0, [3, 2], [1, 3]), True),
        (View(4, 0, [1, 6], [77, 1]), True),
        (View(4, 0, [2, 2], [3, 1]), False),
        (View(4, 1, [5], [1]), False),
        (View(4, 0, [5], [1]), False),
        (View(4, 0, [12], [0]), False),
        (View(4, 0, [], []), False),
    ],
)
def test_what_plainly_covers_a_storage(view, covered):
    assert view.covers(24) is covered


@pytest.mark.parametrize("view", [View(4, 20, [5], [1]), View(4, -1, [2], [1]), View(4, 3, [2], [-1])])
def test_views_beyond_their_storage(view):
    with pytest.raises(DamagedArchiveError, match="beyond"):
        blank_hidden(bytes(96), [view])
