"""Preprocessing in NumPy feeds a policy in PyTorch: two nodes, wired by the array between them. Weights are random."""

import numpy as np
import torch

import leapp
from leapp import annotate

STATE_MEAN = np.linspace(-0.5, 0.5, 6, dtype=np.float32)
STATE_STD = np.full(6, 0.5, np.float32)
EPSILON = np.float32(1e-6)

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class Policy(torch.nn.Module):
    """One layer: twelve observations to six actions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(12, 6)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Observations ``(12,)`` to actions ``(6,)`` between -1 and 1."""
        return torch.tanh(self.net(obs))


def preprocess(state: Array, velocity: Array, orientation: Array) -> Array:
    """Scale and clip the state, and say where gravity points as seen from the body."""
    state, velocity, orientation = annotate.input_tensors(
        "preprocess", {"state": state, "velocity": velocity, "orientation": orientation}
    )

    state_norm = np.clip((state - STATE_MEAN) / STATE_STD, -5.0, 5.0)
    w, x, y, z = orientation / np.maximum(np.linalg.norm(orientation), EPSILON)
    gravity = -np.array([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])
    obs = np.concatenate([state_norm, velocity, gravity])

    annotate.output_tensors("preprocess", {"obs": obs}, export_with="onnx")
    return obs


def run_policy(policy: Policy, obs: Array) -> Array:
    traced_obs = annotate.input_tensors("policy", {"obs": obs})
    action: Array = policy(torch.from_numpy(traced_obs)).numpy()
    annotate.output_tensors("policy", {"action": action}, export_with="onnx")
    return action


@torch.no_grad()
def main(ticks: int = 3) -> None:
    torch.manual_seed(0)  # the same weights in every run
    policy = Policy().eval()
    sensors = np.random.default_rng(0)

    leapp.start(name="numpy_pipeline")
    for _ in range(ticks):
        state, velocity, orientation = (sensors.normal(size=n).astype(np.float32) for n in (6, 3, 4))
        run_policy(policy, preprocess(state, velocity, orientation))
    leapp.stop()
    leapp.compile_graph()


if __name__ == "__main__":
    main()
