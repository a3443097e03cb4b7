"""Logs of ticks, and files of inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leapp.bundle.samples import write_tensors
from leapp.errors import TickLogError
from leapp.runtime.log import Tick, TickWriter, read_ticks, write_ticks

ONE = np.float32([1, 2])


def test_what_is_written_is_read_again(tmp_path):
    writer = TickWriter()
    for at in range(12):  # ticks are numbers: 10 comes after 9
        value = np.float32([at])
        writer.add({"a/x": torch.tensor(at), "a/in": value}, {"b/y": value}, {"a/held": value} if at else None)
        value[:] = -1
    writer.write(tmp_path / "log")
    log = read_ticks(tmp_path / "log")
    assert len(log.ticks) == 12
    assert log.every == {}
    for at, tick in enumerate(log.ticks):
        assert tick.inputs["a/x"].torch() == at
        assert tick.inputs["a/in"].numpy().tolist() == tick.outputs["b/y"].numpy().tolist() == [at]
        assert set(tick.feedback) == ({"a/held"} if at else set())
    write_ticks(tmp_path / "again", log.ticks)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "log").read_bytes()


def test_values_for_every_tick(tmp_path):
    write_tensors(tmp_path / "f", {"a/x": ONE, "0/in/b/y": ONE, "1/in/b/y": ONE, "1/in/a/x": 2 * ONE})
    log = read_ticks(tmp_path / "f")
    assert log.inputs(0)["a/x"].numpy().tolist() == [1, 2]
    assert log.inputs(1)["a/x"].numpy().tolist() == [2, 4], "a value of its own wins"
    with pytest.raises(TickLogError, match="tick 2 was asked for, and it ends after 2"):
        log.inputs(2)
    write_tensors(tmp_path / "f", {"a/x": ONE, "0/in": ONE})
    log = read_ticks(tmp_path / "f")
    assert log.ticks == ()
    assert set(log.inputs(1000)) == {"a/x", "0/in"}


def test_ticks_without_inputs(tmp_path):
    write_ticks(tmp_path / "f", [Tick(outputs={"a/y": ONE})])
    assert read_ticks(tmp_path / "f").inputs(0) == {}


BAD = [
    ({"x": ONE}, "'x' is no key of a log"),
    ({"0/im/a/x": ONE}, "'0/im/a/x' is no key of a log"),
    ({"0/in/a": ONE}, "'0/in/a' is no key of a log"),
    ({"00/in/a/x": ONE}, "'00/in/a/x' is no key of a log"),
    ({"-1/in/a/x": ONE}, "'-1/in/a/x' is no key of a log"),
    ({"0/in//x": ONE}, "'0/in//x' is no key of a log"),
    ({"0/in/a/x": ONE, "3/in/a/x": ONE}, "tick 1 is missing: there are 2, the last is 3"),
    ({}, "it holds no tensors"),
]


@pytest.mark.parametrize(("tensors", "why"), BAD, ids=[why for _, why in BAD])
def test_files_of_another_form(tmp_path, tensors, why):
    write_tensors(tmp_path / "f", tensors)
    with pytest.raises(TickLogError) as caught:
        read_ticks(tmp_path / "f")
    assert why in str(caught.value)


def test_what_is_no_file_of_tensors(tmp_path):
    (tmp_path / "text").write_text("text, and more text")
    for path, why in (("text", "no sound .safetensors"), ("gone", "No such file"), ("", "Is a directory")):
        with pytest.raises(TickLogError, match=why):
            read_ticks(tmp_path / path)
    with pytest.raises(TickLogError, match="it cannot be written: No such file"):
        write_ticks(tmp_path / "gone" / "log", [Tick(inputs={"a/x": ONE})])
