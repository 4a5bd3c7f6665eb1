"""The fused walk, for `kernels.run_kernels`."""

import inspect
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tests.paper.fast.kernels import answer
from windermere.paper.fast.fused import Launch, fused_walk
from windermere.solvers import METHODS


def results(case: dict[str, Any]) -> list[Tensor]:
    """The end state, and the gradients of its product with a cotangent in the start and in all weights."""
    start, *weights = (x.clone().requires_grad_() for x in (case["z"], *case["weights"]))
    launch = Launch(precision=case["precision"])
    end = fused_walk(METHODS[case["method"]], case["sizes"], case["counts"], start, weights, launch)
    gradients = torch.autograd.grad((end * case["cotangent"]).sum(), [start, *weights])
    with torch.no_grad():
        quiet = fused_walk(METHODS[case["method"]], case["sizes"], case["counts"], start, weights, launch)
    return [end.detach(), *gradients, quiet]


def let_the_interpreter_count() -> None:
    """Triton 3.6 reads a number from memory as an array of one, which NumPy from 2.4 on takes for no number."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def let_the_interpreter_remember() -> None:
    """For each call of a function in a kernel Triton 3.6 looks through its whole language for what to patch, for each
    tensor it makes a type of its shape's type, and for each number it lists all that there are: half of its time."""
    from triton.language import core
    from triton.runtime import interpreter

    patch_one, is_builtin = interpreter._patch_attr, core.is_builtin
    found, numpy_type = dict[Any, list[str]](), interpreter._get_np_dtype
    known_type = cache(numpy_type)

    def patched(package: Any, builder: Any, scope: Any) -> None:
        if package not in found:
            found[package] = [name for name, member in inspect.getmembers(package) if is_builtin(member)]
        for name in found[package]:
            if is_builtin(member := getattr(package, name)):  # not patched yet
                patch_one(package, name, member, builder, scope)

    @cache
    def shape_and_size(shape: tuple[int, ...]) -> tuple[Any, Any]:
        return core.tuple([core.constexpr(n) for n in shape]), core.constexpr(math.prod(shape))

    def made(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shape_and_size(type.shape if type.is_block() else ())

    interpreter._patch_builtin = patched
    interpreter._get_np_dtype = lambda of: (numpy_type if of.scalar.is_ptr() else known_type)(of.scalar)
    core.tensor.__init__ = made


if __name__ == "__main__":
    let_the_interpreter_count()
    let_the_interpreter_remember()
    answer(results)
