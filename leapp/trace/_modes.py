"""Where our modes stand among those of the user, on torch's stacks of function modes and of dispatch modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import overrides
from torch.utils import _python_dispatch

if TYPE_CHECKING:
    from collections.abc import Callable


class Stack(NamedTuple):
    """One of torch's stacks of modes, of the running thread."""

    modes: Callable[[], list[Any]]
    pop: Callable[[], Any]
    push: Callable[[Any], Any]

    def put_below(self, mode: Any) -> None:
        """Put a mode below every other: the user's may be left while ours stays, and act first."""
        self._replace_by([mode, *self.modes()])

    def take_out(self, mode: Any) -> None:
        """Take a mode out, wherever it stands: others may have been entered since, and stay."""
        modes = self.modes()
        if mode in modes:
            self._replace_by([each for each in modes if each is not mode])

    def _replace_by(self, modes: list[Any]) -> None:
        for _ in self.modes():
            self.pop()
        for each in modes:
            self.push(each)


FUNCTION_MODES = Stack(overrides._get_current_function_mode_stack, overrides._pop_mode, overrides._push_mode)
DISPATCH_MODES = Stack(
    _python_dispatch._get_current_dispatch_mode_stack, _python_dispatch._pop_mode, _python_dispatch._push_mode
)
