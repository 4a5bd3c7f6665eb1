"""Runs on disk: starting one, going on with one, and reading a trained one back."""

from dataclasses import dataclass, replace
from pathlib import Path

from windermere.errors import RunError
from windermere.records import RunFolder, environment, read_run
from windermere.training.config import RunConfig
from windermere.training.ensemble import Ensemble
from windermere.training.loop import make_ensemble


def open_run(path: Path, config: RunConfig, *, resume: bool = False) -> RunFolder:
    """A new run's folder, or that of a run with the same configuration to go on with.

    A resumed run may have more iterations than before; nothing else may differ.
    """
    if not resume:
        return RunFolder.create(path, config.to_dict(), environment(config.device))
    run = RunFolder.reopen(path)
    stored = RunConfig.from_dict(run.config)
    if replace(config, iterations=stored.iterations) != stored:
        run.close()
        before, now = stored.to_dict(), config.to_dict()
        other = [name for name in before if before[name] != now[name] and name != "iterations"]
        raise RunError(f"{path} was started with another {', '.join(other)}: resume it without these, or start anew")
    if config.iterations != stored.iterations:
        run.rewrite_config(config.to_dict())
    return run


@dataclass(frozen=True)
class Trained:
    """A trained run, ready to be asked."""

    config: RunConfig
    ensemble: Ensemble


def trained_ensemble(path: Path, *, device: str = "cpu") -> Trained:
    """Read a run's trained model, whatever device it was trained on."""
    run = read_run(path)
    config = replace(RunConfig.from_dict(run.config), device=device)
    ensemble = make_ensemble(config)
    if {n: t.shape for n, t in run.model.tensors.items()} != {n: t.shape for n, t in ensemble.tensors.items()}:
        raise RunError(f"{path}: the model's parameters are not those of a '{config.data}' model of this version")
    ensemble.load(run.model.tensors)
    return Trained(config, ensemble)
