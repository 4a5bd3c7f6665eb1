"""How flags are read that several commands share."""

import re
import textwrap

import torch

from windermere.adaptation.tolerance import START
from windermere.errors import UsageError
from windermere.solvers import Adaptive, FixedStep, Solver, adaptive_names


def read_solver(
    method: str | None, *, steps: int | None, step: float | None, tolerance: float | None, control: str | None
) -> Solver | None:
    """The solver that the flags describe, None where they describe none."""
    precisions = {"--steps": steps, "--step": step, "--tolerance": tolerance}
    given = [flag for flag, value in precisions.items() if value is not None]
    if method is None and not given and control is None:
        return None
    if method is None:
        raise UsageError(f"{(given or ['--control'])[0]} needs a method: add --solver, for example --solver euler")
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        known = "--steps, --step and --tolerance" if method in adaptive_names() else "--steps and --step"
        raise UsageError(f"--solver {method} needs exactly one of {known}, but got {found}")
    if control is not None and tolerance is None:
        raise UsageError("--control says whose error steers adaptive steps, so it goes with --tolerance only")
    if tolerance is not None:
        return Adaptive(method, tolerance=tolerance, control=control or "batch")  # type: ignore[arg-type]
    return FixedStep.of(method, steps=steps) if steps is not None else FixedStep(method, step=step or 0.0)


def read_start(
    method: str | None, *, steps: int | None, step: float | None, tolerance: float | None, control: str | None
) -> tuple[Solver | None, str | None]:
    """Where adaptation starts, and whether that was given. Nothing chosen is the paper's tolerance, or Hairer's first
    step, at most T."""
    if method is None or (steps, step, tolerance) != (None, None, None):
        solver = read_solver(method, steps=steps, step=step, tolerance=tolerance, control=control)
        return solver, None if solver is None else "given"
    if method in adaptive_names():
        return read_solver(method, steps=None, step=None, tolerance=START, control=control), "given"
    if control is not None:
        raise UsageError(f"--control says whose error steers adaptive steps, and {method} has none: leave it out")
    return FixedStep(method, step=1.0), "initial"


def read_seeds(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"0*[1-9]\d{0,3}", text):  # more at once would fill the memory
        return tuple(range(int(text)))
    if re.fullmatch(r"\d+,(\d+,)*\d*", text):
        return tuple(int(part) for part in text.split(",") if part)
    raise UsageError(
        "--seeds takes a number up to 9999 (5 means seeds 0 to 4) or a list like 3,7,8 (or 3, alone), "
        f"not '{textwrap.shorten(text, 60, placeholder=' ...')}'"
    )


def read_seconds(text: str | None) -> float | None:
    if text is None:
        return None
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)) is None:
        raise UsageError(f"--time-limit takes seconds, minutes or hours like 90s, 10m or 2h, not '{text}'")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def check_device(name: str | None) -> str:
    """A device that is there; a missing one is told before anything is written."""
    name = "cpu" if name is None else name
    try:
        there = torch.zeros(1, device=name)
        there.item()
    except (RuntimeError, AssertionError, ImportError) as error:
        why = textwrap.shorten(str(error).removeprefix("CUDA error: "), 100, placeholder=" ...")
        raise UsageError(f"there is no device '{name}' here ({why}): use --device cpu") from error
    if torch.device(name).index != there.device.index and torch.device(name).index:  # the cpu takes any number
        raise UsageError(f"there is no device '{name}' here (PyTorch takes all of the cpu for one): use --device cpu")
    return name
