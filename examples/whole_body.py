"""A whole-body controller of five nodes at 50 Hz, each written in the way that its author prefers.

An estimator and a command filter in NumPy, a gait clock and a policy in PyTorch, and the joint control in NumPy again.
Each keeps what it needs from tick to tick, and the joint control's result comes back to the policy. Weights are random.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import leapp
from leapp import annotate

Array: TypeAlias = NDArray[np.float32]

DT = 0.02
"""Seconds between ticks."""
JOINTS = [f"{side}_{joint}" for side in ("left", "right") for joint in ("hip", "knee", "ankle")]
STANDING_RAD = np.tile(np.array([-0.2, 0.5, -0.3], np.float32), 2)
MAX_TORQUE = np.tile(np.array([80.0, 80.0, 40.0], np.float32), 2)
"""N m."""
STIFFNESS, DAMPING = np.float32(60.0), np.float32(2.0)
"""N m / rad and N m s / rad."""
MAX_STEP_RAD = np.float32(0.08)
"""How far a joint's target may move in one tick."""


class Estimator:
    """Which way is up: the gyroscope's word from tick to tick, the accelerometer's in the long run."""

    TRUST = np.float32(0.02)
    """Share of the accelerometer in each tick."""

    def __init__(self) -> None:
        self.up: Array | None = None

    def update(self, gyro: Array, acceleration: Array) -> Array:
        """Angular velocity ``(3,)`` in rad/s and specific force ``(3,)`` in m/s^2 to a unit vector ``(3,)``."""
        gyro, acceleration = annotate.input_tensors("estimator", {"gyro": gyro, "acceleration": acceleration})
        # Nothing is known before the first tick, so the accelerometer says where the estimate starts.
        up = annotate.state_tensors("estimator", {"up": acceleration if self.up is None else self.up})
        turned = up - np.float32(DT) * np.cross(gyro, up)
        mixed = (1 - self.TRUST) * unit(turned) + self.TRUST * unit(acceleration)
        annotate.update_state("estimator", {"up": mixed})
        self.up = mixed
        result: Array = annotate.output_tensors("estimator", {"gravity": -unit(mixed)})
        return result


def unit(vector: Array) -> Array:
    """The vector's direction; zero for zero."""
    direction: Array = vector / np.maximum(np.linalg.norm(vector), np.float32(1e-6))
    return direction


class CommandFilter:
    """What is asked for, reached with a bounded acceleration."""

    MAX_CHANGE = np.array([0.02, 0.01, 0.03], np.float32)
    """In one tick: m/s, m/s, rad/s."""

    def __init__(self) -> None:
        self.smooth: Array = np.zeros(3, np.float32)

    def update(self, command: Array) -> Array:
        """A command ``(3,)`` in m/s, m/s, rad/s, as asked for, to one that can be followed."""
        command = annotate.input_tensors("command_filter", {"command": command})
        smooth = annotate.state_tensors("command_filter", {"smooth": self.smooth})
        smooth = smooth + np.clip(command - smooth, -self.MAX_CHANGE, self.MAX_CHANGE)
        annotate.update_state("command_filter", {"smooth": smooth})
        self.smooth = smooth
        result: Array = annotate.output_tensors("command_filter", {"velocity": smooth.copy()})
        return result


class GaitClock(nn.Module):
    """Two legs, half a cycle apart; the faster the walk, the faster the clock. Its phase is a buffer."""

    phase: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.tensor([0.0, 0.5]))

    def forward(self, velocity: torch.Tensor) -> torch.Tensor:
        """A velocity ``(3,)`` to sine and cosine of both legs' phases ``(4,)``."""
        rate_hz = 1.0 + torch.linalg.vector_norm(velocity)
        self.phase = torch.remainder(self.phase + DT * rate_hz, 1.0)
        angle = 2 * torch.pi * self.phase
        return torch.cat([torch.sin(angle), torch.cos(angle)])


class Policy(nn.Module):
    """A recurrent policy: 28 numbers and a memory to a target for each joint."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28, 32), nn.Tanh())
        self.memory = nn.GRUCell(32, 24)
        self.head = nn.Linear(24, 6)

    def forward(self, observation: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Observation ``(28,)`` and memory ``(24,)`` to joint offsets ``(6,)`` in rad and the next memory."""
        memory = self.memory(self.encoder(observation), memory)
        return 0.5 * torch.tanh(self.head(memory)), memory


class JointControl:
    """Targets that do not jump, and the torques that pull towards them."""

    def __init__(self) -> None:
        self.target: Array | None = None

    def update(self, wanted: Array, position: Array, velocity: Array) -> tuple[Array, Array]:
        """Angles ``(6,)`` in rad and velocities ``(6,)`` in rad/s to torques in N m, and the share of their limits."""
        wanted, position, velocity = annotate.input_tensors(
            "joint_control", {"wanted": wanted, "position": position, "velocity": velocity}
        )
        # The first target is where the joints are: nothing moves when the controller is switched on.
        target = annotate.state_tensors("joint_control", {"target": position if self.target is None else self.target})
        target = target + np.clip(wanted - target, -MAX_STEP_RAD, MAX_STEP_RAD)
        torque = np.clip(STIFFNESS * (target - position) - DAMPING * velocity, -MAX_TORQUE, MAX_TORQUE)
        annotate.update_state("joint_control", {"target": target})
        self.target = target
        result: tuple[Array, Array] = annotate.output_tensors(
            "joint_control", {"torque": torque, "effort": torque / MAX_TORQUE}
        )
        return result


class WholeBody:
    """The five of them, in the order of the data."""

    def __init__(self) -> None:
        torch.manual_seed(0)  # the same weights in every run
        self.policy = Policy().eval()
        self.reset()

    def reset(self) -> None:
        """Switch on."""
        self.estimator, self.commands, self.clock, self.joints = (
            Estimator(),
            CommandFilter(),
            GaitClock(),
            JointControl(),
        )
        self.memory = torch.zeros(24)
        self.effort: Array = np.zeros(6, np.float32)

    @torch.no_grad()
    def step(self, gyro: Array, acceleration: Array, position: Array, velocity: Array, command: Array) -> Array:
        """One tick: what is measured and asked for, to torques ``(6,)`` in N m."""
        gravity = self.estimator.update(gyro, acceleration)
        wanted_velocity = self.commands.update(command)
        phase = self.tick(wanted_velocity)
        targets = self.act(gravity, wanted_velocity, phase, position, velocity)
        torque, self.effort = self.joints.update(targets, position, velocity)
        return torque

    def tick(self, wanted_velocity: Array) -> torch.Tensor:
        """The gait clock's node: the module's buffers are its state."""
        wanted = annotate.input_tensors("gait_clock", {"velocity": torch.from_numpy(wanted_velocity)})
        annotate.module("gait_clock", self.clock)
        phase: torch.Tensor = annotate.output_tensors("gait_clock", {"phase": self.clock(wanted)})
        return phase

    def act(
        self, gravity: Array, wanted_velocity: Array, phase: torch.Tensor, position: Array, velocity: Array
    ) -> Array:
        """The policy's node: arrays and tensors alike; joint targets ``(6,)`` in rad."""
        gravity, wanted_velocity, phase, position, velocity, effort = annotate.input_tensors(
            "policy",
            {
                "gravity": gravity,
                "command": wanted_velocity,
                "phase": phase,
                "position": position,
                "velocity": velocity,
                "effort": self.effort,
            },
        )
        memory = annotate.state_tensors("policy", {"memory": self.memory})
        body = np.concatenate([gravity, wanted_velocity, position - STANDING_RAD, 0.1 * velocity, effort])
        offsets, memory = self.policy(torch.cat([torch.from_numpy(body), phase]), memory)
        annotate.update_state("policy", {"memory": memory})
        self.memory = memory
        targets: Array = annotate.output_tensors("policy", {"targets": STANDING_RAD + offsets.numpy()})
        return targets


class Legs:
    """Six joints with inertia and friction, in float64, below a body that sways: enough to close the loop."""

    INERTIA, FRICTION = 0.8, 1.5
    """kg m^2 and N m s / rad."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.position = STANDING_RAD.astype(float) + self.random.normal(0, 0.1, 6)
        self.velocity = np.zeros(6)

    def measure(self) -> tuple[Array, Array, Array, Array]:
        """Gyroscope, accelerometer, joint angles and velocities."""
        gyro = self.random.normal(0, 0.3, 3)
        acceleration = np.array([0, 0, 9.81]) + self.random.normal(0, 0.5, 3)
        return (
            gyro.astype(np.float32),
            acceleration.astype(np.float32),
            self.position.astype(np.float32),
            self.velocity.astype(np.float32),
        )

    def step(self, torque: Array) -> None:
        """Move for one tick, in steps that are small enough for the joints' own time constant."""
        pull = np.asarray(torque, dtype=float)
        for _ in range(10):
            acceleration = (pull - self.FRICTION * self.velocity) / self.INERTIA
            self.velocity = self.velocity + DT / 10 * acceleration
            self.position = self.position + DT / 10 * self.velocity


def commands(ticks: int, seed: int) -> Array:
    """Another command every 50 ticks, ``(ticks, 3)``."""
    random = np.random.default_rng(seed)
    return np.repeat(random.uniform(-0.6, 0.6, ((ticks + 49) // 50, 3)), 50, axis=0)[:ticks].astype(np.float32)


def main(ticks: int = 5, seed: int = 0) -> None:
    body, legs = WholeBody(), Legs(seed)

    leapp.start(name="whole_body")
    for command in commands(ticks, seed):
        legs.step(body.step(*legs.measure(), command))
    leapp.stop()
    leapp.compile_graph(graph_configs=leapp.GraphConfigs(frequency=1 / DT))


if __name__ == "__main__":
    main()
