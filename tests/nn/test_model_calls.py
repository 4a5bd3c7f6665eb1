"""Modules with ODEBlocks are called as they are written: with several inputs, several outputs, several times."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_known_cases import Rotation, gap_of, labelled_by_itself, right_of_zero, ring, rotation_verdict
from windermere.errors import AuditError, UsageError

TWO = wm.FixedStep.of("euler", steps=2)


class Rotating(nn.Module):
    """A rotation and a head, for subclasses to call."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = wm.ODEBlock(Rotation(3.0), TWO), right_of_zero()

    def forward(self, x: Tensor) -> Any:
        return self.head(self.block(x))


class Shifted(Rotating):
    def forward(self, x: Tensor, shift: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x + shift)


class FromOne(Rotating):
    def forward(self, given: dict[str, Tensor]) -> Any:  # type: ignore[override]
        return super().forward(given["x"] + given["shift"])


class FromWithin(Rotating):
    def forward(self, given: dict[str, dict[str, Tensor]]) -> Any:  # type: ignore[override]
        return super().forward(given["all"]["x"])


class WithExtra(Rotating):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), {"moved": x}


class ByName(Rotating):
    def forward(self, x: Tensor) -> Any:
        return self.head(self.block(z=x))


def labels() -> Tensor:
    return labelled_by_itself(Rotating(), ring())


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Shifted, (ring() - 1, torch.ones(400, 2))),
        (Shifted, {"shift": torch.ones(400, 2), "x": ring() - 1}),
        (FromOne, {"shift": torch.ones(400, 2), "x": ring() - 1}),
        (FromWithin, {"given": {"all": {"x": ring()}}}),
        (WithExtra, ring()),
        (ByName, ring()),
    ],
)
def test_a_model_of_any_signature_gets_the_verdict_of_the_plain_one_in_float64(model: Any, inputs: Any) -> None:
    verdict, plain = wm.audit(model(), (inputs, labels())), rotation_verdict(2)
    assert gap_of(verdict).value == pytest.approx(gap_of(plain).value, abs=0.01)
    assert verdict.reference.dtype == "float64"
    assert {e.name for e in verdict.evidence} >= {"crossings", "orientation"}  # it sees the states
    assert verdict.notes == (("of the tuple it returns, its entry 0 alone is audited",) if model is WithExtra else ())


def test_a_state_of_two_parts_is_one_input_of_a_sequence() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rotation = Rotation(3.0)

        def forward(self, t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return self.rotation(t, z[0]), torch.ones_like(z[1])

    model = nn.Sequential(wm.ODEBlock(Pair(), TWO))
    first = nn.Sequential(wm.ODEBlock(Rotation(3.0), TWO))
    start = (ring(), torch.zeros(400, 1))
    verdict, alone = (wm.audit(m, (x, labelled_by_itself(first, ring()))) for m, x in ((model, start), (first, ring())))
    assert verdict.gap == alone.gap


def far(outputs: Tensor, targets: Tensor) -> Any:
    return (outputs - targets).flatten(1).norm(dim=1)


def test_outputs_at_several_times_come_sample_by_sample() -> None:
    block = wm.ODEBlock(Rotation(3.0), TWO, times=(0.0, 0.5, 1.0))
    with torch.no_grad():
        targets = block(ring()).movedim(1, 0)
    verdict = wm.audit(nn.Sequential(block), (ring(), targets), metric=far, threshold=0.1)
    assert verdict.own.metric == 0
    assert verdict.samples == 400
    with pytest.raises(UsageError, match=r"one row of outputs for each sample, .* have shape \(3, 2\)"):
        wm.audit(nn.Sequential(block), (ring(), labels()))


class BesideTorchdiffeq(Rotating):
    def forward(self, x: Tensor) -> Any:
        times = torch.tensor([0.0, 1.0]).type_as(x)
        return self.head(odeint(self.block.field, self.block(x), times, method="euler")[-1])


class BesideSolve(Rotating):
    def forward(self, x: Tensor) -> Any:
        return self.head(wm.solve(self.block.field, self.block(x), TWO).final)


class OnlySolve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = Rotation(3.0)

    def forward(self, x: Tensor) -> Any:
        return wm.solve(self.field, x, TWO).final


class Idle(Rotating):
    def forward(self, x: Tensor) -> Any:
        return self.head(x)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BesideTorchdiffeq, "besides its ODEBlocks this BesideTorchdiffeq solves with torchdiffeq"),
        (BesideSolve, r"besides its ODEBlocks this BesideSolve solves with windermere\.solve"),
        (OnlySolve, r"calls windermere\.solve, .* windermere\.ODEBlock"),
        (Idle, "called none of them"),
    ],
)
def test_a_solve_that_the_audit_could_not_change_is_refused(model: Any, words: str) -> None:
    with pytest.raises(AuditError, match=words):
        wm.audit(model(), (ring(), labels()))


def test_a_block_inside_the_field_of_another_is_no_solve_beside_blocks() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = wm.ODEBlock(Rotation(0.1), TWO)

        def forward(self, t: Tensor, z: Tensor) -> Any:
            return self.inner(z) - z

    model = nn.Sequential(wm.ODEBlock(Nested(), TWO), right_of_zero())
    assert wm.audit(model, (ring(), labelled_by_itself(model, ring())), evidence=False).samples == 400


class WithTorchdiffeq(nn.Module):
    """Its grid of steps reads the times, of which there are none on meta."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        how: dict[str, Any] = {"method": "euler", "options": {"step_size": 0.5}}
        return odeint(lambda t, z: self.field(z), x, torch.tensor([0.0, 1.0]), **how)[-1]


@pytest.mark.parametrize("made", [Rotating, WithTorchdiffeq])
def test_a_model_whose_weights_have_no_values_is_told_so(made: Any) -> None:
    with pytest.raises(AuditError, match=r"weights of this .* are on the device 'meta'"):
        wm.audit(made().to("meta"), ring())


class Writing(Rotating):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x.mul_(1.5).add_(0.1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_that_writes_to_its_inputs_meets_them_as_they_were_in_each_pass(dtype: torch.dtype) -> None:
    """Else the second pass would give other outputs than the first, and the caller's data would be spoilt."""
    x, model = ring().to(dtype), Writing()

    def predict(x: Tensor, solver: Any) -> Any:
        return wm.solve(lambda t, z: 3 * torch.stack([-z[:, 1], z[:, 0]], dim=1), x.mul_(1.5), solver).final

    audits = [wm.audit(model, x), wm.audit(model, x.numpy()), wm.audit(predict, x, trained_with=TWO)]
    assert [verdict.outcome for verdict in audits] == ["MOVED"] * 3
    assert torch.equal(x, ring().to(dtype))
