"""Walks of the sphere networks, in C and by dense layers, against nn.Conv1d: values and gradients."""

import pytest
import torch
from torch import nn

from tests.fast.spheres import Convolving, Eagerly, Ensemble, assert_same, samples, solved, sphere_field
from windermere.paper.fast.dense import _places, _places_on_device, banded, repeated
from windermere.solvers import METHODS, FixedStep, solve

WALKS = pytest.mark.usefixtures("each_walk")
POINTS = pytest.mark.parametrize("points", [1, 2, 3, 10])
CASES = pytest.mark.parametrize(
    ("points", "method"),
    [*((2, name) for name in METHODS), *((n, m) for n in (1, 3, 10) for m in ("euler", "dopri54"))],
)
"""Every method, and every number of points with the fewest stages and with the most."""


@POINTS
@pytest.mark.parametrize("lead", [(), (3,)])
def test_a_convolution_is_its_banded_matrix(points: int, lead: tuple[int, ...]) -> None:
    for width in (1, 3, 5):
        weight, bias, x = samples(*lead, 4, 2, width), samples(*lead, 4), samples(*lead, 6, 2, points)
        flat = x.transpose(-2, -1).flatten(-2) @ banded(weight, points) + repeated(bias, points)
        dense = flat.reshape(*flat.shape[:-1], points, 4).transpose(-2, -1)
        each = zip(x, weight, bias, strict=True) if lead else [(x, weight, bias)]
        want = torch.stack([nn.functional.conv1d(z, w, b, padding=width // 2) for z, w, b in each])
        torch.testing.assert_close(dense, want if lead else want[0], rtol=1e-13, atol=1e-13)


@POINTS
def test_taps_find_their_places_on_a_gpu_without_a_copy_from_the_host(points: int) -> None:
    for width in (1, 3, 5):
        found = _places_on_device(width, points, samples(1))
        assert torch.equal(found.double(), torch.from_numpy(_places(width, points)))


@POINTS
def test_the_prepared_rate_is_that_of_the_convolutions(points: int) -> None:
    field, z = sphere_field(points), samples(7, points)
    rate = Eagerly(field)(torch.tensor(0.0), z)
    torch.testing.assert_close(rate, Convolving(field)(torch.tensor(0.0), z), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(rate, field(torch.tensor(0.0), z), rtol=1e-13, atol=1e-13)


@WALKS
@CASES
def test_the_fused_walk_is_the_eager_walk_and_that_of_the_convolutions(points: int, method: str) -> None:
    field, z, solver = sphere_field(points), samples(5, points), FixedStep(method, step=1 / 4)
    fused = solved(field, z, solver, field.parameters())
    assert_same(fused, solved(Eagerly(field), z, solver, field.parameters()))
    assert_same(fused, solved(Convolving(field), z, solver, field.parameters()))


@WALKS
@CASES
@pytest.mark.parametrize("steps", [(3, 3, 3), (2, 5, 3)], ids=["equal", "ragged"])
def test_an_ensembles_fused_walk_is_the_eager_one_and_that_of_each_member_alone(
    points: int, method: str, steps: tuple[int, ...]
) -> None:
    ensemble, z = Ensemble(points, 3), samples(3, 5, points)
    solvers = [FixedStep(method, step=1 / n) for n in steps]
    fused = solved(ensemble, z, solvers, ensemble.tensors.values())
    assert_same(fused, solved(Eagerly(ensemble), z, solvers, ensemble.tensors.values()))
    final = fused[0]
    for s, field in enumerate(ensemble.fields):
        alone = solve(Convolving(field), z[s], solvers[s]).final
        torch.testing.assert_close(final[s], alone, rtol=1e-11, atol=1e-11)


@WALKS
@pytest.mark.parametrize("times", [(1.0, 0.0), (0.3, 2.0), (0.0, 0.7)])
@pytest.mark.parametrize("method", ["euler", "rk4", "dopri54"])
def test_the_fused_walk_goes_either_way_in_time_and_shortens_its_last_step(
    method: str, times: tuple[float, ...]
) -> None:
    field, z, solver = sphere_field(2), samples(5, 2), FixedStep(method, step=0.3)
    assert_same(
        solved(field, z, solver, field.parameters(), times),
        solved(Convolving(field), z, solver, field.parameters(), times),
    )
    ensemble, solvers = Ensemble(2, 2), [FixedStep(method, step=0.3), FixedStep(method, step=0.11)]
    assert_same(
        solved(ensemble, samples(2, 4, 2), solvers, ensemble.tensors.values(), times),
        solved(Eagerly(ensemble), samples(2, 4, 2), solvers, ensemble.tensors.values(), times),
    )


@WALKS
def test_an_ensemble_of_one_is_the_model_alone() -> None:
    ensemble, z, solver = Ensemble(2, 1), samples(5, 2), FixedStep("rk4", step=1 / 6)
    together = solved(ensemble, z.unsqueeze(0), [solver], ensemble.tensors.values())
    (field,) = ensemble.fields
    for ours, mine in zip(together, solved(field, z, solver, field.parameters()), strict=True):
        torch.testing.assert_close(ours.squeeze(0), mine.reshape(ours.shape[1:]), rtol=1e-12, atol=1e-12)
