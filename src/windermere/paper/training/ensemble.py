"""Members of one architecture as one model: on a GPU S seeds cost little more than one. S = 1 is the same code.

The field is batched over members, never the solver's loop. Shapes: S members, B samples.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from windermere.errors import UsageError
from windermere.nn import ODEBlock
from windermere.paper.architectures import walk_of
from windermere.paper.stacked import StackedField
from windermere.solvers import Solver, Tableau, final_state, solve
from windermere.solvers.grid import Grid, Steps

Solving: TypeAlias = Callable[[ODEBlock, StackedField, Tensor], Any]
"""How a block is solved: from its states to those that it hands on."""


class Ensemble:
    """S models of one architecture with their parameters stacked along a leading member axis."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        self.template, self.size = _template(members), len(members)
        states = [dict(member.named_parameters()) for member in members]
        self.tensors = {
            name: torch.stack([state[name].detach() for state in states]).requires_grad_(parameter.requires_grad)
            for name, parameter in states[0].items()
        }
        self._layers = _with_tensors(self.template, self.tensors)

    def subset(self, members: Sequence[int], dtype: torch.dtype | None = None) -> "Ensemble":
        """Some members by themselves, with copies of their parameters that need no gradients."""
        part = copy.copy(self)
        part.size = len(members)
        part.tensors = {name: tensor.detach()[list(members)].to(dtype) for name, tensor in self.tensors.items()}
        part._layers = _with_tensors(self.template, part.tensors)
        return part

    def first_solve(self, x: Tensor) -> tuple[StackedField, Tensor]:
        """The field of the first ODEBlock, and the states it starts from."""
        for layer, tensors in self._layers:
            if isinstance(layer, ODEBlock):
                return StackedField(layer.field, tensors), x
            x = apply(layer, tensors, x)
        raise UsageError("this ensemble has no ODEBlock inside")

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
        """One member as a plain module, with a copy of its parameters."""
        model = copy.deepcopy(self.template)
        model.load_state_dict({name: tensor[index] for name, tensor in self.tensors.items()})
        return model

    def __call__(self, x: Tensor, solvers: Sequence[Solver]) -> Tensor:
        """[S, B, ...] to [S, B, classes]; every ODEBlock inside uses each member's own solver."""
        return self._through(x, partial(_solved, solvers), self._layers)

    def features(self, x: Tensor, solvers: Sequence[Solver]) -> Tensor:
        """What the last layer is given."""
        return self._through(x, partial(_solved, solvers), self._layers[:-1])

    @property
    def last(self) -> tuple[nn.Module, dict[str, Tensor]]:
        """The last layer, with its own parameters."""
        return self._layers[-1]

    def walked(self, x: Tensor, tableau: Tableau, steps: Grid | Steps) -> Tensor:
        """The same over a grid, or by steps that lie on the device: nothing is checked or counted, nothing waits."""
        return self._through(x, partial(_walked, tableau, steps), self._layers)

    def _through(self, x: Tensor, solving: Solving, layers: Sequence[tuple[nn.Module, dict[str, Tensor]]]) -> Tensor:
        for layer, tensors in layers:
            if isinstance(layer, ODEBlock):
                x = solving(layer, StackedField(layer.field, tensors), x)
            else:
                x = apply(layer, tensors, x)
        return x


def _with_tensors(template: nn.Module, tensors: dict[str, Tensor]) -> list[tuple[nn.Module, dict[str, Tensor]]]:
    """Every layer with its own parameters, stacked; an ODEBlock with those of its field."""
    places = [(f"{at}field." if isinstance(layer, ODEBlock) else at, layer) for at, layer in _layers(template)]
    return [
        (layer, {name.removeprefix(at): tensor for name, tensor in tensors.items() if name.startswith(at)})
        for at, layer in places
    ]


def _template(members: Sequence[nn.Module]) -> nn.Sequential:
    """The first member, if all of them can be walked layer by layer with stacked parameters."""
    if not members or not all(_is_walkable(member) for member in members):
        raise UsageError("an ensemble is made of nn.Sequential models: it walks their layers one by one")
    template: nn.Sequential = members[0]  # type: ignore[assignment]
    shapes = [{name: parameter.shape for name, parameter in member.named_parameters()} for member in members]
    if any(other != shapes[0] for other in shapes):
        raise UsageError("the members of an ensemble share one architecture: parameters of the same names and shapes")
    if any(True for _ in template.buffers()):
        raise UsageError("an ensemble cannot hold layers with running statistics (buffers)")
    if len(list(template.named_parameters(remove_duplicate=False))) > len(shapes[0]):
        raise UsageError("an ensemble cannot hold layers that share parameters: give each its own")
    walked = {layer for _, layer in _layers(template)}
    if any(isinstance(module, ODEBlock) and module not in walked for module in template.modules()):
        raise UsageError(
            "an ensemble reaches an ODEBlock only as a layer of an nn.Sequential, not inside of other modules"
        )
    return template


def _is_walkable(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _layers(model: nn.Module, at: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers in order, those of a Sequential inside too, each with the prefix of its parameters' names."""
    inside = model.named_modules(remove_duplicate=False)  # named_children leaves out an activation that is used twice
    for name, layer in inside:
        if not name or "." in name:
            continue
        if _is_walkable(layer):
            yield from _layers(layer, f"{at}{name}.")
        else:
            yield f"{at}{name}.", layer


def _solved(solvers: Sequence[Solver], block: ODEBlock, field: StackedField, z: Tensor) -> Any:
    if len(block.times) == 2:
        return final_state(field, z, solvers, block.times, gradient=block.gradient)
    # All states, as from the block itself, but with members first: [S, times, B, ...].
    solution = solve(field, z, solvers, block.times, gradient=block.gradient, interpolate=block.interpolate)
    return torch.as_tensor(solution.states).movedim(0, 1)


def _walked(tableau: Tableau, steps: Grid | Steps, block: ODEBlock, field: StackedField, z: Tensor) -> Tensor:
    walk = walk_of(field, block.gradient)
    end = walk(tableau, steps, z) if walk is not None else None
    if end is None:
        raise UsageError("this field has no walk of its own for this gradient: solve it instead")
    return end


def apply(layer: nn.Module, tensors: dict[str, Tensor], x: Tensor) -> Any:
    """A layer with each member's parameters: [S, B, ...] in, [S, B, ...] out."""
    if type(layer) is nn.Linear and "bias" in tensors and x.ndim == 3:
        return torch.baddbmm(tensors["bias"].unsqueeze(1), x, tensors["weight"].transpose(1, 2))
    if type(layer) is nn.Flatten:
        start, end = (axis if axis < 0 else axis + 1 for axis in (layer.start_dim, layer.end_dim))
        return x.flatten(start, end)
    return vmap(lambda own, xs: functional_call(layer, own, (xs,)))(tensors, x)
