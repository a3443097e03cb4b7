"""What the sessions do beside starting commands: find bundles, and say how two builds of one differ."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("nox")


@pytest.fixture(scope="module")
def noxfile():
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bundle(folder, digest, **files):
    folder.mkdir(parents=True)
    record = {"digest": digest, "files": [{"path": path, "sha256": sha} for path, sha in files.items()]}
    (folder / "bundle.json").write_text(json.dumps(record), "utf-8")


def test_equal_digests_are_equal_bundles(noxfile, tmp_path):
    bundle(tmp_path / "a" / "p" / "1.0.0", "d", model="x")
    bundle(tmp_path / "b" / "p" / "1.0.0", "d", model="x")
    assert noxfile._differences(tmp_path / "a", tmp_path / "b", Path("p", "1.0.0")) == []


def test_each_differing_file_is_named(noxfile, tmp_path):
    bundle(tmp_path / "a" / "p" / "1.0.0", "d", same="1", changed="2", gone="3")
    bundle(tmp_path / "b" / "p" / "1.0.0", "e", same="1", changed="4", new="5")
    assert noxfile._differences(tmp_path / "a", tmp_path / "b", Path("p", "1.0.0")) == [
        "p/1.0.0: changed differs",
        "p/1.0.0: gone differs",
        "p/1.0.0: new differs",
    ]


def test_another_digest_of_equal_files_is_a_difference(noxfile, tmp_path):
    bundle(tmp_path / "a" / "p" / "1.0.0", "d", model="x")
    bundle(tmp_path / "b" / "p" / "1.0.0", "e", model="x")
    assert noxfile._differences(tmp_path / "a", tmp_path / "b", Path("p", "1.0.0")) == ["p/1.0.0: bundle.json differs"]


def test_a_bundle_that_was_not_published_is_a_difference(noxfile, tmp_path):
    bundle(tmp_path / "b" / "p" / "1.0.0", "d", model="x")
    (line,) = noxfile._differences(tmp_path / "a", tmp_path / "b", Path("p", "1.0.0"))
    assert line.startswith("p/1.0.0 has no lock and is not in ")


def test_a_lock_counts_where_it_speaks_of_this_platform(noxfile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built = tmp_path / "again" / "p" / "1.0.0"
    bundle(built, "d")
    (built / "evidence").mkdir()
    (built / "evidence" / "session.json").write_text(json.dumps({"manifest": "manifests/p.toml"}), "utf-8")
    assert not noxfile._is_locked(built)
    (tmp_path / "manifests").mkdir()
    for text, expected in (
        ("[other-x86_64]\n", False),
        (f"[{sys.platform}-{platform.machine()}]\n", True),
    ):
        (tmp_path / "manifests" / "p.lock").write_text(text, "utf-8")
        assert noxfile._is_locked(built) is expected


def test_bundles_are_found_and_scratch_is_not(noxfile, tmp_path):
    bundle(tmp_path / "q" / "1.0.0", "d")
    bundle(tmp_path / "p" / "1.0.0", "d")
    (tmp_path / ".logs").mkdir()
    assert noxfile._bundles(tmp_path) == [tmp_path / "p" / "1.0.0", tmp_path / "q" / "1.0.0"]


def test_every_session_says_what_it_does(noxfile):
    from nox import registry

    sessions = registry.get()
    assert {"export", "verify", "tests", "lint", "bench", "docs"} <= set(sessions)
    for name, session in sessions.items():
        assert session.func.__doc__, name
        assert session.venv_backend == ("virtualenv" if name in {"zoo", "floors"} else "shared"), name


def test_the_floors_are_the_lowest_that_every_extra_takes(noxfile):
    project = {
        "project": {
            "dependencies": ["base>=1.2"],
            "optional-dependencies": {"build": ["two>=2.10", "torch>=2.8"], "onnx": ["two>=2.9"]},
        },
        "dependency-groups": {"tests": ["tool>=1", "two>=2"], "lint": ["other"]},
    }
    pins = "# said\ntool==7.1\ntwo==3.0\nother==4\n"
    assert noxfile._floors(project, pins) == ["base==1.2", "torch==2.8", "two==2.10", "tool==7.1"]


def test_what_the_floors_are_tried_with_is_there(noxfile):
    assert all((ROOT / "manifests" / f"{name}.toml").is_file() for name in noxfile.FLOOR_PIPELINES)
    assert all((ROOT / folder).exists() for folder in noxfile.FLOOR_TESTS)
    floors = noxfile._floors(noxfile.nox.project.load_toml(ROOT / "pyproject.toml"), "")
    assert "numpy==2.1" in floors
