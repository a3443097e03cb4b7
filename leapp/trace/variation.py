"""What a probing build asks of a trace session: to keep facts of the first run, and to move values in the second."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from leapp.trace.constants import no_hooks, outermost_module

if TYPE_CHECKING:
    from collections.abc import Callable


class Variation(Protocol):
    """How a second session differs from the first."""

    def vary_input(self, node: str, port: str, entry: int, tensor: torch.Tensor) -> None:
        """Called before an input is noted; may write into ``tensor``."""
        ...

    def pinned(self, node: str, index: int, value: Any) -> Any:
        """What ``annotate.constant`` hands back for its ``index``-th call in a node."""
        ...

    def weights(self, index: int, module: torch.nn.Module) -> None:
        """Called before the first call of the ``index``-th outermost module; may write its parameters and buffers."""
        ...


@dataclass
class WatchedModule:
    """An outermost module at its first call."""

    module: weakref.ref[torch.nn.Module]
    kind: str
    versions: dict[str, tuple[weakref.ref[torch.Tensor], int]]

    def unwritten(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers that nothing wrote or replaced since the first call, by qualified name."""
        module = self.module()
        if module is None:
            return {}
        found = {}
        for name, tensor in named_tensors(module).items():
            first, version = self.versions.get(name, (None, 0))
            if first is not None and first() is tensor and version_of(tensor) == version:
                found[name] = tensor
        return found


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and registered buffers of a module, each once, by qualified name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def version_of(tensor: torch.Tensor) -> int:
    """How often torch has written a tensor; inference tensors keep no count and are taken as unwritten."""
    with no_hooks():
        return 0 if tensor.is_inference() else int(tensor._version)


@dataclass
class ModuleWatch:
    """Notices the first call of every outermost module while a session is open."""

    on_first_call: Callable[[int, torch.nn.Module], None] | None = None
    seen: list[WatchedModule] = field(default_factory=list)
    _known: dict[int, weakref.ref[torch.nn.Module]] = field(default_factory=dict)
    _handle: Any = None

    def begin(self) -> None:
        """Hook into every module's call."""
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._called)

    def end(self) -> None:
        """Take the hook out again."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _called(self, module: torch.nn.Module, arguments: Any) -> None:
        del arguments
        known = self._known.get(id(module))
        if (known is None or known() is not module) and outermost_module() is module:
            self._see(module)

    def meet(self, module: torch.nn.Module) -> None:
        """A module whose buffers are looked at before its first call."""
        known = self._known.get(id(module))
        if self._handle is not None and (known is None or known() is not module):
            self._see(module)

    def _see(self, module: torch.nn.Module) -> None:
        self._known[id(module)] = weakref.ref(module)
        if self.on_first_call is not None:
            self.on_first_call(len(self.seen), module)
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        versions = {name: (weakref.ref(tensor), version_of(tensor)) for name, tensor in named_tensors(module).items()}
        self.seen.append(WatchedModule(weakref.ref(module), kind, versions))


def shared_memory(tensor: torch.Tensor) -> bool:
    """Whether something else may look at a tensor's memory: another tensor, an array, a mapped file.

    The storage's own use count tells tensors; memory that torch did not allocate may belong to anybody.
    """
    with no_hooks():
        storage = tensor.untyped_storage()
        # One use by the tensor itself, one by the storage object just made.
        return not storage.resizable() or torch._C._storage_Use_Count(storage._cdata) > 2
