"""Adapted runs on the command line: which flags go together, and what is told of a run that has ended."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

from windermere.adaptation.agreement import PAPERS_THRESHOLD
from windermere.adaptation.step_size import StepControl
from windermere.adaptation.tolerance import ToleranceControl
from windermere.errors import UnknownNameError, UsageError
from windermere.paper.figures.adaptation_figure import draw_adaptation
from windermere.paper.training import Adaptation, RunConfig

MODES = {"check": ("paper", "steady"), "threshold": ("paper",), "target": ("steady",)}
"""Flags that mean something for some values of --adapt only."""
BOUNDS = tuple(f"as far as {kind.LIMIT}" for kind in (StepControl, ToleranceControl))
"""What a decision's reason says where precision could not follow the signal any further."""


def read_adaptation(flags: Mapping[str, Any], control: str | None, stored: RunConfig | None) -> Adaptation | None:
    """How the run adapts: as it was started, where it is resumed. A flag that would change nothing is refused."""
    adapt = flags["adapt"] or ("none" if stored is None else stored.adapt)
    if adapt not in (known := ("none", *get_args(Adaptation))):
        raise UnknownNameError("way to adapt", adapt, known)
    for name, modes in MODES.items():
        if (value := flags[name]) is not None:
            _check_flag(name, value, modes, adapt, resume=stored is not None)
    if adapt == "none":
        return None
    if control == "sample":
        raise UsageError("--control sample is not for adapted runs, whose tolerance is the batch's: leave it out")
    return cast(Adaptation, adapt)


def _check_flag(name: str, value: Any, modes: tuple[str, ...], adapt: str, *, resume: bool) -> None:
    if adapt not in modes:
        wanted = " or ".join(f"--adapt {mode}" for mode in modes)
        has = "is not adapted" if adapt == "none" else f"has --adapt {adapt}"
        other = "" if resume else f", or choose {wanted}"
        raise UsageError(f"--{name} is for {wanted}, and this run {has}: leave it out{other}")
    if name != "check" and not 0 < value < 1:
        raise UsageError(f"--{name} must lie above 0 and below 1, not {value}")


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
    rule = {} if config.controller is None else vars(config.controller)
    threshold = rule.get("threshold") or PAPERS_THRESHOLD
    path = out / "adaptation.png"
    draw_adaptation(rows, path, check=rule.get("check"), threshold=threshold, target=rule.get("target"))
    return path
