"""The field of an ensemble: one field, with the parameters of all members."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, vmap


@dataclass(frozen=True)
class StackedField:
    """One field with each member's parameters: [S, B, ...] in, [S, B, ...] out."""

    field: nn.Module
    tensors: Mapping[str, Tensor]
    """By their names in the field, with a leading member axis."""

    def __call__(self, t: Tensor, z: Tensor) -> Any:
        """By vmap over the members."""

        def one(tensors: dict[str, Tensor], t: Tensor, z: Tensor) -> Any:
            return functional_call(self.field, tensors, (t, z))

        if t.numel() == len(z):
            t = t.flatten()  # a time for each member: to the field it is a number, as for a model alone
        return vmap(one, in_dims=(0, 0 if t.ndim else None, 0))(dict(self.tensors), t, z)

    def parameters(self) -> Iterable[Tensor]:
        """What it depends on."""
        return self.tensors.values()
