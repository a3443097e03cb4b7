"""What is decided before anything runs."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from leapp.build._messages import Ending, EndingKind, SessionRequest, pickled_error
from leapp.build.plan import make_plan
from leapp.errors import NothingAnnotatedError, UnknownFormatError, ValidationError
from leapp.manifest.model import Entry, Manifest, Pipeline, Session


def manifest(name="p", **session) -> Manifest:
    root = Path("/project")
    return Manifest(
        root / "m.toml", "m.toml", root, Pipeline(name, "1.2.0", Entry.parse("a.py:f")), session=Session(**session)
    )


def plan(*manifests: Manifest, **options):
    return make_plan(manifests, out=Path("dist"), **{"environment": {}} | options)


def test_each_pipeline_goes_to_its_name_and_version():
    found = plan(manifest("a"), manifest("b"))
    assert [each.target for each in found.pipelines] == [Path("dist/a/1.2.0"), Path("dist/b/1.2.0")]


@pytest.mark.parametrize(
    ("python", "expected"),
    [("", sys.executable), ("python3", "python3"), ("env/bin/python", "/project/env/bin/python"), ("/x/py", "/x/py")],
)
def test_interpreter(python, expected):
    (found,) = plan(manifest(python=python)).pipelines
    assert found.python == expected
    assert found.own_interpreter is (python == "")


def test_variables_leave_digests_behind():
    (found,) = plan(manifest(pass_env=("A", "B")), environment={"A": "secret", "C": "other"}).pipelines
    assert found.variables["B"] is None
    assert len(found.variables["A"]) == 64
    assert set(found.variables) == {"A", "B"}


def test_requests_travel(tmp_path):
    (found,) = plan(manifest(), only="n", strict=True).pipelines
    request = found.request(Path("/out"))
    request.write(tmp_path / "request")
    assert SessionRequest.read(tmp_path / "request") == request
    assert (request.only, request.strict, request.entry.callable) == ("n", True, "f")


def test_messages_appear_whole_and_come_back(tmp_path):
    path = tmp_path / "ending.json"
    assert Ending.read(path) is None
    error = UnknownFormatError(node="n", format="x", known="onnx", near="")
    ending = Ending(EndingKind.REFUSED, 2, str(error), error_class="UnknownFormatError", pickled=pickled_error(error))
    ending.write(path)
    again = Ending.read(path)
    assert again == ending
    assert again.kind is EndingKind.REFUSED
    assert isinstance(again.error(), UnknownFormatError)
    assert again.error().facts == error.facts
    assert [each.name for each in tmp_path.iterdir()] == ["ending.json"]


def test_errors_with_facts_that_cannot_travel_travel_as_text():
    error = ValidationError(count=1, detail="d", reports={"n": lambda: None})
    assert pickled_error(error) == ""
    assert Ending(EndingKind.REFUSED).error() is None
    assert pickle.loads(pickle.dumps(NothingAnnotatedError(name="n"))).facts == {"name": "n"}
