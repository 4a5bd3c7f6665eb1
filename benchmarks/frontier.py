"""Adapted precision against constant precision: what a model that is a flow costs.

Every run is one of `RUNS`, by name; runs are resumable and can be spread over machines:

    python -m benchmarks.frontier names [PATTERN]
    python -m benchmarks.frontier run NAME [--out runs/frontier] [--device cuda] [--time-limit SECONDS]
    python -m benchmarks.frontier collect [--out runs/frontier]      # audits what is there, writes results, draws
    python -m benchmarks.frontier table                              # the results in Markdown
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from hashlib import sha256
from math import log
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

import windermere as wm
from benchmarks.frontier_figure import draw, gaps
from benchmarks.measuring import RESULTS, Bar
from windermere.cli.terminal import training_progress
from windermere.errors import RunError
from windermere.paper import data
from windermere.paper.studies.study import paper_config
from windermere.paper.training import (
    Adaptation,
    Labelled,
    RunConfig,
    Trained,
    evaluate,
    make_controller,
    open_run,
    resumed_config,
    stop_sign,
    train,
    trained_ensemble,
)
from windermere.records import environment, read_json, read_metrics, write_json
from windermere.solvers import Solver

TARGETS = (0.01, 0.02, 0.04, 0.08)
EQUAL = {"euler/midpoint": (0.075,), "midpoint/rk4": (0.09,)}
"""More targets, chosen for their cost alone: that of the paper's algorithm at its threshold of 0.1, within 5%."""
THRESHOLDS = (0.2, 0.1, 0.05, 0.02)
PAIRS = {"euler/midpoint": (16, 32, 64, 128, 256), "midpoint/rk4": (4, 8, 16, 32)}
"""Methods of training and check, and the constant numbers of steps beside them."""
TOLERANCES = {"fehlberg21/dopri54": (1e-2, 1e-3, 1e-4), "dopri54/dopri54": (1e-1, 1e-2, 1e-3)}
CONSTANTS: dict[str, dict[str, float]] = {
    "decrease": {"less": 0.6, "more": 0.4},
    "increase": {"less": 1.05, "more": 1.2},
    "every": {"less": 25, "more": 100},
    "threshold": {"less": 0.075, "more": 0.15},
}
"""Of Algorithm 2, changed one at a time, for half of the paper's iterations: it finds it robust to small changes."""
NAMES = {"every": "review_every"}
"""What results call a constant."""
IMAGES = {"iterations": 1170, "seeds": (1, 2)}
"""MNIST: 5 of the paper's 30 epochs, two seeds. Seed 0 diverges at the paper's learning rate from 16 steps on."""

IMAGE_FLOW, IMAGE_SAMPLES = wm.FixedStep.of("rk4", steps=8), 500


def _config(name: str, solver: Solver, **settings: Any) -> RunConfig:
    return paper_config(name, solver, tests=20, **settings)


def _adapted(name: str, pair: str, adaptation: Adaptation, rule: Mapping[str, Any], **settings: Any) -> RunConfig:
    method, check = pair.split("/")
    fixed = pair not in TOLERANCES
    solver = wm.FixedStep(method, step=1.0) if fixed else wm.Adaptive(method, tolerance=1e-6)
    controller = make_controller(adaptation, solver, check=check, **rule)
    first_step = "initial" if fixed else "given"
    return _config(name, solver, controller=controller, first_step=first_step, **settings)


def _runs() -> Iterator[tuple[str, RunConfig]]:
    for pair, counts in PAIRS.items():
        for steps in counts:
            yield (
                f"sphere2 {pair} constant {steps}",
                _config("sphere2", wm.FixedStep.of(pair.split("/")[0], steps=steps)),
            )
        yield from _adapted_runs("sphere2", pair)
    yield "sphere2 euler/rk4 paper 0.1", _adapted("sphere2", "euler/rk4", "paper", {})
    for pair, tolerances in TOLERANCES.items():
        for tolerance in tolerances:
            solver = wm.Adaptive(pair.split("/")[0], tolerance=tolerance)
            yield f"sphere2 {pair} constant {tolerance:g}", _config("sphere2", solver)
        yield from _adapted_runs("sphere2", pair)
    for steps in (1, 2, 4, 8):
        yield (
            f"mnist euler/midpoint constant {steps}",
            _config("mnist", wm.FixedStep.of("euler", steps=steps), **IMAGES),
        )
    yield from _adapted_runs("mnist", "euler/midpoint", **IMAGES)
    half = partial(_adapted, "sphere2", "euler/midpoint", "paper", iterations=5000)
    yield "constants as-they-are -", half({})
    for constant, changes in CONSTANTS.items():
        for change, value in changes.items():
            yield f"constants {NAMES.get(constant, constant)} {change}", half({constant: value})


def _adapted_runs(name: str, pair: str, **settings: Any) -> Iterator[tuple[str, RunConfig]]:
    for threshold in THRESHOLDS:
        config = _adapted(name, pair, "paper", {"threshold": threshold}, **settings)
        yield f"{name} {pair} paper {threshold:g}", config
    for target in (*TARGETS, *(EQUAL.get(pair, ()) if name == "sphere2" else ())):
        yield f"{name} {pair} steady {target:g}", _adapted(name, pair, "steady", {"target": target}, **settings)


RUNS = dict(_runs())


def folder(out: Path, name: str) -> Path:
    return out / name.replace("/", "-").replace(" ", "_")


def _sets(config: RunConfig) -> tuple[Labelled, Labelled]:
    loaded = data.load(config.data, seed=config.data_seed)
    return loaded.train, loaded.test


def train_one(name: str, out: Path, *, device: str, time_limit: float | None, capture: bool | None) -> None:
    """Train one run, or go on with it."""
    path = folder(out, name)
    begun = (path / "config.json").exists()
    config = resumed_config(path, {}) if begun else replace(RUNS[name], device=device)
    with (
        open_run(path, config, resume=begun) as run_folder,
        stop_sign(time_limit) as sign,
        training_progress(name, config.iterations, config.precision_name) as report,
    ):
        outcome = train(config, *_sets(config), run_folder, sign=sign, report=report, capture=capture)
    print(f"{name}: {outcome.reason} at iteration {outcome.iteration}", flush=True)


def measured(path: Path) -> dict[str, Any]:
    """A finished run's numbers, by seed: cost, swings, accuracy under its own solver and the flow, verdicts."""
    trained = trained_ensemble(path)
    config, test_set = trained.config, _sets(trained.config)[1]
    rows = list(read_metrics(path))
    by_seed = [_cost(config, [row for row in rows if row["seed"] == seed]) for seed in config.seeds]
    return {
        "config": config.to_dict(),
        **{key: [numbers[key] for numbers in by_seed] for key in by_seed[0]},
        **(_image_accuracies(trained, test_set) if config.data in ("mnist", "cifar10") else _audits(trained, test_set)),
        "environment": read_json(path / "environment.json"),
        "model": _digest(path),
    }


def _audits(trained: Trained, test_set: Labelled) -> dict[str, Any]:
    verdicts = [wm.audit(trained.member(s), test_set) for s in range(trained.ensemble.size)]
    if unknown := [v.sentence for v in verdicts if v.gap is None]:
        raise RunError(f"a comparison needs the flow of each model, but for {len(unknown)} of them: {unknown[0]}")
    return {
        "own": [v.own.metric for v in verdicts],
        "flow": [v.reference.metric for v in verdicts],
        "outcome": [v.outcome.name for v in verdicts],
    }


def _image_accuracies(trained: Trained, test_set: Labelled) -> dict[str, Any]:
    """An audit's float64 reference would take a CPU hours: the flow is a fine solver, and some images are asked."""
    inputs, labels = (part[:IMAGE_SAMPLES] for part in test_set)
    asked = {"own": trained.solvers, "flow": (IMAGE_FLOW,) * trained.ensemble.size}
    accuracy = {name: evaluate(trained.ensemble, solvers, (inputs, labels)).accuracy for name, solvers in asked.items()}
    return {**accuracy, "outcome": ["not audited"] * trained.ensemble.size}


def _digest(path: Path) -> str:
    return sha256((path / "model.safetensors").read_bytes()).hexdigest()


def _cost(config: RunConfig, rows: list[Mapping[str, Any]]) -> dict[str, float]:
    last = [row for row in rows if "evaluations_forward" in row][-1]
    forward, checks = last["evaluations_forward"], last["evaluations_checks"]
    late = [row["after"] for row in rows if "after" in row and row["iteration"] > config.iterations // 2]
    return {
        "evaluations": (forward + checks) / config.iterations,
        "checks_share": checks / forward,
        "std_log2": float(np.std(np.log2(late))) if late else 0.0,
        "precision": late[-1] if late else config.solver.precision,
    }


def collect(out: Path) -> None:
    """Audit the finished runs whose models are not in the results yet, and draw all that are."""
    kept = RESULTS / "frontier.json"
    results = read_json(kept)["runs"] if kept.exists() else {}
    for name in RUNS:
        path = folder(out, name)
        if (path / "model.safetensors").exists() and results.get(name, {}).get("model") != _digest(path):
            results[name] = measured(path)
            print(row(name, results[name]), flush=True)
            write_json(kept, {"runs": results, "environment": environment("cpu")})
    for path in draw(results, RESULTS):
        print(path)


def bars(results: Mapping[str, Mapping[str, Any]], group: str = "sphere2 euler/midpoint") -> list[Bar]:
    """Steady against the paper's algorithm at equal evaluations, and steady at its default target."""
    paper, default = results[f"{group} paper 0.1"], results[f"{group} steady {wm.SteadySteps.target:g}"]
    steady = {name: result for name, result in results.items() if name.startswith(f"{group} steady")}
    cost = fmean(paper["evaluations"])
    nearest = min(steady, key=lambda name: abs(log(fmean(steady[name]["evaluations"]) / cost)))
    equal = steady[nearest]
    ahead = [ours - theirs for ours, theirs in zip(equal["flow"], paper["flow"], strict=True)]
    share = max(fmean(result["checks_share"]) for result in steady.values())
    numbers = (
        (f"{nearest}: evaluations over the paper algorithm's, from", fmean(equal["evaluations"]) / cost, 0.95, True),
        ("  to", fmean(equal["evaluations"]) / cost, 1.05, False),
        ("  accuracy under the flow, ahead of it, mean over seeds", fmean(ahead), -0.01, True),
        ("  std of log2(precision) over its", fmean(equal["std_log2"]) / fmean(paper["std_log2"]), 1 / 3, False),
        (f"{group} at the default target: worst gap", max(gaps(default)), 0.02, False),
        ("  seeds that are FLOW", default["outcome"].count("FLOW"), len(default["outcome"]), True),
        (f"{group}: largest share of the checks", share, 0.1, False),
    )
    return [Bar(name=name, measured=m, limit=limit, at_least=at_least) for name, m, limit, at_least in numbers]


def run() -> list[Bar]:
    """The bars of the runs that were collected: training them again takes hours on two cores."""
    results = read_json(RESULTS / "frontier.json")["runs"]
    groups = [f"sphere2 {pair}" for pair in (*PAIRS, *TOLERANCES)]
    needed = ("paper 0.1", f"steady {wm.SteadySteps.target:g}")
    missing = [f"{group} {rule}" for group in groups for rule in needed if f"{group} {rule}" not in results]
    if missing:
        print(f"the frontier lacks {', '.join(missing)}: run and collect them by python -m benchmarks.frontier")
    there = (group for group in groups if not any(name.startswith(group) for name in missing))
    return [bar for group in there for bar in bars(results, group)]


def table(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Markdown: every run, its seeds side by side."""
    yield "| run | evaluations per iteration | checks | own solver | flow | worst gap | std of log2 | audit |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in RUNS:
        if (result := results.get(name)) is None:
            continue
        own, flow = (f"{fmean(values):.3f} ± {stdev(values):.3f}" for values in (result["own"], result["flow"]))
        counts = Counter(result["outcome"]).most_common()
        swings = "" if " constant " in name else f"{fmean(result['std_log2']):.2f}"
        cells = (
            name,
            f"{fmean(result['evaluations']):.1f}",
            f"{fmean(result['checks_share']):.1%}" if swings else "",
            own,
            flow,
            f"{max(gaps(result)):.3f}",
            swings,
            ", ".join(f"{count} {outcome}" for outcome, count in counts),
        )
        yield f"| {' | '.join(cells)} |"


def row(name: str, result: Mapping[str, Any]) -> str:
    return (
        f"{name:<44} evaluations {fmean(result['evaluations']):6.1f}  checks {fmean(result['checks_share']):5.1%}  "
        f"own {fmean(result['own']):.3f}  flow {fmean(result['flow']):.3f}  worst gap {max(gaps(result)):6.3f}  "
        f"std {fmean(result['std_log2']):.2f}  {' '.join(result['outcome'])}"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__)
    parser.add_argument("action", choices=("names", "run", "collect", "table"))
    parser.add_argument("name", nargs="?", default="*")
    parser.add_argument("--out", type=Path, default=Path("runs/frontier"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--no-capture", action="store_true", help="train step by step on a GPU too")
    options = parser.parse_args(arguments)
    names = [name for name in RUNS if fnmatch(name, options.name)]
    if options.action == "collect":
        collect(options.out)
    elif options.action == "run":
        for name in names:
            capture = False if options.no_capture else None
            train_one(name, options.out, device=options.device, time_limit=options.time_limit, capture=capture)
    else:
        kept = {} if options.action == "names" else read_json(RESULTS / "frontier.json")["runs"]
        print(*(names if options.action == "names" else table(kept)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
