"""Graph passes, one per file, and the order in which every recording takes them before it is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leapp.graph.passes.aliases_said import aliases_said
from leapp.graph.passes.bools_as_tensors import bools_as_tensors
from leapp.graph.passes.contiguous_constants import contiguous_constants
from leapp.graph.passes.copy_written import copy_written
from leapp.graph.passes.device_free import device_free
from leapp.graph.passes.fresh_outputs import fresh_outputs
from leapp.graph.passes.indexed_writes import indexed_writes
from leapp.graph.passes.written_by_copy import written_by_copy

if TYPE_CHECKING:
    from leapp.graph._base import Pass

EXPORT_PASSES: Final[tuple[Pass, ...]] = (
    device_free,
    contiguous_constants,
    written_by_copy,
    bools_as_tensors,
    aliases_said,
    copy_written,
    indexed_writes,
    fresh_outputs,
)
