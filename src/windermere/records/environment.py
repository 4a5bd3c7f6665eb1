"""Where a run took place."""

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch


def environment(device: str) -> dict[str, Any]:
    """What a run started now on `device` runs on, for its environment.json."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "windermere": _version(),
        **_checkout(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": device,
        "device_name": _device_name(device),
        "threads": torch.get_num_threads(),
    }


def is_environment(noted: Any) -> bool:
    """Whether that is what `environment` told, of this version or an earlier one."""
    return isinstance(noted, dict) and {"started", "windermere", "torch", "device"} <= noted.keys()


def _version() -> str:
    """The package's own version, which is right for a bare PYTHONPATH too, where nothing is installed."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def _checkout() -> dict[str, Any]:
    """The commit this code runs from and whether the package differs from it; None without a checkout."""
    # An installed copy may lie in another project's checkout (in its .venv), whose commit says nothing of us:
    # there, none of our files are tracked.
    if _git("ls-files", "--error-unmatch", ".") is None:
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", "."))}


def _git(*arguments: str) -> str | None:
    # Inside a git hook these variables point at the repository being committed to, whichever that is.
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", *arguments]
    try:
        answer = subprocess.run(
            command, cwd=Path(__file__).parents[1], env=surroundings, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found and device.startswith("cpu"):
            return found.group(1)
    return platform.processor() or platform.machine()
