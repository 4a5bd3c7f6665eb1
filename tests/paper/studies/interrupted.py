"""A process that is stopped before one of its changes to files, whichever code makes them: Python tells audit hooks."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.copyfile", "shutil.copymode", "shutil.rmtree"}
_LEFT: list[Iterator[int]] = []
"""While it counts, the number of changes that are still to come; a hook cannot be taken away again."""


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _LEFT and event in CHANGES and next(_LEFT[0]) == 0:
        _LEFT.clear()  # the process is gone: what tidies up in its name is not stopped
        raise KeyboardInterrupt


sys.addaudithook(_hook)


def stopped_before_change(number: int, act: Callable[[], object]) -> bool:
    """Whether the process came so far; nothing that it would change from then on is changed."""
    _LEFT[:] = [iter(range(number, -1, -1))]
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        _LEFT.clear()
    return False
