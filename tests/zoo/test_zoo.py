"""A fixed handful of the zoo, and that no layer of torch is left out of it in silence."""

import inspect

import pytest
import torch
import zoo_judge
import zoo_torch
from run import report, selected
from zoo_item import Item

KNOWN = {item.name: item for item in zoo_torch.ITEMS}
HANDFUL = (
    "nn.Conv2d/reflect",
    "nn.MaxUnpool2d",
    "nn.GRU/state",
    "nn.TransformerDecoderLayer/masks",
    "nn.EmbeddingBag/offsets",
    "nn.CrossEntropyLoss",
)


@pytest.mark.parametrize("name", HANDFUL)
def test_a_handful_is_right_in_all_formats(name):
    columns = (zoo_judge.RECORDING, *zoo_judge.FORMATS)
    verdicts = dict(zoo_judge.judge(KNOWN[name], columns))
    assert {
        column: (verdict.status, verdict.detail) for column, verdict in verdicts.items() if verdict.status != "ok"
    } == {}
    assert tuple(verdicts) == columns


def test_every_layer_of_torch_is_in_the_zoo_or_left_out_for_a_reason():
    layers = {
        name
        for name, thing in vars(torch.nn).items()
        if inspect.isclass(thing) and issubclass(thing, torch.nn.Module) and not name.startswith("_")
    }
    shown = {name.removeprefix("nn.").split("/")[0] for name in KNOWN if name.startswith("nn.")}
    left_out = {name for names in zoo_torch.LEFT_OUT for name in names.split()}
    assert layers - shown - left_out == set()
    assert shown & left_out == set()


def test_a_frozen_value_is_refused_where_it_counts():
    item = Item("frozen", lambda: lambda x: x * float(x.sum()), lambda: (torch.randn(3),))
    (verdict,) = dict(zoo_judge.judge(item, (zoo_judge.RECORDING,))).values()
    assert (verdict.status, verdict.detail.split(":")[0]) == ("refused", "LeftTraceError")
    assert "test_zoo.py:" in verdict.detail


def test_an_item_that_ignores_its_inputs_is_none():
    item = Item("constant", lambda: torch.ones_like, lambda: (torch.randn(3),))
    with pytest.raises(ValueError, match="gives the same for all inputs"):
        list(zoo_judge.judge(item))


def test_torchs_own_tools_are_judged_by_the_same_inputs():
    item = Item("branch", lambda: lambda x: x + 1 if x[0] > 0 else x - 1, lambda: (torch.randn(2),))
    samples = {float(item.sample(number)[0][0]) > 0 for number in (zoo_judge.TRACED, *zoo_judge.FRESH)}
    assert samples == {True, False}
    verdicts = dict(zoo_judge.judge(item, (zoo_judge.RECORDING, "torch.jit.trace", "torch.export")))
    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "recording": "refused",
        "torch.jit.trace": "wrong",
        "torch.export": "failed",
    }


class Cells:
    """A finished table."""

    def __init__(self, **columns):
        self.broken = {}
        self.cells = {}
        for column, statuses in columns.items():
            for index, status in enumerate(statuses):
                cell = {"status": status, "detail": "", "seconds": 0.0}
                self.cells.setdefault(f"item{index}", {})[column.replace("_", ".")] = cell


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"onnx": ["ok"] * 100, "torch_export": ["ok"] * 98 + ["wrong"] * 2}, 0),
        ({"onnx": ["ok"] * 99 + ["refused"], "torch_export": ["ok"] * 99 + ["failed"]}, 0),
        ({"onnx": ["ok"] * 98 + ["refused"] * 2, "torch_export": ["failed"] * 100}, 1),
        ({"onnx": ["ok"] * 99 + ["refused"], "torch_export": ["ok"] * 100}, 1),
        ({"onnx": ["ok"] * 99 + ["wrong"], "torch_export": ["wrong"] * 100}, 1),
    ],
)
def test_what_the_run_ends_with(columns, status, capsys):
    table = Cells(**columns)
    assert report(table, list(table.cells), [name.replace("_", ".") for name in columns], 1.0) == status
    assert "onnx" in capsys.readouterr().out


def test_names_parts_and_patterns_select():
    names = ["nn.Conv1d", "nn.Conv2d", "timm.resnet10t"]
    assert selected(names, []) == names
    assert selected(names, ["Conv"]) == names[:2]
    assert selected(names, ["*1d", "timm"]) == ["nn.Conv1d", "timm.resnet10t"]
