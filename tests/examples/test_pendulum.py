"""The exported pendulum controller plays whole episodes as the controller does, and both solve the task."""

from __future__ import annotations

import numpy as np
import pendulum_controller
import pytest
import torch
import train_pendulum
from pendulum_controller import MAX_TORQUE, WEIGHTS, Controller, run_episode
from safetensors.torch import save

import leapp

SEEDS = range(20_000, 20_030)
"""Starts that neither training nor the manifest uses."""
SOLVED = -150.0
"""Mean return: the best possible is about -125, random torques get about -1200."""


@pytest.fixture(autouse=True)
def one_thread():
    """As the training script computes: sums over threads would come out in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def bundle(build):
    return build("pendulum")


@pytest.fixture(scope="module")
def controller():
    return Controller.load()


@pytest.fixture
def exported(bundle, load, suffix):
    preprocess, policy = (load(bundle, node, suffix) for node in ("preprocess", "policy"))
    return lambda observation: policy(preprocess(observation))


def test_exported_controller_plays_whole_episodes(exported, controller):
    expected = [run_episode(controller.act, seed) for seed in SEEDS]
    played = [run_episode(exported, seed) for seed in SEEDS]
    assert [each.ticks for each in played] == [each.ticks for each in expected] == [200] * len(SEEDS)
    returns = [each.total_reward for each in played]
    assert returns == pytest.approx([each.total_reward for each in expected], rel=1e-5, abs=1e-3)
    assert np.mean(returns) > SOLVED


def test_exported_controller_agrees_where_no_episode_goes(exported, controller):
    # Directions off the unit circle, and velocities beyond the environment's, which the clipping has to catch.
    observations = np.random.default_rng(0).normal(0.0, 1.0, (100, 3)) * [3.0, 3.0, 30.0]
    for observation in observations.astype(np.float32):
        np.testing.assert_allclose(exported(observation), controller.act(observation), rtol=1e-5, atol=1e-5)


def test_committed_weights_solve_the_task(controller):
    assert WEIGHTS.stat().st_size < 200_000
    returns = train_pendulum.evaluate(controller)
    assert len(returns) == 100
    assert returns.mean() > -140.0
    assert returns.min() > -500.0


def test_chance_does_not_solve_the_task():
    random = np.random.default_rng(0)
    returns = [
        run_episode(lambda _: random.uniform(-MAX_TORQUE, MAX_TORQUE, 1).astype(np.float32), seed).total_reward
        for seed in SEEDS
    ]
    assert np.mean(returns) < -900.0


def test_recording_does_not_change_the_episode(controller, tmp_path):
    expected = run_episode(controller.act, 1, max_ticks=30)
    leapp.start("pendulum", save_path=tmp_path)
    recorded = run_episode(controller.act, 1, max_ticks=30)
    leapp.stop()
    assert recorded == expected


def test_plain_script_writes_a_bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pendulum_controller.main(seed=5, ticks=3)
    nodes = tmp_path / "pendulum" / "nodes"
    assert (nodes / "preprocess" / "preprocess.onnx").is_file()
    assert (nodes / "policy" / "policy.onnx").is_file()


def test_training_improves_on_a_small_budget():
    began = train_pendulum.evaluate(Controller().eval(), SEEDS).mean()
    trained = train_pendulum.evaluate(train_pendulum.train(steps=3_500), SEEDS).mean()
    assert began < -900.0
    assert trained > -300.0


def test_training_is_reproducible():
    first, again, other = (save(train_pendulum.train(steps=1_100, seed=seed).state_dict()) for seed in (3, 3, 4))
    assert first == again
    assert first != other
