"""Small runs, the slow reference for them (one model, one plain loop), and real processes that train."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.processes import python
from windermere.paper.architectures import architecture, initialise
from windermere.paper.data import spheres
from windermere.paper.training import (
    Adaptation,
    Labelled,
    RunConfig,
    StopSign,
    TrainingOutcome,
    make_controller,
    open_run,
    train,
)
from windermere.paper.training.batches import Batches
from windermere.paper.training.config import DTYPES
from windermere.records import TensorFile, read_metrics, read_tensors
from windermere.solvers import FixedStep

DEFAULTS: dict[str, Any] = {
    "data": "sphere2",
    "solver": FixedStep.of("euler", steps=2),
    "seeds": (0,),
    "iterations": 20,
    "batch_size": 16,
    "optimizer": "adam",
    "lr": 1e-3,
    "log_every": 5,
    "evaluate_every": 10,
    "checkpoint_every": 5,
}


def a_config(**changes: Any) -> RunConfig:
    return RunConfig(**{**DEFAULTS, **changes})


def adapted_config(adapt: Adaptation, *, rule: Mapping[str, Any] | None = None, **changes: Any) -> RunConfig:
    """A run that adapts; `rule` has settings of its controller."""
    controller = make_controller(adapt, changes.get("solver", DEFAULTS["solver"]), **(rule or {}))
    return a_config(**changes, controller=controller)


def some_spheres(points: int = 2) -> tuple[Labelled, Labelled]:
    data = spheres(points, train=200, test=100)
    return data.train, data.test


def trained(
    path: Path,
    config: RunConfig,
    *,
    resume: bool = False,
    stop_at: int | None = None,
    capture: bool | None = None,
) -> TrainingOutcome:
    """Trains on some spheres; with `stop_at`, a sign stops it at the first row from this iteration on."""
    sign = StopSign()

    def report(now: Any) -> None:
        if stop_at is not None and now.iteration >= stop_at:
            sign.reason = "interrupted"

    with open_run(path, config, resume=resume) as run:
        return train(config, *some_spheres(), run, sign=sign, report=report, capture=capture)


def checkpoint(path: Path) -> TensorFile:
    return read_tensors(path / "checkpoint.safetensors")


def model(path: Path) -> TensorFile:
    return read_tensors(path / "model.safetensors")


def rows(path: Path) -> list[dict[str, Any]]:
    """The metrics, without the one number that no two runs share."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_metrics(path)]


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def assert_same_run(one: Path, other: Path) -> None:
    """Equal to the last bit: model, optimizer, and all that was measured on the way."""
    assert_same_bits(model(one).tensors, model(other).tensors)
    assert_same_bits(checkpoint(one).tensors, checkpoint(other).tensors)
    assert rows(one) == rows(other)


# ---------------------------------------------------------------------------------------------------------
# The slow reference


def optimizer_for(config: RunConfig, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=config.lr)
    return torch.optim.SGD(parameters, lr=config.lr)


def trained_alone(config: RunConfig, seed: int) -> dict[str, Tensor]:
    """One seed's parameters after a training that knows nothing of ensembles: an nn.Module and PyTorch's optimizer."""
    alone = initialise(architecture(config.data, config.solver, gradient=config.gradient), seed)
    alone.to(DTYPES[config.dtype])
    (inputs, labels), _ = some_spheres()
    fit_alone(alone, config, inputs.to(DTYPES[config.dtype]), labels, seed)
    return {name: parameter.detach() for name, parameter in alone.named_parameters()}


def fit_alone(alone: nn.Module, config: RunConfig, inputs: Tensor, labels: Tensor, seed: int) -> None:
    optimizer = optimizer_for(config, list(alone.parameters()))
    batches = Batches(len(labels), config.batch_size, [seed], "cpu")
    for iteration in range(config.iterations):
        chosen = batches.indices(iteration)[0]
        optimizer.zero_grad()
        F.cross_entropy(alone(inputs[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


# ---------------------------------------------------------------------------------------------------------
# Real processes


@contextmanager
def windermere_process(*arguments: object) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """`python -m windermere ...` and its standard error; killed at the latest when the body is left."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with python("-m", "windermere", *arguments, **pipes) as process:
        assert process.stderr is not None
        yield process, process.stderr
