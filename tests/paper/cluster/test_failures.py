"""The simulation behind docs/scale.md, where its answer is known."""

from dataclasses import replace

import pytest

from benchmarks.ray_failures import BEGIN, Sweep, best_interval, simulate


def test_without_failures_a_sweep_takes_what_its_runs_their_starts_and_their_checkpoints_take() -> None:
    sweep = Sweep(seconds=600.0, interval=60.0, write=0.6, between_failures=1e12)
    found = simulate(sweep, runs=160, gpus=16)
    assert found["runs cut off"] == found["lost"] == 0
    assert found["hours"] == pytest.approx(10 * (600 * 1.01 + BEGIN) / 3600)


def test_what_is_lost_is_half_an_interval_for_each_run_that_is_cut_off() -> None:
    sweep = Sweep(seconds=6000.0, interval=60.0, write=0.0, between_failures=20_000.0)
    found = simulate(sweep, runs=4000, gpus=400)
    assert found["runs cut off"] > 500
    assert found["lost"] * 4000 * 6000.0 / found["runs cut off"] == pytest.approx(30.0, rel=0.1)


def test_the_best_interval_is_young_s() -> None:
    sweep = Sweep(seconds=6000.0, write=5.0, between_failures=20_000.0)
    best = best_interval(sweep.write, sweep.between_failures)
    spent = {}
    for times in (0.1, 1.0, 10.0):
        found = simulate(replace(sweep, interval=best * times), runs=4000, gpus=400)
        spent[times] = found["lost"] + sweep.write / (best * times)
    assert spent[1.0] < min(spent[0.1], spent[10.0])
