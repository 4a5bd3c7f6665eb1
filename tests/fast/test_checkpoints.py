"""gradient="checkpoint" in C: the bits of backprop, the counts of PyTorch step by step, the memory of the states."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.fast.fields import KINDS, Hamiltonian, Likelihood, WithTime, made
from tests.fast.spheres import Eagerly, Ensemble, assert_same, samples, sphere_field
from tests.fast.test_rows import state, together
from tests.torches import TORCH

SOLVES = [
    (wm.FixedStep("rk4", step=1 / 3), (0.0, 0.5, 1.0)),
    (wm.OnGrid("euler", (0.0, 0.2, 1.0)), (0.0, 1.0)),
    (wm.Adaptive("dopri54", tolerance=1e-5), (0.0, 1.0)),
    (wm.Adaptive("dopri54", tolerance=1e-5), (0.0, 0.3, 0.31, 1.0)),
    (wm.Adaptive("fehlberg21", tolerance=1e-3), (1.0, 0.4, -0.5)),
    (wm.Adaptive("bosh32", tolerance=1e-6), (0.0, 2.0)),
]


DERIVATIVES = (Hamiltonian, Likelihood)
"""Fields that take derivatives inside."""


def gradients(
    field: Any, z: Any, solver: Any, times: Any, gradient: Any, of: Any = None
) -> tuple[list[Tensor], dict[str, Any]]:
    """The states, their gradients by the start and by parameters, and what was evaluated."""
    wanted = [*((z,) if isinstance(z, Tensor) else z), *(field if of is None else of).parameters()]
    with wm.counting() as count:
        states = together(wm.solve(field, z, solver, times, gradient=gradient).states)
        weight = torch.cos(torch.arange(states.numel(), dtype=states.dtype)).view_as(states)
        found = torch.autograd.grad((weight * states).sum(), wanted, allow_unused=True)
    return [states.detach(), *(x if x is not None else torch.zeros(()) for x in found)], dict(vars(count))


@pytest.mark.parametrize(("solver", "times"), SOLVES, ids=str)
@pytest.mark.parametrize(("kind", "widths"), KINDS)
def test_a_checkpoint_has_backprops_bits_and_the_counts_of_pytorch_step_by_step(
    kind: Callable[[], nn.Module], widths: tuple[int, ...], solver: Any, times: Any, taken: list[str]
) -> None:
    field, z = made(kind), state(widths)
    found, counts = gradients(field, z, solver, times, "checkpoint")
    assert taken[-1] == "back"
    plain, _ = gradients(field, z, solver, times, "backprop")
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    with wm.fast_paths(False):
        slow, wanted = gradients(field, z, solver, times, "checkpoint")
    assert_same(found, slow)
    if kind in DERIVATIVES:  # PyTorch runs a piece again for each of them, and C does once
        assert counts.pop("recomputed") <= wanted.pop("recomputed")
    assert counts == wanted


@pytest.mark.parametrize("solver", [wm.FixedStep("midpoint", step=1 / 4), wm.Adaptive("dopri54", tolerance=1e-4)])
def test_so_has_that_of_a_sphere_network(solver: Any, taken: list[str]) -> None:
    field, z = sphere_field(3), samples(9, 3).requires_grad_()
    found, counts = gradients(field, z, solver, (0.0, 1.0), "checkpoint")
    assert taken[-1] == "back"
    slow, wanted = gradients(Eagerly(field), z, solver, (0.0, 1.0), "checkpoint", of=field)
    assert_same(found, slow, 1e-7)
    assert counts == wanted


@pytest.mark.skipif(TORCH < (2, 5), reason="members step by step are mapped, which no checkpoint of PyTorch 2.4 takes")
def test_members_that_choose_their_steps_count_what_they_evaluate_again_as_step_by_step() -> None:
    ensemble: Any = Ensemble(2, 2)
    solvers = [wm.Adaptive("dopri54", tolerance=10.0**-k) for k in (2, 6)]
    counts = []
    for fast in (True, False):
        with wm.fast_paths(fast), wm.counting() as count:
            wm.solve(ensemble, samples(2, 7, 2), solvers, gradient="checkpoint").final.sum().backward()  # type: ignore[no-untyped-call]
        counts.append(torch.as_tensor(count.recomputed).tolist())
    assert counts[0] == counts[1]


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_step_of_a_checkpoint_keeps_one_state(method: str) -> None:
    kept, z = [], state((2,), 64)
    wm.solve(made(WithTime), z, wm.FixedStep(method, step=1), gradient="checkpoint")  # to be watched takes memory, too
    for steps in (10, 30):
        packed: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, own=packed: (own.append(x), x)[1], lambda x: x):  # type: ignore[misc]
            wm.solve(made(WithTime), z, wm.FixedStep(method, step=1 / steps), gradient="checkpoint")
        kept.append(sum(x.numel() for x in packed))
    assert kept[1] - kept[0] == 20 * z.numel()


def test_a_checkpoints_gradient_can_be_differentiated_again() -> None:
    found = []
    for fast in (True, False):
        field, z = made(WithTime), state((2,), 3)
        with wm.fast_paths(fast):
            end: Any = wm.solve(field, z, wm.FixedStep("rk4", step=1 / 2), gradient="checkpoint").final
            (first,) = torch.autograd.grad(end.square().sum(), z, create_graph=True)
            found.append([*torch.autograd.grad(first.square().sum(), [z, *field.parameters()])])
    assert_same(found[0], found[1])
