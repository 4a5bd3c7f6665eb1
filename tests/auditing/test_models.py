"""Which models an audit takes, and which are refused in a sentence."""

from typing import Any

import pytest
import torch
from torch import nn

import windermere as wm
from tests.auditing.rotations import rotating
from tests.auditing.test_known_cases import ring
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
