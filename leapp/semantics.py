"""What a port means: its kind, the names of its elements, and free facts, as they go into the runtime file.

Everything here is checked without the tensor as soon as it is said; lengths are checked when it is traced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from leapp.errors import ElementNamesError, OptionError, SemanticsError, SemanticsTypeError

if TYPE_CHECKING:
    from leapp._spec import JSON

TEMPORAL_AXIS: Final = "__temporal_axis__"
"""What stands for an axis of time among the element names of the runtime file."""

RESERVED_FIELDS: Final = ("name", "dtype", "shape", "type", "kind", "element_names", "temporal_period_ms", "start")
"""Fields of a port that are ours; no free field may bear one of these names."""

_OWN_WAY: Final = {
    "kind": "it is an argument of TensorSemantics: kind=...",
    "element_names": "it is an argument of TensorSemantics: element_names=...",
    "temporal_period_ms": "it follows from element_names=[TemporalAxis(period_ms), ...]",
    "start": "how a state starts is said in the manifest: [nodes.NODE.state]",
}


@dataclass(frozen=True, slots=True)
class TemporalAxis:
    """An axis whose elements are moments, ``period_ms`` milliseconds apart (above 0); for ``element_names``.

    Raises:
        SemanticsError: the period is no positive, finite number.
    """

    period_ms: float

    def __post_init__(self) -> None:
        period = _number(self.period_ms)
        if period is None or not 0 < period < math.inf:
            raise SemanticsError(
                where="TemporalAxis", why=f"period_ms={self.period_ms!r} is no period",
                advice="Give the time between two elements in milliseconds, a number above 0.",
            )  # fmt: skip
        object.__setattr__(self, "period_ms", period)


@dataclass(frozen=True)
class GraphConfigs:
    """Facts about the whole pipeline for the runtime file.

    Args:
        frequency: the rate in Hz, a finite number above 0.
        extra: free fields, written flat and sorted under ``pipeline.configs``. Plain JSON values.

    Raises:
        OptionError: the rate is none.
        SemanticsError: a free field is called ``frequency``, or holds a number that is not finite.
        SemanticsTypeError: a free field holds what JSON does not have.
    """

    frequency: float | None = None
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        rate = self.frequency
        if rate is not None:
            rate = _number(rate)
            if rate is None or not 0 < rate < math.inf:
                raise OptionError(
                    option="frequency", value=self.frequency, why="it is a rate in Hz and must be a number above 0"
                )
            object.__setattr__(self, "frequency", rate)
        if "frequency" in _plain_fields("GraphConfigs", self.extra or {}):
            raise SemanticsError(
                where="GraphConfigs", why="the free field 'frequency' is a field of LEAPP",
                advice="Choose another key; the rate in Hz is an argument: GraphConfigs(frequency=50).",
            )  # fmt: skip

    def as_json(self) -> dict[str, JSON]:
        """The fields as they stand in the runtime file."""
        fields = _plain_fields("GraphConfigs", self.extra or {})
        if self.frequency is not None:
            fields["frequency"] = self.frequency
        return dict(sorted(fields.items()))


@dataclass(eq=False)
class TensorSemantics:
    """A port and what it means, in place of a dict: ``annotate.input_tensors(node, [TensorSemantics(...)])``.

    Args:
        name: name of the port.
        ref: the tensor or array. A nesting of them works too where no fact is given: no fact fits each of its tensors.
        kind: what the port holds: a member of ``InputKindEnum`` or ``OutputKindEnum``, or any other text.
        element_names: one name; a list of them, for the last axis; or a list with an entry per axis: a list of names,
            None, or a ``TemporalAxis``. Lists of names for the last axes alone are fine where an outer axis, such as
            one of robots, needs none. As many names as the axis is long, checked when the port is traced.
        extra: free fields, written flat beside the others, in plain JSON values. ``unit`` (text), ``range`` (lowest and
            highest value in that unit, each a number or a list for the last axis) and ``description`` (text) are known
            to other tools; the rest is up to you.

    Raises:
        SemanticsError: a fact that cannot be: a field of ours among the free ones, an empty kind, a wrong range.
        SemanticsTypeError: a fact of a wrong type.
        ElementNamesError: element names that are no such list, that are given twice, or as many as no axis is long.
    """

    name: str
    ref: Any = field(repr=False)
    kind: str | None = None
    element_names: str | Sequence[str] | Sequence[Sequence[str] | TemporalAxis | None] | None = None
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SemanticsTypeError(
                where="TensorSemantics", why=f"its name is a {_kind(self.name)}", advice="Give the port's name as text."
            )
        self.facts(f"Port {self.name!r}")

    def facts(self, where: str, shape: Sequence[int] | None = None) -> dict[str, JSON]:
        """The fields of the runtime file that this says; messages name the port as ``where`` does.

        Element names become a list per axis of ``shape``; without one, their lengths are not looked at.
        """
        return port_facts(where, shape, kind=self.kind, element_names=self.element_names, extra=self.extra)

    @property
    def says_something(self) -> bool:
        """Whether there is any fact beside the name."""
        return self.kind is not None or self.element_names is not None or bool(self.extra)


@dataclass(frozen=True, slots=True)
class PortFacts:
    """What a manifest says of a port: ``[nodes.NODE.ports.PORT]``. None: nothing."""

    kind: str | None = None
    element_names: str | Sequence[str] | Sequence[Sequence[str] | TemporalAxis | None] | None = None
    unit: str | None = None
    range: Sequence[float | Sequence[float]] | None = None
    description: str | None = None

    def facts(self, where: str, shape: Sequence[int] | None = None) -> dict[str, JSON]:
        """The fields of the runtime file that this says, as ``TensorSemantics.facts`` gives them."""
        said = {"unit": self.unit, "range": self.range, "description": self.description}
        extra = {key: value for key, value in said.items() if value is not None}
        return port_facts(where, shape, kind=self.kind, element_names=self.element_names, extra=extra)


def port_facts(
    where: str, shape: Sequence[int] | None, *, kind: Any = None, element_names: Any = None, extra: Any = None
) -> dict[str, JSON]:
    """Checked facts of a port, in plain JSON values and in the order of the runtime file."""
    facts: dict[str, JSON] = {}
    if kind is not None:
        facts["kind"] = _kind_text(where, kind)
    if element_names is not None:
        facts |= _named_axes(where, element_names, shape)
    if extra is not None:
        facts |= _free_fields(where, extra, shape)
    return facts


def _kind_text(where: str, kind: Any) -> str:
    text = kind.value if isinstance(kind, Enum) else kind
    if not isinstance(text, str):
        raise SemanticsTypeError(
            where=where, why=f"kind is a {_kind(kind)}",
            advice="Give a member of InputKindEnum or OutputKindEnum, or any other text.",
        )  # fmt: skip
    if not text:
        raise SemanticsError(where=where, why="kind is empty", advice="Leave it out, or name a kind.")
    return str(text)


# --- element names -------------------------------------------------------------------------------------------------


def _named_axes(where: str, given: Any, shape: Sequence[int] | None) -> dict[str, JSON]:
    axes = _axes(where, given)
    names_only = all(isinstance(axis, list) for axis in axes)
    first = 0
    if shape is not None:
        if shape == () and len(axes) == 1 and names_only:
            shape = (1,)  # one element, which may have a name although there is no axis
        if len(axes) > len(shape) or (len(axes) < len(shape) and not names_only):
            entries = "one axis" if len(axes) == 1 else f"{len(axes)} axes"
            raise ElementNamesError(where=where, why=f"are given for {entries} of a port of shape {list(shape)}")
        first = len(shape) - len(axes)
        for axis, names in enumerate(axes, start=first):
            if isinstance(names, list) and len(names) != shape[axis]:
                raise ElementNamesError(
                    where=where,
                    why=f"of axis {axis} are {len(names)}, and that axis of {list(shape)} is {shape[axis]} long: "
                    f"{_few(names)}",
                )
    if all(axis is None for axis in axes):
        return {}
    periods = [axis.period_ms for axis in axes if isinstance(axis, TemporalAxis)]
    if len(periods) > 1:
        raise ElementNamesError(where=where, why="hold more than one TemporalAxis")
    fields: dict[str, JSON] = {
        "element_names": [None] * first + [TEMPORAL_AXIS if isinstance(axis, TemporalAxis) else axis for axis in axes]
    }
    return fields | ({"temporal_period_ms": periods[0]} if periods else {})


def _axes(where: str, given: Any) -> list[list[str] | TemporalAxis | None]:
    """The entries by axis, the last axis alone where there is one list or one name."""
    if isinstance(given, str):
        return [_names(where, [given], "")]
    if not isinstance(given, list | tuple):
        raise SemanticsTypeError(
            where=where, why=f"element_names is a {_kind(given)}",
            advice='Give one name, a list of them, or a list per axis: [TemporalAxis(20), ["hip", "knee"]].',
        )  # fmt: skip
    if not given:
        raise ElementNamesError(where=where, why="are empty")
    if all(isinstance(each, str) for each in given):
        return [_names(where, given, "")]
    axes: list[list[str] | TemporalAxis | None] = []
    for axis, each in enumerate(given):
        if each is None or isinstance(each, TemporalAxis):
            axes.append(each)
        elif isinstance(each, list | tuple):
            axes.append(_names(where, each, f" of axis {axis}"))
        else:
            shown = repr(each) if isinstance(each, str) else f"a {_kind(each)}"
            raise SemanticsTypeError(
                where=where, why=f"element_names hold {shown} as the entry of axis {axis}",
                advice="An entry per axis is a list of names, None, or a TemporalAxis; a list of names alone is for "
                "the last axis.",
            )  # fmt: skip
    return axes


def _names(where: str, given: Sequence[Any], axis: str) -> list[str]:
    for index, name in enumerate(given):
        if not isinstance(name, str):
            raise SemanticsTypeError(
                where=where, why=f"element name {index}{axis} is a {_kind(name)}", advice="Element names are text."
            )
        if not name:
            raise ElementNamesError(where=where, why=f"{axis[1:] or 'of the last axis'}: name {index} is empty")
    names = [str(name) for name in given]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ElementNamesError(
            where=where,
            why=f"{axis[1:] or 'of the last axis'}: {twice[0]!r} stands there {names.count(twice[0])} times",
        )
    return names


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:4])}, ..., {names[-1]}"


# --- free fields ---------------------------------------------------------------------------------------------------


def _free_fields(where: str, extra: Any, shape: Sequence[int] | None) -> dict[str, JSON]:
    fields = _plain_fields(where, extra)
    for key in RESERVED_FIELDS:
        if key in fields:
            raise SemanticsError(
                where=where, why=f"the free field {key!r} is a field of LEAPP",
                advice=f"Choose another key; {_OWN_WAY[key]}." if key in _OWN_WAY else "Choose another key.",
            )  # fmt: skip
    for key in (*_TEXTS, "range"):
        if fields.get(key, "") is None:  # a client that always names them says nothing by that
            del fields[key]
    for key in _TEXTS:
        if not isinstance(fields.get(key, ""), str):
            raise SemanticsTypeError(
                where=where, why=f"{key} is a {_kind(fields[key])}", advice=f"Give the {key} as text."
            )
    if "range" in fields:
        _check_range(where, fields["range"], shape)
    return fields


def _plain_fields(where: str, extra: Any) -> dict[str, JSON]:
    """Free fields, sorted, in plain JSON values."""
    if not isinstance(extra, Mapping):
        raise SemanticsTypeError(
            where=where, why=f"extra is a {_kind(extra)}", advice='Give a dict of free fields: extra={"unit": "rad"}.'
        )
    fields: dict[str, JSON] = {}
    for key, value in extra.items():
        if not isinstance(key, str):
            raise SemanticsTypeError(
                where=where, why=f"extra has the key {key!r}, a {_kind(key)}", advice="Keys of free fields are text."
            )
        fields[str(key)] = plain_value(value, where, key)
    return dict(sorted(fields.items()))


def plain_value(value: Any, where: str, key: str) -> JSON:
    """``value`` in plain JSON values; NumPy's numbers and arrays, tuples and enums become such.

    Raises:
        SemanticsError: a number that is not finite.
        SemanticsTypeError: something that JSON does not have.
    """
    if isinstance(value, Enum):
        value = value.value
    elif type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SemanticsError(
                where=where, why=f"{key} is {value}, which is not finite",
                advice="Leave it out; the runtime file holds finite numbers.",
            )  # fmt: skip
        return value
    if isinstance(value, Mapping):
        for inner in value:
            if not isinstance(inner, str):
                raise SemanticsTypeError(
                    where=where, why=f"{key} has the key {inner!r}, a {_kind(inner)}", advice="Keys are text."
                )
        return {str(inner): plain_value(each, where, f"{key}.{inner}") for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each, where, f"{key}[{index}]") for index, each in enumerate(value)]
    raise SemanticsTypeError(
        where=where, why=f"{key} is a {_kind(value)}",
        advice="Free fields hold text, finite numbers, booleans, None, and lists and dicts of these.",
    )  # fmt: skip


def _check_range(where: str, value: Any, shape: Sequence[int] | None) -> None:
    why = range_problem(value)
    bounds = value if why is None else ()
    if not why and shape is not None:
        length = shape[-1] if shape else 1
        wrong = next((len(each) for each in bounds if isinstance(each, list) and len(each) != length), None)
        if wrong is not None:
            why = f"it has a list of {wrong} values, and the last axis of {list(shape)} is {length} long"
    if why:
        raise SemanticsError(
            where=where, why=f"range is {value!r}: {why}",
            advice="Give the lowest and the highest value in the port's own unit, such as [-3.14, 3.14]; each is a "
            "number or a list with one for each element of the last axis.",
        )  # fmt: skip


def range_problem(value: Any) -> str | None:
    """Why a value is no lowest and highest one, each a number or a list of numbers; None where it is."""

    def numbers(bound: Any) -> list[float] | None:
        each = bound if isinstance(bound, list) else [bound]
        return each if each and all(_number(item) is not None for item in each) else None

    if not isinstance(value, list) or len(value) != 2:
        return "it is no list of two"
    low, high = (numbers(each) for each in value)
    if low is None or high is None:
        return "its entries are neither numbers nor lists of numbers"
    if isinstance(value[0], list) and isinstance(value[1], list) and len(low) != len(high):
        return f"its lists are {len(low)} and {len(high)} long"
    longer = max(len(low), len(high))
    pairs = zip(low * longer if len(low) == 1 else low, high * longer if len(high) == 1 else high, strict=False)
    wrong = next(((first, last) for first, last in pairs if not first <= last), None)
    return None if wrong is None else f"{wrong[0]} is above {wrong[1]}"


_TEXTS: Final = ("unit", "description")
"""Free fields that people read."""


def _number(value: Any) -> float | None:
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _kind(thing: Any) -> str:
    kind = type(thing)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
