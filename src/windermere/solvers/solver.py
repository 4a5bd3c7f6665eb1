"""Solvers as frozen values: a method's name and its precision. Nothing here has a default precision."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, replace
from math import ceil, isfinite, nan
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from windermere.checks import as_number, is_whole, tidy
from windermere.errors import StepBudgetError, UnknownNameError, UsageError, VanishingStepError, describe_value
from windermere.solvers.tableaus import Tableau, tableau
from windermere.solvers.times import check_times, shortened

SAME_STEP = 1e-6
"""A step within this relative distance of T/N counts as T/N: rounding must not add a step of 1e-8."""
MOST_STEPS = 10_000_000
"""A fixed grid has no step budget, but one longer than this is a slip, and would only fill the memory."""


class _Method:
    """What all solvers share."""

    method: str

    @property
    def tableau(self) -> Tableau:
        """The method's coefficients."""
        return tableau(self.method)

    @property
    def order(self) -> int:
        """The method's order of convergence."""
        return self.tableau.order


@dataclass(frozen=True)
class FixedStep(_Method):
    """A solver with steps of one size; the last one is shortened to land on the end exactly.

    `method` is euler, midpoint, heun, heun3, rk4, rk4_38, fehlberg21, heun21, bosh32, dopri54 or tsit54, and `step`
    the size.

    >>> import windermere as wm
    >>> wm.FixedStep("euler", step=1 / 64) == wm.FixedStep.of("euler", steps=64)
    True
    """

    method: str
    _: KW_ONLY
    step: float

    def __post_init__(self) -> None:
        self.tableau  # noqa: B018  # an unknown method fails here, not at the first solve
        object.__setattr__(self, "step", _positive("step", self.step))

    @classmethod
    def of(cls, method: str, *, steps: int, span: float = 1.0) -> "FixedStep":
        """The solver that takes so many equal steps over a time of length `span`."""
        if not as_number(steps).is_integer() or steps < 1:
            raise UsageError(f"a solve takes a whole number of steps, at least 1, not {steps}")
        return cls(method, step=_positive("span", span) / int(steps))

    @property
    def precision(self) -> float:
        """The step."""
        return self.step

    def with_precision(self, precision: float) -> "FixedStep":
        """The same method with another step."""
        return replace(self, step=precision)

    def nodes(self, start: float, end: float) -> NDArray[np.float64]:
        """The grid from start to end, in either direction: ceil(T/h) steps."""
        exact = abs(end - start) / self.step
        if exact > MOST_STEPS:
            raise StepBudgetError(
                f"{exact:.3g} steps from {start} to {end} are too many with {self}: take a larger step"
            )
        whole = round(exact)
        if abs(whole - exact) <= SAME_STEP * exact:
            grid: NDArray[np.float64] = np.linspace(start, end, whole + 1)
        else:
            grid = start + np.copysign(self.step, end - start) * np.arange(ceil(exact) + 1.0)
            grid[-1] = end
        if may_vanish(self.step, start, end) and not np.diff(grid).all():
            raise VanishingStepError(
                f"a step of {self.step:.3g} does not advance the time from {start} to {end}, where numbers are "
                f"{np.spacing(max(abs(start), abs(end))):.2g} apart: take a larger step, or measure the time from the "
                "start"
            )
        return grid

    def __str__(self) -> str:
        return f"{self.method}, h = {_readable(self.step)}"


def may_vanish(step: float, start: Any, end: Any) -> Any:
    """Whether this step is about as small as the rounding of times from a start to an end; of several by array."""
    return step < 2 * np.spacing(np.maximum(np.abs(start), np.abs(end)))


@dataclass(frozen=True)
class OnGrid(_Method):
    """A solver with one step between each two of the given times: what torchdiffeq does when no step is given.

    `method` is as for `FixedStep`; `times` rise or fall, and may lie at any distances.

    >>> import windermere as wm
    >>> wm.OnGrid("midpoint", (0.0, 0.1, 0.4, 1.0)).precision  # its largest step
    0.6
    """

    method: str
    times: tuple[float, ...]

    def __post_init__(self) -> None:
        self.tableau  # noqa: B018
        object.__setattr__(self, "times", check_times(self.times))

    @property
    def precision(self) -> float:
        """The largest step, without what the rounding of its times adds."""
        times = np.asarray(self.times)
        with np.errstate(over="ignore"):
            single = times.astype(np.float32)  # as most tensors hold them
        latest = np.abs(single if (single == times).all() else times).max()
        largest = float(np.abs(np.diff(times)).max())
        return tidy(largest, 4 * float(np.spacing(latest)) / largest)

    def with_precision(self, precision: float) -> "OnGrid":
        """The grid made finer or coarser by the same factor everywhere."""
        intervals = len(self.times) - 1
        factor = self.precision / _positive("precision", precision)
        wanted = max(1, ceil(intervals * factor * (1 - SAME_STEP)))
        if wanted > MOST_STEPS:
            raise StepBudgetError(f"a grid of {wanted:.3g} steps is too long: take a larger precision than {precision}")
        places = np.linspace(0, intervals, wanted + 1)
        return replace(self, times=tuple(np.interp(places, np.arange(intervals + 1), self.times).tolist()))

    def stopping_at(self, times: Sequence[float]) -> "OnGrid":
        """The grid with these times among its nodes, in place of those that are the same up to rounding."""
        nodes = np.unique((*self.times, *times))
        close = np.diff(nodes) <= SAME_STEP * np.abs(np.diff(self.times)).min()
        doubled = np.append(False, close) | np.append(close, False)
        return replace(self, times=tuple(nodes[~doubled | np.isin(nodes, times)].tolist()))

    def nodes(self, start: float, end: float) -> NDArray[np.float64]:
        """The part of the grid from start to end; both must be on it. A grid can be walked backwards."""
        grid = np.asarray(self.times)
        span = abs(grid[-1] - grid[0])
        places = [int(np.abs(grid - t).argmin()) for t in (start, end)]
        for place, t in zip(places, (start, end), strict=True):
            if abs(grid[place] - t) > SAME_STEP * span:
                raise UsageError(f"t = {t} was asked for, but it is not on the solver's grid {shortened(self.times)}")
        first, last = places
        if first == last:
            raise UsageError(
                f"t = {start} and t = {end} are one and the same node of {self}: ask for times further apart"
            )
        between = grid[first + 1 : last] if first < last else grid[last + 1 : first][::-1]
        return np.array([start, *between, end])

    def __str__(self) -> str:
        steps = len(self.times) - 1
        return f"{self.method} on a grid of {steps} step{'s' if steps > 1 else ''}"


@dataclass(frozen=True)
class Adaptive(_Method):
    """A solver that chooses its steps so that the estimated local error stays below atol + rtol |z|.

    `method` is fehlberg21, heun21, bosh32, dopri54 or tsit54. Give `tolerance`, which sets rtol = atol, or both `rtol`
    and `atol`. `control` says whose error is controlled: the whole batch's ("batch", as in torchdiffeq) or that of
    every sample, each with steps of its own ("sample"). A solve that tries more than `max_steps` steps is an error.

    >>> import windermere as wm
    >>> wm.Adaptive("dopri54", tolerance=1e-4) == wm.Adaptive("dopri54", rtol=1e-4, atol=1e-4)
    True
    """

    method: str
    _: KW_ONLY
    tolerance: InitVar[float | None] = None
    rtol: float = nan
    atol: float = nan
    control: Literal["batch", "sample"] = "batch"
    """Whose error is controlled: the root mean square over the batch (in an ensemble: over each member's
    batch), as in the paper and in torchdiffeq; or every sample's own, each with its own steps."""
    max_steps: int = 10_000
    """The step budget: steps tried, accepted or not."""

    CONTROLS: ClassVar[tuple[str, ...]] = ("batch", "sample")

    def __post_init__(self, tolerance: float | None) -> None:
        self.tableau.error_weights  # noqa: B018  # a method without an error estimate fails here
        self._set_tolerances(tolerance)
        if self.control not in self.CONTROLS:
            raise UnknownNameError("error control", self.control, self.CONTROLS)
        if not is_whole(self.max_steps, least=1):
            raise UsageError(f"the step budget max_steps must be a whole number, at least 1, not {self.max_steps!r}")

    def _set_tolerances(self, tolerance: float | None) -> None:
        missing = [given is nan for given in (self.rtol, self.atol)].count(True)
        if missing == 1 or (tolerance is None) == (missing == 2):
            raise UsageError("an adaptive solver takes either tolerance, or both rtol and atol")
        if tolerance is not None:
            object.__setattr__(self, "rtol", _positive("tolerance", tolerance))
            object.__setattr__(self, "atol", self.rtol)
        for name in ("rtol", "atol"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if not (isfinite(self.rtol) and isfinite(self.atol) and min(self.rtol, self.atol) >= 0 < self.rtol + self.atol):
            raise UsageError(
                f"rtol and atol must be finite and not negative, and not both 0: not {self.rtol} and {self.atol}"
            )

    @property
    def precision(self) -> float:
        """The relative tolerance, or the absolute one where that is 0."""
        return self.rtol or self.atol

    def with_precision(self, precision: float) -> "Adaptive":
        """Both tolerances scaled by one factor, so that the relative (or only) one becomes `precision`."""
        wanted = _positive("tolerance", precision)
        # What equals the old precision becomes the new one: a product of factors would round.
        rtol, atol = (
            wanted if each == self.precision else tidy(each * (wanted / self.precision))
            for each in (self.rtol, self.atol)
        )
        return replace(self, tolerance=None, rtol=rtol, atol=atol)

    def __str__(self) -> str:
        whose = ", by sample" if self.control == "sample" else ""
        if self.rtol == self.atol:
            return f"{self.method}, tol = {self.rtol:.3g}{whose}"
        return f"{self.method}, rtol = {self.rtol:.3g}, atol = {self.atol:.3g}{whose}"


Solver: TypeAlias = FixedStep | OnGrid | Adaptive
Solvers: TypeAlias = Solver | Sequence[Solver]
"""One solver, or for an ensemble one for each member (all of one method)."""

KINDS: Mapping[str, type[FixedStep] | type[OnGrid] | type[Adaptive]] = {
    kind.__name__: kind for kind in (FixedStep, OnGrid, Adaptive)
}


def solver_to_dict(solver: Solver) -> dict[str, Any]:
    """A solver as plain values for JSON."""
    return {"kind": type(solver).__name__, **asdict(solver)}


def solver_from_dict(values: Mapping[str, Any]) -> Solver:
    """The solver that `solver_to_dict` wrote."""
    fields = dict(values)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnknownNameError("kind of solver", str(kind), KINDS)
    try:
        return KINDS[kind](fields.pop("method", None), **fields)
    except TypeError as error:
        raise UsageError(f"these values do not make a {kind}: {dict(values)} ({error})") from error


def stopping_at(times: Sequence[float], solvers: Sequence[Solver]) -> list[Solver]:
    """Solvers that can land on these times: steps of one size or adaptive ones can as they are."""
    return [s.stopping_at(times) if isinstance(s, OnGrid) else s for s in solvers]


def default_times(solver: Solver) -> tuple[float, ...]:
    return (solver.times[0], solver.times[-1]) if isinstance(solver, OnGrid) else (0.0, 1.0)


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UsageError(f"the {name} must be a number, not {describe_value(value)}") from error


def _positive(name: str, value: float) -> float:
    number = _number(name, value)
    if not isfinite(number) or number <= 0:
        raise UsageError(f"the {name} must be positive and finite, not {value}")
    return number


def _readable(step: float) -> str:
    steps = round(1 / max(step, 1 / MOST_STEPS))
    return f"1/{steps}" if steps > 1 and abs(steps * step - 1) < SAME_STEP else f"{step:.4g}"
