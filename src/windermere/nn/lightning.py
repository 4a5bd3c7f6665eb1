"""Lightning under either of its names, for callbacks. Imported when one is asked for: Lightning is an extra."""

import sys
from importlib import import_module
from typing import Any


def lightning_for(what: str) -> Any:
    """The one already imported comes first, so that it is the one of the user's Trainer."""
    missing = None
    for name in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            missing = error
    raise ImportError(f"{what} needs Lightning: pip install 'windermere-ode[lightning]'") from missing
