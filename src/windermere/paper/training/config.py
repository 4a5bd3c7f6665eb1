"""What a run is: a complete, checked, frozen description from which it can be repeated."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any, Literal, TypeAlias, get_args

import torch

from windermere.adaptation import (
    ControllerState,
    OwnController,
    RandomSteps,
    controller_from_dict,
    controller_to_dict,
)
from windermere.adaptation.steady import SteadyControl
from windermere.adaptation.step_size import StepControl
from windermere.checks import as_number, is_whole
from windermere.errors import RunError, UnknownNameError, UsageError, describe_value
from windermere.paper.arithmetic import check_it_suits
from windermere.paper.training.controllers import Adaptation
from windermere.paper.training.treatment import Treatment
from windermere.solvers import GRADIENTS, Adaptive, FixedStep, GradientName, Solver, solver_from_dict, solver_to_dict

OptimizerName: TypeAlias = Literal["adam", "sgd"]
DtypeName: TypeAlias = Literal["float32", "float64"]
FirstStep: TypeAlias = Literal["given", "initial"]
DTYPES: Mapping[DtypeName, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "optimizer": get_args(OptimizerName),
    "gradient": GRADIENTS,
    "dtype": get_args(DtypeName),
    "first_step": get_args(FirstStep),
}
RESUMED_OTHERWISE = ("iterations", "device")
"""What may be another when a run goes on: it may become longer, and move."""
LATER = ("random_steps", "treatment")
"""Fields that runs of earlier versions lack: where they are None, they are not in the digest."""


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
    optimizer: OptimizerName
    """`adam` or `sgd`, with PyTorch's defaults but for the learning rate."""
    lr: float
    gradient: GradientName = "backprop"
    """`backprop`, `checkpoint` or `adjoint` (solved with the same solver)."""
    device: str = "cpu"
    dtype: DtypeName = "float32"
    arithmetic: str = "float32"
    """How an image field's products are rounded: `float32` (as the dtype says), `tf32` or `bfloat16`. Parameters,
    states, sums, the optimizer and the classifier stay float32 in all of them."""
    data_seed: int = 0
    """Draws the points of synthetic data sets, the same for all members."""
    controller: OwnController | None = None
    """What adapts each member's own precision; None leaves it as it is."""
    first_step: FirstStep = "given"
    """What adapted steps start from: the solver's own (`given`), or `initial`, Hairer's choice for each member."""
    random_steps: RandomSteps | None = None
    """What draws the steps of every batch, up to the model's own; None trains with the model's own alone."""
    treatment: Treatment | None = None
    """What else the study of recipes tries; for its runs only."""
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
        for name in ("iterations", "batch_size", "log_every", "evaluate_every", "checkpoint_every"):
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
        for kind, known in CHOICES.items():
            if getattr(self, kind) not in known:
                raise UnknownNameError(kind, getattr(self, kind), known)
        check_it_suits(self.arithmetic, self.data, self.dtype)
        if self.controller is not None:
            self._check_adaptation(self.controller)
        elif self.first_step != "given":
            raise UsageError("an initial step is for adapted runs: give a controller, or leave first_step=... out")
        if self.random_steps is not None:
            self._check_random_steps(self.random_steps)

    def _check_random_steps(self, drawn: RandomSteps) -> None:
        if not isinstance(drawn, RandomSteps):
            raise UsageError(f"random_steps is None or a RandomSteps(...), not {describe_value(drawn)}")
        if self.controller is not None:
            raise UsageError("random steps are not adapted: give a controller or random_steps=..., not both")
        if drawn.span != 1:
            raise UsageError(f"the paper's models are solved for a time of 1, not of {drawn.span}: leave span out")
        if not isinstance(self.solver, FixedStep):
            raise UsageError(f"random steps are fixed ones, and the run's own solver is {self.solver}")

    def _check_adaptation(self, controller: OwnController) -> None:
        if not isinstance(controller, OwnController):
            raise UsageError(f"a run's controller is one of Windermere's own, not {describe_value(controller)}")
        if isinstance(controller, SteadyControl) and self.batch_size < 2:
            raise UsageError("a steady controller compares a batch's samples: it needs a batch size of at least 2")
        if isinstance(controller, StepControl) and controller.span != 1:  # the times of all of the architectures
            raise UsageError(f"the paper's models are solved for a time of 1, not of {controller.span}: leave span out")
        becomes = controller.solver(ControllerState(precision=self.solver.precision))
        if becomes != self.solver:  # a grid, control by sample, a budget of its own, or another method
            raise UsageError(f"adapted, {self.solver!r} would become {becomes!r}: begin with a solver of that kind")
        if self.first_step == "given":
            self._check_start(controller)

    def _check_start(self, controller: OwnController) -> None:
        precision, (finest, coarsest) = self.solver.precision, controller.bounds
        if finest <= precision <= coarsest:
            return
        way, bound = ("finer", finest) if precision < finest else ("coarser", coarsest)
        in_steps = isinstance(controller, StepControl) and way == "finer"
        budget = f", a budget of {round(1 / bound)} steps" if in_steps else ""
        raise UsageError(
            f"adaptation cannot start from {self.solver}, since it goes no {way} than "
            f"{self.solver.with_precision(bound)}{budget}: start within that"
        )

    @property
    def adapt(self) -> Literal[Adaptation, "none"]:
        """How precision is adapted, in a word: by the paper's algorithm, steadily or not at all."""
        if self.controller is None:
            return "none"
        return "steady" if isinstance(self.controller, SteadyControl) else "paper"

    @property
    def precision_name(self) -> str:
        return "tolerance" if isinstance(self.solver, Adaptive) else "step"

    @property
    def trained_with(self) -> str:
        """In words."""
        adapted = f"{self.solver.method} with adapted {self.precision_name}"
        told = str(self.solver) if self.controller is None else adapted
        told += "" if self.random_steps is None else f" after random steps, {self.random_steps.mean} in the mean"
        return told if self.arithmetic == "float32" else f"{told} in {self.arithmetic}"

    def to_dict(self) -> dict[str, Any]:
        controller = None if self.controller is None else controller_to_dict(self.controller)
        solver = solver_to_dict(self.solver)
        return {**asdict(self), "solver": solver, "seeds": list(self.seeds), "controller": controller}

    @property
    def digest(self) -> str:
        """SHA-256 of all that stays as it is while a run goes on, by which a checkpoint knows its run. Seeds are not in
        it: those that diverged may be left behind."""
        kept = {name: value for name, value in self.to_dict().items() if name not in (*RESUMED_OTHERWISE, "seeds")}
        kept = {name: value for name, value in kept.items() if value is not None or name not in LATER}
        # 1 and 1.0 are the same setting, and equal as configs.
        kept = json.loads(json.dumps(kept), parse_float=lambda text: _whole_if_it_is(float(text)))
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunConfig":
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise RunError(
                f"the run's config.json has fields this version does not know: {', '.join(sorted(unknown))}; use the "
                "version of Windermere that wrote it, or train anew in another folder"
            )
        try:
            solver, kept = solver_from_dict(values["solver"]), values["controller"]
            controller = None if kept is None else controller_from_dict(kept)
            drawn = None if (kept := values.get("random_steps")) is None else RandomSteps(**kept)
            treatment = None if (kept := values.get("treatment")) is None else Treatment.from_dict(kept)
            read = {"solver": solver, "seeds": tuple(values["seeds"]), "controller": controller}
            return cls(**{**values, **read, "random_steps": drawn, "treatment": treatment})
        except (KeyError, TypeError, ValueError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise RunError(f"the run's config.json is not a complete run: {why}") from error


def _whole_if_it_is(number: float) -> float:
    return int(number) if number.is_integer() else number


def _is_seed(number: Any) -> bool:
    return is_whole(number, least=0) and number < 2**63


def paper_settings(data: str, solver: Solver) -> dict[str, Any]:
    """The hyper-parameters of the paper's appendix. All spheres take Sphere2's; iterations on images are whole
    epochs with the last batch dropped (30 x 234 and 40 x 195). Those of mnist-patches are ours."""
    if data == "mnist":
        adaptive = isinstance(solver, Adaptive)
        chosen = {"optimizer": "adam", "lr": 1e-4} if adaptive else {"optimizer": "sgd", "lr": 1e-2}
        return {"iterations": 7020, "batch_size": 256, **chosen}
    if data == "mnist-patches":
        return {"iterations": 1000, "batch_size": 64, "optimizer": "adam", "lr": 1e-3}
    if data == "cifar10":
        return {"iterations": 7800, "batch_size": 256, "optimizer": "adam", "lr": 1e-3}
    return {"iterations": 10_000, "batch_size": 128, "optimizer": "adam", "lr": 1e-4}
