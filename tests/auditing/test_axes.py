"""Which axis is the samples' is found by giving a model fewer of them, whatever else has as many entries."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_known_cases import Rotation, right_of_zero, ring
from windermere.auditing import Outcome
from windermere.auditing.axes import by_sample
from windermere.auditing.block_model import ModelSubject
from windermere.auditing.subject import PredictSubject
from windermere.errors import AuditError, UsageError
from windermere.solvers import Solver

OWN = wm.FixedStep("rk4", step=1 / 16)


class Swing(nn.Module):
    """A pendulum: angle and speed."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return torch.stack([z[..., 1], -4.0 * torch.sin(z[..., 0])], dim=-1)


class OurSeries(nn.Module):
    def __init__(self, times: int, *, batch_first: bool) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Swing(), OWN, times=torch.linspace(0, 2, times).tolist())
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Any:
        states = self.block(x)
        return states.permute(1, 0, 2) if self.batch_first else states


class TheirSeries(nn.Module):
    def __init__(self, times: int, *, batch_first: bool) -> None:
        super().__init__()
        self.field, self.times, self.batch_first = Swing(), torch.linspace(0, 2, times), batch_first

    def forward(self, x: Tensor) -> Any:
        states = odeint(self.field, x, self.times.to(x), method="rk4", options={"step_size": 1 / 16})
        return states.permute(1, 0, 2) if self.batch_first else states


def swings(n: int) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(n))


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().flatten(1).mean(dim=1)


def judged(model: nn.Module, x: Tensor, targets: Tensor, **how: Any) -> wm.Verdict:
    return wm.audit(model, (x, targets), metric=squares, threshold=10.0, evidence=False, **how)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [OurSeries, TheirSeries])
@pytest.mark.parametrize(("n", "times"), [(12, 12), (40, 8), (20, 16), (16, 16), (3, 3)])
def test_the_error_of_a_time_series_is_that_computed_by_hand(kind: Any, batch_first: bool, n: int, times: int) -> None:
    model, x = kind(times, batch_first=batch_first), swings(n)
    with torch.no_grad():
        right = TheirSeries(times, batch_first=True)(x)
        targets = right + 0.06 * torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
        outputs = model(x) if batch_first else model(x).movedim(1, 0)
        by_hand = (outputs.double() - targets).square().mean()
    verdict = judged(model, x, targets)
    assert verdict.own.metric == pytest.approx(float(by_hand), rel=1e-12)
    assert verdict.own.metric == pytest.approx(0.0036, rel=0.5)
    assert verdict.outcome is Outcome.FLOW
    assert verdict.reference.metric == pytest.approx(verdict.own.metric, rel=0.05)
    assert "batch" not in verdict.sentence


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_model_that_gives_its_own_targets_has_no_error_with_as_many_times_as_samples(batch_first: bool) -> None:
    model, x = OurSeries(20, batch_first=batch_first), swings(20)
    with torch.no_grad():
        targets = model(x) if batch_first else model(x).movedim(1, 0)
    assert judged(model, x, targets).own.metric == 0


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_batch_axis_that_is_right_changes_nothing(batch_first: bool) -> None:
    model, x = OurSeries(20, batch_first=batch_first), swings(20)
    targets = torch.zeros(20, 20, 2)
    found = judged(model, x, targets).to_dict()
    assert judged(model, x, targets, batch_axis=0 if batch_first else 1).to_dict() == found
    assert judged(model, x, targets, batch_axis=-3 if batch_first else -2).to_dict() == found


@pytest.mark.parametrize("axis", [0, 2, 3, -1, -4])
def test_a_batch_axis_that_is_not_the_samples_is_refused_and_theirs_is_told(axis: int) -> None:
    words = rf"batch_axis={axis} is not the samples' axis of outputs of shape \(20, 16, 2\) for 16 .*: theirs is 1"
    with pytest.raises(UsageError, match=words):
        judged(OurSeries(20, batch_first=False), swings(20), torch.zeros(20, 20, 2), batch_axis=axis)


@pytest.mark.parametrize("axis", [1.0, "1", True, (0,)])
def test_a_batch_axis_is_a_whole_number(axis: Any) -> None:
    with pytest.raises(
        UsageError, match=r"batch_axis=.* is no axis: give the axis .*, a whole number, or leave it out"
    ):
        judged(OurSeries(4, batch_first=True), swings(20), torch.zeros(20, 4, 2), batch_axis=axis)


class Between(nn.Module):
    """Distances between all samples."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.cdist(z, z)


def test_where_several_axes_grow_with_the_samples_the_batch_axis_is_asked_for() -> None:
    model, x = nn.Sequential(wm.ODEBlock(Rotation(3.0), OWN), Between()), ring(20)
    with pytest.raises(AuditError, match=r"\(16, 16\) for 16 samples and \(8, 8\) for 8.*axes 0 and 1.* batch_axis="):
        judged(model, x, torch.zeros(20, 20))
    verdict = judged(model, x, torch.zeros(20, 20), batch_axis=1)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "depends on the batch it comes in: there are batch statistics" in verdict.sentence


def test_where_no_axis_grows_with_the_samples_the_outputs_are_refused_by_their_shapes() -> None:
    class Mean(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return z.mean(dim=0)

    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), OWN), Mean())
    with pytest.raises(AuditError, match=r"shape \(2,\) for 16 samples and \(2,\) for 8: wrap it .* batch_axis="):
        judged(model, ring(20), torch.zeros(20, 2))
    with pytest.raises(UsageError, match=r"batch_axis=0 is not the samples' axis .*: none is theirs"):
        judged(model, ring(20), torch.zeros(20, 2), batch_axis=0)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_samples_show_their_axis_too(n: int) -> None:
    model, x = OurSeries(2 + n, batch_first=False), swings(n)
    with torch.no_grad():
        targets = model(x).movedim(1, 0)
    assert judged(model, x, targets).own.metric == 0


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_outputs_of_a_predict_come_by_sample(batch_first: bool) -> None:
    times = torch.linspace(0, 2, 20).tolist()

    def predict(x: Tensor, solver: Solver) -> Any:
        states = wm.solve(Swing(), x, solver, times).states
        return states.movedim(1, 0) if batch_first else states

    x = swings(20)
    targets = wm.solve(Swing(), x, OWN, times).states.movedim(1, 0)
    verdict = wm.audit(predict, (x, targets), trained_with=OWN, metric=squares, threshold=0.1)
    assert verdict.own.metric == 0
    assert verdict.outcome is Outcome.FLOW


def test_a_predict_that_raises_is_not_said_to_take_all_samples_together() -> None:
    def predict(x: Tensor, solver: Solver) -> Any:
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights"):
        wm.audit(predict, (ring(20), torch.zeros(20)), trained_with=OWN)


class FeaturesFirst(nn.Module):
    """States lie as [D, n] in its solve."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Growing(), OWN)
        self.features = features

    def forward(self, x: Tensor) -> Any:
        return self.block(x[:, :1].expand(-1, self.features).T).T


class Growing(nn.Module):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z * z.new_tensor(range(len(z)))[:, None] / len(z)


def test_states_with_as_many_features_as_samples_are_not_taken_for_the_samples() -> None:
    x = 1 + torch.arange(12.0)[:, None]
    subject = by_sample(ModelSubject(FeaturesFirst(12)), x)
    assert subject.forward(x, None).states is None
    assert subject.insight(x) is None
    verdict = judged(FeaturesFirst(12), x, torch.zeros(12, 12))
    with torch.no_grad():
        own = FeaturesFirst(12)(x).double()
    exact = x.double() * torch.exp(torch.arange(12) / 12.0).double()
    assert verdict.own.error == pytest.approx(float((own - exact).norm(dim=1).median()), rel=0.05)


def test_a_model_whose_first_axis_is_the_samples_is_passed_on_as_it_is() -> None:
    block = ModelSubject(nn.Sequential(wm.ODEBlock(Rotation(3.0), OWN), right_of_zero()))
    assert by_sample(block, ring(20)) is block
    predict = PredictSubject(lambda x, solver: x, OWN)
    assert torch.equal(by_sample(predict, ring(20)).forward(ring(20), None).outputs, ring(20).double())


def test_what_follows_a_solve_is_unknown_where_it_turns_samples_around() -> None:
    class Turned(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return z.T

    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), OWN), nn.Linear(2, 2), Turned())
    verdict = wm.audit(model, (ring(20), torch.arange(20) % 2))
    assert verdict.samples == 20
    names = {piece.name for piece in verdict.evidence}
    assert "crossings" in names
    assert "margins" not in names


class Normed(nn.Module):
    """As a BatchNorm in training does it, in eval mode too."""

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.batch_norm(z, None, None, training=True)


class Attending(nn.Module):
    """Each sample looks at all others."""

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(z[None], z[None], z[None])[0]


@pytest.mark.parametrize("layer", [Normed, Attending, lambda: nn.BatchNorm1d(2, track_running_stats=False)])
def test_true_batch_statistics_are_found(layer: Any) -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), OWN), layer())
    verdict = judged(model, swings(40), torch.zeros(40, 2))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "depends on the batch it comes in: there are batch statistics in the model" in verdict.sentence


@pytest.mark.parametrize("batch_first", [True, False])
def test_true_batch_statistics_of_a_time_series_are_found(batch_first: bool) -> None:
    class Centred(OurSeries):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x - x.mean(dim=0))

    verdict = judged(Centred(8, batch_first=batch_first), swings(40), torch.zeros(40, 8, 2))
    assert "there are batch statistics in the model" in verdict.sentence
