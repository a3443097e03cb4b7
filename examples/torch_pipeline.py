"""Normalisation and policy as two nodes: the smallest pipeline worth exporting. Its weights are random."""

import torch

import leapp
from leapp import annotate

STATE_MEAN = torch.zeros(6)
STATE_STD = torch.full((6,), 0.5)


class Policy(torch.nn.Module):
    """One layer: nine observations to six actions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(9, 6)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Observations ``(n, 9)`` to actions ``(n, 6)`` between -1 and 1."""
        return torch.tanh(self.net(obs))


def preprocess(state: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
    state, velocity = annotate.input_tensors(
        "preprocess",
        {
            "state": state,
            "velocity": velocity,
        },
    )

    state_norm = torch.clamp((state - STATE_MEAN) / STATE_STD, -5.0, 5.0)
    obs = torch.cat([state_norm, velocity])

    annotate.output_tensors("preprocess", {"obs": obs}, export_with="jit")
    return obs


def run_policy(policy: Policy, obs: torch.Tensor) -> torch.Tensor:
    traced_obs = annotate.input_tensors("policy", {"obs": obs})
    action: torch.Tensor = policy(traced_obs.unsqueeze(0)).squeeze(0)
    annotate.output_tensors("policy", {"action": action}, export_with="onnx")
    return action


def main() -> None:
    torch.manual_seed(0)  # the same weights in every run
    policy = Policy().eval()

    leapp.start(name="torch_pipeline")
    obs = preprocess(torch.zeros(6), torch.zeros(3))
    run_policy(policy, obs)
    leapp.stop()
    leapp.compile_graph()


if __name__ == "__main__":
    main()
