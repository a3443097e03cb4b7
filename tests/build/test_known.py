"""What was found true before is known again, to the same judge, of the same bytes; and nothing else ever is."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from leapp.build import _facts
from leapp.build._facts import judge
from leapp.build.known import Known

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_found_is_known_to_the_next_one(tmp_path: Path) -> None:
    first = Known(tmp_path / "known", "judge")
    assert not first.holds("valid", "a")
    first.add("valid", "a")
    assert first.holds("valid", "a")
    first.save()
    second = Known(tmp_path / "known", "judge")
    assert second.holds("valid", "a")
    assert not any(second.holds(*other) for other in (("valid", "b"), ("met", "a"), ("valida",), ("valid", "a", "")))


def test_another_judge_knows_nothing_of_it(tmp_path: Path) -> None:
    first = Known(tmp_path, "judge")
    first.add("valid", "a")
    first.save()
    assert not Known(tmp_path, "another").holds("valid", "a")


def test_who_cannot_be_told_keeps_nothing(tmp_path: Path) -> None:
    first = Known(tmp_path / "known", "")
    first.add("valid", "a")
    first.save()
    assert not (tmp_path / "known").exists()


@pytest.mark.parametrize("damage", [b"", b"\0" * 65, b"\xff\xfe", b"[]", None])
def test_a_damaged_record_says_nothing(tmp_path: Path, damage: bytes | None) -> None:
    first = Known(tmp_path, "judge")
    first.add("valid", "a")
    first.save()
    whole = (tmp_path / "judge").read_bytes()
    (tmp_path / "judge").write_bytes(whole[:40] if damage is None else damage)
    second = Known(tmp_path, "judge")
    assert not second.holds("valid", "a")
    second.add("valid", "a")
    second.save()
    assert Known(tmp_path, "judge").holds("valid", "a")


def test_nothing_is_written_where_nothing_is_new(tmp_path: Path) -> None:
    first = Known(tmp_path, "judge")
    first.add("valid", "a")
    first.save()
    before = (tmp_path / "judge").stat().st_ino
    second = Known(tmp_path, "judge")
    second.holds("valid", "a")
    second.save()
    assert (tmp_path / "judge").stat().st_ino == before


def test_a_record_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leapp.build.known._MOST", 3)
    for number in range(3):
        each = Known(tmp_path, "judge")
        each.add("valid", str(number))
        each.save()
    last = Known(tmp_path, "judge")
    assert last.holds("valid", "1")
    last.add("valid", "3")
    last.save()
    kept = Known(tmp_path, "judge")
    assert [number for number in range(4) if kept.holds("valid", str(number))] == [1, 3]


def test_records_of_others_go_when_they_are_old(tmp_path: Path) -> None:
    for by in ("old", "judge", "young"):
        each = Known(tmp_path, by)
        each.add("valid", "a")
        each.save()
    month = time.time() - 31 * 86400
    for by in ("old", "judge"):
        os.utime(tmp_path / by, (month, month))
    Known(tmp_path, "judge").remove_old()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judge", "young"]


def test_who_judges_is_told_by_source_and_validator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_facts, "_site_folders", lambda: [str(tmp_path)])
    assert judge("source") == ""  # it cannot be told which pydantic that is
    (tmp_path / "pydantic-2.11.0.dist-info").mkdir()
    (tmp_path / "pydantic_settings-2.0.0.dist-info").mkdir()
    assert judge("source") == ""
    (tmp_path / "pydantic_core-2.33.0.dist-info").mkdir()
    first = judge("source")
    assert first
    assert judge("another") != first
    (tmp_path / "pydantic-2.11.0.dist-info").rename(tmp_path / "pydantic-2.12.0.dist-info")
    assert judge("source") not in {"", first}
