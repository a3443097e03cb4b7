"""The recording that users of the public documentation know."""

import torch

from leapp.graph.dump import graph_text

STATE_MEAN = torch.zeros(6)
STATE_STD = torch.full((6,), 0.5)

EXPECTED = """\
%state = placeholder[target=state]
%velocity = placeholder[target=velocity]
%_tensor_constant0 = get_attr[target=_tensor_constant0]
%sub = call_function[target=torch.sub](args = (%state, %_tensor_constant0))
%_tensor_constant1 = get_attr[target=_tensor_constant1]
%div = call_function[target=torch.div](args = (%sub, %_tensor_constant1))
%clamp = call_function[target=torch.clamp](args = (%div, -5.0, 5.0))
%cat = call_function[target=torch.cat](args = ([%clamp, %velocity],))
return cat
"""


def preprocess(state, velocity):
    state_norm = torch.clamp((state - STATE_MEAN) / STATE_STD, -5.0, 5.0)
    return torch.cat([state_norm, velocity])


def test_the_recording_is_the_eight_nodes(make_session):
    session = make_session()
    state, velocity = torch.randn(6), torch.randn(3)
    session.input_tensors("preprocess", {"state": state, "velocity": velocity})
    obs = preprocess(state, velocity)
    session.output_tensors("preprocess", {"obs": obs})
    session.stop()
    graph = session.completed[0].recordings[0].graph
    assert graph_text(graph) == EXPECTED
    assert [node.op for node in graph.graph.nodes][:-1] == [
        "placeholder", "placeholder", "get_attr", "call_function", "get_attr", "call_function", "call_function",
        "call_function",
    ]  # fmt: skip
    assert graph.graph.find_nodes(op="call_function", target=torch.clamp)[0].args[1:] == (-5.0, 5.0)


def test_it_computes_what_the_function_does(record):
    recorded = record(preprocess, torch.zeros(6), torch.zeros(3))
    state, velocity = torch.randn(6) * 4, torch.randn(3)
    assert torch.equal(recorded(state, velocity), preprocess(state, velocity))


def test_parameters_are_named_from_the_outermost_module_that_runs(record):
    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())

        def forward(self, x):
            return self.net(x)

    policy = Policy()
    recorded = record(policy, torch.randn(4))
    assert list(recorded.graph.constants) == ["net.0.weight", "net.0.bias"]
    x = torch.randn(4)
    assert torch.equal(recorded(x), policy(x).detach())


def test_every_op_keeps_the_users_line(record):
    def function(a):
        b = a + 1
        return torch.relu(b)

    recorded = record(function, torch.randn(2))
    first = function.__code__.co_firstlineno
    lines = {name: (line.file, line.line) for name, line in recorded.graph.sources.items()}
    file = "tests/trace/test_trace_seed.py"
    assert lines == {"add": (file, first + 1), "relu": (file, first + 2)}
    assert recorded.graph.sources["add"].function.endswith("test_every_op_keeps_the_users_line.<locals>.function")
