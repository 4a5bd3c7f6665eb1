"""`make bench`, or `python -m benchmarks [NAME ...]`: every benchmark, its numbers, and whether its bars are met."""

import sys
from importlib import import_module

NAMES = (
    *("special_spheres", "own_field", "peers", "memory", "crossings"),
    *("calibration", "calibration_errors", "calibration_samplers", "audit_cost", "set_calibration", "error_ratio"),
    *("mnist_start", "page", "ray_study", "ray_costs", "ray_failures", "frontier"),
)
"""Modules of this package, each with a function `run` that returns its bars."""


def main(names: list[str]) -> int:
    if unknown := set(names) - set(NAMES):
        print(f"there is no benchmark {', '.join(sorted(unknown))}: known are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    bars = [bar for name in names or NAMES for bar in import_module(f"benchmarks.{name}").run()]
    print("\nBars")
    for bar in bars:
        print(f"  {bar}")
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
