"""Record a function on traced tensors, evaluate and export the recording, and compare with the untraced function."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from leapp._spec import ExportFormat
from leapp.errors import UntracedOpWarning
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.ops.torch_table import row_of
from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samples import Sample, Subject

    from leapp.ops._row import Kind

FORMATS = (ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX)


class WrongError(AssertionError):
    """A recording or a model that computes something else than the untraced function."""


@dataclass
class Trial:
    """One sample of one function."""

    subject: Subject
    sample: Sample
    label: str
    errors: dict[str, str] = field(default_factory=dict)

    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Call the function; the tensors of its result, and those of its arguments that it wrote."""
        before = [tensor._version for tensor in tensors]
        result = self.sample.call(self.subject.function, tensors)
        found = tensors_in(result)
        for tensor, version in zip(tensors, before, strict=True):
            if tensor._version != version and not any(tensor is each for each in found):
                found.append(tensor)
        return found


def tensors_in(result: Any) -> list[torch.Tensor]:
    """The dense tensors of a result, at any depth."""
    return [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]


def complex_out(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as the reals that any format can hand over."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def complex_in(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(tensor) if like.is_complex() else tensor


def port(tensor: torch.Tensor) -> torch.Tensor:
    """What goes through an input port for a tensor of a sample: memory of its own, no complex numbers."""
    copy = tensor.detach().clone(memory_format=torch.contiguous_format)
    return torch.view_as_real(copy).clone() if copy.is_complex() else copy


def expected(trial: Trial, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the untraced function gives."""
    with torch.no_grad():
        copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
        return [complex_out(each).clone() for each in trial.run(copies)]


@dataclass
class Recorded:
    """Several trials in one recording."""

    graph: NodeGraph
    trials: list[Trial]
    counts: list[int]
    """How many outputs each trial has."""

    def inputs(self, which: str) -> dict[str, torch.Tensor]:
        tensors = [port(tensor) for trial in self.trials for tensor in getattr(trial.sample, which)]
        return {each.name: tensor for each, tensor in zip(self.graph.spec.inputs, tensors, strict=True)}

    def judge(self, outputs: Sequence[torch.Tensor], which: str, *, close: bool) -> None:
        """Raise WrongError unless ``outputs`` are what the untraced functions give on that draw."""
        remaining = iter(outputs)
        for trial in self.trials:
            for number, value in enumerate(expected(trial, getattr(trial.sample, which))):
                got = next(remaining)
                problem = difference(got, value, close=close)
                if problem:
                    raise WrongError(f"{trial.label}: output {number}: {problem}")


def difference(got: torch.Tensor, value: torch.Tensor, *, close: bool) -> str:
    """How ``got`` is not ``value``; empty when it is."""
    if got.dtype != value.dtype or got.shape != value.shape:
        return f"{got.dtype}{list(got.shape)} instead of {value.dtype}{list(value.shape)}"
    try:
        if close and got.is_floating_point():
            torch.testing.assert_close(got, value, rtol=1e-3, atol=1e-4, equal_nan=True)
        else:
            torch.testing.assert_close(got, value, rtol=0, atol=0, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:160]
    return ""


def record(trials: list[Trial]) -> Recorded:
    """Trace the functions of all trials in one node. Raises what the tracer raises, WrongError for a changed value."""
    session = Session(SessionOptions(name="walk", folder=Path("unused"), root=Path(__file__).parents[1]))
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", UntracedOpWarning)
            ports = {
                f"t{number}_{index}": port(tensor)
                for number, trial in enumerate(trials)
                for index, tensor in enumerate(trial.sample.first)
            }
            session.input_tensors("n", ports)
            outputs: dict[str, torch.Tensor] = {}
            counts = []
            for number, trial in enumerate(trials):
                tensors = [
                    complex_in(ports[f"t{number}_{index}"], tensor) for index, tensor in enumerate(trial.sample.first)
                ]
                results = [complex_out(each) for each in trial.run(tensors)]
                counts.append(len(results))
                outputs.update({f"o{number}_{index}": each for index, each in enumerate(results)})
            session.output_tensors("n", outputs)
    finally:
        session.stop()
    entry = session.completed[0].recordings[0]
    recorded = Recorded(run_passes(entry.graph, EXPORT_PASSES), trials, counts)
    recorded.judge([each.detach() for each in outputs.values()], "first", close=False)
    return recorded


def check_recording(recorded: Recorded) -> None:
    """Evaluate the recording on the other draw."""
    check_graph(recorded.graph)
    outputs = run_graph(recorded.graph, recorded.inputs("second"))
    recorded.judge(list(outputs.values()), "second", close=False)


def check_format(recorded: Recorded, format: ExportFormat) -> None:
    """Export the recording, load it, and run it on the other draw in its own runtime."""
    backend = backend_for(format)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{format.value}"
        example = tuple(recorded.inputs("first").values())
        backend.write(recorded.graph, example, path, ExportOptions())
        run = backend.open(path, recorded.graph.spec)
        outputs = run(recorded.inputs("second"))
    recorded.judge(list(outputs.values()), "second", close=True)


def is_random(trial: Trial) -> bool:
    """Whether an eager call draws."""
    state = torch.get_rng_state()
    trial.run([tensor.clone() for tensor in trial.sample.first])
    return not torch.equal(state, torch.get_rng_state())


def kind_of(subject: Subject) -> Kind:
    return row_of(subject.function).kind
