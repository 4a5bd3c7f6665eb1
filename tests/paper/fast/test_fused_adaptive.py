"""The adaptive Triton kernels, interpreted and on a GPU, against the host-driven walk: steps, ends, gradients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fast.spheres import Eagerly, samples, sphere_field
from tests.paper.fast.kernels import DEVICES, Kernels, accuracy, few, kernels, needs_triton, quiet
from tests.paper.fast.test_fused import NAMES, expected, make_case
from windermere.errors import SolverError
from windermere.paper.architectures import SphereField
from windermere.paper.fast.fused_adaptive import can_adapt
from windermere.paper.stacked import StackedField
from windermere.solvers import Adaptive, Problem, Solution, solve
from windermere.solvers.layout import lay_out
from windermere.solvers.tableaus import adaptive_names

CLOSENESS = 2e-3
"""Relative to the norm: of float32 over the same steps, and over steps that differ a little, as in float32 an error
estimate of high order is rounding for a good part."""


def case(
    method: str,
    tolerances: list[float],
    batch: int = 5,
    points: int = 2,
    *,
    channels: int = 8,
    times: tuple[float, float] = (0.0, 1.0),
    precision: str = "tf32x3",
    room: int = 64,
    **options: Any,
) -> dict[str, Any]:
    """Members that differ in their tolerance."""
    made = make_case(method, [1] * len(tolerances), batch, points, channels, precision)
    solvers = [Adaptive(method, rtol=e, atol=e / 2, **options) for e in tolerances]
    return {**made, "solvers": solvers, "times": times, "room": room}


def with_start(value: float) -> dict[str, Any]:
    made = case("dopri54", [1e-3])
    made["z"][0, 1, 0] = value
    return made


def steep(factor: float) -> dict[str, Any]:
    made = case("dopri54", [1e-3])
    made["weights"] = [w * factor for w in made["weights"]]
    return made


ORDINARY = {
    **{f"{method}, one member": case(method, [1e-3]) for method in adaptive_names()},
    **{f"{method}, backwards in time": case(method, [1e-3], times=(2.0, 0.5)) for method in ("fehlberg21", "dopri54")},
    "members with tolerances of their own": case("dopri54", [1e-1, 1e-3], 7),
    "members with tolerances of their own, not FSAL": case("fehlberg21", [1e-1, 1e-3], 7),
    "steps that are rejected": case("bosh32", [1e-3], times=(2.0, 0.5)),
    "several tiles on the way back": case("bosh32", [1e-2], 18, 1),
    **{f"{d} points": case("bosh32", [1e-2], points=d) for d in (3, 4)},
    **{f"a batch of {batch}": case("bosh32", [1e-2], batch) for batch in (1, 16)},
    "the paper's width": case("bosh32", [1e-3], channels=32),
    "steps that outgrow their room": case("bosh32", [1e-1, 1e-3], room=2),
    "without tensor cores": case("bosh32", [1e-2], precision="ieee"),
}
ALONE = "dopri54, one member"
QUIET = [
    ALONE,
    "members with tolerances of their own, not FSAL",
    "steps that outgrow their room",
    "without tensor cores",
]
"""Each way of walking, solved without gradients too."""
OUT_OF_THE_ORDINARY = {
    "a start that is not finite": with_start(float("nan")),
    "a start that overflows": with_start(1e38),
    "a field that overflows": steep(1e15),
    "steps that vanish": steep(300.0),
    "a tolerance that float32 cannot resolve": case("dopri54", [1e-9]),
    "a budget that is spent": case("dopri54", [1e-5], max_steps=2),
}


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def found(device: str, shared_folder: Path) -> Iterator[Kernels]:
    cases = {**ORDINARY, **quiet(ORDINARY), **OUT_OF_THE_ORDINARY, ALONE: {**ORDINARY[ALONE], "alone": True}}
    with kernels("interpreted_adaptive", cases, device, shared_folder) as made:
        yield made


def walked(case: dict[str, Any]) -> tuple[Solution, list[Tensor]]:
    """The solve and its gradients, in float32."""
    start, *weights = (x.clone().requires_grad_() for x in (case["z"], *case["weights"]))
    network = SphereField(start.shape[-1], weights[1].shape[1])
    field = Eagerly(StackedField(network, dict(zip(NAMES, weights, strict=True))))
    solution = solve(field, start, case["solvers"], case["times"], record=True)
    end = torch.as_tensor(solution.final)
    return solution, list(torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights]))


def assert_close(found: list[Tensor], wanted: list[Tensor], closeness: float) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        assert (got - want).norm() <= closeness * want.norm()


@needs_triton
@pytest.mark.parametrize("name", ORDINARY)
def test_the_steps_costs_end_and_gradients_are_those_of_the_host_driven_walk(name: str, found: Any) -> None:
    ours, (theirs, gradients) = found[name], walked(ORDINARY[name])
    stats = theirs.stats
    for got, want in zip(ours["costs"], (stats.evaluations, stats.accepted, stats.rejected), strict=True):
        assert got.tolist() == np.asarray(want).tolist()
    assert theirs.trajectory is not None
    for sizes, times in zip(ours["sizes"].numpy(), theirs.trajectory.times.T, strict=True):
        reached = np.unique(abs(times - times[0]))[1:]
        np.testing.assert_allclose(abs(sizes[: len(reached)].cumsum()), reached, rtol=CLOSENESS)
    assert_close([ours["end"], *ours["gradients"]], [torch.as_tensor(theirs.final).detach(), *gradients], CLOSENESS)


@needs_triton
@pytest.mark.parametrize("name", ORDINARY)
def test_the_gradient_is_that_of_the_accepted_steps(name: str, found: Any, device: str) -> None:
    """Against autograd through the convolutions in float64, over exactly these steps."""
    ours = found[name]
    wanted = expected({**ORDINARY[name], "sizes": ours["sizes"], "counts": ours["costs"][1]})
    assert_close([ours["end"], *ours["gradients"]], wanted, accuracy(device, ORDINARY[name]["precision"]))


@needs_triton
@pytest.mark.parametrize("name", few(ORDINARY, QUIET))
def test_without_gradients_the_kernels_end_at_the_same_bits(name: str, found: Any) -> None:
    assert torch.equal(found[name]["end"], found[f"{name}, quiet"]["end"])


@needs_triton
@pytest.mark.parametrize("name", OUT_OF_THE_ORDINARY)
def test_what_is_out_of_the_ordinary_is_left_to_the_host(name: str, found: Any) -> None:
    assert found[name] is None
    with pytest.raises(SolverError):
        walked(OUT_OF_THE_ORDINARY[name])


@needs_triton
@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_a_solve_of_a_model_alone_takes_the_kernels(gradient: str, found: Any) -> None:
    ours, theirs = found[ALONE], walked(ORDINARY[ALONE])[0]
    end, evaluations = ours["alone"][gradient]
    assert evaluations == np.asarray(theirs.stats.evaluations).item()
    assert torch.equal(end, ours["end"][0])


def test_a_state_that_is_no_gpus_is_not_the_kernels() -> None:
    field, z, solver = sphere_field(2).float(), samples(5, 2).float(), Adaptive("dopri54", tolerance=1e-3)
    layout = lay_out(z, members=None, samples=False)
    assert not can_adapt(Problem(field, field, None, z, layout, (solver,), (0.0, 1.0)), list(field.parameters()))
    assert solve(field, z, solver).stats.accepted
