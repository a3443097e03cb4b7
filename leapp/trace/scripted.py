"""TorchScript code inside a node: its graph is walked here, op by op, so that every op is recorded.

A scripted or traced function runs outside Python, where no hook of ours sees it. While a node is open it is
interpreted instead: tensor operators are called as the public functions they stand for, what concerns only Python
numbers, strings and plain lists is left to TorchScript's own implementation (one operator at a time), and conditions
on traced values mean what they mean in Python. Each step runs in a frame that carries the scripted file and line, so
errors and evidence name them.

The values are those of TorchScript with its optimiser off, which are also those of a function's first native call, bit
for bit (measured over the functions of ``tests/trace/scripted_cases.py``). From the third call on the optimiser may
write an op as others: on the CPU it writes ``addmm`` as ``mm`` and ``add``, which changes the last bits.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch

from leapp.errors import LeappError, UnrecordableOpError
from leapp.ops.aten import bound, named, public_call
from leapp.trace.escapes import SCRIPTED_GUARD
from leapp.trace.source import Place, caller, is_machinery
from leapp.trace.tensor import TRACED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leapp.trace.recording import Recording

# The bindings have no complete stubs.
_C: Any = torch._C
_jit_state: Any = torch.jit._state
_no_subclass: Any = _C.DisableTorchFunctionSubclass
_no_hooks: Any = _C.DisableTorchFunction

_run_natively: Any = _C.ScriptFunction.__call__
"""Taken before any session wraps it."""

_NATIVE_FAILURE: Final = "The following operation failed in the TorchScript interpreter."


class NoMatchError(Exception):
    """The arguments do not fit the scripted signature: TorchScript itself says how."""


# --- frames that carry the scripted line ---------------------------------------------------------------------------


def _step(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scripted_guard: bool | None = None) -> Any:  # noqa: ARG001
    return call(*args, **kwargs)


assert _step.__code__.co_varnames[3] == SCRIPTED_GUARD

Line = FunctionType
"""``_step`` under another file and line."""


@lru_cache(maxsize=65536)
def _line(file: str, line: int, name: str, module: str) -> Line:
    # The call stands on the line after ``def``.
    code = _step.__code__.replace(
        co_filename=file, co_firstlineno=max(line - 1, 0), co_name=name.rpartition(".")[2], co_qualname=name
    )
    return FunctionType(code, {"__name__": module, "__builtins__": builtins}, "step", _step.__defaults__)


_FILE_AND_LINE: Final = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_TRACED_FRAME: Final = re.compile(r"^(.+)\((\d+)\): ", re.MULTILINE)


@lru_cache(maxsize=65536)
def _source_of(text: str) -> tuple[str, int] | None:
    """File and line of a node's source range: the innermost one outside torch, else one of torch's own."""
    found = _FILE_AND_LINE.search(text)
    frames = [found.groups()] if found else _TRACED_FRAME.findall(text)
    real = [(file, int(line)) for file, line in frames if os.path.isfile(file)]  # noqa: PTH113 - as it is looked up
    return next((each for each in real if not is_machinery(each[0])), real[0] if real else None)


@lru_cache(maxsize=1024)
def _functions_in(file: str) -> tuple[tuple[int, int, str], ...]:
    """First line, last line and qualified name of every function of a file, outer ones first.

    A file that this program did not import is not read: a saved model names the files that it was made from, and a
    build must not come to depend on them.
    """
    if _imported_as(file) is None and file not in linecache.cache:
        return ()
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    found: list[tuple[int, int, str]] = []
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((child.lineno, child.end_lineno or child.lineno, prefix + child.name))
                inner = f"{prefix}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            stack.append((child, inner))
    return tuple(sorted(found, key=lambda each: (each[0], -each[1])))


@lru_cache(maxsize=1024)
def _imported_as(file: str) -> str | None:
    """Name of the module that was loaded from a file."""
    for name, module in list(sys.modules.items()):
        known = getattr(module, "__file__", None)
        if known and (known == file or os.path.abspath(known) == file):  # noqa: PTH100 - no resolving of links
            return name
    return None


def _line_of(text: str, name: str, otherwise: Line) -> Line:
    """The frame for a node with this source range."""
    source = _source_of(text) if text else None
    if source is None:
        return otherwise
    file, line = source
    if is_machinery(file):  # nobody is shown it, but it is where a guard of torch's stands
        return _line(file, line, name, "torch")
    holding = [each[2] for each in _functions_in(file) if each[0] <= line <= each[1]]
    return _line(file, line, holding[-1] if holding else name, _imported_as(file) or Path(file).stem)


# --- a graph, read once --------------------------------------------------------------------------------------------


class _Block:
    __slots__ = ("parameters", "results", "steps")

    def __init__(self, block: Any, source: str) -> None:
        self.parameters = [value.unique() for value in block.inputs()]
        self.results = [value.unique() for value in block.outputs()]
        self.steps = [_Step(node, source) for node in block.nodes()]


class _Step:
    """One node of a graph: what it takes and gives, and how it is done once that is known."""

    __slots__ = ("alone", "blocks", "call", "guard", "inputs", "kind", "node", "outputs", "range", "schema")

    def __init__(self, node: Any, source: str) -> None:
        self.node = node
        self.kind: str = node.kind()
        self.inputs = [value.unique() for value in node.inputs()]
        self.outputs = [value.unique() for value in node.outputs()]
        # Constants and the like have no place of their own; what is near says more than nothing.
        self.range: str = node.sourceRange() or source
        self.blocks = [_Block(block, self.range) for block in node.blocks()]
        self.guard: bool | None = _guards(node.output()) if self.kind == "aten::Bool" else None
        self.schema = _schema_of(node)
        self.alone: Any = None
        """This node as a function of its own; made when first needed."""
        self.call: Program | None = None
        """What it calls, where that is known from the graph alone."""


def _schema_of(node: Any) -> Any:
    try:
        text: str = node.schema()
    except RuntimeError:
        return None
    signature = text.partition("(")[0]
    name, _, overload = signature.partition(".")
    for schema in _C._jit_get_schemas_for_operator(node.kind()):
        if schema.name == name and schema.overload_name == overload:
            return schema
    return None


def _guards(value: Any) -> bool:
    """Whether a truth value only decides if something is raised."""
    uses = list(value.uses())
    return bool(uses) and all(_guards_at(use) for use in uses)


def _guards_at(use: Any) -> bool:
    node, kind = use.user, use.user.kind()
    if kind == "aten::__not__":
        return _guards(node.output())
    if kind == "prim::Return":  # the value of an ``and`` or ``or``
        owner = node.owningBlock().owningNode()
        return owner is not None and owner.kind() == "prim::If" and _guards(owner.outputsAt(use.offset))
    if kind != "prim::If":
        return False
    blocks = list(node.blocks())
    if any(_raises(block) for block in blocks):
        return True
    outputs = list(node.outputs())
    return bool(outputs) and all(str(each.type()) == "bool" and _guards(each) for each in outputs)


def _raises(block: Any) -> bool:
    for node in block.nodes():
        if node.kind() == "prim::RaiseException":
            return True
        inner = list(node.blocks())
        if node.kind() == "prim::If" and inner and all(_raises(each) for each in inner):
            return True
    return False


class Program:
    """A scripted function, method or sub-graph, ready to be walked."""

    def __init__(self, graph: Any, name: str, schema: Any = None) -> None:
        self.graph = graph  # the nodes live in it
        self.name = name
        self.schema = schema
        self.body = _Block(graph, "")
        self.types = [value.type() for value in graph.inputs()]
        self.operands: list[int] | None = None
        """Which values of the calling graph its inputs are; None where they are the call's operands in order."""
        self._entry: Any = None
        self._exit: Any = None

    def bind(self, receiver: tuple[Any, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The values of the graph's inputs, converted as TorchScript converts them. Raises NoMatchError."""
        arguments = list(self.schema.arguments)[len(receiver) :]
        given = bound(arguments, args, kwargs)
        if given is None:
            raise NoMatchError
        if self._entry is None:
            self._entry = _conversion([argument.real_type for argument in arguments])
        try:
            with _no_subclass():
                converted = _run_natively(self._entry, *given)
        except (RuntimeError, TypeError, ValueError) as error:
            raise NoMatchError from error
        return [*receiver, *[_inside(each) for each in converted]]

    def hand_out(self, value: Any) -> Any:
        """The result as TorchScript gives it to Python: its named tuples, its copies of lists."""
        value = _outside(value)
        if value is None or type(value) in _AS_IT_IS or isinstance(value, torch.Tensor):
            return value
        if self._exit is None:
            self._exit = _conversion([self.schema.returns[0].real_type])
        with _no_subclass():
            return _run_natively(self._exit, value)[0]


_AS_IT_IS: Final = frozenset((int, float, bool, str, complex))


def _conversion(types: Sequence[Any]) -> Any:
    """A function of TorchScript's that hands on its arguments: what it returns is what it would have worked with."""
    graph = _C.Graph()
    values = []
    for each in types:
        value = graph.addInput()
        value.setType(each)
        values.append(value)
    node = graph.create("prim::TupleConstruct", values, 1)
    node.output().setType(_C.TupleType(list(types)))
    graph.appendNode(node)
    graph.registerOutput(node.output())
    return _C._create_function_from_graph("leapp_values", graph)


def _alone(node: Any, name: str) -> tuple[Any, list[int]]:
    """One node as a function, and which values it takes."""
    graph = _C.Graph()
    inputs: dict[int, Any] = {}

    def value_for(value: Any) -> Any:
        number = value.unique()
        if number not in inputs:
            inputs[number] = graph.addInput()
            inputs[number].setType(value.type())
        return inputs[number]

    clone = graph.createClone(node, value_for)
    graph.appendNode(clone)
    outputs = list(clone.outputs())
    if len(outputs) != 1:
        if outputs:
            last = graph.create("prim::TupleConstruct", outputs, 1)
            last.output().setType(_C.TupleType([each.type() for each in outputs]))
        else:
            last = graph.create("prim::Constant", [], 1)
            last.output().setType(_C.NoneType.get())
        graph.appendNode(last)
        outputs = [last.output()]
    graph.registerOutput(outputs[0])
    return _C._create_function_from_graph(name, graph), list(inputs)


def _inlined(node: Any, name: str) -> Program:
    """What a call runs, for callees that Python cannot look up: the call alone, inlined by TorchScript."""
    graph = _C.Graph()
    inputs: dict[int, Any] = {}

    def value_for(value: Any) -> Any:
        number = value.unique()
        if number not in inputs:
            origin = value.node()
            if origin.kind() == "prim::Constant" and origin.hasAttribute("name"):
                constant = graph.createClone(origin, value_for)
                graph.appendNode(constant)
                inputs[number] = constant.output()
            else:
                inputs[number] = graph.addInput()
                inputs[number].setType(value.type())
        return inputs[number]

    clone = graph.createClone(node, value_for)
    graph.appendNode(clone)
    graph.registerOutput(clone.output())
    program_inputs = [number for number, value in inputs.items() if value.node().kind() == "prim::Param"]
    _C._jit_pass_inline(graph)
    program = Program(graph, name)
    program.operands = program_inputs
    return program


# --- objects of scripted classes -----------------------------------------------------------------------------------


class _Object:
    """An instance of a scripted class while its code is walked."""

    __slots__ = ("attributes", "type")

    def __init__(self, type_: Any, attributes: dict[str, Any]) -> None:
        self.type = type_
        self.attributes = attributes


def _inside(value: Any) -> Any:
    """A value from Python as the interpreter holds it: instances of scripted classes are opened."""
    if isinstance(value, (torch.Tensor, int, float, str, complex)) or value is None:
        return value
    if isinstance(value, list):
        return [_inside(each) for each in value]
    if isinstance(value, dict):
        return {key: _inside(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple([_inside(each) for each in value])
    type_ = _jit_state._get_script_class(type(value)) if not isinstance(value, _NATIVE_OBJECTS) else None
    if type_ is not None:
        return _Object(type(value), {name: _inside(each) for name, each in vars(value).items()})
    return value


_NATIVE_OBJECTS: Final[tuple[Any, ...]] = (_C.ScriptModule, _C.ScriptObject, torch.device, torch.nn.Module)


def _outside(value: Any) -> Any:
    """A value of the interpreter as Python sees it."""
    if isinstance(value, _Object):
        made = object.__new__(value.type)
        for name, each in value.attributes.items():
            setattr(made, name, _outside(each))
        return made
    if type(value) is list:
        return [_outside(each) for each in value] if any(_nested(each) for each in value) else value
    if type(value) is tuple:
        return tuple([_outside(each) for each in value])
    if type(value) is dict:
        return {key: _outside(each) for key, each in value.items()}
    return value


def _nested(value: Any) -> bool:
    return isinstance(value, (_Object, list, tuple, dict))


# --- walking -------------------------------------------------------------------------------------------------------


class Walk:
    """One call of scripted code inside a node, with everything that it calls in turn."""

    def __init__(self, recording: Recording | None, programs: dict[Any, Program]) -> None:
        self._recording = recording
        self._programs = programs
        self._owners: dict[int, tuple[Any, str, Any]] = {}
        """Lists and dicts read from a module, by identity: TorchScript hands out copies, so changes are put back."""
        place = caller()
        self._enclosing = _line(place.code.co_filename, place.line, place.code.co_qualname, place.module)
        """The innermost line that is known: what has no line of its own happens there."""

    def run(self, program: Program, values: Sequence[Any]) -> Any:
        """Run a program; gives its result as the interpreter holds it."""
        entered: list[tuple[_Step, Any]] = []
        try:
            return self._block(program, program.body, dict(zip(program.body.parameters, values, strict=True)), entered)[
                0
            ]
        finally:
            # A mode that was entered and not left (an error came between) must not outlive the call.
            for step, thing in reversed(entered):
                self._leave(step, thing)

    def _block(
        self, program: Program, block: _Block, known: dict[int, Any], entered: list[tuple[_Step, Any]]
    ) -> list[Any]:
        results: Sequence[Any]
        for step in block.steps:
            kind = step.kind
            if kind == "prim::If":
                taken = step.blocks[0 if known[step.inputs[0]] else 1]
                results = self._block(program, taken, known, entered)
            elif kind == "prim::Loop":
                results = self._loop(program, step, known, entered)
            elif kind == "prim::Enter":
                results = [self._enter(step, known[step.inputs[0]], entered)]
            elif kind == "prim::Exit":
                entered.pop()
                self._leave(step, known[step.inputs[0]])
                results = [None]
            else:
                results = self._do(program, step, [known[number] for number in step.inputs])
            known.update(zip(step.outputs, results, strict=True))
        return [known[number] for number in block.results]

    def _loop(
        self, program: Program, step: _Step, known: dict[int, Any], entered: list[tuple[_Step, Any]]
    ) -> list[Any]:
        limit, going, *carried = [known[number] for number in step.inputs]
        body = step.blocks[0]
        index = 0
        while going and index < limit:
            known.update(zip(body.parameters, (index, *carried), strict=True))
            going, *carried = self._block(program, body, known, entered)
            index += 1
        return carried

    # --- contexts ---------------------------------------------------------------------------------------------------

    def _enter(self, step: _Step, thing: Any, entered: list[tuple[_Step, Any]]) -> Any:
        entered.append((step, thing))
        return self._magic(step, thing, "__enter__", ())

    def _leave(self, step: _Step, thing: Any) -> None:
        self._magic(step, thing, "__exit__", (None, None, None))

    def _magic(self, step: _Step, thing: Any, name: str, rest: tuple[Any, ...]) -> Any:
        key = (str(step.node.inputsAt(0).type()), name)
        program = self._programs.get(key)
        if program is None:
            graph = _C.Graph()
            owner = graph.addInput()
            owner.setType(step.node.inputsAt(0).type())
            values = [owner]
            for _ in rest:
                none = graph.create("prim::Constant", [], 1)
                none.output().setType(_C.NoneType.get())
                graph.appendNode(none)
                values.append(none.output())
            node = graph.create("prim::CallMethod", values, 1)
            node.s_("name", name)
            graph.appendNode(node)
            graph.registerOutput(node.output())
            _C._jit_pass_inline(graph)
            program = self._programs[key] = Program(graph, name)
        return self.run(program, [thing])

    # --- one step ---------------------------------------------------------------------------------------------------

    def _do(self, program: Program, step: _Step, values: list[Any]) -> Sequence[Any]:
        line = _line_of(step.range, program.name, self._enclosing)
        simple = _SIMPLE.get(step.kind)
        try:
            if simple is not None:
                return simple(step, values)
            special = _SPECIAL.get(step.kind)
            if special is not None:
                return special(self, step, values, line, program)
            if values and (type(values[0]) is list or type(values[0]) is dict):
                found = self._container(step, values, line, program)
                if found is not None:
                    return found
            return self._operator(step, values, line, program)
        except (LeappError, Warning, _C.JITException):
            raise
        except Exception as error:
            if str(error).startswith(_NATIVE_FAILURE):
                raise
            raise _as_torchscript_raises(error, step, program) from error

    def _operator(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        schema = step.schema
        kind = step.kind
        if schema is None or kind.startswith("prim::"):
            return self._native(step, values, line, program)
        gives_tensors = any(_holds_tensor(each.type()) for each in step.node.outputs())
        if not gives_tensors and (kind in _NATIVE or not any(_has_tensor(value) for value in values)):
            return self._native(step, values, line, program)
        if len(values) != len(schema.arguments) or not _known_arguments(values):
            raise self._refusal(step, line, "its arguments cannot stand in a graph")
        namespace, _, name = kind.partition("::")
        given = [named(argument, value) for argument, value in zip(schema.arguments, values, strict=True)]
        function, args, kwargs = public_call(namespace, name, schema, given)
        result = line(function, args, kwargs)
        return _results(step, result)

    def _native(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """TorchScript's own implementation of one node; traced values among its arguments are read, not recorded."""
        if step.kind not in _NATIVE:
            traced = _traced(values)
            if traced and step.kind not in _READERS:
                raise self._refusal(step, line, "LEAPP has no form for it")
            for each in traced:
                line(format, (each,), {})
        with _no_subclass():
            result = self._by_itself(step, values, line, program)
        if len(step.outputs) == 1:
            return [_inside(result)]
        return list(result) if step.outputs else []

    def _by_itself(self, step: _Step, values: list[Any], line: Line, program: Program) -> Any:
        if step.alone is None:
            step.alone = _alone(step.node, program.name.rpartition(".")[2] or "function")
        function, inputs = step.alone
        by_number = dict(zip(step.inputs, values, strict=True))
        return line(_run_natively, (function, *[_outside(by_number[number]) for number in inputs]), {})

    def _refusal(self, step: _Step, line: Line, why: str) -> UnrecordableOpError:
        recording = self._recording
        place = Place(line.__code__, line.__code__.co_firstlineno + 1, line.__globals__["__name__"])
        return UnrecordableOpError(
            node=recording.name if recording is not None else "?",
            op=f"the TorchScript operation {step.kind}",
            where=recording.where(place) if recording is not None else f"{line.__code__.co_filename}:{place.line}",
            why=why,
            advice="Write the scripted code with other operations, or call the Python function that it was made from. "
            'Where the node brings this model: annotate.method(backend_params={"model_path": FILE}) traces nothing.',
        )

    # --- containers -------------------------------------------------------------------------------------------------

    def _container(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any] | None:
        if step.kind in _COMPARES_ITEMS:
            if _traced(values):
                raise self._refusal(step, line, "it compares traced values to decide")
            if step.kind != "aten::remove":
                with _no_hooks():
                    return self._native(step, values, line, program)
        table = _LISTS if type(values[0]) is list else _DICTS
        action = table.get(step.kind)
        if action is None:
            return None
        result = action(*values)
        if step.kind in _CHANGES_CONTAINER:
            self._put_back(values[0])
        return [result] if step.outputs else []

    def _put_back(self, container: Any) -> None:
        owned = self._owners.get(id(container))
        if owned is not None:
            owner, name, _ = owned
            with _no_subclass():
                owner.setattr(name, _outside(container))

    def get_attribute(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """``self.name``."""
        del line, program
        owner, name = values[0], step.node.s("name")
        if isinstance(owner, _Object):
            return [owner.attributes[name]]
        if isinstance(owner, tuple):
            return [getattr(owner, name)]
        with _no_subclass():
            value = owner.getattr(name)
        if isinstance(value, (list, dict)):
            value = _inside(value)
            # Kept, so that its identity stays its own.
            self._owners[id(value)] = (owner, name, value)
            return [value]
        return [_inside(value)]

    def set_attribute(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """``self.name = value``."""
        del line, program
        owner, value = values
        name = step.node.s("name")
        if isinstance(owner, _Object):
            owner.attributes[name] = value
            return []
        with _no_subclass():
            owner.setattr(name, _outside(value))
        if type(value) in (list, dict):
            self._owners[id(value)] = (owner, name, value)
        return []

    def create_object(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """A new instance of a scripted class, its attributes not yet set."""
        del values, line, program
        name = step.node.output().type().qualified_name()
        python = _jit_state._get_python_class(name)
        return [_Object(python or object, {})]

    # --- calls ------------------------------------------------------------------------------------------------------

    def call_function(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """A call of another scripted function."""
        del program
        if step.call is None:
            type_ = step.node.inputsAt(0).type()
            function = _jit_state._python_cu.find_function(type_.annotation_str)
            name = type_.annotation_str.rpartition(".")[2]
            step.call = Program(function.graph, name) if function else _inlined(step.node, name)
        return [self._called(step, step.call, values, values[1:], line)]

    def call_method(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """A call of a method of a module, or of an instance of a scripted class."""
        del program
        name = step.node.s("name")
        owner = values[0]
        found = step.call
        if found is None:
            if isinstance(owner, _NATIVE_OBJECTS):
                method = owner._get_method(name)
                found = Program(method.graph, name, method.schema)
            else:
                found = _inlined(step.node, name)
            # An interface says only at each call whose method it is.
            if step.node.inputsAt(0).type().kind() != "InterfaceType":
                step.call = found
        return [self._called(step, found, values, values, line)]

    def _called(self, step: _Step, program: Program, values: list[Any], operands: list[Any], line: Line) -> Any:
        if program.operands is not None:
            by_number = dict(zip(step.inputs, values, strict=True))
            operands = [by_number[number] for number in program.operands]
        outer, self._enclosing = self._enclosing, line
        try:
            return line(self.run, (program, operands), {})
        finally:
            self._enclosing = outer

    def fork(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """``torch.jit.fork``: nothing runs beside anything while a node is recorded."""
        if step.call is None:
            step.call = Program(step.node.g("Subgraph"), program.name)
        return [self._called(step, step.call, values, values, line)]

    # --- reads ------------------------------------------------------------------------------------------------------

    def read(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """A tensor becomes a number: a branch or an escape where it is traced."""
        tensor = values[0]
        if not isinstance(tensor, torch.Tensor):
            return self._native(step, values, line, program)
        if type(tensor) in TRACED:
            line(_READS[step.kind], (tensor,), {}, step.guard)
        with _no_hooks():
            return [self._by_itself(step, values, line, program)]

    def length(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """How large a tensor is: of a selection that follows the data, and noted then."""
        if not isinstance(values[0], torch.Tensor):
            if type(values[0]) in (list, dict):
                return [len(values[0])]
            return self._native(step, values, line, program)
        result = line(_LENGTHS[step.kind], tuple(values), {})
        return [list(result) if isinstance(result, tuple) else result]

    def number_to_tensor(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """Traced graphs compute shapes in tensors."""
        if isinstance(values[0], torch.Tensor):
            return values
        return self._native(step, values, line, program)

    def new_tensor(self, step: _Step, values: list[Any], line: Line, program: Program) -> Sequence[Any]:
        """``torch.tensor`` and ``torch.as_tensor`` of numbers and lists."""
        del program
        data, *rest = [named(argument, value) for argument, value in zip(step.schema.arguments, values, strict=True)]
        names = [argument.name for argument in step.schema.arguments][1:]
        keywords = {name: value for name, value in zip(names, rest, strict=True) if value is not None}
        if keywords.get("requires_grad") is False:
            del keywords["requires_grad"]
        function = torch.as_tensor if step.kind == "aten::as_tensor" else torch.tensor
        return [line(function, (data,), keywords)]


def called(
    recording: Recording | None,
    programs: dict[Any, Program],
    callee: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Walk a scripted function or method as TorchScript would have run it. Raises NoMatchError."""
    program = programs.get(callee)
    if program is None:
        program = programs[callee] = Program(callee.graph, callee.name, callee.schema)
    receiver = (_receiver(callee),) if isinstance(callee, _C.ScriptMethod) else ()
    return program.hand_out(Walk(recording, programs).run(program, program.bind(receiver, args, kwargs)))


def _receiver(method: Any) -> Any:
    try:
        return method.owner
    except RuntimeError:
        return method.raw_owner


def _results(step: _Step, result: Any) -> Sequence[Any]:
    if len(step.outputs) == 1:
        if isinstance(result, tuple) and step.node.output().type().kind() == "ListType":
            return [list(result)]
        return [result]
    return list(result) if step.outputs else []


def _as_torchscript_raises(error: Exception, step: _Step, program: Program) -> Exception:
    """TorchScript reports what an operator raises as a ``RuntimeError`` of its own."""
    where = re.sub(r"(?<=, line )\d+", rf"\g<0>, in {program.name}", step.range, count=1) or f"  in {program.name}\n"
    text = f"{_NATIVE_FAILURE}\nTraceback of TorchScript (most recent call last):\n{where}RuntimeError: {error}\n"
    kind = NotImplementedError if isinstance(error, NotImplementedError) else RuntimeError
    return kind(text)


def _holds_tensor(type_: Any) -> bool:
    return "Tensor" in str(type_) or type_.kind() == "TensorType"


def _has_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(each) for each in value)
    if isinstance(value, dict):
        return any(_has_tensor(each) for each in value.values())
    return False


def _known_arguments(values: Iterable[Any]) -> bool:
    return not any(isinstance(value, (_Object, *_NATIVE_OBJECTS[:2])) for value in values)


def _traced(values: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if type(value) in TRACED:
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _traced(value)
        elif isinstance(value, dict):
            found += _traced(value.values())
        elif isinstance(value, _Object):
            found += _traced(value.attributes.values())
    return found


# --- tables --------------------------------------------------------------------------------------------------------


def _constant(step: _Step, values: list[Any]) -> Sequence[Any]:
    del values
    node = step.node
    if node.hasAttribute("name") and str(node.output().type()) == "Function":
        return [None]
    with _no_hooks():
        return [node.output().toIValue()]


def _same_object(step: _Step, values: list[Any]) -> bool:
    del step
    first, second = values
    if first is None or second is None:
        return first is second
    return first is second or (type(first) in _AS_IT_IS and type(first) is type(second) and first == second)


def _dict_of(step: _Step, values: list[Any]) -> Sequence[Any]:
    del step
    return [dict(zip(values[::2], values[1::2], strict=True))]


def _unwrapped(step: _Step, values: list[Any]) -> Sequence[Any]:
    del step
    if values[0] is None:
        raise RuntimeError("Unwrapping null optional")
    return values


def _tuple_slice(step: _Step, values: list[Any]) -> Sequence[Any]:
    return [tuple(values[0][step.node.i("beg") : step.node.i("end")])]


_SIMPLE: Final[dict[str, Callable[[_Step, list[Any]], Sequence[Any]]]] = {
    "prim::Constant": _constant,
    "prim::ListConstruct": lambda _, values: [values],
    "prim::TupleConstruct": lambda _, values: [tuple(values)],
    "prim::DictConstruct": _dict_of,
    "prim::ListUnpack": lambda _, values: values[0],
    "prim::TupleUnpack": lambda _, values: values[0],
    "prim::TupleIndex": lambda _, values: [values[0][values[1]]],
    "prim::TupleSlice": _tuple_slice,
    "prim::Uninitialized": lambda *_: [None],
    "prim::unchecked_cast": lambda _, values: values,
    "prim::unchecked_unwrap_optional": lambda _, values: values,
    "aten::_unwrap_optional": _unwrapped,
    "aten::__is__": lambda step, values: [_same_object(step, values)],
    "aten::__isnot__": lambda step, values: [not _same_object(step, values)],
    "aten::wait": lambda _, values: values,
}
"""Nodes that only move values."""

_SPECIAL: Final[dict[str, Callable[..., Sequence[Any]]]] = {
    "prim::GetAttr": Walk.get_attribute,
    "prim::SetAttr": Walk.set_attribute,
    "prim::CreateObject": Walk.create_object,
    "prim::CallFunction": Walk.call_function,
    "prim::CallMethod": Walk.call_method,
    "prim::fork": Walk.fork,
    "prim::NumToTensor": Walk.number_to_tensor,
    "aten::tensor": Walk.new_tensor,
    "aten::as_tensor": Walk.new_tensor,
}

_READS: Final[dict[str, Any]] = {
    "aten::Bool": bool,
    "aten::Int": int,
    "aten::Float": float,
    "aten::Complex": complex,
    "aten::item": torch.Tensor.item,
    "aten::ScalarImplicit": torch.Tensor.item,
    "aten::IntImplicit": torch.Tensor.item,
    "aten::FloatImplicit": torch.Tensor.item,
    "aten::ComplexImplicit": torch.Tensor.item,
    "prim::tolist": torch.Tensor.tolist,
}
"""How Python spells each way that a tensor becomes a number."""

_LENGTHS: Final[dict[str, Any]] = {
    "aten::size": torch.Tensor.size,
    "aten::len": len,
    "aten::numel": torch.Tensor.numel,
    "prim::shape": lambda tensor: tensor.shape,
}

_SPECIAL.update(dict.fromkeys(_READS, Walk.read))
_SPECIAL.update(dict.fromkeys(_LENGTHS, Walk.length))

_NATIVE: Final = frozenset(
    "prim::isinstance prim::dtype prim::layout prim::device prim::type prim::is_cuda prim::is_cpu prim::is_meta "
    "prim::is_sparse prim::is_sparse_csr prim::is_quantized prim::is_mkldnn prim::is_nested prim::is_xla prim::is_xpu "
    "prim::is_vulkan prim::is_mps prim::is_ort prim::is_maia prim::is_ipu prim::requires_grad prim::is_leaf "
    "prim::itemsize prim::nbytes aten::dim aten::stride aten::is_contiguous aten::is_floating_point aten::is_complex "
    "aten::is_signed aten::element_size aten::storage_offset aten::get_device aten::is_conj aten::is_neg "
    "aten::is_inference aten::is_pinned aten::is_leaf prim::name aten::result_type aten::can_cast".split()
)
"""Questions about a tensor that a recording fixes; TorchScript answers them itself."""

_READERS: Final = frozenset(
    "aten::format aten::str aten::percentFormat prim::Print aten::warn prim::RaiseException".split()
)
"""Nodes that show values."""


def _set_item(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def _delete(container: Any, key: Any) -> None:
    del container[key]


def _returning(change: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript's list methods give back the list."""

    def changed(container: Any, *args: Any) -> Any:
        change(container, *args)
        return container

    return changed


def _list_slice(items: list[Any], start: Any = None, end: Any = None, step: int = 1) -> list[Any]:
    return items[start:end:step]


def _sorted_in_place(items: list[Any], reverse: bool = False) -> None:
    items.sort(reverse=reverse)


_LISTS: Final[dict[str, Callable[..., Any]]] = {
    "aten::append": _returning(list.append),
    "aten::extend": _returning(list.extend),
    "aten::insert": _returning(list.insert),
    "aten::clear": _returning(list.clear),
    "aten::reverse": _returning(list.reverse),
    "aten::remove": _returning(list.remove),
    "aten::sort": _returning(_sorted_in_place),
    "aten::pop": list.pop,
    "aten::Delete": _delete,
    "aten::_set_item": _set_item,
    "aten::copy": list,
    "aten::list": list,
    "aten::__getitem__": lambda items, index: items[index],
    "aten::select": lambda items, index: items[index],
    "aten::slice": _list_slice,
    "aten::len": len,
    "aten::add": lambda first, second: first + second,
    "aten::add_": _returning(list.extend),
    "aten::mul": lambda items, times: items * times,
    "aten::mul_": _returning(lambda items, times: items.__imul__(times)),
    "aten::dict": dict,
}

_DICTS: Final[dict[str, Callable[..., Any]]] = {
    "aten::__getitem__": lambda items, key: items[key],
    "aten::_set_item": _set_item,
    "aten::Delete": _delete,
    "aten::__contains__": lambda items, key: key in items,
    "aten::get": dict.get,
    "aten::setdefault": dict.setdefault,
    "aten::keys": list,
    "aten::values": lambda items: list(items.values()),
    "aten::items": lambda items: list(items.items()),
    "aten::update": dict.update,
    "aten::pop": dict.pop,
    "aten::popitem": dict.popitem,
    "aten::clear": dict.clear,
    "aten::copy": dict,
    "aten::dict": dict,
    "aten::len": len,
}

_COMPARES_ITEMS: Final = frozenset("aten::index aten::count aten::remove aten::eq aten::ne".split())
"""Calls on lists that look at every item; on a dict's keys none does."""

_CHANGES_CONTAINER: Final = frozenset(
    "aten::append aten::extend aten::insert aten::remove aten::clear aten::reverse aten::sort aten::pop aten::Delete "
    "aten::_set_item aten::add_ aten::mul_ aten::setdefault aten::update aten::popitem".split()
)
