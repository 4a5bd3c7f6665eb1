"""What a benchmark of the GPU finds: on the screen and in its file as it goes, with what failed."""

import json
import time
import traceback
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import torch


class Findings:
    """What is known so far, by section and name."""

    def __init__(self, out: Path, *, only: Sequence[str] = (), seconds: float = inf) -> None:
        """Words of which a section's name must hold one, if there are any; seconds after which nothing new begins."""
        out.parent.mkdir(parents=True, exist_ok=True)
        self.out, self.only, self.seconds, self.begun = out, only, seconds, time.perf_counter()
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        self.found: dict[str, Any] = {"torch": torch.__version__, "device": device}

    def keep(self, section: str, name: str, work: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if self.only and not any(word in section for word in self.only):
            return {}
        late = time.perf_counter() - self.begun > self.seconds
        value = {"error": "no time left"} if late else noted(work, *args, **more)
        self.note(section, name, value)
        return value

    def note(self, section: str, name: str, value: Any) -> None:
        self.found.setdefault(section, {})[name] = value
        self.out.write_text(json.dumps(self.found, indent=1))
        print(f"{time.perf_counter() - self.begun:5.0f} s  {section:<20} {name:<70} {short(value)}", flush=True)


def noted(work: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """What comes out, or the error's first and last words and where it came from: the others go on."""
    try:
        return work(*args, **more)
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
        text = text if len(text) < 1500 else f"{text[:700]} ... {text[-700:]}"
        return {"error": text, "where": traceback.format_exc()[-1500:]}


def short(value: Any) -> str:
    if isinstance(value, dict) and "error" in value:
        return f"ERROR {value['error'][:300]}"
    if isinstance(value, dict):
        return "  ".join(f"{k} {short(v)}" for k, v in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)
