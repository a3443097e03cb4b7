"""Random modules that write, replace and swap their buffers: traced over three ticks, then run closed loop, as untraced.

By hand: ``python tests/property/test_state_programs.py FIRST LAST`` runs the programs of these seeds and counts verdicts.
"""

import collections
import random
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from leapp import errors
from leapp.graph._base import run_passes
from leapp.graph.passes import EXPORT_PASSES
from leapp.trace.session import Session, SessionOptions

NAMES = "abcd"
EXPRESSIONS = (
    "({0} + {1})", "({0} * 0.5 - {1})", "torch.tanh({0})", "{0}.flip(0)", "torch.cat([{0}[1:], {1}[:1]])", "{0}.clone()",
    "torch.where({0} > 0, {1}, {0})", "({0}.view(2, 2).t().reshape(4) + 1)", "torch.roll({0}, 1)",
)  # fmt: skip
STATEMENTS = (
    "t{i} = {e}", "t{i} = {e}", "{n} = {e}", "{n} = {e}", "{n} += {e}", "{n}[{k}:] = {e}[:1]", "{n}.copy_({e})",
    "{n}.mul_(0.5).add_(1)", "{n}, self.a = self.a, {n}", "{n} = torch.zeros(4)", "{s}[1:3].add_(0.25)",
    "{n}.view(2, 2)[0] = 1.5", "torch.mul({s}, 0.9, out={n})", "{n} = {s}[:]", "{n} = {s}",
)  # fmt: skip


def program(seed):
    """The body of a ``forward`` over buffers a to d, the input ``x`` and what was computed before."""
    draw = random.Random(seed)  # noqa: S311 - programs that can be repeated
    values = ["x", *(f"self.{name}" for name in NAMES)]

    def expression():
        return draw.choice(EXPRESSIONS).format(draw.choice(values), draw.choice(values))

    lines = []
    for i in range(draw.randint(2, 9)):
        line = draw.choice(STATEMENTS)
        parts = {"n": f"self.{draw.choice(NAMES)}", "s": draw.choice(values), "k": draw.randint(0, 2)}
        lines.append(line.format(i=i, e=expression(), **parts))
        if line.startswith("t{i}"):
            values.append(f"t{i}")
    return [*lines, f"return {expression()} + x"]


def module(lines):
    """The class of a module with this ``forward``; every object of it starts alike."""
    names = {"torch": torch}
    exec("def forward(self, x):\n" + "\n".join(f"    {line}" for line in lines), names)

    class Program(nn.Module):
        forward = names["forward"]

        def __init__(self):
            super().__init__()
            generator = torch.Generator().manual_seed(1)
            for name in NAMES:
                self.register_buffer(name, torch.randn(4, generator=generator))

    return Program


def verdict(seed):
    """What became of a program: equal, refused, or what went wrong."""
    make = module(program(seed))
    generator = torch.Generator().manual_seed(seed)
    session = Session(SessionOptions(name="programs", folder=Path("unused"), root=Path(__file__).parents[2]))
    model, twin = make(), make()
    try:
        for _ in range(3):
            x = torch.randn(4, generator=generator)
            expected = twin(x.clone())
            session.input_tensors("n", {"x": x})
            session.module("n", model, None)
            y = model(x)
            session.output_tensors("n", {"y": y})
            if not torch.equal(y.clone(), expected):
                return "another value when traced"
    except errors.LeappError as error:
        return f"refused: {type(error).__name__}"
    finally:
        session.stop()
    for name, buffer in model.named_buffers():
        if type(buffer) is not torch.Tensor or not torch.equal(buffer, twin.get_buffer(name)):
            return f"another buffer {name}"
    return _closed_loop(session.nodes["n"].recordings[0].graph, make(), generator)


def _closed_loop(graph, twin, generator):
    run = run_passes(graph, EXPORT_PASSES).module()
    state = {name: buffer.clone() for name, buffer in twin.named_buffers()}
    for _ in range(5):
        x = torch.randn(4, generator=generator)
        given = {"x": x.clone(), **state}
        results = run(*(given[port.name].clone() for port in graph.spec.inputs))
        results = results if isinstance(results, tuple) else (results,)
        y, *following = results
        if not torch.allclose(y, twin(x), rtol=1e-6, atol=1e-6):
            return "another value in the closed loop"
        state.update(zip((port.name for port in graph.spec.outputs[1:]), following, strict=True))
    return "equal"


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_modules_run_closed_loop_or_are_refused(first):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.LeappWarning)
        verdicts = {seed: verdict(seed) for seed in range(first, first + 20)}
    wrong = {seed: said for seed, said in verdicts.items() if said != "equal" and not said.startswith("refused")}
    assert not wrong, {seed: (said, program(seed)) for seed, said in wrong.items()}
    assert list(verdicts.values()).count("equal") > 10


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    counts = collections.Counter()
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        said = verdict(number)
        counts[said] += 1
        if said != "equal" and not said.startswith("refused"):
            print(number, said, *program(number), sep="\n  ")
    print(dict(counts))
