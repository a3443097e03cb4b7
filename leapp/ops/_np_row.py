"""What a row of the NumPy table is: a NumPy callable and its twin, or the reason why it has none.

A twin is a plain function over torch tensors with the signature of the NumPy function. It runs twice over: on tensors,
to be compared with what NumPy gave, and on the recorder's stand-ins, where each torch function that it calls is
appended to the graph. So it is written with torch functions, operators, ``to``, ``expand``, ``shape``, ``dtype`` and
``ndim``, and with nothing that reads a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp.ops._np_checks import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable

    from leapp.ops._np_checks import Check


class Unsupported(Exception):  # noqa: N818 - no error of the user's: the call is named in a warning, and runs
    """Raised by a twin for arguments that it has no equivalent for; its text says which and why."""


@dataclass(frozen=True, slots=True)
class Op:
    """A NumPy callable that is recorded.

    ``direct`` is the torch function of a ufunc whose operands are tensors of one dtype; ``numbers`` are the positions
    at which it also takes a Python number, and ``commutes`` lets a number at the first position change places.
    ``twin`` is used where ``direct`` does not fit, and for all that is no ufunc.

    Operands of a ufunc come to the twin cast to the dtypes of NumPy's own loop, and its result is cast to the loop's
    result; numbers at positions outside ``numbers`` come as tensors. Arguments of other functions come as they are,
    traced ones as tensors; ``leapp.ops._np_twin.tensor`` makes tensors of those that may be lists or arrays.
    """

    numpy: Callable[..., Any]
    direct: Any = None
    twin: Callable[..., Any] | None = None
    check: Check = EXACT
    numbers: tuple[int, ...] = ()
    commutes: bool = False
    kinds: str = "biufc"
    """Kinds of loop dtypes, as NumPy names them, that ``direct`` computes as NumPy does; ``twin`` has the others."""
    unsigned: Callable[..., Any] | None = None
    """Takes the place of ``direct`` and ``twin`` for unsigned integers; those above 8 bits come as int64."""
    uint64: Callable[..., Any] | None = None
    """Computes uint64, which comes as int64 of the same bits, where ``bits`` and ``ordered`` do not hold."""
    bits: bool = False
    """Gives the right bits for uint64 when it is run on int64."""
    ordered: bool = False
    """Follows from the order of its operands only: uint64 runs on int64 with the highest bit turned over."""
    elementwise: bool = False
    """Each element of the result follows from the elements at its place: a sample of them may be checked."""
    part: Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None] | None = None
    """Makes of the arguments of a large call those of a smaller one, which is checked in its place; None for none."""
    layout: bool = False
    """Moves elements and computes nothing: of every dtype, and a view where NumPy gives one."""
    writes: str = ""
    """Name of the parameter whose array is written; the twin gives what that array holds afterwards."""
    writes_if: Callable[..., bool] | None = None
    """Says of the arguments of a call whether it writes; None where every call does."""
    note: str = ""
    """Where NumPy and torch differ and the twin makes up for it; stands in the docs."""


@dataclass(frozen=True, slots=True)
class NoTwin:
    """A NumPy callable that takes data and is not recorded."""

    numpy: Callable[..., Any]
    why: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """A NumPy callable whose answer is no data of a model: files, text, dates, shapes of arrays, objects."""

    numpy: Callable[..., Any]
    why: str
    reads: bool = False
    """Takes the values out of an array, to where they may be read again."""


@dataclass(frozen=True, slots=True)
class Through:
    """A NumPy callable that calls what it is given.

    NumPy hands plain arrays to what it calls. ``function`` does the same work on traced arrays instead, by calls of
    NumPy that are recorded one by one; it has NumPy's own signature, and gives what NumPy gives.
    """

    numpy: Callable[..., Any]
    function: Callable[..., Any]
    note: str = ""


NumpyRow = Op | NoTwin | OutOfScope | Through


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one category, under the heading that the docs give it."""

    title: str
    rows: tuple[NumpyRow, ...] = field(default=())


LENGTH: Final = "the length of the result follows the data"
"""Why, of the rows of which it is so."""
