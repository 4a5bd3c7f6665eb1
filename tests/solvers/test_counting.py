"""`counting()` sees what every solve inside costs, whoever asked for it and whenever."""

from collections.abc import Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.solvers.fields import Network, Recorder, elementwise, some_states
from windermere.errors import SolverError, UsageError
from windermere.solvers import Adaptive, Count, FixedStep, Gradient, checking, counting, solve

TEN = FixedStep("rk4", step=1 / 10)
FORTY = 40


def end(*args: Any, **options: Any) -> Any:
    return solve(*args, **options).final


def solved(gradient: Gradient = "backprop", solver: Any = TEN, states: Tensor | None = None) -> Any:
    z0 = some_states(3, 2) if states is None else states
    return end(Network(), z0.requires_grad_(), solver, gradient=gradient)


def test_a_forward_solve_counts_as_forward_and_backprop_adds_nothing() -> None:
    with counting() as count:
        solved().sum().backward()
    assert (count.forward, count.backward, count.recomputed, count.checks) == (FORTY, 0, 0, 0)


def test_checkpointing_counts_what_it_recomputes_apart() -> None:
    network = Network()
    field = Recorder(network)
    with counting() as count:
        final = end(field, some_states(3, 2), TEN, gradient="checkpoint")
        assert (count.forward, count.recomputed, field.calls) == (FORTY, 0, FORTY)
        final.sum().backward()
    assert (count.forward, count.backward, count.recomputed, count.checks) == (FORTY, 0, FORTY, 0)
    assert field.calls == 2 * FORTY


@pytest.mark.parametrize(("method", "once"), [("bosh32", 1), ("fehlberg21", 0)])
def test_adaptive_checkpointing_does_not_recompute_rejected_steps(method: str, once: int) -> None:
    """Where the last stage is the next step's first, the start's own is evaluated once."""
    solver = Adaptive(method, tolerance=1e-4)
    field = Recorder(Network(seed=3))
    with counting() as count:
        solution = solve(field, 20 * some_states(3, 2), solver, (0.0, 10.0), gradient="checkpoint")
        forward = field.calls
        (torch.as_tensor(solution.final).sum()).backward()  # type: ignore[no-untyped-call]
    stats = solution.stats
    assert stats.rejected > 0
    assert count.forward == stats.evaluations == forward
    assert count.recomputed == field.calls - forward == once + 3 * stats.accepted


def test_the_adjoint_counts_its_own_solve_as_backward() -> None:
    class Counted(Network):
        calls = 0

        def forward(self, t: Tensor, z: Tensor) -> Any:
            self.calls += 1
            return super().forward(t, z)

    field = Counted()
    with counting() as count:
        final = end(field, some_states(3, 2), TEN, gradient="adjoint")
        assert field.calls == FORTY
        final.sum().backward()
    assert (count.forward, count.backward, count.recomputed, count.checks) == (FORTY, FORTY, 0, 0)
    assert field.calls == 2 * FORTY


def test_an_adaptive_adjoint_reuses_the_last_stage_of_a_step_as_the_way_there_does() -> None:
    with counting() as count:
        final = solved("adjoint", Adaptive("dopri54", tolerance=1e-4))
        final.sum().backward()
    assert isinstance(count.backward, int)
    assert count.backward > 2
    assert (count.backward - 2) % 6 == 0


def test_nested_counts_each_see_all_that_happens_inside_them() -> None:
    with counting() as outer:
        solved()
        with counting() as inner:
            solved()
        solved()
    assert (outer.forward, inner.forward) == (3 * FORTY, FORTY)


def test_nothing_is_counted_once_a_context_is_closed() -> None:
    with counting() as count:
        solved()
    solved()
    assert count.forward == FORTY


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_backward_pass_after_the_context_closed_belongs_to_its_forward_solve(gradient: Gradient) -> None:
    with counting() as count:
        final = solved(gradient)
    with counting() as other:
        final.sum().backward()
    assert count.forward == FORTY
    assert (count.recomputed, count.backward) == ((FORTY, 0) if gradient == "checkpoint" else (0, FORTY))
    assert (other.forward, other.backward, other.recomputed) == (0, 0, 0)


def test_a_check_counts_as_a_check_whatever_it_does() -> None:
    with counting() as count:
        solved()
        with checking():
            solved()
            late = solved("adjoint")
            with checking():
                solved("checkpoint").sum().backward()
        late.sum().backward()
        solved()
    assert (count.forward, count.backward, count.recomputed) == (2 * FORTY, 0, 0)
    assert count.checks == (1 + 2 + 2) * FORTY


def test_a_context_is_closed_by_an_exception_too() -> None:
    with pytest.raises(ZeroDivisionError), counting() as count, checking():
        raise ZeroDivisionError
    solved()
    with counting() as after:
        solved()
    assert (count.forward, after.forward, after.checks) == (0, FORTY, 0)


def test_another_thread_has_counts_of_its_own() -> None:
    with counting() as count:
        thread = Thread(target=solved)
        thread.start()
        thread.join()
        assert count.forward == 0


def test_an_ensemble_is_counted_member_by_member() -> None:
    solvers = [FixedStep("heun", step=1 / n) for n in (2, 5, 3)]
    z = some_states(3, 4, 2)
    with counting() as count:
        solve(elementwise, z, solvers)
        solve(elementwise, z, [solvers[0]] * 3)
    assert isinstance(count.forward, np.ndarray)
    assert count.forward.tolist() == [4 + 4, 10 + 4, 6 + 4]


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_an_ensembles_backward_work_is_counted_member_by_member(gradient: Gradient) -> None:
    solvers = [FixedStep("heun", step=1 / n) for n in (2, 5, 3)]
    with counting() as count:
        final = end(Network(), some_states(3, 4, 2), solvers, gradient=gradient)
        final.sum().backward()
    tally = count.recomputed if gradient == "checkpoint" else count.backward
    assert np.asarray(tally).tolist() == np.asarray(count.forward).tolist() == [4, 10, 6]


@pytest.mark.parametrize("members", [None, 2])
def test_samples_with_steps_of_their_own_cost_what_the_slowest_one_costs(members: int | None) -> None:
    solver = Adaptive("dopri54", tolerance=1e-5, control="sample")
    field = Recorder(elementwise)
    z = some_states(*(() if members is None else (members,)), 6, 2)
    with counting() as count:
        stats = solve(field, z, solver if members is None else [solver] * members).stats
    assert np.asarray(count.forward).tolist() == np.max(stats.evaluations, axis=-1).tolist()
    assert np.max(count.forward) == field.calls


def test_a_tally_does_not_change_behind_ones_back() -> None:
    with counting() as count:
        solve(elementwise, some_states(2, 3), [TEN, FixedStep("rk4", step=1)])
        before = count.forward
        solve(elementwise, some_states(2, 3), [TEN, FixedStep("rk4", step=1)])
    assert np.asarray(before).tolist() == [40, 4]
    assert np.asarray(count.forward).tolist() == [80, 8]


def test_ensembles_of_different_sizes_do_not_fit_into_one_count() -> None:
    with counting():
        solve(elementwise, some_states(2, 3), [TEN] * 2)
        with pytest.raises(UsageError, match="ensembles of different sizes"):
            solve(elementwise, some_states(3, 3), [TEN] * 3)


def test_counting_works_without_gradients() -> None:
    with counting() as count, torch.no_grad():
        solved("adjoint")
    assert (count.forward, count.backward) == (FORTY, 0)


def test_of_several_solves_all_steps_are_counted_and_those_of_the_longest_too() -> None:
    with counting() as count:
        for steps in (3, 7, 5):
            solved(solver=FixedStep.of("euler", steps=steps))
    assert (count.steps, count.longest) == (15, 7)
    with counting() as count:
        for pair in ((3, 2), (1, 6)):
            solved(solver=[FixedStep.of("euler", steps=n) for n in pair], states=some_states(2, 3, 2))
    assert (np.asarray(count.steps).tolist(), np.asarray(count.longest).tolist()) == ([4, 8], [3, 6])


def jumps(t: Tensor, z: Tensor) -> Tensor:
    return torch.where(t >= 0.5, torch.nan, -z)


@pytest.mark.parametrize(
    ("field", "solver"),
    [
        (elementwise, Adaptive("dopri54", tolerance=1e-12, max_steps=5)),
        (elementwise, Adaptive("fehlberg21", tolerance=1e-12, max_steps=5, control="sample")),
        (jumps, Adaptive("bosh32", tolerance=1e-3)),
        (lambda t, z: torch.inf * z, Adaptive("bosh32", tolerance=1e-3)),
    ],
    ids=["budget", "budget by sample", "not finite midway", "not finite at once"],
)
def test_an_adaptive_solve_that_fails_has_cost_what_it_evaluated_until_then(field: Any, solver: Adaptive) -> None:
    recorded = Recorder(field)
    with counting() as count, pytest.raises(SolverError):
        solve(recorded, some_states(3, 2), solver)
    assert count.forward == recorded.calls > 0


def test_a_fixed_solve_that_fails_has_cost_its_whole_grid() -> None:
    with counting() as count, checking(), pytest.raises(SolverError):
        solve(jumps, some_states(3, 2), TEN)
    assert (count.forward, count.checks) == (0, FORTY)


def test_a_tolerance_that_cannot_be_resolved_has_cost_nothing() -> None:
    with counting() as count, pytest.raises(SolverError):
        solve(elementwise, some_states(3, 2), Adaptive("dopri54", tolerance=1e-20))
    assert count.forward == 0


def test_counts_of_generators_may_be_left_in_any_order() -> None:
    def opened() -> Iterator[Count]:
        with counting() as count:
            yield count

    first, second = opened(), opened()
    outer, inner = next(first), next(second)
    first.close()  # type: ignore[attr-defined]
    solved()
    second.close()  # type: ignore[attr-defined]
    solved()
    assert (outer.forward, inner.forward) == (0, FORTY)
