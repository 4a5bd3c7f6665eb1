"""What of a study's runs is still to be trained: parts, each some seeds of a run, and which of them train as one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windermere.paper.architectures import products
from windermere.paper.studies.folder import StudyFolder
from windermere.paper.studies.study import SEEDS
from windermere.paper.training import RunConfig, begun_seeds
from windermere.records import reached
from windermere.solvers import Adaptive

GUESSED_STEPS = 12.0
"""The guessed number of steps of an adaptive solve, by which the amount of work is estimated."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Seeds of one run that are trained as one ensemble, in a folder of their own."""

    name: str
    config: RunConfig
    folder: Path

    @property
    def work(self) -> float:
        """About how much there is to do, in products of the field's layers."""
        solver = self.config.solver
        fixed = not isinstance(solver, Adaptive) and self.config.first_step == "given"
        steps = 1 / solver.precision if fixed else GUESSED_STEPS
        if (drawn := self.config.random_steps) is not None:
            steps = drawn.mean + drawn.finish * steps
        samples = self.config.iterations * self.config.batch_size * len(self.config.seeds)
        return samples * steps * len(solver.tableau.b) * products(self.config.data)


def all_missing_parts(folder: StudyFolder, configs: Mapping[str, RunConfig]) -> list[Part]:
    """What is missing of all runs; folders are listed once, since there may be very many."""
    begun = folder.begun()
    return [part for name, config in configs.items() for part in missing_parts(folder, name, config, begun)]


def missing_parts(
    folder: StudyFolder, name: str, config: RunConfig, begun: Mapping[str, Sequence[Path]] | None = None
) -> list[Part]:
    """The seeds of a run that have no rows yet: those that were begun with, and the rest as a new ensemble."""
    done, parts = folder.done(), list[Part]()
    missing = [seed for seed in config.seeds if (name, seed) not in done]
    for path in (folder.begun() if begun is None else begun).get(name, ()) if missing else ():
        seeds = [seed for seed in begun_seeds(path) if (name, seed) not in done]
        if not set(seeds).isdisjoint(missing):
            parts.append(Part(name=name, config=replace(config, seeds=tuple(seeds)), folder=path))
            missing = [seed for seed in missing if seed not in seeds]
            done |= {(name, seed) for seed in seeds}  # or to be: folders that were merged may share seeds
    if missing:
        path = folder.runs / f"{name}_seeds-{'-'.join(map(str, missing))}"
        parts.append(Part(name=name, config=replace(config, seeds=tuple(missing)), folder=path))
    return parts


def groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts that are trained as one: on a GPU, those that differ in their steps alone and are equally far."""
    found: dict[Any, list[Part]] = {}
    for part in parts:
        config, solver = part.config, part.config.solver
        changing = (config.controller, config.random_steps, config.treatment)
        fixed = not any(changing) and not isinstance(solver, Adaptive)
        joined = fixed and config.device != "cpu" and config.data.startswith("sphere")
        alike = replace(config, solver=solver.with_precision(1.0), seeds=SEEDS) if joined else part.folder
        found.setdefault((alike, reached(part.folder) if joined else 0), []).append(part)
    yield from found.values()
