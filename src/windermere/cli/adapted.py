"""Adapted runs on the command line: which flags go together, and what is told of a run that has ended."""

from math import inf
from pathlib import Path
from typing import Any

from windermere.adaptation.step_size import higher_orders
from windermere.adaptation.tolerance import CHECK_RATIOS
from windermere.errors import RunError, UnknownNameError, UsageError
from windermere.paper.figures.adaptation_figure import draw_adaptation
from windermere.paper.training import RunConfig
from windermere.paper.training.config import ADAPTATIONS
from windermere.solvers import Adaptive, Solver

MODES = {"check": ("paper", "steady"), "threshold": ("paper",), "target": ("steady",)}
"""Flags that mean something for some values of --adapt only."""
ADAPTABLE = (
    "adapt the steps of euler or midpoint, those of another method with a --check of a higher order, or the tolerance "
    "of fehlberg21 or dopri54"
)
BOUNDS = ("as far as the budget allows", "as far as its floor")
"""What a decision's reason says where precision could not follow the signal any further."""


def adaptation_of(out: Path, adapt: str | None, stored: RunConfig | None) -> str:
    """How the run adapts: as it was started, where it is resumed."""
    if stored is not None and adapt not in (None, stored.adapt):
        raise RunError(
            f"{out} was started with --adapt {stored.adapt} (not {adapt}): resume it without this, "
            "or start a new run in another folder"
        )
    if adapt is not None and adapt not in ADAPTATIONS:
        raise UnknownNameError("adapt", adapt, ADAPTATIONS)
    return adapt or ("none" if stored is None else stored.adapt)


def check_flags(adapt: str, given: dict[str, Any], control: str | None, *, resume: bool) -> None:
    """A flag that would change nothing is refused."""
    for name, value in given.items():
        if adapt not in MODES[name]:
            modes = " or ".join(f"--adapt {mode}" for mode in MODES[name])
            has = "is not adapted" if adapt == "none" else f"has --adapt {adapt}"
            other = "" if resume else f", or choose {modes}"
            raise UsageError(f"--{name} is for {modes}, and this run {has}: leave it out{other}")
        if name != "check" and not 0 < value < 1:
            raise UsageError(f"--{name} must lie above 0 and below 1, not {value}")
    if adapt != "none" and control == "sample":
        raise UsageError("--control sample is not for adapted runs, whose tolerance is the batch's: leave it out")


def refuse_what_cannot_be_checked(solver: Solver, check: str | None) -> None:
    method = solver.method
    if isinstance(solver, Adaptive):
        checks = [pair[1] for pair in CHECK_RATIOS if pair[0] == method]
        if not checks:
            raise UsageError(f"tolerances of {method} cannot be adapted: {ADAPTABLE}")
        if check is not None and check not in checks:
            raise UsageError(f"tolerances of {method} are checked by {checks[0]}, not by {check}: leave --check out")
    elif not higher_orders(method):
        raise UsageError(f"steps of {method} cannot be adapted, since no method has a higher order: {ADAPTABLE}")


def refuse_a_start_out_of_bounds(config: RunConfig) -> None:
    controller, solver = config.controller(), config.solver
    if controller is None or config.first_step == "initial":
        return
    bound = controller.start(min(solver.precision, getattr(controller, "span", inf))).precision
    if bound == solver.precision:
        return
    way = "coarser" if bound < solver.precision else "finer"
    budget = f", a budget of {round(1 / bound)} steps" if way == "finer" and config.precision_name == "step" else ""
    raise UsageError(
        f"adaptation cannot start from {solver}, since it goes no {way} than {solver.with_precision(bound)}{budget}: "
        "start within that, or give --solver alone"
    )


def refuse_another_start(out: Path, stored: RunConfig, settings: dict[str, Any]) -> None:
    """In words, since Hairer's first step has no flag."""
    if "solver" not in settings:
        return
    was, now = (stored.solver, stored.first_step), (settings["solver"], settings["first_step"])
    if was != now:
        raise RunError(
            f"{out} was started with --solver {_start(*was)} (not {_start(*now)}): resume it without --solver and "
            "its precision, or start a new run in another folder"
        )


def _start(solver: Solver, first_step: str) -> str:
    return f"{solver.method} alone, from each seed's initial step" if first_step == "initial" else str(solver)


def ended_at_a_bound(config: RunConfig, rows: list[dict[str, Any]]) -> str | None:
    """One line on the seeds that would have become finer still, None where there are none."""
    last = {row["seed"]: row for row in rows if "reason" in row}
    final = {row["seed"]: row[config.precision_name] for row in rows if "loss" in row}
    held = [seed for seed, row in last.items() if any(words in row["reason"] for words in BOUNDS)]
    seeds = [seed for seed in held if final[seed] == last[seed]["after"]]  # a last review may come too late to count
    if not seeds:
        return None
    *others, one = map(str, seeds)
    who, whose = (f"seeds {', '.join(others)} and {one}", "their") if others else (f"seed {one}", "its")
    bound = last[seeds[0]]["after"]
    where = f"the floor of tolerance {bound:.3g}"
    if config.precision_name == "step":
        where = f"the budget of {round(1 / bound)} steps"
    steady = "distance may be above the target"
    doubt = steady if config.adapt == "steady" else "scores may differ by more than the threshold"
    return f"{who} ended at {where}: {whose} {doubt}"


def draw_adapted(config: RunConfig, out: Path, rows: list[dict[str, Any]]) -> Path | None:
    """The figure of an adapted run; None where its precision was never reviewed."""
    if not any("before" in row for row in rows):
        return None
    target = config.target if config.adapt == "steady" else None
    draw_adaptation(rows, out / "adaptation.png", check=config.check, threshold=config.threshold, target=target)
    return out / "adaptation.png"
