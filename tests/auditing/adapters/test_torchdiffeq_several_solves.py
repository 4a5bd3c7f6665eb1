"""Several solves in one pass, many times, tuples of states: as torchdiffeq's examples have them."""

from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

import windermere as wm
from tests.auditing.adapters.models import TimeField, points
from tests.auditing.adapters.torchdiffeq_models import ODENet, stepping
from windermere.auditing.adapters import find_subject
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.auditing.axes import by_sample
from windermere.nn import ODEBlock
from windermere.solvers import FixedStep, OnGrid

DOUBLE = torch.float64


class TwoSolves(nn.Module):
    """Two blocks, the second one without a step: it walks the times it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = TimeField(seed=1), TimeField(seed=2)
        self.register_buffer("t", torch.linspace(0, 1, 5))

    def forward(self, x: Tensor) -> Any:
        z = torchdiffeq.odeint(self.one, x, torch.tensor([0.0, 1.0]).type_as(x), **stepping("euler", 0.25))[1]
        return torchdiffeq.odeint_adjoint(self.two, z, self.t, method="midpoint")[-1]


def test_all_solves_of_a_pass_are_seen_and_changed_each_from_its_own() -> None:
    model, x = TwoSolves(), points()
    subject = TorchdiffeqSubject(model, x)
    assert subject.solvers == (FixedStep("euler", step=0.25), OnGrid("midpoint", (0.0, 0.25, 0.5, 0.75, 1.0)))
    halved = subject.forward(x, lambda own: own.with_precision(own.precision / 2), double=True)
    blocks = nn.Sequential(
        ODEBlock(model.one, FixedStep("euler", step=0.125)), ODEBlock(model.two, FixedStep("midpoint", step=0.125))
    ).double()
    with torch.no_grad():
        expected = blocks(x.double())
    assert (halved.outputs - expected).abs().max() <= 1e-12
    assert halved.evaluations == 8 + 16


class Series(nn.Module):
    """The spiral example's way: a state at every time."""

    def __init__(self, times: Tensor, field: nn.Module | None = None, solve: Any = odeint, **how: Any) -> None:
        super().__init__()
        self.field, self.solve, self.how = field or TimeField(), solve, how
        self.times = times

    def forward(self, y0: Tensor) -> Any:
        return self.solve(self.field, y0, self.times.to(y0), **self.how)


@pytest.mark.parametrize("times", [torch.linspace(0, 2, 11), torch.linspace(2, 0.5, 7)])
def test_outputs_at_many_times_come_by_sample_and_equal_our_blocks(times: Tensor) -> None:
    model, x = Series(times.double(), method="rk4").double(), points(dtype=DOUBLE)
    subject = by_sample(TorchdiffeqSubject(model, x), x)
    own = subject.forward(x, None)
    assert own.outputs.shape == (7, len(times), 2)
    assert torch.equal(own.outputs, model(x).detach().movedim(0, 1))
    finer = subject.forward(x, lambda own: own.with_precision(own.precision / 4))
    block = ODEBlock(model.field, FixedStep("rk4_38", step=float(abs(times[1] - times[0])) / 4), times=times.tolist())
    with torch.no_grad():
        expected = block(x)
    assert isinstance(expected, Tensor)
    assert (finer.outputs - expected.movedim(0, 1)).abs().max() <= 1e-12


@pytest.mark.parametrize("n", [2, 5])
def test_as_many_samples_as_times_or_classes_do_not_confuse_the_axes(n: int) -> None:
    x = points(n)
    classifier = by_sample(TorchdiffeqSubject(ODENet(**stepping("euler", 0.5)), x), x)
    assert classifier.forward(x, None).outputs.shape == (n, 2)
    model = Series(torch.linspace(0, 1, n), method="euler")
    outputs = by_sample(TorchdiffeqSubject(model, x), x).forward(x, None).outputs
    assert torch.equal(outputs[:, 0], x.double())


@pytest.mark.parametrize("solve", [odeint, wm.odeint])
@pytest.mark.parametrize("interp", ["linear", "cubic"])
@pytest.mark.parametrize("factor", [0.75, 1.5, 2.0, 4.0])
def test_on_another_grid_outputs_between_its_nodes_are_those_of_the_library_there(
    factor: float, interp: str, solve: Any
) -> None:
    times = torch.linspace(0, 1, 9, dtype=DOUBLE)
    x, field = points(dtype=DOUBLE), TimeField()

    def series(**options: Any) -> nn.Module:
        return Series(times, field, solve, method="rk4", options={"interp": interp, **options}).double()

    def changed(own: Any) -> Any:
        return own.with_precision(own.precision * factor)

    subject = find_subject(series(), x)
    assert subject is not None
    done, grid = subject.forward(x, changed), torch.tensor(changed(subject.solvers[0]).times, dtype=DOUBLE)
    with torch.no_grad():
        theirs = series(grid_constructor=lambda f, y, t: grid)(x)
    assert (done.outputs - theirs).abs().max() <= 1e-12
    assert done.evaluations == 4 * -(-8 // factor)


def test_a_safe_step_is_safe_in_torchdiffeq() -> None:
    """With steps longer than outputs are apart it draws straight lines, whose errors rk4's curve would not show."""
    times, x = torch.linspace(0, 3, 61), points(100)
    model = Series(times, method="rk4")
    with torch.no_grad():
        flow = odeint(model.field.double(), x.double(), times.double(), rtol=1e-10, atol=1e-10)
        model.float()
        targets = flow + 1e-4 * torch.randn(flow.shape, generator=torch.Generator().manual_seed(0))
        verdict = wm.audit(model, (x, targets.movedim(0, 1)), metric="rmse", evidence=False)
        assert verdict.safe_step is not None
        model.how = {"method": "rk4", "options": {"step_size": verdict.safe_step}}
        error, least = ((each - targets).square().mean().sqrt() for each in (model(x), flow))
    assert verdict.safe_step > 0.09
    assert error <= 1.5 * least


class Pendulum(nn.Module):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.stack([z[..., 1], -torch.sin(z[..., 0])], dim=-1)


def _energy(z: Tensor) -> Tensor:
    return z[..., 1].square() / 2 - torch.cos(z[..., 0])


@pytest.mark.parametrize("interp", ["linear", "cubic"])
def test_straight_lines_between_the_steps_of_another_solver_tie_no_model_to_its_own(interp: str) -> None:
    """rk4 with half as many steps is as near, but for chords, which lose energy that no solution loses."""
    model = Series(torch.linspace(0, 6.3, 64), Pendulum(), method="midpoint", options={"interp": interp})
    verdict = wm.audit(model, points(60), metric=wm.energy_drift(_energy), evidence=False)
    assert verdict.outcome == "COARSE"
    counted = {line.solver for line in verdict.table if line.counts and line.method != "midpoint"}
    between = {"rk4 on a grid of 32 steps", "rk4 on a grid of 42 steps", "rk4 on a grid of 84 steps"}
    assert counted == {"rk4 on a grid of 63 steps", "rk4 on a grid of 126 steps"} | (
        between if interp == "cubic" else set()
    )


def test_times_between_steps_are_named() -> None:
    model = Series(torch.linspace(0, 1, 8), **stepping("euler", 0.25))
    assert "lie between steps" in TorchdiffeqSubject(model, points()).notes[0]


class Flow(nn.Module):
    """The continuous normalising flow's way: backwards, a tuple of states, the trace from autograd."""

    def __init__(self, solver: Any) -> None:
        super().__init__()
        self.solver, self.net = solver, TimeField()
        self.odefunc = self.Rate(self.net)

    class Rate(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, t: Tensor, states: tuple[Tensor, Tensor]) -> Any:
            z = states[0]
            with torch.set_grad_enabled(True):
                z.requires_grad_(True)
                rate = self.net(t, z)
                trace = sum(torch.autograd.grad(rate[:, i].sum(), z, create_graph=True)[0][:, i] for i in range(2))
            return rate, -torch.as_tensor(trace).reshape(-1, 1)

    def forward(self, x: Tensor) -> Any:
        start = (x, torch.zeros(len(x), 1).type_as(x))
        times = torch.tensor([1.0, 0.0]).type_as(x)
        z, logp = self.solver(self.odefunc, start, times, atol=1e-3, rtol=1e-3, method="dopri5")
        return (logp[-1] - z[-1].pow(2).sum(dim=1, keepdim=True) / 2).detach()


@pytest.mark.parametrize("solver", [odeint, odeint_adjoint])
def test_a_flow_backwards_in_time_with_a_tuple_of_states_is_seen_whole(solver: Any) -> None:
    model, x = Flow(solver), points()
    subject = TorchdiffeqSubject(model, x)
    own = subject.forward(x, None)
    assert torch.equal(own.outputs, model(x.clone()).double())
    assert own.states is not None
    assert own.states.shape == (7, 3)
    assert not x.requires_grad
    solvers = (FixedStep("rk4", step=1 / 64), FixedStep("rk4", step=1 / 128))
    fine, finer = (subject.forward(x, lambda own, to=to: to, double=True) for to in solvers)  # type: ignore[misc]
    assert (fine.outputs - finer.outputs).abs().max() < 1e-7
    assert 0 < (own.outputs - finer.outputs).abs().max() < 1e-2
    insight = subject.insight(x)
    assert insight is not None
    assert insight.start.shape == (7, 3)
    assert insight.times == (1.0, 0.0)
    assert insight.field(torch.tensor(0.3), insight.start[:4]).shape == (4, 3)


def test_a_solve_inside_a_field_is_solved_too_and_the_outer_one_is_the_last() -> None:
    class Nested(nn.Module):
        def forward(self, x: Tensor) -> Any:
            t = torch.tensor([0.0, 1.0]).type_as(x)

            def rate(s: Tensor, z: Tensor) -> Any:
                return odeint(lambda t, y: -y, z, t, **stepping("midpoint", 0.5))[-1]

            return odeint(rate, x, t, **stepping("euler", 0.5))[-1]

    x = points()
    subject = TorchdiffeqSubject(Nested(), x)
    assert [s.method for s in subject.solvers] == ["midpoint", "midpoint", "euler"]
    done = subject.forward(x, lambda own: own)
    assert done.evaluations == subject.forward(x, None).evaluations == 2 + 2 * 4
