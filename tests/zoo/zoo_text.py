"""Models of transformers, in tiny configurations and with random weights."""

from __future__ import annotations

import zoo_names  # isort: skip  # before torchvision

from typing import Any

import torch
import transformers
from torch import nn, randint, randn
from zoo_item import Item, spread

ITEMS: list[Item] = []
assert zoo_names.NAMES

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WORDS = {"vocab_size": 30, "max_position_embeddings": 16}
SIGHT = {"image_size": 16, "patch_size": 4}


SKIPS = (
    "transformers.masking_utils:_ignore_causal_mask_sdpa",
    "transformers.masking_utils:_ignore_bidirectional_mask_sdpa",
)
"""Both leave a mask out of attention when nothing is masked: traced with a padded sentence, the mask stays in."""


class Called(nn.Module):
    """A model whose inputs are keywords, in order; ``fixed`` are those that are no tensors."""

    def __init__(self, model: nn.Module, names: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names.split(), fixed

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.fixed)


def words(batch: int = 2, length: int = 7) -> torch.Tensor:
    """Sentences."""
    return randint(3, 30, (batch, length))


def padded(batch: int = 2, length: int = 7) -> torch.Tensor:
    """A mask of ones, then zeros behind a length that is drawn; every sentence is shorter than the longest possible."""
    return (torch.arange(length) < randint(2, length, (batch, 1))).long()


def sentences() -> tuple[torch.Tensor, ...]:
    """Sentences without a mask."""
    return (words(),)


def masked_sentences() -> tuple[torch.Tensor, ...]:
    """Sentences of several lengths."""
    return words(), padded()


def image() -> tuple[torch.Tensor, ...]:
    """One small picture."""
    return (randn(1, 3, 16, 16),)


def model(
    name: str,
    draw: Any,
    names: str,
    config: Any,
    *,
    implementation: str = "",
    label: str = "",
    scale: float = 0.1,
    **fixed: Any,
) -> None:
    """``transformers.NAME``; what is cached between calls is no output."""

    def build() -> nn.Module:
        made = config() if callable(config) else config
        if implementation:
            made._attn_implementation = implementation
        built = getattr(transformers, name)(made)
        return spread(Called(built, names, **fixed), scale)

    ITEMS.append(Item(f"transformers.{name}{label}", build, draw, SKIPS if "attention_mask" in names else ()))


def kind(name: str, **arguments: Any) -> Any:
    """A configuration, made when it is needed."""
    return lambda: getattr(transformers, f"{name}Config")(**arguments)


BERT = kind("Bert", **SMALL, **WORDS)
model("BertModel", sentences, "input_ids", BERT)
model("BertModel", masked_sentences, "input_ids attention_mask", BERT, label="/masked")
model(
    "BertModel",
    masked_sentences,
    "input_ids attention_mask",
    BERT,
    label="/eager",
    implementation="eager",
    output_attentions=True,
)
model("BertForSequenceClassification", masked_sentences, "input_ids attention_mask", BERT)
model("BertForQuestionAnswering", sentences, "input_ids", BERT)
model(
    "RobertaModel",
    masked_sentences,
    "input_ids attention_mask",
    kind("Roberta", **SMALL, vocab_size=30, max_position_embeddings=20),
)
model("AlbertModel", masked_sentences, "input_ids attention_mask", kind("Albert", **SMALL, **WORDS, embedding_size=8))
model("ElectraModel", masked_sentences, "input_ids attention_mask", kind("Electra", **SMALL, **WORDS, embedding_size=8))
model(
    "DistilBertModel",
    masked_sentences,
    "input_ids attention_mask",
    kind("DistilBert", vocab_size=30, max_position_embeddings=16, dim=16, n_layers=2, n_heads=2, hidden_dim=24),
)
model(
    "MPNetModel",
    masked_sentences,
    "input_ids attention_mask",
    kind("MPNet", **SMALL, vocab_size=30, max_position_embeddings=20),
)
model(
    "DebertaV2Model",
    masked_sentences,
    "input_ids attention_mask",
    kind("DebertaV2", **SMALL, **WORDS, relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"]),
)
model(
    "ModernBertModel",
    masked_sentences,
    "input_ids attention_mask",
    kind(
        "ModernBert", **SMALL, **WORDS, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2
    ),
)
model("FNetModel", sentences, "input_ids", kind("FNet", **SMALL, **WORDS))

GPT = kind("GPT2", vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
model("GPT2Model", sentences, "input_ids", GPT, use_cache=False)
model("GPT2LMHeadModel", masked_sentences, "input_ids attention_mask", GPT, label="/masked", use_cache=False)
model(
    "GPTNeoXModel",
    sentences,
    "input_ids",
    kind("GPTNeoX", **SMALL, **WORDS, bos_token_id=1, eos_token_id=2),
    use_cache=False,
)
model(
    "OPTModel",
    masked_sentences,
    "input_ids attention_mask",
    kind(
        "OPT",
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=24,
        max_position_embeddings=16,
        word_embed_proj_dim=16,
    ),
    use_cache=False,
)
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
for name, more in {
    "Llama": {"num_key_value_heads": 1}, "Mistral": {"num_key_value_heads": 1, "sliding_window": 4},
    "Qwen2": {"num_key_value_heads": 2}, "Qwen3": {"num_key_value_heads": 1, "head_dim": 8},
    "Gemma": {"num_key_value_heads": 1, "head_dim": 8}, "Gemma2": {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4},
    "Phi": {}, "Granite": {}, "Olmo2": {}, "Cohere": {},
}.items():  # fmt: skip
    model(f"{name}Model", sentences, "input_ids", kind(name, **SMALL, **WORDS, **ENDS, **more), use_cache=False)
model(
    "LlamaForCausalLM",
    masked_sentences,
    "input_ids attention_mask",
    kind("Llama", **SMALL, **WORDS, **ENDS, num_key_value_heads=1),
    label="/masked",
    use_cache=False,
)
model(
    "LlamaModel",
    sentences,
    "input_ids",
    kind("Llama", **SMALL, **WORDS, **ENDS, num_key_value_heads=1),
    label="/eager",
    implementation="eager",
    use_cache=False,
)
model(
    "LlamaModel",
    lambda: (randn(2, 7, 16),),
    "inputs_embeds",
    kind("Llama", **SMALL, **WORDS, **ENDS, num_key_value_heads=1),
    label="/embedded",
    use_cache=False,
)
model(
    "MixtralModel",
    sentences,
    "input_ids",
    kind("Mixtral", **SMALL, **WORDS, **ENDS, num_key_value_heads=1, num_local_experts=3),
    use_cache=False,
)
model(
    "MambaModel",
    sentences,
    "input_ids",
    kind("Mamba", vocab_size=30, hidden_size=16, num_hidden_layers=2, state_size=4),
    use_cache=False,
)

T5 = kind(
    "T5",
    vocab_size=30,
    d_model=16,
    d_kv=8,
    d_ff=24,
    num_layers=2,
    num_heads=2,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=16,
    decoder_start_token_id=0,
)
model("T5EncoderModel", masked_sentences, "input_ids attention_mask", T5)
model("T5Model", lambda: (words(), words(2, 5)), "input_ids decoder_input_ids", T5, use_cache=False)
SEQUENCE = {
    "vocab_size": 30,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
model(
    "BartModel",
    lambda: (words(), words(2, 5)),
    "input_ids decoder_input_ids",
    kind("Bart", **SEQUENCE, max_position_embeddings=16, **ENDS),
    use_cache=False,
)
model(
    "MarianModel",
    lambda: (words(), words(2, 5)),
    "input_ids decoder_input_ids",
    kind("Marian", **SEQUENCE, max_position_embeddings=16, pad_token_id=0, decoder_start_token_id=1),
    use_cache=False,
)

# --- sound -----------------------------------------------------------------------------------------------------------

WHISPER = kind(
    "Whisper",
    **SEQUENCE,
    **ENDS,
    num_mel_bins=8,
    max_source_positions=10,
    max_target_positions=16,
    decoder_start_token_id=1,
)
model(
    "WhisperModel", lambda: (randn(1, 8, 20), words(1, 4)), "input_features decoder_input_ids", WHISPER, use_cache=False
)


class WhisperEncoder(nn.Module):
    """The encoder alone, as one deploys it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = transformers.WhisperModel(WHISPER()).encoder

    def forward(self, sound: torch.Tensor) -> Any:
        return self.encoder(sound)


ITEMS.append(Item("transformers.WhisperEncoder", lambda: spread(WhisperEncoder(), 0.1), lambda: (randn(1, 8, 20),)))
SOUND = {
    **SMALL,
    "vocab_size": 30,
    "conv_dim": (8, 8),
    "conv_kernel": (4, 3),
    "conv_stride": (2, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
model("Wav2Vec2Model", lambda: (randn(1, 60),), "input_values", kind("Wav2Vec2", **SOUND))
model("HubertModel", lambda: (randn(1, 60),), "input_values", kind("Hubert", **SOUND))
model(
    "ASTModel",
    lambda: (randn(1, 24, 16),),
    "input_values",
    kind("AST", **SMALL, patch_size=4, frequency_stride=4, time_stride=4, max_length=24, num_mel_bins=16),
)

# --- pictures --------------------------------------------------------------------------------------------------------

model("ViTModel", image, "pixel_values", kind("ViT", **SMALL, **SIGHT))
model("ViTForImageClassification", image, "pixel_values", kind("ViT", **SMALL, **SIGHT))
model("DeiTModel", image, "pixel_values", kind("DeiT", **SMALL, **SIGHT))
model("BeitModel", image, "pixel_values", kind("Beit", **SMALL, **SIGHT, use_relative_position_bias=True))
model(
    "Dinov2Model",
    image,
    "pixel_values",
    kind("Dinov2", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, **SIGHT),
)
model(
    "DPTModel",
    image,
    "pixel_values",
    kind("DPT", **SMALL, **SIGHT, backbone_out_indices=[0, 1, 0, 1], neck_hidden_sizes=[4, 4, 4, 4]),
)
model(
    "SwinModel",
    image,
    "pixel_values",
    kind("Swin", image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4),
)
model(
    "ConvNextModel",
    image,
    "pixel_values",
    kind("ConvNext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4),
)
model(
    "ResNetModel",
    image,
    "pixel_values",
    kind("ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
)
model(
    "SegformerModel",
    lambda: (randn(1, 3, 32, 32),),
    "pixel_values",
    kind(
        "Segformer",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
    ),
)
VISION = {**SMALL, **SIGHT}
TEXT = {**SMALL, **WORDS, **ENDS}
model("CLIPVisionModel", image, "pixel_values", kind("CLIPVision", **VISION))
model("CLIPTextModel", masked_sentences, "input_ids attention_mask", kind("CLIPText", **TEXT))
model(
    "CLIPModel",
    lambda: (words(), *image()),
    "input_ids pixel_values",
    lambda: transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=8),
)
model(
    "SiglipModel",
    lambda: (words(2, 16), *image()),
    "input_ids pixel_values",
    lambda: transformers.SiglipConfig(text_config=TEXT, vision_config=VISION),
)
model("DecisionTransformerModel", lambda: (randn(1, 4, 5), randn(1, 4, 3), randn(1, 4, 1), randint(9, (1, 4)), torch.ones(1, 4).long() - (torch.arange(4) < randint(3, (1, 1))).long()),
      "states actions returns_to_go timesteps attention_mask", kind("DecisionTransformer", state_dim=5, act_dim=3, hidden_size=16, max_ep_len=10, n_layer=1, n_head=2, vocab_size=1, n_positions=32))  # fmt: skip
model(
    "PatchTSTModel",
    lambda: (randn(1, 16, 3),),
    "past_values",
    kind(
        "PatchTST",
        num_input_channels=3,
        context_length=16,
        patch_length=4,
        patch_stride=4,
        d_model=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
    ),
)
