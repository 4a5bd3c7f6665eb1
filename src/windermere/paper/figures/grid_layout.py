"""What a grid of trainings and tests is, and where each test stands in a figure of it, in which colour and mark."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

MARKS = {"midpoint": "x", "dopri54": "x", "rk4": "^"}
"""The marks of test methods. The training method has circles, and a method that is not listed has diamonds."""
SHADES = (0.76, 0.0)
"""The part of the viridis colours to use, from coarse to fine: lightness falls evenly, and the yellow, which can hardly
be seen on white, is left out."""
GAPS = (0.03, 0.1)
"""The least and the largest gap between points that would coincide, in octaves of steps or decades of tolerances."""


@dataclass(frozen=True, kw_only=True)
class GridTest:
    """One model under one solver."""

    trained: float
    """The step size or tolerance it was trained with."""
    tested: float
    """The step size or tolerance of this test."""
    method: str
    """The method of this test."""
    seed: int
    accuracy: float | None
    """None where the solve failed, or the training diverged."""
    own: bool
    """Whether it is the solver of training."""
    counts: bool
    """Whether its seed trained: others are grey, and no mean has them."""


@dataclass(frozen=True, kw_only=True)
class GridFigure:
    """All tests of one grid: one data set, one training method."""

    name: str
    """ "Sphere2, trained with euler" """
    precision_name: str
    """`step` or `tolerance`"""
    tests: Sequence[GridTest]
    fails: float | None
    """The finest training precision at which a better solver does not agree; None where there is none."""
    passes: float | None
    """The coarsest one from which on it does; None if never."""


def precision_label(precision: float, *, steps: bool) -> str:
    """A step size as the number of steps, or a tolerance."""
    if steps or precision >= 1:
        return f"{round(1 / precision if steps else precision, 1):g}"
    # A tolerance times 0.1 has more digits than anyone wants.
    return np.format_float_scientific(float(f"{precision:.3g}"), trim="-", exp_digits=1)


def with_unit(precision: float, *, steps: bool) -> str:
    label = precision_label(precision, steps=steps)
    return f"{label} step{'' if label == '1' else 's'}" if steps else f"tolerance {label}"


class GridLayout:
    """Tests by training precision, and the place, colour and mark of each."""

    def __init__(self, figure: GridFigure) -> None:
        self.figure = figure
        self.method, *_ = (test.method for test in figure.tests if test.own)
        self.steps = figure.precision_name == "step"
        self.precisions = sorted({test.trained for test in figure.tests}, reverse=True)
        self.seeds = sorted({test.seed for test in figure.tests})
        others = {test.method for test in figure.tests} - {self.method}
        self.methods = [self.method, *sorted(others, key=lambda method: (method != "midpoint", method))]
        shades = colormaps["viridis"](np.linspace(*SHADES, len(self.precisions)))
        self.colours = {trained: to_hex(shade) for trained, shade in zip(self.precisions, shades, strict=True)}

    def of(self, trained: float, **wanted: Any) -> list[GridTest]:
        """The tests of one training precision that have the wanted values, from coarse to fine."""
        found = [test for test in self.figure.tests if test.trained == trained]
        found = [test for test in found if all(getattr(test, key) == value for key, value in wanted.items())]
        return sorted(found, key=lambda test: -test.tested)

    def place(self, precision: float) -> float:
        """Octaves of steps, or decades of tolerances; rounded, so that the same precision has the same place."""
        return round(float(-np.log2(precision) if self.steps else -np.log10(precision)), 6)

    def label(self, precision: float) -> str:
        return precision_label(precision, steps=self.steps)

    def mark(self, method: str) -> str:
        return "o" if method == self.method else MARKS.get(method, "D")

    def aside(self, trained: float, tested: float, method: str) -> float:
        """How far a point is moved so that it hides no other one that was tested with the same precision."""
        return self._gap * self._gaps_aside(trained, self.place(tested), method)

    def _gaps_aside(self, trained: float, place: float, method: str) -> float:
        """The solver of training stays in place, with half a gap more around it as its mark is the largest; models
        trained with a coarser one stand left of it, those trained with a finer one right."""
        there = self._sharing[place]
        own = next((n for n, other in enumerate(there) if self.place(other) == place), None)
        block = there.index(trained) - ((len(there) - 1) / 2 if own is None else own)
        gaps = block * len(self.methods) + self._order.index(method) - self._order.index(self.method)
        return gaps if own is None else gaps + 0.5 * float(np.sign(gaps))

    @cached_property
    def _sharing(self) -> dict[float, list[float]]:
        """The training precisions that were tested at each place, from coarse to fine."""
        pairs = {(self.place(test.tested), test.trained) for test in self.figure.tests}
        return {place: sorted((p for at, p in pairs if at == place), reverse=True) for place, _ in pairs}

    @cached_property
    def _gap(self) -> float:
        """The gap between points at one place: as wide as the points at neighbouring places allow."""
        ends = {
            place: [self._gaps_aside(trained, place, method) for trained in there for method in self.methods]
            for place, there in self._sharing.items()
        }
        widths = [(b - a) / (max(ends[a]) - min(ends[b]) + 1) for a, b in pairwise(sorted(ends))]
        return float(np.clip(min(widths, default=GAPS[1]), *GAPS))

    @cached_property
    def _order(self) -> list[str]:
        """The methods from left to right, the training method in the middle."""
        half = len(self.methods) // 2
        return [*self.methods[1 : half + 1], self.method, *self.methods[half + 1 :]]
