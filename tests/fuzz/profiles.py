"""How many examples a fuzzed test tries: a few in `make test`, always the same; 10,000 in all in `make fuzz`, new ones.

What an example breaks goes into the corpus, as an `@example` of its test, so that every later run tries it first.
"""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

WEEKLY = os.environ.get("WINDERMERE_FUZZ") == "weekly"
SHARES = {
    "fixed": (40, 2450),
    "adaptive": (20, 1500),
    "gradients": (12, 800),
    "odeint": (25, 1400),
    "controllers": (30, 1500),
    "values": (40, 900),
    "verdicts": (30, 500),
    "metrics": (10, 300),
    "configs": (25, 400),
    "commands": (12, 150),
    "folders": (6, 100),
}
"""Examples of each kind, quick and weekly."""


def load() -> None:
    common: Any = {
        "deadline": None,  # a loaded machine is no failure
        "database": None,
        "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    }
    settings.register_profile("quick", derandomize=True, **common)
    settings.register_profile("weekly", print_blob=True, **common)
    settings.load_profile("weekly" if WEEKLY else "quick")


def examples(share: str) -> Callable[[Any], Any]:
    """So many examples as this kind of test has."""
    return settings(max_examples=count(share))


def count(share: str) -> int:
    return SHARES[share][WEEKLY]
