"""Functions and modules to be scripted or traced by ``test_scripted.py``; each takes one (2, 3) tensor of float32."""

import math
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def arithmetic(x: Tensor) -> Tensor:
    return (x + 1) * 2 - x / 3 + 2 / (x.abs() + 1) - (-x) ** 2 + x % 2 + (x // 2) + (3 - x)


def helper(x: Tensor, n: int = 2, scale: float = 0.5) -> Tensor:
    return x * n + scale


def nested_calls(x: Tensor) -> Tensor:
    return helper(helper(x), n=3) + helper(x, scale=2.0)


def python_numbers(x: Tensor) -> Tensor:
    n = x.shape[1] * 2 // 4 - 7 // 2 + (-7) // 2 + (-7) % 3
    k = float(n) / 3 + 2**3 + int(7.9) + max(1, 2) + min(2.5, 1.0) + abs(-3) + round(2.5)
    return x * n + k


def loops(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for i in range(x.size(0)):
        for j in range(3, 0, -1):
            total = total + x[i] * j
            if j == 2:
                continue
            if j == 1:
                break
    n = 0
    while n < 4:
        total = total * 1.5
        n += 1
    return total


def early_return(x: Tensor) -> Tensor:
    if x.dim() == 3:
        return x * 100
    for i in range(5):
        if i == 3:
            return x + i
    return x - 1


def lists(x: Tensor) -> Tensor:
    parts: List[Tensor] = []
    for i in range(x.shape[0]):
        parts.append(x[i] * i)
    parts.insert(0, x[1])
    parts.extend([x[0], x[0] + 1])
    parts.reverse()
    last = parts.pop()
    parts[0] = last
    sizes = [3, 1, 2]
    sizes.sort()
    other = parts + [x[0] * 2]  # noqa: RUF005
    del other[0]
    both = torch.stack(other[1:])
    return both * len(parts) + sum(sizes) + sizes[-1] + sizes.index(2)


def list_comprehension(x: Tensor) -> Tensor:
    return torch.cat([row * 2 for row in x.unbind(0)]) + float(len([i for i in range(4)]))


def dicts(x: Tensor) -> Tensor:
    named: Dict[str, Tensor] = {"a": x, "b": x * 2}
    named["c"] = named["a"] + named["b"]
    total = torch.zeros_like(x)
    for key, value in named.items():
        if key != "b":
            total = total + value
    if "z" in named:
        total = total * 0
    counts: Dict[str, int] = {}
    counts["n"] = len(named)
    return total * counts["n"] + named.pop("b") + len(named.keys())


def tuples(x: Tensor) -> Tuple[Tensor, Tensor]:
    pair = (x, x * 2, 3)
    first, second, n = pair
    return first + pair[1] * n, second[0]


class Pose(NamedTuple):
    position: Tensor
    scale: float


def named_tuple(x: Tensor) -> Tensor:
    pose = Pose(x + 1, 2.5)
    return pose.position * pose.scale


def optionals(x: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    if bias is not None:
        x = x + bias
    if bias is None:
        bias = x[0]
    assert bias is not None
    return x - bias


def strings(x: Tensor) -> Tensor:
    mode = "a{}".format(x.shape[0]).upper()
    if mode == "A2" and mode.startswith("A") and "2" in mode:
        return x + len(mode.split("A"))
    return x * 100


def guards(x: Tensor) -> Tensor:
    assert x.dtype == torch.float32, "float32 only"
    assert bool((x > -1000).all()), f"out of range {x.shape}"
    if bool(torch.isnan(x).any()) or not bool((x < 1000).all()):
        raise ValueError("not a number")
    return x * 2


def indexing(x: Tensor) -> Tensor:
    rows = torch.tensor([1, 0, 1])
    return (
        x[rows]
        + x[0, 1:].sum()
        + x[..., -1].mean()
        + x[:, None, 0:3:2].sum()
        + x[1][2]
        + x[rows, torch.tensor([0, 1, 2])].sum()
        + x[-1:, :2].sum()
    )


def masked(x: Tensor) -> Tensor:
    y = x.clone()
    y[y > 0] = 0.5
    y[0] = y[1] * 2
    y[:, 1] += 1
    y[torch.tensor([1])] = x[0]
    return torch.where(y > 0.2, y, x).masked_fill(x < -1, 3.0)


def in_place(x: Tensor) -> Tensor:
    y = x + 0
    y.add_(1).mul_(2)
    y += x
    y *= 2
    y.view(-1)[2:4].zero_()
    y[1].copy_(x[0])
    torch.add(x[0], 1, out=y[0])
    return F.relu_(y.clamp_(-2, 2))


def dtypes(x: Tensor) -> Tensor:
    whole = (x * 3).to(torch.int64)
    flags = x.to(torch.bool)
    return whole.float() + flags.to(x.dtype) + x.double().to(dtype=torch.float32) + x.type_as(x) + whole.int().float()


def creation(x: Tensor) -> Tensor:
    n, m = x.shape[0], x.size(-1)
    return (
        x
        + torch.ones(n, m)
        + torch.arange(m, dtype=torch.float32)
        + torch.full((n, 1), 2.5)
        + torch.eye(m)[:n]
        + torch.tensor([1.0, 2.0, 3.0])
        + torch.linspace(0.0, 1.0, m)
        + x.new_zeros(m)
        + torch.tensor(2.0)
        + torch.zeros_like(x)
        + torch.tensor(3)
    )


def reductions(x: Tensor) -> Tensor:
    values, places = x.max(dim=1)
    return (
        x.sum(dim=[0, 1], keepdim=True)
        + x.mean(0)
        + values.unsqueeze(1)
        + places.float().unsqueeze(1)
        + x.std()
        + x.prod(dim=1, keepdim=True)
        + torch.norm(x)
        + x.norm(p=1, dim=1, keepdim=True)
        + x.amax(1, True)
        + torch.cumsum(x, 1)
        + x.argmin().float()
        + x.logsumexp(1, True)
    )


def shapes(x: Tensor) -> Tensor:
    a = x.t().reshape(2, -1).permute(1, 0).contiguous().view(2, 3)
    b = x.unsqueeze(0).expand(4, 2, 3).transpose(0, 1).flatten(1)[:, :3]
    c, d = torch.chunk(torch.cat((x, x), 1), 2, dim=1)
    e = torch.split(x, [1, 2], dim=1)[1].repeat(1, 2)[:, :3]
    return a + b + c * d + e + x.T.T + torch.flip(x, [1]) + torch.roll(x, 1, 0) + x.mT.mT


def linear_algebra(x: Tensor) -> Tensor:
    gram = x @ x.t() + torch.eye(2) * 3
    return (
        torch.linalg.solve(gram, x)
        + torch.linalg.inv(gram) @ x
        + torch.einsum("ij,jk->ik", gram, x)
        + torch.matmul(gram, x)
        + torch.linalg.norm(x)
        + torch.det(gram)
        + torch.baddbmm(x.unsqueeze(0), gram.unsqueeze(0), x.unsqueeze(0))[0]
        + torch.addmm(x, gram, x)
        + torch.outer(x[:, 0], x[0])
    )


def functional(x: Tensor) -> Tensor:
    y = F.softmax(F.gelu(x), dim=-1) + F.log_softmax(x, 1) + F.elu(x) + F.leaky_relu(x, 0.2) + F.silu(x)
    y = y + F.softplus(x) + F.hardtanh(x) + F.layer_norm(x, [3]) + F.normalize(x, dim=1) + F.relu6(x)
    y = y + F.dropout(x, 0.5, training=False) + F.pad(x, [1, 0])[:, :3] + F.cosine_similarity(x, y).unsqueeze(1)
    y = y + F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.one_hot(torch.tensor([0, 2]), 3) + F.logsigmoid(x)
    y = y + F.huber_loss(x, y) + F.l1_loss(x, y, reduction="sum") + F.mish(x) + F.hardswish(x) + F.celu(x)
    return y + F.glu(torch.cat([x, x], 1)) + F.threshold(x, 0.1, 2.0) + torch.sigmoid(x) + F.hardsigmoid(x)


def images(x: Tensor) -> Tensor:
    image = x.reshape(1, 1, 2, 3)
    up = F.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
    size = F.interpolate(image, size=[4, 6], mode="nearest")
    corners = F.interpolate(image, size=[4, 6], mode="bilinear", align_corners=True)
    cubic = F.interpolate(image, size=[4, 6], mode="bicubic", align_corners=False)
    pooled = F.max_pool2d(up, 2) + F.avg_pool2d(size, 2) + F.adaptive_avg_pool2d(corners, [2, 3])
    conv = F.conv2d(up, torch.ones(1, 1, 3, 3), padding=1) + F.conv_transpose2d(image, torch.ones(1, 1, 2, 2), stride=2)
    padded = F.pad(image, [1, 1, 1, 1], mode="reflect") + F.pad(image, [1, 1, 1, 1], mode="replicate")
    return pooled.sum() + conv + cubic + padded.mean()


def context(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
        y = y + 1
    return y * x


def logic(x: Tensor) -> Tensor:
    a = (x > 0) & (x < 1) | ~(x > -1) ^ (x == 0)
    b = torch.logical_and(x > 0, x != 1)
    whole = (x * 4).to(torch.int64)
    return a.float() + b.float() + ((whole & 3) | (whole << 1) ^ 5).float() + (x >= 0).float() * (x <= 2)


def queries(x: Tensor) -> Tensor:
    if isinstance(x, Tensor) and x.is_floating_point() and not x.is_cuda and x.device.type == "cpu":
        if x.is_contiguous() and x.numel() == 6 and x.ndim == 2 and x.stride(0) == 3 and x.element_size() == 4:
            x = x + 1
    size = list(x.size())
    size[0] = 1
    return x[:1].reshape(size) + len(x) + int(x.requires_grad)


def forked(x: Tensor) -> Tensor:
    future = torch.jit.fork(helper, x, 4)
    return torch.jit.wait(future) + helper(x)


def complex_numbers(x: Tensor) -> Tensor:
    z = torch.complex(x, x * 2)
    return torch.view_as_real(z * z).sum(-1) + z.abs() + torch.real(z) + z.imag


def unpacked_math(x: Tensor) -> Tensor:
    return x * math.sqrt(2.0) + math.pi + math.floor(2.7) + math.exp(0.5) + (x * math.inf > 0).float()


class Counter:
    def __init__(self, x: Tensor, n: int):
        self.x = x
        self.n = n

    def step(self, other: Tensor) -> Tensor:
        self.n += 1
        self.x = self.x + other * self.n
        return self.x


FUNCTIONS = [
    value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and name.islower() and name != "helper"
]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("offset", torch.arange(3.0))
        self.scales = [1.0, 2.0]

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = x * scale
        return self.linear(x) + self.offset

    @torch.jit.export
    def encode(self, x: Tensor, double: bool = False) -> Tensor:
        return self.linear(x) * (2 if double else 1)


def after(self: nn.Module, inputs: Tuple[Tensor], output: Tensor) -> Tensor:
    return output * 3


def before(self: nn.Module, inputs: Tuple[Tensor]) -> Tuple[Tensor]:
    return (inputs[0] + 1,)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.inner.register_forward_hook(after)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.blocks[1].weight = self.blocks[0].weight
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Sequential(nn.ReLU(), nn.LayerNorm(3))})
        self.register_forward_pre_hook(before)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x) + self.inner.encode(x, True)
        for i, block in enumerate(self.blocks):
            y = torch.tanh(block(y)) * (i + 1)
        for _, head in self.heads.items():
            y = head(y)
        return y


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, num_layers=2, batch_first=True)
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.gru(x.unsqueeze(0))
        hidden, memory = self.cell(y[0])
        return hidden + memory + state.sum()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(3, 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x[None], x[None], x[None])
        assert weights is not None
        return y[0] + weights.sum()


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 1),
            nn.GroupNorm(2, 4),
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 3))
        self.embedding = nn.Embedding(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.stem(x.reshape(1, 1, 2, 3)))
        return y + self.embedding((x > 0).sum())


MODULES = [Outer, Gru, Attention, Vision]


# Those below are called by name.


def branch(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        return x * 2
    return x * 3


def endless(x: Tensor) -> Tensor:
    while bool(x.sum() < 10):
        x = x + 1
    return x


def escapes(x: Tensor) -> Tensor:
    return x * float(x.sum())


def raising(x: Tensor) -> Tensor:
    if x.shape[0] == 3:
        raise ValueError("three rows")
    if x.shape[0] == 4:
        return torch.cat([x, x[:, 0]])
    return x.select(0, 7)


class Stateful(nn.Module):
    seen: List[int]

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.seen = []

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.seen.append(x.shape[1])
        return x * 2


def structured(x: Tensor, items: List[Tensor], names: Dict[str, Tensor], scale: float) -> Pose:
    items.append(x)
    return Pose(x + items[0] + names["one"], scale)


def unknown(x: Tensor) -> Tensor:
    parts = [x, x]
    return x * parts.index(x)
