"""Joint targets of a four-legged robot from a nested observation, every port with its meaning.

What the robot measures comes as it comes from most simulators, a dict of dicts. Its leaves become ports, named by their
path. ``TensorSemantics`` says what the actions are, for whoever connects a robot to the bundle; what the observations
are stands in the manifest. Weights are random.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import nn

import leapp
from leapp import annotate

Observation: TypeAlias = "dict[str, dict[str, torch.Tensor] | torch.Tensor]"

JOINTS = [f"{leg}_{joint}" for leg in ("FL", "FR", "RL", "RR") for joint in ("hip", "thigh", "calf")]
STANDING_RAD = torch.tensor([0.0, 0.8, -1.5]).repeat(4)
ACTION_SCALE_RAD = 0.25
STIFFNESS, DAMPING = torch.full((12,), 20.0), torch.full((12,), 0.5)
"""Of the motors' own control: N m / rad and N m s / rad."""


class Policy(nn.Module):
    """Three layers: 45 numbers to an action for each joint."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(45, 64), nn.ELU(), nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 12))
        self.last_action = torch.zeros(12)

    @torch.no_grad()
    def act(self, observation: Observation, command: torch.Tensor) -> torch.Tensor:
        """One tick: what is measured and a command ``(3,)`` in m/s, m/s, rad/s to joint angles ``(12,)`` in rad."""
        robot, command = annotate.input_tensors("policy", {"robot": observation, "command": command})
        last_action = annotate.state_tensors("policy", {"last_action": self.last_action})

        base, joints = robot["base"], robot["joints"]
        features = torch.cat([
            0.25 * base["angular_velocity"],
            base["gravity"],
            command,
            joints["position"] - STANDING_RAD,
            0.05 * joints["velocity"],
            last_action,
        ])  # fmt: skip
        action = self.net(features).clamp(-4.0, 4.0)
        target: torch.Tensor = STANDING_RAD + ACTION_SCALE_RAD * action

        annotate.update_state("policy", {"last_action": action})
        annotate.output_tensors(
            "policy",
            [
                leapp.TensorSemantics(
                    "joint_targets", target, kind="target/joint/position", element_names=JOINTS, extra={"unit": "rad"}
                ),
            ],
            static_outputs={"stiffness": STIFFNESS, "damping": DAMPING},
            export_with="onnx",
        )
        self.last_action = action
        return target


def make_policy() -> Policy:
    torch.manual_seed(0)  # the same weights in every run
    return Policy().eval()


class Simulation:
    """Joints that follow their targets as springs would, below a base that sways: enough to close the loop."""

    def __init__(self, seed: int) -> None:
        self.noise = torch.Generator().manual_seed(seed)
        self.position, self.velocity = STANDING_RAD.clone(), torch.zeros(12)

    def observe(self) -> Observation:
        """What the robot measures."""
        tilt = 0.1 * torch.randn(2, generator=self.noise)
        gravity = torch.cat([tilt, -torch.ones(1)])
        return {
            "base": {
                "angular_velocity": torch.randn(3, generator=self.noise),
                "gravity": gravity / torch.linalg.vector_norm(gravity),
            },
            "joints": {"position": self.position.clone(), "velocity": self.velocity.clone()},
        }

    def step(self, target: torch.Tensor, dt: float = 0.02) -> None:
        """Move for one tick of ``dt`` seconds."""
        acceleration = 200.0 * (target - self.position) - 20.0 * self.velocity
        self.velocity = self.velocity + dt * acceleration
        self.position = self.position + dt * self.velocity


def main(ticks: int = 4, seed: int = 1) -> None:
    policy, simulation = make_policy(), Simulation(seed)
    commands = torch.Generator().manual_seed(seed)

    leapp.start(name="quadruped")
    for _ in range(ticks):
        command = 0.5 * torch.randn(3, generator=commands)
        simulation.step(policy.act(simulation.observe(), command))
    leapp.stop()
    leapp.compile_graph()


if __name__ == "__main__":
    main()
