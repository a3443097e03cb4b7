"""A fixed sample of the walk over all functions of torch, and every form in which a call can be written.

Everything of one format shares one graph: recorded on one draw of the inputs, run on another.
"""

from __future__ import annotations

import operator
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import forms
import samples
import walk

from leapp import errors
from leapp._spec import ExportFormat
from leapp.ops._row import Kind
from leapp.ops.format_gaps import FORMAT_GAPS
from leapp.ops.torch_table import REFUSED, row_of

SAMPLE = (
    "Tensor.__rpow__ Tensor.__setitem__ Tensor.addmm_ Tensor.copy_ Tensor.cummax Tensor.diagonal Tensor.fill_diagonal_ "
    "Tensor.index_add Tensor.masked_fill_ Tensor.mT.__get__ Tensor.where torch.amax torch.combinations torch.copysign "
    "torch.erfinv torch.fft.rfft torch.linalg.cholesky torch.linalg.vander torch.lstm torch.median "
    "torch.nn.functional.adaptive_avg_pool3d torch.nn.functional.conv2d torch.nn.functional.interpolate "
    "torch.nn.functional.scaled_dot_product_attention torch.searchsorted torch.special.xlogy torch.sum torch.topk"
).split()


def _subjects():
    return {subject.name: subject for subject in samples.subjects()}


@pytest.fixture(scope="module")
def sampled():
    subjects = _subjects()
    return [
        walk.Trial(subjects[name], sample, f"{name}#{number}")
        for name in SAMPLE
        for number, sample in enumerate(samples.samples_of(subjects[name], most=4))
    ]


def test_functions_of_torch_are_recorded(sampled):
    assert len(sampled) > 2 * len(SAMPLE)
    for trial in sampled:
        walk.check_recording(walk.record([trial]))


@pytest.mark.parametrize("format", walk.FORMATS)
def test_functions_of_torch_are_exported(sampled, format):
    gaps = {name for gap in FORMAT_GAPS if format.value in gap.formats for name in gap.names}
    chosen = [trial for trial in sampled if trial.label.endswith("#0") and trial.subject.name not in gaps]
    # The ONNX exporter takes a second for each unrolled factorisation; the walk takes them all.
    walk.check_format(walk.record(chosen[::4] if format is ExportFormat.ONNX else chosen), format)


def _is_of_torch(name):
    owner, rest = (torch.Tensor, name) if name.startswith("Tensor.") else (torch, name)
    try:
        operator.attrgetter(rest.partition(".")[2])(owner)
    except AttributeError:
        return False
    return True


def test_lists_name_functions_of_torch():
    names = set(_subjects())
    assert [name for gap in FORMAT_GAPS for name in gap.names if name not in names] == []
    refused = {name for each in REFUSED for name in each.names.split()}
    assert [name for name in refused if not _is_of_torch(name)] == []
    for name in refused & names:
        assert row_of(_subjects()[name].function).kind is Kind.REFUSE
    for each in REFUSED:
        assert each.why
        assert each.advice


@pytest.fixture(scope="module")
def call_forms():
    return forms.trials()


def test_call_forms_are_recorded(call_forms):
    for trial in call_forms:
        walk.check_recording(walk.record([trial]))


@pytest.mark.parametrize("format", walk.FORMATS)
def test_call_forms_are_exported(call_forms, format):
    # ``nox -s ops`` exports all of them in every format; the slow exporters get a part here.
    part = {ExportFormat.PT2: 2, ExportFormat.ONNX: 4}.get(format, 1)
    walk.check_format(walk.record(call_forms[::part]), format)


@pytest.mark.parametrize("name", ["resize_", "to_sparse", "apply_"])
def test_refused_calls_have_advice_of_their_own(record, name):
    arguments = {"resize_": (2,), "apply_": (float,)}.get(name, ())
    with pytest.raises(errors.UnrecordableOpError) as raised:
        record(lambda a: getattr(a * 1, name)(*arguments), torch.randn(3))
    assert raised.value.facts["advice"] in {each.advice for each in REFUSED}
    assert f"Tensor.{name}" in str(raised.value)


def test_the_walk_sees_a_frozen_result():
    """A recording that gives the first draw's answer for every input fails."""
    function = lambda a: torch.tensor(a.tolist()) + a * 0
    with pytest.raises(walk.WrongError):
        walk.check_recording(walk.record([forms.form(function, "frozen")]))


def test_the_formats_are_those_of_the_design():
    assert walk.FORMATS == (ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX)
