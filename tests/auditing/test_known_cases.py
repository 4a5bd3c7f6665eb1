"""Models whose answer is known beforehand."""

from math import pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from windermere.auditing import Outcome, Verdict
from windermere.auditing.statistics import Gap
from windermere.errors import AuditError, UsageError


class Rotation(nn.Module):
    """z' = omega (-y, x): Euler turns by less than omega h each step, and moves outwards."""

    def __init__(self, omega: float) -> None:
        super().__init__()
        self.matrix = nn.Parameter(omega * torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return z @ self.matrix


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.speed = nn.Parameter(torch.tensor([0.3, -0.7]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return self.speed.expand_as(z)


class Fan(nn.Module):
    """Figure 3: ellipses that grow and turn ever faster."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor([1.30, 0.30, 4.3, 1.61]))

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        alpha, beta, gamma, delta = self.values
        x, y = z.unbind(-1)
        return torch.stack([alpha * x + y, -gamma * z.norm(dim=-1) ** delta * x + beta * y], dim=-1)


def right_of_zero() -> nn.Linear:
    head = nn.Linear(2, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        head.bias.zero_()
    return head


def labelled_by_itself(model: nn.Module, x: Tensor) -> Tensor:
    """Labels that the model gets right with its own solver."""
    with torch.no_grad():
        labels: Tensor = model(x).argmax(dim=1)
    return labels


def ring(samples: int = 400) -> Tensor:
    angle = 2 * pi * torch.arange(samples) / samples + 0.01
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def rotation_verdict(steps: int, **options: Any) -> Verdict:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=steps)), right_of_zero())
    return wm.audit(model, (ring(), labelled_by_itself(model, ring())), **options)


def gap_of(verdict: Verdict) -> Gap:
    """To the flow, which must be known."""
    assert verdict.gap is not None
    return verdict.gap


def found(verdict: Verdict, name: str) -> dict[str, Any]:
    return next(e.numbers for e in verdict.evidence if e.name == name)


def test_a_rotation_solved_with_two_euler_steps_is_tied_and_its_own_chords_are_no_evidence() -> None:
    verdict = rotation_verdict(2)
    assert verdict.outcome is Outcome.TIED
    # Euler turns by atan(3/2) a step, the flow by 3/2: the share of decisions between the two half planes changes.
    turned = (3 - 2 * np.arctan(1.5)) / pi
    assert gap_of(verdict).value == pytest.approx(turned, abs=0.01)
    assert found(verdict, "orientation")["negative"] == 0
    assert found(verdict, "crossings")["flow"]["total"] > 0


def test_a_rotation_solved_with_256_euler_steps_is_a_flow() -> None:
    verdict = rotation_verdict(256)
    assert verdict.outcome is Outcome.FLOW
    assert abs(gap_of(verdict).value) < 0.01
    assert verdict.safe_step is not None
    assert "FLOW" in str(verdict)
    assert "Safe at test time" in str(verdict)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_a_constant_field_is_a_flow_at_any_step_and_nothing_crosses(steps: int) -> None:
    model = nn.Sequential(wm.ODEBlock(Constant(), wm.FixedStep.of("euler", steps=steps)), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert verdict.outcome is Outcome.FLOW
    assert found(verdict, "crossings")["own"]["total"] == 0
    assert found(verdict, "orientation")["negative"] == 0


@pytest.mark.parametrize(
    ("exponent", "outcome"), [(-2.5, Outcome.TIED), pytest.param(-4.5, Outcome.FLOW, marks=pytest.mark.thorough)]
)
def test_the_fan_of_figure_3_is_tied_at_a_coarse_step_and_a_flow_at_a_fine_one(
    exponent: float, outcome: Outcome
) -> None:
    corners = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    noise = 0.001 * torch.randn(4, 100, 2, generator=torch.Generator().manual_seed(0))
    x, y = (corners[:, None] + noise).flatten(0, 1), torch.tensor([0, 0, 1, 1]).repeat_interleave(100)
    block = wm.ODEBlock(Fan(), wm.FixedStep("euler", step=10**exponent))
    model = nn.Sequential(block, separating_head(block, x, y))
    right = float((labelled_by_itself(model, x) == y).double().mean())
    assert (right == 1.0) is (outcome is Outcome.TIED)
    assert wm.audit(model, (x, y), evidence=outcome is Outcome.TIED).outcome is outcome


def separating_head(block: nn.Module, x: Tensor, y: Tensor) -> nn.Linear:
    """The best of many lines through the end points, in the scale that they have."""
    with torch.no_grad():
        ends = block(x).double()
    scale = ends.abs().max()
    angles = torch.linspace(0, 2 * pi, 2001, dtype=torch.float64)
    normals = torch.stack([angles.cos(), angles.sin()])
    along = ends @ normals
    highest, lowest = along[y == 0].amax(dim=0), along[y == 1].amin(dim=0)
    best = int((lowest - highest).argmax())
    head = nn.Linear(2, 2)
    with torch.no_grad():
        normal = (normals[:, best] / scale).float()
        head.weight.copy_(torch.stack([-normal, normal]))
        middle = float((lowest + highest)[best] / 2 / scale)
        head.bias.copy_(torch.tensor([middle, -middle]))
    return head


def test_a_bare_predict_gets_the_same_outcome_as_the_module() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=2)), right_of_zero())

    def predict(x: Tensor, solver: Any) -> np.ndarray[Any, Any]:
        with wm.using(model, solver), torch.no_grad():
            outputs: np.ndarray[Any, Any] = model(x).numpy()
        return outputs

    own = wm.FixedStep.of("euler", steps=2)
    bare = wm.audit(predict, (ring(), labelled_by_itself(model, ring())), trained_with=own)
    whole = rotation_verdict(2)
    assert (bare.outcome, bare.evidence) == (Outcome.TIED, ())
    assert gap_of(bare).value == pytest.approx(gap_of(whole).value, abs=1e-9)
    assert any("bare predict" in note for note in bare.notes)


def test_an_adaptive_model_is_audited_by_its_tolerances() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.Adaptive("dopri54", tolerance=1e-4)), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert verdict.outcome is Outcome.FLOW
    assert {line.method for line in verdict.table} == {"dopri54"}
    assert verdict.reference.order is None


class Rising(Rotation):
    """0 at first, so that adaptive steps begin with one of 1e-4."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return super().forward(t, z) * t**2


def test_one_short_step_among_long_ones_does_not_make_the_evidence_dear() -> None:
    model = nn.Sequential(wm.ODEBlock(Rising(3.0), wm.Adaptive("dopri54", tolerance=1e-4)), right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert verdict.plane is not None
    assert verdict.evaluations < 100


def test_several_blocks_are_swept_together_by_factors() -> None:
    blocks = [wm.ODEBlock(Rotation(w), wm.FixedStep.of("euler", steps=n)) for w, n in ((1.5, 1), (1.5, 2))]
    model = nn.Sequential(*blocks, right_of_zero())
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())))
    assert verdict.outcome is Outcome.TIED


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("times", [1, 3])
def test_no_step_longer_than_the_time_span_is_tried_or_called_safe(blocks: int, times: int) -> None:
    own = wm.FixedStep.of("euler", steps=4)
    several = [wm.ODEBlock(Rotation(1e-3), own) for _ in range(blocks)]
    model = nn.Sequential(*several * times, right_of_zero())  # a recurrent network calls a block again and again
    verdict = wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False)
    assert max(line.precision for line in verdict.table) == 1
    assert verdict.safe_step == 1


def test_a_regression_is_audited_with_its_own_metric() -> None:
    def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(dim=1)

    for steps, outcome in ((2, Outcome.TIED), (512, Outcome.FLOW)):
        block = wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=steps))
        with torch.no_grad():
            targets = block(ring())
        verdict = wm.audit(nn.Sequential(block), (ring(), targets), metric=squared_error, threshold=0.1)
        assert verdict.outcome is outcome
        assert verdict.metric == "squared_error"


def test_few_samples_near_the_threshold_leave_it_undecided_and_say_how_many_more() -> None:
    verdict = rotation_verdict(4, threshold=0.22, samples=30)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "more samples would settle it" in verdict.sentence


class Noisy(Rotation):
    """With noise that PyTorch does not know of."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return super().forward(t, z) + 0.1 * torch.as_tensor(np.random.default_rng().normal(size=z.shape)).to(z)


class BatchCentred(Rotation):
    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return super().forward(t, z - z.mean(dim=0))


class BatchNormalised(Rotation):
    """Batch statistics in eval mode too, which a single sample has none of."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        return super().forward(t, nn.functional.batch_norm(z, None, None, training=True))


@pytest.mark.parametrize(("field", "word"), [(Noisy, "noise"), (BatchCentred, "batch"), (BatchNormalised, "batch")])
def test_a_field_that_is_not_deterministic_is_named(field: type[Rotation], word: str) -> None:
    model = nn.Sequential(wm.ODEBlock(field(3.0), wm.FixedStep.of("euler", steps=8)), right_of_zero())
    torch.manual_seed(0)
    verdict = wm.audit(model, (ring() + 1, torch.zeros(400, dtype=torch.int64)))
    assert verdict.outcome is Outcome.UNDECIDED
    assert word in verdict.sentence


def test_dropout_and_training_mode_are_switched_off_and_restored() -> None:
    model = nn.Sequential(
        wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=256)), nn.Dropout(0.5), right_of_zero()
    )
    model.eval()
    labels = labelled_by_itself(model, ring())
    model.train()
    assert wm.audit(model, (ring(), labels)).outcome is Outcome.FLOW
    assert all(module.training for module in model.modules())


def test_batches_are_streamed_and_a_subsample_is_stated() -> None:
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=2)), right_of_zero())
    labels = labelled_by_itself(model, ring())
    batches = [(ring()[i : i + 64], labels[i : i + 64]) for i in range(0, 400, 64)]
    some, everything = (wm.audit(model, batches, samples=n, evidence=False) for n in (100, None))
    assert (some.samples, everything.samples) == (100, 400)
    assert "random subsample of 400" in some.population
    assert gap_of(everything).value == pytest.approx(gap_of(rotation_verdict(2)).value)


def test_what_cannot_be_audited_gets_a_sentence() -> None:
    with pytest.raises(AuditError, match="no solve was seen"):
        wm.audit(nn.Linear(2, 2), (ring(), torch.zeros(400)))
    weights: Any = nn.Linear(2, 2).state_dict()
    with pytest.raises(UsageError, match="called with a batch, which 'OrderedDict' cannot be: give the model itself"):
        wm.audit(weights, (ring(), torch.zeros(400)))
    with pytest.raises(UsageError, match="there are none"):
        wm.audit(nn.Linear(2, 2), [])
    with pytest.raises(UsageError, match="one score for each"):
        rotation_verdict(2, metric=lambda outputs, labels: outputs.mean(), threshold=0.1)


def test_a_verdict_survives_json_and_carries_what_evidence_proves() -> None:
    import json

    values = json.loads(json.dumps(rotation_verdict(2).to_dict(), allow_nan=False))
    assert values["outcome"] == "TIED"
    assert {"proves", "limits", "finding"} <= set(values["evidence"][0])
