"""A finished recording as the later stages see it, and what a pass over it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from torch import fx

if TYPE_CHECKING:
    import torch

    from leapp._spec import NodeSpec, SourceLine, TensorSpec


_OF_MODULES: Final = frozenset(dir(fx.GraphModule({}, fx.Graph())))
"""Attributes of the modules that torch makes; ``code`` and ``graph`` are among them."""


@dataclass(frozen=True)
class NodeGraph:
    """One node's recording.

    ``graph`` has one placeholder per input of ``spec`` in order and returns a tuple with one value per output in order
    (a bare value when there is one). ``constants`` maps every ``get_attr`` target to a CPU tensor that nobody else
    writes; a target with dots stands for nested attributes. ``sources`` maps FX node names to the user's line; it is
    evidence and must never reach content. ``specs`` maps node names to dtype and shape of their values.
    """

    spec: NodeSpec
    graph: fx.Graph
    constants: Mapping[str, torch.Tensor]
    sources: Mapping[str, SourceLine] = field(default_factory=dict)
    specs: Mapping[str, TensorSpec] = field(default_factory=dict)
    writes: frozenset[str] = frozenset()
    """Names of calls that were seen to write one of their arguments."""
    translated: bool = False
    """Calls of NumPy stand in it as torch's: what they give may differ in the last bits."""

    def module(self) -> fx.GraphModule:
        """A GraphModule over the same graph; constants are registered as buffers, names may be nested.

        A constant in a submodule that is called like an attribute of every GraphModule gets another name there, and
        the graph is copied.
        """
        import torch

        root = torch.nn.Module()
        moved = places(list(self.constants))
        for name, value in self.constants.items():
            *path, leaf = moved[name].split(".")
            owner = root
            for part in path:
                child = owner._modules.get(part)
                if child is None:
                    child = owner._modules[part] = torch.nn.Module()
                owner = child
            owner._buffers[leaf] = value
        graph = self.graph
        if any(name != place for name, place in moved.items()):
            graph = fx.Graph()
            graph.output(graph.graph_copy(self.graph, {}))
            for node in graph.nodes:
                if node.op == "get_attr":
                    node.target = moved[str(node.target)]
        return fx.GraphModule(root, graph, class_name="Recording")


def places(targets: list[str]) -> dict[str, str]:
    """Where each constant lies: under its own name, unless the modules that torch makes have such an attribute."""
    heads = {target.partition(".")[0] for target in targets}
    places = {}
    for target in targets:
        head, dot, rest = target.partition(".")
        if head in _OF_MODULES:
            head = next(name for count in range(1, len(heads) + 2) if (name := head + "_" * count) not in heads)
        places[target] = f"{head}{dot}{rest}"
    return places


@dataclass(frozen=True)
class PassResult:
    """What a pass gives back: the graph, and whether anything changed."""

    graph: NodeGraph
    changed: bool


Pass = Callable[[NodeGraph], PassResult]


def run_passes(graph: NodeGraph, passes: Sequence[Pass]) -> NodeGraph:
    """Run ``passes`` in order on a copy; an exception in one carries a note that names it and those that ran before.

    The recording stays what it is: its digest is taken and a second session is compared with it afterwards.
    """
    graph = _copied(graph)
    done: list[str] = []
    for each in passes:
        try:
            graph = each(graph).graph
        except Exception as error:
            error.add_note(f"in graph pass {each.__name__!r} on node {graph.spec.name!r}, after {done or 'none'}")
            raise
        done.append(each.__name__)
    return graph


def _copied(recording: NodeGraph) -> NodeGraph:
    """The same recording in a graph of its own, which passes may write."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in recording.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].name = node.name
    return replace(recording, graph=graph)
