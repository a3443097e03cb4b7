"""What becomes of one item: recorded and exported by LEAPP, and exported by torch's own tools, on fresh inputs."""

from __future__ import annotations

import re
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from zoo_item import Item, Program, tensors_in

from leapp._spec import ExportFormat
from leapp.compare import compare
from leapp.errors import LeappError
from leapp.export._backend import ExportOptions, backend_for, undisturbed
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.replay import ATOL, RTOL, as_array
from leapp.trace.constants import same_bytes
from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Values = tuple[torch.Tensor, ...]

RECORDING: Final = "recording"
FORMATS: Final = {"torchscript": ExportFormat.TORCHSCRIPT, "pt2": ExportFormat.PT2, "onnx": ExportFormat.ONNX}
TOOLS: Final = ("torch.jit.trace", "torch.export", "torch.onnx")
COLUMNS: Final = (RECORDING, *FORMATS, *TOOLS)

TRACED, FRESH = 1, (2, 3)
"""Numbers of the sample that is recorded, and of those that are compared."""


@dataclass(frozen=True)
class Verdict:
    """What one tool made of one item.

    ``status``: "ok"; "refused" by an error of ours that names the line, with nothing written; "wrong" values, silently;
    "failed" otherwise.
    """

    status: str
    detail: str = ""
    seconds: float = 0.0


class _WrongError(Exception):
    """Values other than those of the code as it is."""


@dataclass
class Case:
    """An item with its samples and what the untraced code makes of them."""

    item: Item
    program: Program
    samples: dict[int, Values] = field(default_factory=dict)
    expected: dict[int, Values] = field(default_factory=dict)

    @classmethod
    def of(cls, item: Item) -> Case:
        """Build the item and run it untraced."""
        case = cls(item, item.program())
        for number in (TRACED, *FRESH):
            case.samples[number] = item.sample(number)
            torch.manual_seed(0)
            case.expected[number] = tuple(each.clone() for each in case.program(*case.inputs(number)))
        if not case.expected[TRACED]:
            raise ValueError(f"{item.name} returns no tensor")
        if all(map(same_bytes, case.expected[TRACED], case.expected[FRESH[0]])):
            raise ValueError(f"{item.name} gives the same for all inputs: nothing would be compared")
        return case

    def inputs(self, number: int) -> Values:
        """A sample in memory of its own."""
        return tuple(each.clone() for each in self.samples[number])

    def check(self, run: Callable[..., Any]) -> None:
        """Raise _WrongError unless ``run`` gives what the untraced code gives for every fresh sample."""
        for number in FRESH:
            found = list(tensors_in(run(*self.inputs(number))))
            if len(found) != len(self.expected[number]):
                raise _WrongError(f"{len(found)} outputs instead of {len(self.expected[number])}")
            for index, (value, expected) in enumerate(zip(found, self.expected[number], strict=True)):
                difference = compare(as_array(value), as_array(expected), rtol=RTOL, atol=ATOL)
                if not difference.ok:
                    raise _WrongError(
                        f"output {index}: {difference.note or f'off by {difference.largest:.3g}'}, expected "
                        f"{difference.expected}, got {difference.actual}"
                    )


def judge(item: Item, columns: Sequence[str] = COLUMNS) -> Iterator[tuple[str, Verdict]]:
    """One verdict per column, in order. Raises what the untraced code raises: such an item is no item."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = Case.of(item)
        recorded: list[NodeGraph] = []
        for column in columns:
            began = time.perf_counter()
            if column in TOOLS:
                verdict = _judged(lambda column=column: _TOOL_CHECKS[column](case))
            else:
                verdict = _judged(lambda column=column: _check_ours(case, column, recorded))
            yield column, Verdict(verdict.status, verdict.detail, round(time.perf_counter() - began, 3))


def _judged(check: Callable[[], str]) -> Verdict:
    try:
        return Verdict("ok", check())
    except _WrongError as error:
        return Verdict("wrong", str(error))
    except LeappError as error:
        named = re.search(r"\.py:\d+", str(error))
        return Verdict("refused" if named else "failed", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is what it made of the item
        lines = str(error).strip().splitlines() or [""]
        return Verdict("failed", f"{type(error).__name__}: {lines[0]}"[:400])


# --- ours ------------------------------------------------------------------------------------------------------------


def _check_ours(case: Case, column: str, recorded: list[NodeGraph]) -> str:
    if not recorded:
        recorded.append(_record(case))
    graph = recorded[0]
    if column == RECORDING:
        case.check(lambda *inputs: run_graph(graph, dict(zip(_ports(graph), inputs, strict=True))))
        return f"{len(graph.graph.nodes)} nodes"
    backend = backend_for(FORMATS[column])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        try:
            info = backend.write(graph, case.samples[TRACED], path, ExportOptions())
        except LeappError:
            if left := sorted(each.name for each in Path(folder).iterdir()):
                raise RuntimeError(f"refused, and left {left}") from None
            raise
        model = backend.open(path, graph.spec)
        case.check(lambda *inputs: model(dict(zip(_ports(graph), inputs, strict=True))))
    return ", ".join(f"{name}={value}" for name, value in info.details.items() if name == "method")


def _ports(graph: NodeGraph) -> list[str]:
    return [port.name for port in graph.spec.inputs]


def _record(case: Case) -> NodeGraph:
    """The item as one node, as a user records it; what was traced must be what the untraced code gives, bit by bit."""
    graph = _recorded(case, strict=False)
    graph = run_passes(graph, EXPORT_PASSES)
    check_graph(graph)
    try:
        case.check(lambda *inputs: run_graph(graph, dict(zip(_ports(graph), inputs, strict=True))))
    except _WrongError:
        # A read of a value is a warning while tracing and an error where it counts: in strict sessions and in builds.
        _recorded(case, strict=True)
        raise
    return graph


def _recorded(case: Case, *, strict: bool) -> NodeGraph:
    inputs = case.inputs(TRACED)
    allow = {"branches": case.item.branches}
    root = Path(__file__).parents[2]
    session = Session(SessionOptions(name="zoo", folder=Path("unused"), root=root, strict=strict, allow=allow))
    try:
        session.input_tensors("item", {f"x{index}": each for index, each in enumerate(inputs)})
        torch.manual_seed(0)
        result = case.program(*inputs)
        session.output_tensors("item", {f"y{index}": each for index, each in enumerate(result)})
    finally:
        session.stop()
    expected = case.expected[TRACED]
    for index, (value, wanted) in enumerate(zip(result, expected, strict=True)):
        if value.dtype != wanted.dtype or value.shape != wanted.shape or not same_bytes(value, wanted):
            apart = compare(as_array(value), as_array(wanted), rtol=0.0, atol=0.0)
            raise _WrongError(f"traced output {index} is not the untraced one: off by {apart.largest:.3g}")
    graph = session.completed[0].recordings[0].graph
    assert graph is not None
    return graph


# --- torch's own tools -----------------------------------------------------------------------------------------------


def _jit_trace(case: Case) -> str:
    with undisturbed():
        traced = torch.jit.trace(case.program, case.inputs(TRACED))
        case.check(traced)
    return ""


def _export(case: Case) -> str:
    with undisturbed():
        exported = torch.export.export(case.program, case.inputs(TRACED)).module()
        case.check(exported)
    return ""


def _onnx(case: Case) -> str:
    import onnxruntime

    with undisturbed(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        torch.onnx.export(case.program, case.inputs(TRACED), path, dynamo=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
            feeds = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
            return [torch.from_numpy(value) for value in session.run(None, feeds)]

        case.check(run)
    return ""


_TOOL_CHECKS: Final[dict[str, Callable[[Case], str]]] = {
    "torch.jit.trace": _jit_trace,
    "torch.export": _export,
    "torch.onnx": _onnx,
}
