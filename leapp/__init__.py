"""LEAPP: turn annotated PyTorch and NumPy code into reproducible, checked model bundles.

Nothing is computed here. Public names are looked up in one table when first used, so that ``import leapp`` needs
neither torch nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from leapp._version import CONFIG_VERSION as __config_version__
from leapp._version import __version__

if TYPE_CHECKING:
    from leapp import annotate as annotate
    from leapp._api import compile_graph as compile_graph
    from leapp._api import start as start
    from leapp._api import stop as stop
    from leapp._patch import FunctionPatch as FunctionPatch
    from leapp._spec import ExportFormat as ExportFormat
    from leapp.errors import LeappError as LeappError
    from leapp.errors import LeappWarning as LeappWarning
    from leapp.kinds import InputKindEnum as InputKindEnum
    from leapp.kinds import OutputKindEnum as OutputKindEnum
    from leapp.replay import NodeReport as NodeReport
    from leapp.runtime.inference import InferenceManager as InferenceManager
    from leapp.semantics import GraphConfigs as GraphConfigs
    from leapp.semantics import TemporalAxis as TemporalAxis
    from leapp.semantics import TensorSemantics as TensorSemantics

_NAMES = {
    "ExportFormat": "leapp._spec",
    "FunctionPatch": "leapp._patch",
    "GraphConfigs": "leapp.semantics",
    "InferenceManager": "leapp.runtime.inference",
    "InputKindEnum": "leapp.kinds",
    "LeappError": "leapp.errors",
    "LeappWarning": "leapp.errors",
    "NodeReport": "leapp.replay",
    "OutputKindEnum": "leapp.kinds",
    "TemporalAxis": "leapp.semantics",
    "TensorSemantics": "leapp.semantics",
    "annotate": "leapp.annotate",
    "compile_graph": "leapp._api",
    "start": "leapp._api",
    "stop": "leapp._api",
}
"""Public name -> module that defines it; a module stands for itself."""

__all__ = [
    "ExportFormat",
    "FunctionPatch",
    "GraphConfigs",
    "InferenceManager",
    "InputKindEnum",
    "LeappError",
    "LeappWarning",
    "NodeReport",
    "OutputKindEnum",
    "TemporalAxis",
    "TensorSemantics",
    "__config_version__",
    "__version__",
    "annotate",
    "compile_graph",
    "start",
    "stop",
]


def __getattr__(name: str) -> Any:
    module_name = _NAMES.get(name)
    if module_name is None:
        raise AttributeError(f"module 'leapp' has no attribute {name!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "numpy", "onnx"):
            from leapp._other import other_error

            other = other_error(error)
            if other is None:
                raise
            raise other from None
        from leapp._source import install_command
        from leapp.errors import MissingDependencyError

        raise MissingDependencyError(what_for=f"leapp.{name}", package=error.name, command=install_command()) from None
    found = module if module_name == f"leapp.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
