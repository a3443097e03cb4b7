"""A small manager-based environment and an exporter for it, as robot-learning frameworks have them.

The exporter is a client of LEAPP: it wraps the functions of observation terms so that what they read becomes an input
of the policy's node, and leaves observations, policy and actions as they are. Run as ``python manager_env.py FOLDER
NAME FORMAT...``, with TorchScript switched off, as simulators want it while they trace.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, field

import torch

import leapp
from leapp import annotate
from leapp.utils.enums import InputKindEnum, OutputKindEnum
from leapp.utils.tensor_description import TensorSemantics

JOINTS = ["LF_HAA", "LF_HFE", "LF_KFE", "RF_HAA"]
STEP_S, DECIMATION = 0.005, 4
NODE = "Velocity-Flat-Robot.D:v0"


@torch.jit.script
def rotate_inverse(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """``v`` in the frame of ``q`` (w, x, y, z)."""
    w, u = q[:, :1], q[:, 1:]
    return v * (2.0 * w * w - 1.0) - torch.cross(u, v, dim=-1) * w * 2.0 + u * (u * v).sum(-1, keepdim=True) * 2.0


@dataclass
class RobotData:
    """What the simulator says of a robot; one environment."""

    joint_pos: torch.Tensor
    joint_vel: torch.Tensor
    root_quat_w: torch.Tensor
    default_joint_pos: torch.Tensor = field(default_factory=lambda: torch.tensor([[0.1, -0.2, 0.3, 0.0]]))
    stiffness: torch.Tensor = field(default_factory=lambda: torch.full((1, 4), 80.0))
    damping: torch.Tensor = field(default_factory=lambda: torch.full((1, 4), 2.0))


FACTS = {
    "joint_pos": (InputKindEnum.JOINT_POSITION, JOINTS, {"connection": "state:robot:joint_pos", "unit": "rad"}),
    "joint_vel": (InputKindEnum.JOINT_VELOCITY, JOINTS, {"connection": "state:robot:joint_vel", "unit": "rad/s"}),
    "root_quat_w": (InputKindEnum.BODY_ROTATION, ["w", "x", "y", "z"], {"connection": "state:robot:root_quat_w"}),
}


def projected_gravity(env: Environment) -> torch.Tensor:
    """Down, in the body frame."""
    return rotate_inverse(env.robot.root_quat_w, torch.tensor([[0.0, 0.0, -1.0]]))


def joint_pos_rel(env: Environment) -> torch.Tensor:
    """Joint angles about the default pose."""
    return env.robot.joint_pos - env.robot.default_joint_pos


def joint_vel(env: Environment) -> torch.Tensor:
    """Joint velocities."""
    return env.robot.joint_vel * 0.05


def velocity_command(env: Environment) -> torch.Tensor:
    """What the operator wants."""
    return env.command


def last_action(env: Environment) -> torch.Tensor:
    """What the policy gave last."""
    return env.last_action


class Environment:
    """Observation terms, a policy, and an action term; ``tick`` is one control step."""

    def __init__(self, seed: int = 0) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        self.terms = [projected_gravity, velocity_command, joint_pos_rel, joint_vel, last_action]
        self.last_action = torch.zeros(1, 4)
        torch.manual_seed(7)
        self.policy = torch.nn.Sequential(torch.nn.Linear(18, 8), torch.nn.ELU(), torch.nn.Linear(8, 4)).eval()
        self.sense()

    def sense(self) -> None:
        """The simulator moved on."""
        quat = torch.nn.functional.normalize(torch.randn(1, 4, generator=self.draw), dim=-1)
        self.robot = RobotData(
            torch.randn(1, 4, generator=self.draw), torch.randn(1, 4, generator=self.draw) * 3, quat
        )  # fmt: skip
        self.command = torch.rand(1, 3, generator=self.draw) * 2 - 1

    @torch.inference_mode()
    def tick(self) -> torch.Tensor:
        """Targets of the joints."""
        observation = torch.cat([term(self) for term in self.terms], dim=-1)
        self.last_action = self.policy(observation)
        return self.last_action * 0.5 + self.robot.default_joint_pos


class Export:
    """Turns the running of an environment into a node."""

    def __init__(self, env: Environment, formats: list[str]) -> None:
        self.env, self.formats = env, formats
        env.terms = [self.wrapped(term) for term in env.terms]

    def wrapped(self, term):
        """A term that declares what it reads before it reads it."""

        @functools.wraps(term)
        def call(env: Environment) -> torch.Tensor:
            reads = [name for name in FACTS if f"robot.{name}" in READS[term.__name__]]
            for name in reads:
                kind, names, extra = FACTS[name]
                value = getattr(env.robot, name)
                setattr(env.robot, name, self.declare(TensorSemantics(name, value, kind, names, extra)))
            if term is velocity_command:
                env.command = self.declare(
                    TensorSemantics("Command (x, y, yaw)", env.command, InputKindEnum.COMMAND_BODY_VELOCITY)
                )
            if term is last_action:
                env.last_action = annotate.state_tensors(NODE, {"last_action": env.last_action})
            return term(env)

        return call

    @staticmethod
    def declare(described: TensorSemantics) -> torch.Tensor:
        """An input of the node; every one is declared from here."""
        return annotate.input_tensors(NODE, described)

    def tick(self) -> torch.Tensor:
        """One control step, inside a node."""
        targets = self.env.tick()
        annotate.update_state(NODE, {"last_action": self.env.last_action})
        robot = self.env.robot
        return annotate.output_tensors(
            NODE,
            [TensorSemantics("joint_targets", targets, OutputKindEnum.JOINT_POSITION, JOINTS, {"type_": "position"})],
            static_outputs=[
                TensorSemantics("Kp", robot.stiffness, OutputKindEnum.KP, JOINTS),
                TensorSemantics("Kd", robot.damping, kind=OutputKindEnum.KD, element_names=JOINTS),
            ],
            export_with=self.formats,
        )


READS = {
    "projected_gravity": "robot.root_quat_w", "joint_pos_rel": "robot.joint_pos", "joint_vel": "robot.joint_vel",
    "velocity_command": "", "last_action": "",
}  # fmt: skip


def main(folder: str, name: str, formats: list[str]) -> None:
    """Trace three control steps and write the bundle."""
    env = Environment()
    export = Export(env, formats)
    leapp.start(name, save_path=folder, max_cached_io=2)
    for _ in range(3):
        export.tick()
        env.sense()
    leapp.stop()
    configs = leapp.GraphConfigs(
        frequency=1 / (STEP_S * DECIMATION), extra={"task": NODE, "sim": {"dt": STEP_S, "decimation": DECIMATION}}
    )
    leapp.compile_graph(visualize=False, validate=True, graph_configs=configs)


if __name__ == "__main__":
    if "--off" in sys.argv:
        sys.argv.remove("--off")
        torch.jit._state.disable()
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
