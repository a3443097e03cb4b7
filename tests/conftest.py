"""What several test files share: recording a plain function as one node, and evaluating the recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from recorded import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import torch
except ModuleNotFoundError:  # the base installation has tests of its own
    torch = None  # type: ignore[assignment]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Builds of a test file find nothing of others, and leave nothing in the cache of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEAPP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def make_session() -> Any:
    """Sessions that are stopped when the test ends, whatever it did."""
    from leapp.trace.session import Session, SessionOptions

    made = []

    def make(**options: Any) -> Session:
        session = Session(SessionOptions(name="test", folder=Path("unused"), root=Path(__file__).parents[1], **options))
        made.append(session)
        return session

    yield make
    for session in made:
        session.stop()


@pytest.fixture
def record(make_session: Any) -> Callable[..., Recorded]:
    """``record(function, *tensors)``: trace ``function`` as node ``n`` with inputs ``a``, ``b``, ..."""

    def run(function: Callable[..., Any], *inputs: Any, **options: Any) -> Recorded:
        session = make_session(**options)
        names = "abcdefgh"[: len(inputs)]
        traced = session.input_tensors("n", dict(zip(names, inputs, strict=True)))
        result = function(*(traced.get(id(each), each) for each in inputs))
        outputs = result if isinstance(result, tuple) else (result,)
        session.output_tensors("n", {f"out{i}": value for i, value in enumerate(outputs)})
        session.stop()
        return Recorded(session.completed[0].recordings[0].graph, session, result)

    return run
