"""Cost of a node from annotation to bundle, in chains of 10, 50 and 200 small TorchScript nodes.

CPU time of trace, export, checks and bundle, without the picture, divided by the number of nodes: it must not grow with
the chain. What a pipeline costs once, whatever its length, is measured with a chain of one node and taken off, and
printed. Short chains are recorded several in a row, so that each figure is of about as long a time: on a machine that
others use, the best of a few long times is worse than the best of a few short ones.
"""

from __future__ import annotations

import gc
import math
import sys
import tempfile
import time

import torch
from _measure import ratio

import leapp

LENGTHS = (10, 50, 200)
REPEATS = 4
ROW = {1: 25, 10: 16, 50: 4, 200: 1}
"""How many chains of a length are recorded in a row."""
MOST_SECONDS = 0.015
"""Per node. ``torch.jit.script`` of an fx module alone takes more."""
FLAT = 1.10


def cpu_seconds(length: int, folder: str) -> float:
    """CPU time of one chain, recorded, exported, checked and written over the bundle before it."""
    scales = [torch.randn(4) for _ in range(length)]
    x = torch.randn(4)
    gc.collect()
    begin = time.process_time()
    leapp.start("chain", save_path=folder)
    for index, scale in enumerate(scales):
        x = leapp.annotate.input_tensors(f"node{index}", {"x": x})
        x = torch.tanh(x * scale + 0.5)
        leapp.annotate.output_tensors(f"node{index}", {"y": x}, export_with="torchscript")
    leapp.stop()
    leapp.compile_graph(visualize=False)
    return time.process_time() - begin


def main() -> int:
    """Print the figures; 1 when one misses its limit."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for length in (1, LENGTHS[0]):
            cpu_seconds(length, folder)  # imports, and first uses of torch's compilers
        # Turn by turn, so that whatever else the machine does hits all lengths alike.
        best = dict.fromkeys((1, *LENGTHS), math.inf)
        for _ in range(REPEATS):
            for length, row in ROW.items():
                seconds = sum(cpu_seconds(length, folder) for _ in range(row)) / row
                best[length] = min(best[length], seconds)
    once = best[1] - (best[50] - best[1]) / 49
    print(f"a pipeline, once: {once * 1e3:.1f} ms")
    per_node = {length: (best[length] - once) / length for length in LENGTHS}
    ok = True
    for length, seconds in per_node.items():
        ok &= ratio(f"{length} nodes, each", seconds, "the limit per node", MOST_SECONDS, 1.0)
    least = min(per_node.values())
    for length, seconds in per_node.items():
        ok &= ratio(f"{length} nodes, each", seconds, "the cheapest of the three", least, FLAT)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
