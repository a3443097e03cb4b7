"""What must not show in a bundle is caught and named: real sessions of one entry that depends on all of it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from build_projects import Project

from leapp.build import reproduce as reproducing
from leapp.build.mirror import Kind
from leapp.build.reads import FileRead, Reads
from leapp.build.reproduce import (
    BY_NAME,
    INCOMPLETE,
    RUN_TO_RUN,
    SESSION,
    chosen,
    culprits,
    not_reproducible,
    reproduce,
    reproduce_stage,
    with_needs,
)
from leapp.bundle import read
from leapp.bundle.diff import Cause
from leapp.errors import BuildCancelledError, NotReproducibleError, UnknownVariationError

DEPENDS = """
import inspect, tempfile, time, zlib
from pathlib import Path


def number(text):
    return zlib.crc32(str(text).encode()) % 1000


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


VALUES = {
    "hash": lambda: hash("x") % 1000,
    "order": lambda: number(list({"a", "b", "c", "d", "e", "f", "g"})),
    "home": lambda: number(Path.home()),
    "tmpdir": lambda: number(tempfile.gettempdir()),
    "zone": lambda: time.localtime(200 * 86400).tm_hour * 60 + time.localtime(200 * 86400).tm_min,
    "locale": lambda: number(os.environ.get("LANG")),
    "umask": umask,
    "listing": lambda: number([each.name for each in Path("names").iterdir()]),
    "scan": lambda: number([each.name for each in os.scandir("names")]),
    "exports": lambda: float("leapp.export.torchscript" in sys.modules),
    "file": lambda: number(__file__),
    "folder": lambda: number(os.getcwd()),
    "unread": lambda: float(os.path.exists("data/extra.txt")),
    "line": lambda: inspect.currentframe().f_lineno,
    "nothing": lambda: 3.0,
}


def depends():
    for name, value in VALUES.items():
        record(name, torch.tensor([float(value())]))


def sound():
    record("n", torch.randn(3))


def hashes():
    record("n", torch.tensor([float(hash("x") % 1000)]))


def clock():
    record("n", time.time())
    record("pid", torch.tensor([float(os.getpid())]))


def strays():
    with open("data/place.txt") as file:
        record("n", float(Path(file.read()).read_text()))


def reads_outside():
    record("n", float((Path(__file__).parents[2] / "outside" / "gain.txt").read_text()))
"""

CAUGHT_BY = {
    "hash-seed": {"hash", "order"},
    "home": {"home"},
    "tmpdir": {"tmpdir"},
    "time-zone": {"zone"},
    "locale": {"locale"},
    "umask": {"umask"},
    "listings": {"listing", "scan"},
    "other-exports": {"exports"},
    "folder": {"file", "folder"},
    "inputs": {"file", "folder", "unread"},
    "lines": {"file", "folder", "line"},
}


def recorded(*paths: str) -> Reads:
    """As a recorder would have it; digests take no part here."""
    return Reads(project=tuple(FileRead(path, "0" * 64, 1) for path in paths))


NAMES = [f"names/{name}" for name in ("one", "two", "three", "four")]
READS = recorded("src/entry.py", *NAMES)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("around") / "project"
    root.mkdir()
    (root / "pyproject.toml").touch()
    made = Project(root)
    made.source("src/entry.py", DEPENDS)
    for name in (*NAMES, "data/extra.txt", "../outside/gain.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("2.5")
    (root / "data/place.txt").write_text(str(root / "data/extra.txt"))
    for name in ("depends", "sound", "hashes", "clock", "strays", "reads_outside"):
        # No model files: what is looked for shows in graphs and constants, and a session takes half the time.
        path = made.manifest(name, f"src/entry.py:{name}")
        path.write_text(path.read_text().replace('formats = ["torchscript"]', "formats = []"))
    path = made.manifest("formats", "src/entry.py:sound")
    path.write_text(path.read_text().replace('["torchscript"]', '["torchscript", "pt2", "onnx"]'))
    return made


_FIRST: dict[tuple[Path, str], Path] = {}


def first(project: Project, name: str) -> Path:
    """The bundle of the first session, made once."""
    key = (project.root, name)
    if key not in _FIRST:
        outcome = project.session(name)
        assert outcome.compiled is not None, outcome.log.read_text()
        _FIRST[key] = Path(outcome.compiled.bundle)
    return _FIRST[key]


def again(project: Project, name: str, reads: Reads | None = READS, **options):
    folder = project.root / "sessions" / name
    return reproduce(project.plan(name), first(project, name), reads, session_folder=folder, **options)


def test_what_depends_on_nothing_comes_out_the_same_with_everything_varied(project):
    record = again(project, "sound")
    assert record.ok, record.lines()
    assert record.complete
    assert record.varied == tuple(BY_NAME)
    assert len(record.runs) == 1
    assert record.rows() == []
    assert record.content_files == len(read.load(first(project, "sound")).files)
    written = json.loads(json.dumps(record.as_json(), allow_nan=False))
    assert (written["reproduced"], written["inputs"]["complete"], written["difference"]) == (True, True, None)
    assert not list(project.root.rglob("__pycache__"))


def test_models_of_all_formats_come_out_the_same(project):
    record = again(project, "formats")
    assert record.ok, record.lines()
    suffixes = {Path(path).suffix for path in read.load(first(project, "formats")).files}
    assert {".pt", ".pt2", ".onnx"} < suffixes


def test_each_variation_catches_what_it_is_there_for_and_nothing_else(project, tmp_path):
    """One session per variation; each value of the entry is a node of its own."""
    bundle = read.load(first(project, "depends"))
    inputs = reproducing.inputs_of(project.plan("depends"), READS)
    folder = project.root / "sessions" / "depends"
    sessions = reproducing._Sessions(project.plan("depends"), bundle, inputs, tmp_path, folder, 10, None)
    plain = sessions.run(())
    assert plain.same, plain.difference and plain.difference.lines()
    found = {}
    for name in BY_NAME:
        run = sessions.run((name,))
        assert run.difference is not None, run.failure
        # The order in which a folder lists its files may be another one for a copy, and may not.
        ignored = {"listing", "scan"} if "folder" in run.variations else set()
        found[name] = {each.node for each in run.difference.findings if each.cause is Cause.CONSTANTS} - ignored
    assert found == CAUGHT_BY


def test_the_variation_that_does_it_is_found_and_shown(project):
    record = again(project, "hashes", vary=("umask", "hash-seed", "home"))
    assert not record.ok
    assert [blame.variations for blame in record.blames] == [("hash-seed",)]
    ((path, why, blamed),) = record.rows()
    assert path == "nodes/n/manifest.json"
    assert why.startswith("constants (node 'n': constant '_tensor_constant0' differs")
    assert "src/entry.py:" in why
    assert blamed == "hash-seed: it depends on hash(), or the order of a set of texts"
    error = not_reproducible(project.plan("hashes"), record)
    assert error.exit_code == 1
    assert "nodes/n/manifest.json" in str(error)
    assert "hash-seed" in str(error)


def test_without_bisection_nothing_is_looked_for(project):
    record = again(project, "hashes", vary=("hash-seed",), bisect=False)
    assert len(record.runs) == 1
    assert {row[2] for row in record.rows()} == {"not looked for"}


def test_clocks_and_entropy_are_told_from_what_is_varied(project):
    record = again(project, "clock", vary=("hash-seed", "umask"))
    assert [run.variations for run in record.runs] == [("hash-seed", "umask"), ()]
    assert [(blame.variations, blame.text) for blame in record.blames] == [((), RUN_TO_RUN)]
    assert {row[2] for row in record.rows()} == {RUN_TO_RUN}
    whole = record.runs[0].difference
    assert whole.causes == (Cause.GRAPH, Cause.CONSTANTS)
    operation = next(each for each in whole.findings if each.cause is Cause.GRAPH)
    assert "torch.mul(%tanh, 1" in operation.first
    assert operation.first != operation.second


def test_a_file_that_was_not_seen_to_be_read_is_named(project):
    record = again(project, "reads_outside", vary=("folder", "inputs"))
    assert not record.ok
    assert [blame.variations for blame in record.blames] == [("folder",)]
    ((path, why, blamed),) = record.rows()
    assert (path, blamed) == (SESSION, INCOMPLETE)
    assert "FileNotFoundError" in why
    assert f"'{project.root.parent}/outside/gain.txt'" in why
    assert "reproduce" not in why


def test_a_declared_file_outside_is_mirrored_where_it_lies(project):
    reads = Reads(project=READS.project, declared=(FileRead("../outside/gain.txt", "0" * 64, 3),))
    record = again(project, "reads_outside", reads, vary=("folder", "inputs"))
    assert record.ok, record.lines()


def test_a_copy_that_still_reads_the_project_itself_proves_nothing(project):
    record = again(project, "strays", recorded("src/entry.py", "data/place.txt", "data/extra.txt"))
    assert record.ok, record.lines()
    assert not record.complete
    assert record.runs[0].strays == ("data/extra.txt",)
    assert "still read data/extra.txt" in record.notes[0]


def test_the_stage_leaves_its_record_in_evidence_and_stops_a_build(project):
    from dataclasses import replace

    plan = replace(project.plan("hashes"), vary=("hash-seed",))
    bundle = first(project, "hashes")
    with pytest.raises(NotReproducibleError) as raised:
        reproduce_stage(plan, bundle, READS, session_folder=project.root / "sessions" / "hashes")
    written = json.loads((bundle / "evidence/reproduction.json").read_text())
    assert written["reproduced"] is False
    assert written["blames"][0]["variations"] == ["hash-seed"]
    assert raised.value.facts["record"].rows()


def test_unknown_reads_are_said_to_be_so(project):
    """Sessions are cut off at once: what is looked at here is decided before them."""
    inputs = reproducing.inputs_of(project.plan("sound"), None)
    assert inputs.kind is Kind.WHOLE
    assert project.root / "src/entry.py" in inputs.files
    gaps = Reads(project=(FileRead("data/gone.txt", "0" * 64, 1),), gaps=("no notification",))
    inputs = reproducing.inputs_of(project.plan("sound"), gaps)
    assert inputs.kind is Kind.WHOLE
    assert {project.root / "src/entry.py", project.root / "data/gone.txt"} <= set(inputs.files)


def test_a_cancelled_reproduction_says_so(project):
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(BuildCancelledError):
        again(project, "sound", cancel=cancel)


# --- without sessions ------------------------------------------------------------------------------------------------


def test_variations_are_chosen_by_name_in_the_tables_order():
    assert chosen(None) == tuple(BY_NAME)
    assert chosen(["lines", "home", "home"]) == ("home", "lines")
    assert chosen([]) == ()
    assert with_needs(["lines"]) == ("folder", "lines")
    with pytest.raises(UnknownVariationError, match="hash-seed, home") as raised:
        chosen(["home", "hashseed"])
    assert raised.value.exit_code == 2
    for variation in BY_NAME.values():
        assert set(variation.needs) < BY_NAME.keys()
        assert variation.summary
        assert variation.blames


def searched(guilty: list[set[str]], names: str = "abcdefghijk") -> tuple[list[set[str]], int]:
    asked = []

    def differing(some: frozenset[str]) -> frozenset[str]:
        asked.append(some)
        return frozenset(str(each) for each in map(sorted, guilty) if set(each) <= some)

    return [set(group) for group in culprits(tuple(names), differing)], len(asked)


@pytest.mark.parametrize("name", "abcdefghijk")
def test_one_culprit_is_found_in_few_steps(name):
    found, steps = searched([{name}])
    assert found == [{name}]
    assert steps <= 8


def test_all_single_culprits_are_found():
    found, _ = searched([{"a"}, {"f"}, {"k"}])
    assert found == [{"a"}, {"f"}, {"k"}]


@pytest.mark.parametrize("group", [{"a", "k"}, {"a", "b"}, {"c", "e"}, {"j", "k"}])
def test_two_that_do_it_only_together_are_found(group):
    found, _ = searched([group])
    assert found == [group]


def test_three_that_do_it_only_together_are_found():
    found, _ = searched([{"a", "e", "k"}])
    assert found == [{"a", "e", "k"}]
