"""The ticks of a pipeline on memory that is allocated once.

There are two lanes, each with memory for all ports and the steps that compute on it. A tick runs in one lane; when all
of it went well, what is fed back is copied into the other lane, which is the next to run. Until then nothing that
counts was written: a tick that fails half-way leaves state and outputs as they were.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp.errors import NodeFailedError, PipelineInputError, UnknownPortError
from leapp.manifest.problems import did_you_mean
from leapp.runtime._modes import Modes
from leapp.runtime.values import Buffer, giver, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from leapp.runtime.models import Model, Step
    from leapp.runtime.plan import Plan

    Copy = Callable[[], Any]
    Read = Callable[[str], npt.NDArray[Any]]


class _Slots:
    """A number for each port that has a value of its own, and the number from which each input reads."""

    def __init__(self, plan: Plan, models: Mapping[str, Model]) -> None:
        self.plan = plan
        self.outputs = {key: at for at, key in enumerate(plan.outputs)}
        own = (key for key in plan.inputs if key not in plan.sources)
        self.owned = {key: at for at, key in enumerate(own, start=len(self.outputs))}
        self.inputs = {
            key: self.outputs[plan.sources[key]] if key in plan.sources else self.owned[key] for key in plan.inputs
        }
        self.count = len(self.outputs) + len(self.owned)
        # Outputs that a model writes in place, and those of torch that such a model reads.
        in_place = [node for node, model in models.items() if model.in_buffers]
        self.written = {self.outputs[key] for key in plan.outputs if key.partition("/")[0] in in_place}
        read = {self.inputs[key] for key in plan.inputs if key.partition("/")[0] in in_place}
        self.buffers = {*self.owned.values(), *self.written, *read}


class _Lane:
    """Memory for all ports, and the steps that compute on it."""

    def __init__(self, slots: _Slots, models: Mapping[str, Model], torch: Any) -> None:
        plan = slots.plan
        self._slots = slots
        specs = {at: plan.inputs[key].spec for key, at in slots.owned.items()}
        specs |= {at: plan.outputs[key].spec for key, at in slots.outputs.items()}
        self.buffers = {at: Buffer(specs[at], torch) for at in sorted(slots.buffers)}
        self._zeros = [
            self.buffers[at].tensor if at in self.buffers else Buffer(specs[at], torch).tensor
            for at in range(slots.count)
        ]
        self.cells: list[Any] = list(self._zeros)
        self.writers = {
            key: writer(key, plan.inputs[key].spec, self.buffers[at], torch) for key, at in slots.owned.items()
        }
        self.takes = [(key, self.writers[key]) for key in plan.outer_inputs]
        self.gives = {key: self._giver(at) for key, at in slots.outputs.items()}
        self.input_gives = {key: giver(self.buffers[at]) for key, at in slots.owned.items()}
        self.outer = [(key, self.gives[key]) for key in plan.outer_outputs]
        self.steps: list[tuple[str, Step]] = []
        self.starts: dict[str, list[tuple[str, Copy]]] = {}
        for node in plan.spec.nodes:
            inputs = [slots.inputs[f"{node.name}/{port.name}"] for port in node.inputs]
            outputs = [slots.outputs[f"{node.name}/{port.name}"] for port in node.outputs]
            self.steps.append((node.name, models[node.name].step(inputs, outputs, self.buffers, self.cells)))
        for key, source in _in_turn(plan.starts):
            copy = self.copy(slots.inputs[source], self.buffers[slots.owned[key]])
            self.starts.setdefault(key.partition("/")[0], []).append((key, copy))
        self.commits: list[Copy] = []

    def _tensors(self, at: int) -> bool:
        """Whether a slot's value is whatever tensor its model left in the cells."""
        return at < len(self._slots.outputs) and at not in self._slots.written

    def _giver(self, at: int) -> Copy:
        if not self._tensors(at):
            return giver(self.buffers[at])
        cells = self.cells

        def give() -> Any:
            return cells[at].clone()

        return give

    def copy(self, at: int, target: Buffer) -> Copy:
        """What copies a slot's value into ``target``."""
        cells = self.cells
        if self._tensors(at):
            return lambda: target.tensor.copy_(cells[at])
        return partial(np.copyto, target.array, self.buffers[at].array)

    def array(self, key: str) -> npt.NDArray[Any]:
        """The value of an output, to look at; bfloat16 as float32."""
        at = self._slots.outputs[key]
        bits = self._slots.plan.outputs[key].spec.dtype == "bfloat16"
        if self._tensors(at):
            tensor = self.cells[at].detach()
            array: npt.NDArray[Any] = (tensor.float() if bits else tensor).numpy()
            return array
        return _numbers(self.buffers[at].array, bits=bits)

    def input_array(self, key: str) -> npt.NDArray[Any]:
        """The value of an input that was given, to look at; bfloat16 as float32."""
        bits = self._slots.plan.inputs[key].spec.dtype == "bfloat16"
        return _numbers(self.buffers[self._slots.owned[key]].array, bits=bits)

    def clear(self) -> None:
        """Zeros in all ports."""
        for buffer in self.buffers.values():
            buffer.array[...] = 0
        self.cells[:] = self._zeros


def _numbers(stored: npt.NDArray[Any], *, bits: bool) -> npt.NDArray[Any]:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32) if bits else stored


def _near(key: str, known: Sequence[str]) -> str:
    """Names the port that was probably meant: the name with ``_in``, as states have it, or one written much like it."""
    return did_you_mean(key, [f"{key}_in"] if f"{key}_in" in known else known)


def _in_turn(starts: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """States that start with another state come after it."""
    done: list[str] = []
    for key in starts:
        chain = [key]
        while chain[-1] in starts:
            chain.append(starts[chain[-1]])
        done += [each for each in reversed(chain[:-1]) if each not in done]
    return [(key, starts[key]) for key in done]


class Engine:
    """A pipeline that runs.

    Args:
        plan: what runs, in which order.
        models: one per node.
        initial: first value of each feedback input.
        torch: the module where values are handed out as tensors, else None.
        threads: of torch's own kernels, during a tick.
    """

    def __init__(
        self,
        plan: Plan,
        models: Mapping[str, Model],
        initial: Mapping[str, npt.NDArray[Any]],
        *,
        torch: Any = None,
        threads: int = 1,
        check: Callable[[Read, Read], None] | None = None,
    ) -> None:
        self._plan = plan
        self._backends = {node: model.backend for node, model in models.items()}
        self._initial = initial
        self._torch = torch
        self._check = check
        self._modes = Modes(torch, threads)
        slots = _Slots(plan, models)
        with self._modes.building():
            self._lanes = [_Lane(slots, models, torch) for _ in range(2)]
        for lane, other in (self._lanes, self._lanes[::-1]):
            lane.commits = [
                lane.copy(slots.outputs[source], other.buffers[slots.owned[key]])
                for key, source in plan.feedback.items()
            ]
        self._outer = frozenset(plan.outer_inputs)
        self._next, self._last = self._lanes
        self._pending: dict[str, Buffer] = {}
        self._given: set[str] = set()  # feedback that the caller set; it matters at the first tick alone
        # Inputs that may be left out, and are false then.
        resets = (key for key in plan.outer_inputs if plan.inputs[key].is_reset)
        self._resets = {key: np.zeros(plan.inputs[key].spec.shape, bool) for key in resets}
        self._first = True
        self.reset()

    def reset(self) -> None:
        """Everything as after construction: feedback at its first values, all other ports at zero."""
        for lane in self._lanes:
            lane.clear()
        for key in self._initial:
            self._restart(key)
        self._pending.clear()
        self._given.clear()
        self._first = True

    def tick(self, inputs: Mapping[str, Any], clock: list[int] | None = None) -> dict[str, Any]:
        """Run once; outer outputs by key, copies of the caller's own.

        Args: clock: gets the nanoseconds of each node, in the order of the plan.
        Raises: PipelineInputError, UnknownPortError, NodeFailedError, GuardError. Nothing was changed then.
        """
        lane, modes = self._next, self._modes
        before = modes.enter()
        try:
            self._take(lane, inputs)
            node = ""
            try:
                if self._first or clock is not None:
                    self._run_slowly(lane, clock)
                else:
                    for node, step in lane.steps:  # noqa: B007 - the error names it
                        step()
            except NodeFailedError:
                raise
            except Exception as error:  # a runtime may raise anything
                raise self._failed(node, error) from error
            if self._check is not None:
                self._check(lane.array, lane.input_array)
            result = {key: give() for key, give in lane.outer}
            for copy in lane.commits:
                copy()
        except BaseException:
            if self._first:
                for key in self._plan.starts:
                    if key not in self._given:
                        self._restart(key)
            raise
        finally:
            modes.leave(before)
        self._next, self._last = self._last, lane
        if self._first or self._pending:
            self._first = False
            self._pending.clear()
        return result

    def _take(self, lane: _Lane, inputs: Mapping[str, Any]) -> None:
        if self._pending:
            inputs = {**inputs, **{key: buffer.array for key, buffer in self._pending.items()}}
        if inputs.keys() != self._outer:
            inputs = {**self._resets, **inputs}
            if inputs.keys() != self._outer:
                raise self._wrong_keys(inputs)
        for key, write in lane.takes:
            write(inputs[key])

    def _run_slowly(self, lane: _Lane, clock: list[int] | None) -> None:
        """The first tick, which starts states, and ticks under a clock."""
        for node, step in lane.steps:
            begin = time.perf_counter_ns()
            try:
                for key, copy in lane.starts.get(node, ()) if self._first else ():
                    if key not in self._given:
                        copy()
                step()
            except NodeFailedError:
                raise
            except Exception as error:
                raise self._failed(node, error) from error
            if clock is not None:
                clock.append(time.perf_counter_ns() - begin)

    def _failed(self, node: str, error: Exception) -> NodeFailedError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"
        return NodeFailedError(node=node, backend=self._backends[node], why=why)

    def _wrong_keys(self, inputs: Mapping[str, Any]) -> PipelineInputError | UnknownPortError:
        for key in inputs:
            if key not in self._outer:
                return self.unknown(key, "is no outer input of this pipeline", self._outer)
        missing = [key for key in self._plan.outer_inputs if key not in inputs]
        more = f", and so are {', '.join(missing[1:])}" if len(missing) > 1 else ""
        return PipelineInputError(port=missing[0], why=f"it is missing{more}")

    def unknown(self, key: Any, why: str, known: Iterable[str]) -> UnknownPortError:
        """The error for a key, with what is known of it."""
        if key in self._plan.sources:
            why = f"is fed by {self._plan.sources[key]!r} within each tick"
        elif key in self._plan.feedback and known is self._outer:
            why = f"is fed back from {self._plan.feedback[key]!r}; set_input_value() overrides it"
        known = sorted(known)
        near = "" if key in self._plan.sources or key in self._plan.feedback else _near(str(key), known)
        return UnknownPortError(port=str(key), why=why, known=", ".join(known) or "none", near=near)

    def override(self, key: str, value: Any) -> None:
        """Give an owned input a value for the next tick that goes well."""
        before = self._modes.enter()
        try:
            if key in self._outer:
                buffer = Buffer(self._plan.inputs[key].spec, self._torch)
                writer(key, self._plan.inputs[key].spec, buffer, self._torch)(value)
                self._pending[key] = buffer
            elif key in self._plan.feedback:
                self._next.writers[key](value)
                self._given.add(key)
            else:
                known = [*self._plan.outer_inputs, *self._plan.feedback]
                raise self.unknown(key, "is no input of this pipeline", known)
        finally:
            self._modes.leave(before)

    def last_inputs(self) -> dict[str, Any]:
        """Outer inputs of the last tick that went well; zeros before the first."""
        return self._copies({key: self._last.input_gives[key] for key in self._plan.outer_inputs})

    def next_feedback(self) -> dict[str, Any]:
        """What the feedback inputs will hold at the next tick."""
        return self._copies(
            {key: self._next.input_gives[key] for key in self._plan.inputs if key in self._plan.feedback}
        )

    def last_outputs(self) -> dict[str, Any]:
        """Every output of every node at the last tick that went well; zeros before the first."""
        return self._copies(self._last.gives)

    def _copies(self, gives: Mapping[str, Copy]) -> dict[str, Any]:
        before = self._modes.enter()
        try:
            return {key: give() for key, give in gives.items()}
        finally:
            self._modes.leave(before)

    def _restart(self, key: str) -> None:
        self._next.writers[key](self._initial[key])
