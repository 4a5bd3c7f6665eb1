"""Models that call our own odeint are audited like torchdiffeq's: nothing is lost by changing the import."""

from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.adapters.models import TimeField, head, points
from tests.auditing.adapters.test_same_verdict import assert_close, trained
from tests.auditing.adapters.torchdiffeq_models import ODENet, ours, stepping
from windermere.auditing.adapters import find_subject
from windermere.auditing.adapters.odeint import OdeintSubject
from windermere.errors import AuditError
from windermere.nn.copies import copy_of
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

DOUBLE = torch.float64
BOTH = pytest.mark.parametrize("solver", [wm.odeint, wm.odeint_adjoint])


@pytest.mark.parametrize(
    ("how", "solver"),
    [
        (stepping("heun2", 0.25), FixedStep("heun", step=0.25)),
        ({"method": "rk4"}, OnGrid("rk4_38", (0.0, 1.0))),
        ({"rtol": 1e-3, "atol": 1e-4}, Adaptive("dopri54", rtol=1e-3, atol=1e-4)),
    ],
)
def test_the_solver_is_read_off_the_call_and_the_own_pass_is_the_models(how: dict[str, Any], solver: Solver) -> None:
    model, x = ODENet(wm.odeint, **how), points()
    subject = find_subject(model, x)
    assert isinstance(subject, OdeintSubject)
    assert subject.solvers == (solver,)
    (note,) = subject.notes
    assert f"{how.get('method', 'dopri5')} is called {solver.method} here" in note
    with wm.counting() as count:
        expected = model(x)
    done = subject.forward(x, None)
    assert torch.equal(done.outputs, expected.detach().double())
    assert done.evaluations == count.forward


@BOTH
def test_another_solver_reaches_it_and_gives_what_our_block_gives(solver: Any) -> None:
    model, x, tested = (
        ODENet(solver, **stepping("euler", 0.25)).double(),
        points(dtype=DOUBLE),
        FixedStep("rk4", step=0.1),
    )
    done = OdeintSubject(model, x).forward(x, lambda own: tested)
    with torch.no_grad():
        torch.testing.assert_close(done.outputs, ours(model, tested)(x), rtol=1e-12, atol=1e-12)


@BOTH
def test_its_verdict_is_that_of_a_torchdiffeq_model_in_every_number(solver: Any) -> None:
    model, x, y = trained()
    theirs = wm.audit(model, (x, y))
    model.solver = solver
    own = wm.audit(model, (x, y))
    assert own.outcome is theirs.outcome
    assert_close(own.to_dict(), theirs.to_dict(), "verdict")


def test_afterwards_the_model_solves_as_before() -> None:
    model, x, y = trained()
    model.solver = wm.odeint
    before = model(x)
    wm.audit(model, (x, y))
    assert torch.equal(model(x), before)


class Complex(nn.Module):
    """A state that is a tuple, with a complex part."""

    def __init__(self) -> None:
        super().__init__()
        self.field, self.fc = TimeField(), head()

    def forward(self, x: Tensor) -> Any:
        def rate(t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return self.field(t, z[0]), 1j * z[1]

        start = (x, torch.complex(x, x))
        end, turned = wm.odeint(rate, start, x.new_tensor([0.0, 1.0]), method="midpoint", options={"step_size": 0.25})
        return self.fc(end[-1] + turned[-1].real)


def test_tuples_and_complex_parts_are_swapped_too() -> None:
    model, x = Complex().double(), points(dtype=DOUBLE)
    subject = OdeintSubject(model, x)
    own, same, fine = (
        subject.forward(x, change) for change in (None, lambda own: own, lambda own: own.with_precision(1e-3))
    )
    torch.testing.assert_close(own.outputs, same.outputs, rtol=1e-12, atol=1e-12)
    assert float((own.outputs - fine.outputs).abs().max()) > 1e-4


class Threaded(ODENet):
    """Solves in a thread of its own."""

    def forward(self, x: Tensor) -> Any:
        found: list[Any] = []
        thread = Thread(target=lambda: found.append(ODENet.forward(self, x)))
        thread.start()
        thread.join()
        return found[0]


def test_a_solve_in_a_thread_that_the_model_starts_is_not_taken_for_swapped() -> None:
    with pytest.raises(AuditError, match=r"windermere\.odeint in threads that it starts itself"):
        find_subject(copy_of(Threaded(wm.odeint, **stepping("euler", 0.25))), points())


def test_odeint_beside_a_block_is_refused_as_any_other_solve_is() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = wm.ODEBlock(TimeField(), FixedStep("euler", step=0.5))
            self.second = ODENet(wm.odeint, **stepping("euler", 0.5))

        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(x))

    with pytest.raises(AuditError, match=r"besides its ODEBlocks this Both solves with windermere\.odeint, which"):
        wm.audit(Both(), (points(), torch.zeros(7, dtype=torch.long)))


def test_times_between_steps_are_told() -> None:
    model, x = ODENet(wm.odeint, (0.0, 0.3, 1.0), **stepping("euler", 0.25)), points()
    assert "interp='linear'" in OdeintSubject(model, x).notes[0]
