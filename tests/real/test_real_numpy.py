"""NumPy code of public packages, as it is installed, traced and exported."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from traced import check

from leapp._spec import ExportFormat

FORMATS = pytest.mark.parametrize(
    "format", [ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX], ids=lambda each: each.value
)


class Walk(gymnasium.Env):
    """An environment that returns what it was given."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.observation_space = space
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.spec = None
        self.next: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        given, self.next = self.next, None
        return self.observation_space.sample() if given is None else given, 1.0, False, False, {}


STATE = gymnasium.spaces.Box(-3.0, 3.0, (5,), np.float32)
CAMERA = gymnasium.spaces.Box(0, 255, (6, 8, 3), np.uint8)


def normalised(space: gymnasium.Space[Any], **options: Any) -> VecNormalize:
    """A normaliser that has seen some steps, frozen as for an evaluation."""
    vectors = VecNormalize(DummyVecEnv([lambda: Walk(space)] * 2), **options)
    vectors.seed(3)
    vectors.reset()
    for _ in range(20):
        vectors.step(np.zeros((2, 2), np.float32))
    vectors.training = False
    return vectors


@FORMATS
def test_vec_normalize_observations(format, tmp_path):
    vectors = normalised(STATE, clip_obs=1.2)

    def step(state):
        return {"observation": vectors.normalize_obs(state)}

    check(step, lambda rng: {"state": rng.normal(0, 3, (2, 5)).astype(np.float32)}, tmp_path, format=format)


def test_vec_normalize_dictionaries_and_back(tmp_path):
    space = gymnasium.spaces.Dict({"joints": STATE, "goal": gymnasium.spaces.Box(-1, 1, (2,), np.float64)})
    vectors = normalised(space)

    def step(joints, goal):
        there = vectors.normalize_obs({"joints": joints, "goal": goal})
        back = vectors.unnormalize_obs(there)
        return {
            "joints_there": there["joints"],
            "goal_there": there["goal"],
            "joints_back": back["joints"],
            "goal_back": back["goal"],
        }

    def draw(rng):
        return {"joints": rng.normal(0, 2, (2, 5)).astype(np.float32), "goal": rng.normal(0, 2, (2, 2))}

    check(step, draw, tmp_path)


def test_vec_normalize_rewards(tmp_path):
    vectors = normalised(STATE, clip_reward=0.5)

    def step(reward):
        there = vectors.normalize_reward(reward)
        return {"there": there, "back": vectors.unnormalize_reward(there)}

    check(step, lambda rng: {"reward": rng.normal(0, 2, (2,)).astype(np.float32)}, tmp_path)
