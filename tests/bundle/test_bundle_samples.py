"""Samples and other tensors: equal bytes for equal tensors, readable by every reader of the format."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leapp._dtypes import BY_NAME, torch_dtype
from leapp.bundle.samples import RawTensor, read_samples, read_tensors, write_samples, write_tensors
from leapp.errors import BundleFormatError, BundleValueError

if TYPE_CHECKING:
    from pathlib import Path

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


def values(dtype: str, *shape: int) -> torch.Tensor:
    count = int(np.prod(shape))
    base = torch.arange(count, dtype=torch.float64) - 3 if "uint" not in dtype else torch.arange(count)
    if dtype.startswith("complex"):
        return torch.complex(base, base * 2 + 1).to(torch_dtype(dtype)).reshape(shape)
    return (base * 1.5 if "float" in dtype else base).to(torch_dtype(dtype)).reshape(shape)


SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (0,), (2, 0, 3), (2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", BY_NAME)
def test_torch_tensors_come_back_bit_for_bit(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    tensor = values(dtype, *shape)
    write_tensors(tmp_path / "t", {"node/port": tensor})
    raw = read_tensors(tmp_path / "t")["node/port"]
    assert (raw.dtype, raw.shape) == (dtype, shape)
    back = raw.torch()
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)
    back.fill_(1)  # owns its memory


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [name for name in BY_NAME if name != "bfloat16"])
def test_numpy_arrays_come_back_bit_for_bit(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = values(dtype, *shape).numpy()
    for given_array in (array, array.astype(array.dtype.newbyteorder(">"))):
        write_tensors(tmp_path / "t", {"x": given_array})
        back = read_tensors(tmp_path / "t")["x"].numpy()
        assert back.dtype == array.dtype
        assert back.dtype.isnative
        assert back.shape == shape
        assert np.array_equal(back, array)
        back[...] = 1


def test_every_bfloat16_becomes_the_float32_of_equal_value(tmp_path: Path) -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    write_tensors(tmp_path / "t", {"x": bits})
    raw = read_tensors(tmp_path / "t")["x"]
    assert raw.dtype == "bfloat16"
    assert raw.numpy().dtype == np.float32
    assert np.array_equal(raw.numpy(), bits.float().numpy(), equal_nan=True)


def test_layouts_views_and_lazy_bits_are_written_as_their_values(tmp_path: Path) -> None:
    base = values("float32", 4, 6)
    cases = {
        "t": base.T,
        "strided": base[::2, 1::2],
        "expanded": base[:1].expand(3, 6),
        "conj": values("complex64", 3).conj(),
        "neg": torch._neg_view(base),
        "parameter": torch.nn.Parameter(base),
        "scalar": base[1, 1],
    }
    write_tensors(tmp_path / "t", cases)
    for key, raw in read_tensors(tmp_path / "t").items():
        assert torch.equal(raw.torch(), cases[key].detach()), key
    write_tensors(tmp_path / "n", {"t": base.numpy().T, "s": base.numpy()[::-2], "g": np.float32(2.5)})
    read = read_tensors(tmp_path / "n")
    assert np.array_equal(read["t"].numpy(), base.numpy().T)
    assert np.array_equal(read["s"].numpy(), base.numpy()[::-2])
    assert read["g"].shape == ()


def test_numpy_arrays_of_bfloat16(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    write_tensors(tmp_path / "t", {"x": array})
    assert read_tensors(tmp_path / "t")["x"].torch().tolist() == [1.5, -2.0]


def test_equal_tensors_give_equal_bytes_whatever_they_are_and_came_in(tmp_path: Path) -> None:
    a, b, c = values("float32", 3), values("int8", 5), values("complex128", 2)
    write_tensors(tmp_path / "1", {"a": a, "b": b, "c": c})
    raw = RawTensor.of(c)
    write_tensors(tmp_path / "2", {"c": raw, "b": b.numpy(), "a": torch.stack([a, a], 1)[:, 0]})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_samples_come_back_by_number_direction_and_port(tmp_path: Path) -> None:
    samples = [
        ({"x": values("float32", 3) + i, "a b/ü"[:3]: values("bool", 2)}, {"__metadata__": values("bfloat16", 1) + i})
        for i in range(12)
    ]
    write_samples(tmp_path / "s", samples)
    assert "0/in/x" in read_tensors(tmp_path / "s")
    assert "11/out/__metadata__" in read_tensors(tmp_path / "s")
    back = read_samples(tmp_path / "s")
    assert len(back) == 12
    for sample, (inputs, outputs) in zip(back, samples, strict=True):
        assert sample.inputs.keys() == inputs.keys()
        assert sample.outputs.keys() == outputs.keys()
        assert torch.equal(sample.inputs["x"].torch(), inputs["x"])
        assert torch.equal(sample.outputs["__metadata__"].torch(), outputs["__metadata__"])


def test_no_samples(tmp_path: Path) -> None:
    write_samples(tmp_path / "s", [])
    assert read_samples(tmp_path / "s") == ()


def test_the_package_of_that_name_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    ours = {f"x/{dtype}/{index}": values(dtype, *shape) for dtype in BY_NAME for index, shape in enumerate(SHAPES)}
    write_tensors(tmp_path / "t", ours)
    theirs = safetensors.load_file(tmp_path / "t")
    assert theirs.keys() == ours.keys()
    for key, tensor in ours.items():
        expected = torch.view_as_real(tensor) if tensor.dtype == torch.complex128 else tensor
        assert torch.equal(theirs[key], expected), key
    plain = {key: tensor for key, tensor in ours.items() if tensor.dtype != torch.complex128}
    safetensors.save_file(plain, tmp_path / "u", metadata={"format": "pt"})
    back = read_tensors(tmp_path / "u")
    assert all(torch.equal(back[key].torch(), tensor) for key, tensor in plain.items())
    safetensors.save_file(plain, tmp_path / "v")
    write_tensors(tmp_path / "w", plain)
    assert len((tmp_path / "v").read_bytes()) == len((tmp_path / "w").read_bytes())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "port: a list is no tensor"),
        (np.array(["a"]), "port: an array of <U1 cannot be stored"),
        (np.array([object()]), "port: an array of object cannot be stored"),
        (torch.zeros(2).to_sparse(), "port: a torch.sparse_coo tensor"),
        (torch.zeros(2, dtype=torch.float8_e5m2), "float8_e5m2 cannot be stored"),
        (torch.zeros(2, device="meta"), "port: a torch.strided tensor"),
    ],
    ids=["list", "text", "object", "sparse", "float8", "meta"],
)
def test_what_the_format_cannot_hold_is_named(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(BundleValueError) as caught:
        write_tensors(tmp_path / "t", {"port": value})
    assert message in str(caught.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("key", ["__metadata__", "\ud800"])
def test_keys_that_cannot_be_written(tmp_path: Path, key: str) -> None:
    with pytest.raises(BundleValueError):
        write_tensors(tmp_path / "t", {key: torch.zeros(1)})


def header(**entries: Any) -> bytes:
    text = json.dumps(
        {key: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | each for key, each in entries.items()}
    )
    return len(text).to_bytes(8, "little") + text.encode()


MALFORMED = {
    "empty": b"",
    "short": b"\x01\x00",
    "header too long": (1 << 40).to_bytes(8, "little") + b"{}",
    "no json": (2).to_bytes(8, "little") + b"{]",
    "list": (2).to_bytes(8, "little") + b"[]",
    "dtype": header(x={"dtype": "F99"}) + bytes(4),
    "shape": header(x={"shape": [2]}) + bytes(4),
    "negative": header(x={"shape": [-1]}) + bytes(4),
    "text": header(x={"shape": ["1"]}) + bytes(4),
    "offsets": header(x={"data_offsets": [4, 0]}) + bytes(4),
    "one offset": header(x={"data_offsets": [4]}) + bytes(4),
    "beyond": header(x={"data_offsets": [4, 8]}) + bytes(4),
    "gap": header(x={"data_offsets": [4, 8]}) + bytes(8),
    "tail": header(x={}) + bytes(5),
    "overlap": header(x={}, y={}) + bytes(4),
    "cut": header(x={}) + bytes(3),
    "entry": (10).to_bytes(8, "little") + b'{"x": 12  }'[:10],
    "huge": header(x={"shape": [2**62, 2**62]}) + bytes(4),
    "pairs": header(x={}, __metadata__={"complex128": '["x"]'}) + bytes(4),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "t").write_bytes(MALFORMED[name])
    with pytest.raises(BundleFormatError) as caught:
        read_tensors(tmp_path / "t")
    assert str(tmp_path / "t") in str(caught.value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_tensors_or_our_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "t"
    if not path.exists():
        write_tensors(path, {"a": values("float32", 2), "b": values("complex128", 1)})
    before = path.read_bytes()
    damaged = bytearray(before)
    damaged[data.draw(st.integers(0, len(before) - 1))] = data.draw(st.integers(0, 255))
    other = tmp_path / "damaged"
    other.write_bytes(damaged[: data.draw(st.integers(0, len(before)))] if data.draw(st.booleans()) else damaged)
    try:
        tensors = read_tensors(other)
    except BundleFormatError:
        return
    assert all(len(raw.numpy().tobytes()) >= len(raw.data) for raw in tensors.values())


@pytest.mark.parametrize("key", ["x", "0/x", "0/up/x", "0/in/", "-1/in/x", "²/in/x", "1/in/x"])
def test_files_that_hold_other_things_than_samples(tmp_path: Path, key: str) -> None:
    write_tensors(tmp_path / "t", {key: torch.zeros(1)})
    with pytest.raises(BundleFormatError):
        read_samples(tmp_path / "t")


def test_reading_needs_neither_torch_nor_numpy(tmp_path: Path) -> None:
    write_samples(tmp_path / "s", [({"x": values("bfloat16", 3)}, {"y": values("complex128", 2)})])
    code = (
        "import sys; from pathlib import Path; from leapp.bundle.samples import read_samples, write_samples\n"
        "path = Path(sys.argv[1]); samples = read_samples(path); write_samples(path.with_name('again'), samples)\n"
        "raw = samples[0].inputs['x']; print(raw.dtype, raw.shape, raw.data.hex())\n"
        "assert not {'torch', 'numpy', 'safetensors'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == f"bfloat16 (3,) {RawTensor.of(values('bfloat16', 3)).data.hex()}"
    assert (tmp_path / "again").read_bytes() == (tmp_path / "s").read_bytes()
