"""Every error and warning says what happened and what to do, survives pickling, and gets the facts it names."""

from __future__ import annotations

import ast
import inspect
import pickle
import string
from pathlib import Path

import pytest

import leapp
from leapp import errors

PACKAGE = Path(leapp.__file__).parent
CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, (errors.LeappError, errors.LeappWarning))
]
CONCRETE = [each for each in CLASSES if "what" in vars(each)]
FAMILIES = [each for each in CLASSES if each not in CONCRETE]


def fields(each: type) -> set[str]:
    """Names that the two templates of a class ask for."""
    parsed = [*string.Formatter().parse(each.what), *string.Formatter().parse(each.remedy)]
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in parsed if name is not None}


def raised() -> list[tuple[str, type, set[str]]]:
    """Every place in the package that makes one of the errors with plain keywords: where, which, with what."""
    by_name = {each.__name__: each for each in CLASSES}
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            keywords = {keyword.arg for keyword in node.keywords}
            if name in by_name and None not in keywords and keywords:
                where = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                found.append((where, by_name[name], keywords))
    return found


RAISED = raised()


@pytest.mark.parametrize("each", CONCRETE, ids=lambda each: each.__name__)
def test_says_what_happened_and_what_to_do(each):
    assert inspect.getdoc(each)
    assert each.what.strip()
    assert each.remedy.strip()
    assert each.what != each.remedy


@pytest.mark.parametrize("each", FAMILIES, ids=lambda each: each.__name__)
def test_a_class_without_texts_is_a_family(each):
    assert inspect.getdoc(each)
    assert each.__subclasses__()


@pytest.mark.parametrize("each", CONCRETE, ids=lambda each: each.__name__)
def test_survives_the_way_to_another_process(each):
    facts = {name: f"<{name}>" for name in fields(each)}
    error = each(**facts)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is each
    assert again.facts == facts
    assert str(again) == str(error)
    for name in facts:
        assert f"<{name}>" in str(error)


@pytest.mark.parametrize("each", CONCRETE, ids=lambda each: each.__name__)
def test_is_caught_by_a_builtin(each):
    builtins = {base for base in each.__mro__ if base.__module__ == "builtins"}
    assert builtins - {Exception, BaseException, object}


@pytest.mark.parametrize(("where", "each", "keywords"), RAISED, ids=lambda part: part if isinstance(part, str) else "")
def test_is_given_all_that_its_texts_name(where, each, keywords):
    assert fields(each) <= keywords, f"{where}: {each.__name__} is not given {sorted(fields(each) - keywords)}"


def test_counted_things_are_one_or_several():
    assert str(errors.LockError(count=1, detail="x", problems=[])).startswith("1 problem in a lock:")
    assert str(errors.LockError(count=2, detail="x", problems=[])).startswith("2 problems in a lock:")
