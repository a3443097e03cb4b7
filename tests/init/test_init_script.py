"""What is read from a script's text: entry, nodes, rate, files. Nothing is run."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leapp.errors import ScriptError
from leapp.init.script import read_script
from leapp.manifest.load import load_one

BODY = """\
import torch
import leapp
from leapp import annotate

def record():
    x = annotate.input_tensors("n", {"x": torch.ones(2)})
    annotate.output_tensors("n", {"y": x + 1})

"""


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    """What follows ``BODY``, in which ``record()`` is a node ``n``."""
    entry: str
    args: dict[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    seed: int | None = None


CASES = [
    Case("main", "def main():\n    record()\n", "s.py:main"),
    Case("main with defaults", "def main(seed=3, ticks=5):\n    record()\n", "s.py:main", seed=3),
    Case("main without its arguments", "def main(ticks, *, rate, seed=0):\n    record()\n", "s.py:main",
         missing=("ticks", "rate"), seed=0),
    Case("main under no_grad", "@torch.no_grad()\ndef main():\n    record()\n", "s.py:main"),
    Case("guarded main", "def main(): record()\nif __name__ == '__main__':\n    main()\n", "s.py:main"),
    Case("guarded main, given literals", "N = 4\ndef main(ticks, seed, rate=1): record()\n"
         "if __name__ == '__main__':\n    main(N, seed=7)\n", "s.py:main", {"ticks": 4, "seed": 7}, seed=7),
    Case("guarded run, not main", "def run(): record()\ndef main(): ...\nif __name__ == '__main__':\n    run()\n",
         "s.py:run"),
    Case("calls of LEAPP around", "def run(): record()\nif __name__ == '__main__':\n    leapp.start('p')\n    run()\n"
         "    leapp.stop()\n    leapp.compile_graph()\n", "s.py:run"),
    Case("sys.exit(main())", "import sys\ndef main(): record()\nif __name__ == '__main__':\n    sys.exit(main())\n",
         "s.py:main"),
    Case("main is given what only running tells", "def main(args): record()\nif __name__ == '__main__':\n"
         "    main(parse())\n", "s.py"),
    Case("more than a call", "def main(): record()\nif __name__ == '__main__':\n    torch.manual_seed(1)\n    main()\n",
         "s.py"),
    Case("decorated by something that may want a command line", "import click\n@click.command()\ndef main(): record()\n"
         "if __name__ == '__main__':\n    main()\n", "s.py"),
    Case("a coroutine", "async def main(): record()\nif __name__ == '__main__':\n    main()\n", "s.py"),
    Case("a generator", "def main():\n    record()\n    yield\n", "s.py"),
    Case("runs when imported", "record()\ndef main(): record()\n", "s.py"),
    Case("starts when imported", "leapp.start('p')\nfor _ in range(2):\n    torch.ones(1)\ndef main(): ...\n", "s.py"),
    Case("one function that leads to the node", "class Robot:\n    def act(self): record()\n\ndef helper(): ...\n"
         "def play():\n    Robot().act()\n", "s.py:play"),
]  # fmt: skip


PARSED = """\
import argparse
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("extra", nargs="?")
    parser.add_argument("-s", "--steps", type=int, required=True, default=1)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args(GIVEN)
    record()
if __name__ == "__main__":
    main()
"""


def test_a_command_line_is_left_to_a_script(tmp_path):
    (tmp_path / "s.py").write_text(BODY + PARSED.replace("GIVEN", ""))
    found = read_script(tmp_path / "s.py", tmp_path)
    assert (found.entry, found.missing, found.options, found.seed) == (
        "s.py", ("checkpoint", "--steps"), ("extra", "--seed"), 4,
    )  # fmt: skip
    (tmp_path / "s.py").write_text(BODY + PARSED.replace("GIVEN", "['a', '-s', '1']"))
    assert read_script(tmp_path / "s.py", tmp_path).entry == "s.py:main"


def test_a_command_line_of_click(tmp_path):
    text = (
        "import click\n@click.command()\n@click.argument('checkpoint')\n@click.argument('more', nargs=-1)\n"
        "@click.option('-s', '--steps', required=True)\n@click.option('--seed', default=2)\n"
        "@click.option('--gain', required=True, default=1)\n"
        "def main(checkpoint, more, steps, seed, gain): record()\nif __name__ == '__main__':\n    main()\n"
    )
    (tmp_path / "s.py").write_text(BODY + text)
    found = read_script(tmp_path / "s.py", tmp_path)
    assert (found.entry, found.missing, found.seed) == ("s.py", ("checkpoint", "--steps"), 2)
    assert found.options == ("more", "--seed", "--gain")


def test_variables_that_a_script_cannot_do_without(tmp_path):
    text = (
        "import os\nfrom os import environ\nROOT = 'MODELS'\nos.environ['OMP_NUM_THREADS'] = '1'\n"
        "A = os.environ[ROOT], environ['RUN'], os.environ['HOME'], os.environ['OMP_NUM_THREADS'], os.environ['RUN']\n"
        "B = os.environ.get('MAYBE'), os.getenv('PERHAPS'), {}['NO']\n"
    )
    (tmp_path / "s.py").write_text(BODY + text)
    assert read_script(tmp_path / "s.py", tmp_path).variables == ("MODELS", "RUN")


def test_weights_that_are_not_there_yet(tmp_path):
    text = (
        "import torch\nW = 'weights/net.pt'\nV = 'here.npz', 'a b.pt', '.pt', 'x.txt'\n"
        "torch.save(W, 'out/made.pt')\ndef f(): torch.load('more.PTH')\n"
    )
    (tmp_path / "s.py").write_text(BODY + text)
    (tmp_path / "here.npz").touch()
    found = read_script(tmp_path / "s.py", tmp_path)
    assert (found.inputs, found.absent) == (("here.npz",), ("more.PTH", "weights/net.pt"))


def test_variables_that_a_script_reads_where_they_are_set(tmp_path):
    text = (
        "import os\nfrom os import environ, getenv\nA = os.environ.get('MAYBE', '0'), getenv('PERHAPS'), {}.get('NO')\n"
        "B = 'SEEN' in environ, 'NO' in {}, os.getenv('HOME'), os.environ['RUN'], os.environ.get('RUN')\n"
    )
    (tmp_path / "s.py").write_text(BODY + text)
    found = read_script(tmp_path / "s.py", tmp_path)
    assert (found.variables, set(found.variables_if_set)) == (("RUN",), {"MAYBE", "PERHAPS", "SEEN"})


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.name)
def test_entries(tmp_path, case):
    (tmp_path / "s.py").write_text(BODY + case.text)
    found = read_script(tmp_path / "s.py", tmp_path)
    assert (found.entry, found.args, found.missing, found.seed) == (case.entry, case.args, case.missing, case.seed)
    assert list(found.nodes) == ["n"]


def write(folder, files: dict[str, str]):
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.mark.parametrize(
    "text",
    [
        "import leapp\nleapp.annotate.input_tensors('policy', {})\n",
        "import leapp as L\nL.annotate.output_tensors(node='policy', tensors={})\n",
        "import leapp.annotate\nleapp.annotate.state_tensors('policy', {})\n",
        "from leapp import annotate as a\na.module('policy', None)\n",
        "from leapp.annotate import input_tensors as inp\nNODE = 'policy'\ndef f():\n    inp(NODE, {})\n",
        "from leapp import annotate\n@annotate.method\ndef policy(x): ...\n",
        "from leapp import annotate\nclass A:\n    @annotate.method('policy')\n    def act(self, x): ...\n",
        "from leapp import annotate\n@annotate.method(export_with='onnx')\ndef policy(x): ...\n",
    ],
)
def test_every_way_to_name_a_node(tmp_path, text):
    write(tmp_path, {"s": text})
    assert list(read_script(tmp_path / "s.py", tmp_path).nodes) == ["policy"]


def test_names_that_only_running_tells(tmp_path):
    write(tmp_path, {"s": "from leapp import annotate\nfor i in 0, 1:\n    annotate.input_tensors(f'leg{i}', {})\n"})
    found = read_script(tmp_path / "s.py", tmp_path)
    assert (dict(found.nodes), [str(each) for each in found.computed]) == ({}, ["s.py:3"])


def test_other_functions_of_these_names_are_not_ours(tmp_path):
    write(tmp_path, {"s": "from other import annotate\nimport leapp\nannotate.input_tensors('x', {})\n"})
    with pytest.raises(ScriptError, match="calls leapp.annotate"):
        read_script(tmp_path / "s.py", tmp_path)


def test_modules_of_the_project_are_read_too(tmp_path):
    write(
        tmp_path,
        {
            "run": "from robot.policy import act\nimport helper\n\ndef main():\n    act()\n",
            "helper": "import run\nimport leapp\nRATE = 1 / 0.02\nCONFIG = leapp.GraphConfigs(frequency=RATE)\n",
            "src/robot/policy": "from ._deep import deep\nfrom leapp import annotate\n"
            "def act():\n    annotate.input_tensors('policy', {})\n",
            "src/robot/_deep": "import leapp\ndef deep():\n    leapp.annotate.input_tensors('deep', {})\n"
            "    leapp.start('out/named')\n",
            "unrelated": "from leapp import annotate\nannotate.input_tensors('stray', {})\n",
        },
    )
    found = read_script(tmp_path / "run.py", tmp_path)
    assert set(found.nodes) == {"policy", "deep"}
    assert str(found.nodes["policy"]) == "src/robot/policy.py:4"
    assert (found.name, found.starts, found.frequency_hz, found.entry) == ("named", ("named",), 50, "run.py:main")


def test_a_member_of_a_package_is_named_as_a_module(tmp_path):
    write(
        tmp_path,
        {
            "bot/__init__": "",
            "bot/play": "from .net import net\nfrom leapp import annotate\n"
            "def main():\n    annotate.input_tensors('n', {})\n",
            "bot/net": "net = 1\n",
        },
    )
    assert read_script(tmp_path / "bot/play.py", tmp_path).entry == "bot.play:main"
    (tmp_path / "bot/play.py").write_text("from .net import net\nimport leapp\nleapp.annotate.module('n', net)\n")
    assert read_script(tmp_path / "bot/play.py", tmp_path).entry == "-m bot.play"


def test_files_that_a_script_names(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w/net[1].pt").touch()
    (tmp_path / "notes.md").touch()
    write(tmp_path, {"s": BODY + "W = 'w/net[1].pt'\nA = 'w', 'none.pt', 'notes.md', 's.py', '/etc/passwd', '../x'\n"})
    assert read_script(tmp_path / "s.py", tmp_path).inputs == ("w/net[1].pt",)


def test_files_outside_the_project_and_beside_the_script(tmp_path):
    (tmp_path / "project/sub").mkdir(parents=True)
    for name in ("out.pt", "project/sub/near.pt", "project/in.pt"):
        (tmp_path / name).touch()
    root = tmp_path / "project"
    text = f"W = 'near.pt', '../out.pt', {str(tmp_path / 'out.pt')!r}, {str(root / 'in.pt')!r}, '/etc/passwd'\n"
    (root / "sub/s.py").write_text(BODY + text)
    found = read_script(root / "sub/s.py", root)
    assert (found.inputs, found.beside) == (("../out.pt", "in.pt"), ("near.pt",))
    (root / "sub/s.py").write_text(BODY + text + "HERE = __file__\n")
    assert read_script(root / "sub/s.py", root).beside == ()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("note.ipynb", "{}", "it is a notebook, and a build runs Python files"),
        ("policy.onnx", "x", "its name does not end in .py"),
        (
            "bad.py",
            "import leapp\nprint 'x'\n",
            "line 2 is not valid Python: Missing parentheses in call to 'print'\\.",
        ),
        ("gone.py", None, "it does not exist"),
        ("bad.py", "def f(:\n", "line 1 is not valid Python"),
        ("bad.py", "x = 1\0", "not.* Python"),
        ("plain.py", "print(1)\n", "nothing in it"),
        ("a:b.py", BODY, "none of the forms"),
    ],
)
def test_what_gives_no_manifest(tmp_path, name, text, why):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ScriptError, match=why) as caught:
        read_script(tmp_path / name, tmp_path)
    assert len(str(caught.value).splitlines()) == 2


def test_a_script_of_another_project(tmp_path):
    (tmp_path / "other").mkdir()
    write(tmp_path, {"s": BODY})
    with pytest.raises(ScriptError, match="lies outside the project"):
        read_script(tmp_path / "s.py", tmp_path / "other")


def test_nothing_is_run(tmp_path):
    write(tmp_path, {"s": BODY + "raise SystemExit('it was run')\n"})
    assert read_script(tmp_path / "s.py", tmp_path).entry == "s.py:record"


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("manifest", sorted((ROOT / "manifests").glob("*.toml")), ids=lambda each: each.stem)
def test_the_examples_are_read_as_their_manifests_have_them(manifest):
    declared = load_one(manifest)
    found = read_script(ROOT / declared.pipeline.entry.file, ROOT)
    assert found.entry == declared.pipeline.entry.text
    assert set(declared.nodes) <= set(found.nodes)
    assert found.missing == ()
