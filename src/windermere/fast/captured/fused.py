"""What lies between evaluations of a field, by few kernels: for states of one group in float32 on a GPU."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from windermere.fast.captured.tries import Tries

MOST_TERMS = 7
WIDTH = 16
"""Room for the times of a step's stages and its size; a power of two."""


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def can_fuse(like: Tensor, groups: tuple[int, ...], stages: int) -> bool:
    """Whether the kernels take steps of such states."""
    plain = like.is_cuda and like.dtype == torch.float32 and not groups
    return plain and stages <= MOST_TERMS and like.numel() < 2**31 and has_triton()


def _programs(size: int) -> tuple[int]:
    from windermere.fast.captured import kernels

    return (-(-size // kernels.BLOCK),)


def _terms(weights: Sequence[float], rates: Sequence[Tensor], like: Tensor) -> tuple[int, list[Any]]:
    """How many terms there are, and all arguments of the kernels that are about them."""
    pairs = [(float(w), k.contiguous()) for w, k in zip(weights, rates, strict=False) if w != 0.0]
    rest = MOST_TERMS - len(pairs)
    return len(pairs), [*(k for _, k in pairs), *[like] * rest, *(w for w, _ in pairs), *[0.0] * rest]


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
    from windermere.fast.captured import kernels

    like = rates[0] if base is None else base
    found = torch.empty_like(like, memory_format=torch.contiguous_format) if out is None else out
    count, terms = _terms(weights, rates, found)
    size = found.numel()
    given = (found, found if base is None else base, h, number, size, count, advance)
    kernels.move[_programs(size)](*given, *terms, BASED=base is not None, BLOCK=kernels.BLOCK)
    return found


def fetch(z: Tensor, states: Tensor, table: Tensor, row: Tensor, number: Tensor, *, stores: bool, loads: bool) -> None:
    """The next step's row of the table; its state is kept, or is fetched from those kept."""
    from windermere.fast.captured import kernels

    given = (z, states, table, row, number, z.numel(), table.shape[1])
    kernels.fetch[_programs(z.numel())](*given, STORES=stores, LOADS=loads, WIDTH=WIDTH, BLOCK=kernels.BLOCK)


class FusedTry:
    """The kernels of an adaptive try, and their memory."""

    def __init__(self, tries: "Tries") -> None:
        like, stages = tries.motion.like, tries.motion.tableau.stages
        self.tries, self.size, self.stages = tries, like.numel(), stages
        self.row = like.new_zeros(stages + 1)
        """The times of the try's stages, and its size."""
        self.scratch = torch.zeros(6, dtype=torch.float64, device=like.device)
        """The size tried, with its sign, where it leads, whether it is tried, whether accepted, and its number."""
        self.partial = torch.zeros(_programs(self.size)[0], dtype=torch.float64, device=like.device)

    def aim(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """The times of the stages and the size of the step to try."""
        from windermere.fast.captured import kernels

        tries = self.tries
        given = (tries.numbers, tries.seen, tries.place.number, tries.fractions, self.row, self.scratch)
        kernels.aim[(1,)](*given, self.stages, tries.room, KEPT=tries.kept, WIDTH=WIDTH, num_warps=1)
        return self.row[:-1].unbind(0), self.row[-1]

    def decide(self, stepped: Tensor, rates: Sequence[Tensor]) -> None:
        """Whether the try is accepted, by its estimated error."""
        from windermere.fast.captured import kernels

        tries, tableau = self.tries, self.tries.motion.tableau
        count, terms = _terms(tableau.error_weights, rates, tries.z)
        given = (self.partial, tries.z, stepped, self.row[-1:], tries.numbers, self.size, count)
        kernels.measure[_programs(self.size)](*given, *terms, BLOCK=kernels.BLOCK)
        state = (
            self.partial,
            tries.numbers,
            tries.limits,
            self.scratch,
            tries.costs,
            tries.seen,
            tries.known.view(torch.int8),
        )
        kept = (tries.place.number, tries.table, tries.nodes, self.row, len(self.partial), self.size, self.stages)
        kernels.decide[(1,)](
            *(*state, *kept, float(tableau.embedded_order + 1)),
            KEPT=tries.kept,
            KNOWS=tries.knows,
            REUSE=tries.reuse,
            WIDTH=WIDTH,
            LOOP=256,
            num_warps=4,
        )

    @property
    def accepted(self) -> Tensor:
        return self.scratch[4] != 0

    def commit(self, stepped: Tensor, last: Tensor) -> None:
        """Go on from where an accepted try led."""
        from windermere.fast.captured import kernels

        tries = self.tries
        given = (tries.z, stepped, tries.k, last.contiguous(), tries.states, self.scratch, self.size)
        kernels.commit[_programs(self.size)](*given, KEPT=tries.kept, REUSE=tries.reuse, BLOCK=kernels.BLOCK)
