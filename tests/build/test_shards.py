"""Shards: every pipeline in exactly one, balanced, the same everywhere; and bundles gathered in one folder."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from build_projects import Project
from hypothesis import given
from hypothesis import strategies as st

from leapp import cli, lock
from leapp.build.cache import Cache, default_root
from leapp.build.merge import merge
from leapp.build.plan import make_plan
from leapp.build.shards import Shard, divide, read_costs
from leapp.bundle import read, write
from leapp.errors import BundlesDifferError, CostsError, MergedBundleError, NothingToMergeError, ShardMissingError
from leapp.manifest.load import load_one

KEYS = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(["1.0.0", "2.0.0"])), unique=True)
SECONDS = st.floats(0, 1e6, allow_nan=False)


@given(data=st.data(), keys=KEYS, count=st.integers(1, 8))
def test_every_pipeline_is_in_one_shard_whatever_the_order(data, keys, count):
    costs = data.draw(st.dictionaries(st.sampled_from(keys), SECONDS)) if keys else {}
    shards = divide(keys, count, costs)
    assert len(shards) == count
    assert sorted(key for each in shards for key in each) == sorted(keys)
    assert divide(data.draw(st.permutations(keys)), count, dict(reversed(costs.items()))) == shards


@given(keys=KEYS, count=st.integers(1, 8), data=st.data())
def test_no_shard_costs_more_than_the_mean_and_one_pipeline(keys, count, data):
    costs = {key: data.draw(SECONDS) for key in keys}
    loads = [sum(costs[key] for key in each) for each in divide(keys, count, costs)]
    assert max(loads) <= (sum(costs.values()) / count + max(costs.values(), default=0)) * (1 + 1e-9)


def test_pipelines_of_no_cost_are_spread_by_number():
    keys = [(name, "1") for name in "abcdef"]
    assert [len(each) for each in divide(keys, 3, dict.fromkeys(keys, 0.0))] == [2, 2, 2]
    assert [len(each) for each in divide(keys, 3, {})] == [2, 2, 2]


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "a/2", "1/2/3", "-1/2", "1 /2", "\u0661/2"])
def test_shards_are_written_as_i_of_n(text):
    with pytest.raises(ValueError, match="I/N|counted|at least one|the last one"):
        Shard.parse(text)
    assert str(Shard.parse("2/4")) == "2/4"


def test_costs_that_are_none_are_named_with_their_line(tmp_path):
    file = tmp_path / "plan.jsonl"
    good = '{"name": "a", "version": "1", "cost_s": 2.5}\n{"name": "b", "version": "1", "cost_s": null}\n\n'
    file.write_text(good)
    plan = plan_of(("a", "1"), ("b", "1"))
    assert read_costs(file, plan) == {("a", "1"): 2.5}
    for bad in (
        "[]",
        "{}",
        "no",
        '{"name": "a", "version": "1", "cost_s": "2"}',
        '{"name": "a", "version": "1", "cost_s": -1}',
    ):
        file.write_text(good + bad)
        with pytest.raises(CostsError, match=r"plan\.jsonl:4"):
            read_costs(file, plan)
    with pytest.raises(CostsError, match="missing: No such file or directory"):
        read_costs(tmp_path / "missing", plan)
    file.write_bytes(b"\xff")
    with pytest.raises(CostsError, match=r"plan\.jsonl: it is no text"):
        read_costs(file, plan)


def test_another_version_costs_what_the_last_one_in_the_file_does(tmp_path):
    file = tmp_path / "plan.jsonl"
    lines = [
        {"name": "a", "version": version, "cost_s": cost_s} for version, cost_s in (("1", 2), ("2", 3), ("3", None))
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    plan = plan_of(("a", "1"), ("a", "4"), ("b", "1"))
    assert read_costs(file, plan) == {("a", "1"): 2.0, ("a", "4"): 3.0}


def plan_of(*keys):
    """What of a plan matters here."""
    return SimpleNamespace(pipelines=[SimpleNamespace(name=name, version=version) for name, version in keys])


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two pipelines, each built by its shard in a folder of its own."""
    root = tmp_path_factory.mktemp("shards")
    (root / "pyproject.toml").touch()
    project = Project(root)
    project.source("entry.py", "def one():\n    record()\n\ndef two():\n    record(factor=3.0)\n")
    project.manifest("one", "entry.py:one")
    project.manifest("two", "entry.py:two")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for at in (1, 2):
            assert cli.main(["build", "--shard", f"{at}/2", "--out", f"d{at}", "--no-reproduce", "--jobs", "1"]) == 0
    return root


@pytest.fixture
def here(built, tmp_path, monkeypatch):
    shutil.copytree(built, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def records(capsys, *arguments):
    code = cli.main([*arguments, "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_shards_build_one_each_and_merge_to_all(here, capsys):
    assert [sorted(each.parent.name for each in (here / f"d{at}").glob("*/1.0.0")) for at in (1, 2)] == [
        ["one"],
        ["two"],
    ]
    code, found = records(capsys, "build", "--merge", "d1", "d2", "--out", "all")
    assert (code, [(each["name"], each["already"]) for each in found]) == (0, [("one", False), ("two", False)])
    for at, name in ((1, "one"), (2, "two")):
        assert read.verify(here / "all" / name / "1.0.0").ok
        assert read.load(here / "all" / name / "1.0.0").digest == read.load(here / f"d{at}" / name / "1.0.0").digest
    assert [each["already"] for each in records(capsys, "build", "--merge", "d1", "d2", "--out", "all")[1]] == [
        True,
        True,
    ]
    code, found = records(capsys, "plan", "--out", "all")
    assert [each["name"] for each in found] == ["one", "two"]
    assert all(
        each["cost_s"] > 0 and each["formats"] == ["torchscript"] and re.fullmatch("[0-9a-f]{64}", each["key"])
        for each in found
    )
    assert len({each["key"] for each in found}) == 2
    (here / "plan.jsonl").write_text("\n".join(map(json.dumps, found)))
    assert cli.main(["plan", "--shard", "3/3", "--costs", "plan.jsonl"]) == 0
    assert "fewer pipelines than shards" in capsys.readouterr().out
    assert cli.main(["plan", "--out", "nothing"]) == 0
    assert "manifests/two.toml" in capsys.readouterr().out


def test_costs_come_of_the_bundles_in_out_then_of_the_cache_then_of_nowhere(here, capsys, monkeypatch):
    evidence = here / "d1/one/1.0.0/evidence/session.json"
    evidence.write_text(json.dumps({**json.loads(evidence.read_text()), "wall_s": 1234.5}))
    one, two = records(capsys, "plan", "--out", "d1")[1]
    assert one["cost_s"] == 1234.5
    last = Cache(default_root(os.environ)).last(make_plan_of("two"))
    assert two["cost_s"] == last.wall_s > 0
    # The last build of any version is better than nothing.
    assert records(capsys, "plan", "--out", "d2", "--version", "9.0.0")[1][1]["cost_s"] == last.wall_s
    monkeypatch.setenv("LEAPP_CACHE", str(here / "none"))
    assert [each["cost_s"] for each in records(capsys, "plan", "--out", "d1")[1]] == [1234.5, None]


def test_machines_that_know_other_costs_divide_alike(here, capsys, monkeypatch):
    shutil.copy(here / "manifests/two.toml", here / "manifests/three.toml")
    text = (here / "manifests/three.toml").read_text().replace('"two"', '"three"')
    (here / "manifests/three.toml").write_text(text)
    evidence = here / "d1/one/1.0.0/evidence/session.json"
    evidence.write_text(json.dumps({**json.loads(evidence.read_text()), "wall_s": 1234.5}))

    def shards(*options):
        return [[each["name"] for each in records(capsys, "plan", "--shard", f"{at}/2", *options)[1]] for at in (1, 2)]

    experienced = shards("--out", "d1")
    assert cli.main(["plan", "--out", "d1", "--json"]) == 0
    (here / "plan.jsonl").write_text(capsys.readouterr().out)
    told = shards("--out", "d1", "--costs", "plan.jsonl")
    monkeypatch.setenv("LEAPP_CACHE", str(here / "none"))
    assert shards("--out", "nothing") == experienced == [["one", "two"], ["three"]]
    assert shards("--out", "nothing", "--costs", "plan.jsonl") == told == [["one"], ["three", "two"]]
    assert cli.main(["plan", "--shard", "1/2", "--out", "d1"]) == 0
    out = capsys.readouterr().out
    assert "1234.5 s" in out  # shown all the same
    assert "--costs plan.jsonl" in out
    assert cli.main(["plan", "--shard", "1/2", "--costs", "plan.jsonl"]) == 0
    assert "--costs" not in capsys.readouterr().out


def make_plan_of(name):
    return make_plan([load_one(Path(f"manifests/{name}.toml"))], out=Path("d1"), environment=os.environ).pipelines[0]


def test_a_pipeline_that_no_shard_built_is_named_and_the_rest_is_gathered(here, capsys):
    code, found = records(capsys, "build", "--merge", "d1", "--out", "all")
    assert code == ShardMissingError.exit_code == 1
    assert [(each["name"], each["ok"]) for each in found] == [("one", True), ("two", False)]
    assert "two 1.0.0 is in none of d1" in found[1]["error"]["message"]


def test_the_same_bundle_twice_is_fine_and_another_one_names_both(here):
    shutil.copytree(here / "d1", here / "again")
    (one,) = merge([here / "d1", here / "again"], here / "all")
    assert one.sources == (here / "d1" / "one" / "1.0.0", here / "again" / "one" / "1.0.0")
    other = here / "other" / "one" / "1.0.0"
    shutil.copytree(here / "d2" / "two" / "1.0.0", other)
    for old in other.rglob("*two*"):
        old.rename(old.with_name(old.name.replace("two", "one")))
    write.seal(other, name="one", version="1.0.0", status="ok")
    if not read.verify(other).ok:
        pytest.fail(str(read.verify(other).problems))
    with pytest.raises(BundlesDifferError) as error:
        merge([here / "d1", here / "other"], here / "fresh")
    assert str(here / "d1" / "one" / "1.0.0") in str(error.value)
    assert str(other) in str(error.value)
    assert not (here / "fresh").exists()


def write_lock(here, name, **changes):
    bundle = read.load(next(here.glob(f"d?/{name}/1.0.0")))
    section = dataclasses.replace(lock.section_of(bundle), **changes)
    lock.write(here / f"manifests/{name}.lock", lock.Lock(name, {section.platform: section}))


def test_a_gathered_bundle_is_held_against_its_lock(here, capsys):
    write_lock(here, "one", bundle="1" * 64)
    write_lock(here, "two")
    code, (one, two) = records(capsys, "build", "--merge", "d1", "d2", "--out", "all")
    assert (code, one["error"]["class"], one["bundle"]) == (1, "LockNotMetError", None)
    assert (two["ok"], two["lock"]["standing"]) == (True, "met")
    assert not (here / "all/one").exists()
    refused = Path("all/.refused/one/1.0.0")
    assert str(refused) in one["error"]["message"]
    assert read.load(refused).digest == one["digest"]
    assert cli.main(["build", "--merge", "d1", "d2", "--out", "all"]) == 1
    captured = capsys.readouterr()
    assert "refused" in captured.out
    assert "missing" not in captured.out
    assert "leapp lock --update manifests/one.toml" in captured.err
    # What is refused is gone once the lock is met, and a bundle that lies there already is looked at as well.
    write_lock(here, "one")
    code, found = records(capsys, "build", "--merge", "d1", "d2", "--out", "all")
    assert (code, [each["already"] for each in found]) == (0, [False, True])
    assert not (here / "all/.refused").exists()
    write_lock(here, "one", bundle="1" * 64)
    assert [each["ok"] for each in records(capsys, "build", "--merge", "d1", "d2", "--out", "d1")[1]] == [False, True]
    assert read.verify(here / "d1/one/1.0.0").ok


def test_locks_are_found_where_no_manifest_is_named(here, capsys, monkeypatch):
    write_lock(here, "one", bundle="1" * 64)
    (here / "sub").mkdir()
    monkeypatch.chdir(here / "sub")
    code, (one, two) = records(capsys, "build", "--merge", "../d1", "../d2", "--out", "all")
    assert (code, one["error"]["class"], two["ok"]) == (1, "LockNotMetError", True)
    assert "../d1/one/1.0.0" in one["error"]["message"]  # left where it is
    assert [each.name for each in (here / "sub/all").iterdir()] == ["two"]


def test_a_lock_that_cannot_be_read_leaves_the_others(here, capsys):
    (here / "manifests/one.lock").write_text("<<<<<<< HEAD")
    code, (one, two) = records(capsys, "build", "--merge", "d1", "d2", "--out", "all")
    assert (code, one["error"]["class"], two["ok"]) == (2, "LockError", True)
    assert not (here / "all/one").exists()


def test_damaged_bundles_and_empty_folders_are_refused(here):
    file = next((here / "d1").rglob("*.pt"))
    file.chmod(0o644)
    file.write_bytes(b"x")
    with pytest.raises(MergedBundleError, match="one"):
        merge([here / "d2", here / "d1"], here / "all")
    assert not (here / "all").exists()
    (here / "empty").mkdir()
    for folder in ("empty", "missing"):
        with pytest.raises(NothingToMergeError, match=folder):
            merge([here / folder], here / "all")


def test_a_folder_may_be_merged_into_itself(here):
    found = merge([here / "d1", here / "d2"], here / "d1")
    assert [(each.name, each.already) for each in found] == [("one", True), ("two", False)]
    assert read.verify(here / "d1" / "two" / "1.0.0").ok


def test_a_wrong_shard_is_bad_input(here, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["build", "--shard", "3/2", "--json"])
    assert end.value.code == 2
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert (record["command"], record["error"]["class"]) == ("build", "ArgumentError")
    assert "there is no shard 3 of 2; the last one is 2/2" in record["error"]["message"]
