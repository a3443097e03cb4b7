"""``torch.ops``, custom operators and compiled callables on traced values."""

import pytest
import torch

from leapp import errors

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def distributions_check_their_arguments(monkeypatch):
    """The first ``torch.compile`` of a process switches the checks off for good, also for the tests that follow."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)


def fresh(seed):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)) * 2


def check(record, function, targets=None):
    expected = function(fresh(0))
    recorded = record(lambda a: function(a), fresh(0))
    assert recorded.result.dtype == expected.dtype
    assert torch.equal(recorded.result, expected)
    if targets is not None:  # before the passes add to them
        assert recorded.targets == targets
    for seed in (10, 11):
        assert torch.equal(recorded(fresh(seed)), function(fresh(seed)))
    return recorded


@pytest.mark.parametrize(
    ("function", "targets"),
    [
        (lambda a: aten.add.Tensor(a, a, alpha=2), ["torch.add"]),
        (lambda a: aten.add(a, 1), ["torch.add"]),
        (lambda a: aten.slice.Tensor(a, 1, 0, 2), ["operator.getitem"]),
        (lambda a: aten.index.Tensor(a, [None, torch.tensor([2, 0])]), ["operator.getitem"]),
        (lambda a: aten._softmax.default(a, -1, False), ["torch.softmax"]),
        (lambda a: aten._to_copy(a, dtype=torch.float64), ["Tensor.to"]),
        (lambda a: aten.view.default(a, [3, 2]), ["Tensor.view"]),
        (lambda a: aten.cat([a, a], 1), ["torch.cat"]),
        (lambda a: aten.mean.dim(a, [1], True), ["torch.mean"]),
        (lambda a: aten.native_layer_norm(a, [3], None, None, 1e-5)[0], None),
        (lambda a: aten.clone(a), ["torch.clone"]),
        (lambda a: aten.alias(a) * 2, None),
        (lambda a: aten.mul_(a.clone(), 3), ["torch.clone", "Tensor.mul_"]),
        (lambda a: aten.linalg_vector_norm(a, 2, [1]), ["torch.linalg.vector_norm"]),
        (lambda a: aten.gelu(a, approximate="tanh"), None),
        (lambda a: aten.constant_pad_nd(a, [1, 1], 2.0), ["torch.nn.functional.pad"]),
        (lambda a: aten.convolution(a[None], torch.ones(1, 2, 1), None, [1], [0], [1], False, [0], 1), None),
        (lambda a: aten.upsample_nearest1d(a[None], [6]), None),
        (lambda a: aten.where.self(a > 0, a, aten.zeros_like(a)), None),
        (lambda a: aten.einsum("ij,kj->ik", [a, a]), ["torch.einsum"]),
        (lambda a: aten.einsum("ij,kj,kl->il", [a, a, a]), None),
        (lambda a: aten.add.out(a, 1, out=torch.empty(2, 3)), None),
    ],
)
def test_operators_are_recorded_as_public_functions(record, function, targets):
    check(record, function, targets)


def test_a_call_on_plain_memory_that_the_trace_wrote(record):
    def function(a):
        buffer = torch.zeros(2, 3)
        row = buffer[0]
        buffer += a
        return aten.mul.Tensor(row, a)

    check(record, function)


def test_wrong_arguments(record):
    with pytest.raises(RuntimeError, match="missing value for argument 'other'"):
        record(lambda a: aten.add.Tensor(a), fresh(0))


def test_exported_programs_run_inside_a_node(record):
    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))

        def forward(self, x):
            return self.layers(x).softmax(-1)[:, 1:]

    program = torch.export.export(Policy(), (fresh(0),))
    recorded = check(record, program.module())
    assert "layers.0.weight" in recorded.graph.constants


@pytest.fixture(scope="module")
def library():
    library = torch.library.Library("leapptest", "DEF")
    library.define("tripled(Tensor x) -> Tensor")
    library.impl("tripled", lambda x: x * 3, "CompositeImplicitAutograd")
    library.define("shifted(Tensor x) -> Tensor")
    library.impl("shifted", lambda x: x + torch.full((3,), 4.0), "CPU")
    yield torch.ops.leapptest
    library._destroy()


@torch.library.custom_op("leapptest2::doubled", mutates_args=())
def doubled(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    return x * times


@torch.library.custom_op("leapptest2::raised_", mutates_args={"x"})
def raised_(x: torch.Tensor) -> None:
    x.add_(1)


def test_custom_operators_are_traced_through(record, library):
    recorded = check(record, lambda a: library.tripled(a) + library.shifted.default(a) + doubled(a, times=4))
    assert not [target for target in recorded.targets if "leapptest" in target]


def test_custom_operators_that_write(record):
    def function(a):
        b = a * 1
        raised_(b)
        return b

    check(record, function, ["torch.mul", "Tensor.add_"])


@torch.library.custom_op("leapptest2::through_numpy", mutates_args=())
def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


def test_a_custom_operator_that_goes_through_numpy_is_traced_through(record):
    check(record, lambda a: through_numpy(a), ["torch.mul"])


@torch.library.custom_op("leapptest2::through_lists", mutates_args=())
def through_lists(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([2 * each for each in x.flatten().tolist()]).view(x.shape)


def test_a_custom_operator_that_leaves_torch_is_not_lost_in_silence(record):
    with pytest.warns(errors.TraceEscapeWarning), pytest.raises(errors.OutputNotTracedError):
        record(lambda a: through_lists(a), fresh(0))


def squashed(x):
    return torch.tanh(x * 2) + x.sum(1, keepdim=True)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=["eager", "default"])
def test_compiled_functions_run_as_the_original(record, options):
    compiled = torch.compile(squashed, **options)
    recorded = record(lambda a: compiled(a), fresh(0))
    assert recorded.targets == ["torch.mul", "torch.tanh", "torch.sum", "torch.add"]
    assert torch.equal(recorded.result, squashed(fresh(0)))
    assert torch.equal(recorded(fresh(3)), squashed(fresh(3)))


def test_compiled_modules_keep_their_names(record):
    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.compile(torch.nn.Linear(3, 3), backend="eager"))
    compiled = torch.compile(made, backend="eager")
    recorded = record(lambda a: compiled(a), fresh(0))
    assert list(recorded.graph.constants) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert torch.equal(recorded(fresh(3)), made(fresh(3)))


def test_compiling_goes_on_after_the_node(record):
    frames = []

    def backend(graph, inputs):
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(squashed, backend=backend)
    before = torch.compile
    record(lambda a: compiled(a) + torch.compile(squashed, backend=backend)(a), fresh(0))
    assert not frames
    assert torch.compile is before
    compiled(fresh(0))
    assert len(frames) == 1
