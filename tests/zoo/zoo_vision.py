"""Models of torchvision and timm, small and with random weights, and torchvision's operators and transforms."""

from __future__ import annotations

import zoo_names  # isort: skip  # before torchvision

from functools import partial
from typing import Any

import timm
import torch
import torchvision
from torch import nn, rand, randint, randn
from torchvision import ops
from torchvision.models import detection, optical_flow, segmentation, video
from torchvision.transforms.v2 import functional as T
from zoo_item import Item, spread

ITEMS: list[Item] = []
assert zoo_names.NAMES


def model(name: str, build: Any, *shape: int) -> None:
    """A model on one image."""
    ITEMS.append(Item(name, lambda: spread(build(), 0.1), lambda: (randn(shape),)))


# --- torchvision: models ---------------------------------------------------------------------------------------------

for name, size in {
    "alexnet": 63, "densenet121": 32, "efficientnet_b0": 32, "efficientnet_v2_s": 32, "mnasnet0_5": 32,
    "mobilenet_v2": 32, "mobilenet_v3_small": 32, "regnet_x_400mf": 32, "regnet_y_400mf": 32, "resnet18": 32,
    "resnet50": 32, "shufflenet_v2_x0_5": 32, "squeezenet1_1": 32, "vgg11": 32, "vgg11_bn": 32,
}.items():  # fmt: skip
    model(f"torchvision.{name}", partial(torchvision.models.get_model, name, num_classes=5), 1, 3, size, size)
model(
    "torchvision.googlenet",
    lambda: torchvision.models.googlenet(num_classes=5, init_weights=False, aux_logits=False),
    1,
    3,
    32,
    32,
)
model(
    "torchvision.inception_v3",
    lambda: torchvision.models.inception_v3(num_classes=5, init_weights=False, aux_logits=False),
    1,
    3,
    75,
    75,
)
model(
    "torchvision.convnext",
    lambda: torchvision.models.ConvNeXt(
        [torchvision.models.convnext.CNBlockConfig(8, 16, 1), torchvision.models.convnext.CNBlockConfig(16, None, 1)],
        num_classes=5,
    ),
    1, 3, 32, 32,
)  # fmt: skip
model(
    "torchvision.vision_transformer",
    lambda: torchvision.models.VisionTransformer(16, 4, 2, 2, 8, 16, num_classes=5),
    1,
    3,
    16,
    16,
)
for name, block in {"swin": None, "swin_v2": torchvision.models.swin_transformer.SwinTransformerBlockV2}.items():
    model(
        f"torchvision.{name}",
        lambda block=block: torchvision.models.SwinTransformer(
            [2, 2], 8, [2, 2], [1, 2], [4, 4], num_classes=5, block=block,
            **({"downsample_layer": torchvision.models.swin_transformer.PatchMergingV2} if block else {}),
        ),
        1, 3, 16, 16,
    )  # fmt: skip
model(
    "torchvision.maxvit",
    lambda: torchvision.models.MaxVit((16, 16), 8, 4, [8], [2], 4, stochastic_depth_prob=0.0, num_classes=5),
    1, 3, 16, 16,
)  # fmt: skip
model(
    "torchvision.fcn_resnet50",
    lambda: segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=3),
    1,
    3,
    32,
    32,
)
model(
    "torchvision.lraspp_mobilenet_v3_large",
    lambda: segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3),
    1,
    3,
    32,
    32,
)
model(
    "torchvision.deeplabv3_mobilenet_v3_large",
    lambda: segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3),
    1,
    3,
    32,
    32,
)
model("torchvision.video.r3d_18", lambda: video.r3d_18(num_classes=3), 1, 3, 4, 16, 16)
model("torchvision.video.mc3_18", lambda: video.mc3_18(num_classes=3), 1, 3, 4, 16, 16)


class Pyramid(nn.Module):
    """A feature pyramid takes a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ops.FeaturePyramidNetwork([4, 6], 5, extra_blocks=ops.feature_pyramid_network.LastLevelMaxPool())

    def forward(self, large: torch.Tensor, small: torch.Tensor) -> Any:
        return self.layer({"large": large, "small": small})


class Flow(nn.Module):
    """Two steps of RAFT; it takes a dozen by default."""

    def __init__(self) -> None:
        super().__init__()
        self.model = optical_flow.raft_small()

    def forward(self, before: torch.Tensor, after: torch.Tensor) -> Any:
        return self.model(before, after, num_flow_updates=2)


class Anchors(nn.Module):
    """The head of RetinaNet with its anchors, moved as the head says."""

    def __init__(self) -> None:
        super().__init__()
        self.head = detection.retinanet.RetinaNetHead(8, 3, 2)
        self.generator = detection.anchor_utils.AnchorGenerator(((8,),), ((0.5, 1.0, 2.0),))
        self.coder = detection._utils.BoxCoder((1.0, 1.0, 1.0, 1.0))

    def forward(self, features: torch.Tensor) -> Any:
        images = detection.image_list.ImageList(features.repeat(1, 1, 4, 4), [(16, 16)])
        found, anchors = self.head([features]), self.generator(images, [features])
        return found["cls_logits"], self.coder.decode_single(found["bbox_regression"][0], anchors[0])


ITEMS.append(Item("torchvision.RAFT", lambda: Flow(), lambda: (randn(1, 3, 128, 128), randn(1, 3, 128, 128))))
ITEMS.append(Item("torchvision.RetinaNetHead+AnchorGenerator+BoxCoder", Anchors, lambda: (randn(1, 8, 4, 4),)))

# --- torchvision: operators ------------------------------------------------------------------------------------------


def boxes(count: int) -> torch.Tensor:
    """Boxes as two corners."""
    corners = rand(count, 2, 2) * 10
    return torch.cat((corners.amin(1), corners.amax(1) + 0.5), dim=1)


def op(name: str, code: Any, inputs: Any) -> None:
    """An operator of torchvision."""
    ITEMS.append(Item(f"torchvision.ops.{name}", code if isinstance(code, type) else lambda: code, inputs))


op("FeaturePyramidNetwork", Pyramid, lambda: (randn(1, 4, 8, 8), randn(1, 6, 4, 4)))
op("box_convert", partial(ops.box_convert, in_fmt="xyxy", out_fmt="cxcywh"), lambda: (boxes(4),))
op("box_area", ops.box_area, lambda: (boxes(4),))
for name in ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"):
    op(name, getattr(ops, name), lambda: (boxes(4), boxes(3)))
for name in ("generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss"):
    op(name, getattr(ops, name), lambda: (boxes(4), boxes(4)))
op("clip_boxes_to_image", partial(ops.clip_boxes_to_image, size=(6, 7)), lambda: (boxes(4),))
op("sigmoid_focal_loss", partial(ops.sigmoid_focal_loss, reduction="mean"), lambda: (randn(4, 3), rand(4, 3).round()))
op("masks_to_boxes", ops.masks_to_boxes, lambda: (rand(3, 5, 6) > 0.4,))
model("torchvision.ops.SqueezeExcitation", lambda: ops.SqueezeExcitation(8, 2), 1, 8, 4, 5)
model("torchvision.ops.FrozenBatchNorm2d", lambda: ops.FrozenBatchNorm2d(4), 2, 4, 3, 5)
model("torchvision.ops.MLP", lambda: ops.MLP(4, [8, 3], norm_layer=nn.LayerNorm), 2, 4)
model("torchvision.ops.Conv2dNormActivation", lambda: ops.Conv2dNormActivation(3, 8, 3, stride=2, groups=1), 1, 3, 8, 9)
model("torchvision.ops.Permute", lambda: ops.Permute([0, 2, 1]), 2, 3, 4)
model("torchvision.ops.StochasticDepth", lambda: nn.Sequential(nn.Linear(3, 3), ops.StochasticDepth(0.5, "row")), 2, 3)

# --- torchvision: transforms -----------------------------------------------------------------------------------------


def transform(name: str, *arguments: Any, label: str = "", integer: bool = False, **keywords: Any) -> None:
    """A functional transform of images in [0, 1], or of bytes."""
    function = getattr(T, name)
    draw = (lambda: (randint(256, (1, 3, 8, 9), dtype=torch.uint8),)) if integer else (lambda: (rand(1, 3, 8, 9),))
    ITEMS.append(
        Item(
            f"torchvision.transforms.{name}{label}", lambda: lambda image: function(image, *arguments, **keywords), draw
        )
    )


transform("normalize", [0.4, 0.5, 0.6], [0.2, 0.3, 0.4])
transform("resize", [5, 6], antialias=True)
transform("resize", [12, 13], antialias=False, label="/up")
transform("resize", [5, 6], interpolation=T.InterpolationMode.NEAREST, label="/nearest")
transform("resize", [5, 6], integer=True, label="/bytes")
transform("center_crop", [5, 4])
transform("center_crop", [11, 12], label="/larger")
transform("crop", 1, 2, 4, 5)
transform("resized_crop", 1, 2, 4, 5, [6, 6])
transform("pad", [1, 2, 3, 1], fill=0.5)
transform("pad", [1, 2], padding_mode="reflect", label="/reflect")
transform("horizontal_flip")
transform("vertical_flip")
transform("rotate", 30.0)
transform("rotate", 30.0, interpolation=T.InterpolationMode.BILINEAR, expand=True, label="/expand")
transform("affine", 20.0, [1.0, 2.0], 1.2, [5.0, 3.0], interpolation=T.InterpolationMode.BILINEAR)
transform("perspective", [[0, 0], [8, 0], [8, 7], [0, 7]], [[1, 1], [7, 0], [8, 6], [0, 7]])
transform("elastic", torch.linspace(-0.2, 0.2, 144).reshape(1, 8, 9, 2))
transform("gaussian_blur", [3, 5], [0.8, 1.2])
transform("adjust_brightness", 1.3)
transform("adjust_contrast", 0.7)
transform("adjust_saturation", 1.4)
transform("adjust_hue", 0.2)
transform("adjust_gamma", 1.8, 0.9)
transform("adjust_sharpness", 1.7)
transform("rgb_to_grayscale", num_output_channels=3)
transform("autocontrast")
transform("equalize")
transform("invert")
transform("solarize", 0.6)
transform("posterize", 3)
transform("erase", 1, 2, 3, 4, torch.zeros(3, 3, 4))
transform("five_crop", [4, 5])
transform("to_dtype", torch.float32, scale=True, integer=True)
transform("to_dtype", torch.uint8, scale=True, label="/bytes")
transform("equalize", integer=True, label="/bytes")
transform("adjust_contrast", 1.5, integer=True, label="/bytes")

# --- timm ------------------------------------------------------------------------------------------------------------


def timm_model(name: str, size: int = 32, **arguments: Any) -> None:
    """A model of timm, shrunk by its own arguments."""
    build = partial(timm.create_model, name, pretrained=False, num_classes=5, **arguments)
    model(f"timm.{name}", build, 1, 3, size, size)


timm_model("resnet10t")
timm_model("resnetv2_50", layers=(1, 1, 1, 1), channels=(16, 32, 32, 64), stem_chs=8)
timm_model("resnest14d")
timm_model("seresnet18")
timm_model("skresnet18")
timm_model("regnetx_002")
timm_model("efficientnet_lite0")
timm_model("mobilenetv3_small_050")
timm_model("mobilenetv4_conv_small")
timm_model("mobileone_s0")
timm_model("ghostnet_050")
timm_model("hardcorenas_a")
timm_model("lcnet_035")
timm_model("tinynet_e")
timm_model("repvgg_a0")
timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 24))
timm_model("convnextv2_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 24))
timm_model("vit_tiny_patch16_224", 16, img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2)
timm_model("deit3_small_patch16_224", 16, img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2)
timm_model("vit_small_patch14_dinov2", 28, img_size=28, embed_dim=16, depth=2, num_heads=2)
timm_model("eva02_tiny_patch14_224", 28, img_size=28, embed_dim=24, depth=2, num_heads=2)
timm_model("beit_base_patch16_224", 16, img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2)
timm_model("swin_tiny_patch4_window7_224", 32, img_size=32, window_size=4, embed_dim=8, depths=(2, 2), num_heads=(1, 2))
timm_model("swinv2_tiny_window8_256", 32, img_size=32, window_size=4, embed_dim=8, depths=(2, 2), num_heads=(1, 2))
timm_model("edgenext_xx_small")
timm_model("mobilevit_xxs")
timm_model("fastvit_t8", 64)
timm_model("pvt_v2_b0")
timm_model("dla46_c")
timm_model("cait_xxs24_224", 16, img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2)
timm_model("xcit_nano_12_p16_224", 32, img_size=32, embed_dim=16, depth=2, num_heads=2)

model("timm.MlpMixer", lambda: timm.models.MlpMixer(5, 16, patch_size=4, num_blocks=2, embed_dim=16), 1, 3, 16, 16)
model(
    "timm.MlpMixer/gated",
    lambda: timm.models.MlpMixer(
        5,
        16,
        patch_size=4,
        num_blocks=2,
        embed_dim=16,
        mlp_ratio=4,
        block_layer=timm.models.mlp_mixer.SpatialGatingBlock,
        mlp_layer=timm.layers.GatedMlp,
    ),
    1,
    3,
    16,
    16,
)
model(
    "timm.MlpMixer/residual",
    lambda: timm.models.MlpMixer(
        5,
        16,
        patch_size=4,
        num_blocks=2,
        embed_dim=16,
        mlp_ratio=4,
        block_layer=timm.models.mlp_mixer.ResBlock,
        norm_layer=timm.models.mlp_mixer.Affine,
    ),
    1,
    3,
    16,
    16,
)
model(
    "timm.MetaFormer",
    lambda: timm.models.MetaFormer(
        num_classes=5,
        depths=(1, 1),
        dims=(8, 16),
        token_mixers=(timm.models.metaformer.Pooling, timm.models.metaformer.SepConv),
    ),
    1,
    3,
    32,
    32,
)
model("timm.NormFreeNet", lambda: timm.create_model("nf_resnet26", num_classes=5), 1, 3, 32, 32)
