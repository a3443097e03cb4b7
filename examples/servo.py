"""A position servo: an observer guesses what it cannot measure, a controller acts on the guess.

Two nodes with feedback between them. The observer needs the torque that the controller gave one tick before, so the
wire from the controller back to the observer is part of the pipeline. Nothing declares it: LEAPP sees at the second
tick that the value came from the controller.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import leapp
from leapp import annotate

Array: TypeAlias = NDArray[np.float32]

DT = 0.01
"""Seconds between ticks."""
INERTIA, FRICTION, MAX_TORQUE = 0.05, 0.2, 2.0
"""Of the motor with its load: kg m^2, N m s / rad, N m."""

# State: angle and angular velocity. Exact for a torque that is held for one tick.
_decay = np.exp(-FRICTION / INERTIA * DT)
A = np.array([[1, (1 - _decay) * INERTIA / FRICTION], [0, _decay]], np.float32)
B = np.array([(DT - (1 - _decay) * INERTIA / FRICTION) / FRICTION, (1 - _decay) / FRICTION], np.float32)
OBSERVER_GAIN = np.array([0.55, 18.0], np.float32)
"""Places the poles of the observer's error near 0.65: after ten ticks one percent of it is left."""
CONTROLLER_GAIN = np.array([8.0, 0.9], np.float32)
"""N m / rad and N m s / rad."""


class Servo:
    """Angle measured and angle wanted in, torque out."""

    def __init__(self) -> None:
        self.guess: Array = np.zeros(2, np.float32)
        self.torque: Array = np.zeros(1, np.float32)

    def step(self, angle: Array, target: Array) -> Array:
        """One tick: angles ``(1,)`` in rad to a torque ``(1,)`` in N m."""
        guess = self.observe(angle, self.torque)
        self.torque = self.control(guess, target)
        return self.torque

    def observe(self, angle: Array, last_torque: Array) -> Array:
        """What the model expects after the last torque, corrected by what the encoder says."""
        angle, last_torque = annotate.input_tensors("observer", {"angle": angle, "last_torque": last_torque})
        guess = annotate.state_tensors("observer", {"guess": self.guess})

        expected = A @ guess + B * last_torque[0]
        corrected = expected + OBSERVER_GAIN * (angle[0] - expected[0])

        annotate.update_state("observer", {"guess": corrected})
        self.guess = corrected
        state: Array = annotate.output_tensors("observer", {"state": corrected.copy()}, export_with="onnx")
        return state

    def control(self, state: Array, target: Array) -> Array:
        """Pull towards the target, as hard as the motor can."""
        state, target = annotate.input_tensors("controller", {"state": state, "target": target})
        error = np.array([target[0] - state[0], -state[1]])
        torque = np.clip(CONTROLLER_GAIN @ error, -MAX_TORQUE, MAX_TORQUE)[np.newaxis]
        out: Array = annotate.output_tensors("controller", {"torque": torque}, export_with="onnx")
        return out


class Motor:
    """The motor and its load, in float64: what the servo acts on."""

    def __init__(self, angle_rad: float = 0.0) -> None:
        self.state = np.array([angle_rad, 0.0])

    def turn(self, torque: Array) -> Array:
        """Hold a torque ``(1,)`` for one tick; gives the angle ``(1,)`` in rad."""
        self.state = A.astype(float) @ self.state + B.astype(float) * float(torque[0])
        return self.angle()

    def angle(self) -> Array:
        """What the encoder says, ``(1,)`` in rad."""
        return self.state[:1].astype(np.float32)


def targets(ticks: int, seed: int) -> Array:
    """A new angle every 100 ticks, in rad."""
    random = np.random.default_rng(seed)
    return np.repeat(random.uniform(-1, 1, (ticks + 99) // 100), 100)[:ticks].astype(np.float32).reshape(-1, 1)


def main(ticks: int = 5, seed: int = 0) -> None:
    servo, motor = Servo(), Motor(angle_rad=0.1 * (seed + 1))

    leapp.start(name="servo")
    angle = motor.angle()
    for target in targets(ticks, seed):
        torque = servo.step(angle, target)
        angle = motor.turn(torque)
    leapp.stop()
    leapp.compile_graph(graph_configs=leapp.GraphConfigs(frequency=1 / DT))


if __name__ == "__main__":
    main()
