"""Which solves are captured: of fields on a GPU that can be replayed, from their second solve on."""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from windermere._torch_private import is_in_a_mode
from windermere.errors import UsageError, describe_error, is_out_of_memory
from windermere.fast.captured.adjoint import AdjointStation
from windermere.fast.captured.on_tape import solve_captured
from windermere.fast.captured.reads import Reads
from windermere.fast.captured.shelf import Captured, Known, Shelf
from windermere.fast.captured.steps import Motion
from windermere.fast.captured.twins import Twins
from windermere.fast.captured.walks import Station
from windermere.fast.fingerprint import Fingerprint, fingerprint
from windermere.fast.look import UnknownFieldError
from windermere.fast.observed import NotReplayableError, check_alone, observe
from windermere.fast.starts import as_laid, strides_of
from windermere.solvers import FastAdjoint, FastPath, Problem, Walked
from windermere.solvers.field import packed_rate
from windermere.solvers.paths import Adjoin, Adjoined
from windermere.solvers.torch_modes import is_looked_through

MOST_CAPTURES = 4
"""Captures of one field from one kind of state: one whose tensors keep moving is not worth more."""
FEW = 16
"""Solves that a capture must have served not to count among these."""


@dataclass(frozen=True, eq=False)
class Found:
    """What is captured for a solve, and what its field reads."""

    station: Station | AdjointStation
    reads: Reads
    parameters: tuple[Tensor, ...]
    """The tensors that get gradients."""


class CapturedSteps(FastPath):
    """Solves by steps that are captured once and replayed.

    devices: kinds of devices whose solves are taken.
    after: solves of one kind that go by without a capture: it takes a while, and many are solved once only.
    """

    captures = True

    def __init__(self, devices: tuple[str, ...] = ("cuda",), after: int = 1) -> None:
        self.devices, self.after, self.shelf = devices, after, Shelf()

    def fixed(self, problem: Problem) -> Walked | None:
        return self._solved(problem)

    def adaptive(self, problem: Problem) -> Walked | None:
        return self._solved(problem)

    def adjoint(self, problem: Problem) -> FastAdjoint | None:
        if self._is_none_of_ours(problem):
            return None
        problem = _grouped(problem)
        found = self._found(problem, back=True)
        known = problem.tensors() if problem.tensors is not None else ()
        if found is None or not {*map(id, found.parameters)} <= {*map(id, known)}:
            return None  # and whoever walks step by step says what the adjoint does not know of
        unread = tuple(p for p in known if all(p is not own for own in found.parameters))
        return FastAdjoint(_way_back(problem, found, unread), (*found.parameters, *unread), problem.field)

    def _solved(self, problem: Problem) -> Walked | None:
        if self._is_none_of_ours(problem) or problem.gradient not in ("backprop", "checkpoint"):
            return None
        problem = _grouped(problem)
        found = self._found(problem, back=False)
        if found is None or not isinstance(found.station, Station):
            return None
        return solve_captured(found.station, problem, found.reads, found.parameters if found.station.graded else ())

    def _is_none_of_ours(self, problem: Problem) -> bool:
        """What can be said of most solves without a closer look."""
        elsewhere = problem.z0.device.type not in self.devices
        return problem.captured is False or (elsewhere and problem.captured is None)

    def _found(self, problem: Problem, *, back: bool) -> Found | None:
        """What is captured for such a solve, now or before; None, or where it was asked for an error, if nothing is."""
        try:
            _check(problem, self.devices)
            print_ = fingerprint(problem.field)
            with self.shelf.open():
                captured = self._captured(problem, print_, back)
        except (NotReplayableError, UnknownFieldError) as error:
            if problem.captured:
                raise UsageError(f"captured=True, but this solve cannot be captured: {error}") from error
            return None
        if captured is None:
            return None
        reads = Reads(problem.field, print_, captured.places)
        return Found(captured.station, reads, tuple(reads.tensors[k] for k in captured.graded))

    def _captured(self, problem: Problem, print_: Fingerprint, back: bool) -> Captured | None:
        """What was captured for such solves, or is captured now."""
        kind = (_kind(problem), back)
        captured = self.shelf.find((print_.key, kind))
        if captured is not None:
            return captured
        known = self.shelf.known_of((print_.structure, kind))
        known.solves += 1
        if known.why_not is not None:
            raise NotReplayableError(known.why_not)
        if known.solves <= self.after and not problem.captured:
            return None
        try:
            made = self._capture(problem, print_, known, back)
        except (NotReplayableError, UnknownFieldError) as error:
            known.why_not = str(error)
            _tell_once(known.why_not)
            raise
        self.shelf.keep((print_.key, kind), made, [print_.tensors[k] for k in made.places if k not in print_.loose])
        return made

    def _capture(self, problem: Problem, print_: Fingerprint, known: Known, back: bool) -> Captured:
        known.captures = 1 if known.served >= FEW else known.captures + 1
        known.served = 0
        if known.captures > MOST_CAPTURES:
            raise NotReplayableError("its tensors are others at each solve")
        inferring = torch.is_inference_mode_enabled()
        try:
            with torch.inference_mode(False):
                return _capture(problem, print_, known, back, inferring)
        except (NotReplayableError, UnknownFieldError):
            raise
        except Exception as error:  # the field's own, CUDA's or Triton's
            if is_out_of_memory(error):
                self.shelf.clear()
            raise NotReplayableError(f"its capture failed ({describe_error(error)})") from error


def _grouped(problem: Problem) -> Problem:
    """Members that share a grid are one group."""
    return problem.ungrouped() if problem.fixed and problem.grid.nodes.ndim == 1 else problem


def _check(problem: Problem, devices: tuple[str, ...]) -> None:
    """Refuse solves that are none for captured steps, whatever their field."""
    z = problem.z0
    if z.device.type not in devices:
        raise NotReplayableError("captured steps need a GPU")
    if type(z) not in (Tensor, torch.nn.Parameter) or not z.numel() or z.dtype.itemsize < 4:
        raise NotReplayableError("the state is empty, of 16 bits, or of a special kind")
    if problem.record:
        raise NotReplayableError("every step is to be recorded")
    if problem.interpolate and (problem.layout.groups or not problem.adaptive):
        raise NotReplayableError("states are to be interpolated between fixed steps, or for each group")
    if problem.fixed and 1 < problem.grid.nodes.ndim >= z.ndim:
        raise NotReplayableError("members of the ensemble have one number each")
    if torch.is_inference_mode_enabled() and torch.is_grad_enabled():
        raise NotReplayableError("gradients are switched on where inference mode takes none")
    if is_looked_through() or is_in_a_mode() or torch.is_anomaly_enabled():
        raise NotReplayableError("PyTorch wants to see every operation")
    if z.is_cuda and torch.cuda.is_current_stream_capturing():
        raise NotReplayableError("it is part of another capture")


def _capture(problem: Problem, print_: Fingerprint, known: Known, back: bool, inferring: bool) -> Captured:
    z = as_laid(problem.z0, problem.z0)
    first, last = problem.ends
    moment = first + 0.29 * (last - first)  # at the ends a field may be zero, whatever it does
    t = problem.layout.columns(torch.zeros(problem.layout.groups).numpy() + moment, z)
    graded = torch.is_grad_enabled() or back
    plain = packed_rate(problem.layout, problem.field)
    observed = observe(problem.field, plain, t, z, graded=graded, inferring=inferring)
    if observed.fingerprint.key != print_.key:
        raise NotReplayableError("a call changes the field itself")
    places = observed.reads
    loose = [k in print_.loose for k in places]
    compiles = problem.compile and not back
    if compiles and any(loose):
        raise NotReplayableError("compiled steps read parameters and buffers only")
    others, read = not compiles or isinstance(problem.field, torch.nn.Module), [print_.tensors[k] for k in places]
    trial, twins = (Twins(read, loose, others=others) for _ in range(2))
    reached = check_alone(trial.in_place(plain), t, z, trial.all, graded=graded)
    graded_places = tuple(k for k, twin in enumerate(twins.all) if twin.requires_grad and (back or k in reached))
    parameters = tuple(twins.all[k] for k in graded_places)
    rate = twins.compiled(problem) if compiles else twins.in_place(plain)
    motion = Motion(problem.tableau, rate, problem.layout, z, parameters, compiles)
    graded = graded and (problem.z0.requires_grad or bool(parameters))
    reserved = _reserved(z)
    station = (
        AdjointStation(motion, twins, adaptive=bool(problem.adaptive))
        if back
        else Station(motion, twins, adaptive=bool(problem.adaptive), graded=graded, dense=problem.interpolate)
    )
    station.size = max(0, _reserved(z) - reserved)
    return Captured(station, places, graded_places, known)


def _reserved(like: Tensor) -> int:
    """Bytes of a GPU's memory that PyTorch has."""
    return torch.cuda.memory_reserved(like.device) if like.is_cuda else 0


def _way_back(problem: Problem, found: Found, unread: tuple[Tensor, ...]) -> Adjoin:
    station, usable = found.station, True
    assert isinstance(station, AdjointStation)

    def adjoin(times: tuple[float, float], z: Tensor, a: Tensor) -> Adjoined | None:
        nonlocal usable
        if times[0] == problem.times[-1]:  # where the way back begins
            usable = found.reads.are_current()
        done = station.take(replace(problem, times=times), found.reads, z, a) if usable else None
        return done and done._replace(gradient=[*done.gradient, *map(torch.zeros_like, unread)])

    return adjoin


def _kind(problem: Problem) -> Hashable:
    """What solves have in common that may share a capture."""
    z, layout = problem.z0, problem.layout
    shape = (z.shape, strides_of(z), z.dtype, z.device, layout.groups, layout.parts, layout.lead)
    wanted = (torch.is_grad_enabled(), z.requires_grad, problem.interpolate, bool(problem.adaptive), problem.compile)
    return (*shape, *wanted, problem.tableau, problem.grid.nodes.ndim if problem.fixed else 0, *_settings())


SETTINGS = tuple(
    attrgetter(f"backends.{name}")
    for name in (
        *("fp32_precision", "cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision"),
        *("cuda.matmul.allow_tf32", "cudnn.allow_tf32", "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic"),
    )
)
"""How PyTorch computes: settings that operations obey when they are captured, not when they are replayed."""


def _settings() -> tuple[Hashable, ...]:
    own = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    return *own, torch.is_inference_mode_enabled(), *map(_setting, SETTINGS)


def _setting(find: Callable[[Any], Hashable]) -> Hashable:
    """Older releases lack some, and where a newer way was used to set one, the older way to ask for it is an error."""
    try:
        return find(torch)
    except (AttributeError, RuntimeError):
        return None


_told: set[str] = set()


def _tell_once(why: str) -> None:
    if why not in _told:
        _told.add(why)
        logging.getLogger("windermere").info("a field is solved step by step, not by captured steps: %s", why)
