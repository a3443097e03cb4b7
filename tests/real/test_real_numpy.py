"""NumPy code of public packages, as it is installed, traced and exported."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pykalman
import pyquaternion
import pytest
import rowan
import scipy.linalg
import scipy.signal
from gymnasium.wrappers import (
    ClipAction,
    FlattenObservation,
    FrameStackObservation,
    GrayscaleObservation,
    NormalizeObservation,
    RescaleAction,
    RescaleObservation,
    TimeAwareObservation,
    TimeLimit,
)
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations
from traced import check, close, exported, traced
from transforms3d import affines, axangles, euler, quaternions

from leapp import FunctionPatch
from leapp._spec import ExportFormat
from leapp.errors import DataDependentBranchError, TraceEscapeWarning

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


def test_stacked_observations(tmp_path):
    stacked = StackedObservations(2, 3, STATE)

    def step(stack, state):
        stacked.stacked_obs = stack
        return {"observation": stacked.update(state, np.array([False, False]), [{}, {}])[0]}

    def draw(rng):
        return {
            "stack": rng.normal(size=(2, 15)).astype(np.float32),
            "state": rng.normal(size=(2, 5)).astype(np.float32),
        }

    check(step, draw, tmp_path)


def test_running_mean_std(tmp_path):
    statistics = RunningMeanStd(shape=(5,))

    def step(mean, var, batch):
        statistics.mean, statistics.var, statistics.count = mean, var, 40.0
        statistics.update(batch)
        return {"new_mean": statistics.mean, "new_var": statistics.var}

    def draw(rng):
        return {"mean": rng.normal(size=5), "var": rng.uniform(1, 2, 5), "batch": rng.normal(size=(4, 5))}

    check(step, draw, tmp_path)


def test_normalize_observation_frozen(tmp_path):
    wrapper = NormalizeObservation(Walk(STATE))
    wrapper.reset(seed=3)
    for _ in range(20):
        wrapper.step(None)
    wrapper.update_running_mean = False

    def step(state):
        return {"observation": wrapper.observation(state)}

    check(step, lambda rng: {"state": rng.normal(0, 3, 5).astype(np.float32)}, tmp_path)


def test_normalize_observation_that_goes_on_learning(tmp_path):
    """Its statistics are inputs and outputs, as a user who keeps them between ticks writes it."""
    wrapper = NormalizeObservation(Walk(STATE))

    def step(state, mean, var, count):
        statistics = wrapper.obs_rms
        statistics.mean, statistics.var, statistics.count = mean, var, count[0]
        observation = wrapper.observation(state)
        return {
            "observation": observation,
            "new_mean": statistics.mean,
            "new_var": statistics.var,
            "new_count": statistics.count,
        }

    def draw(rng):
        return {
            "state": rng.normal(0, 3, 5).astype(np.float32),
            "mean": rng.normal(0, 1, 5).astype(np.float32),
            "var": rng.uniform(1, 2, 5).astype(np.float32),
            "count": rng.uniform(5, 50, 1),
        }

    check(step, draw, tmp_path)


def test_rescale_observation(tmp_path):
    wrapper = RescaleObservation(Walk(STATE), np.float32(-1), np.float32(2))

    def step(state):
        return {"observation": wrapper.observation(state)}

    check(step, lambda rng: {"state": rng.uniform(-3, 3, 5).astype(np.float32)}, tmp_path)


def test_frame_stack_observation(tmp_path):
    """The frames before this one are an input; the wrapper writes the stack into a buffer of its own."""
    wrapper = FrameStackObservation(Walk(CAMERA), 4)

    def step(history, frame):
        wrapper.obs_queue.extend(history)
        wrapper.unwrapped.next = frame
        return {"observation": wrapper.step(None)[0]}

    def draw(rng):
        frames = rng.integers(0, 256, (4, 6, 8, 3), np.uint8)
        return {"history": frames[:3], "frame": frames[3]}

    check(step, draw, tmp_path)


def test_frame_stack_observation_over_ticks(tmp_path):
    """The stack goes out and comes in again; the model runs an episode as the wrapper does in an environment."""
    frames = np.random.default_rng(4).integers(0, 256, (7, 6, 8, 3), np.uint8)
    wrapper = FrameStackObservation(Walk(CAMERA), 4, padding_type="zero")
    expected = []
    for frame in frames:
        wrapper.unwrapped.next = frame
        expected.append(wrapper.step(None)[0])

    def step(stack, frame):
        wrapper.obs_queue.extend(stack)
        wrapper.unwrapped.next = frame
        return {"observation": wrapper.step(None)[0]}

    stack = np.zeros((4, 6, 8, 3), np.uint8)
    model = exported(step, {"stack": stack, "frame": frames[0]}, tmp_path)
    for frame, stacked in zip(frames, expected, strict=True):
        stack = model({"stack": stack, "frame": frame})["observation"]
        close(stack, stacked, tolerance=0.0)


def test_grayscale_observation(tmp_path):
    wrapper = GrayscaleObservation(Walk(CAMERA))

    def step(frame):
        return {"observation": wrapper.observation(frame)}

    check(step, lambda rng: {"frame": rng.integers(0, 256, (6, 8, 3), np.uint8)}, tmp_path)


def test_flatten_observation(tmp_path):
    space = gymnasium.spaces.Dict({"joints": STATE, "grid": gymnasium.spaces.Box(-1, 1, (2, 2), np.float64)})
    wrapper = FlattenObservation(Walk(space))

    def step(joints, grid):
        return {"observation": wrapper.observation({"joints": joints, "grid": grid})}

    def draw(rng):
        return {"joints": rng.normal(size=5).astype(np.float32), "grid": rng.normal(size=(2, 2))}

    check(step, draw, tmp_path)


def test_wrappers_of_actions(tmp_path):
    clip, rescale = ClipAction(Walk(STATE)), RescaleAction(Walk(STATE), np.float32(-5), np.float32(3))

    def step(action):
        return {"clipped": clip.action(action), "rescaled": rescale.action(action)}

    check(step, lambda rng: {"action": rng.uniform(-4, 2, 2).astype(np.float32)}, tmp_path)


@pytest.mark.parametrize("normalize_time", [False, True])
@pytest.mark.parametrize("flatten", [False, True])
def test_time_aware_observation(flatten, normalize_time, tmp_path):
    wrapper = TimeAwareObservation(TimeLimit(Walk(STATE), 200), flatten=flatten, normalize_time=normalize_time)
    wrapper.reset()

    def step(state, time):
        wrapper.timesteps = time[0]
        wrapper.unwrapped.next = state
        seen = wrapper.step(None)[0]
        return {"observation": seen} if flatten else {"observation": seen["obs"] + 0, "tick": seen["time"]}

    def draw(rng):
        return {"state": rng.normal(0, 3, 5).astype(np.float32), "time": rng.integers(0, 200, 1)}

    check(step, draw, tmp_path)


def turn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Unit quaternions."""
    drawn = rng.normal(size=(*shape, 4))
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def two_turns(rng):
    return {"a": turn(rng), "b": turn(rng)}


def one_turn(rng):
    return {"a": turn(rng)}


def turn_and_vector(rng):
    return {"a": turn(rng), "v": rng.normal(size=3)}


def axis_and_angle(rng):
    return {"axis": rng.normal(size=3), "angle": rng.uniform(0.3, 2.5, 1)}


def angles(rng):
    return {"angles": rng.uniform(-1, 1, 3)}


# A quaternion of length zero has a side of its own there, which no node of this file takes.
TRANSFORMS3D_ALLOWED = {"branches": [
    "transforms3d.quaternions:quat2mat", "transforms3d.quaternions:quat2axangle",
    "transforms3d.euler:mat2euler",
]}  # fmt: skip

# What the module math computes leaves the trace; NumPy has the same functions.
MATH = [
    FunctionPatch(math, name, same)
    for name, same in {
        "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "atan2": np.arctan2, "acos": np.arccos, "asin": np.arcsin
    }.items()
]  # fmt: skip

TRANSFORMS3D = {
    "qmult": (lambda a, b: {"o": quaternions.qmult(a, b)}, two_turns),
    "qinverse": (lambda a: {"o": quaternions.qinverse(a), "n": quaternions.qnorm(a)}, one_turn),
    "quat2mat": (lambda a: {"o": quaternions.quat2mat(a)}, one_turn),
    "rotate_vector": (lambda a, v: {"o": quaternions.rotate_vector(v, a)}, turn_and_vector),
    "quat2axangle": (lambda a: dict(zip(("o", "angle"), quaternions.quat2axangle(a), strict=True)), one_turn),
    "axangle2quat": (lambda axis, angle: {"o": quaternions.axangle2quat(axis, angle[0])}, axis_and_angle),
    "axangle2mat": (lambda axis, angle: {"o": axangles.axangle2mat(axis, angle[0])}, axis_and_angle),
    "euler2mat": (lambda angles: {"o": euler.euler2mat(*angles)}, angles),
    "euler2quat": (lambda angles: {"o": euler.euler2quat(*angles, axes="rxyz")}, angles),
    "mat2euler": (lambda angles: {"o": np.array(euler.mat2euler(euler.euler2mat(*angles)))}, angles),
    "quat2euler": (lambda a: {"o": np.array(euler.quat2euler(a))}, one_turn),
    "compose": (lambda a, v: {"o": affines.compose(v, quaternions.quat2mat(a), np.ones(3))}, turn_and_vector),
}


@pytest.mark.parametrize("name", TRANSFORMS3D)
def test_transforms3d(name, tmp_path):
    step, draw = TRANSFORMS3D[name]
    check(step, draw, tmp_path, allow=TRANSFORMS3D_ALLOWED, patching=MATH)


def test_what_leaves_the_trace_in_transforms3d_is_named(tmp_path):
    with pytest.raises(TraceEscapeWarning, match=r"math\.sin\(\) at .*transforms3d/euler\.py:\d+ reads a traced value"):
        traced(lambda angles: {"o": euler.euler2mat(*angles)}, angles(np.random.default_rng(0)), tmp_path)
    with pytest.raises(DataDependentBranchError, match=r"transforms3d/quaternions\.py:\d+.*\n.*quaternions:quat2mat"):
        traced(lambda a: {"o": quaternions.quat2mat(a)}, one_turn(np.random.default_rng(0)), tmp_path)
    # The sign of an eigenvector is each library's own, and this code asks for it.
    with pytest.raises(DataDependentBranchError, match=r"transforms3d/quaternions\.py:\d+.*\n.*quaternions:mat2quat"):
        traced(lambda m: {"o": quaternions.mat2quat(m)}, {"m": np.eye(3)}, tmp_path)


# rowan asks whether any quaternion of a batch has length zero and writes those that have (or have not) by mask.
ROWAN_ALLOWED = {
    "branches": [f"rowan.functions:{name}" for name in ("inverse", "exp", "log", "power", "_vector_bisector")],
    "escapes": ["rowan.functions:log"],  # makes np.empty(q[mask].shape), and another array instead in the next line
}


def turns(rng):
    return {"a": turn(rng, 3), "b": turn(rng, 3)}


def some_turns(rng):
    return {"a": turn(rng, 3)}


def turns_and_vectors(rng):
    return {"a": turn(rng, 3), "v": rng.normal(size=(3, 3))}


def vectors(rng):
    return {"v": rng.normal(size=(3, 3)), "w": rng.normal(size=(3, 3))}


ROWAN = {
    "multiply": (lambda a, b: {"o": rowan.multiply(a, b)}, turns),
    "divide": (lambda a, b: {"o": rowan.divide(a, b)}, turns),
    "inverse": (lambda a: {"o": rowan.inverse(a), "c": rowan.conjugate(a), "n": rowan.normalize(a * 3)}, some_turns),
    "exp": (lambda a: {"o": rowan.exp(a)}, some_turns),
    "log": (lambda a: {"o": rowan.log(a)}, some_turns),
    "power": (lambda a: {"o": rowan.power(a, 2)}, some_turns),
    "rotate": (lambda a, v: {"o": rowan.rotate(a, v)}, turns_and_vectors),
    "to_matrix": (lambda a: {"o": rowan.to_matrix(a)}, some_turns),
    "to_euler": (lambda a: {"o": rowan.to_euler(a)}, some_turns),
    "from_euler": (lambda v, w: {"o": rowan.from_euler(v[:, 0], v[:, 1], w[:, 2])}, vectors),
    "from_axis_angle": (lambda v, w: {"o": rowan.from_axis_angle(v, w[:, 0])}, vectors),
    "to_axis_angle": (lambda a: dict(zip(("o", "angle"), rowan.to_axis_angle(a), strict=True)), some_turns),
    "slerp": (lambda a, b: {"o": rowan.interpolate.slerp(a, b, 0.3)}, turns),
    "vector_vector_rotation": (lambda v, w: {"o": rowan.vector_vector_rotation(v, w)}, vectors),
    "integrate": (lambda a, v: {"o": rowan.calculus.integrate(a, v, 0.1)}, turns_and_vectors),
    "distance": (lambda a, b: {"o": rowan.geometry.intrinsic_distance(a, b)}, turns),
}


@pytest.mark.parametrize("name", ROWAN)
def test_rowan(name, tmp_path):
    step, draw = ROWAN[name]
    check(step, draw, tmp_path, allow=ROWAN_ALLOWED)


# pyquaternion makes numbers of what it is given: by float(), and by functions that it took from the module math.
PYQUATERNION = [
    FunctionPatch(pyquaternion.Quaternion, "_validate_number_sequence", lambda self, given, n: np.asarray(given)),
    *(
        FunctionPatch(pyquaternion.quaternion, name, same)
        for name, same in {"sin": np.sin, "cos": np.cos, "exp": np.exp, "acos": np.arccos, "sqrt": np.sqrt}.items()
    ),
]
PYQUATERNION_ALLOWED = {
    "branches": [
        f"pyquaternion.quaternion:Quaternion.{name}"
        for name in ("_normalise", "_fast_normalise", "inverse", "log", "slerp", "_from_axis_angle")
    ],
    "escapes": ["pyquaternion.quaternion:Quaternion.log"],  # the logarithm of the length: 0 for turns
}
Q = pyquaternion.Quaternion


def near_turns(rng):
    a = turn(rng)
    b = a + rng.normal(0, 0.2, 4)
    return {"a": a, "b": b / np.linalg.norm(b)}


ONE_BY_ONE = {
    "multiply": (lambda a, b: {"o": (Q(a) * Q(b)).elements}, two_turns),
    "inverse": (lambda a: {"o": Q(a * 3).inverse.elements}, one_turn),
    "rotation_matrix": (lambda a: {"o": Q(a * 2).rotation_matrix}, one_turn),
    "transformation_matrix": (lambda a: {"o": Q(a).transformation_matrix}, one_turn),
    "derivative": (lambda a, v: {"o": Q(a).derivative(v).elements}, turn_and_vector),
    "log": (lambda a: {"o": Q.log(Q(a)).elements}, one_turn),
    "slerp": (lambda a, b: {"o": Q.slerp(Q(a), Q(b), 0.3).elements}, near_turns),
    "axis": (lambda axis, angle: {"o": Q._from_axis_angle(axis, angle[0]).elements}, axis_and_angle),
}


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_pyquaternion(name, tmp_path):
    step, draw = ONE_BY_ONE[name]
    check(step, draw, tmp_path, allow=PYQUATERNION_ALLOWED, patching=PYQUATERNION, exact=False)


def test_what_leaves_the_trace_in_pyquaternion_is_named(tmp_path):
    with pytest.raises(
        TraceEscapeWarning, match=r"float\(\) at .*pyquaternion/quaternion\.py:\d+ reads a traced value"
    ):
        traced(lambda a: {"o": Q(a).rotation_matrix}, one_turn(np.random.default_rng(0)), tmp_path)


TRANSITION = np.array([[1.0, 0.05], [0.0, 1.0]])
OBSERVED = np.array([[1.0, 0.0]])
PROCESS_NOISE, SENSOR_NOISE = np.diag([1e-3, 1e-2]), np.array([[0.1]])


def believed(rng):
    root = rng.normal(size=(2, 2))
    return {"mean": rng.normal(size=2), "covariance": root @ root.T + 0.1 * np.eye(2), "measured": rng.normal(size=1)}


def test_pykalman(tmp_path):
    """A step of its filter. What the class does before, by masked arrays, is refused by name."""

    def step(mean, covariance, measured):
        mean, covariance = pykalman.standard._filter_predict(
            TRANSITION, PROCESS_NOISE, np.zeros(2), mean, covariance
        )  # fmt: skip
        gain, mean, covariance = pykalman.standard._filter_correct(
            OBSERVED, SENSOR_NOISE, np.zeros(1), mean, covariance, measured
        )
        return {"gain": gain, "new_mean": mean, "new_covariance": covariance}

    patching = [FunctionPatch(scipy.linalg, "pinv", np.linalg.pinv)]
    check(step, believed, tmp_path, patching=patching, exact=False)


@FORMATS
def test_a_kalman_filter_of_the_textbook(format, tmp_path):
    """The state stays where it is between ticks, in an object; the covariance is written in place."""

    class Filter:
        def __init__(self, mean, covariance):
            self.x, self.P = mean, covariance

        def predict(self):
            self.x = TRANSITION @ self.x
            self.P = TRANSITION @ self.P @ TRANSITION.T + PROCESS_NOISE

        def update(self, z):
            innovation = z - OBSERVED @ self.x
            uncertainty = OBSERVED @ self.P @ OBSERVED.T + SENSOR_NOISE
            gain = self.P @ OBSERVED.T @ np.linalg.inv(uncertainty)
            self.x += gain @ innovation
            self.P[:] = (np.eye(len(self.x)) - gain @ OBSERVED) @ self.P
            return innovation

    def step(mean, covariance, measured):
        estimate = Filter(mean, covariance)
        estimate.predict()
        innovation = estimate.update(measured)
        return {"new_mean": estimate.x, "new_covariance": estimate.P, "innovation": innovation}

    check(step, believed, tmp_path, format=format)


def test_a_butterworth_filter_as_a_difference_equation(tmp_path):
    """Direct form II transposed, sample by sample, as scipy.signal.lfilter computes it."""
    b, a = scipy.signal.butter(3, 0.2)

    def step(signal, memory):
        filtered = np.zeros_like(signal)
        for n, sample in enumerate(signal):
            filtered[n] = b[0] * sample + memory[0]
            for i in range(len(memory) - 1):
                memory[i] = b[i + 1] * sample + memory[i + 1] - a[i + 1] * filtered[n]
            memory[-1] = b[-1] * sample - a[-1] * filtered[n]
        return {"filtered": filtered, "new_memory": memory}

    def draw(rng):
        return {"signal": rng.normal(size=12), "memory": rng.normal(size=3)}

    inputs = draw(np.random.default_rng(5))
    filtered, memory = scipy.signal.lfilter(b, a, inputs["signal"], zi=inputs["memory"])
    mine = step(inputs["signal"], inputs["memory"].copy())
    close(mine["filtered"], filtered, tolerance=1e-12)
    close(mine["new_memory"], memory, tolerance=1e-12)
    check(step, draw, tmp_path)


PIXEL_MEAN, PIXEL_STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def centre_crop(image, height, width):
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]


def resized(image, height, width):
    """Bilinear, pixel centres aligned."""
    rows = np.clip((np.arange(height) + 0.5) * image.shape[0] / height - 0.5, 0, image.shape[0] - 1)
    columns = np.clip((np.arange(width) + 0.5) * image.shape[1] / width - 0.5, 0, image.shape[1] - 1)
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    bottom, right = np.minimum(top + 1, image.shape[0] - 1), np.minimum(left + 1, image.shape[1] - 1)
    down, along = (rows - top)[:, None, None], (columns - left)[None, :, None]
    image = image.astype(np.float32)
    above = image[top][:, left] * (1 - along) + image[top][:, right] * along
    below = image[bottom][:, left] * (1 - along) + image[bottom][:, right] * along
    return np.rint(above * (1 - down) + below * down).astype(np.uint8)


@FORMATS
def test_an_image_is_cropped_resized_and_normalised(format, tmp_path):
    def step(frame):
        small = resized(centre_crop(frame, 20, 24), 9, 7)
        grey = small @ np.array([0.299, 0.587, 0.114], np.float32)
        planes = ((small / np.float32(255) - PIXEL_MEAN) / PIXEL_STD).transpose(2, 0, 1)[None]
        return {"small": small, "planes": np.ascontiguousarray(planes), "grey": grey}

    check(
        step, lambda rng: {"frame": rng.integers(0, 256, (26, 30, 3), np.uint8)}, tmp_path, format=format, tolerance=1
    )


@dataclass
class Rename:
    names: dict[str, str]

    def __call__(self, transition):
        return {self.names.get(name, name): value for name, value in transition.items()}


@dataclass
class Normalise:
    """Mean and deviation, or smallest and largest, by key; as LeRobot's step of this name."""

    statistics: dict[str, dict[str, np.ndarray]]
    modes: dict[str, str]
    inverse: bool = False
    eps: float = 1e-8

    def __call__(self, transition):
        new = dict(transition)
        for name, mode in self.modes.items():
            if name not in new or new[name] is None:
                continue
            value = np.asarray(new[name], dtype=np.float32)
            known = self.statistics[name]
            if mode == "MEAN_STD":
                scale = known["std"] + self.eps
                new[name] = value * scale + known["mean"] if self.inverse else (value - known["mean"]) / scale
            elif mode == "MIN_MAX":
                span = known["max"] - known["min"]
                span = np.where(span == 0, self.eps, span)
                if self.inverse:
                    new[name] = (value + 1) / 2 * span + known["min"]
                else:
                    new[name] = 2 * (value - known["min"]) / span - 1
        return new


@dataclass
class Clip:
    name: str
    low: Any
    high: Any

    def __call__(self, transition):
        return {**transition, self.name: np.clip(transition[self.name], self.low, self.high)}


@dataclass
class AddBatch:
    def __call__(self, transition):
        return {name: value[np.newaxis] for name, value in transition.items()}


@dataclass
class RemoveBatch:
    def __call__(self, transition):
        return {name: np.squeeze(value, axis=0) for name, value in transition.items()}


@dataclass
class Chain:
    steps: list[Any]

    def __call__(self, transition):
        for step in self.steps:
            transition = step(transition)
        return transition


STATISTICS = {
    "observation.state": {"mean": np.array([0.1, -0.2, 0.3]), "std": np.array([1.0, 0.5, 2.0])},
    "observation.gripper": {"min": np.array([0.0], np.float32), "max": np.array([0.08], np.float32)},
    "action": {"min": np.array([-1.0, -2.0], np.float32), "max": np.array([1.0, 2.0], np.float32)},
}


def test_a_chain_of_processors(tmp_path):
    """Dictionaries go in and come out on both sides of a policy, as in LeRobot."""
    before = Chain([
        Rename({"joint_pos": "observation.state", "gripper_pos": "observation.gripper"}),
        Clip("observation.gripper", 0.0, 0.08),
        Normalise(STATISTICS, {"observation.state": "MEAN_STD", "observation.gripper": "MIN_MAX"}),
        AddBatch(),
    ])  # fmt: skip
    after = Chain([
        RemoveBatch(),
        Normalise(STATISTICS, {"action": "MIN_MAX"}, inverse=True),
        Clip("action", STATISTICS["action"]["min"] * 0.9, STATISTICS["action"]["max"] * 0.9),
        Rename({"action": "joint_target"}),
    ])  # fmt: skip
    weights = np.random.default_rng(9).normal(size=(4, 2)).astype(np.float32)

    def step(joint_pos, gripper_pos):
        batch = before({"joint_pos": joint_pos, "gripper_pos": gripper_pos})
        features = np.concatenate([batch["observation.state"], batch["observation.gripper"]], axis=-1)
        done = after({"action": np.tanh(features.astype(np.float32) @ weights)})
        return {"state": batch["observation.state"], **done}

    def draw(rng):
        return {"joint_pos": rng.normal(size=3), "gripper_pos": rng.uniform(-0.02, 0.1, 1).astype(np.float32)}

    check(step, draw, tmp_path)
