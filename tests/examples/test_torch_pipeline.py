"""The smallest pipeline: recorded as its code reads, exported in each format, the same on data it never saw."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch_pipeline
import yaml


@pytest.fixture(scope="module")
def bundle(build):
    return build("torch_pipeline")


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return torch_pipeline.Policy().eval()


def samples(count):
    random = np.random.default_rng(7)
    for _ in range(count):  # states reach beyond the clipping at 5 standard deviations of 0.5
        yield random.normal(0.0, 2.0, 6).astype(np.float32), random.normal(0.0, 1.0, 3).astype(np.float32)


def test_each_format_computes_what_the_code_computes(bundle, load, suffix, policy):
    preprocess, act = (load(bundle, node, suffix) for node in ("preprocess", "policy"))
    for state, velocity in samples(20):
        obs = preprocess(state, velocity)
        with torch.no_grad():
            expected = torch_pipeline.preprocess(torch.from_numpy(state), torch.from_numpy(velocity))
            action = torch_pipeline.run_policy(policy, expected)
        np.testing.assert_allclose(obs, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(act(obs), action, rtol=1e-5, atol=1e-6)


def test_samples_reach_the_clipping():
    assert any((np.abs(state) > 2.5).any() for state, _ in samples(20))
    assert any((np.abs(state) < 2.5).any() for state, _ in samples(20))


def test_preprocess_is_recorded_under_torch_names(bundle):
    dump = (bundle / "nodes" / "preprocess" / "graph.txt").read_text()
    recorded = re.findall(r"^%(\w+) += (\w+)\[target=([\w.]+)\]", dump, re.MULTILINE)
    assert recorded == [
        ("state", "placeholder", "state"),
        ("velocity", "placeholder", "velocity"),
        ("_tensor_constant0", "get_attr", "_tensor_constant0"),
        ("sub", "call_function", "torch.sub"),
        ("_tensor_constant1", "get_attr", "_tensor_constant1"),
        ("div", "call_function", "torch.div"),
        ("clamp", "call_function", "torch.clamp"),
        ("cat", "call_function", "torch.cat"),
    ]


def test_observation_wires_the_two_nodes(bundle):
    pipeline = yaml.safe_load((bundle / "torch_pipeline.yaml").read_text())["pipeline"]
    assert pipeline["data_flow"] == {"preprocess/obs": ["policy/obs"]}
    assert pipeline["inputs"] == {"preprocess": ["state", "velocity"]}
    assert pipeline["outputs"] == {"policy": ["action"]}
    assert pipeline["configs"]["frequency"] == 50


def test_plain_script_writes_the_formats_it_asks_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch_pipeline.main()
    nodes = tmp_path / "torch_pipeline" / "nodes"
    models = sorted(path.name for path in nodes.rglob("*") if path.suffix in {".pt", ".pt2", ".onnx"})
    assert models == ["policy.onnx", "preprocess.pt"]
