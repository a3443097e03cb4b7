"""Plain text where nobody watches, colour where somebody does, and no name that can play tricks."""

from __future__ import annotations

import io

import pytest

from leapp.report.text import Cell, Printer, plain_table, size_text, visible, wants_style


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "styled"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"CI": "true"}, False),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": ""}, True),
    ],
)
def test_style_is_for_terminals_that_people_watch(environment, styled):
    assert wants_style(Terminal(), environment) is styled
    assert wants_style(io.StringIO(), environment) is False


def test_plain_table_is_aligned():
    assert plain_table(("Name", "N"), [("a", "1"), ("longer", "100")], numbers=(1,)) == (
        "Name      N\na         1\nlonger  100\n"
    )


def test_no_rows_no_table():
    stream = io.StringIO()
    Printer(stream, {}).table(("A",), [])
    assert stream.getvalue() == ""


@pytest.mark.parametrize("stream_class", [io.StringIO, Terminal])
def test_hostile_names_stay_text(stream_class):
    stream = stream_class()
    printer = Printer(stream, {})
    name = "[red]x[/red] \x1b[2J \u202e :smile:"
    printer.line(Cell(name, "bad"))
    printer.table(("A",), [(name,)])
    text = stream.getvalue()
    assert text.count("[red]x[/red] \\x1b[2J \\u202e :smile:") == 2
    assert "\x1b[2J" not in text
    assert "\u202e" not in text


def test_a_terminal_gets_colour():
    stream = Terminal()
    Printer(stream, {"TERM": "xterm"}).line(Cell("fine", "good"))
    assert "\x1b[32mfine" in stream.getvalue()


def test_long_lines_are_not_broken():
    stream = Terminal()
    Printer(stream, {"TERM": "xterm"}).line("/long/path" * 40)
    assert "/long/path" * 40 in stream.getvalue()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_123_456, "2.1 MB"), (5 * 10**12, "5000.0 GB")]
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_visible_keeps_line_breaks():
    assert visible("a\nb\tc\0") == "a\nb\tc\\x00"
