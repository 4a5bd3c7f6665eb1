"""What makes a model a flow at the least cost: recipes for training, and every seed of them audited."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from windermere.paper.figures.recipes_figure import LawPanel, RecipePoint, draw_laws, draw_recipes
from windermere.paper.studies.chances import best_threshold, fisher, told_apart, told_apart_within, wilson
from windermere.paper.studies.critical import THRESHOLD
from windermere.paper.studies.recipe_measures import RECIPES, RecipeRow, measure, untested_row
from windermere.paper.studies.recipe_runs import FAMILIES, PATCHES, SPHERE2, Ground, recipe_runs
from windermere.paper.studies.rows import Tables, draw_png, grouped
from windermere.paper.studies.statistics import against, told
from windermere.paper.studies.study import Finding, Study, of_ours

GOAL = 20.0
"""Evaluations per iteration, at most."""
ACCURATE = 0.9
"""What counts as trained well, under the flow."""
FEWEST = 5
"""Seeds from which on an interval is given."""
LAWS: Mapping[str, str] = {
    "step_bound": "h L (largest L along trajectories)",
    "leading_term": "the solver's leading error term relative to the field, |h/2 f'f| / |f| of Euler",
    "unsafe_share": "the share of decisions whose margin is below the solver's error",
}
AXES: Mapping[str, str] = {
    "step_bound": "h L",
    "leading_term": "leading error term / field",
    "unsafe_share": "margins below the error (share)",
}


def by_recipe(rows: Sequence[RecipeRow]) -> dict[str, list[RecipeRow]]:
    return grouped((row.recipe, row) for row in rows)


def draw(name: str, tables: Tables, folder: Path) -> list[Path]:
    points = [_point(rows) for rows in by_recipe(tables[RECIPES]).values()]
    drawn = draw_png(partial(draw_recipes, points, tuple(FAMILIES.values()), GOAL), folder, name)
    known = [row for row in tables[RECIPES] if row.recipe.startswith("constant") and row.flow_accuracy is not None]
    known.sort(key=lambda row: row.method)
    panels = [panel(law, known, [row.method for row in known]) for law in AXES]
    return drawn + draw_png(partial(draw_laws, panels, THRESHOLD), folder, "laws")


def panel(law: str, rows: Sequence[RecipeRow], kinds: Sequence[str]) -> LawPanel:
    """What models lose under the flow, over a number."""
    there = [
        (value, row, kind) for row, kind in zip(rows, kinds, strict=True) if (value := law_of(row, law)) is not None
    ]
    return LawPanel(
        title=AXES[law],
        values=[value for value, *_ in there],
        lost=[loss_of(row) for _, row, _ in there],
        kinds=[kind for *_, kind in there],
        on_powers=law != "unsafe_share",
    )


def _point(rows: Sequence[RecipeRow]) -> RecipePoint:
    flows = flows_of(rows)
    accuracies = [row.flow_accuracy or 0.0 for row in rows]
    return RecipePoint(
        name=rows[0].recipe,
        family=rows[0].family,
        cost=_mean_cost(rows),
        share=flows / len(rows),
        interval=wilson(flows, len(rows)),
        accuracies=accuracies,
    )


def flows_of(rows: Sequence[RecipeRow]) -> int:
    return sum(row.outcome == "FLOW" for row in rows)


def _mean_cost(rows: Sequence[RecipeRow]) -> float:
    return fmean([row.cost for row in rows if row.cost is not None] or [0.0])


# ---------------------------------------------------------------------------------------------------------
# Findings


def findings(tables: Tables) -> list[Finding]:
    rows = tables[RECIPES]
    recipes = by_recipe(rows)
    return [*map(_told, recipes.values()), *_drawn(recipes), *_goal(recipes), *_laws(rows)]


def _told(rows: Sequence[RecipeRow]) -> Finding:
    """One recipe in numbers."""
    outcomes = {name: sum(row.outcome == name for row in rows) for name in ("FLOW", "TIED", "UNDECIDED", "COARSE")}
    low, high = wilson(outcomes["FLOW"], len(rows))
    own, flow = (_spread([value(row) for row in rows]) for value in (lambda row: row.accuracy, _flow))
    shares = ", ".join(f"{number} {name}" for name, number in outcomes.items() if number)
    lost = sum(row.diverged_at is not None for row in rows)
    return of_ours(
        "What a recipe costs, what its audits say, and how accurate it is.",
        f"{_mean_cost(rows):.1f} evaluations per iteration; of {len(rows)} seeds {shares}"
        f"{f', {lost} diverged' if lost else ''} (share of FLOW {low:.2f} to {high:.2f}); accuracy {own}, "
        f"under the flow {flow}; {sum((_flow(row) or 0) > ACCURATE for row in rows)} seeds above {ACCURATE:g}",
        rows[0].recipe,
    )


def _flow(row: RecipeRow) -> float | None:
    return row.flow_accuracy


def _spread(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{fmean(there):.3f} (least {min(there):.3f})" if there else "unknown"


def _drawn(recipes: Mapping[str, Sequence[RecipeRow]]) -> Iterator[Finding]:
    """Drawn steps beside as many constant ones, at the same cost and by the same method."""
    for name, rows in recipes.items():
        beside = recipes.get(f"constant-midpoint-{name.removeprefix('random-')}", ())
        pairs = [(row, other) for row in rows for other in beside if row.seed == other.seed]
        if not (name.startswith("random-") and pairs):
            continue
        both = [[row for row, _ in pairs], [other for _, other in pairs]]
        p = fisher(flows_of(both[0]), len(pairs), flows_of(both[1]), len(pairs))
        yield of_ours(
            "Steps that are drawn for each batch make more flows than as many constant ones, without a finish.",
            f"{flows_of(both[0])} of {len(pairs)} seeds are FLOW against {flows_of(both[1])} (Fisher's exact "
            f"test, {told(p)}){_what_they_lose(pairs)}",
            name,
        )


def _what_they_lose(pairs: Sequence[tuple[RecipeRow, RecipeRow]]) -> str:
    """Under the flow, where both have trained and have one."""
    known = [pair for pair in pairs if all(None not in (row.accuracy, row.flow_accuracy) for row in pair)]
    if not known:
        return ""
    losses = [[loss_of(row) for row in rows] for rows in zip(*known, strict=True)]
    apart = against([own - other for own, other in zip(*losses, strict=True)]).p if len(known) > 1 else 1.0
    return (
        f"; under the flow they lose {fmean(losses[0]):.3f} of their accuracy against {fmean(losses[1]):.3f} (paired "
        f"t-test, {told(apart)})"
    )


def loss_of(row: RecipeRow) -> float:
    return (row.accuracy or 0.0) - (row.flow_accuracy or 0.0)


def _goal(recipes: Mapping[str, Sequence[RecipeRow]]) -> Iterator[Finding]:
    reached = [
        f"{name} ({_mean_cost(rows):.1f})"
        for name, rows in sorted(recipes.items(), key=lambda pair: _mean_cost(pair[1]))
        if flows_of(rows) == len(rows) and _mean_cost(rows) <= GOAL and all((_flow(r) or 0) > ACCURATE for r in rows)
    ]
    yield of_ours(
        f"A recipe makes every seed a FLOW above {ACCURATE:g} at {GOAL:g} evaluations per iteration or fewer.",
        f"These do: {', '.join(reached) or 'none'}",
    )


def _laws(rows: Sequence[RecipeRow]) -> Iterator[Finding]:
    """How well a number tells tied models apart, over all constant steps; undecided ones are left out."""
    known = decided(rows)
    for law, words in LAWS.items():
        if area := area_of(known, law):
            ours = f"all methods {area}"
            for method in dict.fromkeys(row.method for row in known):
                if own := area_of([row for row in known if row.method == method], law):
                    ours += f"; {method} {own}"
            ours += _carried_over(known, law)
            yield of_ours(
                f"Tied models of constant steps are told apart by {words} (area under the ROC curve).",
                f"{ours}; {len(known)} models, intervals by a bootstrap of seeds",
                law,
            )


def _carried_over(rows: Sequence[RecipeRow], law: str) -> str:
    """Whether a threshold that was chosen on one method's models tells those of the others."""
    pairs = [(value, row.outcome == "TIED", row.method) for row in rows if (value := law_of(row, law)) is not None]
    euler, others = ([pair for pair in pairs if (pair[2] == "euler") is own] for own in (True, False))
    threshold = best_threshold([value for value, *_ in euler], [tied for _, tied, _ in euler])
    if threshold is None or not others:
        return ""
    right = sum((value > threshold) == tied for value, tied, _ in others)
    return f"; a threshold of {threshold:.2g}, chosen on Euler's models, is right on {right} of {len(others)} others"


def decided(rows: Sequence[RecipeRow]) -> list[RecipeRow]:
    """Models of constant steps that are FLOW or TIED."""
    return [row for row in rows if row.recipe.startswith("constant") and row.outcome in ("FLOW", "TIED")]


def area_of(rows: Sequence[RecipeRow], law: str) -> str:
    """How well a number tells tied models apart, with its interval; nothing where there is one kind only."""
    pairs = [(value, row) for row in rows if (value := law_of(row, law)) is not None]
    values, tied = [value for value, _ in pairs], [row.outcome == "TIED" for _, row in pairs]
    area = told_apart(values, tied)
    seeds = [row.seed for _, row in pairs]
    ends = told_apart_within(values, tied, seeds) if len(set(seeds)) >= FEWEST else None
    if area is None:
        return ""
    return f"{area:.2f} ({ends[0]:.2f} to {ends[1]:.2f})" if ends else f"{area:.2f} (too few seeds for an interval)"


def law_of(row: RecipeRow, law: str) -> float | None:
    """A number that is large where a model should be tied."""
    if law == "unsafe_share":
        return None if row.safe_share is None else 1 - row.safe_share
    value: float | None = getattr(row, law)
    return value


def _study(name: str, ground: Ground, where: str) -> Study:
    return Study(
        name=name,
        paper="beyond the paper",
        what=f"What makes {where} a flow at the least cost: constant, adapted, random and refined steps, and more",
        tables=(RECIPES,),
        runs=partial(recipe_runs, ground=ground),
        measure=measure,
        untested=untested_row,
        draw=partial(draw, name),
        findings=findings,
    )


RECIPE_STUDY = _study("recipes", SPHERE2, "Sphere2's model")
IMAGE_RECIPES = _study("recipes-mnist", PATCHES, "a small convolutional model of MNIST")
