"""Every study by its name, in the paper's order."""

from windermere.errors import UnknownNameError
from windermere.paper.studies.adaptation import STEP_STUDIES, TOLERANCE_STUDY
from windermere.paper.studies.crossing_field import CROSSING_FIELD
from windermere.paper.studies.decision_regions import DECISION_REGIONS
from windermere.paper.studies.fan import FAN
from windermere.paper.studies.grids import GRIDS
from windermere.paper.studies.sphere2 import SPHERE2
from windermere.paper.studies.study import Study
from windermere.paper.studies.table1 import TABLE1
from windermere.paper.studies.trajectories import TRAJECTORIES

ALL: tuple[Study, ...] = (
    TRAJECTORIES,
    DECISION_REGIONS,
    FAN,
    *GRIDS,
    *STEP_STUDIES,
    TABLE1,
    CROSSING_FIELD,
    SPHERE2,
    TOLERANCE_STUDY,
)
STUDIES = {study.name: study for study in ALL}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    return STUDIES[name]
