"""What the training loop advances: one run an iteration at a time, one run many at a time, or several runs as one.

The runs of a grid (the paper's Figure 4: nine numbers of Euler steps, five seeds each) cost about as much as the one
with the most steps, where they are trained as one ensemble. Members of one run stay together.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch.optim import Optimizer

from windermere.errors import UsageError
from windermere.paper.training.batches import Batches
from windermere.paper.training.captured import CapturedSteps
from windermere.paper.training.checkpoint import is_shared, make_optimizer, pack, unpack
from windermere.paper.training.classifying import Stepped
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.iteration import one_iteration
from windermere.paper.training.trainer import Training


class Stepper:
    """Trainings that are taken further, all by the same iterations: here one at a time."""

    def __init__(self, *trainings: Training) -> None:
        self.trainings = trainings

    def advance(self) -> Sequence[Stepped]:
        """Train for one or more iterations, but not past one after which something is due; returns what each training
        saw in the last one. Where something is to be evaluated, the trainings are up to date."""
        return [one_iteration(training) for training in self.trainings]

    def hand_out(self) -> None:
        """Bring the trainings' own parameters and moments up to date: unless others are trained, they are."""


class CapturedStepper(Stepper):
    """One training, many iterations at a time: see `CapturedSteps`."""

    def __init__(self, training: Training) -> None:
        super().__init__(training)
        self.captured = self._capture(training.ensemble, training.optimizer)

    def _capture(self, ensemble: Ensemble, optimizer: Optimizer) -> CapturedSteps:
        """The steps of these, which are to hold all members of all trainings."""
        sizes = accumulate((training.ensemble.size for training in self.trainings), initial=0)
        self.places = [slice(start, end) for start, end in pairwise(sizes)]
        config, training_set = self.trainings[0].config, self.trainings[0].training_set
        seeds = [seed for training in self.trainings for seed in training.config.seeds]
        return CapturedSteps(
            ensemble, optimizer, training_set, Batches(len(training_set[1]), config.batch_size, seeds, "cpu")
        )

    def advance(self) -> Sequence[Stepped]:
        first, captured = self.trainings[0], self.captured
        if (most := first.undisturbed()) < 1:
            return self._advance_plainly()  # one with a review
        with first.keeping_the_last_good_state(f"in iteration {first.iteration + 1}"):
            captured.use([solver for training in self.trainings for solver in training.solvers])
        good = captured.run(first.iteration, most)
        for training, members in zip(self.trainings, self.places, strict=True):
            training.iteration += good
            captured.count(good, training.totals, members)
        if captured.stopped or captured.last is None:
            return self._advance_plainly()  # the training that fails says why
        if first.due(first.config.evaluate_every):
            self.hand_out()
        return [captured.last.of(members) for members in self.places]

    def _advance_plainly(self) -> Sequence[Stepped]:
        return super().advance()


class JointStepper(CapturedStepper):
    """Several trainings that differ in their solvers' precision and in their seeds, as one ensemble."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        Stepper.__init__(self, *trainings)
        first = trainings[0]
        for training in trainings:
            if training.iteration != first.iteration:
                raise UsageError(
                    f"runs that train together are all at one iteration, not at {first.iteration} and "
                    f"{training.iteration}"
                )
        self.ensemble = first.ensemble.subset([0] * sum(training.ensemble.size for training in trainings))
        for tensor in self.ensemble.parameters():
            tensor.requires_grad_()
        self.optimizer = make_optimizer(first.config.optimizer, self.ensemble.parameters(), first.config.lr)
        self._take_in()
        self.captured = self._capture(self.ensemble, self.optimizer)

    def _take_in(self) -> None:
        """The trainings' parameters and moments, one after the other."""
        parts = [pack(training.ensemble, training.optimizer) for training in self.trainings]
        together = {
            name: tensor.clone() if is_shared(name) else torch.cat([part[name] for part in parts])
            for name, tensor in parts[0].items()
        }
        unpack(together, self.ensemble, self.optimizer)

    def hand_out(self) -> None:
        together = pack(self.ensemble, self.optimizer)
        for training, members in zip(self.trainings, self.places, strict=True):
            own = {name: (t if is_shared(name) else t[members]).clone() for name, t in together.items()}
            unpack(own, training.ensemble, training.optimizer)

    def _advance_plainly(self) -> Sequence[Stepped]:
        """Each by itself. All are saved before, since where one of them fails the others stop as well."""
        self.hand_out()
        for training in self.trainings:
            training.save()
        seen = super()._advance_plainly()
        self._take_in()
        self.captured.forget()
        return seen
