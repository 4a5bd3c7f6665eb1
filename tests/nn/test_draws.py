"""Random numbers that models draw: the same in every pass, and nobody else's are touched."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from windermere.nn.draws import Draws

MODEL = nn.Linear(2, 2)


def drawn(dtype: torch.dtype) -> list[Tensor]:
    """Numbers in all the ways in which a model may ask for them."""
    like = torch.ones(20, 2, dtype=dtype)
    return [
        torch.randn(3),
        torch.rand(33, dtype=dtype),
        torch.randn_like(like),
        torch.zeros(20, dtype=dtype).normal_(),
        nn.init.uniform_(torch.zeros(20, dtype=dtype)),
        torch.bernoulli(0.5 * like),
        MultivariateNormal(torch.zeros(2), torch.eye(2)).sample((3,)),
        nn.functional.dropout(like, 0.5, training=True),
        (torch.randn_like(like) < 0) * 2.0 - 1.0,
    ]


def test_every_pass_draws_the_same_and_one_in_float64_the_very_numbers_of_float32() -> None:
    with Draws(MODEL):
        first = drawn(torch.float32)
    with Draws(MODEL):
        second = drawn(torch.float32)
    with Draws(MODEL, double=True):
        double = drawn(torch.float64)
    for one, other, exact in zip(first, second, double, strict=True):
        assert torch.equal(one, other)
        assert exact.dtype == torch.float64
        assert torch.equal(one.double(), exact)


def test_a_model_in_float64_draws_float64_as_ever() -> None:
    with Draws(MODEL.double(), double=True):
        double = torch.randn(20, dtype=torch.float64)
    MODEL.float()
    assert not torch.equal(double, double.float().double())


def test_what_is_drawn_outside_goes_on_as_if_nothing_had_been() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    with Draws(MODEL):
        drawn(torch.float32)
    assert torch.equal(torch.randn(4), expected)


def test_evaluations_of_one_solve_draw_the_same_and_what_follows_does_not_depend_on_their_number() -> None:
    def after(evaluations: int) -> tuple[list[Tensor], Tensor]:
        with Draws(MODEL) as draws:
            before = torch.randn(5)
            with draws.of_a_solve():
                seen = []
                for _ in range(evaluations):
                    seen.append(torch.randn(5))
                    draws.again()
            assert not torch.equal(before, seen[0])
            return seen, torch.randn(5)

    (few, next_), (many, other) = after(2), after(7)
    assert all(torch.equal(few[0], one) for one in (*few, *many))
    assert torch.equal(next_, other)
    assert not torch.equal(next_, few[0])


def test_dropout_that_is_off_is_no_draw_and_a_generator_of_ones_own_stays() -> None:
    own = torch.Generator().manual_seed(0)
    with Draws(MODEL) as draws:
        nn.Dropout(0.5).eval()(torch.ones(3))
        one, other = (torch.randn(3, generator=own) for _ in range(2))
    assert not draws.drew
    assert not torch.equal(one, other)


def test_numbers_of_no_dtype_are_float64_there_and_those_of_a_named_one_stay() -> None:
    flags: Any = torch.tensor([True, False])
    with Draws(MODEL, double=True):
        free = [torch.zeros(2), torch.linspace(0, 1, 3), flags * 2.0, torch.arange(2) / 2, torch.tensor([0.5])]
        named = [torch.zeros(2, dtype=torch.float32), torch.arange(2).float(), torch.arange(2).to(torch.float32)]
        whole = [torch.arange(2), flags.sum()]
    assert {value.dtype for value in free} == {torch.float64}
    assert {value.dtype for value in named} == {torch.float32}
    assert {value.dtype for value in whole} == {torch.int64}
