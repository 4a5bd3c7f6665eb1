"""Which models an audit takes, and which are refused in a sentence."""

from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.rotations import rotating
from tests.auditing.test_known_cases import Rotation, ring
from windermere.auditing import Outcome
from windermere.errors import AuditError

OWN = wm.FixedStep.of("euler", steps=4)


class Breathing(nn.Module):
    """Its rate is the same at both ends and in the middle of (0, 1)."""

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z * torch.sin(2 * torch.pi * t)


def test_a_field_with_a_period_of_half_the_span_is_not_taken_for_autonomous() -> None:
    x, y = ring(20), torch.arange(20) % 2
    model = nn.Sequential(wm.ODEBlock(Breathing(), wm.FixedStep.of("euler", steps=4)), nn.Linear(2, 2))
    (crossings,) = (e for e in wm.audit(model, (x, y)).evidence if e.name == "crossings")
    assert "depends on t" in crossings.finding


def test_an_output_that_is_not_each_samples_is_refused_by_its_shape() -> None:
    class Halved(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z[: len(z) // 2]

    words = r"outputs of shape \(8, 2\) for 16 samples and \(4, 2\) for 8: wrap it .* batch_axis="
    with pytest.raises(AuditError, match=words):
        wm.audit(rotating(Halved()), (ring(20), torch.arange(20) % 2))


@pytest.mark.parametrize(("outputs", "words"), [(None, r"shape \(\) for 16"), ({}, "a dict that is no array")])
def test_a_predict_that_returns_no_outputs_is_refused(outputs: Any, words: str) -> None:
    with pytest.raises(AuditError, match=words):
        wm.audit(lambda x, solver: outputs, (ring(20), torch.arange(20) % 2), trained_with=OWN)


def test_a_predict_that_passes_its_solver_over_is_no_flow() -> None:
    verdict = wm.audit(lambda x, solver: x, (ring(), torch.zeros(400)), trained_with=OWN)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "the same outputs whatever the solver" in verdict.sentence


def _by_hand(x: torch.Tensor, method: str, steps: int) -> torch.Tensor:
    """A turn by 3, whose evaluations nobody counts: of a linear field a step is the beginning of its series."""
    turn, order = torch.tensor([[0.0, 3.0], [-3.0, 0.0]]) / steps, {"euler": 1, "midpoint": 2, "rk4": 4}[method]
    for _ in range(steps):
        term, total = x, x
        for k in range(1, order + 1):
            term = term @ turn / k
            total = total + term
        x = total
    return x


@pytest.mark.parametrize("counted", [True, False])
def test_a_predict_that_hears_the_method_alone_is_no_flow(counted: bool) -> None:
    """With 2 steps rk4 is far from the flow, and so are all its refinements: they agree since they are the same."""

    def predict(x: torch.Tensor, solver: Any) -> Any:
        if counted:
            return wm.solve(Rotation(3.0), x, wm.FixedStep.of(solver.method, steps=2)).final
        return _by_hand(x, solver.method, 2)

    verdict = wm.audit(predict, (ring(), torch.zeros(400)), trained_with=wm.FixedStep("euler", step=1 / 2))
    assert verdict.outcome is Outcome.UNDECIDED
    assert counted or "the same outputs whatever the solver's step" in verdict.sentence


def test_a_predict_by_hand_that_hears_both_is_audited() -> None:
    def predict(x: torch.Tensor, solver: Any) -> torch.Tensor:
        return _by_hand(x, solver.method, max(1, round(1 / solver.step)))

    verdict = wm.audit(predict, (ring(), torch.zeros(400)), trained_with=wm.FixedStep("euler", step=1 / 2))
    assert verdict.outcome is not Outcome.UNDECIDED
    assert verdict.reference.converged


class Conditioned(nn.Module):
    """The field is told each sample's own input, as models with a context do it."""

    def __init__(self) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Scaled(), wm.FixedStep.of("euler", steps=4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.block.field.context = x[:, :1]
        return self.block(x)


class Scaled(nn.Module):
    context: torch.Tensor

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z * self.context


def test_a_field_that_holds_a_context_for_each_sample_is_audited_without_evidence() -> None:
    verdict = wm.audit(Conditioned(), (ring(), torch.zeros(400)))
    assert verdict.outcome is Outcome.FLOW
    assert verdict.evidence == ()


class OnAGraph(nn.Module):
    """Nodes that look at their neighbours: one sample each, and none alone."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.neighbours = torch.eye(nodes).roll(1, dims=0)

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if len(z) < len(self.neighbours):
            raise ValueError
        return self.neighbours.to(z) @ z


def test_samples_that_are_only_to_be_had_together_are_refused() -> None:
    with pytest.raises(AuditError, match=r"takes 20 samples together, but not 16 or 8 of them.* depend on each other"):
        wm.audit(nn.Sequential(wm.ODEBlock(OnAGraph(20), OWN)), (ring(20), torch.arange(20) % 2))


def test_an_audit_in_inference_mode_is_the_same() -> None:
    model, batch = rotating(), (ring(20), torch.arange(20) % 2)
    with torch.inference_mode():
        verdict = wm.audit(model, batch)
    assert verdict.to_dict() == wm.audit(model, batch).to_dict()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nobody_wants_gradients_predict_is_asked_for_none(mode: Any) -> None:
    network = nn.Linear(2, 2)

    def predict(x: torch.Tensor, solver: Any) -> Any:
        assert not torch.is_grad_enabled()
        return wm.solve(lambda t, z: network(z), x, solver).final

    with mode():
        assert wm.audit(predict, (2 * ring(20), torch.zeros(20)), trained_with=OWN).samples == 20


def test_complex_outputs_are_refused_and_their_real_parts_not_taken_for_them() -> None:
    class Turned(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return torch.view_as_complex(z)[:, None]

    with pytest.raises(AuditError, match=r"complex .* by torch\.view_as_real"):
        wm.audit(rotating(Turned()), ring(20))


def test_what_is_audited_of_several_outputs_is_told_by_its_key() -> None:
    class Named(nn.Module):
        def forward(self, z: torch.Tensor) -> dict[str, Any]:
            return {"loss": None, "logits": z}

    verdict = wm.audit(rotating(Named()), (ring(20), torch.arange(20) % 2), evidence=False)
    assert "of the dict it returns, its entry 'logits' alone is audited" in verdict.notes


class Turning(nn.Module):
    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return 3.0 * torch.stack([-z[:, 1], z[:, 0]], dim=1)


def test_a_scripted_field_is_audited_as_the_one_that_it_was() -> None:
    scripted, plain = (wm.ODEBlock(field, OWN) for field in (torch.jit.script(Turning()), Turning()))
    found, wanted = (wm.audit(block, (ring(20), torch.arange(20) % 2)) for block in (scripted, plain))
    assert (found.outcome, found.gap, found.notes) == (wanted.outcome, wanted.gap, wanted.notes)


def test_a_loop_may_call_a_scripted_velocity() -> None:
    def loop(velocity: Any, z: torch.Tensor, steps: int) -> torch.Tensor:
        for k in range(steps):
            z = z + velocity(torch.tensor(k / steps), z) / steps
        return z

    found, wanted = (
        wm.audit_loop(loop, field, ring(20), steps=4) for field in (torch.jit.script(Turning()), Turning())
    )
    assert str(found) == str(wanted)


class Resting(nn.Module):
    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return 0 * z


class SideBySide(nn.Module):
    """The solve that ends last shows nothing of the other's error."""

    def __init__(self) -> None:
        super().__init__()
        self.turning = wm.ODEBlock(Turning(), wm.FixedStep.of("rk4", steps=16))
        self.resting = wm.ODEBlock(Resting(), wm.FixedStep.of("midpoint", steps=16))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        turned: torch.Tensor = self.turning(z)
        return turned + 0.1 * self.resting(z)


class SideBySideElsewhere(nn.Module):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        t = torch.tensor([0.0, 1.0], dtype=z.dtype)
        turned: torch.Tensor = wm.odeint(Turning(), z, t, method="rk4", options={"step_size": 1 / 16})[-1]
        return turned + 0.1 * wm.odeint(Resting(), z, t, method="midpoint", options={"step_size": 1 / 16})[-1]


@pytest.mark.parametrize("model", [SideBySide(), SideBySideElsewhere()])
def test_a_solver_is_as_accurate_as_the_own_one_where_all_solves_are(model: nn.Module) -> None:
    coarse = [wm.Candidate("euler", 8.0)]
    x = ring()
    verdict = wm.audit(model, (x, model(x).argmax(dim=1)), candidates=coarse, evidence=False)
    assert verdict.outcome is Outcome.FLOW
    assert not any(line.counts for line in verdict.table if line.method == "euler")
    assert any("its solves have several methods" in note for note in verdict.notes)


class Choosing(nn.Module):
    """Solves with another solver than its block was made with, chosen in its forward pass."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.block = way, wm.ODEBlock(Rotation(3.0), wm.FixedStep("rk4", step=1 / 32))

    def forward(self, x: torch.Tensor) -> Any:
        chosen = wm.FixedStep("euler", step=1 / 2)
        if self.way == "assigned":
            self.block.solver = chosen
            return self.block(x)
        relative = self.way == "by a factor"
        with wm.using(self.block, (lambda own: own.with_precision(16 * own.precision)) if relative else chosen):
            return self.block(x)


@pytest.mark.parametrize("way", ["using", "by a factor", "assigned"])
def test_a_model_that_chooses_its_solver_on_the_way_is_judged_by_that_one(way: str) -> None:
    method = "rk4" if way == "by a factor" else "euler"
    plain = wm.ODEBlock(Rotation(3.0), wm.FixedStep(method, step=1 / 2))
    chosen, same = (wm.audit(model, ring(), evidence=False) for model in (Choosing(way), plain))
    assert chosen.own == same.own
    assert chosen.table == same.table
    assert chosen.safe == same.safe


class Twice(nn.Module):
    """Solves with one block twice, the first time with smaller steps."""

    def __init__(self) -> None:
        super().__init__()
        self.block = wm.ODEBlock(Rotation(3.0), wm.FixedStep("euler", step=1 / 2))

    def forward(self, x: torch.Tensor) -> Any:
        with wm.using(self.block, wm.FixedStep("euler", step=1 / 64)):
            first = self.block(x)
        return self.block(first)


def test_a_block_that_is_called_with_two_solvers_is_told_by_the_finer_one() -> None:
    assert wm.audit(Twice(), ring(), evidence=False).own.solver == "euler, h = 1/64"


class ByBatch(Choosing):
    def forward(self, x: torch.Tensor) -> Any:
        with wm.using(self.block, wm.FixedStep("euler", step=1 / 8 if len(x) > 20 else 1 / 2)):
            return self.block(x)


def test_a_model_whose_solver_depends_on_the_batch_is_refused() -> None:
    batches = [(x, (x[:, 0] > 0).long()) for x in (ring(30), ring(15))]
    with pytest.raises(AuditError, match=r"one batch with euler, h = .* another with euler, h = .*: audit it with one"):
        wm.audit(ByBatch("batch"), batches, evidence=False)
