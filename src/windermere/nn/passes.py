"""How all passes of one model are run: alike in what they draw, and in float64 where that can be."""

from collections.abc import Callable
from typing import TypeVar

from torch import dtype, nn

from windermere.errors import DoublePrecisionError
from windermere.nn.draws import HELD, Draws, dtype_of

Result = TypeVar("Result")


class Passes:
    """The passes of one model, the first of which shows whether it draws random numbers."""

    def __init__(self, model: nn.Module | None) -> None:
        self.model = model
        self.refusal: str | None = None
        """Why there are none in float64."""
        self._draws: bool | None = None
        """Whether the model draws; None before its first pass."""
        self._autocast: dtype | None = None
        """In what autocast computes some of a pass that is not in float64."""
        self._converts = False
        """Whether float64 takes a hand with the numbers that the model makes without a dtype."""

    @property
    def holds_draws(self) -> bool:
        return bool(self._draws)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a verdict must know of them."""
        return (*([HELD] if self._draws else []), *([self.refusal] if self.refusal else []))

    def dtype(self, *, double: bool) -> str:
        """What a pass is computed in, the coarsest of it."""
        return "float64" if double else str(self._autocast or dtype_of(self.model)).removeprefix("torch.")

    def run(self, one: Callable[[Draws | None], Result], *, double: bool = False) -> Result:
        """One pass, which is given what holds its draws, or None where it draws nothing.

        Raises `DoublePrecisionError` where the model can't run in float64, at once where that is known.
        """
        if not double:
            return self._once(one, double=False)
        if self.refusal is not None:
            raise DoublePrecisionError(self.refusal)
        try:
            return self._once(one, double=True)
        except DoublePrecisionError as error:
            return self._once_more(one, error)

    def _once_more(self, one: Callable[[Draws | None], Result], error: DoublePrecisionError) -> Result:
        """With numbers without a dtype in float64 too, if they were not; a model that fails then insists on its own."""
        if not (self._draws or self._converts):
            self._converts = True
            try:
                return self._once(one, double=True)
            except DoublePrecisionError:
                self._converts = False
        self.refusal = str(error)
        raise error

    def _once(self, one: Callable[[Draws | None], Result], *, double: bool) -> Result:
        if self._draws is False and not (double and self._converts):
            return one(None)
        with Draws(self.model, double=double) as draws:
            result = one(draws)
        self._draws, self._autocast = self._draws or draws.drew, self._autocast or draws.autocast
        return result
