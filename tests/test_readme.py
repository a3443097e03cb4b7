"""What the README shows is what happens: its files are run, its bundle is looked at, CI runs its command lines."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from leapp import cli, errors

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(kind: str) -> dict[str, str]:
    """Code blocks below a marker ``<!-- KIND: NAME -->``, by name."""
    pattern = rf"^<!-- {kind}: (\S+) -->\n```\w+\n(.*?)^```$"
    return {match[1]: match[2] for match in re.finditer(pattern, README, re.MULTILINE | re.DOTALL)}


FILES = blocks("file")
COMMANDS = blocks("command")


def run(folder: Path, *command: str) -> str:
    """Run Python as a user would; everything that is printed comes back."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


# The user's own program, and then the exported model against it on inputs that were never traced.
COMPARE = """
import runpy
import numpy as np, onnxruntime, torch

act = runpy.run_path("hello.py")["act"]
session = onnxruntime.InferenceSession("hello/nodes/policy/policy.onnx")
generator = torch.Generator().manual_seed(7)
actions = []
for _ in range(20):
    observation = 3 * torch.randn(3, generator=generator)
    (action,) = session.run(["action"], {"observation": observation.numpy()})
    np.testing.assert_allclose(action, act(observation).detach().numpy(), rtol=1e-5, atol=1e-6)
    actions.append(action)
assert np.std(actions, axis=0).min() > 0.01, "the model gives the same action for every observation"
"""


@pytest.fixture(scope="module")
def hello(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hello")
    for name in ("hello.py", "run.py"):
        (folder / name).write_text(FILES[name], "utf-8")
    run(folder, "-c", COMPARE)
    return folder


def test_the_script_has_ten_lines():
    assert sum(bool(line) for line in FILES["hello.py"].splitlines()) == 10


def test_the_script_gives_a_model_that_agrees_with_it(hello):
    assert (hello / "hello" / "nodes" / "policy" / "policy.onnx").is_file()


def test_the_model_runs_as_shown(hello):
    printed = run(hello, "run.py")
    assert re.fullmatch(r"\[\s*-?0\.\d+\s+-?0\.\d+\s*\]\n", printed), printed


def test_the_bundle_is_the_tree_shown(hello):
    root, *lines = blocks("tree")["hello"].splitlines()
    bundle = hello / root
    shown = {line.split()[0] for line in lines}
    if importlib.util.find_spec("pygraphviz") is None:  # an extra
        shown.remove("hello.png")
    assert {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()} == shown


COMPARE_ARRAYS = """
import runpy
import numpy as np, onnxruntime

preprocess = runpy.run_path("preprocess.py")["preprocess"]
session = onnxruntime.InferenceSession("arrays/nodes/preprocess/preprocess.onnx")
random = np.random.default_rng(7)
clipped = 0
for _ in range(20):
    state, velocity = random.normal(0.0, 3.0, (2, 3)).astype(np.float32)
    expected = preprocess({"observation.state": state, "observation.velocity": velocity})
    (obs,) = session.run(["obs"], {"state": state, "velocity": velocity})
    np.testing.assert_allclose(obs, expected, rtol=1e-6)
    clipped += (np.abs(obs[:3]) == 5.0).sum()
assert 0 < clipped < 60
"""


def test_the_node_in_numpy_leaves_as_the_graph_shown(tmp_path):
    (tmp_path / "preprocess.py").write_text(FILES["preprocess.py"], "utf-8")
    run(tmp_path, "-W", "error::UserWarning", "-c", COMPARE_ARRAYS)
    graph = (tmp_path / "arrays" / "nodes" / "preprocess" / "graph.txt").read_text("utf-8")
    assert blocks("graph")["preprocess"] == graph


PLAY = """
import runpy
import numpy as np, torch
import leapp

act = runpy.run_path("recurrent.py")["act"]
policy = leapp.InferenceManager("recurrent")
generator = torch.Generator().manual_seed(7)
memory = torch.zeros(8)
for tick in range(100):
    observation = torch.randn(3, generator=generator)
    expected, memory = act(observation, memory)
    action = policy.run_policy({"policy/observation": observation})["policy/action"]
    torch.testing.assert_close(action, expected, rtol=1e-4, atol=1e-5)
"""


def test_the_node_with_memory_is_played_by_the_runtime(tmp_path):
    for name in ("recurrent.py", "play.py"):
        (tmp_path / name).write_text(FILES[name], "utf-8")
    run(tmp_path, "-c", PLAY)
    printed = run(tmp_path, "play.py").splitlines()
    assert len(set(printed)) == len(printed) == 5, printed


def test_the_manifest_builds_the_pipeline_described(tmp_path):
    (tmp_path / ".git").mkdir()  # what makes a folder a project
    for name in ("controller.py", "manifests/controller.toml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(FILES[name], "utf-8")
    run(tmp_path, "-m", "leapp", "check")
    printed = run(tmp_path, "-m", "leapp", "build")
    assert "leapp replay dist/controller/1.0.0" in printed
    nodes = tmp_path / "dist" / "controller" / "1.0.0" / "nodes"
    models = {
        path.relative_to(nodes).as_posix() for path in nodes.rglob("*") if path.suffix in {".onnx", ".pt2", ".pt"}
    }
    assert models == {"observe/observe.onnx", "decide/decide.onnx", "decide/decide.pt2"}
    contract = (nodes.parent / "controller.yaml").read_text("utf-8")
    assert "observe/state" in contract
    assert "frequency: 50" in contract


def test_exit_codes_are_those_of_the_command():
    from leapp.cli import _EXIT_CODES

    told = re.findall(r"^ +(\d+) +(.+)$", _EXIT_CODES, re.MULTILINE)
    shown = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", README, re.MULTILINE))
    assert set(shown) == {code for code, _ in told}
    for code, text in told:
        assert shown[code].startswith(text)


def test_every_command_shown_exists():
    from leapp.cli import _parser

    shown = set(re.findall(r"(?:^|`)leapp ([a-z]+)\b", README, re.MULTILINE))
    offered = set(re.findall(r"^    ([a-z]+) ", _parser().format_help(), re.MULTILINE))
    assert shown
    assert shown <= offered


def test_ci_runs_the_two_command_lines():
    assert set(COMMANDS) == {"export", "tests"}
    assert all(len(command.splitlines()) == 1 for command in COMMANDS.values())
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    asked = dict(re.findall(r"^(\w+)=\$\(readme_command (\w+)\)$", script, re.MULTILINE))
    assert set(asked.values()) == set(COMMANDS)
    for variable in asked:
        assert re.search(rf'^run "\${variable}"$', script, re.MULTILINE), variable
    # What the shell finds is what is shown: the function is cut out of CI's script and run.
    function = script[script.index("readme_command() {") : script.index("\n}\n") + 2]
    for name, command in COMMANDS.items():
        found = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{function}\nreadme_command {name}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout == command


def test_the_two_lines_install_pinned_versions_only():
    for command in COMMANDS.values():
        installs = re.findall(r"pip install (.+?)(?:&&|$)", command)
        assert installs
        assert all("-c constraints.txt" in install for install in installs)


def test_the_exit_codes_are_those_of_the_command_and_of_all_errors():
    listed = {int(code) for code in re.findall(r"^\| (\d+) \| ", README, re.MULTILINE)}
    helped = {int(code) for code in re.findall(r"^  (\d+) ", cli._EXIT_CODES, re.MULTILINE)}
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.LeappError)]
    assert {0, 130} | {each.exit_code for each in classes} == listed == helped
