"""Weights in the files: as they were when they were used, once however often they are used, under their names."""

import copy
import json

import pytest
import torch

import leapp
from leapp import annotate
from leapp._spec import ExportFormat, NodeSpec, Port, TensorSpec
from leapp.export._backend import backend_for

SIZE = 64
SPEC = NodeSpec("n", (Port("x", TensorSpec("float32", (SIZE,))),), (Port("y", TensorSpec("float32", (SIZE,))),))


class Tied(torch.nn.Module):
    """One matrix as two layers, transposed, in part, and as a buffer."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(SIZE, SIZE, bias=False)
        self.decoder = torch.nn.Linear(SIZE, SIZE, bias=False)
        self.decoder.weight = self.encoder.weight
        self.register_buffer("frozen", self.encoder.weight.detach())

    def forward(self, x):
        y = self.decoder(torch.tanh(self.encoder(x)))
        return y @ self.encoder.weight.t() + self.frozen[3] * x + (self.frozen[1:] * x).sum(0) * self.encoder.weight[0]


def exported(model, format, folder, *, between=lambda: None):
    """Trace ``model`` and export it; the model file, and what it gives for an input."""
    leapp.start("pipeline", save_path=folder)
    x = torch.randn(SIZE)
    annotate.input_tensors("n", {"x": x})
    with torch.no_grad():
        y = model(x)
    annotate.output_tensors("n", {"y": y}, export_with=format.value)
    leapp.stop()
    between()
    leapp.compile_graph()
    path = folder / "pipeline" / "nodes" / "n" / f"n{format.suffix}"
    run = backend_for(format).open(path, SPEC)
    return path, lambda fresh: run({"x": fresh})["y"]


FORMATS = pytest.mark.parametrize(
    "format", [ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX], ids=lambda each: each.value
)


@FORMATS
def test_tied_weights_are_stored_once(format, tmp_path):
    model = Tied()
    path, run = exported(model, format, tmp_path)
    size = SIZE * SIZE * 4
    assert size < path.stat().st_size < 1.9 * size
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert [each["name"] for each in manifest["constants"]] == ["encoder.weight"]
    fresh = torch.randn(SIZE)
    torch.testing.assert_close(run(fresh), model(fresh).detach(), rtol=1e-4, atol=1e-4)


@FORMATS
def test_weights_that_change_before_they_are_exported(format, tmp_path):
    model = Tied()
    before = copy.deepcopy(model)

    def trained_on():
        with torch.no_grad():
            model.encoder.weight.mul_(3)
        model.frozen.numpy()[0] = 7

    _, run = exported(model, format, tmp_path, between=trained_on)
    fresh = torch.randn(SIZE)
    torch.testing.assert_close(run(fresh), before(fresh).detach(), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(model(fresh), before(fresh))
