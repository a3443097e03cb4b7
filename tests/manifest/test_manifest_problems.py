"""Which name is taken for another one mistyped: near ones alone, for a silly hint is worse than none."""

from __future__ import annotations

import pytest

from leapp.manifest.problems import did_you_mean, hint, nearest, nearest_file

KEYS = ("name", "version", "entry", "frequency_hz", "args", "argv", "formats", "opset")
PORTS = ("arm/q", "arm/joint_pos", "leg/joint_vel", "policy/actions")


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("nmae", KEYS, "name"),
        ("ENTRY", KEYS, "entry"),
        ("frequency", KEYS, "frequency_hz"),
        ("ops", KEYS, "opset"),
        ("format", KEYS, "formats"),
        ("seed", KEYS, None),
        ("values", KEYS, None),
        ("kp", ("kd",), None),
        ("x", (), None),
        ("arm/qq", PORTS, "arm/q"),
        ("arm/joint_ps", PORTS, "arm/joint_pos"),
        ("amr/joint_pos", PORTS, "arm/joint_pos"),
        ("policy/action", PORTS, "policy/actions"),
        # What they have in common is the node alone, or the port alone.
        ("policy/gravity", PORTS, None),
        ("arm/k", PORTS, None),
        ("base/q", PORTS, None),
        # The best of all, not the first that is near enough.
        ("arm/joint_poss", ("arm/joint_vel_pos", "arm/joint_pos"), "arm/joint_pos"),
        ("same", ("sane", "same"), "same"),
    ],
)  # fmt: skip
def test_the_nearest_name(word, known, meant):
    assert nearest(word, known) == meant
    assert did_you_mean(word, known) == (f"Did you mean {meant!r}? " if meant else "")


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("mian.py", ("main.py", "main.toml", "tests"), "main.py"),
        ("polcy.toml", ("policy.toml", "policy.py"), "policy.toml"),
        ("manifets", ("manifests", "dist"), "manifests"),
        ("weights.pt", ("weights.pt2", "bias.pt"), "weights.pt2"),
        ("policy", ("policy.toml",), "policy.toml"),
        ("MAIN.PY", ("main.py",), "main.py"),
        ("bad.py", ("a.pt",), None),
        ("bad.py", ("a.py",), None),
        ("mian.py", ("main.toml",), None),
        ("policy.toml", ("torch.toml", ".gitignore"), None),
        ("notes.txt", (), None),
    ],
)  # fmt: skip
def test_the_nearest_file(word, known, meant):
    assert nearest_file(word, known) == meant


def test_a_hint_gives_way_to_what_else_there_is_to_say():
    assert hint("x") == " Did you mean 'x'?"
    assert hint(None) == ""
    assert hint(None, "Known keys: a.") == " Known keys: a."
    assert hint("x", "Known keys: a.") == " Did you mean 'x'?"
