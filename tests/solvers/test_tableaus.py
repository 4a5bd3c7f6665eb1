"""Tableaus are data that check themselves."""

from dataclasses import replace
from math import factorial, prod

import pytest

from windermere.errors import UnknownNameError, UsageError
from windermere.solvers import METHODS, Tableau, adaptive_names
from windermere.solvers.tableaus import Tree, tableau, trees

ORDERS = {
    "euler": 1,
    "midpoint": 2,
    "heun": 2,
    "heun3": 3,
    "rk4": 4,
    "rk4_38": 4,
    "fehlberg21": 2,
    "heun21": 2,
    "bosh32": 3,
    "dopri54": 5,
    "tsit54": 5,
}
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=lambda t: t.name)


def remade(method: Tableau, **changes: object) -> Tableau:
    """The same tableau, made anew and so checked anew."""
    return replace(method, **changes)  # type: ignore[arg-type]


def size(tree: Tree) -> int:
    return 1 + sum(map(size, tree))


def density(tree: Tree) -> int:
    return size(tree) * prod(map(density, tree))


def symmetries(tree: Tree) -> int:
    """How many relabellings of its nodes leave the tree as it is."""
    return prod(map(symmetries, tree)) * prod(factorial(tree.count(kind)) for kind in set(tree))


def test_the_nine_methods_have_the_orders_that_their_papers_state() -> None:
    assert {name: t.order for name, t in METHODS.items()} == ORDERS


@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (2, 1), (3, 2), (4, 4), (5, 9), (6, 20), (7, 48)])
def test_there_are_as_many_rooted_trees_as_cayley_counted(nodes: int, count: int) -> None:
    found = list(trees(nodes))
    assert len(found) == count
    assert all(size(tree) == nodes for tree in found)
    # Each can be grown node by node in n! / (gamma sigma) ways, of (n-1)! in all: none is missing, none is twice.
    assert sum(factorial(nodes) // (density(tree) * symmetries(tree)) for tree in found) == factorial(nodes - 1)


@EVERY
def test_a_method_satisfies_the_order_conditions_of_its_order_and_no_higher_ones(method: Tableau) -> None:
    remade(method)
    with pytest.raises(UsageError, match=f"'{method.name}' misses order {method.order + 1}"):
        remade(method, order=method.order + 1)


@pytest.mark.parametrize("name", adaptive_names())
def test_an_embedded_solution_is_one_order_below_and_no_better(name: str) -> None:
    method = METHODS[name]
    assert method.embedded_order == method.order - 1
    with pytest.raises(UsageError, match="misses order"):
        remade(method, embedded_order=method.order)


@EVERY
def test_a_quadrature_of_the_nodes_alone_integrates_polynomials_up_to_the_order(method: Tableau) -> None:
    for power in range(method.order):
        integral = sum(b * c**power for b, c in zip(method.b, method.c, strict=True))
        assert integral == pytest.approx(1 / (power + 1), abs=1e-13)


@EVERY
def test_a_wrong_weight_is_refused(method: Tableau) -> None:
    with pytest.raises(UsageError, match="misses order"):
        remade(method, b=(method.b[0] + 1e-6, *method.b[1:]))


@pytest.mark.parametrize("name", ["rk4", "rk4_38", "bosh32", "dopri54", "tsit54"])
def test_a_wrong_coefficient_is_refused_even_if_its_row_still_sums_to_c(name: str) -> None:
    method = METHODS[name]
    row = (method.a[2][0] + 1e-6, method.a[2][1] - 1e-6)
    with pytest.raises(UsageError, match="misses order"):
        remade(method, a=(*method.a[:2], row, *method.a[3:]))


@EVERY
def test_a_row_that_does_not_sum_to_c_is_refused(method: Tableau) -> None:
    with pytest.raises(UsageError, match=f"row {method.stages - 1} of a sums to"):
        remade(method, c=(*method.c[:-1], method.c[-1] + 1e-9))


@pytest.mark.parametrize(
    "changes",
    [
        {"a": ((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 0.5, 0.5))},
        {"a": ((), (1 / 2,), (0.0, 1 / 2))},
        {"a": ((0.0,), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0))},
        {"c": (0.0, 1 / 2, 1 / 2)},
        {"b": (1 / 6, 1 / 3, 1 / 3, 1 / 12, 1 / 12)},
    ],
)
def test_a_tableau_that_is_not_explicit_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="not explicit"):
        remade(METHODS["rk4"], **changes)


def test_embedded_weights_of_another_length_are_refused() -> None:
    with pytest.raises(UsageError, match="embedded weights are not 4"):
        remade(METHODS["bosh32"], b_embedded=(0.5, 0.5, 0.0))


def test_only_bosh32_dopri54_and_tsit54_may_reuse_their_last_stage() -> None:
    assert [name for name, t in METHODS.items() if t.fsal] == ["bosh32", "dopri54", "tsit54"]


def test_five_methods_estimate_their_error_and_the_others_say_which_do() -> None:
    assert adaptive_names() == ["fehlberg21", "heun21", "bosh32", "dopri54", "tsit54"]
    for name in adaptive_names():
        assert sum(METHODS[name].error_weights) == pytest.approx(0, abs=1e-14)
        assert any(abs(weight) > 1e-3 for weight in METHODS[name].error_weights)
    with pytest.raises(UsageError, match=r"'rk4' has no error estimate: give it a step, .* or dopri54"):
        METHODS["rk4"].error_weights  # noqa: B018


def test_the_classical_rk4_and_the_three_eighths_rule_are_two_methods() -> None:
    assert METHODS["rk4"].b == (1 / 6, 1 / 3, 1 / 3, 1 / 6)
    assert METHODS["rk4_38"].b == (1 / 8, 3 / 8, 3 / 8, 1 / 8)


def test_a_tableau_and_the_table_of_methods_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        METHODS["euler"].order = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        METHODS["euler"] = METHODS["rk4"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("slip", "nearest"), [("dopri5", "dopri54"), ("rk45", "rk4"), ("Euler", "euler"), ("bosh3", "bosh32")]
)
def test_an_unknown_method_is_refused_with_the_nearest_name(slip: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"no method '{slip}': did you mean '{nearest}'"):
        tableau(slip)


def test_a_method_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(UnknownNameError, match="no method 'zzz': known are bosh32, dopri54, euler"):
        tableau("zzz")
