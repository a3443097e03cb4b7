"""What a written noxfile pins: what runs here, unless the project pins it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from leapp.init.chain import installed_by, project_install, tool_chain, wishes_of

CPU = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Case:
    name: str
    files: dict[str, str]
    versions: dict[str, str] = field(default_factory=lambda: {"torch": "2.13.0+cpu", "numpy": "2.4.6"})
    torch: tuple[str, ...] = ("torch==2.13.0", "--extra-index-url", CPU)
    rest: tuple[str, ...] = ('    "numpy==2.4.6",',)
    notes: tuple[str, ...] = ()


CASES = [
    Case("nothing of its own", {}),
    Case("torch of graphics cards", {}, {"torch": "2.13.0+cu128", "numpy": "2.4.6"}),
    Case("a nightly", {}, {"torch": "2.15.0.dev20261120+cpu"}, rest=(), torch=(
        "torch==2.15.0.dev20261120", "--extra-index-url", "https://download.pytorch.org/whl/nightly/cpu")),
    Case("no torch here", {}, {}, ("torch", "--extra-index-url", CPU), ()),
    Case("a build of a vendor", {}, {"torch": "2.9.0a0+50eac811a6.nv25.09"}, ("torch", "--extra-index-url", CPU),
         ("    # torch: 2.9.0a0+50eac811a6.nv25.09 is a build that no index has",),
         ("torch 2.9.0a0+50eac811a6.nv25.09 is on no index: `nox --no-venv` takes what is there, and installs nothing.",
          )),
    Case("a range", {"requirements.txt": "torch>=2.6  # any\nnumpy\n"}),
    Case("the same pin", {"requirements.txt": "numpy==2.4.6 --hash=sha256:ab\n"},
         rest=("    # numpy: as requirements.txt has it",)),
    Case("a wildcard", {"requirements.txt": "numpy==2.4.*\n"}),
    Case("another version of torch", {"requirements.txt": "torch==2.12.1\n"},
         torch=("torch==2.12.1", "--extra-index-url", CPU),
         rest=("    # torch: as requirements.txt has it", '    "numpy==2.4.6",'),
         notes=("requirements.txt asks for torch==2.12.1, and 2.13.0+cpu runs here; nox installs the former.",)),
    Case("an index of torch", {"requirements.txt": f"--extra-index-url {CPU}\ntorch==2.13.0+cpu\n"}, torch=(),
         rest=("    # torch: as requirements.txt has it", '    "numpy==2.4.6",')),
    Case("a wheel of torch", {"requirements.txt": "torch @ https://x.example/torch.whl\n"}, torch=(),
         rest=("    # torch: as requirements.txt has it", '    "numpy==2.4.6",')),
    Case("for another system", {"requirements.txt": 'numpy==2.1; sys_platform == "plan9"\n'}),
    Case("included, and around in a circle", {"requirements.txt": "-r req/base.txt\n-e ./lib\n",
         "req/base.txt": "-r ../requirements.txt\n-c \\\n  pins.txt\n", "req/pins.txt": "NumPy==2.4.5\n"},
         rest=("    # numpy: as req/pins.txt has it",),
         notes=("req/pins.txt asks for NumPy==2.4.5, and 2.4.6 runs here; nox installs the former.",)),
    Case("constraints beside a range", {"pyproject.toml": '[project]\nname = "x"\ndependencies = ["numpy>=2"]\n',
         "constraints.txt": "numpy==2.4.6\n", "requirements.txt": "torch==1.0\n"},
         rest=("    # numpy: as constraints.txt has it",)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_pinned(tmp_path, case):
    for name, text in case.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    wishes, own_index = wishes_of(tmp_path)
    chain = tool_chain(case.versions, wishes, own_index=own_index)
    assert (chain.torch, chain.rest, chain.notes) == (case.torch, case.rest, case.notes)


def test_files_that_decide_what_is_installed(tmp_path):
    assert (project_install(tmp_path), installed_by(tmp_path)) == ([], [])
    (tmp_path / "requirements.txt").touch()
    assert installed_by(tmp_path) == ["requirements.txt"]
    (tmp_path / "pyproject.toml").write_text("[tool.poetry]\n")
    assert (project_install(tmp_path), installed_by(tmp_path)) == (["-e", "."], ["pyproject.toml"])
    (tmp_path / "constraints.txt").touch()
    assert installed_by(tmp_path) == ["pyproject.toml", "constraints.txt"]


def test_what_is_not_installed_is_told():
    found = tool_chain({"numpy": "2.1.0"}, {}, wanted=("torch", "numpy", "onnx"))
    assert found.rest == (
        '    "numpy==2.1.0",',
        "    # not pinned, since not installed when this was written: torch, onnx",
    )
    (note,) = found.notes
    assert "Not installed here, so nox installs whatever is newest: torch, onnx." in note
    assert not tool_chain({"torch": "2.13.0"}, {}, wanted=("torch",)).notes
