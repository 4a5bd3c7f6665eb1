"""The paper's three architectures (appendix): one ODE block and a linear classifier, no upstream layers.

Shapes: B samples, d points (the dimension of a sphere's space), S members of an ensemble.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from windermere.errors import UnknownNameError
from windermere.fast.cpu.native import native_adapt, native_adjoint, sphere, with_native
from windermere.nn.arithmetic import check_arithmetic
from windermere.nn.ode_block import ODEBlock
from windermere.paper.arithmetic import check_it_suits
from windermere.paper.fast.dense import DenseField, Layers, banded, dense_field, eager_walk, repeated
from windermere.paper.fast.fused import with_kernels
from windermere.paper.fast.fused_adaptive import with_adaptive_kernels
from windermere.paper.fast.images import image_field
from windermere.solvers import FixedStep, Gradient, Prepared, Solver

Tensors: TypeAlias = Mapping[str, Tensor]
Layer = TypeVar("Layer", bound=nn.Module)

NAMES = tuple(f"{name}.{part}" for name in ("lift", "mix", "lower") for part in ("weight", "bias"))
DENSE_UP_TO = 16
"""Points up to which the banded matrix pays; beyond, it is mostly zeros and the convolution is faster."""


@runtime_checkable
class Stackable(Protocol):
    """A field that knows how to be evaluated for all members of an ensemble at once."""

    def prepare_stacked(self, tensors: Tensors) -> Prepared: ...


def _bare(layer: type[Layer], *sizes: int, padding: int | None = None) -> Layer:
    """A layer whose weights are not drawn yet, so that the global generator is left alone."""
    options = {} if padding is None else {"padding": padding}
    return cast(Layer, skip_init(layer, *sizes, **options))  # type: ignore[no-untyped-call]


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
        return _along_a_line(dict(self.named_parameters()), z)

    def prepare(self) -> Prepared:
        weights = [getattr(layer, part) for layer in (self.lift, self.mix, self.lower) for part in ("weight", "bias")]
        return self.prepare_stacked(dict(zip(NAMES, weights, strict=True)))

    def prepare_stacked(self, tensors: Tensors) -> Prepared:
        """For a model's own parameters, or an ensemble's with a leading member axis."""
        weights = _in_order(tensors)
        native = sphere(weights, self.points)
        adapt = with_adaptive_kernels(weights, self.points, native_adapt(native))
        if self.points > DENSE_UP_TO:
            rate = _by_member(tensors)
            walk = with_native(native, lambda: eager_walk(rate))
            adjoint = native_adjoint(native, rate)
            return Prepared(rate, lambda: tuple(tensors.values()), walk, adapt=adapt, adjoint=adjoint)
        dense = _Dense(weights, self.points)
        walk = with_kernels(weights, self.points, lambda: with_native(native, lambda: dense.field.walk))
        adjoint = native_adjoint(native, lambda t, z: dense.anew().rate(t, z))
        return Prepared(dense.rate, lambda: dense.field.layers, walk, adapt=adapt, adjoint=adjoint)


class _Dense:
    """A sphere network's field as dense layers for one solve, made on demand: the kernels and the C code need none."""

    def __init__(self, weights: list[Tensor], points: int) -> None:
        self.weights, self.points, self.graded = weights, points, torch.is_grad_enabled()

    @cached_property
    def field(self) -> DenseField:
        """As it would have been made at once."""
        with torch.set_grad_enabled(self.graded):
            return self.anew()

    def anew(self) -> DenseField:
        pairs = zip(self.weights[::2], self.weights[1::2], strict=True)
        layers = [x for w, b in pairs for x in (banded(w, self.points), repeated(b, self.points))]
        return dense_field(cast(Layers, tuple(layers)))

    def rate(self, t: Tensor, z: Tensor) -> Tensor:
        return self.field.rate(t, z)


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
        return _convolve(dict(self.named_parameters()), F.conv2d, z)

    def prepare(self) -> Prepared:
        return self.prepare_stacked(dict(self.named_parameters()))

    def prepare_stacked(self, tensors: Tensors) -> Prepared:
        """For a model's own parameters, or an ensemble's with a leading member axis."""
        return image_field(_in_order(tensors), self.arithmetic)


def _in_order(tensors: Tensors) -> list[Tensor]:
    return [tensors[name] for name in NAMES]


def _convolve(tensors: Tensors, convolution: Callable[..., Tensor], z: Tensor) -> Tensor:
    """The three layers of every field in the paper."""
    hidden = F.relu(convolution(z, tensors["lift.weight"], tensors["lift.bias"]))
    hidden = F.relu(convolution(hidden, tensors["mix.weight"], tensors["mix.bias"], padding=1))
    return convolution(hidden, tensors["lower.weight"], tensors["lower.bias"])


def _along_a_line(tensors: Tensors, z: Tensor) -> Tensor:
    return _convolve(tensors, F.conv1d, z.unsqueeze(-2)).squeeze(-2)


def _by_member(tensors: Tensors) -> Callable[[Tensor, Tensor], Tensor]:
    """A sphere network's rate for one model, or member by member for an ensemble."""
    if tensors["lift.weight"].ndim == 3:
        return lambda t, z: _along_a_line(tensors, z)
    count = tensors["lift.weight"].shape[0]
    members = [{name: tensor[s] for name, tensor in tensors.items()} for s in range(count)]
    return lambda t, z: torch.stack([_along_a_line(own, zs) for own, zs in zip(members, z.unbind(0), strict=True)])


def architecture(
    data: str, solver: Solver, *, gradient: Gradient = "backprop", arithmetic: str = "float32"
) -> nn.Sequential:
    """The paper's model for a data set, with weights not yet set: see `initialise`. `arithmetic` is for images."""
    check_it_suits(arithmetic, data, "float32")
    if data == "mnist":
        return _classifier(ImageField(1, 96, arithmetic=arithmetic), 784, 10, solver, gradient)
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
            drawn = torch.empty(parameter.shape, dtype=torch.float64)
            nn.init.kaiming_normal_(drawn, mode="fan_in", nonlinearity="relu", generator=generator)
            parameter.copy_(drawn)
    return model
