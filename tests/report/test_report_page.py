"""The report page: escaped, offline, the same bytes from the same metadata, and complete."""

from __future__ import annotations

import html.parser
import re
import sys
from dataclasses import replace

import pytest

from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.bundle.schema import Artifact
from leapp.report._html import Html, element, join
from leapp.report.checks import CheckRow
from leapp.report.facts import ConstantFacts, Facts, NodeFacts, Noted, Step, argument_text, value_text
from leapp.report.page import MAX_OPS, draw

EVIL = "<script>alert('x')</script>&\"\x1b"
DIGEST = "ab" * 32


def port(name, *shape, **semantics):
    return Port(name, TensorSpec("float32", shape), semantics)


ESTIMATOR = NodeSpec(
    "estimator", (port("joint_pos", 12, kind="state/joint/position"), port("memory", 3)), (port("f", 3),)
)
POLICY = NodeSpec(EVIL, (port("f", 3), port(EVIL, 2)), (port("actions", 4, 3), port("memory_out", 3)))
PAGE = Facts(
    name="two",
    version="1.0.0",
    status="ok",
    digest=DIGEST,
    nodes=(
        NodeFacts(
            ESTIMATOR,
            artifacts=(Artifact("onnx", "onnx", "nodes/estimator/estimator.onnx", "cd" * 32, "0" * 32, 12345, 20, 10),),
            constants=(ConstantFacts("_tensor_constant0", "float32", (12,), "ef" * 32),),
            op_counts={"torch.sub": 2, "torch.clamp": 1},
            steps=(Step("sub", "torch.sub", "%joint_pos, %_tensor_constant0", "float32 [12]", "examples/two.py:31"),),
            digests={"Graph": "12" * 32},
        ),
        NodeFacts(POLICY),
    ),
    data_flow={"estimator/f": (f"{EVIL.replace('/', '')}/f",)},
    feedback_flow={f"{EVIL}/memory_out": ("estimator/memory",)},
    inputs={"estimator": ("joint_pos",)},
    outputs={EVIL: ("actions",)},
    configs={"frequency": 50},
    toolchain={"torch version": "2.13.0", "warp version": None},
    checks=(CheckRow("estimator", "onnx", "f", 5, 1.25e-7, "sample 3, [2]", ok=True),),
    warnings=(f"unused: {EVIL}",),
)


class Reader(html.parser.HTMLParser):
    """Tags in order, checked for balance, and the text between them."""

    VOID = frozenset({"meta", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links, self.words = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in {"href", "src", "action", "data"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


def read(page: bytes) -> Reader:
    reader = Reader()
    reader.feed(page.decode())
    reader.close()
    assert reader.open == []
    return reader


def test_page_is_whole_and_says_everything():
    reader = read(draw(PAGE))
    text = " ".join(reader.words)
    for word in (
        "two", "1.0.0", DIGEST, "estimator", "joint_pos", "state/joint/position", "[4, 3]", "12.3 kB", "torch.sub",
        "examples/two.py:31", "_tensor_constant0", "1.2e-07", "sample 3, [2]", "2.13.0", "next tick", "outer input",
    ):  # fmt: skip
        assert word in text, word
    assert "warp" not in text


def test_hostile_names_are_text_everywhere():
    page = draw(PAGE)
    reader = read(page)
    assert "script" not in reader.tags
    assert b"<script" not in page.lower()
    assert b"\x1b" not in page
    assert any(word.startswith("<script>") for word in reader.words)


def test_page_loads_nothing():
    page = draw(PAGE).decode()
    assert all(link.startswith("#") for link in read(page.encode()).links)
    assert not re.search(r"@import|url\(|https?:", page)


def test_equal_metadata_equal_bytes():
    again = replace(PAGE, configs=dict(PAGE.configs), nodes=tuple(PAGE.nodes))
    assert draw(again) == draw(PAGE)


def test_failures_stand_out():
    row = CheckRow("estimator", "onnx", "f", 5, float("inf"), "", ok=False, note="dtype differs: expected float32")
    text = " ".join(read(draw(replace(PAGE, status="failed", checks=(row,)))).words)
    assert "0 of 1 outputs agree" in text
    assert "Whole pipeline" not in text
    assert "dtype differs: expected float32" in text


def test_the_ticks_of_the_whole_pipeline_are_shown_apart_from_the_samples():
    again = replace(PAGE.checks[0], format="onnx, pipeline", in_pipeline=True)
    page = replace(PAGE, checks=(*PAGE.checks, again), played="ok, 4 ticks in onnx", played_notes=("tick 2: skipped",))
    text = " ".join(read(draw(page)).words)
    assert "1 of 1 outputs agree" in text
    assert "Whole pipeline ok, 4 ticks in onnx tick 2: skipped" in text


def test_long_graphs_are_cut_and_say_so():
    ops = tuple(Step(f"op_{i}", "torch.add", "", "", "") for i in range(MAX_OPS + 7))
    page = replace(PAGE, nodes=(replace(PAGE.nodes[0], steps=ops),), data_flow={}, feedback_flow={})
    text = " ".join(read(draw(page)).words)
    assert f"op_{MAX_OPS - 1}" in text
    assert f"op_{MAX_OPS} " not in text
    assert "7 more in graph.txt" in text


def test_pipeline_without_wires_or_nodes():
    read(draw(Facts("empty", "", "ok", "", ())))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"ref": "x"}, "%x"),
        ([{"ref": "x"}, 1, None], "[%x, 1, None]"),
        ({"slice": [None, 3, None]}, "slice(None, 3, None)"),
        ({"float": "inf"}, "inf"),
        ({"ellipsis": True}, "..."),
        ({"dict": {"a": {"ref": "b"}}}, "{a: %b}"),
        ({"dtype": "torch.float32"}, "torch.float32"),
        ("mean", "'mean'"),
        (True, "True"),
    ],
)
def test_arguments_of_the_graph_read_like_python(value, text):
    assert argument_text(value) == text


def test_values_read_like_words():
    assert value_text({"a": [1, "b", None, True]}) == "{a: [1, b, -, yes]}"


def test_elements_escape_by_type():
    assert element("p", "<", Html("<b>"), class_='a"b') == '<p class="a&quot;b">&lt;<b></p>'
    assert join("a", None, 1) == "a1"


BUILT = replace(
    PAGE,
    starts={"estimator/memory": "zeros"},
    start_notes={"estimator/memory": f"note {EVIL}"},
    noted=(
        Noted("estimator", "escape-allowed", ".item()", "examples/two.py:12", "two:gains"),
        Noted("estimator", "guard", "__bool__", "examples/two.py:13", "two:check"),
        Noted("estimator", "constant", "annotate.constant", "examples/two.py:14", "two:table"),
    ),
    session={
        "manifest": "manifests/two.toml", "entry": "examples/two.py:main", "seed": 0, "threads": 1, "network": False,
        "variables": {}, "peak_memory_bytes": 454_189_056, "metadata": {"licence": "Apache-2.0"}, "notes": [EVIL],
    },
    probe=(
        {
            "ok": False, "perturbed": ["estimator/joint_pos"], "not_varied": ["estimator/memory"],
            "unseeded_weights": ["parameter net.0.weight"],
            "moved": [
                {"node": "estimator", "op": "torch.mul (mul)", "what": "constant _tensor_constant0", "largest": 0.125,
                 "file": "examples/two.py", "line": 31, "escape": ".item() at examples/two.py:12", "allowed": False},
            ],
        },
    ),
    reproduction={
        "reproduced": True, "content_files": 13, "inputs": {"kind": "recorded", "files": 3, "complete": True},
        "varied": {"umask": "another umask"}, "runs": [{"differing": []}], "notes": ["clocks are not pinned"],
    },
)  # fmt: skip


def test_what_a_build_found_is_on_the_page():
    reader = read(draw(BUILT))
    text = " ".join(reader.words)
    for word in (
        "State and feedback", "zeros (note", "a value was read as a Python value", "two:gains",
        "a check that only raises",
        "meant to be fixed", "examples/two.py:14", "manifests/two.toml", "Seed 0", "454.2 MB", "Licence Apache-2.0",
        "estimator/joint_pos", "parameter net.0.weight", "constant _tensor_constant0 of torch.mul (mul)", "0.125",
        ".item() at examples/two.py:12", "frozen", "byte-identical 13 content files", "3 files, recorded, complete",
        "Varied: umask", "clocks are not pinned",
    ):  # fmt: skip
        assert word in re.sub(r"\s+", " ", text), word
    assert text.count("allowed") == 1
    assert "script" not in reader.tags


def test_inputs_that_other_arguments_varied_are_told_from_those_that_the_probe_did():
    run = {"ok": True, "perturbed": ["b/y"], "not_varied": ["a/z"]}
    page = replace(PAGE, inputs={"b": ("y",), "a": ("x", "z")}, probe=(run,))
    text = re.sub(r"\s+", " ", " ".join(read(draw(page)).words))
    assert (
        "Inputs that varied Inputs that did not vary Unseeded weights 1 nothing was frozen a/x b/y by the probe a/z"
        in text
    )


def test_names_of_elements_may_wrap():
    assert "td .wrap .m{white-space:normal" in draw(PAGE).decode()


def test_a_plain_script_has_no_section_about_a_build():
    text = " ".join(read(draw(PAGE)).words)
    for word in ("Build", "Probe", "Reproduction", "left the trace"):
        assert word not in text


def test_constants_have_their_role_size_and_line():
    constants = (
        ConstantFacts("net.mean", "float64", (4,), "ef" * 32, "buffer", "examples/two.py:8"),
        ConstantFacts("net.weight", "float32", (250, 4), "ef" * 32, "parameter", "examples/two.py:9"),
    )
    page = replace(PAGE, nodes=(replace(PAGE.nodes[0], constants=constants),), data_flow={}, feedback_flow={})
    text = " ".join(read(draw(page)).words)
    assert "1 parameter (4.0 kB), 1 buffer (32 B)" in text
    assert text.index("net.weight") < text.index("net.mean")
    assert "examples/two.py:9" in text


def test_the_picture_is_part_of_the_page():
    pytest.importorskip("pygraphviz")
    page = draw(PAGE)
    reader = read(page)
    assert reader.tags.count("svg") == 1
    assert any("/memory_out → estimator/memory, next tick" in word for word in reader.words)
    assert draw(replace(PAGE, feedback_flow={})).count(b"back full") == 0


def test_without_the_library_the_page_says_so_and_is_complete(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    text = " ".join(read(draw(PAGE)).words)
    assert "Not drawn. Drawing a pipeline needs pygraphviz, which is not installed." in text
    assert "outer input" in text
