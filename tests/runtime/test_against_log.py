"""Logs of ticks against a pipeline: a runtime file alone, and inputs that a log may leave out."""

from __future__ import annotations

import numpy as np
import pytest
from pipelines import Pipeline, port

from leapp.bundle.samples import write_tensors
from leapp.errors import TickLogError
from leapp.runtime.against_log import replay_log


@pytest.fixture
def resettable(tmp_path):
    """A sum that begins anew where ``fresh`` is true."""
    made = Pipeline(tmp_path).node(
        "sum",
        [port("step", 2), port("held", 2), port("fresh", dtype="bool", kind="reset")],
        [port("total", 2)],
        [("Where", "fresh zero held", "kept"), ("Add", "step kept", "total")],
        {"zero": [0.0, 0.0]},
    )
    made.wires(feedback_flow={"sum/total": ["sum/held"]}, inputs={"sum": ["step", "fresh"]}, outputs={"sum": ["total"]})
    return made.start(sum__held=np.float32([1, 1])).write()


def logged(path, *totals, fresh=None):
    stored = {}
    for tick, total in enumerate(totals):
        stored |= {f"{tick}/in/sum/step": np.float32([1, 2]), f"{tick}/out/sum/total": np.float32(total)}
    if fresh is not None:
        stored[f"{fresh}/in/sum/fresh"] = np.array(True)
    write_tensors(path / "log.safetensors", stored)
    return path / "log.safetensors"


def test_a_reset_input_may_be_left_out(resettable, tmp_path):
    report = replay_log(resettable, logged(tmp_path, [2, 3], [3, 5], [1, 2], [2, 4], fresh=2))
    assert (report.ok, report.ticks, report.notes) == (True, 4, ())
    report = replay_log(resettable, logged(tmp_path, [2, 3], [3, 5], [1, 2], [2, 4]))
    node, found = report.first
    assert (node, found.port, found.sample, found.failed) == ("sum", "total", 2, (2, 3))
    assert (found.difference.expected, found.difference.actual) == ("2.0", "7.0")


def test_the_tolerances_of_a_runtime_file_alone_are_the_usual_ones(resettable, tmp_path):
    log = logged(tmp_path, [2.001, 3])
    assert replay_log(resettable, log).ok
    assert not replay_log(resettable, log, rtol=1e-5, atol=0.0).ok


def test_other_inputs_must_be_there(resettable, tmp_path):
    path = tmp_path / "log.safetensors"
    write_tensors(path, {"0/in/sum/fresh": np.array(True), "0/out/sum/total": np.float32([1, 2])})
    with pytest.raises(TickLogError, match="tick 0 has no input 'sum/step'"):
        replay_log(resettable, path)
