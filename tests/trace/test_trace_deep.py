"""Long recordings: no recursion, linear work."""

import sys

import torch

DEPTH = 20_000


def chain(a):
    for _ in range(DEPTH // 2):
        a = a * 1.0001
        a = torch.clamp(a, -3.0, 3.0)
    return a


def test_twenty_thousand_ops_record_prune_and_replay(record):
    limit = sys.getrecursionlimit()
    recorded = record(lambda a: (chain(a), chain(-a))[0], torch.randn(8))
    assert len(recorded.targets) == DEPTH
    fresh = torch.randn(8)
    assert torch.equal(recorded(fresh), chain(fresh))
    assert sys.getrecursionlimit() == limit


def test_work_per_op_is_constant(record):
    """Counted in Python calls, not in seconds."""

    def calls(depth):
        def function(a):
            for _ in range(depth):
                a = a + 1
            return a

        count = 0

        def count_calls(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(count_calls)
        try:
            record(function, torch.randn(2))
        finally:
            sys.setprofile(None)
        return count

    small, large = calls(100), calls(1000)
    assert large < 10.5 * small
