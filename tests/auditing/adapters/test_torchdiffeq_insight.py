"""The last solve of a torchdiffeq model from inside."""

from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint

from tests.auditing.adapters.models import TimeField, points
from tests.auditing.adapters.torchdiffeq_models import ODENet, ours, stepping
from windermere.auditing.adapters.torchdiffeq import TorchdiffeqSubject
from windermere.nn import using
from windermere.solvers import FixedStep, solve

DOUBLE = torch.float64


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
    assert "its entry 0 alone is audited" in subject.notes[0]
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
