"""An empty project for each test that wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build_projects import Project
from read_sessions import Session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "pyproject.toml").touch()
    return Project(tmp_path)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)
