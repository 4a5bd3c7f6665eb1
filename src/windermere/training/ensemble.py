"""Members of one architecture as one model: S seeds cost little more than one. S = 1 is the same code.

The field is batched over members, never the solver's loop. Shapes: S members, B samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from windermere.errors import UsageError
from windermere.models import ODEBlock, Stackable
from windermere.solvers import Prepared, Solver, solve


@dataclass(frozen=True)
class StackedField:
    """One field with each member's parameters: [S, B, ...] in, [S, B, ...] out."""

    field: nn.Module
    tensors: dict[str, Tensor]

    def __call__(self, t: Tensor, z: Tensor) -> Any:
        return self.prepare().rate(t, z)

    def prepare(self) -> Prepared:
        if isinstance(self.field, Stackable):
            return self.field.prepare_stacked(self.tensors)

        def one(tensors: dict[str, Tensor], t: Tensor, z: Tensor) -> Any:
            return functional_call(self.field, tensors, (t, z))

        def rate(t: Tensor, z: Tensor) -> Any:
            return vmap(one, in_dims=(0, 0 if t.ndim else None, 0))(self.tensors, t, z)

        return Prepared(rate, tuple(self.tensors.values()))


class Ensemble:
    """S models of one architecture with their parameters stacked along a leading member axis."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        template = members[0]
        if not isinstance(template, nn.Sequential):
            raise UsageError("an ensemble is made of nn.Sequential models: it walks their layers one by one")
        if any(True for _ in template.buffers()):
            raise UsageError("an ensemble cannot hold layers with running statistics (buffers)")
        self.template = template
        self.size = len(members)
        states = [dict(member.named_parameters()) for member in members]
        self.tensors = {
            name: torch.stack([state[name].detach() for state in states]).requires_grad_() for name in states[0]
        }

    def parameters(self) -> list[Tensor]:
        return list(self.tensors.values())

    @property
    def device(self) -> torch.device:
        return self.parameters()[0].device

    @property
    def dtype(self) -> torch.dtype:
        return self.parameters()[0].dtype

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over stacked parameters, as `tensors` holds them."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(tensors[name])

    def member(self, index: int) -> nn.Module:
        """One member's parameters in the (shared) template: a plain module, until the next call."""
        self.template.load_state_dict({name: tensor[index] for name, tensor in self.tensors.items()})
        return self.template

    def __call__(self, x: Tensor, solvers: Sequence[Solver]) -> Tensor:
        """[S, B, ...] to [S, B, classes]; every ODEBlock inside uses each member's own solver."""
        for name, layer in self.template.named_children():
            own = {k.removeprefix(f"{name}."): v for k, v in self.tensors.items() if k.startswith(f"{name}.")}
            x = _apply(layer, own, x, solvers)
        return x


def _apply(layer: nn.Module, tensors: dict[str, Tensor], x: Tensor, solvers: Sequence[Solver]) -> Any:
    if isinstance(layer, ODEBlock):
        field = StackedField(layer.field, {k.removeprefix("field."): v for k, v in tensors.items()})
        return solve(field, x, solvers, layer.times, gradient=layer.gradient).final
    if isinstance(layer, nn.Linear) and layer.bias is not None and x.ndim == 3:
        return torch.baddbmm(tensors["bias"].unsqueeze(1), x, tensors["weight"].transpose(1, 2))
    if isinstance(layer, nn.Flatten):
        return x.flatten(layer.start_dim + 1, layer.end_dim if layer.end_dim < 0 else layer.end_dim + 1)
    return vmap(lambda own, xs: functional_call(layer, own, (xs,)))(tensors, x)
