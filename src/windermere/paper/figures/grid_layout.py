"""What a grid of trainings and tests is, and where each test stands in a figure of it, in which colours and mark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_hex, to_rgb

MARKS = {"midpoint": "x", "dopri54": "x", "rk4": "^"}
"""The marks of test methods. The training method has circles, and a method that is not listed has diamonds."""
TRAININGS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#5b4bb7",
)  # fmt: skip
"""One for each precision of training: the classes' colours without black and grey, which mean something else."""
DARKER, LIGHTER = 0.12, 0.5
"""How much black there is in the colours of a training's own solver, and how much white in those of its others."""


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
    """Tests by training precision, and the place, colours and mark of each."""

    light_ink = "#5b6470"
    """What stands for the light colours in a legend."""

    def __init__(self, figure: GridFigure) -> None:
        self.figure = figure
        self.method, *_ = (test.method for test in figure.tests if test.own)
        self.steps = figure.precision_name == "step"
        self.precisions = sorted({test.trained for test in figure.tests}, reverse=True)
        self.seeds = sorted({test.seed for test in figure.tests})
        others = {test.method for test in figure.tests} - {self.method}
        self.methods = [self.method, *sorted(others, key=lambda method: (method != "midpoint", method))]
        self.dark, self.light = (
            {p: mixed(TRAININGS[n % len(TRAININGS)], *mix) for n, p in enumerate(self.precisions)}
            for mix in ((0.0, DARKER), (1.0, LIGHTER))
        )

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


def mixed(colour: str, grey: float, share: float) -> str:
    """A colour with a share of black (0), white (1) or a grey between them."""
    red, green, blue = ((1 - share) * part + share * grey for part in to_rgb(colour))
    return to_hex((red, green, blue))
