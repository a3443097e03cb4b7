"""torch's settings during a tick: what the caller set in the process neither disturbs a model nor is changed by it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

State: TypeAlias = "tuple[bool, bool, int, contextlib.ExitStack | None] | None"


class Modes:
    """No gradients, no autocast, our number of threads, and TorchScript graphs run as they are written.

    (Otherwise the first ticks would pay for profiling and fusing them.) Entered by two calls and not as a context
    manager, which would take longer than a small model. Without torch nothing is done.
    """

    def __init__(self, torch: Any, threads: int) -> None:
        """Remember what a tick is to run under."""
        self._torch = torch
        self._threads = threads

    def enter(self) -> State:
        """Begin a tick; gives what ``leave`` needs."""
        torch = self._torch
        if torch is None:
            return None
        core = torch._C
        before_threads = torch.get_num_threads()
        grad, optimise = torch.is_grad_enabled(), core._get_graph_executor_optimize()
        stack = None
        if torch.is_autocast_enabled("cpu"):
            stack = contextlib.ExitStack()
            stack.enter_context(torch.autocast("cpu", enabled=False))
        core._set_grad_enabled(False)
        core._set_graph_executor_optimize(False)
        if before_threads != self._threads:
            torch.set_num_threads(self._threads)
        return grad, optimise, before_threads, stack

    def leave(self, before: State) -> None:
        """End the tick that ``enter`` began."""
        if before is None:
            return
        grad, optimise, threads, stack = before
        core = self._torch._C
        core._set_grad_enabled(grad)
        core._set_graph_executor_optimize(optimise)
        if threads != self._threads:
            self._torch.set_num_threads(threads)
        if stack is not None:
            stack.close()

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """While memory is made: tensors made in inference mode could not be written outside it."""
        if self._torch is None:
            yield
            return
        with self._torch.inference_mode(mode=False), self._torch.no_grad():
            yield
