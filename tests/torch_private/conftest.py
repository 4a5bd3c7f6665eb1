"""The library as on a PyTorch that lacks names."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.torch_private.names import OF_TENSORS, Without, load_without
from windermere import _torch_private


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Let the library run as on a PyTorch that lacks names of these paths, or properties of tensors."""

    def missing(self: Tensor, own: Any) -> Any:
        if sys._getframe(2).f_globals["__name__"].startswith("torch."):  # PyTorch itself finds it
            return own.__get__(self)
        raise AttributeError

    def hide(*names: str) -> ModuleType:
        for name in set(names) & set(OF_TENSORS):
            written = getattr(torch._C.TensorBase, name)  # by PyTorch itself
            read = lambda self, own=written: missing(self, own)  # noqa: E731
            monkeypatch.setattr(torch.Tensor, name, property(read, written.__set__))
        other = load_without(*(name for name in names if name not in OF_TENSORS))
        for module in [m for name, m in sys.modules.items() if name.startswith("windermere.")]:
            for name, value in list(vars(module).items()):
                if module is not _torch_private and name[0] != "@" and value is vars(_torch_private).get(name, other):
                    monkeypatch.setattr(module, name, vars(other)[name])
        return other

    return hide
