"""Data-parallel training: every rank sees another batch, and all must train with the same precision."""

from dataclasses import replace

import torch
import torch.distributed as dist

from windermere._torch_private import accelerator
from windermere.adaptation.controller import Score


def averaged(score: Score) -> Score:
    """The score over all ranks' batches, the same on every rank; by itself where training is not distributed.

    Every rank must call it: a controller that is told only such scores decides alike everywhere, and so asks alike.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return score
    means = torch.tensor([score.value, score.distance or 0.0], dtype=torch.float64, device=_device())
    most = torch.tensor([score.steps or 0, score.evaluations], dtype=torch.int64, device=_device())
    dist.all_reduce(means, op=dist.ReduceOp.SUM)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)  # the slowest rank is the one that all wait for
    value, distance = (means / dist.get_world_size()).tolist()
    steps, evaluations = most.tolist()
    kept = None if score.distance is None else distance
    told = None if score.steps is None else steps
    return replace(score, value=value, distance=kept, steps=told, evaluations=evaluations)


def _device() -> torch.device:
    """NCCL reduces nothing that lies on the CPU."""
    if "cpu:" in dist.get_backend_config():
        return torch.device("cpu")
    return accelerator()
