"""Every study by its name, in the paper's order."""

from windermere.errors import UnknownNameError
from windermere.studies.planes import DECISION_REGIONS, TRAJECTORIES
from windermere.studies.study import Study
from windermere.studies.toy import CROSSING_FIELD, FAN

ALL: tuple[Study, ...] = (TRAJECTORIES, DECISION_REGIONS, FAN, CROSSING_FIELD)
STUDIES = {study.name: study for study in ALL}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    return STUDIES[name]
