"""Processes to hand work to: what the driver needs of them, whoever runs them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from windermere.paper.cluster.address import address_or_here, check_address
from windermere.paper.cluster.work import Ending, Resources, Work
from windermere.paper.training import Report


@dataclass(frozen=True)
class Beat:
    """A sign of life of a process that is at work."""

    where: str
    reports: Mapping[int, Report]
    """How far its runs are, by their place in the work; only those that are further than at the beat before."""


class Pool(Protocol):
    """Attempts are known by their labels."""

    def check(self, resources: Resources) -> None:
        """Refuse what no node has: it would wait for ever."""

    def submit(self, label: str, work: Work) -> None:
        """Hand out the work; it begins when there is room for it."""

    def wait(self, seconds: float) -> Sequence[tuple[str, Ending]]:
        """The attempts that have ended, as soon as one has; after so many seconds, perhaps none."""

    def beats(self) -> Mapping[str, Beat]:
        """Signs of life since this was last asked."""

    def abandon(self, label: str) -> None:
        """Expect no more of an attempt."""

    def stop(self, reason: str, unbegun: Sequence[str]) -> None:
        """Let all attempts stop with a checkpoint, and those that have not begun not begin."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where to train, if not here."""

    open: Callable[[], AbstractContextManager[Pool]]
    """Called where there is something to train."""
    tell: Callable[[str], None] = lambda sentence: None
    """Is told what went wrong elsewhere, and what follows."""
    patience: float = 60.0
    """Seconds without a sign of life after which a process that has begun is taken for lost."""
    gpu_share: float | None = None
    """How much of a GPU each run is given; None guesses."""


def open_pool(address: str | None) -> AbstractContextManager[Pool]:
    """Ray's: of the cluster at this address or at RAY_ADDRESS, or on this machine."""
    check_address(address)
    from windermere.paper.cluster.ray_pool import open_ray

    return open_ray(address_or_here(address))
