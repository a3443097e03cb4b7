"""Cost of a checked artifact against torch's own exporter called by hand.

Ours includes canonical bytes, hashing, loading the file again and replaying a sample; by hand is the exporter and the
write alone. CPU time for a 3-layer 512-wide MLP, warm; CPU time and peak memory for 200 MB of weights, each in a fresh
process.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from _measure import best_seconds, peak_bytes, ratio

from leapp._canonical import sha256_file
from leapp._spec import ExportFormat
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.passes import EXPORT_PASSES
from leapp.replay import replay
from leapp.trace.constants import bytes_digest
from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMATS = (ExportFormat.ONNX, ExportFormat.PT2, ExportFormat.TORCHSCRIPT)


def mlp(width: int, layers: int) -> torch.nn.Module:
    """Linear layers with tanh between them."""
    torch.manual_seed(0)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*parts).eval()


def recorded(model: torch.nn.Module, width: int) -> tuple[NodeGraph, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The model as one node, with its sample."""
    session = Session(SessionOptions("bench", Path("unused")))
    x = torch.randn(1, width)
    with torch.no_grad():
        session.input_tensors("n", {"x": x})
        y = model(x)
        session.output_tensors("n", {"y": y})
    session.stop()
    recording = session.completed[0].recordings[0]
    assert recording.graph is not None
    assert recording.sample is not None
    return recording.graph, dict(recording.sample.inputs), dict(recording.sample.outputs)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Neither progress lines nor deprecation warnings of torch's exporters."""
    sink = io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def by_hand(format: ExportFormat, model: torch.nn.Module, width: int, path: Path) -> None:
    """What a user would write without us."""
    x = torch.randn(1, width)
    with quiet(), torch.no_grad():
        if format is ExportFormat.TORCHSCRIPT:
            torch.jit.save(torch.jit.freeze(torch.jit.script(model)), path)
        elif format is ExportFormat.PT2:
            torch.export.save(torch.export.export(model, (x,)), path)
        else:
            torch.onnx.export(model, (x,), path, dynamo=True, opset_version=20)


def ours(
    format: ExportFormat, node: tuple[NodeGraph, dict[str, torch.Tensor], dict[str, torch.Tensor]], path: Path
) -> None:
    """Passes, export, canonical bytes, digests of weights and file, reload, replay."""
    recording, inputs, outputs = node
    graph = run_passes(recording, EXPORT_PASSES)
    for tensor in recording.constants.values():
        bytes_digest(tensor)
    backend = backend_for(format)
    info = backend.write(graph, tuple(inputs.values()), path, ExportOptions())
    for written in info.paths:
        sha256_file(written)
    (port,) = replay(backend.open(path, recording.spec), recording.spec, [(inputs, outputs)])
    assert port.ok, port


BIG_WIDTH, BIG_LAYERS = 2560, 8  # 8 x 26 MB

BIG = """
import sys, time
sys.path.insert(0, {folder!r})
import export_cost as bench, torch
from pathlib import Path
from leapp._spec import ExportFormat
torch.set_num_threads(1)
kind, format, path = sys.argv[1], ExportFormat(sys.argv[2]), Path(sys.argv[3])
small = bench.mlp(8, 1)
bench.ours(format, bench.recorded(small, 8), path)  # what imports cost is not the point
bench.by_hand(format, small, 8, path)
model = bench.mlp(bench.BIG_WIDTH, bench.BIG_LAYERS)
begin = time.process_time()
if kind == "ours":
    bench.ours(format, bench.recorded(model, bench.BIG_WIDTH), path)
elif kind == "hand":
    bench.by_hand(format, model, bench.BIG_WIDTH, path)
print(time.process_time() - begin)
"""


def main() -> int:
    """Print each figure; 1 when one is above its limit."""
    torch.set_num_threads(1)
    fine = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = mlp(512, 3)
        node = recorded(model, 512)

        def timed(run: Callable[..., None], *arguments: object) -> float:
            run(*arguments)
            return best_seconds(lambda: run(*arguments), repeats=7)

        for format, limit in ((ExportFormat.ONNX, 1.2), (ExportFormat.PT2, 2.2), (ExportFormat.TORCHSCRIPT, None)):
            path = folder / f"model{format.suffix}"
            hand = timed(by_hand, format, model, 512, path)
            mine = timed(ours, format, node, path)
            allowed = limit if limit is not None else (hand + 0.040) / hand
            fine &= ratio(f"{format}, 3x512 MLP", mine, "by hand", hand, allowed)
        weights = sum(p.numel() * p.element_size() for p in mlp(BIG_WIDTH, BIG_LAYERS).parameters())
        script = BIG.format(folder=str(Path(__file__).parent))
        for format, extra in ((ExportFormat.ONNX, 1.3), (ExportFormat.PT2, 2.2), (ExportFormat.TORCHSCRIPT, 2.2)):
            target = str(folder / f"big{format.suffix}")
            hand, hand_peak = peak_bytes(script, "hand", format, target)
            mine, peak = peak_bytes(script, "ours", format, target)
            fine &= ratio(f"{format}, {weights / 1e6:.0f} MB", mine, "by hand", hand, 2.0, "s")
            allowed = (hand_peak + extra * weights) / hand_peak
            fine &= ratio(f"{format}, {weights / 1e6:.0f} MB, peak memory", peak, "by hand", hand_peak, allowed, "MB")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
