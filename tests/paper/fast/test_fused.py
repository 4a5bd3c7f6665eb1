"""The Triton kernels, interpreted and on a GPU, against the eager walk in float64: values and gradients."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

from tests.fast.spheres import Convolving, assert_same, samples, solved, sphere_field
from tests.paper.fast.kernels import DEVICES, Kernels, accuracy, kernels, needs_triton
from windermere.paper.architectures import SphereField
from windermere.paper.fast import fused_adaptive
from windermere.paper.fast.fused import can_walk, fused_walk, steps_on_device
from windermere.paper.fast.spheres import SphereKernels, Spheres
from windermere.solvers import METHODS, Adaptive, FixedStep, Problem
from windermere.solvers.grid import make_grid
from windermere.solvers.layout import lay_out
from windermere.solvers.runge_kutta import combine, stages

NAMES = [name for name, _ in SphereField(1).named_parameters()]


def make_case(
    method: str, counts: list[int], samples: int, points: int, channels: int = 8, precision: str = "tf32x3"
) -> dict[str, Any]:
    """Kaiming weights, biases that are not zero, steps of any size, and no numbers behind a member's last step."""
    generator, members = torch.Generator().manual_seed(7), len(counts)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(members, *shape, generator=generator) * scale

    shapes = [(channels, 1, 1), (channels, channels, 3), (1, channels, 1)]
    weights = [x for s in shapes for x in (normal(*s, scale=(2 / (s[1] * s[2])) ** 0.5), normal(s[0], scale=0.3))]
    sizes = (1 + 0.3 * normal(max(counts) + 2)) / max(counts)
    for s, count in enumerate(counts):
        sizes[s, count:] = torch.nan
    return {
        "method": method,
        "precision": precision,
        "counts": torch.tensor(counts, dtype=torch.int32),
        "sizes": sizes,
        "z": normal(samples, points),
        "cotangent": normal(samples, points),
        "weights": weights,
    }


CASES = {
    **{f"{method}, one member": make_case(method, [2], 5, 2) for method in ("euler", "midpoint", "rk4")},
    **{f"{method}, ragged members": make_case(method, [2, 1, 3], 18, 2) for method in ("euler", "midpoint", "rk4")},
    **{f"{d} points": make_case("heun", [2, 2], 16, d) for d in (1, 3, 4)},
    "three rates in a row": make_case("bosh32", [1], 3, 2),
    "a tableau without zeros": make_case("rk4_38", [2], 5, 2),
    "a member that takes no step": make_case("euler", [2, 0], 3, 2),
    "the paper's width": make_case("euler", [4], 3, 2, 32),
    "without tensor cores": make_case("midpoint", [2], 3, 2, 8, "ieee"),
    "one product": make_case("midpoint", [2], 3, 2, 8, "tf32"),
}


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def found(device: str, shared_folder: Path) -> Iterator[Kernels]:
    with kernels("interpreted", CASES, device, shared_folder) as made:
        yield made


def expected(case: dict[str, Any]) -> list[Tensor]:
    """Every member by itself, as nn.Conv1d would go, one operation after the other."""
    start, *weights = (x.double().requires_grad_() for x in (case["z"], *case["weights"]))
    tableau, ends = METHODS[case["method"]], []
    for s, count in enumerate(case["counts"].tolist()):
        z, own = start[s], {name: w[s] for name, w in zip(NAMES, weights, strict=True)}
        for h in case["sizes"][s, :count].double().tolist():
            rates = stages(tableau, lambda _, z, own=own: convolved(own, z), [z] * tableau.stages, z, h)  # type: ignore[misc]
            z = combine(z, h, tableau.b, rates)
        ends.append(z)
    end = torch.stack(ends)
    return [end.detach(), *torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])]


def convolved(own: dict[str, Tensor], z: Tensor) -> Any:
    field = SphereField(z.shape[-1], own["lift.bias"].shape[0])
    return torch.func.functional_call(field, own, (z, z))


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_the_kernels_give_the_eager_walks_end_and_gradients(name: str, found: Any, device: str) -> None:
    closeness = accuracy(device, CASES[name]["precision"])
    for got, want in zip(found[name], expected(CASES[name]), strict=False):
        assert got.shape == want.shape
        assert (got - want).norm() <= closeness * want.norm()


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_without_gradients_the_kernels_end_at_the_same_bits(name: str, found: Any) -> None:
    assert torch.equal(found[name][0], found[name][-1])


def test_a_grid_for_all_members_is_repeated_for_each() -> None:
    sizes, counts = steps_on_device(make_grid([FixedStep("euler", step=0.3)] * 2, (0.0, 1.0)), torch.zeros(2, 5, 3))
    torch.testing.assert_close(sizes, torch.tensor([[0.3, 0.3, 0.3, 0.1]] * 2))
    assert counts.tolist() == [4, 4]


def test_members_with_fewer_steps_have_smaller_counts() -> None:
    solvers = [FixedStep("euler", step=1 / n) for n in (2, 3)]
    sizes, counts = steps_on_device(make_grid(solvers, (1.0, 0.0)), torch.zeros(2, 5, 3))
    torch.testing.assert_close(sizes, -torch.tensor([[1 / 2, 1 / 2, 0.0], [1 / 3, 1 / 3, 1 / 3]]))
    assert counts.tolist() == [2, 3]


@needs_triton
@pytest.mark.parametrize(("shape", "taken"), [((4, 2), True), ((3, 4, 2), False), ((2,), False), ((0, 2), False)])
def test_a_model_alone_takes_states_without_members(shape: tuple[int, ...], taken: bool) -> None:
    """Kernels would look for more members' weights than there are."""
    shapes = [p.shape for p in sphere_field(2).parameters()]
    with FakeTensorMode():  # tensors of a GPU that need not be there
        z, weights = torch.zeros(shape, device="cuda"), [torch.zeros(s, device="cuda") for s in shapes]
        assert can_walk(METHODS["rk4"], z, weights) is taken
        assert not can_walk(METHODS["rk4"], z, [w.double() for w in weights])
        with forward_ad.dual_level():
            assert not can_walk(METHODS["rk4"], z, weights)


@needs_triton
def test_the_kernels_leave_a_state_of_other_points_than_the_field_has_to_the_ordinary_walk() -> None:
    field = sphere_field(2)  # which PyTorch does not take into float64 among fake tensors
    shapes = [p.shape for p in field.parameters()]
    with FakeTensorMode():
        path = SphereKernels(lambda _: Spheres([torch.zeros(s, device="cuda") for s in shapes], 2))
        for solver in (FixedStep("euler", step=1.0), Adaptive("dopri54", tolerance=1e-3)):
            z = torch.zeros(4, 3, device="cuda")
            layout = lay_out(z, members=None, samples=False)
            problem = Problem(field, field, None, z, layout, (solver,), (0.0, 1.0))
            assert (path.adaptive if problem.adaptive else path.fixed)(problem) is None


def test_a_state_that_is_no_gpus_takes_the_ordinary_walk() -> None:
    field, z = sphere_field(2), samples(5, 2)
    assert not can_walk(METHODS["rk4"], z.float(), list(field.parameters()))
    solver = FixedStep("rk4", step=1 / 4)
    assert_same(solved(field, z, solver, field.parameters()), solved(Convolving(field), z, solver, field.parameters()))


@needs_triton
def test_every_kernel_of_spheres_is_told_how_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not, Triton warns: its default is about to change."""
    bench: Any = import_module("benchmarks.compile_image_kernel")
    noted = {name: bench.Caught() for name in ("walk_forward", "walk_backward", "adapt_forward", "adapt_backward")}
    for name, kernel in noted.items():
        module = "kernels" if name.startswith("walk") else "adaptive_kernels"
        monkeypatch.setattr(import_module(f"windermere.paper.fast.{module}"), name, kernel)
    case = CASES["rk4, one member"]
    z, weights = case["z"].clone().requires_grad_(), case["weights"]
    fused_walk(METHODS["rk4"], case["sizes"], case["counts"], z, weights).sum().backward()  # type: ignore[no-untyped-call]
    whole = fused_adaptive._Solve.of(METHODS["dopri54"], z.detach(), fused_adaptive.Launch(), 4)
    whole.back(whole.there([Adaptive("dopri54", tolerance=1e-3)], (0.0, 1.0), z.detach(), weights), weights)
    assert [kernel.arguments[1]["enable_fp_fusion"] for kernel in noted.values()] == 4 * [True]
