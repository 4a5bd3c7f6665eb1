"""Packages that windermere imports and a bare GPU machine may lack: imported first, this stands in for them."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import Any
from unittest.mock import MagicMock


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that nothing here calls."""

    wanted = ("matplotlib", "safetensors", "rich", "typer", "scipy")
    names = frozenset(n for n in wanted if importlib.util.find_spec(n) is None)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        absent = name.split(".")[0] in self.names
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return MagicMock(name=spec.name, __spec__=spec, __path__=[])

    def exec_module(self, module: Any) -> None:
        pass


sys.meta_path.append(_Absent())
