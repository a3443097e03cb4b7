"""Pipelines wired by chance, of all kinds of nodes, against a reading of the rules in a few lines of Python."""

from __future__ import annotations

import functools
import io

import numpy as np
import pytest
import torch
from pipelines import Pipeline, port

import leapp
from leapp import errors

SIZE = 2
TICKS = 12


def compute(values, at):
    """What output ``at`` of each node is, in whatever it runs."""
    total = values[0] * 0.5
    for value in values[1:]:
        total = total + value * 0.5
    return (total + at).clip(-8.0, 8.0)


@functools.cache
def script(inputs, outputs):
    """The same as TorchScript."""
    names = [f"x{i}" for i in range(inputs)]
    results = [f"({' + '.join(f'{name} * 0.5' for name in names)} + {at}).clamp(-8.0, 8.0)" for at in range(outputs)]

    class Node(torch.nn.Module):
        pass

    module = torch.jit.script(Node())
    module.define(f"def forward(self, {', '.join(names)}):\n    return {', '.join(results)}\n")
    data = io.BytesIO()
    torch.jit.save(module, data)
    return data.getvalue()


def onnx_ops(inputs, outputs):
    """The same as ONNX."""
    ops = [("Mul", f"x{i} half", f"h{i}") for i in range(inputs)]
    ops += [("Add", f"{'h0' if i == 1 else f's{i - 1}'} h{i}", f"s{i}") for i in range(1, inputs)]
    total = f"s{inputs - 1}" if inputs > 1 else "h0"
    for at in range(outputs):
        ops += [("Add", f"{total} c{at}", f"a{at}"), ("Clip", f"a{at} low high", f"y{at}")]
    constants = {"half": [0.5] * SIZE} | {f"c{at}": [float(at)] * SIZE for at in range(outputs)}
    return ops, constants


class Machine:
    """A random pipeline: its runtime file, and what it ought to do."""

    def __init__(self, rng, folder):
        self.failing = False
        self.functions = {}
        count = int(rng.integers(2, 6))
        shapes = [(int(rng.integers(1, 4)), int(rng.integers(1, 3))) for _ in range(count)]
        ends = [f"n{node}/y{at}" for node, (_, outputs) in enumerate(shapes) for at in range(outputs)]
        self.nodes, self.sources, self.feedback, self.starts, self.outer = [], {}, {}, {}, []
        for node, (inputs, outputs) in enumerate(shapes):
            keys = [f"n{node}/x{i}" for i in range(inputs)]
            for key in keys:
                kind = rng.choice(["outer", "forward", "feedback"])
                before = [end for end in ends if int(end[1]) < node]
                if kind == "forward" and before:
                    self.sources[key] = str(rng.choice(before))
                elif kind == "feedback":
                    self.feedback[key] = str(rng.choice(ends))
                    others = [each for each in keys if each != key and each not in self.feedback]
                    if others and rng.integers(2):
                        self.starts[key] = str(rng.choice(others))
                else:
                    self.outer.append(key)
            self.nodes.append((keys, [f"n{node}/y{at}" for at in range(outputs)]))
        # An input that became feedback later cannot be started from here: the rule is about other ports.
        self.starts = {key: source for key, source in self.starts.items() if source not in self.feedback}
        self.first = {key: rng.integers(-3, 4, SIZE).astype(np.float32) for key in self.feedback}
        self.path = self._write(rng, Pipeline(folder))
        self.reset()

    def _write(self, rng, pipeline):
        flows = {"data_flow": {}, "feedback_flow": {}}
        for name, wires in (("data_flow", self.sources), ("feedback_flow", self.feedback)):
            for target, source in wires.items():
                flows[name].setdefault(source, []).append(target)
        outer = {}
        for key in self.outer:
            outer.setdefault(key.split("/")[0], []).append(key.split("/")[1])
        consumed = set(self.sources.values())
        results = {}
        for node, (keys, ends) in enumerate(self.nodes):
            inputs = []
            for i, key in enumerate(keys):
                start = {"start": f"first-input:{self.starts[key].split('/')[1]}"} if key in self.starts else {}
                inputs.append(port(f"x{i}", SIZE, **start))
            outputs = [port(f"y{at}", SIZE) for at in range(len(ends))]
            kind = rng.choice(["onnx", "jit", "function"])
            name = f"n{node}"
            if kind == "jit":
                pipeline.node(name, inputs, outputs, jit=script(len(keys), len(ends)))
            elif kind == "onnx":
                ops, constants = onnx_ops(len(keys), len(ends))
                pipeline.node(name, inputs, outputs, ops, constants, scalars={"low": -8.0, "high": 8.0})
            else:
                pipeline.node(name, inputs, outputs)
                self.functions[name] = self._function(len(ends))
            results[name] = [end.split("/")[1] for end in ends if end not in consumed]
        pipeline.wires(inputs=outer, outputs={name: ends for name, ends in results.items() if ends}, **flows)
        self.listed = [f"{name}/{end}" for name, ends in results.items() for end in ends]
        if self.feedback:
            pipeline.start(**{key.replace("/", "__"): value for key, value in self.first.items()})
        return pipeline.write()

    def _function(self, outputs):
        def call(inputs):
            if self.failing:
                raise ValueError("on demand")
            values = [inputs[f"x{i}"].numpy() for i in range(len(inputs))]
            return {f"y{at}": compute(values, at) for at in range(outputs)}

        return call

    def reset(self):
        self.held, self.is_first, self.given = dict(self.first), True, set()

    def override(self, key, value):
        self.held[key] = value
        self.given.add(key)

    def tick(self, inputs):
        """The rules: nodes in order, then feedback; states with a start copy it at the first tick."""
        values = dict(inputs) | self.held
        for keys, ends in self.nodes:
            for key in keys:
                if key in self.sources:
                    values[key] = values[self.sources[key]]
            if self.is_first:
                for key in keys:
                    if key in self.starts and key not in self.given:
                        values[key] = values[self.starts[key]]
            for at, end in enumerate(ends):
                values[end] = compute([values[key] for key in keys], at)
        self.held = {key: values[source] for key, source in self.feedback.items()}
        self.is_first, self.given = False, set()
        return {end: values[end] for end in self.listed}


@pytest.mark.parametrize("seed", range(25))
def test_as_the_rules_say(tmp_path, seed):
    rng = np.random.default_rng(seed)
    machine = Machine(rng, tmp_path)
    run = leapp.InferenceManager(machine.path, callables=machine.functions)
    for _ in range(TICKS):
        if not rng.integers(6):
            run.reset()
            machine.reset()
        inputs = {key: rng.integers(-4, 5, SIZE).astype(np.float32) for key in machine.outer}
        if machine.feedback and not rng.integers(4):
            key = str(rng.choice(list(machine.feedback)))
            value = rng.integers(-4, 5, SIZE).astype(np.float32)
            run.set_input_value(*key.split("/"), value)
            machine.override(key, value)
        if machine.functions and not rng.integers(3):
            machine.failing = True
            with pytest.raises(errors.NodeFailedError, match="on demand"):
                run({key: value + 1 for key, value in inputs.items()})
            machine.failing = False
        if not rng.integers(4) and machine.outer:
            with pytest.raises(errors.PipelineInputError):
                run({**inputs, machine.outer[-1]: np.zeros(SIZE + 1, "f")})
        results = run(inputs)
        expected = machine.tick(inputs)
        assert set(results) == set(expected)
        for key, value in expected.items():
            np.testing.assert_allclose(results[key].numpy(), value, rtol=1e-5, atol=1e-5, err_msg=key)
        for key, value in machine.held.items():
            np.testing.assert_allclose(run.feedback_inputs[key].numpy(), value, rtol=1e-5, atol=1e-5, err_msg=key)
