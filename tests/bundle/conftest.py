from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bundle_cases import make

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A sealed bundle of two nodes."""
    folder = tmp_path / "two"
    make(folder)
    return folder
