"""What is compiled on a GPU: the image field's functions, and those that its convolutions consist of."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import torch

from windermere._torch_private import compile_errors

Function: TypeAlias = Callable[..., Any]


@cache
def compiled(function: Function) -> Function:
    """The function compiled at its first call for a shape, or as it is where that fails: then with a warning, once."""
    made, works = torch.compile(function, dynamic=False), True

    def call(*args: Any) -> Any:
        nonlocal works
        if works:
            try:
                return made(*args)
            except compile_errors() as error:
                works = False
                why = (str(error).strip() or type(error).__name__).splitlines()[0]
                warnings.warn(f"an image field cannot be compiled here, and is slower for it: {why}", stacklevel=2)
        return function(*args)

    return call
