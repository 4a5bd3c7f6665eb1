"""Runs on disk: starting one, going on with one, and reading a trained one back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from windermere.errors import (
    RunError,
    RunInUseError,
    StartedOtherwiseError,
    UnfinishedRunError,
    UsageError,
    describe_error,
)
from windermere.nn import ode_blocks
from windermere.paper.training.batches import Batches
from windermere.paper.training.checkpoint import check_it_belongs
from windermere.paper.training.config import DTYPES, RESUMED_OTHERWISE, RunConfig
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import Labelled
from windermere.paper.training.trainer import make_ensemble
from windermere.records import ATTEMPTS, AttemptFolder, Run, RunFolder, environment, read_json, read_run, take_over
from windermere.solvers import Adaptive, Solver, solver_from_dict
from windermere.solvers.grid import make_grid

OLDEST_PYTORCH = (2, 4)


@torch.no_grad()
def check_precision(config: RunConfig, training_set: Labelled) -> None:
    """Refuse a precision that no training can begin with: more steps than there may be, or a tolerance under which not
    even the first batch can be solved."""
    if not isinstance(config.solver, Adaptive):
        make_grid([config.solver], (0.0, 1.0))  # the times of all of the paper's architectures
        return
    ensemble, (inputs, labels) = make_ensemble(config), training_set
    first = Batches(len(labels), config.batch_size, config.seeds, str(inputs.device)).indices(0)
    ensemble.features(inputs[first].to(config.device, DTYPES[config.dtype]), (config.solver,) * ensemble.size)


def open_run(path: str | Path, config: RunConfig, *, resume: bool = False) -> RunFolder:
    """A new run's folder, or that of a run with the same configuration to go on with.

    A resumed run may have more iterations than before, and another device; nothing else may differ. What processes
    elsewhere have reached with it is taken over first.
    """
    run = _locked_run(Path(path), config, made := environment(config.device), resume=resume)
    if resume:
        with run.or_closed():
            run.note_environment(made)
    return run


def start_or_resume(path: Path, config: RunConfig) -> RunFolder:
    """A run's folder, whether or not it was begun; seeds that the config has no more are left behind."""
    return open_run(path, config, resume=_is_begun(path, config))


def hold_run(path: Path, config: RunConfig, *, resume: bool | None = None) -> RunFolder:
    """A run's folder, begun or not unless `resume` says which, for one who lets others train, somewhere else."""
    made = {**environment("cpu"), "device": config.device}
    return _locked_run(path, config, made, resume=_is_begun(path, config) if resume is None else resume)


def _is_begun(path: Path, config: RunConfig) -> bool:
    begun = begun_seeds(path)
    if lost := set(begun) - set(config.seeds):
        leave_behind(path, sorted(lost))
    return bool(begun)


def _locked_run(path: Path, config: RunConfig, made: Mapping[str, Any], *, resume: bool) -> RunFolder:
    _check_pytorch()
    if not resume:
        return RunFolder.create(path, config.to_dict(), made)
    with RunFolder.glance(path) as run:
        _refuse_what_cannot_go_on(run, config)  # before the lock, whose file would be written,
    run = RunFolder.reopen(path)
    with run.or_closed():
        take_over(run)
        stored = _refuse_what_cannot_go_on(run, config)  # and after it, since another process may have been faster
        if config != stored:
            run.rewrite_config(config.to_dict())
    return run


def open_attempt(run: Path, label: str, config: RunConfig) -> RunFolder:
    """The folder of an attempt at a run that was handed out to this process."""
    return AttemptFolder.begin(run, label, config.to_dict(), environment(config.device))


def begun_seeds(path: Path) -> list[int]:
    """The seeds of a run's folder; none where the process was killed before it wrote the folder's config.json."""
    return list(read_json(path / "config.json")["seeds"]) if (path / "config.json").exists() else []


def gather(path: Path) -> None:
    """Take over what attempts at a run have reached whose session was killed; a run in use is left as it is."""
    if (path / ATTEMPTS).exists():
        with suppress(RunInUseError), RunFolder.reopen(path) as run:
            take_over(run)


def _check_pytorch() -> None:
    """Solves and audits work with older releases than training was tried with."""
    found = tuple(int(number) for number in torch.__version__.split(".")[:2])
    if found < OLDEST_PYTORCH:
        raise UsageError(
            f"training needs PyTorch {'.'.join(map(str, OLDEST_PYTORCH))} or newer, and this is {torch.__version__}: "
            "install a newer one (solves and audits work with this one)"
        )


def _refuse_what_cannot_go_on(run: RunFolder, config: RunConfig) -> RunConfig:
    """What it was started with. First of all: a longer config.json on such a run would hide its trained model."""
    stored = RunConfig.from_dict(run.config)
    _refuse_a_contradiction(run.path, stored, _settings(config))
    run.look_over(partial(check_it_belongs, run.path, config))
    return stored


def leave_behind(path: str | Path, seeds: Sequence[int]) -> RunConfig:
    """Take seeds that diverged out of the run in a folder, so that the others can go on; at least one must be left."""
    with RunFolder.reopen(Path(path)) as run:
        stored = RunConfig.from_dict(run.config)
        config = replace(stored, seeds=tuple(seed for seed in stored.seeds if seed not in seeds))
        run.rewrite_config(config.to_dict())
    return config


def resumed_config(path: str | Path, settings: Mapping[str, Any]) -> RunConfig:
    """What the run in a folder was started with, for as many iterations and on the device that the settings say. They
    may name all others too, the controller's among them, but must not contradict what the run has."""
    with RunFolder.glance(Path(path)) as run:
        stored = RunConfig.from_dict(run.config)
    config = replace(stored, **{name: settings[name] for name in RESUMED_OTHERWISE if name in settings})
    _refuse_a_contradiction(path, stored, settings)
    return config


def _settings(config: RunConfig) -> dict[str, Any]:
    """All settings by name: those of the controller stand beside the others, as they do on the command line."""
    own = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "controller"}
    return {**own, "adapt": config.adapt, **({} if config.controller is None else vars(config.controller))}


def _refuse_a_contradiction(path: str | Path, stored: RunConfig, settings: Mapping[str, Any]) -> None:
    was = _settings(stored)
    both = {name: (was.get(name), now) for name, now in settings.items() if name not in RESUMED_OTHERWISE}
    other = {name: (before, now) for name, (before, now) in both.items() if before != now}
    if other.keys() & {"solver", "first_step"}:
        other["solver"] = (_start(was), _start({**was, **settings}))
        other.pop("first_step", None)
    if "adapt" in other:  # of which the rest is a consequence
        other = {"adapt": other["adapt"]}
    if other:
        advice = "resume it without this, or start a new run in another folder"
        raise StartedOtherwiseError(Path(path), other, advice)
    if (iterations := settings.get("iterations", stored.iterations)) < stored.iterations:
        advice = "resumed, it may have more iterations, but not fewer"
        raise StartedOtherwiseError(Path(path), {"iterations": (stored.iterations, iterations)}, advice)
    if iterations > stored.iterations and _is_planned(stored):
        advice = "its last iterations are trained with other steps, so that it cannot become longer: start a new run"
        raise StartedOtherwiseError(Path(path), {"iterations": (stored.iterations, iterations)}, advice)


def _is_planned(config: RunConfig) -> bool:
    """Whether what a batch is solved with depends on how many iterations there will be."""
    drawn, treatment = config.random_steps, config.treatment
    return (drawn is not None and drawn.finish > 0) or (treatment is not None and bool(treatment.stages))


def _start(settings: Mapping[str, Any]) -> str:
    solver = settings["solver"]
    initial = f"{solver.method} alone, from each seed's initial step"
    return initial if settings["first_step"] == "initial" else str(solver)


@dataclass(frozen=True)
class Trained:
    """A trained run, ready to be asked."""

    config: RunConfig
    ensemble: Ensemble
    solvers: tuple[Solver, ...]
    """What each member was trained with in the end."""

    def member(self, index: int) -> nn.Module:
        """One member as a plain module of its own, with its own solver."""
        model = self.ensemble.member(index)
        for block in ode_blocks(model):
            block.solver = self.solvers[index]
        return model


def trained_ensemble(path: str | Path, *, device: str = "cpu", arithmetic: str | None = None) -> Trained:
    """Read a run's trained model, whatever device it was trained on, to compute as it was trained or otherwise."""
    run = read_run(Path(path))
    config = replace(RunConfig.from_dict(run.config), device=str(device))
    if (trained := run.model.meta.get("iterations")) != config.iterations:
        raise UnfinishedRunError(
            f"{path} is to be trained for {config.iterations} iterations, and its model is that after {trained}"
        )
    chosen = config if arithmetic is None else replace(config, arithmetic=arithmetic)
    try:
        ensemble = make_ensemble(chosen)
    except (RuntimeError, AssertionError) as error:  # PyTorch's, of a device that is not there
        raise UsageError(
            f"{path} cannot be put on the device '{device}' ({describe_error(error)}): take the cpu"
        ) from error
    if {n: t.shape for n, t in run.model.tensors.items()} != {n: t.shape for n, t in ensemble.tensors.items()}:
        raise RunError(f"{path}: the model's parameters are not those of a '{config.data}' model of this version")
    _check_settings(run, config)
    ensemble.load(run.model.tensors)
    kept = run.model.meta.get("solvers")
    solvers = [solver_from_dict(values) for values in kept] if kept else [config.solver] * ensemble.size
    return Trained(config, ensemble, tuple(solvers))


def _check_settings(run: Run, config: RunConfig) -> None:
    """Refuses a model that was trained with other settings; models of earlier versions know less of theirs."""
    wanted: dict[str, Any] = {"config": config.digest, "seeds": list(config.seeds)}
    if {name: run.model.meta.get(name, value) for name, value in wanted.items()} != wanted:
        raise RunError(
            f"{run.path}: the model was trained with other settings than those in config.json, which is damaged or of "
            "another run: put the run's own back"
        )


def load_run(path: str | Path, seed: int = 0, *, device: str = "cpu") -> nn.Module:
    """The model that one seed of a trained run became: a plain module whose ODEBlock has the solver it ended with.

    `path` is the folder of a run that `windermere train` has finished. For all seeds at once, see
    `windermere.paper.training.trained_ensemble`.

    >>> import windermere as wm
    >>> wm.load_run("runs/nowhere")
    Traceback (most recent call last):
        ...
    windermere.errors.RunError: runs/nowhere does not exist: name a folder that `windermere train` has written
    """
    trained = trained_ensemble(path, device=device)
    if seed not in trained.config.seeds:
        raise UsageError(f"{path} has no seed {seed}: it was trained with {', '.join(map(str, trained.config.seeds))}")
    return trained.member(trained.config.seeds.index(seed))
