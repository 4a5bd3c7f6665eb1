"""The training loop. Shapes: S members, B samples."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from windermere.adaptation import State
from windermere.errors import DivergedError, NonFiniteError, RunError, SolverError
from windermere.models import architecture, initialise
from windermere.models.arithmetic import convolving_in
from windermere.models.compiled import library
from windermere.models.native_call import C_TYPES, threads_for_c_alone
from windermere.records import RunFolder, TensorFile
from windermere.solvers import Count, Gradient, Solver, counting, solver_to_dict
from windermere.training.adapting import Adapting, scores
from windermere.training.batches import Batches
from windermere.training.captured import CapturedSteps, CaptureFailed, Stepped, can_capture
from windermere.training.checkpoint import make_optimizer, not_finite, of_members, pack, unpack, update
from windermere.training.classifying import Classified, classify_and_differentiate
from windermere.training.config import DTYPES, RunConfig
from windermere.training.ensemble import Ensemble
from windermere.training.evaluation import Evaluation, Labelled, evaluate
from windermere.training.interrupts import StopSign

ROLES = ("forward", "backward", "recomputed", "checks")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Where a training is; numbers by member."""

    iteration: int
    iterations: int
    loss: list[float]
    accuracy: list[float]
    """On the training batch."""
    test_accuracy: list[float] | None
    """With the training solver, as of the last evaluation."""
    precision: list[float]
    evaluations: list[float]
    """Forward evaluations per iteration, checks included: the paper's cost."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a call of `train` ended."""

    finished: bool
    reason: str
    """`finished`, `time limit`, `interrupted` or `terminated`."""
    iteration: int
    test: Evaluation | None


class Training:
    """The state of a run between two iterations."""

    def __init__(self, config: RunConfig, training_set: Labelled, test_set: Labelled, run: RunFolder) -> None:
        self.config, self.run = config, run
        self.training_set, self.test_set = (_placed(s, config) for s in (training_set, test_set))
        self.ensemble = make_ensemble(config)
        self.optimizer = make_optimizer(config.optimizer, self.ensemble.parameters(), config.lr)
        self.batches = Batches(len(training_set[1]), config.batch_size, config.seeds, config.device)
        self.adapting = Adapting.begin(config, self.ensemble, self.training_set[0][self.batches.indices(0)])
        self.iteration, self.seconds = 0, 0.0
        self.bad, self.one = torch.tensor((0.0, 1.0), dtype=torch.float32, device=config.device)
        """Room for whether a loss or a gradient is not finite, and what they are multiplied by to see it."""
        self.totals = {role: np.zeros(self.ensemble.size, np.int64) for role in ROLES}
        self.test: Evaluation | None = None
        if (saved := run.load_checkpoint()) is not None:
            self._go_on_from(saved)

    def _go_on_from(self, saved: TensorFile) -> None:
        """With those of its members that are this run's: seeds that diverged may have been left behind."""
        meta, members = saved.meta, _places(self.config.seeds, saved.meta.get("seeds"))
        unpack(of_members(saved.tensors, members), self.ensemble, self.optimizer)
        self.iteration, self.seconds = meta["iteration"], meta["seconds"]
        self.totals = {role: np.asarray(meta["evaluations"][role], np.int64)[members] for role in ROLES}
        if meta["test"]:
            by_member = {name: [meta["test"][name][s] for s in members] for name in ("accuracy", "evaluations")}
            self.test = Evaluation(**{**meta["test"], **by_member})
        if self.adapting is not None:
            self.adapting.states = [State.from_dict(meta["adaptation"][s]) for s in members]

    @property
    def solvers(self) -> Sequence[Solver]:
        return (self.config.solver,) * self.ensemble.size if self.adapting is None else self.adapting.solvers

    @property
    def trained_with(self) -> Sequence[Solver]:
        """What the last iteration was trained with: a review may have decided on others for the next."""
        return self.solvers if self.adapting is None else self.adapting.solvers_of(self.iteration)

    def save(self) -> None:
        """Replace the checkpoint; a state that is not finite is none to go on from, and leaves the one before it."""
        tensors = pack(self.ensemble, self.optimizer)
        if bad := not_finite(tensors, self.ensemble.size):
            kept = "the last checkpoint is kept as it was" if self.run.has_checkpoint else "there is no checkpoint yet"
            raise DivergedError(
                f"training stopped after iteration {self.iteration}: its step was too large for {self.config.dtype}, "
                f"and the parameters or the optimizer's moments are not finite; {kept} in {self.run.path}; try a "
                "smaller learning rate in a new run",
                run=self.run.path,
                seeds=[self.config.seeds[s] for s in bad],
                iteration=self.iteration,
            )
        evaluations = {role: total.tolist() for role, total in self.totals.items()}
        meta = {"iteration": self.iteration, "seconds": self.seconds, "evaluations": evaluations}
        meta["seeds"] = list(self.config.seeds)
        test = None if self.test is None else vars(self.test)
        adaptation = None if self.adapting is None else [state.to_dict() for state in self.adapting.states]
        self.run.save_checkpoint(tensors, {**meta, "test": test, "adaptation": adaptation})

    def due(self, every: int) -> bool:
        """Each so many iterations, and at the end."""
        return self.iteration % every == 0 or self.iteration == self.config.iterations

    def undisturbed(self) -> int:
        """How many iterations come before a review, or until something is due."""
        config, now = self.config, self.iteration
        due = (config.log_every, config.evaluate_every, config.checkpoint_every)
        counts = [config.iterations - now, *(every - now % every for every in due)]
        if self.adapting is not None:
            every = self.adapting.controller.every
            counts.append(every - now % every - 1)
        return min(counts)

    def count(self, count: Count) -> None:
        for role in ROLES:
            if isinstance(made := getattr(count, role), np.ndarray) or made:
                self.totals[role] += made

    def review(self, x: Tensor, y: Tensor, logits: Tensor, count: Count) -> None:
        """Let every member's precision be reviewed on the current batch, where that is due, and write down why."""
        if self.adapting is None or not self.adapting.due(self.iteration + 1):
            return
        trained = scores(logits, y, logits, count.forward, count.longest)
        self.totals["checks"] += self.adapting.review(self.ensemble, x, y, logits, trained)
        for seed, decision in zip(self.config.seeds, self.adapting.decisions(), strict=True):
            self.run.log({"seed": seed, **decision})

    def evaluate(self) -> None:
        self.test = None  # one that fails leaves none behind
        with self.keeping_the_last_good_state(f"in the evaluation after iteration {self.iteration}"):
            try:
                self.test = evaluate(self.ensemble, self.trained_with, self.test_set)
            except SolverError as error:
                error.seeds = _failing(self, self.trained_with, lambda s, one, own: evaluate(one, own, self.test_set))
                raise

    def measure(self, last: Stepped, solvers: Sequence[Solver], report: Callable[[Report], None]) -> None:
        """Evaluate and log, where that is due; the last iteration was trained with these solvers."""
        if self.due(self.config.evaluate_every):
            self.evaluate()
        if self.due(self.config.log_every) or self.due(self.config.evaluate_every):
            report(self.log(last, solvers))

    @contextmanager
    def keeping_the_last_good_state(self, where: str) -> Iterator[None]:
        """A solve that fails or a loss that is not finite comes before the optimizer's step: save what was good."""
        try:
            yield
        except SolverError as error:
            self.save()
            raise DivergedError(
                f"training stopped {where}: {error}; the state before it is kept in {self.run.path}",
                run=self.run.path,
                seeds=error.seeds,
                iteration=self.iteration,
            ) from error

    def log(self, last: Stepped, solvers: Sequence[Solver]) -> Report:
        """Write a row for each member, trained with these solvers, and return the same numbers."""
        precision = [s.precision for s in solvers]
        loss, accuracy = last.losses.tolist(), (last.right.double() / self.config.batch_size).tolist()
        fresh = self.test if self.due(self.config.evaluate_every) else None
        for s, seed in enumerate(self.config.seeds):
            row = {"iteration": self.iteration, "seed": seed, "loss": loss[s], "accuracy": accuracy[s]}
            row |= {f"evaluations_{role}": int(total[s]) for role, total in self.totals.items()}
            row |= {self.config.precision_name: precision[s], "seconds": round(self.seconds, 3)}
            self.run.log(row if fresh is None else {**row, "test_accuracy": fresh.accuracy[s]})
        per_iteration = (self.totals["forward"] + self.totals["checks"]) / self.iteration
        return Report(
            iteration=self.iteration,
            iterations=self.config.iterations,
            loss=loss,
            accuracy=accuracy,
            test_accuracy=None if self.test is None else self.test.accuracy,
            precision=precision,
            evaluations=per_iteration.tolist(),
            seconds=self.seconds,
        )


def train(
    config: RunConfig,
    training_set: Labelled,
    test_set: Labelled,
    run: RunFolder,
    *,
    sign: StopSign | None = None,
    report: Callable[[Report], None] = lambda _: None,
    capture: bool | None = None,
) -> Outcome:
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
                return Outcome(finished=False, reason=reason, iteration=training.iteration, test=training.test)
        return finish(training)


def _threads_for(inputs: Tensor) -> AbstractContextManager[None]:
    """Of networks for points, what is not solved in C is small."""
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
        _check_finite(training, losses)
        training.review(x, y, logits, count)
    update(training.optimizer)
    training.iteration += 1
    training.count(count)
    return Stepped(losses, logits, y)  # no graph may outlive its iteration: a capture comes to grief


def _many_iterations(training: Training, captured: CapturedSteps | None) -> Stepped | None:
    """Up to the next one after which something is due; None where the next is one that the plain loop has to make:
    one with a review, or one that fails (it says why)."""
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


def make_ensemble(config: RunConfig) -> Ensemble:
    """The members as their seeds make them."""
    gradient: Gradient = config.gradient  # type: ignore[assignment]
    bare = [
        architecture(config.data, config.solver, gradient=gradient, arithmetic=config.arithmetic) for _ in config.seeds
    ]
    models = [initialise(model, seed) for model, seed in zip(bare, config.seeds, strict=True)]
    return Ensemble([model.to(config.device, DTYPES[config.dtype]) for model in models])


def _placed(labelled: Labelled, config: RunConfig) -> Labelled:
    inputs, labels = labelled
    return inputs.to(config.device, DTYPES[config.dtype]), labels.to(config.device)


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
        seeds = _failing(training, training.solvers, by_itself)
        said = type(error)(f"for seed {', '.join(map(str, seeds)) or 'unknown'}, {error}")
        said.seeds = seeds
        raise said from error


@torch.no_grad()
def _failing(
    training: Training, solvers: Sequence[Solver], ask: Callable[[int, Ensemble, Sequence[Solver]], object]
) -> tuple[int, ...]:
    """Seeds of members that cannot be solved by themselves; slow, and asked only after all together could not."""
    failing = []
    for s, seed in enumerate(training.config.seeds):
        try:
            ask(s, training.ensemble.subset([s]), solvers[s : s + 1])
        except SolverError:
            failing.append(seed)
    return tuple(failing)


def _places(seeds: Sequence[int], kept: Sequence[int] | None) -> list[int]:
    """Where these seeds are among those that a checkpoint kept."""
    if kept is None:
        return list(range(len(seeds)))
    if not set(seeds) <= set(kept):
        raise RunError(f"the checkpoint does not belong to this run: it has seeds {list(kept)}, not {list(seeds)}")
    return [list(kept).index(seed) for seed in seeds]


def _check_finite(training: Training, losses: Tensor) -> None:
    """Losses and gradients: a finite loss with a gradient that is not would spoil the state all the same."""
    gradients = [p.grad for p in training.ensemble.parameters() if p.grad is not None]
    # Multiplies by one, and notes in `bad` what is not finite: as torch.amp.GradScaler does, in one call.
    torch._amp_foreach_non_finite_check_and_unscale_([losses, *gradients], training.bad, training.one)
    if not training.bad:
        return
    training.bad.zero_()
    bad = ~losses.isfinite()
    for gradient in gradients:
        bad |= ~gradient.flatten(1).isfinite().all(dim=1)
    seeds = [seed for seed, is_bad in zip(training.config.seeds, bad.tolist(), strict=True) if is_bad]
    if seeds:
        what = "loss" if not losses.isfinite().all() else "gradient"
        error = NonFiniteError(
            f"the {what} is not finite for seed {', '.join(map(str, seeds))}: "
            "try a smaller learning rate or a finer solver in a new run"
        )
        error.seeds = tuple(seeds)
        raise error


def finish(training: Training) -> Outcome:
    if training.test is None:
        training.evaluate()  # resumed with nothing left to do
    test = training.test
    solvers = [solver_to_dict(solver) for solver in training.trained_with]
    meta = {"iterations": training.iteration, "seeds": list(training.config.seeds), "solvers": solvers}
    meta["test"] = None if test is None else vars(test)
    training.run.save_model({name: t.detach() for name, t in training.ensemble.tensors.items()}, meta)
    return Outcome(finished=True, reason="finished", iteration=training.iteration, test=test)
