"""The bytes of an artifact follow only from the model: exported by hand in processes that differ in all else."""

import getpass
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import canon_exports
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

SCRIPT = Path(canon_exports.__file__)
IMPORTED = "import sys, {module}; sys.exit({module}.main(*sys.argv[1:]))"

SEED, OTHER_SEED = "0", "77"
FILL, OTHER_FILL = "3.140625", "7.265625"
"""What the example inputs hold: four bytes that no weight begins with by chance eight times in a row."""

LEGACY = [case for case in canon_exports.CASES if case.startswith("onnx_legacy")]

OTHER_ENVIRONMENT = {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "USER": "somebody", "LANG": "de_DE.UTF-8"}


@dataclass(frozen=True)
class Process:
    """A process that exports everything, and what is special about it."""

    name: str
    what: str
    options: tuple = ()
    seed: str = SEED
    environment: dict = field(default_factory=dict)
    umask: int = 0o022
    moved: bool = False
    """Another folder and script name, all lines further down, imported instead of run."""
    stem: str = "model"
    fill: str = FILL


PLAIN = Process("plain", "", options=("raw",))
VARIATIONS = [
    Process(
        "elsewhere",
        "folder, script name, lines, call stack, file stem, sample inputs",
        options=("raw",),
        moved=True,
        stem="policy-v2",
        fill=OTHER_FILL,
    ),
    Process(
        "later",
        "hash seed, time zone, locale, user, HOME, umask; after other exports, in reverse order",
        options=("after",),
        seed=OTHER_SEED,
        environment=OTHER_ENVIRONMENT,
        umask=0o077,
    ),
    Process(
        "all at once",
        "all of these, in a forked child",
        options=("after", "forked"),
        seed="4",
        environment={"TZ": "America/Lima", "OMP_NUM_THREADS": "2"},
        umask=0o002,
        moved=True,
        stem="another",
        fill="11.015625",
    ),
]


def _run(process, root):
    folder = root / process.name
    folder.mkdir()
    home = root / f"home of {process.name}"
    script = SCRIPT
    if process.moved:
        script = root / "some" / "other place" / "shifted_script.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("\n" * 17 + SCRIPT.read_text())
    command = ["-c", IMPORTED.format(module=script.stem)] if process.moved else [script]
    finished = subprocess.run(
        [sys.executable, *command, folder, process.stem, process.fill, *process.options],
        cwd=script.parent,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **process.environment,
            "PYTHONHASHSEED": process.seed,
            "HOME": str(home),
        },
        umask=process.umask,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """The folders of all processes, which run two at a time."""
    root = tmp_path_factory.mktemp("exports")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda process: _run(process, root), [PLAIN, *VARIATIONS]))
    return root


def _files(folder):
    return sorted(each for each in folder.iterdir() if each.is_file())


def _contents(folder):
    """The files' bytes. A model with a data file names it, and that name follows the model's own."""
    return [_without_location(each) if "onnx_external" in str(each) else each.read_bytes() for each in _files(folder)]


def _without_location(path):
    if path.suffix != ".onnx":
        return path.read_bytes()
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                assert entry.value == f"{path.name}.data"
                entry.value = ""
    return model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("case", canon_exports.CASES)
def test_the_same_bytes_whatever_else_differs(exports, case):
    plain = _contents(exports / "plain" / case)
    assert plain
    different = [each.what for each in VARIATIONS if _contents(exports / each.name / case) != plain]
    assert not different


# The legacy exporter writes no paths of its own accord; a graph made by hand has no lines to tell.
@pytest.mark.parametrize("case", sorted(canon_exports.CASES.keys() - {"onnx-written", *LEGACY}))
def test_torch_alone_does_not_give_the_same_bytes(exports, case):
    plain, moved = (_contents(exports / where / case / "raw") for where in ("plain", "elsewhere"))
    assert plain != moved


def _everything(path):
    """A file's bytes, and those of what is packed inside."""
    yield path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for each in archive.infolist():
                yield each.filename.encode()
                yield archive.read(each)


def _secrets(exports, fill):
    number = float(fill)
    return {
        "folder": str(exports).encode(),
        "script": b"canon_exports",
        "moved script": b"shifted_script",
        "installed packages": b"site-packages",
        "repository": str(SCRIPT.parent.parent.parent).encode(),
        "home": b"home of",
        "host": socket.gethostname().encode(),
        "stem": b"policy-v2",
        "line": b".py:",
        "input": struct.pack("<f", number) * 8,
        "text of input": fill.encode(),
    } | ({"user": getpass.getuser().encode()} if getpass.getuser() != "root" else {"user": b"somebody"})


@pytest.mark.parametrize("case", canon_exports.CASES)
def test_nothing_of_the_process_is_inside(exports, case):
    for process in (PLAIN, *VARIATIONS):
        secrets = _secrets(exports, process.fill)
        if case.startswith("onnx_external"):
            del secrets["stem"]  # the model names its data file
        for path in _files(exports / process.name / case):
            for content in _everything(path):
                found = [what for what, secret in secrets.items() if secret in content]
                assert not found, path


def test_the_search_finds_what_torch_leaves(exports):
    found = {
        what
        for case in canon_exports.CASES
        for path in _files(exports / "elsewhere" / case / "raw")
        for content in _everything(path)
        for what, secret in _secrets(exports, OTHER_FILL).items()
        if secret in content
    }
    assert {"folder", "moved script", "stem", "installed packages", "input"} <= found


# --- the rewritten file computes the same ---------------------------------------------------------------------------


def _inputs(case):
    rows = {"dynamic": (3, 6, 2)}.get(canon_exports.CASES[case][1], (3, 3, 3))
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(count, 4, generator=generator) * 3 for count in rows]


def _loaded(path):
    if path.suffix == ".pt":
        return torch.jit.load(path)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return lambda x: session.run(None, {session.get_inputs()[0].name: x.numpy()})


def _flat(value):
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in _flat(each)]
    return [np.asarray(value.detach().float() if isinstance(value, torch.Tensor) else value)]


@pytest.mark.parametrize("case", canon_exports.CASES)
def test_outputs_are_bitwise_those_of_the_file_before(exports, case):
    suffix = canon_exports.CASES[case][2]
    folder = exports / "plain" / case
    before, after = _loaded(folder / "raw" / f"model{suffix}"), _loaded(folder / f"model{suffix}")
    with torch.no_grad():
        for x in _inputs(case):
            expected, actual = _flat(before(x.clone())), _flat(after(x.clone()))
            assert len(expected) == len(actual) > 0
            for one, other in zip(expected, actual, strict=True):
                assert one.dtype == other.dtype
                assert one.shape == other.shape
                assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("case", canon_exports.CASES)
def test_a_second_run_changes_nothing(exports, case, tmp_path):
    for path in _files(exports / "plain" / case):
        shutil.copy(path, tmp_path)
    before = _contents(tmp_path)
    canon_exports.canonicalise(tmp_path / f"model{canon_exports.CASES[case][2]}")
    assert _contents(tmp_path) == before


@pytest.mark.parametrize("case", [case for case in canon_exports.CASES if case.startswith("onnx")])
def test_onnx_files_are_well_formed(exports, case):
    path = exports / "plain" / case / "model.onnx"
    onnx.checker.check_model(path)
    model = onnx.load(path, load_external_data=False)
    assert [(each.key, each.value) for each in model.metadata_props] == [("leapp.contract", "1")]
    assert not re.search(rb"pkg\.torch|doc_string", path.read_bytes())
