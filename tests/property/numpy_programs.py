"""Random NumPy programs: small functions over small arrays, drawn statement by statement as Python text.

As for torch (``programs.py``), a program is drawn against a live run of itself: a statement that NumPy refuses is left
out. What rounds differently from kernel to kernel is kept away from what jumps: no comparison, no ``floor``, no sort of
a value that came of a sum of rounded numbers or of ``exp``. A sum that is 0 may be -0 in another kernel, too: nothing
asks such a value, or NaN, for its sign (``copysign``, ``arctan2``), or divides by it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ELEMENTS = 64
LARGEST = 2.0**20

DTYPES = ("float32", "float32", "float64", "float64", "int64", "int32", "uint8", "int8", "bool", "float16", "int16")
SHAPES = ((3,), (2, 3), (4,), (3, 3), (2, 1, 3), (1,), (2, 2, 2), (4, 2), (6,), (5, 2), (), (0, 3))

PRELUDE = "import numpy as np\n"

AS_A_SCRIPT = """\
if __name__ == "__main__":
    import tempfile
    import torch
    import leapp
    from leapp import annotate

    folder = tempfile.mkdtemp()
    leapp.start("program", save_path=folder)
    first = annotate.input_tensors("n", dict(zip("ab", SET1())))
    annotate.output_tensors("n", program(*(first if isinstance(first, tuple) else (first,))), export_with="pt2")
    leapp.stop()
    leapp.compile_graph()
    second = [torch.from_numpy(each) for each in SET2()]
    print(torch.export.load(f"{folder}/program/nodes/n/n.pt2").module()(*second))
    print(program(*SET2()))
"""
"""Prints what the exported program gives for the second set, and what the program does."""


def forms(text: str) -> list[str]:
    """The statements of a table: semicolons stand between them."""
    return [form.strip() for line in text.strip().splitlines() for form in line.split(" ; ")]


# ``@`` is an array, ``#`` one of whole, halved or freshly divided numbers, ``$`` an operand that may be a number too.
EXACT = """\
@ + $ ; @ - $ ; @ * $ ; $ - @ ; $ * @ ; # / $ ; @ / # ; @ / 2 ; -@ ; +@ ; abs(@) ; np.square(@) ; np.add(@, $) ; np.subtract($, @)
np.maximum(@, $) ; np.minimum($, @) ; np.fmax(@, @) ; np.negative(@) ; np.absolute(@) ; np.multiply(@, @, dtype=np.float64)
np.copysign(@, np.nan_to_num(#)) ; np.clip(@, -1, 1) ; np.clip(@, None, $) ; @.clip(0, 2) ; np.reciprocal(@ + 8)
np.where(@, @, $) ; np.where(# > 0, @, @) ; np.where(# >= $, @, 0) ; np.nan_to_num(@) ; np.isnan(@) ; np.isfinite(@)
@.reshape(-1) ; @.reshape(-1, 1) ; @.T ; @.copy() ; @.ravel() ; @.flatten() ; np.transpose(@) ; np.squeeze(@) ; @[None]
np.expand_dims(@, {axis}) ; @.swapaxes(0, -1) ; np.moveaxis(@, 0, -1) ; np.flip(@) ; np.flip(@, {axis}) ; np.fliplr(@)
np.roll(@, 1) ; np.roll(@, {number}, axis={axis}) ; np.rot90(@) ; np.atleast_2d(@) ; np.broadcast_to(@, (2, *np.shape(@)))
np.concatenate([@, @]) ; np.concatenate([@, @], axis={axis}) ; np.stack([@, @]) ; np.stack((@, @), axis={axis})
np.hstack([@, @]) ; np.vstack([@, @]) ; np.column_stack([@, @]) ; np.tile(@, 2) ; np.repeat(@, 2, axis={axis}) ; np.repeat(@, 2)
np.append(@, @) ; np.pad(@, 1) ; np.pad(@, ((1, 0),) * np.ndim(@), mode='edge') ; np.diff(@) ; np.diff(@, axis={axis})
np.split(@, 2)[1] ; np.array_split(@, 3, axis={axis})[0] ; np.diagonal(@) ; np.diag(@) ; np.triu(@) ; np.tril(@, -1)
np.meshgrid(@, @)[0] ; np.outer(@, @) ; np.ediff1d(@) ; np.kron(@, @) ; np.cross(@, @) ; np.trace(@) ; np.ptp(@, axis={axis})
@{index} ; @{index} ; @{index} ; @[{number}] ; @[..., {number}] ; @[:, {number}] ; @.take([0, -1]) ; np.take(@, [1, 0], axis={axis})
@.max() ; @.min(axis={axis}) ; np.max(@, axis={axis}, keepdims=True) ; @.max(axis={axis}, keepdims=True) - @ ; np.amin(@)
@.astype(np.float32) ; @.astype(np.float64) ; @.astype(bool) ; @ * @.max() ; @ - @.min() ; @[..., 0] * @ ; @.real
np.array([@.max(), @.min()]) ; np.array([[@.max(), 0], [1, @.min()]]) ; np.asarray(@) ; np.asarray(@, np.float64)
np.zeros_like(@) + @ ; np.ones(np.shape(@)) * @ ; np.full(np.shape(@), 2.5) - @ ; np.ones_like(@) * 0 + @ ; len(@) * @
[*@][0] ; sum([*@]) ; [each * 2 for each in @][-1] ; np.array([*@]) ; max(np.shape(@)) + @
np.cumsum(@.astype(np.int64)) ; np.sum(@.astype(np.int64), axis={axis}) ; np.prod(@.astype(np.int64)) ; @.astype(np.int64).sum()
np.add.reduce(@.astype(np.int32), axis={axis}) ; np.maximum.reduce(@) ; np.maximum.accumulate(@) ; np.subtract.outer(@, @)
np.maximum(*np.broadcast_arrays(@, @)) ; @.T.copy() ; @[::-1].copy() ; np.ascontiguousarray(@.T) ; np.interp(@, [0, 1, 2], [0, 2, 4])
np.logical_and(@, @) ; np.logical_not(@) ; np.logical_xor(@, @) ; @.any() ; @.all(axis={axis}) ; np.count_nonzero(@)
"""
JUMPS = """\
# // $ ; # % $ ; np.floor(#) ; np.ceil(#) ; np.rint(#) ; np.round(#) ; np.trunc(#) ; np.sign(#) ; np.fmod(#, $) ; np.mod(#, #)
# > $ ; # < # ; # >= # ; # <= $ ; # == $ ; # != # ; np.greater(#, $) ; np.isclose(#, #) ; np.equal(#, #)
np.argmax(#) ; np.argmin(#, axis={axis}) ; #.argmax(axis={axis}) ; np.sort(#) ; np.sort(#, axis={axis}) ; np.argsort(#, kind='stable')
#[np.argmax(#)] ; #[#.argmin()] ; np.heaviside(#, 0.5) ; #.astype(np.int32) ; #.astype(np.int8) ; np.searchsorted([0, 1, 2], #)
np.digitize(#, [-1, 0, 1]) ; np.median(#) ; np.median(#, axis={axis}) ; np.take_along_axis(#, np.argsort(#, kind='stable'), -1)
# ** 2 ; # & 1 ; # | 2 ; # ^ # ; ~# ; # << 1 ; # >> 1 ; np.bitwise_and(#, 3) ; np.left_shift(#, 1) ; divmod(#, $)[0]
np.select([# > 1, # < -1], [#, -#], 0) ; #[# > 0] ; np.compress([True, False, True], #) ; np.spacing(#) * 0 ; round(#.max(), 1)
"""
ROUNDS = """\
@.sum() ; @.sum(axis={axis}) ; np.sum(@, axis={axis}, keepdims=True) ; @.mean() ; np.mean(@, axis={axis}) ; @.mean(axis={axis}, keepdims=True)
@ ** 3 ; np.sqrt(np.abs(@)) ; np.var(@) ; @.std(axis={axis}) ; np.std(@, ddof=1) ; np.cumsum(@, axis={axis}) ; np.prod(@) ; np.exp(np.clip(@, -3, 3)) ; np.tanh(@)
np.sin(@) ; np.cos(@) ; np.arctan2(#, #) ; np.log1p(np.abs(@)) ; np.log(np.abs(@) + 1) ; np.hypot(@, @) ; np.cbrt(@) ; np.exp2(@)
np.dot(@, @) ; np.matmul(@, @.T) ; np.inner(@, @) ; np.einsum('...i,...i->...', @, @) ; np.linalg.norm(@) ; np.linalg.norm(@, axis={axis})
@ / np.linalg.norm(@) ; (@ - @.mean()) / (@.std() + 1) ; np.average(@, axis={axis}) ; np.convolve(@, [1, 2, 1]) ; np.power(np.abs(@) + 1, 0.5)
np.deg2rad(@) ; np.sinc(@) ; np.logaddexp(@, @) ; np.tensordot(@, @, axes=1) ; np.percentile(@, 30) ; np.nanmean(@) ; np.gradient(@)
"""
WRITES = """\
~ += $ ; ~ -= @ ; ~ *= 2 ; ~ /= 2 ; ~[{number}] = $ ; ~{index} = $ ; ~{index} += $ ; ~{index} *= 2 ; ~[...] = @ ; ~[:] = ~[::-1].copy()
~[# > 0] = $ ; ~[# < $] += 1 ; np.copyto(~, @) ; np.copyto(~, $, where=# > 0) ; np.add(~, @, out=~) ; np.multiply(@, @, out=~) ; np.clip(~, -1, 1, out=~)
~.fill(2) ; ~.sort() ; np.add.at(~, [0, 0], 1) ; np.put(~, [0], 3) ; np.negative(~, out=~) ; np.maximum(~, 0, out=~) ; ~.T[...] = @ ; ~.flat[0] = 1
~[{number}], ~[0] = ~[0] * 1, ~[{number}] * 1 ; np.put_along_axis(~, np.zeros((1,) * np.ndim(~), int), 1, -1) ; np.fill_diagonal(~, 0) ; ~ %= 3
"""
INDEXES = forms(
    "[1:] ; [:-1] ; [::-1] ; [::2] ; [..., 1:] ; [:, 0] ; [0] ; [-1] ; [None, 0] ; [[0, 1]] ; [..., ::-1] ; [np.array([1, 0])] ; [1:2] ; [(0,)] ; [:, None] ; [..., None]"
)
NUMBERS = "2 3 -1 0.5 -2.0 1.5 True np.float32(0.5) np.float64(1.5) np.int64(2) np.int8(3) np.uint8(2) 0 1 4".split()


FORMS: dict[str, list[str]] = {"exact": forms(EXACT), "jumps": forms(JUMPS), "rounds": forms(ROUNDS)}
CHANGES = forms(WRITES)


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small whole and half numbers."""
    whole = np.random.default_rng(seed).integers(-4, 5, shape)
    if dtype == "bool":
        return np.asarray(whole > 0)
    if dtype.startswith("uint"):
        return np.abs(whole).astype(dtype)
    return np.asarray(whole / 2 if dtype.startswith("float") else whole).astype(dtype)


def literal(array: np.ndarray) -> str:
    """An expression that makes an equal array."""
    if not array.size:
        return f"np.zeros({array.shape}, np.{array.dtype.name.replace('bool', 'bool_')})"
    return f"np.array({array.tolist()}, np.{array.dtype.name.replace('bool', 'bool_')})"


def is_data(thing: Any) -> bool:
    """Whether a thing may go on in a program."""
    if not isinstance(thing, (np.ndarray, np.generic)) or thing.size > MAX_ELEMENTS:
        return False
    if thing.dtype.name not in DTYPES:
        return False
    if thing.dtype.kind in "fiu" and thing.size:
        with np.errstate(all="ignore"):
            finite = np.asarray(thing)[np.isfinite(thing)]
            return not finite.size or float(np.abs(finite.astype(np.float64)).max()) <= LARGEST
    return True


class Drawing:
    """A program in the making."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.live: dict[str, Any] = {"np": np}
        self.names: list[str] = []
        self.inexact: set[str] = set()
        self.fed: set[str] = set()
        """Names that the inputs reached."""
        self.outside: list[str] = []
        self.plain: set[str] = set()
        self.body: list[str] = []
        self.rounded = False

    def of(self, things: Any) -> Any:
        return self.draw(st.sampled_from(things))

    def name(self, *, exact: bool = False, writable: bool = False) -> str | None:
        fitting = [
            name
            for name in self.names
            if not (exact and name in self.inexact) and (not writable or self.may_be_written(name))
        ]
        # The newest ones often, so that programs are deep.
        return self.of([*fitting, *fitting[-3:], *fitting[-3:]]) if fitting else None

    def may_be_written(self, name: str) -> bool:
        """Whether writes are heard: of those of plain arrays, which follow from no input, NumPy tells nobody."""
        array = self.live[name]
        if not isinstance(array, np.ndarray) or not array.flags.writeable or name not in self.fed:
            return False
        return not any(np.may_share_memory(array, self.live[each]) for each in self.plain)

    def filled(self, form: str) -> tuple[str, set[str]] | None:
        """A statement with names in it, and those names."""
        used: set[str] = set()
        exact = "#" in form
        text = ""
        target: str | None = None
        for sign in form:
            if sign in "@#":
                name = self.name(exact=exact)
            elif sign == "~":
                target = name = target or self.name(writable=True, exact=exact)
            elif sign == "$":
                name = self.of(NUMBERS) if self.draw(st.booleans()) else self.name(exact=exact)
            else:
                text += sign
                continue
            if name is None:
                return None
            used.add(name)
            text += name
        text = text.replace("{index}", self.of(INDEXES)).replace("{number}", str(self.of((0, 1, -1))))
        text = text.replace("{axis}", str(self.of((0, -1, 1, "None" if "axis={axis}" in form else 0))))
        return text, used

    def statement(self) -> None:
        if self.draw(st.integers(0, 9)) < 3:
            self.change()
            return
        kind = self.of(("exact", "exact", "exact", "jumps", "jumps", "rounds"))
        made = self.filled(self.of(FORMS[kind]))
        if made is None:
            return
        text, used = made
        new = f"v{len(self.body)}"
        try:
            result = eval(text, self.live)
        except Exception:
            return
        if not is_data(result):
            return
        self.live[new] = result
        self.body.append(f"{new} = {text}")
        self.names.append(new)
        if used & self.fed:
            self.fed.add(new)
        # Whole numbers are summed without rounding.
        if used & self.inexact or (kind == "rounds" and result.dtype.kind == "f"):
            self.inexact.add(new)
            self.rounded = True

    def change(self) -> None:
        made = self.filled(self.of(CHANGES))
        if made is None:
            return
        text, used = made
        before = {name: np.array(self.live[name]) for name in self.names}
        kinds = {name: type(self.live[name]) for name in self.names}
        try:
            exec(text, self.live)
        except Exception:
            self.restore(before, kinds)
            return
        if not all(is_data(self.live[name]) for name in self.names):
            self.restore(before, kinds)
            return
        self.body.append(text)
        # Whatever sees that memory.
        changed = {name for name in self.names if before[name].tobytes() != np.array(self.live[name]).tobytes()}
        if used & self.inexact:
            self.inexact |= changed
        if used & self.fed:
            self.fed |= changed

    def restore(self, before: dict[str, np.ndarray], kinds: dict[str, type]) -> None:
        for name, value in before.items():
            thing = self.live[name]
            if isinstance(thing, np.ndarray) and issubclass(kinds[name], np.ndarray) and thing.shape == value.shape:
                if thing.flags.writeable:
                    thing[...] = value
            elif not isinstance(thing, kinds[name]) or np.array(thing).tobytes() != value.tobytes():
                self.live[name] = value[()] if issubclass(kinds[name], np.generic) else value


@st.composite
def numpy_programs(draw: Callable[[Any], Any]) -> Program:
    """A program of up to a dozen statements over one or two inputs."""
    drawing = Drawing(draw)
    sets: list[list[str]] = [[], []]
    inputs = "ab"[: drawing.of((1, 2, 2))]
    for name in inputs:
        shape, dtype, seed = drawing.of(SHAPES[:10]), drawing.of(DTYPES), draw(st.integers(0, 2**16))
        for index, taken in enumerate(sets):
            taken.append(literal(values(shape, dtype, seed + index * 7919)))
        drawing.live[name] = eval(sets[0][-1], {"np": np})
        drawing.names.append(name)
        drawing.fed.add(name)
    if draw(st.booleans()):
        text = literal(values(drawing.of(SHAPES[:4]), drawing.of(DTYPES), draw(st.integers(0, 2**16))))
        drawing.outside.append(f"p0 = {text}")
        drawing.live["p0"] = eval(text, {"np": np})
        drawing.names.append("p0")
        drawing.plain.add("p0")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(draw(st.integers(2, 14))):
            drawing.statement()
    mine = [name for name in drawing.names if name.startswith("v") and name in drawing.fed]
    outputs = list(dict.fromkeys([*mine[-2:], *([drawing.of(mine)] if mine else [])])) or [inputs[0]]
    first, second = (tuple(each) for each in sets)
    return Program(
        tuple(drawing.outside), tuple(inputs), (first, second), tuple(drawing.body), tuple(outputs), drawing.rounded
    )


def printed(program: Program) -> str:
    """A program as one can run it."""
    lines = [PRELUDE, *program.outside, "", f"def program({', '.join(program.inputs)}):"]
    lines += [f"    {line}" for line in program.body]
    returned = ", ".join(f'"out{i}": {name}' for i, name in enumerate(program.outputs))
    lines.append(f"    return {{{returned}}}")
    lines.append("")
    lines += [f"SET{i} = lambda: ({''.join(f'{each}, ' for each in taken)})" for i, taken in enumerate(program.sets, 1)]
    return "\n".join([*lines, "", AS_A_SCRIPT])
