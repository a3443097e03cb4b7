"""Programs that random ones led to: writes through views of every kind, in all three formats."""

import functools

import pytest
from judge import FORMATS, computes_complex, export, judge
from programs import Program

from leapp._spec import ExportFormat


def of(*body, outputs, outside=(), first="torch.arange(12.0).reshape(3, 4)", second="-2 * torch.ones(3, 4)"):
    return Program(tuple(outside), ("a",), ((first,), (second,)), body, tuple(outputs), rounded=False)


def complex_made(*body, **options):
    return of("c = torch.complex(a, a)", *body, "o = torch.view_as_real(c) * 1", outputs=["o"], **options)


PLAIN = ("p = torch.ones(3, 4)",)
PROGRAMS = {
    "diagonal": of("v = a * 1", "v.diagonal().add_(1)", outputs=["v"]),
    "diagonal and its base in turn": of(
        "v = a * 1", "d = v.diagonal()", "d.add_(1)", "v.mul_(2)", "e = d * 1", "d[0] = 7", "v[1] += d[0]",
        outputs=["v", "d", "e"],
    ),
    "diagonal of a view": of("v = a * 1", "d = v[1:].t().diagonal()[1:]", "d.mul_(d)", "w = v + 1", outputs=["v", "d", "w"]),
    "diagonal of a diagonal": of(
        "v = torch.stack([a[:, :3], a[:, :3] * 2, a[:, 1:]])", "d = v.diagonal().diagonal()", "d.zero_()",
        "e = v.diagonal()", "e += 1", "v[0] *= 2", "e[0] = d", outputs=["v", "d", "e"],
    ),
    "diagonal assigned": of("v = a * 1", "v.diagonal(1)[0:2] = a[0, 0:2]", outputs=["v"]),
    "diagonal as out": of("v = a * 1", "torch.mul(a[0, :3], 2, out=v.diagonal())", outputs=["v"]),
    "diagonal of an input": of("a.diagonal().mul_(a[0, :3])", "b = a + 1", outputs=["b", "a"]),
    "diagonal of a buffer": of("q.add_(a[0, :3])", "w = p * 1", outputs=["w"], outside=(*PLAIN, "q = p.diagonal()")),
    "filled diagonal": of("v = a * 1", "w = v.fill_diagonal_(5)", "w[0] += 1", outputs=["v", "w"]),
    "strided": of("v = a * 1", "v.as_strided((2, 2), (2, 1), 1).add_(1)", outputs=["v"]),
    "strided read": of("v = a * 1", "w = v.as_strided((2, 2), (2, 1), 1)", outputs=["w"]),
    "strided part": of(
        "v = a * 1", "w = torch.as_strided(v[1:], size=(2, 2), stride=(2, 1), storage_offset=5)", "w.add_(1)", "v[1] = 0",
        outputs=["w", "v"],
    ),
    "strided transpose": of("v = a * 1", "w = v.t().as_strided((2, 2), (2, 1))", "w.add_(1)", outputs=["w", "v"]),
    "strided input": of("w = a.as_strided((2, 2), (2, 1), 1)", "w.add_(1)", outputs=["w", "a"]),
    "strided input with other strides": of(
        "w = a.as_strided((2, 2), (2, 1), 1)", outputs=["w"],
        first="torch.arange(12.0).reshape(4, 3).t()", second="torch.arange(12.0, 0, -1).reshape(4, 3).t()",
    ),
    "strided constant": of("w = q + a.sum()", outputs=["w"], outside=("p = torch.arange(12.0)", "q = p.as_strided((2, 3), (2, 1), 1)")),
    "unfolded": of("v = a * 1", "v.unfold(1, 2, 2).mul_(2)", outputs=["v"]),
    "real": complex_made("c.real.add_(a)", "c.imag = a * 3", "c.real += 1"),
    "real of a buffer": of(
        "p.imag = a[0]", "p.real = a[1]", "p.add_(1)", "o = torch.view_as_real(p) * 1", outputs=["o"],
        outside=["p = torch.zeros(4, dtype=torch.complex64)"],
    ),
    "pairs": complex_made("torch.view_as_real(c)[..., 0].add_(a)"),
    "conjugate": complex_made("c.conj().mul_(2j)"),
    "complex": of("v = a * 1", "torch.view_as_complex(v.view(3, 2, 2)).mul_(2)", outputs=["v"]),
    "column of a large buffer": of("q.add_(a[:, 0])", "w = p.sum(1)", outputs=["w"], outside=("p = torch.ones(3, 500)", "q = p[:, 3]")),
    "expanded": of("v = a[:, :1] * 1", "w = v.expand(3, 4)", "v.add_(1)", "o = w * 1", outputs=["o"]),
    "out of another dtype": of("v = torch.zeros(3, 4, dtype=torch.float64)", "torch.add(a, 1, out=v)", "w = v + 1", outputs=["v", "w"]),
    "out of half": of("torch.abs(a, out=a)", outputs=["a", "a"], first="-torch.ones(3).half()", second="torch.ones(3).half() * -2"),
    "a view that does not say so": of(
        "v = a[0] * 1", "torch.atleast_2d(v)[0, 1:].neg_()", "w = a * 1", "torch.broadcast_tensors(w, v)[0].relu_()",
        "x, y = torch.atleast_2d(v, w)", "x += 1", "z = F.dropout(w, training=False)", "z += 1", "u = v.type_as(w)",
        "u *= 2", outputs=["v", "w"],
    ),
    "reversed": of("v = reversed(a)", "v[0] = 1", outputs=["v"]),
    "a cast that must copy": of("v = a * 1", "w = v.to(v.dtype, copy=True)", "v.add_(1)", outputs=["v", "w"]),
    "copy.copy": of("v = a * 2", "w = copy.copy(v)", "w.add_(1)", "w.unsqueeze_(0)", "o = v + 1", outputs=["o", "w"]),
    "copy.deepcopy": of("v = a * 2", "w = copy.deepcopy(v)", "w.add_(1)", outputs=["v", "w"]),
    "torch.Tensor": of("v = a * 2", "w = torch.Tensor(v)", "w.add_(1)", "z = torch.Tensor(a * 3)", outputs=["v", "w", "z"]),
    "nn.Parameter": of(
        "m = nn.Linear(4, 3)", "m.bias = nn.Parameter(a[:, 0] * 2)", "nn.init.ones_(m.weight)", "m.bias.data.add_(1)",
        "w = m(a)", outputs=["w"],
    ),
    "data assigned": of("v = a * 1", "v.data += 1", "v.data *= a", outputs=["v"]),
    "a view of a written buffer as an output": of("q.copy_(a[0])", outputs=["p"], outside=(*PLAIN, "q = p[1]")),
}  # fmt: skip


@functools.cache
def verdict(name):
    return judge(PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_recordings(name):
    assert not verdict(name).refused
    assert not verdict(name).skipped


@pytest.mark.parametrize("format", FORMATS, ids=lambda each: each.value)
def test_formats(format, tmp_path):
    real = [verdict(name) for name in PROGRAMS if not computes_complex(verdict(name))]
    assert export(real, format, tmp_path) == {}
    if format is not ExportFormat.ONNX:
        assert export([verdict(name) for name in PROGRAMS if computes_complex(verdict(name))], format, tmp_path) == {}
