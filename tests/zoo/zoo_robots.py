"""Policies of stable-baselines3 and rsl-rl, as they act after training."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from rsl_rl.models import CNNModel, MLPModel, RNNModel
from rsl_rl.modules import CNN, MLP, EmpiricalNormalization
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy, MultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, MlpExtractor, NatureCNN
from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from tensordict import TensorDict
from torch import nn, randint, randn
from zoo_item import Item, spread

ITEMS: list[Item] = []

STATE = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
PIXELS = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8)
MIXED = gymnasium.spaces.Dict({"image": gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8), "state": STATE})
MOVE = gymnasium.spaces.Box(-2.0, 2.0, (3,), np.float32)
CHOICE = gymnasium.spaces.Discrete(4)


def slow(_progress: float) -> float:
    """A learning rate; nothing learns here."""
    return 1e-3


class Acting(nn.Module):
    """A policy that acts by the best action, as ``predict`` does."""

    def __init__(self, policy: Any, method: str = "_predict", **arguments: Any) -> None:
        super().__init__()
        self.policy, self.method, self.arguments = policy, method, arguments

    def forward(self, *observation: torch.Tensor) -> Any:
        given: Any = observation[0] if len(observation) == 1 else dict(zip(MIXED.spaces, observation, strict=True))
        return getattr(self.policy, self.method)(given, **self.arguments)


def policy(name: str, build: Any, draw: Any, method: str = "_predict", **arguments: Any) -> None:
    """A policy of stable-baselines3."""
    arguments = arguments or ({"deterministic": True} if method == "_predict" else {})
    ITEMS.append(Item(f"stable_baselines3.{name}", lambda: spread(Acting(build(), method, **arguments)), draw))


def state() -> tuple[torch.Tensor, ...]:
    """A batch of observations."""
    return (randn(2, 6),)


def pixels() -> tuple[torch.Tensor, ...]:
    """A batch of stacked frames."""
    return (randint(256, (2, 4, 36, 36), dtype=torch.uint8),)


def mixed() -> tuple[torch.Tensor, ...]:
    """An image and a state."""
    return randint(256, (2, 3, 36, 36), dtype=torch.uint8), randn(2, 6)


policy("ActorCriticPolicy", lambda: ActorCriticPolicy(STATE, MOVE, slow), state)
policy(
    "ActorCriticPolicy/forward",
    lambda: ActorCriticPolicy(STATE, MOVE, slow),
    state,
    method="forward",
    deterministic=True,
)
policy(
    "ActorCriticPolicy/discrete",
    lambda: ActorCriticPolicy(STATE, CHOICE, slow, net_arch=[16, 16]),
    state,
    method="forward",
    deterministic=True,
)
policy(
    "ActorCriticPolicy/multi-discrete",
    lambda: ActorCriticPolicy(STATE, gymnasium.spaces.MultiDiscrete([3, 4]), slow),
    state,
    method="forward",
    deterministic=True,
)
policy(
    "ActorCriticPolicy/binary",
    lambda: ActorCriticPolicy(STATE, gymnasium.spaces.MultiBinary(3), slow),
    state,
    method="forward",
    deterministic=True,
)
policy("ActorCriticPolicy/gsde", lambda: ActorCriticPolicy(STATE, MOVE, slow, use_sde=True, squash_output=True), state)
policy(
    "ActorCriticPolicy/separate",
    lambda: ActorCriticPolicy(STATE, MOVE, slow, net_arch={"pi": [8], "vf": [16]}, activation_fn=nn.ELU),
    state,
    method="forward",
    deterministic=True,
)
policy(
    "ActorCriticCnnPolicy",
    lambda: ActorCriticCnnPolicy(PIXELS, CHOICE, slow),
    pixels,
    method="forward",
    deterministic=True,
)
policy("MultiInputActorCriticPolicy", lambda: MultiInputActorCriticPolicy(MIXED, MOVE, slow), mixed)
policy("DQNPolicy", lambda: DQNPolicy(STATE, CHOICE, slow), state)
policy("DQNPolicy/cnn", lambda: CnnPolicy(PIXELS, CHOICE, slow).q_net, pixels, method="forward")
policy("SACPolicy", lambda: SACPolicy(STATE, MOVE, slow), state)
policy("SACPolicy/gsde", lambda: SACPolicy(STATE, MOVE, slow, use_sde=True), state)
policy("TD3Policy", lambda: TD3Policy(STATE, MOVE, slow), state)
ITEMS.append(
    Item(
        "stable_baselines3.NatureCNN",
        lambda: spread(NatureCNN(PIXELS, 16, normalized_image=True)),
        lambda: (randn(2, 4, 36, 36),),
    )
)
ITEMS.append(
    Item(
        "stable_baselines3.FlattenExtractor",
        lambda: FlattenExtractor(gymnasium.spaces.Box(-1.0, 1.0, (2, 3))),
        lambda: (randn(2, 2, 3),),
    )
)
ITEMS.append(
    Item("stable_baselines3.MlpExtractor", lambda: spread(MlpExtractor(6, {"pi": [4], "vf": [5]}, nn.Tanh)), state)
)
ITEMS.append(
    Item(
        "stable_baselines3.CombinedExtractor",
        lambda: spread(Acting(CombinedExtractor(MIXED, 8), "forward")),
        lambda: (torch.rand(2, 3, 36, 36), randn(2, 6)),
    )
)

# --- rsl-rl ----------------------------------------------------------------------------------------------------------

GROUPS = {"actor": ["joints", "command"]}


def observed(joints: torch.Tensor, command: torch.Tensor) -> TensorDict:
    """The observations of an environment."""
    return TensorDict({"joints": joints, "command": command}, batch_size=[joints.shape[0]])


class OnDict(nn.Module):
    """An actor that takes its groups of observations as plain dictionary."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, joints: torch.Tensor, command: torch.Tensor) -> Any:
        return self.actor({"joints": joints, "command": command})


class OnTensorDict(OnDict):
    """An actor that takes what rsl-rl's environments give."""

    def forward(self, joints: torch.Tensor, command: torch.Tensor) -> Any:
        return self.actor(observed(joints, command))


class Recurrent(nn.Module):
    """An actor whose state goes in and out."""

    def __init__(self, actor: Any) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, joints: torch.Tensor, command: torch.Tensor, *hidden: torch.Tensor) -> Any:
        self.actor.reset(hidden_state=hidden if len(hidden) == 2 else hidden[0])
        action = self.actor({"joints": joints, "command": command})
        state = self.actor.get_hidden_state()
        self.actor.reset()
        return action, state


GAUSSIAN = {"class_name": "rsl_rl.modules.distribution:GaussianDistribution", "init_std": 1.0}


def actor(name: str, wrapper: Any, kind: Any, *states: tuple[int, ...], **arguments: Any) -> None:
    """An actor of rsl-rl on two groups of observations."""
    ITEMS.append(
        Item(
            f"rsl_rl.{name}",
            lambda: spread(
                wrapper(kind(observed(torch.zeros(2, 6), torch.zeros(2, 3)), GROUPS, "actor", 4, (16, 8), **arguments))
            ),
            lambda: (randn(2, 6), randn(2, 3), *(randn(shape) for shape in states)),
        )
    )


actor("MLPModel", OnDict, MLPModel)
actor("MLPModel/tensordict", OnTensorDict, MLPModel)
actor("MLPModel/normalized", OnDict, MLPModel, obs_normalization=True)
actor("MLPModel/gaussian", OnDict, MLPModel, distribution_cfg=GAUSSIAN)
actor("RNNModel/lstm", Recurrent, RNNModel, (1, 2, 8), (1, 2, 8), rnn_type="lstm", rnn_hidden_dim=8)
actor("RNNModel/gru", Recurrent, RNNModel, (2, 2, 8), rnn_type="gru", rnn_hidden_dim=8, rnn_num_layers=2)
actor("RNNModel/normalized", Recurrent, RNNModel, (1, 2, 8), (1, 2, 8), rnn_hidden_dim=8, obs_normalization=True)


class Seeing(OnDict):
    """An actor with a camera."""

    def forward(self, joints: torch.Tensor, camera: torch.Tensor) -> Any:
        return self.actor({"joints": joints, "camera": camera})


def seeing() -> Any:
    """An actor of rsl-rl with one image among its observations."""
    seen = TensorDict({"joints": torch.zeros(2, 6), "camera": torch.zeros(2, 3, 12, 12)}, batch_size=[2])
    encoder = {"output_channels": [4, 8], "kernel_size": 3, "max_pool": True}
    return Seeing(CNNModel(seen, {"actor": ["joints", "camera"]}, "actor", 4, (16, 8), cnn_cfg=encoder))


ITEMS.append(Item("rsl_rl.CNNModel", lambda: spread(seeing()), lambda: (randn(2, 6), randn(2, 3, 12, 12))))
for kind in ("as_jit", "as_onnx"):
    arguments = {"verbose": False} if kind == "as_onnx" else {}
    ITEMS.append(
        Item(
            f"rsl_rl.MLPModel/{kind}",
            lambda kind=kind, arguments=arguments: getattr(
                MLPModel(
                    observed(torch.zeros(2, 6), torch.zeros(2, 3)), GROUPS, "actor", 4, (16, 8), obs_normalization=True
                ),
                kind,
            )(**arguments),
            lambda: (randn(2, 9),),
        )
    )
for activation in ("elu", "selu", "relu", "crelu", "lrelu", "tanh", "sigmoid", "softplus", "gelu", "swish", "mish"):
    ITEMS.append(
        Item(f"rsl_rl.MLP/{activation}", lambda activation=activation: spread(MLP(6, 3, [8, 8], activation)), state)
    )
ITEMS.append(Item("rsl_rl.EmpiricalNormalization", lambda: spread(EmpiricalNormalization(6)), state))
ITEMS.append(Item("rsl_rl.CNN", lambda: spread(CNN((12, 12), 3, [4, 8], 3)), lambda: (randn(2, 3, 12, 12),)))
