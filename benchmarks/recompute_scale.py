"""Sentences of docs/scale.md: what Ray, tables and checkpoints cost, and a sweep that is reckoned with it."""

from collections.abc import Iterator
from math import sqrt
from statistics import median

from benchmarks.recompute import Sentence, benchmark, of_page

RUNS, GPUS, SECONDS = 100_000, 1000, 600
"""The sweep: how many runs, on how many GPUs, and how long each takes."""
BEAT = 2.0
"""Seconds between signs of life of a process."""
DATA = ("sphere2", "mnist", "cifar10")


@of_page("docs/scale.md")
def ray_beside_plain_runs() -> Iterator[Sentence]:
    found = benchmark("ray_study")
    killed, side = found["killed"], found["side by side"]
    yield "three nodes, {} runs of Sphere2, two nodes killed", killed["runs"] if killed["tables equal"] else None
    spent, clock = side["processors"], side["clock"]
    yield "{:.2f}, {:.2f} and {:.2f} times the processor seconds", *spent["ratios"]
    yield "{:.0f}, {:.0f} and {:.0f} s without Ray", *spent["plain"]
    yield "{:.2f}, {:.2f} and {:.2f} times the time by the clock", *clock["ratios"]
    yield "the bar was 1.1 and is {}", "met" if median(spent["ratios"]) <= 1.1 else "not met"


@of_page("docs/scale.md")
def measured_costs() -> Iterator[Sentence]:
    costs = benchmark("ray_costs")
    of = [costs["checkpoints"][name] for name in DATA]
    yield "| {} a second |", costs["handed out"]["tasks a second"][0]
    yield "| {:,} a second |", costs["handed out"]["signs of life a second"]
    yield "| {:.2f}, {:.1f} and {:.1f} MB |", *(one["bytes"] / 1e6 for one in of)
    yield "| {:.0f}, {:.0f} and {:.0f} ms |", *(1000 * one["written in s"] for one in of)
    yield "| {:.1f}, {:.1f} and {:.0f} ms |", *(1000 * one["read in s"] for one in of)
    yield "| {:.0f}, {:.0f} and {:.0f} ms, nearly all of it fsync |", *(1000 * one["taken over in s"] for one in of)
    yield "| {:.2f}, {:.1f} and {:.1f} MB |", *(one["bytes of a run"] / 1e6 for one in of)
    yield (
        "| {:.1f}, {:.0f} and {:.0f} ms of a processor |",
        *(1000 * costs["rows"][n] for n in ("100", "1000", "10000")),
    )


@of_page("docs/scale.md")
def a_sweep_of_100_000_runs() -> Iterator[Sentence]:
    costs = benchmark("ray_costs")
    tasks, beats = costs["handed out"]["tasks a second"][0], costs["handed out"]["signs of life a second"]
    taken = max(costs["checkpoints"][name]["taken over in s"] for name in DATA)
    ends = GPUS / SECONDS
    yield "{:.1f} hours, and {:.1f} runs that end each second", RUNS * SECONDS / GPUS / 3600, ends
    yield "| hands out {:.1f} runs | {:.1f}% of its time |", ends, 100 * ends / tasks
    yield "| takes over {:.1f} attempts, at {:.0f} ms | {:.0f}% |", ends, 1000 * taken, 100 * ends * taken
    yield "| {:.0f}% of what the board can answer |", 100 * GPUS / BEAT / beats
    largest, least = costs["checkpoints"]["cifar10"], costs["checkpoints"]["sphere2"]
    yield "| {:.0f} MB/s, {:.0f} files/s |", largest["bytes"] * GPUS / 60 / 1e6, GPUS / 60
    yield "{:.0f} GB (Sphere2: {:.0f} GB)", largest["bytes of a run"] * RUNS / 1e9, least["bytes of a run"] * RUNS / 1e9
    row = costs["rows"]["10000"] / 10_000
    yield "({:.0f} µs for each run that is in it)", 1e6 * row
    yield "at 100,000 runs that takes {:.1f} s", row * RUNS
    yield "the last rows come {:.0f} s late", 10 * row * RUNS
    yield "{:.0f} ends of runs a second on this disk", 1 / taken
    yield "at {:,.0f} processes", round(beats * BEAT, -2)


@of_page("docs/scale.md")
def nodes_that_fail() -> Iterator[Sentence]:
    found = benchmark("ray_failures")
    yield "a checkpoint {:.0f} ms", 1000 * found["written in s"]
    for one in found["simulated"]:
        hours = RUNS * SECONDS / 3600 * one["spent over ideal"]
        yield "| {:.0f} | {:.3f}% | {:,.0f} |", one["runs cut off"], 100 * one["lost"], hours
    daily, monthly = (sqrt(2 * found["written in s"] * days * 86_400.0) / 60 for days in (1, 30))
    yield "is {:.1f} minutes where nodes fail daily, and {:.0f} where they fail monthly", daily, monthly
