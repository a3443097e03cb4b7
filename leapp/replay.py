"""Run samples through an artifact and compare: the one check behind validation, ``leapp replay`` and the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leapp.compare import Difference, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from leapp._spec import NodeSpec

RTOL = 1e-3
ATOL = 1e-5


@dataclass(frozen=True, slots=True)
class PortReport:
    """One output port over all samples: the sample that was furthest off."""

    port: str
    samples: int
    sample: int
    """Index of the sample that ``difference`` speaks of."""
    difference: Difference

    @property
    def ok(self) -> bool:
        """Whether every sample was within the tolerances."""
        return self.difference.ok


@dataclass(frozen=True, slots=True)
class FormatReport:
    """One artifact: its ports, or why it could not be run at all."""

    format: str
    ports: tuple[PortReport, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the artifact ran and every port agreed."""
        return not self.error and all(port.ok for port in self.ports)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All artifacts of one node; false in a boolean context."""

    node: str
    formats: tuple[FormatReport, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        """Whether every artifact agreed."""
        return all(each.ok for each in self.formats)

    def __bool__(self) -> bool:
        return False

    def lines(self) -> list[str]:
        """One line per failing port or format."""
        found = []
        for each in self.formats:
            if each.error:
                found.append(f"{self.node} ({each.format}): {each.error}")
            found.extend(f"{self.node} ({each.format}): {describe(port)}" for port in each.ports if not port.ok)
        return found


def describe(port: PortReport) -> str:
    """A port's report in words."""
    found = port.difference
    if found.note:
        return f"output {port.port!r}: {found.note}: expected {found.expected}, got {found.actual}"
    return (
        f"output {port.port!r}: largest difference {found.largest:.3g} at {list(found.where or ())} of sample "
        f"{port.sample}: expected {found.expected}, got {found.actual}"
    )


def replay(
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    spec: NodeSpec,
    samples: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
) -> tuple[PortReport, ...]:
    """Run each sample and compare every output element by element.

    Args: run: an artifact by port name. samples: (inputs, outputs) by port name, at least one; tensors or arrays.
        atol: in the output's own unit.
    Returns: one row per port with the worst sample. A mismatch is a result, not an exception.
    """
    worst: dict[str, tuple[int, Difference]] = {}
    for index, (inputs, outputs) in enumerate(samples):
        results = run(inputs)
        for port in spec.outputs:
            found = compare(as_array(results[port.name]), as_array(outputs[port.name]), rtol=rtol, atol=atol)
            known = worst.get(port.name)
            if known is None or (not found.ok, found.largest) > (not known[1].ok, known[1].largest):
                worst[port.name] = (index, found)
    return tuple(PortReport(port, len(samples), index, found) for port, (index, found) in worst.items())


def as_array(value: Any) -> npt.NDArray[Any]:
    """A tensor or array as a NumPy array; bfloat16, which NumPy lacks, widens to float32 without loss."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        value = value.numpy()
    array: npt.NDArray[Any] = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
