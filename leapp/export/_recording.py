"""What torch-based exporters share: a module that replays a recording, and who is to blame when one of them fails."""

from __future__ import annotations

import inspect
import math
import operator
import re
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from leapp.errors import UnsupportedOpError
from leapp.graph._base import places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp._spec import ExportFormat, Port
    from leapp.graph._base import NodeGraph

TAG: Final = "recorded as "
"""Prefix of ``meta["stack_trace"]`` of exported nodes; the rest names the recorded node. Never written to a file."""

_TAKEN: Final = ("", "self", "torch", "float", "complex")
_LONGEST_REASON: Final = 300


class RecordingModule(torch.nn.Module):
    """Replays a recording node by node; its buffers are the constants, by reference, and as far as possible by name.

    Replayed, not run as generated code: an exporter asks for the source line of every call, and finding one in a
    function of 20,000 lines takes time in proportion to its length. When an exporter fails, ``current`` is the culprit.
    """

    def __init__(self, recording: NodeGraph) -> None:
        super().__init__()
        self._interpreter = _Interpreter(self, recording)
        self._places = places(list(recording.constants))
        for target, tensor in recording.constants.items():
            owner, leaf = self._owner(target, create=True)
            value = tensor.detach()
            # An inference tensor cannot be saved for a retrace; only its copy is an ordinary one.
            owner._buffers[leaf] = value.clone() if value.is_inference() else value
        names = argument_names(recording)

        def forward(*inputs: torch.Tensor) -> Any:
            return self._interpreter.replay(inputs)

        # The exported program's inputs are named after the parameters of ``forward``.
        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        )
        self.forward = forward
        self.eval()

    @property
    def current(self) -> fx.Node | None:
        """The node being replayed, or the last one."""
        return self._interpreter.current

    @current.setter
    def current(self, node: fx.Node) -> None:
        # Not an attribute of the module: torch.export puts those back when it ends.
        self._interpreter.current = node

    def constant(self, target: str) -> torch.Tensor:
        """The buffer that stands for a ``get_attr`` target now; exporters swap them while they trace."""
        owner, leaf = self._owner(target)
        value = owner._buffers[leaf]
        if value is None:
            raise AttributeError(target)
        return value

    def _owner(self, target: str, *, create: bool = False) -> tuple[torch.nn.Module, str]:
        # Straight to the dictionaries: a submodule called "type" or "forward" is legal in the user's module.
        owner: torch.nn.Module = self
        *path, leaf = self._places[target].split(".")
        for part in path:
            child = owner._modules.get(part)
            if child is None:
                if not create:
                    raise AttributeError(target)
                child = owner._modules[part] = torch.nn.Module()
            owner = child
        return owner, leaf


class _Interpreter(fx.Interpreter):
    """Runs the recorded nodes for a RecordingModule and tags what an exporter makes of each."""

    def __init__(self, module: RecordingModule, recording: NodeGraph) -> None:
        super().__init__(module, graph=recording.graph)
        self.current: fx.Node | None = None
        self._owner = module
        self._last: fx.Node | None = None

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> Any:
        mode = get_proxy_mode()
        tracer: Any = getattr(mode, "tracer", None)
        self._exported: fx.Graph | None = getattr(tracer, "graph", None)
        self._last = None if self._exported is None else next(iter(reversed(self._exported.nodes)), None)
        return self.run(*inputs, enable_io_processing=False)

    def run_node(self, n: fx.Node) -> Any:
        self.current = n
        value = super().run_node(n)
        if self._exported is not None:
            self._tag(n, self._exported)
        return value

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        del args, kwargs
        return self._owner.constant(str(target))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if self._exported is not None:
            target = _EXPORTED.get(target, target)
        return super().call_function(target, args, kwargs)

    def _tag(self, recorded: fx.Node, exported: fx.Graph) -> None:
        newest = None
        for node in reversed(exported.nodes):
            newest = newest or node
            if node is self._last:
                break
            node.meta["stack_trace"] = f"{TAG}{recorded.name}"
        self._last = newest


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Without the look at the variance for negative values, on which torch.export cannot decide."""
    variance = torch.full_like(input, var) if isinstance(var, float) else var
    if variance.size() != input.size() and input.size()[:-1] == variance.size():
        variance = variance.unsqueeze(-1)
    variance = variance.clamp(min=eps)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _setitem(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """``x[k] = y`` of a tensor ``k`` without dimensions, which torch reads as a number: torch.export has none."""
    items: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    at = [place for place, each in enumerate(items) if _is_place(each)]
    if not at or not all(_is_place(each) or each is None or type(each) in _BASIC for each in items):
        tensor[index] = value
        return
    view = tensor[tuple(slice(None) if place in at else each for place, each in enumerate(items))]
    axes = []
    for place in at:
        after = items[place:]
        if any(each is Ellipsis for each in after):
            axes.append(sum(type(each) is not int for each in items[:place]))
        else:
            before = items[:place]
            hidden = any(each is Ellipsis for each in before)
            kept = sum(type(each) is not int for each in (after if hidden else before))
            axes.append(view.dim() - kept if hidden else kept)
    front = view.movedim(axes, list(range(len(axes))))
    if isinstance(value, torch.Tensor):
        value = value.clone().to(tensor.dtype)  # ``x[k] += y`` assigns what lies there already
    front[tuple(items[place].reshape(1).long() for place in at)] = value


_BASIC: Final = (int, slice, type(Ellipsis))


def _is_place(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and not item.dim() and item.dtype not in (torch.bool, torch.uint8)


def _grouped_mm(
    input: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Each row times the matrix of its group; torch.export knows it for bfloat16 alone."""
    if input.dtype == torch.bfloat16 or offs is None or input.dim() != 2 or mat2.dim() != 3:
        return torch._grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)
    group = (torch.arange(input.shape[0]).unsqueeze(-1) >= offs).sum(dim=-1)
    # Rows behind the last group belong to none; torch leaves them as they are in memory.
    rows = torch.bmm(input.unsqueeze(1), mat2[group.clamp(max=mat2.shape[0] - 1)]).squeeze(1)
    rows = rows if bias is None else rows + bias
    return rows if out_dtype is None else rows.to(out_dtype)


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """The forward sums over all alignments, step by step; torch's own kernel is not known to any format."""
    if log_probs.dim() != 3 or targets.dim() != 2:
        return torch.nn.functional.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
        )
    steps, longest = torch.as_tensor(input_lengths), torch.as_tensor(target_lengths)
    blanks = torch.full_like(targets, blank)
    # Targets with blanks around them: - a - b -
    labels = torch.cat((torch.stack((blanks, targets), dim=-1).flatten(-2), blanks[:, :1]), dim=-1)
    skips = torch.nn.functional.pad((labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2]), (2, 0))
    sums = log_probs[0].gather(1, labels)
    sums = torch.where(torch.arange(labels.shape[1]) < 2, sums, -math.inf)
    for step in range(1, log_probs.shape[0]):
        one = torch.nn.functional.pad(sums[:, :-1], (1, 0), value=-math.inf)
        two = torch.where(skips, torch.nn.functional.pad(sums[:, :-2], (2, 0), value=-math.inf), -math.inf)
        grown = _log_of_sum(torch.stack((sums, one, two), dim=-1)) + log_probs[step].gather(1, labels)
        sums = torch.where((step < steps).unsqueeze(-1), grown, sums)
    end = (2 * longest).unsqueeze(-1)
    before = torch.where(end > 0, sums.gather(1, (end - 1).clamp(min=0)), -math.inf)
    losses = -_log_of_sum(torch.cat((sums.gather(1, end), before), dim=-1))
    if zero_infinity:
        losses = torch.where(losses == math.inf, 0.0, losses)
    if reduction == "mean":
        return (losses / longest.clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses


def _log_of_sum(logs: torch.Tensor) -> torch.Tensor:
    """Of the last dimension; minus infinity for nothing but that."""
    largest = logs.amax(dim=-1, keepdim=True)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    return (logs - largest).exp().sum(dim=-1).log() + largest.squeeze(-1)


_EXPORTED: Final[dict[Any, Any]] = {
    operator.setitem: _setitem,
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.nn.functional.ctc_loss: _ctc_loss,
    # The one since torch 2.8, the other since 2.10.
    **{
        function: _grouped_mm
        for function in (getattr(torch, "_grouped_mm", None), getattr(torch.nn.functional, "grouped_mm", None))
        if function is not None
    },
}
"""Functions that torch.export cannot trace, and what it is given instead: the same values."""


def argument_names(recording: NodeGraph) -> list[str]:
    """One ASCII identifier per input, in order, from the placeholders' names.

    Names that mean something in generated code (``self``, ``torch``, ``v0_``) and repeats are changed.
    """
    names: list[str] = []
    for node in recording.graph.nodes:
        if node.op != "placeholder":
            continue
        name = re.sub(r"\W", "_", node.name, flags=re.ASCII)
        if name in _TAKEN or re.match(r"\d|[cfv]\d+_$", name):
            name = f"in_{name}"
        while name in names:
            name += "_"
        names.append(name)
    return names


def target_name(node: fx.Node) -> str:
    """The bare name of what a node calls, ``linear``; empty for nodes that call nothing."""
    if node.op == "call_method":
        return str(node.target)
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


def op_name(node: fx.Node) -> str:
    """How a user would write the op of a node: ``torch.nn.functional.linear``, ``Tensor.index_put_``."""
    if node.op == "call_function":
        target: Any = node.target
        public = torch.overrides.resolve_name(target)
        return public or f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}".strip(".")
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    return f"{node.op} {node.target}"


def unsupported(
    recording: NodeGraph, format: ExportFormat, culprit: fx.Node | str | None, error: BaseException | str
) -> UnsupportedOpError:
    """The error that names the op, the user's line, the format and the reason.

    Args: culprit: the recorded node, or free text when only the exporter's word for it is known. error: the reason, or
    the exception whose root cause tells it.
    """
    where = f"node {recording.spec.name!r}"
    if isinstance(culprit, fx.Node):
        op = op_name(culprit)
        if culprit.name in recording.sources:
            where = str(recording.sources[culprit.name])
    else:
        op = culprit or "this recording"
    why = error if isinstance(error, str) else reason(error)
    return UnsupportedOpError(node=recording.spec.name, format=format.value, op=op, where=where, why=why)


def reason(error: BaseException) -> str:
    """One line that says why an exporter gave up: the first telling line of the root cause."""
    chain = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) is not None and deeper not in chain:
        chain.append(deeper)
    for each in reversed(chain):
        for line in str(each).splitlines():
            text = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
            if text:
                return text[:_LONGEST_REASON]
    return type(error).__name__


def tagged_culprit(recording: NodeGraph, error: BaseException) -> fx.Node | None:
    """The recorded node that an exporter was working on when it raised.

    torch's exporters keep the node they handle in a local variable and do not say its origin; the tag in that node's
    ``meta`` does.
    """
    found: str | None = None
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        trace = each.__traceback__
        while trace is not None:
            for variable in ("node", "n", "fx_node"):
                value = trace.tb_frame.f_locals.get(variable)
                tag = value.meta.get("stack_trace") if isinstance(value, fx.Node) else None
                if isinstance(tag, str) and tag.startswith(TAG):
                    found = tag.removeprefix(TAG)
            trace = trace.tb_next
        each = each.__cause__ or each.__context__
    return None if found is None else node_named(recording, found)


def culprit_by_op(recording: NodeGraph, text: str) -> fx.Node | None:
    """The first recorded node whose op an exporter's message names as ``aten::NAME`` or ``aten.NAME``."""
    named = set(re.findall(r"aten(?:::|\.)(\w+)", text))
    nodes: list[fx.Node] = list(recording.graph.nodes)
    return next((node for node in nodes if target_name(node) in named), None)


def node_named(recording: NodeGraph, name: str) -> fx.Node | None:
    """The recorded node of that FX name."""
    nodes: list[fx.Node] = list(recording.graph.nodes)
    return next((node for node in nodes if node.name == name), None)


def by_port(ports: Sequence[Port], value: Any) -> dict[str, torch.Tensor]:
    """A model's positional result as a dict by output port."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    return {port.name: each for port, each in zip(ports, values, strict=True)}


def in_order(ports: Sequence[Port], inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """A model's positional arguments from a mapping by input port."""
    return [inputs[port.name] for port in ports]
