"""Programs of fields, kept for later solves: found again by what a field depends on, and never if that has changed."""

import weakref
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from windermere._torch_private import has_hooks, saving_plainly
from windermere.fast.effects import effects_of
from windermere.fast.fingerprint import Fingerprint, UnknownFieldError, fingerprint
from windermere.fast.program import Program, evaluate
from windermere.fast.recipe import Recipe
from windermere.fast.snapshot import take_snapshot
from windermere.fast.trace import DeclinedError, Rate, Trace, trace
from windermere.solvers import Problem
from windermere.solvers.field import packed_rate

KEPT, TRIES = 32, 12
"""The most programs of one field, and how often it is watched at once. One that is another at each solve is watched
seldom from then on."""
AGREEMENT = {torch.float32: 2e-4, torch.float64: 1e-9}
"""How closely a program has to follow its field."""
LARGEST_STATE = 1 << 18


@dataclass(frozen=True)
class Known:
    """A program, where its tensors are in a fingerprint, and how its external ones are made of them."""

    program: Program
    places: tuple[int, ...]
    recipe: Recipe

    def roots(self, found: Fingerprint) -> list[Tensor]:
        """The tensors that a field refers to now."""
        return [found.tensors[k] for k in self.places]


@dataclass
class _Shelf:
    """What is known of one field."""

    programs: OrderedDict[Hashable, Known | str] = field(default_factory=OrderedDict)
    """Or why there is none."""
    tries: int = 0
    hits: int = 0
    waits: int = 0
    """Solves since it was last watched."""
    closed: str = ""
    """Why nothing is looked for any more."""


_shelves: "weakref.WeakKeyDictionary[Any, _Shelf]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Traced:
    """A field's program, with its tensors of this moment."""

    program: Program
    roots: list[Tensor]
    recipe: Recipe

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
    kind = (own, z.shape[1], z.dtype, z.device, torch.is_grad_enabled(), torch.get_default_dtype())
    known = shelf.programs.get((kind, z.shape[0])) or shelf.programs.get(kind)
    if known is not None:
        shelf.hits += 1
    else:
        shelf.waits += 1
        if shelf.tries > max(TRIES, shelf.hits) and shelf.waits < 2 * shelf.tries:
            raise DeclinedError("it changes from solve to solve")
        known = _look(problem, found, shelf)
        _keep(shelf, kind, z.shape[0], known)
    if isinstance(known, str):
        raise DeclinedError(known)
    return Traced(known.program, known.roots(found), known.recipe)


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
        return _shelves.setdefault(key, _Shelf())
    except TypeError as error:
        raise DeclinedError(f"a {type(it).__name__} cannot be remembered") from error


def _keep(shelf: _Shelf, kind: Hashable, samples: int, known: Known | str) -> None:
    """For this number of samples; where another number had the same program, for all."""
    others = [own for key, own in shelf.programs.items() if isinstance(key, tuple) and key[0] == kind]
    shelf.programs[kind, samples] = known
    if isinstance(known, Known) and any(isinstance(o, Known) and _is_equal(o, known) for o in others):
        shelf.programs[kind] = known
    while len(shelf.programs) > KEPT:
        shelf.programs.popitem(last=False)


def _is_equal(one: Known, other: Known) -> bool:
    return one.program == other.program and one.places == other.places and not (one.recipe.steps or other.recipe.steps)


def _look(problem: Problem, found: Fingerprint, shelf: _Shelf) -> Known | str:
    """A program that does what the field does, or why there is none. The field is called a few times for it."""
    shelf.tries, shelf.waits = shelf.tries + 1, 0
    objects = found.met
    if (effect := effects_of(objects)) is not None:
        return effect
    if any(hasattr(it, "_orig_mod") or hasattr(it, "_torchdynamo_orig_callable") for it in objects):
        return "it is compiled"
    undo = take_snapshot(objects)
    try:
        with saving_plainly():
            return _checked(problem, found, shelf)
    except DeclinedError as reason:
        return str(reason)
    except Exception as error:  # noqa: BLE001  # the field's own, which the solve step by step will meet again
        return f"it raises {type(error).__name__}"
    finally:
        undo()


def _checked(problem: Problem, found: Fingerprint, shelf: _Shelf) -> Known:
    random = torch.Generator(device=problem.z0.device).manual_seed(0)
    times = problem.times
    z = problem.z0.detach().clone().requires_grad_(torch.is_grad_enabled())
    rate = packed_rate(problem.layout, problem.field)
    made = trace(rate, z.new_tensor(times[0] + 0.29 * (times[-1] - times[0])), z)
    after = fingerprint(problem.field)
    same = after.key == found.key
    if not same or any(a is not b for a, b in zip(after.tensors, found.tensors, strict=True)):
        shelf.closed = "a call of it changes its attributes"
        raise DeclinedError(shelf.closed)
    places = {id(x): k for k, x in reversed(list(enumerate(found.tensors)))}
    if any(id(x) not in places for x in made.roots):
        raise DeclinedError("it refers to a tensor that is not found among its attributes and variables")
    for part in (0.0, 0.83):
        noise = torch.randn(z.shape, generator=random, dtype=z.dtype, device=z.device)
        t = z.new_tensor(times[0] + part * (times[-1] - times[0]))
        _compare(rate, made, t, z.detach() * (1 + 0.1 * noise) + 0.1 * noise, random)
    return Known(made.program, tuple(places[id(x)] for x in made.roots), made.recipe)


def _compare(rate: Rate, made: Trace, t: Tensor, z: Tensor, random: torch.Generator) -> None:
    """Refuse a program that does not do what the field does, or whose gradient is another."""
    graded = torch.is_grad_enabled()
    wanted = [x for x in made.roots if x.requires_grad and not has_hooks(x)] if graded else []
    results = []
    for follow in (False, True):
        start = z.clone().requires_grad_(graded)
        k = evaluate(made.program, made.recipe.made(made.roots), t, start) if follow else rate(t, start)
        results.append([k.detach()])
        if graded and k.requires_grad:
            on = torch.randn(k.shape, generator=random.manual_seed(1), dtype=k.dtype, device=k.device)
            found = torch.autograd.grad(k, [start, *wanted], on, allow_unused=True, retain_graph=True)
            results[-1] += [torch.zeros_like(x) if g is None else g for x, g in zip([z, *wanted], found, strict=True)]
        elif graded:
            results[-1] += [torch.zeros_like(x) for x in (z, *wanted)]
    for one, other in zip(*results, strict=True):
        _refuse_unless_equal(one, other)


def _refuse_unless_equal(one: Tensor, other: Tensor) -> None:
    allowed = AGREEMENT[one.dtype] * float(one.abs().max().clamp(min=1e-6)) if one.numel() else 0.0
    if not bool(one.isfinite().all()):
        raise DeclinedError("it is not finite")
    if not bool(((one - other).abs() <= allowed).all()):
        raise DeclinedError("its program does not do what it does")
