"""Where PyTorch lacks a name that we ask it for, solves, audits and trainings are right."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import windermere as wm
from tests.fast.layers import DOPRI54, RK4, Unknown, network
from tests.fast.spheres import assert_same, samples, solved, sphere_field
from tests.processes import python
from tests.torch_private.names import (
    DEPRECATED,
    EACH,
    FUNCTIONS,
    GLOBAL_HOOKS,
    MODES,
    OF_TENSORS,
    PATHS,
    PUBLIC,
    Without,
)
from tests.torches import needs_torch
from windermere.fast.cpu import native
from windermere.paper.training import Ensemble
from windermere.paper.training.checkpoint import make_optimizer, update
from windermere.paper.training.classifying import classify_and_differentiate

pytestmark = needs_torch(4, "that has nearly all of them")


def end_of(field: Any, z: Tensor) -> Any:
    return wm.solve(field, z, RK4).final


def answers() -> list[Tensor]:
    """Ends and gradients of solves that have fast paths, by all ways."""
    found: list[Tensor] = []
    net, sphere = network(2, 6, 2), sphere_field(2)
    for solver in (RK4, DOPRI54):
        for gradient in ("backprop", "checkpoint", "adjoint"):
            for field in (wm.Autonomous(net), sphere):
                found += solved(field, samples(3, 2), solver, [*field.parameters()], gradient=gradient)
    return found


@EACH
def test_solves_are_right_without(without: Without, name: str) -> None:
    wanted = answers()
    without(name)
    assert_same(answers(), wanted, closeness=1e-9)


def test_solves_are_right_without_what_is_young(without: Without) -> None:
    wanted = answers()
    without(*PUBLIC)
    assert_same(answers(), wanted, closeness=1e-9)


@pytest.mark.parametrize("name", ["torch._C._functorch.peek_interpreter_stack", "torch._C._get_tracing_state", *MODES])
def test_where_somebody_may_look_no_solve_is_done_in_c(
    monkeypatch: pytest.MonkeyPatch, without: Without, name: str
) -> None:
    monkeypatch.setattr(native, "walk_in_c", lambda *_: pytest.fail("a solve in C"))
    without(name)
    net, z = network(2, 6, 2), samples(3, 2)
    assert_same(solved(wm.Autonomous(net), z, RK4, []), solved(Unknown(net), z, RK4, []))


@FUNCTIONS
@EACH
def test_derivatives_inside_of_transforms_and_in_forward_mode_are_right_without(without: Without, name: str) -> None:
    z, direction = samples(3, 2), samples(3, 2).cos()
    ends = [partial(end_of, field) for field in (wm.Autonomous(network(2, 6, 2)), sphere_field(2))]
    jacobians = [torch.autograd.functional.jacobian(end, z) for end in ends]  # type: ignore[no-untyped-call]
    without(name)
    for end, jacobian in zip(ends, jacobians, strict=True):
        along = (jacobian * direction).sum(dim=(2, 3))
        torch.testing.assert_close(torch.func.jacrev(end)(z), jacobian)
        torch.testing.assert_close(torch.func.jvp(end, (z,), (direction,))[1], along)
        with forward_ad.dual_level():
            dual = end(forward_ad.make_dual(z, direction))  # type: ignore[no-untyped-call]
            torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, along)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "name", [name for name in [*PATHS, *OF_TENSORS] if not name.endswith("peek_interpreter_stack")]
)
def test_a_batch_of_solves_is_solved_as_one_by_one_without(without: Without, name: str) -> None:
    without(name)
    for field in (wm.Autonomous(network(2, 6, 2)), sphere_field(2)):
        end, z = partial(end_of, field), samples(4, 3, 2)
        torch.testing.assert_close(torch.func.vmap(end)(z), torch.stack([end(x) for x in z]))


def test_a_batch_of_solves_that_is_not_known_to_be_one_is_refused_by_pytorch(without: Without) -> None:
    without("torch._C._functorch.peek_interpreter_stack")
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(partial(end_of, wm.Autonomous(network(2, 6, 2))))(samples(4, 3, 2))


@EACH
def test_all_gradients_at_once_are_those_one_by_one_without(without: Without, name: str) -> None:
    without(name)
    z = samples(3, 2).requires_grad_()
    end = wm.solve(wm.Autonomous(network(2, 6, 2)), z, RK4).final
    assert isinstance(end, Tensor)
    directions = torch.eye(6, dtype=z.dtype).view(6, 3, 2)
    wanted = torch.stack([torch.autograd.grad(end, z, d, retain_graph=True)[0] for d in directions])
    torch.testing.assert_close(torch.autograd.grad(end, z, directions, is_grads_batched=True)[0], wanted)


def trained() -> list[Tensor]:
    """Parameters after three iterations of training."""
    torch.manual_seed(0)
    members = [
        nn.Sequential(wm.ODEBlock(sphere_field(2, s), RK4), nn.Flatten(), nn.Linear(2, 2).double()) for s in (0, 1)
    ]
    ensemble, labels = Ensemble(members), torch.arange(10).view(2, 5) % 2
    optimizer = make_optimizer("adam", ensemble.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        classify_and_differentiate(ensemble, ensemble.features(samples(2, 5, 2), [RK4] * 2), labels)
        update(optimizer)
    return [p.detach() for p in ensemble.parameters()]


@EACH
def test_training_is_the_same_without(without: Without, name: str) -> None:
    wanted = trained()
    without(name)
    assert_same(trained(), wanted, closeness=1e-9)


def audited() -> Any:
    torch.manual_seed(0)
    block = wm.ODEBlock(wm.Autonomous(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))), RK4)
    model, x = nn.Sequential(block, nn.Linear(2, 2)), samples(40, 2).float()
    return wm.audit(model, (x, (x[:, 0] > 0).long()))


@DEPRECATED
def test_the_verdict_of_an_audit_is_the_same_without_any_of_them(without: Without) -> None:
    wanted = audited()
    without(*PATHS, *PUBLIC, *OF_TENSORS)
    found = audited()
    assert (found.outcome, found.sentence, found.safe) == (wanted.outcome, wanted.sentence, wanted.safe)
    assert [(line.solver, line.metric) for line in found.table] == [(line.solver, line.metric) for line in wanted.table]


IMPORTING = """
import importlib, sys
import torch
import torch.utils.checkpoint  # which PyTorch 2.4 leaves for later, and which needs one of them itself

kept = []
for path in {paths!r}:
    place, name = path.rsplit(".", 1)
    kept.append((importlib.import_module(place), name, getattr(importlib.import_module(place), name)))
for owner, name, _ in kept:
    delattr(owner, name)
import windermere as wm
import windermere.paper.training
for owner, name, value in kept:  # which PyTorch itself needs
    setattr(owner, name, value)
print(wm.solve(lambda t, z: -z, torch.ones(1), wm.FixedStep("rk4", step=1 / 8)).final.item())
"""


def test_the_library_is_imported_and_solves_where_pytorch_has_none_of_them() -> None:
    with python("-c", IMPORTING.format(paths=[*PATHS, *PUBLIC, *GLOBAL_HOOKS]), stdout=-1, stderr=-1) as process:
        out, err = process.communicate()
    assert not err
    assert float(out) == pytest.approx(torch.e**-1, rel=1e-5)
