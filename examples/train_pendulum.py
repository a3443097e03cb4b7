"""Train the controller of ``pendulum_controller.py`` with TD3 (Fujimoto et al., 2018) and save its weights.

One environment, one update per step, on one thread: the same seed gives the same weights on the same machine.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gymnasium
import numpy as np
import torch
from pendulum_controller import MAX_TORQUE, WEIGHTS, Controller, run_episode
from safetensors.torch import save_file
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS: Final = 10_000
RANDOM_STEPS: Final = 1_000
"""Steps at the start that explore with random torques; the observations of these give the statistics."""
BATCH: Final = 128
DISCOUNT: Final = 0.98
LEARNING_RATE: Final = 1e-3
EXPLORATION: Final = 0.1 * MAX_TORQUE
"""Standard deviation of the noise added to a torque while collecting experience."""
SMOOTHING: Final = 0.2 * MAX_TORQUE
"""Standard deviation of the noise added to the torque in a critic's target, clipped at 2.5 of it."""
AVERAGING: Final = 0.02
"""Share of the new weights in the moving average of them that the targets use."""
REWARD_SCALE: Final = 0.1

HELD_OUT_SEEDS: Final = range(10_000, 10_100)
"""Starts to measure a controller on. Training never sees them."""


class Critic(nn.Module):
    """Two estimates of the return of a torque; the lower of them is trusted."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
            for _ in range(2)
        )

    def forward(self, features: torch.Tensor, torque: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features ``(n, 3)`` and torques ``(n, 1)`` to two estimates ``(n, 1)``."""
        pair = torch.cat([features, torque], dim=-1)
        return self.first(pair), self.second(pair)


class Experience:
    """All transitions so far, one per row: observation 3, torque 1, reward 1, next observation 3."""

    def __init__(self, capacity: int) -> None:
        self.rows = torch.empty(capacity, 8)
        self.size = 0

    def add(self, *parts: np.ndarray | float) -> None:
        """Append one transition."""
        self.rows[self.size] = torch.from_numpy(np.hstack(parts).astype(np.float32))
        self.size += 1

    def sample(self) -> tuple[torch.Tensor, ...]:
        """A batch of transitions as observations, torques, rewards and next observations."""
        rows = self.rows[torch.randint(self.size, (BATCH,))]
        return rows[:, :3], rows[:, 3:4], rows[:, 4:5], rows[:, 5:]


class Learner:
    """Controller and critic with their moving averages."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.critic = Critic()
        self.average_policy = copy.deepcopy(self.controller.policy)
        self.average_critic = copy.deepcopy(self.critic)
        self.policy_optimizer = torch.optim.Adam(self.controller.policy.parameters(), LEARNING_RATE)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), LEARNING_RATE)

    def update_critic(self, batch: tuple[torch.Tensor, ...]) -> None:
        """Move the critic towards reward plus discounted return of the torque that the average policy gives next."""
        observation, torque, reward, next_observation = batch
        with torch.no_grad():
            features, next_features = map(self.controller.preprocess, (observation, next_observation))
            noise = (SMOOTHING * torch.randn_like(torque)).clamp(-2.5 * SMOOTHING, 2.5 * SMOOTHING)
            next_torque = (self.average_policy(next_features) + noise).clamp(-MAX_TORQUE, MAX_TORQUE)
            future = torch.minimum(*self.average_critic(next_features, next_torque))
            # Episodes only end by the clock, so there is always a future.
            target = REWARD_SCALE * reward + DISCOUNT * future
        first, second = self.critic(features, torque)
        loss = nn.functional.mse_loss(first, target) + nn.functional.mse_loss(second, target)
        descend(self.critic_optimizer, loss)

    def update_policy(self, batch: tuple[torch.Tensor, ...]) -> None:
        """Move the policy towards torques that the critic likes better."""
        with torch.no_grad():
            features = self.controller.preprocess(batch[0])
        first, _ = self.critic(features, self.controller.policy(features))
        descend(self.policy_optimizer, -first.mean())
        follow(self.average_policy, self.controller.policy)
        follow(self.average_critic, self.critic)


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of gradient descent."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@torch.no_grad()
def follow(average: nn.Module, module: nn.Module) -> None:
    """Update a moving average of a module's weights."""
    for mean, value in zip(average.parameters(), module.parameters(), strict=True):
        mean.lerp_(value, AVERAGING)


def train(steps: int = STEPS, seed: int = 0) -> Controller:
    """Train a controller from nothing."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    learner, experience = Learner(), Experience(steps)
    controller = learner.controller
    with gymnasium.make("Pendulum-v1") as environment:
        observation, _ = environment.reset(seed=seed)
        for step in range(steps):
            if step < RANDOM_STEPS:
                torque = random.uniform(-MAX_TORQUE, MAX_TORQUE, 1)
            else:
                torque = controller.act(observation) + random.normal(0.0, EXPLORATION, 1)
            torque = torque.clip(-MAX_TORQUE, MAX_TORQUE).astype(np.float32)
            next_observation, reward, _, truncated, _ = environment.step(torque)
            experience.add(observation, torque, float(reward), next_observation)
            observation = environment.reset()[0] if truncated else next_observation
            if step < RANDOM_STEPS:
                continue
            if step == RANDOM_STEPS:
                seen = experience.rows[: experience.size, :3]
                controller.mean.copy_(seen.mean(dim=0))
                controller.std.copy_(seen.std(dim=0))
            batch = experience.sample()
            learner.update_critic(batch)
            if step % 2:
                learner.update_policy(batch)
    # The average swings less from update to update than the policy itself.
    controller.policy.load_state_dict(learner.average_policy.state_dict())
    return controller.eval()


def evaluate(controller: Controller, seeds: Iterable[int] = HELD_OUT_SEEDS) -> np.ndarray:
    """Return of one episode per seed."""
    return np.array([run_episode(controller.act, seed).total_reward for seed in seeds])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the pendulum controller and save its weights.")
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="weights file to write (default: %(default)s)")
    options = parser.parse_args()

    torch.set_num_threads(1)
    began = time.perf_counter()
    controller = train(options.steps, options.seed)
    seconds = time.perf_counter() - began
    save_file(controller.state_dict(), options.out)
    returns = evaluate(controller)
    print(
        f"{options.steps} steps in {seconds:.0f} s; return over {len(returns)} held-out starts: "
        f"mean {returns.mean():.1f}, standard deviation {returns.std():.1f}, worst {returns.min():.1f}"
    )


if __name__ == "__main__":
    main()
