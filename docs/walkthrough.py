"""Write docs/changes.md by doing what the page tells, in a project made for it. With --check the page is compared.

All output on the page is that of the commands above it. What varies from run to run (wall times, last digits of
differences) is left out of the comparison, and digests count by which of them are equal. The last step needs a second
torch: --torch-python names an interpreter that has one, and LEAPP; without it that step stays as it was recorded.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "changes.md"
_PROGRESS: Final = re.compile(r"^policy \d\.\d\.\d: [a-z ]+\n", re.MULTILINE)
"""What a terminal shows for a moment: the stages of a build."""
_MANIFEST: Final = "manifests/policy.toml"
_TIME: Final = re.compile(r"\d+\.\d s\b")
_VARIES: Final = (
    (_TIME, "N s"),
    (re.compile(r"\b\d\.?\d*e-\d\d\b"), "E"),
    (re.compile(r" {2,}|-{3,}"), "  "),
)
_DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")
_VERSIONS: Final = """\
import json, platform, importlib.metadata as m
names = ("torch", "numpy", "onnx", "onnxscript", "onnxruntime")
print(json.dumps({"Python": platform.python_version(), **{name: m.version(name) for name in names}}))
"""

SCRIPT: Final = '''\
"""A policy of two layers: joint angles in, joint torques out."""

import torch

from leapp import annotate

LIMITS = torch.tensor([0.5, 0.25])


def main():
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ELU(), torch.nn.Linear(8, 2))
    net.load_state_dict(torch.load("policy.pt"))
    observation = annotate.input_tensors("policy", {"observation": torch.randn(3)})
    action = torch.tanh(net(observation)) * LIMITS
    annotate.output_tensors("policy", {"action": action})
'''
WEIGHTS: Final = """\
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ELU(), torch.nn.Linear(8, 2))
torch.save(net.state_dict(), "policy.pt")
"""
OTHER_WEIGHTS: Final = """\
import torch
weights = torch.load("policy.pt")
weights["2.weight"][1, 5] += 0.01
torch.save(weights, "policy.pt")
"""


@dataclass(frozen=True, slots=True)
class Project:
    """The project of the page, in a folder of its own, and how commands are run there."""

    folder: Path
    torch_python: str | None

    def run(self, *command: str) -> str:
        """What a command printed, on both streams, in the order in which it did."""
        kept = {
            name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "OMP_NUM_THREADS"}
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**kept, "LEAPP_CACHE": str(self.folder.parent / "cache"), "COLUMNS": "120", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode not in {0, 1}:  # a difference is what most steps are about
            sys.exit(f"{shlex.join(command)} exited with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def leapp(self, line: str, python: str = sys.executable) -> str:
        """A block of the page with a command and what it printed."""
        output = _PROGRESS.sub("", self.run(python, "-m", *shlex.split(line)))
        output = _TIME.sub(lambda match: "N s".rjust(len(match[0])), output)
        return f"```console\n$ {line}\n{output}```\n"

    def edit(self, old: str, new: str, name: str = "policy.py") -> str:
        """Change the script, or another file; a block of the page with the difference."""
        file = self.folder / name
        before = file.read_text("utf-8")
        if before.count(old) != 1:
            sys.exit(f"{name} holds {old!r} {before.count(old)} times")
        file.write_text(before.replace(old, new), "utf-8")
        return _difference(before, file.read_text("utf-8"), name)

    def lock(self) -> str:
        """The text of the lock."""
        return (self.folder / "manifests" / "policy.lock").read_text("utf-8")


def _difference(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}", n=1)
    return f"```diff\n{''.join(lines)}```\n"


# --- what is done, in order ----------------------------------------------------------------------------------------


def start(project: Project) -> str:
    """Make the project; its manifest without the comments."""
    (project.folder / "pyproject.toml").touch()
    (project.folder / "policy.py").write_text(SCRIPT, "utf-8")
    project.run(sys.executable, "-c", WEIGHTS)
    project.run(sys.executable, "-m", "leapp", "init")
    manifest = project.folder / "manifests" / "policy.toml"
    text = manifest.read_text("utf-8").replace('version = "0.1.0"', 'version = "1.0.0"')
    manifest.write_text(text, "utf-8")
    lines = [line.partition("  #")[0] for line in text.splitlines() if line and not line.startswith("#")]
    return "```toml\n" + "\n".join(lines).replace("\n[", "\n\n[") + "\n```\n"


def first(project: Project) -> str:
    """The first bundle, locked."""
    return f"{project.leapp('leapp build')}\n{project.leapp('leapp lock')}"


def weight(project: Project) -> str:
    """Another number in the checkpoint."""
    project.run(sys.executable, "-c", OTHER_WEIGHTS)
    return refused(project)


def refused(project: Project, python: str = sys.executable, version: str = "1.0.0") -> str:
    """A build that the lock refuses, and what was built beside what is published."""
    built = project.leapp("leapp build", python)
    return f"{built}\n{project.leapp(f'leapp diff dist/policy/{version} dist/.refused/policy/{version}')}"


def accepted(project: Project) -> str:
    """The lock brought up to date."""
    return project.leapp("leapp lock --update")


def accepted_with_lock(project: Project) -> str:
    """The same, and what a reviewer sees of it."""
    before = project.lock()
    return f"{accepted(project)}\n{_difference(before, project.lock(), 'manifests/policy.lock')}"


def constant(project: Project) -> str:
    """Another number in the script."""
    return f"{project.edit('0.5, 0.25', '0.5, 0.3')}\n{refused(project)}"


def operation(project: Project) -> str:
    """An operation more."""
    changed = project.edit(
        "action = torch.tanh(net(observation)) * LIMITS",
        "action = torch.clamp(torch.tanh(net(observation)) * LIMITS, -0.4, 0.4)",
    )
    return f"{changed}\n{refused(project)}"


def comment(project: Project) -> str:
    """Nothing that counts."""
    changed = project.edit("LIMITS = torch", "# Largest torque of each joint, in N m.\nLIMITS = torch")
    return f"{changed}\n{project.leapp('leapp build --explain')}\n{project.leapp('leapp lock')}"


def version(project: Project) -> str:
    """Another number in the script, and a step of the version that is too small."""
    project.edit("0.5, 0.3]", "0.5, 0.35]")
    changed = project.edit('version = "1.0.0"', 'version = "1.0.1"', _MANIFEST)
    return f"{changed}\n{project.leapp('leapp build')}"


def version_accepted(project: Project) -> str:
    """The step that was asked for."""
    changed = project.edit('version = "1.0.1"', 'version = "1.1.0"', _MANIFEST)
    return f"{changed}\n{accepted(project)}"


def upgrade(project: Project) -> str:
    """The same commands by the interpreter that has another torch."""
    assert project.torch_python is not None
    return refused(project, project.torch_python, "1.1.0")


def upgrade_accepted(project: Project) -> str:
    """The lock, written with the other torch."""
    assert project.torch_python is not None
    return project.leapp("leapp lock --update", project.torch_python)


def versions(project: Project) -> str:
    """What the page was recorded with; the first line is that of all steps but the last."""
    names = [_versions(project, sys.executable)]
    if project.torch_python is not None:
        names.append(f"The last step: {_versions(project, project.torch_python)}")
    return "".join(f"{each}\n" for each in names)


def _versions(project: Project, python: str) -> str:
    found = eval(project.run(python, "-c", _VERSIONS), {})  # noqa: S307  # a dictionary that we print ourselves
    return ", ".join(f"{name} {version}" for name, version in found.items()) + f", {sys.platform}-{os.uname().machine}."


Made: TypeAlias = Callable[[Project], str]
WITH_TORCH: Final = (upgrade, upgrade_accepted)
"""What needs the second torch."""

PARTS: Final[tuple[str | Made, ...]] = (
    f"""\
# Six changes, and what they look like

<!-- Written by docs/walkthrough.py, which does all this. Change the text there. -->

A policy of one node is built and locked. Then somebody changes a weight, a constant, an operation, a comment, the
version of the policy, and that of torch. For each this page has what `leapp build`, `leapp diff` and `leapp lock`
print, without the lines that show a build's progress, and with `N s` for times. [docs/locks.md](locks.md) and
[docs/diff.md](diff.md) say what else they can.

```python
{SCRIPT}```

`policy.pt` is a checkpoint. `leapp init` writes the manifest, of which this counts (the version was set by hand):

""",
    start,
    """
## Built and locked

""",
    first,
    """
`manifests/policy.lock` is committed with the manifest. From here on a build that gives another bundle fails.

## A weight

"""
    "```python\n" + OTHER_WEIGHTS + "```\n\n",
    weight,
    """
One element of 16 is another one; the graph is the same, and so is everything around it. Other numbers under the same
contract ask for a minor version. Whoever expected this accepts it, and nothing is built twice:

""",
    accepted_with_lock,
    """
## A constant

""",
    constant,
    """
A tensor that the node made its own has no name, so its line is given: the one where it is used. The graph stayed.

""",
    accepted,
    """
## An operation

""",
    operation,
    """
The operation stands in the table as the model computes it, with the line that it came from. No weight changed.

""",
    accepted,
    """
## A comment

""",
    comment,
    """
The script is another file, so it was built again; the digest is the same, and the lock is met. `leapp lock` brings the
digest of the script in the lock up to date. Nobody has to call it.

## A version

`LIMITS` in the script becomes `[0.5, 0.35]`, and the version in the manifest moves with it, but not far enough:

""",
    version,
    """
The locked bundle is that of 1.0.0, which is still in `dist/`, so what moved is told as before. Other numbers ask for
1.1.0:

""",
    version_accepted,
    """
## Another torch

The same commands, with another torch in the environment and nothing else changed.

""",
    upgrade,
    """
The bundle is another one, since it says which torch wrote it, and the ONNX file has other bytes. But it is the same
model: contract, graph and weights stayed, and the step is a patch. The packages that only one side has came with this
torch, which is built for CUDA. Where another package is the cause, such as onnxscript, it stands in the same line.

""",
    upgrade_accepted,
    """
## Recorded with

""",
    versions,
)


# --- the page ------------------------------------------------------------------------------------------------------


def split(page: str) -> dict[int, str]:
    """What a page has in the place of each part that is made, by its position. Exits where its text is another one."""
    found: dict[int, str] = {}
    at = 0
    for index, part in enumerate(PARTS):
        if not isinstance(part, str):
            continue
        place = page.find(part, at)
        if place < 0 or (index == 0 and place):
            raise ValueError(f"docs/changes.md lacks this text of docs/walkthrough.py:\n{part}")
        if index:
            found[index - 1] = page[at:place]
        at = place + len(part)
    return found | {len(PARTS) - 1: page[at:]}


def make(torch_python: str | None, recorded: Mapping[int, str]) -> dict[int, str]:
    """Do all of it. What needs a second torch that is not here is taken from what was recorded."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="leapp-walkthrough-") as folder:
        project = Project(Path(folder, "policy"), torch_python)
        project.folder.mkdir()
        for index, part in enumerate(PARTS):
            if isinstance(part, str):
                continue
            if part in WITH_TORCH and torch_python is None:
                if index not in recorded:
                    sys.exit("The step with another torch was not recorded yet: give --torch-python.")
                found[index] = recorded[index]
            else:
                found[index] = part(project)
        if torch_python is None and (of_torch := recorded.get(index, "").splitlines()[1:]):
            found[index] += "\n".join([*of_torch, ""])
    return found


def join(made: Mapping[int, str]) -> str:
    """The page."""
    return "".join(part if isinstance(part, str) else made[index] for index, part in enumerate(PARTS))


def normal(text: str, known: dict[str, str]) -> str:
    """A text without what may vary. Args: known: digests that came before, and what stands for each."""
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return _DIGEST.sub(lambda match: known.setdefault(match[0], f"digest {len(known) + 1}"), text)


def differences(page: Mapping[int, str], made: Mapping[int, str]) -> Iterator[str]:
    """Lines of the page that are not as they are made now."""
    before: dict[str, str] = {}
    now: dict[str, str] = {}
    for index in sorted(made):
        old, new = normal(page[index], before), normal(made[index], now)
        if old != new:
            yield from difflib.unified_diff(old.splitlines(), new.splitlines(), "the page", "as it is now", lineterm="")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is another one")
    parser.add_argument("--torch-python", metavar="PATH", help="an interpreter with LEAPP and another torch")
    given = parser.parse_args(arguments)
    # Commands run in another folder. Not resolved: the link is what makes an interpreter that of its environment.
    torch_python = given.torch_python and os.path.abspath(given.torch_python)  # noqa: PTH100
    if torch_python and not os.access(torch_python, os.X_OK):
        parser.error(f"{given.torch_python} is no interpreter")
    recorded: dict[int, str] = {}
    try:
        recorded = split(PAGE.read_text("utf-8"))
    except (FileNotFoundError, ValueError) as error:
        if given.check:
            sys.exit(str(error))
    if given.check:
        with tempfile.TemporaryDirectory() as folder:
            here = _versions(Project(Path(folder), None), sys.executable)
        was = recorded[len(PARTS) - 1].partition("\n")[0]
        if was != here:  # other versions write other files
            print(f"Not compared: the page was recorded with {was}\nThis is {here}")
            return 0
    made = make(torch_python, recorded)
    if torch_python is None:
        print("Without --torch-python the step with another torch stays as it was recorded.")
    if not given.check:
        PAGE.write_text(join(made), "utf-8")
        return 0
    lines = list(differences(recorded, made))
    print("\n".join(lines) or "docs/changes.md is what happens.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
