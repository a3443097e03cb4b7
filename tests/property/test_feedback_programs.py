"""Random pipelines of nodes in loops, with copies in between: wired as traced, they give what the untraced code gives."""

import copy
import random
import warnings
from pathlib import Path

import pytest
import torch

from leapp import errors
from leapp.graph._base import run_passes
from leapp.graph.passes import EXPORT_PASSES
from leapp.pipeline.wiring import NodeWires, wire
from leapp.trace.session import Session, SessionOptions

COPIES = (
    lambda h: h, torch.clone, torch.detach, copy.deepcopy, lambda h: h[:], lambda h: torch.zeros(2).copy_(h),
    lambda h: torch.from_numpy(h.detach().numpy().copy()),
)  # fmt: skip


class Pipeline:
    """Up to four nodes, in order: each takes outer inputs, outputs of this tick and of the former one, perhaps a state."""

    def __init__(self, seed, session=None):
        draw = random.Random(seed)  # noqa: S311 - pipelines that can be repeated
        count = draw.randint(1, 4)
        self.session = session
        self.sources = [[self._source(draw, node, count) for _ in range(draw.randint(1, 3))] for node in range(count)]
        self.copies = [[draw.choice(COPIES) for _ in sources] for sources in self.sources]
        self.state = {node: torch.full((2,), 0.1 * node) for node in range(count) if draw.random() < 0.4}
        self.kept = [(torch.zeros(2), torch.zeros(2)) for _ in range(count)]

    @staticmethod
    def _source(draw, node, count):
        kind = draw.choice(("outer", "now", "before") if node else ("outer", "before"))
        return kind, draw.randrange(node if kind == "now" else count), draw.randrange(2)

    def outer(self, generator):
        """Values for the outer inputs of one tick; every node has one, ``x``."""
        keys = [
            f"n{node}/i{k}"
            for node, sources in enumerate(self.sources)
            for k, s in enumerate(sources)
            if s[0] == "outer"
        ]
        keys += [f"n{node}/x" for node in range(len(self.sources))]
        return {key: torch.randn(2, generator=generator) for key in keys}

    def tick(self, outer):
        """Outputs of all nodes."""
        made = []
        for node, sources in enumerate(self.sources):
            inputs = {"x": outer[f"n{node}/x"].clone()}
            for k, ((kind, other, which), copied) in enumerate(zip(sources, self.copies[node], strict=True)):
                where = {"now": made, "before": self.kept}.get(kind)
                value = outer[f"n{node}/i{k}"].clone() if where is None else copied(where[other][which])
                inputs[f"i{k}"] = value.clone() if any(value is each for each in inputs.values()) else value
            made.append(self._enter(node, inputs))
        self.kept = made
        return made

    def _enter(self, node, inputs):
        name, session, state = f"n{node}", self.session, self.state.get(node)
        if session is not None:
            session.input_tensors(name, inputs)
            if state is not None:
                session.state_tensors(name, {"h": state})
        total = sum(value * (k + 1) * 0.3 for k, value in enumerate(inputs.values()))
        if state is not None:
            total = total + 0.5 * state
        outputs = {"y0": torch.tanh(total), "y1": torch.sin(total) * 0.4}
        if state is not None:
            self.state[node] = total * 0.3
        if session is not None:
            if state is not None:
                session.update_state(name, {"h": self.state[node]})
            session.output_tensors(name, outputs)
        return outputs["y0"], outputs["y1"]


def run(session, twin, generator):
    """Whether the wired recordings give what ``twin`` gives, over some ticks."""
    recordings = {node.name: node.recordings[0] for node in session.completed}
    pipeline = wire(
        "p",
        [
            NodeWires(
                node.recordings[0].graph.spec,
                tuple(each.wires for each in node.recordings),
                state=frozenset(node.state),
            )
            for node in session.completed
        ],
    )
    sources = {c: p for flow in (pipeline.data_flow, pipeline.feedback_flow) for p, cs in flow.items() for c in cs}
    held = {c: recordings[c[:2]].sample.inputs[c[3:]] for cs in pipeline.feedback_flow.values() for c in cs}
    modules = {name: run_passes(each.graph, EXPORT_PASSES).module() for name, each in recordings.items()}
    for _ in range(6):
        outer = twin.outer(generator)
        expected = twin.tick(outer)
        values = {}
        for name, recording in recordings.items():
            keys = [f"{name}/{port.name}" for port in recording.graph.spec.inputs]
            given = [
                held[key] if key in held else values[sources[key]] if key in sources else outer[key] for key in keys
            ]
            results = modules[name](*(each.clone() for each in given))
            values.update(zip((f"{name}/{port.name}" for port in recording.graph.spec.outputs), results, strict=True))
        held = {key: values[sources[key]] for key in held}
        for node, outputs in enumerate(expected):
            for which, value in enumerate(outputs):
                if not torch.allclose(value, values[f"n{node}/y{which}"], rtol=1e-5, atol=1e-6):
                    return False
    return True


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_pipelines_are_wired_as_they_run(first):
    for seed in range(first, first + 20):
        session = Session(
            SessionOptions(name="p", folder=Path("unused"), root=Path(__file__).parents[2], max_cached_io=3)
        )
        traced, generator = Pipeline(seed, session), torch.Generator().manual_seed(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", errors.WireLostWarning)
                warnings.simplefilter("ignore", errors.UnusedInputWarning)
                for _ in range(2 + seed % 4):
                    traced.tick(traced.outer(generator))
        finally:
            session.stop()
        assert run(session, Pipeline(seed), generator), seed
