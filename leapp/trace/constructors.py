"""Ways to make or write a tensor that no hook of torch sees, wrapped while a session is open.

``torch.Tensor(x)`` is another object over the memory of ``x``; ``x.real = y`` and ``x.imag = y`` write it. Like the
other patches there is one per process, taken out with the last session.
"""

from __future__ import annotations

from typing import Any

import torch

from leapp.trace.tensor import alias_of

_Base: Any = torch._C.TensorBase
_open_sessions = 0


def begin() -> None:
    """Wrap them, unless another session did."""
    global _open_sessions  # noqa: PLW0603 - patches are as global as what they patch
    if _open_sessions == 0:
        torch.Tensor.__new__ = _made  # type: ignore[method-assign]
        torch.Tensor.real = _REAL  # type: ignore[assignment]
        torch.Tensor.imag = _IMAG  # type: ignore[assignment]
    _open_sessions += 1


def end() -> None:
    """Uncover what torch has when the last session ends."""
    global _open_sessions  # noqa: PLW0603 - as above
    _open_sessions -= 1
    if _open_sessions == 0:
        for name in ("__new__", "real", "imag"):
            delattr(torch.Tensor, name)


def _made(cls: Any, *args: Any, **kwargs: Any) -> Any:
    result = _Base.__new__(cls, *args, **kwargs)
    if len(args) == 1 and cls is torch.Tensor:
        alias_of(args[0], result)
    return result


class _Assignable(property):
    """A property of torch's, with an assignment made of calls that are seen."""

    def __init__(self, name: str) -> None:
        self.__name__ = name  # the op table knows properties by it
        self._original = getattr(_Base, name)
        super().__init__(self._get, self._assign, None, self._original.__doc__)

    def _get(self, tensor: torch.Tensor) -> Any:
        return self._original.__get__(tensor)

    def _assign(self, tensor: torch.Tensor, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._original.__get__(tensor).copy_(value)
        else:
            self._original.__set__(tensor, value)


_REAL, _IMAG = _Assignable("real"), _Assignable("imag")
