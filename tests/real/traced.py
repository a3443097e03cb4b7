"""Somebody else's NumPy code as a node: traced once, exported, compared with itself on inputs that were not traced."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import leapp
from leapp import annotate
from leapp._spec import ExportFormat, NodeSpec, Port, TensorSpec
from leapp.export._backend import backend_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Arrays = dict[str, np.ndarray]

FRESH = 3


def exported(
    step: Callable[..., Arrays],
    inputs: Arrays,
    folder: Path,
    *,
    format: ExportFormat = ExportFormat.TORCHSCRIPT,
    exact: bool = True,
    **options: Any,
) -> Callable[[Arrays], Arrays]:
    """Trace ``step(**inputs)`` as node ``n``, export it, and open what was written.

    Args:
        exact: that traced code gives the very values; another function that a patch brings may round otherwise.
        options: those of ``leapp.start``.
    """
    untraced = step(**{name: array.copy() for name, array in inputs.items()})
    outputs = traced(step, inputs, folder, format=format, **options)
    for name, value in untraced.items():
        close(outputs[name], value, tolerance=0.0 if exact else 1e-12)
    assert leapp.compile_graph(visualize=False)
    return opened(folder / "real" / "nodes" / "n", format)


def traced(
    step: Callable[..., Arrays],
    inputs: Arrays,
    folder: Path,
    *,
    format: ExportFormat = ExportFormat.TORCHSCRIPT,
    **options: Any,
) -> Arrays:
    """A session in which node ``n`` is ``step``; what the traced step gave."""
    leapp.start("real", save_path=folder, **options)
    try:
        given = annotate.input_tensors("n", {name: array.copy() for name, array in inputs.items()})
        outputs = step(**dict(zip(inputs, given if len(inputs) > 1 else (given,), strict=True)))
        annotate.output_tensors("n", outputs, export_with=format.value)
    finally:
        leapp.stop()
    return outputs


def opened(folder: Path, format: ExportFormat) -> Callable[[Arrays], Arrays]:
    """The model of a node, from its folder alone."""
    manifest = json.loads((folder / "manifest.json").read_text())
    inputs, outputs = (
        tuple(Port(port["name"], TensorSpec(port["dtype"], tuple(port["shape"]))) for port in manifest[side])
        for side in ("inputs", "outputs")
    )
    run = backend_for(format).open(folder / f"{folder.name}{format.suffix}", NodeSpec(folder.name, inputs, outputs))

    def model(arrays: Arrays) -> Arrays:
        results = run({name: torch.from_numpy(array) for name, array in arrays.items()})
        return {name: result.numpy() for name, result in results.items()}

    return model


def close(actual: Any, expected: Any, *, tolerance: float) -> None:
    """What traced code or a model gives, beside what NumPy gives."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def check(
    step: Callable[..., Arrays],
    draw: Callable[[np.random.Generator], Arrays],
    folder: Path,
    *,
    format: ExportFormat = ExportFormat.TORCHSCRIPT,
    tolerance: float = 1e-6,
    exact: bool = True,
    **options: Any,
) -> None:
    """Trace ``step`` on one draw of inputs; its model must give what the untraced code gives on others."""
    model = exported(step, draw(np.random.default_rng(0)), folder, format=format, exact=exact, **options)
    seen = []
    for seed in range(1, FRESH + 1):
        inputs = draw(np.random.default_rng(seed))
        expected = step(**{name: array.copy() for name, array in inputs.items()})
        outputs = model(inputs)
        assert set(outputs) == set(expected)
        for name, value in expected.items():
            close(outputs[name], value, tolerance=tolerance)
        seen.append(np.concatenate([np.ravel(value) for value in expected.values()]))
    assert not all(np.array_equal(seen[0], other) for other in seen[1:])  # or the inputs decide nothing
