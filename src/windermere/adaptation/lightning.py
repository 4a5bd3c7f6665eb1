"""A Lightning callback that adapts the precision of a model's ODEBlocks. Needs `windermere-ode[lightning]`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isclose
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import numpy as np
import torch
from torch import Tensor

from windermere.adaptation.controller import Controller, ControllerState, Decision, check_controller, review
from windermere.adaptation.distributed import averaged, of_first_rank
from windermere.adaptation.lightning_scores import Scoring, accuracy_and_logits, is_one_sample, score_of_batch
from windermere.adaptation.score import FAILED, Score
from windermere.adaptation.signals import moved_mass
from windermere.adaptation.steady import SteadySteps, SteadyTolerances
from windermere.errors import (
    SolverError,
    ToleranceError,
    UsageError,
    WindermereError,
    describe_error,
    is_out_of_memory,
)
from windermere.nn import ODEBlock
from windermere.nn.lightning import lightning_for
from windermere.nn.ode_block import ode_blocks
from windermere.records.atomic import open_to_read
from windermere.solvers import Solver, solver_from_dict, solver_to_dict
from windermere.solvers.solver import SAME_STEP

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    Callback = lightning_for("AdaptPrecision").Callback

__all__ = ["AdaptPrecision", "accuracy_and_logits", "install_adapted"]


class AdaptPrecision(Callback):
    """Reviews the precision every `controller.every` batches, and sets it on all ODEBlocks from the next batch on.

    Batches (x, y) of classes need nothing more. For others, `score(module, batch)` says how well a batch is solved, in
    eval mode and without gradients; unless that is an accuracy, the paper's controllers need a `threshold` in its
    units. Steady controllers look at outputs as well: let `score` return (value, outputs) and give
    `distance(trained_outputs, outputs)`, such as `moved_mass` of logits or `relative_distance` of a regression, both
    from `windermere.adaptation.signals`. Values and distances are averaged over the ranks of a data-parallel training.
    Outputs of one sample cannot be compared: a review that falls on such a batch, on any rank, is put off to the next.
    The first batch is scored before it is trained on, so that one that cannot be scored is told at once. All the
    Trainer's loggers get every review: `adapt/precision` (the step or tolerance from then on), `adapt/signal` (the
    smoothed distance that a steady controller watches, or the difference of two scores), `adapt/decision` (-1 refined,
    0 kept, 1 coarsened), and both scores, `adapt/trained` and `adapt/checked`.

    The adapted solver is in the Trainer's checkpoint and not among the weights, so `load_from_checkpoint` alone leaves
    the blocks with the constructor's: `install_adapted` puts it back.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        start: float | None = None,
        score: Scoring = accuracy_and_logits,
        distance: Callable[[Any, Any], float | Tensor] | None = None,
    ) -> None:
        """`start` is the first precision, such as `windermere.initial_step` gives; None takes the first block's own."""
        check_controller(controller)
        self.controller, self.start, self.score = controller, start, score
        if distance is None and score is accuracy_and_logits and isinstance(controller, SteadySteps | SteadyTolerances):
            distance = moved_mass  # for them alone: the paper's algorithms review batches of one sample as well
        self.distance = distance
        self.state: ControllerState | None = None
        self._reviewed: ControllerState | None = None
        self._batches = 0
        self._put_off = 0
        """The batch whose review was put off and is still to come, counted from 1, or 0."""

    def on_fit_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        _check_fits(self.controller, pl_module)
        if self.state is None:
            start = ode_blocks(pl_module)[0].solver.precision if self.start is None else self.start
            self.state = self.controller.start(averaged(Score(value=start)).value)
        self._install(pl_module)

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        self._install(pl_module)  # again: some strategies load checkpoints only after on_fit_start

    def on_train_batch_start(
        self, trainer: "Trainer", pl_module: "LightningModule", batch: Any, batch_idx: int
    ) -> None:
        """Review before the update, with the weights the batch is about to be trained with, as Algorithm 2 does."""

        def look(solver: Solver) -> tuple[Score, Any]:
            with trainer.precision_plugin.forward_context():
                return score_of_batch(pl_module, batch, solver, self.score)

        if self.state is None:
            return
        number = self._batches + 1
        due = number % self.controller.every == 0
        if not (due or self._put_off):
            if number == 1:
                self._check_first(self.state, look)
            return

        def score(solver: Solver) -> Score:
            try:
                found, outputs = look(solver)
            except ToleranceError:  # in float64 as well: a slip in the controller's settings
                raise
            except SolverError:
                return averaged(FAILED)
            return averaged(replace(found, distance=self._distance(trained_outputs, outputs)))

        trained, trained_outputs = look(self.controller.solver(self.state))
        overdue = due and self._put_off not in (0, number)  # all batches since were too small: let that be named
        if self.distance is not None and not overdue and _on_any_rank(is_one_sample(trained_outputs)):
            self._put_off = self._put_off or number
            return
        state = of_first_rank(self.state)
        self._reviewed = of_first_rank(review(self.controller, state, averaged(trained), score))

    def on_train_batch_end(
        self, trainer: "Trainer", pl_module: "LightningModule", outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Only now, so that a checkpoint of a batch that failed does not hold its review."""
        self._batches += 1
        if self._reviewed is None:
            return
        self.state, self._reviewed, self._put_off = self._reviewed, None, 0
        self._install(pl_module)
        if self.state.decision is not None:
            numbers = _numbers_of(self.state.decision)
            pl_module.log_dict(numbers, logger=False)  # for other callbacks and the progress bar
            for logger in trainer.loggers:  # by itself, or those between two of the Trainer's logging steps were lost
                logger.log_metrics(numbers, step=trainer.global_step)

    on_validation_start = on_test_start = on_predict_start = on_train_start

    def state_dict(self) -> dict[str, Any]:
        """`solver` is for `install_adapted`, which knows no controller."""
        saved = solver = None
        if self.state is not None:
            saved, solver = self.state.to_dict(), solver_to_dict(self.controller.solver(self.state))
        return {"batches": self._batches, "put_off": self._put_off, "state": saved, "solver": solver}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._batches, self._put_off = state_dict["batches"], state_dict.get("put_off", 0)
        saved = state_dict["state"]
        self.state, self._reviewed = None if saved is None else ControllerState.from_dict(saved), None

    def _check_first(self, state: ControllerState, look: Callable[[Solver], tuple[Score, Any]]) -> None:
        """Refuse a first batch that no review could score, by a review whose checks all give what training gives.

        What cannot be solved, training itself will tell."""
        try:
            trained, outputs = look(self.controller.solver(state))
            if self.distance is None or not is_one_sample(outputs):
                same = replace(trained, distance=self._distance(outputs, outputs))
                review(self.controller, state, trained, lambda solver: same)
        except SolverError:
            return
        except Exception as error:  # whatever the user's score or distance raises
            if isinstance(error, WindermereError) or is_out_of_memory(error):
                raise
            raise UsageError(
                f"AdaptPrecision cannot score the first batch, since its score or distance raises "
                f"{describe_error(error)}: see how the batch looks to score(module, batch)"
            ) from error

    def _distance(self, trained_outputs: Any, outputs: Any) -> float | None:
        if self.distance is None:
            return None
        if outputs is None:
            raise UsageError("a distance is taken between outputs: let score(module, batch) return (value, outputs)")
        return float(self.distance(trained_outputs, outputs))

    def _install(self, module: "LightningModule") -> None:
        """Let the blocks use the current precision, if there is one: a checkpoint may just have brought it."""
        if self.state is not None:
            for block in ode_blocks(module):
                block.solver = self.controller.solver(self.state)


def _numbers_of(decision: Decision) -> dict[str, float]:
    """A review for loggers, which draw numbers. What the paper's algorithms watch is the difference of two scores."""
    signal = abs(decision.trained - decision.checked) if decision.signal is None else decision.signal
    numbers = {
        "precision": decision.after,
        "signal": signal,
        "decision": float(np.sign(decision.after - decision.before)),
        "trained": decision.trained,
        "checked": decision.checked,
    }
    return {f"adapt/{name}": number for name, number in numbers.items()}


def install_adapted(module: torch.nn.Module, checkpoint: Mapping[str, Any] | str | Path) -> Solver:
    """Let all ODEBlocks use the solver that `AdaptPrecision` had come to when Lightning wrote this checkpoint.

    Takes a file, or what a LightningModule's `on_load_checkpoint` is given: called there, it makes
    `load_from_checkpoint` whole.
    """
    if not isinstance(checkpoint, Mapping):
        checkpoint = _open_checkpoint(checkpoint)
    states = [s for key, s in checkpoint.get("callbacks", {}).items() if key.startswith(AdaptPrecision.__qualname__)]
    kept = [state["solver"] for state in states if state.get("solver")]
    if len(kept) != 1:
        raise UsageError(f"this checkpoint holds {len(kept) or 'no'} adapted solvers: it needs one AdaptPrecision's")
    solver = solver_from_dict(kept[0])
    for block in ode_blocks(module):
        block.solver = solver
    return solver


def _open_checkpoint(path: str | Path) -> Mapping[str, Any]:
    try:
        with open_to_read(Path(path)) as file:
            whole = is_zipfile(file)  # which is what PyTorch writes
        if not whole:
            raise UsageError(f"{path} is damaged, or no checkpoint of Lightning's: save it again, or name another")
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"the checkpoint {path} cannot be read: {error.strerror or error}") from error
    except UnpicklingError as error:  # hyper-parameters that are objects, most likely
        raise UsageError(
            f"{path} holds more than plain values, and reading it may run code: if you trust it, give install_adapted "
            "what torch.load(path, weights_only=False) returns"
        ) from error
    return found if isinstance(found, Mapping) else {}


def _check_fits(controller: Controller, module: "LightningModule") -> None:
    """Refuse what would be lost without a word: blocks with other solvers or other times than the controller's."""
    span: float | None = getattr(controller, "span", None)  # controllers of tolerances have none
    for name, block in module.named_modules():
        if not isinstance(block, ODEBlock):
            continue
        becomes = controller.solver(ControllerState(precision=block.solver.precision))
        if becomes != block.solver:
            raise UsageError(
                f"the ODEBlock '{name}' has {block.solver!r}, which would become {becomes!r} under "
                f"{type(controller).__name__}: give the block a solver of that kind, or take another controller"
            )
        length = abs(float(block.times[-1]) - float(block.times[0]))
        if span is not None and not isclose(length, span, rel_tol=SAME_STEP):
            raise UsageError(
                f"the ODEBlock '{name}' spans a time of {length:g}, but {type(controller).__name__} adapts steps for "
                f"{span:g}: give the controller span={length:g}, and all blocks times of that length"
            )


def _on_any_rank(here: bool) -> bool:
    return averaged(Score(value=float(here))).value > 0
