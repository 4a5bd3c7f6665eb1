"""The fused walk where it meets the rest: autograd, memory, frozen layers, other solvers, many dimensions."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.fast.spheres import Convolving, Ensemble, assert_same, samples, solved, sphere_field
from windermere.paper.architectures import walk_of
from windermere.paper.stacked import StackedField
from windermere.solvers import METHODS, Adaptive, FixedStep, Gradient, OnGrid, solve
from windermere.solvers.grid import Steps

pytestmark = pytest.mark.usefixtures("each_walk")


def test_the_fused_gradient_is_that_of_finite_differences() -> None:
    field, z = sphere_field(2), samples(3, 2).requires_grad_()
    solver = FixedStep("rk4", step=1 / 3)

    def end(z: Tensor, *parameters: Tensor) -> Any:
        names = [name for name, _ in field.named_parameters()]
        return solve(StackedField(field, dict(zip(names, parameters, strict=True))), z, solver).final

    parameters = [p.detach().clone().requires_grad_() for p in field.parameters()]
    assert torch.autograd.gradcheck(end, (z, *parameters), eps=1e-7, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("members", [None, 2])
def test_without_gradients_the_walk_gives_the_same_end_and_keeps_nothing(members: int | None) -> None:
    solver: Any = FixedStep("rk4", step=1 / 5)
    field: Any = sphere_field(3)
    z = samples(4, 3)
    if members is not None:
        field, solver, z = Ensemble(3, members), [solver] * members, samples(members, 4, 3)
    plain = solve(field, z, solver).final
    with torch.no_grad():
        quiet = solve(field, z, solver).final
    assert isinstance(quiet, Tensor)
    assert isinstance(plain, Tensor)
    assert plain.requires_grad
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, plain.detach(), rtol=0, atol=0)


@pytest.mark.parametrize(("batch", "points"), [(4, 2), (1, 2), (4, 1), (1, 1)])
def test_the_walk_leaves_its_input_and_its_weights_as_they_were(batch: int, points: int) -> None:
    field, z = sphere_field(points), samples(batch, points)
    before = [x.clone() for x in (z, *field.parameters())]
    solve(field, z, FixedStep("rk4", step=1 / 5))
    with torch.no_grad():
        solve(field, z, FixedStep("rk4", step=1 / 5))
    for x, kept in zip((z, *field.parameters()), before, strict=True):
        assert torch.equal(x, kept)


@pytest.mark.parametrize("layout", ["expanded", "transposed", "strided"])
def test_the_walk_takes_a_state_however_it_lies_in_memory(layout: str) -> None:
    field, solver = sphere_field(2), FixedStep("heun", step=1 / 4)
    z = {
        "expanded": samples(1, 2).expand(5, 2),
        "transposed": samples(2, 5).T,
        "strided": samples(10, 4)[::2, ::2],
    }[layout]
    torch.testing.assert_close(
        solve(field, z, solver).final, solve(Convolving(field), z, solver).final, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("frozen", ["lift", "mix", "lower", "all"])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_frozen_layers_have_no_gradient_and_the_others_keep_theirs(frozen: str, gradient: Gradient) -> None:
    field, z, solver = sphere_field(2), samples(4, 2), FixedStep("rk4", step=1 / 40)
    (field if frozen == "all" else getattr(field, frozen)).requires_grad_(False)
    wanted = [p for p in field.parameters() if p.requires_grad]
    found = solved(field, z, solver, wanted, gradient=gradient)
    expected = solved(Convolving(field), z, solver, wanted)
    assert_same(found, expected, 2e-2 if gradient == "adjoint" else 1e-11)


@pytest.mark.parametrize(
    "solver",
    [
        Adaptive("dopri54", tolerance=1e-5),
        Adaptive("bosh32", tolerance=1e-4, control="sample"),
        OnGrid("rk4", (0, 0.2, 1)),
    ],
    ids=str,
)
def test_every_other_solver_takes_the_dense_field_as_well(solver: Any) -> None:
    field, z = sphere_field(3), samples(5, 3)
    assert_same(
        solved(field, z, solver, field.parameters()), solved(Convolving(field), z, solver, field.parameters()), 1e-9
    )


def test_states_at_several_times_and_a_record_come_from_the_eager_walk() -> None:
    field, z, solver = sphere_field(2), samples(5, 2), FixedStep("rk4", step=1 / 4)
    several = solve(field, z, solver, (0.0, 0.5, 1.0), record=True)
    assert several.trajectory is not None
    assert len(several.trajectory.times) == 5
    torch.testing.assert_close(several.final, solve(field, z, solver).final, rtol=1e-12, atol=1e-12)


def test_nine_hundred_dimensions_walk_as_they_are_convolved() -> None:
    field: Any = sphere_field(900)
    solver: Any = FixedStep("midpoint", step=1 / 2)
    z = samples(3, 900)
    assert_same(solved(field, z, solver, field.parameters()), solved(Convolving(field), z, solver, field.parameters()))
    ensemble, z = Ensemble(900, 2), samples(2, 3, 900)
    together = solve(ensemble, z, [solver] * 2).final
    assert isinstance(together, Tensor)
    for s, alone in enumerate(ensemble.fields):
        torch.testing.assert_close(together[s], solve(Convolving(alone), z[s], solver).final, rtol=1e-11, atol=1e-11)


def test_many_dimensions_walk_by_steps_that_lie_in_tensors() -> None:
    """As captured training steps do, with room for more of them."""
    solvers = [FixedStep("rk4", step=1 / n) for n in (1, 3)]
    ensemble, z = Ensemble(20, 2), samples(2, 3, 20)
    sizes = torch.tensor([[1.0, 0, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0]], dtype=z.dtype)
    walk = walk_of(ensemble, "backprop")
    assert walk is not None
    found = walk(METHODS["rk4"], Steps(sizes, torch.tensor([1, 3], dtype=torch.int32)), z)
    torch.testing.assert_close(found, solve(ensemble, z, solvers).final, rtol=1e-11, atol=1e-11)
