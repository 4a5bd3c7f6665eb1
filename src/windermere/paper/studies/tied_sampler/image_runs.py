"""The runs on images: those that a CPU can do at half the resolution, and those of all pixels, for a GPU."""

from collections.abc import Iterator, Mapping

from windermere.paper.studies.study import SEEDS, OwnRun
from windermere.paper.studies.tied_sampler.measures import REWARD
from windermere.paper.studies.tied_sampler.runs import MATCHING, Scale, Setting, runs_of, settings_of

UNET, SMALL, WHOLE = "unet", "mnist14", "mnist28"
STEPS, WHOLE_STEPS = (2, 4, 8, 16), (1, 2, 4, 8, 16, 20, 32, 64)
IMAGE_CONTROLLERS = ("algorithm2-midpoint", "steady-midpoint")
"""Only the last with a reward: its logarithm falls without end, and with it the steps that Algorithm 2 would take."""
QUICK_STEPS = (2, 8)
REWARDED_DRAWN = (2, 16)
"""Steps of rewarded runs of whose first seed samples are kept."""


def _named(data: str, steps: tuple[int, ...]) -> tuple[str, ...]:
    energy = [f"energy-euler-{n}" for n in steps]
    reward = [f"reward-euler-{n}" for n in steps if n in REWARDED_DRAWN]
    return tuple(f"{data}-{UNET}-{name}" for name in (*energy, *reward))


SCALES: Mapping[str, Scale] = {
    SMALL: Scale(
        matching=2500,
        tuning=100,
        samples=1000,
        real=2000,
        audited=100,
        audited_real=2000,
        drawn=_named(SMALL, STEPS),
    ),
    WHOLE: Scale(
        matching=20000,
        tuning=500,
        samples=2000,
        real=5000,
        audited=1000,
        audited_real=5000,
        drawn=_named(WHOLE, STEPS),
    ),
}
QUICK_SCALE = Scale(
    matching=250,
    tuning=10,
    samples=200,
    real=400,
    audited=50,
    audited_real=400,
    drawn=_named(SMALL, QUICK_STEPS),
)


def image_settings(data: str, steps: tuple[int, ...], controllers: tuple[str, ...]) -> Iterator[Setting]:
    """What is tuned, by a distance or by a reward, and for each number of steps its control."""
    yield from settings_of(data, UNET, steps, controllers=controllers, losses=("energy",))
    yield from settings_of(data, UNET, steps, controllers=controllers[-1:], losses=(REWARD,))
    yield from settings_of(data, UNET, steps, losses=(MATCHING,))


def image_runs(quick: bool) -> Mapping[str, OwnRun]:
    """The small ones first: they are all that a CPU can do."""
    if quick:
        return runs_of(image_settings(SMALL, QUICK_STEPS, ()), QUICK_SCALE, SEEDS[:1])
    small = runs_of(image_settings(SMALL, STEPS, IMAGE_CONTROLLERS), SCALES[SMALL], SEEDS)
    return small | runs_of(image_settings(WHOLE, WHOLE_STEPS, IMAGE_CONTROLLERS), SCALES[WHOLE], SEEDS)
