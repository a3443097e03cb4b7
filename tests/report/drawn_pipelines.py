"""Pipelines to draw, as facts of bundles that nobody has to build."""

from __future__ import annotations

import random

from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.bundle.schema import Artifact
from leapp.report.facts import Facts, NodeFacts

LONG = "a_very_long_name_that_somebody_made_from_a_configuration_file_"


def port(name, *shape, dtype="float32", **semantics):
    return Port(name, TensorSpec(dtype, shape), semantics)


def node(name, inputs, outputs, formats=("onnx",)):
    artifacts = (Artifact(each, each, f"nodes/{name}/{name}.{each}", "0" * 64, "0" * 32, 10) for each in formats)
    return NodeFacts(NodeSpec(name, tuple(inputs), tuple(outputs)), artifacts=tuple(artifacts))


def facts(name, nodes, data=None, back=None):
    """A pipeline of nodes; outer ports are those that nothing feeds, and those that feed nothing in the same tick."""
    data, back = data or {}, back or {}
    fed = {target for targets in (*data.values(), *back.values()) for target in targets}
    states = {source for source, targets in back.items() if any(_node(source) == _node(target) for target in targets)}
    inputs = {_name(each): _outer(each, each.spec.inputs, fed) for each in nodes}
    outputs = {_name(each): _outer(each, each.spec.outputs, {*data, *states}) for each in nodes}
    starts = {target: "zeros" for targets in back.values() for target in targets}
    return Facts(
        name, "1.0.0", "ok", "", tuple(nodes), data, back, inputs, outputs, configs={"frequency": 50}, starts=starts
    )


def _name(node):
    return node.spec.name


def _node(place):
    return place.partition("/")[0]


def _outer(node, ports, taken):
    return tuple(each.name for each in ports if f"{node.spec.name}/{each.name}" not in taken)


def one():
    return facts("one", [node("policy", [port("observation", 48)], [port("action", 12)], ("onnx", "pt2"))])


def recurrent():
    inputs = [port("observation", 48), port("hidden_in", 1, 256), port("cell_in", 1, 256)]
    outputs = [port("action", 12), port("hidden_out", 1, 256), port("cell_out", 1, 256)]
    loops = {"policy/hidden_out": ("policy/hidden_in",), "policy/cell_out": ("policy/cell_in",)}
    return facts("recurrent", [node("policy", inputs, outputs)], {}, loops)


def three():
    return facts(
        "three",
        [
            node("estimator", [port("joint_pos", 12), port("memory", 3)], [port("features", 64), port("velocity", 3)]),
            node("planner", [port("velocity", 3), port("goal", 2)], [port("command", 3)], ()),
            node("policy", [port("features", 64), port("command", 3)], [port("actions", 4, 12), port("memory_out", 3)]),
        ],
        {
            "estimator/features": ("policy/features",),
            "estimator/velocity": ("planner/velocity",),
            "planner/command": ("policy/command",),
        },
        {"policy/memory_out": ("estimator/memory",)},
    )


def chain(count, back=()):
    """Each node feeds the next; ``back``: pairs of nodes that are fed back, by number."""
    nodes, loops = [], {}
    for at in range(count):
        inputs = [port("x", 16), *(port(f"from_{a}", 4) for a, b in back if b == at)]
        outputs = [port("y", 16), *(port(f"to_{b}", 4) for a, b in back if a == at)]
        nodes.append(node(f"stage_{at}", inputs, outputs))
    for a, b in back:
        loops[f"stage_{a}/to_{b}"] = (f"stage_{b}/from_{a}",)
    return facts(
        f"chain of {count}", nodes, {f"stage_{at}/y": (f"stage_{at + 1}/x",) for at in range(count - 1)}, loops
    )


def fan(count):
    """One node feeds many, which feed one."""
    heads = range(count - 2)
    nodes = [
        node("camera", [port("image", 3, 224, 224, dtype="uint8")], [port("embedding", 512)]),
        *(node(f"head_{at}", [port("embedding", 512)], [port("logit", 10)]) for at in heads),
        node("merge", [port(f"logit_{at}", 10) for at in heads], [port("out", 10)]),
    ]
    data = {"camera/embedding": tuple(f"head_{at}/embedding" for at in heads)}
    return facts(f"fan of {count}", nodes, data | {f"head_{at}/logit": (f"merge/logit_{at}",) for at in heads})


def grid(rows, columns):
    nodes, data = [], {}
    for y in range(rows):
        for x in range(columns):
            nodes.append(node(f"{y}_{x}", [port("left", 8), port("up", 8)], [port("right", 8), port("down", 8)]))
            if x + 1 < columns:
                data[f"{y}_{x}/right"] = (f"{y}_{x + 1}/left",)
            if y + 1 < rows:
                data[f"{y}_{x}/down"] = (f"{y + 1}_{x}/up",)
    return facts(f"grid of {rows} x {columns}", nodes, data)


def long_names():
    alpha = node(
        LONG + "alpha",
        [port(LONG * 2 + "in", *range(1, 21)), port(LONG + "back", 3)],
        [port(LONG + "features", 3), port("größe\n机器人 <&>", 2)],
    )
    beta = node(LONG + "beta", [port(LONG + "x", 3)], [port(LONG + "y", 3)])
    return facts(
        "long " * 40,
        [alpha, beta],
        {f"{LONG}alpha/{LONG}features": (f"{LONG}beta/{LONG}x",)},
        {f"{LONG}beta/{LONG}y": (f"{LONG}alpha/{LONG}back",)},
    )


def many_ports():
    signals = [f"signal_{at}" for at in range(40)]
    nodes = [
        node("sensor", [], [port(each, 3) for each in signals]),
        node("hub", [port(each, 3) for each in signals], [port(f"command_{at}", 3) for at in range(12)]),
        node("left", [port(f"c{at}", 3) for at in range(6)], [port("torque", 1)]),
        node("right", [port(f"c{at}", 3) for at in range(6)], [port("torque", 1)]),
    ]
    data = {f"sensor/{each}": (f"hub/{each}",) for each in signals[:30]}
    data |= {f"hub/command_{at}": (f"{('left', 'right')[at % 2]}/c{at // 2}",) for at in range(12)}
    back = {"left/torque": ("hub/signal_30",), "right/torque": ("hub/signal_31", "hub/signal_32")}
    return facts("many ports", nodes, data, back)


def many_states():
    """Three nodes in a row with twelve states each."""
    states = range(12)
    nodes = [
        node(
            f"filter_{at}",
            [port("x", 3), *(port(f"s{k}_in", 3) for k in states)],
            [port("y", 3), *(port(f"s{k}_out", 3) for k in states)],
        )
        for at in range(3)
    ]
    loops = {f"filter_{at}/s{k}_out": (f"filter_{at}/s{k}_in",) for at in range(3) for k in states}
    return facts("many states", nodes, {f"filter_{at}/y": (f"filter_{at + 1}/x",) for at in range(2)}, loops)


def alone(count):
    return facts("alone", [node(f"n{at}", [port("x", 3)], [port("y", 3)]) for at in range(count)])


def by_chance(count, seed):
    """Nodes of a few ports, wired by chance to earlier nodes, and fed back from any that are not earlier."""
    chance = random.Random(seed)  # noqa: S311  # the same pipeline each time
    nodes, data, back = [], {}, {}
    for at in range(count):
        inputs = [port(f"in{k}", chance.randint(1, 99)) for k in range(chance.randint(1, 4))]
        outputs = [port(f"out{k}", chance.randint(1, 99)) for k in range(chance.randint(1, 3))]
        nodes.append(node(f"node_{at}", inputs, outputs, chance.choice([("onnx",), ("onnx", "pt2"), ()])))
    for at in range(count):
        for each in nodes[at].spec.inputs:
            if at and chance.random() < 0.6:
                flow, source = data, chance.randrange(max(0, at - 8), at)
            elif chance.random() < 0.4:
                flow, source = back, chance.randrange(at, count)
            else:
                continue
            output = chance.choice(nodes[source].spec.outputs).name
            flow.setdefault(f"node_{source}/{output}", []).append(f"node_{at}/{each.name}")
    return facts(
        f"by chance {count}", nodes, {k: tuple(v) for k, v in data.items()}, {k: tuple(v) for k, v in back.items()}
    )


PIPELINES = {
    "none": lambda: Facts("none", "", "ok", "", ()),
    "one": one,
    "recurrent": recurrent,
    "three": three,
    "chain of 10": lambda: chain(10),
    "chain of 50 with feedback": lambda: chain(50, [(49, 0), (30, 2), (12, 5), (20, 20), (26, 25), (8, 40), (49, 48)]),
    "fan of 50": lambda: fan(50),
    "grid": lambda: grid(7, 7),
    "long names": long_names,
    "many ports": many_ports,
    "many states": many_states,
    "alone": lambda: alone(20),
    "by chance 10": lambda: by_chance(10, 1),
    "by chance 50": lambda: by_chance(50, 2),
}
