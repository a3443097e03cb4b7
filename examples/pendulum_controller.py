"""Swing a pendulum up and hold it there: a trained controller of two nodes, as it runs and as it is exported.

The controller is written once. ``train_pendulum.py`` trains and measures this class, a robot would run it, and ``main``
exports it: outside a session the annotations do nothing. ``python examples/pendulum_controller.py`` writes the bundle
to ``pendulum/`` below the working folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn

import leapp
from leapp import annotate

if TYPE_CHECKING:
    from collections.abc import Callable

Array: TypeAlias = NDArray[np.float32]

WEIGHTS: Final = Path(__file__).with_name("pendulum.safetensors")
MAX_TORQUE: Final = 2.0
"""What the motor gives at most, in N m: too little to lift the pendulum, which has to be swung up."""


class Policy(nn.Module):
    """Features of an observation to a torque within the motor's limits."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Tanh()
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features ``(..., 3)`` to a torque ``(..., 1)`` in N m."""
        torque: torch.Tensor = MAX_TORQUE * self.net(features)
        return torque


class Controller(nn.Module):
    """Observation in, torque out. The statistics of the observations seen in training are kept with the weights."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("std", torch.ones(3))

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Controller:
        """The trained controller, ready to act."""
        controller = cls()
        controller.load_state_dict(load_file(path))
        return controller.eval()

    @torch.no_grad()
    def act(self, observation: Array) -> Array:
        """One tick: ``(cos, sin, angular velocity)`` as the environment gives it, to the torque that it takes."""
        features = self.preprocess(torch.from_numpy(observation))
        torque: Array = self.decide(features).numpy()
        return torque

    def preprocess(self, observation: torch.Tensor) -> torch.Tensor:
        """Put the direction back on the unit circle, scale to what was seen in training, clip outliers."""
        observation = annotate.input_tensors("preprocess", {"observation": observation})
        direction = nn.functional.normalize(observation[..., :2], dim=-1)
        state = torch.cat([direction, observation[..., 2:]], dim=-1)
        features = ((state - self.mean) / self.std).clamp(-5.0, 5.0)
        annotate.output_tensors("preprocess", {"features": features})
        return features

    def decide(self, features: torch.Tensor) -> torch.Tensor:
        """Ask the policy for a torque."""
        features = annotate.input_tensors("policy", {"features": features})
        torque: torch.Tensor = self.policy(features)
        annotate.output_tensors("policy", {"torque": torque})
        return torque


class Episode(NamedTuple):
    """How an episode went. The best return is 0: upright and still from the first tick, without torque."""

    total_reward: float
    ticks: int


def run_episode(act: Callable[[Array], Array], seed: int, max_ticks: int | None = None) -> Episode:
    """Let ``act`` control the pendulum from the start that ``seed`` gives, to the end or for ``max_ticks``."""
    total_reward, ticks = 0.0, 0
    with gymnasium.make("Pendulum-v1", max_episode_steps=max_ticks) as environment:
        observation, _ = environment.reset(seed=seed)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = environment.step(act(observation))
            total_reward += float(reward)
            ticks += 1
            ended = terminated or truncated
    return Episode(total_reward, ticks)


def main(seed: int = 0, ticks: int = 20) -> None:
    """Record the controller at work for some ticks and write its bundle."""
    controller = Controller.load()
    leapp.start("pendulum")
    run_episode(controller.act, seed, ticks)
    leapp.stop()
    leapp.compile_graph()


if __name__ == "__main__":
    main()
