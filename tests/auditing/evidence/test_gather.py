"""Which evidence an audit gathers, of which models, and at what price."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import windermere as wm
from tests.auditing.test_known_cases import Rotation, labelled_by_itself, right_of_zero, ring
from windermere.auditing import Verdict


class Oscillator(Rotation):
    def energy(self, z: Tensor) -> Tensor:
        return z.square().sum(dim=1)


class WithTorchdiffeq(nn.Module):
    def __init__(self, field: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.field, self.head = field, head

    def forward(self, x: Tensor) -> Any:
        times = x.new_tensor([0.0, 1.0])
        return self.head(odeint(self.field, x, times, method="euler", options={"step_size": 1 / 8})[-1])


def audited(model: nn.Module) -> Verdict:
    x = ring() * torch.linspace(1, 2, 400)[:, None]
    return wm.audit(model, (x, labelled_by_itself(model, x)))


def pieces(verdict: Verdict) -> dict[str, wm.Evidence]:
    return {piece.name: piece for piece in verdict.evidence}


@pytest.mark.parametrize("library", ["windermere", "torchdiffeq"])
def test_a_rotation_shows_its_slope_its_term_its_return_and_its_energy(library: str) -> None:
    field, head, euler = Oscillator(3.0), right_of_zero(), wm.FixedStep.of("euler", steps=8)
    block = nn.Sequential(wm.ODEBlock(field, euler), head)
    found = pieces(audited(block if library == "windermere" else WithTorchdiffeq(field, head)))
    turned = 3 / 8
    assert found["modified equation"].numbers["largest"] == pytest.approx(turned / 2, rel=1e-5)
    # There and back, a step multiplies the length by 1 + turned^2.
    assert found["there and back"].numbers["median"] > 1
    assert found["convergence"].numbers["slopes"] == pytest.approx([1.4, 1.2], abs=0.3)
    assert found["energy"].numbers["own"] > 1
    assert found["energy"].numbers["flow"] == pytest.approx(0, abs=1e-3)


def test_evidence_survives_json_and_says_what_it_proves_and_what_not() -> None:
    verdict = audited(nn.Sequential(wm.ODEBlock(Rotation(3.0), wm.FixedStep.of("midpoint", steps=4)), right_of_zero()))
    assert set(pieces(verdict)) >= {"modified equation", "convergence", "there and back"}
    assert "energy" not in pieces(verdict)
    kept = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))["evidence"]
    assert all(piece["proves"] and piece["limits"] and piece["numbers"] for piece in kept)


def test_behind_another_solve_there_is_no_slope_since_the_flow_starts_elsewhere() -> None:
    euler = wm.FixedStep.of("euler", steps=8)
    model = nn.Sequential(wm.ODEBlock(Rotation(1.0), euler), wm.ODEBlock(Oscillator(1.0), euler), right_of_zero())
    found = pieces(audited(model))
    assert "convergence" not in found
    assert found["energy"].numbers["flow"] is None


def test_states_of_many_entries_are_walked_for_a_few_points_only() -> None:
    """So that evidence costs a small share of the audit."""
    torch.manual_seed(0)
    field = wm.Autonomous(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)))
    model = nn.Sequential(wm.ODEBlock(field, wm.FixedStep.of("euler", steps=16)), nn.Linear(8, 2))
    x = torch.randn(400, 8)
    with_it, without = (wm.audit(model, (x, labelled_by_itself(model, x)), evidence=e) for e in (True, False))
    assert set(pieces(with_it)) >= {"modified equation", "convergence", "there and back"}
    assert without.evaluations < with_it.evaluations < 1.05 * without.evaluations


class InItsOwnClass(nn.Sequential):
    """As many write a model; a slice of it would be made by this constructor."""

    def __init__(self, block: nn.Module, head: nn.Module) -> None:
        super().__init__(block, head)


class Turned(InItsOwnClass):
    def forward(self, x: Tensor) -> Any:
        return -super().forward(x)  # type: ignore[no-untyped-call]


def test_layers_behind_a_solve_are_its_head_only_where_they_are_all_that_happens() -> None:
    block, head = wm.ODEBlock(Rotation(0.3), wm.FixedStep.of("midpoint", steps=8)), right_of_zero()
    plain, own, turned = (audited(kind(block, head)) for kind in (nn.Sequential, InItsOwnClass, Turned))
    assert plain.plane is not None
    assert plain.plane.decide is not None
    assert pieces(own) == pieces(plain)
    assert turned.plane is not None
    assert turned.plane.decide is None
    assert "margins" not in pieces(turned)


class Second(nn.Sequential):
    """Its head returns more than the outputs."""

    def forward(self, x: Tensor) -> Any:
        return self[1](self[0](x))[0]


class Paired(nn.Module):
    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, z: Tensor) -> Any:
        return self.head(z), z


def test_layers_that_return_more_than_the_outputs_are_no_head_and_the_verdict_stands() -> None:
    block = wm.ODEBlock(Rotation(0.3), wm.FixedStep.of("midpoint", steps=8))
    verdict = audited(Second(block, Paired(right_of_zero())))
    assert verdict.outcome == "FLOW"
    assert "margins" not in pieces(verdict)


def test_behind_the_second_of_two_solves_by_one_block_is_what_comes_after_both() -> None:
    block, head = wm.ODEBlock(Rotation(0.3), wm.FixedStep.of("midpoint", steps=8)), right_of_zero()
    found = pieces(audited(nn.Sequential(block, nn.Identity(), block, head)))
    assert found["margins"].numbers["exact"]


class Moody(Rotation):
    """It cannot be differentiated, and says so in its own way."""

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        if z.requires_grad:
            raise KeyError("no derivatives")
        return super().forward(t, z)


def test_what_a_field_raises_where_evidence_asks_it_more_is_told_and_the_verdict_stands() -> None:
    verdict = audited(nn.Sequential(wm.ODEBlock(Moody(0.3), wm.FixedStep.of("midpoint", steps=8)), right_of_zero()))
    assert verdict.outcome == "FLOW"
    assert pieces(verdict)["h L"].finding == "not available: KeyError: 'no derivatives'"
