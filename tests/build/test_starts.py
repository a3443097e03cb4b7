# ruff: noqa: E501 - an expected line is one string
"""How state starts, through real builds: told from two sessions, declared, refused by name; and the reset input."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch

from leapp import errors
from leapp._spec import ExportFormat, NodeSpec
from leapp.build.plan import make_plan
from leapp.build.run import build
from leapp.bundle.read import load
from leapp.bundle.samples import read_tensors
from leapp.export._backend import backend_for
from leapp.manifest import load as manifests

ENTRIES = '''
import torch
from leapp import annotate

SCALE = torch.tensor([0.5, -0.25, 1.5])


def tick(x, count, level, last):
    """A filter with three states; also what the exported node is compared with."""
    count = count + 1
    level = level * 0.5 + x * SCALE
    return level + (x - last) * count, count, level, x


def run(x, ticks=3, count=None, level=None, **options):
    """Inferred feedback: outputs of one tick are inputs of the next."""
    count = torch.zeros((), dtype=torch.int64) if count is None else count
    level = torch.ones(3) if level is None else level
    last = x.clone()
    for _ in range(ticks):
        values = annotate.input_tensors("filter", {"x": x, "count": count, "level": level, "last": last})
        y, count, level, last = tick(*values)
        _, count, level, last = annotate.output_tensors(
            "filter", {"y": y, "count": count, "level": level, "last": last}, **options
        )
        x = torch.randn(3)


def told():
    """One state of each kind, and feedback from another node."""
    x = torch.randn(3)
    count, last, memory = torch.zeros((), dtype=torch.int64), x.clone(), torch.full((3,), 2.0)
    for _ in range(3):
        x, memory, count, last = annotate.input_tensors("a", {"x": x, "memory": memory, "count": count, "last": last})
        y, count, last = annotate.output_tensors("a", {"y": x - last + memory, "count": count + 1, "last": x * 1})
        y = annotate.input_tensors("b", {"y": y})
        memory = annotate.output_tensors("b", {"memory": y * 0.5})
        x = torch.randn(3)


def looks_like_a_copy(zero=False):
    """The start is fixed; the input happens to hold the same values in the first session, not in the other."""
    run(torch.randn(3) if zero else torch.tensor([1.0, 0.0, 0.0]), level=torch.tensor([1.0, 0.0, 0.0]))


def was_zero_by_chance(zero=True):
    """The first session starts with zeros, as its input does; the other one shows that it is a copy."""
    x = torch.zeros(3) if zero else torch.randn(3)
    run(x, level=x.clone())


def drawn():
    run(torch.randn(3), level=torch.rand(3))


def two_alike():
    x = torch.randn(3)
    last, other = x.clone(), x.clone()
    for _ in range(3):
        x, other, last = annotate.input_tensors("n", {"x": x, "other": other, "last": last})
        y, last = annotate.output_tensors("n", {"y": x + other - last, "last": x * 1})
        x = torch.randn(3)
        other = torch.randn(3)


def never_updated():
    x, h = torch.randn(3), torch.zeros(3)
    x = annotate.input_tensors("plain", {"x": x})
    h = annotate.state_tensors("plain", {"h": h})
    annotate.output_tensors("plain", {"y": x + h})


def nothing_fed_back():
    x = annotate.input_tensors("plain", {"x": torch.randn(3)})
    annotate.output_tensors("plain", {"y": x * 2})
'''

ALL = 'formats = ["torchscript", "pt2", "onnx"]'
ONE = 'formats = ["torchscript"]'

PIPELINES = {
    "told": ("told", ONE, ""),
    "fixed": ("looks_like_a_copy", ONE, "[probe]\nargs = { zero = true }\n"),
    "by-chance": ("was_zero_by_chance", ONE, "[probe]\nargs = { zero = false }\n"),
    "drawn": ("drawn", ONE, ""),
    "declared": (
        "drawn", ALL,
        '[nodes.filter]\nreset = "fresh"\n[nodes.filter.state]\nlevel = "zeros"\nlast_in = "first-input:x"\n',
    ),
    "two-alike": ("two_alike", ONE, ""),
    "cell": ("cell.py:main", ONE, ""),
    "cell-constant": ("cell.py:main", ONE, '[nodes.cell.state]\nhidden = "constant"\n'),
    "misspelt": ("drawn", ONE, '[nodes.filter.state]\nlevle = "zeros"\n'),
    "never-updated": ("never_updated", ONE, '[nodes.plain.state]\nh = "zeros"\n'),
    "other-form": ("drawn", ONE, '[nodes.filter.state]\ncount = "first-input:x"\n'),
    "nothing-to-reset": ("nothing_fed_back", ONE, '[nodes.plain]\nreset = "fresh"\n'),
}  # fmt: skip


DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    text = (DOCS / page).read_text("utf-8")
    return dict(re.findall(r"<!-- (?:file|output): (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL))


REPRODUCED = {"fixed", "declared"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All of it in one build: sessions cost seconds."""
    root = tmp_path_factory.mktemp("starts")
    (root / "pyproject.toml").touch()
    (root / "entries.py").write_text(ENTRIES)
    (root / "cell.py").write_text(blocks("state.md")["cell.py"])
    folder = root / "manifests"
    folder.mkdir()
    for name, (function, formats, extra) in PIPELINES.items():
        entry = function if ":" in function else f"entries.py:{function}"
        (folder / f"{name}.toml").write_text(
            f'schema = 1\n[pipeline]\nname = "{name}"\nversion = "1.0.0"\nentry = "{entry}"\n'
            f"[export]\n{formats}\n{extra}"
        )
    results = {}
    # Reproduced with nothing varied: what is varied has tests of its own.
    for names, vary in ((REPRODUCED, ()), (PIPELINES.keys() - REPRODUCED, None)):
        found = manifests.load([folder / f"{name}.toml" for name in sorted(names)])
        plan = make_plan(found, out=root / "dist", environment=os.environ, vary=vary)
        results |= {result.plan.name: result for result in build(plan, jobs=2)}
    return root, results


def bundle(results, name):
    root, by_name = results
    assert by_name[name].error is None, by_name[name].error
    return load(root / "dist" / name / "1.0.0")


def starts(results, name):
    """``start`` of each port that has one, and the initial values."""
    opened = bundle(results, name)
    ports = {
        f"{node}/{port['name']}": port.get("start")
        for node, model in opened.contract["models"].items()
        for port in model["inputs"]
    }
    values = {key: value.numpy().tolist() for key, value in read_tensors(opened.initial_values).items()}
    return {key: text for key, text in ports.items() if text}, values


def test_each_kind_is_told(results):
    marked, values = starts(results, "told")
    assert marked == {"a/last": "first-input:x"}
    assert values == {"a/count": 0, "a/last": [0, 0, 0], "a/memory": [2, 2, 2]}
    opened = bundle(results, "told")
    (last,) = (port for port in opened.node("a").inputs if port.name == "last")
    assert last.semantics == {"start": "first-input:x"}
    rows = json.loads((opened.folder / "evidence/notes.json").read_text())["starts"]
    assert {row["port"]: (row["start"], row["how"]) for row in rows} == {
        "a/count": ("zeros", "traced"),
        "a/last": ("first-input:x", "told"),
        "a/memory": ("constant", "traced"),
    }
    assert "Input 'last' of node 'a' starts as a copy of 'x', whose value it had at the first tick." in (
        results[1]["told"].notes
    )
    probed = json.loads((opened.folder / "evidence/probe.json").read_text())["runs"][0]["starts"]
    assert [(row["port"], row["zero"], row["same"], row["like"]) for row in probed] == [
        ("a/count", True, True, []),
        ("a/last", False, False, ["x"]),
        ("a/memory", False, True, []),
    ]


def test_the_second_session_is_the_judge(results):
    """What the first session took for a copy, or for zeros, is put right, and comes out again."""
    marked, values = starts(results, "fixed")
    assert marked == {"filter/last": "first-input:x"}
    assert values["filter/level"] == [1, 0, 0]
    assert results[1]["fixed"].reproduction.ok
    marked, values = starts(results, "by-chance")
    assert marked == {"filter/last": "first-input:x", "filter/level": "first-input:x"}
    assert values["filter/level"] == [0, 0, 0]
    assert (bundle(results, "by-chance").folder / "evidence/probe.json").exists()


@pytest.mark.parametrize(
    ("name", "node", "state", "sources"),
    [("drawn", "filter", "level", ["x"]), ("cell", "cell", "hidden", ["x"])],
)
def test_a_start_of_one_run_is_an_error_with_three_remedies(results, name, node, state, sources):
    result = results[1][name]
    assert isinstance(result.error, errors.StartNotFixedError)
    assert (result.exit_code, result.published) == (1, False)
    said = str(result.error)
    assert f"node {node!r}: {state!r} starts with another value in each run, largest difference 0." in said
    lines = [line.strip() for line in said.splitlines()]
    assert lines[lines.index(f"[nodes.{node}.state]") + 1 :][: 2 + len(sources)] == [
        f'{state} = "zeros"',
        f'{state} = "constant"  # the value of the first run',
        *(f'{state} = "first-input:{source}"  # a copy of an input' for source in sources),
    ]


def test_the_page_shows_what_a_build_says(results):
    said = str(results[1]["cell"].error)
    expected = blocks("state.md")["cell"].strip()
    assert said.split("\n")[1:] == expected.split("\n")[1:]


def test_two_candidates_are_listed(results):
    said = str(results[1]["two-alike"].error)
    assert "in each it was equal to several inputs: x, other" in said
    assert 'last = "first-input:other"' in said


def test_what_is_declared_counts(results):
    marked, values = starts(results, "declared")
    assert marked == {"filter/last_in": "first-input:x"}
    assert values["filter/level_in"] == [0, 0, 0]
    assert "Input 'level_in' of node 'filter' starts with zeros, as declared; it was traced with other values." in (
        results[1]["declared"].notes
    )
    assert results[1]["declared"].reproduction.ok
    _, values = starts(results, "cell-constant")
    assert all(0 < each < 1 for each in values["cell/hidden"])


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("misspelt", errors.StartNameError,
         "misspelt.toml:9, nodes.filter.state.levle: node 'filter' has no state or feedback input 'levle'.\nDid you mean 'level'?"),
        ("never-updated", errors.StartNameError,
         "never-updated.toml:9, nodes.plain.state.h: node 'plain' has no state or feedback input 'h'; it was declared with annotate.state_tensors() and never updated."),
        ("other-form", errors.StartPortError,
         "other-form.toml:9, nodes.filter.state.count: 'count' of node 'filter' cannot start as a copy of 'x': it is float32[3], and the state is int64[]."),
        ("nothing-to-reset", errors.ResetPortError,
         "Node 'plain' cannot have the reset input 'fresh' ("),
    ],
)  # fmt: skip
def test_bad_declarations_name_file_and_key(results, name, error, text):
    result = results[1][name]
    assert isinstance(result.error, error)
    assert text in str(result.error)
    assert result.exit_code == 2


def test_the_reset_input_is_in_every_file(results):
    opened = bundle(results, "declared")
    assert opened.contract["pipeline"]["inputs"] == {"filter": ["x", "fresh"]}
    assert opened.contract["models"]["filter"]["inputs"][-1] == {
        "name": "fresh", "dtype": "bool", "shape": [], "type": "tensor",
    }  # fmt: skip
    graph = json.loads(opened.read_bytes("nodes/filter/graph.json"))
    assert [port["name"] for port in graph["inputs"]] == ["x", "count_in", "level_in", "last_in", "fresh"]
    assert sum(op["target"] == "torch.where" for op in graph["ops"]) == 3
    import onnx

    model = onnx.load(opened.artifact("filter", "onnx"))
    metadata = {each.key: each.value for each in model.metadata_props}
    assert json.loads(metadata["leapp.inputs"]) == opened.contract["models"]["filter"]["inputs"]


@pytest.mark.parametrize("format", ["torchscript", "pt2", "onnx"])
def test_a_reset_at_any_tick_is_a_fresh_start(results, format):
    """Closed loop, with state of its own making: as the untraced code does when it is started anew."""
    opened = bundle(results, "declared")
    manifest = opened.node("filter")
    spec = NodeSpec("filter", *(tuple(port.port() for port in each) for each in (manifest.inputs, manifest.outputs)))
    run = backend_for(ExportFormat(format)).open(opened.artifact("filter", format), spec)
    scope: dict = {}
    exec(ENTRIES.replace("from leapp import annotate", ""), scope)
    generator = torch.Generator().manual_seed(5)
    nan = torch.full((3,), torch.nan)
    given = {"count_in": torch.tensor(77), "level_in": nan, "last_in": nan}  # nothing of it may count
    wanted: tuple = ()
    for index in range(40):
        x = torch.randn(3, generator=generator)
        fresh = index in (0, 1, 7, 20, 39)
        if fresh:
            wanted = (None, torch.tensor(0), torch.zeros(3), x)
        wanted = scope["tick"](x, *wanted[1:])
        found = run({**given, "x": x, "fresh": torch.tensor(fresh)})
        for port, expected in zip(("y", "count_out", "level_out", "last_out"), wanted, strict=True):
            torch.testing.assert_close(torch.as_tensor(found[port]), expected)
        given = {name: found[name.replace("_in", "_out")] for name in given}
