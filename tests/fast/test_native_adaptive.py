"""Adaptive solves and the adjoint in C against the Python walk: steps, counts, values, gradients, and what fails."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fast.spheres import DOUBLE, Convolving, Eagerly, Ensemble, assert_same, samples, solved, sphere_field
from windermere.errors import NonFiniteError, SolverError, StepBudgetError, ToleranceError
from windermere.fast.cpu import compiled, native, native_call
from windermere.paper.architectures import SphereField, initialise
from windermere.solvers import Adaptive, Adjoint, FixedStep, OnGrid, counting, solve
from windermere.solvers.tableaus import adaptive_names

METHOD = pytest.mark.parametrize("method", adaptive_names())
CASES = pytest.mark.parametrize(
    ("points", "method"), [*((2, name) for name in adaptive_names()), *((n, "dopri54") for n in (1, 3, 10))]
)
"""Every method, and every number of points."""


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled.library("double", "sphere") is None:
        pytest.skip("no C compiler here")


def eagerly(field: Any) -> Any:
    return Eagerly(field)


def same_cost(one: Any, other: Any) -> bool:
    return all(np.array_equal(getattr(one.stats, n), getattr(other.stats, n)) for n in vars(one.stats))


@CASES
@pytest.mark.parametrize("times", [(0.0, 1.0), (2.0, 0.5)])
def test_the_same_steps_are_taken(
    points: int, method: str, times: tuple[float, float], taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    field, z, solver = sphere_field(points), samples(9, points), Adaptive(method, tolerance=1e-4)
    found, sizes = solve(field, z, solver, times), []
    on_tape = native_call.Call.on_tape

    def noted(self: Any, *given: Any) -> Tensor:
        sizes.append(self.choice.sizes[0])
        return on_tape(self, *given)

    monkeypatch.setattr(native_call.Call, "on_tape", noted)
    solve(field, z, solver, times)
    expected = solve(eagerly(field), z, solver, times, record=True)
    assert taken[-1] == "adapt"
    assert same_cost(found, expected)
    torch.testing.assert_close(found.final, expected.final, rtol=1e-9, atol=1e-9)
    assert expected.trajectory is not None
    steps = np.diff(expected.trajectory.times)
    np.testing.assert_allclose(sizes[0][: len(steps)], steps, rtol=1e-6)


@CASES
def test_the_gradient_is_that_of_the_python_walk(points: int, method: str, taken: list[str]) -> None:
    field, z, solver = sphere_field(points), samples(9, points), Adaptive(method, tolerance=1e-3)
    found = solved(field, z, solver, field.parameters())
    assert taken[-2:] == ["adapt", "back"]
    assert_same(found, solved(Eagerly(field), z, solver, field.parameters()), 1e-7)


@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
@pytest.mark.parametrize("method", ["fehlberg21", "dopri54"])
def test_members_have_steps_of_their_own(method: str, gradient: Any, taken: list[str]) -> None:
    ensemble: Any = Ensemble(2, 3)
    z = samples(3, 7, 2)
    solvers = [Adaptive(method, rtol=10.0**-k, atol=10.0 ** -(k + 1)) for k in (1, 3, 5)]
    found, expected = solve(ensemble, z, solvers), solve(eagerly(ensemble), z, solvers)
    assert same_cost(found, expected)
    assert len(np.unique(found.stats.accepted)) == 3
    wanted = ensemble.tensors.values()
    ours = solved(ensemble, z, solvers, wanted, gradient=gradient)
    assert_same(ours, solved(Eagerly(ensemble), z, solvers, wanted, gradient=gradient), 1e-7)
    assert "adapt" in taken


@CASES
def test_the_adjoint_is_that_of_the_python_walk(points: int, method: str, taken: list[str]) -> None:
    field, z, solver = sphere_field(points), samples(9, points), Adaptive(method, tolerance=1e-4)
    with counting() as ours:
        found = solved(field, z, solver, field.parameters(), gradient="adjoint")
    assert taken == ["adapt", "adapt"]
    with counting() as theirs:
        expected = solved(Eagerly(field), z, solver, field.parameters(), gradient="adjoint")
    assert_same(found, expected, 1e-7)
    assert vars(ours) == vars(theirs)
    assert np.all(ours.backward)


@pytest.mark.parametrize("points", [2, 5])
def test_the_adjoint_with_fixed_steps_is_that_of_the_python_walk(points: int, taken: list[str]) -> None:
    field, z, solver = sphere_field(points), samples(9, points), FixedStep("rk4", step=0.3)
    with counting() as ours:
        found = solved(field, z, solver, field.parameters(), gradient="adjoint")
    assert taken == ["there", "adjoin"]
    with counting() as theirs:
        expected = solved(Eagerly(field), z, solver, field.parameters(), gradient="adjoint")
    assert_same(found, expected, 1e-10)
    assert vars(ours) == vars(theirs)


@pytest.mark.parametrize("members", [None, 2])
def test_an_adjoint_with_frozen_layers_times_between_and_a_solver_of_its_own(members: int | None) -> None:
    solver: Any = Adaptive("bosh32", tolerance=1e-4)
    field: Any = sphere_field(3) if members is None else Ensemble(3, members)
    z = samples(5, 3) if members is None else samples(members, 5, 3)
    tensors = list(field.parameters()) if members is None else list(field.tensors.values())
    tensors[2].requires_grad_(False)
    wanted = [t for t in tensors if t.requires_grad]
    gradient, solver = Adjoint(Adaptive("dopri54", tolerance=1e-6)), solver if members is None else [solver] * members

    def gradients(field: Any) -> list[Tensor]:
        states = solve(field, z, solver, (0.0, 0.4, 1.0), gradient=gradient).states
        return list(torch.autograd.grad(torch.as_tensor(states).square().sum(), wanted))

    assert_same(gradients(field), gradients(Eagerly(field)), 1e-7)


@pytest.mark.parametrize("batch", [1, 7, 8, 9, 40])
def test_samples_that_fill_up_a_tile_count_for_nothing(batch: int) -> None:
    field, z, solver = sphere_field(2), samples(batch, 2), Adaptive("dopri54", tolerance=1e-6)
    assert same_cost(solve(field, z, solver), solve(eagerly(field), z, solver))


@METHOD
def test_the_gradient_is_that_of_the_accepted_steps(method: str) -> None:
    """Against autograd through the convolutions, over a grid of exactly these steps."""
    field, z, solver = sphere_field(2), samples(6, 2), Adaptive(method, tolerance=1e-3)
    trajectory = solve(eagerly(field), z, solver, record=True).trajectory
    assert trajectory is not None
    grid = OnGrid(method, tuple(trajectory.times.tolist()))
    expected = solved(Convolving(field), z, grid, field.parameters())
    assert_same(solved(field, z, solver, field.parameters()), expected, 1e-6)


def test_a_solve_that_outgrows_its_room_is_begun_again(monkeypatch: pytest.MonkeyPatch, taken: list[str]) -> None:
    field, z, solver = sphere_field(2), samples(6, 2), Adaptive("fehlberg21", tolerance=1e-5)
    roomy = solved(field, z, solver, field.parameters())
    monkeypatch.setattr(native, "STEPS_AT_FIRST", 2)
    taken.clear()
    cramped = solved(field, z, solver, field.parameters())
    assert taken.count("adapt") > 2
    assert all(torch.equal(a, b) for a, b in zip(roomy, cramped, strict=True))


@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_the_same_bits_come_from_any_number_of_threads(gradient: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_call, "WORTH_A_THREAD", 1)
    ensemble, z, solvers = Ensemble(2, 3), samples(3, 50, 2), [Adaptive("dopri54", tolerance=1e-4)] * 3
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(solved(ensemble, z, solvers, ensemble.tensors.values(), gradient=gradient))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_without_gradients_the_end_and_the_costs_are_the_same() -> None:
    field, z, solver = sphere_field(2), samples(20, 2), Adaptive("tsit54", tolerance=1e-5)
    with torch.no_grad():
        plain = solve(field, z, solver)
    graded = solve(field, z, solver)
    assert torch.equal(torch.as_tensor(plain.final), torch.as_tensor(graded.final))
    assert same_cost(plain, graded)


def test_float32_takes_the_steps_of_the_python_walk() -> None:
    field, z = initialise(SphereField(2), 0), samples(128, 2).float()
    for tolerance in (1e-2, 1e-4):
        solver = Adaptive("dopri54", tolerance=tolerance)
        found, expected = solve(field, z, solver), solve(eagerly(field), z, solver)
        assert same_cost(found, expected)
        torch.testing.assert_close(found.final, expected.final, rtol=1e-4, atol=1e-4)


def _explosive() -> SphereField:
    field = sphere_field(2)
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(1e150)
    return field


def _failures() -> list[Any]:
    tiny, nan = Adaptive("dopri54", tolerance=1e-4, max_steps=1), samples(5, 2)
    nan[2, 1] = torch.nan
    return [
        pytest.param(sphere_field(2), samples(5, 2), tiny, StepBudgetError, id="budget"),
        pytest.param(sphere_field(2), nan, Adaptive("dopri54", tolerance=1e-4), NonFiniteError, id="start"),
        pytest.param(sphere_field(2), samples(5, 2), Adaptive("dopri54", tolerance=1e-17), ToleranceError, id="float"),
        pytest.param(_explosive(), samples(5, 2), Adaptive("bosh32", tolerance=1e-6), NonFiniteError, id="field"),
    ]


@pytest.mark.parametrize(("field", "z", "solver", "error"), _failures())
def test_what_fails_is_said_with_the_same_words(field: Any, z: Tensor, solver: Any, error: Any) -> None:
    said = []
    for each in (field, eagerly(field)):
        with pytest.raises(error) as found:
            solve(each, z, solver)
        assert isinstance(found.value, SolverError)
        said.append(str(found.value))
    assert said[0] == said[1]


def test_a_budget_is_enough_to_its_last_step_and_no_further() -> None:
    field, z = sphere_field(2), samples(5, 2)
    stats = solve(field, z, Adaptive("dopri54", tolerance=1e-4)).stats
    steps = int(stats.accepted + stats.rejected)
    assert solve(field, z, Adaptive("dopri54", tolerance=1e-4, max_steps=steps)).stats == stats
    with pytest.raises(StepBudgetError):
        solve(field, z, Adaptive("dopri54", tolerance=1e-4, max_steps=steps - 1))


def test_an_adjoint_brought_from_another_device_is_the_same(monkeypatch: pytest.MonkeyPatch, taken: list[str]) -> None:
    ensemble, z, solver = Ensemble(2, 2), samples(2, 9, 2), [Adaptive("dopri54", tolerance=1e-3)] * 2
    here = solved(ensemble, z, solver, ensemble.tensors.values(), gradient="adjoint")
    monkeypatch.setattr(native, "_is_brought", lambda _: True)
    brought = solved(ensemble, z, solver, ensemble.tensors.values(), gradient="adjoint")
    assert taken == ["adapt"] * 4
    assert all(torch.equal(a, b) for a, b in zip(here, brought, strict=True))


def test_an_adjoint_in_trouble_is_done_by_way_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    field, z, solver = sphere_field(2), samples(5, 2), Adaptive("dopri54", tolerance=1e-4)
    monkeypatch.setattr(native, "adjoin_in_c", lambda *_: None)
    found = solved(field, z, solver, field.parameters(), gradient="adjoint")
    assert_same(found, solved(Eagerly(field), z, solver, field.parameters(), gradient="adjoint"), 1e-10)


@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        (Adaptive("dopri54", tolerance=1e-3, control="sample"), "adjoint"),
        (Adaptive("dopri54", tolerance=1e-3, control="sample"), "checkpoint"),
        (FixedStep("rk4", step=0.25), "checkpoint"),
    ],
    ids=str,
)
def test_other_solves_go_the_python_way(solver: Any, gradient: Any) -> None:
    field, z = sphere_field(2), samples(5, 2)
    found = solved(field, z, solver, field.parameters(), gradient=gradient)
    assert_same(found, solved(Eagerly(field), z, solver, field.parameters(), gradient=gradient), 1e-10)


def test_an_ensemble_under_one_solver_is_one_group() -> None:
    ensemble: Any = Ensemble(2, 2)
    z, solver = samples(2, 5, 2), Adaptive("dopri54", tolerance=1e-4)
    found, expected = solve(ensemble, z, solver), solve(eagerly(ensemble), z, solver)
    assert same_cost(found, expected)
    assert isinstance(found.stats.accepted, int)
    torch.testing.assert_close(found.final, expected.final, rtol=1e-9, atol=1e-9)


def test_the_start_is_left_as_it_was() -> None:
    field, z = sphere_field(2), samples(5, 2)
    before = z.clone()
    solve(field, z, Adaptive("dopri54", tolerance=1e-4))
    assert torch.equal(z, before)
    assert z.dtype == DOUBLE


def test_weights_changed_between_an_adjoints_two_ways_are_an_error() -> None:
    field, z = sphere_field(2), samples(5, 2)
    final: Any = solve(field, z, Adaptive("dopri54", tolerance=1e-3), gradient="adjoint").final
    with torch.no_grad():
        field.lift.weight.mul_(1.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        final.sum().backward()


def test_weights_changed_between_a_solves_two_ways_do_not_matter() -> None:
    field, z, solver = sphere_field(2), samples(5, 2), FixedStep("rk4", step=1 / 3)
    expected = solved(field, z, solver, [field.lift.weight])
    start = z.clone().requires_grad_()
    final: Any = solve(field, start, solver).final
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(1.5)
    loss = torch.arange(1.0, 1 + final.numel(), dtype=DOUBLE).cos().view_as(final) * final.square()
    assert_same([final, *torch.autograd.grad(loss.sum(), [start, field.lift.weight])], expected)
