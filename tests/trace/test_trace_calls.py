"""Every call form: recorded on one sample, evaluated on another, compared with the untraced call."""

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

TABLE = torch.arange(12.0).reshape(3, 4)
VECTOR = torch.tensor([0.5, -1.0, 2.0, 3.0])


def case(name, function, *shapes, dtype=torch.float32):
    return pytest.param(function, shapes or ((3, 4),), dtype, id=name)


def _augmented(a):
    b = a * 1
    b += 1
    b *= a
    b -= VECTOR
    b /= 2
    return b


def _setitem(a):
    b = a.clone()
    b[0] = 1.0
    b[1:, 2] = a[0, :2]
    b[..., -1] = VECTOR[:3]
    return b


def _setitem_mask(a):
    b = a.clone()
    b[b > 0] = 0.0
    b[:, [0, 2]] += 1
    return b


def _write_through_row(a):
    b = a.clone()
    row = b[1]
    row.mul_(10)
    b.t()[0].add_(5)
    return b


def _write_into_buffer(a):
    buffer = torch.zeros(4, 4)
    buffer[:3] = a
    view = buffer[1]
    view += 1
    return buffer * 2


CASES = [
    # operators
    case("add", lambda a: a + 1),
    case("radd", lambda a: 1 + a),
    case("sub", lambda a, b: a - b, (3, 4), (4,)),
    case("rsub", lambda a: 1 - a),
    case("mul", lambda a: a * VECTOR),
    case("rmul-tensor", lambda a: VECTOR * a),
    case("div", lambda a: a / 3),
    case("rdiv", lambda a: 3 / a),
    case("floordiv", lambda a: a // 2),
    case("rfloordiv", lambda a: 7 // a),
    case("mod", lambda a: a % 2),
    case("rmod", lambda a: 7 % a),
    case("pow", lambda a: a**2),
    case("rpow", lambda a: 2**a),
    case("neg-abs-pos", lambda a: +abs(-a)),
    case("matmul", lambda a: a @ TABLE.T),
    case("rmatmul", lambda a: TABLE.T @ a),
    case("compare", lambda a, b: (a < b) & ~(a >= 0) | (a == b) ^ (a != 1), (3, 4), (3, 4)),
    case("shifts", lambda a: (a << 2) >> 1, (5,), dtype=torch.int64),
    case("int-and-or", lambda a: (a & 3) | 8, (5,), dtype=torch.int64),
    # properties
    case("T", lambda a: a.T),
    case("mT", lambda a: a.mT, (2, 3, 4)),
    case("data", lambda a: a.data * 2),
    case("shape", lambda a: a.reshape(a.shape[1], a.shape[0]) * a.ndim),
    # method spellings that only one format would refuse
    case("tile-loose", lambda a: a.tile(1, 2)),
    case("flip-loose", lambda a: a.flip(0)),
    case("flip-list", lambda a: a.flip([0, 1])),
    case("norm-p", lambda a: a.norm(p=1)),
    case("norm-dim", lambda a: a.norm(dim=1, keepdim=True)),
    case("sum-axis", lambda a: a.sum(axis=1)),
    case("sum-keepdims", lambda a: a.sum(dim=1, keepdim=True)),
    case("sum-loose-dims", lambda a: a.sum((0, 1))),
    case("mean-dim", lambda a: a.mean(-1)),
    case("bool", lambda a: a.bool()),
    case("casts", lambda a: a.long().double().to(torch.float16).float()),
    case("type", lambda a: a.type(torch.int64)),
    case("type-string", lambda a: a.type("torch.DoubleTensor")),
    case("type_as", lambda a: a.type_as(torch.zeros(1, dtype=torch.float64))),
    case("to-device", lambda a: a.to("cpu", torch.float64) + a.cpu()),
    case("new_tensor", lambda a: a + a.new_tensor([1.0, 2.0, 3.0, 4.0])),
    case("new_zeros", lambda a: torch.cat([a, a.new_zeros(1, 4)])),
    case("zeros_like", lambda a: torch.zeros_like(a) + a),
    case("view", lambda a: a.view(-1).view(2, 6)),
    case("reshape-loose", lambda a: a.reshape(2, -1)),
    case("permute", lambda a: a.permute(1, 0)),
    case("expand", lambda a: a.expand(2, 3, 4)),
    case("repeat", lambda a: a.repeat(1, 2)),
    case("unsqueeze-squeeze", lambda a: a.unsqueeze(2).squeeze(2)),
    case("clamp-keywords", lambda a: a.clamp(min=-0.5, max=0.5)),
    case("clip", lambda a: torch.clip(a, -1, 1)),
    case("masked_fill", lambda a: a.masked_fill(a > 0, 0.0)),
    case("where", lambda a: torch.where(a > 0, a, VECTOR)),
    case("cumsum", lambda a: a.cumsum(0)),
    case("topk", lambda a: a.topk(2, dim=1)[0]),
    case("max-dim", lambda a: a.max(1)),
    case("sort", lambda a: torch.sort(a, dim=0).values),
    case("unbind", lambda a: a.unbind(0)[1] + a.unbind(0)[2]),
    case("iterate", lambda a: sum(row * 2 for row in a)),
    case("unpack", lambda a: (lambda x, y, z: x + y * z)(*a)),
    case("split", lambda a: a.split(2, dim=1)[1]),
    case("chunk", lambda a: torch.chunk(a, 2, dim=1)[0]),
    case("stack", lambda a, b: torch.stack((a, b), dim=-1), (3,), (3,)),
    case("einsum", lambda a: torch.einsum("ij,kj->ik", a, TABLE)),
    case("numpy-integer", lambda a: a.narrow(0, np.int64(1), np.int32(2)) * np.float32(0.5)),
    case("numpy-array", lambda a: a * torch.from_numpy(np.arange(4, dtype=np.float32))),
    case("deepcopy", lambda a: copy.deepcopy(a) + 1),
    case("as_tensor", lambda a: torch.as_tensor(a, dtype=torch.float64) * 2),
    case("tensor-of-scalars", lambda a: torch.tensor([[a[0, 0].cos(), -a[0, 1]], [1.5, a.sum()]]) @ a[:2]),
    case("tensor-of-scalars-cast", lambda a: torch.tensor([a[0, 0], 2], dtype=torch.float64)),
    # indexing
    case("index-int", lambda a: a[1]),
    case("index-negative", lambda a: a[-1, 1:-1]),
    case("index-step", lambda a: a[::2, 1::2]),
    case("index-ellipsis-list", lambda a: a[..., [2, 0]]),
    case("index-none", lambda a: a[:, None, :]),
    case("index-mask-where", lambda a: a[torch.tensor([True, False, True])]),
    case("index-tensor", lambda a: a[torch.tensor([2, 0])]),
    case("index-pair", lambda a: a[torch.tensor([0, 1]), torch.tensor([3, 2])]),
    case("index-traced", lambda a: a[a.sum(1).argsort()]),
    case("gather", lambda a: a.gather(1, (a > 0).long())),
    # torch.nn.functional, linalg, special, fft
    case("linear", lambda a: F.linear(a, TABLE, VECTOR[:3])),
    case("softmax", lambda a: F.softmax(a, dim=-1)),
    case("layer_norm", lambda a: F.layer_norm(a, (4,), VECTOR, VECTOR)),
    case("gelu-silu-elu", lambda a: F.gelu(a) + F.silu(a) + F.elu(a)),
    case("normalize", lambda a: F.normalize(a, dim=1)),
    case("one_hot", lambda a: F.one_hot(a.argmax(1), 4)),
    case("pad", lambda a: F.pad(a, (1, 2))),
    case("conv1d", lambda a: F.conv1d(a[None], torch.ones(2, 3, 2)), (3, 5)),
    case("dropout-eval", lambda a: F.dropout(a * 2, 0.5, training=False)),
    case("linalg-norm", lambda a: torch.linalg.norm(a, dim=1)),
    case("linalg-inv", lambda a: torch.linalg.inv(a @ a.T + torch.eye(3))),
    case("linalg-cross", lambda a: torch.linalg.cross(a[:, :3], TABLE[:, :3])),
    case("special", torch.special.expit),
    case("fft", lambda a: torch.fft.rfft(a).abs()),
    # writes and views
    case("add_", lambda a: a.clone().add_(1).mul_(2)),
    case("augmented", _augmented),
    case("setitem", _setitem),
    case("setitem-mask", _setitem_mask),
    case("write-through-row", _write_through_row),
    case("write-into-buffer", _write_into_buffer),
    case("out", lambda a: torch.add(a, 1, out=torch.empty(3, 4)) * 2),
    case("copy_", lambda a: torch.zeros(3, 4).copy_(a) + 1),
    case("relu-inplace", lambda a: F.relu(a * 2, inplace=True)),
    # constants
    case("constant-rows", lambda a: a + TABLE[1] + TABLE[2]),
    case("constant-view-and-whole", lambda a: a * TABLE + TABLE.T[0].sum() + TABLE[:, 1:2]),
    case("constant-strided", lambda a: a[:2] + TABLE.flatten()[::3][:4]),
    case("empty", lambda a: torch.cat([a, torch.empty(0, 4)])),
]


def inputs_of(shapes, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    return [torch.randint(0, 50, shape, generator=generator, dtype=dtype) for shape in shapes]


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(("function", "shapes", "dtype"), CASES)
def test_recorded_equals_untraced(record, function, shapes, dtype):
    traced, fresh = inputs_of(shapes, dtype, 1), inputs_of(shapes, dtype, 2)
    eager = [value.clone() for value in flat(function(*[t.clone() for t in traced]))]
    wrapped = lambda *args: tuple(flat(function(*args)))
    recorded = record(wrapped, *[t.clone() for t in traced])
    for got, expected in zip(recorded.result, eager, strict=True):
        assert torch.equal(got, expected), "the user's own value changed"
    expected = [value.clone() for value in flat(function(*[t.clone() for t in fresh]))]
    kept = [t.clone() for t in fresh]
    for _ in range(2):  # a model has no memory from call to call
        results = flat(recorded(*fresh))
        assert len(results) == len(expected)
        for got, value in zip(results, expected, strict=True):
            assert got.dtype == value.dtype
            assert torch.equal(got, value)
    for before, after in zip(kept, fresh, strict=True):
        assert torch.equal(before, after), "the caller's input was written"
    assert not [t for t in recorded.targets if t.startswith("Tensor.__")]


def test_a_constant_handed_on_stays_the_users(make_session):
    """``MEAN.to(x)`` gives MEAN itself: it must not become a value of one node."""
    mean = torch.ones(3)
    session = make_session()
    for name in ("first", "second"):
        x = torch.randn(3)
        session.input_tensors(name, {"x": x})
        session.output_tensors(name, {"y": x - mean.to(x)})
    assert type(mean) is torch.Tensor


def test_random_programs_keep_gradients_and_modes(record):
    layer = torch.nn.Linear(4, 2)
    x = torch.randn(3, 4)
    with torch.no_grad():
        record(layer, x.clone())
        assert not torch.is_grad_enabled()
    y = record(layer, x.clone()).result
    y.sum().backward()
    assert layer.weight.grad is not None
    assert type(layer.weight) is torch.nn.Parameter


def test_a_recurrent_layer_and_attention(record):
    for module, shape in ((torch.nn.LSTM(4, 3, batch_first=True), (1, 5, 4)), (torch.nn.GRU(4, 3), (5, 1, 4))):
        recorded = record(lambda a, m=module: m(a)[0], torch.randn(shape))
        fresh = torch.randn(shape)
        # With gradients off torch picks another kernel for recurrent layers.
        torch.testing.assert_close(recorded(fresh), module(fresh)[0].detach())
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    recorded = record(lambda a: attention(a, a, a)[0], torch.randn(1, 3, 8))
    fresh = torch.randn(1, 3, 8)
    torch.testing.assert_close(recorded(fresh), attention(fresh, fresh, fresh)[0].detach())


def test_a_lazy_layer_is_initialised_while_it_is_recorded(record):
    layer = torch.nn.LazyLinear(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its weights are drawn inside the node, and torch warns of lazy modules
        recorded = record(layer, torch.randn(2, 4))
    fresh = torch.randn(2, 4)
    assert torch.equal(recorded(fresh), layer(fresh).detach())


def test_batch_norm_in_eval_mode_reads_its_statistics(record):
    norm = torch.nn.BatchNorm1d(4).eval()
    norm.running_mean.copy_(torch.randn(4))
    recorded = record(norm, torch.randn(3, 4))
    fresh = torch.randn(3, 4)
    assert torch.equal(recorded(fresh), norm(fresh).detach())
    assert set(recorded.graph.constants) == {"running_mean", "running_var", "weight", "bias"}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes(record, context):
    layer = torch.nn.Linear(4, 2)

    def function(a):
        with context():
            b = layer(a).add_(1)
            b[0] = 0.0
            return b * 2

    recorded = record(function, torch.randn(3, 4))
    fresh = torch.randn(3, 4)
    assert torch.equal(recorded(fresh), function(fresh).detach())
    with context():
        inside = record(lambda a: layer(a) * 2, torch.randn(3, 4))
    assert torch.equal(inside(fresh), (layer(fresh) * 2).detach())
