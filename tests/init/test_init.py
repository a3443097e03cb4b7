"""``leapp init`` in a project: what it writes works as it is, and nothing that is there is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from leapp import cli
from leapp._source import Source
from leapp.init.chain import tool_chain
from leapp.init.files import Action, manifest_file, noxfile, workflow
from leapp.init.script import Place, Script
from leapp.manifest.load import load_one

SCRIPT = """\
import torch
import leapp
from leapp import annotate

SCALE = torch.tensor([0.5, 2.0])


def main(seed=0):
    torch.manual_seed(seed)
    leapp.start("tiny")
    x = annotate.input_tensors("scale", {"x": torch.randn(2)})
    annotate.output_tensors("scale", {"y": x * SCALE}, export_with="jit")
    leapp.stop()
    leapp.compile_graph(graph_configs=leapp.GraphConfigs(frequency=50))


if __name__ == "__main__":
    main()
"""
RELEASED = Source("leapp-build[build]==1.2.0")
CHAIN = tool_chain({"torch": "2.13.0+cu128", "numpy": "2.4.6"}, {})


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "tiny.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_annotated_script_needs_no_arguments(here, capsys):
    assert cli.main(["init"]) == 0
    out = capsys.readouterr().out
    assert "written  manifests/tiny.toml" in out
    assert "written  noxfile.py" in out
    assert "leapp build manifests/tiny.toml" in out
    assert max(map(len, out.splitlines())) <= 120
    manifest = load_one(here / "manifests/tiny.toml")
    assert manifest.pipeline.entry.text == "tiny.py:main"
    assert manifest.pipeline.frequency_hz == 50
    assert manifest.probe_args() == {"seed": 1}
    assert not (here / ".github").exists()


def test_a_second_time_changes_nothing(here, capsys):
    assert cli.main(["init", "--from", "tiny.py", "--ci", "github"]) == 0
    before = {path: path.read_bytes() for path in here.rglob("*.*") if path.is_file()}
    capsys.readouterr()
    assert cli.main(["init", "--from", "tiny.py", "--ci", "github", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {each["action"] for each in record["files"]} == {"same"}
    assert {path: path.read_bytes() for path in before} == before


def test_what_is_there_stays_and_what_it_would_be_is_shown(here, capsys):
    (here / "noxfile.py").write_text("# mine\n")
    assert cli.main(["init"]) == 0
    out = capsys.readouterr().out
    assert "kept     noxfile.py" in out
    assert "--force noxfile.py replaces it" in out
    assert "| def verify(session):" in out
    assert "noxfile.py has no session environment, export, verify: take what you need of the text above." in out
    assert (here / "noxfile.py").read_text() == "# mine\n"
    assert cli.main(["init", "--from", "tiny.py", "--force", "noxfile.py"]) == 0
    assert "replaced noxfile.py" in capsys.readouterr().out
    assert "def export" in (here / "noxfile.py").read_text()


def test_force_is_for_the_file_that_is_named(here, capsys):
    (here / "noxfile.py").write_text("# mine\n")
    (here / "manifests").mkdir()
    (here / "manifests/tiny.toml").write_text("# mine too\n")
    assert cli.main(["init", "--from", "tiny.py", "--force", "manifests/tiny.toml"]) == 0
    assert (here / "noxfile.py").read_text() == "# mine\n"
    assert "entry =" in (here / "manifests/tiny.toml").read_text()
    capsys.readouterr()
    assert cli.main(["init", "--from", "tiny.py", "--force", "tiny.py"]) == 2
    assert "--force names tiny.py" in capsys.readouterr().err
    assert (here / "tiny.py").read_text() == SCRIPT


@pytest.mark.parametrize("kind", ["dangling link", "folder"])
def test_what_is_no_file_is_kept_too(here, capsys, kind):
    if kind == "folder":
        (here / "noxfile.py").mkdir()
    else:
        (here / "noxfile.py").symlink_to("elsewhere.py")
    assert cli.main(["init"]) == 0
    assert "kept     noxfile.py" in capsys.readouterr().out
    assert not (here / "elsewhere.py").exists()


def test_several_scripts_are_listed(here, capsys):
    (here / "other.py").write_text(SCRIPT)
    (here / ".venv").mkdir()
    (here / ".venv/third.py").write_text(SCRIPT)
    assert cli.main(["init"]) == 0
    out = capsys.readouterr().out
    assert "Annotated: other.py, tiny.py." in out
    assert not (here / "manifests").exists()


def test_works_from_a_folder_below(here, capsys, monkeypatch):
    (here / "src").mkdir()
    monkeypatch.chdir(here / "src")
    assert cli.main(["init", "--from", "../tiny.py"]) == 0
    assert (here / "manifests/tiny.toml").is_file()
    assert "cd .." in capsys.readouterr().out


def test_a_name_that_another_manifest_has_is_told(here, capsys):
    assert cli.main(["init"]) == 0
    (here / "manifests/tiny.toml").rename(here / "manifests/old.toml")
    capsys.readouterr()
    assert cli.main(["init", "--from", "tiny.py"]) == 0
    assert "declares 'tiny' 0.1.0 as well" in capsys.readouterr().out


def test_no_script_is_an_error_with_a_remedy(here, capsys):
    assert cli.main(["init", "--from", "gone.py"]) == 2
    assert "gone.py: it does not exist.\nName a Python file" in capsys.readouterr().err
    assert not (here / "noxfile.py").exists()


ODD = Script(
    file="s \x1b.py",
    name="odd",
    entry="s.py:main",
    nodes={'a "quoted"\nnode': Place("s.py", 1)},
    computed=(Place("s.py", 2),),
    args={"text": 'a"b\\\x7f', "rate": 1e-05, "flags": [True, False], "a.b": 1},
    seed=2,
    starts=("one", 'two"'),
    inputs=("w/net[1].pt",),
    frequency_hz=0.5,
)


def test_every_text_can_stand_in_a_manifest(tmp_path):
    (tmp_path / "w").mkdir()
    for name in ("s.py", "w/net[1].pt", "pyproject.toml"):
        (tmp_path / name).touch()
    file = manifest_file(ODD)
    (tmp_path / "m.toml").write_text(file.text)
    manifest = load_one(tmp_path / "m.toml")
    assert manifest.pipeline.args == ODD.args
    assert manifest.session.inputs == ("w/net[[]1].pt",)
    assert manifest.pipeline.frequency_hz == 0.5


def test_arguments_that_are_missing_are_left_to_the_user(here, capsys):
    (here / "tiny.py").write_text(SCRIPT.replace("main(seed=0)", "main(seed, ticks)").partition("if __name__")[0])
    assert cli.main(["init"]) == 0
    assert "fill in args: seed, ticks" in capsys.readouterr().out
    assert cli.main(["check"]) == 0
    assert "# args = { seed = ..., ticks = ... }" in (here / "manifests/tiny.toml").read_text()


def test_a_command_line_that_is_missing_is_left_to_the_user(here, capsys):
    parsed = (
        "    import argparse\n    parser = argparse.ArgumentParser()\n    parser.add_argument('checkpoint')\n"
        "    parser.add_argument('--steps', required=True)\n    parser.add_argument('--seed', type=int, default=0)\n"
        "    parser.parse_args()\n"
    )
    (here / "tiny.py").write_text(SCRIPT.replace("    torch.manual_seed(seed)\n", parsed))
    assert cli.main(["init"]) == 0
    assert "fill in argv: checkpoint, --steps" in capsys.readouterr().out
    path = here / "manifests/tiny.toml"
    assert '# argv = ["CHECKPOINT", "--steps", "STEPS"]' in path.read_text()
    assert load_one(path).probe_argv() == ()
    path.unlink()
    given = parsed.replace("'checkpoint'", "'--checkpoint'").replace(", required=True", "")
    (here / "tiny.py").write_text(SCRIPT.replace("    torch.manual_seed(seed)\n", given))
    assert cli.main(["init"]) == 0
    assert "# argv = []  # its command line: --checkpoint, --steps, --seed" in path.read_text()
    assert load_one(path).probe_argv() == ("--seed", "1")


def test_what_a_manifest_cannot_settle_is_told(here, capsys, monkeypatch):
    monkeypatch.delenv("MODELS", raising=False)
    (here.parent / "far.pt").touch()
    (here / "sub").mkdir()
    (here / "sub/near.pt").touch()
    more = "    import os\n    leapp.start('other')\n"
    more += "    Z = 'late.pt'\n    W = os.environ['MODELS'], os.getenv('ARM'), '../far.pt', 'near.pt'\n"
    (here / "sub/tiny.py").write_text(SCRIPT.replace("    leapp.stop()\n", f"    leapp.stop()\n{more}"))
    assert cli.main(["init", "--from", "sub/tiny.py"]) == 0
    out = capsys.readouterr().out
    assert "starts other as well as tiny: `trace` says that this manifest is for tiny" in out
    assert "reads MODELS, which is not set here; pass_env hands it to the build" in out
    assert "reads ARM where it is set; in a build it never is, unless pass_env names it" in out
    assert '# pass_env = ["MODELS", "ARM"]' in (here / "manifests/tiny.toml").read_text()
    assert "names late.pt, not there yet: what it reads belongs into [session] inputs" in out
    assert "../far.pt: outside the project" in out
    assert "names near.pt as if it ran in its own folder; a build runs in the project" in out
    manifest = load_one(here / "manifests/tiny.toml")
    assert manifest.pipeline.trace == "tiny"
    assert (manifest.session.inputs, manifest.session.pass_env) == (("../far.pt",), ("MODELS",))
    assert max(map(len, out.splitlines())) <= 120


# --- the noxfile ----------------------------------------------------------------------------------------------------


def test_the_noxfile_installs_what_runs(tmp_path):
    text = noxfile(RELEASED, CHAIN, tmp_path).text
    assert '"leapp-build[build]==1.2.0"' in text
    assert 'TORCH = ["torch==2.13.0", "--extra-index-url", "https://download.pytorch.org/whl/cpu"]\n' in text
    assert '    "numpy==2.4.6",\n' in text
    assert "PROJECT = []" in text
    (tmp_path / "requirements.txt").touch()
    assert 'PROJECT = ["-r", "requirements.txt"]' in noxfile(RELEASED, CHAIN, tmp_path).text
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    assert 'PROJECT = ["-e", ".", "-c", "constraints.txt"]' in noxfile(RELEASED, CHAIN, tmp_path).text


def test_a_source_inside_the_project_goes_with_it(tmp_path):
    place = tmp_path / "vendor/leapp"
    source = Source(f"leapp-build[build] @ {place.as_uri()}", place)
    text = noxfile(source, CHAIN, tmp_path).text
    assert str(tmp_path) not in text
    assert "{Path('vendor/leapp').resolve().as_uri()}" in text
    assert "LEAPP_REQUIREMENT" not in workflow(source, tmp_path).text


GIT = Source("leapp-build[build] @ git+https://x.example/l@0")


@pytest.mark.parametrize(("source", "again"), [(RELEASED, False), (GIT, True)], ids=["released", "git"])
def test_no_bare_name_is_ever_installed(tmp_path, source, again, monkeypatch):
    pytest.importorskip("nox")
    monkeypatch.delenv("LEAPP_REQUIREMENT", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    names: dict[str, object] = {"__name__": "noxfile"}
    monkeypatch.setattr("nox.registry._REGISTRY", {})
    exec(noxfile(source, CHAIN, tmp_path).text, names)
    installed: list[tuple[str, ...]] = []

    class Session:
        venv_backend = "virtualenv"
        bin = "/environment/bin"

        def install(self, *arguments):
            installed.append(arguments)

    names["environment"].func(Session())
    assert installed[0] == ("--no-deps", "torch==2.13.0", "--extra-index-url", "https://download.pytorch.org/whl/cpu")
    assert installed[1] == (source.requirement, "numpy==2.4.6")
    # Of two commits of one version pip would keep the old one.
    assert installed[2:] == [("--force-reinstall", "--no-deps", source.requirement)] * again
    assert Requirement(source.requirement).name == "leapp-build"
    assert os.environ["PATH"] == "/environment/bin:/usr/bin"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The steps of the written workflow as GitHub runs them, of a tiny script, with the packages that are here."""
    pytest.importorskip("nox")
    folder = tmp_path_factory.mktemp("exported")
    (folder / ".git").mkdir()
    (folder / "tiny.py").write_text(SCRIPT)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NOX_DEFAULT_VENV_BACKEND": "none",  # installs nothing
        "LEAPP_CACHE": str(folder.with_name("cache")),
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(folder.with_name("summary.md")),
        "LEAPP_REQUIREMENT": "",  # GitHub's word for a variable that is not there
    }
    stand_in = folder / ".nox/environment/bin/python"  # of what an install would have made
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    stand_in.chmod(0o755)

    def run(*command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    written = run(sys.executable, "-m", "leapp", "init", "--ci", "github")
    assert written.returncode == 0, written.stderr
    document = yaml.load((folder / ".github/workflows/leapp.yml").read_bytes(), Loader=yaml.BaseLoader)  # noqa: S506
    steps = [each["run"] for each in document["jobs"]["bundles"]["steps"] if "run" in each]
    too_early = run(sys.executable, "-m", "nox", "-s", "verify")
    (folder / "dist/other/1.0.0").mkdir(parents=True)
    (folder / "dist/other/1.0.0/bundle.json").touch()
    lacking = run(sys.executable, "-m", "nox", "-s", "verify")
    shutil.rmtree(folder / "dist")
    script = folder.with_name("step.sh")
    done = {}
    for step in steps:
        if "pip install" not in step:
            script.write_text(step)
            done[step] = run("bash", "-e", str(script))
    return folder, too_early, lacking, done


def test_the_written_workflow_exports_and_verifies_as_it_is(exported):
    folder, too_early, lacking, done = exported
    assert too_early.returncode == 1
    assert "dist/ holds no bundle: `nox -s export` makes them." in too_early.stderr
    assert lacking.returncode == 1
    assert "dist/ holds no bundle of tiny: `nox -s export` makes them." in lacking.stderr
    assert [each.returncode for each in done.values()] == [0, 0, 0], [each.stderr for each in done.values()]
    bundle = folder / "dist/tiny/0.1.0"
    assert json.loads((bundle / "bundle.json").read_bytes())["status"] == "ok"
    assert yaml.safe_load((bundle / "tiny.yaml").read_bytes())["pipeline"]["configs"]["frequency"] == 50
    _, verify, gc = done.values()
    assert "all 5 content files are byte-identical" in verify.stdout
    assert "objects" in gc.stdout
    assert not list(folder.glob(".nox/*/pyvenv.cfg"))
    summary = folder.with_name("summary.md").read_text()
    assert [line for line in summary.splitlines() if line.startswith("###")] == [
        "### leapp check", "### leapp build", "### leapp verify", "### leapp reproduce",
    ]  # fmt: skip


# --- the workflow ---------------------------------------------------------------------------------------------------


def parsed(source: Source, root: Path) -> dict:
    # With plain text for all scalars: YAML 1.1 takes the key `on` for true.
    return yaml.load(workflow(source, root).text, Loader=yaml.BaseLoader)  # noqa: S506


def test_the_workflow_caches_exports_verifies_and_uploads(tmp_path):
    document = parsed(RELEASED, tmp_path)
    assert set(document["on"]) == {"push", "pull_request"}
    assert document["permissions"] == {"contents": "read"}
    (job,) = document["jobs"].values()
    steps = job["steps"]
    assert [each.get("run", each.get("uses", "")).split("@")[0] for each in steps] == [
        "actions/checkout",
        "actions/setup-python",
        "actions/cache/restore",
        'python -m pip install "nox>=2025.2.9"',
        "python -m nox -s export",
        "python -m nox -R -s verify",
        ".nox/environment/bin/python -m leapp cache gc --max-size 1GB",
        "actions/cache/save",
        "actions/upload-artifact",
    ]
    assert steps[1]["with"]["python-version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert steps[2]["with"]["path"] == "~/.cache/leapp"
    # A failed build keeps what succeeded, and a second attempt what it adds: a key is written once.
    restored, saved = steps[2]["with"], steps[-2]["with"]
    assert saved == {key: restored[key] for key in ("path", "key")}
    assert "github.run_attempt" in saved["key"]
    assert steps[4]["id"] == "export"
    for each in steps[-3:-1]:
        assert each["if"] == "${{ always() && steps.export.outcome != 'skipped' }}"
    assert steps[-1]["with"]["path"] == "dist/"
    assert "env" not in job
    assert steps[-1]["with"]["include-hidden-files"] == "true"  # dist/.logs
    assert steps[1]["with"]["cache-dependency-path"].split() == ["noxfile.py"]
    for name in ("requirements.txt", "constraints.txt"):
        (tmp_path / name).touch()
    (job,) = parsed(RELEASED, tmp_path)["jobs"].values()
    assert job["steps"][1]["with"]["cache-dependency-path"].split() == [
        "noxfile.py", "requirements.txt", "constraints.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "all"])
def test_the_workflow_is_one_by_the_schema_of_github(tmp_path, kind):
    pytest.importorskip("check_jsonschema")
    source = RELEASED
    if kind == "all":
        (tmp_path / ".gitattributes").write_text("*.pt filter=lfs diff=lfs\n")
        (tmp_path / ".gitmodules").touch()
        (tmp_path / "requirements.txt").touch()
        source = Source("leapp-build[build] @ file:///opt/leapp", Path("/opt/leapp"))
    text = workflow(source, tmp_path).text
    for name, whole in (("good.yml", text), ("bad.yml", text.replace("timeout-minutes", "timeout-seconds"))):
        (tmp_path / name).write_text(whole)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    good, bad = (
        subprocess.run([*command, name], cwd=tmp_path, capture_output=True, text=True, check=False)
        for name in ("good.yml", "bad.yml")
    )
    assert good.returncode == 0, good.stdout
    assert "timeout-seconds" in bad.stdout


def test_the_workflow_sees_large_files_submodules_and_local_sources(tmp_path):
    (tmp_path / ".gitattributes").write_text("*.pt filter=lfs diff=lfs\n")
    (tmp_path / ".gitmodules").touch()
    source = Source("leapp-build[build] @ file:///opt/leapp", Path("/opt/leapp"))
    document = parsed(source, tmp_path)
    (job,) = document["jobs"].values()
    assert job["steps"][0]["with"] == {
        "persist-credentials": "false", "lfs": "true", "submodules": "recursive",
    }  # fmt: skip
    assert job["env"]["LEAPP_REQUIREMENT"] == "${{ vars.LEAPP_REQUIREMENT }}"


def test_every_action_has_a_word():
    assert [each.value for each in Action] == ["written", "replaced", "same", "kept"]


# --- the hook -------------------------------------------------------------------------------------------------------


HOOKS = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"


def test_the_hook_is_one_for_pre_commit():
    pytest.importorskip("pre_commit")
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", str(HOOKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_hook_runs_where_a_manifest_or_lock_changes():
    (hook,) = yaml.safe_load(HOOKS.read_text())
    changed = ["manifests/a.toml", "manifests/sub/a.lock", "policies/walk.py"]
    others = ["manifests/a.md", "sub/manifests/a.toml", "pyproject.toml", "walk.pyc"]
    assert [each for each in (*changed, *others) if re.search(hook["files"], each)] == changed


def test_the_hook_of_pre_commit_checks_manifests(here, capsys):
    (hook,) = yaml.safe_load(HOOKS.read_text())
    command = [*hook["entry"].split(), *hook["args"]]
    assert cli.main(["init"]) == 0
    assert command[0] == "leapp"
    assert cli.main(command[1:]) == 0
    (here / "manifests/tiny.toml").write_text("schema = 1\n")
    assert cli.main(command[1:]) == 2
