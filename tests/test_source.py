"""The requirement that a written noxfile installs: the source of what runs, never a bare name."""

from __future__ import annotations

import importlib.metadata
import json

import pytest
from packaging.requirements import Requirement

from leapp._source import Source, find_source, versions

WHEEL = "https://x.example/leapp_build-1.2.0-py3-none-any.whl"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def installed(tmp_path, direct_url=None, version="1.2.0"):
    """A distribution as an installer leaves it, and its package."""
    info = tmp_path / f"leapp_build-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: leapp-build\nVersion: {version}\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    package = tmp_path / "leapp"
    package.mkdir(exist_ok=True)
    return importlib.metadata.Distribution.at(info), package


@pytest.mark.parametrize(
    ("direct_url", "requirement"),
    [
        (None, "leapp-build[build]==1.2.0"),
        (
            {"url": "https://git.example/leapp.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"leapp-build[build] @ git+https://git.example/leapp.git@{COMMIT}",
        ),
        (
            {"url": "ssh://git@x.example/l.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}, "subdirectory": "py"},
            f"leapp-build[build] @ git+ssh://git@x.example/l.git@{COMMIT}#subdirectory=py",
        ),
        (
            {"url": "https://me:secret@git.example/l", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"leapp-build[build] @ git+https://git.example/l@{COMMIT}",
        ),
        (
            {"url": "https://${TOKEN}@git.example/l", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"leapp-build[build] @ git+https://${{TOKEN}}@git.example/l@{COMMIT}",
        ),
        (
            {"url": WHEEL, "archive_info": {"hashes": {"sha256": "ab"}}},
            f"leapp-build[build] @ {WHEEL}#sha256=ab",
        ),
    ],
    ids=["released", "git", "git in a folder", "password", "variable", "wheel by URL"],
)  # fmt: skip
def test_sources_that_any_machine_has(tmp_path, direct_url, requirement):
    source = find_source(*installed(tmp_path, direct_url))
    assert (source.requirement, source.local) == (requirement, None)
    assert Requirement(requirement).extras == {"build"}


@pytest.mark.parametrize("kind", [{"dir_info": {"editable": False}}, {"archive_info": {}}], ids=["folder", "wheel"])
def test_sources_of_this_machine(tmp_path, kind):
    place = tmp_path / "a place"
    source = find_source(*installed(tmp_path, {"url": place.as_uri(), **kind}))
    assert source.local == place
    assert Requirement(source.requirement).url == place.as_uri()


def test_an_editable_checkout(tmp_path):
    (tmp_path / "checkout/leapp").mkdir(parents=True)
    (tmp_path / "site").mkdir()
    url = {"url": (tmp_path / "checkout").as_uri(), "dir_info": {"editable": True}}
    distribution, _ = installed(tmp_path / "site", url)
    (tmp_path / "site/leapp").rmdir()
    source = find_source(distribution, tmp_path / "checkout/leapp")
    assert source.local == tmp_path / "checkout"
    assert source.pip_arguments("picture") == f"-e '{tmp_path}/checkout[picture]'"  # no copy takes its place


@pytest.mark.parametrize(
    ("requirement", "arguments"),
    [
        ("leapp-build[build]==1.2.0", "'leapp-build[build,dask]==1.2.0'"),
        (f"leapp-build[build] @ {WHEEL}#sha256=ab", f"'leapp-build[build,dask] @ {WHEEL}#sha256=ab'"),
        (
            "leapp-build[build] @ file:///x/leapp-build[build]",
            "'leapp-build[build,dask] @ file:///x/leapp-build[build]'",
        ),
    ],
)
def test_other_extras_of_the_same_source(requirement, arguments):
    assert Source(requirement).pip_arguments("build,dask") == arguments


def test_what_runs_counts_and_not_what_is_installed(tmp_path):
    (tmp_path / "checkout/leapp").mkdir(parents=True)
    (tmp_path / "checkout/pyproject.toml").touch()
    (tmp_path / "site").mkdir()
    distribution, _ = installed(tmp_path / "site")
    assert find_source(distribution, tmp_path / "checkout/leapp").local == tmp_path / "checkout"


def test_this_very_package_has_a_source():
    name = Requirement(find_source().requirement).name
    assert name == "leapp-build"


def test_the_versions_of_what_runs():
    found = versions()
    assert found["torch"] == importlib.metadata.version("torch")
