"""Locks: what a file holds, what it says when something is wrong with it, and which bundles meet it."""

from __future__ import annotations

import dataclasses
import os
import pickle
import stat
import subprocess
import sys
import tomllib

import pytest
from bundle_cases import make, reseal, rewrite_json, rewrite_yaml

from leapp import lock
from leapp._canonical import readable_json
from leapp.build.locked import check_built, check_bundle
from leapp.build.plan import PipelinePlan, make_plan
from leapp.bundle import read as bundle_read
from leapp.bundle import write as bundle_write
from leapp.errors import LockError, LockNotMetError, NotABundleError, OutputFileError
from leapp.manifest.load import load_one

D1, D2 = "1" * 64, "2" * 64


@pytest.fixture
def file(bundle, tmp_path):
    """The lock of the example, written."""
    path = tmp_path / "two.lock"
    lock.write(path, lock.of_bundle(bundle))
    return path


def reads(folder, **files):
    """Say in the evidence what was read."""
    rows = [{"path": path, "sha256": digest} for path, digest in files.items()]
    (folder / "evidence/reads.json").write_bytes(readable_json({"project": rows}))
    bundle_write.index_evidence(folder, "two")


# --- a lock and its file --------------------------------------------------------------------------------------------


def test_what_is_written_is_read(bundle, tmp_path):
    reads(bundle, **{'odd "name"\x7f.py': D1, "a.py": D2})
    made = lock.of_bundle(bundle)
    path = tmp_path / "two.lock"
    lock.write(path, made)
    assert lock.read(path, name="two") == made
    assert made.platforms == ("linux-x86_64",)
    assert set(made.sections["linux-x86_64"].inputs) == {'odd "name"\x7f.py', "a.py"}


def test_what_it_was_built_with_is_kept_where_it_is_known(bundle, tmp_path):
    assert b"packages" not in lock.text_of(lock.of_bundle(bundle), "two.toml").encode()
    packages, builder = {"onnx-ir": "1.1.0", "a.b": "2"}, {"C library": "glibc 2.36", "processor": "x \x7f"}
    (bundle / "evidence/session.json").write_bytes(readable_json({"packages": packages, "builder": builder}))
    bundle_write.index_evidence(bundle, "two")
    made, path = lock.of_bundle(bundle), tmp_path / "two.lock"
    lock.write(path, made)
    (section,) = lock.read(path).sections.values()
    assert (section, section.packages, section.builder) == (made.sections[section.platform], packages, builder)


def test_no_record_of_what_was_read_is_not_nothing_was_read(bundle, tmp_path):
    path = tmp_path / "two.lock"
    for files, expected in (None, None), ({}, {}):
        if files is not None:
            reads(bundle, **files)
        lock.write(path, lock.of_bundle(bundle))
        assert lock.read(path).sections["linux-x86_64"].inputs == expected


def test_the_text_is_sorted_with_one_digest_on_a_line(file):
    text = file.read_text()
    assert max(map(len, text.splitlines())) <= 120
    assert all(line.count("sha256:") <= 1 for line in text.splitlines())
    headers = [line.strip("[]").split(".") for line in text.splitlines() if line.startswith("[")]
    assert headers == sorted(headers)
    for block in text.split("\n\n")[2:]:
        keys = [line.partition(" = ")[0].strip('"') for line in block.splitlines() if " = " in line]
        assert keys == sorted(keys)
    assert "two.toml" in text.splitlines()[0]


def test_it_does_not_depend_on_the_order_of_what_it_is_made_of(bundle):
    made = lock.of_bundle(bundle)
    section = made.sections["linux-x86_64"]
    other = dataclasses.replace(section, platform="linux-aarch64")
    turned = dataclasses.replace(section, nodes=dict(reversed(section.nodes.items())))
    first = lock.Lock("two", {"linux-x86_64": section, "linux-aarch64": other})
    second = lock.Lock("two", {"linux-aarch64": other, "linux-x86_64": turned})
    assert lock.text_of(first, "two.toml") == lock.text_of(second, "two.toml")


def test_platforms_stand_side_by_side(file, bundle):
    rewrite_yaml(bundle, lambda y: y["system information"].update(os="darwin-arm64"))
    both = lock.read(file).with_section(lock.section_of(bundle))
    lock.write(file, both)
    assert lock.read(file).platforms == ("darwin-arm64", "linux-x86_64")
    assert lock.read(file) == both


def test_very_many_constants_are_one_digest(bundle):
    rows = [{"name": f"w{i}", "dtype": "float32", "shape": [1], "sha256": D1} for i in range(lock.MAX_CONSTANTS + 1)]
    rewrite_json(bundle / "nodes/estimator/manifest.json", lambda m: m.update(constants=rows))
    reseal(bundle)
    nodes = lock.of_bundle(bundle).sections["linux-x86_64"].nodes
    assert nodes["estimator"].constants == {}
    assert nodes["policy"].constants
    rewrite_json(bundle / "nodes/estimator/manifest.json", lambda m: m.update(constants=rows[1:]))
    reseal(bundle)
    assert len(lock.section_of(bundle).nodes["estimator"].constants) == lock.MAX_CONSTANTS


def test_a_file_is_replaced_whole_and_keeps_its_mode(file, bundle):
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~lock._umask()
    file.chmod(0o640)
    lock.write(file, lock.of_bundle(bundle))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [each.name for each in file.parent.iterdir() if "two.lock" in each.name] == ["two.lock"]


def test_a_folder_that_cannot_be_written_is_named(bundle, tmp_path):
    with pytest.raises(OutputFileError, match="missing"):
        lock.write(tmp_path / "missing" / "two.lock", lock.of_bundle(bundle))


def test_a_lock_is_found_beside_its_manifest(tmp_path, file):
    assert lock.beside(tmp_path / "two.toml") == file
    assert lock.read_if_there(file).name == "two"
    assert lock.read_if_there(tmp_path / "other.lock") is None
    assert lock.find(tmp_path, "two") == file
    with pytest.raises(LockError, match="no lock .* of 'three' in this folder"):
        lock.find(tmp_path, "three")
    assert lock.find(file, "three") == file


def test_no_bundle_gives_no_lock(tmp_path):
    with pytest.raises(NotABundleError):
        lock.of_bundle(tmp_path)


# --- files that are none --------------------------------------------------------------------------------------------

GOOD = f"""\
schema = 1
name = "p"
[linux-x86_64]
bundle = "sha256:{D1}"
contract = "sha256:{D2}"
version = "1.0.0"
[linux-x86_64.nodes.n]
ports = "sha256:{D1}"
settings = "sha256:{D2}"
[linux-x86_64.toolchain]
os = "linux-x86_64"
"""


def problems(tmp_path, text, **options):
    path = tmp_path / "p.lock"
    path.write_text(text)
    with pytest.raises(LockError) as caught:
        lock.read(path, **options)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
    return [str(each).removeprefix(f"{path}:") for each in caught.value.facts["problems"]]


WRONG = {
    "no schema": (("schema = 1\n", ""), ["schema: this key is required and missing."]),
    "schema of another kind": (("schema = 1", "schema = true"), ["1, schema: expected an integer, got true."]),
    "newer": (
        ("schema = 1", "schema = 2\nnew = 1"),
        ["1, schema: this version of LEAPP reads locks with schema = 1; a newer LEAPP wrote it."],
    ),
    "no name": (('name = "p"\n', ""), ["name: this key is required and missing."]),
    "key": (('name = "p"', 'name = "p"\nnaem = 1'), ["3, naem: unknown key. Did you mean 'name'?"]),
    "no platform": (
        ("[linux-x86_64]", "[linux]\n[linux-x86_64]"),
        ["3, linux: not a platform: sections are called as linux-x86_64 is."],
    ),
    "digest": (
        (D1, "1" * 63, 1),
        [f"4, linux-x86_64.bundle: expected sha256: and 64 digits of 0-9a-f, got 'sha256:{'1' * 63}'."],
    ),
    "no digest": ((f'bundle = "sha256:{D1}"\n', ""), ["3, linux-x86_64.bundle: this key is required and missing."]),
    "number": (('version = "1.0.0"', "version = 1"), ["6, linux-x86_64.version: expected a string, got an integer."]),
    "misspelt": (
        ("contract =", "contrakt ="),
        [
            "3, linux-x86_64.contract: this key is required and missing.",
            "5, linux-x86_64.contrakt: unknown key. Did you mean 'contract'?",
        ],
    ),
    "node": (
        ("[linux-x86_64.nodes.n]\n", "[linux-x86_64.nodes]\nn = 1\nm = { }\n[linux-x86_64.nodes.m.artifacts]\na=1\n"),
        None,
    ),
    "inputs": (
        ("[linux-x86_64.toolchain]", '[linux-x86_64.inputs]\n"a.py" = "x"\n[linux-x86_64.toolchain]'),
        ["11, linux-x86_64.inputs.\"a.py\": expected sha256: and 64 digits of 0-9a-f, got 'x'."],
    ),
    "toolchain": (
        ('os = "linux-x86_64"', "os = 1"),
        ["11, linux-x86_64.toolchain.os: expected a string, got an integer."],
    ),
    "packages": (
        ("[linux-x86_64.toolchain]", "[linux-x86_64.packages]\nnumpy = 2\n[linux-x86_64.toolchain]"),
        ["11, linux-x86_64.packages.numpy: expected a string, got an integer."],
    ),
    "builder": (
        ("[linux-x86_64.nodes.n]", "builder = 1\n[linux-x86_64.nodes.n]"),
        ["7, linux-x86_64.builder: expected a table, got an integer."],
    ),
    "no toolchain": (
        ('[linux-x86_64.toolchain]\nos = "linux-x86_64"\n', ""),
        ["3, linux-x86_64.toolchain: this table is required and missing."],
    ),
    "nodes are a text": (
        (f'[linux-x86_64.nodes.n]\nports = "sha256:{D1}"\nsettings = "sha256:{D2}"\n', 'nodes = "n"\n'),
        ["7, linux-x86_64.nodes: expected a table, got a string."],
    ),
    "merge": (("[linux-x86_64]", "<<<<<<< HEAD\n[linux-x86_64]"), ["3: a merge left its marks here."]),
}


@pytest.mark.parametrize("case", WRONG)
def test_every_problem_is_named_with_its_line(tmp_path, case):
    change, expected = WRONG[case]
    text = GOOD.replace(*change)
    assert text != GOOD
    found = problems(tmp_path, text)
    if expected is not None:
        assert [each.removeprefix(f"{tmp_path / 'p.lock'}, ") for each in found] == expected


def test_all_problems_are_named_at_once_each_once(tmp_path):
    text = GOOD.replace(D2, "x").replace("os = ", "1 = 2\nos = ")
    text = text.replace("[linux-x86_64.nodes.n]", "[linux-x86_64.nodes.n.constants]\na = 1\n[linux-x86_64.nodes.n]")
    found = problems(tmp_path, text)
    assert len(found) == len(set(found)) == 4


def test_the_lock_of_another_pipeline_is_refused(tmp_path):
    (tmp_path / "p.lock").write_text(GOOD)
    assert lock.read(tmp_path / "p.lock", name="p").sections["linux-x86_64"].bundle == D1
    (found,) = problems(tmp_path, GOOD, name="q")
    assert found == "2, name: this is the lock of 'p', not of 'q'."


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(LockError, match="cannot be read: No such file"):
        lock.read(tmp_path / "p.lock")


# --- met ------------------------------------------------------------------------------------------------------------


def test_it_is_met_by_the_very_bundle(file, bundle):
    locked = lock.read(file).sections["linux-x86_64"]
    assert lock.met(locked, lock.section_of(bundle))
    reads(bundle, **{"a.py": D1})
    assert lock.met(locked, lock.section_of(bundle)), "inputs only explain"
    (bundle / "evidence/session.json").write_bytes(readable_json({"packages": {"numpy": "2"}}))
    bundle_write.index_evidence(bundle, "two")
    assert lock.section_of(bundle).packages
    assert lock.met(locked, lock.section_of(bundle)), "so do packages"
    named = dataclasses.replace(lock.section_of(bundle), version="2.0.0", bundle=D2)
    assert lock.met(locked, named, any_version=True), "also where the version is another one"


CHANGES = {
    "unit": lambda f: rewrite_json(
        f / "nodes/estimator/manifest.json", lambda m: m["inputs"][0]["semantics"].update(unit="deg")
    ),
    "weights": lambda f: rewrite_json(f / "nodes/estimator/manifest.json", lambda m: m.update(weights_sha256=D2)),
    "model": lambda f: rewrite_json(f / "nodes/policy/manifest.json", lambda m: m["artifacts"][0].update(sha256=D2)),
    "rate": lambda f: rewrite_yaml(f, lambda y: y["pipeline"]["configs"].update(frequency=9)),
    "tool": lambda f: rewrite_yaml(f, lambda y: y["system information"].update({"torch version": "9"})),
    "start": lambda f: (f / "two_initial_values.safetensors").write_bytes(b"other"),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("version", ["1.0.0", "2.0.0"])
def test_it_is_not_met_by_another_one(file, tmp_path, case, version):
    locked = lock.read(file).sections["linux-x86_64"]
    make(tmp_path / "other", version=version)
    CHANGES[case](tmp_path / "other")
    reseal(tmp_path / "other")
    built = lock.section_of(tmp_path / "other")
    assert not lock.met(locked, built)
    assert not lock.met(locked, built, any_version=True)


def test_another_version_of_the_same_content_counts_where_that_is_wanted(file, tmp_path):
    locked = lock.read(file).sections["linux-x86_64"]
    make(tmp_path / "other", version="2.0.0")
    built = lock.section_of(tmp_path / "other")
    assert not lock.met(locked, built)
    assert lock.met(locked, built, any_version=True)


def test_it_needs_neither_torch_nor_numpy(file, bundle):
    code = (
        "import sys; from pathlib import Path; from leapp import lock;"
        "lock.write(Path(sys.argv[1]), lock.of_bundle(Path(sys.argv[2]))); lock.read(Path(sys.argv[1]));"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'onnx', 'pydantic', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code, file, bundle], env=dict(os.environ), check=False).returncode == 0


def test_the_comment_on_top_is_toml(file):
    assert tomllib.loads(file.read_text())["schema"] == 1


# --- where the locked bundle is looked for --------------------------------------------------------------------------


@pytest.fixture
def bumped(tmp_path) -> PipelinePlan:
    """A manifest of 1.0.1 with the lock of 1.0.0, and the bundles of both in dist/: 10 Hz became 20 Hz."""
    made = tmp_path / "dist/two"
    for version, rate in (("1.0.0", 10), ("1.0.1", 20)):
        make(made / version, version=version)
        rewrite_yaml(made / version, lambda y, rate=rate: y["pipeline"]["configs"].update(frequency=rate))
    (made / "0.9.0").mkdir()
    (made / "0.9.0" / "bundle.json").write_text("{")  # of no use, and no reason to stop looking
    (made / "notes.txt").touch()
    (tmp_path / "two.py").touch()
    (tmp_path / "manifests").mkdir()
    manifest = tmp_path / "manifests/two.toml"
    manifest.write_text('schema = 1\n[pipeline]\nname = "two"\nversion = "1.0.1"\nentry = "two.py:main"\n')
    (tmp_path / "pyproject.toml").touch()
    lock.write(lock.beside(manifest), lock.of_bundle(made / "1.0.0"))
    return make_plan([load_one(manifest)], out=tmp_path / "dist", environment={}).pipelines[0]


def test_after_a_step_of_the_version_the_locked_bundle_is_found_by_its_digest(bumped):
    former = bumped.target.parent / "1.0.0"
    with pytest.raises(LockNotMetError) as caught:
        check_built(bumped, bumped.target)
    assert caught.value.facts["lines"] == [
        "version: 1.0.0 -> 1.0.1",
        "contract of the pipeline changed: rate: 10 Hz -> 20 Hz (whoever calls it has to call it at another rate)",
        "unchanged: graph, weights, tool chain",
        "asks for a major step: 2.0.0; 1.0.1 is not enough",
    ]
    assert f"`leapp diff {former} {bumped.refused}` says more" in str(caught.value)


@pytest.mark.parametrize("lost", ["gone", "damaged", "another"])
def test_without_the_locked_bundle_the_lock_is_named(bumped, lost):
    former = bumped.target.parent / "1.0.0"
    if lost == "gone":
        bundle_write._remove(former)
    elif lost == "damaged":
        (former / "two.yaml").write_text("damaged")
    else:
        rewrite_yaml(former, lambda y: y["pipeline"]["configs"].update(frequency=30))
    with pytest.raises(LockNotMetError) as caught:
        check_built(bumped, bumped.target)
    assert f"`leapp diff {bumped.manifest.shown[:-5]}.lock {bumped.refused}` says more" in str(caught.value)
    assert "wires, rate or settings (digests do not hold what" in str(caught.value)
    assert "may ask for a major step: 2.0.0; 1.0.1 is not enough" in str(caught.value)


def test_verify_finds_it_beside_the_bundle(bumped):
    with pytest.raises(LockNotMetError, match="10 Hz -> 20 Hz") as caught:
        check_bundle(bundle_read.load(bumped.target), lock.beside(bumped.manifest.path))
    assert f"`leapp diff {bumped.target.parent / '1.0.0'} {bumped.target}` says more" in str(caught.value)
