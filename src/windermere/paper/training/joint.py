"""Several runs trained as one ensemble: they differ in their solvers' precision, and each has a folder of its own.

The runs of a grid (the paper's Figure 4: nine numbers of Euler steps, five seeds each) cost about as much as the one
with the most steps. Members of one run stay together; S is the number of members of all runs.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch

from windermere.errors import UsageError
from windermere.nn.arithmetic import convolving_in
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps, CaptureFailed, Stepped, can_capture, fewer_steps_cost_less
from windermere.paper.training.checkpoint import is_shared, make_optimizer, pack, unpack
from windermere.paper.training.config import RunConfig
from windermere.paper.training.evaluation import Labelled
from windermere.paper.training.interrupts import StopSign
from windermere.paper.training.loop import TrainingOutcome, finish, one_iteration, train
from windermere.paper.training.trainer import Report, Training
from windermere.records import RunFolder


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
    with convolving_in(configs[0].arithmetic, tuned=True):
        sign = sign or StopSign()
        trainings = [Training(c, training_set, test_set, run) for c, run in zip(configs, runs, strict=True)]
        if not (capture if capture is not None else all(_can_be_joined(training) for training in trainings)):
            rest = enumerate(zip(configs, runs, strict=True))
            return [
                train(c, training_set, test_set, run, sign=sign, report=lambda now, i=i: report(i, now))  # type: ignore[misc]
                for i, (c, run) in rest
            ]
        _check_alike(trainings)
        joint, first = _Joint(trainings), trainings[0]
        begun = [time.perf_counter() - training.seconds for training in trainings]
        while first.iteration < first.config.iterations:
            last = joint.advance()
            for i, training in enumerate(trainings):
                training.seconds = time.perf_counter() - begun[i]
                training.measure(last[i], training.solvers, lambda now, i=i: report(i, now))  # type: ignore[misc]
            reason = sign.check()
            if reason or first.due(first.config.checkpoint_every):
                joint.save()
            if reason and first.iteration < first.config.iterations:
                return [
                    TrainingOutcome(finished=False, reason=reason, iteration=t.iteration, test=t.test)
                    for t in trainings
                ]
        joint.hand_out()
        return [finish(training) for training in trainings]


class _Joint:
    """All members of some trainings as one ensemble with one optimizer. The trainings' own are brought up to date
    where they are looked at."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        self.trainings, config = trainings, trainings[0].config
        self.places = list(pairwise(accumulate((t.ensemble.size for t in trainings), initial=0)))
        self.solvers = [solver for training in trainings for solver in training.solvers]
        self.ensemble = trainings[0].ensemble.subset([0] * self.places[-1][1])
        for tensor in self.ensemble.parameters():
            tensor.requires_grad_()
        self.optimizer = make_optimizer(config.optimizer, self.ensemble.parameters(), config.lr)
        self.take_in()
        seeds = [seed for training in trainings for seed in training.config.seeds]
        batches = Batches(len(trainings[0].training_set[1]), config.batch_size, seeds, "cpu")
        self.captured = CapturedSteps(self.ensemble, self.optimizer, trainings[0].training_set, batches)
        self.captured.use(self.solvers)

    def take_in(self) -> None:
        """The trainings' parameters and moments, one after the other."""
        parts = [pack(training.ensemble, training.optimizer) for training in self.trainings]
        together = {
            name: tensor.clone() if is_shared(name) else torch.cat([part[name] for part in parts])
            for name, tensor in parts[0].items()
        }
        unpack(together, self.ensemble, self.optimizer)

    def hand_out(self) -> None:
        """Every training's own parameters and moments back to it."""
        together = pack(self.ensemble, self.optimizer)
        for training, (start, end) in zip(self.trainings, self.places, strict=True):
            own = {name: (t if is_shared(name) else t[start:end]).clone() for name, t in together.items()}
            unpack(own, training.ensemble, training.optimizer)

    def save(self) -> None:
        self.hand_out()
        for training in self.trainings:
            training.save()

    def _run(self, iteration: int, most: int) -> int:
        try:
            return self.captured.run(iteration, most)
        except CaptureFailed as error:
            warnings.warn(f"steps cannot be captured on this device, and are taken one by one: {error}", stacklevel=4)
            self.captured.given_up = True
            return self.captured.run(iteration, most)

    def advance(self) -> list[Stepped]:
        """Train up to the next iteration after which something is due; what each training saw in the last one."""
        first = self.trainings[0]
        good = self._run(first.iteration, first.undisturbed())
        for training, (start, end) in zip(self.trainings, self.places, strict=True):
            training.iteration += good
            self.captured.count(good, training.totals, slice(start, end))
        if self.captured.stopped:
            self.save()
            seen = [one_iteration(training) for training in self.trainings]  # the one that fails says why
            self.take_in()
            self.captured.forget()
            return seen
        if first.due(first.config.evaluate_every):
            self.hand_out()
        last = self.captured.last
        if last is None:
            raise UsageError("no step was taken")
        return [Stepped(last.losses[a:b], last.logits[a:b], last.labels[a:b]) for a, b in self.places]


def _can_be_joined(training: Training) -> bool:
    config = training.config
    ensemble, inputs = training.ensemble, training.training_set[0]
    if training.adapting is not None or not can_capture(ensemble, config.solver, config.gradient, inputs):
        return False
    return fewer_steps_cost_less(ensemble, config.solver, inputs)


def _check_alike(trainings: Sequence[Training]) -> None:
    first = trainings[0]
    for training in trainings:
        same = replace(training.config, solver=first.config.solver, seeds=first.config.seeds) == first.config
        if not same or training.adapting is not None or training.config.solver.method != first.config.solver.method:
            raise UsageError(
                "runs that train together differ in the precision of their solvers and in seeds, and in nothing else"
            )
        if training.iteration != first.iteration:
            raise UsageError(
                f"runs that train together are all at one iteration, not at {first.iteration} and {training.iteration}"
            )
