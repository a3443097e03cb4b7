"""What has to be done before torchvision can be imported; transformers imports it too.

The published torchvision has its compiled operators for graphics cards. With a torch for the CPU alone they do not load,
and without the names of these two it cannot even be imported. No item uses one of them.
"""

from __future__ import annotations

import torch

NAMES = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        NAMES.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
