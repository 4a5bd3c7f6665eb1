"""The paper's phenomenon at the paper's settings: Sphere2, two Euler steps, 10,000 iterations, five seeds."""

from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import windermere as wm
from benchmarks.measuring import Bar, keep, show
from windermere.cli.terminal import training_progress
from windermere.paper import data
from windermere.paper.training import RunConfig, evaluate, open_run, paper_settings, train, trained_ensemble

TRAINED, TESTED = wm.FixedStep.of("euler", steps=2), wm.FixedStep.of("rk4", steps=64)


def run() -> list[Bar]:
    config = RunConfig(data="sphere2", solver=TRAINED, seeds=(0, 1, 2, 3, 4), **paper_settings("sphere2", TRAINED))
    loaded = data.load("sphere2", seed=config.data_seed)
    training_set, test_set = loaded.train, loaded.test
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with open_run(path, config) as run_folder, training_progress("sphere2", config.iterations, "step") as report:
            train(config, training_set, test_set, run_folder, report=report)
        ensemble = trained_ensemble(path).ensemble
    accuracy = {str(s): evaluate(ensemble, (s,) * 5, test_set).accuracy for s in (TRAINED, TESTED)}
    show("Sphere2, 2 Euler steps, 10,000 iterations, five seeds: test accuracy", accuracy)
    keep("phenomenon", {"config": config.to_dict(), "accuracy": accuracy})
    own, finer = (fmean(values) for values in accuracy.values())
    return [
        Bar(name="mean accuracy with its own solver", measured=own, limit=0.98, at_least=True),
        Bar(name="mean accuracy with rk4 at 64 steps", measured=finer, limit=0.75, at_least=False),
    ]
