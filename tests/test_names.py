"""Ports and nodes may bear names that Python, FX, TorchScript and YAML have other uses for."""

import pytest
import torch

import leapp
from leapp import InferenceManager, TensorSemantics, annotate
from leapp.bundle.read import load, verify

NODE = "Nödé: (v0) 'x'"
NAMES = [
    "class", "self", "lambda", "input", "forward", "torch", "relu", "device", "max", "_tensor_constant0", "1st", "a b",
    "a.b", "a:b", "é☃", 'a"b', "a%b", "{x}", "x[0]", "A", "a", "#h", "-x", "*", "&a", "None", "True", "1e3", "x\ty",
    "params", "__class__", "return", "operator", "getattr", "y" * 200,
]  # fmt: skip


def body(xs):
    weight = torch.tensor([2.0, 3.0])
    # Operators, functions and properties, each of which generated code writes in another way.
    return [torch.relu(x) * weight + torch.max(x) - x.mT.flip(0) for x in xs]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    leapp.start("odd", save_path=folder)
    given = [TensorSemantics(each, torch.full((2, 2), float(i))) for i, each in enumerate(NAMES)]
    xs = annotate.input_tensors(NODE, given)
    ys = [TensorSemantics(f"{each}!", y) for each, y in zip(NAMES, body(xs), strict=True)]
    annotate.output_tensors(NODE, ys, export_with=["jit", "pt2", "onnx"])
    leapp.stop()
    assert leapp.compile_graph(visualize=False) == {NODE: True}
    return folder / "odd"


def test_the_runtime_file_has_them_as_they_are(bundle):
    assert verify(bundle).ok
    model = load(bundle).contract["models"][NODE]
    assert [port["name"] for port in model["inputs"]] == NAMES


@pytest.mark.parametrize("format", ["torchscript", "pt2", "onnx"])
def test_every_format_runs_with_them(bundle, format):
    xs = list(torch.randn(len(NAMES), 2, 2))
    got = InferenceManager(bundle, formats=format)({f"{NODE}/{each}": x for each, x in zip(NAMES, xs, strict=True)})
    for name, expected in zip(NAMES, body(xs), strict=True):
        torch.testing.assert_close(got[f"{NODE}/{name}!"], expected)
