"""A camera that follows a bright spot: perception that came as an ONNX file, and a controller of our own.

The first node brings its model: nothing is exported for it, the file goes into the bundle as it is. What LEAPP adds are
the wires around it, its digest, and the check that the file gives what it gave here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import leapp
from leapp import annotate

Array: TypeAlias = NDArray[np.float32]

SPOTTER = Path(__file__).with_name("spotter.onnx")
SIZE = 16
GAIN, SMOOTHING, MAX_RATE = np.float32(4.0), np.float32(0.5), 2.0
"""1/s; share of the old rate; rad/s."""


class Tracker:
    """An image in, pan and tilt rates out."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.spotter = onnxruntime.InferenceSession(SPOTTER, options, providers=["CPUExecutionProvider"])
        self.rates: Array = np.zeros(2, np.float32)

    def step(self, image: Array) -> Array:
        """One tick: an image ``(1, 16, 16)`` of brightness 0 to 1 to rates ``(2,)`` in rad/s."""
        return self.follow(self.spot(image))

    def spot(self, image: Array) -> Array:
        """Where the spot is, ``(1, 2)``: -1 is left and up, 1 right and down."""
        image = annotate.input_tensors("spotter", {"image": image})
        (spot,) = self.spotter.run(["spot"], {"image": np.asarray(image)})
        found: Array = annotate.output_tensors(
            "spotter", {"spot": spot}, export_with=None, backend_params={"model_path": SPOTTER}
        )
        return found

    def follow(self, spot: Array) -> Array:
        """Turn towards the spot, smoothly."""
        spot = annotate.input_tensors("follow", {"spot": spot})
        last = annotate.state_tensors("follow", {"rates": self.rates})
        wanted = np.clip(GAIN * spot[0], -MAX_RATE, MAX_RATE)
        rates = SMOOTHING * last + (1 - SMOOTHING) * wanted
        annotate.update_state("follow", {"rates": rates})
        self.rates = rates
        out: Array = annotate.output_tensors("follow", {"pan_tilt": rates.copy()}, export_with="onnx")
        return out


class Scene:
    """A spot that wanders, and the camera that looks for it: angles in rad, a field of view of 2 rad."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.spot, self.camera = self.random.uniform(-0.5, 0.5, 2), np.zeros(2)

    def image(self) -> Array:
        """What the camera sees, ``(1, 16, 16)``, with noise."""
        places = np.linspace(-1, 1, SIZE)
        x, y = np.clip(self.spot - self.camera, -1, 1)
        bright = np.exp(-((places[None, :] - x) ** 2 + (places[:, None] - y) ** 2) / 0.02)
        noise = 0.05 * self.random.random((SIZE, SIZE))
        image: Array = (0.95 * bright + noise)[None].astype(np.float32)
        return image

    def turn(self, rates: Array, dt: float = 1 / 30) -> None:
        """Turn the camera at ``rates`` for ``dt`` seconds; the spot moves on."""
        self.camera = self.camera + dt * np.asarray(rates, dtype=float)
        self.spot = np.clip(self.spot + self.random.normal(0, 0.02, 2), -1, 1)


def main(ticks: int = 4, seed: int = 0) -> None:
    tracker, scene = Tracker(), Scene(seed)

    leapp.start(name="tracker")
    for _ in range(ticks):
        scene.turn(tracker.step(scene.image()))
    leapp.stop()
    leapp.compile_graph()


if __name__ == "__main__":
    main()
