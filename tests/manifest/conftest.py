import pytest
from manifest_cases import DISK


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A project with every file that the manifests under test name; its manifests lie in ``manifests/``."""
    root = tmp_path_factory.mktemp("work") / "project"
    for name in DISK:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "tools/python").chmod(0o755)
    (root / "pyproject.toml").touch()
    for folder in ("manifests", "folder.py", "empty"):
        (root / folder).mkdir()
    return root
