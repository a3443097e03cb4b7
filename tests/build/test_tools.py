"""What a session was built with: distributions by the files that it loaded."""

from __future__ import annotations

import json
import sys

import pytest

from leapp._spec import LEAPP_SOURCE, PYTHON
from leapp.build._tools import builder, canonical_name, installed_packages, loaded_files, loaded_packages

VCS = {"url": "https://git.example.org/net.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}


@pytest.fixture
def site(tmp_path):
    """A folder of installed distributions; call it to add one."""
    folder = tmp_path / "site"
    folder.mkdir()

    def install(name, version, files=(), origin=None):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("".join(f"{each},sha256=x,1\n" for each in files))
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))

    install.folder = folder
    return install


def loaded(site, *files, root=None):
    return loaded_packages([f"{site.folder}/{each}" for each in files], [str(site.folder)], root or site.folder.parent)


CASES = {
    "by its own name": ("ml_dtypes", "ml_dtypes/__init__.py", "ml-dtypes"),
    "a single file": ("typing_extensions", "typing_extensions.py", "typing-extensions"),
    "capitals": ("PyYAML", "pyyaml/a.py", "pyyaml"),
    "by the list of its files": ("opencv_python", "cv2/cv2.abi3.so", "opencv-python"),
    "a namespace": ("protobuf", "google/protobuf/message.py", "protobuf"),
    "a library alone": ("nvidia_cublas", "nvidia/cublas/lib/libcublas.so.13", "nvidia-cublas"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_distribution_is_told_from_a_file_that_was_loaded(site, case):
    name, file, called = CASES[case]
    site(name, "1.2", [file])
    site("other", "3", ["google/other.py", "nvidia/other.so", "other/a.py"])
    assert loaded(site, file) == {called: "1.2"}
    assert loaded(site) == {}
    assert installed_packages([str(site.folder)], site.folder.parent) == {called: "1.2", "other": "3"}


def test_the_first_folder_that_has_a_name_counts(site, tmp_path):
    site("net", "1", ["net/a.py"])
    (tmp_path / "later").mkdir()
    (tmp_path / "later/net-2.dist-info").mkdir()
    folders = [str(site.folder), str(tmp_path / "later"), "", str(tmp_path / "missing.zip")]
    assert loaded_packages([f"{site.folder}/net/a.py"], folders, tmp_path) == {"net": "1"}
    assert loaded_packages([f"{tmp_path}/later/net/a.py"], folders[::-1], tmp_path) == {"net": "2"}


def test_what_is_no_release_has_more_than_its_version(site):
    site("net", "1.0", ["net/a.py"], VCS)
    first = loaded(site, "net/a.py")["net"]
    assert first.startswith("1.0, ")
    (site.folder / "net-1.0.dist-info/RECORD").write_text("net/a.py,sha256=y,1\n")
    assert loaded(site, "net/a.py")["net"] != first


def test_packages_of_the_project_and_leapp_itself_are_no_tools(site, tmp_path):
    project, other = tmp_path / "project", tmp_path / "other"
    for name, place in ("own", project), ("near", other), ("unused", tmp_path / "unused"):
        site(name, "1", [], {"url": place.as_uri(), "dir_info": {"editable": True}})
    site("leapp_build", "0.1.0", ["leapp/__init__.py"])
    files = [f"{project}/own/a.py", f"{other}/near/a.py", f"{site.folder}/leapp/__init__.py"]
    assert loaded_packages(files, [str(site.folder)], project) == {"near": "1, editable"}
    assert loaded_packages(files, [str(site.folder)], project / "part") == {"near": "1, editable"}


def test_this_process():
    import numpy as np

    found = loaded_packages(loaded_files(), sys.path, sys.path[0])
    assert found["numpy"] == np.__version__
    assert found["pytest"] == pytest.__version__
    assert ("nox" in found) == ("nox" in sys.modules), "what is installed and not loaded is none of it"
    assert found.items() <= installed_packages(sys.path, sys.path[0]).items()
    assert builder()[PYTHON].startswith("CPython 3.")
    assert len(builder()[LEAPP_SOURCE]) == 64
    assert "none" not in builder().values()


def test_names_are_those_of_package_indexes():
    assert canonical_name("Ml_Dtypes.Extra--x") == "ml-dtypes-extra-x"
