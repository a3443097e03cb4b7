"""Clients are scripts; their folder is on the path so that tests can run the same code untraced."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
