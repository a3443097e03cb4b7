"""Whole builds: real sessions in real processes, one build of many tiny pipelines that all tests look at."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from build_projects import Project

from leapp import cli, errors, lock
from leapp.build import _context, run, second
from leapp.build._messages import Ending, EndingKind
from leapp.build.plan import LOG_FOLDER, make_plan
from leapp.build.ready import _only_prefix, place_for
from leapp.build.relock import to_build
from leapp.build.run import build
from leapp.bundle import read
from leapp.bundle.schema import Tolerances
from leapp.errors import (
    EntryFailedError,
    EntryVariableError,
    NothingAnnotatedError,
    OutputFileError,
    SecondSessionError,
    UnknownNodeError,
    ValidationError,
)
from leapp.manifest.load import load

ENTRIES = """
def compiled(name="p"):
    leapp.start(name)
    record()
    leapp.stop()
    leapp.compile_graph()


def control_loop(ticks=3):
    leapp.start("another name")
    memory = torch.zeros(3)
    for _ in range(ticks):
        x, m = annotate.input_tensors("estimator", {"x": torch.randn(3), "memory": memory})
        f = annotate.output_tensors("estimator", {"features": torch.tanh(x) + m})
        a = annotate.input_tensors("policy", {"features": f})
        _, memory = annotate.output_tensors("policy", {"actions": a * 2.0, "memory_out": a + 1.0})
    leapp.stop()
    leapp.compile_graph()


def only_annotates():
    record()


def annotates_and_exits():
    record()
    sys.exit(0)


def dies():
    compiled()
    os._exit(7)


def is_killed():
    compiled()
    print("about to be killed", flush=True)
    os.kill(os.getpid(), 11)


def raises_after():
    compiled()
    raise RuntimeError("simulator closed")


def hangs():
    compiled()
    import time
    time.sleep(300)


def second_start():
    compiled()
    leapp.start("q")


def refused_after():
    compiled()
    leapp.stop()


def exits_early():
    record()
    print("giving up", flush=True)
    os._exit(0)


def wants_variable():
    try:
        seed = int(os.environ["LEAPP_TEST_SEED"])
    except KeyError as error:
        raise SystemError("no seed") from error


def boom():
    raise ValueError("boom")


def nothing():
    pass


def frozen():
    leapp.start("frozen")
    for value in (1.0, 2.0):
        x = annotate.input_tensors("n", {"x": torch.full((2,), value)})
        annotate.output_tensors("n", {"y": x * float(x.sum())})
    leapp.stop()
    leapp.compile_graph(strict=False)
"""

NAMES = (
    "control_loop", "only_annotates", "annotates_and_exits", "dies", "is_killed", "raises_after", "refused_after",
    "second_start", "exits_early", "boom", "nothing", "frozen", "wants_variable",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """All entries in one build, two at a time: project and results by name."""
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").touch()
    project = Project(root)
    project.source("src/entry.py", ENTRIES)
    for name in NAMES:
        project.manifest(name, f"src/entry.py:{name}")
    project.manifest("unknown_node", "src/entry.py:only_annotates", "[nodes.ghost]\nformats = ['pt2']\n")
    project.manifest(
        "script",
        "src/script.py",
        "rtol = 0.5\n[nodes.scale]\natol = 0.25\n",
        pipeline='argv = ["--factor", "3"]\nfrequency_hz = 50\n',
    )
    project.source("src/script.py", 'if __name__ == "__main__":\n    record(factor=float(sys.argv[2]))\n')
    manifests = load(list(project.manifests.values()))
    plan = make_plan(manifests, out=root / "dist", environment=os.environ)
    results = build(plan, jobs=2)
    return project, {result.plan.name: result for result in results}


def test_a_bundle_is_published_whole(built):
    project, results = built
    result = results["control_loop"]
    assert result.error is None, result.details
    target = project.root / "dist" / "control_loop" / "1.0.0"
    assert result.bundle == target
    assert result.published
    report = read.verify(target)
    assert report.ok, report.problems
    assert (report.name, report.version, report.status, report.digest) == (
        "control_loop", "1.0.0", "ok", result.digest,
    )  # fmt: skip
    assert result.nodes == ("estimator", "policy")
    assert result.artifacts == 2
    assert {(row.node, row.format, row.samples, row.ok) for row in result.checks if not row.in_pipeline} == {
        ("estimator", "torchscript", 3, True),
        ("policy", "torchscript", 3, True),
    }


def test_nothing_but_bundles_and_logs_is_left_in_the_output_folder(built):
    project, results = built
    published = {name for name, result in results.items() if result.published}
    for folder in (project.root / "dist").iterdir():
        if folder.name == LOG_FOLDER:
            continue
        assert [each.name for each in folder.iterdir()] == (["1.0.0"] if folder.name in published else [])


def test_evidence_holds_what_the_session_printed_and_a_report_with_the_digest(built):
    _, results = built
    bundle = results["is_killed"].bundle
    assert "about to be killed" in (bundle / "evidence" / "session.log").read_text()
    session = json.loads((bundle / "evidence" / "session.json").read_text())
    assert (session["entry"], session["manifest"]) == ("src/entry.py:is_killed", "manifests/is_killed.toml")
    assert session["notes"] == list(results["is_killed"].notes)
    assert results["is_killed"].digest in (bundle / "evidence" / "report.html").read_text()
    assert read.verify(bundle).ok


def test_an_entry_that_only_annotates_gets_its_session(built):
    _, results = built
    assert results["only_annotates"].published
    assert results["annotates_and_exits"].published
    assert results["only_annotates"].notes == ()


def test_a_script_gets_its_argv_and_the_manifests_word_counts(built):
    _, results = built
    assert results["script"].error is None, results["script"].details
    bundle = read.load(results["script"].bundle)
    assert bundle.contract["pipeline"]["configs"] == {"frequency": 50}
    assert bundle.nodes["scale"].tolerances == Tolerances(rtol=0.5, atol=0.25)
    assert "3.0" in (bundle.folder / "nodes/scale/graph.txt").read_text()


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("dies", "ended its process with status 7"),
        ("is_killed", "was killed by SIGSEGV"),
        ("raises_after", "raised RuntimeError: simulator closed"),
        ("refused_after", "raised NoSessionError: leapp.stop() was called"),
    ],
)
def test_what_happens_after_compile_graph_is_a_note(built, name, note):
    _, results = built
    result = results[name]
    assert result.error is None, result.details
    assert result.published
    assert len(result.notes) == 1
    assert note in result.notes[0]


def test_a_process_that_hangs_after_compile_graph_is_ended(project):
    project.source("src/entry.py", ENTRIES)
    manifest = project.manifest("hangs", "src/entry.py:hangs")
    (result,) = build(make_plan(load([manifest]), out=project.root / "dist", environment=os.environ), grace_s=0.5)
    assert result.published
    assert result.notes == ("Its process did not end after its bundle was written, and was ended.",)
    assert result.wall_s < 100


@pytest.mark.parametrize(
    ("name", "error", "exit_code", "said"),
    [
        ("second_start", SecondSessionError, 2, "leapp.start('q') after leapp.start('p')"),
        ("unknown_node", UnknownNodeError, 2, "[nodes.ghost]"),
        ("nothing", NothingAnnotatedError, 1, "recorded no node"),
        ("boom", EntryFailedError, 3, "raised ValueError: boom"),
        ("wants_variable", EntryVariableError, 3, "LEAPP_TEST_SEED has to be set, and a build hands on only"),
        ("exits_early", EntryFailedError, 3, "ended its process with status 0 before its bundle was written"),
        ("frozen", ValidationError, 1, "was recorded 2 times and its computation differs"),
    ],
)
def test_failures_are_named_and_publish_nothing(built, name, error, exit_code, said):
    project, results = built
    result = results[name]
    assert type(result.error) is error
    assert result.exit_code == exit_code
    assert said in str(result.error)
    assert result.bundle is None
    assert not (project.root / "dist" / name / "1.0.0").exists()


def test_failures_keep_what_the_session_printed(built):
    project, results = built
    assert "giving up" in results["exits_early"].details
    assert "giving up" in results["exits_early"].log.read_text()
    assert 'raise ValueError("boom")' in results["boom"].details
    assert not (project.root / "dist" / LOG_FOLDER / "dies-1.0.0.log").exists()


@pytest.mark.parametrize("kind", list(EndingKind))
def test_what_was_printed_is_told_of_an_entry_that_exits(kind):
    outcome = SimpleNamespace(ending=Ending(kind, exit_code=3, text="exited with status 2", traceback="its stack"))
    said = _context.details(outcome, b"usage: walk.py CHECKPOINT\nwalk.py: error: CHECKPOINT is required\n")
    assert ("CHECKPOINT is required" in said) is (kind is EndingKind.EXITED)


def test_of_a_long_log_the_end_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_context, "MAX_LOG_BYTES", 10)
    log = tmp_path / "log"
    log.write_bytes(b"x" * 25 + b"the end")
    assert _context.end_of(log) == b"[22 bytes before this are left out]\nxxxthe end"
    log.write_bytes(b"the end")
    assert _context.end_of(log) == b"the end"


def test_records_are_json(built):
    _, results = built
    for result in results.values():
        record = json.loads(json.dumps(result.as_json(), allow_nan=False))
        assert record["exit_code"] == result.exit_code
        assert record["published"] is (record["error"] is None)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def here(project, monkeypatch):
    project.source("entry.py", ENTRIES)
    project.manifest("good", "entry.py:control_loop")
    project.manifest("bad", "entry.py:boom")
    monkeypatch.chdir(project.root)
    return project


def test_build_command_builds_the_rest_and_exits_with_the_highest_code(here, capsys):
    assert cli.main(["build", "--out", "out", "--version", "2.0.0-rc.1", "--jobs", "2"]) == 3
    captured = capsys.readouterr()
    assert "raised ValueError: boom" in captured.err
    assert "Traceback (most recent call last)" in captured.err
    assert "leapp/build" not in captured.err
    digest = read.load(Path("out/good/2.0.0-rc.1")).digest
    for word in ("failed (3)", "out/good/2.0.0-rc.1", f"sha256:{digest}", "leapp replay out/good/2.0.0-rc.1"):
        assert word in captured.out

    page = Path("out/good/2.0.0-rc.1/evidence/report.html").read_text("utf-8")
    assert "Probe: the entry once more, on other data" in page
    assert digest in page
    assert cli.main(["verify", "out/good/2.0.0-rc.1"]) == 0
    assert cli.main(["replay", "out/good/2.0.0-rc.1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert record["ok"]
    assert {(row["node"], row["port"]) for row in record["checks"]} == {
        ("estimator", "features"), ("policy", "actions"), ("policy", "memory_out"),
    }  # fmt: skip
    assert cli.main(["inspect", "out/good/2.0.0-rc.1"]) == 0
    text = capsys.readouterr().out
    for word in ("good 2.0.0-rc.1", "node estimator", "policy/memory_out", "next tick", digest):
        assert word in text

    model = Path("out/good/2.0.0-rc.1/nodes/policy/policy.pt")
    model.write_bytes(model.read_bytes()[:-1] + b"!")
    assert cli.main(["verify", "out/good/2.0.0-rc.1"]) == 1
    text = capsys.readouterr().out
    assert "changed" in text
    assert "fetch it again, or build it again" in text
    assert cli.main(["replay", "out/good/2.0.0-rc.1"]) == 1


def test_only_writes_one_node_in_a_scratch_folder_and_publishes_nothing(here, capsys):
    assert cli.main(["build", "manifests/good.toml", "--only", "policy", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    bundle = Path(record["bundle"])
    assert record["published"] is False
    assert (record["nodes"], record["artifacts"]) == (["estimator", "policy"], 1)
    assert (bundle / "nodes" / "policy" / "policy.pt").is_file()
    assert not (bundle / "nodes" / "estimator" / "estimator.pt").exists()
    assert {row["node"] for row in record["checks"]} == {"policy"}
    assert not bundle.is_relative_to(here.root)
    assert not (here.root / "dist" / "good").exists()
    assert any("neither probed with other data nor reproduced" in note for note in record["notes"])

    # What lies there is no pipeline: it may be looked at, and neither run, gathered nor locked.
    assert read.load(bundle).status == "partial"
    assert cli.main(["verify", str(bundle), "--json"]) == 1
    verified = json.loads(capsys.readouterr().out)
    assert (verified["status"], verified["problems"]) == ("partial", [])
    assert "one node alone" in verified["notes"][0]
    assert cli.main(["verify", str(bundle), "--junit", "junit.xml"]) == 1
    assert capsys.readouterr().out.startswith("partial  ")
    assert "one node alone" in Path("junit.xml").read_text()
    lock.write(Path("good.lock"), lock.Lock("good", {"linux-x86_64": lock.section_of(read.load(bundle))}))
    for verb in (
        ["run", str(bundle)],
        ["run", str(bundle / "good.yaml")],
        ["reproduce", str(bundle)],
        ["diff", "good.lock", str(bundle)],
        ["inspect", str(bundle), "--snippet", "python"],
    ):
        assert cli.main([*verb, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["class"] == "PartialBundleError"
        assert "leapp build MANIFEST" in error["message"]
    shutil.copytree(bundle, here.root / "shard" / "good" / "1.0.0")
    assert cli.main(["build", "--merge", "shard"]) == 1
    assert "one node alone" in capsys.readouterr().err
    assert "partial" in to_build(dataclasses.replace(here.plan("good"), target=Path("shard/good/1.0.0")))
    assert cli.main(["replay", str(bundle), "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert ({row["node"] for row in replayed["checks"]}, replayed["pipeline"]) == ({"policy"}, None)
    assert cli.main(["inspect", str(bundle)]) == 1
    assert "one node alone" in capsys.readouterr().out

    assert cli.main(["build", "manifests/good.toml", "--only", "polcy", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["class"] == "OnlyNodeError"
    assert "Did you mean 'policy'? Nodes that were recorded: estimator, policy" in error["message"]


def test_of_the_folders_of_one_node_the_last_two_stay(here, monkeypatch):
    place = here.root / "tmp"
    monkeypatch.setattr("tempfile.tempdir", str(place))
    plan = dataclasses.replace(here.plan("good"), only="policy")
    other = dataclasses.replace(plan, only="estimator")

    def one(plan, *, fails=False):
        with contextlib.suppress(ZeroDivisionError), place_for(plan) as scratch:
            (scratch / "good").mkdir()
            if fails:
                raise ZeroDivisionError
            keys = ("schema", "requires", "name", "version", "files", "digest")
            (scratch / "good" / "bundle.json").write_text(json.dumps(dict.fromkeys(keys, 1)))
        return scratch

    place.mkdir()
    kept = one(other)
    started = place / f"{_only_prefix(plan)}at-work"  # another build of the same node that has not got far
    started.mkdir()
    foreign = place / f"{_only_prefix(plan)}link"
    foreign.symlink_to(kept)
    made = [one(plan) for _ in range(3)]
    for at, each in enumerate(made):
        os.utime(each, (at, at)) if each.exists() else None
    last = one(plan)
    failed = one(plan, fails=True)
    assert not failed.exists()
    assert {*place.iterdir()} == {kept, started, foreign, made[2], last}


def test_foreign_folders_are_left_alone(here, capsys):
    target = here.root / "dist" / "good" / "1.0.0"
    target.mkdir(parents=True)
    (target / "thesis.tex").write_text("years of work")
    assert cli.main(["build", "manifests/good.toml"]) == 2
    assert "is left as it is" in capsys.readouterr().err
    assert [each.name for each in target.iterdir()] == ["thesis.tex"]


def test_another_interpreter_must_have_leapp(here, capsys):
    bare = here.root / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    here.manifest("good", "entry.py:control_loop", '[session]\npython = "bare/bin/python"\n')
    assert cli.main(["build", "manifests/good.toml"]) == 2
    error = capsys.readouterr().err
    assert f"{bare}/bin/python -m pip install 'leapp-build[build]" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_however_a_build_ends_its_sessions_end(here, number):
    here.source("slow.py", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)\n", head="")
    here.manifest("slow", "slow.py")
    command = [sys.executable, "-m", "leapp", "build", "manifests/slow.toml"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    marker = Path("pid")
    wait_until(lambda: marker.exists() and marker.read_text())
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    session = Path("/proc", marker.read_text())
    if number is signal.SIGKILL:
        wait_until(lambda: not session.exists() or "State:\tZ" in (session / "status").read_text())
    else:
        assert process.returncode == 130
        assert "Interrupted." in error
        assert not session.exists()
        assert not list(Path("dist/slow").iterdir())


def wait_until(true, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("problems", "unsettled", "not_allowed", "kind"),
    [
        (["x"], [], [["p/x"], ["p/x"]], errors.NotVariedError),
        (["x", "m"], [], [["p/x"]], errors.FrozenDataError),
        (["x"], ["h"], [["p/x"]], errors.FrozenDataError),
        ([], ["h"], [[]], errors.StartNotFixedError),
    ],
)
def test_inputs_that_did_not_vary_are_not_said_to_be_frozen(problems, unsettled, not_allowed, kind):
    reports = [{"not_allowed": each} for each in not_allowed]
    assert second._frozen_kind(problems, unsettled, reports) is kind
    said = str(kind(manifest="p.toml", count=1, detail="x"))
    assert (" in the recording belong" in said) == (kind is errors.FrozenDataError)


@pytest.mark.parametrize("name", [None, "/full/disk/a.pt"])
def test_a_full_disk_is_no_fault_of_ours(project, name):
    project.source("a.py", "def main(): ...\n")
    project.manifest("a", "a.py:main")
    plan = project.plan("a")
    context = _context.Context(plan, project.root / "dist", threading.Event(), lambda _plan, _stage: None, 1.0)

    def fails():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    result = run._judged(context, fails)
    assert isinstance(result.error, OutputFileError)
    assert result.exit_code == 2
    assert f"{name or plan.target} could not be written: No space left on device" in str(result.error)
