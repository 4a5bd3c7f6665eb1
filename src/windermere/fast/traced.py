"""Programs of fields, kept for later solves: found again by what a field depends on, and never if that has changed."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from windermere._torch_private import has_hooks, pulled_back, saving_plainly
from windermere.fast.fingerprint import Fingerprint, fingerprint
from windermere.fast.look import UnknownFieldError
from windermere.fast.program import Program, evaluate
from windermere.fast.recipe import Recipe
from windermere.fast.snapshot import take_snapshot
from windermere.fast.starts import Start, as_laid, start_of
from windermere.fast.trace import DeclinedError, Rate, trace
from windermere.solvers import Problem
from windermere.solvers.field import packed_rate

KEPT, SHARED, TRIES = 32, 256, 12
"""The most programs of one field and of all, and how often one is watched at once. One that is another at each solve is
watched seldom from then on."""
AGREEMENT = {torch.float32: 2e-4, torch.float64: 1e-9}
"""How closely a program has to follow its field."""
LARGEST_STATE = 1 << 18


@dataclass(frozen=True)
class Known:
    """A program, where its tensors are in a fingerprint, and how its external ones are made of them."""

    program: Program
    places: tuple[int, ...]
    recipe: Recipe
    unread: tuple[int, ...] | None
    """As in `Traced`, by their places."""
    seen: "set[Start]"
    """What the field was seen to do this from: from another start, it may do something else."""
    is_alike: bool
    """As in `Traced`: a fingerprint has all that this depends on."""

    def roots(self, found: Fingerprint) -> list[Tensor]:
        """The tensors that a field refers to now."""
        return [found.tensors[k] for k in self.places]


Programs: TypeAlias = "OrderedDict[Hashable, Known | str]"
"""Or why there is none."""


class _Passing(str):
    """Why a field has no program with the numbers that it has at this moment."""


@dataclass
class _Shelf:
    """What is known of one field."""

    programs: Programs = field(default_factory=OrderedDict)
    tries: int = 0
    hits: int = 0
    waits: int = 0
    """Solves since it was last watched."""
    closed: str = ""
    """Why nothing is looked for any more."""


_shelves: "weakref.WeakKeyDictionary[Any, _Shelf]" = weakref.WeakKeyDictionary()
_shared: Programs = OrderedDict()
"""What is known of fields like one: some users make a field anew for each solve."""
_keeping = threading.RLock()


@dataclass(frozen=True)
class Traced:
    """A field's program, with its tensors of this moment."""

    program: Program
    roots: list[Tensor]
    recipe: Recipe
    unread: list[Tensor] | None
    """The parameters that a module does not depend on. None where it depends on other tensors that need gradients."""
    is_alike: bool
    """Whether the external tensors are roots as they are, of the dtype of the state and where it is."""

    def externals(self) -> list[Tensor]:
        return self.recipe.made(self.roots)


def traced(problem: Problem) -> Traced:
    """The program of a problem's field, or a DeclinedError with the reason why it has none."""
    shelf = _shelf_of(problem.field)
    if shelf.closed:
        raise DeclinedError(shelf.closed)
    z = problem.z0
    if z.ndim != 2 or not 0 < z.numel() <= LARGEST_STATE:
        raise DeclinedError("its state is not rows of numbers, or too large")
    found = _fingerprint_of(problem)
    own = (found.structure, problem.layout.parts and tuple(p[1:] for p in problem.layout.parts))
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
    kind = (own, z.shape[1], z.dtype, z.device, modes, bool(problem.layout.groups))
    start = start_of(problem.z0)
    known = _known(shelf.programs, kind, start) or _known(_shared, kind, start)
    if known is None:
        known = _known_after_all(shelf.programs.get(kind) or _shared.get(kind), problem, found)
    if known is not None:
        shelf.hits += 1
    else:
        shelf.waits += 1
        if shelf.tries > max(TRIES, shelf.hits) and shelf.waits < 2 * shelf.tries:
            raise DeclinedError("it changes from solve to solve")
        known = _look(problem, found, shelf)
        _keep(shelf.programs, KEPT, kind, start, known)
        if not isinstance(known, _Passing):
            _keep(_shared, SHARED, kind, start, known)
    if isinstance(known, str):
        raise DeclinedError(known)
    unread = None if known.unread is None else [found.tensors[k] for k in known.unread]
    return Traced(known.program, known.roots(found), known.recipe, unread, known.is_alike)


_of_this_solve: "weakref.WeakKeyDictionary[Any, Fingerprint]" = weakref.WeakKeyDictionary()
"""An adjoint's solve asks for its way back, and right after that for its way there: `Problem.tensors` is their own."""


def _fingerprint_of(problem: Problem) -> Fingerprint:
    if problem.tensors is None:
        return _fingerprint(problem.field)
    found = _of_this_solve.pop(problem.tensors, None) or _fingerprint(problem.field)
    if problem.gradient not in ("backprop", "checkpoint"):
        _of_this_solve[problem.tensors] = found
    return found


def _fingerprint(it: Any) -> Fingerprint:
    try:
        return fingerprint(it)
    except UnknownFieldError as reason:
        raise DeclinedError(str(reason)) from reason


def _shelf_of(it: Any) -> _Shelf:
    if isinstance(it, Tensor) or not callable(it):
        raise DeclinedError(f"a {type(it).__name__} is no field")
    if isinstance(it, MethodType):
        it = it.__self__
    key: Any = it.__code__ if isinstance(it, FunctionType) else it
    try:
        return _shelves.get(key) or _shelves.setdefault(key, _Shelf())
    except TypeError as error:
        raise DeclinedError(f"a {type(it).__name__} cannot be remembered") from error


def _known(programs: Programs, kind: Hashable, start: Start) -> Known | str | None:
    general = programs.get(kind)
    return general if isinstance(general, Known) and start in general.seen else programs.get((kind, start))


def _known_after_all(general: Known | str | None, problem: Problem, found: Fingerprint) -> Known | None:
    """The program of other starts, if the field does the same from this one: it is asked once."""
    if not isinstance(general, Known):
        return None
    undo, rate = take_snapshot(found.met), packed_rate(problem.layout, problem.field)
    try:
        with saving_plainly():
            _compare_at_times(problem, rate, general.program, general.recipe, general.roots(found))
    except Exception:  # noqa: BLE001  # it does something else, or raises: it is watched once more
        return None
    finally:
        undo()
    general.seen.add(start_of(problem.z0))
    return general


def _keep(programs: Programs, most: int, kind: Hashable, start: Start, known: Known | str) -> None:
    """For this start; where another one had the same program, for all that turn out to have it."""
    with _keeping:
        others = [own for key, own in programs.items() if isinstance(key, tuple) and key[0] == kind]
        programs[kind, start] = known
        alike = [o for o in others if isinstance(o, Known) and isinstance(known, Known) and _is_equal(o, known)]
        if isinstance(known, Known) and alike:
            known.seen.update(*(other.seen for other in alike))
            programs[kind] = known
        while len(programs) > most:
            programs.popitem(last=False)


def _is_equal(one: Known, other: Known) -> bool:
    return one.program == other.program and one.places == other.places and not (one.recipe.steps or other.recipe.steps)


def _look(problem: Problem, found: Fingerprint, shelf: _Shelf) -> Known | str:
    """A program that does what the field does, or why there is none. The field is called a few times for it."""
    shelf.tries, shelf.waits = shelf.tries + 1, 0
    objects = found.met
    if any(hasattr(it, "_orig_mod") or hasattr(it, "_torchdynamo_orig_callable") for it in objects):
        return _Passing("it is compiled")
    undo = take_snapshot(objects)
    try:
        with saving_plainly():
            return _checked(problem, found, shelf)
    except DeclinedError as reason:
        return reason.args[0] if isinstance(reason.args[0], _Passing) else str(reason)
    except Exception as error:  # noqa: BLE001  # the field's own, which the solve step by step will meet again
        return _Passing(f"it raises {type(error).__name__}")
    finally:
        undo()


def _checked(problem: Problem, found: Fingerprint, shelf: _Shelf) -> Known:
    z = as_laid(problem.z0, problem.z0).requires_grad_(torch.is_grad_enabled())
    rate = packed_rate(problem.layout, problem.field)
    made = trace(rate, _time_within(problem, 0.29), z)
    after = fingerprint(problem.field)
    same = after.key == found.key
    if not same or any(a is not b for a, b in zip(after.tensors, found.tensors, strict=True)):
        shelf.closed = "a call of it changes its attributes"
        raise DeclinedError(shelf.closed)
    places = {id(x): k for k, x in reversed(list(enumerate(found.tensors)))}
    if any(id(x) not in places for x in made.roots):
        raise DeclinedError("it refers to a tensor that is not found among its attributes and variables")
    _compare_at_times(problem, rate, made.program, made.recipe, made.roots)
    unread = _unread(problem.field, made.roots)
    own = None if unread is None else tuple(places[id(x)] for x in unread)
    used = [made.roots[k] for k in made.recipe.wanted] if not made.recipe.steps else []
    alike = bool(used) and all((x.dtype, x.device) == (z.dtype, z.device) for x in used)
    roots = tuple(places[id(x)] for x in made.roots)
    return Known(_the_same(made.program), roots, made.recipe, own, {start_of(problem.z0)}, alike)


def _unread(it: Any, roots: Sequence[Tensor]) -> list[Tensor] | None:
    """As in `Traced`."""
    own = {id(x): x for x in it.parameters() if x.requires_grad} if isinstance(it, nn.Module) else {}
    read = {id(x) for x in roots if x.requires_grad}
    if not isinstance(it, nn.Module) or not read <= own.keys():
        return None
    return [x for place, x in own.items() if place not in read]


@lru_cache(maxsize=256)
def _the_same(program: Program) -> Program:
    """One object for equal programs, as others are kept by it."""
    return program


def _compare_at_times(problem: Problem, rate: Rate, program: Program, recipe: Recipe, roots: Sequence[Tensor]) -> None:
    """Refuse a program that does not do what the field does at two times, near the problem's state: at the first as at
    the start of a solve, later the state depends on all that needs a gradient."""
    random = torch.Generator(device=problem.z0.device).manual_seed(0)
    z = problem.z0.detach()
    for part, given in ((0.0, problem.z0.requires_grad), (0.83, True)):
        noise = torch.randn(z.shape, generator=random, dtype=z.dtype, device=z.device)
        t = _time_within(problem, part)
        near = z * (1 + 0.1 * noise) + 0.1 * noise
        near = as_laid(near, z) if part == 0 else torch.empty_like(z).copy_(near)
        near.requires_grad_(given and (part == 0 or torch.is_grad_enabled()))
        _compare(rate, program, recipe, roots, t, near if part == 0 else near.clone(), random)


def _time_within(problem: Problem, part: float) -> Tensor:
    """The time after this part of a solve; where samples have steps of their own, another one for each of them."""
    start, end = problem.ends
    groups = problem.layout.groups
    parts = part * (1 - 0.1 * np.arange(len(problem.z0)) / len(problem.z0)) if groups else part
    return problem.layout.columns(np.asarray(start + parts * (end - start)), problem.z0.detach())


def _compare(
    rate: Rate,
    program: Program,
    recipe: Recipe,
    roots: Sequence[Tensor],
    t: Tensor,
    z: Tensor,
    random: torch.Generator,
) -> None:
    """Refuse a program that does not do what the field does, or whose gradient is another."""
    others = [x for x in roots if x.requires_grad and not has_hooks(x)] if torch.is_grad_enabled() else []
    results = []
    for follow in (False, True):
        start = as_laid(z, z).requires_grad_(z.requires_grad)
        start = start if z.is_leaf else start.clone()
        wanted = [start, *others] if z.requires_grad else others
        k = evaluate(program, recipe.made(roots), t, start) if follow else rate(t, start)
        found: Sequence[Tensor | None] = [None] * len(wanted)
        if wanted and k.requires_grad:
            on = torch.randn(k.shape, generator=random.manual_seed(1), dtype=k.dtype, device=k.device)
            found = pulled_back([k], wanted, [on], retain_graph=True)
        gradients = (torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True))
        results.append([k.detach(), *gradients])
    for one, other in zip(*results, strict=True):
        _refuse_unless_equal(one, other)


def _refuse_unless_equal(one: Tensor, other: Tensor) -> None:
    allowed = AGREEMENT[one.dtype] * float(one.abs().max().clamp(min=1e-6)) if one.numel() else 0.0
    if not bool(one.isfinite().all()):
        raise DeclinedError(_Passing("it is not finite"))
    if not bool(((one - other).abs() <= allowed).all()):
        raise DeclinedError(_Passing("its program does not do what it does"))
