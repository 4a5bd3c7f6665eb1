"""Runs that a study carries out itself: those that are missing, one seed after another; killed at any moment, it goes
on with the seed that it was at."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from time import monotonic
from typing import Any

from windermere.errors import DivergedError, UsageError
from windermere.nn.arithmetic import convolving_in
from windermere.paper.studies.folder import StudyFolder, read_provenance
from windermere.paper.studies.study import OwnRun, Place
from windermere.paper.training import StopSign
from windermere.records import environment

WHERE = ("commit", "dirty", "device_name", "torch")
"""What tells one sitting from another."""


def chosen_runs(name: str, runs: Mapping[str, OwnRun], only: str, seeds: tuple[int, ...] | None) -> dict[str, OwnRun]:
    """The runs whose names match, with the seeds that were asked for."""
    chosen = {run: own for run, own in runs.items() if fnmatch(run, only)}
    if not chosen:
        raise UsageError(f"no run of '{name}' is called '{only}': there are {', '.join(runs)}")
    return chosen if seeds is None else {run: replace(own, seeds=seeds) for run, own in chosen.items()}


def missing_seeds(folder: StudyFolder, runs: Mapping[str, OwnRun]) -> list[tuple[str, int]]:
    """What is not done yet: the first seed of all runs, then the second, so that what is there can be compared."""
    done = folder.done()
    every = sorted({seed for own in runs.values() for seed in own.seeds})
    return [(run, seed) for seed in every for run, own in runs.items() if seed in own.seeds and (run, seed) not in done]


def carry_out(
    folder: StudyFolder, runs: Mapping[str, OwnRun], sign: StopSign, tell: Callable[[str, float], None], device: str
) -> dict[str, list[int]]:
    """Do what is missing, and add each seed's rows at once; returns the seeds that diverged, by run: the others go on
    without them."""
    missing, here, diverged = missing_seeds(folder, runs), environment(device), dict[str, list[int]]()
    place = Place(device, folder.runs)
    for number, (run, seed) in enumerate(missing):
        if sign.check():
            break
        tell(run, number / len(missing))
        begun = monotonic()
        try:
            with convolving_in("float32"):  # as the command says, on a GPU too
                tables = runs[run].do(seed, place)
        except DivergedError:
            diverged.setdefault(run, []).append(seed)
            continue
        folder.add(tables, _provenance(folder, here, monotonic() - begun))
    return diverged


def _provenance(folder: StudyFolder, here: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """One entry for all runs: the first sitting's, with those that went on elsewhere or with other code."""
    name = folder.study.name
    first = dict(read_provenance(folder.path).get(name, here))
    sittings = [first, *first.get("resumed", ())]
    if not any(all(one.get(key) == here.get(key) for key in WHERE) for one in sittings):
        first["resumed"] = [*first.get("resumed", ()), dict(here)]
    spent = round(float(first.get("seconds", 0)) + seconds, 3)
    return {name: {**first, "finished": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": spent}}
