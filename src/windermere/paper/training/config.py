"""What a run is: a complete, checked, frozen description from which it can be repeated."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

import torch

from windermere.adaptation import (
    Controller,
    ControllerState,
    SteadySteps,
    SteadyTolerances,
    StepAdaptation,
    ToleranceAdaptation,
)
from windermere.adaptation.step_size import higher_orders
from windermere.checks import as_number, is_whole
from windermere.errors import RunError, UnknownNameError, UsageError, describe_value
from windermere.paper.arithmetic import check_it_suits
from windermere.solvers import GRADIENTS, Adaptive, Solver, solver_from_dict, solver_to_dict

CHECKS = {"euler": "midpoint", "midpoint": "rk4"}
"""The paper's check methods for adapted steps."""
OPTIMIZERS = ("adam", "sgd")
ADAPTATIONS = ("none", "paper", "steady")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
RESUMED_OTHERWISE = ("iterations", "device")
"""What may be another when a run goes on: it may become longer, and move."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run: all of its members share everything but their seeds."""

    data: str
    """Name of the data set; it decides the architecture as well."""
    solver: Solver
    """What every member trains with."""
    seeds: tuple[int, ...]
    """One member for each: its weights and the order of its batches."""
    iterations: int
    batch_size: int
    optimizer: str
    """`adam` or `sgd`, with PyTorch's defaults but for the learning rate."""
    lr: float
    gradient: str = "backprop"
    """`backprop`, `checkpoint` or `adjoint` (solved with the same solver)."""
    device: str = "cpu"
    dtype: str = "float32"
    arithmetic: str = "float32"
    """How an image field's products are rounded: `float32` (as the dtype says), `tf32` or `bfloat16`. Parameters,
    states, sums, the optimizer and the classifier stay float32 in all of them."""
    data_seed: int = 0
    """Draws the points of synthetic data sets, the same for all members."""
    adapt: str = "none"
    """`none`, `paper` (Algorithm 2 for steps, 3 for tolerances) or `steady`: each member adapts its own precision."""
    threshold: float = 0.1
    """For `paper`: scores of training and check solver further apart than this are not the same."""
    target: float = 0.01
    """For `steady`: the share of probability mass that a better solver may move."""
    check: str | None = None
    """Method of the check solver; None takes midpoint for euler, rk4 for midpoint, dopri54 for tolerances."""
    first_step: str = "given"
    """What adapted steps start from: the solver's own (`given`), or `initial`, Hairer's choice for each member."""
    review_every: int = 50
    """Iterations between reviews of adapted precision."""
    decrease: float | None = None
    """A review lowers adapted precision by this factor (`steady`: at most); None takes the controller's own."""
    increase: float | None = None
    """Likewise for raising it."""
    log_every: int = 50
    """Iterations between rows of metrics.jsonl; evaluations have theirs as well."""
    evaluate_every: int = 500
    """Iterations between evaluations on the test set."""
    checkpoint_every: int = 500
    """Iterations between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("data", "device"):
            if not isinstance(getattr(self, name), str):
                raise UsageError(f"{name} must be a name, not {describe_value(getattr(self, name))}")
        for name in ("iterations", "batch_size", "review_every", "log_every", "evaluate_every", "checkpoint_every"):
            if not is_whole(getattr(self, name), least=1):
                raise UsageError(
                    f"{name} must be a whole number, at least 1, not {describe_value(getattr(self, name))}"
                )
        different = len(set(self.seeds)) == len(self.seeds)
        if not self.seeds or not different or not all(map(_is_seed, self.seeds)):
            raise UsageError(f"seeds must be one or more different numbers from 0 to 2**63 - 1, not {list(self.seeds)}")
        if not _is_seed(self.data_seed):
            raise UsageError(
                f"data_seed must be a whole number from 0 to 2**63 - 1, not {describe_value(self.data_seed)}"
            )
        if not 0 < as_number(self.lr) < inf:
            raise UsageError(f"the learning rate must be positive and finite, not {describe_value(self.lr)}")
        choices = (
            ("optimizer", OPTIMIZERS),
            ("gradient", GRADIENTS),
            ("dtype", DTYPES),
            ("adapt", ADAPTATIONS),
            ("first_step", ("given", "initial")),
        )
        for kind, known in choices:
            if getattr(self, kind) not in known:
                raise UnknownNameError(kind, getattr(self, kind), known)
        check_it_suits(self.arithmetic, self.data, self.dtype)
        if self.adapt == "none" and (self.check is not None or self.first_step != "given"):
            raise UsageError(
                "a check solver or an initial step is for adapted runs: choose adapt='paper' or adapt='steady'"
            )
        if self.adapt == "steady" and self.batch_size < 2:
            raise UsageError("a steady controller compares a batch's samples: it needs a batch size of at least 2")
        if (controller := self.controller()) is not None:
            becomes = controller.solver(ControllerState(precision=self.solver.precision))
            if becomes != self.solver:  # a grid, control by sample, a budget of its own
                raise UsageError(f"adapted, {self.solver!r} would become {becomes!r}: begin with a solver of that kind")

    def controller(self) -> Controller | None:
        """What adapts the precision, None where it stays as it is."""
        if self.adapt == "none":
            return None
        method, steady = self.solver.method, self.adapt == "steady"
        if self.check is None and not isinstance(self.solver, Adaptive) and method not in CHECKS:
            finer = ", ".join(higher_orders(method)) or "there is none"
            raise UsageError(
                f"steps of '{method}' have no usual check: choose one of a higher order with check=... ({finer})"
            )
        check = self.check or CHECKS.get(method, "dopri54")
        given = {"every": self.review_every, "decrease": self.decrease, "increase": self.increase}
        shared: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.solver, Adaptive):
            if steady:
                return SteadyTolerances(train=method, check=check, target=self.target, **shared)
            return ToleranceAdaptation(train=method, check=check, threshold=self.threshold, **shared)
        if steady:
            return SteadySteps(train=method, check=check, target=self.target, **shared)
        return StepAdaptation(train=method, check=check, threshold=self.threshold, **shared)

    @property
    def precision_name(self) -> str:
        return "tolerance" if isinstance(self.solver, Adaptive) else "step"

    @property
    def trained_with(self) -> str:
        """In words."""
        adapted = f"{self.solver.method} with adapted {self.precision_name}"
        told = str(self.solver) if self.adapt == "none" else adapted
        return told if self.arithmetic == "float32" else f"{told} in {self.arithmetic}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "solver": solver_to_dict(self.solver), "seeds": list(self.seeds)}

    @property
    def digest(self) -> str:
        """SHA-256 of all that stays as it is while a run goes on, by which a checkpoint knows its run. Seeds are not in
        it: those that diverged may be left behind."""
        kept = {name: value for name, value in self.to_dict().items() if name not in (*RESUMED_OTHERWISE, "seeds")}
        # 1 and 1.0 are the same setting, and equal as configs.
        kept = json.loads(json.dumps(kept), parse_float=lambda text: _whole_if_it_is(float(text)))
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunConfig":
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise RunError(f"the run's config.json has fields this version does not know: {', '.join(sorted(unknown))}")
        try:
            solver = solver_from_dict(values["solver"])
            return cls(**{**values, "solver": solver, "seeds": tuple(values["seeds"])})
        except (KeyError, TypeError, ValueError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise RunError(f"the run's config.json is not a complete run: {why}") from error


def _whole_if_it_is(number: float) -> float:
    return int(number) if number.is_integer() else number


def _is_seed(number: Any) -> bool:
    return is_whole(number, least=0) and number < 2**63


def paper_settings(data: str, solver: Solver) -> dict[str, Any]:
    """The hyper-parameters of the paper's appendix. All spheres take Sphere2's; iterations on images are whole
    epochs with the last batch dropped (30 x 234 and 40 x 195)."""
    if data == "mnist":
        adaptive = isinstance(solver, Adaptive)
        chosen = {"optimizer": "adam", "lr": 1e-4} if adaptive else {"optimizer": "sgd", "lr": 1e-2}
        return {"iterations": 7020, "batch_size": 256, **chosen}
    if data == "cifar10":
        return {"iterations": 7800, "batch_size": 256, "optimizer": "adam", "lr": 1e-3}
    return {"iterations": 10_000, "batch_size": 128, "optimizer": "adam", "lr": 1e-4}
