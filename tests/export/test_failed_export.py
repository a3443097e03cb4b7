"""A format that cannot hold an operation: a sentence for the person, the exporter's own tracebacks for the log."""

from __future__ import annotations

import traceback

import pytest
import torch

import leapp
from leapp import annotate
from leapp._evidence import taken_traces
from leapp.errors import UnsupportedOpError


def test_the_terminal_gets_the_sentence_and_the_log_the_rest(tmp_path):
    leapp.start("bad", save_path=tmp_path)
    x = annotate.input_tensors("n", {"x": torch.randn(2)})
    annotate.output_tensors("n", {"y": torch.special.bessel_j0(x)}, export_with="onnx")
    leapp.stop()
    with pytest.raises(UnsupportedOpError, match=r"onnx cannot hold torch.special.bessel_j0 \(") as caught:
        leapp.compile_graph(visualize=False)
    shown = "".join(traceback.format_exception(caught.value))
    assert "direct cause" not in shown
    assert "torch/onnx" not in shown
    log = (tmp_path / "bad" / "log.txt").read_text()
    assert log.startswith("pipeline bad\n")
    assert "The above exception was the direct cause of the following exception" in log
    assert "torch/onnx" in log
    assert "\x1b" not in log


def test_only_what_exporters_raised_goes_to_the_log():
    plain = UnsupportedOpError(node="n", format="onnx", op="f", where="a.py:1", why="it has no form")
    assert taken_traces([plain]) == []
