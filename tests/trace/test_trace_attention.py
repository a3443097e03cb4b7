"""Torch's fused attention: the user gets its values, the recording gives them bit for bit, every format holds them."""

from __future__ import annotations

import pytest
import torch

from leapp import errors
from leapp._spec import ExportFormat
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import run_passes
from leapp.graph.passes import EXPORT_PASSES


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make().eval()
        for parameter in module.parameters():
            parameter.data += torch.randn_like(parameter) / 10
    return module


def layer(width, heads, wide, **options):
    return seeded(lambda: torch.nn.TransformerEncoderLayer(width, heads, wide, batch_first=True, **options))


LAYER = layer(16, 4, 32)
NORM_FIRST = layer(32, 2, 48, norm_first=True, activation="gelu")
ATTENTION = seeded(lambda: torch.nn.MultiheadAttention(16, 4, batch_first=True))
ENCODER = seeded(
    lambda: torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2, enable_nested_tensor=False
    )
)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(5)
CASES = {
    "layer": (16, LAYER),
    "layer, norm first, gelu": (32, NORM_FIRST),
    "layer, padded": (16, lambda x: LAYER(x, src_key_padding_mask=PADDED)),
    "layer, causal": (16, lambda x: LAYER(x, src_mask=CAUSAL, is_causal=True)),
    "layer, causal and padded": (16, lambda x: LAYER(x, src_mask=CAUSAL < 0, src_key_padding_mask=PADDED)),
    "attention": (16, lambda x: ATTENTION(x, x, x)[0]),
    "attention and its weights": (16, lambda x: ATTENTION(x, x, x)),
    "attention and the weights of each head": (16, lambda x: ATTENTION(x, x, x, average_attn_weights=False)),
    "attention without weights": (16, lambda x: ATTENTION(x, x, x, need_weights=False)[0]),
    "attention, padded": (16, lambda x: ATTENTION(x, x, x, key_padding_mask=PADDED)[0]),
    "attention, slow path": (16, lambda x: ATTENTION(x, x + 1, x)[0]),
    "encoder": (16, ENCODER),
    "encoder, padded": (16, lambda x: ENCODER(x, src_key_padding_mask=PADDED)),
}


def data(width, seed):
    return torch.randn(2, 5, width, generator=torch.Generator().manual_seed(seed))


def several(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_the_kernel_that_torch_chooses_untraced(record, name, grad):
    width, function = CASES[name]
    with torch.set_grad_enabled(grad):
        recorded = record(function, data(width, 1))
        for got, wanted in zip(several(recorded.result), several(function(data(width, 1))), strict=True):
            assert torch.equal(got, wanted)
        fresh, wanted = several(recorded(data(width, 2))), several(function(data(width, 2)))
    for got, each in zip(fresh, wanted, strict=True):
        if grad or "slow" in name:  # composed by torch itself, which chooses kernels by who needs gradients
            torch.testing.assert_close(got, each)
        else:
            assert torch.equal(got, each)
    fused = not any("multi_head_attention_forward" in target for target in recorded.targets)
    assert fused is (not grad and "slow" not in name)


@pytest.mark.parametrize("format", [ExportFormat.TORCHSCRIPT, ExportFormat.PT2, ExportFormat.ONNX])
def test_in_every_format(record, format, tmp_path):
    cases = {name: function for name, (width, function) in CASES.items() if width == 16}

    def all_of_them(x):
        return tuple(each for function in cases.values() for each in several(function(x)))

    with torch.no_grad():
        graph = run_passes(record(all_of_them, data(16, 1)).graph, EXPORT_PASSES)
        wanted = all_of_them(data(16, 2))
    path = tmp_path / f"model{format.suffix}"
    backend_for(format).write(graph, (data(16, 1),), path, ExportOptions())
    outputs = backend_for(format).open(path, graph.spec)({"a": data(16, 2)})
    for got, each in zip(outputs.values(), wanted, strict=True):
        torch.testing.assert_close(got, each, rtol=1e-4, atol=1e-5)


def test_a_padded_batch_packed_into_a_nested_tensor_is_refused_by_name(record):
    encoder = seeded(
        lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2)
    )
    with torch.no_grad(), pytest.raises(errors.UnrecordableOpError, match="enable_nested_tensor=False"):
        record(lambda x: encoder(x, src_key_padding_mask=PADDED), data(16, 1))


def test_a_mode_of_the_user_decides_as_it_would_untraced(record):
    def on_a_device(x):
        with torch.device("cpu"):
            return LAYER(x)

    with torch.no_grad():
        recorded = record(on_a_device, data(16, 1))
        assert torch.equal(recorded.result, on_a_device(data(16, 1)))
    assert torch.overrides.has_torch_function is torch._C._has_torch_function
