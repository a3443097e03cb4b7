"""constraints.txt pins all that the sessions install, within what pyproject.toml lets users have."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from leapp._tried import TRIED

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PINS = {
    canonicalize_name(requirement.name): requirement
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}
DECLARED = [
    Requirement(text)
    for texts in (
        PROJECT["build-system"]["requires"],
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
        *PROJECT["dependency-groups"].values(),
    )
    for text in texts
]


def test_every_pin_is_one_version():
    assert [name for name, pin in PINS.items() if not re.fullmatch(r"==[0-9][0-9.]*", str(pin.specifier))] == []


def test_what_was_tried_begins_at_the_floors_and_holds_the_pins():
    floors = dict(
        text.split("#")[0].strip().split(">=") for text in PROJECT["project"]["optional-dependencies"]["build"]
    )
    floors["python"] = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert {name: versions[0] for name, versions in TRIED.items()} == {name: floors[name] for name in TRIED}
    for name in ("torch", "numpy"):
        (version,) = PINS[name].specifier
        assert version.version.rpartition(".")[0] in TRIED[name]


def test_every_python_that_was_tried_is_a_classifier():
    said = [text.rpartition(" ")[2] for text in PROJECT["project"]["classifiers"] if "Python :: 3." in text]
    assert tuple(said) == TRIED["python"]


@pytest.mark.parametrize("requirement", DECLARED, ids=str)
def test_what_is_declared_is_pinned_within_its_range(requirement):
    pin = PINS[canonicalize_name(requirement.name)]
    (version,) = pin.specifier
    assert requirement.specifier.contains(version.version)


def test_what_these_need_is_pinned_as_well():
    unpinned, seen = set(), set()
    waiting = list(DECLARED)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        if name not in PINS:
            unpinned.add(name)
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # an extra that this environment does not have
            continue
        extras = ("", *requirement.extras)
        waiting += [
            need
            for need in map(Requirement, needed)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    # torch's builds for graphics cards pin the libraries they need themselves.
    assert {name for name in unpinned if not re.match(r"nvidia-|cuda-|triton$", name)} == set()


def test_torch_has_its_pin():
    assert str(PINS["torch"].specifier) == "==2.13.0"
