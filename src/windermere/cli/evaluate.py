"""What `windermere evaluate` does."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from windermere.cli.console import folding, print_json, stdout, tell
from windermere.cli.reading import check_device
from windermere.nn.arithmetic import convolving_in
from windermere.paper import data as data_sets
from windermere.paper.training import evaluate, trained_ensemble
from windermere.solvers import Solver


def evaluate_run(run: Path, other: Solver | None, *, device: str | None, arithmetic: str, as_json: bool) -> None:
    """The run's own solver and the other one, side by side."""
    trained = trained_ensemble(run, device=check_device(device), arithmetic=arithmetic)
    config, ensemble = trained.config, trained.ensemble
    test = data_sets.load(config.data, seed=config.data_seed).test
    labelled = (test.inputs.to(ensemble.device, ensemble.dtype), test.labels.to(ensemble.device))
    tests: dict[str, Sequence[Solver]] = {f"{_shared(trained.solvers)} (own)": trained.solvers}
    if other is not None and set(trained.solvers) != {other}:
        tests[str(other)] = (other,) * ensemble.size
    with convolving_in(arithmetic):
        results = [evaluate(ensemble, solvers, labelled) for solvers in tests.values()]
    if as_json:
        named = zip(tests.items(), results, strict=True)
        rows = [
            {"solver": name.removesuffix(" (own)"), "seeds": list(config.seeds), **asdict(r)} for (name, _), r in named
        ]
        print_json({"run": str(run), "data": config.data, "arithmetic": arithmetic, "results": rows})
        return
    tell(f"test accuracy of {run}")
    table = folding("seed", *tests)
    table.columns[0].no_wrap = True
    for i, seed in enumerate(config.seeds):
        table.add_row(str(seed), *(f"{r.accuracy[i]:.4f}" for r in results))
    table.add_section()
    table.add_row("mean", *(f"{fmean(r.accuracy):.4f}" for r in results))
    table.add_row("evaluations", *(f"{fmean(r.evaluations):g}" for r in results))
    stdout.print(table)
    if arithmetic != config.arithmetic:
        stdout.print(f"computed in {arithmetic}, and trained in {config.arithmetic} (--arithmetic chooses)")


def _shared(solvers: Sequence[Solver]) -> str:
    """The members' own solver; adapted runs end with one for each."""
    return str(solvers[0]) if len(set(solvers)) == 1 else f"{solvers[0].method}, each seed's own precision"
