"""A recurrent policy: its memory is declared as state, so that a runtime carries it from tick to tick and can reset it.

The memory lives where it lives in most code of this kind, in an attribute of the policy. Weights are random.
"""

import torch
from torch import nn

import leapp
from leapp import annotate

OBSERVATIONS, MEMORY, ACTIONS = 8, 16, 4


class RecurrentPolicy(nn.Module):
    """A gated recurrent cell and one layer above it."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(OBSERVATIONS, MEMORY)
        self.head = nn.Linear(MEMORY, ACTIONS)
        self.reset()

    def reset(self) -> None:
        """Forget: a new episode begins."""
        self.hidden = torch.zeros(MEMORY)

    @torch.no_grad()
    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """One tick: an observation ``(8,)`` to actions ``(4,)`` between -1 and 1."""
        observation = annotate.input_tensors("policy", {"observation": observation})
        hidden = annotate.state_tensors("policy", {"hidden": self.hidden})

        hidden = self.cell(observation, hidden)
        action = torch.tanh(self.head(hidden))

        annotate.update_state("policy", {"hidden": hidden})
        annotate.output_tensors("policy", {"action": action}, export_with="onnx")
        self.hidden = hidden
        return action


def make_policy() -> RecurrentPolicy:
    torch.manual_seed(0)  # the same weights in every run
    return RecurrentPolicy().eval()


def main(ticks: int = 4, seed: int = 1) -> None:
    policy = make_policy()
    sensors = torch.Generator().manual_seed(seed)

    leapp.start(name="recurrent_policy")
    for _ in range(ticks):
        policy.act(torch.randn(OBSERVATIONS, generator=sensors))
    leapp.stop()
    leapp.compile_graph()


if __name__ == "__main__":
    main()
