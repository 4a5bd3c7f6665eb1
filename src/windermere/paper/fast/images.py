"""The image networks' field in a chosen arithmetic, and whole fixed-step solves of it, member by member.

`walk` goes on autograd's tape, which keeps the hidden layers of every evaluation. `lean_walk` keeps the inputs of the
stages only, some forty times smaller, and computes the hidden layers again on its way back, by a hand-derived gradient.
On a GPU both run compiled functions, which take the weights as arguments, so that they are compiled once for a shape.

Shapes: S members, B samples, c channels. z is [B, c, height, width] or [S, B, c, height, width]; *weights* are those of
Conv2d(c, w, 1), Conv2d(w, w, 3, padding=1) and Conv2d(w, c, 1), each with its bias, in an ensemble with a leading S.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from windermere._torch_private import add_each
from windermere.errors import UsageError
from windermere.paper.arithmetic import products_in
from windermere.paper.fast import three_products
from windermere.paper.fast.compiling import Function, compiled
from windermere.paper.fast.image_adaptive import image_adapt
from windermere.paper.fast.image_evaluation import Hidden
from windermere.paper.fast.image_fused import can_walk_images, image_walk, tuned
from windermere.paper.fast.three_trial import takes_three
from windermere.solvers import FastPath, Prepared, Problem, Tableau, Walked
from windermere.solvers.gradients import differentiable_once
from windermere.solvers.grid import Grid, Steps
from windermere.solvers.runge_kutta import step_through

Weights: TypeAlias = Sequence[Tensor]


@dataclass(frozen=True)
class Images:
    """What fast paths have to know of an image network, or of an ensemble of them."""

    weights: Weights
    arithmetic: str

    @property
    def prepared(self) -> Prepared:
        """Ready to be solved step by step."""
        return Prepared(self.rate, lambda: tuple(self.weights))

    def rate(self, t: Tensor, z: Tensor) -> Tensor:
        return _by_member(lambda own, zs, _: rate(self.arithmetic, zs, own), self.weights, z)

    def walk(self, tableau: Tableau, grid: Grid | Steps, z: Tensor, *, lean: bool) -> Tensor:
        """Every member over its own grid, of which it takes no more steps than it has; by fused kernels where they
        can. A lean walk evaluates all of it again for its gradient."""
        if self.is_fused(z):
            hidden: Hidden = "recomputed" if lean else "levels"
            return image_walk(tableau, grid, z, self.weights, tuned(self.weights, hidden))
        if isinstance(grid, Steps):
            raise UsageError("an image field is walked over a grid of numbers, not of tensors")
        rows, one = grid.steps if grid.nodes.ndim == 2 else grid.steps[None], lean_walk if lean else walk

        def alone(own: Weights, zs: Tensor, s: int) -> Tensor:
            sizes = [float(h) for h in rows[s if len(rows) > 1 else 0] if h != 0.0]
            return one(self.arithmetic, tableau, sizes, zs, own)

        return _by_member(alone, self.weights, z)

    def is_fused(self, z: Tensor) -> bool:
        """Whether the kernels that are fused for bfloat16 can solve from this state."""
        return self.arithmetic == "bfloat16" and can_walk_images(z, self.weights)


@dataclass(frozen=True)
class ImagePath(FastPath):
    """Whole solves of the image networks: by fused kernels where they can, or member by member."""

    images_of: Callable[[Any], Images | None]

    def prepare(self, field: Any) -> Prepared | None:
        images = self.images_of(field)
        return None if images is None else images.prepared

    def fixed(self, problem: Problem) -> Walked | None:
        images, z, grid = self.images_of(problem.field), problem.z0, problem.grid
        if images is None or not problem.is_plain or grid.nodes.ndim >= z.ndim:
            return None
        end = images.walk(problem.tableau, grid, z, lean=problem.gradient == "checkpoint")
        return Walked.over_grid(problem.tableau.propagating, grid.taken, [z, end])

    def adaptive(self, problem: Problem) -> Walked | None:
        """By the fused kernels, which can do it where each member is a group."""
        images, z = self.images_of(problem.field), problem.z0
        if images is None or not problem.is_plain or problem.gradient == "checkpoint" or not images.is_fused(z):
            return None
        if problem.layout.groups != z.shape[:-4] or problem.adaptive[0].control != "batch":
            return None
        return image_adapt(problem, images.weights, tuned(images.weights, "levels"))


def _by_member(work: Callable[[Weights, Tensor, int], Tensor], weights: Weights, z: Tensor) -> Tensor:
    """One after the other: images are work enough for each by itself."""
    if weights[0].ndim == 4:
        return work(weights, z, 0) if z.ndim != 3 else work(weights, z.unsqueeze(0), 0).squeeze(0)
    return torch.stack([work([w[s] for w in weights], zs, s) for s, zs in enumerate(z.unbind(0))])


def rate(arithmetic: str, z: Tensor, weights: Weights) -> Tensor:
    """One evaluation; compiled on a GPU where it is to be differentiated: trials and tests come in too many shapes."""
    function = _fast(_ways(arithmetic, z, weights)[0], z) if torch.is_grad_enabled() else evaluate
    return cast(Tensor, function(products_in(arithmetic, z.dtype), z, *weights))


def walk(arithmetic: str, tableau: Tableau, sizes: Sequence[float], z: Tensor, weights: Weights) -> Tensor:
    """z after steps of these sizes."""
    z = z.contiguous(memory_format=torch.channels_last)
    if _compiles(z) and torch.is_grad_enabled() and any(w.requires_grad for w in weights) and not z.requires_grad:
        z = z.detach().requires_grad_()  # or the first evaluation would be compiled apart from the others
    return step_through(tableau, lambda _, x: rate(arithmetic, x, weights), sizes, z)


def lean_walk(arithmetic: str, tableau: Tableau, sizes: Sequence[float], z: Tensor, weights: Weights) -> Tensor:
    """z after steps of these sizes, to be evaluated again for its gradient."""
    return cast(Tensor, _LeanWalk.apply(arithmetic, tableau, sizes, z, *weights))  # type: ignore[no-untyped-call]


class _LeanWalk(torch.autograd.Function):
    """A walk by any explicit method; its backward pass is the exact gradient of the walk's operations."""

    @staticmethod
    def forward(
        ctx: Any, arithmetic: str, tableau: Tableau, sizes: Sequence[float], z: Tensor, *weights: Tensor
    ) -> Tensor:
        z = z.contiguous(memory_format=torch.channels_last)
        low, (there, back) = products_in(arithmetic, z.dtype), _ways(arithmetic, z, weights)
        function = _fast(there, z)
        inputs: list[Tensor] = []

        def noted(_: Tensor, x: Tensor) -> Tensor:
            inputs.append(x)
            return cast(Tensor, function(low, x, *weights))

        z = step_through(tableau, noted, sizes, z)
        ctx.tableau, ctx.sizes, ctx.low, ctx.back = tableau, sizes, low, back
        ctx.save_for_backward(*weights, *inputs)
        return z

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> Any:
        weights, inputs = ctx.saved_tensors[:6], ctx.saved_tensors[6:]
        tableau, count = ctx.tableau, ctx.tableau.propagating
        on_z = grads[0].clone(memory_format=torch.channels_last)
        function, gathered = _fast(ctx.back, on_z), [torch.zeros_like(w) for w in weights]
        for n in range(len(ctx.sizes) - 1, -1, -1):
            h = ctx.sizes[n]
            on_rates = [on_z * (h * tableau.b[i]) for i in range(count)]
            for i in range(count - 1, -1, -1):
                on_x, *shares = function(ctx.low, on_rates[i], inputs[n * count + i], *weights)
                add_each(gathered, shares)
                on_z.add_(on_x)
                for j, a in enumerate(tableau.a[i]):
                    if a != 0.0:
                        on_rates[j].add_(on_x, alpha=h * a)
        return None, None, None, on_z, *gathered


class Mixing(NamedTuple):
    """A way to do the 3x3 convolution, by far the most of an evaluation."""

    there: Callable[[Tensor, Tensor, Tensor], Tensor]
    """From an input, a weight and a bias."""
    back: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    """The cotangents of all three, from that of the output, the input and the weight."""


def evaluate(low: torch.dtype, z: Tensor, *weights: Tensor) -> Tensor:
    """The field at z. Weights are rounded here, in each evaluation, so that their gradients are summed in their own
    dtype."""
    return _evaluated(PLAIN, low, z, weights)


def pull_back(low: torch.dtype, on_rate: Tensor, z: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """The cotangents of z and of the weights, from that of the field's value at z; both hidden layers anew."""
    return _pulled_back(PLAIN, low, on_rate, z, weights)


def evaluate_in_three(low: torch.dtype, z: Tensor, *weights: Tensor) -> Tensor:
    """As `evaluate`, with the 3x3 convolution in three products of TF32."""
    return _evaluated(IN_THREE, low, z, weights)


def pull_back_in_three(low: torch.dtype, on_rate: Tensor, z: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """As `pull_back`, with the 3x3 convolution in three products of TF32."""
    return _pulled_back(IN_THREE, low, on_rate, z, weights)


def _ways(arithmetic: str, z: Tensor, weights: Weights) -> tuple[Function, Function]:
    """How solves that have a gradient evaluate the field, and pull back."""
    in_three = takes_three(arithmetic, z, weights[2])
    return (evaluate_in_three, pull_back_in_three) if in_three else (evaluate, pull_back)


def _evaluated(mixing: Mixing, low: torch.dtype, z: Tensor, weights: Weights) -> Tensor:
    w3, b3 = (rounded := _rounded_all(low, weights))[4:]
    return F.conv2d(_hidden(mixing, _rounded(low, z), rounded)[1], w3, b3).to(z.dtype)


def _pulled_back(mixing: Mixing, low: torch.dtype, on_rate: Tensor, z: Tensor, weights: Weights) -> tuple[Tensor, ...]:
    x, rounded = _rounded(low, z), _rounded_all(low, weights)
    w1, _, w2, _, w3, _ = rounded
    first, second = _hidden(mixing, x, rounded)
    on_second, on_w3, on_b3 = _back(_rounded(low, on_rate), second, w3, 0)
    on_second = torch.ops.aten.threshold_backward(on_second, second, 0)
    on_first, on_w2, on_b2 = mixing.back(on_second, first, w2)
    on_first = torch.ops.aten.threshold_backward(on_first, first, 0)
    on_x, on_w1, on_b1 = _back(on_first, x, w1, 0)
    return tuple(v.to(z.dtype) for v in (on_x, on_w1, on_b1, on_w2, on_b2, on_w3, on_b3))


def _hidden(mixing: Mixing, x: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """Both hidden layers."""
    w1, b1, w2, b2, *_ = weights
    first = F.relu(F.conv2d(x, w1, b1)).contiguous(memory_format=torch.channels_last)  # one channel lies either way
    return first, F.relu(mixing.there(first, w2, b2))


def _back(cotangent: Tensor, x: Tensor, weight: Tensor, padding: int) -> tuple[Tensor, Tensor, Tensor]:
    """The cotangents of a convolution's input, weight and bias."""
    sizes, pads, wanted = [weight.shape[0]], [padding, padding], [True, True, True]
    found = torch.ops.aten.convolution_backward(
        cotangent, x, weight, sizes, [1, 1], pads, [1, 1], False, [0, 0], 1, wanted
    )
    return cast(tuple[Tensor, Tensor, Tensor], found)


PLAIN = Mixing(partial(F.conv2d, padding=1), partial(_back, padding=1))
IN_THREE = Mixing(three_products.mixed, three_products.mixed_back)


def _rounded(low: torch.dtype, tensor: Tensor) -> Tensor:
    return tensor.to(low, memory_format=torch.channels_last if tensor.ndim == 4 else torch.preserve_format)


def _rounded_all(low: torch.dtype, tensors: Weights) -> list[Tensor]:
    return [_rounded(low, tensor) for tensor in tensors]


def _compiles(z: Tensor) -> bool:
    return z.is_cuda


def _fast(function: Function, z: Tensor) -> Function:
    return compiled(function) if _compiles(z) else function
