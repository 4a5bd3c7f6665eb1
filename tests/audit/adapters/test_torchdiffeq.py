"""Models written the way torchdiffeq's readme and examples write them."""

from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint
from torchdiffeq import odeint_adjoint as imported_odeint
from torchdiffeq._impl.odeint import SOLVERS

from tests.audit.adapters.models import TimeField, head, points
from windermere.audit.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.errors import AuditError, SolverError
from windermere.models import ODEBlock, using
from windermere.solvers import Adaptive, FixedStep, OnGrid, Solver, solve

DOUBLE = torch.float64


class ODENet(nn.Module):
    """The readme's way: integration times in the constructor, the last state goes on."""

    def __init__(self, solver: Any = odeint, times: Any = (0.0, 1.0), **how: Any) -> None:
        super().__init__()
        self.field, self.fc = TimeField(), head()
        self.integration_time = torch.tensor(times)
        self.solver, self.how = solver, how

    def forward(self, x: Tensor) -> Any:
        out = self.solver(self.field, x, self.integration_time.type_as(x), **self.how)
        return self.fc(out[-1])


def ours(model: ODENet, solver: Solver) -> nn.Sequential:
    """The same networks in an ODEBlock."""
    ends = tuple(model.integration_time.double().tolist())
    return nn.Sequential(ODEBlock(model.field, solver, times=(ends[0], ends[-1])), model.fc)


def stepping(method: str, step: float) -> dict[str, Any]:
    return {"method": method, "options": {"step_size": step}}


# What is read off a model's own call


@pytest.mark.parametrize(
    ("how", "solver"),
    [
        (stepping("euler", 1 / 8), FixedStep("euler", step=1 / 8)),
        (stepping("midpoint", 0.1), FixedStep("midpoint", step=0.1)),
        (stepping("heun2", 0.1), FixedStep("heun", step=0.1)),
        (stepping("rk4", 0.25), FixedStep("rk4_38", step=0.25)),
        ({"method": "rk4"}, OnGrid("rk4_38", (0.0, 1.0))),
        ({"rtol": 1e-3, "atol": 1e-4}, Adaptive("dopri54", rtol=1e-3, atol=1e-4)),
        ({"rtol": 1e-3, "atol": 1e-4, "method": "bosh3"}, Adaptive("bosh32", rtol=1e-3, atol=1e-4)),
    ],
)
def test_the_solver_is_read_off_the_models_own_call(how: dict[str, Any], solver: Solver) -> None:
    subject = TorchdiffeqSubject(ODENet(**how), points())
    assert subject.solvers == (solver,)
    assert subject.notes == ()


@pytest.mark.parametrize(
    ("how", "stand_in"),
    [
        ({"method": "dopri8", "rtol": 1e-4, "atol": 1e-4}, Adaptive("dopri54", tolerance=1e-4)),
        ({"method": "adaptive_heun", "rtol": 1e-3, "atol": 1e-3}, Adaptive("fehlberg21", tolerance=1e-3)),
        (stepping("heun3", 0.1), FixedStep("bosh32", step=0.1)),
        (stepping("explicit_adams", 0.1), FixedStep("rk4", step=0.1)),
        (stepping("implicit_adams", 0.1), FixedStep("rk4", step=0.1)),
        ({"method": "scipy_solver", "rtol": 1e-4, "atol": 1e-4}, Adaptive("dopri54", tolerance=1e-4)),
    ],
)
def test_a_method_that_we_lack_runs_as_it_is_and_the_nearest_stands_for_it(
    how: dict[str, Any], stand_in: Solver
) -> None:
    model, x = ODENet(**how), points()
    subject = TorchdiffeqSubject(model, x)
    assert subject.solvers == (stand_in,)
    assert how["method"] in subject.notes[0]
    assert torch.equal(subject.forward(x, None).outputs, model(x).detach().double())


def test_its_fehlberg2_keeps_its_quirk_and_says_so() -> None:
    model, x = ODENet(method="fehlberg2", rtol=1e-3, atol=1e-3), points()
    subject = TorchdiffeqSubject(model, x)
    assert "stage" in subject.notes[0]
    assert torch.equal(subject.forward(x, None).outputs, model(x).detach().double())


def test_a_spurious_last_step_is_kept_and_named() -> None:
    subject = TorchdiffeqSubject(ODENet(**stepping("euler", 1 / 61)), points())
    assert "62 steps" in subject.notes[0]
    assert subject.forward(points(), None).evaluations == 62
    assert subject.forward(points(), lambda own: own).evaluations == 61


def test_a_grid_constructor_gives_the_grid() -> None:
    def squares(func: Any, y0: Tensor, t: Tensor) -> Tensor:
        return t[0] + (t[-1] - t[0]) * torch.linspace(0, 1, 5).to(t) ** 2

    subject = TorchdiffeqSubject(ODENet(method="euler", options={"grid_constructor": squares}), points())
    assert subject.solvers == (OnGrid("euler", (0.0, 0.0625, 0.25, 0.5625, 1.0)),)


def test_tolerances_by_part_of_a_tuple_are_read_as_the_strictest() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Any:
            out = odeint(lambda t, z: (-z[0], z[1]), (x, x), torch.tensor([0.0, 1.0]), rtol=(1e-3, 1e-4), atol=1e-5)
            return out[0][-1]

    assert TorchdiffeqSubject(Two(), points()).solvers == (Adaptive("dopri54", rtol=1e-4, atol=1e-5),)


# The own pass is the library's, another solver's is ours


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
    handle = model.field.register_forward_hook(lambda *_: calls.append(1))
    done = subject.forward(x, None)
    assert done.evaluations == len(calls)
    calls.clear()
    assert subject.forward(x, lambda own: FixedStep("rk4", step=1 / 3)).evaluations == len(calls) == 12
    handle.remove()


def test_an_adaptive_solver_of_ours_meets_the_reference() -> None:
    model, x = ODENet(rtol=1e-3, atol=1e-3), points()
    subject = TorchdiffeqSubject(model, x)
    fine = subject.forward(x, lambda own: own.with_precision(1e-10), double=True)
    finer = subject.forward(x, lambda own: FixedStep("rk4", step=1 / 512), double=True)
    assert (fine.outputs - finer.outputs).abs().max() < 1e-8


# Several solves, many times, tuples


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

    def __init__(self, times: Tensor, **how: Any) -> None:
        super().__init__()
        self.field, self.how = TimeField(), how
        self.times = times

    def forward(self, y0: Tensor) -> Any:
        return odeint(self.field, y0, self.times.to(y0), **self.how)


@pytest.mark.parametrize("times", [torch.linspace(0, 2, 11), torch.linspace(2, 0.5, 7)])
def test_outputs_at_many_times_come_by_sample_and_equal_our_blocks(times: Tensor) -> None:
    model, x = Series(times.double(), method="rk4").double(), points(dtype=DOUBLE)
    subject = TorchdiffeqSubject(model, x)
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
    assert TorchdiffeqSubject(ODENet(**stepping("euler", 0.5)), x).forward(x, None).outputs.shape == (n, 2)
    model = Series(torch.linspace(0, 1, n), method="euler")
    outputs = TorchdiffeqSubject(model, x).forward(x, None).outputs
    assert torch.equal(outputs[:, 0], x.double())


@pytest.mark.parametrize("factor", [0.75, 1.5, 2.0, 4.0])
def test_a_coarser_grid_stays_coarser_though_outputs_lie_between_its_nodes(factor: float) -> None:
    times = torch.linspace(0, 1, 9, dtype=DOUBLE)
    model, x = Series(times, method="rk4").double(), points(dtype=DOUBLE)
    subject = TorchdiffeqSubject(model, x)
    done = subject.forward(x, lambda own: own.with_precision(own.precision * factor))
    steps = -(-8 // factor)
    assert done.evaluations in (4 * steps, 4 * steps + 1)
    exact = subject.forward(x, lambda own: own.with_precision(own.precision / 16))
    assert (done.outputs - exact.outputs).abs().max() < 2e-4


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
    fine, finer = (
        subject.forward(x, lambda own, n=n: FixedStep("rk4", step=1 / n), double=True) for n in (64, 128)  # type: ignore[misc]
    )
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


# Precision, modes, and what is left behind


def test_a_model_in_float32_runs_in_float64_with_its_plain_tensors() -> None:
    model, x = ODENet(**stepping("euler", 0.125)), points()
    model.scale = torch.tensor([0.5, 2.0])
    subject = TorchdiffeqSubject(model, x)
    assert subject.notes == ()
    done = subject.forward(x, None, double=True)
    twin = ODENet(**stepping("euler", 0.125)).double()
    with torch.no_grad():
        assert torch.equal(done.outputs, twin(x.double()))
    assert all(p.dtype == torch.float32 for p in model.parameters())


class Stubborn(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.field, self.where = TimeField(), where

    def forward(self, x: Tensor) -> Any:
        def rate(t: Tensor, z: Tensor) -> Any:
            return self.field(t, z).float() if self.where == "rate" else self.field(t, z)

        if self.where == "inputs":
            x = x.float()
        if self.where == "product":
            x = x @ torch.eye(2, dtype=torch.float32)
        return odeint(rate, x, torch.tensor([0.0, 1.0]), **stepping("euler", 0.5))[-1]


@pytest.mark.parametrize("where", ["inputs", "product", "rate"])
@pytest.mark.parametrize("change", [None, lambda own: own])
def test_a_model_that_hard_codes_float32_says_so(where: str, change: Any) -> None:
    from windermere.errors import DoublePrecisionError

    subject = TorchdiffeqSubject(Stubborn(where), points())
    assert "cannot run in float64" in subject.notes[0]
    with pytest.raises(DoublePrecisionError, match="cannot run in float64"):
        subject.forward(points(), change, double=True)
    assert subject.insight(points()) is None
    assert subject.forward(points(), lambda own: own).outputs.dtype == DOUBLE


def test_modes_and_parameters_are_untouched_and_dropout_is_off() -> None:
    model = ODENet(**stepping("euler", 0.5))
    model.fc = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2), nn.Linear(2, 2))  # type: ignore[assignment]
    model.train()
    model.fc[1].eval()  # type: ignore[index]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    subject = TorchdiffeqSubject(model, points())
    one, two = (subject.forward(points(), None) for _ in range(2))
    assert torch.equal(one.outputs, two.outputs)
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_the_table_is_restored_after_an_exception() -> None:
    class Failing(ODENet):
        fail = False

        def forward(self, x: Tensor) -> Any:
            super().forward(x)
            if self.fail:
                raise ZeroDivisionError
            return super().forward(x)

    table = dict(SOLVERS)
    model = Failing(**stepping("euler", 0.5))
    subject = TorchdiffeqSubject(model, points())
    assert table == SOLVERS
    model.fail = True
    with pytest.raises(ZeroDivisionError):
        subject.forward(points(), lambda own: own)
    assert table == SOLVERS
    assert list(table) == list(SOLVERS)


# What cannot be audited


def test_a_solve_until_an_event_is_refused() -> None:
    class Falling(nn.Module):
        def forward(self, x: Tensor) -> Any:
            t, out = torchdiffeq.odeint_event(
                lambda t, z: -torch.ones_like(z), x, torch.tensor(0.0), event_fn=lambda t, z: z.sum() + 50, atol=1e-3
            )
            return out[-1]

    with pytest.raises(AuditError, match="until an event"):
        TorchdiffeqSubject(Falling(), points())


def test_a_model_without_a_solve_is_refused() -> None:
    with pytest.raises(AuditError, match="asked torchdiffeq for no solve"):
        TorchdiffeqSubject(nn.Linear(2, 2), points())


def test_a_model_that_returns_one_number_is_refused() -> None:
    class Loss(ODENet):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x).mean()

    subject_of = Loss(**stepping("euler", 0.5))
    with pytest.raises(AuditError, match="one output for each sample"):
        TorchdiffeqSubject(subject_of, points()).forward(points(), None)


def test_a_solver_of_theirs_that_gives_up_is_a_sentence() -> None:
    model = ODENet(rtol=1e-6, atol=1e-6, method="dopri5", options={"max_num_steps": 1})
    with pytest.raises(SolverError, match="torchdiffeq's own dopri5 gave up: max_num_steps exceeded"):
        TorchdiffeqSubject(model, points())


def test_a_state_that_is_not_by_sample_is_hidden() -> None:
    class Transposed(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return odeint(lambda t, z: -z, x.T, torch.tensor([0.0, 1.0]), **stepping("euler", 0.5))[-1].T

    subject = TorchdiffeqSubject(Transposed(), points())
    assert subject.forward(points(), None).states is None
    assert subject.insight(points()) is None


# The last solve from inside


def test_the_insight_solves_to_the_models_end_and_its_head_gives_the_outputs() -> None:
    model, x = ODENet(odeint_adjoint, (0.0, 1.5), **stepping("rk4", 0.1)), points()
    subject = TorchdiffeqSubject(model, x)
    insight, done = subject.insight(x), subject.forward(x, lambda own: own, double=True)
    assert insight is not None
    assert insight.head is not None
    assert insight.start.dtype == DOUBLE
    with torch.no_grad():
        end = solve(insight.field, insight.start, subject.solvers[0], insight.times).final
        assert (end - done.states).abs().max() <= 1e-12  # type: ignore[operator]
        assert (insight.head(end) - done.outputs).abs().max() <= 1e-12


def test_a_sequences_tail_is_its_head_and_flattening_counts() -> None:
    class Block(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return odeint(lambda t, z: -z, x, torch.tensor([0.0, 1.0]).type_as(x), **stepping("euler", 0.5))[1]

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.fc = Block(), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Any:
            return self.fc(self.block(x).view(len(x), -1))

    x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
    for model in (nn.Sequential(Block(), nn.Flatten(), nn.Linear(6, 3)), Functional()):
        insight = TorchdiffeqSubject(model, x).insight(x)
        assert insight is not None
        assert insight.head is not None
        assert [type(layer) for layer in insight.head] == [nn.Flatten, nn.Linear]  # type: ignore[attr-defined]


def test_what_is_not_only_modules_is_no_head() -> None:
    class Scaled(ODENet):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x) + x

    insight = TorchdiffeqSubject(Scaled(**stepping("euler", 0.5)), points()).insight(points())
    assert insight is not None
    assert insight.head is None


def test_a_field_with_a_context_for_each_sample_gives_no_insight() -> None:
    class Conditioned(nn.Module):
        def forward(self, x: Tensor) -> Any:
            t = torch.tensor([0.0, 1.0]).type_as(x)
            return odeint(lambda t, z: x - z, x.flip(0), t, **stepping("euler", 0.5))[-1]

    subject = TorchdiffeqSubject(Conditioned(), points())
    assert subject.insight(points()) is None
    assert subject.forward(points(), None).states is not None


def test_several_arguments_come_as_a_tuple_and_the_first_result_is_audited() -> None:
    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = TimeField()

        def forward(self, x: Tensor, t: Tensor) -> Any:
            out = odeint(self.field, x, t, method="euler")
            return out[-1], out

    model, x, t = Timed(), points(), torch.tensor([0.0, 0.5, 1.0])
    subject = TorchdiffeqSubject(model, (x, t))
    assert "one tensor is audited" in subject.notes[0]
    assert torch.equal(subject.forward((x, t), None).outputs, model(x, t)[0].detach().double())
    named = subject.forward({"x": x, "t": t}, None)
    assert torch.equal(named.outputs, subject.forward((x, t), None).outputs)


def test_the_models_own_call_is_as_before_while_our_blocks_may_stand_beside() -> None:
    """A pass leaves torchdiffeq as it found it, and `using` still finds our own blocks."""
    model, x = ODENet(**stepping("euler", 0.5)), points()
    before = model(x)
    TorchdiffeqSubject(model, x).forward(x, lambda own: FixedStep("rk4", step=0.1))
    assert torch.equal(before, model(x))
    block = ours(model, FixedStep("euler", step=0.5))
    with using(block, FixedStep("rk4", step=0.1)), torch.no_grad():
        assert block(x).shape == before.shape
