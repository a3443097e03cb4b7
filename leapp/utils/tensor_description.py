"""The path under which earlier clients import ``TensorSemantics``; see ``leapp.semantics``."""

from leapp.semantics import TemporalAxis, TensorSemantics

__all__ = ["TemporalAxis", "TensorSemantics"]
