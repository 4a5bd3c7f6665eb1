"""Networks of linear layers with activations after them, as most users write their fields: solved in C on a CPU.

A solve does what PyTorch would do. So a network with hooks, or with a layer that is not exactly one of those below,
goes through PyTorch step by step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from windermere.fast.cpu.native import DEPTH_UP_TO, InC, Native
from windermere.fast.cpu.native_call import Weights
from windermere.fast.cpu.native_plan import network_of
from windermere.solvers.field import Rate, is_altered

Layer: TypeAlias = tuple[nn.Linear, nn.Module]
"""And its activation."""
ACTIVATIONS = (nn.Identity, nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.SiLU)
"""As native_layers.h numbers them."""
NONE = nn.Identity()


@dataclass(frozen=True)
class LayersInC(InC):
    """Solves in C of fields that call a network of the state alone."""

    network_of: Callable[[Any], nn.Module | None]
    """The network that a field calls; None where it may do anything else."""

    def native_of(self, field: Any) -> Native | None:
        network = self.network_of(field)
        layers = None if network is None else _layers(network)
        return _native(layers, field) if layers else None


def _layers(network: nn.Module) -> list[Layer] | None:
    found: list[Layer] = []
    for module in _one_by_one(network):
        if is_altered(module):
            return None
        if type(module) is nn.Linear:
            found.append((module, NONE))
        elif found and found[-1][1] is NONE and _is_known(module):
            found[-1] = found[-1][0], module
        else:
            return None
    return found


def _one_by_one(network: nn.Module) -> Iterator[nn.Module]:
    if type(network) is not nn.Sequential or is_altered(network):
        yield network
        return
    for module in network:
        yield from _one_by_one(module)


def _is_known(module: nn.Module) -> bool:
    """Whether native_layers.h has this activation, with these settings."""
    if isinstance(module, nn.LeakyReLU) and not (
        isinstance(slope := module.negative_slope, int | float) and slope >= 0
    ):
        return False
    if isinstance(module, nn.ELU) and module.alpha != 1:
        return False
    if isinstance(module, nn.Softplus) and (module.beta, module.threshold) != (1, 20):
        return False
    return type(module) in ACTIVATIONS


def _native(layers: Sequence[Layer], field: Rate) -> Native | None:
    weights = [x for linear, _ in layers for x in (linear.weight, _bias(linear))]
    units = (*(linear.weight.shape[-1] for linear, _ in layers), layers[-1][0].weight.shape[0])
    shared = len({id(w) for w in weights}) < len(weights)
    if units[0] != units[-1] or not all(units) or shared or len(layers) > DEPTH_UP_TO:
        return None
    after = [activation for _, activation in layers]
    kinds = tuple(ACTIVATIONS.index(type(a)) for a in after)
    slopes = tuple(a.negative_slope if isinstance(a, nn.LeakyReLU) else 0.0 for a in after)
    network = network_of("layers", units[0], units=units, activations=kinds, slopes=slopes)
    return Native(network, weights, field, lambda weights: _rate(weights, after))


def _bias(linear: nn.Linear) -> Tensor:
    return linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias


def _rate(weights: Weights, after: Sequence[nn.Module]) -> Rate:
    def rate(t: Tensor, z: Tensor) -> Tensor:
        for weight, bias, activation in zip(weights[::2], weights[1::2], after, strict=True):
            z = activation(functional.linear(z, weight, bias))
        return z

    return rate
