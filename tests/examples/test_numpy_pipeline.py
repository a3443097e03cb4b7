"""NumPy before PyTorch: recorded as its code reads, wired by the array, the same on data it never saw."""

from __future__ import annotations

import re

import numpy as np
import numpy_pipeline
import pytest
import torch
import yaml


@pytest.fixture(scope="module")
def bundle(build):
    return build("numpy_pipeline")


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return numpy_pipeline.Policy().eval()


def samples(count):
    random = np.random.default_rng(7)
    for _ in range(count):  # states reach beyond the clipping at 5 standard deviations of 0.5
        yield tuple(random.normal(0.0, scale, size).astype(np.float32) for scale, size in ((2, 6), (1, 3), (1, 4)))


def test_each_format_computes_what_the_code_computes(bundle, load, suffix, policy):
    preprocess, act = (load(bundle, node, suffix) for node in ("preprocess", "policy"))
    for sensors in samples(20):
        obs = preprocess(*sensors)
        expected = numpy_pipeline.preprocess(*sensors)
        with torch.no_grad():
            action = numpy_pipeline.run_policy(policy, expected)
        assert obs.dtype == expected.dtype == np.float32
        np.testing.assert_allclose(obs, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(act(obs), action, rtol=1e-5, atol=1e-6)


def test_gravity_points_down_for_an_upright_body():
    obs = numpy_pipeline.preprocess(np.zeros(6, np.float32), np.zeros(3, np.float32), np.float32([2, 0, 0, 0]))
    np.testing.assert_array_equal(obs[-3:], [0, 0, -1])


def test_preprocess_is_recorded_under_torch_names(bundle):
    dump = (bundle / "nodes" / "preprocess" / "graph.txt").read_text()
    assert "numpy" not in dump
    recorded = re.findall(r"^%\w+ += call_function\[target=([\w.]+)\]", dump, re.MULTILINE)
    assert recorded[:5] == ["torch.sub", "torch.div", "torch.clamp", "torch.linalg.vector_norm", "torch.clamp"]
    assert recorded[-3:] == ["torch.stack", "torch.neg", "torch.cat"]


def test_the_array_wires_the_two_nodes(bundle):
    pipeline = yaml.safe_load((bundle / "numpy_pipeline.yaml").read_text())["pipeline"]
    assert pipeline["data_flow"] == {"preprocess/obs": ["policy/obs"]}
    assert pipeline["inputs"] == {"preprocess": ["state", "velocity", "orientation"]}
    assert pipeline["outputs"] == {"policy": ["action"]}


def test_plain_script_writes_its_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numpy_pipeline.main(ticks=1)
    nodes = tmp_path / "numpy_pipeline" / "nodes"
    assert sorted(path.name for path in nodes.rglob("*.onnx")) == ["policy.onnx", "preprocess.onnx"]
