"""Distances to decision boundaries, against brute force."""

from math import inf

import pytest
import torch
from torch import Tensor, nn

from tests.torches import weight_norm
from windermere.auditing.evidence.margins import Margins, linear_head, margins
from windermere.errors import UsageError

DOUBLE = torch.float64


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def linear(into: int, out: int, seed: int = 1, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(into, out, bias=bias, dtype=DOUBLE)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(points(*p.shape, seed=seed))
    return layer


def measured(head: nn.Module, states: Tensor, error: float = 0.0, reference: float = 0.0) -> Margins:
    return margins(head, states, states.new_full(states.shape[:1], error), states.new_full(states.shape[:1], reference))


def decide(head: nn.Module, z: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = head(z)
    return logits.argmax(dim=1) if logits.shape[1] > 1 else (logits[:, 0] > 0).long()


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_nothing_below_the_margin_changes_a_decision_and_the_worst_step_just_above_does(classes: int) -> None:
    head, z = linear(4, classes), points(6, 4)
    found = measured(head, z)
    assert found.exact
    directions = nn.functional.normalize(points(500, 4, seed=3), dim=1)
    weight = head.weight.detach()
    normals = weight if classes == 1 else torch.cat([a - weight for a in weight])
    worst = nn.functional.normalize(torch.cat([normals, -normals]), dim=1)
    for state, margin, decision in zip(z, found.margin, decide(head, z), strict=True):
        below = state + (1 - 1e-9) * margin * torch.cat([directions, worst])
        assert (decide(head, below) == decision).all()
        assert (decide(head, state + (1 + 1e-9) * margin * worst) != decision).any()


def test_the_margin_is_the_distance_along_the_normal() -> None:
    head = linear(3, 2)
    normal = head.weight.detach()[0] - head.weight.detach()[1]
    on = points(1, 3)[0]
    gap = head(on)[0] - head(on)[1]
    on = (on - gap * normal / normal.square().sum()).detach()
    moved = torch.stack([on + s * normal / normal.norm() for s in (-2.0, 0.5, 3.0)])
    torch.testing.assert_close(measured(head, moved).margin, torch.tensor([2.0, 0.5, 3.0], dtype=DOUBLE))


def test_a_decision_is_safe_where_the_margin_exceeds_both_errors_together() -> None:
    head = nn.Linear(1, 1, bias=False, dtype=DOUBLE)
    nn.init.constant_(head.weight, -2.0)
    z = torch.tensor([[0.5], [-1.0], [2.0], [3.0], [4.0]], dtype=DOUBLE)
    error = torch.tensor([0.25, 0.25, 1.0, inf, torch.nan], dtype=DOUBLE)
    reference = torch.tensor([0.25, 0.5, 0.5, 0.0, 0.0], dtype=DOUBLE)
    found = margins(head, z, error, reference)
    assert found.safe == pytest.approx(2 / 5), "0.5 against 0.5 is not safe, nor is an error that is not finite"
    assert found.median_margin == 2.0


@pytest.mark.parametrize("wrapped", ["alone", "flattened", "probabilities", "logs", "nested", "weight norm"])
def test_linear_heads_are_found_however_they_are_wrapped(wrapped: str) -> None:
    layer = linear(8, 3)
    head = {
        "alone": layer,
        "flattened": nn.Sequential(nn.Flatten(), layer),
        "probabilities": nn.Sequential(nn.Identity(), layer, nn.Softmax(dim=1)),
        "logs": nn.Sequential(nn.Flatten(), layer, nn.LogSoftmax(dim=-1), nn.Identity()),
        "nested": nn.Sequential(nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), nn.Sequential(layer)).eval(),
        "weight norm": nn.Sequential(nn.Flatten(), weight_norm(linear(8, 3))),
    }[wrapped]
    found = linear_head(head)
    assert found is not None
    torch.testing.assert_close(found.weight, layer.weight.detach())
    torch.testing.assert_close(found.bias, layer.bias.detach())
    assert not found.weight.requires_grad
    states = points(5, 8) if wrapped == "alone" else points(5, 2, 4)
    assert measured(head, states).exact


def test_a_single_logit_through_a_sigmoid_is_decided_where_the_logit_is_zero() -> None:
    layer, z = linear(4, 1), points(5, 4)
    through = measured(nn.Sequential(layer, nn.Sigmoid()), z)
    assert through.exact
    torch.testing.assert_close(through.margin, layer(z)[:, 0].abs().detach() / layer.weight.detach().norm())
    without = linear_head(linear(4, 1, bias=False))
    assert without is not None
    assert without.bias.tolist() == [0.0]


class Doubling(nn.Linear):
    """Calls itself linear and is not the one we know."""

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z) ** 2


@pytest.mark.parametrize(
    "head",
    [
        nn.Identity(),
        nn.Sequential(),
        Doubling(4, 3),
        nn.Sequential(linear(4, 4), nn.ReLU(), linear(4, 3)),
        nn.Sequential(nn.Softmax(dim=1), linear(4, 3)),
        nn.Sequential(nn.Softmax(dim=0)),
        nn.Sequential(linear(4, 3), nn.Softmax(dim=0)),
        nn.Sequential(nn.Dropout(0.5), linear(4, 3)),
    ],
)
def test_what_is_not_known_to_be_linear_is_not_called_so(head: nn.Module) -> None:
    assert linear_head(head) is None


def test_other_heads_get_an_estimate_and_say_so() -> None:
    found = measured(nn.Sequential(linear(4, 8), nn.Tanh(), linear(8, 3)), points(5, 4))
    assert not found.exact
    assert found.proves.startswith("Nothing")
    assert found.margin.isfinite().all()
    assert not found.margin.requires_grad


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_the_estimate_of_a_head_that_is_linear_in_disguise_is_the_distance(classes: int) -> None:
    layer, z = linear(6, classes), points(300, 6)
    disguised = nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(), layer)
    found, expected = measured(disguised, z), measured(layer, z)
    assert (found.exact, expected.exact) == (False, True)
    torch.testing.assert_close(found.margin, expected.margin)
    squashed = measured(nn.Sequential(disguised, nn.Sigmoid() if classes == 1 else nn.Softmax(dim=1)), z)
    torch.testing.assert_close(squashed.margin, expected.margin)


def test_the_estimate_tends_to_the_distance_near_the_boundary() -> None:
    """The decision is whether |z| exceeds 1, a circle: the distance is | |z| - 1 |."""

    class Circle(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return z.square().sum(dim=1) - 1

    radii = torch.tensor([0.9, 0.99, 0.999, 1.001, 1.01], dtype=DOUBLE)
    found = measured(Circle(), radii[:, None] * nn.functional.normalize(points(5, 2), dim=1))
    relative = (found.margin / (radii - 1).abs() - 1).abs()
    assert (relative < (radii - 1).abs()).all()


def test_classes_that_cannot_overtake_are_no_boundary_and_ties_have_no_margin() -> None:
    head = nn.Linear(2, 2, dtype=DOUBLE)
    with torch.no_grad():
        head.weight.fill_(1.0)
        head.bias.copy_(torch.tensor([1.0, 0.0]))
    assert measured(head, points(3, 2)).margin.tolist() == [inf] * 3
    assert measured(nn.Sequential(nn.ReLU(), head), points(3, 2)).margin.tolist() == [inf] * 3
    nn.init.zeros_(head.bias)
    assert measured(head, points(3, 2)).margin.tolist() == [0.0] * 3


def test_nobody_elses_gradients_are_touched_and_any_grad_mode_will_do() -> None:
    head, z = nn.Sequential(linear(4, 8), nn.Tanh(), linear(8, 3)), points(5, 4)
    plain = measured(head, z).margin
    assert all(p.grad is None for p in head.parameters())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(measured(head, points(5, 4)).margin, plain)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="1 of 2 reference states are not finite"):
        measured(linear(2, 2), torch.tensor([[0.0, 1.0], [torch.nan, 0.0]], dtype=DOUBLE))
    with pytest.raises(UsageError, match=r"\[samples, classes\]"):
        measured(linear(4, 3), points(5, 2, 4))


def test_what_it_proves_and_does_not_is_said() -> None:
    found = measured(linear(2, 2), points(3, 2))
    assert "no solver at least as accurate" in found.proves
    assert "estimate" in found.limits
