"""What models trained with constant steps say of the paper's own check, and of what it asserts of their fields."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import fmean, stdev

from windermere.paper.studies.audits import AUDITS, outcomes
from windermere.paper.studies.critical import CLASSES, PRINTED, THRESHOLD, ends, is_full_length
from windermere.paper.studies.critical import bracket as in_words
from windermere.paper.studies.critical_number import (
    GROUP,
    crossing,
    crossing_within,
    failing_groups,
    gaps_by_steps,
    seeds_of_all,
)
from windermere.paper.studies.critical_rows import CHECKS, CheckRow
from windermere.paper.studies.field_measures import ESTIMATES, FIELDS
from windermere.paper.studies.grid_findings import within_a_factor_of_two
from windermere.paper.studies.rows import RunRow, Tables, grouped
from windermere.paper.studies.statistics import against, judged, told
from windermere.paper.studies.study import Finding, data_name, of_ours, seed_count

HALF = THRESHOLD / 2
NOT_SCORED = "not scored yet"
"""In the place of a bracket."""


@dataclass(frozen=True)
class Scored:
    """All seeds of one run: gaps between own and check solver, and accuracies above chance."""

    steps: float
    gaps: Sequence[float]
    above_chance: float


Rule = Callable[[Scored], bool]
RULES: Mapping[str, Rule] = {
    "mean gap at most 0.1 (Algorithm 2's)": lambda entry: fmean(entry.gaps) <= THRESHOLD + 1e-9,
    "every seed's gap at most 0.1": lambda entry: max(entry.gaps) <= THRESHOLD + 1e-9,
    "mean gap at most 0.05": lambda entry: fmean(entry.gaps) <= HALF + 1e-9,
    "mean gap at most 10% of the accuracy above chance": lambda entry: (
        fmean(entry.gaps) <= 0.1 * entry.above_chance + 1e-9
    ),
}
"""By which a number of steps passes."""


def findings(tables: Tables) -> list[Finding]:
    rows = [row for row in tables[CHECKS] if row.own is not None]
    return [*_critical(rows), *_where(rows), *_lipschitz(tables), *_margins(tables), *_estimates(tables)]


def on_the_test_set(rows: Sequence[CheckRow]) -> list[Scored]:
    return _scored(rows, lambda row: ((row.own or 0.0), _test_gap(row)))


def on_training_batches(rows: Sequence[CheckRow]) -> list[Scored]:
    return _scored(rows, lambda row: ((row.batch_own or 0.0), _batch_gap(row)))


def _scored(rows: Sequence[CheckRow], of: Callable[[CheckRow], tuple[float, float]]) -> list[Scored]:
    """From coarse to fine."""
    by_steps = grouped((row.steps, row) for row in rows if row.steps is not None and row.own is not None)
    return [
        Scored(steps, [of(row)[1] for row in own], fmean(of(row)[0] for row in own) - 1 / CLASSES.get(own[0].data, 2))
        for steps, own in sorted(by_steps.items())
    ]


def bracket(entries: Sequence[Scored], rule: Rule) -> tuple[float | None, float | None, str]:
    """The largest number of steps that fails, the smallest from which on all pass, and both in words."""
    if not entries:
        return None, None, NOT_SCORED
    fails, passes = ends((entry.steps, rule(entry)) for entry in entries)
    return fails, passes, in_words(fails, passes)


def _critical(rows: Sequence[CheckRow]) -> Iterator[Finding]:
    for data, printed in PRINTED.items():
        own = [row for row in rows if row.data == data and row.method == "euler"]
        rates = sorted({row.lr for row in own}, reverse=True)
        for lr in rates[:1]:  # the printed one
            here = [row for row in own if row.lr == lr]
            (fails, passes, words), test = (
                bracket(score(here), next(iter(RULES.values()))) for score in (on_training_batches, on_the_test_set)
            )
            near = [entry for entry in on_training_batches(here) if entry.steps in (fails, passes)]
            gaps = "; ".join(f"{entry.steps:g} steps {_gap(entry)}" for entry in near)
            yield Finding(
                claim="on training batches, as Algorithm 2 looks, the critical number of steps is as printed (within a "
                "factor of two)",
                ours=f"{words} (printed: {printed.fails}-{printed.passes}; the same models on the test set: "
                f"{test[2]}; "
                f"{seed_count(*(len(entry.gaps) for entry in near))}); mean gaps: {gaps}",
                agrees=within_a_factor_of_two(fails, passes, printed)
                if all(is_full_length(row.data, row.iterations) for row in here)
                else None,
                case=data_name(data),
            )


def _gap(entry: Scored) -> str:
    mean = fmean(entry.gaps)
    if len(entry.gaps) < 2:
        return f"{mean:.3f}"
    apart = against(entry.gaps, THRESHOLD)
    return f"{mean:.3f} ± {stdev(entry.gaps):.3f} (other than {THRESHOLD:g}: {told(apart.p)})"


def _where(rows: Sequence[CheckRow]) -> Iterator[Finding]:
    """The number of steps at which the mean gap is the threshold, and how often five seeds would put it higher."""
    here = [row for row in rows if (row.data, row.method) == ("sphere2", "euler") and row.steps is not None]
    told = list[str]()
    for place, gap_of in (("training batches", _batch_gap), ("the test set", _test_gap)):
        gaps = gaps_by_steps(here, gap_of)
        if (found := crossing(gaps)) is None or len(seeds := seeds_of_all(gaps)) <= GROUP:
            continue
        low, high = crossing_within(gaps)
        fine = min(gaps, key=lambda steps: abs(log2(steps / found)))
        fail = failing_groups(list(gaps[fine].values()))
        told.append(
            f"on {place} it is {found:.0f} steps (95% {low:.0f} to {high:.0f}, a bootstrap of {len(seeds)} seeds), and "
            f"{100 * fail:.0f}% of all groups of {GROUP} of these seeds fail with {fine} steps"
        )
    if told:
        yield of_ours(
            f"Where the mean gap falls to {THRESHOLD:g}, by interpolation between numbers of Euler steps.",
            "; ".join(told),
            "Sphere2",
        )


def _batch_gap(row: CheckRow) -> float:
    return row.batch_gap or 0.0


def _test_gap(row: CheckRow) -> float:
    return abs((row.own or 0.0) - (row.checked or 0.0))


def _case(tables: Tables) -> bool:
    """Whether all models were trained in full: quick ones leave claims open."""
    return all(is_full_length(row.data, row.iterations) for row in tables[CHECKS])


def _lipschitz(tables: Tables) -> Iterator[Finding]:
    """h L < 1 makes Euler's step injective, so that nothing crosses."""
    steps = {row.run: row.steps for row in tables[CHECKS] if row.method == "euler" and row.steps}
    rows = [row for row in tables[FIELDS] if row.run in steps]
    if not rows:
        return
    factors = {row.key: row.slope / steps[row.run] for row in rows}
    below = {key for key, factor in factors.items() if factor < 1}
    audits = [row for row in tables[AUDITS] if row.key in below]
    by_steps = {
        count: [factor for (run, _), factor in factors.items() if steps[run] == count]
        for count in sorted({steps[row.run] for row in rows})
    }
    bounds = {count: fmean(row.bound for row in rows if steps[row.run] == count) / count for count in by_steps}
    safe = next((f"{count} steps" for count, bound in bounds.items() if bound < 1), "none of the steps tried")
    listed = "; ".join(f"{count} steps {min(own):.2f} to {max(own):.2f}" for count, own in by_steps.items())
    yield Finding(
        claim="restricting the Lipschitz constant L, so that h L < 1 and no trajectories cross, would keep models from "
        "being tied to their solver (the paper has it as an idea)",
        ours=f"Euler, the largest h L that trajectories meet, by seed: {listed}. Of the {len(audits)} models with "
        f"h L < 1 the audits say {outcomes(audits)}. h times the product of layer norms, which is no less than L, "
        f"is below 1 in the mean from {safe} on",
        agrees=None if not _case(tables) or not audits else all(row.outcome == "FLOW" for row in audits),
        case="Sphere2",
    )


def _margins(tables: Tables) -> Iterator[Finding]:
    rows = tables[FIELDS]
    if not rows:
        return
    tied = _keys(tables, "TIED")
    flows = _keys(tables, "FLOW")

    def share(keys: set[tuple[str, int]], name: str) -> str:
        values = [getattr(row, name) for row in rows if row.key in keys]
        return f"{fmean(values):.3f}" if values else "none"

    within = sum(row.changed_within for row in rows)
    yield Finding(
        claim="outputs that move by less than the classifier's threshold d keep their class, so that solvers can be "
        "interchanged",
        ours=f"of {len(rows)} models, {within} points changed class that moved by less than their own distance to the "
        f"decision boundary. Beyond it move {share(tied, 'beyond')} of the points of TIED models and "
        f"{share(flows, 'beyond')} of FLOW ones, and {share(tied, 'changed')} and {share(flows, 'changed')} change "
        "class: d is enough, and far from needed",
        agrees=within == 0 if _case(tables) else None,
        case="Sphere2",
    )


def _keys(tables: Tables, outcome: str) -> set[tuple[str, int]]:
    return {row.key for row in tables[AUDITS] if row.outcome == outcome}


def _estimates(tables: Tables) -> Iterator[Finding]:
    methods = {row.run: row.method for row in tables[CHECKS]}
    tied, flows = _keys(tables, "TIED"), _keys(tables, "FLOW")
    for method in dict.fromkeys(methods[row.run] for row in tables[ESTIMATES]):
        rows = [row for row in tables[ESTIMATES] if methods[row.run] == method]
        by = {row.key: log2(row.underestimated) for row in rows}
        ours, logs = list[str](), [by[key] for key in by if key in tied]
        for name, keys in (("TIED", tied), ("FLOW", flows)):
            if some := [by[key] for key in by if key in keys]:
                ours.append(f"{2 ** fmean(some):.1f} times ({len(some)} {name} models)")
        if len(by_seed := _seed_means(rows, tied, by)) < 2:
            continue
        above = against(by_seed)
        yield Finding(
            claim="embedded methods can severely underestimate the local error of fields that are not smooth, so that "
            "tolerances do not keep models from being tied",
            ours=f"true local errors are larger than estimated: {', '.join(ours)}, in the geometric mean of medians "
            f"over points and steps ({seed_count(len(by_seed))}, {told(above.above())} for larger)",
            agrees=judged(above.above(), above.below()) if _case(tables) and logs else None,
            case=f"Sphere2 trained with {method}",
        )


def _seed_means(
    rows: Sequence[RunRow], keys: set[tuple[str, int]], values: Mapping[tuple[str, int], float]
) -> list[float]:
    """The mean over each seed's models, which share their data and their weights at first."""
    return [fmean(own) for own in grouped((row.seed, values[row.key]) for row in rows if row.key in keys).values()]
