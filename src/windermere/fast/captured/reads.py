"""What a field depends on, as it was when a solve began: its way back comes later, and must find the same."""

from collections.abc import Hashable
from typing import Any

from windermere._torch_private import times_written
from windermere.errors import UsageError
from windermere.fast.fingerprint import Fingerprint, fingerprint
from windermere.fast.look import UnknownFieldError


class Reads:
    """The tensors that a field reads in one solve; held until its way back is done, so that no other takes their
    memory."""

    def __init__(self, field: Any, print_: Fingerprint, places: tuple[int, ...]) -> None:
        self.field, self.places = field, places
        self.key: tuple[Hashable, ...] = print_.key
        self.tensors = tuple(print_.tensors[k] for k in places)
        self.written = [times_written(x) for x in self.tensors]
        self.addresses = [x.data_ptr() for x in self.tensors]

    def check(self) -> None:
        """Refuse tensors that were written to since, or moved."""
        if self.written != [times_written(x) for x in self.tensors] or self.addresses != [
            x.data_ptr() for x in self.tensors
        ]:
            raise UsageError(
                "the field's parameters, or other tensors that it reads, are no longer those of the solve (changed in "
                "place, or moved): take its gradient before that"
            )

    def are_current(self) -> bool:
        """Whether a call of the field, now, would do what it did in the solve."""
        try:
            now = fingerprint(self.field)
        except UnknownFieldError:
            return False
        same = now.key == self.key and all(now.tensors[k] is x for k, x in zip(self.places, self.tensors, strict=True))
        return same and self.written == [times_written(x) for x in self.tensors]
