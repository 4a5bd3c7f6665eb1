"""Where a field takes samples, with fast paths and without."""

from typing import Any

import torch
from torch import Tensor

import windermere as wm

EULER = wm.FixedStep("euler", step=1 / 4)


def end(field: Any, z: Tensor, solver: Any = EULER) -> Tensor:
    return torch.as_tensor(wm.solve(field, z, solver).final)


def slow(field: Any, z: Tensor, solver: Any = EULER) -> Tensor:
    with wm.fast_paths(False):
        return end(field, z, solver)
