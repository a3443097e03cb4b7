"""``FunctionPatch``: a recorded equivalent for a native call. Standard library only."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leapp.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


@dataclass(frozen=True)
class FunctionPatch:
    """While the session is open, a call of ``module.function_name`` with a traced value runs ``replacement`` instead.

    ``module`` is a module, a class, or a module's name; ``function_name`` a name in it. ``replacement`` takes the same
    arguments and gives the same result, by calls that are recorded. Calls without traced values, and calls that the
    replacement makes itself, go to the original. Names that were imported before (``from module import function``)
    still mean the original.

    Raises:
        OptionError: the module is not imported, or has no such function, or the replacement cannot be called.
    """

    module: ModuleType | type | str
    function_name: str
    replacement: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(getattr(self.owner(), self.function_name, None)):
            raise OptionError(
                option="FunctionPatch", value=self.function_name, why=f"{self.spelled()} is no function"
            )  # fmt: skip
        if not callable(self.replacement):
            raise OptionError(option="FunctionPatch", value=self.replacement, why="the replacement cannot be called")

    def owner(self) -> Any:
        """The object in which the name stands."""
        if not isinstance(self.module, str):
            return self.module
        found = sys.modules.get(self.module)
        if found is None:
            raise OptionError(
                option="FunctionPatch", value=self.module, why="no module of this name is imported; import it first"
            )
        return found

    def spelled(self) -> str:
        """The function as users write it."""
        owner = self.owner()
        return f"{getattr(owner, '__qualname__', None) or owner.__name__}.{self.function_name}"
