"""NumPy functions that no model holds, and those whose answer no graph can give."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy import char, strings
from numpy.lib import recfunctions, scimath

from leapp.ops._np_row import Group, NoTwin, OutOfScope

_TEXT: Final = "gives text for people to read"
_FILES: Final = "reads or writes a file"
_FOREIGN: Final = "reads numbers from text, bytes or an iterator, before there is an array"
_DATES: Final = "dates are no numbers of a model"
_TYPES: Final = "answers from dtypes alone"
_SHAPES: Final = "answers from shapes alone"
_MEMORY: Final = "asks where arrays lie in memory"
_FIELDS: Final = "arrays of named fields have no tensor"

_COMPLEX: Final = "whether the result is complex follows the data"
_DOMAIN: Final = "use the function of numpy itself, with a complex dtype where arguments may lie outside its domain"


def _of_text() -> tuple[OutOfScope, ...]:
    """The functions of ``numpy.strings`` and ``numpy.char`` that are no ufuncs."""
    found = {id(each): each for module in (strings, char) for each in vars(module).values()}
    named = [each for each in found.values() if hasattr(each, "_implementation") and each.__module__ != "numpy"]
    return tuple(OutOfScope(each, "text") for each in named)


GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Functions that widen to complex numbers",
        tuple(
            NoTwin(each, _COMPLEX, _DOMAIN)
            for each in (
                scimath.sqrt,
                scimath.log,
                scimath.log2,
                scimath.log10,
                scimath.logn,
                scimath.power,
                scimath.arccos,
                scimath.arcsin,
                scimath.arctanh,
            )
        ),
    ),
    Group(
        "Text", tuple(OutOfScope(each, _TEXT, reads=True) for each in (np.array2string, np.array_repr, np.array_str))
    ),
    Group(
        "Files and buffers",
        (
            *(OutOfScope(each, _FILES) for each in (np.fromfile, np.genfromtxt, np.loadtxt)),
            *(OutOfScope(each, _FILES, reads=True) for each in (np.save, np.savetxt, np.savez, np.savez_compressed)),
            *(OutOfScope(each, _FOREIGN) for each in (np.frombuffer, np.fromiter, np.fromstring)),
        ),
    ),
    Group(
        "Dates",
        tuple(
            OutOfScope(each, _DATES)
            for each in (np.busday_count, np.busday_offset, np.is_busday, np.datetime_as_string)
        ),
    ),
    Group(
        "Dtypes and shapes",
        (
            *(
                OutOfScope(each, _TYPES)
                for each in (
                    np.can_cast,
                    np.common_type,
                    np.iscomplexobj,
                    np.isrealobj,
                    np.min_scalar_type,
                    np.result_type,
                )
            ),
            *(
                OutOfScope(each, _SHAPES)
                for each in (
                    np.ndim,
                    np.shape,
                    np.size,
                    np.diag_indices_from,
                    np.tril_indices_from,
                    np.triu_indices_from,
                )
            ),
            *(OutOfScope(each, _MEMORY) for each in (np.may_share_memory, np.shares_memory)),
        ),
    ),
    Group(
        "Named fields",
        tuple(
            OutOfScope(each, _FIELDS)
            for each in (
                recfunctions.append_fields,
                recfunctions.apply_along_fields,
                recfunctions.assign_fields_by_name,
                recfunctions.drop_fields,
                recfunctions.find_duplicates,
                recfunctions.join_by,
                recfunctions.merge_arrays,
                recfunctions.rec_append_fields,
                recfunctions.rec_drop_fields,
                recfunctions.rec_join,
                recfunctions.recursive_fill_fields,
                recfunctions.rename_fields,
                recfunctions.repack_fields,
                recfunctions.require_fields,
                recfunctions.stack_arrays,
                recfunctions.structured_to_unstructured,
                recfunctions.unstructured_to_structured,
            )
        ),
    ),
    Group("Text", _of_text()),
)
