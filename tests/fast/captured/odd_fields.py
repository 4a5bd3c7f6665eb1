"""Fields that do odd things."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Options:
    alpha: float
    names: tuple[str, ...]


class Slotted:
    __slots__ = ("alpha",)

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha


def scaled(scale: Tensor, t: Tensor, z: Tensor, *, power: int) -> Tensor:
    return (scale * z) ** power


class Holder:
    """A field that is no module."""

    gain = 0.5

    def __init__(self) -> None:
        self.net = nn.Linear(2, 2)

    def parameters(self) -> Any:
        return self.net.parameters()

    def rate(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(self.net(z)) * self.gain - t * z**2

    __call__ = rate


class WeightsAlone(nn.Module):
    """Its state does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.weight.expand_as(z) * t


class TwoPrecisions(nn.Module):
    """Parameters in single precision, whatever the state is in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, -0.25], dtype=torch.float32))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(z) * self.weight


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grads[0] * weight, (grads[0] * x).reshape(-1, 2).sum(0)


class OwnFunction(nn.Module):
    """Hands its parameter to a function that PyTorch does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, -0.5]))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return Scale.apply(z, self.weight)  # type: ignore[no-untyped-call]


class OwnFunctionOfResults(OwnFunction):
    """Hands it what was computed."""

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return Scale.apply(torch.tanh(z), self.weight * 2)  # type: ignore[no-untyped-call]


class Tricky(nn.Module):
    """Attributes that are not where one looks first."""

    __slots__ = ("hidden",)
    rates = {"fast": 0.5}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.hidden = 0.25
        self.layer = nn.Linear(2, 2)

    def __getattr__(self, name: str) -> Any:
        return self.rates["fast"] if name == "speed" else super().__getattr__(name)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layer(z) * self.hidden * self.speed


class Counter(nn.Module):
    """As in torchdiffeq's own example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.nfe = nn.Linear(2, 2), 0

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.nfe += 1
        return self.layer(z)


class Listing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(2, 2), list[int]()

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.seen.append(z.ndim)
        return self.layer(z)


class Writing(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        self.calls += 1
        return self.layer(z)


class Noise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layer(z) + 0.01 * torch.randn_like(z)


class ReadsTime(Noise):
    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layer(z) * (1.0 if float(t.max()) > 0.5 else 0.5)


class Branches(Noise):
    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layer(z) if (z.detach() > 0).any() else -z


class Shapes(Noise):
    def forward(self, t: Tensor, z: Tensor) -> Any:
        chosen = z[..., 0].detach().nonzero()
        return self.layer(z) / (1 + chosen.shape[0])


class Generating(Noise):
    """Numbers from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = iter(range(1000000))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.layer(z) * (1 + 1e-3 * next(self.steps))


def hooked(kind: str) -> Any:
    field: Any = WeightsAlone()
    field.calls = []
    getattr(field, kind)(lambda *given: field.calls.append(len(given)))
    return field


def prints(t: Tensor, z: Tensor) -> Tensor:
    print("called")
    return -z


def scripted() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(WeightsAlone())


def compiled() -> Any:
    return torch.compile(WeightsAlone(), backend="eager")
