"""Random steps on the command line: which flags go together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windermere.adaptation import RandomSteps
from windermere.errors import StartedOtherwiseError, UsageError
from windermere.paper.training import Adaptation, RunConfig


def read_random_steps(
    out: Path, flags: Mapping[str, Any], adaptation: Adaptation | None, stored: RunConfig | None
) -> RandomSteps | None:
    """What --random-steps and --finish ask for; what a resumed run lacks of them is as it was started with."""
    mean, finish = flags["random_steps"], flags["finish"]
    was = None if stored is None else stored.random_steps
    if mean is None and finish is None:
        return was
    if was is not None:
        _refuse_a_contradiction(out, was, {"random_steps": (was.mean, mean), "finish": (was.finish, finish)})
        return was
    if stored is not None:
        raise UsageError("this run was started without random steps: leave --random-steps and --finish out")
    if mean is None:
        raise UsageError("--finish says how random steps end: give --random-steps, or leave it out")
    if adaptation is not None:
        raise UsageError("random steps are not adapted: leave --random-steps out, or --adapt")
    if mean < 2:
        raise UsageError(f"--random-steps is a mean number of steps, at least 2, not {mean}")
    if finish is not None and not 0 <= finish < 1:
        raise UsageError(f"--finish is a share of all iterations, from 0 to less than 1, not {finish}")
    return RandomSteps(mean=mean) if finish is None else RandomSteps(mean=mean, finish=finish)


def _refuse_a_contradiction(out: Path, was: RandomSteps, settings: Mapping[str, tuple[Any, Any]]) -> None:
    other = {name: both for name, both in settings.items() if both[1] not in (None, both[0])}
    if other:
        raise StartedOtherwiseError(out, other, "resume it without this, or start a new run in another folder")
