"""Inside of torch.func's transforms and of autocast a solve is right, or says why it cannot be."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from tests.solvers.fields import Network, some_states
from tests.torches import needs_compile, needs_torch
from windermere.errors import FieldError, NonFiniteError, UsageError
from windermere.nn import ODEBlock
from windermere.solvers import Adaptive, Adjoint, FixedStep, Gradient, OnGrid, counting, initial_step, odeint, solve
from windermere.solvers.paths import fast_paths
from windermere.solvers.torch_modes import as_if_uncompiled

FIXED = FixedStep("rk4", step=1 / 4)
DOPRI = Adaptive("dopri54", tolerance=1e-3)
KINDS = pytest.mark.parametrize(
    "solver",
    [FIXED, OnGrid("heun", (0.0, 0.3, 1.0)), DOPRI, Adaptive("bosh32", tolerance=1e-2, control="sample")],
    ids=str,
)
GRADIENTS = pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
# PyTorch's own, of itself. With a GPU in the machine, Dynamo imports all that compiles for it.
FUNCTIONS = pytest.mark.filterwarnings("ignore:.torch.jit.script. is")
COMPILING = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor",
    "ignore:.torch.jit.script_method. is",
    "ignore:Guards may run slower on Python 3.13.0",
)


def ends(field: Any, solver: Any, gradient: Any = "backprop") -> Any:
    return lambda z: solve(field, z, solver, gradient=gradient).final


@FUNCTIONS
def test_transforms_of_a_solve_with_fixed_steps_are_those_of_its_operations() -> None:
    end, z = ends(Network(), FIXED), some_states(3, 2)
    jacobian = torch.autograd.functional.jacobian(end, z)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.jacrev(end)(z), jacobian)
    torch.testing.assert_close(torch.func.jacfwd(end)(z), jacobian)
    torch.testing.assert_close(torch.func.grad(lambda x: end(x).sum())(z), jacobian.sum(dim=(0, 1)))
    direction = some_states(3, 2, seed=1)
    torch.testing.assert_close(torch.func.jvp(end, (z,), (direction,))[1], (jacobian * direction).sum(dim=(2, 3)))


@FUNCTIONS
@pytest.mark.parametrize("step_size", [None, 0.3])
def test_transforms_of_odeint_with_fixed_steps_are_those_of_its_operations(step_size: float | None) -> None:
    """The times, which may be made inside of the transform, are asked for as numbers."""
    field, z = Network(), some_states(3, 2)

    def end(x: Tensor) -> Any:
        options = {} if step_size is None else {"step_size": step_size}
        return odeint(field, x, torch.tensor([0.0, 0.5, 1.0]), method="rk4", options=options)

    jacobian = torch.autograd.functional.jacobian(end, z)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.jacrev(end)(z), jacobian)
    torch.testing.assert_close(torch.func.jacfwd(end)(z), jacobian)
    torch.testing.assert_close(torch.func.vmap(end)(z), end(z).transpose(0, 1))


def test_a_batch_of_solves_with_fixed_steps_is_solved_as_one_by_one() -> None:
    end, batch = ends(Network(), FIXED), some_states(5, 3, 2)
    torch.testing.assert_close(torch.func.vmap(end)(batch), torch.stack([end(z) for z in batch]))
    by_sample = torch.func.vmap(torch.func.grad(lambda z: end(z).square().sum()))
    expected = [torch.func.grad(lambda z: end(z).square().sum())(z) for z in batch]
    torch.testing.assert_close(by_sample(batch), torch.stack(expected))


def test_a_batch_of_solves_of_constant_fields_is_solved_as_one_by_one() -> None:
    rates, states, solver = torch.randn(4, 3, 2), torch.randn(4, 3, 2), FixedStep.of("rk4", steps=4)

    def final(rate: Tensor, z: Tensor) -> Any:
        return solve(lambda t, z: rate, z, solver).final

    torch.testing.assert_close(torch.func.vmap(final)(rates, states), states + rates)


@needs_torch(3, "that tells all of its transforms")
def test_without_vmap_a_state_that_is_not_finite_is_still_named_inside_of_a_transform() -> None:
    with pytest.raises(NonFiniteError):
        torch.func.grad(lambda z: ends(lambda t, z: z / 0, FIXED)(z).sum())(torch.ones(2))


@FUNCTIONS
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp"])
def test_what_cannot_be_transformed_says_so_in_a_sentence(transform: str) -> None:
    def transformed(end: Any) -> None:
        z = some_states(3, 2)
        if transform == "vmap":
            torch.func.vmap(end)(z)
        elif transform == "grad":
            torch.func.grad(lambda x: end(x).sum())(z)
        else:
            torch.func.jvp(end, (z,), (z,))

    with pytest.raises(UsageError, match="an adaptive solve chooses its steps by numbers"):
        transformed(ends(Network(), DOPRI))
    for gradient in ("adjoint", Adjoint(FIXED), *(["checkpoint"] if transform == "grad" else [])):
        with pytest.raises(UsageError, match=r"cannot be had inside of torch\.func's transforms"):
            transformed(ends(Network(), FIXED, gradient))


@FUNCTIONS
@GRADIENTS
@pytest.mark.parametrize("solver", [FIXED, DOPRI], ids=str)
def test_derivatives_in_forward_mode_are_those_backwards_or_there_is_a_sentence(solver: Any, gradient: Any) -> None:
    field, z, direction = Network(), some_states(3, 2), some_states(3, 2, seed=1)
    backwards = torch.autograd.functional.jvp(ends(field, solver), z, direction)[1]  # type: ignore[no-untyped-call]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z, direction)  # type: ignore[no-untyped-call]
        if gradient == "adjoint":
            with pytest.raises(UsageError, match="no derivatives in forward mode"):
                ends(field, solver, gradient)(dual)
            return
        end = ends(field, solver, gradient)(dual)
        torch.testing.assert_close(forward_ad.unpack_dual(end).tangent, backwards)  # type: ignore[no-untyped-call]


@FUNCTIONS
@pytest.mark.parametrize("solver", [FIXED, DOPRI], ids=str)
def test_a_derivative_in_forward_mode_has_its_gradient_after_it_has_ended(solver: Any) -> None:
    gradients = []
    for gradient in ("backprop", "checkpoint"):
        field, z = Network(), some_states(3, 2)
        with forward_ad.dual_level():
            end = ends(field, solver, gradient)(forward_ad.make_dual(z, torch.ones_like(z)))  # type: ignore[no-untyped-call]
            tangent = forward_ad.unpack_dual(end).tangent  # type: ignore[no-untyped-call]
        gradients.append(torch.autograd.grad(tangent.square().sum(), [*field.parameters()], allow_unused=True))
    torch.testing.assert_close(*gradients)


class Layers(nn.Module):
    """In float32; autocast rounds the products of both layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        self.seen: list[torch.dtype] = []

    def forward(self, t: Tensor, z: Tensor) -> Any:
        k = self.layers(z)
        self.seen.append(k.dtype)
        return k


@KINDS
@GRADIENTS
@pytest.mark.parametrize("inside", [False, True], ids=["back outside", "back inside"])
def test_in_autocast_the_field_is_rounded_and_the_state_is_not(solver: Any, gradient: Any, inside: bool) -> None:
    field, z = Layers(), some_states(4, 2, dtype=torch.float32)
    solve(field, z, solver).final.sum().backward()  # type: ignore[no-untyped-call]
    exact = [torch.as_tensor(p.grad) for p in field.parameters()]
    field.zero_grad()
    field.seen.clear()
    with counting() as count, torch.autocast("cpu", dtype=torch.bfloat16):
        end = ODEBlock(field, solver, times=(0.0, 1.0), gradient=gradient)(z)
        assert end.dtype == torch.float32
        if inside:
            end.sum().backward()  # type: ignore[no-untyped-call]
    if not inside:
        end.sum().backward()  # type: ignore[no-untyped-call]
    assert set(field.seen) == {torch.bfloat16}
    if gradient != "checkpoint":  # which stops a repetition as soon as it has what it needs
        assert len(field.seen) == count.forward + count.backward
    for parameter, wanted in zip(field.parameters(), exact, strict=True):
        assert parameter.dtype == torch.float32
        torch.testing.assert_close(torch.as_tensor(parameter.grad), wanted, rtol=0.1, atol=0.1)


def test_in_autocast_the_parts_of_a_tuple_keep_their_dtype_and_a_first_step_is_found() -> None:
    field, z = Layers(), some_states(4, 2, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts: Any = solve(lambda t, z: (field(t, z[0]), z[1]), (z, z), FIXED).final
        assert initial_step(field, z, order=1) > 0
    assert [part.dtype for part in parts] == [torch.float32] * 2


def test_a_solve_without_gradients_in_autocast_leaves_those_of_the_next_one_alone() -> None:
    field, z = Layers(), some_states(4, 2, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solve(field, z, FIXED, gradient="adjoint")
        with torch.no_grad():
            solve(field, z, FIXED)
        (field(z, z).sum()).backward()
    assert all(p.grad is not None for p in field.parameters())


def test_autocast_excuses_no_other_dtype_and_without_it_none_is_excused() -> None:
    z = torch.ones(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(FieldError, match="returned a float64 tensor"):
        solve(lambda t, z: z.double(), z, FIXED)
    with pytest.raises(FieldError, match="returned a bfloat16 tensor"):
        solve(lambda t, z: z.bfloat16(), z, FIXED)


def test_in_autocast_too_a_field_that_takes_no_time_is_told_so() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(FieldError, match=r"called as field\(t, z\)"):
        solve(nn.Linear(2, 2), torch.ones(3, 2), FIXED)


def penalised(field: nn.Module, gradient: Gradient) -> Any:
    """A loss with a penalty on its own gradient, and the gradient of both."""
    z = some_states(3, 2).requires_grad_()
    end: Any = solve(field, z, FIXED, gradient=gradient).final
    (slope,) = torch.autograd.grad(end.sum(), z, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), list(field.parameters()), allow_unused=True)


def test_the_gradient_of_backprop_can_be_differentiated_again_and_the_adjoints_says_that_it_cannot() -> None:
    assert any(g is not None and g.abs().sum() > 0 for g in penalised(Network(), "backprop"))
    with pytest.raises(UsageError, match=r"cannot be differentiated again .*: take gradient='backprop'"):
        penalised(Network(), "adjoint")


@pytest.mark.parametrize("fast", [False, True])
def test_the_adjoint_says_that_it_takes_one_cotangent_after_the_other(fast: bool) -> None:
    z = some_states(3, 2).requires_grad_()
    with fast_paths(fast):
        end: Any = solve(Network(), z, FIXED, gradient="adjoint").final
    many = torch.eye(6, dtype=z.dtype).view(6, 3, 2)
    with pytest.raises(UsageError, match=r"cannot be taken of many cotangents at once .*: take one after the other"):
        torch.autograd.grad(end, z, many, is_grads_batched=True, retain_graph=True)
    with pytest.raises(UsageError, match="many cotangents"):
        torch.vmap(lambda on: torch.autograd.grad(end, z, on)[0])(many)


@needs_compile
@COMPILING
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
@pytest.mark.parametrize("solver", [FixedStep("rk4", step=1 / 4), Adaptive("dopri54", tolerance=1e-3)], ids=str)
def test_a_compiled_solve_is_the_same(solver: Any, gradient: Any) -> None:
    torch.compiler.reset()
    field, z = Network(), some_states(3, 2)

    def solved(z: Tensor) -> Any:
        return solve(field, z, solver, gradient=gradient).final

    plain, compiled = (f(z) for f in (solved, torch.compile(solved, backend="eager")))
    torch.testing.assert_close(compiled, plain)
    found, wanted = (torch.autograd.grad(end.sum(), list(field.parameters())) for end in (compiled, plain))
    torch.testing.assert_close(found, wanted)


@needs_compile
@COMPILING
def test_a_field_is_compiled_for_its_first_solve_and_goes_when_its_user_lets_it_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graphs))
        return graph.forward

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    field, z = Network(), some_states(3, 2)
    with fast_paths(False), torch.no_grad():
        wanted = solve(field, z, FIXED).final
        made = []
        for _ in range(3):
            torch.testing.assert_close(solve(field, z, FIXED, compile=True).final, wanted)
            made.append(len(graphs))
    assert made == [made[0]] * 3 != [0] * 3
    gone = weakref.ref(field)
    del field
    gc.collect()
    assert gone() is None


@needs_torch(6, "that can be told to run what is compiled as it was written")
@COMPILING
def test_the_adjoints_way_back_runs_a_compiled_field_as_it_was_written() -> None:
    """What inductor compiles can be differentiated once only; the adjoint does so by the state and by parameters."""
    torch.compiler.reset()
    field, z, calls = Network(), some_states(3, 2), 0

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        def run(*given: Tensor) -> Any:
            nonlocal calls
            calls += 1
            return graph(*given)

        return run

    ends = [
        solve(each, z, Adaptive("dopri54", tolerance=1e-3), gradient="adjoint").final
        for each in (field, torch.compile(field, backend=backend))
    ]
    there = calls
    wanted, found = (torch.autograd.grad(end.sum(), list(field.parameters())) for end in ends)
    torch.testing.assert_close(found, wanted)
    assert calls == there > 0


@needs_torch(6, "that can be told to run what is compiled as it was written")
@COMPILING
def test_ways_back_at_once_leave_torch_compile_as_it_was() -> None:
    """PyTorch's stance is all threads' one: the last of them gives it back, not the first."""
    torch.compiler.reset()
    calls = 0

    def counting_backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        def run(*given: Tensor) -> Any:
            nonlocal calls
            calls += 1
            return graph(*given)

        return run

    double = torch.compile(lambda x: 2 * x, backend=counting_backend)

    def is_compiled() -> bool:
        before = calls
        assert double(torch.ones(2)).tolist() == [2, 2]
        return calls > before

    first, second = as_if_uncompiled(), as_if_uncompiled()
    found = [is_compiled()]
    steps: list[Callable[[], object]] = [first.__enter__, second.__enter__, lambda: first.__exit__(None, None, None)]
    for step in steps:
        step()
        found.append(is_compiled())
    second.__exit__(None, None, None)
    assert [*found, is_compiled()] == [True, False, False, False, True]


@needs_compile
@COMPILING
def test_torch_compile_takes_what_is_around_a_solve_and_leaves_the_solve_alone() -> None:
    torch.compiler.reset()
    field, z, compiled = Network(), some_states(3, 2), ""

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += graph.code
        return graph.forward

    def around(z: Tensor) -> Any:
        end: Any = solve(field, z.sin(), FixedStep("rk4", step=1 / 4)).final
        return end.cos()

    torch.testing.assert_close(torch.compile(around, backend=backend)(z), around(z))
    assert "sin()" in compiled
    assert "cos()" in compiled
    assert "linear" not in compiled
