"""ODE blocks as layers, and `using`, which swaps their solvers for a while."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.solvers.fields import DOUBLE, Network, some_states
from windermere.errors import UnknownNameError, UsageError
from windermere.nn import Autonomous, ODEBlock, ode_blocks, using
from windermere.solvers import Adaptive, Adjoint, FixedStep, Gradient, OnGrid, Solver, counting, solve

COARSE, FINE = FixedStep("euler", step=1 / 2), FixedStep("rk4", step=1 / 64)


def model(*solvers: Solver, gradient: Gradient = "backprop") -> nn.Sequential:
    """Layers before, between and after blocks, the same at every call."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(3, 2, dtype=DOUBLE), nn.Tanh()]
    for seed, solver in enumerate(solvers):
        layers += [ODEBlock(Network(seed=seed), solver, gradient=gradient), nn.Linear(2, 2, dtype=DOUBLE)]
    return nn.Sequential(*layers)


def solvers_of(module: nn.Module) -> list[Solver]:
    return [block.solver for block in ode_blocks(module)]


def test_a_block_is_the_solve_of_its_field() -> None:
    field, z = Network(), some_states(4, 2)
    assert torch.equal(ODEBlock(field, COARSE)(z), solve(field, z, COARSE).final)


def test_a_block_with_more_than_two_times_returns_the_states_at_all_of_them() -> None:
    field, z, times = Network(), some_states(4, 2), (0.0, 0.5, 2.0)
    states = ODEBlock(field, COARSE, times=times)(z)
    assert states.shape == (3, 4, 2)
    assert torch.equal(states[0], z)
    torch.testing.assert_close(states, solve(field, z, COARSE, times).states)


def test_a_block_may_interpolate_the_times_between() -> None:
    field, z, times = Network(), some_states(4, 2), (0.0, 0.5, 2.0)
    solver = Adaptive("dopri54", tolerance=1e-2)
    for inner, evaluations in ((False, None), (True, solve(field, z, solver, (0.0, 2.0)).stats.evaluations)):
        with counting() as count:
            states = ODEBlock(field, solver, times=times, interpolate=inner)(z)
        assert torch.equal(states, solve(field, z, solver, times, interpolate=inner).states)
        assert evaluations is None or count.forward == evaluations


def test_a_block_interpolates_with_adaptive_steps_and_lands_with_fixed_ones_unless_told() -> None:
    field, z, many = Network(), some_states(4, 2), tuple(i / 99 for i in range(100))
    adaptive = Adaptive("dopri54", tolerance=1e-3)

    def cost(*given: Any, **named: Any) -> Any:
        with counting() as count:
            ODEBlock(*given, **named)(z)
        return count.forward

    assert cost(field, adaptive, times=many) == cost(field, adaptive) < 99
    assert cost(field, adaptive, times=many, interpolate=False) > 6 * 99
    assert cost(field, COARSE, times=many) == 99 * COARSE.tableau.propagating


def test_a_block_from_before_there_was_a_choice_lands_on_every_time() -> None:
    field, z, times = Network(), some_states(4, 2), (0.0, 0.5, 2.0)
    solver = Adaptive("dopri54", tolerance=1e-2)
    block = ODEBlock(field, solver, times=times)
    del block.interpolate
    landed = solve(field, z, solver, times, interpolate=False).states
    assert torch.equal(block(z), landed)


def test_a_block_walks_the_times_it_was_given_backwards_too() -> None:
    field, z = Network(), some_states(4, 2)
    there = ODEBlock(field, FINE, times=(0.0, 1.5))(z)
    torch.testing.assert_close(ODEBlock(field, FINE, times=(1.5, 0.0))(there), z, rtol=0, atol=1e-6)


def test_a_block_takes_a_tuple_of_tensors() -> None:
    class Pair(nn.Module):
        def forward(self, t: Tensor, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return -z[0], z[0].sum(-1)

    first, second = ODEBlock(Pair(), FINE)((some_states(4, 2), some_states(4)))
    assert (first.shape, second.shape) == ((4, 2), (4,))


def test_a_network_that_knows_no_time_becomes_a_field() -> None:
    network = nn.Sequential(nn.Linear(2, 4, dtype=DOUBLE), nn.Tanh(), nn.Linear(4, 2, dtype=DOUBLE))
    z = some_states(4, 2)
    block = ODEBlock(Autonomous(network), FINE)
    torch.testing.assert_close(block(z), solve(lambda t, z: network(z), z, FINE).final)
    assert sum(p.numel() for p in block.parameters()) == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_layers_before_between_and_after_blocks_are_all_trained(gradient: Gradient) -> None:
    x = some_states(5, 3)
    found = model(FINE, Adaptive("dopri54", tolerance=1e-6), gradient=gradient)
    expected = model(FINE, Adaptive("dopri54", tolerance=1e-6))
    expected.load_state_dict(found.state_dict())
    for module in (found, expected):
        module(x).square().sum().backward()
    for got, want in zip(found.parameters(), expected.parameters(), strict=True):
        assert got.grad is not None
        assert want.grad is not None
        assert got.grad.abs().sum() > 0
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_the_layer_behind_a_block_may_work_in_place(gradient: Gradient) -> None:
    found = []
    for in_place in (True, False):
        block = ODEBlock(Network(), FixedStep("rk4", step=1 / 4), gradient=gradient)
        model, z = nn.Sequential(block, nn.ReLU(inplace=in_place)), some_states(3, 2).requires_grad_()
        model(z).square().sum().backward()
        found.append(z.grad)
    torch.testing.assert_close(*found)


def test_blocks_inside_modules_inside_modules_are_found_once_each() -> None:
    shared = ODEBlock(Network(), COARSE)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleDict({"a": nn.Sequential(shared, nn.Sequential(ODEBlock(Network(), FINE)))})
            self.again = shared

    assert solvers_of(Outer()) == [COARSE, FINE]
    assert solvers_of(shared) == [COARSE]


def test_using_swaps_every_blocks_solver_for_its_scope_only() -> None:
    module, x = model(COARSE, COARSE), some_states(5, 3)
    reference = model(FINE, FINE)
    reference.load_state_dict(module.state_dict())
    own = module(x)
    with using(module, FINE) as same:
        assert same is module
        assert solvers_of(module) == [FINE, FINE]
        assert torch.equal(module(x), reference(x))
    assert solvers_of(module) == [COARSE, COARSE]
    assert torch.equal(module(x), own)


def test_using_takes_a_function_of_each_blocks_own_solver() -> None:
    module = model(COARSE, Adaptive("dopri54", tolerance=1e-3))
    with using(module, lambda own: own.with_precision(own.precision / 10)):
        assert solvers_of(module) == [
            FixedStep("euler", step=1 / 20),
            Adaptive("dopri54", tolerance=1e-3).with_precision(1e-4),
        ]
    assert solvers_of(module) == [COARSE, Adaptive("dopri54", tolerance=1e-3)]


def test_scopes_nest_and_each_restores_what_it_found() -> None:
    module, third = model(COARSE), FixedStep("heun", step=1 / 3)
    with using(module, FINE):
        with using(module, third):
            assert solvers_of(module) == [third]
        assert solvers_of(module) == [FINE]
        with using(module, lambda own: own.with_precision(1 / 7)):
            assert solvers_of(module) == [FixedStep("rk4", step=1 / 7)]
        assert solvers_of(module) == [FINE]
    assert solvers_of(module) == [COARSE]


def test_an_exception_inside_the_scope_restores_the_solvers() -> None:
    module = model(COARSE, FINE)
    with pytest.raises(ZeroDivisionError), using(module, Adaptive("dopri54", tolerance=1e-3)):
        raise ZeroDivisionError
    assert solvers_of(module) == [COARSE, FINE]


def test_a_function_that_fails_for_one_block_changes_none() -> None:
    module = model(COARSE, Adaptive("dopri54", tolerance=1e-3))

    def halved(own: Solver) -> Solver:
        assert isinstance(own, FixedStep), "only fixed steps can be halved here"
        return own.with_precision(own.step / 2)

    with pytest.raises(AssertionError), using(module, halved):
        pass
    assert solvers_of(module) == [COARSE, Adaptive("dopri54", tolerance=1e-3)]


def test_a_model_without_a_block_is_refused() -> None:
    with (
        pytest.raises(UsageError, match="this Sequential has no ODEBlock inside: wrap its field"),
        using(nn.Sequential(), FINE),
    ):
        pass
    with pytest.raises(UsageError, match="this Linear has no ODEBlock"):
        ode_blocks(nn.Linear(2, 2))
    with pytest.raises(UsageError, match=r"looked for in a torch.nn.Module, not in a method"):
        using(ODEBlock(Network(), FINE).forward, FINE).__enter__()  # type: ignore[arg-type]


def test_a_name_is_not_a_solver() -> None:
    with pytest.raises(UsageError, match="a solver is a FixedStep"), using(block := ODEBlock(Network(), FINE), "rk4"):  # type: ignore[arg-type]
        block(some_states(2, 2))
    with pytest.raises(UnknownNameError, match="no gradient 'ajoint': did you mean 'adjoint'"):
        ODEBlock(Network(), FINE, gradient="ajoint")(some_states(2, 2))  # type: ignore[arg-type]


def test_what_a_block_cannot_solve_with_is_refused_when_it_is_made() -> None:
    grid = OnGrid("euler", (0.0, 0.5, 2.0))
    for options, sentence in (
        ({"solver": "euler"}, "a solver is a FixedStep"),
        ({"gradient": "foo"}, "no gradient 'foo'"),
        ({"times": (0,)}, "times must be two or more"),
        ({"solver": grid, "times": (0.0, 1.0)}, "t = 1.0 was asked for, but it is not on the solver's grid"),
    ):
        with pytest.raises(UsageError, match=sentence):
            ODEBlock(Network(), **{"solver": FINE, **options})  # type: ignore[arg-type]
    block = ODEBlock(Network(), FINE)
    for solver in ("rk4", FixedStep):
        with pytest.raises(UsageError, match="a solver is a FixedStep"):
            using(block, solver).__enter__()  # type: ignore[arg-type]
    assert block.solver == FINE


def test_a_block_with_a_grid_walks_from_its_one_end_to_the_other() -> None:
    field, z, grid = Network(), some_states(4, 2), OnGrid("euler", (0.0, 0.5, 2.0))
    block = ODEBlock(field, grid)
    assert block.times == (0.0, 2.0)
    assert torch.equal(block(z), solve(field, z, grid).final)


def test_the_solver_is_bound_at_the_forward_pass_for_an_adjoint_that_runs_later() -> None:
    block = ODEBlock(Network(), COARSE, gradient="adjoint")
    with counting() as count:
        with using(block, FixedStep("rk4", step=1 / 5)):
            end = block(some_states(3, 2))
        assert block.solver == COARSE
        end.sum().backward()  # type: ignore[no-untyped-call]
    assert (count.forward, count.backward) == (20, 20)


def test_an_adjoints_own_solver_is_not_swapped() -> None:
    block = ODEBlock(Network(), COARSE, gradient=Adjoint(FixedStep("heun", step=1 / 3)))
    with counting() as count, using(block, FixedStep("rk4", step=1 / 5)):
        block(some_states(3, 2)).sum().backward()  # type: ignore[no-untyped-call]
    assert (count.forward, count.backward) == (20, 6)


def test_a_block_hides_its_solution_but_not_what_it_costs() -> None:
    module, x = model(COARSE, FINE), some_states(5, 3)
    with counting() as count:
        module(x)
    assert count.forward == 2 + 4 * 64


def test_a_block_says_how_it_solves() -> None:
    text = repr(ODEBlock(Network(), FINE, gradient="checkpoint"))
    assert "solver=(rk4, h = 1/64), times=(0.0, 1.0), gradient=checkpoint" in text
    assert "interpolate" not in text
    for chosen in (False, True):
        assert f"interpolate={chosen}" in repr(ODEBlock(Network(), FINE, times=(0, 0.3, 1), interpolate=chosen))


def test_a_block_is_saved_and_loaded_like_any_layer() -> None:
    module, x = model(COARSE), some_states(5, 3)
    other: Any = model(COARSE)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), module(x))
    assert set(module.state_dict()) == {name for name, _ in module.named_parameters()}
