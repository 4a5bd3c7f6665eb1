"""What cannot be solved is refused at once, with what was given and what was wanted."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.solvers.fields import DOUBLE, elementwise
from windermere.errors import FieldError, UsageError
from windermere.nn import Autonomous, ODEBlock
from windermere.solvers import Adaptive, Adjoint, FixedStep, initial_step, solve

FIXED = FixedStep("rk4", step=1 / 10)
DOPRI = Adaptive("dopri54", tolerance=1e-4)
BY_SAMPLE = Adaptive("dopri54", tolerance=1e-4, control="sample")
EVERY = pytest.mark.parametrize("solver", [FIXED, DOPRI, BY_SAMPLE], ids=["fixed", "batch", "sample"])


def returning(make: Any) -> Any:
    return lambda t, z: make(z)


@EVERY
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda z: z[:1],
            r"float32 tensor of shape \(3, 2\) on cpu, but the field returned a float32 tensor of shape \(1, 2\)",
        ),
        (lambda z: z.sum(), r"returned a float32 tensor of shape \(\)"),
        (lambda z: z.double(), r"returned a float64 tensor of shape \(3, 2\)"),
        (lambda z: z.to("meta"), r"shape \(3, 2\) on meta"),
        (lambda z: z.tolist(), "returned a list of 3"),
        (lambda z: 1.0, "returned a float"),
        (lambda z: None, "returned a NoneType"),
        (lambda z: (z,), "returned a tuple of 1"),
    ],
)
def test_a_field_that_returns_something_else_is_told_what_and_what_was_wanted(
    solver: Any, make: Any, sentence: str
) -> None:
    with pytest.raises(FieldError, match=sentence):
        solve(returning(make), torch.ones(3, 2), solver)


@EVERY
@pytest.mark.parametrize(
    ("field", "name"), [(torch.nn.Linear(2, 2), "Linear"), (lambda z: -z, "<lambda>"), (torch.ones(2), "Tensor")]
)
@pytest.mark.parametrize("state", [torch.ones(3, 2), (torch.ones(3, 2), torch.ones(3))], ids=["tensor", "tuple"])
def test_a_field_that_does_not_take_time_and_state_is_told_to_or_to_be_wrapped(
    solver: Any, field: Any, name: str, state: Any
) -> None:
    sentence = rf"called as field\(t, z\), and '{name}' cannot be: .* wrap it in windermere.Autonomous"
    with pytest.raises(FieldError, match=sentence):
        solve(field, state, solver)
    with pytest.raises(FieldError, match=sentence):
        initial_step(field, state, order=1)


@EVERY
@pytest.mark.parametrize("graded", [False, True])
def test_a_field_that_changes_its_state_in_place_is_told_to_take_a_copy(solver: Any, graded: bool) -> None:
    field = Autonomous(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 2)))
    with torch.set_grad_enabled(graded), pytest.raises(FieldError, match=r"in place, .* nn\.ReLU"):
        solve(field, torch.ones(3, 2), solver)
    with pytest.raises(FieldError, match="in place, "):
        solve(lambda t, z: (z[0].neg_(), z[1]), (torch.ones(3, 2), torch.ones(3)), solver)


@EVERY
@pytest.mark.parametrize("handed_out", [lambda buffer: buffer, lambda buffer: buffer.view(3, 2)], ids=["same", "view"])
def test_a_field_that_writes_every_rate_into_the_same_memory_is_told_to_return_a_new_one(
    solver: Any, handed_out: Any
) -> None:
    buffer = torch.empty(3, 2)

    def field(t: Any, z: Any) -> Any:
        torch.neg(z, out=buffer)
        return handed_out(buffer)

    with pytest.raises(FieldError, match=r"over one before it, .* \.clone\(\)"):
        solve(field, torch.ones(3, 2), solver)
    with pytest.raises(FieldError, match="over one before it, "):
        initial_step(field, torch.ones(3, 2), order=1)


@EVERY
def test_memory_that_is_written_over_later_is_noticed_too(solver: Any) -> None:
    buffers = [torch.empty(3, 2), torch.empty(3, 2)]

    def in_turn(t: Any, z: Any) -> Any:
        buffers.reverse()
        return torch.neg(z, out=buffers[0])

    def standing_at_first(t: Any, z: Any) -> Any:
        return torch.mul(-z, torch.as_tensor(t > 0.3).float(), out=buffers[0])

    for field in (in_turn, standing_at_first):
        with pytest.raises(FieldError, match="over one before it, "):
            solve(field, torch.ones(3, 2), solver)


def test_on_the_adjoints_way_back_memory_that_is_written_over_is_noticed() -> None:
    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.buffer = nn.Parameter(torch.tensor(-1.0)), torch.empty(3, 2)

        def forward(self, t: Any, z: Any) -> Any:
            return self.buffer.detach().copy_(self.weight * z)

    way = Adjoint(solver=FixedStep("rk4", step=1 / 4))
    final: Any = solve(Reusing(), torch.ones(3, 2), FixedStep("euler", step=1 / 4), gradient=way).final
    with pytest.raises(FieldError, match="over one before it, "):
        final.sum().backward()


def test_one_stage_is_used_up_before_the_next_is_written_over_it() -> None:
    buffer, euler = torch.empty(3, 2), FixedStep("euler", step=1 / 10)
    reused: Any = solve(lambda t, z: torch.neg(z, out=buffer), torch.ones(3, 2), euler).final
    own: Any = solve(lambda t, z: -z, torch.ones(3, 2), euler).final
    assert torch.equal(reused, own)


@EVERY
def test_a_constant_field_may_return_one_tensor_for_good(solver: Any) -> None:
    rate = torch.tensor([[1.0, -2.0]])
    shared: Any = solve(lambda t, z: rate.expand(3, 2), torch.ones(3, 2), solver)
    own: Any = solve(lambda t, z: rate.expand(3, 2).clone(), torch.ones(3, 2), solver)
    assert torch.equal(shared.final, own.final)
    assert np.array_equal(shared.stats.evaluations, own.stats.evaluations)


class Unfinished(nn.Module):
    """A field whose author forgot its forward."""


@EVERY
@pytest.mark.parametrize("field", [Unfinished(), Autonomous(Unfinished())], ids=["field", "network"])
def test_a_module_without_a_forward_is_told_to_have_one(solver: Any, field: Any) -> None:
    for call in (lambda: solve(field, torch.ones(3, 2), solver), lambda: ODEBlock(field, solver)(torch.ones(3, 2))):
        with pytest.raises(
            FieldError, match=r"has no forward \(Module \[Unfinished\].*\): give it one, which takes t and z"
        ):
            call()


def test_a_field_that_is_not_implemented_comes_out_as_it_is() -> None:
    def field(t: Any, z: Any) -> Any:
        raise NotImplementedError("mine")

    with pytest.raises(NotImplementedError, match=r"^mine$"):
        solve(field, torch.ones(2), FIXED)


@pytest.mark.parametrize("evaluations", [2, 4], ids=["on the way there", "on the way back"])
def test_an_iterator_that_ends_inside_a_checkpointed_field_is_told_in_a_sentence(evaluations: int) -> None:
    """PyTorch checkpoints by generators, which a StopIteration would end."""
    rates, start = iter([-1.0] * evaluations), torch.ones(2, requires_grad=True)
    solver = FixedStep("euler", step=1 / 4)

    def there_and_back() -> None:
        end: Any = solve(lambda t, z: next(rates) * z * z, start, solver, gradient="checkpoint").final
        end.sum().backward()

    with pytest.raises(FieldError, match=r"the field raises StopIteration.*: give next\(\) a default"):
        there_and_back()


def test_a_type_error_inside_a_field_comes_out_as_it_is() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        solve(lambda t, z: z + "1", torch.ones(3, 2), FIXED)


@EVERY
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda z: (z[0],), "the state has 2 parts, but the field returned a tuple of 1"),
        (lambda z: z[0], "the state has 2 parts, but the field returned a float32 tensor"),
        (lambda z: (z[0], z[1], z[1]), "returned a tuple of 3"),
        (lambda z: (z[1], z[0]), r"the state is a float32 tensor of shape \(3, 2\)"),
        (lambda z: (z[0], 0.0), "returned a float"),
    ],
)
def test_a_field_that_returns_another_tuple_is_told_so(solver: Any, make: Any, sentence: str) -> None:
    with pytest.raises(FieldError, match=sentence):
        solve(returning(make), (torch.ones(3, 2), torch.ones(3)), solver)


@pytest.mark.parametrize(
    "times",
    [
        *((0.0,), (), (0, 1, 0.5), (0, 0), (1, 1, 2), (0, float("nan")), 1.0, ("now", "then"), None),
        *("01", b"01", {0.0, 1.0}, {0.0: 1, 1.0: 2}, (0, 10**400)),
    ],
)
def test_times_that_are_not_monotone_are_refused(times: Any) -> None:
    if times is None:
        assert solve(elementwise, torch.ones(2), FIXED, times).times == (0.0, 1.0)
        return
    for solver in (FIXED, DOPRI):
        with pytest.raises(UsageError, match="times must be"):
            solve(elementwise, torch.ones(2), solver, times)


YOUNG: list[Any] = []
"""States of kinds that the oldest PyTorch we work with does not have."""
if hasattr(torch, "float8_e4m3fn"):
    eight_bits = torch.ones(3).to(torch.float8_e4m3fn)
    YOUNG.append((eight_bits, r"dtype, of 16 bits or more, not torch.float8_e4m3fn: call .float\(\)"))
if hasattr(torch, "jagged"):
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    YOUNG.append((nested, r"a dense tensor, not a nested one: take .to_padded_tensor\(0\.0\)"))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (torch.ones(3, dtype=torch.int64), r"of a floating dtype, not torch.int64: call .float\(\)"),
        (torch.ones(3, dtype=torch.complex64), "of a floating dtype, not torch.complex64: take torch.view_as_real"),
        ((torch.ones(3), torch.ones(3, dtype=torch.bool)), "of a floating dtype"),
        (torch.ones(3, device="meta"), "on the device 'meta', where tensors have no values: make it on another"),
        (torch.eye(3).to_sparse(), r"must be a dense tensor, not a sparse_coo one: call .to_dense\(\)"),
        ((torch.ones(3, 3), torch.eye(3).to_sparse()), "a dense tensor, not a sparse_coo one"),
        (torch.eye(3).to_mkldnn(), r"a dense tensor, not a mkldnn one: call .to_dense\(\)"),
        ((torch.ones(3), torch.ones(3, dtype=DOUBLE)), "one dtype and one device"),
        ((torch.ones(3), torch.ones(3, device="meta")), "one dtype and one device"),
        (np.ones(3), "a tensor or a tuple of tensors, but has a ndarray"),
        (1.0, "but has a float"),
        ((torch.ones(3), 1.0), "but has a float"),
        ((), "but has a tuple"),
        (None, "but has a NoneType"),
        *YOUNG,
    ],
)
def test_a_state_that_is_none_is_refused(state: Any, sentence: str) -> None:
    for solver in (FIXED, DOPRI):
        with pytest.raises(UsageError, match=sentence):
            solve(elementwise, state, solver)


@pytest.mark.parametrize("state", [torch.ones(()), (torch.ones(3), torch.ones(4)), (torch.ones(3), torch.ones(()))])
def test_control_by_sample_needs_samples(state: Any) -> None:
    with pytest.raises(UsageError, match="parts share their leading sample axis"):
        solve(lambda t, z: z, state, BY_SAMPLE)


@pytest.mark.parametrize("solver", ["rk4", None, 0.1, FixedStep, ("rk4", 0.1), torch.linspace(0, 1, 99)])
def test_a_solver_that_is_none_is_refused_in_one_line(solver: Any) -> None:
    with pytest.raises(UsageError, match=r"^a solver is a FixedStep, an OnGrid or an Adaptive.{0,150}$"):
        solve(elementwise, torch.ones(2), solver)


@pytest.mark.parametrize(
    "parameters", [torch.ones(2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).named_parameters(), "weights", 3]
)
def test_an_adjoint_depends_on_several_tensors(parameters: Any) -> None:
    with pytest.raises(UsageError, match=r"an Adjoint's parameters are several tensors, .* not a \w+$"):
        Adjoint(parameters=parameters)


@pytest.mark.parametrize("times", [torch.tensor([0.0, 1.0]), (0.0, torch.tensor(1.0))], ids=["tensor", "entry"])
def test_times_have_no_gradient_and_one_that_is_wanted_is_refused(times: Any) -> None:
    wanted = times[1] if isinstance(times, tuple) else times
    wanted.requires_grad_()
    with pytest.raises(UsageError, match="no gradient with respect to its times"):
        solve(elementwise, torch.ones(2), FIXED, times)
    with torch.no_grad():
        assert solve(elementwise, torch.ones(2), FIXED, times).times == (0.0, 1.0)


def test_a_derivative_by_the_times_in_forward_mode_is_refused_and_one_by_the_state_is_not() -> None:
    def by_time(last: torch.Tensor) -> torch.Tensor:
        return solve(elementwise, torch.ones(2), FIXED, (0.0, last)).final

    one = torch.tensor(1.0)
    with pytest.raises(UsageError, match="no gradient with respect to its times"):
        torch.func.jvp(by_time, (one,), (one,))
    state = torch.ones(2)
    found = torch.func.jvp(lambda z: solve(elementwise, z, FIXED, (0.0, one)).final, (state,), (state,))
    assert found[1].abs().max() > 0
