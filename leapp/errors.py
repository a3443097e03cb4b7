"""Every error and warning of LEAPP: what happened, and what to do about it.

Each class carries two templates, ``what`` and ``remedy``; the facts that fill them are given as keywords and stay
readable as ``error.facts``. All of them survive pickling, because a build worker reports to its parent that way.
"""

from __future__ import annotations

import string
from typing import Any, ClassVar, Final


class _Template(string.Formatter):
    """As ``str.format``, and ``{count:node does|nodes do}`` is ``1 node does`` or ``2 nodes do``."""

    def format_field(self, value: Any, format_spec: str) -> str:
        one, bar, several = format_spec.partition("|")
        if not bar:
            return str(super().format_field(value, format_spec))
        return f"{value} {one if value == 1 else several}"


_TEMPLATE: Final = _Template()


class _Message:
    """Fill the class's templates with facts; shared by errors and warnings."""

    what: ClassVar[str] = "{detail}"
    remedy: ClassVar[str] = ""
    facts: dict[str, Any]

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        text = _TEMPLATE.format(self.what, **facts)
        remedy = _TEMPLATE.format(self.remedy, **facts)
        # The other base is always an exception class, which takes the text.
        super().__init__(f"{text}\n{remedy}" if remedy else text)  # type: ignore[call-arg]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.facts)


def _rebuild(cls: type[_Message], facts: dict[str, Any]) -> _Message:
    return cls(**facts)


class LeappError(_Message, Exception):
    """Base of all errors raised by LEAPP."""

    exit_code: ClassVar[int] = 1
    """What ``leapp`` exits with when this error ends a command: 1 a check failed, 2 bad input."""


class LeappWarning(_Message, UserWarning):
    """Base of all warnings issued by LEAPP."""


# --- lifecycle -----------------------------------------------------------------------------------------------------


class SessionError(LeappError, RuntimeError):
    """A lifecycle call came at the wrong time."""


class NoSessionError(SessionError):
    """A call needs a trace session and there is none."""

    what = "leapp.{call}() was called, but no trace session is open."
    remedy = "Call leapp.start(name) first."


class SessionStillOpenError(SessionError):
    """``compile_graph`` was called before ``stop``."""

    what = "leapp.compile_graph() was called while the session {name!r} is still open."
    remedy = "Call leapp.stop() after the code to record, then leapp.compile_graph()."


class NothingAnnotatedError(SessionError):
    """A session ended without a single node."""

    what = "The session {name!r} recorded no node: nothing called annotate.input_tensors()."
    remedy = "Annotate the code to export, or check that the entry really runs it."


class SecondSessionError(SessionError):
    """A build's entry opened a second session and nothing says which one counts."""

    exit_code = 2
    what = "The entry called leapp.start({second!r}) after leapp.start({first!r})."
    remedy = 'Name the one that counts in the manifest: [pipeline] trace = "{first}".'


class PipelineNameError(SessionError, ValueError):
    """A pipeline name cannot be used as a folder and file name."""

    exit_code = 2
    what = "{name!r} cannot name a pipeline: {why}."
    remedy = "Begin with a letter, a digit or '_'; '/' makes folders; no '..', backslash or control character."


class OptionError(SessionError, ValueError):
    """An argument of a lifecycle call or annotation is out of range."""

    exit_code = 2
    what = "{option}={value!r}: {why}."
    remedy = "See help(leapp.start), help(leapp.compile_graph) and help(leapp.annotate.output_tensors)."


# --- recording -----------------------------------------------------------------------------------------------------


class TraceError(LeappError, RuntimeError):
    """Something in the traced code cannot be recorded."""


class CompiledAroundNodeError(TraceError):
    """A node is opened by a function that ``torch.compile`` is running."""

    what = "Node {node!r} was opened inside a function that torch.compile runs ({where})."
    remedy = "Call that function itself while a session is open; compiled functions inside a node are fine."


class InvalidNameError(TraceError, ValueError):
    """A node or port name that no bundle can hold."""

    what = "{kind} name {name!r} cannot be used: {why}."
    remedy = "Names may hold anything but '/', '\\', NUL and line breaks, and must not be empty, '.' or '..'."


class NotATensorError(TraceError, TypeError):
    """Something other than a tensor was declared as a port."""

    what = "Node {node!r}: {direction} {port!r} is a {kind}, not a tensor or array."
    remedy = "Declare tensors, NumPy arrays and scalars, or dicts, lists, tuples and dataclasses of them."


class SemanticsError(TraceError, ValueError):
    """A fact about a port or about the whole pipeline cannot be."""

    what = "{where}: {why}."
    remedy = "{advice}"


class SemanticsTypeError(SemanticsError, TypeError):
    """A fact about a port or about the whole pipeline is of a wrong type."""

    what = "{where}: {why}."
    remedy = "{advice}"


class ElementNamesError(TraceError, ValueError):
    """Names of a port's elements do not fit the port, or one another."""

    what = "{where}: element_names {why}."
    remedy = (
        "Give one name per element of an axis, each once: a list for the last axis, or a list with an entry per axis, "
        "None for one without names and TemporalAxis(period_ms) for one of moments."
    )


class SemanticsFormError(TraceError, TypeError):
    """``TensorSemantics`` in a place where none can be."""

    what = "Node {node!r}: {why}."
    remedy = (
        "Give one TensorSemantics, a list of nothing but TensorSemantics, or a dict from names to tensors: "
        'annotate.{direction}_tensors({node!r}, [TensorSemantics("a", a), TensorSemantics("b", b)]).'
    )


class NestingError(TraceError, TypeError):
    """A container that ports cannot be taken from, or given back in."""

    what = "{where}: a {kind} cannot hold traced values: {why}."
    remedy = "Hand in a dict, list, tuple or dataclass of tensors."


class MethodKindError(TraceError, TypeError):
    """``annotate.method`` decorates something that is no plain function or method."""

    what = "annotate.method cannot decorate {name}: {why}."
    remedy = "{advice}."


class TensorClassError(TraceError, TypeError):
    """A tensor class that cannot be traced."""

    what = "Node {node!r}: {port!r} is a {kind}; {why}."
    remedy = "{advice}."


class OutputBeforeInputError(TraceError):
    """``output_tensors`` for a node that is not open."""

    what = "annotate.output_tensors({node!r}) was called, but no node {node!r} is open ({where})."
    remedy = "Call annotate.input_tensors({node!r}, ...) before the computation; open nodes: {open}."


class OutputNotTracedError(TraceError, TypeError):
    """A declared output carries no recorded value."""

    what = "{seen}Node {node!r}: output {port!r} is a plain {kind}; no recorded operation leads to it ({where})."
    remedy = (
        "Compute it from what annotate.input_tensors() returned: of an array, in a nesting too, only what it returned is "
        "traced, not the array that was handed in. Where the trace was lost, a warning above names the "
        "call; there is none where traced values were put into a plain NumPy array: make that array inside the node, "
        "with np.zeros or np.copy. A value that is meant to be fixed belongs in static_outputs."
    )


class StateNotTracedError(OutputNotTracedError):
    """The next value of a state carries no recorded value."""

    what = "{seen}Node {node!r}: the next value of state {port!r} is a plain {kind}; no recorded operation leads to it ({where})."
    remedy = (
        "Compute it from what annotate.input_tensors() and annotate.state_tensors() returned; where the trace was lost, a "
        "warning above names the call. A next value that is meant to be the same at every tick is made by a recorded "
        "operation too: torch.zeros_like(h), or h * 0 + value."
    )


class ForeignValueError(TraceError):
    """A value of one node was used in another without being declared there."""

    what = "A value of node {owner!r} was used in node {user!r} at {where}, where it was not declared."
    remedy = "Declare it: annotate.input_tensors({user!r}, {{...}}), after node {owner!r} has declared it as an output."


class StaleValueError(ForeignValueError):
    """A value that an earlier entry of the same node computed was used again."""

    what = "A value that an earlier entry of node {user!r} computed was used in it again at {where}: it is state."
    remedy = (
        "Declare it: {state} = annotate.state_tensors({user!r}, {{{state!r}: {state}}}), and annotate.update_state({user!r}, {{{state!r}: next}}) "
        "before the outputs. Registered buffers of an nn.Module: annotate.module({user!r}, module) in every entry."
    )


class StateOutsideNodeError(TraceError):
    """State was declared or updated while its node is not open."""

    what = "annotate.{call}({node!r}, ...) was called at {where}, but no node {node!r} is open."
    remedy = (
        "Call it between annotate.input_tensors({node!r}, ...) and annotate.output_tensors({node!r}, ...); open nodes: "
        "{open}."
    )


class StateStartError(TraceError, ValueError):
    """A state starts from a value that its own node has computed."""

    what = "Node {node!r}: state {state!r} starts from a value computed inside the node ({where})."
    remedy = "Let it start from a plain tensor or array, or from an input as it came in: the first tick then copies that input."


class StateFedError(TraceError, ValueError):
    """A declared state was handed the output of another node."""

    what = "Node {node!r}: state {state!r} was handed the output {source} of another node ({where})."
    remedy = (
        "A declared state is fed by its own next value alone. Where the value comes from another node at every tick, "
        "declare it with annotate.input_tensors() and its next value with annotate.output_tensors(): such feedback is "
        "seen by itself. Where only the start comes from it, declare that as an input and let the state start from it."
    )


class StateKindError(TraceError, TypeError):
    """Something other than a tensor or array was declared as state."""

    what = "Node {node!r}: state {state!r} is a {kind}, not a tensor or array ({where})."
    remedy = (
        "States are flat: give each tensor or array a name of its own, {{'h': h, 'c': c}}. A Python number becomes one "
        "with torch.tensor(x) or np.float32(x), before the first tick."
    )


class StateNameError(TraceError, ValueError):
    """A state has a name that the node uses already."""

    what = "Node {node!r}: state {state!r} cannot have this name: {why} ({where})."
    remedy = "Rename one of the two; an updated state is an input and an output of the node under its one name."


class UnknownStateError(TraceError, LookupError):
    """``update_state`` for a name that was not declared."""

    what = "Node {node!r}: state {state!r} was updated at {where}, but not declared in this entry; declared: {known}."
    remedy = (
        "Declare it after annotate.input_tensors(): {state} = annotate.state_tensors({node!r}, {{{state!r}: start}})."
    )


class StateUpdatedTwiceError(TraceError):
    """``update_state`` for a state that has its next value already."""

    what = "Node {node!r}: state {state!r} was updated twice in one entry, at {first} and at {second}."
    remedy = "Call annotate.update_state() once, with the last value."


class StateFormError(TraceError, ValueError):
    """The next value of a state has another shape or dtype than the state."""

    what = "Node {node!r}: state {state!r} is {old} (declared at {declared}), its next value at {where} is {new}."
    remedy = (
        "Both must agree: reshape or cast the next value, or declare the state in the form that it has from the second "
        "tick on."
    )


class ModuleKindError(TraceError, TypeError):
    """``annotate.module`` was given something else than a module."""

    what = "annotate.module({node!r}, ...) was given a {kind} ({where})."
    remedy = "Give it the torch.nn.Module whose registered buffers the node reads and writes."


class UnknownBufferError(TraceError, LookupError):
    """``annotate.module`` was told of a buffer that the module does not have."""

    what = "Node {node!r}: {module} has no registered buffer {buffer!r} ({where}); it has: {known}."
    remedy = (
        "Name buffers as model.named_buffers() does. A plain attribute becomes one with register_buffer(name, tensor)."
    )


class BufferStateError(TraceError, ValueError):
    """A registered buffer changed in a way that no state can."""

    what = "Node {node!r}: buffer {buffer!r} of {module} cannot be state: {why} ({where})."
    remedy = "{advice}."


class WireConflictError(TraceError, ValueError):
    """One input was fed by different outputs in different entries of its node."""

    what = (
        "Node {node!r}: input {port!r} came from {first} at entry {entry} and from {second} at entry {later}; a pipeline "
        "has one wire for it."
    )
    remedy = (
        "Declare an input for each and choose between them inside the node (torch.where). Where {first} is only the "
        "start of what is fed back later: declare it as an input, and a state that starts from it, "
        "x = annotate.state_tensors({node!r}, {{'x': start}})."
    )


class NodeNotClosedError(TraceError):
    """A node was opened and never closed."""

    what = "Node {node!r}, opened at {where}, was never closed."
    remedy = "Call annotate.output_tensors({node!r}, {{...}}) on every path through the code."


class NodeOriginError(TraceError):
    """One node name was opened by two places in the code."""

    what = "Node {node!r} was opened at {first} and again at {second}."
    remedy = "Give the two places different node names."


class NodeReopenedError(TraceError):
    """``input_tensors`` for a node whose computation has already begun with the same ports."""

    what = "Node {node!r}: input {port!r} was declared twice, at {first} and at {second}."
    remedy = (
        "Close the node with annotate.output_tensors({node!r}, ...) before it is entered again; after an exception "
        "inside it, call leapp.stop() and start a new session."
    )


class PortCollisionError(TraceError, ValueError):
    """Two ports flatten to one name."""

    what = "Node {node!r}: {first} and {second} both flatten to the {direction} port {port!r}."
    remedy = "Rename one of the keys; nested keys are joined with '_'."


class OnnxNameError(PortCollisionError):
    """ONNX needs another name for a port, and a second port has that name."""

    what = "Node {node!r}: the ports {first!r} and {second!r} would both be {port!r} in ONNX."
    remedy = "Rename one of them: a name that is an input and an output gets '_in' and '_out' there."


class SharedInputError(TraceError, ValueError):
    """One tensor was declared as two inputs of a node."""

    what = "Node {node!r}: inputs {first!r} and {second!r} are the same memory."
    remedy = "Declare it once, or hand in a copy as {second!r}: .clone() of a tensor, .copy() of an array."


class InputWrittenError(TraceError):
    """An input's memory changed while its node was open, and no recorded write explains it."""

    what = "Node {node!r}: the memory of input {port!r} was written while the node was open, by a write that was not recorded."
    remedy = "Write through the value that annotate.input_tensors() returned, not through an earlier view of it."


class SampleMismatchError(TraceError, ValueError):
    """A node was entered again with other ports, shapes or dtypes."""

    what = "Node {node!r} was entered again with another interface: {difference}."
    remedy = "A node has one interface; use another node name for another one."


class RecordingsDifferError(TraceError):
    """A node was entered again and computed something else."""

    what = "{seen}Node {node!r} was recorded {count} times and its computation differs: {difference} ({where})."
    remedy = "{first}The graph depends on data or on Python state: {advice}."


class DataDependentBranchError(TraceError):
    """Python decided on a traced value."""

    what = "A Python branch on a traced value in node {node!r} at {where} ({op})."
    remedy = (
        "Only the side that was taken would be exported. Use {instead}, or allow it: "
        'allow={{"branches": ["{function}"]}}.'
    )


class LeftTraceError(TraceError):
    """Under strictness, what else is a warning: something left the trace."""

    what = "{detail}"
    remedy = "It is an error because strictness was asked for (LEAPP_STRICT=1, leapp build --strict)."


class WrongThreadError(TraceError):
    """A traced value was used in another thread than its node's."""

    what = "A traced value of node {node!r} was used in thread {thread!r} at {where}; the node was opened in {owner!r}."
    remedy = (
        "Compute a node in one thread, or hand the other thread a plain copy, made outside a node: value.detach().clone() "
        "of a tensor, value.copy() of an array."
    )


class ConstantKindError(TraceError, ValueError):
    """A constant that no model file can hold."""

    what = "Node {node!r}: a {kind} tensor was used at {where}; it cannot be stored as a constant."
    remedy = "Convert it first: {advice}."


class ConstantChangedError(TraceError):
    """A large constant kept by reference was changed before it was written."""

    what = "Node {node!r}: the constant {name!r} changed between its use and leapp.compile_graph()."
    remedy = "Call compile_graph() before training goes on, or clone the weights first."


class MirrorError(TraceError, ValueError):
    """``mirror_leapp_tags`` was given two different things."""

    what = "annotate.mirror_leapp_tags(): the target does not hold the values of {source}: {why}."
    remedy = "Mirror only copies; compute what differs inside a node."


class UnrecordableOpError(TraceError):
    """A call that cannot be written down as a graph node."""

    what = "Node {node!r}: {op} at {where} cannot be recorded: {why}."
    remedy = "{advice}"


class TwinDisagreesError(TraceError):
    """The torch equivalent of a NumPy call gave something else than NumPy."""

    what = (
        "Node {node!r}: {op} at {where} is {expected} in NumPy and {actual} in its torch equivalent{shown}; the "
        "exported model would compute something else."
    )
    remedy = "Please report this call with its arguments; start(..., self_check=False) records it unchecked."


class MalformedGraphError(TraceError):
    """A graph breaks a rule that every later stage relies on."""

    what = "Node {node!r}: the recorded graph is malformed: {problem}.\n{excerpt}"
    remedy = "This is a fault of LEAPP, or of a graph pass; please report it with the lines above."


class NotReplayableError(TraceError):
    """A recording does not give back the outputs it was recorded with."""

    what = "{seen}Node {node!r}: the recorded graph does not give the traced output {port!r}: {detail}."
    remedy = (
        "Something took part in the computation that was not recorded: an autocast context, a write through NumPy, or "
        "a random draw. Move it out of the node.{signs}"
    )


# --- what leaves the trace (warnings) ------------------------------------------------------------------------------


class TraceEscapeWarning(LeappWarning):
    """A traced value became a plain Python value."""

    what = "{op} at {where} reads a traced value of node {node!r}; what is computed from it is frozen in the export."
    remedy = 'Stay in tensors and arrays, or say that it is meant: allow={{"escapes": ["{function}"]}}.'


class UntracedOpWarning(LeappWarning):
    """A traced value went through a call that was not recorded."""

    what = (
        "{op} at {where} took a traced value of node {node!r} and was not recorded; its result is frozen in the export."
    )
    remedy = (
        "Write it with torch or NumPy operations, supply the equivalent with FunctionPatch, or say that the result is "
        'meant to be fixed: annotate.constant(value), or allow={{"untraced": ["{function}"]}}.'
    )


class UnseenWriteWarning(UntracedOpWarning):
    """A traced value was assigned to elements of an array whose writes are not seen."""

    what = (
        "{op} at {where} writes a traced value of node {node!r} into a plain array, of which NumPy tells nobody; what "
        "the array holds is frozen in the export."
    )
    remedy = (
        "Make the array inside the node with np.array(), np.copy() or np.zeros(), whose writes are seen, or declare it as "
        "an input; as state (annotate.state_tensors), where it outlives the node."
    )


class UnseenStateWarning(UnseenWriteWarning):
    """A traced value was assigned to elements of a plain array that outlives the node: it is state."""

    what = (
        "{op} at {where} writes a traced value of node {node!r} into {array}, a plain array that outlives the node: it is "
        "state, and what it holds is frozen in the export."
    )
    remedy = (
        "Declare it: {array} = annotate.state_tensors({node!r}, {{{state!r}: {array}}}) before it is used, whose writes "
        "are seen, and annotate.update_state({node!r}, {{{state!r}: {array}}}) before the outputs."
    )


class NoTwinWarning(UntracedOpWarning):
    """A NumPy call that has no torch equivalent ran, and was not recorded."""

    what = (
        "No torch equivalent for numpy function {op}. Operation will not be traced.{why} It took a traced value of node "
        "{node!r} at {where}; its result is frozen in the export."
    )
    remedy = "Write it with functions that docs/numpy.md lists, or supply one with FunctionPatch."


class RandomOpWarning(LeappWarning):
    """Random numbers were drawn inside a node."""

    what = "{op} at {where} draws random numbers in node {node!r}; {effect}."
    remedy = 'Call .eval() on modules, move the draw out of the node, or say that it is meant: allow={{"random": ["{function}"]}}.'


class HiddenStateWarning(LeappWarning):
    """A tensor or array that outlives the node carries values from tick to tick."""

    what = "A tensor or array that outlives node {node!r} is written at {where} and its old content reaches an output."
    remedy = (
        "Declare it: {state} = annotate.state_tensors({node!r}, {{{state!r}: {state}}}), and annotate.update_state({node!r}, {{{state!r}: next}}) "
        "before the outputs; for registered buffers of an nn.Module, annotate.module({node!r}, module) does both. Where it is "
        "cleared first (x.zero_()), x = annotate.register_buffer({node!r}, x) before that lets the clearing be seen."
    )


class UnusedInputWarning(LeappWarning):
    """Declared inputs that the exported model does not need."""

    what = (
        "Node {node!r}: detected the following inputs are not used in the computation or directly returned as output: "
        "{ports}"
    )
    remedy = (
        "Drop them from annotate.input_tensors(), unless the wider interface is meant. If they should matter, the trace "
        "was lost on the way: in compiled code, or in a plain array that was filled from them."
    )


class StateNotUpdatedWarning(LeappWarning):
    """A state was declared, and its next value was never given."""

    what = "Node {node!r}: state {state!r}, declared at {where}, has no next value: it leaves as an ordinary input."
    remedy = (
        "Call annotate.update_state({node!r}, {{{state!r}: value}}) before the node is closed; or declare it with "
        "annotate.input_tensors(), where the caller is meant to give it at every tick."
    )


class UnfinishedEntryWarning(LeappWarning):
    """A node was opened again by the line that had opened it, and was never closed in between."""

    what = "Node {node!r} was opened again at {where} without having been closed; the unfinished entry is dropped."
    remedy = (
        "After an exception inside the node this is right. Else close it: annotate.output_tensors({node!r}, {{...}})."
    )


class UnknownNodeWarning(LeappWarning):
    """``non_traced`` names a node that was never annotated."""

    what = "leapp.start(non_traced=...) names {node!r}, and no node of that name was annotated."
    remedy = "{near}Annotated nodes: {known}."


class WireLostWarning(LeappWarning):
    """A value computed between two nodes was declared as an input."""

    what = "Node {node!r}: input {port!r} was computed outside every node from {source}, so the wire is lost ({where})."
    remedy = "Move that computation into a node, or call annotate.mirror_leapp_tags(source, target) when the values are equal."


class UnseenCopyWarning(LeappWarning):
    """An input from outside held, bit for bit, what an output gave: a copy that no wire could follow."""

    what = (
        "Node {node!r}: input {port!r} ({where}) {held} {source} at each tick but the first, and no wire leads there."
    )
    remedy = (
        "Copied by code that nobody sees (tolist(), a message, a file)? Declare the output itself, or call "
        "annotate.mirror_leapp_tags(output, copy) first. If it is measured, all is well."
    )


class WireMeaningWarning(LeappWarning):
    """The two ends of a wire say different things of the one value that it carries."""

    what = "Wire {source} -> {target}: {key} is {first!r} where it begins and {second!r} where it ends."
    remedy = "One of the two is wrong, or the value has to be reordered or converted inside a node."


class SessionReplacedWarning(LeappWarning):
    """``start`` was called while a session was open."""

    what = "leapp.start({second!r}) was called while the session {first!r} was open; {first!r} is dropped."
    remedy = "Call leapp.stop() before the next leapp.start()."


# --- export --------------------------------------------------------------------------------------------------------


class ExportError(LeappError, RuntimeError):
    """A recording cannot be written in a format."""


class UnknownFormatError(ExportError, ValueError):
    """A format name that does not exist."""

    exit_code = 2
    what = "Unknown export format {format!r} for node {node!r}."
    remedy = "{near}Known formats: {known}."


class FormatConflictError(ExportError, ValueError):
    """Two formats that write the same file."""

    exit_code = 2
    what = "Node {node!r}: the formats {first!r} and {second!r} both write {file!r}."
    remedy = "Ask for one of them."


class NoOutputsError(ExportError, ValueError):
    """A node that is to be exported has no outputs."""

    what = "Node {node!r} has no outputs, so there is nothing to export ({where})."
    remedy = "Name what it gives in annotate.output_tensors(), or export nothing of it: export_with=None."


class BroughtModelError(ExportError, ValueError):
    """A finished model that a node brings cannot be its artifact."""

    exit_code = 2
    what = "Node {node!r} brings the model {path}: {why}."
    remedy = "{advice}"


class BroughtFileMissingError(ExportError, FileNotFoundError):
    """The model file that a node brings does not exist."""

    exit_code = 2
    what = "Node {node!r} brings the model {path}, and there is no such file."
    remedy = "A relative path is looked up from the working folder, {folder}."


class BroughtPortsError(ExportError, ValueError):
    """The ports of a node are not those of the model that it brings."""

    exit_code = 2
    what = "Node {node!r} brings the model {file}: {why}."
    remedy = "Declare what the file has. Inputs: {inputs}. Outputs: {outputs}."


class UnsupportedOpError(ExportError):
    """A format cannot hold an operation or a constant."""

    what = "Node {node!r}: {format} cannot hold {op} ({where}): {why}"
    remedy = "Write it with other torch operations, or export this node in another format."


class ArtifactLoadError(ExportError):
    """An artifact could not be loaded again."""

    what = "{path} could not be loaded as {format}: {why}"
    remedy = "Rebuild the bundle; if it persists, export this node in another format."


class ValidationError(LeappError, AssertionError):
    """Replayed artifacts do not give the traced outputs."""

    what = "{count:node does|nodes do} not give what was traced:\n{detail}"
    remedy = (
        "evidence/checks.json and `error.facts['reports']` hold all figures; compile_graph(strict=False) returns the "
        "reports and marks the bundle as failed instead of raising."
    )


class MissingDependencyError(LeappError, ImportError):
    """An optional library is needed and not installed."""

    exit_code = 2
    what = "{what_for} needs {package}, which is not installed."
    remedy = "Install it: {command}"


class OtherPackageError(LeappError, ImportError):
    """Another package named ``leapp`` is installed, and some of its files stand where ours belong."""

    exit_code = 2
    what = "Another package, leapp {version}, is installed where leapp-build has its files, and replaced some of them."
    remedy = "Remove it and restore ours: {command}"


class ValidationWarning(LeappWarning):
    """A node failed its checks and ``strict`` was off."""

    what = "Node {node!r} failed its checks; the bundle is marked as failed:\n{detail}"
    remedy = "Do not deploy it; compile_graph(strict=True) makes this an error."


# --- bundles -------------------------------------------------------------------------------------------------------


class BundleError(LeappError, RuntimeError):
    """A bundle cannot be read or written."""


class NotABundleError(BundleError, FileNotFoundError):
    """A folder is not a bundle."""

    exit_code = 2
    what = "{path} is not a bundle: {why}."
    remedy = "{advice}"


class PartialBundleError(BundleError, ValueError):
    """A bundle that ``leapp build --only`` wrote is to be used as if it were whole."""

    exit_code = 2
    what = "{path} has the models of one node alone: `leapp build --only` wrote it."
    remedy = "`leapp build MANIFEST` writes all of them; `leapp replay {path}` replays this node."


class BundleFormatError(BundleError, ValueError):
    """A file of a bundle does not have the form its schema demands."""

    what = "{path}: {why}."
    remedy = "The bundle was damaged or edited by hand; build it again."


class BundleTooNewError(BundleError):
    """A bundle needs a newer reader."""

    exit_code = 2
    what = "{path} needs reader level {needs}; this leapp reads up to {has}."
    remedy = "Install a newer leapp-build; `leapp doctor` shows which one runs, and the command."


class ForeignFolderError(BundleError, FileExistsError):
    """A folder that was not made by LEAPP would be replaced."""

    exit_code = 2
    what = "{path} is not empty and holds no bundle.json of ours; it is left as it is."
    remedy = "Choose another output folder, or empty this one yourself."


class NotAFolderError(BundleError, NotADirectoryError):
    """The place for a bundle is taken by something other than a folder."""

    exit_code = 2
    what = "{path} is {kind}, not a folder; it is left as it is."
    remedy = "Choose another output folder."


class NestedBundleError(BundleError, FileExistsError):
    """A bundle would be written inside another one, or replace a folder that holds another one."""

    exit_code = 2
    what = "{path} cannot be written: {inner} lies inside the bundle {outer}."
    remedy = "Give every pipeline a folder of its own, none inside another."


class BundleLinkError(BundleError, ValueError):
    """A link, a pipe or a device lies where only plain files may."""

    what = "{path} is {kind}; a bundle holds plain files and folders only."
    remedy = "Put a copy of the file in its place."


class BundleValueError(BundleError, ValueError):
    """A value cannot be written into a bundle's metadata."""

    exit_code = 2
    what = "{where}: {why}."
    remedy = "Metadata holds text, finite numbers, booleans, None, and lists and text-keyed maps of these."


class BundleDigestError(BundleError, ValueError):
    """A file of a bundle is not the one that was written when it was built."""

    what = "{path} was changed after the bundle was built: sha256 {found} instead of {expected}."
    remedy = "`leapp verify` lists all that changed; build the bundle again or fetch it anew."


class NotInBundleError(BundleError, LookupError):
    """A bundle has no such node, artifact or file."""

    exit_code = 2
    what = "The bundle {bundle} has no {kind} {name!r}."
    remedy = "It has: {known}."


class BundleFileGoneError(NotInBundleError):
    """A file that belongs to a bundle is no longer in its folder."""

    what = "{path} is missing; it is part of the bundle {bundle}."
    remedy = "Copy the bundle again as a whole, or build it again; `leapp verify {bundle}` lists all that is missing."


class BundleWriteError(BundleError, OSError):
    """The operating system refused to write a bundle; what stood at its place is unchanged."""

    what = "{path} could not be written: {why}; what stood there before is unchanged."
    remedy = "Check free space and permissions of that folder, then build again."


class PictureError(BundleError, RuntimeError):
    """A pipeline could not be drawn."""

    what = "The picture of {name!r} could not be drawn: {why}."
    remedy = "The bundle is complete without it; `leapp inspect BUNDLE` tells the same in words."


class SnippetError(BundleError, LookupError):
    """A bundle cannot be run in the language that was asked for."""

    exit_code = 2
    what = "Nothing in {language} runs {node!r}: it needs {needed}, and there is: {known}."
    remedy = "Export the node in that format as well, or ask for another language."


class ThreadsError(OptionError):
    """A number of threads that is none."""

    what = "{option}={value!r}: {why}."
    remedy = "Give InferenceManager(threads=...), or --threads of `leapp run`, 1 or more; 1 is what it is by default."


class OutputFileError(LeappError, OSError):
    """A file that a command was to write could not be written."""

    exit_code = 2
    what = "{path} could not be written: {why}."
    remedy = "Name a file in a folder that exists and may be written."


# --- running a bundle ----------------------------------------------------------------------------------------------


class RunError(LeappError, RuntimeError):
    """A pipeline cannot be run from its bundle, or a tick of it was refused."""


class PipelineInputError(RunError, ValueError):
    """A value that was given to a running pipeline is missing, or of another kind, shape or dtype."""

    exit_code = 2
    what = "Input {port!r}: {why}."
    remedy = "Nothing was run and no state was changed; get_mock_input() gives inputs that fit."


class InputsKindError(PipelineInputError):
    """Something other than a dict of inputs was given to a running pipeline."""

    what = "A {kind} was given as the inputs of a tick, in place of a dict from node/port to its value."
    remedy = "Nothing was run and no state was changed; write run_policy({{{example!r}: value}})."


class UnknownPortError(RunError, KeyError):
    """A key that names no port, or none that can be given a value."""

    exit_code = 2
    what = "{port!r} {why}."
    remedy = "{near}There are: {known}."

    def __str__(self) -> str:
        """The text as it is: a KeyError would show it as a quoted string."""
        return str(self.args[0])


class UnknownNodeNameError(RunError, KeyError):
    """A node was named that the pipeline does not have."""

    exit_code = 2
    what = "{option} names {node!r}, which is no node of this pipeline."
    remedy = "{near}Its nodes: {known}."

    def __str__(self) -> str:
        """The text as it is: a KeyError would show it as a quoted string."""
        return str(self.args[0])


class NodeFailedError(RunError):
    """A node's model raised an error, or gave something other than the contract says."""

    what = "Node {node!r} failed as {backend}: {why}."
    remedy = "The tick was undone: state and outputs are those of the tick before."


class GuardError(RunError, ArithmeticError):
    """With ``guard``, an output was not finite or outside its declared range."""

    what = "Output {port!r} is {value} at {element}: {why}."
    remedy = "The tick was undone: state and outputs are those of the tick before. Stop, or go on with other inputs."


class GuardInputError(GuardError):
    """With ``guard``, an output was not finite or out of range, and an input that was given was not finite itself."""

    what = "Input {input!r} was given {given} at {place}; then output {port!r} is {value} at {element}: {why}."
    remedy = "The tick was undone: state and outputs are those of the tick before. Look at where that input comes from."


class GuardRangeError(GuardError):
    """With ``guard``, an input was given a value outside its declared range."""

    what = "Input {port!r} was given {value} at {element}: {why}."
    remedy = (
        "The tick was undone: state and outputs are those of the tick before. Clip the input before it is handed in, or "
        "declare the range that it has."
    )


class NoModelError(RunError, ValueError):
    """A node without a model file is to be run, or without one in the format that was asked for."""

    exit_code = 2
    what = "Node {node!r} has no model file{wanted}: {why}."
    remedy = "{advice}."


class ModelNotFoundError(RunError, FileNotFoundError):
    """A model file lies neither in the bundle nor in ``model_dirs``."""

    exit_code = 2
    what = "Node {node!r}: its model file {file!r} was not found in {places}."
    remedy = "Give the folder that holds it: InferenceManager(path, model_dirs=[...]), or --model-dir of the command."


class ModelDigestError(RunError, ValueError):
    """A file is not the one that the runtime file names."""

    what = "{path} is not the file that was exported: {algorithm} {found} instead of {expected}."
    remedy = "Fetch the bundle anew, or name the folder with the right file in model_dirs; nothing of it was loaded."


class TickLogError(RunError, ValueError):
    """A file of inputs or a log of ticks cannot be used."""

    exit_code = 2
    what = "{path}: {why}."
    remedy = "Its keys are NODE/PORT, the same value at every tick, or TICK/in/NODE/PORT with ticks from 0."


class ReplayArgumentsError(RunError, ValueError):
    """``leapp replay`` was not told which bundle to play a log through."""

    exit_code = 2
    what = "leapp replay takes one bundle with one log; {bundles:bundle|bundles} and {logs:log|logs} were given."
    remedy = "Write `leapp replay BUNDLE LOG.safetensors`, once for each log; bundles alone may be several."


class HiddenModelStateWarning(LeappWarning):
    """A brought model remembers something from call to call by itself."""

    what = "Node {node!r}: its model keeps state inside itself ({names})."
    remedy = (
        "reset() does not reach it, and a tick that fails does not take it back. Bring a model that takes its state as an "
        "input and gives the next one as an output."
    )


class FailedBundleWarning(LeappWarning):
    """A bundle is run that a check of its build refused."""

    what = "{path} is marked as failed: a model file did not reproduce what was recorded."
    remedy = "Do not deploy it; `leapp replay {path}` shows what differs."


# --- manifests and builds ------------------------------------------------------------------------------------------


class ManifestError(LeappError, ValueError):
    """A manifest has problems; all of them are listed."""

    exit_code = 2
    what = "{count:problem|problems} in manifests:\n{detail}"
    remedy = "`leapp schema` prints the JSON Schema of a manifest; `leapp check` validates without building."


class NoManifestsError(LeappError, FileNotFoundError):
    """No manifest was named, and the folder that is looked into then does not exist."""

    exit_code = 2
    what = "There is no {folder}/ in {here}."
    remedy = "{advice}"


class CostsError(LeappError, ValueError):
    """A file of costs that does not hold any."""

    exit_code = 2
    what = "{file}: {why}."
    remedy = "`leapp plan --json > plan.jsonl` writes such a file; without --costs all pipelines weigh the same."


class NothingToMergeError(LeappError, FileNotFoundError):
    """A folder whose bundles were to be gathered has none."""

    exit_code = 2
    what = "Nothing can be gathered from {folder}: {why}."
    remedy = "Name the folders that `leapp build --shard I/N --out DIR` filled."


class MergedBundleError(LeappError, RuntimeError):
    """A bundle that was to be gathered is not sound."""

    what = "The bundle {bundle} cannot be gathered: {why}."
    remedy = "Fetch it again, or build its shard again; nothing was changed in the output folder before this bundle."


class BundlesDifferError(LeappError, RuntimeError):
    """Two shards built one pipeline, and not the same bundle."""

    what = (
        "{name} {version} was built twice, and differently:\n"
        "  {first}  sha256:{first_digest}\n  {second}  sha256:{second_digest}"
    )
    remedy = "`leapp diff {first} {second}` says why; nothing was gathered."


class ShardMissingError(LeappError, RuntimeError):
    """A pipeline of the manifests is in none of the folders that were gathered."""

    what = "{name} {version} is in none of {folders}."
    remedy = "Its shard failed or is missing; all shards have to plan the same manifests with the same costs."


class ScriptError(LeappError, ValueError):
    """``leapp init --from`` cannot make a manifest of a script."""

    exit_code = 2
    what = "{script}: {why}."
    remedy = "{advice}"


class NotWrittenByInitError(LeappError, ValueError):
    """``leapp init --force`` names a file that it would not write."""

    exit_code = 2
    what = "--force names {file}, which is not among what `leapp init` writes with these arguments."
    remedy = "It writes: {known}."


class BuildError(LeappError, RuntimeError):
    """A pipeline could not be built."""


class LockError(LeappError, ValueError):
    """A lock is not there or cannot be read; all its problems are listed."""

    exit_code = 2
    what = "{count:problem|problems} in a lock:\n{detail}"
    remedy = "`leapp lock` writes locks. Take a damaged one from version control again, or remove it and lock anew."


class LockPlatformError(LeappError, KeyError):
    """A lock does not speak of the platform of a bundle."""

    exit_code = 2
    what = "{lock} has no section for {platform}; it has {known}."
    remedy = "Compare with a bundle of one of these, or add the section with `leapp lock` on {platform}."

    __str__ = Exception.__str__  # KeyError's own puts the text in quotes


class LockNotMetError(BuildError, AssertionError):
    """A bundle is not the one that is locked."""

    what = "{subject}: the bundle is not the one that {lock} has for {platform}:\n{detail}"
    remedy = "{advice}"


class UnknownNodeError(BuildError, ValueError):
    """The manifest configures a node that the entry never opened."""

    exit_code = 2
    what = "{manifest}: [nodes.{node}] is not a node of this pipeline."
    remedy = "{near}Nodes that were recorded: {known}."


class StartNameError(BuildError, ValueError):
    """The manifest says how something starts that is no state or feedback input."""

    exit_code = 2
    what = "{where}: node {node!r} has no state or feedback input {name!r}{why}."
    remedy = "{advice}."


class StartPortError(BuildError, ValueError):
    """The manifest lets a state start as a copy of an input that it cannot be a copy of."""

    exit_code = 2
    what = "{where}: {name!r} of node {node!r} cannot start as a copy of {port!r}: {why}."
    remedy = "{advice}."


class ResetPortError(BuildError, ValueError):
    """A node cannot have the reset input that was asked for."""

    exit_code = 2
    what = "Node {node!r} cannot have the reset input {port!r} ({where}): {why}."
    remedy = "{advice}."


class NoSuchPortError(BuildError, ValueError):
    """A manifest, or ``start(allow=...)``, names ports that were not recorded."""

    exit_code = 2
    what = "{manifest}: {count:name stands|names stand} for no port:\n{detail}"
    remedy = "Ports that were recorded: {known}."


class JointNamesMissingError(BuildError, ValueError):
    """A port holds a value per joint, and nothing says which joint comes where."""

    what = "{manifest}: {count:port of joints has|ports of joints have} no element names:\n{detail}"
    remedy = (
        "Name the joints in order: TensorSemantics(..., element_names=[...]), or {example} with element_names = [...] in "
        "the manifest. Where that is not needed: [allow] no-element-names = [{ports}]."
    )


class ManifestWinsWarning(LeappWarning):
    """A manifest says something else of a port than the script; kept as a note."""

    what = "Port {port!r}: {key} = {script!r} of the script gives way to {manifest!r} ({where})."
    remedy = "Say it in one place."


class OnlyNodeError(BuildError, ValueError):
    """``--only`` names a node that was not recorded."""

    exit_code = 2
    what = "{manifest}: --only {node!r} is not a node of this pipeline."
    remedy = "{near}Nodes that were recorded: {known}."


class EntryMissingError(BuildError, ValueError):
    """The entry's callable does not exist."""

    exit_code = 2
    what = "Entry {entry!r}: {why}."
    remedy = "{advice}"


class EntryFailedError(BuildError):
    """The entry raised, exited or was killed."""

    exit_code = 3
    what = "Entry {entry!r} {how}."
    remedy = "The session's output is in {log}."


class EntryVariableError(EntryFailedError):
    """The entry wants a variable of the environment that its session does not have."""

    what = "Entry {entry!r} {how}."
    remedy = "{advice} The session's output is in {log}."


class EntryTimeoutError(EntryFailedError):
    """The entry ran out of time."""

    what = "Entry {entry!r} did not finish within {timeout_s} s and was ended."
    remedy = "Raise [session] timeout_s, or give the entry less to do. The session's output is in {log}."


class FrozenDataError(BuildError):
    """What a pipeline computes follows the data or the dice of one run."""

    what = (
        "{manifest}: {count:thing in the recording belongs|things in the recording belong} to this run alone:\n{detail}"
    )
    remedy = (
        "Compute them from the inputs with torch operations, declare them as inputs, or say that they are meant: "
        "annotate.constant(value), or the function's name in [allow] of the manifest."
    )


class NotVariedError(FrozenDataError):
    """Inputs had the same values in every run, so what depends on them was not probed."""

    what = "{manifest}: {count:input|inputs} did not vary in the second run:\n{detail}"
    remedy = "Nothing was found that is frozen, and nothing can be said of what depends on these: do one of the two for each."


class StartNotFixedError(FrozenDataError):
    """State starts with a value that belongs to one run, and nothing says what it starts with elsewhere."""

    what = "{manifest}: {count:thing starts|things start} with a value of this run alone:\n{detail}"
    remedy = "Paste one of the lines for each into the manifest, or give the state the same start in every run."


class WorkerFaultError(BuildError):
    """A build worker broke in our code."""

    exit_code = 70
    what = "The build worker for {manifest} failed: {detail}"
    remedy = "This is a fault of LEAPP; please report it with the log {log}."


class NoSamplesError(BuildError, FileNotFoundError):
    """A bundle without recorded samples was to be replayed."""

    exit_code = 2
    what = "{bundle} holds no samples of node {node!r}: its evidence was left behind."
    remedy = "Replay the bundle that the build published; `leapp verify` needs no samples."


class InterpreterError(BuildError, ValueError):
    """The interpreter that a manifest asks for cannot be started."""

    exit_code = 2
    what = "{manifest}: [session] python = {python!r} cannot be started: {why}."
    remedy = "Name a Python interpreter, absolute or relative to the project root, that has leapp-build installed."


class NotReproducibleError(BuildError):
    """A second session of one pipeline gave another bundle."""

    what = "{manifest}: the bundle did not come out the same once more:\n{detail}"
    remedy = "Remove what it depends on, or declare it as an input; `leapp reproduce --vary NAME` runs one variation."


class UnknownVariationError(BuildError, ValueError):
    """``--vary`` names something that a reproduction does not vary."""

    exit_code = 2
    what = "There is no variation {name!r}."
    remedy = "{near}Variations: {known}."


class NoManifestError(BuildError, FileNotFoundError):
    """The manifest that a bundle was built from is not to be found."""

    exit_code = 2
    what = "{bundle}: its manifest was not found: {why}."
    remedy = "Name it: `leapp reproduce {bundle} --manifest FILE`."


class NetworkRefusedError(BuildError, ConnectionError):
    """The entry tried to reach another machine, and its manifest does not allow that."""

    what = "A connection to {host} was refused: a build must not depend on what another machine answers."
    remedy = "Declare local files under [session] inputs, or set [session] network = true."


class ChangedInputError(BuildError):
    """A file that the session read was changed while it ran."""

    what = "What the session read changed while it ran: {changes}."
    remedy = (
        "Build again when nobody writes there; an entry must not change its own inputs: let it write elsewhere, or read "
        "from a copy."
    )


class UndeclaredInputError(BuildError):
    """The session read files outside the project that its manifest does not name."""

    exit_code = 2
    what = "{manifest}: the entry read outside the project without having declared it: {files}."
    remedy = "Name them under [session] inputs (relative to the project root, ../ works), or keep them in the project."


class StoreObjectError(BuildError, LookupError):
    """The cache does not hold what it was asked for, or held something else under that digest."""

    what = "The cache {folder} has no sound object {digest}: {why}."
    remedy = "Build again: what is missing is made anew. `leapp cache verify` looks at all of them."


class CacheFolderError(BuildError, OSError):
    """``leapp cache`` could not read or change the cache folder."""

    exit_code = 2
    what = "The cache {folder} cannot be used: {why}."
    remedy = "Set LEAPP_CACHE to a folder that may be written; builds go on without a cache."


class ClusterAddressError(BuildError, ConnectionError):
    """``leapp build --dask`` was given an address at which no scheduler answers."""

    exit_code = 2
    what = "--dask {address}: {why}."
    remedy = "Give the address that `dask scheduler` prints, such as tcp://host:8786, or its scheduler file (.json)."


class WorkerDiffersError(BuildError):
    """A Dask worker has another project, tool chain or LEAPP than the machine that asks for the build."""

    exit_code = 2
    what = "{manifest}: the worker {worker} is not as this machine is:\n{detail}"
    remedy = (
        "Client and workers have to see the same project at the same path, and to have the same packages installed."
    )


class ClusterLostError(BuildError, ConnectionError):
    """A Dask cluster went away, or lost what it had built, before a pipeline was done."""

    what = "{manifest}: the cluster {address} did not finish it: {why}."
    remedy = "Nothing was published for this pipeline; look at the logs of scheduler and workers, and build again."


class WorkersKilledError(EntryFailedError):
    """Every Dask worker that was given a pipeline ended while it was at it."""

    what = "{manifest}: {count} workers were killed while they built it; the last one was {worker}."
    remedy = (
        "Mostly it wants more memory than they have; their logs say more. `leapp build` without --dask shows it too."
    )


class BuildCancelledError(BuildError):
    """The build was interrupted before this pipeline was done."""

    exit_code = 130
    what = "{manifest}: the build was interrupted."
    remedy = "Nothing was published for this pipeline; what was published before is as it was."
