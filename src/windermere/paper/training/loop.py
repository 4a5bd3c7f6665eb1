"""The training loop: one for runs by themselves and for runs that are trained together."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from windermere.errors import DeviceError, UsageError, describe_failure, is_device_failure, is_out_of_memory
from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.native_call import C_TYPES, threads_for_c_alone
from windermere.nn.arithmetic import convolving_in
from windermere.paper.training.captured import can_capture, fewer_steps_cost_less
from windermere.paper.training.config import DTYPES, RunConfig
from windermere.paper.training.evaluation import Evaluation, Labelled
from windermere.paper.training.interrupts import StopReason, StopSign
from windermere.paper.training.stepper import CapturedStepper, JointStepper, Stepper
from windermere.paper.training.trainer import Report, Training, make_ensemble
from windermere.records import RunFolder
from windermere.solvers import solver_to_dict


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """How a call of `train` ended."""

    finished: bool
    reason: Literal[StopReason, "finished"]
    iteration: int
    test: Evaluation | None
    idle: bool = field(default=False, compare=False)
    """Whether all iterations had been done before."""


def train(
    config: RunConfig,
    training_set: Labelled,
    test_set: Labelled,
    run: RunFolder,
    *,
    sign: StopSign | None = None,
    report: Callable[[Report], None] = lambda _: None,
    capture: bool | None = None,
) -> TrainingOutcome:
    """Train from where the run folder left off to the end, or to a stop sign.

    `capture` says whether many iterations at once are left to the device; None does so where it pays.
    """
    with set_up(config, training_set[0]):
        training = Training(config, training_set, test_set, run)
        if capture is None:
            plain = config.random_steps is None and config.treatment is None
            capture = plain and can_capture(training.ensemble, config.solver, config.gradient, training.training_set[0])
        stepper = CapturedStepper(training) if capture else Stepper(training)
        (outcome,) = _advance(stepper, sign or StopSign(), lambda _, now: report(now))
        return outcome


def train_together(
    configs: Sequence[RunConfig],
    training_set: Labelled,
    test_set: Labelled,
    runs: Sequence[RunFolder],
    *,
    sign: StopSign | None = None,
    report: Callable[[int, Report], None] = lambda run, now: None,
    capture: bool | None = None,
) -> list[TrainingOutcome]:
    """As `train` for one run after the other, which is what it does where steps cannot be captured.

    Where a run fails, all stop: the state before that iteration is in every folder, and those of the others can be
    resumed without it.
    """
    sign, pairs = sign or StopSign(), list(zip(configs, runs, strict=True))
    if not (capture if capture is not None else all(_can_be_joined(config, training_set[0]) for config in configs)):
        alone = partial(train, training_set=training_set, test_set=test_set, sign=sign, capture=capture)
        return [alone(config, run=run, report=partial(report, i)) for i, (config, run) in enumerate(pairs)]
    _check_alike(configs)
    with set_up(configs[0], training_set[0]):
        trainings = [Training(config, training_set, test_set, run) for config, run in pairs]
        return _advance(JointStepper(trainings), sign, report)


def train_group(
    configs: Sequence[RunConfig],
    training_set: Labelled,
    test_set: Labelled,
    runs: Sequence[RunFolder],
    *,
    sign: StopSign,
    report: Callable[[int, Report], None],
) -> list[TrainingOutcome]:
    """One run by itself, or several together."""
    if len(configs) > 1:
        return train_together(configs, training_set, test_set, runs, sign=sign, report=report)
    return [train(configs[0], training_set, test_set, runs[0], sign=sign, report=partial(report, 0))]


def _advance(stepper: Stepper, sign: StopSign, report: Callable[[int, Report], None]) -> list[TrainingOutcome]:
    """The loop."""
    trainings, first = stepper.trainings, stepper.trainings[0]
    idle = first.iteration >= first.config.iterations
    with _telling_of_the_device(trainings):
        return _all_iterations(stepper, sign, report, idle=idle)


def _all_iterations(
    stepper: Stepper, sign: StopSign, report: Callable[[int, Report], None], *, idle: bool
) -> list[TrainingOutcome]:
    trainings, first = stepper.trainings, stepper.trainings[0]
    begun = [time.perf_counter() - training.seconds for training in trainings]
    while first.iteration < first.config.iterations:
        for training in trainings:
            training.use_decided()
        seen = stepper.advance()
        for i, training in enumerate(trainings):
            training.seconds = time.perf_counter() - begun[i]
            training.measure(seen[i], partial(report, i))
        reason = sign.check()
        if reason or first.due(first.config.checkpoint_every):
            stepper.hand_out()
            for training in trainings:
                training.save()
        if reason and first.iteration < first.config.iterations:
            return [
                TrainingOutcome(finished=False, reason=reason, iteration=t.iteration, test=t.test) for t in trainings
            ]
    return [_finish(training, idle=idle) for training in trainings]


@contextmanager
def _telling_of_the_device(trainings: Sequence[Training]) -> Iterator[None]:
    """What is in memory may be half a step: nothing is saved. What did not fit from the start, others tell."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        first = trainings[0]
        full = is_out_of_memory(error) and first.run.has_checkpoint
        if not (full or is_device_failure(error)):
            raise
        device = first.config.device
        what = f"the memory of '{device}' was full" if full else f"the device '{device}' failed"
        kept = "the last checkpoint is kept as it was" if first.run.has_checkpoint else "there is no checkpoint yet"
        raise DeviceError(
            f"{what} after iteration {first.iteration} ({describe_failure(error)}); {kept} in {first.run.path}: go on "
            "from there with resume=True, in a new process or on another device"
        ) from error


def _finish(training: Training, *, idle: bool) -> TrainingOutcome:
    if training.test is None:
        training.evaluate()  # resumed with nothing left to do
    test = training.test
    solvers = [solver_to_dict(solver) for solver in training.solvers]
    config = training.config
    meta = {"iterations": training.iteration, "seeds": list(config.seeds), "solvers": solvers, "config": config.digest}
    meta["test"] = None if test is None else vars(test)
    training.run.save_model({name: t.detach() for name, t in training.ensemble.tensors.items()}, meta)
    return TrainingOutcome(finished=True, reason="finished", iteration=training.iteration, test=test, idle=idle)


@contextmanager
def set_up(config: RunConfig, inputs: Tensor) -> Iterator[None]:
    """Rounds products as the config says; where C solves the networks for points, what is left for PyTorch is small,
    and it is given a single thread."""
    in_c = inputs.is_cpu and inputs.ndim == 2 and inputs.dtype in C_TYPES
    alone = in_c and library(C_TYPES[inputs.dtype], "sphere") is not None
    with convolving_in(config.arithmetic, tuned=True), threads_for_c_alone() if alone else nullcontext():
        yield


def _can_be_joined(config: RunConfig, inputs: Tensor) -> bool:
    """Whether the run gains by training together with others; decided before its folder is touched."""
    changing = (config.controller, config.random_steps, config.treatment)
    if any(each is not None for each in changing) or torch.device(config.device).type != "cuda":
        return False
    one, x = make_ensemble(replace(config, seeds=config.seeds[:1])), inputs[:1].to(config.device, DTYPES[config.dtype])
    return can_capture(one, config.solver, config.gradient, x) and fewer_steps_cost_less(one, config.solver, x)


def _check_alike(configs: Sequence[RunConfig]) -> None:
    first = configs[0]
    for config in configs:
        adapted = config.controller is not None or first.controller is not None
        methods = {config.solver.method, first.solver.method}
        if adapted or len(methods) > 1 or replace(config, solver=first.solver, seeds=first.seeds) != first:
            raise UsageError(
                "runs that train together differ in the precision of their solvers and in seeds, and in nothing else"
            )
