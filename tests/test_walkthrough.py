"""docs/changes.md is what docs/walkthrough.py does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def walkthrough():
    spec = importlib.util.spec_from_file_location("walkthrough", ROOT / "docs" / "walkthrough.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_of_this_script(walkthrough):
    page = walkthrough.PAGE.read_text("utf-8")
    recorded = walkthrough.split(page)
    assert walkthrough.join(recorded) == page
    with pytest.raises(ValueError, match="lacks this text"):
        walkthrough.split(page.replace("## A comment", "## A remark"))


def test_every_step_shows_what_it_is_about(walkthrough):
    recorded = walkthrough.split(walkthrough.PAGE.read_text("utf-8"))
    said = {part.__name__: recorded[index] for index, part in enumerate(walkthrough.PARTS) if not isinstance(part, str)}
    assert "locked     manifests/policy.lock" in said["first"]
    assert "weights of node 'policy' changed: 2.weight, largest difference 0.01" in said["weight"]
    assert "largest difference 0.05" in said["constant"]
    assert "operation 11 added: %clamp = torch.clamp(%mul, -0.4, 0.4)" in said["operation"]
    assert "policy.py:" in said["operation"]
    assert "refreshed  manifests/policy.lock" in said["comment"]
    assert "ok      policy 1.0.0: published" in said["comment"]
    assert "version: 1.0.0 -> 1.0.1" in said["version"]
    assert "largest difference 0.05" in said["version"]
    assert "asks for a minor step: 1.1.0; 1.0.1 is not enough" in said["version"]
    assert "`leapp diff dist/policy/1.0.0 dist/.refused/policy/1.0.1` says more" in said["version"]
    assert "asks for a minor step: 1.1.0 is enough" in said["version_accepted"]
    assert "tool chain changed: torch 2.13.0 -> " in said["upgrade"]
    assert "unchanged: contract, graph, weights" in said["upgrade"]
    assert "version step  patch" in said["upgrade"]
    assert "leapp-walkthrough-" not in "".join(recorded.values())


def test_what_varies_is_left_out_and_which_digests_are_equal_is_not(walkthrough):
    one, two = "1" * 64, "2" * 64
    first = walkthrough.normal(f"ok  9.1 s  {one} {two} {one} 6.5e-09", {})
    assert first == walkthrough.normal(f"ok  59.1 s    {two} {one} {two} 5e-09", {})
    assert first != walkthrough.normal(f"ok  9.1 s  {one} {two} {two} 6.5e-09", {})
    assert first != walkthrough.normal(f"no  9.1 s  {one} {two} {one} 6.5e-09", {})


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_happens_as_the_page_says():
    done = subprocess.run(
        [sys.executable, "docs/walkthrough.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
