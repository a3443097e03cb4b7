"""How the elements of constants differ. Their values are looked for in the model files, and known by their digest.

A node manifest has the digest of each constant's bytes. A ``.pt2`` or ``.pt`` file is a ZIP archive with one
uncompressed member per tensor, an ``.onnx`` file holds its tensors as plain bytes: whatever in them has the digest of a
constant is that constant. So nothing is stored twice, no name has to be translated, no model is loaded, and a bundle
without evidence will do. A constant that no model file holds as it is (folded by an exporter, or the node has no
models) is compared by digest alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import math
import mmap
import sys
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from leapp._dtypes import BY_NAME
from leapp.bundle._difference import Values
from leapp.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from leapp.bundle.read import Bundle
    from leapp.bundle.samples import RawTensor
    from leapp.bundle.schema import Artifact, Constant

CHUNK_ELEMENTS: Final = 1 << 20
"""Elements compared at once: bounds memory."""
MAX_PATTERN_BYTES: Final = 16 << 20
"""Larger tensors are not searched for values in another order."""
MAX_LISTED: Final = 12
"""So many positions of an order are listed."""
ROUNDING_ULP: Final = 4
"""Values not further apart than this may be the same computation, rounded otherwise."""
_ORDER: Final = ("pt2", "torchscript", "jit-trace", "onnx", "onnx-torchscript")
"""Where constants are looked for first: exported programs hold all of them as they are."""


# --- where they lie ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a file that are those of a constant."""

    path: Path
    offset: int
    size: int
    transposed: bool = False
    """They are those of the constant with its two axes exchanged, as ONNX wants the weights of a product."""


def places(bundle: Bundle, node: str, names: Iterable[str]) -> dict[str, Place]:
    """Where the values of some constants of a node lie, as far as its model files hold them.

    Raises BundleDigestError where a model file is not the one that was written.
    """
    manifest = bundle.nodes[node]
    wanted = {each.name: each for each in manifest.constants if each.name in set(names)}
    found: dict[str, Place] = {}
    artifacts = [each for each in manifest.artifacts if not each.external and each.path in bundle.files]
    for artifact in sorted(artifacts, key=lambda each: _ORDER.index(each.format) if each.format in _ORDER else 99):
        missing = {name: each for name, each in wanted.items() if name not in found}
        sizes = {size_bytes(each) for each in missing.values()}
        if not missing:
            break
        there = [place for place in _tensors(bundle, artifact) if place.size in sizes]
        by_digest = {(place.size, _digest(place)): place for place in there}
        for name, each in missing.items():
            place = by_digest.get((size_bytes(each), each.sha256)) or _transposed(each, there, by_digest)
            if place is not None:
                found[name] = place
    return found


def _transposed(constant: Constant, there: Sequence[Place], known: Mapping[tuple[int, str], Place]) -> Place | None:
    """A matrix that is the constant with its axes exchanged."""
    if len(constant.shape) != 2 or 1 in constant.shape or constant.dtype not in BY_NAME:
        return None
    taken = set(known.values())
    for place in there:
        if place in taken and place.size == size_bytes(constant):
            found = replace(place, transposed=True)
            if hashlib.sha256(_Stored(constant, found).read(0, math.prod(constant.shape)).tobytes()).hexdigest() == (
                constant.sha256
            ):
                return found
    return None


def size_bytes(constant: Constant) -> int:
    """Of its elements; -1 for a dtype that is not in our table."""
    row = BY_NAME.get(constant.dtype)
    return -1 if row is None else math.prod(constant.shape) * row.size_bytes


def _digest(place: Place) -> str:
    digest = hashlib.sha256()
    with place.path.open("rb") as file:
        file.seek(place.offset)
        left = place.size
        while left and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def _tensors(bundle: Bundle, artifact: Artifact) -> Iterator[Place]:
    """Runs of bytes that may be tensors. A file of another form has none."""
    path = bundle.content(artifact.path)
    with contextlib.suppress(zipfile.BadZipFile, OSError, IndexError, ValueError, UnicodeDecodeError):
        if artifact.backend == "onnx":
            yield from _onnx_tensors(bundle, artifact, path)
        else:
            yield from _members(path)


def _members(path: Path) -> Iterator[Place]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or not member.file_size:
                continue
            file.seek(member.header_offset + 26)  # lengths of name and extra field, as the local header has them
            lengths = file.read(4)
            name, extra = int.from_bytes(lengths[:2], "little"), int.from_bytes(lengths[2:], "little")
            yield Place(path, member.header_offset + 30 + name + extra, member.file_size)


# ONNX is a protocol buffer. Field numbers are part of the format: ModelProto.graph 7, GraphProto.initializer 5,
# TensorProto.raw_data 9 and external_data 13, its entries' key 1 and value 2.


def _onnx_tensors(bundle: Bundle, artifact: Artifact, path: Path) -> Iterator[Place]:
    if not path.stat().st_size:
        return
    folder = artifact.path.rpartition("/")[0]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for graph in _fields(data, 0, len(data), 7):
            for begin, end in _fields(data, *graph, 5):
                for raw in _fields(data, begin, end, 9):
                    yield Place(path, raw[0], raw[1] - raw[0])
                entries = [
                    tuple(bytes(data[at:to]).decode() for number in (1, 2) for at, to in _fields(data, *entry, number))
                    for entry in _fields(data, begin, end, 13)
                ]
                said = dict(entry for entry in entries if len(entry) == 2)
                external = f"{folder}/{said.get('location', '')}".removeprefix("/")
                if external in artifact.data_paths and external in bundle.files and "length" in said:
                    yield Place(bundle.folder / external, int(said.get("offset", 0)), int(said["length"]))


def _fields(data: mmap.mmap, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each length-delimited field of one number. Raises ValueError or IndexError for other bytes."""
    at = begin
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 2:
            length, at = _varint(data, at)
            if number == wanted:
                yield at, min(at + length, end)
            at += length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in {1, 5}:
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7


# --- how they differ -----------------------------------------------------------------------------------------------


def compare_constants(a: Bundle, b: Bundle, node: str, node_now: str, pairs: Mapping[str, str]) -> dict[str, Values]:
    """How constants differ, by their name in the first bundle, as far as both can be read; empty without NumPy.

    Args: pairs: name in the first -> name in the second.
    """
    if importlib.util.find_spec("numpy") is None:
        return {}
    found: dict[str, Values] = {}
    try:
        first = places(a, node, pairs)
        second = places(b, node_now, [pairs[name] for name in first])
    except BundleError:
        # Digests say that they differ; a model file that is damaged is no reason to say nothing else.
        return {}
    before = {each.name: each for each in a.nodes[node].constants}
    after = {each.name: each for each in b.nodes[node_now].constants}
    for name, place in first.items():
        if (other := second.get(pairs[name])) is None or before[name].shape != after[pairs[name]].shape:
            continue
        values = compare(_Stored(before[name], place), _Stored(after[pairs[name]], other))
        if values is not None:
            found[name] = values
    return found


class _Stored:
    """A tensor in a file, read in pieces."""

    def __init__(self, constant: Constant | _Stored, place: Place) -> None:
        self.dtype: str = constant.dtype
        self.shape: tuple[int, ...] = constant.shape
        self._place = place
        self._turned: NDArray[Any] | None = None

    def read(self, begin: int, count: int) -> NDArray[Any]:
        """Elements as they are stored; ``bfloat16`` as its 16 bits."""
        import numpy as np

        item = BY_NAME[self.dtype].size_bytes
        end = min(begin + count, math.prod(self.shape))
        if self._place.transposed:
            if self._turned is None:
                whole = _Stored(self, replace(self._place, transposed=False)).read(0, math.prod(self.shape))
                self._turned = np.ascontiguousarray(whole.reshape(self.shape[::-1]).T).reshape(-1)
            return self._turned[begin:end]
        with self._place.path.open("rb") as file:
            file.seek(self._place.offset + begin * item)
            return np.frombuffer(file.read((end - begin) * item), stored_type(self.dtype))


class _Held:
    """A tensor in memory."""

    def __init__(self, tensor: RawTensor) -> None:
        self.dtype, self.shape = tensor.dtype, tensor.shape
        self._data = tensor.data

    def read(self, begin: int, count: int) -> NDArray[Any]:
        """As ``_Stored.read``."""
        import numpy as np

        return np.frombuffer(self._data, stored_type(self.dtype))[begin : begin + count]


def stored_type(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an element's bytes."""
    import numpy as np

    return np.dtype("<u2" if dtype == "bfloat16" else dtype).newbyteorder("<")


def compare_tensors(first: RawTensor, second: RawTensor) -> Values | None:
    """How two tensors in memory differ; None where their shapes do, or where there is no NumPy."""
    try:
        return compare(_Held(first), _Held(second))
    except ModuleNotFoundError:
        return None


def compare(first: _Stored | _Held, second: _Stored | _Held) -> Values | None:
    """How two tensors differ; None where their shapes do, or where they hold nothing."""
    import numpy as np

    count = math.prod(first.shape)
    if first.shape != second.shape or not count:
        return None
    same_type = first.dtype == second.dtype
    floats = same_type and first.dtype in {"float16", "bfloat16", "float32", "float64"}
    totals = {"differing": 0, "sum": 0.0, "finite": 0, "nan_a": 0, "nan_b": 0, "inf_a": 0, "inf_b": 0}
    largest, where, ulp = 0.0, 0, 0
    for begin in range(0, count, CHUNK_ELEMENTS):
        raw_a, raw_b = (each.read(begin, CHUNK_ELEMENTS) for each in (first, second))
        a, b = (wide(raw, each.dtype) for raw, each in ((raw_a, first), (raw_b, second)))
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            distance = np.where(finite, np.abs(a - b), 0.0)
        differ = raw_a.view(_bits(raw_a)) != raw_b.view(_bits(raw_b)) if same_type else a != b
        totals["differing"] += int(np.count_nonzero(differ.reshape(len(a), -1).any(axis=1)))
        totals["sum"] += float(distance.sum())
        totals["finite"] += int(np.count_nonzero(finite))
        for name, values in (("a", a), ("b", b)):
            totals[f"nan_{name}"] += int(np.count_nonzero(np.isnan(values)))
            totals[f"inf_{name}"] += int(np.count_nonzero(np.isinf(values)))
        if float(distance.max()) > largest:
            at = int(distance.argmax())
            largest, where = float(distance[at]), begin + at
        if floats:
            steps = _ulp(raw_a, raw_b)[finite]
            ulp = max(ulp, int(steps.max()) if steps.size else 0)
    index = tuple(int(each) for each in np.unravel_index(where, first.shape)) if first.shape else ()
    return Values(
        count,
        int(totals["differing"]),
        min(largest, sys.float_info.max),
        min(float(totals["sum"]) / max(int(totals["finite"]), 1), sys.float_info.max),
        index,
        ulp if floats else None,
        int(totals["nan_a"]),
        int(totals["nan_b"]),
        int(totals["inf_a"]),
        int(totals["inf_b"]),
        _pattern(first, second, count) if same_type else "",
    )


def wide(raw: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Elements as float64, or complex128: wide enough to tell any two of them apart but large integers."""
    import numpy as np

    if dtype == "bfloat16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    wider: NDArray[Any] = raw.astype(np.complex128 if raw.dtype.kind == "c" else np.float64)
    return wider


def _bits(raw: NDArray[Any]) -> str:
    # Equal bytes are equal, also NaN and the two zeros. A complex number is two.
    return f"<u{raw.dtype.itemsize // (2 if raw.dtype.kind == 'c' else 1)}"


def _ulp(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """How many floating-point numbers lie between two, plus one, as unsigned integers."""
    import numpy as np

    def ordered(raw: NDArray[Any]) -> NDArray[Any]:
        bits = raw.view(f"<u{raw.dtype.itemsize}").astype(np.uint64)
        top = np.uint64(1 << (8 * raw.dtype.itemsize - 1))
        # Negative numbers count downwards from zero, whose two forms are one.
        return np.where(bits & top, top - (bits - top), bits + top)

    x, y = ordered(a), ordered(b)
    steps: NDArray[Any] = np.where(x > y, x - y, y - x)
    return steps


def _pattern(first: _Stored | _Held, second: _Stored | _Held, count: int) -> str:
    """Whether two tensors hold the same values in another order along one axis, or with other signs."""
    import numpy as np

    if count < 1 or count * BY_NAME[first.dtype].size_bytes > MAX_PATTERN_BYTES:
        return ""
    a, b = (each.read(0, count).reshape(each.shape) for each in (first, second))
    for axis in range(a.ndim):
        order = _order([np.moveaxis(each, axis, 0) for each in (a, b)])
        if order:
            shown = ", ".join(map(str, order[:MAX_LISTED])) + (", ..." if len(order) > MAX_LISTED else "")
            place = "" if a.ndim == 1 else f" along axis {axis}"
            return f"the same values in another order{place}: {shown}"
    if a.dtype.kind not in "fi":
        return ""
    flipped = (a == -b) & (a != 0)
    if not flipped.any() or not (flipped | (a == b)).all():
        return ""
    if flipped.all() or (flipped | (a == 0)).all():
        return "the same values with the other sign"
    for axis in range(a.ndim):
        slices = np.moveaxis(flipped | (a == 0), axis, 0).reshape(a.shape[axis], -1).all(axis=1)
        if (np.moveaxis(flipped, axis, 0).reshape(a.shape[axis], -1).any(axis=1) == slices).all():
            at = np.flatnonzero(slices)[:MAX_LISTED]
            return f"the same values with the other sign at {', '.join(map(str, at))} of axis {axis}"
    return f"the same values with the other sign at {int(flipped.sum())} of {count}"


def _order(sides: list[NDArray[Any]]) -> list[int]:
    """Which slice of the first each slice of the second is; empty where they are not the same slices."""
    before, after = ([each.tobytes() for each in side] for side in sides)
    if len(before) < 2 or sorted(before) != sorted(after):
        return []
    places: dict[bytes, list[int]] = {}
    for at, each in enumerate(before):
        places.setdefault(each, []).append(at)
    # Equal slices keep their place where they can.
    found: list[int | None] = [None] * len(after)
    for at, each in enumerate(after):
        if at in places[each]:
            places[each].remove(at)
            found[at] = at
    return [places[each].pop(0) if found[at] is None else at for at, each in enumerate(after)]


def tensor_text(tensor: RawTensor) -> str:
    """A small tensor in full, a large one by its type."""
    if not any(tensor.data):
        return "zeros"
    kind = f"{tensor.dtype}{list(tensor.shape)}"
    try:
        values = tensor.numpy()
    except ModuleNotFoundError:
        return kind
    if values.size > MAX_LISTED:
        return kind
    numbers = [f"{each:.4g}" if isinstance(each, float) else str(each) for each in values.reshape(-1).tolist()]
    return f"[{', '.join(numbers)}]" if values.ndim == 1 else f"{kind} [{', '.join(numbers)}]"
