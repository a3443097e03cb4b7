"""The command itself: exit codes, light imports, JSON, and no traceback for what a user can mend."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from leapp import cli
from leapp._source import Source, install_command
from leapp._tried import TRIED
from leapp._version import __version__
from leapp.doctor import State, diagnose, show
from leapp.report.text import Printer

HEAVY = ("torch", "numpy", "onnx", "onnxruntime", "safetensors", "rich")

MANIFEST = 'schema = 1\n[pipeline]\nname = "p"\nversion = "1.0.0"\nentry = "entry.py:main"\n'


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "entry.py").write_text("def main(): ...\n")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "p.toml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def leapp(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "leapp", *arguments], capture_output=True, text=True, check=False, **options
    )


PROBE = """\
import sys
from leapp.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(code, *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("check",), ("schema",), ("doctor",), ("verify", "nothing"), ("build", "--help")],
    ids=lambda each: " ".join(each),
)
def test_light_commands_import_nothing_heavy_and_start_at_once(project, arguments):
    spent_s = []
    for _ in range(2):  # the first run may pay for a cold disk
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent_s.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code == ("2" if "nothing" in arguments else "0")
    assert not set(HEAVY) & set(modules)
    assert min(spent_s) < 0.3


def test_python_m_leapp_is_the_command(project):
    assert leapp("--version").stdout == f"leapp {__version__}\n"


def test_help_lists_commands_and_exit_codes():
    done = leapp("--help")
    for word in (
        "build",
        "check",
        "schema",
        "verify",
        "replay",
        "inspect",
        "doctor",
        "70  a fault of LEAPP",
        "130 inter",
    ):
        assert word in done.stdout


def test_check_lists_manifests(project, capsys):
    assert cli.main(["check"]) == 0
    out = capsys.readouterr().out
    assert "manifests/p.toml" in out
    assert "1 manifest, no problems." in out


def test_check_json(project, capsys):
    assert cli.main(["check", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["name"], record["version"], record["ok"]) == ("p", "1.0.0", True)


def test_all_problems_of_all_manifests_at_once(project, capsys):
    (project / "manifests" / "p.toml").write_text(MANIFEST + "[sesion]\nseed = 1\n")
    (project / "manifests" / "q.toml").write_text(MANIFEST.replace('"p"', "3"))
    assert cli.main(["check"]) == 2
    error = capsys.readouterr().err
    assert "manifests/p.toml:6" in error
    assert "manifests/q.toml:3" in error
    assert "Traceback" not in error
    assert cli.main(["check", "--json"]) == 2
    record = json.loads(capsys.readouterr().out)
    assert (record["ok"], record["exit_code"], record["error"]["class"]) == (False, 2, "ManifestError")
    assert [(each["file"], each["line"]) for each in record["error"]["problems"]] == [
        ("manifests/p.toml", 6),
        ("manifests/q.toml", 3),
    ]


def test_schema_is_json_schema(capsys):
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")


@pytest.mark.parametrize("command", ["verify", "replay", "inspect"])
def test_no_bundle_is_bad_input(project, capsys, command):
    assert cli.main([command, "manifests"]) == 2
    captured = capsys.readouterr()
    assert "manifests is not a bundle" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "--jobs", "0"],
        ["build", "--jobs", "x"],
        ["replay", "b", "--rtol", "-1"],
        ["replay", "b", "--atol", "nan"],
        ["verify"],
        ["unknown"],
    ],
)
def test_bad_arguments_exit_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert "usage: leapp" in capsys.readouterr().err


def test_a_fault_is_a_short_text_and_a_log(project, capsys, monkeypatch):
    monkeypatch.setattr("leapp.manifest.load.load", lambda _paths, **_options: 1 / 0)
    assert cli.main(["check"]) == 70
    error = capsys.readouterr().err
    assert "leapp check failed: ZeroDivisionError: division by zero" in error
    assert "Traceback" not in error
    log = Path(error.split("the log ")[1].strip().rstrip("."))
    assert "Traceback" in log.read_text()
    log.unlink()


def test_a_missing_library_is_named_with_the_command_that_brings_it(project, capsys, monkeypatch):
    def absent(_paths, **_options):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("leapp.manifest.load.load", absent)
    assert cli.main(["check"]) == 2
    error = capsys.readouterr().err
    assert "leapp check needs torch, which is not installed." in error
    assert f"Install it: {install_command()}\n" in error


@pytest.mark.parametrize(("package", "extra"), [("onnxruntime", "onnx"), ("torch", "build")])
def test_what_only_runs_needs_no_torch(capsys, monkeypatch, package, extra):
    def absent(*_given, **_options):
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr("leapp.runtime.inference.InferenceManager", absent)
    assert cli.main(["run", "bundle"]) == 2
    assert f"Install it: {install_command(extra)}\n" in capsys.readouterr().err


def test_interrupt_exits_130(project, capsys, monkeypatch):
    def interrupt(_paths, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("leapp.manifest.load.load", interrupt)
    assert cli.main(["check"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_a_reader_that_goes_away_is_no_fault(project):
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run([sys.executable, "-m", "leapp", "schema"], stdout=start, stderr=subprocess.PIPE, check=False)
    os.close(start)
    assert (done.returncode, done.stderr) == (0, b"")


# --- doctor ---------------------------------------------------------------------------------------------------------

REQUIREMENTS = [
    "pydantic>=2.10",
    'torch>=2.8; extra == "build"',
    'numpy>=2.0; extra == "build"',
    'numpy>=2.1; extra == "onnx"',
]


def doctor(**installed: str):
    return diagnose(REQUIREMENTS, installed.get)


def test_doctor_finds_everything_fine():
    found = doctor(pydantic="2.14.0", torch="2.13.0+cpu", numpy="2.4.6")
    assert found.ok
    assert found.command is None
    assert [part.state for part in found.parts] == [State.FINE] * 3
    assert found.uses == ("base", "build", "onnx")


def test_doctor_tells_missing_from_unsupported():
    found = doctor(pydantic="2.14.0", numpy="2.0.5")
    states = {part.package: part.state for part in found.parts}
    assert states == {"pydantic": State.FINE, "torch": State.MISSING, "numpy": State.UNSUPPORTED}
    assert {use: found.can(use) for use in found.uses} == {"base": True, "build": False, "onnx": False}
    assert not found.ok
    assert found.command == install_command()


def test_a_base_without_extras_is_fine_and_says_what_is_missing_for_a_build():
    found = doctor(pydantic="2.14.0")
    assert found.ok
    assert found.command is not None
    assert found.command == install_command()


def test_what_is_missing_comes_from_where_leapp_came(monkeypatch):
    source = Source("leapp-build[build] @ git+https://git.example/leapp.git@0123abc")
    monkeypatch.setattr("leapp._source.find_source", lambda: source)
    wanted = "'leapp-build[dask] @ git+https://git.example/leapp.git@0123abc'"
    assert install_command("dask") == f"{sys.executable} -m pip install {wanted}"
    assert doctor(pydantic="2.14.0").command == install_command()


def test_a_broken_base_is_not_fine():
    assert not doctor(pydantic="1.9").ok
    assert not doctor().ok


def test_doctor_names_what_is_newer_than_all_that_was_tried(monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: "3.99.1")
    found = doctor(pydantic="2.14.0", torch="2.99.0a1+cpu", numpy="2.1.3")
    assert found.ok
    assert {name: here for name, (here, _) in found.untried.items()} == {"python": "3.99.1", "torch": "2.99.0a1+cpu"}
    text = io.StringIO()
    show(found, Printer(text))
    assert f"torch 2.99.0a1+cpu (newest tried: {TRIED['torch'][-1]})" in text.getvalue()
    assert list(found.as_json()["untried"]) == ["python", "torch"]


def test_doctor_is_silent_on_what_was_tried(monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: TRIED["python"][-1] + ".7")
    assert doctor(torch=TRIED["torch"][-1] + ".9", numpy=TRIED["numpy"][0], pydantic="2.99").untried == {}
    assert doctor().untried == {}


def test_doctor_reads_our_own_metadata(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    packages = {part["package"]: part for part in record["parts"]}
    assert packages["torch"]["supported"].startswith(">=")
    assert packages["torch"]["needed_for"] == ["build"]
    assert "base" in packages["pyyaml"]["needed_for"]
    assert record["can"]["base"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("bild", "there is no command 'bild'. Did you mean 'build'?"),
        ("cache gcc", "Did you mean 'gc'?"),
        ("build --no-cash", "leapp build: error: unrecognized arguments: --no-cash. Did you mean '--no-cache'?"),
        (
            "verify x --juint=f.xml",
            "leapp verify: error: unrecognized arguments: --juint=f.xml. Did you mean '--junit'?",
        ),
        ("schema extra", "leapp schema: error: unrecognized arguments: extra"),
        # An option that was cut short is not taken for one that changes files.
        ("lock --updat", "unrecognized arguments: --updat. Did you mean '--update'?"),
        ("build --jobs x", "argument --jobs/-j: expected a whole number from 1, got 'x'"),
        ("run b --steps 0", "argument --steps: expected a whole number from 1, got '0'"),
        ("replay b --rtol tight", "argument --rtol: expected a finite number, zero or more, got 'tight'"),
        ("replay b --atol nan", "argument --atol: expected a finite number, zero or more, got 'nan'"),
        ("build --merge d1 --shard 1/2", "leapp build: error: argument --merge: not allowed with --shard"),
        ("build --merge d1 --only n", "not allowed with --only: it builds nothing"),
        ("build --merge d1 manifests/a.toml", "manifests/a.toml is a manifest; manifests come before it: leapp build"),
        ("build --merge d1 manifests", "argument --merge: manifests holds manifests; manifests come before it"),
        ("build --dask tcp://h:1 --only n", "argument --dask: not allowed with --only"),
        ("cache path --max-size 0", "argument --max-size: it is of `leapp cache gc`, not of `leapp cache path`"),
    ],
)
def test_arguments_that_make_no_sense_are_told_with_the_next_step(project, capsys, arguments, said):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_no_hint_where_nothing_is_near(capsys):
    with pytest.raises(SystemExit):
        cli.main(["xyzzy"])
    assert "Did you mean" not in capsys.readouterr().err


def commands():
    (group,) = (each for each in cli._parser()._subparsers._group_actions)
    return group.choices


@pytest.mark.parametrize("name", commands())
def test_every_help_fits_a_narrow_terminal_and_says_what_each_option_is(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = commands()[name]
    lines = parser.format_help().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(action.help for action in parser._actions)
    # Examples are commands of this verb that the parser takes.
    shown = [line.split("  ")[1] for line in lines if line.startswith(f"  leapp {name}")]
    for example in shown:
        words = example.partition(">")[0].replace("dist/*/*", "dist/a/1").split()[1:]
        assert cli._parser().parse_args(words).command == name
    assert bool(shown) == ("examples:" in lines)
