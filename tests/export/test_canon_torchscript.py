"""Canonical bytes of TorchScript archives: names, text, pickles, damage."""

import io
import pickletools
import zipfile
from typing import NamedTuple

import pytest
import torch
from torch import nn

from leapp.errors import ArtifactLoadError
from leapp.export import canon_torchscript
from leapp.export._archive import Archive, Kept, rewrite


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def saved(module, path):
    torch.jit.script(module).save(str(path))
    return path


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(4, size)

    def forward(self, x):
        return self.linear(x)


class Pair(NamedTuple):
    first: torch.Tensor
    second: int


class Net(nn.Module):
    """The same class twice with other attributes, types in containers, and strings that look like names."""

    pairs: list[Pair]

    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(4), Layer(4)
        self.second.extra = 1
        self.text = "__torch__.Layer ___torch_mangle_7 x1"
        self.pairs = [Pair(torch.arange(4.0), 3)]

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return x * self.pairs[0].second + self.pairs[0].first, self.text


@pytest.fixture
def path(tmp_path):
    torch.manual_seed(0)
    return saved(Net().eval(), tmp_path / "net.pt")


def test_names_count_within_the_file(path):
    before = members(path)
    assert any(b"test_canon_torchscript" in content for content in before.values())
    canon_torchscript.canonicalise(path)
    after = members(path)
    assert [name for name in after if name.startswith("code/")] == [
        "code/__torch__.py",
        "code/__torch__/___torch_mangle_0.py",
        "code/__torch__/torch/nn/modules/linear.py",
    ]
    text = after["code/__torch__.py"].decode()
    assert "second : __torch__.___torch_mangle_0.Layer" in text
    assert "pairs : List[__torch__.Pair]" in text
    assert not [name for name in after if "debug" in name or "serialization_id" in name]


def test_strings_of_the_user_stay(path):
    canon_torchscript.canonicalise(path)
    module = torch.jit.load(path)
    assert module.text == "__torch__.Layer ___torch_mangle_7 x1"
    assert module(torch.ones(4))[1] == module.text
    opcodes = list(pickletools.genops(members(path)["data.pkl"]))
    strings = [value for opcode, value, _ in opcodes if opcode.name == "BINUNICODE"]
    assert "List[__torch__.Pair]" in strings


def test_outputs_on_other_inputs_and_devices(path):
    before = torch.jit.load(path)
    canon_torchscript.canonicalise(path)
    for options in ({}, {"map_location": "cpu"}, {"map_location": torch.device("cpu")}):
        after = torch.jit.load(path, **options)
        for seed in range(3):
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))
            assert torch.equal(before(x)[0], after(x)[0])
    with path.open("rb") as file:
        assert torch.equal(torch.jit.load(io.BytesIO(file.read()))(x)[0], before(x)[0])
    assert torch.jit.load(path, map_location="meta").first.linear.weight.device.type == "meta"


def test_weights_can_be_mapped(path):
    canon_torchscript.canonicalise(path)
    reader = torch._C.PyTorchFileReader(str(path))
    weight = torch.jit.load(path).first.linear.weight
    shared = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)
    found = [
        torch.tensor([], dtype=torch.float32).set_(shared, reader.get_record_offset(name) // 4, (4, 4))
        for name in reader.get_all_records()
        if name.startswith("data/") and reader.get_record_size(name) == 64
    ]
    assert any(torch.equal(each, weight) for each in found)


def test_code_of_what_was_loaded_is_the_same(path):
    """Torch's printer breaks lines by the length of names, and names are other ones in the second file."""

    def code():
        return {name: content for name, content in members(path).items() if name.startswith("code/")}

    canon_torchscript.canonicalise(path)
    before = code()
    torch.jit.load(path).save(str(path))
    assert code() != before
    canon_torchscript.canonicalise(path)
    assert code() == before


def test_extra_files_stay(tmp_path):
    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Layer(2)), path, _extra_files={"notes/a.txt": b"__torch__.x1"})
    canon_torchscript.canonicalise(path)
    extra = {"notes/a.txt": ""}
    torch.jit.load(path, _extra_files=extra)
    assert extra == {"notes/a.txt": b"__torch__.x1"}


def test_methods_and_what_they_are_called_with(tmp_path):
    class Steps(nn.Module):
        def forward(self, x0, x1: int = 2):
            return self.scale(x0, x1=x1)

        def scale(self, x0, x1: int):
            x2 = x0 * x1
            x2 = x2.flip(dims=[0])
            for i1 in range(2):
                x2 = x2 + i1
            return torch.add(x2, x0, alpha=x1)

        @torch.jit.export
        def reset(self, x7):
            f1 = torch.jit.fork(self.scale, x7, 3)
            return torch.jit.wait(f1)

    path = saved(Steps(), tmp_path / "m.pt")
    before = torch.jit.load(path)
    canon_torchscript.canonicalise(path)
    after = torch.jit.load(path)
    x = torch.randn(5)
    assert torch.equal(before(x), after(x))
    assert torch.equal(before(x0=x, x1=5), after(x0=x, x1=5))
    assert torch.equal(before.reset(x7=x), after.reset(x7=x))


class Packed(nn.Module):
    """Stores half of its weight, and makes the rest of it when it is loaded."""

    def __init__(self):
        super().__init__()
        self.weight = torch.arange(6.0).reshape(2, 3)
        self.training = False

    def forward(self, x):
        return x + self.weight

    @torch.jit.export
    def __getstate__(self):
        return (self.weight[0], self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.weight = torch.stack((state[0], state[0] + 3.0)).reshape(2, 3)
        self.training = state[1]


def test_a_class_that_computes_while_it_is_loaded(tmp_path):
    path = saved(nn.Sequential(Packed(), nn.ReLU()), tmp_path / "m.pt")
    canon_torchscript.canonicalise(path)
    x = torch.randn(2, 3)
    assert torch.equal(torch.jit.load(path)(x), torch.relu(x + torch.arange(6.0).reshape(2, 3)))


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
class Parts(nn.Module):
    """Tensors that see parts of one storage, and leave a part of it unseen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        whole = torch.randn(16)
        for name, part in zip(("first", "second", "third"), whole.split(4), strict=False):
            self.register_buffer(name, part)
        self.register_buffer("unsafe", whole[8:].view(2, 4)[:, 1:3].t())

    def forward(self, x):
        return x * self.first + self.second - self.third, x[:2] @ self.unsafe


@pytest.mark.parametrize("frozen", [False, True])
def test_tensors_that_share_a_storage_keep_their_values(tmp_path, frozen):
    module = torch.jit.script(Parts().eval())
    path = tmp_path / "parts.pt"
    (torch.jit.freeze(module) if frozen else module).save(str(path))
    canon_torchscript.canonicalise(path)
    x = torch.randn(4)
    for value, expected in zip(torch.jit.load(path)(x), Parts()(x), strict=True):
        assert torch.equal(value, expected)


def test_quantized_weights(tmp_path):
    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Layer(2)
            self.register_buffer("q", torch.quantize_per_tensor(torch.tensor([0.1, 0.7, -3.0]), 0.1, 3, torch.qint8))

        def forward(self, x):
            return self.inner(x).sum() + self.q.dequantize()

    path = saved(Quantized(), tmp_path / "m.pt")
    before = torch.jit.load(path)
    canon_torchscript.canonicalise(path)
    x = torch.randn(4)
    assert torch.equal(torch.jit.load(path)(x), before(x))


def _without(path, name):
    with Archive.open(path) as archive:
        rewrite(path, archive, {each: Kept(each) for each in archive.names if each != name})


def _with(path, name, content):
    with Archive.open(path) as archive:
        rewrite(path, archive, {**{each: Kept(each) for each in archive.names}, name: content})


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(b"no archive"), "no archive"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "no archive"),
        (lambda path: _without(path, "constants.pkl"), "no TorchScript archive"),
        (lambda path: _with(path, "bytecode.pkl", b""), "mobile"),
        (lambda path: _with(path, "data.pkl", b"\x80\x02X\xff\0\0\0short"), "malformed"),
        (lambda path: _with(path, "data.pkl", b""), "malformed"),
        (lambda path: _with(path, "code/__torch__/x.py", b"import os\n"), "definition"),
        (lambda path: _with(path, "code/__torch__/x.py", b"\xff\xfe"), "malformed"),
        (lambda path: _without(path, "data/0"), "malformed"),
        (lambda path: torch.save({"a": torch.ones(3)}, path), "no TorchScript archive"),
    ],
)
def test_what_is_no_torchscript_file_is_left_as_it_was(path, damage, why):
    damage(path)
    before = path.read_bytes()
    with pytest.raises(ArtifactLoadError, match=why):
        canon_torchscript.canonicalise(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
