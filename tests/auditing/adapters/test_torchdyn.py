"""Models written the way torchdyn's tutorials write them. Needs torchdyn, which no dependency of ours brings."""

import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.auditing.adapters.models import TimeField, head, points
from windermere.errors import NonFiniteError
from windermere.nn import ODEBlock
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    core = pytest.importorskip("torchdyn.core")
    numerics = pytest.importorskip("torchdyn.numerics")

from windermere.auditing.adapters import find_subject
from windermere.auditing.adapters.torchdyn import TorchdynSubject
from windermere.auditing.axes import by_sample
from windermere.nn.shared import share

pytestmark = pytest.mark.filterwarnings("ignore:Setting tolerances has no effect")
DOUBLE = torch.float64
EIGHTHS = tuple(k / 8 for k in range(9))


@pytest.fixture(autouse=True)
def _its_methods_are_restored() -> Iterator[None]:
    before = _replaced()
    yield
    assert before == _replaced()


def _replaced() -> tuple[Any, ...]:
    loops: Any = import_module("torchdyn.numerics.odeint")
    methods = (core.ODEProblem.odeint, core.NeuralODE.trajectory, numerics.MSZero.root_solve)
    return (*methods, loops._fixed_odeint, loops._adaptive_odeint)


class TimeFieldHere(TimeField):
    """torchdyn calls its fields with a third argument."""

    def forward(self, t: Any, x: Tensor, args: Any = None) -> Any:
        return super().forward(t, x)


def autonomous(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


class Classifier(nn.Module):
    """The quickstart's way: a NeuralODE with t_span, whose last state goes on."""

    def __init__(self, field: nn.Module, t_span: Tensor | None = None, **how: Any) -> None:
        super().__init__()
        self.node, self.fc = core.NeuralODE(field, **how), head()
        self.t_span = torch.linspace(0, 1, 9) if t_span is None else t_span

    def forward(self, x: Tensor) -> Any:
        _, states = self.node(x, self.t_span)
        return self.fc(states[-1])


@pytest.mark.parametrize(
    ("how", "solver"),
    [
        ({"solver": "euler"}, OnGrid("euler", tuple(i / 8 for i in range(9)))),
        ({"solver": "midpoint"}, OnGrid("midpoint", tuple(i / 8 for i in range(9)))),
        ({"solver": "rk4"}, OnGrid("rk4", tuple(i / 8 for i in range(9)))),
        ({"solver": "dopri5", "rtol": 1e-3, "atol": 1e-4}, Adaptive("dopri54", rtol=1e-3, atol=1e-4)),
        ({"solver": "tsit5", "rtol": 1e-3, "atol": 1e-4}, Adaptive("tsit54", rtol=1e-3, atol=1e-4)),
    ],
)
@pytest.mark.parametrize("sensitivity", ["autograd", "adjoint", "interpolated_adjoint"])
def test_the_own_solver_is_read_off_and_its_pass_is_the_librarys(
    how: dict[str, Any], solver: Solver, sensitivity: str
) -> None:
    model, x = Classifier(autonomous(), sensitivity=sensitivity, **how), points()
    subject = TorchdynSubject(model, x)
    assert subject.solvers == (solver,)
    assert subject.notes == ()
    done = subject.forward(x, None)
    assert torch.equal(done.outputs, model(x).detach().double())
    before = model.node.vf.nfe
    model(x)
    assert done.evaluations == model.node.vf.nfe - before


@pytest.mark.parametrize("t_span", [torch.linspace(0, 1, 9), torch.tensor([1.0, 0.7, 0.1, 0.0])])
def test_a_fixed_step_method_gives_what_our_block_gives(t_span: Tensor) -> None:
    model, x = Classifier(TimeFieldHere(), t_span, solver="euler"), points()
    tested = FixedStep("rk4", step=0.05)
    done = TorchdynSubject(model, x).forward(x, lambda own: tested, double=True)
    ends = (float(t_span[0]), float(t_span[-1]))
    block = nn.Sequential(ODEBlock(TimeFieldHere(), tested, times=ends), head()).double()
    with torch.no_grad():
        assert (done.outputs - block(x.double())).abs().max() <= 1e-12


@pytest.mark.parametrize("name", ["euler", "midpoint"])
def test_our_equivalent_gives_the_own_pass_forwards_and_backwards(name: str) -> None:
    for t_span in (torch.linspace(0, 1, 9), torch.linspace(2, 0, 5)):
        subject = TorchdynSubject(Classifier(TimeFieldHere(), t_span, solver=name), points())
        own, same = (subject.forward(points(), change, double=True) for change in (None, lambda own: own))
        assert (own.outputs - same.outputs).abs().max() <= 1e-12
        assert own.evaluations == same.evaluations
        assert own.states is not None
        assert own.states.shape == (7, 2)


def test_its_rk4_is_named_where_the_field_depends_on_time_and_only_there() -> None:
    x = points()
    timed, plain = (TorchdynSubject(Classifier(f, solver="rk4"), x) for f in (TimeFieldHere(), autonomous()))
    assert "shifted times" in timed.notes[0]
    assert plain.notes == ()
    own, ours = (plain.forward(x, change, double=True) for change in (None, lambda own: own))
    assert (own.outputs - ours.outputs).abs().max() < 1e-7  # its coefficients are rounded to float32
    own, ours = (timed.forward(x, change, double=True) for change in (None, lambda own: own))
    assert (own.outputs - ours.outputs).abs().max() > 1e-4


def test_a_neural_ode_alone_gives_its_states_by_sample() -> None:
    model, x = core.NeuralODE(autonomous(), solver="euler"), points()
    given = share((x, torch.linspace(0, 1, 4)), ("t_span",), model)
    outputs = by_sample(TorchdynSubject(model, given), given).forward(given, None).outputs
    assert outputs.shape == (7, 4, 2)
    assert torch.equal(outputs[:, 0], x.double())


def test_a_chain_of_blocks_without_times_is_seen_whole() -> None:
    blocks = [core.NeuralODE(autonomous(i), solver="tsit5", return_t_eval=False) for i in range(2)]

    class Last(nn.Module):
        def forward(self, states: Tensor) -> Any:
            return states[-1]

    model = nn.Sequential(blocks[0], Last(), blocks[1], Last(), head())
    subject, x = TorchdynSubject(model, points()), points()
    assert len(subject.solvers) == 2
    assert torch.equal(subject.forward(x, None).outputs, model(x).detach().double())
    insight = subject.insight(x)
    assert insight is not None
    assert insight.times == (0.0, 1.0)


def test_a_trajectory_is_a_solve_too() -> None:
    class Drawn(Classifier):
        def forward(self, x: Tensor) -> Any:
            return self.node.trajectory(x, self.t_span)

    x = points()
    model = Drawn(autonomous(), solver="dopri5")
    subject = by_sample(TorchdynSubject(model, x), x)
    own, fine = subject.forward(x, None), subject.forward(x, lambda own: FixedStep("rk4", step=1 / 64))
    assert own.outputs.shape == (7, 9, 2)
    assert (own.outputs - fine.outputs).abs().max() < 1e-2


def test_only_the_times_to_be_saved_come_back() -> None:
    class Saved(Classifier):
        def forward(self, x: Tensor) -> Any:
            return self.node(x, self.t_span, save_at=torch.tensor([0.5, 1.0]))[1]

    x = points()
    subject = by_sample(TorchdynSubject(Saved(autonomous(), solver="midpoint"), x), x)
    own, same = (subject.forward(x, change) for change in (None, lambda own: own))
    assert own.outputs.shape == same.outputs.shape == (7, 2, 2)
    assert (own.outputs - same.outputs).abs().max() < 1e-6


def test_an_implicit_method_runs_as_it_is_and_euler_stands_for_it() -> None:
    model, x = Classifier(autonomous(), torch.linspace(0, 1, 3), solver="ieuler"), points()
    subject = TorchdynSubject(model, x)
    assert subject.solvers == (OnGrid("euler", (0.0, 0.5, 1.0)),)
    assert "ImplicitEuler" in subject.notes[0]
    assert torch.equal(subject.forward(x, None).outputs, model(x).detach().double())


def test_a_field_that_is_not_finite_ends_in_a_sentence_rather_than_never() -> None:
    class Broken(nn.Module):
        def forward(self, t: Tensor, x: Tensor, args: Any = None) -> Any:
            return x * float("nan")

    with pytest.raises(NonFiniteError, match="not finite"):
        TorchdynSubject(Classifier(Broken(), solver="dopri5"), points())


class Shooting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.node = core.MultipleShootingLayer(autonomous(), solver="mszero", fine_steps=5)

    def forward(self, x: Tensor) -> Any:
        return self.node(x, torch.linspace(0, 1, 5))[1][-1]


def test_multiple_shooting_runs_as_it_is_and_its_fine_steps_stand_for_it() -> None:
    model, x = Shooting(), points()
    subject = TorchdynSubject(model, x)
    assert subject.solvers[-1] == OnGrid("rk4", tuple(k / 16 for k in range(17)))
    assert any("all intervals at once" in note for note in subject.notes)
    own, same = (subject.forward(x, change).outputs for change in (None, lambda own: own))
    assert torch.equal(own, model(x).detach().double())
    assert (own - same).abs().max() < 1e-6


class Direct(nn.Module):
    """Without a NeuralODE."""

    def __init__(self, solver: Any) -> None:
        super().__init__()
        self.field, self.solver = TimeFieldHere(), solver

    def forward(self, x: Tensor) -> Any:
        return numerics.odeint(self.field, x, torch.linspace(0, 1, 9), self.solver)[1][-1]


@pytest.mark.parametrize(
    ("solver", "own"), [("euler", OnGrid("euler", EIGHTHS)), ("dopri5", Adaptive("dopri54", tolerance=1e-3))]
)
def test_a_model_that_calls_odeint_itself_is_seen(solver: str, own: Solver) -> None:
    model, x = Direct(solver), points()
    subject = find_subject(model, x)
    assert isinstance(subject, TorchdynSubject)
    assert (subject.solvers[0].method, subject.solvers[0].precision) == (own.method, own.precision)
    done, same = (subject.forward(x, change).outputs for change in (None, lambda own: own))
    assert torch.equal(done, model(x).detach().double())
    assert (done - same).abs().max() < 1e-3


@pytest.mark.parametrize("inside", [False, True])
def test_a_hypersolver_runs_as_it_is_and_its_field_alone_is_swept(inside: bool) -> None:
    """Its correction is no part of the field: what it brings shows in the own pass, and in no other."""
    hyper = numerics.HyperEuler(TimeFieldHere(seed=5))
    x = points()
    model = Classifier(TimeFieldHere(), solver=hyper) if inside else Direct(hyper)
    subject = TorchdynSubject(model, x)
    assert subject.solvers == (OnGrid("euler", EIGHTHS),)
    assert "HyperEuler" in subject.notes[0]
    done, same = (subject.forward(x, change).outputs for change in (None, lambda own: own))
    assert torch.equal(done, model(x).detach().double())
    plain = Classifier(TimeFieldHere(), solver="euler") if inside else Direct("euler")
    assert (same - plain(x).detach()).abs().max() < 1e-6
    assert (done - same).abs().max() > 1e-3


class WithOneInside(nn.Module):
    """A field that solves too, by the function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = TimeFieldHere(seed=3)

    def forward(self, t: Any, x: Tensor, args: Any = None) -> Any:
        return numerics.odeint(self.inner, x, torch.linspace(0, 1, 3), "euler")[1][-1] - x


def test_a_solve_within_a_field_is_another_solve() -> None:
    model, x = Classifier(WithOneInside(), torch.linspace(0, 1, 3), solver="euler"), points()
    subject = TorchdynSubject(model, x)
    assert subject.solvers == (*[OnGrid("euler", (0.0, 0.5, 1.0))] * 3,)
    own, same = (subject.forward(x, change).outputs for change in (None, lambda own: own))
    assert (own - same).abs().max() < 1e-6


def test_an_adaptive_solver_of_ours_lands_on_every_time_as_theirs_does() -> None:
    model, x = Classifier(autonomous(), torch.linspace(0, 1, 21), solver="dopri5", rtol=1e-3, atol=1e-3), points()
    subject = TorchdynSubject(model, x)
    own, same = (subject.forward(x, change) for change in (None, lambda own: own))
    assert own.evaluations == same.evaluations == 2 + 6 * 20
