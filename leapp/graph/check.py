"""Is this graph well formed, and does it compute what was recorded?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch

from leapp.compare import compare
from leapp.errors import MalformedGraphError, NotReplayableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leapp.graph._base import NodeGraph

_NEIGHBOURS = 2


def check_graph(recording: NodeGraph) -> None:
    """Raise MalformedGraphError, with the bad line and its neighbours, when a graph breaks a rule.

    Rules: placeholders first and one per input; every argument defined above; names unique; every ``get_attr`` has a
    constant; one output per output port; ``node.meta`` empty, because exporters write it into files.
    """
    lines = list(recording.graph.nodes)
    defined: set[torch.fx.Node] = set()
    names: set[str] = set()
    past_inputs = False
    for index, node in enumerate(lines):
        problem = ""
        if node.op == "placeholder" and past_inputs:
            problem = "an input after the first operation"
        elif any(source not in defined for source in node.all_input_nodes):
            problem = "an argument that is not defined above"
        elif node.name in names:
            problem = "a name that is taken"
        elif node.op == "get_attr" and node.target not in recording.constants:
            problem = "a constant that does not exist"
        elif node.meta:
            problem = "metadata that would be written into the files"
        if problem:
            excerpt = "\n".join(
                f"{'->' if offset == index else '  '} {lines[offset].format_node()}"
                for offset in range(max(0, index - _NEIGHBOURS), min(len(lines), index + _NEIGHBOURS + 1))
            )
            raise MalformedGraphError(node=recording.spec.name, problem=problem, excerpt=excerpt)
        past_inputs = past_inputs or node.op != "placeholder"
        defined.add(node)
        names.add(node.name)
    inputs = sum(node.op == "placeholder" for node in lines)
    if inputs != len(recording.spec.inputs):
        raise MalformedGraphError(node=recording.spec.name, problem=f"{inputs} inputs", excerpt="")


def run_graph(
    recording: NodeGraph, inputs: Mapping[str, torch.Tensor], *, grad: bool = False
) -> dict[str, torch.Tensor]:
    """Evaluate a recording by port name with torch itself.

    The graph must not write its inputs or constants: it has been through ``copy_written``. ``grad`` evaluates it as
    training code does, with constants that require gradients: some kernels are chosen by that.
    """
    if grad:
        constants = {
            name: value.detach().requires_grad_() if value.is_floating_point() else value
            for name, value in recording.constants.items()
        }
        recording = replace(recording, constants=constants)
    with torch.set_grad_enabled(grad):
        result = recording.module()(*(inputs[port.name] for port in recording.spec.inputs))
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return {port.name: value.detach() for port, value in zip(recording.spec.outputs, outputs, strict=True)}


def check_replays(
    recording: NodeGraph,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Raise NotReplayableError unless the graph gives the recorded outputs of a sample bit for bit.

    Where calls of NumPy were translated, the outputs are NumPy's, and the tolerances hold.
    """
    limits = (rtol, atol) if recording.translated else None
    found = _first_difference(recording, inputs, outputs, limits, grad=False)
    if found is not None and _first_difference(recording, inputs, outputs, limits, grad=True) is not None:
        port, detail = found
        raise NotReplayableError(node=recording.spec.name, port=port, detail=detail, signs=_signs(recording), seen="")


_OF_ANY_SIGN: Final = {
    torch.linalg.eigh: "eigh",
    torch.linalg.eig: "eig",
    torch.linalg.svd: "svd",
    torch.linalg.qr: "qr",
}


def _signs(recording: NodeGraph) -> str:
    """What to do about vectors that NumPy and torch give with other signs; "" for a graph that holds none."""
    found = next((each for each in recording.graph.nodes if each.target in _OF_ANY_SIGN), None)
    if found is None or not recording.translated:
        return ""
    source = recording.sources.get(found.name)
    call = f"{_OF_ANY_SIGN[found.target]} ({source})" if source is not None else _OF_ANY_SIGN[found.target]
    return (
        f" It holds {call}: the signs of its vectors are LAPACK's choice, and NumPy's LAPACK is another than torch's. "
        "Fix them yourself, right after the call: "
        "v *= np.sign(np.take_along_axis(v, np.abs(v).argmax(-2, keepdims=True), -2)), and a second factor by the same "
        "signs."
    )


def _first_difference(
    recording: NodeGraph,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    limits: tuple[float, float] | None,
    *,
    grad: bool,
) -> tuple[str, str] | None:
    from leapp.trace.constants import same_bytes

    for port, value in run_graph(recording, inputs, grad=grad).items():
        expected = outputs[port]
        if value.dtype != expected.dtype or value.shape != expected.shape:
            return port, f"{value.dtype}{list(value.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if same_bytes(value, expected):
            continue
        if limits is None:
            return port, "other values"
        actual, wanted = (each.resolve_conj().resolve_neg().contiguous().numpy() for each in (value, expected))
        difference = compare(actual, wanted, rtol=limits[0], atol=limits[1])
        if not difference.ok:
            return port, f"{difference.actual} instead of {difference.expected} at {list(difference.where or ())}"
    return None
