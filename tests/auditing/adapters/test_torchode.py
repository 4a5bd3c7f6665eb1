"""Models written the way torchode's readme writes them. Needs torchode, which no dependency of ours brings."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.auditing.adapters.models import TimeField, head, points
from windermere.errors import AuditError, SolverError
from windermere.nn import ODEBlock
from windermere.solvers import Adaptive, FixedStep, Solver

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    to = pytest.importorskip("torchode")

from windermere.auditing.adapters.torchode import TorchodeSubject

DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def _its_methods_are_restored() -> Iterator[None]:
    before = to.AutoDiffAdjoint.solve, to.JointBacksolveAdjoint.solve
    yield
    assert before == (to.AutoDiffAdjoint.solve, to.JointBacksolveAdjoint.solve)


class Model(nn.Module):
    """The readme's way: term, method, controller, adjoint; an initial value problem for each batch."""

    def __init__(self, method: str = "Dopri5", adjoint: str = "AutoDiffAdjoint", fixed: float | None = None) -> None:
        super().__init__()
        term = to.ODETerm(TimeField())
        stepper = getattr(to, method)(term=term)
        adaptive = to.IntegralController(atol=1e-4, rtol=1e-3, term=term)
        controller = to.FixedStepController() if fixed is not None else adaptive
        kind = getattr(to, adjoint)
        self.adjoint = kind(stepper, controller) if adjoint == "AutoDiffAdjoint" else kind(term, stepper, controller)
        self.fixed, self.fc = fixed, head()

    def times(self, x: Tensor) -> dict[str, Tensor]:
        return {"t_start": x.new_zeros(len(x)), "t_end": x.new_ones(len(x))}

    def forward(self, x: Tensor) -> Any:
        problem = to.InitialValueProblem(y0=x, **self.times(x))
        dt0 = None if self.fixed is None else x.new_full((len(x),), self.fixed)
        return self.fc(self.adjoint.solve(problem, dt0=dt0).ys[:, -1])


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (lambda: Model("Dopri5"), Adaptive("dopri54", rtol=1e-3, atol=1e-4, control="sample")),
        (lambda: Model("Tsit5"), Adaptive("tsit54", rtol=1e-3, atol=1e-4, control="sample")),
        (lambda: Model("Euler", fixed=0.125), FixedStep("euler", step=0.125)),
        (lambda: Model("Heun", fixed=0.125), FixedStep("heun", step=0.125)),
        (lambda: Model("Dopri5", "BacksolveAdjoint"), Adaptive("dopri54", rtol=1e-3, atol=1e-4, control="sample")),
        (lambda: Model("Dopri5", "JointBacksolveAdjoint"), Adaptive("dopri54", rtol=1e-3, atol=1e-4)),
    ],
)
def test_the_own_solver_is_read_off_and_its_pass_is_the_librarys(model: Any, solver: Solver) -> None:
    built, x = model(), points()
    subject = TorchodeSubject(built, x)
    assert subject.solvers == (solver,)
    assert subject.notes == ()
    calls: list[int] = []
    field = next(m for m in subject.model.modules() if isinstance(m, TimeField))
    field.register_forward_hook(lambda *_: calls.append(1))
    done = subject.forward(x, None)
    assert torch.equal(done.outputs, built(x).detach().double())
    assert done.evaluations == len(calls)
    assert done.states is not None
    assert done.states.shape == (7, 2)


@pytest.mark.parametrize("adjoint", ["AutoDiffAdjoint", "BacksolveAdjoint", "JointBacksolveAdjoint"])
def test_a_fixed_step_method_gives_what_our_block_gives(adjoint: str) -> None:
    x, tested = points(), FixedStep("rk4", step=0.1)
    done = TorchodeSubject(Model(adjoint=adjoint), x).forward(x, lambda own: tested, double=True)
    block = nn.Sequential(ODEBlock(TimeField(), tested), head()).double()
    with torch.no_grad():
        assert (done.outputs - block(x.double())).abs().max() <= 1e-12


@pytest.mark.parametrize("method", ["Euler", "Heun"])
def test_our_equivalent_of_a_fixed_step_method_gives_the_own_pass(method: str) -> None:
    subject, x = TorchodeSubject(Model(method, fixed=0.0625), points()), points()
    own, same = (subject.forward(x, change, double=True) for change in (None, lambda own: own))
    assert (own.outputs - same.outputs).abs().max() <= 1e-12
    assert own.evaluations == same.evaluations


@pytest.mark.parametrize("method", ["Dopri5", "Tsit5"])
def test_our_equivalent_of_an_adaptive_method_is_about_as_precise(method: str) -> None:
    subject, x = TorchodeSubject(Model(method), points()), points()
    own, same = (subject.forward(x, change) for change in (None, lambda own: own))
    fine = subject.forward(x, lambda own: FixedStep("rk4", step=1 / 256), double=True)
    for done in (own, same):
        assert (done.outputs - fine.outputs).abs().max() < 5e-3


class OwnTimes(Model):
    """Every sample has times of its own: forwards, backwards, and one that stays."""

    def __init__(self, *, points_between: int = 0, **how: Any) -> None:
        super().__init__(**how)
        self.between = points_between

    def times(self, x: Tensor) -> dict[str, Tensor]:
        start = torch.linspace(0, 0.5, len(x)).to(x)
        end = start + torch.linspace(1, -2, len(x)).to(x)
        if not self.between:
            return {"t_start": start, "t_end": end}
        share = torch.linspace(0, 1, self.between).to(x)
        return {"t_eval": start[:, None] + share * (end - start)[:, None]}


@pytest.mark.parametrize("between", [0, 5])
def test_samples_with_times_of_their_own_are_each_solved_over_them(between: int) -> None:
    x = points()
    model = OwnTimes(points_between=between)
    subject = TorchodeSubject(model, x)
    done = subject.forward(x, lambda own: FixedStep("rk4", step=1 / 256), double=True)
    spans = model.times(x.double())
    starts = spans["t_start"] if not between else spans["t_eval"][:, 0]
    ends = spans["t_end"] if not between else spans["t_eval"][:, -1]
    field, last = TimeField().double(), head().double()
    with torch.no_grad():
        for i, (t0, t1) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            alone: Any = x[i : i + 1].double()
            if t0 != t1:
                alone = ODEBlock(field, Adaptive("dopri54", tolerance=1e-10), times=(t0, t1))(alone)
            assert (last(alone) - done.outputs[i]).abs().max() < 1e-6
    own = subject.forward(x, None)
    assert (own.outputs - done.outputs).abs().max() < 1e-2


class Series(Model):
    def times(self, x: Tensor) -> dict[str, Tensor]:
        return {"t_eval": torch.linspace(1, 3, 6).to(x).expand(len(x), 6)}

    def forward(self, x: Tensor) -> Any:
        return self.adjoint.solve(to.InitialValueProblem(y0=x, **self.times(x))).ys


def test_outputs_at_many_times_stay_by_sample() -> None:
    x = points()
    subject = TorchodeSubject(Series(), x)
    own, fine = subject.forward(x, None), subject.forward(x, lambda own: FixedStep("rk4", step=0.01), double=True)
    assert own.outputs.shape == fine.outputs.shape == (7, 6, 2)
    assert (own.outputs - fine.outputs).abs().max() < 1e-2
    block = ODEBlock(TimeField(), FixedStep("rk4", step=0.01), times=torch.linspace(1, 3, 6).tolist()).double()
    with torch.no_grad():
        states = block(x.double())
    assert isinstance(states, Tensor)
    assert (fine.outputs - states.movedim(0, 1)).abs().max() < 1e-6  # times are rounded to float32 there


def test_the_short_way_and_its_arguments_are_seen_too() -> None:
    class Short(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = TimeField()

        def forward(self, x: Tensor) -> Any:
            t = torch.linspace(0, 1, 3).to(x)
            rate = to.ODETerm(lambda t, y, scale: scale * self.field(t, y), with_args=True)
            return to.solve_ivp(rate, x, t, method="tsit5", args=0.5).ys[:, -1]

    x = points()
    subject = TorchodeSubject(Short(), x)
    assert subject.solvers == (Adaptive("tsit54", rtol=1e-7, atol=1e-7, control="sample"),)
    own, fine = (subject.forward(x, change) for change in (None, lambda own: FixedStep("rk4", step=1 / 64)))
    assert (own.outputs - fine.outputs).abs().max() < 1e-5


def test_an_adaptive_heun_runs_as_it_is_and_the_nearest_stands_for_it() -> None:
    subject = TorchodeSubject(Model("Heun"), points())
    assert subject.solvers[0].method == "fehlberg21"
    assert "adaptive Heun" in subject.notes[0]


def test_a_solve_that_torchode_gives_up_is_a_sentence() -> None:
    model = Model()
    model.adjoint.max_steps = 1
    with pytest.raises(SolverError, match=r"Dopri5 stopped early \(REACHED_MAX_STEPS\).*raise max_steps"):
        TorchodeSubject(model, points())


def test_of_what_is_not_finite_the_advice_is_not_more_steps() -> None:
    model = Model()
    with pytest.raises(SolverError, match=r"\(INFINITE_NORM\).*look for weights or inputs that are not finite"):
        TorchodeSubject(model, points() * float("nan"))


def test_the_insight_is_the_solve_itself() -> None:
    x = points()
    subject = TorchodeSubject(Model(), x)
    insight = subject.insight(x)
    assert insight is not None
    assert insight.times == (0.0, 1.0)
    expected = TimeField().double()(torch.tensor(0.3, dtype=DOUBLE), x.double())
    assert torch.equal(insight.field(torch.tensor(0.3, dtype=DOUBLE), x.double()), expected)
    assert isinstance(insight.head, nn.Sequential)


def test_a_model_without_a_solve_is_refused() -> None:
    with pytest.raises(AuditError, match="asked torchode for no solve"):
        TorchodeSubject(nn.Linear(2, 2), points())
