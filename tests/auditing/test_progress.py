"""What an audit spends, and what it tells of that while it works."""

from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import windermere as wm
from tests.auditing.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring
from windermere.auditing import AuditProgress, Verdict


class Tally(nn.Module):
    """A field of tanh that counts the samples it is evaluated for, those of its copies too."""

    seen: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.Linear(2, 32)
        nn.init.normal_(layer.weight, std=2.0)
        self.net = nn.Sequential(layer, nn.Tanh(), nn.Linear(32, 2))

    def forward(self, t: Tensor, z: Tensor) -> Any:
        Tally.seen.append(len(z))
        return self.net(z)


def audited(field: nn.Module, solver: wm.FixedStep, **how: Any) -> Verdict:
    model = nn.Sequential(wm.ODEBlock(field, solver), right_of_zero())
    return wm.audit(model, (ring(), labelled_by_itself(model, ring())), **how)


@pytest.mark.parametrize(
    ("solver", "most"),
    [
        (wm.FixedStep.of("euler", steps=1), 100),
        (wm.FixedStep.of("euler", steps=2), 150),
        (wm.FixedStep.of("euler", steps=64), 64 * 62),
        (wm.FixedStep.of("rk4", steps=16), 64 * 40),
    ],
)
def test_an_audit_of_a_model_whose_own_error_is_large_takes_few_evaluations(solver: wm.FixedStep, most: int) -> None:
    field = Tally()
    labels = torch.zeros(400, dtype=torch.int64)
    model = nn.Sequential(wm.ODEBlock(field, solver), right_of_zero())
    Tally.seen.clear()
    verdict = wm.audit(model, (ring(), labels), evidence=False)
    spent = sum(Tally.seen) / 400
    assert verdict.reference.converged
    assert verdict.reference.error is not None
    assert verdict.own.error is not None
    assert verdict.reference.error <= verdict.own.error / 10
    assert spent <= most
    # Beside what it counts: the pass that shows which solves there are.
    assert spent - verdict.own.evaluations == pytest.approx(verdict.evaluations * verdict.own.evaluations, rel=0.02)


@pytest.mark.parametrize("steps", [2, 64])
def test_a_solve_that_reference_and_table_share_is_the_same_as_by_itself_but_for_rounding(steps: int) -> None:
    own = wm.FixedStep.of("euler", steps=steps)
    verdict = audited(Rotation(3.0), own)
    block = wm.ODEBlock(Rotation(3.0), own)
    with torch.no_grad(), wm.using(block, wm.FixedStep.of("rk4", steps=steps // 2)):
        ends = block(ring())
    (line,) = [line for line in verdict.table if line.method == "rk4" and line.precision == 2 / steps]
    head, labels = right_of_zero(), labelled_by_itself(nn.Sequential(block, right_of_zero()), ring())
    assert line.evaluations == 2 * steps
    assert line.metric == pytest.approx(float((head(ends).argmax(dim=1) == labels).double().mean()), abs=0.003)


def test_a_report_hears_of_every_phase_batch_and_solver_and_evaluations_only_grow() -> None:
    heard: list[AuditProgress] = []
    verdict = audited(Rotation(3.0), wm.FixedStep.of("euler", steps=2), report=heard.append)
    phases = list(dict.fromkeys(now.phase for now in heard))
    assert phases == ["own solver", "reference flow", "other solvers", "evidence"]
    assert {(now.batch, now.batches) for now in heard} == {(1, 1)}
    assert {line.solver for line in verdict.table} <= {now.solver for now in heard}
    assert all(a.evaluations <= b.evaluations for a, b in pairwise(heard))
    assert heard[-1].evaluations <= verdict.evaluations * verdict.own.evaluations


def test_streamed_batches_are_counted_from_one_and_their_number_is_not_known() -> None:
    heard: list[AuditProgress] = []
    model = nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("euler", steps=2)), right_of_zero())
    batches = ((part, labelled_by_itself(model, part)) for part in ring().chunk(4))
    wm.audit(model, batches, samples=None, evidence=False, report=heard.append)
    assert sorted({now.batch for now in heard}) == [1, 2, 3, 4]
    assert {now.batches for now in heard} == {None}


@pytest.mark.parametrize("phase", ["own solver", "reference flow", "other solvers", "evidence"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_a_report_may_end_an_audit_as_ctrl_c_does(kind: type[BaseException], phase: str) -> None:
    def interrupt(now: AuditProgress) -> None:
        if now.phase == phase and (phase == "evidence" or now.solver is not None or phase == "own solver"):
            raise kind

    with pytest.raises(kind):
        audited(Rotation(3.0), wm.FixedStep.of("euler", steps=2), report=interrupt)


def test_what_a_report_raises_keeps_its_cause() -> None:
    def interrupt(now: AuditProgress) -> None:
        raise TimeoutError from OSError("the disk")

    with pytest.raises(TimeoutError) as raised:
        audited(Rotation(3.0), wm.FixedStep.of("euler", steps=2), report=interrupt)
    assert isinstance(raised.value.__cause__, OSError)
