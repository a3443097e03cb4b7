"""The printed JSON Schema, read by an independent library, against the loader."""

import copy
import dataclasses
import json
import tomllib

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_cases import BAD, FULL, MINIMAL

from leapp._canonical import canonical_json
from leapp.errors import ManifestError
from leapp.manifest import model, schema
from leapp.manifest.load import load_one
from leapp.manifest.schema import json_schema
from leapp.semantics import PortFacts


@pytest.fixture(scope="module")
def validator():
    # As printed: through its text.
    return jsonschema.Draft202012Validator(json.loads(canonical_json(json_schema())))


def test_it_is_a_schema_of_the_draft_it_names(validator):
    jsonschema.Draft202012Validator.check_schema(validator.schema)
    assert validator.schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def tables(schema):
    yield schema
    yield from schema["$defs"].values()


def test_every_key_has_a_description_for_editors():
    schema = json_schema()
    for table in tables(schema):
        for key, value in table["properties"].items():
            described = value.get("description") or schema["$defs"][value["$ref"].rpartition("/")[2]]["description"]
            assert described.endswith((".", "...")), f"{table['title']}: {key}"


def test_every_table_is_closed():
    for table in tables(json_schema()):
        assert table["additionalProperties"] is False, table["title"]


def test_no_null_is_offered():
    assert "null" not in json.dumps(json_schema())


def test_every_key_of_the_schema_is_in_the_full_example():
    """So that "every key arrives" in the loader's tests means every key."""

    def missing(schema, value, path):
        if "$ref" in schema:
            schema = json_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        for key, inner in schema.get("properties", {}).items():
            if key not in value:
                yield (*path, key)
            elif isinstance(value[key], dict):
                yield from missing(inner, value[key], (*path, key))

    # A callable has no argv.
    assert set(missing(json_schema(), tomllib.loads(FULL), ())) == {("pipeline", "argv"), ("probe", "argv")}


@pytest.mark.parametrize("text", [MINIMAL, FULL], ids=["minimal", "full"])
def test_good_manifests_are_good_to_both(validator, project, text):
    path = project / "manifests/good.toml"
    path.write_text(text)
    load_one(path)
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_bad_manifests_are_bad_to_both(validator, case):
    assert validator.is_valid(tomllib.loads(case.text)) is not case.in_schema


# --- what the schema cannot say is listed, and short ---------------------------------------------------------------

BEYOND = (
    "[metadata] has no key",
    " is above ",
    "its lists are ",
    "no file ",
    "matches no file",
    "no program ",
    "no interpreter ",
    "is a folder",
    "must be below the second",
)
"""Problems that JSON Schema has no words for: what is on the disk, and how two numbers compare."""

NUMBERS = [0, 1, -1, 6, 20, 2**32, 0.5, -0.5]
TEXTS = ["", "main.py", "main.py:main", "-m x", "a/b", "m:f", "1.0.0", "onnx"]
LISTS = [[], [1], ["onnx"], ["onnx", "jit"], ["pt2", "pt2"], [0, 1], [True]]
PORTS = [{"a/b": {"permute": True}}, {"a/b": {"range": [0, 1], "permute": True}}, {"a/b": {}}, {"a": {"permute": True}}]
NAMES = [["a", "b"], ["a", "a"], [["a"], []], [[""]], [["a"], "b"], [{"temporal_period_ms": 2}] * 2, [{"temporal": 2}]]
VALUES = st.sampled_from(
    [*NUMBERS, *TEXTS, *LISTS, *PORTS, True, False, {}, {"x": 1}, {"node": {"formats": []}}, *NAMES]
)
KEYS = ("formats", "seed", "x", "a/b", "permute", "argv", "args", "schema", "node")


def places(value, path=()):
    """Every place in a document at which something can be put."""
    if isinstance(value, dict):
        yield from ((*path, key) for key in {*value, *KEYS})
    elif isinstance(value, list):
        yield from ((*path, index) for index in range(len(value)))
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def inline(value):
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(inner) for inner in value) + "]"
    return json.dumps(value) if isinstance(value, (str, bool, int, float)) else value.isoformat()


@given(data=st.data())
def test_both_agree_on_any_change_of_a_good_manifest(validator, project, data):
    document = tomllib.loads(data.draw(st.sampled_from([MINIMAL, FULL])))
    for _ in range(data.draw(st.integers(1, 2))):
        *outer, last = data.draw(st.sampled_from(sorted(places(document), key=repr)))
        holder = document
        for key in outer:
            holder = holder[key]
        if isinstance(holder, dict) and last in holder and data.draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = copy.deepcopy(data.draw(VALUES))
    path = project / "manifests/changed.toml"
    path.write_text("".join(f"{json.dumps(key)} = {inline(value)}\n" for key, value in document.items()))
    assert tomllib.loads(path.read_text()) == document
    try:
        load_one(path)
        problems = []
    except ManifestError as error:
        problems = [each for each in error.facts["problems"] if not any(text in each.message for text in BEYOND)]
    seen = list(validator.iter_errors(document))
    assert bool(problems) == bool(seen), (problems, [(error.json_path, error.message) for error in seen])


# --- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "part"),
    [
        (schema.PipelineTable, model.Pipeline),
        (schema.SessionTable, model.Session),
        (schema.ProbeTable, model.Probe),
        (schema.FactsTable, PortFacts),
        (schema.ExportTable, model.ExportSettings),
        (schema.NodeTable, model.NodeSettings),
        (schema.ManifestTable, model.Manifest),
    ],
)
def test_what_is_not_written_down_is_to_the_model_what_the_schema_shows(table, part):
    """The loader fills nothing in: the model's own defaults stand for what a document leaves out."""

    def plain(value):
        return [*value] if isinstance(value, tuple) else value

    defaults = {each.name: each.default for each in dataclasses.fields(part)}
    defaults |= {
        each.name: each.default_factory()
        for each in dataclasses.fields(part)
        if each.default_factory is not dataclasses.MISSING
    }
    shown = {name: each.default for name, each in table.model_fields.items() if not each.is_required()}
    tables = {name for name, each in table.model_fields.items() if each.default_factory is not None}
    assert {name: plain(defaults[name]) for name in shown if name not in tables} == {
        name: value for name, value in shown.items() if name not in tables
    }


def test_hints_at_ports_are_those_of_the_schema():
    assert tuple(each.alias or name for name, each in schema.PortTable.model_fields.items()) == model.PORT_HINTS
