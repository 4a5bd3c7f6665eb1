"""The image field's walks against its convolutions as the paper writes them, in every arithmetic."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.paper.fast.image_solves import (
    BOTH,
    EVERY_SOLVER,
    GRADIENTS,
    SOLVERS,
    Convolving,
    a_field,
    furthest,
    pictures,
    solved,
)
from windermere.errors import UsageError
from windermere.nn import ODEBlock
from windermere.nn.arithmetic import ARITHMETICS
from windermere.paper.architectures import ImageField, initialise, walk_of
from windermere.paper.training import Ensemble
from windermere.solvers import Adaptive, FixedStep, Gradient, Solver, checking, counting, solve
from windermere.solvers.grid import Steps


@EVERY_SOLVER
@BOTH
@pytest.mark.parametrize("channels", [1, 3])
def test_a_walk_and_its_gradient_are_those_of_the_plain_solve(
    solver: Solver, gradient: Gradient, channels: int
) -> None:
    field, z = a_field(channels), pictures(3, channels=channels)
    assert furthest(solved(field, z, solver, gradient), solved(Convolving(field), z, solver)) < 1e-13


@EVERY_SOLVER
@BOTH
def test_float32_rounds_as_float32_does(solver: Solver, gradient: Gradient) -> None:
    exact = solved(Convolving(a_field()), pictures(3), solver)
    found = solved(a_field(dtype=torch.float32), pictures(3).float(), solver, gradient)
    assert 0 < furthest(found, exact) < 1e-5


@EVERY_SOLVER
@BOTH
def test_bfloat16_rounds_products_to_eight_bits_and_nothing_else(solver: Solver, gradient: Gradient) -> None:
    exact = solved(Convolving(a_field()), pictures(3), solver)
    found = solved(a_field(arithmetic="bfloat16", dtype=torch.float32), pictures(3).float(), solver, gradient)
    assert 1e-4 < furthest(found, exact) < 5e-2
    assert {tensor.dtype for tensor in found} == {torch.float32}


@BOTH
@pytest.mark.parametrize("solver", [SOLVERS[1], Adaptive("bosh32", tolerance=1e-4)], ids=str)
def test_a_picture_alone_is_solved_as_a_batch_of_one(solver: Solver, gradient: Gradient) -> None:
    alone, batch = (solved(a_field(), z, solver, gradient) for z in (pictures(), pictures(1)))
    assert alone[0].shape == (3, 5, 4)
    assert furthest(alone, [tensor.reshape(one.shape) for one, tensor in zip(alone, batch, strict=True)]) < 1e-13


def test_both_gradients_of_a_rounded_walk_are_one() -> None:
    field, z = a_field(arithmetic="bfloat16", dtype=torch.float32), pictures(3).float()
    kept, lean = (solved(field, z, SOLVERS[1], gradient) for gradient in GRADIENTS)
    assert torch.equal(kept[0], lean[0])
    assert furthest(lean, [tensor.double() for tensor in kept]) < 1e-5


@BOTH
def test_small_steps_add_up_in_float32(gradient: Gradient) -> None:
    """A state in bfloat16 would not move at all: a step of 1/1024 lies below its eight bits."""
    field = a_field(arithmetic="bfloat16", dtype=torch.float32)
    solver = FixedStep.of("euler", steps=1024)
    z = 1 + pictures(1).float()
    exact = solved(Convolving(a_field()), z.double(), solver)
    assert furthest(solved(field, z, solver, gradient), exact) < 2e-2


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("solver", [*SOLVERS, Adaptive("bosh32", tolerance=1e-4)], ids=str)
def test_in_float64_nothing_is_rounded_whatever_the_arithmetic(arithmetic: str, solver: Solver) -> None:
    found = solved(a_field(arithmetic=arithmetic), pictures(3), solver)
    assert furthest(found, solved(Convolving(a_field()), pictures(3), solver)) < 1e-13


def test_adaptive_steps_round_the_same_products() -> None:
    solver = Adaptive("bosh32", tolerance=1e-2)
    plain, rounded = (a_field(arithmetic=name, dtype=torch.float32) for name in ("float32", "bfloat16"))
    exact = solved(Convolving(a_field()), pictures(3), solver)
    assert furthest(solved(plain, pictures(3).float(), solver), exact) < 1e-4
    # Its steps are others, since an error estimate sees what is rounded too.
    assert 1e-4 < furthest(solved(rounded, pictures(3).float(), solver), exact) < 2e-1


@BOTH
@pytest.mark.parametrize("same", [True, False])
def test_members_walk_as_each_does_alone(gradient: Gradient, same: bool) -> None:
    solvers = [FixedStep.of("midpoint", steps=n) for n in ((3, 3, 3) if same else (3, 1, 5))]
    models = [nn.Sequential(ODEBlock(initialise(ImageField(3, 6), s), solvers[s], gradient=gradient)) for s in range(3)]
    ensemble, z = Ensemble([model.double() for model in models]), pictures(3, 2)
    with counting() as count:
        together = ensemble(z, solvers)
        found = torch.autograd.grad(together.square().sum(), ensemble.parameters())
    taken = [2 * round(1 / solver.step) for solver in solvers]
    assert count.forward.tolist() == taken  # type: ignore[union-attr]
    assert np_list(count.recomputed) == (taken if gradient == "checkpoint" else 0)
    for s, model in enumerate(models):
        wanted = solved(Convolving(field_of(model)), z[s], solvers[s])
        assert furthest([together[s].detach(), *(g[s] for g in found)], [wanted[0], *wanted[2:]]) < 1e-13


def field_of(model: nn.Sequential) -> ImageField:
    field = model[0].field
    assert isinstance(field, ImageField)
    return field


def np_list(numbers: Any) -> Any:
    return numbers.tolist() if hasattr(numbers, "tolist") else numbers


# ---------------------------------------------------------------------------------------------------------
# What is counted and kept


@EVERY_SOLVER
def test_evaluations_made_again_for_the_gradient_are_counted_as_such(solver: Solver) -> None:
    field, z = a_field(), pictures(2)
    with counting() as own:
        solved(field, z, solver, "checkpoint")
    with counting() as plain:
        solved(Convolving(field), z, solver, "checkpoint")
    assert own == plain
    assert own.recomputed == own.forward > 0


def test_a_gradient_asked_for_later_and_inside_a_check_counts_there() -> None:
    field, z = a_field(), pictures(2)
    with counting() as count:
        with checking():
            end = solve(field, z, SOLVERS[0], gradient="checkpoint").final
        assert (count.forward, count.checks, count.recomputed) == (0, 4, 0)
    assert isinstance(end, Tensor)
    end.sum().backward()  # type: ignore[no-untyped-call]
    assert (count.checks, count.recomputed) == (8, 0)


def test_the_memory_of_a_lean_walk_goes_with_its_end_and_waits_for_no_collector() -> None:
    gc.disable()
    try:
        final: Any = solve(
            initialise(ImageField(1, 4), 0),
            torch.rand(2, 1, 4, 4),
            FixedStep("euler", step=1 / 2),
            gradient="checkpoint",
        ).final
        held = weakref.ref(final)
        del final
        assert held() is None
    finally:
        gc.enable()


def test_without_gradients_nothing_is_recomputed() -> None:
    field = a_field().requires_grad_(False)
    with counting() as count:
        solve(field, pictures(2), SOLVERS[0], gradient="checkpoint")
        with torch.no_grad():
            solve(a_field(), pictures(2), SOLVERS[0], gradient="checkpoint")
    assert (count.forward, count.recomputed) == (8, 0)


def kept(gradient: Gradient, steps: int) -> int:
    """Bytes on autograd's tape, each storage once."""
    field, seen = a_field(dtype=torch.float32, arithmetic="bfloat16"), dict[int, Any]()

    def note(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        end = solve(field, pictures(7).float(), FixedStep.of("euler", steps=steps), gradient=gradient).final
    assert isinstance(end, Tensor)
    return sum(tensor.untyped_storage().nbytes() for tensor in seen.values())


def test_a_step_of_the_lean_walk_keeps_one_state_and_no_hidden_layer() -> None:
    state = 7 * 3 * 5 * 4 * 4
    assert kept("checkpoint", 9) - kept("checkpoint", 8) == state
    assert kept("backprop", 9) - kept("backprop", 8) > 2 * 7 * 8 * 5 * 4 * 2


@BOTH
def test_a_frozen_layer_has_no_gradient_and_the_others_keep_theirs(gradient: Gradient) -> None:
    field, z = a_field(), pictures(2)
    field.mix.requires_grad_(False)
    wanted = [p for p in field.parameters() if p.requires_grad]
    plans: list[tuple[nn.Module, Gradient]] = [(field, gradient), (Convolving(field), "backprop")]
    ends = [torch.as_tensor(solve(f, z, SOLVERS[1], gradient=g).final) for f, g in plans]
    found = [torch.autograd.grad(end.sum(), wanted) for end in ends]
    assert furthest(list(found[0]), list(found[1])) < 1e-13


@BOTH
@pytest.mark.parametrize("needs", [True, False])
def test_a_walk_leaves_its_input_as_it_was(gradient: Gradient, needs: bool) -> None:
    z = pictures(2).requires_grad_(needs)
    before = z.detach().clone()
    end = solve(a_field(), z, SOLVERS[0], gradient=gradient).final
    assert isinstance(end, Tensor)
    end.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(z, before)
    assert (z.grad is not None) == needs


def test_states_at_several_times_and_a_record_come_from_the_eager_walk() -> None:
    field, z = a_field(), pictures(2)
    several = solve(field, z, SOLVERS[0], (0.0, 0.5, 1.0), record=True, gradient="checkpoint")
    torch.testing.assert_close(several.final, solve(field, z, SOLVERS[0]).final, rtol=1e-12, atol=1e-12)


def test_steps_on_the_device_are_refused() -> None:
    walk = walk_of(a_field(), "backprop")
    assert walk is not None
    with pytest.raises(UsageError, match="a grid of numbers, not of tensors"):
        walk(SOLVERS[0].tableau, Steps(torch.zeros(1, 2), torch.ones(1, dtype=torch.int32)), pictures(2))
