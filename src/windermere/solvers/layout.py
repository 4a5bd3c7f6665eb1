"""A state, packed into one tensor, and where its groups are.

Shapes: S members, B samples; a state is [B, ...], an ensemble's is [S, B, ...]. A *group* is what has steps of its
own: all of the state (groups = ()), a member (S,), a sample (B,) or a member's sample (S, B).
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windermere.errors import UsageError

State: TypeAlias = Tensor | tuple[Tensor, ...]
AnyState = TypeVar("AnyState", Tensor, tuple[Tensor, ...], State)
"""The kind of state that is given, where the same is returned."""
Groups: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a state lies in one tensor, and where its groups are."""

    shape: torch.Size
    """Shape of the packed tensor."""
    groups: tuple[int, ...]
    """Leading axes of the packed tensor that index groups."""
    parts: tuple[torch.Size, ...] | None = None
    """Shapes of the parts where the state is a tuple."""
    lead: int = 0
    """How many leading axes index samples (member and sample); packing keeps them."""
    ensemble: bool = False
    """Whether the first axis indexes members."""
    pair: int | None = None
    """The axis that holds a state and its gradient, on an adjoint's way back; None elsewhere."""

    def regrouped(self, *, samples: bool) -> "Layout":
        """The same state with other groups: all of it or each member, and where `samples` each sample."""
        grouped = self.ensemble + samples
        if grouped > self.lead:
            raise UsageError("samples with steps of their own need a state whose parts share their leading sample axis")
        groups = tuple(self.shape[:grouped])
        return self if groups == self.groups else replace(self, groups=groups)

    def columns(self, values: NDArray[Any], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers for each group, [..., *groups], shaped so that each [*groups] broadcasts against the state."""
        tensor = torch.as_tensor(np.asarray(values, order="C"), dtype=dtype or like.dtype, device=like.device)
        return tensor.reshape(*tensor.shape, *(1,) * (len(self.shape) - len(self.groups))) if self.groups else tensor

    def samples(self, flags: Tensor) -> Tensor:
        """Which samples have any of their entries' flags set."""
        if self.pair is not None:
            flags = flags.any(dim=self.pair)
        return flags.flatten(self.lead).any(dim=-1) if flags.ndim > self.lead else flags

    def pack(self, state: State) -> Tensor:
        if isinstance(state, Tensor):
            return state
        return torch.cat([part.reshape(*part.shape[: self.lead], -1) for part in state], dim=-1)

    def unpack(self, z: Tensor, extra: int = 0) -> State:
        """The state back from the packed tensor, which may carry `extra` leading axes."""
        if self.parts is None:
            return z
        widths = [prod(shape[self.lead :]) for shape in self.parts]
        pieces = z.split_with_sizes(widths, dim=-1)
        return tuple(piece.reshape((*z.shape[:extra], *shape)) for piece, shape in zip(pieces, self.parts, strict=True))


def lay_out(state: State, *, members: int | None, samples: bool) -> Layout:
    """Find the groups of a state: `members` is the ensemble's size, `samples` gives each sample its own steps."""
    parts: tuple[Any, ...] = tuple(state) if isinstance(state, tuple | list) and state else (state,)
    ensemble = members is not None
    axes = ensemble + 1
    for part in parts:
        _check_part(part, parts[0])
        if ensemble and part.shape[:1] != (members,):
            raise UsageError(
                f"{members} solvers were given, one for each member, but the state's first axis is not {members}"
            )
    if isinstance(state, Tensor):
        whole = Layout(state.shape, state.shape[: int(ensemble)], lead=min(axes, state.ndim), ensemble=ensemble)
        return whole.regrouped(samples=True) if samples else whole
    shared = all(p.ndim >= axes and p.shape[:axes] == parts[0].shape[:axes] for p in parts)
    lead = axes if shared else int(ensemble)
    packed = torch.Size((*parts[0].shape[:lead], sum(prod(p.shape[lead:]) for p in parts)))
    return Layout(packed, (), tuple(p.shape for p in parts), lead, ensemble).regrouped(samples=samples)


def _check_part(part: Any, first: Any) -> None:
    if not isinstance(part, Tensor):
        raise UsageError(f"the state must be a tensor or a tuple of tensors, but has a {type(part).__name__}")
    if not part.dtype.is_floating_point or part.element_size() < 2:  # in 8 bits PyTorch stores, but does not compute
        advice = "take torch.view_as_real of it" if part.is_complex() else "call .float() on it"
        wide = ", of 16 bits or more" if part.dtype.is_floating_point else ""
        raise UsageError(f"the state must be of a floating dtype{wide}, not {part.dtype}: {advice}")
    if part is not first and (part.dtype, part.device) != (first.dtype, first.device):
        raise UsageError("all parts of the state must have one dtype and one device")
    check_has_values("the state", part)


def check_has_values(what: str, tensor: Tensor) -> None:
    """Refuse tensors without an entry in every place, or without any."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.").lstrip("_")
        advice = "take .to_padded_tensor(0.0) of it" if tensor.is_nested else "call .to_dense() on it"
        raise UsageError(f"{what} must be a dense tensor, not a {kind} one: {advice}")
    if tensor.device.type == "meta":
        raise UsageError(
            f"{what} is on the device 'meta', where tensors have no values: make it on another, as the cpu"
        )
