"""``python -m leapp`` and the ``leapp`` command."""

import sys

from leapp import _other


def main() -> int:
    """Run the command, unless what would run belongs to another package."""
    try:
        error = None if _other.is_whole() else _other.other_error()
    except ImportError as failed:
        error = _other.other_error(failed)
        if error is None:
            raise
    if error is not None:
        print(error, file=sys.stderr)  # noqa: T201  # what prints for people may be the other package's
        return error.exit_code
    from leapp.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
