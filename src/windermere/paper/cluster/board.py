"""Where processes at work leave their signs of life, and learn that they are to stop. It imports no PyTorch."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Left: TypeAlias = tuple[str, dict[int, Mapping[str, Any]]]
"""Where a process is, and plain reports by run."""


class Board:
    """One for each session, in a process of its own."""

    def __init__(self) -> None:
        self.left: dict[str, Left] = {}
        self.reason: str | None = None

    def beat(self, label: str, where: str, reports: Mapping[int, Mapping[str, Any]]) -> str | None:
        """Leave a sign of life; returns why to stop, or None."""
        before = self.left.get(label, (where, {}))[1]
        self.left[label] = (where, {**before, **reports})
        return self.reason

    def read(self) -> dict[str, Left]:
        """What was left since the last time."""
        left, self.left = self.left, {}
        return left

    def stop(self, reason: str) -> None:
        self.reason = reason
