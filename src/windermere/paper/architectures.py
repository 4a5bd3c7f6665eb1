"""The paper's three architectures (appendix): one ODE block and a linear classifier, no upstream layers.

Shapes: B samples, d points (the dimension of a sphere's space), S members of an ensemble.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from math import sqrt
from typing import Any, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from windermere.errors import UnknownNameError
from windermere.nn.arithmetic import check_arithmetic
from windermere.nn.ode_block import ODEBlock
from windermere.paper.arithmetic import check_it_suits
from windermere.paper.fast.images import ImagePath, Images
from windermere.paper.fast.spheres import SphereKernels, Spheres, SpheresInC, along_a_line
from windermere.paper.stacked import StackedField
from windermere.solvers import FixedStep, Gradient, Solver, Tableau, register
from windermere.solvers.field import stands_for
from windermere.solvers.grid import Grid, Steps

Layer = TypeVar("Layer", bound=nn.Module)
Walk: TypeAlias = Callable[[Tableau, Grid | Steps, Tensor], Tensor]

NAMES = tuple(f"{name}.{part}" for name in ("lift", "mix", "lower") for part in ("weight", "bias"))


def _bare(layer: type[Layer], *sizes: int, padding: int | None = None) -> Layer:
    """A layer whose weights are not drawn yet, so that the global generator is left alone. PyTorch's `skip_init` would
    import a computer algebra for it, which takes a second."""
    options = {} if padding is None else {"padding": padding}
    made = layer(*sizes, device="meta", **options)
    for name, parameter in [*made.named_parameters()]:
        setattr(made, name, nn.Parameter(torch.empty(parameter.shape, device="cpu")))
    return made


class SphereField(nn.Module):
    """Conv1d(1, 32, 1), ReLU, Conv1d(32, 32, 3), ReLU, Conv1d(32, 1, 1) over the d coordinates. State: [B, d]."""

    def __init__(self, points: int, width: int = 32) -> None:
        super().__init__()
        self.points = points
        self.lift = _bare(nn.Conv1d, 1, width, 1)
        self.mix = _bare(nn.Conv1d, width, width, 3, padding=1)
        self.lower = _bare(nn.Conv1d, width, 1, 1)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        """The slow reference: the convolutions as the paper writes them."""
        return along_a_line(list(self.parameters()), z)


class ImageField(nn.Module):
    """Conv2d(c, w, 1), ReLU, Conv2d(w, w, 3), ReLU, Conv2d(w, c, 1). State: [B, c, height, width].

    In float32, `arithmetic` says how solves round its products: see `nn/arithmetic.py`."""

    def __init__(self, channels: int, width: int, *, arithmetic: str = "float32") -> None:
        super().__init__()
        self.arithmetic = check_arithmetic(arithmetic)
        self.lift = _bare(nn.Conv2d, channels, width, 1)
        self.mix = _bare(nn.Conv2d, width, width, 3, padding=1)
        self.lower = _bare(nn.Conv2d, width, channels, 1)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        """The slow reference, without rounding products."""
        w1, b1, w2, b2, w3, b3 = self.parameters()
        hidden = F.relu(F.conv2d(F.relu(F.conv2d(z, w1, b1)), w2, b2, padding=1))
        return F.conv2d(hidden, w3, b3)


def architecture(
    data: str, solver: Solver, *, gradient: Gradient = "backprop", arithmetic: str = "float32"
) -> nn.Sequential:
    """The paper's model for a data set, with weights not yet set: see `initialise`. `arithmetic` is for images."""
    check_it_suits(arithmetic, data, "float32")
    if data == "mnist":
        return _classifier(ImageField(1, 96, arithmetic=arithmetic), 784, 10, solver, gradient)
    if data == "mnist-patches":  # ours, for one CPU core
        return _classifier(ImageField(4, 16, arithmetic=arithmetic), 196, 10, solver, gradient)
    if data == "cifar10":
        return _classifier(ImageField(3, 128, arithmetic=arithmetic), 3072, 10, solver, gradient)
    if (sphere := re.fullmatch(r"sphere([1-9]\d*)", data)) is not None:
        points = int(sphere[1])
        return _classifier(SphereField(points), points, 2, solver, gradient)
    raise UnknownNameError("architecture for data set", data, ["sphere2", "sphere3", "mnist", "cifar10"])


def _classifier(field: nn.Module, width: int, classes: int, solver: Solver, gradient: Gradient) -> nn.Sequential:
    head = _bare(nn.Linear, width, classes)
    return nn.Sequential(ODEBlock(field, solver, gradient=gradient), nn.Flatten(), head)


@cache
def products(data: str) -> int:
    """About how many an evaluation of the paper's field takes for a sample: each of its weights, at every place."""
    model: Any = architecture(data, FixedStep("euler", step=1.0))
    block, _, head = model
    weights = sum(parameter.numel() for parameter in block.parameters())
    return int(weights * head.in_features // block.field.lift.in_channels)


def initialise(model: nn.Module, seed: int) -> nn.Module:
    """Kaiming normal weights (fan-in) and zero biases, from a generator of their own, drawn in float64 on the CPU, so
    that a seed means the same weights in every dtype and on every device."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2:
                parameter.zero_()
                continue
            spread = sqrt(2) / sqrt(parameter[0].numel())
            drawn = torch.empty(parameter.shape, dtype=torch.float64).normal_(0, spread, generator=generator)
            parameter.copy_(drawn)
    return model


def spheres_of(field: Any) -> Spheres | None:
    """What fast paths have to know of a sphere network, or of an ensemble of them."""
    module: Any = field.field if isinstance(field, StackedField) else field
    return Spheres(_weights(field), module.points) if stands_for(SphereField, module) else None


def images_of(field: Any) -> Images | None:
    """What fast paths have to know of an image network, or of an ensemble of them."""
    module: Any = field.field if isinstance(field, StackedField) else field
    return Images(_weights(field), module.arithmetic) if stands_for(ImageField, module) else None


def _weights(field: Any) -> list[Tensor]:
    """In the order of `NAMES`; in an ensemble all members', with a leading axis."""
    if isinstance(field, StackedField):
        return [field.tensors[name] for name in NAMES]
    return [getattr(layer, part) for layer in (field.lift, field.mix, field.lower) for part in ("weight", "bias")]


def walk_of(field: Any, gradient: Gradient) -> Walk | None:
    """A walk of one of the paper's fields, over a grid or by steps that lie on the device, which checks and counts
    nothing: for training steps that are captured. None where there is no such walk for this gradient."""
    spheres, images = spheres_of(field), images_of(field)
    if spheres is not None and gradient == "backprop":
        return spheres.walk
    if images is not None and gradient in ("backprop", "checkpoint"):
        return partial(images.walk, lean=gradient == "checkpoint")
    return None


register(SphereKernels(spheres_of), SpheresInC(spheres_of), ImagePath(images_of))
