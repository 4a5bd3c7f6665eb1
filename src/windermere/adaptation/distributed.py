"""Data-parallel training: every rank sees another batch, and all must train with the same precision."""

import json
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist

from windermere._torch_private import accelerator
from windermere.adaptation.controller import Controller, ControllerState, Kind, review
from windermere.adaptation.score import FAILED, Score, as_score
from windermere.errors import SolverError, ToleranceError


def shared_review(
    controller: Controller[Kind], state: ControllerState, trained: Score, score: Callable[[Kind], Score]
) -> ControllerState:
    """`review` for data-parallel training: every rank calls it, on its own batch, and all get the same next state.

    Scores are averaged over all ranks of `torch.distributed`, and the decision is that of rank 0. A check that cannot
    be solved on one rank has failed on all. Where training is not distributed it is `review`.

    >>> import windermere as wm
    >>> controller = wm.StepAdaptation(train="euler", check="midpoint")
    >>> state = controller.start(1 / 8)
    >>> state = wm.shared_review(controller, state, wm.Score(value=0.9), lambda solver: wm.Score(value=0.7))
    >>> print(controller.solver(state))
    euler, h = 1/16
    """

    def told(solver: Kind) -> Score:
        try:
            found = as_score("score(solver) returns", score(solver))
        except ToleranceError:  # finer than the dtype resolves, and so on every rank
            raise
        except SolverError:  # or the others would wait for this rank for ever
            found = FAILED
        return averaged(found)

    own = as_score("trained is", trained)
    return of_first_rank(review(controller, of_first_rank(state), averaged(own), told))


def averaged(score: Score) -> Score:
    """The score over all ranks' batches, the same on every rank; by itself where training is not distributed.

    Every rank must call it: a controller that is told only such scores decides alike everywhere, and so asks alike.
    """
    if not _is_distributed():
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


def of_first_rank(state: ControllerState) -> ControllerState:
    """Rank 0's state on every rank, so that none can part from the others, whatever it was restarted from."""
    if not _is_distributed():
        return state
    data = json.dumps(state.to_dict()).encode() if dist.get_rank() == 0 else b""
    length = torch.tensor([len(data)], dtype=torch.int64, device=_device())
    dist.broadcast(length, src=0)
    text = torch.zeros(int(length), dtype=torch.uint8, device=_device())
    if data:
        text.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    dist.broadcast(text, src=0)
    return ControllerState.from_dict(json.loads(bytes(text.tolist())))


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def _device() -> torch.device:
    """NCCL reduces nothing that lies on the CPU."""
    if "cpu:" in dist.get_backend_config():
        return torch.device("cpu")
    return accelerator()
