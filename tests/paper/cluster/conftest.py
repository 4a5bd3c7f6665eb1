"""The small study, run in this process."""

from tests.paper.studies.conftest import whole

__all__ = ["whole"]
