"""LEAPP: turn annotated PyTorch code into reproducible, checked model bundles."""

from leapp._version import CONFIG_VERSION as __config_version__
from leapp._version import __version__

__all__ = ["__config_version__", "__version__"]
