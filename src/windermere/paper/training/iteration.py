"""One iteration of a training: the body of the paper's Algorithms 1 to 3."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windermere.errors import SolverError
from windermere.paper.training.checkpoint import update
from windermere.paper.training.classifying import Stepped, classify_and_differentiate
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.trainer import Training
from windermere.solvers import Solver, counting


def one_iteration(training: Training) -> Stepped:
    """A batch there and back, a review where it is due, then the update."""
    inputs, labels = training.training_set
    chosen = training.batches.indices(training.iteration)
    x, y = inputs[chosen], labels.take(chosen)
    for parameter in training.ensemble.parameters():
        parameter.grad = None
    with training.keeping_the_last_good_state(f"in iteration {training.iteration + 1}"):
        with counting() as count:
            seen = _there_and_back(training, x, y)
        training.check_finite(seen.losses)
        training.review(x, seen, count)
    update(training.optimizer)
    training.iteration += 1
    training.count(count)
    return seen  # on no tape: no graph may outlive its iteration, or a capture comes to grief


def _there_and_back(training: Training, x: Tensor, y: Tensor) -> Stepped:
    """Losses, logits and gradients; where a solve fails, an adjoint's too, the error says whose fault it is."""

    def by_itself(s: int, one: Ensemble, own: Sequence[Solver]) -> None:
        for parameter in one.parameters():
            parameter.requires_grad_()
        with torch.enable_grad():
            classify_and_differentiate(one, one.features(x[s : s + 1], own), y[s : s + 1])

    try:
        return classify_and_differentiate(training.ensemble, training.ensemble.features(x, training.solvers), y)
    except SolverError as error:
        seeds = training.failing(by_itself)
        said = type(error)(f"for seed {', '.join(map(str, seeds)) or 'unknown'}, {error}")
        said.seeds = seeds
        raise said from error
