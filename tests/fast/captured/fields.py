"""Fields of many kinds, each made anew, and whether a capture can serve them."""

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.fast.captured import odd_fields as odd

GLOBAL_SCALE = 0.7


def column(t: Tensor, z: Tensor) -> Tensor:
    """The time beside each sample."""
    return t.expand(*z.shape[:-1], 1)


def network(*units: int, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, o in pairwise(units):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers[:-1])


class TimeMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network(3, 5, 2)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.net(torch.cat([z, column(t, z)], -1))


class Plain(nn.Module):
    """Whatever the time."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.net(z)


class ConcatSquash(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate, self.shift = nn.Linear(2, 2), nn.Linear(1, 2), nn.Linear(1, 2, bias=False)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        at = column(t, z)
        return torch.tanh(self.layer(z) * torch.sigmoid(self.gate(at)) + self.shift(at))


class Cubes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[-0.1, 1.0], [-1.0, -0.1]]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z**3 @ self.matrix


class Hamiltonian(nn.Module):
    """Takes a derivative itself."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = network(2, 4, 1)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        with torch.enable_grad():
            z = z.requires_grad_() if z.is_leaf else z
            (slope,) = torch.autograd.grad(self.energy(z).sum(), z, create_graph=True)
        return torch.cat([slope[..., 1:], -slope[..., :1]], -1)


class ExactTrace(nn.Module):
    """A continuous normalising flow: a state and its log-density."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network(3, 4, 2)

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        z = state[0]
        with torch.set_grad_enabled(True):
            z = z.requires_grad_(True) if not z.requires_grad else z
            t = t if t.ndim < z.ndim else t[..., :1]
            rate = self.net(torch.cat([z, t.expand(*z.shape[:-1], 1)], -1))
            trace = sum(torch.autograd.grad(rate[..., i].sum(), z, create_graph=True)[0][..., i] for i in range(2))
        return rate, -torch.as_tensor(trace).unsqueeze(-1)


class Convolutions(nn.Module):
    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.norm, self.conv = norm(), nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        z = self.norm(z)
        t = t[..., :1, :1, :1] if t.ndim else t
        return self.conv(torch.cat([torch.relu(z), t.expand_as(z[:, :1])], 1))


class Shared(nn.Module):
    """One layer, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(2, 2)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(self.second(torch.tanh(self.first(z)))) * self.first.weight.sum()


class Partly(nn.Module):
    """A frozen layer, a parameter that nothing needs, and one of which no gradient comes."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.free = nn.Linear(2, 3).requires_grad_(False), nn.Linear(3, 2)
        self.unused, self.detached = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.free(torch.tanh(self.frozen(z))) + self.detached.detach()


class Holding(nn.Module):
    """Attributes of many kinds."""

    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift, self.power = 0.5, torch.tensor([0.1, -0.2]), 2
        self.config = SimpleNamespace(gain=0.3, nested={"list": [0.1, torch.tensor([0.5, 0.25])]})
        self.options = odd.Options(0.4, ("tanh",))
        self.slotted = odd.Slotted(0.2)
        self.numbers, self.number = np.array([0.25, 0.5]), np.float64(0.125)
        self.register_buffer("matrix", torch.eye(2) * 0.5)

    @property
    def total(self) -> Any:
        return self.scale + self.config.gain + self.options.alpha + self.slotted.alpha + float(self.numbers[1])

    def forward(self, t: Tensor, z: Tensor) -> Any:
        inner = self.config.nested["list"][1]
        z = z @ self.matrix * (self.shift + inner) - z**self.power * float(self.number)
        return getattr(torch, self.options.names[0])(z * self.total) * GLOBAL_SCALE / math.pi


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(2, 1, batch_first=True, dropout=0.0)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.attention(z[None], z[None], z[None], need_weights=False)[0][0]


def a_function() -> Any:
    """A closure over a module, a tensor that needs a gradient, and a number."""
    net, weight, number = network(2, 3, 2), torch.ones(2, requires_grad=True), 0.5

    def f(t: Tensor, z: Tensor) -> Any:
        return net(z) * weight * number

    f.tensors = [weight, *net.parameters()]  # type: ignore[attr-defined]
    return f


def a_hypernetwork() -> Any:
    """Weights that another network made."""
    hyper = nn.Linear(1, 4)
    weight = hyper(torch.ones(1)).reshape(2, 2)

    def f(t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(z @ weight)

    f.tensors = [weight]  # type: ignore[attr-defined]
    return f


def a_partial() -> Any:
    found = functools.partial(odd.scaled, torch.tensor([0.5, -0.5]), power=3)
    found.tensors = ()  # type: ignore[attr-defined]
    return found


def normed() -> nn.Module:
    return Plain(nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 4)), nn.Tanh(), nn.Linear(4, 2)))


def spectral(training: bool) -> nn.Module:
    return Plain(nn.Sequential(parametrizations.spectral_norm(nn.Linear(2, 2)), nn.Tanh())).train(training)


@dataclass(frozen=True)
class Case:
    """A field, and what is known of it."""

    make: Callable[[], Any]
    captured: bool = True
    state: str = "rows"
    once: bool = True
    """Whether PyTorch's checkpoints evaluate it once again; those that take derivatives themselves it does more often,
    those that need no saved tensors never. A capture always does so once."""


CASES = {
    "time MLP": Case(TimeMLP),
    "MLP": Case(lambda: Plain(network(2, 6, 6, 2, activation=nn.ELU))),
    "ConcatSquash": Case(ConcatSquash),
    "cubes": Case(Cubes),
    "Hamiltonian": Case(Hamiltonian, once=False),
    "exact trace": Case(ExactTrace, state="tuple", once=False),
    "GroupNorm": Case(lambda: Convolutions(lambda: nn.GroupNorm(1, 2)), state="images"),
    "BatchNorm, eval": Case(lambda: Convolutions(lambda: nn.BatchNorm2d(2)).eval(), state="images"),
    "BatchNorm, train": Case(lambda: Convolutions(lambda: nn.BatchNorm2d(2)), captured=False, state="images"),
    "dropout, eval": Case(lambda: Plain(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))).eval()),
    "dropout, train": Case(lambda: Plain(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))), captured=False),
    "LayerNorm": Case(lambda: Plain(nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2)))),
    "two precisions": Case(odd.TwoPrecisions),
    "shared": Case(Shared),
    "partly frozen": Case(Partly),
    "holding": Case(Holding),
    "attention": Case(Attention, state="square"),
    "weight norm": Case(normed),
    "spectral norm, eval": Case(lambda: spectral(False)),
    "spectral norm, train": Case(lambda: spectral(True), captured=False),
    "function": Case(a_function),
    "hypernetwork": Case(a_hypernetwork),
    "partial": Case(a_partial),
    "lambda": Case(lambda: lambda t, z: -z * torch.sin(t)),
    "bound method": Case(lambda: odd.Holder().rate),
    "callable object": Case(odd.Holder),
    "constant": Case(lambda: lambda t, z: torch.ones_like(z), once=False),
    "weights alone": Case(odd.WeightsAlone),
    "its state": Case(lambda: lambda t, z: z, once=False),
    "autograd function": Case(lambda: odd.OwnFunction(), captured=False),
    "autograd function of results": Case(odd.OwnFunctionOfResults),
    "slots and properties": Case(odd.Tricky),
    "counter": Case(odd.Counter, captured=False),
    "list": Case(odd.Listing, captured=False),
    "buffer": Case(odd.Writing, captured=False),
    "noise": Case(odd.Noise, captured=False),
    "float(t)": Case(odd.ReadsTime, captured=False),
    "branch": Case(odd.Branches, captured=False),
    "shapes": Case(odd.Shapes, captured=False),
    "forward hook": Case(lambda: odd.hooked("register_forward_hook"), captured=False),
    "pre hook": Case(lambda: odd.hooked("register_forward_pre_hook"), captured=False),
    "backward hook": Case(lambda: odd.hooked("register_full_backward_hook"), captured=False),
    "python random": Case(lambda: lambda t, z: z * (1.0 if random.random() < 2 else 2.0), captured=False),
    "prints": Case(lambda: odd.prints, captured=False),
    "script": Case(odd.scripted, captured=False),
    "compiled": Case(odd.compiled, captured=False),
    "generator": Case(odd.Generating, captured=False),
}
