"""Every study by its name, in the paper's order, and ours after them."""

import re

from windermere.errors import UnknownNameError
from windermere.paper.studies.adaptation import STEP_STUDIES, TOLERANCE_STUDY
from windermere.paper.studies.being_tied import IMAGE_TIED, TIED_STUDY
from windermere.paper.studies.critical_steps import CRITICAL_STEPS
from windermere.paper.studies.crossing_field import CROSSING_FIELD
from windermere.paper.studies.decision_regions import DECISION_REGIONS
from windermere.paper.studies.fan import FAN
from windermere.paper.studies.grids import GRIDS
from windermere.paper.studies.one_law import ONE_LAW
from windermere.paper.studies.recipes import IMAGE_RECIPES, RECIPE_STUDY
from windermere.paper.studies.smaller_step import SMALLER_STEP
from windermere.paper.studies.sphere2 import SPHERE2
from windermere.paper.studies.study import Study
from windermere.paper.studies.table1 import TABLE1
from windermere.paper.studies.tied_sampler.study import TIED_IMAGE_SAMPLER, TIED_SAMPLER
from windermere.paper.studies.trajectories import TRAJECTORIES

ALL: tuple[Study, ...] = (
    TRAJECTORIES,
    DECISION_REGIONS,
    FAN,
    *GRIDS,
    *STEP_STUDIES,
    SMALLER_STEP,
    TABLE1,
    CRITICAL_STEPS,
    CROSSING_FIELD,
    SPHERE2,
    TOLERANCE_STUDY,
    TIED_SAMPLER,
    TIED_IMAGE_SAMPLER,
    RECIPE_STUDY,
    IMAGE_RECIPES,
    ONE_LAW,
    TIED_STUDY,
    IMAGE_TIED,
)
STUDIES = {study.name: study for study in ALL}
FIGURE = re.compile(r"Figure (\d+)(?: \(([a-z, ]+)\))?")


def aliases(study: Study) -> list[str]:
    """The names of the paper's figure for a study: `figure4`, and for its panels `figure4a`, ..."""
    return [
        f"figure{found[1]}{panel}"
        for found in FIGURE.finditer(study.paper)
        for panel in ("", *(found[2] or "").replace(",", " ").split())
    ]


ALIASES = {alias: study.name for study in reversed(ALL) for alias in aliases(study)}
"""Studies by the paper's figures. Where several share a figure, its number alone is the first of them."""


def find_study(name: str) -> Study:
    """A study by its name, or by its figure in the paper."""
    known = ALIASES.get(name.lower().replace(" ", ""), name)
    if known not in STUDIES:
        raise UnknownNameError("study", name, [*STUDIES, *(alias for alias in ALIASES if alias[-1].isdigit())])
    return STUDIES[known]
