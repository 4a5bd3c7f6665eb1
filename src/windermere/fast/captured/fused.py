"""What lies between evaluations of a field, by few kernels (steps.cu): for states of one group in float32 on a GPU."""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windermere.fast.captured.kernels import BLOCK, MOST_TERMS, Terms, kernels_of

if TYPE_CHECKING:
    from windermere.fast.captured.tries import Tries


def can_fuse(like: Tensor, groups: tuple[int, ...], stages: int) -> bool:
    """Whether the kernels take steps of such states."""
    plain = like.dtype == torch.float32 and not groups and stages <= MOST_TERMS and like.numel() < 2**31
    if not plain or kernels_of(like.device) is None:
        return False
    from windermere.fast.captured import trial  # which takes such steps

    return trial.are_right(like.device)


def _launch(name: str, blocks: int, like: Tensor, *given: Any) -> None:
    kernels = kernels_of(like.device)
    assert kernels is not None
    kernels.launch(name, blocks, *given)


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _terms(weights: Sequence[float], rates: Sequence[Tensor]) -> tuple[Terms, list[Tensor]]:
    """Those with a weight, and tensors that must stay until they are read."""
    pairs = [(float(w), k.contiguous()) for w, k in zip(weights, rates, strict=False) if w != 0.0]
    terms = Terms(count=len(pairs))
    for i, (w, k) in enumerate(pairs):
        terms.k[i], terms.w[i] = k.data_ptr(), w
    return terms, [k for _, k in pairs]


def move(
    base: Tensor | None,
    h: Tensor,
    weights: Sequence[float],
    rates: Sequence[Tensor],
    number: Tensor,
    *,
    out: Tensor | None = None,
    advance: int = 0,
) -> Tensor:
    """base + h sum_i w_i k_i; the step's number advances by so much."""
    like = rates[0] if base is None else base
    found = torch.empty_like(like, memory_format=torch.contiguous_format) if out is None else out
    base = None if base is None else base.contiguous()
    terms, read = _terms(weights, rates)
    size = found.numel()
    _launch("move", _blocks(size), found, found, base, h, number, size, advance, terms, read)
    return found


def fetch(z: Tensor, states: Tensor, table: Tensor, row: Tensor, number: Tensor, *, stores: bool, loads: bool) -> None:
    """The next step's row of the table; its state is kept, or is fetched from those kept."""
    given = (z, states, table, row, number, z.numel(), table.shape[1])
    _launch("fetch", _blocks(z.numel()), z, *given, stores, loads)


class FusedTry:
    """The kernels of an adaptive try, and their memory."""

    def __init__(self, tries: "Tries") -> None:
        like, stages = tries.motion.like, tries.motion.tableau.stages
        self.tries, self.size, self.stages = tries, like.numel(), stages
        self.row = like.new_zeros(stages + 1)
        """The times of the try's stages, and its size."""
        self.scratch = torch.zeros(6, dtype=torch.float64, device=like.device)
        """The size tried, with its sign, where it leads, whether it is tried, whether accepted, and its number."""
        self.partial = torch.zeros(_blocks(self.size), dtype=torch.float64, device=like.device)

    def aim(self) -> None:
        """Put the times of the stages and the size of the step to try into `row`."""
        tries = self.tries
        given = (tries.numbers, tries.seen, tries.place.number, tries.fractions, self.row, self.scratch)
        _launch("aim", 1, tries.z, *given, self.stages, tries.room, tries.kept)

    def decide(self, stepped: Tensor, rates: Sequence[Tensor]) -> None:
        """Whether the try is accepted, by its estimated error."""
        tries, tableau = self.tries, self.tries.motion.tableau
        terms, read = _terms(tableau.error_weights, rates)
        given = (self.partial, tries.z, stepped.contiguous(), self.row[-1:], tries.numbers, self.size)
        _launch("measure", len(self.partial), tries.z, *given, terms, read)
        state = (self.partial, tries.numbers, tries.limits, self.scratch, tries.costs, tries.seen, tries.known)
        kept = (tries.place.number, tries.table, tries.nodes, self.row, len(self.partial), self.size, self.stages)
        order = ctypes.c_double(tableau.embedded_order + 1)
        _launch("decide", 1, tries.z, *state, *kept, order, tries.kept, tries.knows, tries.reuse)

    @property
    def accepted(self) -> Tensor:
        return self.scratch[4] != 0

    def commit(self, stepped: Tensor, last: Tensor) -> None:
        """Go on from where an accepted try led."""
        tries = self.tries
        given = (tries.z, stepped.contiguous(), tries.k, last.contiguous(), tries.states, self.scratch, self.size)
        _launch("commit", _blocks(self.size), tries.z, *given, tries.kept, tries.reuse)
