"""The training loop."""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from windermere.errors import SolverError
from windermere.fast.cpu.compiled import library
from windermere.fast.cpu.native_call import C_TYPES, threads_for_c_alone
from windermere.nn.arithmetic import convolving_in
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps, CaptureFailed, Stepped, can_capture
from windermere.paper.training.checkpoint import update
from windermere.paper.training.classifying import Classified, classify_and_differentiate
from windermere.paper.training.config import RunConfig
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import Evaluation, Labelled
from windermere.paper.training.interrupts import StopSign
from windermere.paper.training.trainer import Report, Training
from windermere.records import RunFolder
from windermere.solvers import Solver, counting, solver_to_dict


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """How a call of `train` ended."""

    finished: bool
    reason: str
    """`finished`, `time limit`, `interrupted` or `terminated`."""
    iteration: int
    test: Evaluation | None


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
    with convolving_in(config.arithmetic, tuned=True), _threads_for(training_set[0]):
        training, sign = Training(config, training_set, test_set, run), sign or StopSign()
        captured = _captured(training) if _wants_capture(training, capture) else None
        begun = time.perf_counter() - training.seconds
        while training.iteration < config.iterations:
            solvers = training.solvers
            last = _many_iterations(training, captured) or one_iteration(training)
            training.seconds = time.perf_counter() - begun
            training.measure(last, solvers, report)
            reason = sign.check()
            if reason or training.due(config.checkpoint_every):
                training.save()
            if reason and training.iteration < config.iterations:
                return TrainingOutcome(finished=False, reason=reason, iteration=training.iteration, test=training.test)
        return finish(training)


def _threads_for(inputs: Tensor) -> AbstractContextManager[None]:
    """Gives PyTorch a single thread where C solves the networks for points: what is left for PyTorch is small there."""
    is_small = inputs.is_cpu and inputs.ndim == 2 and inputs.dtype in C_TYPES
    return threads_for_c_alone() if is_small and library(C_TYPES[inputs.dtype], "sphere") is not None else nullcontext()


def one_iteration(training: Training) -> Stepped:
    """The body of the paper's Algorithms 1 to 3: a batch there and back, a review where it is due, then the update."""
    inputs, labels = training.training_set
    chosen = training.batches.indices(training.iteration)
    x, y = inputs[chosen], labels.take(chosen)
    for parameter in training.ensemble.parameters():
        parameter.grad = None
    with training.keeping_the_last_good_state(f"in iteration {training.iteration + 1}"):
        with counting() as count:
            losses, logits = _there_and_back(training, x, y)
        training.check_finite(losses)
        training.review(x, y, logits, count)
    update(training.optimizer)
    training.iteration += 1
    training.count(count)
    return Stepped(losses, logits, y)  # no graph may outlive its iteration: a capture comes to grief


def _many_iterations(training: Training, captured: CapturedSteps | None) -> Stepped | None:
    """Trains up to the next iteration after which something is due. Returns None where the plain loop has to make the
    next iteration: one with a review, or one that fails (the plain loop says why)."""
    most = training.undisturbed()
    if captured is None or captured.given_up or most < 1:
        return None
    with training.keeping_the_last_good_state(f"in iteration {training.iteration + 1}"):
        captured.use(training.solvers)
    try:
        good = captured.run(training.iteration, most)
    except CaptureFailed as error:
        warnings.warn(f"steps cannot be captured on this device, and are taken one by one: {error}", stacklevel=3)
        captured.given_up = True
        return None
    training.iteration += good
    captured.count(good, training.totals)
    return None if captured.stopped else captured.last


def _wants_capture(training: Training, capture: bool | None) -> bool:
    if capture is not None:
        return capture
    config = training.config
    return can_capture(training.ensemble, config.solver, config.gradient, training.training_set[0])


def _captured(training: Training) -> CapturedSteps:
    on_host = Batches(len(training.training_set[1]), training.config.batch_size, training.config.seeds, "cpu")
    return CapturedSteps(training.ensemble, training.optimizer, training.training_set, on_host)


def _there_and_back(training: Training, x: Tensor, y: Tensor) -> Classified:
    """Losses, logits and gradients; where a solve fails, an adjoint's too, the error says whose fault it is."""

    def by_itself(s: int, one: Ensemble, own: Sequence[Solver]) -> None:
        for parameter in one.parameters():
            parameter.requires_grad_()
        with torch.enable_grad():
            classify_and_differentiate(one, one.features(x[s : s + 1], own), y[s : s + 1])

    try:
        return classify_and_differentiate(training.ensemble, training.ensemble.features(x, training.solvers), y)
    except SolverError as error:
        seeds = training.failing(training.solvers, by_itself)
        said = type(error)(f"for seed {', '.join(map(str, seeds)) or 'unknown'}, {error}")
        said.seeds = seeds
        raise said from error


def finish(training: Training) -> TrainingOutcome:
    if training.test is None:
        training.evaluate()  # resumed with nothing left to do
    test = training.test
    solvers = [solver_to_dict(solver) for solver in training.trained_with]
    meta = {"iterations": training.iteration, "seeds": list(training.config.seeds), "solvers": solvers}
    meta["test"] = None if test is None else vars(test)
    training.run.save_model({name: t.detach() for name, t in training.ensemble.tensors.items()}, meta)
    return TrainingOutcome(finished=True, reason="finished", iteration=training.iteration, test=test)
