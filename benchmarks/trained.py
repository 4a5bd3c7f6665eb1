"""Models that a benchmark trains as `windermere train` does, and keeps no files of."""

from pathlib import Path
from tempfile import TemporaryDirectory

from windermere.cli.terminal import training_progress
from windermere.paper import data
from windermere.paper.training import Ensemble, RunConfig, open_run, train, trained_ensemble


def trained(config: RunConfig) -> Ensemble:
    sets = data.load(config.data, seed=config.data_seed)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with (
            open_run(path, config) as run,
            training_progress(str(config.solver), config.iterations, config.precision_name) as report,
        ):
            train(config, sets.train, sets.test, run, report=report)
        return trained_ensemble(path).ensemble
