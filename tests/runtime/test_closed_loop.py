"""A pipeline of ours played through the runtime, in every format, against the code that it was recorded from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import leapp
from leapp import annotate

TICKS = 200


class Controller:
    """A recurrent policy, behind an estimator that hears what the policy remembered a tick ago. NumPy and torch."""

    def __init__(self):
        torch.manual_seed(11)
        self.cell = torch.nn.GRUCell(4, 5).requires_grad_(requires_grad=False)
        self.head = torch.nn.Linear(5, 2).requires_grad_(requires_grad=False)
        self.reset()

    def reset(self):
        self.hidden = torch.full((5,), 0.25)
        self.memory = torch.zeros(3)
        self.mean = None

    def tick(self, angles, fallen):
        angles, fallen, memory = annotate.input_tensors(
            "estimator", {"angles": angles, "fallen": fallen, "memory": self.memory}
        )
        mean = annotate.state_tensors("estimator", {"mean": angles if self.mean is None else self.mean})
        mean = annotate.update_state("estimator", {"mean": 0.9 * mean + 0.1 * angles})
        features = torch.cat([torch.sin(mean) + 0.5 * memory, fallen.to(torch.float32).reshape(1)])
        features = annotate.output_tensors("estimator", {"features": features}, export_with=FORMATS)
        self.mean = mean
        features = annotate.input_tensors("policy", {"features": features})
        hidden = annotate.state_tensors("policy", {"hidden": self.hidden})
        hidden = self.cell(features, hidden)
        hidden = annotate.update_state("policy", {"hidden": hidden})
        action, memory = torch.tanh(self.head(hidden)), hidden[:3] * 0.9
        action, self.memory = annotate.output_tensors(
            "policy", {"action": action, "memory": memory}, export_with=FORMATS
        )
        self.hidden = hidden
        return action


FORMATS = ["onnx", "pt2", "torchscript"]


def observations(seed):
    rng = np.random.default_rng(seed)
    return [
        (torch.from_numpy(rng.normal(size=3).astype(np.float32)), torch.tensor(bool(rng.integers(2))))
        for _ in range(TICKS)
    ]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    controller = Controller()
    leapp.start("loop", save_path=str(folder))
    for angles, fallen in observations(1)[:3]:
        controller.tick(angles, fallen)
    leapp.stop()
    leapp.compile_graph()
    return folder / "loop"


@pytest.fixture(scope="module")
def expected():
    """What the plain code does, twice from its start."""
    controller = Controller()
    runs = []
    for seed in (7, 8):
        controller.reset()
        runs.append([controller.tick(*each) for each in observations(seed)])
    return runs


@pytest.mark.parametrize("formats", [*FORMATS, {"policy": "pt2"}, {"estimator": "torchscript"}], ids=str)
def test_as_the_plain_code(bundle, expected, formats):
    run = leapp.InferenceManager(bundle, formats=formats)
    assert sorted(run.pipeline.inputs) == ["estimator"]
    for seed, actions in zip((7, 8), expected, strict=True):
        run.reset()
        for tick, ((angles, fallen), action) in enumerate(zip(observations(seed), actions, strict=True)):
            result = run({"estimator/angles": angles, "estimator/fallen": fallen})
            assert set(result) == {"policy/action", "policy/memory"}
            torch.testing.assert_close(result["policy/action"], action, rtol=1e-4, atol=1e-5, msg=f"tick {tick}")
