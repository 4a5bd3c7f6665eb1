"""A solver that is swapped for one thread is swapped for no other."""

import asyncio
import contextvars
from collections.abc import Iterator
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.threads import run_together
from tests.torches import needs_compile
from windermere.nn import Autonomous, ODEBlock, using
from windermere.solvers import FixedStep, counting

OWN = FixedStep("euler", step=1 / 2)
THREADS, PASSES = 8, 125


def some_block(**options: Any) -> ODEBlock:
    torch.manual_seed(0)
    return ODEBlock(Autonomous(nn.Linear(2, 2)), OWN, **options)


def test_a_thousand_passes_of_eight_threads_are_each_solved_by_their_own_solver() -> None:
    block, z = some_block(), torch.ones(3, 2)
    solvers = [FixedStep("rk4", step=1 / (k + 1)) for k in range(THREADS)]
    expected = [ODEBlock(block.field, solver)(z) for solver in solvers]

    def passes(k: int) -> list[Tensor]:
        found = []
        for _ in range(PASSES):
            with using(block, solvers[k]):
                found.append(block(z))
        return found

    for found, right in zip(run_together(*(partial(passes, k) for k in range(THREADS))), expected, strict=True):
        assert all(torch.equal(each, right) for each in found)
    assert block.solver == OWN
    assert torch.equal(block(z), ODEBlock(block.field, OWN)(z))


def test_scopes_that_overlap_leave_every_block_with_its_own_solver() -> None:
    block, (first, second) = some_block(), (FixedStep("rk4", step=1 / 4), FixedStep("rk4", step=1 / 8))
    first_is_open, second_is_open, first_is_closed = Event(), Event(), Event()

    def one() -> None:
        with using(block, first):
            first_is_open.set()
            second_is_open.wait()
            assert block.solver == first
        first_is_closed.set()

    def other() -> None:
        first_is_open.wait()
        with using(block, second):
            second_is_open.set()
            first_is_closed.wait()
            assert block.solver == second

    run_together(one, other)
    assert block.solver == OWN


def test_a_thread_beside_a_scope_solves_with_the_blocks_own_solver() -> None:
    block, seen = some_block(), list[Any]()
    with using(block, FixedStep("rk4", step=1 / 4)):
        thread = Thread(target=lambda: seen.append(block.solver))
        thread.start()
        thread.join()
        contextvars.copy_context().run(lambda: seen.append(block.solver))
    assert seen == [OWN, FixedStep("rk4", step=1 / 4)]


def test_tasks_of_one_thread_swap_for_themselves() -> None:
    block = some_block()

    async def swapped(step: float) -> None:
        with using(block, FixedStep("rk4", step=step)):
            for _ in range(3):
                await asyncio.sleep(0)
                assert block.solver == FixedStep("rk4", step=step)

    async def both() -> None:
        await asyncio.gather(swapped(1 / 4), swapped(1 / 8))

    asyncio.run(both())
    assert block.solver == OWN


def scope(block: ODEBlock, solver: FixedStep) -> Iterator[FixedStep]:
    with using(block, solver):
        while True:
            yield solver


def test_scopes_of_generators_may_be_left_in_any_order() -> None:
    block, (first, second) = some_block(), (FixedStep("rk4", step=1 / 4), FixedStep("rk4", step=1 / 8))
    outer, inner = scope(block, first), scope(block, second)
    next(outer)
    next(inner)
    outer.close()  # type: ignore[attr-defined]
    assert block.solver == second
    inner.close()  # type: ignore[attr-defined]
    assert block.solver == OWN


def test_a_scope_that_another_thread_leaves_is_left_everywhere() -> None:
    block = some_block()
    opened: Any = scope(block, FixedStep("rk4", step=1 / 4))
    next(opened)
    run_together(opened.close)
    assert block.solver == OWN


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_a_backward_pass_in_another_thread_uses_the_solver_of_its_forward_pass(gradient: str) -> None:
    block = some_block(gradient=gradient)
    with using(block, FixedStep("rk4", step=1 / 4)):
        inside = block(torch.ones(3, 2))
    right = ODEBlock(block.field, FixedStep("rk4", step=1 / 4), gradient=gradient)(torch.ones(3, 2))  # type: ignore[arg-type]
    gradients = torch.autograd.grad(right.sum(), list(block.parameters()))
    with using(block, FixedStep("euler", step=1)):
        run_together(lambda: inside.sum().backward())  # type: ignore[no-untyped-call]
    for parameter, gradient_of_it in zip(block.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient_of_it)  # type: ignore[arg-type]


def test_what_is_assigned_inside_a_scope_is_the_blocks_own_solver_afterwards() -> None:
    block, later = some_block(), FixedStep("heun", step=1 / 3)
    with using(block, FixedStep("rk4", step=1 / 4)):
        block.solver = later
        assert block.solver == FixedStep("rk4", step=1 / 4)
    assert block.solver == later


@needs_compile
def test_a_compiled_model_follows_a_scope_it_was_not_compiled_in() -> None:
    block, z = some_block(), torch.ones(3, 2)
    torch.compiler.reset()
    compiled = torch.compile(block, backend="eager")
    for step in (1 / 4, 1 / 8):
        with torch.no_grad(), counting() as count, using(block, FixedStep("rk4", step=step)):
            compiled(z)
        assert count.forward == 4 / step
