"""The scanner against tomllib, and against documents whose lines are known because they were counted when written."""

import json
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leapp.manifest.positions import key_lines, line_of

EXAMPLE = '''\
schema = 1                     # [not.a.header] = "
[ pipeline ]
entry = "a.py:main"
a . "b.c" . 'd]' = { x = 1, "y" = [ { z = 2 }, {} ] }

[nodes."observation.state"]
formats = [
    "onnx",   # a "comment" ]
    """
[decoy]
k = 1 \\""" ]""",
    'pt2',
]
[[runs]]
seed = 1
[[runs.inner]]
[[runs.inner]]
v = """""quoted"""""
[runs.table]
when = 1979-05-27 07:32:00
[[runs]]
[runs.table]
x = \'\'\'
]'\'\'\' # end
y = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("schema",), 1),
        (("pipeline",), 2),
        (("pipeline", "entry"), 3),
        (("pipeline", "a"), 4),
        (("pipeline", "a", "b.c", "d]"), 4),
        (("pipeline", "a", "b.c", "d]", "y", 0, "z"), 4),
        (("nodes",), 6),
        (("nodes", "observation.state"), 6),
        (("nodes", "observation.state", "formats"), 7),
        (("nodes", "observation.state", "formats", 0), 8),
        (("nodes", "observation.state", "formats", 1), 9),
        (("nodes", "observation.state", "formats", 2), 12),
        (("runs",), 14),
        (("runs", 0, "seed"), 15),
        (("runs", 0, "inner"), 16),
        (("runs", 0, "inner", 1), 17),
        (("runs", 0, "inner", 1, "v"), 18),
        (("runs", 0, "table", "when"), 20),
        (("runs", 1), 21),
        (("runs", 1, "table"), 22),
        (("runs", 1, "table", "x"), 23),
        (("runs", 1, "table", "y"), 25),
    ],
)
def test_every_form_has_its_line(path, line):
    assert key_lines(EXAMPLE)[path] == line


def test_the_example_is_complete():
    assert set(key_lines(EXAMPLE)) == set(paths(tomllib.loads(EXAMPLE)))


def test_windows_line_ends_change_nothing():
    assert key_lines(EXAMPLE.replace("\n", "\r\n")) == key_lines(EXAMPLE)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "\n\n  # c\n\t\n"])
def test_nothing_gives_nothing(text):
    assert key_lines(text) == {}


def test_the_last_line_needs_no_end():
    assert key_lines("a = 1\nb = 'x'") == {("a",): 1, ("b",): 2}


def test_escaped_keys_are_the_keys_tomllib_sees():
    text = '"a\\u00e9\\"." = 1\n[t."\\t"]\n'
    assert set(key_lines(text)) == set(paths(tomllib.loads(text))) == {('aé".',), ("t",), ("t", "\t")}


def test_line_of_falls_back_to_what_is_around():
    lines = {("a",): 3, ("a", "b"): 5}
    assert line_of(lines, ("a", "b", "c", 0)) == 5
    assert line_of(lines, ("a", "x")) == 3
    assert line_of(lines, ("x",)) is None


def test_a_long_document_takes_linear_time():
    # 20,000 keys; a scanner that counts lines anew for each key would need minutes.
    text = "".join(f"k{number} = [{number},\n'x']\n" for number in range(20_000))
    assert key_lines(text)[("k19999", 1)] == 40_000


def paths(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


# --- documents that are written with their lines counted -----------------------------------------------------------

KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from(["a.b", "[x]", "#", '"', "'", "]", "=", "\\", "\n", " "]),
)
STRINGS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    st.sampled_from(["]", "[a]\nb = 1\n", '"', '""', "'''", "# x", "\\", "a\n]\n}", "}", ",", "="]),
)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.just(1.5), STRINGS)
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=12,
    ),
    max_size=4,
)


class Writer:
    """Writes a tree as TOML in forms that hypothesis picks, and notes the line of each key as it goes."""

    def __init__(self, draw):
        self.draw = draw
        self.text = ""
        self.lines = {}

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def mark(self, path):
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def put(self, text):
        self.text += text

    def filler(self):
        self.put(self.pick("", "", "\n", "  ", "# [c] = '\n", '\n# """ \n\t'))

    def key(self, key):
        forms = [json.dumps(key, ensure_ascii=False).replace("\x7f", "\\u007f")]
        if re.fullmatch(r"[A-Za-z0-9_-]+", key):
            forms.append(key)
        if not re.search(r"['\x00-\x08\x0a-\x1f\x7f]", key):
            forms.append(f"'{key}'")
        return self.pick(*forms)

    def keys(self, keys):
        return self.pick(".", " . ", "\t.").join(self.key(key) for key in keys)

    def string(self, value):
        forms = [json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")]
        if "\\" not in value and '"""' not in value and not value.endswith('"'):
            forms += [f'"""\n{value}"""', f'"""\\\n   {value}"""' if value[:1].strip() else f'"""\n{value}"""']
        if "'''" not in value and not value.endswith("'"):
            forms.append(f"'''\n{value}'''")
        if "\\" not in value and value.endswith('"') and '""' not in value:
            forms.append(f'"""{value}"""' if not value.startswith("\n") else forms[0])
        return self.pick(*forms)

    def value(self, path, value):
        if isinstance(value, dict):
            self.put("{ ")
            for number, (key, inner) in enumerate(value.items()):
                self.put(", " if number else "")
                self.mark((*path, key))
                self.put(f"{self.key(key)} = ")
                self.value((*path, key), inner)
            self.put(" }")
        elif isinstance(value, list):
            self.put("[")
            for number, inner in enumerate(value):
                self.filler()
                self.mark((*path, number))
                self.value((*path, number), inner)
                self.filler()
                self.put("," if number < len(value) - 1 else self.pick("", ",", ",\n"))
            self.filler()
            self.put("]")
        elif isinstance(value, str):
            self.put(self.string(value))
        else:
            self.put(json.dumps(value))

    def pair(self, path, keys, value):
        """``keys = value``, or one pair per inner key with dots."""
        for length in range(1, len(keys) + 1):
            self.mark((*path, *keys[:length]))
        if isinstance(value, dict) and value and self.pick(True, False):
            for key, inner in value.items():
                self.pair(path, (*keys, key), inner)
            return
        self.put(f"{self.pick('', ' ')}{self.keys(keys)}{self.pick(' = ', '=')}")
        self.value((*path, *keys), value)
        self.put(self.pick("\n", " # ]\n", "\n\n"))

    def table(self, path, header, table):
        """``path`` has the numbers of arrays of tables in it, ``header`` only keys, as headers do."""
        behind = []
        for key, value in table.items():
            of_tables = isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
            if (isinstance(value, dict) or of_tables) and self.pick(True, False):
                behind.append((key, value))
            else:
                self.pair(path, (key,), value)
        for key, value in behind:
            self.mark((*path, key))
            if isinstance(value, dict):
                self.put(f"[{self.keys((*header, key))}]{self.pick('', ' # [x]')}\n")
                self.table((*path, key), (*header, key), value)
                continue
            for number, each in enumerate(value):
                self.mark((*path, key, number))
                self.put(f"[[ {self.keys((*header, key))} ]]\n")
                self.table((*path, key, number), (*header, key), each)


@given(data=st.data(), tree=TREES)
def test_written_lines_are_found(data, tree):
    writer = Writer(data.draw)
    writer.table((), (), tree)
    # The document says what was meant; else the oracle would be worth nothing.
    assert tomllib.loads(writer.text) == tree
    assert key_lines(writer.text) == writer.lines


# --- whatever tomllib accepts --------------------------------------------------------------------------------------

VALUES = ["1", '"s"', "'l'", "[1,\n2]", "{x = [1]}", "1979-05-27 07:32:00", "true", '"""\n]"""', "'''a\n#'''"]
SIGNS = ["[", "]", "{", "}", ",", "=", " ", "\n", "#c", "\\", '"', '"""', "'''"]
PIECES = st.sampled_from([*VALUES, *SIGNS, "[a]", "[[a]]", "[[a.b]]", "[a.'b.c']", "a = ", "b.c = ", "k.'z' = 2"])
STATEMENTS = st.one_of(
    st.tuples(st.sampled_from(["a", "b.c", "'b.c'", ' "q" . a ', "d"]), st.just(" = "), st.sampled_from(VALUES)),
    st.tuples(st.sampled_from(["[a]", "[[a]]", "[[a.b]]", "[ a . 'b.c' ]", "[d.e.f]", "[[d.e]]", "[b]", "#x"])),
    st.lists(PIECES, max_size=6),
).map("".join)


def valid(statements):
    """The statements that make a valid document together, with what they made."""
    text, tree = "", {}
    for each in statements:
        try:
            tree = tomllib.loads(f"{text}{each}\n")
        except tomllib.TOMLDecodeError:
            continue
        text = f"{text}{each}\n"
    return text, tree


@given(st.lists(STATEMENTS, max_size=12).map(valid))
def test_any_valid_text_is_walked_to_its_end(document):
    text, tree = document
    lines = key_lines(text)
    assert set(lines) == set(paths(tree))
    # Nothing is named before the text that names it: cut off above its line, the document does not hold it.
    for path, line in lines.items():
        above = "\n".join(text.split("\n")[: line - 1])
        try:
            earlier = set(paths(tomllib.loads(above)))
        except tomllib.TOMLDecodeError:
            continue
        assert path not in earlier
