"""Bundles of the examples, built as a user builds them, and their models as plain functions of arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime
import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Model = Callable[..., np.ndarray]

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))  # the examples are scripts, not a package


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``build(name, *options)``: the bundle of ``manifests/<name>.toml``."""

    def run(name: str, *options: str) -> Path:
        out = tmp_path_factory.mktemp("dist")
        command = [sys.executable, "-m", "leapp", "build", f"manifests/{name}.toml", "--out", str(out), *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return out / name / "1.0.0"

    return run


@pytest.fixture(scope="session")
def load() -> Callable[[Path, str, str], Model]:
    """``load(bundle, node, suffix)``: a node's model with one output, opened by the runtime of its format."""

    def run(bundle: Path, node: str, suffix: str) -> Model:
        path = bundle / "nodes" / node / f"{node}{suffix}"
        if suffix == ".onnx":
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            names = [each.name for each in session.get_inputs()]
            return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0]
        module = torch.jit.load(path) if suffix == ".pt" else torch.export.load(path).module()

        @torch.no_grad()
        def forward(*arrays: np.ndarray) -> np.ndarray:
            return module(*map(torch.from_numpy, arrays)).numpy()

        return forward

    return run


@pytest.fixture(params=[".pt", ".pt2", ".onnx"])
def suffix(request: pytest.FixtureRequest) -> str:
    """Each of the three formats."""
    return request.param
