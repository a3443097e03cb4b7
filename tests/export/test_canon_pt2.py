"""Canonical bytes of ``.pt2`` archives."""

import json
import zipfile

import pytest
import torch
from torch import nn

from leapp.errors import ArtifactLoadError
from leapp.export import canon_pt2
from leapp.export._archive import Archive, Kept, rewrite


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.zulu = nn.Linear(4, 4)
        self.alpha = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.register_buffer("limit", torch.tensor(float("inf")))

    def forward(self, x, more):
        y = self.alpha(self.zulu(x)) + more["b"][0]
        return {"y": torch.clamp(y, max=float("inf")), "z": (y * self.limit, more["a"])}


def inputs(seed, rows=3):
    generator = torch.Generator().manual_seed(seed)
    x, a, b = (torch.randn(rows, 4, generator=generator) for _ in range(3))
    return x, {"a": a, "b": [b]}


@pytest.fixture
def path(tmp_path):
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=2, max=16)
    shapes = {"x": {0: rows}, "more": {"a": {0: rows}, "b": [{0: rows}]}}
    program = torch.export.export(Net(), inputs(7), dynamic_shapes=shapes)
    path = tmp_path / "net.pt2"
    torch.export.save(program, path, extra_files={"notes.txt": "kept"})
    return path


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def test_outputs_on_other_inputs(path):
    before = torch.export.load(path).module()
    canon_pt2.canonicalise(path)
    after = torch.export.load(path).module()
    for seed, rows in ((0, 3), (1, 2), (2, 16)):
        expected, actual = before(*inputs(seed, rows)), after(*inputs(seed, rows))
        assert torch.equal(expected["y"], actual["y"])
        for one, other in zip(expected["z"], actual["z"], strict=True):
            assert torch.equal(one, other) or torch.equal(one.isnan(), other.isnan())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_readers_need_is_there(path):
    before = torch.export.load(path)
    canon_pt2.canonicalise(path)
    extra = {"notes.txt": ""}
    after = torch.export.load(path, extra_files=extra)
    assert extra == {"notes.txt": "kept"}
    assert list(after.state_dict) == list(before.state_dict)
    assert str(after.graph_signature) == str(before.graph_signature)
    assert after.range_constraints == before.range_constraints
    assert after.example_inputs is None
    parts = torch.export.unflatten(after)
    assert {"zulu", "alpha", "alpha.0"} <= dict(parts.named_modules()).keys()
    expected, actual = before.module()(*inputs(3)), parts(*inputs(3))
    assert torch.equal(expected["y"], actual["y"])
    lowered = after.run_decompositions({})
    assert torch.equal(lowered.module()(*inputs(4))["y"], before.module()(*inputs(4))["y"])


def test_what_tells_of_the_export_is_not(path):
    before = members(path)
    assert b"stack_trace" in before["models/model.json"]
    assert before["data/sample_inputs/model.pt"]
    canon_pt2.canonicalise(path)
    after = members(path)
    assert after["data/sample_inputs/model.pt"] == b""
    assert ".data/serialization_id" not in after
    model = json.loads(after["models/model.json"])
    for node in model["graph_module"]["graph"]["nodes"]:
        assert node["metadata"].keys() <= {"nn_module_stack"}
        assert "test_canon_pt2" not in json.dumps(node)
    assert b'"hint":{' not in after["models/model.json"]
    assert "+" not in model["torch_version"]


def test_metadata_of_all_kinds(path):
    with Archive.open(path) as archive:
        model = json.loads(archive.read("models/model.json"))
        node = model["graph_module"]["graph"]["nodes"][0]
        node["metadata"] = {
            "nn_module_stack": "140012,,my.script.Net;140013,a.b,pkg.Outer[pkg.Int, (x.y,z)];140012,c,torch.nn.Linear",
            "custom": '{"host": "h"}',
            "from_node": "[]",
            "torch_fn": "linear_9;f",
        }
        changed = {**{name: Kept(name) for name in archive.names}, "models/model.json": json.dumps(model).encode()}
        rewrite(path, archive, changed)
    canon_pt2.canonicalise(path)
    model = json.loads(members(path)["models/model.json"])
    assert model["graph_module"]["graph"]["nodes"][0]["metadata"] == {
        "nn_module_stack": "0,,Net;1,a.b,Outer[pkg.Int, (x.y,z)];0,c,torch.nn.Linear"
    }
    torch.export.load(path)


def test_weights_can_be_mapped(path):
    canon_pt2.canonicalise(path)
    reader = torch._C.PyTorchFileReader(str(path))
    weight = torch.export.load(path).state_dict["zulu.weight"].detach()
    shared = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)
    offset = reader.get_record_offset("data/weights/weight_0")
    assert offset % 64 == 0
    assert torch.equal(torch.tensor([]).set_(shared, offset // 4, (4, 4)), weight)


def _changed(path, name, content):
    with Archive.open(path) as archive:
        kept = {each: Kept(each) for each in archive.names}
        rewrite(path, archive, {**kept, name: content})


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(b""), "no archive"),
        (lambda path: path.write_bytes(path.read_bytes()[:2000]), "no archive"),
        (lambda path: _changed(path, "archive_format", b"other"), "no archive of torch.export"),
        (lambda path: _changed(path, "models/model.json", b"{"), "malformed"),
        (lambda path: _changed(path, "models/model.json", b"[1]"), "malformed"),
        (lambda path: _changed(path, "models/model.json", b"{}"), "malformed"),
        (lambda path: _changed(path, "data/weights/model_weights_config.json", b'{"config": {"a": 1}}'), "malformed"),
        (lambda path: torch.jit.script(nn.Linear(2, 2)).save(str(path)), "no archive of torch.export"),
    ],
)
def test_what_is_no_pt2_file_is_left_as_it_was(path, damage, why):
    damage(path)
    before = path.read_bytes()
    with pytest.raises(ArtifactLoadError, match=why):
        canon_pt2.canonicalise(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
