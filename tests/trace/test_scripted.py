"""Scripted and traced code inside a node: walked op by op, with TorchScript's own values."""

import pytest
import scripted_cases as cases
import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


def fresh(seed):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)) * 2


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def assert_same(first, second):
    for one, other in zip(as_tuple(first), as_tuple(second), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one.detach().nan_to_num(), other.detach().nan_to_num())


def unoptimised(scripted):
    def call(x):
        with torch.jit.optimized_execution(False):
            return scripted(x)

    return call


def check(record, scripted, count=3):
    """The user's value is the native one, on the first and on later calls; the recording holds for other inputs.

    Compared with TorchScript's optimiser off: after the second call it writes ``addmm`` as ``mm`` and ``add``, and then
    TorchScript's own values differ in their last bits from those of its first call, which are the ones that hold here.
    """
    scripted = unoptimised(scripted)
    for seed in range(count):
        native = scripted(fresh(seed))
        recorded = record(lambda a: scripted(a), fresh(seed))
        assert_same(recorded.result, native)
    for seed in range(10, 12):
        assert_same(recorded(fresh(seed)), scripted(fresh(seed)))
    return recorded


@pytest.mark.parametrize("function", cases.FUNCTIONS, ids=lambda each: each.__name__)
def test_scripted_functions(record, function):
    recorded = check(record, torch.jit.script(function))
    assert recorded.targets


@pytest.mark.parametrize("module", cases.MODULES, ids=lambda each: each.__name__)
def test_scripted_modules(record, module):
    torch.manual_seed(0)
    made = module().eval()
    recorded = check(record, torch.jit.script(made))
    names = dict(made.named_parameters()) | dict(made.named_buffers())
    assert {name for name in recorded.graph.constants if not name.startswith("_tensor_constant")} <= set(names)
    assert any(name in names for name in recorded.graph.constants)
