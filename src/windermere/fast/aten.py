"""What PyTorch's operations do to cells: those that move them, and those that compute, in terms of a program's few."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import pi
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from windermere.fast.cells import Builder, UnknownRowError
from windermere.fast.program import UNARY

Cells: TypeAlias = Any
"""The cells of a tensor; or a number."""

MOVING = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "expand",
        "permute",
        "t",
        "transpose",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "unbind",
        "unsqueeze",
        "squeeze",
        "cat",
        "stack",
        "flip",
        "roll",
        "clone",
        "alias",
        "detach",
        "diagonal",
        "repeat",
        "lift_fresh_copy",
        "unsafe_split",
        "narrow",
        "contiguous",
        "movedim",
        "swapaxes",
        "chunk",
        "index_select",
        "index",
        "view_as",
        "unflatten",
        "flatten",
        "hstack",
        "vstack",
        "concat",
    }
)
"""They move entries about, whatever these are."""
FILLING = frozenset({"ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"})
"""Their result does not depend on the numbers in what they are given."""
TRUTHS = frozenset(
    {"gt", "lt", "le", "ge", "eq", "ne", "isnan", "mul", "where", "maximum", "minimum", "masked_fill", "sgn", "sign"}
)
"""What has truth values for its result, and does to them as to the numbers 0 and 1: a sum of two is no 2."""
EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})
READING = frozenset(
    {
        *("_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "unique", "masked_select", "allclose"),
        *("bincount", "_assert_async"),
    }
)
"""They read numbers, which a program cannot follow."""


@cache
def slope_at_a_bound() -> float:
    """The derivative of a clamp where its argument is the bound: 1 until PyTorch 2.13, 0 in 2.15."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros((), requires_grad=True)
        (slope,) = torch.autograd.grad(x.clamp(min=0), x)
    return float(slope)


class Language:
    """Operations on cells, by what users call them."""

    def __init__(self, builder: Builder) -> None:
        self.builder, self.slope_at_a_bound = builder, slope_at_a_bound()

    def cells(self, x: Cells) -> Tensor:
        return x if isinstance(x, Tensor) else torch.tensor(self.builder.constant(float(x)))

    def number(self, x: Cells) -> float | None:
        return self.builder.number(x) if isinstance(x, Tensor) else float(x)

    def plus(self, a: Cells, b: Cells, x: float = 1.0, y: float = 1.0) -> Tensor:
        """x a + y b"""
        (a, b), (n, m) = (self.cells(a), self.cells(b)), (self.number(a), self.number(b))
        if n is not None and m is not None:
            return self.cells(x * n + y * m).expand(_shape(a, b))
        for one, other, left, factor in ((a, b, m, x), (b, a, n, y)):
            if left == 0.0 and factor == 1.0:
                return _expanded(one, other)
        return self.builder.elementwise("add", a, b, numbers=(float(x), float(y)))

    def times(self, a: Cells, b: Cells) -> Tensor:
        (a, b), (n, m) = (self.cells(a), self.cells(b)), (self.number(a), self.number(b))
        if n is not None and m is not None:
            return self.cells(n * m).expand(_shape(a, b))
        for one, other, left in ((a, b, m), (b, a, n)):
            if left == 1.0:
                return _expanded(one, other)
        return self.builder.elementwise("mul", a, b)

    def over(self, a: Cells, b: Cells) -> Tensor:
        if (m := self.number(b)) is not None and m != 0 and 1 / m * m == 1 and abs(torch.tensor(m).frexp()[0]) == 0.5:
            return self.times(a, 1 / m)  # by a power of two
        return self.builder.elementwise("div", self.cells(a), self.cells(b))

    def gate(self, a: Cells, b: Cells) -> Tensor:
        """0 where b <= 0, and else a."""
        return self.builder.elementwise("gate", self.cells(a), self.cells(b))

    def flat(self, x: Cells) -> Tensor:
        """0, with a gradient of 0 and not without one: what depends on x so can be differentiated all the same."""
        return self.gate(x, 0.0)

    def sign(self, x: Cells) -> Tensor:
        return self.plus(self.plus(self.above(x, 0.0), self.above(0.0, x), 1, -1), self.flat(x))

    def of_each(self, kind: str, x: Cells, *numbers: float) -> Tensor:
        return self.builder.elementwise(kind, self.cells(x), numbers=tuple(map(float, numbers)))

    def above(self, a: Cells, b: Cells) -> Tensor:
        """1 where a > b, and else 0."""
        return self.builder.elementwise("above", self.cells(a), self.cells(b))

    def at_least(self, a: Cells, b: Cells) -> Tensor:
        """1 where a >= b, and else 0."""
        return self.builder.elementwise("at_least", self.cells(a), self.cells(b))

    def equal(self, a: Cells, b: Cells) -> Tensor:
        return self.times(self.at_least(a, b), self.at_least(b, a))

    def unequal(self, a: Cells, b: Cells) -> Tensor:
        """1 where they are not equal, which what is not a number never is; and else 0."""
        return self.plus(1.0, self.equal(a, b), 1, -1)

    def larger(self, a: Cells, b: Cells, x: Cells, y: Cells) -> Tensor:
        """x where a > b, y where a < b, and half of each where they are equal: so PyTorch shares the cotangent of a
        maximum."""
        return self.plus(self.choose(self.above(a, b), x, y), self.choose(self.at_least(a, b), x, y), 0.5, 0.5)

    def maximum(self, a: Cells, b: Cells) -> Tensor:
        """No number where one of them is none, as in PyTorch: `larger` alone takes b there."""
        return self.spoiled(self.larger(a, b, a, b), a)

    def minimum(self, a: Cells, b: Cells) -> Tensor:
        return self.spoiled(self.larger(a, b, b, a), b)

    def spoiled(self, x: Cells, by: Cells) -> Tensor:
        """x; or `by`, where that is no number."""
        number = self.number(by)
        return self.cells(x) if number is not None and number == number else self.choose(self.at_least(by, by), x, by)

    def choose(self, which: Cells, a: Cells, b: Cells) -> Tensor:
        """a where `which` is 1, b where it is 0."""
        return self.plus(self.gate(a, which), self.gate(b, self.plus(0.5, which, 1, -1)))

    def power(self, x: Cells, exponent: float) -> Tensor:
        if exponent == 0:  # of a number that is 0 too: its derivative is not 0 times infinity
            return self.plus(1.0, self.flat(x))
        if exponent < 0 and -exponent in (0.5, 1.0, 2.0):
            return self.over(1.0, self.power(x, -exponent))
        if exponent in (1.0, 2.0, 3.0, 4.0):
            found = self.cells(x)
            for _ in range(int(exponent) - 1):
                found = self.times(found, x)
            return found
        return self.of_each("sqrt", x) if exponent == 0.5 else self.of_each("pow", x, exponent)

    def elu(self, x: Cells, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
        if input_scale != 1:
            raise UnknownRowError("an elu with a scale of its input")
        y = self.of_each("elu", x)
        if alpha != 1:
            y = self.leaky_relu(y, alpha)
        return y if scale == 1 else self.times(y, scale)

    def elu_back(
        self, on: Cells, alpha: float, scale: float, input_scale: float, is_result: bool, given: Cells
    ) -> Tensor:
        if input_scale != 1 or scale != 1 or (is_result and alpha != 1):
            raise UnknownRowError("the derivative of a scaled elu")
        y = given if is_result else self.of_each("elu", given)
        positive = self.gate(1.0, y)
        below = self.times(self.plus(1.0, positive, alpha, -alpha), self.plus(y, 1.0))
        return self.times(on, self.plus(positive, below))

    def softplus(self, x: Cells, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
        if threshold != 20:
            raise UnknownRowError("a softplus with a threshold")
        return self.of_each("softplus", x) if beta == 1 else self.times(self.softplus(self.times(x, beta)), 1 / beta)

    def softplus_back(self, on: Cells, x: Cells, beta: float, threshold: float) -> Tensor:
        if threshold != 20:
            raise UnknownRowError("a softplus with a threshold")
        return self.times(on, self.of_each("sigmoid", self.times(x, beta)))

    def gelu(self, x: Cells, approximate: str = "none") -> Tensor:
        if approximate == "none":
            return self.of_each("gelu", x)
        return self.times(self.times(x, 0.5), self.plus(1.0, self.of_each("tanh", self._bent(x))))

    def _bent(self, x: Cells) -> Tensor:
        inner = self.plus(x, self.power(x, 3.0), 1.0, 0.044715)
        return self.times(inner, (2 / pi) ** 0.5)

    def gelu_back(self, on: Cells, x: Cells, approximate: str = "none") -> Tensor:
        if approximate == "none":
            density = self.times(self.of_each("exp", self.times(self.times(x, x), -0.5)), (2 * pi) ** -0.5)
            return self.times(on, self.plus(self.of_each("normal_cdf", x), self.times(x, density)))
        y = self.of_each("tanh", self._bent(x))
        slope = self.times(self.plus(1.0, self.times(x, x), 1.0, 3 * 0.044715), (2 / pi) ** 0.5)
        bent = self.times(self.times(x, self.plus(1.0, self.times(y, y), 1, -1)), slope)
        return self.times(on, self.plus(self.plus(1.0, y, 0.5, 0.5), bent, 1.0, 0.5))

    def silu_back(self, on: Cells, x: Cells) -> Tensor:
        s = self.of_each("sigmoid", x)
        return self.times(on, self.times(s, self.plus(1.0, self.times(x, self.plus(1.0, s, 1, -1)))))

    def mish_back(self, on: Cells, x: Cells) -> Tensor:
        y = self.of_each("tanh", self.of_each("softplus", x))
        bent = self.times(self.times(x, self.of_each("sigmoid", x)), self.plus(1.0, self.times(y, y), 1, -1))
        return self.times(on, self.plus(y, bent))

    def leaky_relu(self, x: Cells, slope: float = 0.01) -> Tensor:
        return self.of_each("leaky_relu", x, slope) if slope >= 0 else self.leaky(x, x, slope)

    def leaky(self, on: Cells, x: Cells, slope: float, is_result: bool = False) -> Tensor:
        if is_result and slope < 0:
            raise UnknownRowError("the derivative of a leaky relu that falls")
        return self.plus(on, self.gate(on, x), slope, 1 - slope)

    def threshold_back(self, on: Cells, x: Cells, threshold: float) -> Tensor:
        return self.gate(on, x if threshold == 0 else self.plus(x, threshold, 1, -1))

    def clamp(self, x: Cells, low: Any = None, high: Any = None) -> Tensor:
        """At the bounds themselves the derivative is as this PyTorch has it."""
        x = self.cells(x)
        if self.slope_at_a_bound == 0:
            return self.clamp_of_today(x, low, high)
        if low is not None:
            x = self.spoiled(self.choose(self.above(low, x), low, x), low)
        return x if high is None else self.spoiled(self.choose(self.above(x, high), high, x), high)

    def clamp_of_today(self, x: Cells, low: Any, high: Any) -> Tensor:
        """At bounds that are numbers the derivative is 0, and bounds that are tensors share it as in a maximum."""
        if isinstance(low, Tensor) and isinstance(high, Tensor):
            raise UnknownRowError("a clamp between two tensors, which may be equal")
        if isinstance(low, Tensor):
            return self.maximum(x, low)
        if isinstance(high, Tensor):
            return self.minimum(x, high)
        if low is not None:
            x = self.spoiled(self.choose(self.above(x, low), x, low), x)
        return x if high is None else self.spoiled(self.choose(self.above(high, x), x, high), x)

    def total(self, x: Cells, dims: Sequence[int] | int | None = None, keep: bool = False, **_: Any) -> Tensor:
        if isinstance(dims, int):
            dims = (dims,)
        reduced = sorted(d % max(x.ndim, 1) for d in dims) if dims else list(range(x.ndim))
        kept = [d for d in range(x.ndim) if d not in reduced]
        shape = [1 if d in reduced else n for d, n in enumerate(x.shape) if keep or d not in reduced]
        rows = x.permute(*kept, *reduced).reshape(torch.Size([x.shape[d] for d in kept]).numel(), -1)
        return self.builder.summed(rows).reshape(shape)

    def mean(self, x: Cells, dims: Sequence[int] | int | None = None, keep: bool = False, **_: Any) -> Tensor:
        found = self.total(x, dims, keep)
        return self.times(found, found.numel() / x.numel())

    def batched_product(self, a: Cells, b: Cells) -> Tensor:
        """[n, p, k] times [n, k, q]."""
        return self.total(self.times(a.unsqueeze(3), b.unsqueeze(1)), 2)


def _shape(a: Tensor, b: Tensor) -> torch.Size:
    return torch.Size(np.broadcast_shapes(a.shape, b.shape))  # PyTorch's own imports sympy: seconds of a first solve


def _expanded(x: Tensor, other: Tensor) -> Tensor:
    return x.expand(_shape(x, other))


def vocabulary(say: Language) -> Mapping[str, Callable[..., Tensor]]:
    """From PyTorch's names to operations on cells; alpha and beta as PyTorch has them."""
    known: dict[str, Callable[..., Tensor]] = {
        kind: (lambda x, kind=kind: say.of_each(kind, x)) for kind in UNARY if kind not in ("pow", "gelu", "elu")
    }
    known |= {
        "add": lambda a, b, alpha=1: say.plus(a, b, 1.0, alpha),
        "sub": lambda a, b, alpha=1: say.plus(a, b, 1.0, -alpha),
        "rsub": lambda a, b, alpha=1: say.plus(b, a, 1.0, -alpha),
        "mul": say.times,
        "div": lambda a, b: say.over(a, b),
        "neg": lambda x: say.times(x, -1.0),
        "reciprocal": lambda x: say.over(1.0, x),
        "rsqrt": lambda x: say.over(1.0, say.of_each("sqrt", x)),
        "square": lambda x: say.times(x, x),
        "pow": _power(say),
        "sgn": say.sign,
        "lerp": lambda a, b, weight: say.plus(a, say.times(say.plus(b, a, 1, -1), weight)),
        "addcmul": lambda a, b, c, value=1: say.plus(a, say.times(b, c), 1.0, value),
        "addcdiv": lambda a, b, c, value=1: say.plus(a, say.over(b, c), 1.0, value),
        "sum": say.total,
        "mean": say.mean,
        "bmm": say.batched_product,
        "leaky_relu": say.leaky_relu,
        "leaky_relu_backward": say.leaky,
        "tanh_backward": lambda on, y: say.times(on, say.plus(1.0, say.times(y, y), 1, -1)),
        "sigmoid_backward": lambda on, y: say.times(on, say.times(y, say.plus(1.0, y, 1, -1))),
        "threshold_backward": say.threshold_back,
        "gelu": say.gelu,
        "gelu_backward": say.gelu_back,
        "elu": say.elu,
        "elu_backward": say.elu_back,
        "softplus": say.softplus,
        "softplus_backward": say.softplus_back,
        "silu_backward": say.silu_back,
        "mish_backward": say.mish_back,
        "gt": say.above,
        "lt": lambda a, b: say.above(b, a),
        "le": lambda a, b: say.at_least(b, a),
        "ge": say.at_least,
        "eq": say.equal,
        "ne": say.unequal,
        "isnan": lambda x: say.unequal(x, x),
        "where": say.choose,
        "maximum": say.maximum,
        "minimum": say.minimum,
        "clamp": say.clamp,
        "clamp_min": lambda x, low: say.clamp(x, low),
        "clamp_max": lambda x, high: say.clamp(x, None, high),
        "masked_fill": lambda x, which, number: say.choose(which, number, x),
    }
    known["sign"] = known["sgn"]
    known["subtract"], known["multiply"], known["divide"] = known["sub"], known["mul"], known["div"]
    return known


def _power(say: Language) -> Callable[..., Tensor]:
    def power(x: Cells, exponent: Cells) -> Tensor:
        fixed = say.number(exponent)
        if fixed is None:
            raise UnknownRowError("a power with an exponent that is not a number")
        return say.power(x, fixed)

    return power


def moved_back(name: str, on: Tensor, shape: Sequence[int], place: Sequence[Any], zero: int) -> Tensor:
    """The cells of `select_backward` and `slice_backward`: zeros with cotangents in their place."""
    whole = torch.full(tuple(shape), zero)
    if name == "select_backward":
        dim, index = place
        whole.select(dim, index).copy_(on)
    else:
        dim, start, end, step = place
        torch.ops.aten.slice.Tensor(whole, dim, start, end, step).copy_(on)
    return whole
