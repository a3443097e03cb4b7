"""Store every constant with standard strides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leapp.graph._base import PassResult

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph


def contiguous_constants(recording: NodeGraph) -> PassResult:
    """Store every constant with standard strides, packed in a storage of its own.

    Why: a serializer may keep a transposed view's bytes and lose its strides, or write the whole storage that a small
    view lies in.
    Ensures: every constant is contiguous and fills its storage; values, names, dtypes unchanged; tensors that were fine
    are the same objects. A second run changes nothing.
    """
    packed = {}
    for name, tensor in recording.constants.items():
        size = tensor.numel() * tensor.element_size()
        if tensor.is_contiguous() and tensor.untyped_storage().nbytes() == size and not tensor.requires_grad:
            continue
        packed[name] = tensor.detach().contiguous().clone() if tensor.is_contiguous() else tensor.detach().contiguous()
    if not packed:
        return PassResult(recording, changed=False)
    return PassResult(replace(recording, constants={**recording.constants, **packed}), changed=True)
