"""Random numbers that a model draws from PyTorch while it runs: noticed, and the same ones in every pass.

A likelihood with Hutchinson's trace draws noise: once before a solve, or at every evaluation of its field. Solvers that
meet other noise cannot be compared, and a field that differs from call to call is no field. So passes of such a model
get the same numbers from the start, and all evaluations of a solve the same draw.

PyTorch's own generators lend their place for the moment of a draw alone: what other draws come to is not changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

from windermere._torch_private import autocast_dtype, is_any_autocast_enabled, is_autocast_enabled
from windermere.nn.model_calls import floating_parameter

HELD = (
    "the model draws random numbers: noise is held fixed, so that every pass gets the same, and all evaluations of a "
    "field the same draw; the verdict is about the field with this noise"
)
SEED = 0
MASKS = {"dropout", "dropout_", "alpha_dropout", "alpha_dropout_", "feature_dropout", "feature_alpha_dropout",
         "dropout1d", "dropout2d", "dropout3d", "rrelu", "rrelu_", "gumbel_softmax",
         "scaled_dot_product_attention"}  # fmt: skip
"""Functions that draw and compute in one: those of PyTorch's that only draw are in `NUMBERS`."""
NUMBERS = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
           "multinomial", "poisson", "binomial", "normal_", "uniform_", "bernoulli_", "exponential_", "cauchy_",
           "log_normal_", "geometric_", "random_", "_standard_gamma", "_sample_dirichlet"}  # fmt: skip
CONVERSIONS = {"float", "half", "bfloat16"}
"""Methods that name a dtype."""
States: TypeAlias = list[Tensor]


class Draws(TorchFunctionMode):
    """Within it, what is drawn in this thread comes from a stream that is the same in every pass.

    A pass in float64 gets the very numbers of one in the model's `own` dtype, as float64, and so are all numbers there
    that are made without a dtype (torch.zeros(3), flags * 2.0).
    """

    def __init__(self, model: nn.Module | None, *, double: bool = False) -> None:
        super().__init__()
        self.own = dtype_of(model)
        self.double = double and self.own != torch.float64
        self.drew = False
        self.autocast: torch.dtype | None = None
        """In what autocast computed some of it."""
        like = None if model is None else floating_parameter(model)
        self._device = "cpu" if like is None else like.device.type
        self._generators = _generators_of(model)
        self._solves = 0
        self._now = self._seeded()
        self._at_start: States = list(self._now)

    @contextmanager
    def of_a_solve(self) -> Iterator[None]:
        """Within it, `again` goes back to the numbers of its beginning; what is drawn after it depends on neither the
        number of evaluations nor what they drew."""
        outer, self._at_start = self._at_start, list(self._now)
        self._solves += 1
        number = self._solves
        try:
            yield
        finally:
            self._at_start, self._now = outer, self._seeded(number)

    def again(self) -> None:
        """After each evaluation of a field: the next one draws the same."""
        self._now = list(self._at_start)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if is_any_autocast_enabled() and is_autocast_enabled(self._device):
            self.autocast = autocast_dtype(self._device)
        if name in MASKS:
            return self._from_stream(lambda: func(*args, **named))
        if name in NUMBERS and named.get("generator") is None:
            return self._from_stream(lambda: self._numbers(func, name, args, named))
        result = func(*args, **named)
        return result.double() if self.double and _is_made_of_no_float(result, name, args, named) else result

    def _from_stream(self, draw: Callable[[], Any]) -> Any:
        kept = [generator.get_state() for generator in self._generators]
        try:
            _set(self._generators, self._now)
            result = draw()
            after = [generator.get_state() for generator in self._generators]
        finally:
            _set(self._generators, kept)
        self.drew |= any(not torch.equal(one, other) for one, other in zip(self._now, after, strict=True))
        self._now = after
        return result

    def _numbers(self, func: Any, name: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """PyTorch draws other numbers in float64 than in float32."""
        if not self.double:
            return func(*args, **named)
        drawn = func(*map(self._lowered, args), **{key: self._lowered(value) for key, value in named.items()})
        if name.endswith("_"):  # nn.init's functions come with their tensor by name
            return next(value for value in (*args, *named.values()) if isinstance(value, Tensor)).copy_(drawn)
        return drawn.double() if drawn.dtype.is_floating_point else drawn

    def _lowered(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self.own) if value.dtype == torch.float64 else value
        return self.own if value is torch.float64 else value

    def _seeded(self, number: int = 0) -> States:
        return [Generator(g.device).manual_seed(SEED + number).get_state() for g in self._generators]


def dtype_of(model: nn.Module | None) -> torch.dtype:
    """A model's own; float32 where it has no weights."""
    like = None if model is None else floating_parameter(model)
    return torch.float32 if like is None else like.dtype


def _is_made_of_no_float(result: Any, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether a result has PyTorch's default dtype since nothing asked for any."""
    if not isinstance(result, Tensor) or result.dtype != torch.get_default_dtype() or name in CONVERSIONS:
        return False
    given = [*args, *named.values()]
    inner = [part for value in given if isinstance(value, list | tuple) for part in value]
    return not any(_is_floating(value) or isinstance(value, torch.dtype) for value in (*given, *inner))


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _generators_of(model: nn.Module | None) -> list[Generator]:
    """PyTorch's own: the CPU's, and those of the GPUs that a model is on."""
    parameters = () if model is None else model.parameters()
    places = sorted({p.device.index or 0 for p in parameters if p.device.type == "cuda"})
    return [torch.default_generator, *(torch.cuda.default_generators[place] for place in places)]


def _set(generators: Sequence[Generator], states: States) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
