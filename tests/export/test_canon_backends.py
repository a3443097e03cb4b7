"""What the project's own backends write follows from the recording alone, and damage to it is told."""

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leapp.errors import ArtifactLoadError
from leapp.export import canon_pt2, canon_torchscript

PROGRAM = """
import os, sys
import torch
sys.path.insert(0, {tests!r})
from conftest import record
from leapp._spec import ExportFormat
from leapp.export._backend import ExportOptions, backend_for
FORMATS = (ExportFormat.TORCHSCRIPT, ExportFormat.TORCHSCRIPT_TRACE, ExportFormat.PT2)

class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ELU(), torch.nn.Linear(5, 4))
        self.tied = torch.nn.Parameter(torch.randn(4, 4))
        self.again = self.tied
        self.register_buffer("low", torch.randn(4).bfloat16())
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("number", torch.tensor(3))
        self.register_buffer("none", torch.zeros(0, 4))
        self.register_buffer("part", torch.empty(64)[5:9].fill_(2.0))

    def forward(self, x):
        y = torch.where(self.mask, self.net(x), x * self.low.float()) * self.number + self.part
        return torch.cat((y, self.none)) @ self.tied @ self.again.t(), torch.div(x, 2, rounding_mode="floor")

class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in torch.nn.LSTM(4, 3).named_parameters():
            self.register_parameter(name, torch.nn.Parameter(value.detach()))

    def forward(self, x):
        state = torch.zeros(1, 1, 3)
        weights = [self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0]
        result = torch._VF.lstm(x.unsqueeze(1), (state, state), weights, True, 1, 0.0, False, False, False)
        return result[0], result[1]

def images():
    layers = torch.nn.Conv1d(1, 3, 2), torch.nn.ReLU(), torch.nn.Conv1d(3, 1, 2)
    return torch.nn.Sequential(torch.nn.Unflatten(1, (1, 4)), *layers, torch.nn.Flatten(1))

MODELS = dict(policy=Policy, memory=Memory, images=images)

def export_all(folder, stem, fill, names):
    os.makedirs(folder)
    for name in names:
        for format in FORMATS:
            torch.manual_seed(0)
            x = torch.full((3, 4), fill)
            recording = record(MODELS[name]().eval(), x)
            backend_for(format).write(recording, (x,), folder / f"{{name}}.{{format.name}}.{{stem}}", ExportOptions())
"""

PLAIN = """
from pathlib import Path
export_all(Path(sys.argv[1]), "a", 1.625, list(MODELS))
"""

BUSY = """
from pathlib import Path
torch.jit.script(images()); torch.jit.freeze(torch.jit.script(images().eval()))
torch.jit.trace(images(), torch.ones(3, 4)); torch.export.export(images(), (torch.ones(2, 4),))
export_all(Path(sys.argv[1]) / "first", "b", 777.25, list(reversed(MODELS)))
export_all(Path(sys.argv[1]) / "second", "policy", -3.0, list(MODELS))
child = os.fork()
if not child:
    export_all(Path(sys.argv[1]) / "forked", "c", 12.5, list(MODELS))
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


def run(script, text, out, environment):
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(PROGRAM.format(tests=str(Path(__file__).parent)) + text)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-W", "ignore", script, out]
    finished = subprocess.run(
        command, env=environment, cwd=script.parent, capture_output=True, text=True, check=False, timeout=200
    )
    assert finished.returncode == 0, finished.stderr[-3000:]


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    root = tmp_path_factory.mktemp("exports")
    other = {"PYTHONHASHSEED": "99", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    processes = [
        (root / "some place" / "other.py", "\n" * 9 + BUSY, root / "busy", other),
        # TorchScript switched off here and on there makes no difference either.
        (root / "plain.py", PLAIN, root / "plain", {"PYTHONHASHSEED": "0", "PYTORCH_JIT": "0"}),
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: run(*each), processes))
    return root


FILES = [
    f"{name}.{format}"
    for name in ("policy", "memory", "images")
    for format in ("TORCHSCRIPT", "TORCHSCRIPT_TRACE", "PT2")
]


@pytest.mark.parametrize("file", FILES)
def test_the_same_bytes_in_every_process(exports, file):
    plain = (exports / "plain" / f"{file}.a").read_bytes()
    others = {
        "after other exports, in another order": "busy/first/{}.b",
        "under another name, the second time": "busy/second/{}.policy",
        "in a forked child": "busy/forked/{}.c",
    }
    different = [what for what, where in others.items() if (exports / where.format(file)).read_bytes() != plain]
    assert not different


def test_models_differ(exports):
    """The comparison above sees weights and code."""
    contents = {path.read_bytes() for path in (exports / "plain").iterdir()}
    assert len(contents) == len(FILES)


DAMAGE_SEEDS = range(4)


@pytest.mark.parametrize("seed", DAMAGE_SEEDS)
@pytest.mark.parametrize("file", ["policy.TORCHSCRIPT", "policy.PT2"])
def test_damage_is_told_and_changes_nothing(exports, tmp_path, file, seed):
    whole = (exports / "plain" / f"{file}.a").read_bytes()
    canonicalise = (canon_pt2 if file.endswith("PT2") else canon_torchscript).canonicalise
    generator = random.Random(seed)  # noqa: S311 - which bytes are damaged
    path = tmp_path / "model"
    told = 0
    for _ in range(60):
        content = bytearray(whole)
        if generator.random() < 0.5:
            for _ in range(generator.choice((1, 4, 20))):
                content[generator.randrange(len(content))] = generator.randrange(256)
        else:
            begin = generator.randrange(len(content))
            del content[begin : begin + generator.choice((1, 100, len(content)))]
        path.write_bytes(content)
        try:
            canonicalise(path)
        except ArtifactLoadError:
            told += 1
            assert path.read_bytes() == content
        assert [each.name for each in tmp_path.iterdir()] == ["model"]
    assert told > 10
