"""Steps that are drawn anew for each batch, so that there is no one solver's error to be learned, and then refined.

A controller looks for the step that a model needs, and has to check. Here nothing is checked: what a batch is solved
with is a pure function of iteration and seed, known before training begins, so that resuming needs no state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any, TypeAlias

import numpy as np

from windermere.adaptation.controller import check_positive
from windermere.checks import as_number, is_whole
from windermere.errors import UsageError, describe_value
from windermere.solvers import FixedStep
from windermere.solvers.solver import MOST_STEPS, SAME_STEP

Chooser: TypeAlias = Callable[[Any], FixedStep]
"""From a block's own solver to the one for a batch: what `using` takes."""
STREAM = 0x57E9
"""Keeps the draws of steps away from all others that are made from the same seed."""
AT_ONCE = 1000
"""Iterations whose steps are drawn together: to begin a stream for each would take longer than to draw from it."""


@dataclass(frozen=True, kw_only=True)
class RandomSteps:
    """Steps drawn anew for each batch, and at the end refined down to the model's own.

    `mean` is the mean number of steps over `span`, the length of time that is solved for: every whole number from 1 to
    twice the mean less one is equally likely. For the last iterations, the share `finish` of all, steps are halved
    again and again until they are those of the model's own solver, which should be fine: each size is trained with for
    as long as costs the same. With finish=0 there is no such end, and the model is tied sooner.

    Ask `at` in each iteration, and give what it returns to `using`. It checks nothing: audit the model in the end.

    >>> import windermere as wm
    >>> schedule = wm.RandomSteps(mean=3, finish=0.2)
    >>> own = wm.FixedStep("midpoint", step=1 / 32)
    >>> print(*(schedule.at(iteration, of=1000)(own) for iteration in (0, 1, 2)), sep="; ")
    midpoint, h = 1/2; midpoint, h = 1; midpoint, h = 1/2
    >>> print(*(schedule.at(iteration, of=1000)(own) for iteration in (800, 920, 999)), sep="; ")
    midpoint, h = 1/8; midpoint, h = 1/16; midpoint, h = 1/32
    """

    mean: int = 6
    finish: float = 0.2
    span: float = 1.0

    def __post_init__(self) -> None:
        check_positive(span=self.span)
        if not is_whole(self.mean, least=2):
            raise UsageError(f"mean must be a whole number of steps, at least 2, not {describe_value(self.mean)}")
        if self.mean > MOST_STEPS // 2:  # up to twice as many are drawn
            raise UsageError(f"mean must be at most {MOST_STEPS // 2} steps, not {describe_value(self.mean)}")
        if not 0 <= as_number(self.finish) < 1:
            raise UsageError(
                f"finish must be a share of all iterations, from 0 to less than 1, not {describe_value(self.finish)}"
            )

    def at(self, iteration: int, of: int, seed: int = 0) -> Chooser:
        """What a batch is solved with, in this iteration (counted from 0) out of so many: a function from the model's
        own solver to that."""
        if not 0 <= iteration < of:
            raise UsageError(f"iterations are counted from 0: there is no {iteration} among {of}")
        begin = of - round(self.finish * of)
        if iteration >= begin:
            return lambda own: self._refined(_fixed(own), (iteration - begin) / (of - begin))
        many, place = divmod(iteration, AT_ONCE)
        steps = _drawn(self.mean, seed, many)[place]
        return lambda own: FixedStep.of(_fixed(own).method, steps=steps, span=self.span)

    def _refined(self, own: FixedStep, done: float) -> FixedStep:
        """The step once a share of the finish is done."""
        coarsest = self.span / (2 * self.mean) * (1 + SAME_STEP)
        doubled = (own.step * 2**k for k in range(1, 64))
        sizes = [*reversed([*takewhile(lambda step: step <= coarsest, doubled)]), own.step]
        ends = accumulate(sizes)  # a solve takes the longer the smaller its steps, so that each has the same cost
        return own.with_precision(next((h for h, end in zip(sizes, ends, strict=True) if done * sum(sizes) < end)))


@lru_cache(maxsize=64)
def _drawn(mean: int, seed: int, many: int) -> list[int]:
    """The numbers of steps for a thousand iterations, `many` thousands from the first."""
    drawn: list[int] = np.random.default_rng((STREAM, seed, many)).integers(1, 2 * mean, AT_ONCE).tolist()
    return drawn


def _fixed(own: Any) -> FixedStep:
    if not isinstance(own, FixedStep):
        raise UsageError(f"random steps are for fixed steps of one size, and the model's own solver is {own}")
    return own
