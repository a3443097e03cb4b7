"""The other package named ``leapp``: it unpacks into the same folder as ours, and of each file the last one stays."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leapp.errors import OtherPackageError

NAME: Final = "leapp"


def other_version() -> str | None:
    """The version of the other package, where it is installed for this interpreter."""
    from importlib import metadata  # with what it needs of `email`, a tenth of all that a short command takes

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return None


def is_whole() -> bool:
    """Whether the parts that both packages have a file for are ours."""
    import leapp
    import leapp.cli

    here = Path(__file__).parent
    return hasattr(leapp, "__config_version__") and Path(leapp.cli.__file__).parent == here


def mend_command() -> str:
    """What removes the other package, and restores what its files replaced."""
    from leapp._source import find_source

    pip = f"{shlex.quote(sys.executable)} -m pip"
    return f"{pip} uninstall -y {NAME} && {pip} install --force-reinstall --no-deps {find_source().pip_arguments()}"


def other_error(error: ImportError | None = None) -> OtherPackageError | None:
    """The error to raise where part of ours cannot be imported; None where the other package is not to blame.

    Args:
        error: what an import raised; None: it is known already that a part is not ours.
    """
    if error is not None and not (error.name or "").startswith(f"{NAME}."):
        return None
    version = other_version()
    if version is None:
        return None
    from leapp.errors import OtherPackageError

    return OtherPackageError(version=version, command=mend_command())
