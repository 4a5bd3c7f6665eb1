"""`make bench`, or `python -m benchmarks [NAME ...]`: every benchmark, its numbers, and whether its bars are met."""

import sys

from benchmarks import (
    audit_cost,
    calibration,
    calibration_errors,
    calibration_samplers,
    crossings,
    error_ratio,
    frontier,
    known_cases,
    memory,
    mnist_start,
    own_field,
    page,
    peers,
    phenomenon,
    ray_costs,
    ray_failures,
    ray_study,
    set_calibration,
    special_spheres,
    sphere_step,
)

BENCHMARKS = {
    "sphere_step": sphere_step.run,
    "special_spheres": special_spheres.run,
    "own_field": own_field.run,
    "peers": peers.run,
    "memory": memory.run,
    "phenomenon": phenomenon.run,
    "crossings": crossings.run,
    "known_cases": known_cases.run,
    "calibration": calibration.run,
    "calibration_errors": calibration_errors.run,
    "calibration_samplers": calibration_samplers.run,
    "audit_cost": audit_cost.run,
    "set_calibration": set_calibration.run,
    "error_ratio": error_ratio.run,
    "mnist_start": mnist_start.run,
    "page": page.run,
    "ray_study": ray_study.run,
    "ray_costs": ray_costs.run,
    "ray_failures": ray_failures.run,
    "frontier": frontier.bars_of_results,
}


def main(names: list[str]) -> int:
    if unknown := set(names) - set(BENCHMARKS):
        print(f"there is no benchmark {', '.join(sorted(unknown))}: known are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    bars = [bar for name in names or BENCHMARKS for bar in BENCHMARKS[name]()]
    print("\nBars")
    for bar in bars:
        print(f"  {bar}")
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
