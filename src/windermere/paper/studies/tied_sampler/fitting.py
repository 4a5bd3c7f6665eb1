"""Training a network on random batches, kept on disk as it goes where that is wanted: a process that is killed goes on
to the same weights, bit by bit on a CPU."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from windermere.errors import DivergedError, RunError
from windermere.paper.training.checkpoint import pack, unpack
from windermere.records import read_tensors, write_tensors

KEPT_EVERY = 250
"""Iterations between two times that it is written to disk."""
GENERATOR = "generator"
Loss: TypeAlias = Callable[[torch.Generator], Tensor]
"""The loss on a batch that the generator draws."""


@dataclass(frozen=True)
class Batches:
    """How large they are, and the learning rate that they begin with; it falls to 0 along a cosine."""

    size: int
    rate: float


@dataclass(frozen=True)
class Parameters:
    """A network's, as checkpoints ask for them."""

    model: nn.Module

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_parameters())

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.model.load_state_dict(tensors)


class Fit:
    """A training by Adam."""

    def __init__(self, model: nn.Module, batches: Batches, seed: int, iterations: int) -> None:
        self.model, self.iterations, self.done = model, iterations, 0
        self.asked = {"seed": seed, "iterations": iterations, "size": batches.size, "rate": batches.rate}
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=batches.rate)
        self.schedule = CosineAnnealingLR(self.optimizer, iterations)

    def run(self, loss: Loss, kept: Path | None = None) -> None:
        """Train to the end, from where the file has it."""
        if kept is not None and kept.exists():
            self.load(kept)
        while self.done < self.iterations:
            self.iterate(loss(self.generator))
            if kept is not None and (self.done % KEPT_EVERY == 0 or self.done == self.iterations):
                self.save(kept)

    def iterate(self, loss: Tensor) -> None:
        if not bool(loss.isfinite()):
            at = self.done + 1
            raise DivergedError(f"the loss is not finite in iteration {at}", iteration=at)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.schedule.step()
        self.done += 1

    def save(self, path: Path) -> None:
        tensors = {**pack(Parameters(self.model), self.optimizer), GENERATOR: self.generator.get_state()}
        write_tensors(path, tensors, {**self.asked, "done": self.done, "lr": self.optimizer.param_groups[0]["lr"]})

    def load(self, path: Path) -> None:
        """Take over what was saved, of this training and no other."""
        file = read_tensors(path)
        if {name: file.meta.get(name) for name in self.asked} != self.asked:
            raise RunError(f"{path} was trained in another way than this version of the study does: take it away")
        own = {name: each for name, each in file.tensors.items() if name != GENERATOR}
        unpack(own, Parameters(self.model), self.optimizer)
        self.generator.set_state(file.tensors[GENERATOR])
        self.done = self.schedule.last_epoch = file.meta["done"]
        self.optimizer.param_groups[0]["lr"] = file.meta["lr"]
