"""Functions as models, and networks that PyTorch does not know of.

PyTorch knows the networks that are registered as submodules. Those in a closure, in a default, in a plain list or, of a
script's functions, among its global names it neither copies nor converts. Here they are found, and copied with the
functions that use them: nothing of the user's is changed.
"""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from windermere.errors import AuditError, describe_error
from windermere.nn.model_calls import inputs_for
from windermere.nn.shared import arrays_of
from windermere.solvers.field import WITHOUT_FORWARD


class Function(nn.Module):
    """A function as a module: the networks that it uses are its submodules."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.networks = nn.ModuleList(part for part in held(function) if isinstance(part, nn.Module))
        self.forward = function


def as_module(model: Any, x: Any) -> Any:
    """A function of a batch's inputs as a module; all else, and what solves with JAX, as it is."""
    if isinstance(model, nn.Module):
        return model
    if not callable(model) or isinstance(model, type) or hasattr(model, "insight"):
        return model
    of_torch = any(isinstance(array, Tensor) for array in arrays_of(x))
    is_function = isinstance(model, FunctionType | MethodType | partial)
    by_jax = str(getattr(model, "__globals__", {}).get("__name__")).startswith("jax.")  # as what jax.vmap returns is
    may_be_jax = not is_function or by_jax or ("jax" in sys.modules and not of_torch)
    if may_be_jax and not _holds_weights(model):
        return model
    module = Function(model)
    try:
        inputs_for(module, x, double=False)
    except AuditError:  # it takes other arguments, such as a solver
        return model
    return module


@contextmanager
def telling_of_missing_forwards(model: Any) -> Iterator[None]:
    """Raises an `AuditError` where the model, or a module that it calls, has no forward method."""
    try:
        yield
    except NotImplementedError as error:
        if WITHOUT_FORWARD not in str(error):
            raise
        if hasattr(model, "sample"):
            raise AuditError(
                f"this {type(model).__name__} is not called itself: audit what you call of it, as in "
                "wm.audit(lambda x: solver.sample(x, step_size=0.1), ...)"
            ) from error
        raise AuditError(
            f"this {type(model).__name__} cannot be called ({error}): audit a module that has a forward, as all have "
            "that it calls"
        ) from error


def held(root: Any) -> list[Any]:
    """All that a model reaches by attributes, containers, partials, closures, defaults and names; each once."""
    found: dict[int, Any] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) not in found:
            found[id(one)] = one
            left.extend(_parts(one))
    return list(found.values())


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, dict):
        yield from one.values()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from one
    elif isinstance(one, partial):
        yield from (one.func, one.args, one.keywords)
    elif isinstance(one, MethodType):
        yield from (*vars(one.__self__).values(), one.__func__) if _is_plain(one.__self__) else (one.__self__,)
    elif isinstance(one, FunctionType):
        yield from (one.__defaults__, one.__kwdefaults__, *_names(one).values())
        yield from (cell.cell_contents for cell in _filled(one))
    elif isinstance(one, nn.Module) or (callable(one) and _is_plain(one)):
        yield from vars(one).values()
    elif is_holder(one):
        yield from _weights_of(one).values()


def is_holder(one: Any) -> bool:
    """Whether it is an object that cannot be called and has networks or tensors as attributes: a trainer, a config."""
    return not callable(one) and not isinstance(one, Tensor | ModuleType) and _is_plain(one) and bool(_weights_of(one))


def _weights_of(holder: Any) -> dict[str, Any]:
    """Its attributes that are networks or tensors. All else, such as loggers and data, stays the user's own."""
    return {name: value for name, value in vars(holder).items() if isinstance(value, nn.Module | Tensor)}


def _is_plain(one: Any) -> bool:
    """An object of a class of the user's."""
    return hasattr(one, "__dict__") and not isinstance(one, type) and not type(one).__module__.startswith("torch.")


def _filled(function: FunctionType) -> list[CellType]:
    def is_filled(cell: CellType) -> bool:
        try:
            return cell.cell_contents is not cell
        except ValueError:  # a name that has no value yet
            return False

    return [cell for cell in function.__closure__ or () if is_filled(cell)]


def _names(function: FunctionType) -> dict[str, Any]:
    """The global names that a function uses for networks, tensors and functions of its own file."""
    world = function.__globals__

    def is_followed(value: Any) -> bool:
        return isinstance(value, nn.Module | Tensor) or getattr(value, "__globals__", None) is world or is_holder(value)

    return {name: world[name] for name in _words(function.__code__) if name in world and is_followed(world[name])}


def _words(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_words, inner))


def _holds_weights(one: Any) -> bool:
    return any(isinstance(part, nn.Module | Tensor) for part in held(one))


class CopyError(AuditError):
    """A model that cannot be copied, and why."""


@dataclass(frozen=True)
class Copy:
    """A copy of a model and of everything that it holds."""

    model: nn.Module
    modules: list[nn.Module]
    """All modules of the copy, registered or not; none is the user's own."""
    functions: list[FunctionType]
    holders: list[Any]
    """Objects that have networks or tensors as attributes; none is the user's own."""


def deep_copy(model: nn.Module) -> Copy:
    """Networks and tensors are copied wherever they are, with the functions that use them. What torch.compile made is
    copied as it was before: compiling anew for an audit's dtypes and sizes would use up the limit for the user's own.

    Raises `CopyError`.
    """
    try:
        with torch.no_grad():  # or the copies of a scripted module's weights would have graphs behind them
            made = _deep_copied(model)
    except Exception as error:  # whatever a class of the user's raises
        raise CopyError(describe_error(error)) from error
    if made.model is model:
        raise CopyError("a copy of it is the module itself")
    return made


def _deep_copied(model: nn.Module) -> Copy:
    found = held(model)
    # Tensors with a graph behind them, which models keep of their last pass, refuse to be copied: their values suffice.
    known: dict[int, Any] = {id(t): t.detach().clone() for t in found if isinstance(t, Tensor) and not t.is_leaf}
    functions = [one for one in found if isinstance(one, FunctionType) and _holds_weights(one)]
    worlds = {id(f.__globals__): dict(f.__globals__) for f in functions}
    holders = {id(one): (one, copy.copy(one)) for one in found if is_holder(one)}
    known |= {number: twin for number, (_, twin) in holders.items()}
    cells = {id(c): (c, CellType()) for f in functions for c in _filled(f) if _holds_weights(c.cell_contents)}
    twins = [_twin(function, worlds[id(function.__globals__)], cells) for function in functions]
    known |= {id(function): twin for function, twin in zip(functions, twins, strict=True)}
    for one in found:  # of a method, copying leaves the function as it is
        if isinstance(one, MethodType) and id(one.__func__) in known:
            known[id(one)] = MethodType(known[id(one.__func__)], copy.deepcopy(one.__self__, known))
    for one in found:
        if (origin := _uncompiled(one)) is not one:
            known[id(one)] = copy.deepcopy(origin, known)
    # Only now, when every function has its twin: functions and networks may hold each other in a circle.
    copied = copy.deepcopy(model, known)
    for holder, twin in holders.values():
        vars(twin).update(copy.deepcopy(_weights_of(holder), known))
    for cell, own in cells.values():
        own.cell_contents = copy.deepcopy(cell.cell_contents, known)
    for function, twin in zip(functions, twins, strict=True):
        twin.__globals__.update({name: _copied(value, known) for name, value in _names(function).items()})
        twin.__defaults__ = _copied(function.__defaults__, known)
        twin.__kwdefaults__ = _copied(function.__kwdefaults__, known)
    users = set(map(id, found))  # a module may have its own way to be copied, and give itself
    modules = [one for one in held(copied) if isinstance(one, nn.Module) and id(one) not in users]
    return Copy(copied, modules, twins, [twin for _, twin in holders.values()])


def _uncompiled(one: Any) -> Any:
    """What torch.compile was given."""
    if isinstance(one, nn.Module):
        return dict(one.named_children()).get("_orig_mod", one)
    return vars(one).get("_torchdynamo_orig_callable", one) if isinstance(one, FunctionType) else one


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """A copy of a value that holds weights; any other value, such as a lock or a counter, stays the user's own."""
    return copy.deepcopy(value, known) if _holds_weights(value) else value


def _twin(function: FunctionType, world: dict[str, Any], cells: dict[int, tuple[CellType, CellType]]) -> FunctionType:
    """The same code, with names and cells of its own where these are for weights; counters and such stay shared."""
    closure = tuple(cells[id(cell)][1] if id(cell) in cells else cell for cell in function.__closure__ or ())
    twin = FunctionType(function.__code__, world, function.__name__, closure=closure)
    twin.__dict__.update(function.__dict__)
    twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
    return twin


def in_double(function: FunctionType) -> None:
    """Converts the tensors of a copied function: those it closes over, its defaults and its names."""

    def converted(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.dtype.is_floating_point else value

    for cell in _filled(function):
        if isinstance(cell.cell_contents, Tensor):
            cell.cell_contents = converted(cell.cell_contents)
    function.__globals__.update({name: converted(value) for name, value in _names(function).items()})
    function.__defaults__ = tuple(map(converted, function.__defaults__ or ())) or None
    if function.__kwdefaults__:
        function.__kwdefaults__ = {name: converted(value) for name, value in function.__kwdefaults__.items()}
