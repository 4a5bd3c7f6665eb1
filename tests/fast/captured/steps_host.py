"""The kernels of steps.cu, compiled as C++ and run on a CPU; on a tape where one is being recorded."""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.fast.captured.tapes import note
from tests.fast.gpu.host import COMPILER
from windermere.fast.captured import kernels

HERE = Path(__file__).parent


def is_there() -> bool:
    return shutil.which(COMPILER) is not None


@cache
def library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "steps.so"
        command = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", *kernels.MEANINGS]
        command += ["-I", str(kernels.STEPS.path.parent), str(HERE / "steps_host.cpp"), "-o", str(made)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(made))


class OnHost:
    """Runs kernels on a CPU."""

    def __init__(self) -> None:
        self.launched = list[str]()

    def launch(self, name: str, blocks: int, *given: Any) -> None:
        self.launched.append(name)
        note(self.run, name, blocks, *given)

    def run(self, name: str, blocks: int, *given: Any) -> None:
        own = kernels.arguments(given)
        addresses = (ctypes.c_void_p * len(own))(*[ctypes.addressof(x) for x in own])
        assert library().size_of_terms() == ctypes.sizeof(kernels.Terms)
        library().launch(kernels.NAMES.index(name), blocks, addresses)
