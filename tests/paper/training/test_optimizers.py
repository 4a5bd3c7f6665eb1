"""The optimizers of training are PyTorch's own."""

import pytest
import torch

from windermere.paper.architectures import architecture, initialise
from windermere.paper.training import Ensemble
from windermere.paper.training.checkpoint import make_optimizer, pack, update

from .members import assert_close, steps
from .small import a_config, optimizer_for


def test_the_fused_optimizers_are_pytorchs_own() -> None:
    """What training uses against what a plain loop would, on parameters that are not stacked."""
    for name in ("adam", "sgd"):
        config = a_config(optimizer=name, lr=0.1)
        one, other = (torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_() for _ in range(2))
        fused, plain = make_optimizer(name, [one], 0.1), optimizer_for(config, [other])
        for _ in range(5):
            for tensor, optimizer in ((one, fused), (other, plain)):
                optimizer.zero_grad()
                (tensor**4).sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        assert_close(one.detach(), other.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_an_update_is_the_optimizers_own_step_to_the_bit(name: str, dtype: torch.dtype) -> None:
    """With the same state to save, and with a parameter that at first has no gradient."""
    states = []
    for step in (update, lambda optimizer: optimizer.step()):
        ensemble = Ensemble([initialise(architecture("sphere2", steps("euler", 1)), 0).to(dtype)])
        parameters = ensemble.parameters()
        optimizer = make_optimizer(name, parameters, 0.1)
        for iteration in range(4):
            for k, parameter in enumerate(parameters):
                parameter.grad = (parameter.detach() - k).sin() if k or iteration else None
            step(optimizer)
        states.append(pack(ensemble, optimizer))
    one, other = states
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)
