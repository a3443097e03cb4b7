"""Constants of a module that was given to annotate.module: their names and roles."""

import pytest
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 2)
        self.decoder = nn.Linear(2, 2)
        self.register_buffer("gain", torch.tensor([0.5, 2.0]))


@pytest.mark.parametrize("late", [False, True])
def test_names_come_from_the_module_that_was_given_whenever_that_was(make_session, late):
    session, model = make_session(), Model().requires_grad_(False)
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    if not late:
        session.module("n", model, None)
    y = model.decoder(model.encoder(x)) * model.gain
    if late:
        session.module("n", model, None)
    session.output_tensors("n", {"y": y})
    session.stop()
    roles = session.completed[0].recordings[0].constants.roles
    assert roles == {
        "encoder.weight": "parameter",
        "encoder.bias": "parameter",
        "decoder.weight": "parameter",
        "decoder.bias": "parameter",
        "gain": "buffer",
    }


def test_a_buffer_is_one_where_no_parameter_is_used(make_session):
    session, model = make_session(), Model()
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    session.module("n", model, None)
    session.output_tensors("n", {"y": x * model.gain})
    session.stop()
    assert session.completed[0].recordings[0].constants.roles == {"gain": "buffer"}
