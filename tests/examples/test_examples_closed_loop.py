"""The example pipelines, each played for 1,000 ticks by the runtime against the code that it was recorded from.

Code and runtime act on a world of their own, with the same noise: what each does comes back to it as its next inputs,
so an error of one tick would be carried into all later ones.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import quadruped
import recurrent_policy
import servo
import torch
import tracker
import whole_body

import leapp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Step = Callable[[Mapping[str, Any]], Any]

TICKS = 1000
SEED = 7
"""Neither the recorded session nor the probe has it."""


@pytest.fixture(autouse=True)
def one_thread():
    """As a runtime computes: sums over threads would come out in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class RecurrentPolicy:
    """Observations that follow from the actions by a leaky sum."""

    manifest, output = "recurrent_policy", "policy/action"

    @staticmethod
    def code() -> Step:
        policy = recurrent_policy.make_policy()

        def step(inputs):
            if inputs["policy/reset"]:
                policy.reset()
            return policy.act(inputs["policy/observation"])

        return step

    @staticmethod
    def world(step: Step) -> Iterator[Any]:
        noise = torch.Generator().manual_seed(SEED)
        observation = torch.zeros(recurrent_policy.OBSERVATIONS)
        for tick in range(TICKS):
            action = step({"policy/observation": observation, "policy/reset": torch.tensor(tick in (137, 138, 600))})
            yield action
            observation = 0.8 * observation + torch.randn(len(observation), generator=noise)
            observation[: len(action)] += action


class Servo:
    manifest, output = "servo", "controller/torque"

    @staticmethod
    def code() -> Step:
        controller = servo.Servo()
        return lambda inputs: controller.step(inputs["observer/angle"], inputs["controller/target"])

    @staticmethod
    def world(step: Step) -> Iterator[Any]:
        motor = servo.Motor(angle_rad=0.7)
        angle = motor.angle()
        for target in servo.targets(TICKS, SEED):
            torque = np.asarray(step({"observer/angle": angle, "controller/target": target}))
            yield torque
            angle = motor.turn(torque)


class Quadruped:
    manifest, output = "quadruped", "policy/joint_targets"

    @staticmethod
    def code() -> Step:
        policy = quadruped.make_policy()

        def step(inputs):
            observation = {
                "base": {name: inputs[f"policy/robot_base_{name}"] for name in ("angular_velocity", "gravity")},
                "joints": {name: inputs[f"policy/robot_joints_{name}"] for name in ("position", "velocity")},
            }
            return policy.act(observation, inputs["policy/command"])

        return step

    @staticmethod
    def world(step: Step) -> Iterator[Any]:
        simulation = quadruped.Simulation(SEED)
        for tick in range(TICKS):
            inputs = {"policy/command": torch.tensor([0.5, 0.1, -0.3]) * (tick // 100 % 3)}
            for part, measured in simulation.observe().items():
                inputs |= {f"policy/robot_{part}_{name}": value for name, value in measured.items()}
            target = step(inputs)
            yield target
            simulation.step(target)


class Tracker:
    manifest, output = "tracker", "follow/pan_tilt"

    @staticmethod
    def code() -> Step:
        camera = tracker.Tracker()
        return lambda inputs: camera.step(inputs["spotter/image"])

    @staticmethod
    def world(step: Step) -> Iterator[Any]:
        scene = tracker.Scene(SEED)
        for _ in range(TICKS):
            rates = step({"spotter/image": scene.image()})
            yield rates
            scene.turn(rates)


class WholeBody:
    manifest, output = "whole_body", "joint_control/torque"

    @staticmethod
    def code() -> Step:
        body = whole_body.WholeBody()
        ports = (
            *("estimator/gyro", "estimator/acceleration", "policy/position", "policy/velocity"),
            "command_filter/command",
        )
        return lambda inputs: body.step(*(inputs[port] for port in ports))

    @staticmethod
    def world(step: Step) -> Iterator[Any]:
        legs = whole_body.Legs(SEED)
        for command in whole_body.commands(TICKS, SEED):
            gyro, acceleration, position, velocity = legs.measure()
            torque = step({
                "estimator/gyro": gyro,
                "estimator/acceleration": acceleration,
                "command_filter/command": command,
                **{f"{node}/position": position for node in ("policy", "joint_control")},
                **{f"{node}/velocity": velocity for node in ("policy", "joint_control")},
            })  # fmt: skip
            yield torque
            legs.step(torque)


@pytest.fixture(scope="module", params=[RecurrentPolicy, Servo, Quadruped, Tracker, WholeBody])
def example(request):
    return request.param


@pytest.fixture(scope="module")
def bundle(build, example):
    return build(example.manifest, "--no-reproduce")


@pytest.mark.parametrize("format", ["torchscript", "pt2", "onnx"])
def test_the_runtime_does_what_the_code_does(example, bundle, format):
    brought = {"spotter": "onnx"} if example is Tracker else {}
    nodes = [folder.name for folder in (bundle / "nodes").iterdir()]
    manager = leapp.InferenceManager(bundle, formats=dict.fromkeys(nodes, format) | brought)
    played = example.world(lambda inputs: manager.run_policy(inputs)[example.output])
    expected = example.world(example.code())
    done = 0
    for tick, (mine, theirs) in enumerate(zip(played, expected, strict=True)):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-3, atol=1e-4, err_msg=f"tick {tick}")
        done += 1
    assert done == TICKS


def test_a_reset_begins_anew(example, bundle):
    manager = leapp.InferenceManager(bundle)

    def play():
        return [np.asarray(each) for each in islice(example.world(lambda i: manager.run_policy(i)[example.output]), 20)]

    first = play()
    assert not all(np.array_equal(a, b) for a, b in zip(first, play(), strict=True))
    manager.reset()
    for again, before in zip(play(), first, strict=True):
        np.testing.assert_array_equal(again, before)
