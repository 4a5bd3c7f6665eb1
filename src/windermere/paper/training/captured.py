"""Many training steps without the host: one step is captured as a CUDA graph and replayed.

A step of the sphere networks is some thirty short kernels, and starting them one by one takes ten times as long as they
do. What a step reads and writes stays where it is: weights, the optimizer's moments, the batches to come, and every
member's steps, which may change between two replays. An image network's steps are numbers inside of the graph: other
ones need another capture, so while they keep changing nothing is captured. Without a GPU the same step runs as it is
written.

Shapes: S members, B samples, N steps (room for them: a power of two).
"""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from windermere._torch_private import note_non_finite
from windermere.errors import is_device_failure
from windermere.nn import ode_blocks
from windermere.paper.architectures import ImageField, SphereField
from windermere.paper.fast.fused import can_walk
from windermere.paper.training.batches import Batches
from windermere.paper.training.classifying import Stepped
from windermere.paper.training.ensemble import Ensemble
from windermere.paper.training.evaluation import Labelled, member_losses
from windermere.solvers import Adaptive, Solver
from windermere.solvers.grid import Grid, Steps, make_grid

MOST_AT_ONCE, FIRST_AT_ONCE, SECONDS_AT_ONCE = 256, 16, 0.25
"""Steps between two looks at the clock and at a stop sign: so many at most, and about so long."""
WARM_UP = 3
"""Steps before a capture, in which libraries set themselves up."""
SETTLED = 100
"""Training steps for which an image network's solvers must have stayed the same before others are captured than the
first: two of the paper's reviews."""


def can_capture(ensemble: Ensemble, solver: Solver, gradient: str, inputs: Tensor) -> bool:
    """Whether training steps can be captured: on a GPU, with a fixed grid, and a field (of images or spheres) that has
    a walk for this gradient."""
    if isinstance(solver, Adaptive):
        return False
    field, z = ensemble.first_solve(inputs)
    if isinstance(field.field, ImageField):
        return z.is_cuda and gradient in ("backprop", "checkpoint")
    return z.is_cuda and gradient == "backprop" and isinstance(field.field, SphereField)


def fewer_steps_cost_less(ensemble: Ensemble, solver: Solver, inputs: Tensor) -> bool:
    """Whether members that walk together may have very different steps: the kernels stop each one where its steps end,
    other walks take all of them as far as the longest."""
    field, z = ensemble.first_solve(inputs[:1].expand(ensemble.size, 1, *inputs.shape[1:]))
    return isinstance(field.field, SphereField) and can_walk(solver.tableau, z, list(field.tensors.values()))


def steps_lie_on_device(ensemble: Ensemble, inputs: Tensor) -> bool:
    """Whether captured steps may change in place."""
    return not isinstance(ensemble.first_solve(inputs)[0].field, ImageField)


class CapturedSteps:
    """Training steps of an ensemble, whose members may each have a solver, all of one method and for times (0, 1).

    The first step with a loss or a gradient that is not finite changes nothing, nor do those after it.
    """

    def __init__(self, ensemble: Ensemble, optimizer: Optimizer, training_set: Labelled, batches: Batches) -> None:
        """`batches` are to lie on the host: drawing them must not wait for the device."""
        self.ensemble, self.optimizer = ensemble, optimizer
        self.inputs, self.labels = training_set
        members, device = ensemble.size, ensemble.device
        self.chosen = torch.zeros(MOST_AT_ONCE, members, batches.batch_size, dtype=torch.int64, device=device)
        self.good = torch.zeros(1, dtype=torch.int64, device=device)
        """How many good steps were made since the batches were laid out: the place of the next step's batch."""
        self.bad, self.one = (torch.full((), value, dtype=torch.float32, device=device) for value in (0.0, 1.0))
        """`bad` is 1 once any step was not good, else 0 (a float32, as optimizers take it)."""
        self.solvers: tuple[Solver, ...] = ()
        self.evaluations = np.zeros(members, np.int64)
        """How often one training step evaluates the field, by member."""
        self.recomputes = any(block.gradient == "checkpoint" for block in ode_blocks(ensemble.template))
        self.in_place = steps_lie_on_device(ensemble, self.inputs)
        self.grid: Grid | None = None
        """Every member's steps, where they do not lie on the device."""
        self.stood, self.patience = 0, 0
        """For how many training steps these solvers have stood, and how many there must be before a capture."""
        self.steps = Steps(self.inputs.new_zeros(members, 0), torch.zeros(members, dtype=torch.int32, device=device))
        self.graph: torch.cuda.CUDAGraph | None = None
        self.last: Stepped | None = None
        self.at_once, self.given_up = FIRST_AT_ONCE, False
        self._drawn = lru_cache(maxsize=2)(lambda start, count: _pinned(batches.several(start, count), device))

    def use(self, solvers: Sequence[Solver]) -> None:
        """Lay every member's steps out, in place where there is room for them."""
        if self.solvers == tuple(solvers):
            return
        grid = make_grid([s for s in solvers if not isinstance(s, Adaptive)], (0.0, 1.0))
        taken = np.broadcast_to(grid.taken, self.ensemble.size)
        if self.in_place:
            self._lay_out_steps(grid, taken)
        else:
            self.forget()
            self.grid, self.stood, self.patience = grid, 0, SETTLED if self.solvers else 0
        self.solvers, self.evaluations = tuple(solvers), taken * solvers[0].tableau.propagating

    def _lay_out_steps(self, grid: Grid, taken: NDArray[np.int64]) -> None:
        self._make_room(int(taken.max()))
        sizes = np.zeros(self.steps.sizes.shape)
        sizes[:, : grid.steps.shape[-1]] = grid.steps
        self.steps.sizes.copy_(torch.from_numpy(sizes))
        self.steps.counts.copy_(torch.from_numpy(taken.astype(np.int32)))

    def _make_room(self, steps: int) -> None:
        if steps > self.steps.sizes.shape[1]:
            room = 1 << (steps - 1).bit_length()
            self.steps = self.steps._replace(sizes=self.inputs.new_zeros(self.ensemble.size, room))
            self.forget()

    def forget(self) -> None:
        """What was captured reads or writes tensors that are no longer those to train with."""
        self.graph = self.last = None

    def run(self, iteration: int, most: int) -> int:
        """Train from `iteration` on, for so many steps at most; returns how many went well.

        They are as many as were taken unless a loss or a gradient was not finite: see `stopped`.
        """
        count = min(most, self.at_once)
        self._lay_out(iteration, count)
        if self.graph is None and self.stood >= self.patience and not self.given_up:
            self._try_to_capture()
        begun = time.perf_counter()
        for _ in range(count):
            if self.graph is None:
                self.last = self.step()
            else:
                self.graph.replay()
        self._drawn(iteration + count, count)  # the next ones, while the device is at work
        good = int(self.good)  # waits for the device
        pace = (time.perf_counter() - begun) / count
        self.at_once = max(1, min(MOST_AT_ONCE, int(SECONDS_AT_ONCE / pace)))
        self.stood += good
        return good

    def count(self, good: int, totals: dict[str, NDArray[np.int64]], members: slice = slice(None)) -> None:
        """Add what so many good steps took to the totals of some members."""
        totals["forward"] += good * self.evaluations[members]
        if self.recomputes:
            totals["recomputed"] += good * self.evaluations[members]

    @property
    def stopped(self) -> bool:
        """Whether the last run met a loss or a gradient that is not finite."""
        return bool(self.bad)

    def step(self) -> Stepped:
        """One training step, in which nothing waits for the device: this is what is captured."""
        chosen = self.chosen.index_select(0, self.good).squeeze(0)
        x, y = self.inputs[chosen], self.labels[chosen]
        path = self.steps if self.grid is None else self.grid
        logits = self.ensemble.walked(x, self.solvers[0].tableau, path)
        losses = member_losses(logits, y)
        found = torch.autograd.grad(losses.sum(), self.ensemble.parameters())
        gradients = [gradient.contiguous() for gradient in found]  # fused optimizers take entries as they lie
        seen = Stepped(losses.detach(), logits.detach(), y)
        note_non_finite([seen.losses, *gradients], self.bad, self.one)
        self._update(gradients)
        self.good += self.bad == 0
        return seen

    def _update(self, gradients: Sequence[Tensor]) -> None:
        """The optimizer's step; with `found_inf` it changes neither parameters nor moments."""
        for parameter, gradient in zip(self.ensemble.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.found_inf = self.bad  # type: ignore[attr-defined]
        try:
            self.optimizer.step()
        finally:
            del self.optimizer.found_inf  # type: ignore[attr-defined]
            self.optimizer.zero_grad()

    def _lay_out(self, iteration: int, count: int) -> None:
        self.chosen[:count].copy_(self._drawn(iteration, count), non_blocking=True)
        self.good.zero_()
        self.bad.zero_()

    def _try_to_capture(self) -> None:
        before = self._optimizer_steps()
        try:
            self._capture()
        except RuntimeError as error:  # CUDA's, of whatever kind: nothing was trained, and only speed is lost
            if is_device_failure(error):
                raise
            self.given_up = True
            self._count_steps_from(before)
            why = str(error).splitlines()[0]
            warnings.warn(f"steps cannot be captured on this device, and are taken one by one: {why}", stacklevel=6)
        self.bad.zero_()

    def _optimizer_steps(self) -> dict[Tensor, Tensor]:
        """How many steps the optimizer has counted, by parameter, where it counts them."""
        state = self.optimizer.state
        return {p: state[p]["step"].clone() for p in self.ensemble.parameters() if "step" in state.get(p, {})}

    def _count_steps_from(self, before: Mapping[Tensor, Tensor]) -> None:
        """Undo what an update that broke off has counted: the next one would be another one without a word."""
        for parameter, slots in self.optimizer.state.items():
            if "step" in slots:
                slots["step"].copy_(before.get(parameter, torch.zeros_like(slots["step"])))

    def _capture(self) -> None:
        """Captures a step as PyTorch's notes on CUDA graphs say. Its steps count as bad: they change nothing."""
        if not self.inputs.is_cuda:
            return
        with torch.cuda.device(self.inputs.device):
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._warm_up()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with _capturable(self.optimizer), torch.cuda.graph(graph):
                self.last = self.step()
        self.graph = graph

    def _warm_up(self) -> None:
        self.bad.fill_(1.0)
        for _ in range(WARM_UP):
            self.step()


@contextmanager
def _capturable(optimizer: Optimizer) -> Iterator[None]:
    """Fused optimizers are; they only want to be told, and to be told otherwise when they run uncaptured."""
    for group in optimizer.param_groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in optimizer.param_groups:
            group["capturable"] = False


def _pinned(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.pin_memory() if device.type == "cuda" else tensor
