"""``python -m leapp``: the same as the ``leapp`` command."""

import sys

from leapp.cli import main

if __name__ == "__main__":
    sys.exit(main())
