"""What a solve is given: a field, prepared once per solve, and a state, packed into one tensor.

Shapes: S members, B samples; a state is [B, ...], an ensemble's is [S, B, ...]. A *group* is what has steps of its
own: all of the state (groups = ()), a member (S,), a sample (B,) or a member's sample (S, B).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windermere._torch_private import is_hooked, times_written
from windermere.checks import takes_two
from windermere.errors import FieldError, UsageError
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.solver import Adaptive
from windermere.solvers.tableaus import Tableau
from windermere.solvers.torch_modes import is_mixed, may_be_transformed

State: TypeAlias = Tensor | tuple[Tensor, ...]
Rate: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""field(t, z): the rate of change of z. Groups with steps of their own get a t that broadcasts against z (or
against the first part of a tuple)."""
Field: TypeAlias = Callable[[Any, Any], Any]
WITHOUT_FORWARD = 'is missing the required "forward" function'
"""How PyTorch says that a module cannot be called."""
Walk: TypeAlias = Callable[[Tableau, Grid | Steps, Tensor], Tensor | None]


class Adapted(NamedTuple):
    """An adaptive solve that a field did itself; numbers by group."""

    end: Tensor
    evaluations: NDArray[np.int64]
    accepted: NDArray[np.int64]
    rejected: NDArray[np.int64]


class Adjoined(NamedTuple):
    """An adjoint's solve that a field did itself."""

    a: Tensor
    """The cotangent at the earlier time; the state there is known already."""
    gradient: Sequence[Tensor]
    """The gradients of the tensors that `FusedAdjoint` names."""
    evaluations: NDArray[np.int64]


Groups: TypeAlias = tuple[int, ...]
Adapt: TypeAlias = Callable[[Tableau, Sequence[Adaptive], Sequence[float], Groups, Tensor], Adapted | None]
Adjoin: TypeAlias = Callable[[Tableau, Sequence[Adaptive], Sequence[float], Groups, Tensor, Tensor], Adjoined | None]


@dataclass(frozen=True)
class FusedAdjoint:
    """Takes z and its cotangent back in time in one go, or says None: then it is done by way of the rate."""

    adjoin: Adjoin
    can: Callable[[Tableau, Sequence[Any], Groups, Tensor], bool]
    tensors: tuple[Tensor, ...]
    rate: Rate
    """The rate depends on these tensors themselves, not on something made from them once per solve."""


@dataclass(frozen=True)
class Prepared:
    """A field made ready for one solve."""

    rate: Rate
    tensors: Callable[[], tuple[Tensor, ...]] | None
    """Gives all tensors that the rate depends on and that need gradients (making them may be work, which a walk does
    not need); None where they are not known."""
    walk: Walk | None = None
    """The seam for speed: a function that walks a whole fixed grid from z0 to the end, with a gradient; None from it
    where it cannot."""
    lean: Walk | None = None
    """The same for `checkpoint`: it keeps states only, and evaluates the field as often again on its way back."""
    adapt: Adapt | None = None
    """The same between two times with steps that it chooses as adaptive.py does."""
    adjoint: FusedAdjoint | None = None


@runtime_checkable
class Preparable(Protocol):
    """A field that does work once per solve rather than once per evaluation.

    It says so by what `prepare` is declared to return: others may have a method of that name, too.
    """

    def prepare(self) -> Prepared: ...


def prepare(field: Any, z: Tensor) -> Prepared:
    """A field ready to be solved from z; by its rate alone where PyTorch wants to see, or round, each operation."""
    mixed = is_mixed(z)
    if not mixed and not may_be_transformed():
        return _prepared(field)
    ready = Prepared(field, parameters_of(field)) if mixed and isinstance(field, nn.Module) else _prepared(field)
    return Prepared(in_autocast(ready.rate, z.device.type) if mixed else ready.rate, ready.tensors)


def _prepared(field: Any) -> Prepared:
    if prepares_itself(field):
        return field.prepare()  # type: ignore[no-any-return]
    return Prepared(field, parameters_of(field) if isinstance(field, nn.Module) else None)


def parameters_of(module: nn.Module) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(p for p in module.parameters() if p.requires_grad)


def in_autocast(rate: Rate, device: str) -> Rate:
    """The rate as autocast computes it, on a way back that comes later too, and given in the state's own dtype."""
    low = torch.get_autocast_dtype(device)

    def restored(k: Any, z: Any) -> Any:
        if isinstance(z, tuple) and isinstance(k, tuple | list) and len(k) == len(z):
            return tuple(restored(part, own) for part, own in zip(k, z, strict=True))
        return k.to(z.dtype) if isinstance(k, Tensor) and k.dtype in (low, torch.float32) else k

    def rounded(t: Tensor, z: Tensor) -> Any:
        # Weights rounded without a graph must not be kept for evaluations that need one.
        with torch.autocast(device, dtype=low, cache_enabled=torch.is_grad_enabled()):
            k = _called(rate, t, z)
        return restored(k, z)

    return rounded


def prepares_itself(field: Any) -> bool:
    """Whether it is a Preparable, and `prepare` stands for what the field does when it is called."""
    for kind in type(field).__mro__:
        if (own := vars(kind).get("prepare")) is not None:
            declared = getattr(own, "__annotations__", {}).get("return")
            return declared in (Prepared, "Prepared") and not (isinstance(field, nn.Module) and is_altered(field))
        if "forward" in vars(kind):  # newer than `prepare`, which knows nothing of it
            return False
    return False


def is_altered(module: nn.Module) -> bool:
    """Whether a call does more than its class's forward: hooks, its own or those of all modules, or a forward of its
    own."""
    return is_hooked(module) or "forward" in vars(module)


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
            raise UsageError("error control by sample needs a state whose parts share their leading sample axis")
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

    def packed_rate(self, rate: Rate) -> Rate:
        """The rate of the packed state, checked at its first evaluation to be one."""
        unchecked = True

        def packed(t: Tensor, z: Tensor) -> Tensor:
            nonlocal unchecked
            if self.parts is not None:
                if t.ndim:
                    t = t.reshape(*self.groups, *(1,) * (len(self.parts[0]) - len(self.groups)))
                parts = self.unpack(z)
                rates = _called(rate, t, parts)
                check_rate(parts, rates)
                return self.pack(rates)
            if not unchecked:
                return rate(t, z)
            k: Tensor = _called(rate, t, z)
            check_rate(z, k)
            unchecked = False
            return k

        return packed


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
    if not part.dtype.is_floating_point or part.dtype.itemsize < 2:  # in 8 bits PyTorch stores, but does not compute
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


def _called(rate: Any, t: Tensor, z: State) -> Any:
    """The rate, or in a sentence that it is no function of t and z: many a network takes z alone, or changes it."""
    before = _versions(z)
    try:
        k = rate(t, z)
    except TypeError as error:
        if takes_two(rate):
            raise
        name = getattr(rate, "__name__", type(rate).__name__)
        raise FieldError(
            f"a field is called as field(t, z), and '{name}' cannot be: let it take both, or where it takes z alone "
            "wrap it in windermere.Autonomous"
        ) from error
    except NotImplementedError as error:
        if WITHOUT_FORWARD not in str(error):
            raise
        raise FieldError(
            f"the field cannot be called, since a module in it has no forward ({error}): give it one, which takes t "
            "and z, or in windermere.Autonomous z alone"
        ) from error
    if _versions(z) != before:
        raise FieldError(
            "the field changes the state that it is given, in place, and a solver goes on from that: let it work on a "
            "copy (as a first layer, nn.ReLU(inplace=True) is to be nn.ReLU())"
        )
    return k


def _versions(z: State) -> list[int | None]:
    """How often PyTorch saw the state's parts change; inference mode does not look."""
    parts = (z,) if isinstance(z, Tensor) else z
    return [times_written(part) for part in parts]


def check_rate(z: State, k: Any) -> None:
    """The field must return what it was given: as many tensors, of the same shape, dtype and device."""
    if isinstance(z, tuple):
        if not isinstance(k, tuple | list) or len(k) != len(z):
            raise FieldError(f"the state has {len(z)} parts, but the field returned {_described(k)}")
        for part, rate in zip(z, k, strict=True):
            check_rate(part, rate)
        return
    if not isinstance(k, Tensor) or (k.shape, k.dtype, k.device) != (z.shape, z.dtype, z.device):
        raise FieldError(
            f"the state is {_described(z)}, but the field returned {_described(k)}: make it return the same"
        )


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
