"""Errors as a user of the command line reads them: the library says them in Python's words, and here they get flags."""

import re
import shlex
from ast import literal_eval
from collections.abc import Callable
from typing import Any

from windermere.errors import (
    FolderTakenError,
    MissingDataError,
    StartedOtherwiseError,
    UnfinishedRunError,
    WindermereError,
)

FLAGS = {
    "adapt": "--adapt",
    "arithmetic": "--arithmetic",
    "batch_axis": "--batch-axis",
    "check": "--check",
    "metric": "--metric",
    "outputs": "--outputs",
    "threshold": "--threshold",
    "quick": "--quick",
    "results": "--results",
    "resume": "--resume",
    "shared": "--shared",
    "samples": "--all",
    "source": "--from",
}
"""Arguments that the library's sentences speak of, as the command line has them."""
ARGUMENT = re.compile(rf"(?<![^\s(])({'|'.join(FLAGS)})=(\.\.\.|None|True|-?\d+|'[^']*'|\((?:\d+|'[^']*'),\))(?![\w/])")
"""One of them in a sentence, not in a path, with its value; `...` stands for any."""
SETTING = re.compile(
    r"^(batch_size|checkpoint_every|data_seed|evaluate_every|iterations|log_every|seeds|threshold)(?= must )"
)
"""What a sentence begins with that says which values a flag may have."""


def sentence_of(error: WindermereError) -> str:
    """An error in one sentence that names flags."""
    said = next((say(error) for kind, say in SAID.items() if isinstance(error, kind)), str(error))
    return in_flags(said)


def in_flags(sentence: str) -> str:
    """`shared=(1,)` as `--shared 1`, `log_every must be ...` as `--log-every must be ...`, and so on."""
    return SETTING.sub(lambda found: "--" + found[1].replace("_", "-"), ARGUMENT.sub(_flag, sentence))


def _flag(found: re.Match[str]) -> str:
    name, text = found.groups()
    value = literal_eval(text)
    if value in (..., None, True):
        return FLAGS[name] + (" FOLDER" if name == "source" else "")
    return f"{FLAGS[name]} {shlex.quote(str(value[0] if isinstance(value, tuple) else value))}"


def _missing_data(error: MissingDataError) -> str:
    command = f"windermere data get {error.data_set}"
    if error.archive is not None:
        return f"{error.fact}: run `{command} --from {shlex.quote(str(error.archive.parent))}` to unpack it"
    return f"{error.fact}: run `{command}`, or `{command} --from FOLDER` if you have the files elsewhere"


def _started_otherwise(error: StartedOtherwiseError) -> str:
    both = ((name.replace("_", "-"), _given(was), _given(now)) for name, (was, now) in error.settings.items())
    told = " and ".join(f"--{name} {was} (not {now})" for name, was, now in both)
    return f"{error.path} was started with {told}: {error.advice}"


def _given(value: Any) -> str:
    """Seeds as a flag has them: one number alone would be how many."""
    if not isinstance(value, tuple):
        return str(value)
    return ",".join(map(str, value)) + ("," if len(value) == 1 else "")


SAID: dict[type[WindermereError], Callable[[Any], str]] = {
    FolderTakenError: lambda error: f"{error} as --out",
    MissingDataError: _missing_data,
    StartedOtherwiseError: _started_otherwise,
    UnfinishedRunError: lambda error: f"{error} by --resume",
}
"""How the command line says an error that it knows more of than Python does."""
