"""Constants of every kind, in all three formats: held with their values, or refused by name at the line that used them."""

import functools
import re

import pytest
from judge import FORMATS, export, judge
from programs import Program

from leapp import _dtypes
from leapp._spec import ExportFormat


def of(*body, outside, outputs=("v",)):
    sets = (("torch.tensor([1.0, -2.0, 3.0])",), ("torch.tensor([-4.0, 5.0, 0.5])",))
    return Program(tuple(outside), ("a",), sets, body, tuple(outputs), rounded=True)


def of_dtype(name):
    dtype = f"torch.{_dtypes.BY_NAME[name].torch_name}"
    made = f"p = torch.tensor([1, 0, 2]).to({dtype})"
    if name.startswith("complex"):
        return of("v = torch.view_as_real(a * p)", outside=[f"p = torch.tensor([1 + 2j, 0, 3j], dtype={dtype})"])
    return of("v = a * p", outside=[made])


DTYPES = {row.name: of_dtype(row.name) for row in _dtypes.DTYPES}
FORMS = {
    "0-d": of("v = a * p", outside=["p = torch.tensor(2.5)"]),
    "empty": of("v = torch.cat([a[None], p])", "w = a[None] @ p.t()", outside=["p = torch.zeros(0, 3)"], outputs=["v", "w"]),
    "transposed": of("v = a @ p", outside=["p = torch.arange(12.0).reshape(4, 3).t()"]),
    "every second": of("v = a * p", outside=["p = torch.arange(6.0)[::2]"]),
    "expanded": of("v = a * p", outside=["p = torch.tensor([2.0]).expand(3)"]),
    "imaginary part": of("v = a * p", outside=["p = torch.tensor([1j, 2.0, 3j]).imag"]),
    "negated part": of("v = a * p", outside=["p = torch.tensor([1j, 2.0, 3j]).conj().imag"]),
    "integers as an index": of("v = a[p]", outside=["p = torch.tensor([2, 0])"]),
    "bools as a mask": of("v = torch.where(p, a, -1)", "w = a[p]", outside=["p = torch.tensor([True, False, True])"], outputs=["v", "w"]),
    "bools put": of("v = a * 1", "v[p] = 7", outside=["p = torch.tensor([True, False, True])"]),
}  # fmt: skip
PROGRAMS = DTYPES | FORMS


@functools.cache
def verdict(name):
    return judge(PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_recordings(name):
    assert not verdict(name).refused


@pytest.mark.parametrize("format", FORMATS, ids=lambda each: each.value)
def test_formats(format, tmp_path):
    assert export([verdict(name) for name in PROGRAMS], format, tmp_path) == {}


def test_complex_results_are_refused_by_onnx_by_name(tmp_path):
    made = judge(of("v = a * p", outside=["p = torch.tensor([1j, 2.0, 3j])"]))
    (why,) = export([made], ExportFormat.ONNX, tmp_path).values()
    assert "onnxruntime has no complex64 tensors; use torch.view_as_real" in why
    assert export([made], ExportFormat.TORCHSCRIPT, tmp_path) == export([made], ExportFormat.PT2, tmp_path) == {}


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("torch.zeros(3).to(torch.float8_e4m3fn)", "float8_e4m3fn"),
        ("torch.eye(3).to_sparse()", "sparse_coo"),
        ("torch.eye(3).to_sparse_csr()", "sparse_csr"),
        ("torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8)", "quantised"),
    ],
)
def test_kinds_that_no_file_holds_are_refused_at_the_line_that_used_them(made, kind):
    use = "p @ a" if kind.startswith("sparse") else "p.expand_as(a)"
    inside = judge(of("w = a * 2", f"v = {use}", outside=[f"p = {made}"]))
    assert re.search(rf"ConstantKindError: .*a {kind} tensor was used at .*program.py:2", inside.refused), (
        inside.refused
    )
