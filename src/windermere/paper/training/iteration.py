"""One iteration of a training: the body of the paper's Algorithms 1 to 3."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windermere.errors import SolverError
from windermere.paper.training.checkpoint import update
from windermere.paper.training.classifying import Stepped, classify_and_differentiate
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.trainer import Training
from windermere.paper.training.treatment import Treatment, bound_field, penalised_features
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
    if (treatment := training.config.treatment) is not None and treatment.spectral:
        bound_field(training.ensemble, treatment.spectral)
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

    solvers = training.batch_solvers
    try:
        if training.config.treatment is not None:
            return _treated(training, training.config.treatment, x, y)
        return classify_and_differentiate(training.ensemble, training.ensemble.features(x, solvers), y)
    except SolverError as error:
        seeds = training.failing(by_itself, solvers)
        said = type(error)(f"for seed {', '.join(map(str, seeds)) or 'unknown'}, {error}")
        said.seeds = seeds
        raise said from error


def _treated(training: Training, treatment: Treatment, x: Tensor, y: Tensor) -> Stepped:
    """The same with what the study of recipes tries."""
    ensemble, now = training.ensemble, training.iteration
    own = treatment.solver(training.config.solver, now, training.config.iterations)
    if not treatment.penalises:
        with treatment.ending(ensemble, own, now) as solver:
            return classify_and_differentiate(ensemble, ensemble.features(x, (solver,) * ensemble.size), y)
    features, penalty, spent = penalised_features(ensemble, x, own, treatment, now)
    penalty.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    training.totals["forward"] += spent
    return classify_and_differentiate(ensemble, features, y)
