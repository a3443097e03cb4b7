"""Builds of nodes that bring their model: what must be declared, what is reproduced, what the probe compares."""

import os
import re

import pytest
import torch

from leapp.build.plan import make_plan
from leapp.build.run import build
from leapp.bundle.read import load, verify
from leapp.manifest.load import load as load_manifests

ENTRIES = '''
import numpy as np
import torch
from leapp import annotate


def bytes_of(array):
    return np.frombuffer(array.tobytes(), np.float32).copy()


def perceive(path, copied=True, answer=None):
    """The file is run without its results being traced; it gives what it computed of data that differ."""
    params = {"model_path": path, "copy_original_model": copied}

    def body(image):
        features = torch.full((3,), answer or 0.0)
        if answer is None:
            given = image.detach().numpy().copy()
            features.copy_(torch.jit.load(path)(torch.from_numpy(bytes_of(given))))
        return {"features": features}

    image = torch.ones(3)  # the same in each run: the second one moves it
    if copied:
        annotate.input_tensors("perception", {"image": image})
        features = annotate.output_tensors("perception", body(image), export_with=None, backend_params=params)
    else:
        features = annotate.method("perception", backend_params=params)(body)(image)["features"]
    features = annotate.input_tensors("policy", {"features": features})
    annotate.output_tensors("policy", {"action": features * 3})
'''

MANIFESTS = {
    "copied": ('{ path = "models/gain.pt" }', ""),
    "left": ('{ path = "../elsewhere/gain.pt", copied = false }', 'inputs = ["../elsewhere/gain.pt"]'),
    "undeclared": ('{ path = "../elsewhere/gain.pt" }', ""),
    "missing": ('{ path = "models/none.pt", answer = 0.5 }', ""),
    "wrong": ('{ path = "models/gain.pt", answer = 0.5 }', ""),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("brought") / "project"
    for folder in (root / "models", root / "manifests", root.parent / "elsewhere"):
        folder.mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "entries.py").write_text(ENTRIES)
    module = torch.jit.trace(torch.nn.Hardtanh(-0.7, 0.7), torch.zeros(3))
    for folder in (root / "models", root.parent / "elsewhere"):
        module.save(folder / "gain.pt")
    for name, (args, session) in MANIFESTS.items():
        (root / "manifests" / f"{name}.toml").write_text(
            f'schema = 1\n[pipeline]\nname = "{name}"\nversion = "1.0.0"\n'
            f'entry = "entries.py:perceive"\nargs = {args}\n[export]\nformats = ["torchscript"]\n[session]\n{session}\n'
        )
    plan = make_plan(load_manifests([root / "manifests"]), out=root / "dist", environment=os.environ)
    return root, {result.plan.name: result for result in build(plan, jobs=2)}


@pytest.mark.parametrize("name", ["copied", "left"])
def test_a_brought_model_is_built_probed_and_reproduced(results, name):
    root, by_name = results
    assert by_name[name].error is None, str(by_name[name].error)
    bundle = load(root / "dist" / name / "1.0.0")
    assert verify(bundle.folder).ok
    (artifact,) = bundle.artifacts("perception")
    assert (artifact.method, artifact.external) == ("brought", name == "left")
    if name == "copied":
        assert bundle.artifact("perception").read_bytes() == (root / "models" / "gain.pt").read_bytes()
    assert [each.format for each in bundle.artifacts("policy")] == ["torchscript"]
    assert bundle.contract["pipeline"]["data_flow"] == {"perception/features": ["policy/features"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("undeclared", "gain.pt"),
        ("missing", r"Node 'perception' brings the model models/none.pt, and there is no such file"),
        ("wrong", r"perception \(torchscript\): output 'features'"),
    ],
)
def test_what_is_refused(results, name, text):
    root, by_name = results
    assert re.search(text, str(by_name[name].error))
    assert not (root / "dist" / name / "1.0.0").exists()
