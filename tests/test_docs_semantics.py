"""The pages on semantics and on the runtime file: their examples run, and their tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import yaml

import leapp
from leapp import InputKindEnum, OutputKindEnum, TemporalAxis, TensorSemantics
from leapp._spec import NodeSpec
from leapp.bundle import contract
from leapp.bundle.read import load
from leapp.manifest.load import load_one
from leapp.semantics import RESERVED_FIELDS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "semantics.md").read_text("utf-8")
CONTRACT = (DOCS / "contract.md").read_text("utf-8")


def block(mark: str, page: str = PAGE) -> str:
    """The code block behind a mark."""
    (found,) = re.findall(rf"^<!-- {mark} -->\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """The bundle that the page's script writes."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "arm.py").write_text(block("file: arm.py"), "utf-8")
    (folder / "arm.toml").write_text(block("file: arm.toml"), "utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "arm.py"], cwd=folder, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_the_script_gives_the_ports_that_the_page_shows(arm):
    lines = (arm / "arm" / "arm.yaml").read_text("utf-8").splitlines()
    assert block("output: arm.yaml").splitlines() == [each.strip() for each in lines if "- {name: " in each]
    assert load(arm / "arm").contract["pipeline"]["configs"] == {"frequency": 50, "robot": "leg-v2"}


def test_its_model_computes_what_the_script_does(arm):
    session = onnxruntime.InferenceSession(arm / "arm" / "nodes" / "arm" / "arm.onnx")
    position, command = np.float32([0.3, -0.1, 0.7]), np.float32([-0.4])
    targets, gains = session.run(None, {"position": position, "command": command})
    steps = np.linspace(0.25, 1.0, 4, dtype=np.float32)[:, None]
    np.testing.assert_allclose(targets, position + steps * (command - position), rtol=1e-6, atol=1e-7)
    assert gains.tolist() == [40.0] * 3


def test_the_manifest_is_one_and_its_ports_are_those_of_the_script(arm):
    manifest = load_one(arm / "arm.toml")
    recorded = {port["name"] for port in yaml.safe_load(block("output: arm.yaml"))}
    assert set(manifest.nodes["arm"].ports) <= recorded
    shapes = {"position": (3,), "targets": (4, 3), "command": (1,)}
    for port, facts in manifest.nodes["arm"].ports.items():
        assert facts.facts("Port", shapes[port])
    assert manifest.onnx_metadata_for("arm") == {"licence": "Apache-2.0"}


ELEMENT_NAMES = re.findall(r"^\| `(\[[\d, ]+\])` \| `(.*?)` \| `(.*?)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("shape", "given", "written"), ELEMENT_NAMES)
def test_element_names_are_written_as_the_page_shows(shape, given, written):
    given = eval(given, {"TemporalAxis": TemporalAxis})  # noqa: S307 - of our own page
    said = TensorSemantics("x", None, element_names=given)
    assert said.facts("x", yaml.safe_load(shape))["element_names"] == yaml.safe_load(written)
    assert len(ELEMENT_NAMES) == 6


@pytest.mark.parametrize("enum", [InputKindEnum, OutputKindEnum])
def test_the_page_lists_every_kind(enum):
    rows = "".join(f"| `{each.name}` | `{each.value}` |\n" for each in enum)
    assert f"| `{enum.__name__}` | |\n|---|---|\n{rows}\n" in PAGE


def test_reserved_names_are_on_the_page():
    assert all(f"`{each}`" in PAGE for each in RESERVED_FIELDS)


def test_the_page_of_the_runtime_file_speaks_of_every_field(arm):
    example = yaml.safe_load(block("file: two.yaml", CONTRACT))
    models = example["models"].values()
    fields = {*example["pipeline"], *example["system information"]}
    for model in models:
        fields |= {*model["parameters"], *(key for each in model["parameters"].get("variants", ()) for key in each)}
        fields |= {key for port in (*model["inputs"], *model["outputs"]) for key in port}
    assert {"kind", "warp_segments", "feedback_connections", "os"} <= fields
    assert [each for each in sorted(fields) if f"`{each}`" not in CONTRACT] == []
    assert f"is {leapp.__config_version__} (" in CONTRACT
    node = load(arm / "arm").node("arm")
    spec = NodeSpec("arm", tuple(each.port() for each in node.inputs), tuple(each.port() for each in node.outputs))
    assert all(f"`{key}`" in CONTRACT for key in contract.onnx_metadata(spec))
