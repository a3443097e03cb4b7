"""Calls that torch's ONNX exporter refuses or gets wrong: what is written instead computes the same."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import rand, randint, randn
from torch.nn import functional as F

from leapp._spec import ExportFormat
from leapp.errors import UnsupportedOpError


def near_pose(*shape):
    return torch.eye(shape[-1]) * 2 + 0.3 * randn(shape)


def labels():
    return randint(5, (6,))


def listed():
    rows = [torch.randperm(4), torch.randperm(4)]
    return torch.stack([row.where(torch.arange(4) < 2 + index, -1) for index, row in enumerate(rows)])


def hidden_rows():
    mask = rand(2, 1, 5, 6) > 0.5
    mask[0, 0, 1] = False
    return mask


def attention(*, mask, **options):
    shapes = (2, 4, 5, 3), (2, 2 if options.get("enable_gqa") else 4, 6, 3)
    return (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, **options),
        lambda: (randn(shapes[0]), randn(shapes[1]), randn(shapes[1]), mask()),
    )


def minus_infinity():
    return torch.zeros(2, 1, 5, 6).masked_fill(~hidden_rows(), -math.inf)


def in_a_ring(x, k):
    ring = torch.zeros(5, 4)
    ring[k % 5] = x
    ring[k] += 2 * x
    ring[k, 1:] = 0.5
    return ring


def in_the_last_axis(x, k):
    table = torch.zeros(3, 4, 4)
    table[:, 1, k] = x[:3]
    table[..., k, 1:3] = x[2:].double()
    table[..., k] = x
    return table


def among_others(x, k):
    table = torch.ones(2, 4, 4)
    table[0, k, k] = x[3]
    table[1:, None, k, -2] = x[0]
    table[k // 4, :, k] = x
    return table


def angles(dtype):
    return lambda: (torch.cat((torch.tensor([-1.0, 1.0, 0.0, 0.5, 1 - 1e-9, -1e-7, 1.5]), rand(9) * 2 - 1)).to(dtype),)


def wide(dtype):
    """Every magnitude, and what is beyond the range of a function or of its square."""
    hard = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.0000001, 1e-8, -1e-300, 1e200, 400.0, -700.0, torch.inf, torch.nan])
    return lambda: (torch.cat((hard.to(dtype), (rand(9) * 2 - 1).to(dtype), (randn(9) * 10).to(dtype))),)


def around(dtype):
    """All around the origin, on the axes, and at infinity."""
    hard = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-300, 5.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    return lambda: (
        torch.cat((hard.repeat(9), randn(9).to(dtype))),
        torch.cat((hard.repeat_interleave(9), randn(9).to(dtype))),
    )


def weights(size, projected, *, ways):
    made = []
    for _ in range(ways):
        made += [
            randn(4 * size, 4),
            randn(4 * size, projected),
            randn(4 * size),
            randn(4 * size),
            randn(projected, size),
        ]
    return [each * 0.4 for each in made]


def projected(ways):
    torch.manual_seed(3)
    own = weights(5, 3, ways=ways)

    def run(x, h, c):
        return torch.lstm(x, (h, c), own, True, 1, 0.0, False, ways == 2, False)

    return run, lambda: (randn(4, 2, 4), randn(ways, 2, 3), randn(ways, 2, 5))


def written_through_strides(x):
    whole = torch.zeros(4, 5)
    torch.as_strided(whole, (2, 3), (5, 1), 6).copy_(x)
    return whole + 0


def added_everywhere(x, y):
    return x.index_add(0, torch.arange(3), y)


def written_in_windows(size, step):
    def run(x, y):
        written = x * 1
        written.unfold(0, size, step).copy_(y)
        return written + 0

    return run


CASES = {
    "additions to every place": (added_everywhere, lambda: (randn(3, 2), randn(3, 2))),
    "assignments through windows": (written_in_windows(2, 3), lambda: (randn(8), randn(3, 2))),
    "gradients of windows that overlap": (
        lambda g: torch.ops.aten.unfold_backward(g, [2, 7], 1, 3, 2), lambda: (randn(2, 3, 3),)
    ),
    "one assignment to all windows": (written_in_windows(1, 1), lambda: (randn(2), randn(2, 1))),
    "stable order": (lambda a: torch.argsort(a, dim=0, stable=True), lambda: (randint(4, (50, 3)),)),
    "stable order of floats": (
        lambda a: torch.argsort(a, stable=True, descending=True), lambda: (randint(4, (3, 50)).double(),)
    ),
    "stable sort": (lambda a: torch.sort(a, stable=True), lambda: (randint(4, (2, 70)).float(),)),
    "attention/bool": attention(mask=hidden_rows),
    "attention/float": attention(mask=minus_infinity),
    "attention/scale+gqa": attention(mask=hidden_rows, scale=0.3, enable_gqa=True),
    **{
        f"cross_entropy/{reduction}+{weighted}+{smoothing}": (
            partial(F.cross_entropy, weight=torch.linspace(0.2, 1.4, 5) if weighted else None,
                    ignore_index=2, label_smoothing=smoothing, reduction=reduction),
            lambda: (randn(6, 5), labels()),
        )
        for reduction in ("none", "sum", "mean")
        for weighted in (False, True)
        for smoothing in (0.3,)
    },
    "cross_entropy/probabilities": (
        partial(F.cross_entropy, weight=torch.linspace(0.2, 1.4, 5), label_smoothing=0.2),
        lambda: (randn(3, 5, 2), rand(3, 5, 2).softmax(1)),
    ),
    "cross_entropy/images": (partial(F.cross_entropy, label_smoothing=0.1), lambda: (randn(2, 5, 3), randint(5, (2, 3)))),  # noqa: E501
    "multilabel_margin_loss": (F.multilabel_margin_loss, lambda: (randn(2, 4), listed())),
    "multilabel_margin_loss/none": (partial(F.multilabel_margin_loss, reduction="none"), lambda: (randn(2, 4), listed())),  # noqa: E501
    "multilabel_margin_loss/one": (F.multilabel_margin_loss, lambda: (randn(4), listed()[0])),
    "lstm/projected": projected(1),
    "lstm/projected+both": projected(2),
    "rrelu": (partial(F.rrelu, lower=0.1, upper=0.5), lambda: (randn(7),)),
    "inverse": (torch.linalg.inv, lambda: (near_pose(2, 4, 4),)),
    "inverse/rows-swap": (torch.inverse, lambda: (torch.eye(3).flip(0) * 2 + 0.1 * randn(2, 3, 3),)),
    "inverse_ex": (lambda a: tuple(torch.linalg.inv_ex(a)), lambda: (near_pose(3, 3),)),
    "solve": (torch.linalg.solve, lambda: (near_pose(2, 5, 5), randn(2, 5, 3))),
    "solve/vector": (torch.linalg.solve, lambda: (near_pose(4, 4), randn(4))),
    "solve/right": (partial(torch.linalg.solve, left=False), lambda: (near_pose(2, 3, 3), randn(2, 2, 3))),
    "hypot": (torch.hypot, lambda: (torch.cat((torch.zeros(2), randn(5) * 1e30)), torch.cat((torch.zeros(1), randn(6) * 1e30)))),  # noqa: E501
    "index/int32": (lambda x, i: x[:, i], lambda: (randn(3, 6), randint(6, (4,), dtype=torch.int32))),
    "index_copy": (lambda x, i, y: x.index_copy(1, i, y), lambda: (randn(3, 6), torch.randperm(6)[:2], randn(3, 2))),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.5), lambda: (randn(5, 2), torch.randperm(5)[:2])),
    "as_strided": (written_through_strides, lambda: (randn(2, 3),)),
    **{
        f"{name}/float64": (getattr(torch, name), angles(torch.float64)) for name in ("acos", "asin", "atan")
    },
    **{
        f"{name}/float64": (getattr(torch, name), wide(torch.float64))
        for name in ("acosh", "asinh", "atan", "atanh", "cosh", "sinh", "tan")
    },
    "atan2/float64": (torch.atan2, around(torch.float64)),
    **{
        f"adaptive_max_pool{d}d": (
            partial(getattr(F, f"adaptive_max_pool{d}d"), output_size=3, return_indices=True),
            lambda d=d: (randn(2, 2, *(7, 5, 8)[:d]),),
        )
        for d in (1, 2, 3)
    },
    "adaptive_avg_pool3d": (partial(F.adaptive_avg_pool3d, output_size=(3, 2, 3)), lambda: (randn(2, 2, 7, 5, 8),)),
    **{
        f"fractional_max_pool{d}d": (
            lambda x, s, d=d: getattr(F, f"fractional_max_pool{d}d")(
                x, (2, 3, 2)[:d], output_size=(3, 4, 2)[:d], return_indices=True, _random_samples=s
            ),
            lambda d=d: (randn(2, 3, *(9, 11, 7)[:d]), rand(2, 3, d)),
        )
        for d in (2, 3)
    },
    "gaussian_nll_loss": (partial(F.gaussian_nll_loss, full=True), lambda: (randn(3, 5), randn(3, 5), rand(3, 5))),
    "gaussian_nll_loss/one-variance": (
        partial(F.gaussian_nll_loss, reduction="none"),
        lambda: (randn(3, 5), randn(3, 5), rand(3)),
    ),
    **{
        f"ctc_loss/{reduction}": (
            partial(F.ctc_loss, blank=2, reduction=reduction, zero_infinity=reduction == "none"),
            lambda: (
                randn(9, 3, 6).log_softmax(2), torch.tensor([[0, 0, 1, 3], [5, 3, 3, 1], [4, 4, 4, 4]]),
                torch.stack((torch.tensor(9), randint(7, 10, ()), torch.tensor(6))), torch.stack((randint(1, 5, ()), torch.tensor(0), torch.tensor(4))),  # noqa: E501
            ),
        )
        for reduction in ("none", "mean", "sum")
    },
    "setitem: a row of a ring": (in_a_ring, lambda: (randn(4), torch.randint(-5, 5, ()))),
    "setitem: in the last axis": (in_the_last_axis, lambda: (randn(4), torch.randint(-4, 4, (), dtype=torch.int32))),
    "setitem: among other indices": (among_others, lambda: (randn(4), torch.randint(4, ()))),
    "grouped_mm": (
        lambda x, w: torch._grouped_mm(x, w, offs=torch.tensor([2, 2, 6], dtype=torch.int32)),
        lambda: (randn(6, 8), randn(3, 8, 4)),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("name", "format"),
    [
        *((name, ExportFormat.ONNX) for name in CASES),
        *((name, ExportFormat.PT2) for name in CASES if name.startswith(("gaussian", "grouped", "ctc", "setitem"))),
    ],
    ids=str,
)
def test_gives_what_torch_gives_on_other_inputs(record_calls, export, name, format):
    function, draw = CASES[name]
    torch.manual_seed(0)
    example = draw()
    run, _ = export(format, record_calls(function, *example), example)
    for _ in range(2):
        fresh = draw()
        expected = function(*(each.clone() for each in fresh))
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = run(*(each.clone() for each in fresh))
        for value, wanted in zip(found.values(), expected, strict=True):
            tolerance = 1e-12 if wanted.dtype == torch.float64 else 2e-5
            torch.testing.assert_close(value, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "draw", "op", "why"),
    [
        (
            partial(F.interpolate, size=(3, 4), mode="bilinear"),
            lambda: (randint(256, (1, 2, 5, 6), dtype=torch.uint8),),
            "torch.nn.functional.interpolate",
            "resampled in fixed point",
        ),
    ],
)
def test_what_has_no_form_is_refused_by_name(record_calls, export, tmp_path, function, draw, op, why):
    example = draw()
    with pytest.raises(UnsupportedOpError, match=why) as error:
        export(ExportFormat.ONNX, record_calls(function, *example), example)
    assert f"{op} (" in str(error.value)
    assert ".py:" in str(error.value)
    assert not list(tmp_path.rglob("*.onnx"))


@pytest.fixture
def record_calls(make_session):
    """A function recorded as a session records it."""
    from leapp.graph._base import run_passes
    from leapp.graph.passes import EXPORT_PASSES

    def run(function, *inputs):
        session = make_session()
        given = [each.clone() for each in inputs]
        with torch.no_grad():
            session.input_tensors("n", {f"in{index}": each for index, each in enumerate(given)})
            result = function(*given)
            outputs = result if isinstance(result, tuple) else (result,)
            session.output_tensors("n", {f"out{index}": each for index, each in enumerate(outputs)})
        session.stop()
        return run_passes(session.completed[0].recordings[0].graph, EXPORT_PASSES)

    return run
