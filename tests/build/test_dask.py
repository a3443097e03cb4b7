"""Builds on a cluster of two worker processes: what comes out, and what happens where something goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from build_projects import Project

from leapp._canonical import sha256_file
from leapp.build.cache import Cache
from leapp.build.plan import BuildPlan, make_plan
from leapp.build.reproduce import chosen
from leapp.build.result import Stage
from leapp.build.run import build
from leapp.bundle import read
from leapp.errors import (
    ClusterAddressError,
    ClusterLostError,
    MissingDependencyError,
    NotReproducibleError,
    WorkerDiffersError,
    WorkersKilledError,
)
from leapp.manifest.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leapp.build.result import PipelineResult

pytest.importorskip("torch")
distributed = pytest.importorskip("distributed")
KilledWorker = pytest.importorskip("distributed.scheduler").KilledWorker

from leapp.build import dask_cluster  # noqa: E402  # needs Dask
from leapp.build.dask_cluster import NO_WORKERS, DaskCluster, _pieces  # noqa: E402
from leapp.build.dask_worker import TAKEN, StoredFile, _portable, differing  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
GONE_S = 20.0
BODY = """
from helper import FACTOR

def waits():
    # The first one to come here stays; whoever comes later goes on.
    started = os.environ["STARTED"]
    if not os.path.exists(started):
        with open(started + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(started + ".new", started)
        import time
        time.sleep(120)

def plain(factor=1.0):
    record(factor=FACTOR * factor)

def slow():
    waits()
    record(factor=FACTOR)

def fails():
    print("nearly there")
    raise ValueError("no such robot")

def leaves():
    sys.exit(4)

def untraced():
    leapp.start("one")
    leapp.start("two")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dask")


@pytest.fixture(scope="module")
def project(place: Path) -> Project:
    root = place / "project"
    root.mkdir()
    (root / "pyproject.toml").touch()
    project = Project(root)
    project.source("helper.py", "FACTOR = 2.0\n", head="")
    project.source("entry.py", BODY)
    project.manifest("one", "entry.py:plain")
    project.manifest("two", "entry.py:plain", pipeline="args = { factor = 3.0 }")
    project.manifest("slow", "entry.py:slow", '[session]\npass_env = ["STARTED"]')
    for name in ("fails", "leaves", "untraced"):
        project.manifest(name, f"entry.py:{name}")
    return project


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Any]:
    """Two workers with a content store of their own, as on another machine."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=":0",
        local_directory=str(place / "local"),
        env={"LEAPP_CACHE": str(place / "worker-cache"), "OMP_NUM_THREADS": "1"},
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def own_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAPP_CACHE", str(place / "client-cache"))


def plan_of(project: Project, out: Path, *names: str, reproduced: tuple[str, ...] = ()) -> BuildPlan:
    manifests = load([project.manifests[name] for name in names])
    plan = make_plan(manifests, out=out, environment=os.environ)
    vary = chosen(None)
    return replace(
        plan,
        pipelines=tuple(replace(each, vary=vary if each.name in reproduced else None) for each in plan.pipelines),
    )


def built(plan: BuildPlan, cluster: Any = None, **options: Any) -> tuple[PipelineResult, ...]:
    with DaskCluster(cluster.scheduler_address) if cluster is not None else contextlib.nullcontext() as elsewhere:
        return build(plan, jobs=2, elsewhere=elsewhere, **options)


def content(bundle: Path) -> dict[str, str]:
    """Digests of all files but the evidence, in which times and paths stand."""
    assert read.verify(bundle).ok
    files = (path for path in bundle.rglob("*") if path.is_file())
    names = {path.relative_to(bundle).as_posix(): path for path in files}
    return {name: sha256_file(path) for name, path in names.items() if not name.startswith("evidence/")}


def told(result: PipelineResult) -> dict[str, Any]:
    """What machines are told, but times and memory."""
    record = result.as_json()
    for name in ("wall_s", "peak_memory_bytes", "bundle", "log", "reproduction"):
        record.pop(name)
    return record


@pytest.fixture(scope="module")
def local(project: Project, place: Path) -> dict[str, PipelineResult]:
    plan = plan_of(project, place / "local-dist", "one", "two", "fails", "leaves", "untraced")
    return {result.plan.name: result for result in built(plan)}


@pytest.fixture(scope="module")
def remote(project: Project, place: Path, cluster: Any) -> tuple[dict[str, PipelineResult], list[tuple[str, str]]]:
    """The same plan on the cluster, one of it reproduced and kept in the cache; and the stages as they were told."""
    plan = plan_of(project, place / "dist", "one", "two", "fails", "leaves", "untraced", reproduced=("one",))
    cache = Cache(place / "client-cache")
    stages: list[tuple[str, str]] = []
    # It has workers; and all files but the smallest arrive in several pieces.
    with dask_cluster.dask.config.set({NO_WORKERS: "3s"}), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_cluster, "PIECE_BYTES", 700)
        results = built(
            plan, cluster, cache=cache, on_stage=lambda plan, stage: stages.append((plan.name, stage.value))
        )
    cache.close()
    return {result.plan.name: result for result in results}, stages


def test_bundles_are_those_of_a_local_build(local: dict[str, PipelineResult], remote: Any, place: Path) -> None:
    results, _ = remote
    for name in ("one", "two"):
        assert results[name].error is None, results[name].error
        assert results[name].published
        assert results[name].digest == local[name].digest
        assert content(place / "dist" / name / "1.0.0") == content(place / "local-dist" / name / "1.0.0")
        assert told(replace(results[name], cache=None)) == told(local[name])
    reproduction = results["one"].reproduction
    assert reproduction is not None
    assert reproduction.ok


def test_failures_are_those_of_a_local_build(local: dict[str, PipelineResult], remote: Any, place: Path) -> None:
    results, _ = remote
    for name, code in (("fails", 3), ("leaves", 3), ("untraced", 2)):
        there, here = results[name], local[name]
        assert (there.exit_code, here.exit_code) == (code, code)
        moved = json.dumps(told(here)).replace("local-dist", "dist")
        assert json.loads(moved) == told(replace(there, cache=None))
        assert type(there.error) is type(here.error)
    log = results["fails"].log
    assert log == place / "dist" / ".logs" / "fails-1.0.0.log"
    assert "nearly there" in log.read_text()
    assert not (place / "dist" / "fails").exists() or not any((place / "dist" / "fails").iterdir())


def test_stages_are_told_in_order(remote: Any) -> None:
    _, stages = remote
    mine = [stage for name, stage in stages if name == "one"]
    assert mine[0] == "waiting"
    assert mine[-1] == "done"
    assert mine[1:-1] == ["tracing and exporting", "checking", "probing with other data", "reproducing", "publishing"]


def test_what_is_in_the_cache_needs_no_cluster(remote: Any, project: Project, place: Path) -> None:
    results, _ = remote
    assert results["one"].cache is not None
    assert results["one"].cache.not_kept == ""
    command = [sys.executable, "-m", "leapp", "build", str(project.manifests["one"]), "--out", str(place / "dist")]
    done = subprocess.run(  # noqa: PLW1510  # what failed is shown below
        [*command, "--json", "--dask", "tcp://127.0.0.1:1"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["cache"]["state"] == "unchanged"


def test_a_damaged_object_is_built_again(remote: Any, project: Project, place: Path, cluster: Any) -> None:
    results, _ = remote
    model = next((place / "dist" / "two" / "1.0.0").rglob("*.pt"))
    digest = sha256_file(model)
    stored = place / "worker-cache" / "objects" / digest[:2] / digest
    data = stored.read_bytes()
    stored.chmod(0o644)
    stored.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (again,) = built(plan_of(project, place / "damaged", "two"), cluster)
    assert again.error is None, again.error
    assert again.digest == results["two"].digest
    assert content(place / "damaged" / "two" / "1.0.0") == content(place / "dist" / "two" / "1.0.0")
    assert sha256_file(stored) == digest


def test_one_node_alone_lies_on_this_machine(project: Project, place: Path, cluster: Any) -> None:
    plan = plan_of(project, place / "only", "one")
    plan = replace(plan, pipelines=tuple(replace(each, only="scale") for each in plan.pipelines))
    (result,) = built(plan, cluster)
    assert result.error is None, result.error
    assert result.bundle is not None
    assert read.verify(result.bundle).ok
    assert not result.published
    assert not (place / "only").exists()


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, "the entry did not start"
        time.sleep(0.02)
    return int(path.read_text())


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + GONE_S
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.02)


def worker_of(pid: int, cluster: Any) -> int:
    """The worker process whose child, or child's child, a session is."""
    workers = {each.process.pid for each in cluster.workers.values()}
    while pid not in workers:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


def test_the_work_of_a_killed_worker_is_done_by_another(
    project: Project, place: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = place / "killed-started"
    monkeypatch.setenv("STARTED", str(started))
    results: list[PipelineResult] = []
    plan = plan_of(project, place / "killed", "slow")
    stages: list[str] = []
    told = {"on_stage": lambda _plan, stage: stages.append(stage.value)}
    thread = threading.Thread(target=lambda: results.extend(built(plan, cluster, **told)))
    began = time.monotonic()
    thread.start()
    session = wait_for(started)
    time.sleep(3.0)
    lost_s = 3.0
    os.kill(worker_of(session, cluster), signal.SIGKILL)
    assert_gone(session)
    thread.join(240)
    assert [result.error for result in results] == [None]
    assert results[0].published
    assert read.verify(place / "killed" / "slow" / "1.0.0").ok
    # Why it begins once more is told, and the time is that of all of it.
    assert stages[:4] == ["waiting", "tracing and exporting", Stage.LOST.value, "tracing and exporting"]
    assert stages.count(Stage.LOST.value) == 1
    assert lost_s < results[0].wall_s < time.monotonic() - began


def test_the_time_of_a_pipeline_that_was_begun_anew_is_the_whole_time() -> None:
    stages: list[Stage] = []
    order: Any = SimpleNamespace(plan=None, on_stage=lambda _plan, stage: stages.append(stage))
    answer: Any = SimpleNamespace(result=SimpleNamespace(wall_s=2.0))
    begun = dask_cluster._Begun(order)
    begun.on_stage(TAKEN, "tcp://a:1")
    begun.on_stage("tracing and exporting", "tcp://a:1")
    begun.on_stage("tracing and exporting", "tcp://a:1")  # once more, with what the first time showed
    assert stages == [Stage.TRACING, Stage.TRACING]
    begun.since -= 60.0
    assert begun.wall_s(answer) == 2.0
    begun.on_stage(TAKEN, "tcp://b:1")
    assert stages[2:] == [Stage.LOST]
    assert 60.0 <= begun.wall_s(answer) < 70.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_sessions_end_with_the_client(
    number: signal.Signals, project: Project, place: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = place / f"client-{number.name}"
    monkeypatch.setenv("STARTED", str(started))
    out = place / f"cancelled-{number.name}"
    command = [sys.executable, "-m", "leapp", "build", str(project.manifests["slow"]), "--no-reproduce"]
    client = subprocess.Popen(
        [*command, "--out", str(out), "--dask", cluster.scheduler_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    session = wait_for(started)
    client.send_signal(number)
    _, said = client.communicate(timeout=60)
    assert client.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), said
    assert_gone(session)
    assert read.is_bundle(out / "slow" / "1.0.0") is False


class Otherwise:
    """Digests of a machine on which one file is another one."""

    def __init__(self, name: str, digests: Any) -> None:
        self.name, self.digests = name, digests

    def digest(self, path: Any) -> str:
        return "0" * 64 if Path(path).name == self.name else self.digests.digest(path)

    def save(self) -> None:
        pass


@pytest.mark.parametrize("name", ["entry.py", "helper.py"])
def test_another_project_is_told(name: str, project: Project, place: Path, cluster: Any) -> None:
    with DaskCluster(cluster.scheduler_address) as elsewhere:
        elsewhere._digests = Otherwise(name, elsewhere._digests)
        (result,) = build(plan_of(project, place / "differs", "one"), elsewhere=elsewhere)
    assert isinstance(result.error, WorkerDiffersError)
    assert result.exit_code == 2
    assert name in str(result.error)
    assert "tcp://127.0.0.1:" in str(result.error)
    assert not read.is_bundle(place / "differs" / "one" / "1.0.0")


def test_another_tool_chain_is_told(
    project: Project, place: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dask_cluster.tool_facts
    monkeypatch.setattr(dask_cluster, "tool_facts", lambda *args: facts(*args) | {"package torch": "1.0"})
    (result,) = built(plan_of(project, place / "differs", "one"), cluster)
    assert isinstance(result.error, WorkerDiffersError)
    assert "package torch is 1.0 here and " in str(result.error)


def test_what_may_differ_within_a_cluster() -> None:
    here = {"Python": "3.11", "package torch": "2.6", "package pip": "1", "processor": "a", "package mine": "1"}
    refused, others = differing(here, here)
    assert (refused, others) == ([], [])
    here["start-up file a.pth"] = "0" * 64
    there = {
        "start-up file a.pth": "1" * 64,
        "Python": "3.12",
        "package torch": "2.6",
        "package pip": "2",
        "processor": "b",
        "package more": "1",
    }
    refused, others = differing(here, there)
    assert refused == ["Python is 3.11 here and 3.12 there", "package mine is 1 here and is not there"]
    assert others == [
        "package more is not installed here and is there",
        "package pip is 1 here and 2 there",
        "processor is a here and b there",
        "start-up file a.pth is not the same",
    ]


def test_errors_of_tasks_are_told() -> None:
    order: Any = SimpleNamespace(plan=SimpleNamespace(manifest=SimpleNamespace(shown="one.toml")))
    elsewhere = DaskCluster.__new__(DaskCluster)
    elsewhere.address, elsewhere._lost = "tcp://here:1", ""
    elsewhere._client = SimpleNamespace(
        run=lambda *_args, **_rest: {"tcp://a:1": [], "tcp://b:1": ImportError("leapp")}
    )
    killed = KilledWorker("task", SimpleNamespace(address="tcp://b:1"), 3)
    error = elsewhere._task_error(order, killed)
    assert isinstance(error, WorkersKilledError)
    assert error.exit_code == 3
    assert str(error).startswith("one.toml: 4 workers were killed while they built it; the last one was tcp://b:1.")

    # Dask wraps what a worker could not load.
    wrapped = RuntimeError("Error during deserialization of the task graph.")
    wrapped.__cause__ = ModuleNotFoundError("No module named 'leapp'")
    error = elsewhere._task_error(order, wrapped)
    assert isinstance(error, WorkerDiffersError)
    assert "the worker tcp://b:1 is not as" in str(error)
    assert "No module named 'leapp'" in str(error)

    error = elsewhere._task_error(order, OSError("No space left on device"))
    assert isinstance(error, ClusterLostError)
    assert "a worker failed with OSError: No space left on device" in str(error)


def test_an_error_travels_without_what_cannot() -> None:
    error = NotReproducibleError(manifest="one.toml", detail="  x", record=threading.Lock())
    sent = pickle.loads(pickle.dumps(_portable(error)))
    assert (type(sent), str(sent)) == (NotReproducibleError, str(error))


def test_pieces_are_bounded_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "PIECE_BYTES", 10)
    files = {"a": StoredFile("x", 4), "empty": StoredFile("y", 0), "b": StoredFile("z", 23)}
    assert [*_pieces(files)] == [
        [("a", 0, 4), ("b", 0, 6)],
        [("b", 6, 10)],
        [("b", 16, 7)],
    ]


def test_a_cluster_without_workers_or_scheduler_is_given_up(project: Project, place: Path) -> None:
    plan = plan_of(project, place / "lost", "one")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        with dask_cluster.dask.config.set({NO_WORKERS: "1s"}):
            (result,) = built(plan, empty)
        assert isinstance(result.error, ClusterLostError)
        assert "no worker for 1 s" in str(result.error)
        assert result.exit_code == 1
        with DaskCluster(empty.scheduler_address) as elsewhere:
            threading.Timer(0.5, empty.close).start()
            began = time.monotonic()
            (result,) = build(plan, elsewhere=elsewhere)
        assert isinstance(result.error, ClusterLostError)
        assert time.monotonic() - began < 45
    assert not read.is_bundle(place / "lost" / "one" / "1.0.0")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://127.0.0.1:1", "no scheduler answers there"),
        ("nowhere.json", "there is no such scheduler file"),
        ("what://127.0.0.1:1", "unknown address scheme 'what'"),
    ],
)
def test_a_wrong_address_is_told(address: str, why: str) -> None:
    with pytest.raises(ClusterAddressError) as caught:
        DaskCluster(address, connect_s=0.5)
    assert why in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "leapp.build.dask_cluster")
    with pytest.raises(MissingDependencyError, match=r"pip install 'leapp-build\[dask\]"):
        import leapp.build.dask_cluster  # noqa: F401
