"""Records to JSON and back; malformed JSON by what is wrong with it; the lock."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bundle_cases import artifact, manifest_of, two_nodes
from hypothesis import given
from hypothesis import strategies as st

from leapp._canonical import readable_json
from leapp.bundle import schema
from leapp.bundle.read import parse_evidence_index, parse_node_manifest
from leapp.errors import BundleFormatError, BundleTooNewError, BundleValueError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD_ENTRY = {"path": "a/b.onnx", "media_type": "application/x-onnx", "size": 3, "sha256": "a" * 64}
GOOD_BUNDLE = {
    "schema": 1,
    "requires": 1,
    "status": "ok",
    "name": "p",
    "version": "1.0.0",
    "files": [GOOD_ENTRY],
    "digest": "b" * 64,
}


def read_bundle(value: Any) -> schema.BundleManifest:
    return schema.BundleManifest.read(schema.Fields(value, "x/bundle.json"))


def entries(*paths: str) -> list[dict[str, Any]]:
    return [GOOD_ENTRY | {"path": path} for path in paths]


def test_bundle_manifest_goes_through_json() -> None:
    manifest = read_bundle(GOOD_BUNDLE)
    assert schema.to_json(manifest) == GOOD_BUNDLE
    assert manifest.files[0].size == 3


def test_node_manifest_goes_through_json(tmp_path: Path) -> None:
    node = two_nodes().nodes[0]
    model = replace(
        artifact(tmp_path, "estimator", "onnx", b"x"), data_paths=("nodes/estimator/w.data",), method="script"
    )
    manifest = manifest_of(node, model, warp_segments=2, weights_sha256="2" * 64)
    assert parse_node_manifest(readable_json(schema.to_json(manifest)), "m.json") == manifest
    assert tuple(entry.port() for entry in manifest.inputs) == node.inputs


def test_unknown_keys_of_a_later_schema_are_ignored() -> None:
    assert read_bundle(GOOD_BUNDLE | {"schema": 7, "colour": "blue"}) == replace(read_bundle(GOOD_BUNDLE), schema=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "fine"}, "status: expected one of ok, failed, partial, got 'fine'"),
        ({"status": 3}, "status: expected a string, got an integer"),
        ({"schema": True}, "schema: expected an integer, got a boolean"),
        ({"schema": -1}, "schema: expected zero or more"),
        ({"name": "a/b"}, "name: 'a/b' cannot be used as a name: it holds '/'"),
        ({"name": ".."}, "name: '..' cannot be used"),
        ({"name": ""}, "name: '' cannot be used"),
        ({"digest": "B" * 64}, "digest: expected [0-9a-f]{64}"),
        ({"files": {}}, "files: expected a list, got an object"),
        ({"files": ["x"]}, "files[0]: expected an object, got a string"),
        ({"files": [GOOD_ENTRY | {"size": 1.5}]}, "files[0].size: expected an integer, got a number"),
        ({"files": [{"path": "a"}]}, "files[0].media_type: it is missing"),
        ({"files": entries("a", "a")}, "files: 'a' is listed twice"),
        ({"files": entries("b", "a")}, "files: 'a' is out of order"),
        ({"files": entries("../a")}, "files[0].path: the path '../a' cannot be used"),
        ({"files": entries("a", "a/../../b")}, "files[1].path: the path 'a/../../b' cannot be used"),
        ({"files": entries("/etc/passwd")}, "it is absolute"),
        ({"files": entries("a//b")}, "it holds an empty part"),
        ({"files": entries("./a")}, "it holds an empty part, '.' or '..'"),
        ({"files": entries("a\\b")}, "it holds a backslash or NUL"),
        ({"files": entries("a\0b")}, "it holds a backslash or NUL"),
        ({"files": entries("\ud800")}, "it is not valid Unicode text"),
        ({"files": entries("bundle.json")}, "'bundle.json' cannot be content"),
        ({"files": entries("evidence/x")}, "'evidence/x' cannot be content"),
        ({"files": entries("p.png")}, "'p.png' cannot be content"),
        ({"files": entries("log.txt")}, "'log.txt' cannot be content"),
    ],
)
def test_a_malformed_bundle_manifest_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BundleFormatError) as caught:
        read_bundle(GOOD_BUNDLE | change)
    assert message in str(caught.value)
    assert "x/bundle.json" in str(caught.value)


def test_a_newer_reader_level_is_told_before_anything_else_is_looked_at() -> None:
    with pytest.raises(BundleTooNewError, match="reader level 9; this leapp reads up to 1"):
        read_bundle({"requires": 9, "schema": "?"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["inputs"][0].update(name="a/b"), "inputs[0].name"),
        (lambda v: v["inputs"][0].update(shape=[1, -2]), "inputs[0].shape[1]: expected zero or more"),
        (lambda v: v["inputs"][0].update(semantics=[]), "inputs[0].semantics: expected an object"),
        (lambda v: v["artifacts"][0].update(path="../../x"), "artifacts[0].path: the path '../../x'"),
        (lambda v: v["artifacts"][0].update(data_paths=["/x"]), "artifacts[0].data_paths[0]: the path '/x'"),
        (lambda v: v["artifacts"][0].update(external=1), "artifacts[0].external: expected a boolean"),
        (lambda v: v["artifacts"][0].update(opset_version="20"), "artifacts[0].opset_version: expected an integer"),
        (lambda v: v["ops"].update(x="1"), "ops.x: expected an integer"),
        (lambda v: v["tolerances"].update(rtol="1"), "tolerances.rtol: expected a number"),
        (lambda v: v.update(tolerances=None), "tolerances: expected an object, got null"),
        (lambda v: v.update(graph_sha256=""), "graph_sha256: expected"),
    ],
)
def test_a_malformed_node_manifest_is_named(change: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    node = two_nodes().nodes[0]
    value = json.loads(json.dumps(schema.to_json(manifest_of(node, artifact(tmp_path, "e", "onnx", b"x")))))
    change(value)
    with pytest.raises(BundleFormatError) as caught:
        parse_node_manifest(readable_json(value), "n.json")
    assert message in str(caught.value)


def test_an_evidence_index_does_not_list_itself_nor_paths_outside() -> None:
    for path in ("evidence/index.json", "../x"):
        value = {"schema": 1, "files": [{"path": path, "size": 1, "sha256": "0" * 64}]}
        with pytest.raises(BundleFormatError):
            parse_evidence_index(readable_json(value), "i.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value"),
        (b"[]", "expected an object, got a list"),
        (b"null", "expected an object, got null"),
        (b'{"a": 1, "a": 1}', "the key 'a' occurs twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "the key 'b' occurs twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": "\xff"}', "utf-8"),
        (b'{"a": 1}x', "Extra data"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
    ],
    ids=["empty", "list", "null", "twice", "twice-inside", "nan", "inf", "bytes", "extra", "deep", "long-number"],
)
def test_malformed_json_is_named(data: bytes, message: str) -> None:
    with pytest.raises(BundleFormatError) as caught:
        schema.parse_json(data, "some.json")
    assert message in str(caught.value)
    assert "some.json" in str(caught.value)


def test_too_large_metadata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_METADATA_BYTES", 10)
    with pytest.raises(BundleFormatError, match="too large"):
        schema.parse_json(b'{"a": 1234567}', "x")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_plain_values_stay_what_they_are(value: Any) -> None:
    assert json.loads(readable_json(schema.plain(value, "x"))) == value


class Text(str):
    __slots__ = ()


def test_plain_gives_exact_types_and_sorted_maps() -> None:
    value: Any = schema.plain({"b": (Text("t"), True), "a": {"z": 1, "y": 2}}, "x")
    assert value == {"a": {"y": 2, "z": 1}, "b": ["t", True]}
    assert list(value) == ["a", "b"]
    assert type(value["b"][0]) is str
    assert type(value["b"]) is list


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "port.unit: nan is not a finite number"),
        ([1.0, float("inf")], "port.unit[1]: inf is not a finite number"),
        ({"a": {1: 2}}, "port.unit.a: the key 1 is a int, not text"),
        (b"x", "port.unit: a bytes cannot be written"),
        ({1, 2}, "port.unit: a set cannot be written"),
        ("\ud800", "not valid Unicode text"),
        ({"\ud800": 1}, "not valid Unicode text"),
        (object(), "port.unit: a object cannot be written"),
    ],
    ids=["nan", "inf", "key", "bytes", "set", "surrogate", "surrogate-key", "object"],
)
def test_a_value_that_json_cannot_hold_is_named(value: Any, message: str) -> None:
    with pytest.raises(BundleValueError) as caught:
        schema.plain(value, "port.unit")
    assert message in str(caught.value)


def test_the_lock_mirrors_the_schema() -> None:
    """A record changed: raise SCHEMA_VERSION (READER_LEVEL too, where older readers must not go on), then run
    ``python -m leapp.bundle.schema``."""
    assert schema.LOCK_FILE.read_text("utf-8") == schema.lock_text()


def test_a_changed_record_demands_a_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "schema.lock"
    lock.write_text(schema.lock_text().replace("  media_type: str\n", ""))
    with pytest.raises(ValueError, match="raise SCHEMA_VERSION above 1"):
        schema.update_lock(lock)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    schema.update_lock(lock)
    assert lock.read_text() == schema.lock_text()
    assert "schema 2" in lock.read_text()
