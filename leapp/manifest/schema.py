"""The validator of manifests, and the JSON Schema that editors use: both come from the same classes.

A class is a table of the manifest, a field is a key of it. ``check`` turns what pydantic finds into our words. What it
says was expected, and which keys exist, is read from the JSON Schema, so that the two cannot tell different stories.
Rules that tie several keys or need the disk are in ``load``.

Pydantic takes longer to import than a build in which nothing changed takes otherwise: whoever needs nothing of this
module but now and then imports it late.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from leapp._spec import FORMAT_NAMES, ExportFormat, StartKind
from leapp.errors import ElementNamesError, SemanticsError
from leapp.manifest.model import (
    CALLABLE_ENTRY,
    SCHEMA_VERSION,
    SCRIPT_ENTRY,
    SEED_LIMIT,
    SEMVER,
    Entry,
    element_names,
    is_foreign,
)
from leapp.manifest.problems import hint, key_text, kind_of, nearest
from leapp.semantics import port_facts, range_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import ErrorDetails

    from leapp.errors import LeappError
    from leapp.manifest.positions import KeyPath

START: Final = rf"^({StartKind.ZEROS}|{StartKind.CONSTANT}|{StartKind.FIRST_INPUT}:[^/\\\n]+)$"
PIPELINE_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


@dataclass(frozen=True, eq=False)
class Rule:
    """A check of one value, and the same in JSON Schema, as far as that language goes."""

    check: Callable[[Any], None] | None = None
    """Raises ValueError with the text of the problem."""
    json: Mapping[str, Any] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        inner = handler(source)
        return inner if self.check is None else core_schema.no_info_after_validator_function(self._run, inner)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), **self.json}

    def _run(self, value: Any) -> Any:
        if self.check is not None:
            self.check(value)
        return value


def _matches(pattern: str, complaint: str) -> Rule:
    compiled = re.compile(pattern)

    def check(value: str) -> None:
        # fullmatch, because "$" would let a line break follow.
        if compiled.fullmatch(value) is None:
            raise ValueError(f"{value!r} {complaint}")

    return Rule(check, {"pattern": pattern})


def _check_schema(value: int) -> None:
    if value != SCHEMA_VERSION:
        newer = " A newer leapp-build wrote it; `leapp doctor` shows which one runs." if value > SCHEMA_VERSION else ""
        raise ValueError(f"this version of LEAPP reads manifests with schema = {SCHEMA_VERSION}, not {value}.{newer}")


def _check_entry(value: str) -> None:
    Entry.parse(value)


def _check_format(value: str) -> None:
    if value not in FORMAT_NAMES:
        near = hint(nearest(value, FORMAT_NAMES))
        raise ValueError(f"unknown format {value!r}.{near} Known formats: {', '.join(FORMAT_NAMES)}.")


def _check_start(value: str) -> None:
    if re.fullmatch(START, value) is None:
        forms = [f"{each}:PORT" if each == StartKind.FIRST_INPUT else str(each) for each in StartKind]
        near = hint(nearest(value, forms))
        raise ValueError(f"{value!r} is none of {', '.join(map(repr, forms))}.{near}")


def _check_text(value: str) -> None:
    if not value:
        raise ValueError("must not be empty.")


def _check_true(value: bool) -> None:
    if not value:
        raise ValueError("expected true, got false; leave the key out instead.")


def _check_scalar(value: Any) -> None:
    if not isinstance(value, (bool, int, float)):
        raise ValueError(f"expected a number or a boolean, got {kind_of(value)}.")  # noqa: TRY004 - pydantic's signal
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value}.")


def _check_range(value: list[float]) -> None:
    if not value[0] < value[1]:
        raise ValueError(f"the first number must be below the second, got {value[0]:g} and {value[1]:g}.")


def _check_element_names(value: Any) -> None:
    try:
        port_facts("", None, element_names=element_names(value))
    except (SemanticsError, ElementNamesError) as error:
        raise ValueError(_told(error)) from None


def _check_port_range(value: Any) -> None:
    why = range_problem(value)
    if why:
        raise ValueError(
            f"it is no range, for {why}. Write [-3.14, 3.14], or a list for each bound with one number for each "
            "element of the last axis."
        )


def _told(error: LeappError) -> str:
    return f"{error.facts['why']}. {error.remedy.format(**error.facts)}"


def _one_per_file() -> list[dict[str, Any]]:
    suffixes = dict.fromkeys(each.suffix for each in ExportFormat)
    names = ([name for name, each in FORMAT_NAMES.items() if each.suffix == suffix] for suffix in suffixes)
    return [{"contains": {"enum": group}, "minContains": 0, "maxContains": 1} for group in names]


_NOT_EMPTY: Final = Rule(_check_text, {"minLength": 1})
_FUNCTION: Final = _matches(
    r"^[^:\s]+:[^:\s]+$", "does not name a function; write 'module:qualname', as messages of a build show it."
)
_PORT: Final = _matches(r"^[^/\\]+/[^/\\]+$", "does not name a port; write 'node/port'.")

_PORT_NAME: Final = _matches(
    r"^(?!\.{1,2}$)[^/\\\0\n]+$", "cannot name a port: no '/', backslash, NUL or line break, and not '.' or '..'."
)

_NAMES: Final = {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}
_MOMENTS: Final = {
    "type": "object",
    "properties": {"temporal_period_ms": {"type": "number", "exclusiveMinimum": 0}},
    "required": ["temporal_period_ms"],
    "additionalProperties": False,
}
_ELEMENT_NAMES: Final = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {**_NAMES, "minItems": 1},
        {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [_NAMES, _MOMENTS]},
            "contains": _MOMENTS,
            "minContains": 0,
            "maxContains": 1,
        },
    ]
}

_BOUND: Final = {"anyOf": [{"type": "number"}, {"type": "array", "minItems": 1, "items": {"type": "number"}}]}
_PORT_RANGE: Final = {"type": "array", "minItems": 2, "maxItems": 2, "items": _BOUND}

Text: TypeAlias = Annotated[str, _NOT_EMPTY]
PortName: TypeAlias = Annotated[str, _PORT_NAME]
StartText: TypeAlias = Annotated[str, Rule(_check_start, {"pattern": START})]
Functions: TypeAlias = list[Annotated[str, _FUNCTION]]
Ports: TypeAlias = list[Annotated[str, _PORT]]
Format: TypeAlias = Annotated[str, Rule(_check_format, {"enum": list(FORMAT_NAMES)})]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Scalar: TypeAlias = Annotated[Any, Rule(_check_scalar, {"type": ["number", "boolean"]})]
Flag: TypeAlias = Annotated[bool, Rule(_check_true, {"const": True})]


class Table(BaseModel):
    """A table of a manifest: strict types, no unknown keys, built when the outermost one is."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True, frozen=True)


class PipelineTable(Table):
    """What is built, from which code."""

    name: Annotated[
        str,
        _matches(
            PIPELINE_NAME, "cannot name a pipeline; use letters, digits, '.', '_', '-', and a letter or digit first."
        ),
    ] = Field(description="Name of the pipeline and of its folder.", examples=["torch-pipeline"])
    version: Annotated[str, _matches(SEMVER, "is not a version of Semantic Versioning 2.0, such as '1.0.0'.")] = Field(
        description="Version of the bundle, after Semantic Versioning 2.0."
    )
    entry: Annotated[str, Rule(_check_entry, {"pattern": f"{CALLABLE_ENTRY}|{SCRIPT_ENTRY}"})] = Field(
        description="Code to run: file.py:callable, package.module:callable, file.py, or -m package.module. "
        "Files are relative to the project root, the nearest folder above with pyproject.toml or .git.",
        examples=["examples/torch_pipeline.py:main", "robots.export:main", "export.py", "-m robots.export"],
    )
    args: dict[str, Any] = Field(default={}, description="Keyword arguments of a callable entry.")
    argv: list[str] = Field(default=[], description="Command-line arguments of a script entry.")
    frequency_hz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Rate the pipeline runs at, in Hz; wins over the script's."
    )
    trace: Text | None = Field(default=None, description="Name of the session that counts, where there are several.")


class OnnxTable(Table):
    """Versions that ONNX files are written for."""

    opset: Annotated[int, Field(ge=7)] | None = Field(default=None, description="ONNX operator set; 20 by default.")
    ir_version: Annotated[int, Field(ge=3)] | None = Field(default=None, description="ONNX IR version; 10 by default.")
    metadata: list[Text] | None = Field(
        default=None, description="Keys of [metadata] that the files carry beside LEAPP's own.", examples=[["licence"]]
    )


class ExportTable(Table):
    """Defaults for every node."""

    formats: Annotated[list[Format], Rule(json={"allOf": _one_per_file()})] | None = Field(
        default=None,
        description="Formats to export, the first one being the runtime's choice. Empty: wired, but no model file.",
    )
    onnx: OnnxTable = Field(default_factory=OnnxTable, description="Versions that ONNX files are written for.")
    rtol: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Relative tolerance of the replay; wins over the script's."
    )
    atol: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Absolute tolerance of the replay, in the output's unit; wins over the script's."
    )


class FactsTable(Table):
    """What one port means; wins over what the script says."""

    kind: Text | None = Field(
        default=None, description="What it holds: a kind of LEAPP or any other text.", examples=["state/joint/position"]
    )
    element_names: Annotated[Any, Rule(_check_element_names, _ELEMENT_NAMES)] = Field(
        default=None,
        description="One name; names of the last axis; or an entry per axis: names, [] for none, or "
        "{ temporal_period_ms = 20 } for an axis of moments.",
        examples=[["hip", "knee"], [{"temporal_period_ms": 20}, ["hip", "knee"]]],
    )
    unit: Text | None = Field(default=None, description="Unit of its values.", examples=["rad", "m/s"])
    range: Annotated[Any, Rule(_check_port_range, _PORT_RANGE)] = Field(
        default=None,
        description="Lowest and highest value in its unit; each a number, or a list with one for each element of the "
        "last axis.",
        examples=[[-3.14, 3.14], [[-1, -2], [1, 2]]],
    )
    description: Text | None = Field(default=None, description="What it is, for readers.")


class NodeTable(ExportTable):
    """Settings of one node; what is left out comes from [export]."""

    ports: Annotated[dict[PortName, FactsTable], Rule(json={"additionalProperties": False})] = Field(
        default={}, description="What inputs and outputs mean, by port; wins over what the script says."
    )

    state: Annotated[dict[PortName, StartText], Rule(json={"additionalProperties": False})] = Field(
        default={},
        description="How state and feedback inputs start, by port: zeros; constant, the value that was traced; or "
        "first-input:PORT, a copy of what that input of the node holds at the first tick. "
        "What is left out is told from two sessions.",
        examples=[{"hidden": "zeros", "last_position": "first-input:position"}],
    )
    reset: PortName | None = Field(
        default=None,
        description="Name of a boolean input that the model is to have: where it is true, the state starts anew.",
    )


class SessionTable(Table):
    """The process that the entry runs in."""

    python: str = Field(
        default="", description="Another interpreter: a name in PATH, or a path relative to the project root."
    )
    pass_env: list[Annotated[str, _matches(r"^[A-Za-z_][A-Za-z0-9_]*$", "cannot name an environment variable.")]] = (
        Field(default=[], description="Environment variables handed through, recorded as digests.")
    )
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] = Field(default=0, description="Seed of random, NumPy and torch.")
    threads: Annotated[int, Field(ge=1)] = Field(default=1, description="Threads that compute.")
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=600, description="Seconds until the entry is ended."
    )
    network: bool = Field(default=False, description="Whether connections beyond this machine are let through.")
    inputs: list[Text] = Field(
        default=[],
        description="Files that the entry reads: patterns relative to the project root; a folder means all below.",
        examples=[["checkpoints/*.pt"]],
    )


class PortTable(Table):
    """How one input is perturbed in the probe: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    range: Annotated[list[Number], Field(min_length=2, max_length=2), Rule(_check_range)] | None = Field(
        default=None, description="Lowest and highest value."
    )
    choices: Annotated[list[Scalar], Field(min_length=1)] | None = Field(
        default=None, description="The possible values."
    )
    one_hot: Flag | None = Field(default=None, alias="one-hot", description="One 1 along the last axis, else 0.")
    unit_quaternion: Flag | None = Field(
        default=None, alias="unit-quaternion", description="Unit quaternions along the last axis."
    )
    permute: Flag | None = Field(default=None, description="The same values in another order.")
    file: Annotated[str, _matches(r"^.+\.safetensors$", "is not a .safetensors file.")] | None = Field(
        default=None,
        description="A .safetensors file, relative to the project root, that holds the value under the key node/port.",
    )


class ProbeTable(Table):
    """How the second run, on other data, differs from the first."""

    args: dict[str, Any] | None = Field(default=None, description="Keyword arguments that replace those of [pipeline].")
    argv: list[str] | None = Field(default=None, description="Command-line arguments in place of those of [pipeline].")
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] | None = Field(
        default=None, description="Seed of the first probe; one more than that of [session] by default."
    )
    inputs: dict[Text, Text] = Field(
        default={},
        description="Files for other files: the entry opens the one on the left and gets the one on the right.",
    )
    runs: Annotated[int, Field(ge=1)] = Field(default=1, description="How often to look, with another seed each time.")
    ports: Annotated[dict[Annotated[str, _PORT], PortTable], Rule(json={"additionalProperties": False})] = Field(
        default={}, description='Inputs that are perturbed where they enter, by "node/port".'
    )


class AllowTable(Table):
    """What is meant although it leaves the trace."""

    branches: Functions = Field(default=[], description="Functions (module:qualname) that branch on traced values.")
    escapes: Functions = Field(default=[], description="Functions that turn traced values into plain Python ones.")
    random: Functions = Field(default=[], description="Functions that draw random numbers inside a node.")
    untraced: Functions = Field(default=[], description="Functions with calls that are not recorded.")
    not_varied: Ports = Field(default=[], alias="not-varied", description="Inputs (node/port) that stay as they are.")
    no_element_names: Ports = Field(
        default=[], alias="no-element-names", description="Ports (node/port) that need no element names."
    )


def _bound_to_entry() -> dict[str, Any]:
    """What ties keys together: args belong to callables and argv to scripts, in [pipeline] as in [probe]."""

    def without(key: str, limit: str) -> dict[str, Any]:
        table = {"properties": {key: {limit: 0}}}
        return {"properties": {"pipeline": table, "probe": table}}

    callable_entry = {"properties": {"entry": {"pattern": CALLABLE_ENTRY}}, "required": ["entry"]}
    return {
        "if": {"properties": {"pipeline": callable_entry}, "required": ["pipeline"]},
        "then": without("argv", "maxItems"),
        "else": without("args", "maxProperties"),
    }


class ManifestTable(Table):
    """A pipeline declared for LEAPP."""

    model_config = ConfigDict(title="LEAPP manifest", defer_build=False, json_schema_extra=_bound_to_entry())

    schema_: Annotated[int, Rule(_check_schema, {"const": SCHEMA_VERSION})] = Field(
        alias="schema", description="Version of the manifest's format."
    )
    pipeline: PipelineTable = Field(description="What is built, from which code.")
    export: ExportTable = Field(default_factory=ExportTable, description="Defaults for every node.")
    nodes: dict[Text, NodeTable] = Field(default={}, description="Settings of single nodes, by name.")
    session: SessionTable = Field(default_factory=SessionTable, description="The process that the entry runs in.")
    probe: ProbeTable = Field(default_factory=ProbeTable, description="How the second run, on other data, differs.")
    allow: AllowTable = Field(default_factory=AllowTable, description="What is meant although it leaves the trace.")
    metadata: dict[str, Any] = Field(
        default={}, description="Free: licence, link to the training run, roles of checkpoints, ..."
    )


class _ForEditors(GenerateJsonSchema):
    """TOML has no null, and a title that repeats the key is noise."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        default = schema.get("default")
        if default is None or isinstance(default, BaseModel):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


@functools.cache
def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a manifest, from the classes that validate it. Not to be written to.

    It says all that can be said about a document by itself. What needs the disk or other manifests, an integer written
    as ``1.0``, a range whose ends are swapped and numbers that are not finite are found by ``load`` alone.
    """
    schema = ManifestTable.model_json_schema(schema_generator=_ForEditors)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def check(data: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
    """Validate a document by itself; key path and text of each problem."""
    try:
        ManifestTable.model_validate(data)
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors(include_url=False)]
        if is_foreign(data):  # nothing else that was found need be true
            return [each for each in problems if each[0] == ("schema",)]
        return problems
    return []


def _problem(error: ErrorDetails) -> tuple[KeyPath, str]:
    # A key that breaks a rule has "[key]" behind it in pydantic's path.
    path: KeyPath = error["loc"][:-1] if error["loc"][-1] == "[key]" else error["loc"]
    context, value = error.get("ctx", {}), error["input"]
    match error["type"]:
        case "missing":
            kind = "table" if _at(path).get("type") == "object" else "key"
            return path, f"this {kind} is required and missing."
        case "extra_forbidden":
            return path, _unknown_key(path)
        case "value_error":
            return path, str(context["error"])
        case "greater_than":
            return path, f"expected {_expected(path)} above {context['gt']:g}, got {value}."
        case "greater_than_equal":
            return path, f"expected {_expected(path)} of at least {context['ge']:g}, got {value}."
        case "less_than":
            return path, f"expected {_expected(path)} below {context['lt']}, got {value}."
        case "finite_number":
            return path, f"expected a finite number, got {value}."
        case "too_short" | "too_long":
            return path, f"expected {_expected(path)}, got {len(value) or 'an empty one'}."
        case _:
            return path, f"expected {_expected(path)}, got {kind_of(value)}."


def _unknown_key(path: KeyPath) -> str:
    *outer, key = path
    known = list(_at(tuple(outer))["properties"])
    near = nearest(str(key), known)
    homes = [home for home in _homes(str(key)) if home != tuple(outer)]
    if near and near.lower() == str(key).lower():
        return f"unknown key.{hint(near)}"
    if homes:
        return f"unknown key here; it belongs to {' or '.join(f'[{key_text(home)}]' for home in homes)}."
    return "unknown key." + hint(near, f"Known keys: {', '.join(known)}.")


def _homes(key: str) -> Iterator[KeyPath]:
    """Top-level tables that have this key."""
    for table in json_schema()["properties"]:
        if key in _at((table,)).get("properties", {}):
            yield (table,)


def _at(path: KeyPath) -> dict[str, Any]:
    """The part of the JSON Schema that speaks about ``path``."""
    root = json_schema()
    node: dict[str, Any] = root
    for part in path:
        inner = node.get("properties", {}).get(part) if isinstance(part, str) else node.get("items")
        if inner is None:  # the keys are free: names of nodes or ports
            inner = next(iter(node.get("patternProperties", {}).values()), node.get("additionalProperties"))
        node = inner if isinstance(inner, dict) else {}
        if "$ref" in node:
            node = {**root["$defs"][node["$ref"].rpartition("/")[2]], **node}
    return node


_WORDS: Final = {
    "object": ("a table", "tables"),
    "string": ("a string", "strings"),
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "booleans"),
}


def _expected(path: KeyPath) -> str:
    """What a value at ``path`` should be, in words."""
    node = _at(path)
    if node.get("const") is True:
        return "true"
    if node.get("type") != "array":
        return _WORDS[node["type"]][0]
    kind = node["items"]["type"]
    of = _WORDS[kind][1] if isinstance(kind, str) else "numbers or booleans"
    least, most = node.get("minItems"), node.get("maxItems")
    if least is None:
        return f"a list of {of}"
    return f"a list of {least} {of}" if least == most else f"a non-empty list of {of}"
