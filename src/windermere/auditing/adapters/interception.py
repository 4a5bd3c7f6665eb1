"""Functions of another library, replaced while an audit watches, and for that audit alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from windermere.nn.copies import number_of


class Watcher(Protocol):
    """Who answers the calls of one audited pass."""

    copy: int | None
    """The number of the copied model that is audited."""
    missed: int
    """Solves of this model in threads of its own, where nobody answers for it."""


W = TypeVar("W", bound=Watcher)


class Interception(Generic[W]):
    """`replace` puts the replacements in place and returns what undoes that: the first to watch does the one, the last
    to leave the other. Replacements ask `watcher` who calls, and where that is nobody do as the library does: other
    threads of the process solve as ever."""

    def __init__(self, replace: Callable[[], Callable[[], None]]) -> None:
        self._replace = replace
        self._restore: Callable[[], None] = lambda: None
        self._lock = Lock()
        self._open: list[W] = []
        self._here: ContextVar[W | None] = ContextVar("who watches in this thread", default=None)

    @contextmanager
    def watching(self, watcher: W) -> Iterator[None]:
        """Inside, this watcher answers for this thread."""
        self._enter(watcher)
        token = self._here.set(watcher)
        try:
            yield
        finally:
            self._here.reset(token)
            self._leave(watcher)

    def watcher(self, field: Any) -> W | None:
        """Who answers for a solve of this field here; where nobody does, those whose model it is of are told."""
        here = self._here.get()
        if here is None and (number := number_of(field)) is not None:
            with self._lock:
                for watcher in self._open:
                    watcher.missed += watcher.copy == number
        return here

    def _enter(self, watcher: W) -> None:
        with self._lock:
            if not self._open:
                self._restore = self._replace()
            self._open.append(watcher)

    def _leave(self, watcher: W) -> None:
        with self._lock:
            self._open = [other for other in self._open if other is not watcher]
            if not self._open:
                self._restore()
