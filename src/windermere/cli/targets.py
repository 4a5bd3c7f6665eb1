"""What `windermere audit` is asked about: the seeds of a run, or what a function of the user's returns."""

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import windermere
from windermere.cli.console import stderr
from windermere.cli.reading import check_device
from windermere.errors import AuditError, RunError, UsageError, WindermereError, describe_error
from windermere.paper import data as data_sets
from windermere.paper.training import trained_ensemble


@dataclass(frozen=True)
class Target:
    """One model to audit, and what to call it."""

    name: str
    model: Any
    batches: Any
    figure: Path
    about: dict[str, Any]
    """What is known of the model and its data."""
    data: Any = None
    """Real samples, where it is a sampler."""
    users: bool = False
    """Whether it is the user's own code."""
    seed: int | None = None
    """Where it is one of several."""


def targets_of(target: str, seed: int | None, figure: Path | None, device: str | None) -> Iterator[Target]:
    if ":" in target and not Path(target).exists():
        if seed is not None:
            raise UsageError("--seed chooses a member of a run, but a function was given")
        if device is not None:
            raise UsageError("--device is where a run's model goes, but a function was given: let it place its model")
        model, batches, real = _call(target)
        yield Target(target, model, batches, figure or Path("audit.png"), {"model": target}, data=real, users=True)
        return
    if not Path(target).exists():
        raise RunError(
            f"{target} does not exist: name a folder that `windermere train --out` has written, or a function that "
            "returns a model and batches, as package.module:function"
        )
    yield from _members(Path(target), seed, figure, check_device(device))


def _members(path: Path, seed: int | None, figure: Path | None, device: str) -> Iterator[Target]:
    """Every seed of a run, on its own test set."""
    trained = trained_ensemble(path, device=device)
    seeds = trained.config.seeds
    if seed is not None and seed not in seeds:
        raise UsageError(f"{path} has no seed {seed}: it has {', '.join(map(str, seeds))}")
    test = data_sets.load(trained.config.data, seed=trained.config.data_seed).test
    chosen = [s for s in seeds if seed in (None, s)]
    for s in chosen:
        name = f"audit-seed{s}.png" if len(seeds) > 1 else "audit.png"
        place = (
            path / name
            if figure is None
            else figure.with_stem(f"{figure.stem}-{s}" if len(chosen) > 1 else figure.stem)
        )
        if len(chosen) > 1:
            stderr.print(f"auditing seed {s} ...", highlight=False)
        model = trained.member(seeds.index(s))
        about = {"model": str(path), "data": f"{trained.config.data}, test set", "seed": s}
        name = f"{path}, seed {s}" if len(seeds) > 1 else str(path)
        yield Target(name, model, test, place, seed=s, about=about)


def told(error: BaseException) -> str:
    """What was raised, and in which line of the user's own code: a sentence has no traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{describe_error(error)}{where}"


def _is_users(file: str) -> bool:
    """Neither ours, nor Python's or an installed package's."""
    others = (windermere.__path__[0], *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
    return not file.startswith(("<", *others))


def _call(target: str) -> tuple[Any, Any, Any]:
    """The model and batches, or the sampler, noise and real samples, that package.module:function returns; modules of
    the current folder are found too."""
    here = os.getcwd()  # the user's code may go elsewhere
    sys.path.insert(0, here)
    try:
        with redirect_stdout(sys.stderr):
            made = _function(target)()
    except WindermereError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise AuditError(f"{target} could not be called: {told(error)}") from error
    finally:
        sys.path.remove(here)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise AuditError(
            f"{target} must return a model and batches, or a sampler, noise and data, not {type(made).__name__}"
        )
    return (*made, None) if len(made) == 2 else made


def _function(target: str) -> Callable[[], Any]:
    module, _, name = target.partition(":")
    if not module or not name:
        raise UsageError(f"{target} could not be called: name both a module and a function, package.module:function")
    if "/" in module or module.startswith("."):
        raise UsageError(
            f"{target} could not be called: a module is not named by a path: go to its folder and give "
            f"{Path(module).stem}:{name}"
        )
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # one that the user's module asks for
        advice = "leave out the .py" if module.endswith(".py") else "go to its folder, or install it"
        raise UsageError(f"{target} could not be called: there is no module '{module}' here: {advice}") from error
    if not callable(found):
        raise UsageError(f"{target} could not be called: the module '{module}' has no function '{name}'")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise UsageError(f"{target} could not be called: let it take no arguments ({error})") from error
    except ValueError:  # of what is written in C nothing may be known
        pass
    return found  # type: ignore[no-any-return]
