"""What is recorded below torch's functions: transforms, autocast, default dtypes; and the sentinel."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from leapp import errors
from leapp._spec import ExportFormat
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import run_passes
from leapp.graph.passes import EXPORT_PASSES

LINEAR = torch.nn.Linear(4, 4)
ATTENTION = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
RECURRENT = torch.nn.GRU(4, 3, batch_first=True).eval()
MATRIX = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


def field(x: torch.Tensor) -> torch.Tensor:
    return (x @ MATRIX).tanh()


def _dual(x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(field(forward_ad.make_dual(x, x * 2))).tangent


WEIGHTS = {name: value.detach() for name, value in LINEAR.named_parameters()}
ENSEMBLE = {name: torch.stack([value, value * 2]) for name, value in WEIGHTS.items()}


def under_autocast(function, dtype=torch.bfloat16):
    def run(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
            return function(x)

    return run


def with_default(dtype, function):
    def run(x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return function(x)
        finally:
            torch.set_default_dtype(before)

    return run


def _changed_in_place(x):
    y = LINEAR(x)
    y[0] += 1
    y.mul_(2)
    return y + x


TRANSFORMS = {
    "vmap": lambda x: torch.func.vmap(lambda row: (row @ MATRIX).sum() * row)(x),
    "vmap over the second axis, out at the end": lambda x: torch.func.vmap(
        lambda c: c * c.sum(), in_dims=1, out_dims=1
    )(x),
    "vmap in chunks": lambda x: torch.func.vmap(field, chunk_size=2)(x),
    "vmap within vmap": lambda x: torch.func.vmap(torch.func.vmap(lambda v: v * 2 + 1))(x),
    "grad": lambda x: torch.func.grad(lambda v: LINEAR(v).tanh().sum())(x),
    "grad and value": lambda x: torch.func.grad_and_value(lambda v: field(v).sum())(x)[0],
    "grad of every row": lambda x: torch.func.vmap(torch.func.grad(lambda row: field(row).sum()))(x) + x,
    "jvp": lambda x: torch.func.jvp(field, (x,), (torch.ones(3, 4),))[1],
    "jacrev": lambda x: torch.func.jacrev(field)(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(field)(x[0]),
    "hessian": lambda x: torch.func.hessian(lambda v: field(v).sum())(x[0]),
    "hessian of a power": lambda x: torch.func.hessian(lambda v: (field(v) ** 2).sum())(x[0]),
    "dual numbers": lambda x: _dual(x),
    "gradients of weights": lambda x: torch.func.grad(
        lambda weights: torch.func.functional_call(LINEAR, weights, (x,)).mean()
    )(WEIGHTS)["weight"],
    "gradients of weights for each row": lambda x: torch.func.vmap(
        torch.func.grad(lambda weights, row: torch.func.functional_call(LINEAR, weights, (row,)).pow(2).sum()),
        in_dims=(None, 0),
    )(WEIGHTS, x)["weight"],
    "an ensemble": lambda x: torch.func.vmap(
        lambda weights, inputs: torch.func.functional_call(LINEAR, weights, (inputs,)), in_dims=(0, None)
    )(ENSEMBLE, x),
    "indices for one axis of several": lambda x: torch.func.vmap(
        lambda row: row.clone().index_put_((torch.tensor([0]),), row[:1], accumulate=True)
    )(x),
    "the gradient of a mean": lambda x: torch.func.grad(
        lambda v: torch.nn.functional.mse_loss(v, v * 2).double().pow(2).sum()
    )(x),
    "zeros that have no memory": lambda x: torch.func.jvp(
        lambda v: torch.addr(MATRIX, v[0], v[1], beta=0.5, alpha=2.0), (x,), (x * 2,)
    )[1],
    "shapes asked for without memory": lambda x: torch.func.jvp(lambda v: torch.lerp(v, v * 2, 0.3), (x,), (x,))[1],
    "functional_call": lambda x: torch.func.functional_call(LINEAR, {"weight": MATRIX}, (x,)),
    "what is captured": lambda x: torch.func.vmap(lambda row: row * x.sum())(torch.ones(3, 4)),
}
CASTS = {
    "linear twice": under_autocast(lambda x: LINEAR(LINEAR(x))),
    "in float16": under_autocast(lambda x: LINEAR(x).float(), torch.float16),
    "an operation that stays in float32": under_autocast(lambda x: torch.nn.functional.layer_norm(LINEAR(x), (4,))),
    "attention": under_autocast(lambda x: ATTENTION(x[None], x[None], x[None])[0]),
    "writes": under_autocast(_changed_in_place),
    "losses": under_autocast(
        lambda x: torch.stack(
            [
                torch.nn.functional.mse_loss(x @ MATRIX, x),
                torch.nn.functional.huber_loss(x @ MATRIX, x, reduction="sum"),
                torch.nn.functional.smooth_l1_loss(x, x.flip(0)),
                torch.nn.functional.binary_cross_entropy_with_logits(x @ MATRIX, x.sigmoid()),
            ]
        )
    ),
    "switched off inside": under_autocast(lambda x: torch.autocast("cpu", enabled=False)(LINEAR)(x)),
}
DEFAULTS = {
    "true division": with_default(torch.float64, lambda x: (x * 10).long() / 3),
    "a float beside integers": with_default(torch.float64, lambda x: (x * 10).long() * 0.1),
    "the root of integers": with_default(torch.float64, lambda x: (x * 10).long().abs().sqrt()),
    "two floats": with_default(torch.float64, lambda x: torch.where(x > 0, 1.0, 0.1)),
    "half": with_default(torch.float16, lambda x: (x * 10).int() / 3),
    "data of another dtype": with_default(torch.float64, lambda x: x * 0.1),
    "bits": with_default(torch.float64, lambda x: (x * 10).long().view(torch.float64) > 0),
}
CASES = {**TRANSFORMS, **CASTS, **DEFAULTS}


def data(seed: int) -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", CASES)
def test_recorded_as_it_ran(record, name):
    function = CASES[name]
    recorded = record(function, data(1))

    wanted = function(data(1))
    assert torch.equal(recorded.result, wanted)
    assert recorded.result.dtype == wanted.dtype
    fresh = recorded(data(2))
    assert fresh.dtype == function(data(2)).dtype
    torch.testing.assert_close(fresh, function(data(2)), rtol=0, atol=0, equal_nan=True)
    assert not recorded.session.escapes.notes


def test_sentinel_has_nothing_to_say_of_what_is_recorded(record):
    """Every case again with the sentinel on, and a few ordinary ones."""
    for function in (*CASES.values(), lambda x: RECURRENT(x[None])[0], lambda x: torch.einsum("ij,kj->ik", x, x)):
        recorded = record(function, data(1), sentinel=True)
        assert torch.equal(recorded.result, function(data(1)))
        assert not recorded.session.escapes.notes


@pytest.mark.parametrize("format", [ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX])
def test_in_every_format(record, format, tmp_path):
    """One model of all cases, run on other data."""
    # float16 has kernels of its own; onnxruntime multiplies no matrices in bfloat16; only .pt2 reads a number's bits.
    left_out = [CASTS["in float16"], *(CASTS.values() if format is ExportFormat.ONNX else ())]
    left_out += [DEFAULTS["bits"]] if format is not ExportFormat.PT2 else []
    cases = {name: case for name, case in CASES.items() if case not in left_out}

    def all_of_them(x):
        return tuple(case(x).float() for case in cases.values())

    recorded = record(all_of_them, data(1))
    graph = run_passes(recorded.graph, EXPORT_PASSES)
    path = tmp_path / f"model{format.suffix}"
    backend_for(format).write(graph, (data(1),), path, ExportOptions())
    outputs = backend_for(format).open(path, graph.spec)({"a": data(2)})
    for name, value, wanted in zip(cases, outputs.values(), all_of_them(data(2)), strict=True):
        torch.testing.assert_close(
            torch.as_tensor(value), wanted, rtol=2e-2, atol=2e-2, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_what_onnxruntime_cannot_run_is_refused_by_name(record, tmp_path):
    graph = run_passes(record(CASTS["linear twice"], data(1)).graph, EXPORT_PASSES)
    with pytest.raises(errors.UnsupportedOpError, match=r"torch\.addmm \(tests/trace/test_trace_dispatched\.py:\d+\)"):
        backend_for(ExportFormat.ONNX).write(graph, (data(1),), tmp_path / "model.onnx", ExportOptions())


def test_a_cast_weight_keeps_its_name(record):
    recorded = record(CASTS["linear twice"], data(1))
    assert {name: str(value.dtype) for name, value in recorded.graph.constants.items()} == {
        "weight": "torch.bfloat16",
        "bias": "torch.bfloat16",
    }


def test_the_same_weights_in_two_nodes_under_one_autocast(make_session):
    session = make_session()
    x, y = data(1), data(2)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for node, tensor in (("first", x), ("second", y)):
            session.input_tensors(node, {"in": tensor})
            session.output_tensors(node, {"out": LINEAR(tensor)})
    session.stop()
    assert [len(node.recordings[0].graph.constants) for node in session.completed] == [2, 2]


def test_a_branch_inside_a_transform_is_named(record):
    def branching(x):
        return torch.func.grad(lambda v: v.sum() if v.sum() > 0 else -v.sum())(x)

    with pytest.raises(errors.DataDependentBranchError, match=r"test_trace_dispatched\.py:\d+"):
        record(branching, data(1))


def test_a_value_read_inside_a_transform_is_named(record):
    with pytest.warns(errors.TraceEscapeWarning, match="item"):
        record(lambda x: torch.func.grad(lambda v: (v * v.sum().item()).sum())(x), data(1))


class TestSentinel:
    """Operations that no hook above the dispatcher sees."""

    @pytest.fixture
    def extension(self):
        """An entry into torch that no hook sees, as an extension in C++ has it."""

        def scaled(x):
            with torch._C.DisableTorchFunction():
                return x * 2

        return scaled

    def test_names_the_operation_and_the_line(self, record, extension):
        with pytest.warns(errors.UntracedOpWarning, match=r"aten\.mul\.Tensor.*test_trace_dispatched\.py:\d+"):
            record(lambda x: x + extension(x), data(1), sentinel=True)

    def test_raises_in_a_strict_session(self, record, extension):
        with pytest.raises(errors.LeftTraceError, match=r"aten\.mul\.Tensor"):
            record(lambda x: x + extension(x), data(1), strict=True)

    def test_sees_plain_memory_of_the_trace(self, record, extension):
        def through_a_view(x):
            return x + extension(alias)

        tensor = data(1)
        alias = tensor[:]
        with pytest.warns(errors.UntracedOpWarning, match=r"aten\.mul\.Tensor"):
            record(through_a_view, tensor, sentinel=True)

    def test_is_off_by_default(self, record, extension):
        assert not record(lambda x: x + extension(x), data(1)).session.escapes.notes

    @pytest.mark.parametrize(
        "function",
        [
            lambda x: torch.from_numpy(x) * 2,
            lambda x: torch.from_numpy(np.concatenate([x, x])[::2]).numpy() + 1,
            lambda x: torch.as_tensor(x) + torch.tensor(x) + torch.asarray(x),
            lambda x: np.asarray(torch.from_numpy(x) * 2) + 1,
            lambda x: torch.tensor([x[0], x[1]]) + torch.as_tensor(x[2]),
            lambda x: torch.from_dlpack(x).expand(3, 4).numpy() * 2,
        ],
    )
    def test_arrays_that_cross_are_seen(self, record, function):
        first, fresh = np.arange(4, dtype=np.float32), np.float32([3, -1, 4, -2])
        recorded = record(function, first, sentinel=True)
        assert not recorded.session.escapes.notes
        np.testing.assert_array_equal(recorded(torch.from_numpy(fresh)), function(fresh))

    def test_follows_the_environment(self, record, extension, monkeypatch):
        monkeypatch.setenv("LEAPP_STRICT", "1")
        with pytest.raises(errors.LeftTraceError):
            record(lambda x: x + extension(x), data(1))


class _Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sentinel", [False, True])
def test_modes_of_the_user_see_their_own_operations(make_session, sentinel):
    """A mode entered before the node and left inside, another the other way round: both see what they always saw."""

    def program(annotate):
        outer, inner = _Counting(), _Counting()
        x = data(1)
        outer.__enter__()
        annotate("input_tensors", {"in": x})
        y = x * 2
        outer.__exit__(None, None, None)
        inner.__enter__()
        z = torch.func.vmap(lambda row: row + 1)(y) + LINEAR.weight[:3]
        annotate("output_tensors", {"out": z})
        w = torch.ones(2) + 1
        inner.__exit__(None, None, None)
        return outer.seen, inner.seen, z, w

    session = make_session(sentinel=sentinel)
    with torch.no_grad():
        traced = program(lambda kind, tensors: getattr(session, kind)("n", tensors))
        session.stop()
        plain = program(lambda *_: None)
    assert traced[:2] == plain[:2]
    assert torch.equal(traced[2], plain[2])
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


class _Sine(TorchDispatchMode):
    """Changes what one operation computes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        func = torch.ops.aten.sin.default if func is torch.ops.aten.tanh.default else func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sentinel", [False, True])
def test_what_a_mode_of_the_user_does_is_recorded(record, sentinel):
    def changed(x):
        with _Sine():
            y = torch.tanh(x @ MATRIX)
        return y + torch.tanh(x)

    recorded = record(changed, data(1), sentinel=sentinel)
    assert torch.equal(recorded.result, (data(1) @ MATRIX).sin() + data(1).tanh())
    assert torch.equal(recorded(data(2)), (data(2) @ MATRIX).sin() + data(2).tanh())


class _ThroughNumPy(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.tanh.default:
            return torch.from_numpy(args[0].numpy() * 3)
        return func(*args, **(kwargs or {}))


def test_what_a_mode_of_the_user_computes_elsewhere_is_named(record):
    def changed(x):
        with _ThroughNumPy():
            return x + torch.tanh(x)

    with pytest.warns(errors.UntracedOpWarning, match=r"args\[0\]\.numpy\(\) \* 3|tanh"):
        record(changed, data(1))


def test_a_kernel_that_casts_inside_itself_is_refused_by_name(record):
    with pytest.raises(errors.UnrecordableOpError, match=r"linalg_pinv under autocast .*\n?.*enabled=False"):
        record(under_autocast(lambda x: torch.linalg.pinv(x, rtol=0.1)), data(1))


def test_fused_attention_under_autocast_is_refused_by_name(record):
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    with pytest.raises(errors.UnrecordableOpError, match="set_fastpath_enabled"):
        record(under_autocast(lambda x: layer(x[None])), data(1))


def test_a_device_context_entered_before_the_node_and_left_inside(make_session):
    session = make_session()
    x = data(1)
    with torch.device("cpu"):
        session.input_tensors("n", {"in": x})
        y = x + torch.ones(4)
    z = y + torch.ones(4)
    session.output_tensors("n", {"out": z})
    session.stop()
    assert not torch.overrides._get_current_function_mode_stack()
    assert torch.equal(z, data(1) + 1 + 1)


def test_the_compiler_imported_inside_a_node_finds_torch_as_it_is(tmp_path):
    """In a process of its own: the first import counts."""
    script = tmp_path / "entry.py"
    script.write_text(
        "import sys, torch, leapp\n"
        "from leapp import annotate\n"
        f"leapp.start('p', save_path={str(tmp_path / 'out')!r})\n"
        "x = torch.randn(3, 4)\n"
        "annotate.input_tensors('n', {'in': x})\n"
        "y = torch.func.vmap(lambda row: row * 2)(x)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "import torch._dynamo\n"
        "assert 'leapp' in torch.Tensor.__new__.__module__\n"
        "annotate.output_tensors('n', {'out': y + torch.Tensor(x)})\n"
        "leapp.stop()\n"
        "assert '__new__' not in vars(torch.Tensor)\n"
        "twice = torch.compile(lambda t: torch.Tensor(t) * 2, backend='eager')\n"
        "assert torch.equal(twice(torch.ones(2)), torch.full((2,), 2.0))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
