"""Python numbers in models of doubles: ONNX computes with what float64 holds of them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F

import leapp
from leapp import annotate

TENTH = torch.tensor(0.1, dtype=torch.float64)
EYE = torch.eye(3, dtype=torch.float64)


def written(t):
    y = t * 1
    y[0] = 0.1
    return y


FORMS = {
    "mul": lambda t: torch.sin(t * 9.1),
    "add": lambda t: t + 0.1,
    "alpha": lambda t: torch.add(t, t, alpha=0.1) - torch.sub(t, t, alpha=0.3),
    "sub": lambda t: 0.1 - t - 0.7,
    "div": lambda t: t / 0.3 + 0.3 / t,
    "pow": lambda t: t.abs() ** 0.3 + 1.1**t,
    "remainder": lambda t: t % 0.3 + torch.fmod(t, 0.7),
    "floor": lambda t: torch.floor_divide(t, 0.3),
    "clamp": lambda t: t.clamp(-0.1, 0.3) + t.clamp(min=0.7) + F.hardtanh(t, -0.1, 0.7),
    "where": lambda t: torch.where(t > 0.1, t, 0.7) + torch.where(t > 0.1, 0.3, t),
    "compare": lambda t: (t < 0.1).double() + (t >= 123.45).double(),
    "full": lambda t: torch.full_like(t, 0.1) + t.new_full((3,), 0.3),
    "fill": lambda t: t.masked_fill(t > 0, 0.1),
    "written": written,
    "lerp": lambda t: torch.lerp(t, t * 2, 0.3),
    "addcmul": lambda t: torch.addcmul(t, t, t, value=0.1) + torch.addcdiv(t, t, t + 1, value=0.3),
    "addmm": lambda t: torch.addmm(t[None], t[None], EYE, beta=0.3, alpha=0.1),
    "xlogy": lambda t: torch.xlogy(t.abs(), 0.3),
    "pad": lambda t: F.pad(t, (1, 1), value=0.1),
    "tensors": lambda t: torch.hypot(t, TENTH) + torch.atan2(t, TENTH),
}


def test_numbers_keep_double_precision(tmp_path):
    def forms(t):
        return {name: form(t) for name, form in FORMS.items()}

    leapp.start("doubles", tmp_path)
    t = annotate.input_tensors("n", {"t": torch.tensor([0.25, -0.7, 1.3], dtype=torch.float64)})
    annotate.output_tensors("n", forms(t), export_with="onnx")
    leapp.stop()
    leapp.compile_graph()
    fresh = torch.tensor([123.45, -31.7, 0.77], dtype=torch.float64)
    session = onnxruntime.InferenceSession(tmp_path / "doubles" / "nodes" / "n" / "n.onnx")
    results = session.run(None, {"t": fresh.numpy()})
    for (name, expected), actual in zip(forms(fresh).items(), results, strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-12, err_msg=name)


def test_numbers_of_numpy_keep_double_precision(tmp_path):
    def phase(t):
        return np.sin(t * 9.1) + np.clip(t, -0.1, 0.7) + np.where(t > 0.1, t, 0.3)

    leapp.start("phase", tmp_path)
    t = annotate.input_tensors("n", {"t": np.array([0.5, 0.7])})
    annotate.output_tensors("n", {"y": phase(t)}, export_with="onnx")
    leapp.stop()
    leapp.compile_graph()
    fresh = np.array([1e6, 0.2])
    session = onnxruntime.InferenceSession(tmp_path / "phase" / "nodes" / "n" / "n.onnx")
    np.testing.assert_allclose(session.run(None, {"t": fresh})[0], phase(fresh), rtol=1e-9)


def test_two_pairs_of_limits_of_one_input(tmp_path):
    low, high = torch.tensor([-1.0, 0.1]), torch.tensor([0.5, 3.0])

    def limited(t):
        first = torch.minimum(torch.maximum(t, low[0]), high[0])
        return first + torch.minimum(torch.maximum(t, low[1]), high[1])

    leapp.start("limits", tmp_path)
    t = annotate.input_tensors("n", {"t": torch.tensor([0.25, -0.7, 1.3])})
    annotate.output_tensors("n", {"y": limited(t)}, export_with="onnx")
    leapp.stop()
    leapp.compile_graph()
    fresh = torch.tensor([-4.0, 0.3, 9.0])
    session = onnxruntime.InferenceSession(tmp_path / "limits" / "nodes" / "n" / "n.onnx")
    np.testing.assert_array_equal(session.run(None, {"t": fresh.numpy()})[0], limited(fresh).numpy())
