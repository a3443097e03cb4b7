"""Models exported by hand in every format: run as a script by the variation tests, imported by the others.

    python canon_exports.py FOLDER STEM INPUT [raw] [after] [forked]

writes FOLDER/<case>/STEM.<suffix>, canonical, and with ``raw`` what torch wrote to FOLDER/<case>/raw/STEM.<suffix>.
``INPUT`` fills the example inputs.
"""

import enum
import importlib.util
import logging
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import nn


class MLP(nn.Module):
    """Weights under names with dots."""

    def __init__(self, width=5):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ELU(), nn.Linear(width, 2))

    def forward(self, x):
        return torch.tanh(self.net(x)) * 2.5


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        y, _ = self.lstm(x)
        return self.head(y)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 1, 2))

    def forward(self, x):
        return self.layers(x.unsqueeze(1)).flatten(1)


class Settings(nn.Module):
    """Constants that TorchScript keeps in a set, lists and dicts."""

    alpha: Final[float]
    beta: Final[int]
    gamma: Final[str]
    delta: Final[bool]
    epsilon: Final[list[int]]
    gains: dict[str, float]
    steps: list[int]

    def __init__(self):
        super().__init__()
        self.alpha, self.beta, self.gamma, self.delta, self.epsilon = 0.5, 2, "x1 = __torch__.MLP", True, [1, 2]
        self.gains = {"b": 2.0, "a": -1.5, "c": 1e-9}
        self.steps = [3, 1, 2]

    def forward(self, x):
        y = x * self.gains["b"] + self.gains["a"]
        if len(self.gamma) > self.beta and self.delta:
            y = y + self.alpha * self.steps[0] * self.epsilon[1]
        return y


class Pair(NamedTuple):
    first: torch.Tensor
    second: int


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


def step_size(x, scale: int = 3):
    x = x * scale
    y1 = torch.relu(x) - x.abs().mean()
    return y1 + x


class Nested(nn.Module):
    """Types, functions, loops, branches, and the same class with different attributes several times."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([MLP(3), MLP(3), MLP(4), Settings()])
        self.named = nn.ModuleDict({"left side": nn.Linear(4, 4), "right": nn.Identity()})
        self.table: dict[str, list[int]] = {"k": [1, 2]}
        self.mode = Mode.SLOW

    def limit(self, x, top: int | None = None):
        x1 = x
        if top is not None:
            x1 = torch.clamp(x, -top, top)
        return x1

    def forward(self, x):
        results: list[torch.Tensor] = []
        for part in self.parts:
            results.append(part(x).sum(-1))  # noqa: PERF401 - TorchScript unrolls this loop
        for layer in self.named.values():
            x = layer(x)
        y1 = step_size(x)
        y2 = step_size(y1, 2)
        if self.mode == Mode.SLOW:
            y2 = y2 - Pair(y1, 2).second
        pair = Pair(y2, len(results))
        for i in range(pair.second):
            y2 = y2 + results[i].unsqueeze(-1) * self.table["k"][1]
        while bool(y2.abs().max() > 100):
            y2 = y2 / 2
        return self.limit(y2, 7), torch.add(torch.add(pair.first, y1, alpha=2), torch.stack(results).sum())


class Tied(nn.Module):
    """One weight in two places, and a view of another's storage."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, 4)
        self.decode = nn.Linear(4, 4)
        self.decode.weight = self.encode.weight
        shared = torch.randn(3, 4)
        self.register_buffer("all", shared)
        self.register_buffer("row", shared[1])
        self.register_buffer("columns", torch.randn(4, 3).t())

    def forward(self, x):
        return self.decode(torch.relu(self.encode(x))) + self.row + self.all.sum(0) + self.columns.sum(0)


class Kinds(nn.Module):
    """Constants of many dtypes, empty ones and scalars."""

    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.randn(4).to(torch.bfloat16))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("small", torch.tensor([1, 2, 3, 250], dtype=torch.uint8))
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("fine", torch.tensor(0.1, dtype=torch.float64))

    def forward(self, x):
        y = torch.where(self.mask, x, x * self.low.float()) * self.count
        z = torch.cat((y, self.empty)) + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return z + self.small, (z * self.fine).sum(), self.empty


class Hidden(nn.Module):
    """Shows parts of storages; the rest of them differs from process to process."""

    def __init__(self):
        super().__init__()
        for name, show in (("slice", lambda t: t[:4]), ("strided", lambda t: t[3:15:4]), ("late", lambda t: t[12:])):
            storage = torch.frombuffer(bytearray(os.urandom(64)), dtype=torch.int32)
            storage = (storage % 1000).float()
            view = show(storage)
            view[...] = torch.arange(float(view.numel()))
            self.register_buffer(name, view)

    def forward(self, x):
        return x + self.slice * self.late + self.strided.sum()


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).reshape(-1)[: x.shape[0] * 2 - 1] * x.shape[0]


class Branching(nn.Module):
    """Subgraphs, each with a constant of its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.layer(v) + 1, lambda v: v * 2 - self.layer.bias, (x,))


def symbolic():
    return torch.fx.symbolic_trace(MLP())


def written(x):
    """A graph made by hand, as a recorder would."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    weight = graph.get_attr("weight")
    value = graph.call_function(torch.nn.functional.linear, (value, weight))
    value = graph.call_method("sigmoid", (value,))
    graph.output((graph.call_function(torch.mul, (value, 2.0)),))
    root = nn.Module()
    root.register_buffer("weight", x)
    return torch.fx.GraphModule(root, graph)


def unlifted():
    """A graph that comes out of an export and carries its notes."""
    return torch.export.export(MLP(), (torch.zeros(3, 4),)).module()


MODELS = {
    "mlp": MLP,
    "recurrent": Recurrent,
    "convolutional": Convolutional,
    "settings": Settings,
    "nested": Nested,
    "tied": Tied,
    "kinds": Kinds,
    "hidden": Hidden,
    "dynamic": Dynamic,
    "branching": Branching,
    "symbolic": symbolic,
    "unlifted": unlifted,
    "written": lambda: written(torch.randn(4, 4)),
}


def script(model, _example, path):
    torch.jit.script(model).save(str(path))


def freeze(model, _example, path):
    torch.jit.freeze(torch.jit.script(model)).save(str(path))


def trace(model, example, path):
    torch.jit.trace(model, example).save(str(path))


def pt2(model, example, path):
    torch.export.save(torch.export.export(model, example), path)


def pt2_dynamic(model, example, path):
    batch = torch.export.Dim("batch", min=2, max=64)
    torch.export.save(torch.export.export(model, example, dynamic_shapes={"x": {0: batch}}), path)


def onnx(model, example, path):
    torch.onnx.export(model, example, path, dynamo=True, external_data=False, verbose=False)


def onnx_dynamic(model, example, path):
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}}
    torch.onnx.export(
        model, example, path, dynamo=True, external_data=False, dynamic_shapes=shapes, verbose=False, optimize=False
    )


def onnx_external(model, example, path):
    torch.onnx.export(model, example, path, dynamo=True, external_data=True, verbose=False)


def onnx_legacy(model, example, path):
    torch.onnx.export(model, example, path, dynamo=False, verbose=False)


FORMATS = {
    ".pt": (script, freeze, trace),
    ".pt2": (pt2, pt2_dynamic),
    ".onnx": (onnx, onnx_dynamic, onnx_external, onnx_legacy),
}

TABLE = {
    script: "mlp recurrent convolutional settings nested tied kinds hidden symbolic written",
    freeze: "mlp recurrent convolutional settings nested tied kinds hidden symbolic written",
    trace: "mlp recurrent convolutional tied kinds hidden",
    pt2: "mlp recurrent convolutional tied kinds hidden branching symbolic unlifted written",
    pt2_dynamic: "dynamic",
    onnx: "mlp convolutional kinds branching written",
    onnx_dynamic: "dynamic",
    onnx_external: "mlp",
    onnx_legacy: "mlp recurrent",
}

CASES = {
    f"{export.__name__}-{name}": (export, name, suffix)
    for suffix, exports in FORMATS.items()
    for export in exports
    for name in TABLE[export].split()
}


def canonicalise(path):
    from leapp.export import canon_onnx, canon_pt2, canon_torchscript

    if path.suffix == ".onnx":
        canon_onnx.canonicalise(path, {"leapp.contract": "1"})
    else:
        {".pt": canon_torchscript, ".pt2": canon_pt2}[path.suffix].canonicalise(path)


def example_for(name, fill):
    """A batch of three, and of another size for other values where the size may vary."""
    rows = 3 + int(float(fill)) % 5 if name == "dynamic" else 3
    return (torch.full((rows, 4), float(fill)),)


def export_one(case, path, fill):
    """One model in one format, as torch writes it."""
    export, name, _ = CASES[case]
    torch.manual_seed(0)
    model = MODELS[name]()
    if name != "unlifted":
        model.eval()
    export(model, example_for(name, fill), path)


def export_all(folder, stem, fill, *, raw=False, cases=tuple(CASES)):
    for case in cases:
        suffix = CASES[case][2]
        path = Path(folder) / case / f"{stem}{suffix}"
        path.parent.mkdir(parents=True)
        export_one(case, path, fill)
        if raw:
            for each in list(path.parent.iterdir()):
                copy = path.parent / "raw" / each.name
                copy.parent.mkdir(exist_ok=True)
                shutil.copy(each, copy)
        canonicalise(path)


def other_work():
    """What a process may have done before: other things under the same names, other exports."""
    spec = importlib.util.spec_from_file_location("earlier", __file__)
    module = sys.modules["earlier"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    earlier = vars(module)
    for each in earlier.values():
        # Torch takes two enumerations of one name for one another, and then computes something else.
        if getattr(each, "__module__", "") == "earlier" and each is not earlier["Mode"]:
            each.__module__ = __name__
    for name in ("Nested", "MLP", "Recurrent", "Settings"):
        torch.jit.freeze(torch.jit.script(earlier[name]().eval()))
    torch.jit.script(earlier["Nested"]())
    torch.jit.trace(Convolutional().eval(), (torch.zeros(3, 4),))
    for _ in range(12):
        torch.fx.symbolic_trace(MLP())
    torch.export.export(Dynamic(), (torch.zeros(5, 4),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})


def main(out, stem, fill, *options):
    """See the top of the file; ``after`` other work and in reverse order, in a ``forked`` child of this process."""
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    cases = list(CASES)
    if "after" in options:
        other_work()
        cases.reverse()
    child = os.fork() if "forked" in options else 0
    if child:
        return os.waitpid(child, 0)[1]
    export_all(out, stem, fill, raw="raw" in options, cases=cases)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
