"""Every failure a user can meet, each raised with one sentence: what happened, where, and what to do."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self


def describe_error(error: BaseException) -> str:
    """What a user's own code raised, as a part of a sentence."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")


def describe_value(value: object) -> str:
    """What a user gave, as a part of a sentence."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:76]} ..."


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was too small: Python's error, PyTorch's for a GPU, or that for a CPU, which only words tell."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    words = r"can't allocate memory|not enough memory|out of memory|bad_alloc"
    return isinstance(error, RuntimeError) and re.search(words, str(error)) is not None


def is_device_failure(error: BaseException) -> bool:
    """Whether a GPU gave up: lost, hung, or after a kernel that went wrong. No later call in this process works."""
    if is_out_of_memory(error):
        return False
    words = r"(CUDA|HIP|MPS|XPU) error|CUBLAS_STATUS_|CUDNN_STATUS_|device-side assert"
    told = isinstance(error, RuntimeError) and re.search(words, str(error)) is not None
    return told or type(error).__name__ == "AcceleratorError"


def describe_failure(error: BaseException) -> str:
    """What a device said, without PyTorch's advice on how to find out more."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return textwrap.shorten(said.replace(" error: ", ": "), 200, placeholder=" ...")


class WindermereError(Exception):
    """The root of all of Windermere's errors."""


class UsageError(WindermereError, ValueError):
    """An argument or a combination of arguments that cannot mean anything."""


class UnknownNameError(UsageError):
    """A name (of a method, a data set, ...) that does not exist; the nearest ones are offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(str(name), names, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'? " if near else ""
        super().__init__(f"there is no {kind} '{name}': {hint}known are {', '.join(names)}")


class ThresholdWarning(UserWarning):
    """Two scores count as equal only by a threshold that is meant for accuracies, which they may not be."""


class SolverError(WindermereError, ArithmeticError):
    """A solve that could not be carried out; its subclasses name the cause."""

    seeds: tuple[int, ...] = ()
    """The seeds of the ensemble's members that could not be solved; empty if unknown or without an ensemble."""
    evaluations: Any = None
    """How often the field was evaluated before the solve failed, by group; None where it failed before that."""

    def after(self, evaluations: Any) -> Self:
        """This error with the evaluations made so far. Raise it at once: an error that a variable holds keeps the
        solve's memory until the garbage collector runs."""
        self.evaluations = evaluations
        return self


class FieldError(SolverError):
    """The field is no function field(t, z) that gives the state's rate of change in a tensor of its own, of the same
    shape, dtype and device; or it depends on what an adjoint cannot know of."""


class NonFiniteError(SolverError):
    """The field, or a state it led to, is infinite or not a number."""


class StepBudgetError(SolverError):
    """The solve did not reach its end within the steps it was allowed."""


class ToleranceError(SolverError):
    """The tolerance lies below what the dtype can resolve."""


class VanishingStepError(SolverError):
    """The step no longer advances the time: it shrank, as the field is stiff or not smooth there, or is too small for
    times so late."""


class DataError(WindermereError):
    """A data file is missing, truncated, corrupted or of the wrong kind."""


class MissingDataError(DataError):
    """Files of a data set that are not there yet; `archive` is the packed file that lies there instead, if one does."""

    def __init__(self, fact: str, data_set: str, archive: Path | None = None) -> None:
        self.fact, self.data_set, self.archive = fact, data_set, archive
        source, why = ("...", "if you have the files elsewhere")
        if archive is not None:
            source, why = repr(str(archive.parent)), "to unpack it"
        take = f"windermere.paper.data.get({data_set!r}, source={source})"
        super().__init__(f"{fact}: run `windermere data get {data_set}`, or call {take} {why}")


class RunError(WindermereError):
    """A run folder cannot be used as asked: taken, unfinished, damaged or not a run at all."""


class RunInUseError(RunError):
    """A run that another process is writing."""


class FolderTakenError(RunError):
    """What is to be written cannot go into this folder, since it holds something else. The sentence ends with the
    folder to choose instead."""


class UnfinishedRunError(RunError):
    """A run whose model is not trained to the end yet."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}: let its training end, or go on with it")


class StartedOtherwiseError(RunError):
    """A run was started with other settings than it is to go on with: by name, each as it was and as it is now."""

    def __init__(self, path: Path, settings: Mapping[str, tuple[Any, Any]], advice: str) -> None:
        self.path, self.settings, self.advice = path, dict(settings), advice
        told = " and ".join(f"{name} = {was} (not {now})" for name, (was, now) in settings.items())
        super().__init__(f"{path} was started with {told}: {advice}")


class StorageError(RunError, OSError):
    """The disk refused: full, read-only or not a folder."""


class DivergedError(RunError):
    """Training met a loss that is not finite; the last good state was kept."""

    def __init__(self, message: str, *, run: Path | None = None, seeds: Iterable[int] = (), iteration: int = 0) -> None:
        super().__init__(message)
        self.run, self.seeds, self.iteration = run, tuple(seeds), iteration
        """Where, whose fault it was, and after how many good iterations."""


class DeviceError(RunError):
    """The device failed, or its memory was full, in the middle of a training; the last checkpoint was kept."""


class AuditError(WindermereError):
    """A model that cannot be audited as it was given."""


class MissedSolvesError(AuditError):
    """Solves of a model that an audit could not give another solver."""


class DoublePrecisionError(AuditError):
    """A model that insists on float32."""
