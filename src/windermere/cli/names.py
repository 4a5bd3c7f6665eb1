"""Names that help texts list and Tab completes. They are written down a second time here (those of studies among what
these cost), since PyTorch, which takes seconds to import, is needed where they belong. A test holds both together."""

from collections.abc import Callable, Sequence

from windermere.paper.studies.costs import COSTS

METHODS = ("euler", "midpoint", "heun", "heun3", "rk4", "rk4_38", "fehlberg21", "heun21", "bosh32", "dopri54", "tsit54")
DATA = ("sphere2", "sphere3", "sphere10", "sphere900", "mnist", "cifar10")
DOWNLOADS = ("mnist", "cifar10")
STUDIES = tuple(COSTS)
FIGURES = ("figure1", "figure2", "figure3", "figure4", "figure5")


def completing(names: Sequence[str]) -> Callable[[str], list[str]]:
    """What typer asks for the names that go on from what was typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete
