"""The fast paths stand for a field as its class wrote it: whoever changes a field gets what they changed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fast.spheres import DOUBLE, Convolving, assert_same, samples, solved, sphere_field
from windermere.errors import UsageError
from windermere.paper.architectures import ImageField, SphereField, initialise
from windermere.solvers import Adaptive, FixedStep, fast_paths, solve

SOLVERS = pytest.mark.parametrize(
    "solver", [FixedStep("rk4", step=1 / 4), Adaptive("dopri54", tolerance=1e-3)], ids=["fixed", "adaptive"]
)


class Still(SphereField):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return 0 * super().forward(t, z)


@SOLVERS
def test_a_subclass_with_a_forward_of_its_own_is_solved_by_it(solver: Any) -> None:
    field, z = initialise(Still(2).to(DOUBLE), 0), samples(4, 2)
    assert torch.equal(torch.as_tensor(solve(field, z, solver).final), z)


@SOLVERS
def test_a_field_with_a_hook_is_solved_with_it(solver: Any) -> None:
    field, z = sphere_field(2), samples(4, 2)
    moved = solve(field, z, solver).final
    hook = field.register_forward_hook(lambda module, given, k: 0 * k)
    assert torch.equal(torch.as_tensor(solve(field, z, solver).final), z)
    hook.remove()
    assert torch.equal(torch.as_tensor(solve(field, z, solver).final), torch.as_tensor(moved))
    field.forward = lambda t, z: 0 * z  # type: ignore[method-assign]
    assert torch.equal(torch.as_tensor(solve(field, z, solver).final), z)


@SOLVERS
@pytest.mark.parametrize("answer", [None, 1.0])
def test_a_method_that_happens_to_be_called_prepare_is_left_alone(solver: Any, answer: Any) -> None:
    class Prepares(nn.Module):
        def prepare(self) -> Any:
            raise AssertionError("nobody asked for this")

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return -z

    z = samples(4, 2)
    assert solve(Prepares(), z, solver).stats == solve(lambda t, z: -z, z, solver).stats


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
@SOLVERS
def test_the_papers_fields_are_solved_in_autocast(solver: Any, gradient: Any) -> None:
    spheres, images = initialise(SphereField(2), 0), initialise(ImageField(1, 4), 0)
    for field, z in ((spheres, samples(4, 2)), (images, samples(2, 1, 3, 3))):
        exact: Any = solve(field, z.float(), solver).final
        with torch.autocast("cpu", dtype=torch.bfloat16):
            end: Any = solve(field, z.float(), solver, gradient=gradient).final
        end.sum().backward()
        assert end.dtype == torch.float32
        torch.testing.assert_close(end, exact, rtol=0.1, atol=0.1)


def test_the_papers_fields_can_be_transformed() -> None:
    field, z, solver = sphere_field(2), samples(5, 4, 2), FixedStep("rk4", step=1 / 4)

    def end(z: Tensor) -> Any:
        return solve(field, z, solver).final

    torch.testing.assert_close(torch.func.vmap(end)(z), torch.stack([end(x) for x in z]))
    slope = torch.func.grad(lambda x: end(x).square().sum())(z[0])
    start = z[0].clone().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(end(start).square().sum(), start)[0])


def test_a_second_derivative_of_a_fast_path_is_refused_and_one_without_it_is_had() -> None:
    field, z, solver = sphere_field(2), samples(4, 2).requires_grad_(), FixedStep("rk4", step=1 / 4)

    def slope(of: Any) -> Any:
        end: Any = solve(of, z, solver).final
        return torch.autograd.grad(end.square().sum(), z, create_graph=True)[0]

    with pytest.raises(UsageError, match="cannot be differentiated again"):
        slope(field).sum().backward()
    (expected,) = torch.autograd.grad(slope(Convolving(field)).sum(), z)
    with fast_paths(False):
        (found,) = torch.autograd.grad(slope(field).sum(), z)
    assert expected.abs().sum() > 0
    torch.testing.assert_close(found, expected)
    assert_same(
        solved(field, z.detach(), solver, field.parameters()),
        solved(Convolving(field), z.detach(), solver, field.parameters()),
    )
