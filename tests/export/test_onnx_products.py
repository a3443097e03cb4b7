"""Products of matrices and vectors in ONNX."""

from __future__ import annotations

import numpy as np
import onnxruntime
import torch

import leapp
from leapp import annotate

DOWN = np.array([0.0, 0.0, -9.81], np.float32)


def test_products_with_vectors(tmp_path):
    def products(m):
        return {
            "gravity": m.T @ DOWN,
            "left": DOWN @ m,
            "left_of_transposed": DOWN @ m.T,
            "right": m @ DOWN,
            "both": (m.T @ DOWN) @ (m.T @ DOWN) + m[0],
            "stack": np.stack([m, 2 * m]).swapaxes(1, 2) @ DOWN,
            "stack_left": DOWN @ np.stack([m, 2 * m]).swapaxes(1, 2),
            "torch": torch.from_numpy(m).T @ torch.from_numpy(DOWN),
        }

    first, fresh = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    leapp.start("products", tmp_path)
    m = annotate.input_tensors("n", {"m": first})
    annotate.output_tensors("n", products(m), export_with="onnx")
    leapp.stop()
    leapp.compile_graph()
    session = onnxruntime.InferenceSession(tmp_path / "products" / "nodes" / "n" / "n.onnx")
    for (name, expected), actual in zip(products(fresh).items(), session.run(None, {"m": fresh}), strict=True):
        np.testing.assert_allclose(actual, np.asarray(expected), rtol=1e-5, atol=1e-6, err_msg=name)
