# ruff: noqa: E501 - an expected line is one string
"""How state starts in a plain script, and the reset input: closed loop in every format against the untraced code."""

from __future__ import annotations

import contextlib
import copy
import warnings

import pytest
import torch
from torch import nn

import leapp
from leapp import annotate, errors
from leapp.bundle.read import load
from leapp.bundle.samples import read_samples

FORMATS = ["torchscript", "pt2", "onnx"]
TICKS = 60
RESETS = (0, 1, 13, 30, 59)


class Recurrent(nn.Module):
    """Three buffers that change, each in its own way, and one that is only read."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.cell = nn.GRUCell(3, 4)
        self.register_buffer("hidden", torch.full((1, 4), 0.25))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("frames", torch.zeros(2, 3))
        self.register_buffer("gain", torch.full((4,), 0.5))

    def forward(self, x):
        self.count += 1
        self.hidden = self.cell(x, self.hidden)
        self.frames[:-1] = self.frames[1:].clone()
        self.frames[-1] = x[0]
        return self.hidden * self.gain + self.count + self.frames.sum()


def filtered(x, mean, seen, armed):
    """What the node of declared state computes."""
    mean = mean * 0.9 + x * 0.1
    return torch.where(armed, x - mean, x) + seen, mean, seen + 1, armed | (mean.sum() > 0)


def record_module(x, model, **options):
    annotate.input_tensors("policy", {"x": x})
    annotate.module("policy", model)
    annotate.output_tensors("policy", {"y": model(x)}, **options)


def record_states(x, states, **options):
    """``states`` is None at the first tick: the mean starts from the input itself."""
    x = annotate.input_tensors("filter", {"x": x})
    mean, seen, armed = states or (x, torch.tensor(2, dtype=torch.int32), torch.tensor([False, True, False]))
    mean, seen, armed = annotate.state_tensors("filter", {"mean": mean, "seen": seen, "armed": armed})
    y, mean, seen, armed = filtered(x, mean, seen, armed)
    annotate.update_state("filter", {"mean": mean, "seen": seen, "armed": armed})
    annotate.output_tensors("filter", {"y": y}, **options)
    return mean, seen, armed


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """One pipeline of two nodes that know nothing of one another; its folder and the model as it was at first."""
    model = Recurrent().eval()
    untouched = copy.deepcopy(model)
    options = {"export_with": FORMATS, "backend_params": {"reset_port": "fresh start"}}
    leapp.start("two", save_path=tmp_path_factory.mktemp("starts"))
    states = None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            record_module(torch.randn(1, 3), model, **options)
            states = record_states(torch.randn(3), states, **options)
        leapp.stop()
        folder = leapp._api._process.stopped.options.folder
        assert leapp.compile_graph() == {"policy": True, "filter": True}
    return folder, untouched


def test_the_runtime_file_says_how_each_state_starts(exported):
    opened = load(exported[0])
    starts = {port["name"]: port.get("start") for port in opened.contract["models"]["filter"]["inputs"]}
    assert starts == {"x": None, "mean_in": "first-input:x", "seen_in": None, "armed_in": None, "fresh start": None}
    assert opened.contract["pipeline"]["inputs"] == {"filter": ["x", "fresh start"], "policy": ["x", "fresh start"]}
    assert opened.contract["pipeline"]["outputs"] == {"filter": ["y"], "policy": ["y"]}


@pytest.mark.parametrize("format", FORMATS)
def test_a_reset_at_any_tick_is_a_fresh_start(exported, format):
    folder, model = exported
    manager = leapp.InferenceManager(folder, formats=format)
    generator = torch.Generator().manual_seed(11)
    module = filter_states = None
    with torch.no_grad():
        for index in range(TICKS):
            x, z = torch.randn(1, 3, generator=generator), torch.randn(3, generator=generator)
            fresh = {"policy": index in RESETS, "filter": index in RESETS[2:]}
            if fresh["policy"] or module is None:
                module = copy.deepcopy(model)
            if fresh["filter"] or filter_states is None:
                filter_states = (z, torch.tensor(2, dtype=torch.int32), torch.tensor([False, True, False]))
            wanted_y = module(x)
            wanted, *filter_states = filtered(z, *filter_states)
            found = manager.run_policy(
                {
                    "policy/x": x, "filter/x": z,
                    **{f"{node}/fresh start": torch.tensor(value) for node, value in fresh.items()},
                }
            )  # fmt: skip
            torch.testing.assert_close(found["policy/y"], wanted_y)
            torch.testing.assert_close(found["filter/y"], wanted)


def test_a_reset_by_the_runtime_is_one_by_the_input(exported):
    folder, _ = exported
    by_call, by_input = (leapp.InferenceManager(folder, formats="torchscript") for _ in range(2))
    generator = torch.Generator().manual_seed(7)
    for index in range(12):
        inputs = {"policy/x": torch.randn(1, 3, generator=generator), "filter/x": torch.randn(3, generator=generator)}
        if index == 8:
            by_call.reset()
        off, now = torch.tensor(False), torch.tensor(index == 8)
        one = by_call.run_policy({**inputs, "policy/fresh start": off, "filter/fresh start": off})
        two = by_input.run_policy({**inputs, "policy/fresh start": now, "filter/fresh start": now})
        assert one.keys() == two.keys()
        for key, value in one.items():
            assert torch.equal(value, two[key])


def test_the_sample_of_a_reset_holds_other_state_and_the_traced_answer(exported):
    folder, _ = exported
    (ticks, resets) = (
        read_samples(folder / "evidence" / kind / "filter.safetensors") for kind in ("samples", "resets")
    )
    assert [sample.inputs["fresh start"].data for sample in ticks] == [b"\0"] * 3
    (reset,) = resets
    assert reset.inputs["fresh start"].data == b"\1"
    assert reset.inputs["x"] == ticks[0].inputs["x"]
    assert reset.inputs["mean_in"] != ticks[0].inputs["mean_in"]
    assert reset.outputs == ticks[0].outputs


def wrong_reset(port, starts):
    from leapp.graph.passes.reset_port import reset_port

    return reset_port(port, {state: value + 1 for state, value in starts.items()})


def test_a_model_that_resets_to_something_else_is_found(tmp_path, monkeypatch):
    from leapp import _prepare

    monkeypatch.setattr(_prepare, "reset_port", wrong_reset)
    leapp.start("wrong", save_path=tmp_path)
    x = annotate.input_tensors("n", {"x": torch.randn(3)})
    h = annotate.state_tensors("n", {"h": torch.full((3,), 0.5)})
    annotate.update_state("n", {"h": h + x})
    annotate.output_tensors("n", {"y": h * x}, export_with="jit", backend_params={"reset_port": "fresh"})
    leapp.stop()
    with pytest.raises(errors.ValidationError, match="reset"):
        leapp.compile_graph()


@pytest.fixture
def stopped():
    """No session is left open by what is refused half-way."""
    yield
    with contextlib.suppress(errors.NoSessionError):
        leapp.stop()


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"reset_port": 3}, errors.OptionError, "it names the boolean input to add"),
        ({"reset_port": "a/b"}, errors.InvalidNameError, "it holds '/'"),
        ({"reset_port": "y"}, errors.ResetPortError, 'the reset input \'y\' (backend_params["reset_port"]): a port of the node has that name'),
        ({"reset_port": "fresh"}, errors.ResetPortError, "it has no state of its own"),
    ],
)  # fmt: skip
def test_reset_inputs_that_cannot_be(tmp_path, params, error, text):
    leapp.start("none", save_path=tmp_path)
    x = annotate.input_tensors("n", {"x": torch.randn(3)})
    with pytest.raises(error) as caught:
        annotate.output_tensors("n", {"y": x * 2}, export_with="jit", backend_params=params)
        leapp.stop()
        leapp.compile_graph()
    assert text in str(caught.value)


class Sum(nn.Module):
    def forward(self, x, h):
        return x + h, h + 1


def test_a_model_that_is_brought_along_is_not_rewritten(tmp_path):
    torch.jit.save(torch.jit.script(Sum()), tmp_path / "sum.pt")
    leapp.start("brought", save_path=tmp_path)
    x = annotate.input_tensors("n", {"x": torch.randn(3)})
    h = annotate.state_tensors("n", {"h": torch.ones(3)})
    annotate.update_state("n", {"h": h + 1})
    params = {"model_path": str(tmp_path / "sum.pt"), "reset_port": "fresh"}
    annotate.output_tensors("n", {"y": x + h}, export_with=None, backend_params=params)
    leapp.stop()
    with pytest.raises(errors.ResetPortError, match="a model that is brought along is not rewritten"):
        leapp.compile_graph()


def test_a_node_without_an_artifact_keeps_the_port(tmp_path):
    """Whoever supplies the model has to give it the input that was asked for."""
    leapp.start("wired", save_path=tmp_path)
    x = annotate.input_tensors("n", {"x": torch.randn(3)})
    h = annotate.state_tensors("n", {"h": torch.ones(3)})
    annotate.update_state("n", {"h": h + x})
    annotate.output_tensors("n", {"y": h * x}, export_with=None, backend_params={"reset_port": "fresh"})
    leapp.stop()
    leapp.compile_graph()
    assert load(tmp_path / "wired").contract["pipeline"]["inputs"] == {"n": ["x", "fresh"]}
