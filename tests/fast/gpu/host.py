"""The kernels of rows.cu, compiled as C++ and run on a CPU."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from windermere.fast.gpu import driver
from windermere.fast.gpu.plan import Walk

COMPILER = os.environ.get("CXX", "c++")
HERE = Path(__file__).parent


@cache
def library(real: str, rows: int) -> ctypes.CDLL:
    """Compiled once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "rows.so"
        command = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", f"-DREAL={real}", f"-DROWS={rows}"]
        command += ["-Wno-unknown-pragmas", "-I", str(driver.HERE), str(HERE / "host.cpp"), "-o", str(made)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(made))


def is_there() -> bool:
    return shutil.which(COMPILER) is not None


class Host:
    """Runs kernels on a CPU, with blocks of one thread."""

    threads, lanes = 1, 1

    def __init__(self, processors: int = 4, chip: int = 1 << 20) -> None:
        self.most, self.memory, self.launched = processors, chip, list[str]()

    def processors(self, device: torch.device) -> int:
        return self.most

    def chip(self, device: torch.device) -> int:
        return self.memory

    def ready(self, machine: Any, dtype: torch.dtype, device: torch.device) -> bool:
        return True

    def together(self, plan: Any, dtype: torch.dtype, device: torch.device) -> int:
        return self.most

    def launch(
        self, name: str, walk: Any, machine: Any, blocks: int, chip: int, like: Any, *, together: bool = False
    ) -> None:
        loaded = library(driver.REALS[like.dtype], machine.rows)
        assert loaded.size_of_walk() == ctypes.sizeof(Walk)
        self.launched.append(name)
        number = driver.KERNELS.index(name)
        loaded.launch(number, ctypes.byref(walk), blocks, ctypes.c_long(chip), int(together))
