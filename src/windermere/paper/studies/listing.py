"""All studies at a glance: where the paper has each, what it costs, and what of it is there already."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windermere.errors import WindermereError
from windermere.paper.studies.costs import COSTS, Cost
from windermere.paper.studies.folder import about_runs, is_quick, seeds_by_run
from windermere.paper.studies.registry import ALIASES
from windermere.paper.studies.rows import MAIN
from windermere.paper.studies.study import Study, seed_count


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a folder has of a study."""

    folder: Path
    runs: int
    """How many runs the study has; none where all of it is computed at once."""
    done: int
    """Runs with a seed that is done."""
    seeds: int
    """The most seeds that any run has."""

    def __str__(self) -> str:
        if not self.runs:
            return f"done, in {self.folder}"
        return f"{self.done} of {self.runs} runs, {seed_count(self.seeds)} at most, in {self.folder}"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A study as a list shows it."""

    name: str
    figures: list[str]
    """The names of figures that mean this study: `figure4`, `figure4a`, ..."""
    paper: str
    what: str
    cost: Cost | None
    """None of a study that nobody has measured."""
    here: list[Standing]
    """In full and quick, where there is any of it."""


def list_studies(studies: Mapping[str, Study], results: Path, quick: Path) -> list[Listed]:
    """All studies, and what two folders have of them: one of studies in full, one of quick ones."""
    return [
        Listed(
            name=name,
            figures=sorted(alias for alias, known in ALIASES.items() if known == name),
            paper=study.paper,
            what=study.what,
            cost=COSTS.get(name),
            here=[found for folder in (results, quick) if (found := _standing(study, folder / name)) is not None],
        )
        for name, study in studies.items()
    ]


def _standing(study: Study, folder: Path) -> Standing | None:
    """None where there is no table, or one that cannot be read: running the study says what is wrong with it."""
    if not (folder / f"{MAIN}.csv").exists():
        return None
    try:
        rows, planned = about_runs(study.main.read(folder)), study.planned(is_quick(folder))
    except WindermereError:
        return None
    seeds = seeds_by_run(rows)
    done = seeds.keys() & {*planned}
    return Standing(
        folder=folder, runs=len(planned), done=len(done), seeds=max((len(seeds[name]) for name in done), default=0)
    )
