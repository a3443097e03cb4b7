"""What ``leapp run`` shows: the last outputs, and how long ticks and nodes took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp.replay import as_array
from leapp.report.text import Cell, counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from leapp._spec import JSON, PipelineSpec
    from leapp.report.text import Printer
    from leapp.runtime.play import Played

_SHOWN: Final = 8
_MOST_IN_JSON: Final = 1024


def show(
    played: Played,
    spec: PipelineSpec,
    backends: Mapping[str, str],
    bundle: str,
    printer: Printer,
    *,
    seed: int | None = None,
) -> None:
    """Print a run; ``seed`` is that of random inputs, where none were given."""
    state = Cell("failed", "bad") if played.error is not None else Cell("ok", "good")
    odd = _not_finite(played, spec)
    said = Cell(f"; not finite at the last tick: {', '.join(odd)}" if odd else "", "warn")
    inputs = f" of random inputs (seed {seed}); --inputs FILE gives others" if seed is not None else ""
    printer.line(state, f"  {bundle}  ", Cell(f"{counted(played.ticks, 'tick')}{inputs}", "soft"), said)
    if played.ticks:
        rows = [(key, _type(key, spec), _short(value)) for key, value in _arrays(played, spec).items()]
        printer.table(("Output", "Type", "At the last tick"), rows)
    if len(played.tick_ns) > 1:
        named = [(node, backends[node], times) for node, times in played.node_ns.items()]
        rows_ns = [*named, ("tick", "", played.tick_ns)]
        head = ("Node", "Runs as", "First", "p50", "p99", "Max")
        cells = [(name, runs_as, *(f"{each:.1f} us" for each in _summary(times))) for name, runs_as, times in rows_ns]
        printer.line("")
        printer.table(head, cells, numbers=(2, 3, 4, 5))
        printer.line(Cell("p50, p99 and max without the first tick; 'tick' is all of one, checks included.", "soft"))


def _not_finite(played: Played, spec: PipelineSpec) -> list[str]:
    """Outputs of the last tick that hold a NaN or an infinity."""
    return [
        key for key, array in _arrays(played, spec).items() if array.dtype.kind in "fc" and not np.isfinite(array).all()
    ]


def as_json(played: Played, spec: PipelineSpec, backends: Mapping[str, str]) -> dict[str, JSON]:
    """A run for machines; times in microseconds, large outputs without their values."""
    record: dict[str, JSON] = {
        "ticks": played.ticks,
        "runs_as": dict(backends),
        "outputs": {
            key: {
                "dtype": _ports(spec)[key].spec.dtype,
                "shape": list(value.shape),
                "values": _json(value.tolist()) if value.size <= _MOST_IN_JSON else None,
            }
            for key, value in _arrays(played, spec).items()
        },
        "time_us": None,
    }
    if len(played.tick_ns) > 1:
        names = ("first", "p50", "p99", "max")
        record["time_us"] = {
            "tick": dict(zip(names, _summary(played.tick_ns), strict=True)),
            "nodes": {node: dict(zip(names, _summary(ns), strict=True)) for node, ns in played.node_ns.items()},
        }
    return record


def _summary(times_ns: Sequence[int]) -> tuple[float, ...]:
    """The first time, then p50, p99 and the largest of the others, in microseconds."""
    first, *others = times_ns
    p50, p99 = np.percentile(others, (50, 99))
    return tuple(round(float(each) / 1000, 1) for each in (first, p50, p99, max(others)))


def _ports(spec: PipelineSpec) -> dict[str, Any]:
    return {f"{node.name}/{port.name}": port for node in spec.nodes for port in node.outputs}


def _arrays(played: Played, spec: PipelineSpec) -> dict[str, npt.NDArray[Any]]:
    """The outputs as arrays; bfloat16 bits as the numbers they stand for."""
    ports = _ports(spec)
    arrays = {}
    for key, value in played.outputs.items():
        array = as_array(value)
        if ports[key].spec.dtype == "bfloat16" and array.dtype == np.uint16:
            array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        arrays[key] = array
    return arrays


def _type(key: str, spec: PipelineSpec) -> str:
    tensor = _ports(spec)[key].spec
    return f"{tensor.dtype}{list(tensor.shape)}"


def _short(array: npt.NDArray[Any]) -> str:
    """A few values, or what they range over."""
    if array.size <= _SHOWN:
        with np.printoptions(precision=5, suppress=True, linewidth=10_000, threshold=_SHOWN + 1):
            return str(array).replace("\n", "")
    if array.dtype.kind not in "fiu":
        return f"{array.size} elements"
    finite = array[np.isfinite(array)]
    odd = f", {array.size - finite.size} not finite" if finite.size < array.size else ""
    if not finite.size:
        return f"{array.size} elements, none finite"
    return f"{finite.min():.5g} .. {finite.max():.5g}, mean {finite.mean(dtype=np.float64):.5g}{odd}"


def _json(value: Any) -> JSON:
    """Nested lists as JSON has them: what is not finite, and complex numbers, as text."""
    if isinstance(value, list):
        return [_json(each) for each in value]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    number: JSON = value
    return number
