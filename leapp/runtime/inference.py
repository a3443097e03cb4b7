"""InferenceManager: a bundle, or its runtime file, as a running pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp._spec import FORMAT_NAMES
from leapp.bundle.samples import read_tensors
from leapp.errors import (
    BundleFormatError,
    InputsKindError,
    NoModelError,
    ThreadsError,
    UnknownFormatError,
    UnknownNodeNameError,
)
from leapp.manifest.problems import did_you_mean
from leapp.runtime.engine import Engine
from leapp.runtime.files import Files, open_files
from leapp.runtime.guard import Guard, bounds_of
from leapp.runtime.models import CallableModel, Model, load_model
from leapp.runtime.plan import Plan, make_plan
from leapp.runtime.values import raw_array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from leapp._spec import PipelineSpec, Port
    from leapp.runtime.guard import Bounds
    from leapp.runtime.plan import ModelFile

RUN_FORMATS: Final = ("onnx", "pt2", "torchscript")
"""What a user is told to write for a format of a model file; the other names of ``FORMAT_NAMES`` mean the same ones."""

_WORDS: Final[Mapping[str, str]] = {"onnx": "onnx", "jit": "torchscript", "pt2": "pt2"}


class InferenceManager:
    """Runs a pipeline tick by tick: nodes in order, wires between them, feedback held from one tick to the next.

    ``manager.run_policy(inputs)``, or ``manager(inputs)``, is one tick. Ports are named ``node/port``. Inputs are torch
    tensors or NumPy arrays of exactly the port's shape and dtype; they are copied, never written and never kept.
    Outputs are torch tensors where torch is installed, else arrays: copies that are the caller's own. In arrays,
    bfloat16 is ``uint16`` bit patterns. ONNX files need neither torch nor onnx, only NumPy and onnxruntime.

    A tick that raises changes nothing: feedback, outputs and overrides stay as they were.

    One manager belongs to one thread at a time. Models run on the CPU. torch's gradients, autocast and number of
    threads are set for each tick and put back after it.

    Args:
        path: the bundle's folder, or its runtime file (``.yaml``), which may stand without ``bundle.json``.
        model_dirs: folders with model files that are not in the bundle; found by file name and digest.
        formats: which model file to take, where a node has several: a name (``"onnx"``, ``"pt2"``, ``"torchscript"``)
            for all nodes, or a dict node -> name. None, and nodes that are not in the dict: the preferred one.
        threads: of onnxruntime and of torch, in each node.
        guard: refuse ticks in which an outer input or any output is outside the ``range`` of its port, or an output of
            the pipeline or a fed back value is not finite.
        callables: node -> function that computes it in place of a model, from ``{port: value}`` to ``{port: value}``
            (values as above; the inputs are copies). Nodes without a model file need one.

    Raises:
        NotABundleError, BundleFormatError, BundleDigestError, ModelDigestError, ModelNotFoundError: files that are
            missing, changed or inconsistent. All digests are checked before anything is loaded.
        NoModelError: a node has no model file, or none in the format asked for.
        UnknownFormatError, UnknownNodeNameError, OptionError: arguments that name nothing.
        ArtifactLoadError: a model file that does not load, or has other ports than the runtime file says.
        MissingDependencyError: onnxruntime or torch is not installed and a node needs it.
    """

    def __init__(
        self,
        path: Path | str,
        model_dirs: Sequence[Path | str] = (),
        *,
        formats: str | Mapping[str, str] | None = None,
        threads: int = 1,
        guard: bool = False,
        callables: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] | None = None,
    ) -> None:
        callables = {} if callables is None else callables
        torch = _torch_if_installed()
        if type(threads) is not int or threads < 1:
            raise ThreadsError(option="threads", value=threads, why="a number of threads is a whole number from 1")
        files = open_files(path, model_dirs)
        if files.bundle is not None:
            files.bundle.require_whole()
        plan = make_plan(files.contract, str(files.contract_path), files.name)
        _check_nodes(plan, "callables", callables)
        wanted = _wanted(plan, formats)
        chosen = {
            node: _chosen(node, models, wanted.get(node))
            for node, models in plan.models.items()
            if node not in callables
        }
        # All digests first: nothing of a bundle that was tampered with is ever opened by a runtime.
        paths = {node: files.model(node, model) for node, model in chosen.items()}
        initial = _initial_values(files, plan)
        check = Guard(plan, str(files.contract_path)) if guard else None
        loaded: dict[str, Model] = {}
        for spec in plan.spec.nodes:
            if spec.name in callables:
                loaded[spec.name] = CallableModel(spec, callables[spec.name], torch)
            else:
                loaded[spec.name] = load_model(chosen[spec.name].backend, paths[spec.name], spec, threads)
        self._plan = plan
        self._file = str(files.contract_path)
        self._backends = {node: model.backend for node, model in loaded.items()}
        self._torch = torch
        self._engine = Engine(plan, loaded, initial, torch=torch, threads=threads, check=check)
        self._random = np.random.default_rng(0)

    def run_policy(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run one tick.

        Args: inputs: each outer input by ``node/port``; those that ``set_input_value`` has set may be left out, and
            reset inputs (``kind: reset``), which are false then.
        Returns: the pipeline's outputs by ``node/port``.
        Raises: UnknownPortError (a KeyError), PipelineInputError (missing, or of another kind, shape or dtype),
            NodeFailedError, GuardError. State and outputs are as before then.
        """
        if inputs is None:
            inputs = {}
        elif type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise InputsKindError(kind=type(inputs).__name__, example=next(iter(self._plan.outer_inputs), "node/port"))
        return self._engine.tick(inputs)

    __call__ = run_policy

    @property
    def inputs(self) -> dict[str, Any]:
        """Outer inputs by ``node/port``, as they were at the last tick; zeros before the first. Copies."""
        return self._engine.last_inputs()

    @property
    def outputs(self) -> dict[str, Any]:
        """All outputs of all nodes by ``node/port``, as they were at the last tick; zeros before the first. Copies."""
        return self._engine.last_outputs()

    @property
    def feedback_inputs(self) -> dict[str, Any]:
        """Values that are held for the next tick, by the ``node/port`` that will read them. Copies.

        A state that starts with the first value of an input holds zeros until the first tick.
        """
        return self._engine.next_feedback()

    @property
    def pipeline(self) -> PipelineSpec:
        """Nodes in the order in which they run, their ports, and how they are wired."""
        return self._plan.spec

    @property
    def backends(self) -> dict[str, str]:
        """What runs each node: ``onnx``, ``pt2``, ``jit`` or ``callable``."""
        return dict(self._backends)

    def get_mock_input(self, seed: int | None = None) -> dict[str, Any]:
        """Random values for all outer inputs, for trying things out; the same sequence from every manager.

        ``seed`` begins another sequence, of which later calls without it are the continuation.
        Uniform within the ``range`` of the port where it has one; else floats are standard normal, integers and
        booleans 0 or 1. Reset inputs are false.
        """
        if seed is not None:
            self._random = np.random.default_rng(seed)
        mock = {}
        for key in self._plan.outer_inputs:
            port = self._plan.inputs[key]
            mock[key] = _mock(port, bounds_of(key, port, self._file), self._random)
        if self._torch is None:
            return mock
        from leapp.runtime.values import as_tensor

        return {key: as_tensor(value, self._plan.inputs[key].spec, self._torch) for key, value in mock.items()}

    def set_input_value(self, node: str, port: str, value: Any) -> None:
        """Give one input its value for the next tick, in place of what is held or will be given.

        Args: port: an outer input, or one that is fed back (a state). value: as for ``run_policy``; it is copied.
        Raises: UnknownPortError, also for an input that another node feeds within the tick; PipelineInputError.
        """
        self._engine.override(f"{node}/{port}", value)

    def reset(self) -> None:
        """Begin anew: feedback at its first values, overrides forgotten, outputs zero. Mock inputs just go on."""
        self._engine.reset()


def _torch_if_installed() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    return torch


def _check_nodes(plan: Plan, option: str, nodes: Mapping[str, Any]) -> None:
    for node in nodes:
        if node not in plan.models:
            near = did_you_mean(node, plan.models)
            raise UnknownNodeNameError(option=option, node=node, known=", ".join(plan.models), near=near)


def _wanted(plan: Plan, formats: str | Mapping[str, str] | None) -> dict[str, str]:
    """Node -> loader that was asked for."""
    if formats is None:
        return {}
    by_node = dict.fromkeys(plan.models, formats) if isinstance(formats, str) else dict(formats)
    _check_nodes(plan, "formats", by_node)
    wanted = {}
    for node, name in by_node.items():
        if name not in FORMAT_NAMES:
            near = did_you_mean(str(name), RUN_FORMATS)
            raise UnknownFormatError(format=name, node=node, known=", ".join(RUN_FORMATS), near=near)
        wanted[node] = FORMAT_NAMES[name].backend
    return wanted


def _chosen(node: str, models: tuple[ModelFile, ...], wanted: str | None) -> ModelFile:
    if not models:
        advice = f"Give a function that computes it: InferenceManager(path, callables={{{node!r}: function}})"
        raise NoModelError(node=node, wanted="", why="it was exported without one", advice=advice)
    for model in models:
        if wanted in {None, model.backend}:
            return model
    has = ", ".join(_WORDS[model.backend] for model in models)
    own = _WORDS[models[0].backend]
    advice = (
        f"Ask for {node!r} in one of them, beside the others: formats as a dict node -> name that leaves {node!r} out, "
        f"or on the command line --format {node}={own} as well"
    )
    raise NoModelError(node=node, wanted=f" as {_WORDS[str(wanted)]}", why=f"it has {has}", advice=advice)


def _initial_values(files: Files, plan: Plan) -> dict[str, npt.NDArray[Any]]:
    """First values of all feedback inputs, their shapes and dtypes checked."""
    if plan.initial_values is None:
        return {}
    file = files.initial_values(*plan.initial_values)
    stored = read_tensors(file)

    def refuse(why: str) -> BundleFormatError:
        return BundleFormatError(path=str(file), why=why)

    for key in stored:
        if key not in plan.feedback:
            raise refuse(f"{key!r} is no input that is fed back")
    values = {}
    for key in plan.feedback:
        spec = plan.inputs[key].spec
        if key not in stored:
            raise refuse(f"the first value of {key!r} is missing")
        raw = stored[key]
        if (raw.dtype, tuple(raw.shape)) != (spec.dtype, spec.shape):
            has = f"{raw.dtype}{list(raw.shape)}, the runtime file has {spec.dtype}{list(spec.shape)}"
            raise refuse(f"the first value of {key!r} is {has}")
        values[key] = raw_array(raw)
    return values


def _mock(port: Port, limits: Bounds | None, random: np.random.Generator) -> npt.NDArray[Any]:
    spec = port.spec
    if port.is_reset:
        return np.zeros(spec.shape, bool)
    if spec.dtype == "bool" or (limits is None and "int" in spec.dtype):
        return random.integers(0, 2, spec.shape).astype(spec.dtype)
    values = np.asarray(random.normal(size=spec.shape) if limits is None else random.uniform(*limits, spec.shape))
    if spec.dtype.startswith("complex"):
        values = values + 1j * random.normal(size=spec.shape)
    if spec.dtype == "bfloat16":  # the upper half of a float32
        return np.asarray((values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16))
    if "int" in spec.dtype:
        values = np.floor(values)
    return np.asarray(values, spec.dtype)
