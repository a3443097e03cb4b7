"""The nodes of one ``start()`` .. ``stop()``."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leapp._spec import UNSET, ExportFormat, Unset
from leapp.errors import (
    CompiledAroundNodeError,
    LeappWarning,
    LeftTraceError,
    MirrorError,
    ModuleKindError,
    NodeNotClosedError,
    NodeOriginError,
    OutputBeforeInputError,
    StateNotUpdatedWarning,
    StateOutsideNodeError,
    UnfinishedEntryWarning,
    UnseenCopyWarning,
    UnusedInputWarning,
    WireLostWarning,
    WrongThreadError,
)
from leapp.trace import crossings, made
from leapp.trace._arrays import is_array
from leapp.trace._lineage import PortId, Value, plain_class, value_of
from leapp.trace._lineage import plain as plain_thing
from leapp.trace._tree import Leaf, check_distinct, check_name, flatten
from leapp.trace.array_class import wrapped
from leapp.trace.constants import Casts, no_hooks, plain, same_bytes
from leapp.trace.dispatched import DispatchWatch
from leapp.trace.escapes import EscapePolicy
from leapp.trace.mode import NodeMode
from leapp.trace.module_state import original
from leapp.trace.node import CollectorPause, GivenModule, NodeTrace
from leapp.trace.patches import Patches
from leapp.trace.recording import Recording, as_tensor, tag_outputs
from leapp.trace.source import Place, caller, source_line
from leapp.trace.state import States, flat_states, form_of, form_text, port_of
from leapp.trace.tensor import mark, note_lost, unmark
from leapp.trace.variation import ModuleWatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leapp._patch import FunctionPatch
    from leapp._spec import BroughtModel
    from leapp.pipeline.copied import Copy
    from leapp.trace.variation import Variation

_COMPACT_AT = 4096


@dataclass(frozen=True)
class SessionOptions:
    """What ``leapp.start`` was told, resolved. ``folder`` is the output folder; file names use ``name``."""

    name: str
    folder: Path
    verbose: bool = False
    dry_run: bool = False
    non_traced: frozenset[str] = frozenset()
    max_cached_io: int = 5
    allow: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strict: bool | None = None
    """None: ``LEAPP_STRICT`` decides."""
    root: Path = field(default_factory=Path.cwd)
    """The folder that evidence names files relative to."""
    sentinel: bool = False
    """Name operations that took a traced value and were not recorded; strict sessions do so in any case."""
    global_patching: bool = True
    """Wrap the constructors and crossings of NumPy that no hook sees."""
    patching: tuple[FunctionPatch, ...] = ()
    """Equivalents of native functions, used for calls with traced values."""
    self_check: bool = True
    """Compare each NumPy call with its torch equivalent at once."""
    watch_modules: bool = False
    """Note the weights of every module at its first call, for a second session to start from."""
    variation: Variation | None = None
    """How this session differs from a first one."""


class Session:
    """Everything that is true of one trace session; builds and tests make their own."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.root = options.root
        self.active = True
        self.escapes = EscapePolicy(options.root, options.allow)
        if options.strict is not None:
            self.escapes.strict = options.strict
        self.escapes.progress = self._progress
        self.nodes: dict[str, NodeTrace] = {}
        self.completed: list[NodeTrace] = []
        """Nodes in order of their first completion."""
        self.order: list[tuple[str, int | None]] = []
        """Node and entry, as they were closed. Of entries that are not recorded any more (None) each node has one at
        most between two that are: enough to tell that they happened, however long the session goes on."""
        self._passed: set[str] = set()
        self.warnings: list[LeappWarning] = []
        self._lock = threading.RLock()
        self._open: dict[int, list[Recording]] = {}
        self._modes: dict[int, NodeMode] = {}
        self._sentinel = options.sentinel or self.escapes.strict
        self.own_modes = int(self._sentinel)
        """How many dispatch modes of an open node's thread are ours, outside a region."""
        self.casts = Casts()
        self._collector = CollectorPause()
        self._references: list[weakref.ref[torch.Tensor]] = []
        self._compact_at = _COMPACT_AT
        self._lost: dict[int, tuple[weakref.ref[Any], PortId]] = {}
        """id of a plain array -> the array, and the output that it was computed from outside every node."""
        self._static: dict[int, tuple[weakref.ref[Any], PortId, torch.Tensor | None]] = {}
        """id of a static output -> the object, and its port."""
        self.modules = ModuleWatch(options.variation.weights if options.variation is not None else None)
        crossings.begin(self)
        self._patches = Patches(self, options.patching)
        self._patches.put()
        if options.watch_modules or options.variation is not None:
            self.modules.begin()

    # --- what the tracer asks -------------------------------------------------------------------------------------

    @staticmethod
    def thread() -> int:
        """Identifier of the running thread."""
        return threading.get_ident()

    @staticmethod
    def thread_name() -> str:
        """Name of the running thread."""
        return threading.current_thread().name

    def open_in_this_thread(self) -> Recording | None:
        """The innermost node that is being recorded in this thread."""
        stack = self._open.get(threading.get_ident())
        return stack[-1] if stack else None

    def is_passing(self, name: str) -> bool:
        """Whether an entry of a node is open that is not recorded."""
        node = self.nodes.get(name)
        return node is not None and node.passing

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Our mode active again, for code of the user's that runs inside a call which it has just handed on."""
        mode = self._modes.get(threading.get_ident())
        if mode is None or mode.is_active():
            yield
            return
        mode.activate()
        try:
            yield
        finally:
            mode.remove()

    def watch(self) -> DispatchWatch:
        """What sees this thread's dispatcher while a node is open in it."""
        return self._modes[threading.get_ident()].watch

    def _owns(self, array: Any) -> bool:
        """Whether a plain array lies in memory of the node that is open in this thread."""
        recording = self.open_in_this_thread()
        if recording is None:
            return False
        with no_hooks():
            return recording.sees_trace(array)

    def _progress(self) -> int:
        recording = self.open_in_this_thread()
        return len(recording.recorder.info) if recording is not None else 0

    def remember(self, tensor: torch.Tensor) -> None:
        """Note an object whose class must be given back when the session ends."""
        references = self._references
        references.append(weakref.ref(tensor))
        if len(references) > self._compact_at:
            references[:] = [each for each in references if each() is not None]
            self._compact_at = 2 * len(references) + _COMPACT_AT

    def warn(self, warning: LeappWarning, place: Place) -> None:
        """Issue a warning at the user's line and keep it for the report."""
        self.warnings.append(warning)
        if self.escapes.strict and not isinstance(warning, (UnusedInputWarning, StateNotUpdatedWarning)):
            raise LeftTraceError(detail=str(warning), warning=type(warning).__name__)
        warnings.warn_explicit(warning, None, place.code.co_filename, place.line)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def input_tensors(
        self, name: str, tensors: Any, *, place: Place | None = None, traced: bool = True
    ) -> Mapping[int, Any]:
        """Open a node, or declare further inputs of an open one; gives what stands for arrays, by their ids.

        ``place``: where the node comes from; None: the user's line that called. ``traced``: whether to record what is
        computed of the inputs; else they stay plain, and only the samples are kept.
        """
        place = place or caller()
        name = str(name)
        check_name("node", name)
        leaves = flatten(name, "input", tensors, is_port)
        with self._lock:
            node = self.nodes.get(name)
            if node is None:
                node = self.nodes[name] = NodeTrace(name, place)
            elif not node.is_open and (node.origin.code, node.origin.line) != (place.code, place.line):
                raise NodeOriginError(node=name, first=self._where(node.origin), second=self._where(place))
            self._check_thread(node, place)
            self._drop_unfinished(node, place, leaves)
            if node.current is None and not node.passing and len(node.recordings) >= self.options.max_cached_io:
                node.passing = True
                node.passing_thread = self.thread(), self.thread_name()
                node.passing_inputs.clear()
                node.passing_states = States(name, self._where)
            if node.passing:
                self._plain_inputs(leaves)
                with no_hooks():
                    node.passing_inputs.update({leaf.port: port_of(leaf) for leaf in leaves})
                return {}
            if node.current is None:
                self._begin(node, place, traced=traced)
            assert node.current is not None
            begins = not node.current.has_inputs
            try:
                with no_hooks():
                    made = node.current.add_inputs(leaves, place)
            except BaseException:
                if not node.current.has_inputs:
                    self.abandon(name)
                raise
            for each in node.modules if begins else ():
                model = each.model()
                if model is not None:
                    self._watch_module(node.current, model, each.names, each.place)
            return made

    def output_tensors(
        self,
        name: str,
        tensors: Any,
        static_outputs: Any = None,
        export_with: tuple[ExportFormat, ...] | Unset | None = UNSET,
        backend_params: Mapping[str, Any] | None = None,
        brought: BroughtModel | None = None,
        *,
        place: Place | None = None,
    ) -> Mapping[int, Any]:
        """Close a node; gives what stands for plain arrays that it returns, by their ids.

        ``brought``: the model that the node brings along; its outputs need not be recorded then. ``place``: where the
        node comes from; None: the user's line that called.
        """
        place = place or caller()
        name = str(name)
        leaves = flatten(name, "output", tensors, is_port)
        static: list[Leaf] = []
        if static_outputs:
            static = flatten(name, "output", static_outputs, is_port)
            check_distinct(name, "output", (*leaves, *static))
        with self._lock:
            node = self.nodes.get(name)
            if node is None or not node.is_open:
                opened = ", ".join(repr(each.name) for each in self.nodes.values() if each.is_open)
                raise OutputBeforeInputError(node=name, where=self._where(place), open=opened or "none")
            if node.passing:
                node.passing = False
                node.entries += 1
                if name not in self._passed:
                    self._passed.add(name)
                    self.order.append((name, None))
                following = node.passing_states.next_values() if node.passing_states is not None else ()
                self.note_static(name, [leaf for leaf in static if value_of(leaf.tensor) is None])
                computed = [leaf for leaf in static if value_of(leaf.tensor) is not None]
                last = node.recordings[-1]
                buffers = [leaf for leaf in last.state_buffers() if is_port(leaf.tensor)]
                with no_hooks():
                    node.check_passing((*leaves, *static, *following, *buffers))
                given = (*leaves, *computed, *following, *buffers)
                return tag_outputs(given, name, last, recorded=False, brought=brought is not None)
            recording = node.current
            assert recording is not None
            with no_hooks():
                made = recording.close(leaves, static, place, brought=brought is not None)
            self._end(node)
            self._passed.clear()
            self.order.append((name, len(node.recordings)))
            node.recordings.append(recording)
            node.entries += 1
            if len(node.recordings) == 1:
                node.export_with = export_with
                node.backend_params = dict(backend_params or {})
                node.brought = brought
                self.completed.append(node)
                if brought is None:
                    recording.warn_of_unused_inputs(leaves)
                    recording.warn_of_states_without_next_values()
            else:
                node.check_interface()
            return made

    def state_tensors(self, name: str, tensors: Any) -> Mapping[int, Any]:
        """Declare state of an open node; gives what stands for arrays, by their ids."""
        place = caller()
        name = str(name)
        leaves = flat_states(name, tensors, is_port, self._where(place))
        with self._lock:
            node = self._open_node(name, "state_tensors", place)
            if node.current is not None:
                with no_hooks():
                    return node.current.add_states(leaves, place)
            assert node.passing_states is not None
            node.passing_states.check_new(leaves, place)
            self._plain_inputs(leaves)
            node.passing_states.declare(leaves, range(len(leaves)), place)
            return {}

    def update_state(self, name: str, tensors: Any) -> None:
        """Note the next values of states."""
        place = caller()
        name = str(name)
        leaves = flat_states(name, tensors, is_port, self._where(place))
        with self._lock:
            states = self._open_node(name, "update_state", place).states
            assert states is not None
            with no_hooks():
                states.update(leaves, place)

    def module(self, name: str, model: Any, buffer_names: Sequence[str] | None) -> None:
        """Watch the registered buffers of a module in an open node, and in its later entries."""
        place = caller()
        name = str(name)
        if not isinstance(model, torch.nn.Module):
            kind = plain_class(type(model)) or type(model)
            what = f"{kind.__module__}.{kind.__qualname__}"
            raise ModuleKindError(node=name, kind=what, where=self._where(place))
        names = (
            None
            if buffer_names is None
            else tuple([buffer_names] if isinstance(buffer_names, str) else map(str, buffer_names))
        )
        model = original(model)
        with self._lock:
            node = self._open_node(name, "module", place)
            if node.current is not None:
                self._watch_module(node.current, model, names, place)
            if all((each.model(), each.names) != (model, names) for each in node.modules):
                node.modules.append(GivenModule(weakref.ref(model), names, place))

    def _watch_module(
        self, recording: Recording, model: torch.nn.Module, names: tuple[str, ...] | None, place: Place
    ) -> None:
        self.modules.meet(model)
        with no_hooks():
            recording.watch_module(model, names, place)

    def _open_node(self, name: str, call: str, place: Place) -> NodeTrace:
        node = self.nodes.get(name)
        if node is not None and node.is_open:
            return node
        opened = ", ".join(repr(each.name) for each in self.nodes.values() if each.is_open)
        raise StateOutsideNodeError(call=call, node=name, where=self._where(place), open=opened or "none")

    def _begin(self, node: NodeTrace, place: Place, *, traced: bool) -> None:
        if not traced:
            node.current = Recording(self, node.name, place, node.entries, traced=False)
            return
        thread = threading.get_ident()
        stack = self._open.setdefault(thread, [])
        if not stack and not crossings.node_opened():
            if not node.entries:
                del self.nodes[node.name]
            raise CompiledAroundNodeError(node=node.name, where=self._where(place))
        recording = Recording(self, node.name, place, node.entries)
        node.current = recording
        if not stack:
            mode = self._modes[thread] = NodeMode(self, DispatchWatch(self, sentinel=self._sentinel))
            mode.activate()
            if mode.watch.sentinel:
                mode.watch.activate()
            made.begin(self._owns)
        stack.append(recording)
        self._collector.begin()

    def _end(self, node: NodeTrace) -> None:
        recording = node.current
        if recording is None:
            return
        node.current = None
        recording.abandon()
        stack = self._open.get(recording.thread, [])
        if recording in stack:
            stack.remove(recording)
        if not stack and recording.thread == threading.get_ident():
            mode = self._modes.pop(recording.thread, None)
            if mode is not None:
                made.end()
                mode.remove()
                mode.watch.remove()
                crossings.node_closed()
        if not any(self._open.values()):
            self._collector.end()

    @staticmethod
    def _plain_inputs(leaves: Sequence[Leaf]) -> None:
        """Inputs of an entry that is not recorded are plain, where they are no outputs: nothing asks for them again."""
        for leaf in leaves:
            value = value_of(leaf.tensor)
            if value is None or value.origin is not None or not isinstance(leaf.tensor, torch.Tensor):
                continue
            if value.recording is None or not value.recording.open:
                unmark(leaf.tensor)

    def note_static(self, node: str, leaves: Sequence[Leaf], given: Mapping[str, torch.Tensor] | None = None) -> None:
        """Static outputs become wires too where they are declared as inputs; the user's objects stay plain.

        ``given``: their values by port, where they were kept.
        """
        if len(self._static) > _COMPACT_AT:
            self._static = {key: each for key, each in self._static.items() if each[0]() is not None}
        for leaf in leaves:
            if not isinstance(leaf.tensor, np.generic):  # which is nobody in particular
                port = PortId(node, leaf.port)
                self._static[id(leaf.tensor)] = weakref.ref(leaf.tensor), port, (given or {}).get(leaf.port)

    def static_origin(self, thing: Any) -> tuple[PortId, torch.Tensor | None] | None:
        """The port that a plain object left a node by, and the value it had then, where that is known."""
        found = self._static.get(id(thing))
        return found[1:] if found is not None and found[0]() is thing else None

    def note_lost(self, array: Any, origin: PortId) -> None:
        """A plain array was computed from an output outside every node."""
        key = id(array)
        self._lost[key] = weakref.ref(array, lambda _: self._lost.pop(key, None)), origin

    def lost_origin(self, array: Any) -> PortId | None:
        """The output that a plain array was computed from."""
        found = self._lost.get(id(array))
        return found[1] if found is not None and found[0]() is array else None

    def abandon(self, name: str) -> None:
        """Drop the open entry of a node, whose computation ended with an exception; it may be entered again."""
        with self._lock:
            node = self.nodes.get(name)
            if node is None or not node.is_open:
                return
            self._drop(node)
            if not node.entries:
                del self.nodes[name]

    def _check_thread(self, node: NodeTrace, place: Place) -> None:
        """Raise WrongThreadError where another thread has the node open, recorded or not."""
        recording = node.current
        owner = (recording.thread, recording.thread_name) if recording is not None else node.passing_thread
        if node.is_open and owner[0] != threading.get_ident():
            raise WrongThreadError(node=node.name, thread=self.thread_name(), where=self._where(place), owner=owner[1])

    def _drop_unfinished(self, node: NodeTrace, place: Place, leaves: Sequence[Leaf]) -> None:
        """The line that opened a node opens it again: what happened in between ended with an exception."""
        declared = node.current._inputs if node.current is not None else node.passing_inputs if node.passing else ()
        opened = node.current.place if node.current is not None else node.origin
        if place == opened and any(leaf.port in declared for leaf in leaves):
            self.warn(UnfinishedEntryWarning(node=node.name, where=self._where(place)), place)
            self._drop(node)

    def _drop(self, node: NodeTrace) -> None:
        if node.current is not None:
            self.escapes.forget(node.name, node.current.notes_before)
        self._end(node)
        node.passing = False

    # --- other annotations ------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> Any:
        """A value made inside a node is meant to be fixed; a probing session hands back the first session's."""
        recording = self.open_in_this_thread()
        if recording is None:
            return value
        self.escapes.meant(recording.name, caller())
        if self.options.variation is not None:
            value = self.options.variation.pinned(recording.name, len(recording.pinned), value)
        with no_hooks():
            if isinstance(value, torch.Tensor):
                recording.pinned.append(plain(value).clone())
            elif isinstance(value, np.ndarray):
                recording.mean(plain_thing(value))
                recording.pinned.append(np.array(plain_thing(value)))
            else:
                recording.pinned.append(plain_thing(value))
        return value

    def mirror(self, source: Any, target: Any) -> Any:
        """Let ``target`` carry the port of ``source``, or none where that has none; gives a traced view of an array."""
        value = value_of(source)
        if value is not None and value.recording is not None and value.recording.open:
            port = f"a value of node {value.recording.name!r}"
            raise MirrorError(source=port, why="the node is still open, and only its outputs have a port")
        origin = value.origin if value is not None and value.recording is not None else None
        with no_hooks():
            if value is None or value.recording is None or origin is None:
                return self._untagged(target, getattr(source, "_leapp", None))
            if not is_port(target):
                raise MirrorError(source=str(origin), why=f"it is a {type(target).__qualname__}, no tensor or array")
            form, wanted = form_of(target), form_of(source)
            if form != wanted:
                raise MirrorError(source=str(origin), why=f"it is {form_text(form)} instead of {form_text(wanted)}")
            if not same_bytes(*(plain(as_tensor(thing)) for thing in (source, target))):
                raise MirrorError(source=str(origin), why="the values differ")
            new = value.copied()
            if isinstance(target, torch.Tensor):
                mark(target, new, self)
                return target
            return wrapped(plain_thing(target), new)

    def _untagged(self, target: Any, source: Value | None) -> Any:
        """What mirrors a plain value is no output any more, and what mirrors a lost one is lost as well."""
        value = value_of(target)
        tagged = value is not None and value.origin is not None
        if value is not None and value.recording is not None and value.recording.open:
            return target
        if not isinstance(target, torch.Tensor):
            return plain_thing(target) if tagged else target
        if tagged:
            unmark(target)
        if source is not None and source.origin is not None:
            note_lost(target, source.origin, self)
        return target

    def register_buffer(self, name: str, tensors: Any) -> Mapping[int, Any]:
        """Trace plain buffers of an open node from here on; gives what stands for arrays, by their ids."""
        place = caller()
        name = str(name)
        things = tensors if isinstance(tensors, Mapping) else {"buffer": tensors}
        leaves = flatten(name, "buffer", things, is_port)
        with self._lock:
            node = self._open_node(name, "register_buffer", place)
            if node.current is None:
                return {}
            with no_hooks():
                return node.current.register_buffers(leaves, place)

    def copy_warning(self, copy: Copy, node: NodeTrace, port: str) -> tuple[UnseenCopyWarning, Place] | None:
        """What is said of an outer input that held an output, and the line that declares it.

        ``port``: its recorded name. None where the lost wire was told of already.
        """
        told = (each.facts for each in self.warnings if isinstance(each, WireLostWarning))
        if any((facts["node"], facts["port"]) == (node.name, port) for facts in told):
            return None
        place = node.place_of(port)
        held = "held, bit for bit, in part what is in" if copy.part else "held, bit for bit,"
        where = self._where(place)
        return UnseenCopyWarning(node=node.name, port=port, where=where, held=held, source=copy.output), place

    # --- end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End recording and give every object its own class back. Raises NodeNotClosedError afterwards if one is open.

        Idempotent: a session that was dropped is stopped as well.
        """
        if not self.active:
            return
        unclosed = [node for node in self.nodes.values() if node.is_open]
        for node in unclosed:
            self._end(node)
            node.passing = False
        self.active = False
        for node in self.nodes.values():
            for recording in node.recordings:
                recording.forget_modules()
        self._collector.end()
        made.forget()
        self.modules.end()
        self._patches.take_out()
        crossings.end(self)
        for reference in self._references:
            tensor = reference()
            if tensor is not None:
                unmark(tensor)
        self._references.clear()
        self.unclosed = unclosed

    unclosed: Sequence[NodeTrace] = ()

    def check_closed(self) -> None:
        """Raise NodeNotClosedError for a node that was open when the session ended."""
        for node in self.unclosed:
            raise NodeNotClosedError(node=node.name, where=self._where(node.origin))

    def _where(self, place: Place) -> str:
        return str(source_line(place, self.root))


def is_port(thing: Any) -> bool:
    """Whether an object can be a port."""
    return isinstance(thing, torch.Tensor) or is_array(thing)
