"""Every study by its name, in the paper's order."""

from windermere.errors import UnknownNameError
from windermere.studies.study import Study

ALL: tuple[Study, ...] = ()
STUDIES = {study.name: study for study in ALL}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    return STUDIES[name]
