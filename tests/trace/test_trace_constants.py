"""Constants: one storage at one moment."""

import time
import warnings

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.trace import constants


def test_a_constant_that_is_written_between_two_uses_is_two(record):
    def function(a):
        table = torch.ones(3)
        first = a * table
        table.add_(1)
        second = a * table
        table.numpy()[:] = 5.0
        return first, second, a * table

    recorded = record(function, torch.randn(3))
    fresh = torch.randn(3)
    assert [list(value) for value in recorded(fresh)] == [list(fresh), list(fresh * 2), list(fresh * 5)]
    assert list(recorded.graph.constants) == ["_tensor_constant0", "_tensor_constant1", "_tensor_constant2"]


def test_a_constant_is_stored_once_however_often_it_is_used(record):
    table = torch.randn(3)
    recorded = record(lambda a: a * table + table - table, torch.randn(3))
    assert list(recorded.graph.constants) == ["_tensor_constant0"]


def test_changing_weights_after_the_recording_changes_nothing(record):
    layer = torch.nn.Linear(3, 3)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    recorded = record(layer, torch.randn(3))
    with torch.no_grad():
        layer.weight.zero_()
    fresh = torch.randn(3)
    assert torch.equal(recorded(fresh), torch.nn.functional.linear(fresh, before["weight"], before["bias"]))


def test_tied_weights_are_one(record):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = torch.nn.Linear(3, 3, bias=False)
            self.dec = torch.nn.Linear(3, 3, bias=False)
            self.dec.weight = self.enc.weight

        def forward(self, x):
            return self.dec(self.enc(x)) + x @ self.enc.weight.t()

    tied = Tied()
    recorded = record(tied, torch.randn(3))
    assert list(recorded.graph.constants) == ["enc.weight"]
    fresh = torch.randn(3)
    assert torch.equal(recorded(fresh), tied(fresh).detach())


def test_numbering_follows_what_is_left(record):
    def function(a):
        a * torch.ones(3)
        return a + torch.full((3,), 2.0)

    recorded = record(function, torch.randn(3))
    assert {name: value.tolist() for name, value in recorded.graph.constants.items()} == {
        "_tensor_constant0": [2.0, 2.0, 2.0]
    }


def test_equal_names_get_a_number(record):
    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(3))

        def forward(self, x):
            return x * self.w

    one, two = Inner(), Inner()
    recorded = record(lambda a: one(a) + two(a), torch.randn(3))
    assert list(recorded.graph.constants) == ["w", "w_1"]
    fresh = torch.randn(3)
    assert torch.equal(recorded(fresh), (one(fresh) + two(fresh)).detach())


def test_large_constants_are_kept_by_reference_and_watched(record, monkeypatch):
    monkeypatch.setattr(constants, "REFERENCE_LIMIT_BYTES", 64)
    table = torch.randn(100)
    recorded = record(lambda a: a * table, torch.randn(100))
    held = recorded.session.completed[0].recordings[0].constants
    assert held.digests()["_tensor_constant0"] == constants.bytes_digest(table)
    assert recorded.graph.constants["_tensor_constant0"].data_ptr() == table.data_ptr()
    table.numpy()[3] += 1
    with pytest.raises(errors.ConstantChangedError, match="the constant '_tensor_constant0' changed between its use"):
        held.digests()


def quantised(tensor):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of quantised dtypes
        return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: quantised(torch.randn(3)), "quantised"),
        (lambda: torch.randn(3).to_sparse(), "sparse_coo"),
        (lambda: torch.empty(3, device="meta"), "meta"),
    ],
)
def test_kinds_that_no_file_holds_are_refused_by_name(record, make, kind):
    constant = make()
    with pytest.raises(errors.ConstantKindError, match=f"a {kind} tensor was used at .*test_trace_constants.py"):
        record(lambda a: torch.add(a, constant), torch.randn(3))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.uint8, torch.bfloat16, torch.float16, torch.complex64]
)
def test_dtypes(record, dtype):
    constant = torch.tensor([1, 0, 1]).to(dtype)
    recorded = record(lambda a: a * constant, torch.randn(3))
    fresh = torch.randn(3)
    assert torch.equal(recorded(fresh), fresh * constant)


VIEWS = {
    "row": lambda t: t[1],
    "column": lambda t: t[:, 2],
    "narrow": lambda t: t[1:3],
    "inner-narrow": lambda t: t[:, 1:3],
    "transpose": lambda t: t.t(),
    "transposed-row": lambda t: t.t()[1],
    "strided": lambda t: t.flatten()[1::3],
    "reshaped": lambda t: t.reshape(2, 6),
    "element": lambda t: t[1, 2],
    "expanded": lambda t: t[0:1].expand(3, 4),
    "diagonal": lambda t: t.diagonal(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_one_storage(record, name):
    """The whole first, then a view; a view first, then the whole: values are right and stored once where possible."""
    table = torch.arange(12.0).reshape(3, 4)
    view = VIEWS[name](table)

    for function in (
        lambda a: (a + table.sum() + table[0, 0], view * a.sum()),
        lambda a: (view * a.sum(), a + table.sum() + table[0, 0]),
        lambda a: (view * a.sum(), table * a.sum()),
    ):
        recorded = record(function, torch.randn(2))
        fresh = torch.randn(2)
        for got, expected in zip(recorded(fresh), function(fresh), strict=True):
            assert torch.equal(got, expected)
        total = sum(t.numel() for t in recorded.graph.constants.values())
        assert total <= table.numel() + view.numel() + 2


def test_random_views_are_expressed_exactly():
    """view_steps finds calls that give the view from a packed copy of its base, or says that there are none."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(500):
        base = torch.arange(60.0)[: 3 * 4 * 5].reshape(3, 4, 5)
        if rng.random() < 0.5:
            base = base.permute(*rng.permutation(3).tolist())
        view = base
        for _ in range(rng.integers(1, 3)):
            kind = rng.integers(4)
            if kind == 0 and view.dim():
                view = view.permute(*rng.permutation(view.dim()).tolist())
            elif kind == 1 and view.dim():
                axis = int(rng.integers(view.dim()))
                view = view.select(axis, int(rng.integers(view.shape[axis])))
            elif kind == 2 and view.dim():
                axis = int(rng.integers(view.dim()))
                start = int(rng.integers(view.shape[axis]))
                view = view.narrow(axis, start, int(rng.integers(1, view.shape[axis] - start + 1)))
            elif view.dim():
                view = view[..., ::2]
        steps = constants.view_steps(base, view)
        if steps is not None:
            found += 1
            packed = base.clone(memory_format=torch.contiguous_format)
            for target, args in steps:
                packed = target(packed, *args)
            assert torch.equal(packed, view)
    assert found > 300


@pytest.mark.parametrize(
    "view", [lambda t: t.real[1:], lambda t: t.imag, torch.view_as_real, lambda t: t.t().imag[:, 1]]
)
def test_real_parts_of_complex_memory_are_views_of_it(record, view):
    def function(a):
        table = torch.complex(torch.arange(4.0).reshape(2, 2), torch.ones(2, 2))
        view(table).mul_(a)
        return torch.view_as_real(table + 0), view(table) + a

    recorded = record(function, torch.tensor(2.0))
    fresh = torch.tensor(-3.0)
    for got, expected in zip(recorded(fresh), function(fresh), strict=True):
        assert torch.equal(got, expected)
    assert len(recorded.graph.constants) == 1


class Wide(torch.nn.Module):
    """Many parameters, and tensors without a name."""

    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ParameterList(torch.ones(1) for _ in range(count))
        self.bare = [torch.full((1,), float(i)) for i in range(count)]

    def forward(self, x):
        for each in self.bare:
            x = x + each
        return x


def counted(count):
    step = torch.zeros(2)

    def function(a):
        for _ in range(count):
            step.add_(1)
            a = a + step
        return a

    return function


def flipped(count):
    switch = torch.zeros(2)

    def function(a):
        for index in range(count):
            switch.fill_(index % 2)
            a = a + switch
        return a

    return function


def rows_read(count):
    table = torch.arange(1.0 * count * 64).reshape(count, 64)

    def function(a):
        for index in range(count):
            a = a + table[index, :2]
        return a

    return function


def rows_written(count):
    table = torch.zeros(count, 64)

    def function(a):
        table[:] = 0
        for row in table.unbind():
            row[:2].copy_(a)
        return table.sum(0)

    return function


def buffers_written(count):
    buffers = [torch.zeros(2) for _ in range(count)]

    def function(a):
        for buffer in buffers:
            buffer.mul_(0.5).add_(a)
        return torch.stack(buffers).sum(0)

    return function


@pytest.mark.parametrize("make", [counted, flipped, rows_read, rows_written, buffers_written, Wide])
def test_many_uses_cost_as_much_each_as_few(record, make):
    """Not a measure of speed: a search through all that went before would be twenty times as slow."""

    def seconds(count):
        function = make(count)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.HiddenStateWarning)
            start = time.process_time()
            recorded = record(function, torch.zeros(2))
            spent = time.process_time() - start
        return spent, recorded

    few = min(seconds(100)[0] for _ in range(3))
    many, recorded = seconds(2000)
    assert many < 20 * few * 4 + 0.2
    assert len(recorded.graph.constants) <= 2001


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.complex128])
def test_one_other_byte_is_seen_wherever_it_lies(dtype):
    whole = (torch.arange(40) % 2).to(dtype)
    for start, count in ((0, 16), (0, 7), (1, 16), (2, 8), (8, 0), (5, 1)):
        part = whole[start : start + count]
        copied = part.clone()
        assert constants.same_bytes(part, copied)
        for place in range(count):
            other = copied.clone()
            other[place] = 1 - other[place].to(torch.complex128 if dtype.is_complex else torch.int64)
            assert not constants.same_bytes(part, other)


def _longer(table):
    table.untyped_storage().resize_(4096)  # moves what it holds
    table.fill_(3.0)


def _in_numpy(table):
    table.numpy()[1] = 3.0


CHANGES = {
    "other data": lambda table: setattr(table, "data", torch.full((2, 2), 3.0)),
    "other memory": lambda table: table.set_(torch.full((2, 2), 3.0)),
    "moved": _longer,
    "written by NumPy": _in_numpy,
    "another part": lambda table: table.set_(table.untyped_storage(), 4, (2, 2), (2, 1)),
    "another shape": lambda table: setattr(table, "data", table.data[:1]),
    "another order": lambda table: setattr(table, "data", table.data.t()),
    "another dtype": lambda table: setattr(table, "data", table.data.view(torch.int32)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tensor_that_was_used_before_is_looked_at_again(record, change):
    def function(a):
        table = torch.empty(0).set_(torch.arange(8.0).untyped_storage(), 0, (2, 2), (2, 1))
        first = a * table + table
        change(table)
        return first, a * table + table

    recorded = record(function, torch.randn(2, 2))
    fresh = torch.randn(2, 2)
    for ours, theirs in zip(recorded(fresh), function(fresh), strict=True):
        assert torch.equal(ours, theirs)


def test_a_tensor_negated_behind_its_memory_is_looked_at_again(record):
    def function(a):
        numbers = torch.complex(torch.arange(3.0), torch.arange(3.0) + 1)
        table = torch.empty(0).set_(torch.view_as_real(numbers).untyped_storage(), 1, (3,), (2,))
        first = a * table
        table.data = numbers.conj().imag  # the same memory, and a sign that no memory holds
        return first, a * table

    recorded = record(function, torch.randn(3))
    fresh = torch.randn(3)
    for ours, theirs in zip(recorded(fresh), function(fresh), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore::leapp.errors.HiddenStateWarning")
def test_a_tensor_over_memory_that_a_call_wrote_is_looked_at_again(record):
    def function(a):
        table = torch.ones(3)
        other = table.detach()
        first = a * other
        table.mul_(a)  # by ones while it is recorded, which changes nothing
        return first, a * other

    recorded = record(function, torch.ones(3))
    fresh = torch.randn(3)
    for ours, theirs in zip(recorded(fresh), function(fresh), strict=True):
        assert torch.equal(ours, theirs)


def test_a_tensor_that_holds_again_what_it_held_is_the_constant_that_it_was(record):
    def function(a):
        table = torch.ones(3)
        results = []
        for number in (1.0, 2.0, 1.0, 2.0):
            table.numpy()[:] = number
            results += [a * table, a * table]
        return tuple(results)

    recorded = record(function, torch.randn(3))
    assert len(recorded.graph.constants) == 2
