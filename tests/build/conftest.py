"""An empty project for each test that wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build_projects import Project

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "pyproject.toml").touch()
    return Project(tmp_path)
