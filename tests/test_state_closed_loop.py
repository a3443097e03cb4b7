"""Nodes with state, exported in every format and run tick by tick on other inputs, against the untraced code."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import leapp
from leapp import annotate

FORMATS = ["onnx", "pt2", "torchscript"]


class Gru:
    """Hidden state in a plain attribute, declared."""

    start = torch.full((1, 4), 0.25)

    def __init__(self):
        torch.manual_seed(0)
        self.cell = nn.GRUCell(3, 4)
        self.hidden = self.start.clone()

    def __call__(self, x):
        x = annotate.input_tensors("gru", {"x": x})
        h = annotate.state_tensors("gru", {"h": self.hidden})
        self.hidden = self.cell(x, h)
        annotate.update_state("gru", {"h": self.hidden})
        return annotate.output_tensors("gru", {"y": self.hidden * 2}, export_with=FORMATS)


class Lstm:
    """A tuple of states, of a stacked nn.LSTM."""

    def __init__(self):
        torch.manual_seed(1)
        self.lstm = nn.LSTM(3, 4, num_layers=2)
        self.state = torch.zeros(2, 4), torch.zeros(2, 4)

    def __call__(self, x):
        x = annotate.input_tensors("lstm", {"x": x})
        h, c = annotate.state_tensors("lstm", dict(zip(("h", "c"), self.state, strict=True)))
        y, self.state = self.lstm(x, (h, c))
        annotate.update_state("lstm", {"h": self.state[0], "c": self.state[1]})
        return annotate.output_tensors("lstm", {"y": y}, export_with=FORMATS)


class Frames(nn.Module):
    """A ring buffer with its place, and a counter, all registered buffers that are written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ring", torch.zeros(4, 3))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("weights", torch.tensor([0.1, 0.2, 0.3, 0.4]))

    def forward(self, x):
        self.count += 1
        self.ring.index_copy_(0, self.place[None], x)
        self.place.copy_((self.place + 1) % 4)
        return self.weights @ self.ring, self.count * 1

    def __call__(self, x):
        x = annotate.input_tensors("frames", {"x": x})
        annotate.module("frames", self)
        y, n = super().__call__(x)
        return annotate.output_tensors("frames", {"y": y, "n": n}, export_with=FORMATS)


class Recurrent(nn.Module):
    """A hidden state that is reassigned, in a module inside the module."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Sequential(nn.Linear(3, 4), Remembering())

    def __call__(self, x):
        x = annotate.input_tensors("recurrent", {"x": x})
        annotate.module("recurrent", self, ["body.1.hidden"])
        return annotate.output_tensors("recurrent", {"y": self.body(x)}, export_with=FORMATS)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(4, 4)
        self.register_buffer("hidden", torch.ones(1, 4))

    def forward(self, x):
        self.hidden = self.cell(x, self.hidden)
        return self.hidden.flip(-1)


class Learning(nn.Module):
    """Running statistics of torch's own, in training mode."""

    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm1d(3)

    def __call__(self, x):
        x = annotate.input_tensors("learning", {"x": x})
        annotate.module("learning", self)
        rows = self.batch(x * torch.arange(1.0, 5.0)[:, None])
        y = rows + self.batch.running_mean + self.batch.running_var
        return annotate.output_tensors("learning", {"y": y}, export_with=FORMATS)


class Normaliser:
    """Welford's running mean and variance, in NumPy, with a count that is a scalar."""

    def __init__(self):
        self.mean, self.squares, self.count = np.zeros(3), np.zeros(3), np.float64(0.0)

    def __call__(self, x):
        x = annotate.input_tensors("normaliser", {"x": x})
        state = {"mean": self.mean, "squares": self.squares, "count": self.count}
        mean, squares, count = annotate.state_tensors("normaliser", state)
        count = count + 1.0
        difference = x - mean
        mean = mean + difference / count
        squares = squares + difference * (x - mean)
        self.mean, self.squares, self.count = annotate.update_state(
            "normaliser", {"mean": mean, "squares": squares, "count": count}
        )
        y = (x - mean) / np.sqrt(squares / count + 1e-3)
        return annotate.output_tensors("normaliser", {"y": y}, export_with=FORMATS)


class Delays:
    """Two nodes in a loop that nobody declared: each is handed what the other gave at the former tick."""

    def __init__(self):
        self.memory = torch.zeros(1, 3)

    def __call__(self, x):
        x, memory = annotate.input_tensors("estimator", {"x": x, "memory": self.memory})
        features = annotate.output_tensors("estimator", {"features": x + 0.5 * memory}, export_with=FORMATS)
        features = annotate.input_tensors("policy", {"features": features})
        actions = torch.tanh(features)
        self.memory = features - actions
        actions, self.memory = annotate.output_tensors(
            "policy", {"actions": actions, "memory": self.memory}, export_with=FORMATS
        )
        return actions


PARTS = {
    "gru": Gru,
    "lstm": Lstm,
    "frames": Frames,
    "recurrent": Recurrent,
    "learning": Learning,
    "normaliser": Normaliser,
    "estimator": Delays,
}


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(1, 3, generator=generator) for name in PARTS}
    return drawn | {"normaliser": drawn["normaliser"][0].double().numpy()}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """All of it in one bundle, of three ticks."""
    folder = tmp_path_factory.mktemp("loop")
    leapp.start("loop", folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", leapp.LeappWarning)
        parts = {name: part() for name, part in PARTS.items()}
        for tick in range(3):
            for name, x in inputs(tick).items():
                parts[name](x)
        leapp.stop()
    leapp.compile_graph(visualize=False)
    return folder / "loop"


def flat(node, result):
    """What a part gave, by port."""
    if node == "frames":
        return {"frames/y": result[0], "frames/n": result[1]}
    return {("policy/actions" if node == "estimator" else f"{node}/y"): result}


@pytest.mark.parametrize("form", FORMATS)
def test_every_part_runs_closed_loop(bundle, form):
    manager = leapp.InferenceManager(bundle, formats=form)
    for _ in range(2):
        parts = {name: part() for name, part in PARTS.items()}
        for tick in range(10):
            given = inputs(100 + tick)
            results = manager.run_policy({f"{node}/x": x for node, x in given.items()})
            with torch.no_grad():
                expected = [flat(node, parts[node](x)) for node, x in given.items()]
            for port, value in ((port, value) for each in expected for port, value in each.items()):
                assert np.allclose(results[port], np.asarray(value), rtol=1e-5, atol=1e-6), (tick, port)
        manager.reset()


def test_ports_of_states_are_wired_and_listed_nowhere(bundle):
    import yaml

    pipeline = yaml.safe_load((bundle / "loop.yaml").read_text())["pipeline"]
    assert pipeline["feedback_flow"] == {
        **{
            f"{node}/{name}_out": [f"{node}/{name}_in"]
            for node, names in {
                "gru": "h",
                "lstm": "h c",
                "frames": "ring place count",
                "recurrent": "body_1_hidden",
                "learning": "batch_running_mean batch_running_var batch_num_batches_tracked",
                "normaliser": "mean squares count",
            }.items()
            for name in names.split()
        },
        "policy/memory": ["estimator/memory"],
    }
    assert pipeline["data_flow"] == {"estimator/features": ["policy/features"]}
    assert pipeline["inputs"] == {node: ["x"] for node in PARTS}
    assert pipeline["outputs"]["frames"] == ["y", "n"]
    assert pipeline["outputs"]["normaliser"] == ["y"]
