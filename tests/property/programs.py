"""Random programs: small functions over small tensors, drawn statement by statement as Python text.

A program is text, so that what fails can be printed, read and run. It is drawn against a live run of itself: each
statement is tried on the values so far, and one that torch refuses is left out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ELEMENTS = 64
MAX_BYTES = 16384
LARGEST = 2.0**20

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
OTHERS = ("int64", "bool", "int32", "uint8", "complex64", "int8", "int16")
SHAPES = ((3,), (2, 3), (4,), (3, 3), (), (2, 1, 3), (1,), (2, 2, 2), (4, 2), (0, 3), (6,), (5, 2))

PRELUDE = """\
import copy
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.scale = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, x):
        self.count += 1
        return x * self.scale + self.count


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[1.0, 0, -1], [0.5, 2, 0], [0, 0, 1]]))
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x)) + x @ self.first.weight.t()


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        before = self.last.clone()
        self.last.copy_(x)
        return before + self.last[..., :1]


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(3))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.history = torch.zeros(4, 3)

    def forward(self, x):
        self.history[1:] = self.history[:-1].clone()
        self.history[0] = x
        self.mean.mul_(0.5).add_(x)
        self.seen.add_(1)
        return self.history.sum(0) - self.mean * self.seen
"""
"""What every program may use."""

AS_A_SCRIPT = """\
if __name__ == "__main__":
    import sys
    import tempfile
    import leapp
    from leapp import annotate

    one, *more = sys.argv[1:] or ["1"]  # 2: what the untraced program gives for the second set
    folder = tempfile.mkdtemp()
    with torch.no_grad():
        if one == "2":
            print(program(*SET2()))
            sys.exit()
        leapp.start("program", save_path=folder)
        first = SET1()
        annotate.input_tensors("n", dict(zip("ab", first)))
        annotate.output_tensors("n", program(*first), export_with="pt2")
        leapp.stop()
        leapp.compile_graph()
        print(torch.export.load(f"{folder}/program/nodes/n/n.pt2").module()(*SET2()))
"""
"""Prints what the exported program gives for the second set."""

MODULES = ("Counting", "Tied", "Remembering", "Running")


@dataclass(frozen=True)
class Program:
    """One program as text."""

    outside: tuple[str, ...]
    """Statements run before the node opens."""
    inputs: tuple[str, ...]
    sets: tuple[tuple[str, ...], tuple[str, ...]]
    """Two sets of input values, as expressions."""
    body: tuple[str, ...]
    outputs: tuple[str, ...]
    rounded: bool
    """Some result is rounded, so that another kernel may give another last bit."""

    @property
    def text(self) -> str:
        """The program as one can run it: untraced and traced on the first set, the recording on the second."""
        given = "".join(f"{name}, " for name in self.inputs)
        returned = ", ".join(f'"out{index}": {name}' for index, name in enumerate(self.outputs))
        sets = [
            f"SET{index} = lambda: ({''.join(f'{value}, ' for value in values)})"
            for index, values in enumerate(self.sets, 1)
        ]
        return "\n".join(
            [
                PRELUDE,
                *self.outside,
                "",
                f"def program({given.removesuffix(', ')}):",
                *(f"    {line}" for line in self.body),
                f"    return {{{returned}}}",
                "",
                *sets,
                "",
                AS_A_SCRIPT,
            ]
        )


def literal(tensor: torch.Tensor) -> str:
    """An expression that makes an equal tensor with standard strides."""
    dtype = str(tensor.dtype)
    if not tensor.numel():
        return f"torch.zeros({tuple(tensor.shape)}, dtype={dtype})"
    return f"torch.tensor({tensor.tolist()}, dtype={dtype})"


def values(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """Small values that arithmetic keeps exact."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-4, 5, shape, generator=generator)
    kind: torch.dtype = getattr(torch, dtype)
    if kind is torch.bool:
        return whole > 0
    if kind is torch.uint8:
        return whole.abs().to(kind)
    if kind.is_complex:
        return torch.complex(whole / 2, torch.randint(-4, 5, shape, generator=generator) / 2).to(kind)
    return (whole / 2).to(kind) if kind.is_floating_point else whole.to(kind)


class Drawing:
    """A program in the making: its live values, and what was drawn so far."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.live: dict[str, Any] = {}
        exec(compile(PRELUDE, "<prelude>", "exec"), self.live)
        self.names: list[str] = []
        """Tensors, oldest first."""
        self.outside: list[str] = []
        self.body: list[str] = []
        self.modules: list[str] = []
        self.rounded = False
        self.tainted: set[int] = set()
        """Storages that the inputs reached."""
        self.keep: list[Any] = []
        self.shape_only: set[str] = set()
        """Expressions that take nothing from a tensor's values."""

    # --- drawing ------------------------------------------------------------------------------------------------------

    def of(self, things: Any) -> Any:
        return self.draw(st.sampled_from(things))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def tensor(self, fits: Callable[[torch.Tensor], bool] | None = None) -> str | None:
        """A tensor that fits; later ones are drawn as often as all earlier ones together."""
        names = [name for name in self.names if fits is None or fits(self.live[name])]
        if not names:
            return None
        if len(names) > 2 and self.draw(st.booleans()):
            return self.of(names[-3:])
        return self.of(names)

    def __getitem__(self, expression: str) -> Any:
        """What an expression gives now."""
        return eval(expression, dict(self.live))

    def storage(self, tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def is_tainted(self, tensor: torch.Tensor) -> bool:
        return self.storage(tensor) in self.tainted

    # --- trying -------------------------------------------------------------------------------------------------------

    def attempt(self, statement: str, *, outside: bool = False) -> bool:
        """Run a statement; keep it when torch took it and what it left is small and finite."""
        made = statement.partition(" = ")[2] in self.shape_only
        before = dict(self.live)
        copies = {name: self.live[name].clone() for name in self.names}
        inside = {name: _tensors_of(self.live[name]) for name in self.modules}
        contents = {name: [each.clone() for each in tensors] for name, tensors in inside.items()}
        try:
            code = compile(statement, "<drawn>", "exec")
            exec(code, self.live)
        except Exception:
            self._restore(before, copies)
            return False
        used = set(code.co_names)
        new = [
            name for name, value in self.live.items()
            if isinstance(value, torch.Tensor) and before.get(name) is not value
        ]  # fmt: skip
        if not all(_good(self.live[name]) or name == "big" for name in [*self.names, *new]):
            self._restore(before, copies)
            return False
        read = [before[name] for name in used if isinstance(before.get(name), torch.Tensor)]
        read += [each for name in used & inside.keys() for each in inside[name]]
        if not (outside or made) and any(self.is_tainted(each) for each in read):
            changed = [self.live[name] for name in self.names if not _equal(copies[name], self.live[name])]
            for name, tensors in inside.items():
                changed += [now for now, then in zip(tensors, contents[name], strict=True) if not _equal(now, then)]
            self.tainted |= {self.storage(each) for each in changed}
            self.tainted |= {self.storage(self.live[name]) for name in new}
        self.keep += [self.live[name] for name in new]
        self.names = [name for name in self.names if name not in new] + new
        (self.outside if outside else self.body).append(statement)
        return True

    def _restore(self, before: dict[str, Any], copies: dict[str, torch.Tensor]) -> None:
        self.live.clear()
        self.live.update(before)
        with torch.no_grad():
            for name, value in copies.items():
                if not _equal(self.live[name], value):
                    try:
                        self.live[name].copy_(value)
                    except RuntimeError:
                        self.live[name] = value

    def new_name(self) -> str:
        return f"v{len(self.body)}"


def _tensors_of(module: torch.nn.Module) -> list[torch.Tensor]:
    return [
        *module.state_dict(keep_vars=True).values(),
        *(each for each in vars(module).values() if isinstance(each, torch.Tensor)),
    ]


def _good(tensor: torch.Tensor) -> bool:
    if tensor.numel() > MAX_ELEMENTS or tensor.untyped_storage().nbytes() > MAX_BYTES:
        return False
    if tensor.layout is not torch.strided:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        largest = tensor.abs().max() if tensor.numel() else torch.zeros(())
        return bool(largest < (60 if tensor.dtype in (torch.float16, torch.bfloat16) else LARGEST))
    return True


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype and torch.equal(first, second)


# --- operands ---------------------------------------------------------------------------------------------------------


def view_of(drawing: Drawing, expression: str, depth: int) -> str:
    """An expression over ``expression`` that is a view of it, or of a view of it, and so on."""
    for _ in range(depth):
        value = drawing[expression]
        maker = _complex if value.is_complex() and drawing.draw(st.booleans()) else drawing.of(VIEWS)
        step = maker(drawing, value)
        if step is None:
            continue
        candidate = step.replace("@", expression)
        try:
            result = drawing[candidate]
        except Exception:  # torch refuses it: not a view that this tensor has
            continue
        if isinstance(result, torch.Tensor) and result.numel() <= MAX_ELEMENTS and result.layout is torch.strided:
            expression = candidate
    return expression


def _dim(drawing: Drawing, value: torch.Tensor) -> int:
    return drawing.number(0, value.dim() - 1)


def _index(drawing: Drawing, value: torch.Tensor) -> str | None:
    """A basic index."""
    if not value.dim():
        return drawing.of(("...", "()", "None"))
    parts = []
    for axis in range(drawing.number(1, value.dim())):
        size = value.shape[axis]
        kind = drawing.of("is:tnS")
        if kind == "i":
            if not size:
                return None
            parts.append(str(drawing.number(-size, size - 1)))
        elif kind == "s":
            start = drawing.number(0, size)
            parts.append(f"{start}:{drawing.number(start, size)}")
        elif kind == "t":
            parts.append(f"{drawing.number(0, 1)}::2")
        elif kind == "n":
            parts.append("None, :")
        elif kind == "S":
            parts.append(":-1")
        else:
            parts.append(":")
    if drawing.draw(st.booleans()):
        parts.insert(drawing.of((0, len(parts))), "...")
    return ", ".join(parts)


def _basic(drawing: Drawing, value: torch.Tensor) -> str | None:
    index = _index(drawing, value)
    return None if index is None else f"@[{index}]"


def _transposed(drawing: Drawing, value: torch.Tensor) -> str | None:
    if value.dim() < 2:
        return drawing.of(("@.t()", "@.T"))
    a, b = _dim(drawing, value), _dim(drawing, value)
    order = drawing.draw(st.permutations(range(value.dim())))
    forms = [
        f"@.transpose({a}, {b})", f"torch.transpose(@, {a}, {b})", "@.mT", f"@.permute({', '.join(map(str, order))})",
        f"torch.permute(@, {tuple(order)})", f"@.movedim({a}, {b})", f"@.swapaxes({a}, {b})", f"torch.moveaxis(@, {a}, {b})",
        f"@.swapdims({a}, {b})", "@.adjoint()", "@.mH",
    ]  # fmt: skip
    return drawing.of([*forms, "@.t()", "@.T", "@.H"] if value.dim() == 2 else forms)


def _reshaped(drawing: Drawing, value: torch.Tensor) -> str | None:
    count = value.numel()
    half = f"({count // 2}, 2)" if count and count % 2 == 0 else "(1, -1)" if count else "(0,)"
    wide = half.strip("()").rstrip(",")
    forms = [
        f"@.view({half})", f"@.reshape({half})", f"@.view({wide})", f"@.reshape({wide})", "@.flatten()", "@.ravel()",
        f"torch.reshape(@, {half})", "torch.flatten(@)", "torch.ravel(@)", "@.view(-1)",
    ]  # fmt: skip
    if value.dim():
        axis = _dim(drawing, value)
        forms += [
            f"@.unflatten({axis}, (1, -1))",
            f"torch.unflatten(@, {axis}, ({value.shape[axis]}, 1))",
            f"@.flatten({axis})",
        ]
    return drawing.of(forms)


def _ones(drawing: Drawing, value: torch.Tensor) -> str | None:
    axis = drawing.number(-value.dim() - 1, value.dim())
    forms = [
        f"@.unsqueeze({axis})",
        f"torch.unsqueeze(@, {axis})",
        "@.squeeze()",
        "torch.squeeze(@)",
        "torch.atleast_2d(@)",
    ]
    if value.dim():
        axis = _dim(drawing, value)
        forms += [f"@.squeeze({axis})", f"torch.squeeze(@, {axis})"]
    return drawing.of(forms)


def _part(drawing: Drawing, value: torch.Tensor) -> str | None:
    if not value.dim():
        return None
    axis = _dim(drawing, value)
    size = value.shape[axis]
    if not size:
        return None
    start = drawing.number(0, size - 1)
    length = drawing.number(0, size - start)
    forms = [
        f"@.narrow({axis}, {start}, {length})", f"torch.narrow(@, {axis}, {start}, {length})",
        f"@.select({axis}, {start})", f"torch.select(@, {axis}, {start})", f"@.unbind({axis})[{start}]",
        f"torch.unbind(@, {axis})[{start}]", f"@.chunk(2, {axis})[0]", f"torch.chunk(@, 2, dim={axis})[-1]",
        f"@.split(1, {axis})[{start}]", f"torch.split(@, 2, {axis})[0]", f"@.tensor_split(2, {axis})[0]",
        f"torch.split(@, [{start}, {size - start}], dim={axis})[1]", f"@.unfold({axis}, {min(size, 2)}, 1)",
        f"@.split_with_sizes([{start}, {size - start}], {axis})[1]",
    ]  # fmt: skip
    return drawing.of(forms)


def _diagonal(drawing: Drawing, value: torch.Tensor) -> str | None:
    if value.dim() < 2:
        return None
    offset = drawing.number(-1, 1)
    return drawing.of((f"@.diagonal({offset})", f"torch.diagonal(@, offset={offset})", f"@.diagonal({offset}, -1, 0)"))


def _strided(drawing: Drawing, value: torch.Tensor) -> str | None:
    reach = value.numel() if value.is_contiguous() else 0
    if reach < 1:
        return None
    offset = value.storage_offset() + drawing.number(0, reach - 1)
    left = value.storage_offset() + reach - offset
    if left >= 4 and drawing.draw(st.booleans()):
        return drawing.of((f"@.as_strided((2, 2), (2, 1), {offset})", f"torch.as_strided(@, (2, 2), (1, 2), {offset})"))
    step = drawing.number(1, 2)
    return f"@.as_strided(({(left + step - 1) // step},), ({step},), {offset})"


def _complex(drawing: Drawing, value: torch.Tensor) -> str | None:
    if value.is_complex():
        return drawing.of(
            (
                "torch.view_as_real(@)",
                "@.real",
                "@.imag",
                "@.conj()",
                "@.mH",
                "torch.real(@)",
                "torch.imag(@)",
                "@.conj().imag",
            )
        )
    if value.dtype is torch.float32 and value.dim() and value.shape[-1] == 2:
        return "torch.view_as_complex(@)"
    return drawing.of(("@.real", "torch.real(@)", "@.conj()")) if value.is_floating_point() else None


def _expanded(drawing: Drawing, value: torch.Tensor) -> str | None:
    if not value.dim():
        return drawing.of(("@.expand(2)", "@.expand(2, 3)"))
    return drawing.of(
        ("@.expand(2, *[-1] * @.dim())", "@.expand_as(torch.zeros(2, *@.shape))", "@.broadcast_to((2, *@.shape))")
    )


def _alias(drawing: Drawing, value: torch.Tensor) -> str | None:
    return drawing.of(
        (
            "@.detach()", "@.data", "@.contiguous()", f"@.to({value.dtype})", "@[...]", "@[:]", "@.view_as(@)",
            "@.type_as(@)", "@.reshape(@.shape)", "@.to(torch.float32)", "@.float()", "@.cpu()", "@.view(@.shape)",
            "torch.as_tensor(@)", "torch.asarray(@)", "@.requires_grad_(False)", f"@.type({value.dtype})", "@.to(@)",
            "@.positive()", "@.alias()" if hasattr(value, "alias") else "torch.positive(@)", "@.resolve_conj()", "torch.atleast_1d(@)",
            "@.expand_as(@)", "@.sum_to_size(@.shape)", "F.dropout(@, 0.5, training=False)", "nn.Identity()(@)",
        )
    )  # fmt: skip


def _alias_beside(drawing: Drawing, value: torch.Tensor) -> str | None:
    """A view that takes its form from another tensor."""
    other = drawing.tensor()
    return drawing.of(
        (
            f"@.expand_as({other})", f"@.view_as({other})", f"@.type_as({other})", f"@.to({other})", f"@.reshape({other}.shape)",
            f"torch.broadcast_tensors(@, {other})[0]", f"torch.broadcast_tensors({other}, @)[1]", f"@.reshape_as({other})",
            f"torch.atleast_1d(@, {other})[0]",
        )
    )  # fmt: skip


def _bits(drawing: Drawing, value: torch.Tensor) -> str | None:
    if value.dtype in (torch.float32, torch.int32):
        return f"@.view(torch.{'int32' if value.dtype is torch.float32 else 'float32'})"
    return None


VIEWS = (
    _basic, _basic, _basic, _transposed, _transposed, _reshaped, _ones, _part, _part, _diagonal, _strided, _complex, _expanded, _alias,
    _alias, _alias_beside, _bits,
)  # fmt: skip

# --- values and indices -------------------------------------------------------------------------------------------------


def value_for(drawing: Drawing, target: torch.Tensor) -> str:
    """Something to compute with or to write into ``target``."""

    def fits(each: torch.Tensor) -> bool:
        try:
            return torch.broadcast_shapes(each.shape, target.shape) == target.shape and (
                torch.can_cast(each.dtype, target.dtype)
            )
        except RuntimeError:
            return False

    name = drawing.tensor(fits) if drawing.number(0, 4) else None
    if name is not None:
        return name
    if target.dtype is torch.bool:
        return drawing.of(("True", "False"))
    if target.is_complex():
        return drawing.of(("2", "1.5", "(1+2j)"))
    if target.is_floating_point():
        return drawing.of(
            ("2", "1.5", "-1", f"torch.tensor(0.5, dtype={target.dtype})", "np.float64(0.5)", "np.int64(2)")
        )
    return drawing.of(("2", "1", "3"))


def mask_for(drawing: Drawing, expression: str, value: torch.Tensor) -> str:
    name = (
        drawing.tensor(lambda each: each.dtype is torch.bool and each.shape == value.shape)
        if drawing.draw(st.booleans())
        else None
    )
    if name is not None:
        return name
    if value.is_complex():
        return f"({expression}.real > 0)"
    return f"({expression} > 0)"


def positions(drawing: Drawing, value: torch.Tensor, axis: int) -> str:
    """Integer positions along an axis, distinct, as a list or tensors of several kinds."""
    size = value.shape[axis]
    if not size:
        return "[]"
    chosen = drawing.draw(st.permutations(range(size)))[: drawing.number(1, size)]
    text = f"[{', '.join(map(str, chosen))}]"
    return drawing.of((text, f"torch.tensor({text})", f"torch.tensor({text})"))


def index_tensor(drawing: Drawing, value: torch.Tensor, axis: int) -> str:
    text = positions(drawing, value, axis)
    if text == "[]":
        return "torch.zeros(0, dtype=torch.long)"
    return text if text.startswith("torch") else f"torch.tensor({text})"


# --- statements ---------------------------------------------------------------------------------------------------------


def _operand(drawing: Drawing, fits: Callable[[torch.Tensor], bool] | None = None) -> tuple[str, torch.Tensor] | None:
    name = drawing.tensor(fits)
    if name is None:
        return None
    expression = view_of(drawing, name, drawing.of((0, 0, 0, 1, 2)))
    return expression, drawing[expression]


EXACT_UNARY = (
    "abs neg square relu sign floor ceil trunc frac logical_not isnan isfinite sgn clone positive zeros_like ones_like "
    "signbit triu tril flatten"
).split()
ROUNDED_UNARY = "exp sin cos tanh sigmoid sqrt log1p reciprocal rsqrt erf expm1 atan".split()
OPERATORS = "+ - * + - * / // % & | ^ == != < <= > >= @ ** << >>".split()
FUNCTIONS = (
    "add sub mul maximum minimum eq lt logical_and logical_or fmin hypot copysign where_ rsub true_divide".split()
)


def _binary(drawing: Drawing) -> str | None:
    found = _operand(drawing)
    if found is None:
        return None
    left, value = found
    right = value_for(drawing, value)
    operator = drawing.of(OPERATORS)
    if operator in ("/", "//", "%", "**", "<<", ">>"):
        right = drawing.of(("2", "1")) if operator != "/" else drawing.of(("2", "4.0"))
        if operator in ("**", "%", "//") and drawing.number(0, 3) == 0 and not value.is_floating_point():
            return f"{drawing.new_name()} = {left} {operator} {right}"
        if operator == "/" and drawing.number(0, 3) == 0:
            drawing.rounded = True
            return f"{drawing.new_name()} = 2.0 / ({left}.abs() + 1)"
    elif operator == "@":
        drawing.rounded = True
    elif drawing.draw(st.booleans()):
        left, right = right, left
    return f"{drawing.new_name()} = {left} {operator} {right}"


def _function(drawing: Drawing) -> str | None:
    found = _operand(drawing)
    if found is None:
        return None
    left, value = found
    right = value_for(drawing, value)
    name = drawing.of(FUNCTIONS)
    if name == "where_":
        return f"{drawing.new_name()} = torch.where({mask_for(drawing, left, value)}, {left}, {right})"
    if name == "hypot":
        drawing.rounded = True
    form = drawing.of(
        (
            f"torch.{name}({left}, {right})",
            f"{left}.{name}({right})" if hasattr(torch.Tensor, name) else "None",
            f"torch.{name}({left}, {right}, out=torch.empty(0))",
        )
    )
    if name in ("add", "sub") and drawing.number(0, 3) == 0:
        form = f"torch.{name}({left}, {right}, alpha=2)"
    return f"{drawing.new_name()} = {form}"


def _unary(drawing: Drawing) -> str | None:
    found = _operand(drawing)
    if found is None:
        return None
    expression, _value = found
    if drawing.number(0, 5) == 0:
        name = drawing.of(ROUNDED_UNARY)
        drawing.rounded = True
        if name in ("sqrt", "log1p", "reciprocal", "rsqrt"):
            return f"{drawing.new_name()} = torch.{name}({expression}.abs() + 1)"
        return f"{drawing.new_name()} = {expression}.{name}()"
    forms = [
        *(f"@.{name}()" for name in EXACT_UNARY if hasattr(torch.Tensor, name)),
        *(f"torch.{name}(@)" for name in EXACT_UNARY),
    ]
    forms += [
        "-@",
        "~@",
        "abs(@)",
        "+@",
        "@.clamp(-1, 1)",
        "torch.clamp(@, min=0)",
        "F.relu(@)",
        "@.flip(0)",
        "torch.flip(@, [0])",
        "@.roll(1, 0)",
    ]
    forms += [
        "@.repeat(2)",
        "@.tile(2)",
        "@.repeat(2, 1)",
        "@.float()",
        "@.long()",
        "@.bool()",
        "@.to(torch.int32)",
        "@.double()",
        "@.half()",
    ]
    forms += [
        "F.pad(@, (1, 0))",
        "@.masked_fill(@ > 0, 2)",
        "torch.stack([@, @])",
        "torch.cat([@, @])",
        "@.logical_not()",
        "@.bfloat16()",
    ]
    forms += [
        "@.new_zeros(3) + @",
        "@.new_full((3,), 2) + @",
        "@.rot90()" if hasattr(torch.Tensor, "rot90") else "-@",
        "reversed(@)",
        "@.int()",
    ]
    forms += [
        "@.nan_to_num()",
        "@.clip(0, 2)",
        "F.leaky_relu(@, 0.5)",
        "@.view(-1).contiguous()",
        "@.type(torch.float64)",
        "@.to(torch.complex64)",
    ]
    forms += ["@.byte()", "@.char()", "@.short()", "@.cfloat()", "@.cdouble()"]
    return f"{drawing.new_name()} = {drawing.of(forms).replace('@', expression)}"


def _reduction(drawing: Drawing) -> str | None:
    found = _operand(drawing)
    if found is None:
        return None
    expression, value = found
    drawing.rounded = True
    forms = [
        "@.sum()",
        "torch.sum(@)",
        "@.max()",
        "@.amax()",
        "@.any()",
        "@.all()",
        "@.count_nonzero()",
        "@.mean()",
        "@.prod()",
        "@.nansum()",
        "@.nanmean()",
    ]
    if value.dim():
        axis = _dim(drawing, value)
        forms += [
            f"@.sum({axis})",
            f"@.sum(dim={axis}, keepdim=True)",
            f"@.sum(axis={axis})",
            f"@.cumsum({axis})",
            f"@.max({axis})[0]",
        ]
        forms += [
            f"@.min(dim={axis}).values",
            f"torch.mean(@, {axis})",
            f"@.sort({axis})[0]",
            f"@.amin({axis})",
            f"@.argmax({axis})",
        ]
        forms += [
            f"torch.max(@, {axis}).indices",
            f"@.softmax({axis})",
            f"@.norm(dim={axis})",
            f"@.diff(dim={axis})",
            f"@.logsumexp({axis})",
        ]
        forms += [f"@.var({axis}, unbiased=False)", f"@.topk(1, {axis}).values"]
    return f"{drawing.new_name()} = {drawing.of(forms).replace('@', expression)}"


def _gather(drawing: Drawing) -> str | None:
    found = _operand(drawing, lambda each: each.dim() > 0)
    if found is None or not found[1].dim():
        return None
    expression, value = found
    axis = _dim(drawing, value)
    picks, index = positions(drawing, value, axis), index_tensor(drawing, value, axis)
    skip = ":, " * axis
    forms = [
        f"@[{skip}{picks}]", f"@[..., {positions(drawing, value, value.dim() - 1)}]", f"@.index_select({axis}, {index})",
        f"torch.take(@, {index})", f"@[{mask_for(drawing, expression, value)}].sum()", f"torch.gather(@, {axis}, (@ > 0).long())",
        "@[(@ > 0).long()]", f"torch.masked_select(@, {mask_for(drawing, expression, value)}).sum()", f"@[{index}, None]",
        "@[torch.arange(@.shape[0])]", f"@[{skip}@.argmax()]" if value.dim() == 1 else f"@[{skip}{picks}]",
    ]  # fmt: skip
    if ".sum()" in forms:
        drawing.rounded = True
    return f"{drawing.new_name()} = {drawing.of(forms).replace('@', expression)}"


def _view(drawing: Drawing) -> str | None:
    name = drawing.tensor()
    if name is None:
        return None
    expression = view_of(drawing, name, drawing.number(1, 3))
    return None if expression == name and drawing.number(0, 3) else f"{drawing.new_name()} = {expression}"


def _items(drawing: Drawing) -> str | None:
    """Several views at once, unpacked."""
    name = drawing.tensor(lambda each: each.dim() > 0 and each.shape[0] == 2)
    if name is None:
        return None
    first = drawing.new_name()
    form = drawing.of(
        ("@", "@.unbind()", "@.chunk(2)", "torch.split(@, 1)", "@.tensor_split(2)", "torch.broadcast_tensors(*@)")
    )
    return f"{first}, {first}b = {form.replace('@', name)}"


def _write(drawing: Drawing) -> str | None:
    found = _target(drawing)
    if found is None:
        return None
    target, value = found
    other = value_for(drawing, value)
    forms = [
        f"@.add_({other})", "@.mul_(2)", f"@.sub_({other})", f"@.copy_({other})" if not other[0].isdigit() else "@.fill_(2)", "@.fill_(1.5)", "@.zero_()", "@.neg_()",
        "@.clamp_(min=0)", f"@.masked_fill_({mask_for(drawing, target, value)}, 1)", "@.relu_()", "torch.relu_(@)",
        "F.relu(@, inplace=True)", "@.abs_()", f"@.mul_({other})", "@.square_()" if hasattr(value, "square_") else "@.neg_()", "@.clamp_(-1, 1)", f"@.maximum({other})",
        f"@.addcmul_({other}, {other})", "@.floor_()", f"torch.add({target}, {other}, out=@)", f"torch.mul({other}, 2, out=@)",
        "nn.init.ones_(@)", "@.tril_()", "@.fill_diagonal_(2)", "@.logical_not_()", "@.data.add_(1)", "@.detach().mul_(2)", f"@.__iadd__({other})",
        "torch.abs(@, out=@)", "@.cumsum_(0)", f"@.where({mask_for(drawing, target, value)}, {target}).add_(1)", "torch.neg(@, out=@)",
        "torch.zero_(@)", "torch.fill_(@, 2)", "@.apply_(lambda item: item)" if False else "@.sign_()",
    ]  # fmt: skip
    return drawing.of(forms).replace("@", target)


def _assign(drawing: Drawing) -> str | None:
    found = _target(drawing)
    if found is None:
        return None
    target, value = found
    kind = drawing.number(0, 3)
    if kind == 0 or not value.dim():
        index = _index(drawing, value)
    elif kind == 1:
        index = mask_for(drawing, target, value)
    elif kind == 2:
        index = positions(drawing, value, 0)
    else:
        index = drawing.of(("...", ":", f"..., {positions(drawing, value, value.dim() - 1)}"))
    if index is None:
        return None
    try:
        part = drawing[f"{target}[{index}]"]
    except Exception:  # an index that this tensor does not have
        return None
    masked = kind == 1
    other = value_for(drawing, value if not masked else torch.zeros((), dtype=value.dtype))
    if not masked:
        other = value_for(drawing, part)
    operator = drawing.of(("=", "=", "=", "+=", "-=", "*=", "/=", "|=", "&=", "//="))
    if operator in ("/=", "//="):
        other = "2"
    return f"{target}[{index}] {operator} {other}"


def _augmented(drawing: Drawing) -> str | None:
    name = drawing.tensor()
    if name is None:
        return None
    value = drawing.live[name]
    other = value_for(drawing, value)
    operator = drawing.of("+= -= *= /= //= |= &= ^= **= %= <<= >>=".split())
    if operator in ("/=", "//=", "**=", "%=", "<<=", ">>="):
        other = "2"
    suffix = drawing.of(("", "", "", ".data", ".real", ".imag"))
    if suffix in (".real", ".imag") and drawing.draw(st.booleans()):
        part = value.real
        return f"{name}{suffix} = torch.zeros({tuple(part.shape)}, dtype={part.dtype}) + {value_for(drawing, part)}"
    return f"{name}{suffix} {operator} {other}"


def _indexed(drawing: Drawing) -> str | None:
    found = _target(drawing)
    if found is None or not found[1].dim():
        return None
    target, value = found
    axis = _dim(drawing, value)
    index = index_tensor(drawing, value, axis)
    count = drawing[index].numel()
    source_shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    source = value_for(drawing, torch.zeros(source_shape, dtype=value.dtype))
    source = f"torch.zeros({source_shape}, dtype={value.dtype}) + {source}"
    scattered = (
        f"{index}.reshape({tuple(count if i == axis else 1 for i in range(value.dim()))}).expand({source_shape})"
    )
    forms = [
        f"@.index_add_({axis}, {index}, {source})", f"@.index_fill_({axis}, {index}, 2)", f"@.index_copy_({axis}, {index}, {source})",
        f"@.scatter_({axis}, {scattered}, {source})", f"@.scatter_add_({axis}, {scattered}, {source})", f"@.scatter_({axis}, {scattered}, 2)",
        f"@.index_put_(({index_tensor(drawing, value, 0)},), {value_for(drawing, value[:1].sum(0) if value.dtype is not torch.bool else value[0] if value.shape[0] else value)})",
        f"@.index_put_(({index_tensor(drawing, value, 0)},), torch.ones((), dtype={value.dtype}), accumulate=True)",
        f"@.put_({index}, torch.ones({count}, dtype={value.dtype}))", f"@.masked_scatter_({mask_for(drawing, target, value)}, torch.ones(@.shape, dtype={value.dtype}))",
        f"@.scatter_reduce_({axis}, {scattered}, {source}, 'sum')",
    ]  # fmt: skip
    return drawing.of(forms).replace("@", target)


def _target(drawing: Drawing) -> tuple[str, torch.Tensor] | None:
    name = drawing.tensor()
    if name is None:
        return None
    expression = view_of(drawing, name, drawing.of((0, 0, 1, 1, 2, 3)))
    return expression, drawing[expression]


def _shape_in_place(drawing: Drawing) -> str | None:
    """Calls that change how an object sees its memory."""
    name = drawing.tensor()
    if name is None or not drawing.live[name].dim():
        return None
    form = drawing.of(
        (
            "@.unsqueeze_(0)",
            "@.squeeze_()",
            "@.t_()",
            "@.transpose_(0, -1)",
            "@.squeeze_(0)",
            "@.swapaxes_(0, -1)",
            "@.swapdims_(0, -1)",
            "@.detach_()",
        )
    )
    return form.replace("@", name)


def _creation(drawing: Drawing) -> str | None:
    name = drawing.tensor()
    if name is None:
        return None
    shape = drawing.of(((3,), (2, 3), (4,)))
    forms = [
        f"torch.zeros({shape})", f"torch.ones({shape})", f"torch.full({shape}, 2.0)", "torch.zeros_like(@)", "torch.ones_like(@)",
        "torch.full_like(@, 2)", "torch.zeros(@.shape)", "torch.empty_like(@).fill_(1)", f"@.new_zeros({shape})", f"@.new_ones({shape})", f"@.new_full({shape}, 2)",
        "torch.arange(@.dim() + 2.0)", "torch.eye(3)", "torch.tensor([1.0, 2.0, 3.0])", "@.new_tensor([1, 2, 3])",
        "torch.linspace(0, 1, 3)", "torch.ones(@.shape[-1:])", "torch.zeros(@.shape, dtype=@.dtype)", "torch.arange(3)[:, None]", "torch.tensor(2.0)",
        "torch.zeros(3, 3).t()", "torch.tensor(True)", "torch.zeros(2, 3, dtype=torch.complex64)", "torch.ones(4, dtype=torch.float16)",
    ]  # fmt: skip
    expression = drawing.of(forms).replace("@", name)
    drawing.shape_only.add(expression)
    return f"{drawing.new_name()} = {expression}"


def _copied(drawing: Drawing) -> str | None:
    name = drawing.tensor()
    if name is None:
        return None
    forms = (
        "@.clone()",
        "copy.deepcopy(@)",
        "copy.copy(@)",
        "torch.clone(@)",
        "@.to(@.dtype, copy=True)",
        "torch.tensor(@)",
        "@.new_empty(@.shape).copy_(@)",
        "torch.empty(@.shape, dtype=@.dtype).copy_(@)",
        "@ + 0",
        "torch.Tensor(@)",
        "nn.Parameter(@)",
    )
    return f"{drawing.new_name()} = {drawing.of(forms).replace('@', name)}"


def _module(drawing: Drawing) -> str | None:
    name = drawing.tensor(lambda each: each.dtype is torch.float32 and each.dim() > 0 and each.shape[-1] == 3)
    if name is None or not drawing.modules:
        return None
    module = drawing.of(drawing.modules)
    drawing.rounded = True
    return f"{drawing.new_name()} = {module}({name})"


def _module_part(drawing: Drawing) -> str | None:
    if not drawing.modules:
        return None
    module = drawing.of(drawing.modules)
    tensors = [
        *dict(drawing.live[module].named_parameters(remove_duplicate=False)),
        *dict(drawing.live[module].named_buffers(remove_duplicate=False)),
    ]
    part = f"{module}.{drawing.of(tensors)}"
    if drawing.number(0, 2):
        return (
            f"{drawing.new_name()} = {part}.detach()"
            if drawing.draw(st.booleans())
            else f"{drawing.new_name()} = {part} * 2"
        )
    return f"{part}.data.mul_(2)"


def _plainly(drawing: Drawing) -> str | None:
    """A write that no hook sees, where the trace owns nothing."""
    name = drawing.tensor(
        lambda each: (
            not drawing.is_tainted(each)
            and each.dtype in (torch.float32, torch.int64)
            and each.numel() > 0
            and not each.is_conj()
            and not each.is_neg()
        )
    )
    if name is None:
        return None
    return drawing.of(
        (
            f"{name}.numpy()[...] = 3",
            f"{name}.numpy()[...] += 1",
            f"{name}.data.add_(1)",
            f"{name}.add_(1)",
            f"{name}[...] = 2",
        )
    )


STATEMENTS: tuple[Callable[[Drawing], str | None], ...] = (
    _binary, _binary, _function, _unary, _reduction, _gather, _view, _view, _view, _items, _write, _write, _write, _assign, _assign,
    _assign, _augmented, _augmented, _indexed, _creation, _copied, _module, _module_part, _plainly, _shape_in_place,
)  # fmt: skip


def _make_outside(drawing: Drawing) -> None:
    for index in range(drawing.number(0, 3)):
        dtype = drawing.of((*FLOATS, *OTHERS))
        tensor = values(drawing.of(SHAPES), dtype, 100 + index)
        drawing.attempt(f"p{index} = {literal(tensor)}", outside=True)
        if drawing.draw(st.booleans()):
            expression = view_of(drawing, f"p{index}", drawing.number(1, 2))
            drawing.attempt(f"q{index} = {expression}", outside=True)
    if drawing.number(0, 3) == 0:
        drawing.attempt("big = torch.zeros(500, 4)", outside=True)
    for index in range(drawing.number(0, 1)):
        module = drawing.of(MODULES)
        if drawing.attempt(f"m{index} = {module}()", outside=True):
            drawing.modules.append(f"m{index}")


@st.composite
def programs(draw: Any, max_statements: int = 12) -> Program:
    """Programs of up to so many statements."""
    drawing = Drawing(draw)
    with warnings.catch_warnings(), np.errstate(all="ignore"), torch.no_grad():
        warnings.simplefilter("ignore")
        _make_outside(drawing)
        inputs, sets = [], ([], [])
        for index in range(drawing.number(1, 2)):
            name = "ab"[index]
            dtype = drawing.of((*FLOATS, "float32", "float32", "float32", *OTHERS))
            shape = drawing.of(SHAPES)
            for which, expressions in enumerate(sets):
                expressions.append(literal(values(shape, dtype, 10 * index + which)))
            drawing.live[name] = drawing[sets[0][-1]]
            drawing.names.append(name)
            drawing.tainted.add(drawing.storage(drawing.live[name]))
            inputs.append(name)
        for _ in range(drawing.number(1, max_statements)):
            try:
                statement = drawing.of(STATEMENTS)(drawing)
            except (RuntimeError, TypeError, IndexError):  # torch has no such view of these operands
                continue
            if statement is not None:
                drawing.attempt(statement)
        reached = [name for name in drawing.names if drawing.is_tainted(drawing.live[name])]
        outputs = draw(st.lists(st.sampled_from(reached[::-1]), min_size=1, max_size=4))
    return Program(
        tuple(drawing.outside),
        tuple(inputs),
        (tuple(sets[0]), tuple(sets[1])),
        tuple(drawing.body),
        tuple(outputs),
        drawing.rounded,
    )
