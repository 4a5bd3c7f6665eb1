"""Names that help texts list and Tab completes. They are written down a second time here, since PyTorch, which takes
seconds to import, is needed where they belong. A test holds both together."""

from collections.abc import Callable, Sequence

METHODS = ("euler", "midpoint", "heun", "heun3", "rk4", "rk4_38", "fehlberg21", "heun21", "bosh32", "dopri54", "tsit54")
DATA = ("sphere2", "sphere3", "sphere10", "sphere900", "mnist", "cifar10")
DOWNLOADS = ("mnist", "cifar10")
STUDIES = (
    "trajectories",
    "decision-regions",
    "fan",
    "sphere2-fixed",
    "cifar10-adaptive",
    "cifar10-fixed",
    "mnist-fixed",
    "sphere3-fixed",
    "sphere10-fixed",
    "sphere900-fixed",
    "mnist-adaptive",
    "sphere2-adaptive",
    "sphere2-adjoint",
    "step-adaptation-sphere2",
    "step-adaptation-mnist",
    "step-adaptation-cifar10",
    "smaller-step-sphere2",
    "table1",
    "critical-steps",
    "crossing-field",
    "sphere2-data",
    "tolerance-adaptation-sphere2",
    "tied-sampler",
    "recipes",
    "what-being-tied-costs",
)
FIGURES = ("figure1", "figure2", "figure3", "figure4", "figure5")


def completing(names: Sequence[str]) -> Callable[[str], list[str]]:
    """What typer asks for the names that go on from what was typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete
