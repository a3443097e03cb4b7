"""Is a program's recording right? Runs it untraced and traced, and the recording on inputs that were not traced."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from programs import PRELUDE, Program
from torch import fx

from leapp._spec import ExportFormat, NodeSpec, Port
from leapp.errors import ExportError, LeappError
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.trace.constants import no_hooks, same_bytes
from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORMATS = (ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX)
ROOT = Path(__file__).parents[2]


class WrongError(AssertionError):
    """A program's recording, or what the user saw while it was traced, is not what the untraced program gives."""


@dataclass
class Verdict:
    """What came of one program."""

    program: Program
    refused: str = ""
    """The error of ours that named what cannot be recorded; empty when it was recorded."""
    skipped: bool = False
    """Untraced, it does not run on the second set."""
    graph: NodeGraph | None = None
    first: dict[str, torch.Tensor] = field(default_factory=dict)
    """The untraced program's outputs on the first set."""
    expected: dict[str, torch.Tensor] = field(default_factory=dict)
    """The untraced program's outputs on the second set."""
    second: dict[str, torch.Tensor] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _prelude() -> Any:
    return compile(PRELUDE, str(ROOT / "prelude.py"), "exec")


def _world(program: Program, which: int) -> dict[str, Any]:
    """All that a program finds: what lies outside, and its inputs of one set; nothing shared with another call."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(_prelude(), namespace)
    exec("\n".join(program.outside), namespace)
    for name, value in zip(program.inputs, program.sets[which], strict=True):
        namespace[name] = eval(value, namespace)
    return namespace


def _code(program: Program) -> Any:
    return compile("\n".join(program.body), str(ROOT / "program.py"), "exec")


def _tensors(namespace: dict[str, Any]) -> dict[str, torch.Tensor]:
    found = {name: value for name, value in namespace.items() if isinstance(value, torch.Tensor)}
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module):
            found |= {f"{name}.{key}": each for key, each in value.state_dict(keep_vars=True).items()}
    return found


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    with no_hooks():
        return tensor.detach().resolve_conj().resolve_neg().clone()


def _difference(actual: torch.Tensor, expected: torch.Tensor, *, rounded: bool) -> str:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    actual, expected = _plain(actual), _plain(expected)
    if same_bytes(actual, expected):
        return ""
    if rounded or actual.is_floating_point() or actual.is_complex():
        tight = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(actual.dtype, 1e-5) if rounded else 0.0
        if torch.allclose(actual, expected, rtol=tight, atol=tight, equal_nan=True):
            return ""
    return f"{actual.tolist()} instead of {expected.tolist()}"


def judge(program: Program) -> Verdict:
    """Trace a program and evaluate its recording. Raises WrongError."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), torch.no_grad():
        warnings.simplefilter("ignore")
        code = _code(program)
        first, second = _world(program, 0), _world(program, 1)
        verdict = Verdict(program)
        exec(code, first)
        try:
            exec(code, second)
        except Exception:  # an index or a divisor of the second set that torch refuses
            verdict.skipped = True
            return verdict
        traced = _world(program, 0)
        session = Session(SessionOptions(name="programs", folder=Path("unused"), root=ROOT))
        try:
            session.input_tensors("n", {name: traced[name] for name in program.inputs})
            exec(code, traced)
            session.output_tensors("n", {f"out{i}": traced[name] for i, name in enumerate(program.outputs)})
        except LeappError as error:
            verdict.refused = f"{type(error).__name__}: {error}"
            return verdict
        except Exception as error:
            raise WrongError(f"the traced program raised {type(error).__name__}: {error}") from error
        finally:
            session.stop()
        _same_world(traced, first)
        verdict.graph = run_passes(session.completed[0].recordings[0].graph, EXPORT_PASSES)
        check_graph(verdict.graph)
        fresh = _world(program, 1)
        verdict.second = {name: fresh[name] for name in program.inputs}
        verdict.first = {f"out{i}": _plain(first[name]) for i, name in enumerate(program.outputs)}
        verdict.expected = {f"out{i}": _plain(second[name]) for i, name in enumerate(program.outputs)}
        kept = {name: each.clone() for name, each in verdict.second.items()}
        for attempt in ("", " when run again"):
            try:
                outputs = run_graph(verdict.graph, verdict.second)
            except Exception as error:
                raise WrongError(f"the recording raised {type(error).__name__}: {error}") from error
            for name, value in outputs.items():
                found = _difference(value, verdict.expected[name], rounded=program.rounded)
                if found:
                    raise WrongError(f"{name} of the recording{attempt} is {found}")
            if any(not same_bytes(each, kept[name]) for name, each in verdict.second.items()):
                raise WrongError("the recording wrote its inputs")
        return verdict


def _same_world(traced: dict[str, Any], untraced: dict[str, Any]) -> None:
    """The user's values are those of the untraced run, bit for bit; and so are their types."""
    ours, theirs = _tensors(traced), _tensors(untraced)
    if ours.keys() != theirs.keys():
        raise WrongError(f"other names: {ours.keys() ^ theirs.keys()}")
    for name, value in ours.items():
        expected = theirs[name]
        if type(value) is not type(expected):
            raise WrongError(f"{name} is a {type(value)} instead of {type(expected)} when the session has ended")
        if value.stride() != expected.stride() or value.is_conj() != expected.is_conj():
            raise WrongError(f"{name} has strides {value.stride()} instead of {expected.stride()} while traced")
        found = _difference(value, expected, rounded=False)
        if found:
            raise WrongError(f"{name} is {found} while it was traced")


# --- formats ----------------------------------------------------------------------------------------------------------


def merged(verdicts: Sequence[Verdict]) -> tuple[NodeGraph, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Several recordings side by side in one: the graph, inputs and expected outputs by port."""
    graph = fx.Graph()
    placeholders: list[dict[Any, Any]] = []
    constants: dict[str, torch.Tensor] = {}
    inputs: dict[str, torch.Tensor] = {}
    expected: dict[str, torch.Tensor] = {}
    in_ports, out_ports, results = [], [], []
    sources = {}
    for index, verdict in enumerate(verdicts):
        assert verdict.graph is not None
        known: dict[Any, Any] = {}
        for node in verdict.graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = graph.placeholder(f"p{index}_{node.target}")
        placeholders.append(known)
        in_ports += [Port(f"p{index}_{port.name}", port.spec) for port in verdict.graph.spec.inputs]
        out_ports += [Port(f"p{index}_{port.name}", port.spec) for port in verdict.graph.spec.outputs]
        inputs |= {f"p{index}_{name}": each for name, each in verdict.second.items()}
        expected |= {f"p{index}_{name}": each for name, each in verdict.expected.items()}
    for index, (verdict, known) in enumerate(zip(verdicts, placeholders, strict=True)):
        recording = verdict.graph
        for node in recording.graph.nodes:
            if node.op == "output":
                value = node.args[0]
                results += [known[each] for each in (value if isinstance(value, (tuple, list)) else (value,))]
            elif node.op == "get_attr":
                constants[f"p{index}_{node.target}".replace(".", "_")] = recording.constants[node.target]
                known[node] = graph.get_attr(f"p{index}_{node.target}".replace(".", "_"))
            elif node.op != "placeholder":
                known[node] = graph.node_copy(node, known.__getitem__)
                if node.name in recording.sources:
                    sources[known[node].name] = recording.sources[node.name]
    graph.output(tuple(results) if len(results) > 1 else results[0])
    for node in graph.nodes:
        node.meta.clear()
    spec = NodeSpec("programs", tuple(in_ports), tuple(out_ports))
    return NodeGraph(spec, graph, constants, sources), inputs, expected


def export(verdicts: Sequence[Verdict], format: ExportFormat, folder: Path) -> dict[int, str]:
    """Export recordings as one file and run it; gives the refusals by index. Raises WrongError.

    What cannot be exported with the others is exported by halves.
    """
    if not verdicts:
        return {}
    graph, inputs, expected = merged(verdicts)
    backend = backend_for(format)
    path = folder / f"programs{format.suffix}"
    failure: Exception | None = None
    written = False
    outputs: dict[str, torch.Tensor] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            backend.write(graph, tuple(inputs.values()), path, ExportOptions())
            run = backend.open(path, graph.spec)
            written = True
            outputs = run(inputs)
        except Exception as error:
            failure = error
    # Not below ``except``: what fails next would name this failure as its cause.
    if failure is not None and len(verdicts) > 1:
        half = len(verdicts) // 2
        found = export(verdicts[:half], format, folder)
        return found | {half + i: why for i, why in export(verdicts[half:], format, folder).items()}
    if isinstance(failure, ExportError):
        return {0: f"{type(failure).__name__}: {failure}"}
    if written and failure is not None:  # compile_graph runs every artifact, and says that this one does not
        return {0: f"ValidationError: the artifact does not run: {failure}"}
    if failure is not None:
        text = f"{format.value} raised {type(failure).__name__}: {failure}"
        raise WrongError(f"{text}\n\n{verdicts[0].program.text}")
    wrong: list[tuple[int, str]] = []
    refused: dict[int, str] = {}
    for name, value in outputs.items():
        index = int(name[1:].partition("_")[0])
        if value.dtype != expected[name].dtype or value.shape != expected[name].shape:
            # The first sample shows it: compile_graph refuses the artifact by name.
            refused[index] = "ValidationError: an output of another dtype or shape"
            continue
        found = _difference(value, expected[name], rounded=True)
        if found:
            wrong.append((index, f"{format.value}: {name.partition('_')[2]} is {found}"))
    if wrong:
        index, text = wrong[0]
        raise WrongError(f"{text}\n\n{verdicts[index].program.text}")
    return refused


def computes_complex(verdict: Verdict) -> bool:
    """Whether complex numbers occur anywhere; no ONNX runtime takes them."""
    assert verdict.graph is not None
    return any(spec.dtype.startswith("complex") for spec in verdict.graph.specs.values())


def smaller(program: Program, is_wrong: Callable[[Program], bool]) -> Program:
    """A program that is wrong as well and of which no statement can be left out."""
    index = len(program.body) - 1
    while index >= 0:
        less = replace(program, body=(*program.body[:index], *program.body[index + 1 :]))
        try:
            wrong = is_wrong(less)
        except Exception:  # a later statement needs this one
            wrong = False
        program = less if wrong else program
        index -= 1
    return program
