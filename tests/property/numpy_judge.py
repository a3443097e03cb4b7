"""Is a NumPy program's recording right? Untraced and traced, and the recording on inputs that were not traced."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from judge import ROOT, Verdict, WrongError

from leapp.errors import LeappError, LeappWarning, UnusedInputWarning
from leapp.graph._base import run_passes
from leapp.graph.check import check_graph, run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from programs import Program


def _world(program: Program, which: int) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "program", "np": np}
    exec("\n".join(program.outside), namespace)
    for name, value in zip(program.inputs, program.sets[which], strict=True):
        namespace[name] = eval(value, namespace)
    return namespace


def _plain(thing: Any) -> np.ndarray:
    return np.array(thing)


def _tensor(thing: Any) -> torch.Tensor:
    return torch.from_numpy(_plain(thing))


def _difference(actual: np.ndarray, expected: np.ndarray, *, rounded: bool, coarse: bool = False) -> str:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if np.array_equal(actual, expected, equal_nan=actual.dtype.kind in "fc"):
        return ""
    if rounded and actual.dtype.kind in "fc":
        tight = 4e-3 if coarse else 2e-5
        if np.allclose(actual, expected, rtol=tight, atol=tight, equal_nan=True):
            return ""
    return f"{actual.tolist()} instead of {expected.tolist()}"


def judge(program: Program) -> Verdict:
    """Trace a program and evaluate its recording. Raises WrongError."""
    verdict = Verdict(program)
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        code = compile("\n".join(program.body), str(ROOT / "program.py"), "exec")
        first, second = _world(program, 0), _world(program, 1)
        exec(code, first)
        try:
            exec(code, second)
        except Exception:
            verdict.skipped = True
            return verdict
        traced = _world(program, 0)
        session = Session(SessionOptions(name="programs", folder=Path("unused"), root=ROOT))
        try:
            handed_in = {name: traced[name] for name in program.inputs}
            given = session.input_tensors("n", handed_in)
            traced |= {name: given[id(array)] for name, array in handed_in.items()}
            exec(code, traced)
            session.output_tensors("n", {f"out{i}": traced[name] for i, name in enumerate(program.outputs)})
        except LeappError as error:
            verdict.refused = f"{type(error).__name__}: {error}"
            return verdict
        except Exception as error:
            raise WrongError(f"the traced program raised {type(error).__name__}: {error}") from error
        finally:
            session.stop()
        _same_world(program, traced, first)
        told = [each.message for each in said if isinstance(each.message, LeappWarning)]
        told = [each for each in told if not isinstance(each, UnusedInputWarning)]
        if told:
            verdict.refused = f"{type(told[0]).__name__}: {told[0]}"
            return verdict
        verdict.graph = run_passes(session.completed[0].recordings[0].graph, EXPORT_PASSES)
        check_graph(verdict.graph)
        fresh = _world(program, 1)
        verdict.second = {name: _tensor(fresh[name]) for name in program.inputs}
        verdict.first = {f"out{i}": _tensor(first[name]) for i, name in enumerate(program.outputs)}
        verdict.expected = {f"out{i}": _tensor(second[name]) for i, name in enumerate(program.outputs)}
        # A float64 of a rounded float16 is as coarse.
        coarse = any(getattr(each, "dtype", None) == np.float16 for each in second.values())
        kept = {name: each.clone() for name, each in verdict.second.items()}
        for attempt in ("", " when run again"):
            try:
                outputs = run_graph(verdict.graph, verdict.second)
            except Exception as error:
                raise WrongError(f"the recording raised {type(error).__name__}: {error}") from error
            for name, value in outputs.items():
                found = _difference(
                    value.numpy(), verdict.expected[name].numpy(), rounded=program.rounded, coarse=coarse
                )
                if found:
                    raise WrongError(f"{name} of the recording{attempt} is {found}")
            if any(each.numpy().tobytes() != kept[name].numpy().tobytes() for name, each in verdict.second.items()):
                raise WrongError("the recording wrote its inputs")
    return verdict


def _same_world(program: Program, traced: dict[str, Any], untraced: dict[str, Any]) -> None:
    """The user's values are those of the untraced run, bit for bit, with their dtypes and shapes."""
    for name, expected in untraced.items():
        if not isinstance(expected, (np.ndarray, np.generic)):
            continue
        value = traced[name]
        if (
            isinstance(expected, np.generic)
            and not isinstance(expected, np.bool_)
            and not isinstance(value, type(expected))
        ):
            raise WrongError(f"{name} is a {type(value)} instead of {type(expected)} while it was traced")
        found = _difference(_plain(value), _plain(expected), rounded=False)
        if found:
            raise WrongError(f"{name} is {found} while it was traced")
