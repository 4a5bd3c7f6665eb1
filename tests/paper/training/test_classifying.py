"""Gradients of the losses without autograd's tape: by PyTorch's operations the same bits as with it, in C the same but
for roundings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from windermere.nn import Autonomous, ODEBlock
from windermere.paper.architectures import SphereField, initialise
from windermere.paper.training import Ensemble, classifying
from windermere.paper.training.classifying import classify_and_differentiate
from windermere.paper.training.evaluation import member_losses
from windermere.solvers import Adaptive, FixedStep, Gradient, Solver, counting

EULER, DOPRI54 = FixedStep("euler", step=1 / 3), Adaptive("dopri54", tolerance=1e-3)


@pytest.fixture
def by_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """No classifier is taken by the C code; solves are."""
    monkeypatch.setattr(classifying, "classify_in_c", lambda *_: None)


def sphere(solver: Solver, gradient: Gradient = "backprop", points: int = 2, classes: int = 2) -> nn.Sequential:
    return nn.Sequential(
        ODEBlock(SphereField(points), solver, gradient=gradient), nn.Flatten(), nn.Linear(points, classes)
    )


def plain(solver: Solver) -> nn.Sequential:
    """A field that is evaluated by PyTorch, and states that are images."""
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 1))
    return nn.Sequential(ODEBlock(Autonomous(network), solver), nn.Flatten(), nn.Linear(12, 10))


def lifted(solver: Solver) -> nn.Sequential:
    """Whose states need a gradient."""
    return nn.Sequential(nn.Linear(3, 2), ODEBlock(SphereField(2), solver), nn.Linear(2, 3))


def convolved(solver: Solver) -> nn.Sequential:
    """Whose last layer is not a linear one."""
    return nn.Sequential(ODEBlock(SphereField(2), solver), nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 2, 2), nn.Flatten())


def both(
    make: Callable[[], nn.Sequential], members: int, shape: tuple[int, ...], dtype: torch.dtype, solver: Solver
) -> tuple[list[Tensor], list[Tensor]]:
    """Losses, logits and gradients, without a tape and with one."""
    found = []
    for way in ("by hand", "by autograd"):
        ensemble = Ensemble([initialise(make(), seed).to(dtype) for seed in range(members)])
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(members, *shape, generator=generator, dtype=dtype)
        classes = int(ensemble(x, [solver] * members).shape[-1])
        labels = torch.randint(classes, (members, shape[0]), generator=generator)
        if way == "by hand":
            losses, logits, _ = classify_and_differentiate(ensemble, ensemble.features(x, [solver] * members), labels)
        else:
            logits = ensemble(x, [solver] * members)
            losses = member_losses(logits, labels)
            losses.sum().backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in ensemble.parameters() if p.grad is not None]
        assert len(gradients) == len(ensemble.parameters())
        assert all(g.stride() == p.stride() for g, p in zip(gradients, ensemble.parameters(), strict=True))
        found.append([losses.detach(), logits.detach(), *gradients])
    return found[0], found[1]


@pytest.mark.usefixtures("by_operations")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("samples", [1, 37, 128])
@pytest.mark.parametrize("members", [1, 3])
def test_the_paper_s_classifier(members: int, samples: int, dtype: torch.dtype) -> None:
    one, other = both(lambda: sphere(EULER), members, (samples, 2), dtype, EULER)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


OTHERS = pytest.mark.parametrize(
    ("make", "shape", "solver"),
    [
        (lambda: sphere(EULER, points=3, classes=10), (20, 3), EULER),
        (lambda: sphere(DOPRI54), (20, 2), DOPRI54),
        (lambda: sphere(EULER, "checkpoint"), (20, 2), EULER),
        (lambda: sphere(DOPRI54, "adjoint"), (20, 2), DOPRI54),
        (lambda: plain(EULER), (5, 1, 3, 4), EULER),
        (lambda: lifted(EULER), (20, 3), EULER),
        (lambda: convolved(EULER), (20, 2), EULER),
    ],
    ids=["more classes", "adaptive", "checkpoint", "adjoint", "any field", "layers before", "another last layer"],
)


@pytest.mark.usefixtures("by_operations")
@OTHERS
def test_any_other_model(make: Callable[[], nn.Sequential], shape: tuple[int, ...], solver: Solver) -> None:
    one, other = both(make, 2, shape, torch.float32, solver)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@OTHERS
def test_in_c_it_is_the_same_but_for_roundings(
    make: Callable[[], nn.Sequential], shape: tuple[int, ...], solver: Solver
) -> None:
    one, other = both(make, 2, shape, torch.float64, solver)
    for found, wanted in zip(one, other, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["0.field.mix.weight", "2.bias"])
@pytest.mark.parametrize("way", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_are_called(name: str, way: str) -> None:
    ensemble, called = Ensemble([initialise(sphere(EULER), 0)]), []
    getattr(ensemble.tensors[name], way)(lambda tensor: called.append(tensor.shape))
    features = ensemble.features(torch.rand(1, 4, 2), [EULER])
    classify_and_differentiate(ensemble, features, torch.zeros(1, 4, dtype=torch.int64))
    assert called == [ensemble.tensors[name].shape]


def test_an_adjoint_is_counted_and_a_frozen_field_left_alone() -> None:
    ensemble, labels = Ensemble([initialise(sphere(DOPRI54, "adjoint"), 0)]), torch.zeros(1, 4, dtype=torch.int64)
    with counting() as count:
        classify_and_differentiate(ensemble, ensemble.features(torch.rand(1, 4, 2), [DOPRI54]), labels)
    assert count.backward > 0
    model = initialise(sphere(EULER), 0)
    model[0].requires_grad_(False)  # type: ignore[index]
    frozen = Ensemble([model])
    classify_and_differentiate(frozen, frozen.features(torch.rand(1, 4, 2), [EULER]), labels)
    assert [name for name, tensor in frozen.tensors.items() if tensor.grad is not None] == ["2.weight", "2.bias"]
