"""What the cache takes for the same build, what it says when something changed, and that it never breaks a build."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from build_projects import Project

from leapp.build._facts import differences, plan_facts, tool_facts
from leapp.build._file_digests import FileDigests
from leapp.build.cache import Cache, Hit, InputState, Miss, default_root, ignored_folders, never_kept, not_proved
from leapp.build.mirror import Inputs, Kind
from leapp.build.plan import PipelinePlan, make_plan
from leapp.build.reads import FileRead, Link, Lister, Listing, Reads, Written
from leapp.build.reproduce import ReproductionRecord, Run
from leapp.build.result import PipelineResult
from leapp.bundle import write
from leapp.cli import main, size
from leapp.manifest.load import load, load_one

if TYPE_CHECKING:
    from pathlib import Path

PROVED = ReproductionRecord("0" * 64, ("inputs",), Inputs(Kind.RECORDED, ()), 1, (Run(("inputs",), None, "", (), 0.0),))


@pytest.fixture
def plan(project: Project) -> PipelinePlan:
    (project.root / "a.py").write_text("def main(): ...\n")
    (project.root / "weights.bin").write_bytes(b"weights")
    project.manifest("a", "a.py:main", '[session]\npass_env = ["FACTOR"]\n')
    return project.plan("a")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture(autouse=True)
def no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    # A record of a reproduction is a large thing; that a bad one is refused is tested with the function itself.
    monkeypatch.setattr(type(PROVED), "complete", property(lambda record: record is PROVED), raising=True)


def read_of(plan: PipelinePlan) -> Reads:
    digests = FileDigests(plan.manifest.root / "none")
    root = plan.manifest.root
    files = [FileRead(name, digests.digest(root / name), 1) for name in ("a.py", "weights.bin")]
    return Reads(project=tuple(files), listings=(Listing(".", Lister.IMPORT, "", 1),), absent=("override.toml",))


def bundle_of(plan: PipelinePlan, text: str = "model") -> tuple[Path, PipelineResult]:
    folder = plan.manifest.root / "staged"
    (folder / "evidence").mkdir(parents=True, exist_ok=True)
    (folder / "model.txt").write_text(text)
    (folder / "evidence" / "note.json").write_text("{}")
    digest = write.seal(folder, name=plan.name, version=plan.version, status="ok")
    return folder, PipelineResult(plan, digest=digest, nodes=("scale",), artifacts=1, size_bytes=5, reproduction=PROVED)


def keep(cache: Cache, plan: PipelinePlan, text: str = "model") -> str:
    miss = cache.lookup(plan)
    assert isinstance(miss, Miss)
    folder, result = bundle_of(plan, text)
    return cache.remember(plan, miss, folder, [read_of(plan)], result, wall_s=1.5)


def reason(cache: Cache, plan: PipelinePlan) -> str:
    found = Cache(cache.root).lookup(plan)
    return found.reason if isinstance(found, Miss) else "hit"


# --- the key ---


def facts(plan: PipelinePlan) -> dict[str, str]:
    return plan_facts(plan, FileDigests(plan.manifest.root / "none").digest)


def rewritten(project: Project, old: str, new: str, **options) -> dict[str, str]:
    text = project.manifests["a"].read_text()
    assert old in text
    project.manifests["a"].write_text(text.replace(old, new))
    manifest = load_one(project.manifests["a"])
    return facts(make_plan([manifest], out=project.root / "dist", environment={}, **options).pipelines[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("schema = 1", "# a comment\nschema = 1"),
        ("timeout_s = 120", "timeout_s = 240"),
        ('entry = "a.py:main"', "entry = 'a.py:main'  # quoted otherwise"),
    ],
)
def test_what_is_no_content_is_no_fact(project: Project, plan: PipelinePlan, old: str, new: str) -> None:
    before = rewritten(project, "schema = 1", "schema = 1")
    assert rewritten(project, old, new) == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('version = "1.0.0"', 'version = "1.0.1"', 'manifest pipeline.version: "1.0.0" -> "1.0.1"'),
        ("[export]", "frequency_hz = 50\n[export]", "manifest pipeline.frequency_hz: null -> 50"),
        ('["torchscript"]', '["onnx"]', "manifest export.formats"),
        ("[session]", "[session]\nseed = 3", "manifest session.seed: 0 -> 3"),
        ("[session]", '[session]\ninputs = ["weights.bin"]', "files that [session] inputs names: new"),
        ("[session]", "[nodes.scale]\nrtol = 0.1\n[session]", "manifest nodes.scale.rtol: new, 0.1"),
        ("[session]", "[pipeline.args]\nwidth = 3\n[session]", "manifest pipeline.args.width: new, 3"),
        ("[session]", '[metadata]\n"a.b" = "c"\n[session]', 'manifest metadata."a.b": new, "c"'),
    ],
)
def test_what_a_manifest_says_is_told_when_it_changes(
    project: Project, plan: PipelinePlan, old: str, new: str, said: str
) -> None:
    before = rewritten(project, "schema = 1", "schema = 1")
    assert any(line.startswith(said) for line in differences(before, rewritten(project, old, new)))


def test_options_and_variables_are_facts(project: Project, plan: PipelinePlan) -> None:
    before = facts(plan)
    assert differences(before, facts(replace(plan, strict=True))) == ["option --strict: False -> True"]
    assert differences(before, facts(replace(plan, probe=False))) == ["option probe: True -> False"]
    given = make_plan([plan.manifest], out=plan.target, environment={"FACTOR": "a secret"}).pipelines[0]
    assert differences(before, facts(given)) == ["variable FACTOR changed"]
    assert "a secret" not in json.dumps(facts(given))
    # What the reproduction varies proves more or less, and changes nothing in the bundle.
    assert facts(replace(plan, vary=("home",))) == before


def test_the_tool_chain_is_told_by_name(tmp_path: Path) -> None:
    found = tool_facts(FileDigests(tmp_path / "none").digest, tmp_path)
    assert found["package torch"].split("+")[0].startswith("2.")
    assert found == tool_facts(FileDigests(tmp_path / "none").digest, tmp_path)
    newer = found | {"package torch": "9.9.9", "LEAPP's own source": "f" * 64}
    lines = differences(found, newer)
    assert lines == ["LEAPP's own source changed", f"package torch: {found['package torch']} -> 9.9.9"]


def test_a_module_that_lies_beside_packages_counts_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No metadata speaks of it, and what is read there is taken for the tool chain's."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr("site.getsitepackages", lambda: [str(folder)])
    monkeypatch.syspath_prepend(folder)
    seen = [tool_facts(FileDigests(tmp_path / "none").digest, tmp_path)]
    for text in ("GAIN = 1.0", "GAIN = 2.0"):
        (folder / "gains.py").write_text(text)
        seen.append(tool_facts(FileDigests(tmp_path / "none").digest, tmp_path))
    assert differences(*seen[:2]) == ["module gains.py: new"]
    assert differences(*seen[1:]) == ["module gains.py changed"]


# --- digests of files ---


def age(path: Path) -> None:
    """Make a file old enough for its digest to be kept; only the clock can make its status old."""
    os.utime(path, (time.time() - 100,) * 2)


def test_digests_are_taken_again_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leapp.build._file_digests._YOUNG_NS", -(10**15))  # all files are old
    path = tmp_path / "file"
    path.write_bytes(b"one")
    digests = FileDigests(tmp_path / "kept.json")
    first = digests.digest(path)
    digests.save()
    opened: list[object] = []
    real = open
    monkeypatch.setattr("builtins.open", lambda *given, **named: opened.append(given[0]) or real(*given, **named))
    again = FileDigests(tmp_path / "kept.json")
    assert again.digest(path) == first
    assert str(path) not in map(str, opened)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(b"two")
    os.utime(path, ns=times)  # as large, and of the same time
    assert again.digest(path) != first


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff"])
def test_kept_digests_that_are_damaged_count_as_none(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / "kept.json").write_bytes(kept)
    (tmp_path / "file").write_bytes(b"abc")
    assert FileDigests(tmp_path / "kept.json").digest(tmp_path / "file").startswith("ba7816bf")


# --- hits, misses and their reasons ---


def test_what_was_kept_is_found_until_something_changes(cache: Cache, plan: PipelinePlan) -> None:
    root = plan.manifest.root
    assert reason(cache, plan) == "it was not built here before"
    assert keep(cache, plan) == ""
    assert reason(cache, plan) == "hit"
    (root / "README.md").touch()  # no module
    (root / "dist").mkdir()
    (root / ".mypy_cache").mkdir()
    assert reason(cache, plan) == "hit"
    (root / "weights.bin").write_bytes(b"WEIGHTS")
    assert reason(cache, plan) == "weights.bin changed"
    (root / "a.py").unlink()
    (root / "override.toml").touch()
    found = Cache(cache.root).lookup(plan)
    assert isinstance(found, Miss)
    assert {"a.py is gone", "weights.bin changed", "override.toml is there now"} < set(found.changes)
    assert found.reason == "a.py is gone (and 3 more; --explain lists them)"


def test_a_module_that_appears_where_imports_looked(cache: Cache, plan: PipelinePlan) -> None:
    keep(cache, plan)
    (plan.manifest.root / "json.py").touch()
    assert reason(cache, plan) == "the project folder holds other names, and the session listed it"


def test_several_states_of_the_files_are_kept(cache: Cache, plan: PipelinePlan) -> None:
    weights = plan.manifest.root / "weights.bin"
    for text in ("one", "two"):
        weights.write_text(text)
        assert keep(cache, plan, text) == ""
    weights.write_text("one")
    assert reason(cache, plan) == "hit"
    weights.write_text("three")
    assert reason(cache, plan) == "weights.bin changed"


def test_a_changed_version_is_told(cache: Cache, project: Project, plan: PipelinePlan) -> None:
    keep(cache, plan)
    rewritten(project, '"1.0.0"', '"1.1.0"')
    assert reason(cache, project.plan("a")) == 'manifest pipeline.version: "1.0.0" -> "1.1.0"'


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign"])
def test_a_damaged_record_is_no_record(cache: Cache, plan: PipelinePlan, damage: str) -> None:
    keep(cache, plan)
    (record,) = cache.root.glob("actions/??/*.json")
    text = record.read_text()
    record.write_text(
        {"cut": text[:-9], "changed": text.replace('"artifacts": 1', '"artifacts": 2'), "foreign": "[]"}[damage]
    )
    assert reason(cache, plan) == f"its record in the cache is damaged, {record.relative_to(cache.root)}"
    keep(cache, plan)
    assert reason(cache, plan) == "hit"


def test_reasons_are_told_against_the_same_project(cache: Cache, project: Project, plan: PipelinePlan) -> None:
    keep(cache, plan)
    other = Project(project.root.with_name("other"))
    shutil.copytree(project.root, other.root)
    other.manifests["a"] = other.root / "manifests/a.toml"
    rewritten(other, '["torchscript"]', '["onnx"]')
    assert reason(cache, other.plan("a")) == "it was not built here before"
    rewritten(project, '["torchscript"]', '["onnx"]')
    assert reason(cache, project.plan("a")).startswith("manifest export.formats")
    assert cache.last(other.plan("a")) is not None  # what it costs is known all the same


def test_a_version_for_one_release_is_not_the_last_build(cache: Cache, project: Project, plan: PipelinePlan) -> None:
    keep(cache, plan)
    (manifest,) = load([project.manifests["a"]], version="1.1.0-rc.1")
    asked = make_plan([manifest], out=project.root / "dist", environment=os.environ).pipelines[0]
    assert reason(cache, asked).startswith('manifest pipeline.version: "1.0.0" -> "1.1.0-rc.1"')
    keep(cache, asked, "rc")
    assert reason(cache, asked) == "hit"
    rewritten(project, '["torchscript"]', '["onnx"]')
    assert "version" not in reason(cache, project.plan("a"))


def test_installers_of_packages_are_the_last_reason() -> None:
    before = {"package pip": "23", "package torch": "1", "package a": "1"}
    now = {"package pip": "26", "package torch": "2", "package b": "1"}
    names = [each.partition(":")[0] for each in differences(before, now)]
    assert names == ["package torch", "package pip", "package a", "package b"]


def test_restored_is_what_was_built_and_then_nothing_is_written(cache: Cache, plan: PipelinePlan) -> None:
    keep(cache, plan)
    staged = plan.manifest.root / "staged"
    result = cache.take(plan)
    assert isinstance(result, PipelineResult)
    assert result.cache is not None
    assert (result.cache.state, result.nodes, result.published) == ("restored", ("scale",), True)
    for path in (each for each in staged.rglob("*") if each.is_file()):
        there = plan.target / path.relative_to(staged)
        assert there.read_bytes() == path.read_bytes()
        assert there.stat().st_mode & 0o777 == 0o644
    inode = plan.target.stat().st_ino
    again = cache.take(plan)
    assert isinstance(again, PipelineResult)
    assert again.cache is not None
    assert again.cache.state == "unchanged"
    assert plan.target.stat().st_ino == inode


@pytest.mark.parametrize("damage", ["changed", "extra", "missing"])
def test_a_published_bundle_that_was_touched_is_put_right(cache: Cache, plan: PipelinePlan, damage: str) -> None:
    keep(cache, plan)
    cache.take(plan)
    model = plan.target / "model.txt"
    if damage == "changed":
        model.write_text("MODEL")
    elif damage == "extra":
        (plan.target / "extra").touch()
    else:
        model.unlink()
    result = cache.take(plan)
    assert isinstance(result, PipelineResult)
    assert result.cache is not None
    assert result.cache.state == "restored"
    assert model.read_text() == "model"
    assert not (plan.target / "extra").exists()


def test_a_damaged_object_is_a_miss_and_is_made_again(cache: Cache, plan: PipelinePlan) -> None:
    keep(cache, plan)
    hit = cache.lookup(plan)
    assert isinstance(hit, Hit)
    path = cache.store.path(hit.files["model.txt"])
    path.chmod(0o644)
    path.write_text("MODEL")
    miss = cache.take(plan)
    assert isinstance(miss, Miss)
    assert miss.reason == "the cache's copy of model.txt was damaged, and is dropped"
    again = cache.take(plan)  # as a build looks once more before it starts
    assert isinstance(again, Miss)
    assert again.reason == miss.reason
    other = Cache(cache.root).take(plan)  # another process finds nothing there
    assert isinstance(other, Miss)
    assert other.reason == "the cache no longer has model.txt"
    assert not plan.target.exists()
    folder, result = bundle_of(plan)
    assert cache.remember(plan, miss, folder, [read_of(plan)], result, wall_s=1) == ""
    assert isinstance(cache.take(plan), PipelineResult)


# --- where the build's own folders lie ---


@pytest.mark.parametrize(
    ("out", "folder"), [(".", "cache"), ("..", "cache"), ("dist", "."), ("dist", ".."), (".", ".")]
)
def test_no_folder_of_the_build_hides_the_project(plan: PipelinePlan, out: str, folder: str) -> None:
    """Bundles and cache in the project's root, or above it: what the session read counts all the same."""
    root = plan.manifest.root
    cache = Cache(root / folder)
    plan = replace(plan, target=root / out / plan.name / plan.version)
    assert keep(cache, plan) == ""
    cache.take(plan)
    assert reason(cache, plan) == "hit"
    (root / "weights.bin").write_bytes(b"other weights")
    assert reason(cache, plan) == "weights.bin changed"
    (root / "weights.bin").write_bytes(b"weights")
    (root / "new.py").touch()
    assert reason(cache, plan) == "the project folder holds other names, and the session listed it"


@pytest.mark.parametrize("folder", ["dist", "out", ".leapp-cache"])
def test_what_was_read_in_a_folder_of_the_build_counts(plan: PipelinePlan, folder: str) -> None:
    """The model of another pipeline, say."""
    root = plan.manifest.root
    cache = Cache(root / ".leapp-cache")
    plan = replace(plan, target=root / "out" / plan.name / plan.version)
    model = root / folder / "b" / "model.pt"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"model")
    found = FileRead(model.relative_to(root).as_posix(), FileDigests(root / "none").digest(model), 5)
    miss = cache.lookup(plan)
    assert isinstance(miss, Miss)
    bundle, result = bundle_of(plan)
    assert cache.remember(plan, miss, bundle, [Reads(project=(found,))], result, wall_s=1) == ""
    assert reason(cache, plan) == "hit"
    model.write_bytes(b"MODEL")
    assert reason(cache, plan) == f"{folder}/b/model.pt changed"


def test_what_another_build_may_have_read_in_its_output_does_not_count(plan: PipelinePlan) -> None:
    ignored = ignored_folders(plan, plan.manifest.root / "cache")
    read = FileRead("dist/other.pt", "0" * 64, 1, native=True)

    def state(reads: Reads) -> InputState:
        return InputState.of([reads], plan.manifest.root, ignored)

    assert state(Reads(project=(read,), mixed=("no seccomp",))).files == {}
    assert state(Reads(project=(read,))).files == {"dist/other.pt": "0" * 64}
    mine = replace(read, native=False)
    assert state(Reads(project=(mine,), mixed=("no seccomp",))).files == {"dist/other.pt": "0" * 64}


# --- what is not kept ---


@pytest.mark.parametrize(
    ("reads", "said"),
    [
        (None, "what its session read is not known"),
        (Reads(gaps=("no inotify",)), "not all that it reads could be seen: no inotify"),
        (Reads(started=("git",)), "it started another program (git), whose reads are not seen"),
        (Reads(talked=("127.0.0.1:6379",)), "it connected to 127.0.0.1:6379, and what answers there may change"),
        (Reads(written=(Written("log.txt", "created"),)), "it writes outside its session's folders (log.txt)"),
        (Reads(undeclared=(FileRead("/x", "", 1),)), "it reads /x, which its manifest does not name"),
        (Reads(written=(Written("dist/x", "created"),)), ""),
        (Reads(), ""),
    ],
)
def test_reads_that_prove_nothing(tmp_path: Path, reads: Reads | None, said: str) -> None:
    ignored = (str(tmp_path / "dist"),)
    assert not_proved([Reads(), reads], PROVED, root=tmp_path, ignored=ignored) == said


def test_without_a_reproduction_nothing_is_kept(cache: Cache, plan: PipelinePlan) -> None:
    assert "was not reproduced" in not_proved([Reads()], None, root=plan.manifest.root)
    unproved = replace(PROVED, notes=("not proved that nothing else is read",))
    assert not_proved([Reads()], unproved, root=plan.manifest.root) == "not proved that nothing else is read"
    miss = cache.lookup(plan)
    assert isinstance(miss, Miss)
    folder, result = bundle_of(plan)
    said = cache.remember(plan, miss, folder, [Reads()], replace(result, reproduction=None), wall_s=1)
    assert "was not reproduced" in said
    assert reason(cache, plan) == f"it was not cached: {said}"


def test_pipelines_that_no_cache_helps(plan: PipelinePlan) -> None:
    assert never_kept(plan) == ""
    assert never_kept(replace(plan, only="scale")) == "one node alone is built"
    assert "/other/python" in never_kept(replace(plan, python="/other/python"))
    session = replace(plan.manifest.session, network=True)
    assert "network" in never_kept(replace(plan, manifest=replace(plan.manifest, session=session)))


def test_what_changed_while_it_was_built_is_not_kept(cache: Cache, plan: PipelinePlan) -> None:
    miss = cache.lookup(plan)
    assert isinstance(miss, Miss)
    folder, result = bundle_of(plan)
    reads = read_of(plan)
    (plan.manifest.root / "weights.bin").write_bytes(b"other weights")
    assert cache.remember(plan, miss, folder, [reads], result, wall_s=1) == "weights.bin changed, while it was built"


def test_links_and_unreadable_files_are_looked_at(cache: Cache, plan: PipelinePlan) -> None:
    root = plan.manifest.root
    (root / "link").symlink_to("weights.bin")
    miss = cache.lookup(plan)
    assert isinstance(miss, Miss)
    folder, result = bundle_of(plan)
    reads = replace(read_of(plan), links=(Link("link", "weights.bin"),))
    assert cache.remember(plan, miss, folder, [reads], result, wall_s=1) == ""
    (root / "link").unlink()
    (root / "link").symlink_to("a.py")
    assert reason(cache, plan) == "link leads to a.py now"
    (root / "link").unlink()
    assert reason(cache, plan).startswith("link is no link now")


# --- folders that cannot be used, and others at work ---


def test_a_cache_that_cannot_be_written_is_told_once(tmp_path: Path, plan: PipelinePlan) -> None:
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "cache")  # also root cannot make a folder there
    assert keep(cache, plan) == "the cache cannot be written"
    with cache.building(Miss("", key="0" * 64), threading.Event()) as waited:
        assert not waited
    cache.close()
    assert "cannot be used" in cache.trouble()
    assert cache.trouble() == ""


def test_where_the_cache_lies() -> None:
    assert str(default_root({"LEAPP_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"})) == "/a/b"
    assert str(default_root({"XDG_CACHE_HOME": "/c"})) == "/c/leapp"
    assert default_root({"XDG_CACHE_HOME": "relative"}) == default_root({})
    assert default_root({}).parts[-2:] == (".cache", "leapp")


HOLD = """\
import sys, threading, time
from pathlib import Path
from leapp.build.cache import Cache, Miss
with Cache(Path(sys.argv[1])).building(Miss("", key="0" * 64), threading.Event()):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_of_two_builds_waits_and_a_killed_one_holds_nobody(cache: Cache) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(cache.root)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        miss, cancel = Miss("", key="0" * 64), threading.Event()
        threading.Timer(0.2, cancel.set).start()
        with cache.building(miss, cancel) as waited:  # ends because it is cancelled
            assert waited
        entered: list[bool] = []

        def second() -> None:
            with cache.building(miss, threading.Event()) as waited:
                entered.append(waited)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        assert entered == []
        child.send_signal(signal.SIGKILL)
        thread.join(20)
        assert entered == [True]
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


KEEP = """\
import sys
from pathlib import Path
from leapp.build.store import Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    store.put_file(Path(sys.argv[2]))
    path = store.path(sys.argv[3])
    path.unlink()
"""


def test_kill_9_leaves_whole_objects_or_none(cache: Cache, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(1 << 22))
    digest = FileDigests(tmp_path / "none").digest(source)
    for delay_s in (0.01, 0.03, 0.05):
        arguments = [sys.executable, "-c", KEEP, str(cache.root), str(source), digest]
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay_s)
        child.kill()
        child.wait()
        child.stdout.close()
        assert cache.verify().dropped == ()
    cache.store.put_file(source)
    cache.store.fetch(digest, tmp_path / "back")


# --- upkeep and the command ---


def test_gc_keeps_what_was_used_last_whole(cache: Cache, project: Project, plan: PipelinePlan) -> None:
    keep(cache, plan, "one")
    first = cache.lookup(plan)
    (plan.manifest.root / "weights.bin").write_bytes(b"second")
    rewritten(project, '"1.0.0"', '"2.0.0"')
    newer = project.plan("a")
    keep(cache, newer, "two")
    second = cache.lookup(newer)
    assert isinstance(first, Hit)
    assert isinstance(second, Hit)
    os.utime(cache._action_path(cache.key(plan)), (time.time() - 9999,) * 2)
    for digest in first.files.values():
        os.utime(cache.store.path(digest), (time.time() - 9999,) * 2)
    size_of_second = sum(cache.store.path(digest).stat().st_size for digest in set(second.files.values()))
    cache.gc(size_of_second)
    assert all(cache.store.has(digest) for digest in second.files.values())
    assert not cache.store.has(first.files["model.txt"])
    assert len([*cache.root.glob("actions/??/*.json")]) == 1
    cache.gc(0)
    assert [*cache.root.glob("actions/??/*.json")] == []
    assert reason(cache, newer) == "the cache no longer has it"


@pytest.mark.parametrize(("text", "size_bytes"), [("0", 0), ("20GB", 20 * 10**9), ("1.5 MB", 1_500_000), ("7k", 7000)])
def test_sizes(text: str, size_bytes: int) -> None:
    assert size(text) == size_bytes


def test_the_command(cache: Cache, plan: PipelinePlan, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("LEAPP_CACHE", str(cache.root))
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{cache.root}\n"
    keep(cache, plan)
    assert main(["cache", "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objects"] == 4
    assert main(["cache", "verify"]) == 0
    assert re.fullmatch(r"4 objects \([0-9.]+ k?B\) are sound\.\n", capsys.readouterr().out)
    assert main(["cache", "gc", "--max-size", "0"]) == 0
    assert capsys.readouterr().out.startswith("Removed 4 objects")
    with pytest.raises(SystemExit):
        main(["cache", "gc", "--max-size", "much"])
    assert "expected a size such as 500MB" in capsys.readouterr().err


def test_what_is_another_one_is_told_before_what_came_or_went() -> None:
    before = {"package a": "1", "package torch": "2.13.0", "processor": "x"}
    now = {"package b": "1", "package torch": "2.14.1", "processor": "x"}
    assert differences(before, now) == [
        "package torch: 2.13.0 -> 2.14.1",
        "package a: was 1, gone",
        "package b: new, 1",
    ]
