"""Locks and real builds: what is published, what is refused and why, and what `leapp lock` makes of it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from build_projects import Project

from leapp import cli, lock
from leapp._canonical import readable_json
from leapp.build.cache import Cache, Hit
from leapp.build.locked import check_built, lock_of
from leapp.build.plan import BuildPlan, make_plan
from leapp.build.relock import State, lock_manifests, to_build
from leapp.build.result import Standing
from leapp.build.run import build
from leapp.bundle import read, write
from leapp.bundle._tree import scan
from leapp.errors import LockError, LockNotMetError
from leapp.manifest.load import load_one

ENTRY = """\
    def main():
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        x = annotate.input_tensors("policy", {"x": torch.randn(3)})
        annotate.output_tensors("policy", {"y": torch.tanh(net(x)) * 2.0})
"""


def plan_of(project, *, version=None) -> BuildPlan:
    manifest = load_one(project.manifests["p"], version=version)
    return make_plan([manifest], out=project.root / "dist", environment=os.environ, probe=False)


def build_one(project, **options):
    (result,) = build(plan_of(project, **options))
    return result


def lock_one(project, **options):
    (locked,) = lock_manifests(plan_of(project), **options)
    return locked


def write_lock(project, **changes):
    """Another lock in the place of the one that is there."""
    file = lock.beside(project.manifests["p"])
    (section,) = lock.read(file).sections.values()
    lock.write(
        file, lock.Lock("p", {changes.get("platform", section.platform): dataclasses.replace(section, **changes)})
    )


@pytest.fixture(scope="module")
def locked_project(tmp_path_factory):
    """A project with a published bundle and its lock, and what `leapp lock` said. Not to be changed."""
    project = Project(tmp_path_factory.mktemp("locked"))
    (project.root / "pyproject.toml").touch()
    project.source("entry.py", ENTRY)
    project.manifest("p", "entry.py:main")
    return project, lock_one(project)


@pytest.fixture
def project(locked_project, tmp_path):
    """A copy of the locked project that a test may change."""
    original, _ = locked_project
    root = tmp_path / "copy"
    shutil.copytree(original.root, root)
    return Project(root, {"p": root / "manifests" / "p.toml"})


@pytest.fixture
def lock_file(project):
    return lock.beside(project.manifests["p"])


# --- leapp lock -----------------------------------------------------------------------------------------------------


def test_what_has_no_bundle_is_built_published_and_locked(locked_project):
    project, locked = locked_project
    assert (locked.error, locked.state) == (None, State.NEW)
    assert "holds no bundle" in locked.built
    bundle = read.load(project.root / "dist/p/1.0.0")
    (section,) = lock.read(lock.beside(project.manifests["p"]), name="p").sections.values()
    assert section == lock.section_of(bundle)
    assert section.bundle == locked.digest == bundle.digest
    assert set(section.inputs) == {"entry.py"}
    assert section.toolchain["torch version"]
    assert section.packages["numpy"] == np.__version__
    assert section.builder["processor"]


def test_where_nothing_changed_nothing_is_built_or_written(project, lock_file):
    before = lock_file.stat()
    locked = lock_one(project)
    assert (locked.state, locked.built) == (State.UNCHANGED, "")
    assert lock_file.stat().st_mtime_ns == before.st_mtime_ns


STALE = {
    "source": (lambda p: p.source("entry.py", ENTRY + "\n"), "entry.py changed"),
    "manifest": (lambda p: p.manifest("p", "entry.py:main", "[metadata]\na = 1"), "p.toml changed"),
    "damaged": (lambda p: (p.root / "dist/p/1.0.0/p.yaml").write_text("x"), "is damaged"),
    "no evidence": (lambda p: shutil.rmtree(p.root / "dist/p/1.0.0/evidence"), "does not say what it was built from"),
    "gone": (lambda p: shutil.rmtree(p.root / "dist"), "holds no bundle"),
}


@pytest.mark.parametrize("case", STALE)
def test_a_bundle_that_something_changed_under_is_built_again(project, case):
    change, said = STALE[case]
    assert to_build(plan_of(project).pipelines[0]) == ""
    change(project)
    assert said in to_build(plan_of(project).pipelines[0])


def test_another_tool_chain_wants_another_bundle(project, monkeypatch):
    monkeypatch.setattr("leapp.bundle.contract._version", lambda name: "9.9")
    assert "torch version is 9.9, and was 2" in to_build(plan_of(project).pipelines[0])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"packages": {"numpy": "1.0"}}, f"numpy is {np.__version__}, and was 1.0"),
        ({"packages": {"gone": "1.0"}}, "gone is not installed, and was 1.0"),
        ({"builder": {"Python": "CPython 3.1.0"}}, "and was CPython 3.1.0"),
        ({"builder": {"LEAPP's own source": "0" * 64}}, "LEAPP's own source changed"),
        ({"builder": {"processor": "of another machine"}}, ""),
    ],
)
def test_another_version_of_what_it_was_built_with_wants_another_bundle(project, changed, said):
    bundle = project.root / "dist/p/1.0.0"
    file = bundle / "evidence/session.json"
    record = json.loads(file.read_bytes())
    for key, values in changed.items():
        record[key] |= values
    file.write_bytes(readable_json(record))
    write.index_evidence(bundle, "p")
    found = to_build(plan_of(project).pipelines[0])
    assert said in found if said else found == ""


def test_a_met_lock_keeps_up_with_versions_and_not_with_machines(project, lock_file):
    (section,) = lock_of(plan_of(project).pipelines[0]).sections.values()
    for packages, builder, state in (
        ({}, {"processor": "of another machine"}, State.UNCHANGED),
        ({"numpy": None}, {}, State.UNCHANGED),
        ({"numpy": "1.0"}, {}, State.REFRESHED),
    ):
        kept = {name: version for name, version in (section.packages | packages).items() if version}
        write_lock(project, packages=kept, builder=section.builder | builder)
        assert lock_one(project).state is state
    write_lock(project, packages=None, builder=None)
    assert lock_one(project).state is State.REFRESHED
    assert lock_of(plan_of(project).pipelines[0]).sections == {section.platform: section}


def test_a_published_bundle_that_differs_is_accepted_on_request_alone(project, lock_file):
    write_lock(project, bundle="1" * 64, version="0.9.0")
    before = lock_file.read_bytes()
    refused = lock_one(project)
    assert (refused.state, refused.exit_code, refused.built) == (State.REFUSED, 1, "")
    assert isinstance(refused.error, LockNotMetError)
    assert "0.9.0" in str(refused.error)
    assert "leapp lock --update" in str(refused.error)
    assert lock_file.read_bytes() == before
    assert refused.as_json()["differences"]
    accepted = lock_one(project, update=True)
    assert (accepted.state, accepted.differences) == (State.UPDATED, refused.differences)
    assert lock_one(project).state is State.UNCHANGED


def test_the_same_bundle_of_other_inputs_needs_no_permission(project, lock_file):
    expected = lock_file.read_bytes()
    write_lock(project, inputs={"entry.py": "1" * 64})
    assert lock_one(project).state is State.REFRESHED
    assert lock_file.read_bytes() == expected


def test_other_platforms_stay(project, lock_file):
    write_lock(project, platform="linux-aarch64")
    assert lock_one(project).state is State.NEW
    assert lock.read(lock_file).platforms == ("linux-aarch64", "linux-x86_64")


def test_a_lock_that_cannot_be_read_is_not_replaced(project, lock_file):
    lock_file.write_text("<<<<<<< HEAD\n")
    locked = lock_one(project, update=True)
    assert (locked.state, locked.exit_code) == (State.FAILED, 2)
    assert "p.lock:1: a merge left its marks here" in str(locked.error)
    assert lock_file.read_text() == "<<<<<<< HEAD\n"


# --- leapp build ----------------------------------------------------------------------------------------------------


def test_a_comment_changes_nothing_that_is_locked(project):
    project.source("entry.py", ENTRY + "    # a comment\n")
    result = build_one(project)
    assert result.error is None
    assert result.lock.standing is Standing.MET
    assert result.as_json()["lock"]["standing"] == "met"
    assert lock_one(project).state is State.REFRESHED


def test_a_bundle_that_is_not_the_locked_one_is_kept_apart_until_it_is_accepted(project, lock_file):
    target, refused = project.root / "dist/p/1.0.0", project.root / "dist/.refused/p/1.0.0"
    locked, before = lock_file.read_bytes(), read.load(target).digest
    project.source("entry.py", ENTRY.replace("* 2.0", "* 2.5"))
    result = build_one(project)
    assert isinstance(result.error, LockNotMetError)
    assert result.exit_code == 1
    assert not result.published
    assert read.load(target).digest == before
    assert lock_file.read_bytes() == locked
    text = str(result.error)
    for said in (
        "graph of node 'policy' changed",
        "2.0 -> 2.5",
        "entry.py",
        "weights",
        "leapp lock --update",
        "leapp diff",
    ):
        assert said in text
    kept = read.load(refused).digest
    accepted = lock_one(project, update=True)
    assert (accepted.error, accepted.state, accepted.digest) == (None, State.UPDATED, kept)
    assert any("2.0 -> 2.5" in line for line in accepted.differences)
    assert read.load(target).digest == kept
    assert lock.read(lock_file).sections["linux-x86_64"].bundle == kept
    assert not refused.parents[1].exists()
    assert (lock_one(project).state, to_build(plan_of(project).pipelines[0])) == (State.UNCHANGED, "")


def test_a_version_of_the_command_line_is_held_against_the_lock_without_it(project):
    result = build_one(project, version="2.0.0-rc.1")
    assert result.error is None
    assert result.lock.standing is Standing.OTHER_VERSION
    assert "p.lock is of version 1.0.0" in " ".join(result.notes)
    write_lock(project, contract="1" * 64)
    with pytest.raises(LockNotMetError):
        check_built(plan_of(project, version="2.0.0-rc.1").pipelines[0], project.root / "dist/p/2.0.0-rc.1")


def test_a_version_of_the_manifest_has_to_be_locked(project):
    write_lock(project, version="0.9.0", bundle="1" * 64)  # all else is the same
    with pytest.raises(LockNotMetError, match=r"0\.9\.0.*1\.0\.0"):
        check_built(plan_of(project).pipelines[0], project.root / "dist/p/1.0.0")


def test_another_torch_shows_as_the_tool_chain_with_what_stayed(project):
    (section,) = lock_of(plan_of(project).pipelines[0]).sections.values()
    files = {"nodes/policy/policy.pt": "2" * 64}
    node = dataclasses.replace(section.nodes["policy"], artifacts=files)
    tools = {**section.toolchain, "torch version": "2.12.1"}
    write_lock(project, bundle="1" * 64, toolchain=tools, nodes={"policy": node})
    with pytest.raises(LockNotMetError) as caught:
        check_built(plan_of(project).pipelines[0], project.root / "dist/p/1.0.0")
    (tool,) = [line for line in caught.value.facts["lines"] if "tool chain" in line and "2.12.1" in line]
    assert section.toolchain["torch version"] in tool
    assert any("unchanged" in line and "graph" in line and "weights" in line for line in caught.value.facts["lines"])


def test_without_a_lock_or_a_section_a_build_is_as_before(project, lock_file):
    write_lock(project, platform="linux-aarch64", bundle="1" * 64)
    (pipeline,) = plan_of(project).pipelines
    checked = check_built(pipeline, project.root / "dist/p/1.0.0")
    assert checked.standing is Standing.NO_SECTION
    assert "no section for linux-x86_64" in checked.note
    lock_file.unlink()
    assert check_built(pipeline, project.root / "dist/p/1.0.0") is None


def test_a_lock_that_cannot_be_read_ends_a_build_before_it_begins(project, lock_file):
    lock_file.write_text("schema = 1\n")
    seen = []
    (result,) = build(plan_of(project), on_stage=lambda _, stage: seen.append(str(stage)))
    assert isinstance(result.error, LockError)
    assert result.exit_code == 2
    assert seen == ["done"]


# --- a build that finds its bundle in the cache ----------------------------------------------------------------------


def restore(project, **options):
    """What the cache makes of the bundle that is published, as a command does that has just been started."""
    (plan,) = plan_of(project, **options).pipelines
    told = dict.fromkeys(("checks", "notes", "nodes"), ()) | dict.fromkeys(
        ("artifacts", "size_bytes", "peak_memory_bytes"), 0
    )
    cache = Cache(project.root.parent / "cache")
    files = {path: cache.store.put_file(plan.target / path) for path in scan(plan.target).files}
    (cache.root / "actions" / "ke").mkdir(parents=True, exist_ok=True)
    (cache.root / "actions" / "ke" / "key.json").touch()
    result = cache.restore(plan, Hit(read.load(plan.target).digest, files, told, "2026-01-01T00:00:00Z", "key"))
    cache.close()
    assert not cache.trouble()
    return result


@pytest.fixture
def held(monkeypatch):
    """How often a bundle was held against its lock, part by part."""
    calls = []
    whole = check_built

    def counted(*arguments):
        calls.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr("leapp.build.locked.check_built", counted)
    return calls


def test_that_a_lock_is_met_is_found_out_once(project, held):
    first, second = restore(project), restore(project)
    assert len(held) == 1
    assert first.lock == second.lock
    assert (second.lock.standing, second.lock.locked_version) == (Standing.MET, "1.0.0")


@pytest.mark.parametrize(
    "change",
    [
        lambda project: write_lock(project, bundle="1" * 64),
        lambda project: write_lock(project, version="0.9.0", bundle="1" * 64),
    ],
    ids=["bundle", "version"],
)
def test_another_lock_is_not_met_because_the_last_one_was(project, held, change):
    restore(project)
    change(project)
    for _ in range(2):  # what is not met is not remembered
        with pytest.raises(LockNotMetError):
            restore(project)
    assert len(held) == 3


def test_a_lock_that_was_damaged_is_told_though_it_was_met_before(project, lock_file):
    restore(project)
    lock_file.write_text(lock_file.read_text().replace("bundle =", "bundel ="))
    with pytest.raises(LockError, match="bundel"):
        restore(project)


def test_what_is_met_but_for_something_is_told_each_time(project, held):
    write_lock(project, platform="linux-aarch64")
    for _ in range(2):
        assert restore(project).lock.standing is Standing.NO_SECTION
    assert len(held) == 2


def test_what_was_refused_goes_also_where_the_lock_is_known_to_be_met(project):
    restore(project)
    refused = plan_of(project).pipelines[0].refused
    shutil.copytree(project.root / "dist/p/1.0.0", refused)
    restore(project)
    assert not refused.parents[1].exists()


# --- leapp check ----------------------------------------------------------------------------------------------------


def test_check_reads_the_locks_as_well(project, lock_file, capsys):
    assert cli.main(["check", str(project.manifests["p"])]) == 0
    lock_file.write_text(lock_file.read_text().replace("bundle =", "bundel ="))
    assert cli.main(["check", str(project.manifests["p"])]) == 2
    assert "linux-x86_64.bundel: unknown key. Did you mean 'bundle'?" in capsys.readouterr().err


# --- leapp verify ---------------------------------------------------------------------------------------------------


@pytest.fixture
def verify(project, monkeypatch, capsys):
    monkeypatch.chdir(project.root)

    def run(*arguments):
        code = cli.main(["verify", "--json", "dist/p/1.0.0", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_verify_finds_the_lock_beside_the_manifest(verify, project, lock_file):
    code, record = verify()
    assert (code, record["lock"]["standing"], record["lock"]["file"]) == (0, "met", "manifests/p.lock")
    write_lock(project, bundle="1" * 64)
    code, record = verify()
    assert (code, record["ok"], record["lock"]["standing"]) == (1, False, "differs")
    assert record["lock"]["differences"]
    write_lock(project, platform="linux-aarch64")
    code, record = verify()
    assert (code, record["lock"]["standing"]) == (0, "no section")
    lock_file.unlink()
    code, record = verify()
    assert (code, record["lock"]) == (0, None)


def test_verify_takes_a_lock_or_a_folder_of_locks(verify, project, lock_file):
    for given in ("manifests", "manifests/p.lock"):
        code, record = verify("--lock", given)
        assert (code, record["lock"]["standing"]) == (0, "met")
    write_lock(project, platform="linux-aarch64")
    code, record = verify("--lock", "manifests")
    assert code == 1
    assert "no section for linux-x86_64" in record["lock"]["differences"][0]
    lock_file.write_text(lock_file.read_text().replace('name = "p"', 'name = "q"'))
    code, record = verify("--lock", "manifests/p.lock")
    assert (code, record["error"]["class"]) == (2, "LockError")
    code, record = verify("--lock", "manifests")
    assert (code, record["error"]["class"]) == (2, "LockError")


def test_verify_and_lock_need_no_torch_where_nothing_is_built(project):
    code = (
        "import sys; from leapp.cli import main;"
        "codes = main(['verify', 'dist/p/1.0.0', '--lock', 'manifests']), main(['lock']);"
        "heavy = [name for name in ('torch', 'numpy', 'onnx', 'rich') if name in sys.modules];"
        "sys.exit(f'{codes} {heavy}' if any(codes) or heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.root,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "unchanged" in done.stdout
