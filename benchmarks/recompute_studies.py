"""Sentences about our own studies: docs/tied-sampler.md, what-being-tied-costs.md, and README.md."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.recompute import Row, Sentence, log_mean, numbers, of_page, rows, words_of_p
from benchmarks.recompute import one_sample_p as paired_p
from benchmarks.recompute_recipes import TREATED, recipe

COARSE = ("euler-1", "euler-2", "euler-4", "midpoint-2")
"""Through these steps every sampler was tied."""
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


@of_page("docs/tied-sampler.md")
def tuning_on_images() -> Iterator[Sentence]:
    every = dict[str, list[Row]]()
    for row in rows("tied-sampler-images"):
        every.setdefault(row["run"].removeprefix("mnist14-unet-"), []).append(row)
    two, four, eight, sixteen = (every[f"energy-euler-{n}"] for n in (2, 4, 8, 16))
    yield "Through 2 or 4 Euler steps {} of {} models are tied", *share_tied([*two, *four])
    if all(row["harmed"] == "true" for row in (*two, *four)):
        yield ("all of their flows are worse than before",)
    before, after, flow_before, flow = (
        fmean(numbers(two, name)) for name in ("own_before", "own", "flow_before", "flow")
    )
    p = paired_p([a - b for a, b in zip(numbers(two, "flow"), numbers(two, "flow_before"), strict=True)])
    yield "distance with these falls from {:.2g} to {:.2g}", before, after
    yield "it rises from {:.2g} to {:.2g} ({}, paired t-test,", flow_before, flow, words_of_p(p)
    yield "Through 8 steps {} of {} are tied", *share_tied(eight)
    if share_tied(sixteen)[0] == 0:
        yield ("through 16 none",)
    p = paired_p([a - b for a, b in zip(numbers(sixteen, "flow"), numbers(sixteen, "flow_before"), strict=True)])
    yield "through 16 it goes from {:.2g} to {:.2g} ({})", flow_before, fmean(numbers(sixteen, "flow")), words_of_p(p)
    control = every["matching-euler-2"]
    p = paired_p([a - b for a, b in zip(numbers(control, "flow"), numbers(control, "flow_before"), strict=True)])
    yield "stays where it was ({:.2g}, {})", fmean(numbers(control, "flow")), words_of_p(p)
    if sum(row["harmed"] == "true" for row in control) == 1:
        yield ("one of the five is surely a little worse",)
    for name, cost in (("steady-midpoint", "evaluations an iteration"), ("algorithm2-midpoint", "where")):
        yield (
            "{:.1f}" + f"{',' if cost == 'where' else ''} {cost}",
            fmean(numbers(every[f"energy-{name}"], "evaluations")),
        )
    by = {"pixels": (8, 16), "another classifier": (4,)}
    tied = [
        share_tied(
            [
                r
                for r in rows("tied-sampler-images", "opinions")
                if (r["yardstick"], r["run"][-len(end) :]) == (who, end)
            ]
        )
        for who, steps in by.items()
        for end in (f"energy-euler-{n}" for n in steps)
    ]
    (a, b), (c, d), (e, f) = tied
    yield "Judged by pixels alone, {} of {} are tied through 8 steps too, and {} of {} through 16", a, b, c, d
    yield "all are tied through 2, {} of {} through 4, and none through more", e, f


@of_page("docs/tied-sampler.md")
def who_else_is_harmed() -> Iterator[Sentence]:
    """By pixels alone, and by the other classifier."""
    harmed = {
        (who, name): sum(row["harmed"] == "true" for row in opinions(who, name))
        for who in ("pixels", "another classifier")
        for name in ("euler-2", "euler-4", "euler-8", "euler-16", "algorithm2-midpoint", "steady-midpoint")
    }
    yield "and {} and {} of 5 are harmed; by a", harmed["pixels", "euler-8"], harmed["pixels", "euler-16"]
    if [harmed["another classifier", f"euler-{n}"] for n in (2, 4, 8, 16)] == [5, 0, 0, 0]:
        yield ("and those through 2 alone are harmed",)
    if harmed["pixels", "steady-midpoint"] == 0:
        yield "and {} of 5 are harmed by pixels alone (of steady's none)", harmed["pixels", "algorithm2-midpoint"]
    others, pixels = (opinions(who, "euler-16") for who in ("another classifier", "pixels"))
    yield "says so too ({:.2g} to {:.2g})", *(fmean(numbers(others, name)) for name in ("flow_before", "flow"))
    before, after = numbers(pixels, "flow_before"), numbers(pixels, "flow")
    p = words_of_p(paired_p([a - b for a, b in zip(after, before, strict=True)]))
    yield "by them alone it goes from {:.2g} to {:.2g} ({})", fmean(before), fmean(after), p


@of_page("docs/tied-sampler.md")
def rewarded_digits() -> Iterator[Sentence]:
    every = [row for row in rows("tied-sampler-images") if "-reward-" in row["run"]]
    yield "By that rule nobody is tied**: {} of {} models", *share_tied(every)
    if not any(row["harmed"] == "true" for row in every):
        yield ("no flow is harmed",)
    counts = ("euler-2", "euler-4", "euler-8", "euler-16")
    ratios = {through: opinions("the reward's ratio", through, "reward") for through in (*counts, "steady-midpoint")}
    yield (
        "{} of {} are tied through 2 steps, {} of {} through 4, {} of {} through 8 and {} of {} through 16",
        *(number for through in counts for number in share_tied(ratios[through])),
    )
    unsure = [sum(row["tied"] == "" for row in ratios[through]) for through in counts]
    yield "(not sure: {} with 8, {} with 16)", *unsure[2:]
    yield "lacks {:.0f}, {:.1f}, {:.1f} and {:.1f} times as much as the own solver", *(worse(ratios[n]) for n in counts)
    yield "and {:.2f} times with the steady controller", worse(ratios["steady-midpoint"])
    told = Counter(row["audit"] for row in every if row["through"] in counts)
    yield "says TIED of {} of these {} and UNDECIDED of {}", told["TIED"], sum(told.values()), told["UNDECIDED"]
    others = [opinions("another classifier's reward", through, "reward") for through in counts]
    if not any(share_tied(of)[0] for of in others[1:]):
        yield "calls {} of {} tied through 2 steps, and none through more", *share_tied(others[0])
    two = [row for row in every if row["through"] == "euler-2"]
    yield "up to {:.2g} through 2 steps, still less than real 3s lack", max(numbers(two, "flow"))
    yield "goes from {:.1f} to {:.2g} through 2 steps", *(fmean(numbers(two, name)) for name in ("flow_before", "flow"))
    steady = [row for row in every if row["through"] == "steady-midpoint"]
    ends, cost = numbers(steady, "steps"), fmean(numbers(steady, "evaluations"))
    if not any(row["tied"] != "false" for row in ratios["steady-midpoint"]):
        yield "ends with {:.0f} to {:.0f} midpoint steps, for {:.1f} evaluations", min(ends), max(ends), cost


def worse(of: Sequence[Row]) -> float:
    """How many times as much the flow lacks as the own solver, in the geometric mean."""
    return log_mean(flow / own for flow, own in zip(numbers(of, "flow"), numbers(of, "own"), strict=True))


def opinions(who: str, through: str, loss: str = "energy") -> list[Row]:
    """What else judges samplers of digits, that were tuned by the energy distance or by a reward."""
    run = f"mnist14-unet-{loss}-{through}"
    return [row for row in rows("tied-sampler-images", "opinions") if (row["yardstick"], row["run"]) == (who, run)]


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
    digits = [row for row in rows("tied-sampler-images") if row["run"].endswith(("energy-euler-2", "energy-euler-4"))]
    both = (*share_tied(tuned(*COARSE)), *share_tied(digits))
    yield "({} of {} models; of digits {} of {}, through 2 or 4)", *both
    treated = recipe(TREATED)
    flows = sum(row["outcome"] == "FLOW" for row in treated)
    yield "at {:.0f} evaluations an iteration ({} of {} seeds)", fmean(numbers(treated, "cost")), flows, len(treated)
    lost, kept = ([share for name in of for share in both_ways(name)] for of in (TIED, (FINE, TREATED)))
    told = "of tied models' inputs {:.0f} to {:.0%} come back wrong, of flows' {:.0f} to {:.0%}"
    yield told, 100 * min(lost), max(lost), 100 * min(kept), max(kept)


@of_page("docs/what-being-tied-costs.md")
def the_way_back_on_images() -> Iterator[Sentence]:
    of = {
        name: [r for r in rows("what-being-tied-costs-mnist") if r["run"] == name]
        for name in ("constant-euler-2", "constant-euler-4", "constant-euler-16", "random-2")
    }
    two, four, flows, drawn = (fmean(numbers(some, "lost")) for some in of.values())
    yield "models of 2 steps lose {:.1%} of their inputs and those of 4 steps {:.1%}", two, four
    yield "the flows of 16 lose {:.1%}", flows
    yield "steps, lose {:.1%}, which five seeds do not tell", drawn
    yield (
        "lose {:.0f} to {:.0%} of their inputs there, flows of 16 and of random steps {:.0f} to {:.0%}",
        100 * four,
        two,
        100 * flows,
        drawn,
    )
    (flow,), tied = ([r for r in of["constant-euler-4"] if r["outcome"] == told] for told in ("FLOW", "TIED"))
    yield (
        "(seed {}, {:.3f} under the flow) loses {:.1%}",
        flow["seed"],
        float(flow["flow_accuracy"]),
        float(flow["lost"]),
    )
    lost = numbers(tied, "lost")
    yield "and the four that are TIED {:.1%} to {:.1%}", min(lost), max(lost)
    kept = [1 - share for share in numbers(of["constant-euler-16"], "strayed_finely")]
    told = (fmean(kept), 100 * min(kept), max(kept))
    yield "flows of 16 steps alone, {:.1%} of them in the mean, and {:.0f} to {:.0%} by seed", *told
    for column, amount in (("noise_2", "noise of 0.2"), ("attack_20", "attacks of 0.05")):
        ours, theirs = (fmean(numbers(of[name], column)) for name in ("random-2", "constant-euler-16"))
        yield f"{amount} ({{:.3f}} against {{:.3f}}", ours, theirs
