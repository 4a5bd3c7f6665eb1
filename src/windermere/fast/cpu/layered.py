"""Networks of linear layers with activations after them, as most users write their fields: solved in C on a CPU.

A solve does what PyTorch would do. So a network with hooks, or with a layer that is not exactly one of those below,
goes through PyTorch step by step.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from windermere.fast.cpu.native import DEPTH_UP_TO, Native, native_adapt, native_adjoint, with_native
from windermere.fast.cpu.native_call import Weights
from windermere.fast.cpu.native_plan import network_of
from windermere.solvers import Prepared
from windermere.solvers.field import Rate, is_altered, parameters_of

Layer: TypeAlias = tuple[nn.Linear, nn.Module]
"""And its activation."""
ACTIVATIONS = (nn.Identity, nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.SiLU)
"""As native_layers.h numbers them."""
NONE = nn.Identity()


def layered_field(field: nn.Module, network: nn.Module) -> Prepared:
    """A field that calls a network of the state alone: by its rate, and where it is layered in C."""
    parameters, layers = parameters_of(field), _layers(network)
    native = _native(layers) if layers else None
    if native is None:
        return Prepared(field, parameters)
    walk, adapt, adjoint = with_native(native), native_adapt(native), native_adjoint(native, field)
    return Prepared(field, parameters, walk, adapt=adapt, adjoint=adjoint)


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


def _native(layers: Sequence[Layer]) -> Native | None:
    weights = [x for linear, _ in layers for x in (linear.weight, _bias(linear))]
    units = (*(linear.weight.shape[-1] for linear, _ in layers), layers[-1][0].weight.shape[0])
    shared = len({id(w) for w in weights}) < len(weights)
    if units[0] != units[-1] or not all(units) or shared or len(layers) > DEPTH_UP_TO:
        return None
    after = [activation for _, activation in layers]
    kinds = tuple(ACTIVATIONS.index(type(a)) for a in after)
    slopes = tuple(a.negative_slope if isinstance(a, nn.LeakyReLU) else 0.0 for a in after)
    network = network_of("layers", units[0], units=units, activations=kinds, slopes=slopes)
    return Native(network, weights, lambda weights: _rate(weights, after))


def _bias(linear: nn.Linear) -> Tensor:
    return linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias


def _rate(weights: Weights, after: Sequence[nn.Module]) -> Rate:
    def rate(t: Tensor, z: Tensor) -> Tensor:
        for weight, bias, activation in zip(weights[::2], weights[1::2], after, strict=True):
            z = activation(functional.linear(z, weight, bias))
        return z

    return rate
