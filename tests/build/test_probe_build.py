"""The probe inside a real build: the page about it, what is never right, what is allowed, and moved sources."""

import json
import os
import re
from pathlib import Path

import pytest

from leapp.build.plan import make_plan
from leapp.build.run import build
from leapp.manifest.load import load

DOCS = Path(__file__).parents[2] / "docs"

ENTRIES = '''
from pathlib import Path

import torch
from leapp import annotate

SCALE = torch.ones(3)


def node(body, x):
    x = annotate.input_tensors("n", {"x": x})
    annotate.output_tensors("n", {"y": body(x)})


def noisy(x):
    return x + torch.randn(x.shape)


def random():
    node(noisy, torch.zeros(3))


def hidden(x):
    SCALE.mul_(0.9).add_(x)
    return x * SCALE


def state():
    node(hidden, torch.zeros(3))


def episode(number=0):
    """The entry's own seed keeps its data; [probe] args move them."""
    torch.manual_seed(number)
    x = torch.randint(0, 9, (3,))
    node(lambda x: x * int(x.max()), x)


def from_file():
    """The data lie in a file; [probe] inputs gives another one."""
    x = torch.tensor([float(line) for line in Path("readings.txt").read_text().split()])
    node(lambda x: x / float(x.max()), x)


def meant():
    node(lambda x: x * annotate.constant(float(x.max()) + 1.0), torch.zeros(3))


def copied():
    """The action comes back as numbers. The robot has a clock, which the node happens to foretell."""
    last, beat = torch.zeros(3), torch.tensor([0.3])
    for tick in range(3):
        x, last, t = annotate.input_tensors("n", {"x": torch.randn(3), "last": last, "t": beat * 2**tick})
        y = torch.tanh(x - last / 2) * torch.cos(t)
        annotate.output_tensors("n", {"y": y, "next": t * 2})
        last = torch.tensor(y.tolist())
'''


def blocks(page):
    text = (DOCS / page).read_text("utf-8")
    return dict(re.findall(r"<!-- (?:file|output): (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All of it in one build: sessions cost seconds."""
    root = tmp_path_factory.mktemp("probed")
    (root / "pyproject.toml").touch()
    (root / "entries.py").write_text(ENTRIES)
    page = blocks("frozen-constants.md")
    (root / "limiter.py").write_text(page["limiter.py"])
    (root / "readings.txt").write_text("1 2 3")
    (root / "others.txt").write_text("4 5 7")
    folder = root / "manifests"
    folder.mkdir()
    (folder / "limiter.toml").write_text(page["limiter.toml"])
    manifests = {
        "random": "random", "random-allowed": "random", "state": "state", "episode": "episode", "meant": "meant",
        "escape-allowed": "episode", "from-file": "from_file", "copied": "copied",
    }  # fmt: skip
    extra = {
        "escape-allowed": '[probe]\nargs = { number = 1 }\n[allow]\nescapes = ["entries:episode.<locals>.<lambda>"]\n',
        "random-allowed": '[allow]\nrandom = ["entries:noisy"]\n',
        "meant": '[metadata]\nlicence = "MIT"\n',
        "from-file": '[probe]\ninputs = { "readings.txt" = "others.txt" }\n',
        "episode": "[probe]\nargs = { number = 1 }\n",
    }
    for name, function in manifests.items():
        (folder / f"{name}.toml").write_text(
            f'schema = 1\n[pipeline]\nname = "{name}"\nversion = "1.0.0"\nentry = "entries.py:{function}"\n'
            f'[export]\nformats = ["torchscript"]\n{extra.get(name, "")}'
        )
    plan = make_plan(load([folder]), out=root / "dist", environment=os.environ)
    return root, {result.plan.name: result for result in build(plan, jobs=2)}


def test_the_page_shows_what_a_build_says(results):
    _, by_name = results
    said = str(by_name["limiter"].error)
    expected = blocks("frozen-constants.md")["limiter"].strip()
    assert said.split("\n")[1:] == expected.split("\n")[1:]
    assert by_name["limiter"].exit_code == 1
    assert not by_name["limiter"].published


def test_draws_are_errors_unless_allowed(results):
    _, by_name = results
    assert "torch.randn at entries.py:16 draws random numbers" in str(by_name["random"].error)
    assert "moved with the data" in str(by_name["random"].error)
    assert by_name["random-allowed"].error is None


def test_hidden_state_is_an_error(results):
    _, by_name = results
    assert "carries values from tick to tick" in str(by_name["state"].error)
    assert "entries.py:24" in str(by_name["state"].error)


def test_data_move_at_their_source(results):
    _, by_name = results
    assert "fed by int() at entries.py:36" in str(by_name["episode"].error)


def test_data_in_files_move_with_their_files(results):
    root, by_name = results
    said = str(by_name["from-file"].error)
    assert "the argument 3.0 -> 7.0 of torch.div" in said
    assert (root / "readings.txt").read_text() == "1 2 3"


def test_feedback_that_was_copied_out_of_sight_is_noted_when_both_runs_show_it(results):
    root, by_name = results
    assert by_name["copied"].error is None
    (note,) = (each for each in by_name["copied"].notes if "bit for bit" in each)
    assert note.startswith("Node 'n': input 'last' (entries.py:53) held, bit for bit, n/y at each tick but the first")
    assert "annotate.mirror_leapp_tags(" in note
    (run,) = json.loads((root / "dist/copied/1.0.0/evidence/probe.json").read_text())["runs"]
    assert len(run["copied"]) == 1


def test_peak_memory_is_reported(results):
    root, by_name = results
    assert by_name["meant"].peak_memory_bytes > 50_000_000
    session = json.loads((root / "dist/meant/1.0.0/evidence/session.json").read_text())
    assert session["peak_memory_bytes"] == by_name["meant"].peak_memory_bytes
    assert session["metadata"] == {"licence": "MIT"}


def test_a_read_that_is_allowed_excuses_what_it_fed(results):
    root, by_name = results
    assert by_name["escape-allowed"].error is None
    (run,) = json.loads((root / "dist/escape-allowed/1.0.0/evidence/probe.json").read_text())["runs"]
    assert [each["allowed"] for each in run["moved"]] == [True]


def test_what_is_meant_to_be_fixed_is_pinned(results):
    root, by_name = results
    assert by_name["meant"].error is None
    assert by_name["meant"].published
    probe = json.loads((root / "dist" / "meant" / "1.0.0" / "evidence" / "probe.json").read_text())
    assert probe["runs"][0]["perturbed"] == ["n/x"]
    assert probe["runs"][0]["ok"]
