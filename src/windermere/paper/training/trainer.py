"""A training between two iterations: what it knows, saves, reviews and writes down. Shapes: S members, B samples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from windermere._torch_private import note_non_finite
from windermere.errors import DivergedError, NonFiniteError, SolverError
from windermere.paper.architectures import architecture, initialise
from windermere.paper.training.adapting import Adapting, scores
from windermere.paper.training.batches import Batches
from windermere.paper.training.checkpoint import check_it_belongs, make_optimizer, not_finite, of_members, pack, unpack
from windermere.paper.training.classifying import Stepped
from windermere.paper.training.config import DTYPES, RunConfig
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import Evaluation, Labelled, evaluate
from windermere.records import RunFolder, TensorFile
from windermere.solvers import Count, Solver

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
        if (saved := run.load_checkpoint(partial(check_it_belongs, run.path, config))) is not None:
            self._go_on_from(saved)

    def _go_on_from(self, saved: TensorFile) -> None:
        """With those of its members that are this run's: seeds that diverged may have been left behind."""
        meta, members = saved.meta, [saved.meta["seeds"].index(seed) for seed in self.config.seeds]
        unpack(of_members(saved.tensors, members), self.ensemble, self.optimizer)
        self.iteration, self.seconds = meta["iteration"], meta["seconds"]
        self.totals = {role: np.asarray(meta["evaluations"][role], np.int64)[members] for role in ROLES}
        if meta["test"]:
            by_member = {name: [meta["test"][name][s] for s in members] for name in ("accuracy", "evaluations")}
            self.test = Evaluation(**{**meta["test"], **by_member})
        if self.adapting is not None:
            self.adapting.go_on_from(meta["adaptation"], members)

    @property
    def solvers(self) -> Sequence[Solver]:
        """What the last iteration was trained with, until the next one begins."""
        return (self.config.solver,) * self.ensemble.size if self.adapting is None else self.adapting.solvers

    @property
    def batch_solvers(self) -> Sequence[Solver]:
        """What the next batch is solved with: the same, unless its steps are drawn."""
        config = self.config
        if config.random_steps is None:
            return self.solvers
        chosen = (config.random_steps.at(self.iteration, config.iterations, seed) for seed in config.seeds)
        return tuple(choose(config.solver) for choose in chosen)

    def use_decided(self) -> None:
        """An iteration begins: train with what the review in the one before has decided."""
        if self.adapting is not None:
            self.adapting.use_decided()

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
        meta |= {"config": self.config.digest, "seeds": list(self.config.seeds)}
        test = None if self.test is None else vars(self.test)
        adaptation = None if self.adapting is None else self.adapting.to_dict()
        self.run.save_checkpoint(tensors, {**meta, "test": test, "adaptation": adaptation})

    def due(self, every: int) -> bool:
        """Each so many iterations, and at the end."""
        return self.iteration % every == 0 or self.iteration == self.config.iterations

    def undisturbed(self) -> int:
        """How many iterations come before a review, or until something is due; none where each has other steps."""
        config, now = self.config, self.iteration
        if config.random_steps is not None or config.treatment is not None:
            return 0
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

    def review(self, x: Tensor, seen: Stepped, count: Count) -> None:
        """Let every member's precision be reviewed on the current batch, where that is due, and write down why."""
        if self.adapting is None or not self.adapting.due(self.iteration + 1):
            return
        trained = scores(seen.logits, seen.labels, seen.logits, count.forward, count.longest)
        self.totals["checks"] += self.adapting.review(self.ensemble, x, seen.labels, seen.logits, trained)
        for seed, decision in zip(self.config.seeds, self.adapting.decisions(), strict=True):
            self.run.log({"seed": seed, **decision})

    def evaluate(self) -> None:
        self.test = None  # one that fails leaves none behind
        with self.keeping_the_last_good_state(f"in the evaluation after iteration {self.iteration}"):
            try:
                self.test = evaluate(self.ensemble, self.solvers, self.test_set)
            except SolverError as error:
                error.seeds = self.failing(lambda s, one, own: evaluate(one, own, self.test_set), self.solvers)
                raise

    def measure(self, last: Stepped, report: Callable[[Report], None]) -> None:
        """Evaluate and log, where that is due."""
        if self.due(self.config.evaluate_every):
            self.evaluate()
        if self.due(self.config.log_every) or self.due(self.config.evaluate_every):
            report(self.log(last))

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

    def log(self, last: Stepped) -> Report:
        """Write a row for each member, and return the same numbers."""
        precision = [solver.precision for solver in self.solvers]
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

    def check_finite(self, losses: Tensor) -> None:
        """Losses and gradients: a finite loss with a gradient that is not would spoil the state all the same."""
        gradients = [p.grad for p in self.ensemble.parameters() if p.grad is not None]
        note_non_finite([losses, *gradients], self.bad, self.one)
        if not self.bad:
            return
        self.bad.zero_()
        bad = ~losses.isfinite()
        for gradient in gradients:
            bad |= ~gradient.flatten(1).isfinite().all(dim=1)
        seeds = [seed for seed, is_bad in zip(self.config.seeds, bad.tolist(), strict=True) if is_bad]
        if seeds:
            what = "loss" if not losses.isfinite().all() else "gradient"
            error = NonFiniteError(
                f"the {what} is not finite for seed {', '.join(map(str, seeds))}: "
                "try a smaller learning rate or a finer solver in a new run"
            )
            error.seeds = tuple(seeds)
            raise error

    @torch.no_grad()
    def failing(
        self, ask: Callable[[int, Ensemble, Sequence[Solver]], object], solvers: Sequence[Solver]
    ) -> tuple[int, ...]:
        """Seeds of members that cannot be solved by themselves; slow, and asked only after all together could not."""
        failing = []
        for s, seed in enumerate(self.config.seeds):
            try:
                ask(s, self.ensemble.subset([s]), solvers[s : s + 1])
            except SolverError:
                failing.append(seed)
        return tuple(failing)


def make_ensemble(config: RunConfig) -> Ensemble:
    """The members as their seeds make them."""

    def bare() -> nn.Module:
        return architecture(config.data, config.solver, gradient=config.gradient, arithmetic=config.arithmetic)

    models = [initialise(bare(), seed) for seed in config.seeds]
    return Ensemble([model.to(config.device, DTYPES[config.dtype]) for model in models])


def _placed(labelled: Labelled, config: RunConfig) -> Labelled:
    inputs, labels = labelled
    return inputs.to(config.device, DTYPES[config.dtype]), labels.to(config.device)
