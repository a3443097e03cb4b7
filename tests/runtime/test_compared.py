"""Whole pipelines played against a traced run: right ones pass, and whatever is wrong is named where it is."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from pipelines import Pipeline, port

import leapp
from leapp.bundle.schema import Tolerances
from leapp.pipeline.ticks import TracedTicks
from leapp.runtime.compared import StandIns, compare_ticks, schedule

NODES = ("estimator", "policy")
LIMITS = dict.fromkeys(NODES, Tolerances(1e-4, 1e-6))


def estimator(values):
    return {"features": np.tanh(values["x"]) + np.float32(0.5) * values["memory"]}


def policy(values):
    h, c = values["h"], values["c"]
    next_h = np.tanh(values["features"] + np.float32(0.5) * h - c)
    next_c = np.float32(0.9) * c + values["features"] * h
    return {"action": next_h - next_c, "memory_out": np.float32(0.3) * next_h, "h": next_h, "c": next_c}


MODELS = {"estimator": estimator, "policy": policy}
FEEDBACK = {"policy/memory_out": ["estimator/memory"], "policy/h": ["policy/h"], "policy/c": ["policy/c"]}
STARTS = {"estimator/memory": np.zeros(3), "policy/h": np.full(3, 0.5), "policy/c": np.zeros(3)}


class Traced:
    """A program that runs the two nodes, and what a session would keep of it."""

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.held = {key: value.astype(np.float32) for key, value in STARTS.items()}
        self.from_ = dict.fromkeys(STARTS)
        self.samples = {node: [] for node in NODES}
        self.wires = {node: [] for node in NODES}

    def fresh(self):
        return self.random.normal(size=3).astype(np.float32)

    def enter(self, node, given, wires):
        outputs = MODELS[node](given)
        self.samples[node].append(({**given}, outputs))
        self.wires[node].append({key: value for key, value in wires.items() if value})
        return outputs

    def tick(self, features=None):
        carried = {"memory": self.from_["estimator/memory"]}
        made = self.enter("estimator", {"x": self.fresh(), "memory": self.held["estimator/memory"]}, carried)
        wires = {"features": "estimator/features", "h": self.from_["policy/h"], "c": self.from_["policy/c"]}
        if features is not None:
            made, wires["features"] = {"features": features}, None
        given = {**made, "h": self.held["policy/h"], "c": self.held["policy/c"]}
        out = self.enter("policy", given, wires)
        self.carry("estimator/memory", "policy/memory_out", out["memory_out"])
        self.carry("policy/h", "policy/h", out["h"])
        self.carry("policy/c", "policy/c", out["c"])

    def carry(self, key, source, value):
        self.held[key], self.from_[key] = value, source

    def ticks(self, count=4):
        for _ in range(count):
            self.tick()
        return self

    def record(self, **changes):
        counts = len(self.samples["policy"])
        whole = tuple(dict.fromkeys(NODES, index) for index in range(counts))
        return replace(TracedTicks(whole, self.wires), **changes)


@pytest.fixture
def manager(tmp_path):
    """``manager(...)``: the pipeline in the runtime, with other wires, starts or models."""

    def make(feedback=FEEDBACK, data=None, starts=STARTS, models=MODELS, inputs=None):
        made = Pipeline(tmp_path)
        made.node("estimator", [port("x", 3), port("memory", 3)], [port("features", 3)])
        made.node(
            "policy",
            [port("features", 3), port("h", 3), port("c", 3)],
            [port(name, 3) for name in ("action", "memory_out", "h", "c")],
        )
        outputs = {"policy": ["action", "memory_out"]}
        if data is None:
            data = {"estimator/features": ["policy/features"]}
        made.wires(data_flow=data, feedback_flow=feedback, inputs=inputs or {"estimator": ["x"]}, outputs=outputs)
        made.start(**{key.replace("/", "__"): np.asarray(value, np.float32) for key, value in starts.items()})
        functions = {
            node: lambda given, model=model: model({name: np.asarray(value) for name, value in given.items()})
            for node, model in models.items()
        }
        return leapp.InferenceManager(made.write(), callables=functions)

    return make


def played(manager, traced, record=None, **options):
    plan = schedule(manager.pipeline, record or traced.record(), traced.samples)
    if not plan.ok:
        return plan, None
    return plan, compare_ticks(manager, plan.steps, LIMITS, name="onnx", starts=plan.starts, **options)


def wrong(reports):
    return {
        (node, each.port, each.source, each.label): each
        for node, report in reports.items()
        for each in report.ports
        if not each.ok
    }


def test_a_right_pipeline_passes_on_every_tick(manager):
    plan, result = played(manager(), Traced(3).ticks(5))
    assert (plan.ok, plan.notes, result.ok, result.ticks) == (True, (), True, 5)
    ports = {(node, each.port, each.source): each.samples for node, each in _ports(result)}
    assert ports == {
        ("estimator", "memory", "start"): 1, ("policy", "h", "start"): 1, ("policy", "c", "start"): 1,
        ("estimator", "memory", "policy/memory_out"): 4, ("policy", "h", "policy/h"): 4, ("policy", "c", "policy/c"): 4,
        ("estimator", "features", ""): 5, ("policy", "action", ""): 5, ("policy", "memory_out", ""): 5,
        ("policy", "h", ""): 5, ("policy", "c", ""): 5,
    }  # fmt: skip


def _ports(result):
    return [(node, port) for node, report in result.reports.items() for port in report.ports]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("feedback", "data", "node", "name", "tick", "whose"),
    [
        ({**FEEDBACK, "policy/h": ["policy/c"], "policy/c": ["policy/h"]}, None, "policy", "c", 1, "policy/c"),
        ({**FEEDBACK, "policy/action": ["estimator/memory"], "policy/memory_out": []}, None, "estimator", "memory", 1,
         "policy/memory_out"),
        ({key: value for key, value in FEEDBACK.items() if key != "policy/c"},
         {"estimator/features": ["policy/features", "policy/c"]}, "policy", "c", 0, ""),
    ],
    ids=["swapped-state", "other-output", "forward-for-feedback"],
)  # fmt: skip
def test_a_wrong_wire_is_named_with_the_output_that_it_should_come_from(
    manager, feedback, data, node, name, tick, whose, known
):
    traced = Traced(4).ticks()
    record = traced.record() if known else traced.record(known=False, wires={})
    fed = {consumer for each in feedback.values() for consumer in each}
    starts = {key: value for key, value in STARTS.items() if key in fed}
    plan, _ = played(manager(feedback, data, starts), traced, record)
    found = wrong(plan.wires)
    ((_, _, source, label), report) = next((key, value) for key, value in found.items() if key[:2] == (node, name))
    assert label == f"tick {tick}"
    assert source in {key for key, to in {**feedback, **(data or {})}.items() if f"{node}/{name}" in to}
    assert report.difference.where is not None
    if whose:
        assert whose in report.hint


def test_a_wire_that_is_missing_is_named(manager):
    run = manager(data={}, inputs={"estimator": ["x"], "policy": ["features"]})
    plan, _ = played(run, Traced(19).ticks())
    assert not plan.ok
    assert plan.wires["policy"].error == (
        "input 'features' is an outer input of the bundle; in the traced run 'estimator/features' fed it"
    )
    assert plan.wires["estimator"].ok


def test_an_altered_start_is_named_with_both_values(manager):
    traced = Traced(5).ticks()
    _, result = played(manager(starts={**STARTS, "policy/h": [0.5, 1.5, 0.5]}), traced)
    (((node, name, source, label), report),) = wrong(result.reports).items()
    assert (node, name, source, label) == ("policy", "h", "start", "entry 1")
    found = report.difference
    assert (found.where, found.expected, found.actual, found.apart) == ((1,), "0.5", "1.5", 1.0)
    assert result.ticks == 0


def test_a_model_that_differs_is_named_at_its_first_tick_and_what_follows_is_not(manager):
    def late(values):
        made = estimator(values)
        late.calls += 1
        if late.calls == 3:
            made["features"] = made["features"] + np.float32([0, 0, 0.25])
        return made

    late.calls = 0
    _, result = played(manager(models={**MODELS, "estimator": late}), Traced(6).ticks())
    (((node, name, _, label), report),) = wrong(result.reports).items()
    assert (node, name, label, report.difference.where) == ("estimator", "features", "tick 2", (2,))
    assert report.difference.apart == pytest.approx(0.25, rel=1e-4)
    assert result.ticks == 3


def test_nan_on_one_side_is_counted_on_that_side(manager):
    def broken(values):
        made = policy(values)
        return {**made, "action": np.where(values["features"] > 0, made["action"], np.float32("nan"))}

    traced = Traced(7).ticks()
    _, result = played(manager(models={**MODELS, "policy": broken}), traced)
    ((key, report),) = wrong(result.reports).items()
    assert key[:2] == ("policy", "action")
    assert (report.statistics.nan_model > 0, report.statistics.nan_recorded) == (True, 0)


def test_a_state_that_drifts_is_caught_though_each_sample_is_within_the_tolerances(manager):
    def drifting(values):
        made = policy(values)
        return {**made, "c": made["c"] + np.float32(9e-7)}

    traced = Traced(8).ticks(5)
    for given, recorded in traced.samples["policy"]:
        limit = 1e-6 + 1e-4 * np.abs(recorded["c"])
        assert (np.abs(drifting(given)["c"] - recorded["c"]) <= limit).all()
    tight = dict.fromkeys(NODES, Tolerances(0.0, 1e-6))
    run = manager(models={**MODELS, "policy": drifting})
    plan = schedule(run.pipeline, traced.record(), traced.samples)
    result = compare_ticks(run, plan.steps, tight, name="onnx", starts=plan.starts)
    assert not result.ok
    found = wrong(result.reports)
    assert {key[0] for key in found} == {"policy"}
    assert all(int(key[3].removeprefix("tick ")) >= 1 for key in found)


def test_an_episode_that_begins_anew_is_noted_and_played_on(manager):
    traced = Traced(9).ticks(2)
    traced.carry("policy/h", None, traced.fresh())
    traced.carry("policy/c", None, np.zeros(3, np.float32))
    traced.ticks(2)
    plan, result = played(manager(), traced)
    assert (plan.ok, result.ok, result.ticks) == (True, True, 4)
    assert [step.put.keys() for step in plan.steps] == [set(), set(), {"policy/h", "policy/c"}, set()]
    assert all(note.startswith("tick 2: 'policy/") and note.endswith("given the traced value") for note in plan.notes)
    assert len(plan.notes) == 2


def test_a_state_that_was_never_carried_is_noted_as_unproved(manager):
    traced = Traced(10)
    for _ in range(3):
        traced.tick()
        traced.carry("policy/h", None, traced.fresh())
    plan, result = played(manager(), traced)
    assert (plan.ok, result.ok) == (True, True)
    (note,) = plan.notes
    assert "no tick shows that the wire is right" in note


def test_a_value_of_two_ticks_ago_is_no_feedback(manager):
    traced = Traced(11)
    older = STARTS["policy/h"].astype(np.float32)
    for _ in range(4):
        traced.tick()
        newer = traced.held["policy/h"]
        traced.carry("policy/h", "policy/h", older)
        older = newer
    plan, _ = played(manager(), traced)
    found = wrong(plan.wires)
    (((node, name, source, _), report),) = found.items()
    assert (node, name, source) == ("policy", "h", "policy/h")
    assert report.failed


def test_an_input_from_outside_leaves_its_tick_out(manager):
    traced = Traced(12).ticks(2)
    traced.tick(features=traced.fresh())
    traced.ticks(2)
    plan, result = played(manager(), traced)
    assert (plan.ok, result.ok, result.ticks) == (True, True, 4)
    assert [step.index for step in plan.steps] == [0, 1, 3, 4]
    assert set(plan.steps[2].put) == {"estimator/memory", "policy/h", "policy/c"}
    assert plan.notes == ("tick 2: 'policy/features' came from outside, not from 'estimator/features': not played",)


def test_old_features_are_no_input_from_outside(manager):
    traced = Traced(13).ticks(2)
    traced.tick(features=traced.samples["estimator"][0][1]["features"])
    plan, _ = played(manager(), traced)
    (((_, name, source, label), report),) = wrong(plan.wires).items()
    assert (name, source, label) == ("features", "estimator/features", "tick 2")
    assert report.hint == "at tick 2 it was traced with the value of 'estimator/features' at tick 0"


def test_ticks_that_are_not_whole_are_left_out(manager):
    traced = Traced(14).ticks(5)
    first, *others = traced.record().rounds
    partial = (first, {"policy": 1}, {"estimator": 2, "policy": None}, *others[2:])
    plan, result = played(manager(), traced, traced.record(rounds=partial))
    assert ([step.index for step in plan.steps], result.ok) == ([0, 3, 4], True)
    assert plan.notes == (
        "tick 1 of the traced run: not played, 1 node (estimator) had no part in it",
        "tick 2 of the traced run: not played, no sample of 1 node (policy) was kept",
    )


def test_a_declared_start_is_not_compared_with_the_traced_one(manager):
    traced = Traced(15).ticks()
    run = manager(starts={**STARTS, "policy/h": [0, 0, 0]})
    plan, result = played(run, traced, traced.record(declared=frozenset({"policy/h"})))
    assert (result.ok, result.ticks) == (True, 4)
    assert plan.notes == ("tick 0: 'policy/h' starts otherwise than it was traced, as declared",)


def test_a_node_without_a_model_gives_what_it_gave(manager):
    stand_ins = StandIns()
    traced = Traced(16).ticks()
    _, result = played(
        manager(models={**MODELS, "estimator": stand_ins.of("estimator", ["features"])}), traced, stand_ins=stand_ins
    )
    assert (result.ok, result.ticks) == (True, 4)


def test_a_node_that_fails_is_a_result(manager):
    def failing(values):
        raise ZeroDivisionError("by nothing")

    _, result = played(manager(models={**MODELS, "policy": failing}), Traced(17).ticks())
    assert (result.ok, result.ticks) == (False, 0)
    assert "tick 0: " in result.reports["policy"].error
    assert "by nothing" in result.reports["policy"].error


def test_the_traced_run_is_left_as_it_was(manager):
    traced = Traced(18).ticks()
    before = copy.deepcopy(traced.samples)
    played(manager(), traced)
    np.testing.assert_equal(traced.samples, before)


# --- random pipelines, and one thing wrong in each -------------------------------------------------------------------


class Random:
    """Two to four nodes with random wires, forward and as feedback, traced for a few ticks; episodes begin anew."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes = [f"n{at}" for at in range(self.random.integers(2, 5))]
        self.outputs = {node: [f"y{at}" for at in range(self.random.integers(1, 4))] for node in self.nodes}
        every = [f"{node}/{name}" for node in self.nodes for name in self.outputs[node]]
        self.data, self.feedback, self.outer = {}, {}, []
        self.inputs = {}
        for at, node in enumerate(self.nodes):
            self.inputs[node] = [f"x{index}" for index in range(self.random.integers(2, 5))]
            earlier = [key for key in every if key.partition("/")[0] in self.nodes[:at]]
            for name in self.inputs[node]:
                kind = self.random.choice(["outer", "data", "feedback"])
                if kind == "data" and earlier:
                    self.data[f"{node}/{name}"] = str(self.random.choice(earlier))
                elif kind == "outer":
                    self.outer.append(f"{node}/{name}")
                else:
                    self.feedback[f"{node}/{name}"] = str(self.random.choice(every))
        self.weights = {
            (node, name): self.random.normal(size=(len(self.inputs[node]), 3, 3)) for node in self.nodes
            for name in self.outputs[node]
        }  # fmt: skip
        self.starts = {key: self.fresh() for key in self.feedback}

    def fresh(self):
        return self.random.normal(size=3).astype(np.float32)

    def compute(self, node, given):
        stacked = np.stack([given[name] for name in self.inputs[node]])
        return {
            name: np.tanh(np.einsum("kij,kj->i", self.weights[node, name], stacked)).astype(np.float32)
            for name in self.outputs[node]
        }

    def trace(self, ticks=4):
        held, origin = dict(self.starts), {}
        samples = {node: [] for node in self.nodes}
        wires = {node: [] for node in self.nodes}
        for tick in range(ticks):
            if tick == 2 and held:  # the program sets one state itself
                key = min(held)
                held[key] = self.fresh()
                origin.pop(key, None)
            made = {}
            for node in self.nodes:
                keys = {name: f"{node}/{name}" for name in self.inputs[node]}
                given = {
                    name: made[self.data[key]] if key in self.data else held[key] if key in held else self.fresh()
                    for name, key in keys.items()
                }
                carried = {**self.data, **origin}
                wires[node].append({name: carried[key] for name, key in keys.items() if key in carried})
                outputs = self.compute(node, given)
                samples[node].append((given, outputs))
                made |= {f"{node}/{name}": value for name, value in outputs.items()}
            for key, producer in self.feedback.items():
                held[key], origin[key] = made[producer], producer
        rounds = tuple(dict.fromkeys(self.nodes, index) for index in range(ticks))
        return samples, TracedTicks(rounds, wires)

    def write(self, folder):
        made = Pipeline(folder)
        for node in self.nodes:
            made.node(node, *([port(name, 3) for name in names] for names in (self.inputs[node], self.outputs[node])))

        def flow(wires):
            return {source: [key for key, other in wires.items() if other == source] for source in wires.values()}

        inputs = {
            node: [key.partition("/")[2] for key in self.outer if key.startswith(f"{node}/")] for node in self.nodes
        }
        made.wires(data_flow=flow(self.data), feedback_flow=flow(self.feedback), inputs=inputs, outputs=self.outputs)
        if self.feedback:
            made.start(**{key.replace("/", "__"): value for key, value in self.starts.items()})
        functions = {
            node: lambda given, node=node: self.compute(
                node, {name: np.asarray(value) for name, value in given.items()}
            )
            for node in self.nodes
        }
        return leapp.InferenceManager(made.write(), callables=functions)

    def spoil(self):
        """Make one thing wrong; False where there was nothing to spoil."""
        every = [f"{node}/{name}" for node in self.nodes for name in self.outputs[node]]
        kind = self.random.choice(["wire", "start", "late", "missing"])
        if kind == "missing" and self.data:
            key = min(self.data)
            del self.data[key]
            self.outer.append(key)
        elif kind == "start" and self.feedback:
            key = max(self.feedback)
            self.starts[key] = self.starts[key] + np.float32([0, 1e-3, 0])
        elif kind == "late" and self.data:
            key = max(self.data)
            self.feedback[key] = self.data.pop(key)
            self.starts[key] = self.fresh()
        elif self.feedback and len(every) > 1:
            key = min(self.feedback)
            self.feedback[key] = str(self.random.choice([other for other in every if other != self.feedback[key]]))
        else:
            return False
        return True


@pytest.mark.parametrize("seed", range(40))
def test_one_wrong_thing_in_a_random_pipeline_is_found(tmp_path, seed):
    program = Random(seed)
    samples, record = program.trace()
    limits = dict.fromkeys(program.nodes, Tolerances(1e-4, 1e-6))

    def passes(folder, record):
        run = program.write(folder)
        plan = schedule(run.pipeline, record, samples)
        return plan.ok and compare_ticks(run, plan.steps, limits, name="onnx", starts=plan.starts).ok

    assert passes(tmp_path / "right", record)
    assert passes(tmp_path / "right", replace(record, known=False, wires={}))
    if program.spoil():
        assert not passes(tmp_path / "wrong", record)
