"""Canonical bytes of a TorchScript archive: neither the process nor the place it was written in leaves a trace.

Format: ``torch/csrc/jit/serialization``. Types are named in the order in which the stored module reaches them, so that
``___torch_mangle_N`` counts within the file and not within the process. Torch prints all types of one name space with
one set of counters for local names, and breaks lines by their length, so code is normalised in three steps: names
first, then, where there is more than one definition, torch itself prints the code anew (with empty weights: only the
text is wanted), then local names again. Debug information, example inputs and ``Final`` lines in hash order go.
"""

from __future__ import annotations

import io
import itertools
import pickletools
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError
from leapp.export._archive import Archive, DamagedArchiveError, Kept, View, blank_hidden, rewrite, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_PICKLES: Final = ("data.pkl", "constants.pkl")
_STORAGE_FOLDERS: Final[Mapping[str, str]] = {"data.pkl": "data/", "constants.pkl": "constants/"}
_DROPPED: Final = re.compile(r"code/.*\.debug_pkl|\.data/serialization_id|traced_inputs\.pkl|traced_inputs/.*")
"""Source lines; a hash over the other members as they were; the inputs that a trace was made with."""

_MOBILE: Final = "bytecode.pkl"


def canonicalise(path: Path) -> None:
    """Rewrite a TorchScript archive in place, as a whole or not at all.

    A second run changes nothing. Raises ArtifactLoadError for what is no TorchScript archive; it is left as it was.
    """
    try:
        with Archive.open(path) as archive:
            rewrite(path, archive, _members(archive))
    except (DamagedArchiveError, ValueError, KeyError, IndexError, RecursionError) as error:
        why = str(error) if isinstance(error, DamagedArchiveError) else f"its content is malformed ({error!r})"
        raise ArtifactLoadError(path=str(path), format=ExportFormat.TORCHSCRIPT.value, why=why) from error


def _members(archive: Archive) -> dict[str, bytes | Kept]:
    # Torch moves the version where operators of a later one are used, so that old readers stop there.
    if not {*_PICKLES} <= {*archive.names} or not {"version", ".data/version"} & {*archive.names}:
        raise DamagedArchiveError("it is no TorchScript archive")
    if _MOBILE in archive.names:
        raise DamagedArchiveError("it is an archive for mobile interpreters")
    code = {name: archive.read(name).decode() for name in archive.names if _is_code(name)}
    pickles = {name: _parse(archive.read(name)) for name in _PICKLES}
    definitions, names = _named(code, pickles.values())
    pickles = {name: _rename_types(opcodes, names) for name, opcodes in pickles.items()}
    others = {name for name in archive.names if not (_is_code(name) or name in pickles or _DROPPED.fullmatch(name))}
    if len(definitions) > 1:
        printed = _printed_anew(archive, definitions, pickles, others)
        if printed is not None:
            definitions, _ = _named(printed, pickles.values())
    members: dict[str, bytes | Kept] = {name: Kept(name) for name in others}
    members.update(_blanked(archive, pickles))
    members.update({name: _dump(opcodes) for name, opcodes in pickles.items()})
    members.update(_files(definitions))
    return members


def _is_code(name: str) -> bool:
    return name.startswith("code/") and name.endswith(".py")


# --- names of types ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Definition:
    """A class or function: its qualified name and its text."""

    name: str
    text: str


_DEFINED: Final = re.compile(r"^(?:class|def) (\w+)", re.MULTILINE)
_FINAL: Final = re.compile(r"  \w+ : Final\[")
_MANGLED: Final = re.compile(r"___torch_mangle_\d+")
_TOKEN: Final = re.compile(
    r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'  # strings
    | \d[\w.]*                                      # numbers
    | \.?[^\W\d]\w*(?:\.[^\W\d]\w*)*                # names with dots; a leading dot makes an attribute
    """,
    re.VERBOSE,
)
_TYPES: Final = "__torch__"


def _named(code: Mapping[str, str], pickles: Iterable[Sequence[_Opcode]]) -> tuple[list[_Definition], dict[str, str]]:
    """All definitions under canonical names, in the order of those, and what old names became."""
    texts = dict(_definitions(code))
    order = _reached(texts, pickles)
    # What nothing reaches cannot be used either; it keeps an order that no counter decides.
    order += sorted(texts.keys() - {*order}, key=lambda name: (_plain(name), _MANGLED.sub("", texts[name])))
    names: dict[str, str] = {}
    taken: set[str] = set()
    mangled = 0
    for old in order:
        new = _plain(old)
        if new in taken:
            space, _, leaf = new.rpartition(".")
            new = f"{space}.___torch_mangle_{mangled}.{leaf}"
            mangled += 1
        taken.add(new)
        names[old] = new
    return [_Definition(names[old], _canonical_text(texts[old], names)) for old in order], names


def _definitions(code: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for member, text in code.items():
        space = member.removeprefix("code/").removesuffix(".py").replace("/", ".")
        begins = list(_DEFINED.finditer(text))
        if text[: begins[0].start() if begins else None].strip():
            raise DamagedArchiveError(f"its code {member!r} does not begin with a definition")
        ends = [*(each.start() for each in begins[1:]), len(text)]
        for begin, end in zip(begins, ends, strict=True):
            yield f"{space}.{begin[1]}", _sorted_finals(text[begin.start() : end].rstrip("\n") + "\n")


def _sorted_finals(text: str) -> str:
    """Constants of a class by name: torch keeps them in a set."""
    lines = text.splitlines(keepends=True)
    finals = [index for index, line in enumerate(lines) if _FINAL.match(line)]
    for index, line in zip(finals, sorted(lines[index] for index in finals), strict=True):
        lines[index] = line
    return "".join(lines)


def _reached(texts: Mapping[str, str], pickles: Iterable[Sequence[_Opcode]]) -> list[str]:
    """Definitions in the order in which the pickles, and then the code, mention them."""
    order: dict[str, None] = {}
    for opcodes in pickles:
        for opcode in opcodes:
            if opcode.name == "GLOBAL":
                found = opcode.value.replace(" ", ".")
                if found in texts:
                    order.setdefault(found)
            elif opcode.name in _STRINGS and _TYPES in opcode.value:
                order.update(dict.fromkeys(_mentioned(opcode.value, texts)))
    pending = list(order)
    for each in pending:  # grows while it is walked
        for found in _mentioned(texts[each], texts):
            if found not in order:
                order[found] = None
                pending.append(found)
    return list(order)


def _mentioned(text: str, names: Mapping[str, Any]) -> Iterator[str]:
    for token in _TOKEN.finditer(text):
        if token[0].startswith(_TYPES):
            found = _known(token[0], names)
            if found is not None:
                yield found


def _known(dotted: str, names: Mapping[str, Any]) -> str | None:
    """The longest part of a dotted name that is defined; what follows is a member of an enumeration or class."""
    while dotted and dotted not in names:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


def _plain(name: str) -> str:
    """The name without counters, and without the user's script or package: a class is the same in both."""
    parts = [part for part in name.split(".") if not _MANGLED.fullmatch(part)]
    return ".".join(parts if parts[1:2] == ["torch"] else [parts[0], parts[-1]])


def _renamed(dotted: str, names: Mapping[str, str]) -> str:
    found = _known(dotted, names)
    return dotted if found is None else names[found] + dotted[len(found) :]


def _files(definitions: Iterable[_Definition]) -> dict[str, bytes]:
    files: dict[str, str] = {}
    for each in definitions:
        space = each.name.rpartition(".")[0]
        member = f"code/{space.replace('.', '/')}.py"
        files[member] = files.get(member, "") + each.text
    return {member: text.encode() for member, text in files.items()}


# --- local names ---------------------------------------------------------------------------------------------------

_HEADER: Final = re.compile(r"(?:  )?def ")
_ASSIGNED: Final = re.compile(r"\s*(\w+(?:, \w+)*),? = |\s*(\w+) : .* = |\s*for (\w+) in |\s*with .* as (\w+):$")
_NESTED: Final = re.compile(r"\s+def (\w+)\((.*)$")
_ENDS_IN_DIGITS: Final = re.compile(r"(.*?)\d+")


def _canonical_text(text: str, names: Mapping[str, str]) -> str:
    """A definition with types as in ``names`` and the numbers of local names counted within each function."""
    lines = text.splitlines(keepends=True)
    # Functions of a class lie one level deeper than its other lines.
    begins = [index for index, line in enumerate(lines) if _HEADER.match(line)]
    pieces = ["".join(lines[i:j]) for i, j in itertools.pairwise((0, *begins, len(lines)))]
    return "".join(_replaced(piece, names, _locals(piece) if _HEADER.match(piece) else {}) for piece in pieces)


def _locals(function: str) -> dict[str, str]:
    """Local names that end in digits -> the same counted from 0 for each stem, in the order of first assignment.

    Digits are the user's or a counter of torch's that other functions moved as well; one cannot tell which.
    """
    lines = function.splitlines()
    header_lines = next((index for index, line in enumerate(lines, 1) if line.endswith(":")), None)
    if header_lines is None:
        raise DamagedArchiveError(f"its function {lines[0].strip()!r} has no body")
    header, body = "\n".join(lines[:header_lines]), lines[header_lines:]
    assigned: dict[str, None] = {}
    for line in body:
        if match := _ASSIGNED.match(line):
            found = next(group for group in match.groups() if group)
            assigned.update(dict.fromkeys(found.split(", ")))
        elif match := _NESTED.match(line):
            assigned[match[1]] = None
            assigned.update(dict.fromkeys(re.findall(r"(\w+): ", match[2])))
    counted = {name: match[1] for name in assigned if (match := _ENDS_IN_DIGITS.fullmatch(name))}
    parameters = {token[0] for token in _TOKEN.finditer(header)}
    counted = {name: stem for name, stem in counted.items() if name not in parameters}
    used = parameters | {token[0].partition(".")[0] for line in body for token in _TOKEN.finditer(line)}
    taken = used - counted.keys()
    next_number: Counter[str] = Counter()
    result: dict[str, str] = {}
    for name, stem in counted.items():
        while (new := f"{stem}{next_number[stem]}") in taken:
            next_number[stem] += 1
        next_number[stem] += 1
        result[name] = new
    return result


def _replaced(text: str, types: Mapping[str, str], local_names: Mapping[str, str]) -> str:
    def one(token: re.Match[str]) -> str:
        name = token[0]
        if name.startswith(_TYPES):
            return _renamed(name, types)
        first, dot, rest = name.partition(".")
        # Keyword arguments are names of the callee's.
        if first not in local_names or text[token.end() : token.end() + 1] == "=":
            return name
        return local_names[first] + dot + rest

    return _TOKEN.sub(one, text)


# --- code printed by torch -----------------------------------------------------------------------------------------


def _printed_anew(
    archive: Archive,
    definitions: Sequence[_Definition],
    pickles: Mapping[str, Sequence[_Opcode]],
    others: Iterable[str],
) -> dict[str, str] | None:
    """The code as torch prints it when it knows these names alone; None where it cannot be read without weights.

    Where a line is broken depends on its length, and that on names: on what else the process had scripted.
    """
    import torch

    emptied = {name: _dump(_without_weights(opcodes)) for name, opcodes in pickles.items()}
    skipped = tuple(_STORAGE_FOLDERS.values())
    rest = {name: archive.read(name) for name in others if not name.startswith((*skipped, "extra/"))}
    buffer = io.BytesIO()
    write(buffer, {**rest, **emptied, **_files(definitions)})
    bindings: Any = torch._C
    try:
        unit = bindings.CompilationUnit()
        module = bindings.import_ir_module_from_buffer(unit, buffer.getvalue(), None, {}, False)
        saved = Archive(io.BytesIO(module.save_to_buffer({})))
    except (RuntimeError, IndexError, ValueError):
        return None  # a class that computes while it is loaded
    if saved.read("constants.pkl") != emptied["constants.pkl"]:
        return None
    return {name: saved.read(name).decode() for name in saved.names if _is_code(name)}


def _without_weights(opcodes: Sequence[_Opcode]) -> list[_Opcode]:
    """The pickle with every tensor empty, of shape (0, 1), (0, 2), ...: torch merges constants that are equal."""
    result = list(opcodes)
    shift = 0
    for count, storage in enumerate(_storages(opcodes), 1):
        zero, number = _integer(0), _integer(count)
        if storage.count is not None:
            result[storage.count + shift] = zero
        if storage.view is None:
            continue
        begin, end = (each + shift for each in storage.span)
        mark, stop = _Opcode("MARK", None, b"("), _Opcode("TUPLE", None, b"t")
        replacement = [zero, mark, zero, number, stop, mark, number, _integer(1), stop]
        result[begin:end] = replacement
        shift += len(replacement) - (end - begin)
    return result


# --- pickles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Opcode:
    name: str
    value: Any
    data: bytes


_Shown: TypeAlias = tuple[int, list[int], list[int]]
"""Offset, sizes and strides, in elements."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """A reference to a storage: where the count of its elements is, and what of it the tensor around shows.

    ``count`` is None where the storage was spelt out before.
    """

    key: str
    elements: int
    count: int | None
    span: tuple[int, int]
    view: _Shown | None


_STRINGS: Final = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_PUTS: Final = ("BINPUT", "LONG_BINPUT")
_GETS: Final = ("BINGET", "LONG_BINGET")
_INTEGERS: Final = ("BININT", "BININT1", "BININT2", "LONG1")


def _parse(data: bytes) -> list[_Opcode]:
    found = [(opcode.name, value, position) for opcode, value, position in pickletools.genops(data)]
    ends = [*(position for _, _, position in found[1:]), len(data)]
    # A frame only says how much to read ahead.
    return [
        _Opcode(name, value, data[begin:end])
        for (name, value, begin), end in zip(found, ends, strict=True)
        if name != "FRAME"
    ]


def _dump(opcodes: Iterable[_Opcode]) -> bytes:
    return b"".join(each.data for each in opcodes)


def _integer(value: int) -> _Opcode:
    return _Opcode("BININT", value, b"J" + value.to_bytes(4, "little", signed=True))


def _rename_types(opcodes: Sequence[_Opcode], names: Mapping[str, str]) -> list[_Opcode]:
    """Classes and type strings under their new names; strings of the user's stay."""
    result = list(opcodes)
    for index, opcode in enumerate(opcodes):
        if opcode.name == "GLOBAL":
            old = opcode.value.replace(" ", ".")
            if old in names:
                space, _, leaf = names[old].rpartition(".")
                result[index] = replace(opcode, value=f"{space} {leaf}", data=f"c{space}\n{leaf}\n".encode())
    for index in _type_strings(opcodes):
        text = _replaced(opcodes[index].value, names, {})
        data = text.encode()
        result[index] = _Opcode("BINUNICODE", text, b"X" + len(data).to_bytes(4, "little") + data)
    return result


def _type_strings(opcodes: Sequence[_Opcode]) -> Iterator[int]:
    """Where the pickle says the type of a container: the last of two arguments of ``restore_type_tag``."""
    defined: dict[int, int] = {}  # memo entry -> the string in it
    uses: dict[int, list[bool]] = {}  # string -> for each use, whether it is a type
    for index, opcode in enumerate(opcodes):
        if opcode.name in _STRINGS and _TYPES in opcode.value:
            after = index + 1
            if opcodes[after].name in _PUTS:
                defined[opcodes[after].value] = index
                after += 1
            uses[index] = [_ends_call(opcodes, after)]
        elif opcode.name in _GETS and opcode.value in defined:
            uses[defined[opcode.value]].append(_ends_call(opcodes, index + 1))
    for index, types in uses.items():
        if all(types):
            yield index
        elif any(types):
            raise DamagedArchiveError(f"it uses {opcodes[index].value!r} as a type and as a value")


def _ends_call(opcodes: Sequence[_Opcode], index: int) -> bool:
    return [each.name for each in opcodes[index : index + 2]] == ["TUPLE2", "REDUCE"]


def _storages(opcodes: Sequence[_Opcode]) -> Iterator[_Storage]:
    """Every reference to a storage: ``('storage', class, key, device, count)`` and a persistent-id opcode.

    Followed by offset, sizes and strides of a plain tensor. Torch's pickler spells a storage out once and puts it
    into the memo: every other tensor that sees it gets it from there.
    """
    strings: dict[int, str] = {}
    spelt: dict[int, tuple[str, int]] = {}
    for index, opcode in enumerate(opcodes):
        if opcode.name in _STRINGS and opcodes[index + 1].name in _PUTS:
            strings[opcodes[index + 1].value] = opcode.value
        if opcode.name in _GETS and opcode.value in spelt:
            end, view = _view(opcodes, index + 1)
            yield _Storage(*spelt[opcode.value], None, (index + 1, end), view)
        if opcode.name != "BINPERSID":
            continue
        begin = index
        while opcodes[begin].name != "MARK":
            begin -= 1
        fields = [at for at in range(begin + 1, index - 1) if opcodes[at].name not in _PUTS]
        if len(fields) != 5 or opcodes[index - 1].name != "TUPLE" or opcodes[fields[4]].name not in _INTEGERS:
            raise DamagedArchiveError("it refers to a storage in an unknown way")
        key = opcodes[fields[2]]
        name = strings[key.value] if key.name in _GETS else key.value
        after = index + 1
        if opcodes[after].name in _PUTS:
            spelt[opcodes[after].value] = name, opcodes[fields[4]].value
            after += 1
        end, view = _view(opcodes, after)
        yield _Storage(name, opcodes[fields[4]].value, fields[4], (after, end), view)


def _view(opcodes: Sequence[_Opcode], at: int) -> tuple[int, _Shown | None]:
    """Offset, sizes and strides that begin at an opcode, and where they end; none where something else is there."""
    if opcodes[at].name not in _INTEGERS:
        return at, None
    offset, groups = opcodes[at].value, []
    at += 1
    for _ in range(2):
        if opcodes[at].name != "MARK":
            return at, None
        group = []
        at += 1
        while opcodes[at].name in _INTEGERS:
            group.append(opcodes[at].value)
            at += 1
        if opcodes[at].name != "TUPLE":
            return at, None
        groups.append(group)
        at += 1
    return at, (offset, *groups)


def _blanked(archive: Archive, pickles: Mapping[str, Sequence[_Opcode]]) -> dict[str, bytes]:
    """Storages that hold elements which no tensor shows, with zeros there: they are whatever was in memory."""
    blanked: dict[str, bytes] = {}
    for pickle, opcodes in pickles.items():
        shown: dict[str, list[View] | None] = {}
        for storage in _storages(opcodes):
            member = f"{_STORAGE_FOLDERS[pickle]}{storage.key}"
            views = shown.setdefault(member, [])
            if not storage.elements:
                continue
            if storage.view is None or views is None:
                shown[member] = None
                continue
            item = archive.size_bytes(member) // storage.elements
            views.append(View(item, *storage.view))
        for member, views in shown.items():
            size = archive.size_bytes(member)
            if views and not any(view.covers(size) for view in views):
                blanked[member] = blank_hidden(archive.read(member), views)
    return blanked
