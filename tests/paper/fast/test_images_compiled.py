"""The image field compiled, as on a GPU: what is compiled and how often, and what is said where nothing can be."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.paper.fast.image_solves import BOTH, GRADIENTS, SOLVERS, Convolving, a_field, furthest, pictures, solved
from windermere.nn.arithmetic import ARITHMETICS
from windermere.paper.fast import images
from windermere.paper.fast.compiling import compiled
from windermere.solvers import Gradient, solve


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """As on a GPU, with a compiler that only takes notes of what it was given."""
    given: list[Any] = []

    def compiler(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        given.append((function.__name__, settings))
        return function

    monkeypatch.setattr(torch, "compile", compiler)
    monkeypatch.setattr(images, "_compiles", lambda _: True)
    compiled.cache_clear()
    yield given
    compiled.cache_clear()


def test_each_function_is_compiled_once_for_all_solves_weights_and_arithmetics(compiling: list[Any]) -> None:
    for arithmetic in ARITHMETICS:
        for gradient in GRADIENTS:
            field = a_field(arithmetic=arithmetic, dtype=torch.float32)
            solved(field, pictures(2).float(), SOLVERS[0], gradient)
    assert compiling == [("evaluate", {"dynamic": False}), ("pull_back", {"dynamic": False})]


def test_the_first_evaluation_is_compiled_with_the_others_and_the_input_stays_without_gradient(
    monkeypatch: pytest.MonkeyPatch, compiling: list[Any]
) -> None:
    needed: list[bool] = []

    def noting(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def call(low: torch.dtype, z: Tensor, *weights: Tensor) -> Any:
            needed.append(z.requires_grad)
            return function(low, z, *weights)

        return call

    monkeypatch.setattr(torch, "compile", noting)
    z = pictures(2)
    end, frozen = (torch.as_tensor(solve(f, z, SOLVERS[0]).final) for f in (a_field(), a_field().requires_grad_(False)))
    assert needed == [True] * 4 + [False] * 4
    assert [tensor.requires_grad for tensor in (z, end, frozen)] == [False, True, False]


def test_tests_and_trials_without_gradients_are_not_compiled(compiling: list[Any]) -> None:
    with torch.no_grad():
        solve(a_field(), pictures(2), SOLVERS[0])
    assert not compiling


@BOTH
def test_where_nothing_can_be_compiled_a_warning_says_so_once(
    monkeypatch: pytest.MonkeyPatch, gradient: Gradient, compiling: list[Any]
) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def fails(*_: Any) -> Any:
        raise TorchDynamoException("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(torch, "compile", lambda function, **_: fails)
    field, z = a_field(), pictures(2)
    with pytest.warns(UserWarning, match="cannot be compiled here") as told:
        found = solved(field, z, SOLVERS[0], gradient)
    assert {str(warning.message) for warning in told} == {
        "an image field cannot be compiled here, and is slower for it: Failed to find C compiler."
    }
    assert furthest(found, solved(Convolving(field), z, SOLVERS[0])) < 1e-13
    solved(field, z, SOLVERS[0], gradient)  # a second warning would be an error
