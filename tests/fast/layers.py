"""Networks of linear layers, as Windermere knows them and as it does not."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fast.spheres import DOUBLE, assert_same, solved
from windermere.nn import Autonomous
from windermere.solvers import Adaptive, FixedStep

EULER, RK4, DOPRI54 = FixedStep("euler", step=1 / 8), FixedStep("rk4", step=1 / 3), Adaptive("dopri54", tolerance=1e-3)
SOLVERS = pytest.mark.parametrize("solver", [EULER, RK4, DOPRI54, Adaptive("fehlberg21", tolerance=1e-2)], ids=str)

SMOOTH = (nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.SiLU, nn.GELU, nn.Mish)
ACTIVATIONS = (nn.Identity, nn.ReLU, nn.LeakyReLU, *SMOOTH)


class Unknown(nn.Module):
    """The same field, of which nothing is known."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_forward_pre_hook(lambda *_: None)  # whoever has hooks is left to PyTorch

    def forward(self, t: Tensor, z: Tensor) -> Any:
        return self.network(z)


def network(*units: int, activation: Callable[[], nn.Module] = nn.Tanh, last: bool = False, bias: bool = True) -> Any:
    """Linear layers, each but the last with an activation after it."""
    torch.manual_seed(sum(units))
    layers: list[nn.Module] = []
    for i, o in pairwise(units):
        layers += [nn.Linear(i, o, bias=bias), activation()]
    return nn.Sequential(*layers if last else layers[:-1]).to(DOUBLE)


def assert_as_pytorch(net: nn.Module, z: Tensor, solver: Any, gradient: Any = "backprop", times: Any = (0, 1)) -> None:
    found, wanted = (
        solved(field, z, solver, list(net.parameters()), times, gradient) for field in (Autonomous(net), Unknown(net))
    )
    assert_same(found, wanted)
