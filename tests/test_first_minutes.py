"""What a person meets first: one sentence that says what is wrong, and the next command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import leapp
from leapp import cli

MANIFEST = 'schema = 1\n[pipeline]\nname = "p"\nversion = "1.0.0"\nentry = "entry.py:main"\n'


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *arguments: str) -> str:
    """What a command that refuses its arguments says."""
    assert cli.main([*arguments]) == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("command", ["build", "check"])
def test_no_manifests_yet(here, capsys, command):
    text = said(capsys, command)
    assert text.splitlines() == [
        f"There is no manifests/ in {here}.",
        "`leapp init --from SCRIPT` writes one for an annotated script.",
    ]


def test_manifests_of_the_project_above_are_named(here, capsys, monkeypatch):
    (here / "manifests").mkdir()
    (here / "src").mkdir()
    monkeypatch.chdir(here / "src")
    assert f"name that folder, or work in {here}." in said(capsys, "build")


def test_no_manifests_is_a_record_for_machines(here, capsys):
    assert cli.main(["build", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "NoManifestsError"


FOREIGN = {
    "policy.pt": ("it is a model file", "`leapp build` writes it there."),
    "policy.onnx": ("it is a model file", "`leapp build` writes it there."),
    "config.yaml": ("", "`leapp build` writes it there."),
    "bundle.zip": ("it is an archive", "Unpack it"),
    "p.toml": ("it is a manifest", "`leapp build p.toml` builds it."),
    "folder": ("it holds no bundle.json", "`leapp build` writes it there."),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("command", ["verify", "inspect", "replay", "run"])
def test_something_else_where_a_bundle_is_expected(here, capsys, command, name):
    if name == "folder":
        (here / name).mkdir()
    elif name == "bundle.zip":
        zipfile.ZipFile(here / name, "w").close()
    else:
        (here / name).write_text("learning_rate: 0.1\n")
    why, advice = FOREIGN[name]
    text = said(capsys, command, name)
    assert text.startswith(f"{name} is not a bundle: {why}")
    assert advice in text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("name", ["policy.pt", "policy.onnx", "config.yaml"])
def test_something_else_where_a_manifest_or_bundle_is_expected(here, capsys, name):
    (here / name).touch()
    assert said(capsys, "reproduce", name).startswith(f"{name} is not a bundle: ")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("walk.py", "a Python file. `leapp init --from walk.py` writes the manifest of an annotated one."),
        ("p.lock", "a lock. Its manifest is p.toml."),
        ("policy.onnx", "its name does not end in .toml."),
    ],
)
def test_something_else_where_a_manifest_is_expected(here, capsys, name, advice):
    (here / "p.toml").touch()
    (here / name).touch()
    for command in ("build", "check", "plan", "lock"):
        assert f"{name}: not a manifest: {advice}" in said(capsys, command, name)


def test_a_bundle_where_a_manifest_is_expected(here, capsys):
    (here / "b").mkdir()
    (here / "b/bundle.json").write_text("{}")
    assert "b: a bundle, not a manifest: `leapp verify` and `leapp inspect` take it." in said(capsys, "build", "b")


MISTYPED = [
    (["biuld"], "there is no command 'biuld'. Did you mean 'build'?"),
    (["export"], "there is no command 'export'. There are init, build, "),
    (["build", "--shrad", "1/2"], "leapp build: error: unrecognized arguments: --shrad. Did you mean '--shard'?"),
    (["build", "--explan=1"], "unrecognized arguments: --explan=1. Did you mean '--explain'?"),
    (["build", "--quux"], "unrecognized arguments: --quux\n"),
    (["init", "walk.py"], "unrecognized arguments: walk.py. Did you mean '--from walk.py'?"),
    (["check", "--json", "--verson"], "leapp check: error: unrecognized arguments: --verson"),
    (["cache", "clean"], "invalid choice: 'clean'. There are path, verify, gc."),
    *(([each], "BUNDLE. Bundles in dist: dist/p/1.0.0.") for each in ("run", "verify", "inspect", "reproduce")),
    (["replay"], "BUNDLE|LOG. Bundles in dist: dist/p/1.0.0."),
]


@pytest.mark.parametrize(("arguments", "text"), MISTYPED, ids=[" ".join(each) for each, _ in MISTYPED])
def test_what_is_mistyped_or_left_out(here, capsys, arguments, text):
    (here / "dist/p/1.0.0").mkdir(parents=True)
    (here / "dist/p/1.0.0/bundle.json").write_text("{}")
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    assert text in capsys.readouterr().err


def test_a_model_file_of_a_bundle_leads_to_the_bundle(here, capsys):
    model = here / "dist/p/1.0.0/nodes/n/n.onnx"
    model.parent.mkdir(parents=True)
    model.touch()
    (here / "dist/p/1.0.0/bundle.json").write_text("{}")
    assert f"It lies in the bundle {here}/dist/p/1.0.0: name that folder." in said(capsys, "verify", str(model))


def test_bundles_that_are_there_are_named(here, capsys):
    (here / "dist/p/1.0.0").mkdir(parents=True)
    (here / "dist/p/1.0.0/bundle.json").write_text("{}")
    assert "Bundles in dist: dist/p/1.0.0." in said(capsys, "verify", "dist")
    assert "Bundles in dist: dist/p/1.0.0." in said(capsys, "inspect", "nowhere")
    for version in ("1.0.1", "1.0.2", "1.0.3", "1.0.4"):
        (here / "dist/p" / version).mkdir()
        (here / "dist/p" / version / "bundle.json").write_text("{}")
    assert "Bundles in dist: dist/p/1.0.0, dist/p/1.0.1, dist/p/1.0.2 and 2 more." in said(capsys, "verify", "dist")


def test_a_bundle_of_a_newer_schema(here, capsys):
    (here / "bundle.json").write_text('{"schema": 9, "requires": 9}')
    for command in ("verify", "inspect", "run"):
        text = said(capsys, command, ".")
        assert "needs reader level 9; this leapp reads up to 1." in text
        assert "`leapp doctor`" in text


def test_a_manifest_of_a_newer_schema(here, capsys):
    (here / "p.toml").write_text(MANIFEST.replace("schema = 1", "schema = 2") + "[novelty]\n")
    text = said(capsys, "check", "p.toml")
    assert "reads manifests with schema = 1, not 2. A newer leapp-build wrote it; `leapp doctor`" in text
    assert "novelty" not in text


def test_the_project_file_is_no_manifest(here, capsys):
    (here / "p.toml").write_text(MANIFEST)
    (here / "entry.py").touch()
    (here / "pyproject.toml").write_text('[project]\nname = "x"\n')
    text = said(capsys, "build", "p.toml", "pyproject.toml")
    assert "1 problem in" in text
    assert "pyproject.toml: a project file, not a manifest: leave it out" in text


def test_a_manifest_outside_any_project(here, capsys):
    (here / ".git").rmdir()
    (here / "manifests").mkdir()
    (here / "manifests/p.toml").write_text(MANIFEST + '[session]\ninputs = ["w/*.pt"]\n')
    text = said(capsys, "check")
    hint = "No folder above has a pyproject.toml or .git, so paths are looked up beside the manifest; `git init`"
    assert text.count(hint) == 2
    (here / ".git").mkdir()
    assert hint not in said(capsys, "check")


# --- bare `leapp` ---------------------------------------------------------------------------------------------------


def words(capsys) -> list[str]:
    assert cli.main([]) == 2  # a script that lost its command must not pass for one that worked
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 6
    assert max(map(len, lines[1:])) <= 100
    return [lines[0].partition(": ")[2], *(line.partition("  # ")[0].strip() for line in lines[1:])]


def test_bare_leapp_says_what_to_do_next(here, capsys, monkeypatch):
    assert words(capsys) == ["no manifests/ here yet.", "leapp init --from SCRIPT", "leapp --help"]
    (here / "manifests").mkdir()
    (here / "manifests/p.toml").write_text(MANIFEST)
    assert words(capsys) == ["1 manifest here.", "leapp build", "leapp check", "leapp --help"]
    bundle = here / "dist/my p/1.0.0"
    bundle.mkdir(parents=True)
    (bundle / "bundle.json").write_text("{}")
    assert words(capsys) == [
        "1 manifest and 1 bundle here.",
        "leapp build",
        "leapp verify 'dist/my p/1.0.0'",
        "leapp replay 'dist/my p/1.0.0'",
        "leapp --help",
    ]
    monkeypatch.chdir(here / "manifests")
    assert words(capsys) == [f"the project is {here}.", "cd .. && leapp build", "leapp --help"]
    monkeypatch.chdir(bundle)
    assert words(capsys) == ["this folder is a bundle.", "leapp verify .", "leapp inspect .", "leapp --help"]


def test_bare_leapp_where_torch_is_missing(here, capsys, monkeypatch):
    monkeypatch.setattr("leapp.init.first.importlib.util.find_spec", lambda _name: None)
    assert words(capsys)[1] == "leapp doctor"


# --- the other package named leapp ----------------------------------------------------------------------------------


@pytest.fixture
def both(tmp_path) -> Path:
    """A folder of packages in which ours was installed first, and the other one over it."""
    site = tmp_path / "site"
    shutil.copytree(Path(leapp.__file__).parent, site / "leapp", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "leapp-0.18.0.dist-info").mkdir()
    (site / "leapp-0.18.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: leapp\nVersion: 0.18.0\n")
    return site


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=site, env=environment, capture_output=True, text=True, check=False
    )


def test_doctor_notices_the_other_package(both):
    done = python(both, "-m", "leapp", "doctor")
    assert done.returncode == 1
    assert "Another package, leapp 0.18.0, is installed where leapp-build has its files." in done.stdout
    assert "pip uninstall -y leapp && " in done.stdout
    assert "pip install --force-reinstall --no-deps 'leapp-build[build]" in done.stdout
    record = json.loads(python(both, "-m", "leapp", "doctor", "--json").stdout)
    assert (record["other_leapp"], record["ok"]) == ("0.18.0", False)


@pytest.mark.parametrize("theirs", ["cli", "__init__.py"])
def test_a_command_of_the_other_package_is_not_run(both, theirs):
    path = both / "leapp" / theirs
    if theirs == "cli":
        path.mkdir()
        path /= "__init__.py"
    path.write_text("def main():\n    print('another program')\n")
    done = python(both, "-m", "leapp", "check")
    assert done.returncode == 2
    assert "another program" not in done.stdout
    first, second = done.stderr.splitlines()
    assert first.startswith("Another package, leapp 0.18.0, is installed where leapp-build has its files")
    assert "pip uninstall -y leapp" in second


def test_a_part_of_ours_that_is_gone_is_put_down_to_it(both):
    (both / "leapp/kinds.py").unlink()
    done = python(both, "-c", "import leapp\nleapp.InputKindEnum")
    assert done.stderr.splitlines()[-2].startswith("leapp.errors.OtherPackageError: Another package, leapp 0.18.0")
    shutil.rmtree(both / "leapp-0.18.0.dist-info")
    done = python(both, "-c", "import leapp\nleapp.InputKindEnum")
    assert "ModuleNotFoundError: No module named 'leapp.kinds'" in done.stderr
