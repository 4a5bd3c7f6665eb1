"""The own pass is torchdiffeq's, another solver's is ours."""

from typing import Any

import pytest
import torch
import torchdiffeq
from torchdiffeq import odeint, odeint_adjoint
from torchdiffeq import odeint_adjoint as imported_odeint

import windermere as wm
from tests.auditing.adapters.models import points
from tests.auditing.adapters.torchdiffeq_models import ODENet, ours, stepping
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.solvers import FixedStep

DOUBLE = torch.float64


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun2", "rk4", "dopri5", "bosh3", "fehlberg2"])
@pytest.mark.parametrize("solver", [odeint, odeint_adjoint, imported_odeint])
def test_the_own_pass_equals_the_models_bitwise(method: str, solver: Any) -> None:
    how = stepping(method, 0.1) if method in {"euler", "midpoint", "heun2", "rk4"} else {"method": method, "rtol": 1e-3}
    model, x = ODENet(solver, **how), points()
    done = TorchdiffeqSubject(model, x).forward(x, None)
    assert torch.equal(done.outputs, model(x).detach().double())


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.25), (0.5, 2.0)])
@pytest.mark.parametrize("solver", [odeint, odeint_adjoint, lambda *a, **k: torchdiffeq.odeint_adjoint(*a, **k)])
@pytest.mark.parametrize("tested", [FixedStep("rk4", step=0.05), FixedStep("euler", step=0.3)])
def test_a_fixed_step_method_gives_what_our_block_gives(times: Any, solver: Any, tested: FixedStep) -> None:
    model, x = ODENet(solver, times, **stepping("rk4", 0.1)).double(), points(dtype=DOUBLE)
    done = TorchdiffeqSubject(model, x).forward(x, lambda own: tested)
    with torch.no_grad():
        expected = ours(model, tested)(x)
    assert (done.outputs - expected).abs().max() <= 1e-12
    assert done.states is not None
    assert done.states.shape == (7, 2)


@pytest.mark.parametrize(("theirs", "name"), [("euler", "euler"), ("midpoint", "midpoint"), ("rk4", "rk4_38")])
def test_our_equivalent_of_a_fixed_step_method_gives_the_own_pass(theirs: str, name: str) -> None:
    model, x = ODENet(**stepping(theirs, 1 / 16)), points()
    subject = TorchdiffeqSubject(model, x)
    assert subject.solvers[0].method == name
    own, same = (subject.forward(x, change, double=True) for change in (None, lambda own: own))
    assert (own.outputs - same.outputs).abs().max() <= 1e-12
    assert own.evaluations == same.evaluations
    assert (own.states - same.states).abs().max() <= 1e-12  # type: ignore[operator]


def test_evaluations_are_those_of_the_field() -> None:
    model, x = ODENet(rtol=1e-4, atol=1e-4), points()
    subject = TorchdiffeqSubject(model, x)
    calls: list[int] = []
    audited: Any = subject.model  # a copy: the user's own is left alone
    audited.field.register_forward_hook(lambda *_: calls.append(1))
    done = subject.forward(x, None)
    assert done.evaluations == len(calls)
    calls.clear()
    assert subject.forward(x, lambda own: FixedStep("rk4", step=1 / 3)).evaluations == len(calls) == 12
    assert not model.field._forward_hooks


def test_an_adaptive_solver_of_ours_meets_the_reference() -> None:
    model, x = ODENet(rtol=1e-3, atol=1e-3), points()
    subject = TorchdiffeqSubject(model, x)
    fine = subject.forward(x, lambda own: own.with_precision(1e-10), double=True)
    finer = subject.forward(x, lambda own: FixedStep("rk4", step=1 / 512), double=True)
    assert (fine.outputs - finer.outputs).abs().max() < 1e-8


def test_many_times_cost_an_adaptive_solver_of_ours_no_steps_as_they_cost_theirs_none() -> None:
    few, many = (
        ODENet(odeint, tuple(i / times for i in range(times + 1)), rtol=1e-3, atol=1e-3).double() for times in (1, 50)
    )
    x = points(dtype=DOUBLE)
    done = [TorchdiffeqSubject(model, x).forward(x, lambda own: own) for model in (few, many)]
    assert done[0].evaluations == done[1].evaluations
    assert torch.equal(done[0].states, done[1].states)  # type: ignore[arg-type]


def test_an_audit_of_a_hundred_times_tests_with_as_many_evaluations_as_torchdiffeqs_own() -> None:
    x = points(40)
    few, many = (ODENet(odeint, tuple(i / times for i in range(times + 1)), rtol=1e-3, atol=1e-3) for times in (1, 99))
    rows = []
    for model in (few, many):
        verdict = wm.audit(model, (x, model(x).argmax(dim=1)))
        same = next(row for row in verdict.table if row.solver == verdict.own.solver)
        assert same.evaluations == verdict.own.evaluations
        rows.append([row.evaluations for row in verdict.table])
    assert rows[0] == rows[1]


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_coarser_grid_stays_one_however_many_times_are_asked_for(method: str) -> None:
    times, x = tuple(i / 50 for i in range(51)), points(dtype=DOUBLE)
    model = ODENet(odeint, times, **stepping("rk4", 1 / 50)).double()
    coarse = FixedStep(method, step=0.25)
    done = TorchdiffeqSubject(model, x).forward(x, lambda own: coarse)
    with torch.no_grad():
        expected = ours(ODENet(odeint).double(), coarse)(x)
    assert done.evaluations == 4 * coarse.tableau.propagating
    assert (done.outputs - expected).abs().max() <= 1e-12
