"""The path under which earlier clients import the kinds; see ``leapp.kinds``."""

from leapp.kinds import InputKindEnum, OutputKindEnum

__all__ = ["InputKindEnum", "OutputKindEnum"]
