"""Sentences of docs/audit.md: how often verdicts were right, and intervals of distances between sets."""

from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from benchmarks.recompute import Sentence, benchmark, of_page

PAGE, ANSWERS = "docs/audit.md", ("FLOW", "TIED", "COARSE", "UNDECIDED")
KINDS = ("energy", "mmd", "sliced-wasserstein", "frechet")


@of_page(PAGE)
def classifiers() -> Iterator[Sentence]:
    cases = benchmark("calibration")["cases"]
    told = Counter(case["answer"] for case in cases)
    yield "We trained {} Sphere2 models", len(cases)
    yield "It called {} FLOW, {} TIED and", told["FLOW"], told["TIED"]
    unsure = [case["own"] - case["flow"] for case in cases if case["answer"] == "UNDECIDED"]
    yield "These three lose {:.3f} to {:.2f} under the flow", min(unsure), max(unsure)


@of_page(PAGE)
def others() -> Iterator[Sentence]:
    """A row of the tables for each label that brute force gave."""
    errors, samplers = benchmark("calibration_errors"), benchmark("calibration_samplers")
    of = {"trajectories": errors["regressions"], "densities": errors["likelihoods"], "samplers": samplers["samplers"]}
    yield "So it is with {} learned trajectories", len(of["trajectories"])
    yield "and {} densities of the plane", len(of["densities"])
    yield "And with {} samplers", len(of["samplers"])
    for name, cases in of.items():
        for label in ("FLOW", "TIED", "COARSE"):
            told = Counter(case["answer"] for case in cases if case["label"] == label)
            yield "| {}: {} | {} | {} | {} | {} |", name, label, *(told[answer] for answer in ANSWERS)


@of_page(PAGE)
def sets() -> Iterator[Sentence]:
    rates = benchmark("set_calibration")["rates"]
    rows = {"real samples are called different": "real against", "a gap's 95% interval misses it": "a gap's"}
    for words, start in rows.items():
        of = [[r["share"] for r in rates if r["kind"] == kind and r["question"].startswith(start)] for kind in KINDS]
        yield f"| {words} |" + " {:.1%} |" * len(of), *map(fmean, of)


@of_page(PAGE)
def images() -> Iterator[Sentence]:
    audits = benchmark("image_sampler")["audits"].values()
    seconds = [audit["seconds"] for audit in audits]
    yield "Each audit took {:.0f} to {:.0f} s.", min(seconds), max(seconds)
