"""Runs that are trained in sittings, each of which may be killed inside of any operation on a file.

A kill in this process is an exception; what the folder holds at that moment is what it holds afterwards, whatever was
tidied up on the way out, as after SIGKILL.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.paper.training.small import a_config, adapted_config, checkpoint, model, rows, trained
from windermere.paper.training import RunConfig
from windermere.records import read_json, run_folder
from windermere.solvers import Adaptive, FixedStep

SHORT: dict[str, Any] = {"iterations": 12, "seeds": (3, 1), "log_every": 2, "evaluate_every": 6, "checkpoint_every": 3}
CONFIGS: list[RunConfig] = [
    a_config(**SHORT),
    a_config(**SHORT, optimizer="sgd", gradient="checkpoint", dtype="float64"),
    a_config(**SHORT, solver=Adaptive("fehlberg21", tolerance=1e-2)),
    adapted_config("paper", rule={"every": 4}, **SHORT),
    adapted_config("steady", rule={"every": 1}, **SHORT, solver=FixedStep("midpoint", step=0.3)),
]


class Killed(BaseException):
    """What stands for SIGKILL."""


@contextmanager
def killed_at(moment: int | None, folder: Path, die: Callable[[], None] | None = None) -> Iterator[None]:
    """Dies at so many moments from now, if there are so many: before and after each operation on a file, and in the
    middle of each row. None lets it live. `die` is how; otherwise it is an exception."""
    left, after = moment, folder.with_name(f"{folder.name}.after")

    def stop() -> None:
        if folder.exists():
            shutil.copytree(folder, after)
        raise Killed

    def tick() -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                left = None
                (die or stop)()

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            tick()
            result = call(*given, **named)
            tick()
            return result

        return made

    def in_halves(file: FileIO, data: bytes) -> None:
        file.write(data[: len(data) // 2])
        tick()
        file.write(data[len(data) // 2 :])

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "fsync"):
            patch.setattr(os, name, around(getattr(os, name)))
        patch.setattr(run_folder, "append", in_halves)
        try:
            yield
        except Killed:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(FileNotFoundError):
                after.rename(folder)
            raise


def sit(folder: Path, config: RunConfig, *, killed: int | None = None, stop_at: int | None = None) -> bool:
    """Begins or goes on; whether the run is finished."""
    begun = (folder / "config.json").exists()
    with killed_at(killed, folder):
        return trained(folder, config, resume=begun, stop_at=stop_at).finished


def result(folder: Path) -> dict[str, Any]:
    """All that a finished run came to, but for the time it took."""
    saved, end = checkpoint(folder), model(folder)
    meta = {
        name: value for name, value in saved.meta.items() if name not in ("seconds", "metrics_bytes", "metrics_sha256")
    }
    tensors = {
        f"{kind} {name}": t.numpy().tobytes()
        for kind, f in (("model", end), ("all", saved))
        for name, t in f.tensors.items()
    }
    return {"meta": meta, "end": end.meta, "rows": rows(folder), "config": read_json(folder / "config.json"), **tensors}


@cache
def uninterrupted(number: int) -> dict[str, Any]:
    """What this config comes to without a break."""
    with TemporaryDirectory() as name:
        sit(Path(name, "run"), CONFIGS[number])
        return result(Path(name, "run"))
