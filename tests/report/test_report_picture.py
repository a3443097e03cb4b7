"""Pictures: nothing overlaps or is cut off, wires end at their ports, and equal facts are equal bytes everywhere."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import drawn_pipelines as pipelines
import pytest
from drawn_pipelines import PIPELINES

pytest.importorskip("pygraphviz")
Image = pytest.importorskip("PIL.Image")

from leapp.errors import MissingDependencyError, PictureError  # noqa: E402
from leapp.report.picture import SIZES, picture_png, picture_svg, scene_of  # noqa: E402
from leapp.report.picture_scene import Arrow, Box, Dot, Line, Style, Words, bent, dashes, flattened  # noqa: E402
from leapp.report.picture_text import shortened, width_of, written  # noqa: E402


@pytest.fixture(scope="module", params=PIPELINES)
def facts(request):
    return PIPELINES[request.param]()


@pytest.fixture(scope="module")
def scene(facts):
    return scene_of(facts)


def of(scene, kind, *styles):
    return [shape for shape in scene.shapes if isinstance(shape, kind) and (not styles or shape.style in styles)]


def frame(words):
    left = words.x - words.width if words.flush_right else words.x
    size = SIZES[words.style]
    return left, words.y - 0.75 * size, left + words.width, words.y + 0.25 * size


def overlap(first, second):
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def test_no_text_overlaps(scene):
    frames = [(words.text, frame(words)) for words in of(scene, Words)]
    assert [(a, b) for (a, first), (b, second) in combinations(frames, 2) if overlap(first, second)] == []


def test_nothing_is_cut_off(scene):
    corners = [(x, y) for words in of(scene, Words) for x, y in (frame(words)[:2], frame(words)[2:])]
    corners += [point for line in of(scene, Line) for point in flattened(line.curves, 5)]
    for box in of(scene, Box):
        corners += [(box.x, box.y), (box.x + box.width, box.y + box.height)]
    for x, y in corners:
        assert 4 <= x <= scene.width - 4
        assert 4 <= y <= scene.height - 4


def test_text_stays_in_its_box(facts, scene):
    boxes = of(scene, Box, Style.BOX)
    assert len(boxes) == len(facts.nodes)
    inside = [words for words in of(scene, Words) if words.style in {Style.NAME, Style.FORMAT, Style.PORT, Style.TYPE}]
    for words in inside:
        left, top, right, bottom = frame(words)
        assert any(
            box.x + 8 <= left and right <= box.x + box.width - 8 and box.y <= top and bottom <= box.y + box.height
            for box in boxes
        ), words.text


def test_boxes_keep_apart(scene):
    frames = [(b.x - 8, b.y - 8, b.x + b.width + 8, b.y + b.height + 8) for b in of(scene, Box, Style.BOX)]
    assert [pair for pair in combinations(frames, 2) if overlap(*pair)] == []


def test_no_wire_runs_through_a_box(scene):
    boxes = of(scene, Box, Style.BOX)
    for line in of(scene, Line):
        for x, y in flattened(line.curves, 4):
            through = [b for b in boxes if b.x + 1 < x < b.x + b.width - 1 and b.y + 1 < y < b.y + b.height - 1]
            assert not through, line.title


def test_no_two_wires_lie_upon_one_another(scene):
    """Those of one output may share their way; all others keep apart where they run along an axis."""
    runs = []
    for line in of(scene, Line):
        for (x1, y1), *_, (x2, y2) in line.curves:
            if abs(x1 - x2) < 0.1 and abs(y1 - y2) > 12:
                runs.append((line.title.split(" → ")[0], "x", x1, *sorted((y1, y2))))
            elif abs(y1 - y2) < 0.1 and abs(x1 - x2) > 12:
                runs.append((line.title.split(" → ")[0], "y", y1, *sorted((x1, x2))))
    runs = [run for run in runs if run[0]]
    upon = [
        (a, b)
        for a, b in combinations(runs, 2)
        if a[0] != b[0] and a[1] == b[1] and abs(a[2] - b[2]) < 3 and min(a[4], b[4]) - max(a[3], b[3]) > 8
    ]
    assert upon == []


def test_every_wire_leads_from_its_output_to_its_input(facts, scene):
    wanted = [f"{a} → {b}" for a, targets in facts.data_flow.items() for b in targets]
    wanted += [f"{a} → {b}, next tick" for a, targets in facts.feedback_flow.items() for b in targets]
    lines = [line for line in of(scene, Line) if line.title]
    assert Counter(line.title for line in lines) == Counter(wanted)
    boxes = {node.spec.name: box for node, box in zip(facts.nodes, _in_order(facts, scene), strict=True)}
    for line in lines:
        assert (line.style is Style.BACK) == line.title.endswith(", next tick")
        source, target = line.title.removesuffix(", next tick").split(" → ")
        (x, y), *_ = line.curves[0]
        node, port = source.split("/", 1)
        box = boxes[node]
        assert x == pytest.approx(box.x + box.width, abs=1.1)
        assert y == pytest.approx(_port_y(facts, box, node, port, "outputs"), abs=1.1)
        x, y = line.curves[-1][-1]
        node, port = target.split("/", 1)
        box = boxes[node]
        assert box.x - 6 < x < box.x
        assert y == pytest.approx(_port_y(facts, box, node, port, "inputs"), abs=1.1)
        for before, after in pairwise(line.curves):
            assert before[-1] == pytest.approx(after[0])


def _in_order(facts, scene):
    """The boxes in the order of the nodes: by the title or text that stands in each."""
    names = {(words.x, words.y): words.title or words.text for words in of(scene, Words, Style.NAME)}
    boxes = {names[box.x + 12, box.y + 20]: box for box in of(scene, Box, Style.BOX)}
    return [boxes[node.spec.name] for node in facts.nodes]


def _port_y(facts, box, node, port, way):
    spec = next(each.spec for each in facts.nodes if each.spec.name == node)
    names = [each.name for each in getattr(spec, way)]
    return box.y + 48 + (names.index(port) + 0.5) * 22


def test_what_comes_from_outside_has_an_arrow(facts, scene):
    ports = sum(len(ports) for flow in (facts.inputs, facts.outputs) for ports in flow.values())
    key = 1 if ports else 0
    assert len(of(scene, Arrow, Style.OUTER)) == ports + key


def test_names_types_formats_and_starts_are_written(scene, facts):
    if facts.name.startswith("long"):
        pytest.skip("its names are shortened")
    texts = Counter(words.text for words in of(scene, Words))
    for node in facts.nodes:
        assert texts[node.spec.name]
        assert texts[" · ".join(each.format for each in node.artifacts) or "no model file"]
        for port in (*node.spec.inputs, *node.spec.outputs):
            assert texts[port.name]
            shape = ", ".join(map(str, port.spec.shape))
            fed_back = port in node.spec.inputs and f"{node.spec.name}/{port.name}" in facts.starts
            assert texts[f"{port.spec.dtype}[{shape}]{' from zeros' if fed_back else ''}"]


def test_nodes_stand_right_of_what_feeds_them_in_their_row():
    for facts in (pipelines.three(), pipelines.grid(7, 7), pipelines.fan(50)):
        boxes = {node.spec.name: box for node, box in zip(facts.nodes, _in_order(facts, scene_of(facts)), strict=True)}
        for source, targets in facts.data_flow.items():
            for target in targets:
                first, second = boxes[source.split("/")[0]], boxes[target.split("/")[0]]
                assert first.x + first.width < second.x


def test_a_long_chain_is_broken_like_a_line_of_text():
    scene = scene_of(pipelines.chain(50))
    assert 1 < scene.width / scene.height < 2.5
    narrow = scene_of(pipelines.chain(3))
    assert len({box.y for box in of(narrow, Box, Style.BOX)}) == 1


def test_svg_is_sound_and_says_whole_names(facts):
    text = picture_svg(facts)
    root = ET.fromstring(text)  # noqa: S314  # we wrote it
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    names = "{http://www.w3.org/2000/svg}"
    said = {each.text for each in root.iter(f"{names}title")} | {each.text for each in root.iter(f"{names}text")}
    assert {node.spec.name for node in facts.nodes} <= said
    assert "href" not in text
    assert "url(" not in text
    bare = ET.fromstring(picture_svg(facts, framed=False))  # noqa: S314  # likewise
    assert bare.find("style") is None


def test_svg_has_the_very_signs_of_a_name():
    text = picture_svg(pipelines.long_names())
    assert ">größe\n机器人 &lt;&amp;&gt;</text>" in text
    assert "\\u673a" not in text


@pytest.mark.parametrize("name", ["none", "recurrent", "long names", "many ports", "chain of 50 with feedback"])
def test_png_is_as_large_as_the_scene_and_not_empty(name):
    facts = PIPELINES[name]()
    scene = scene_of(facts)
    image = Image.open(io.BytesIO(picture_png(facts))).convert("RGB")
    scale = image.width / scene.width
    assert min(abs(scale - each) for each in (1, 1.5, 2)) < 0.01
    assert image.height == pytest.approx(scene.height * scale, abs=1)
    assert image.getpixel((0, 0)) == (255, 255, 255)
    for box in of(scene, Box, Style.HEAD):  # the head of every box is tinted
        place = round((box.x + box.width - 12) * scale), round((box.y + 6) * scale)
        assert image.getpixel(place) != (255, 255, 255)


DIGESTS = """
import hashlib
from drawn_pipelines import PIPELINES
from leapp.report.picture import picture_png, picture_svg
for name in ("recurrent", "chain of 50 with feedback", "by chance 10", "many ports"):
    facts = PIPELINES[name]()
    print(hashlib.sha256(picture_png(facts) + picture_svg(facts).encode()).hexdigest())
"""


def test_equal_facts_equal_bytes_in_every_process(tmp_path):
    def digests(seed, **environment):
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": seed, **environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    first = digests("1")
    # Neither fonts nor locale of the machine count.
    assert digests("2", HOME=str(tmp_path), FONTCONFIG_PATH=str(tmp_path), LC_ALL="C") == first
    facts = PIPELINES["recurrent"]()
    assert hashlib.sha256(picture_png(facts) + picture_svg(facts).encode()).hexdigest() == first[0]


def test_what_is_too_large_is_refused_at_once():
    with pytest.raises(
        PictureError, match="'grid of 70 x 70' could not be drawn: 4900 nodes with 9660 wires are too many"
    ):
        scene_of(pipelines.grid(70, 70))
    tall = pipelines.fan(400)
    with pytest.raises(PictureError, match="are too many for a PNG; as SVG it can be drawn"):
        picture_png(tall)
    assert picture_svg(tall)


def test_a_library_that_does_not_load_costs_the_picture_alone(monkeypatch, tmp_path):
    (tmp_path / "pygraphviz.py").write_text("raise ImportError('libxdot.so.4: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pygraphviz")
    with pytest.raises(PictureError, match=r"pygraphviz is installed and does not load \(libxdot"):
        scene_of(pipelines.fan(3))


@pytest.mark.parametrize("module", ["pygraphviz", "PIL"])
def test_what_is_missing_is_named(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=r"\[picture\]"):
        scene_of(pipelines.one())


def test_wires_to_ports_that_do_not_exist_are_left_out():
    nodes = [pipelines.node("a", [pipelines.port("x", 1)], [pipelines.port("y", 1)])]
    facts = pipelines.facts("odd", nodes, {"a/gone": ("a/x",), "gone/y": ("a/x",)}, {"a/y": ("a/x", "b/x")})
    assert [line.title for line in of(scene_of(facts), Line) if line.title] == ["a/y → a/x, next tick"]


def test_a_cycle_that_is_no_feedback_is_drawn_all_the_same():
    nodes = [pipelines.node(name, [pipelines.port("x", 1)], [pipelines.port("y", 1)]) for name in "ab"]
    scene = scene_of(pipelines.facts("cycle", nodes, {"a/y": ("b/x",), "b/y": ("a/x",)}))
    assert len([line for line in of(scene, Line) if line.title]) == 2


def test_dots_tell_what_leaves_an_output():
    scene = scene_of(pipelines.recurrent())
    assert Counter(dot.style for dot in of(scene, Dot)) == {Style.OUTER: 1, Style.BACK: 2}


def test_long_text_loses_its_middle():
    text = "abcdefghij" * 20
    shown = shortened(text, 13, 150)
    assert 130 < width_of(shown, 13) <= 150
    first, last = shown.split("…")
    assert text.startswith(first)
    assert text.endswith(last)
    assert shortened("short", 13, 150) == "short"


def test_signs_that_the_font_lacks_are_written_as_codes():
    assert written("größe\n机 \x1b…") == "gr\\xf6\\xdfe\\n\\u673a \\x1b…"


def test_lines_along_the_axes_have_round_corners():
    curves = bent([(0, 0), (50, 0), (50, 0), (50, 40), (50, 80), (3, 80)])
    assert curves[0][0] == (0, 0)
    assert curves[-1][-1] == (3, 80)
    points = flattened(curves, 1)
    assert (50, 0) not in points
    assert any(44 < x < 50 and 0 < y < 6 for x, y in points)


def test_dashes_cover_their_share_of_a_line():
    pieces = dashes([(0, 0), (3, 0), (100, 0)], 6, 4)
    assert [(piece[0], piece[-1]) for piece in pieces[:2]] == [((0, 0), (6, 0)), ((10, 0), (16, 0))]
    assert sum(piece[-1][0] - piece[0][0] for piece in pieces) == pytest.approx(60)
