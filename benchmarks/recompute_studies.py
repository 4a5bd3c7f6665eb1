"""Sentences about our own studies: docs/tied-sampler.md, recipes.md, what-being-tied-costs.md, and README.md."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.recompute import Row, Sentence, numbers, of_page, rows, words_of_p
from benchmarks.recompute import one_sample_p as paired_p

COARSE = ("euler-1", "euler-2", "euler-4", "midpoint-2")
"""Through these steps every sampler was tied."""
TREATED = "random-6-finish-0.2"
FINE, TIED = "constant-euler-128", tuple(f"constant-euler-{steps}" for steps in (2, 4, 8))


def tuned(*through: str) -> list[Row]:
    """Samplers that were tuned through constant steps, for the usual time."""
    return [row for row in rows("tied-sampler") if row["through"] in through and row["run"].endswith(row["through"])]


def share_tied(of: Sequence[Row]) -> tuple[int, int]:
    return sum(row["tied"] == "true" for row in of), len(of)


@of_page("docs/tied-sampler.md")
def tuning_through_few_steps() -> Iterator[Sentence]:
    coarse = tuned(*COARSE)
    yield "{} of {} models were tied", *share_tied(coarse)
    told = Counter(row["audit"] for row in coarse)
    yield "`wm.audit` says TIED of {} and UNDECIDED of {}", told["TIED"], told["UNDECIDED"]
    energy = [row for row in coarse if row["loss"] == "energy"]
    harmed = sum(row["harmed"] == "true" for row in energy)
    yield (
        "Of the {} that were tuned by a distance to data, {} have a flow that is *worse* than before",
        len(energy),
        harmed,
    )
    four = [row for row in energy if row["run"] == "gaussians-mlp-energy-euler-4"]
    before, after, flow_before, flow = (
        fmean(numbers(four, column)) for column in ("own_before", "own", "flow_before", "flow")
    )
    yield (
        "with these falls from {:.2g} to {:.2g}, and under the flow it rises from {:.2g} to {:.2g}",
        *(
            before,
            after,
            flow_before,
            flow,
        ),
    )
    yield "Through 8 Euler steps {} of {} were tied", *share_tied(tuned("euler-8"))
    yield "through 16 or more {} of {}", *share_tied(tuned("euler-16", "euler-20", "euler-32", "euler-64"))
    yield "through 4 or 8 midpoint steps {} of {}", *share_tied(tuned("midpoint-4", "midpoint-8"))


def recipe(name: str) -> list[Row]:
    return [row for row in rows("recipes") if row["run"] == name]


def above(of: Sequence[Row], accuracy: float = 0.9) -> int:
    return sum(value > accuracy for value in numbers(of, "flow_accuracy"))


@of_page("docs/recipes.md")
def random_steps() -> Iterator[Sentence]:
    treated, steady = recipe(TREATED), recipe("steady-midpoint")
    flows = sum(row["outcome"] == "FLOW" for row in treated)
    yield (
        "cost {:.1f} evaluations per iteration: {} of {} seeds are FLOW",
        fmean(numbers(treated, "cost")),
        flows,
        len(treated),
    )
    yield "{} of them above 0.9 under the flow", above(treated)
    ours, theirs = ({row["seed"]: float(row["flow_accuracy"]) for row in of} for of in (treated, steady))
    p = paired_p([ours[seed] - theirs[seed] for seed in ours])
    yield (
        "which costs {:.1f}: over the same {} seeds {:.3f} against {:.3f} under the flow ({}, paired t-test)",
        fmean(numbers(steady, "cost")),
        len(ours),
        fmean(ours.values()),
        fmean(theirs.values()),
        words_of_p(p),
    )


@of_page("docs/what-being-tied-costs.md")
def seeds_that_chose_nothing() -> Iterator[Sentence]:
    fresh = [row for row in recipe(TREATED) if int(row["seed"]) >= 10]
    yield "its accuracy under the flow is {:.3f} in the mean", fmean(numbers(fresh, "flow_accuracy"))


@of_page("docs/what-being-tied-costs.md")
def the_way_back() -> Iterator[Sentence]:
    yield "128 Euler steps it is {:.0%} ({:.0%} if a finer solver goes back)", *both_ways(FINE)
    yield "[random steps](recipes.md) {:.0%} ({:.0%})", *both_ways(TREATED)
    yield "Of a tied model's inputs, {:.0%} or more come back too far off", min(map(strayed, TIED))


def both_ways(name: str) -> tuple[float, float]:
    """What the own solver and a fine one bring back too far off."""
    return strayed(name, "strayed"), strayed(name)


def strayed(name: str, by: str = "strayed_finely") -> float:
    """The share of inputs that a solver brings back too far off, over the seeds that are as accurate as FINE's."""
    fine, of = (
        {row["seed"]: row for row in rows("what-being-tied-costs") if row["run"] == run} for run in (FINE, name)
    )
    near = [seed for seed in of if abs(float(of[seed]["accuracy"]) - float(fine[seed]["accuracy"])) <= 0.02]
    return fmean(numbers([of[seed] for seed in near], by))


@of_page("README.md")
def our_studies() -> Iterator[Sentence]:
    yield "({} of {} models)", *share_tied(tuned(*COARSE))
    treated = recipe(TREATED)
    flows = sum(row["outcome"] == "FLOW" for row in treated)
    yield "at {:.0f} evaluations an iteration ({} of {} seeds)", fmean(numbers(treated, "cost")), flows, len(treated)
    lost, kept = ([share for name in of for share in both_ways(name)] for of in (TIED, (FINE, TREATED)))
    told = "of tied models' inputs {:.0f} to {:.0%} come back wrong, of flows' {:.0f} to {:.0%}"
    yield told, 100 * min(lost), max(lost), 100 * min(kept), max(kept)
