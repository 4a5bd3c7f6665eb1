"""What is handed out is done once, whoever is lost on the way; without Ray, by a pool in this process."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.paper.cluster.pools import PoolHere, opened, ran_elsewhere, some_work
from tests.paper.studies.small import SEEDS, SMALL, TABLE, assert_same_tables, ran
from tests.paper.studies.test_running import some_data
from tests.paper.training.small import assert_same_run
from windermere.errors import DivergedError, RunError, StorageError, UsageError
from windermere.paper.cluster.driver import IN_VAIN, Driver
from windermere.paper.cluster.pool import Beat, Cluster, Pool, open_pool
from windermere.paper.cluster.single import train_elsewhere
from windermere.paper.cluster.work import Carried, Ending, Lost, Resources, Work, carry_out
from windermere.paper.studies.running import Choice, load_sets, run_study
from windermere.paper.training import StopSign, hold_run, open_run, train
from windermere.records import hand_out, reached, read_metrics, take_over


def once(ended: Sequence[tuple[Work, Ending]]) -> Iterable[Work]:
    """Goes on with what was lost."""
    return [work for work, ending in ended if isinstance(ending, Lost)]


def test_a_study_is_the_same_elsewhere_though_processes_die(whole: Path, tmp_path: Path) -> None:
    told: list[str] = []
    ended = ran_elsewhere(tmp_path, PoolHere(fates=[13, None, 57]), told)
    assert (ended.reason, ended.left, ended.failed) == ("finished", [], {})
    assert_same_tables(tmp_path, whole)
    assert told == [f"euler-1_seeds-0-1-2 (here): its process died; it goes on from iteration {n}" for n in (12, 56)]
    assert not list(tmp_path.glob("runs/*/.attempts"))


def test_a_run_that_is_lost_again_and_again_loses_less_than_one_interval_each_time(tmp_path: Path) -> None:
    work, seen = some_work(tmp_path / "a", iterations=60), list[int]()
    pool = PoolHere(fates=[11, 21, 31, 41, 51], seen=lambda work, now: seen.append(now.iteration))
    driver = Driver(pool, StopSign())
    driver.drive([work], once)
    again = [(before, after) for before, after in pairwise(seen) if after <= before]
    assert again == [(11, 9), (21, 21), (31, 29), (41, 41), (51, 49)]  # checkpoints are every four iterations
    assert driver.failed == {}
    with open_run(tmp_path / "b", work.configs[0]) as run:
        train(work.configs[0], *work.sets, run)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_process_that_hangs_is_left_behind_and_what_it_says_later_is_not_heard(tmp_path: Path) -> None:
    """Each look at the clock is twenty seconds after the one before."""
    work, told, pool = some_work(tmp_path / "a", iterations=8), list[str](), PoolHere(fates=["hangs"])
    clock = iter(range(0, 10_000, 20))
    Driver(pool, StopSign(), 90.0, tell=told.append, clock=lambda: float(next(clock))).drive([work], once)
    assert told == ["a (here): nothing was heard of its process for 90 s; it goes on from iteration 0"]
    assert pool.abandoned == pool.labels[:1]
    assert reached(tmp_path / "a") == 8


def test_a_driver_that_was_held_up_itself_takes_nobody_for_lost(tmp_path: Path) -> None:
    """As on a laptop that slept: an hour between two looks at the clock."""
    work, told = some_work(tmp_path / "a", iterations=8), list[str]()

    class Slow(PoolHere):
        looks = 0

        def wait(self, seconds: float) -> Sequence[tuple[str, Ending]]:
            self.looks += 1
            self.beaten |= {self.labels[0]: Beat("here", {})} if self.looks == 1 else {}
            return super().wait(seconds) if self.looks > 5 else []

    clock = iter(range(0, 10**9, 3600))
    Driver(Slow(), StopSign(), tell=told.append, clock=lambda: float(next(clock))).drive([work], once)
    assert told == []


def test_after_three_attempts_in_a_row_that_come_no_further_work_is_given_up_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    pool = PoolHere(fates=[6, None, 5, 6, 6])
    ended = ran_elsewhere(tmp_path, pool, told)
    assert ended.left == ["euler-1"]
    assert ended.reason == "given up"
    assert {row.run for row in TABLE.read(tmp_path)} == {"euler-16"}
    assert len(told) == 1 + IN_VAIN  # the first came to a checkpoint
    (why,) = ended.failed.values()
    assert why.endswith("its process died; 3 attempts in a row came no further")
    assert told[-1] == f"given up: {why}"
    assert reached(tmp_path / "runs" / "euler-1_seeds-0-1-2") == 4
    ran(tmp_path)  # without it
    assert len(TABLE.read(tmp_path)) == 6


def test_an_error_that_would_come_again_is_not_tried_again(tmp_path: Path) -> None:
    told: list[str] = []
    ended = ran_elsewhere(tmp_path, PoolHere(fates=[Lost("no such solver", again=False)]), told)
    assert told == ["given up: euler-1_seeds-0-1-2 (here): no such solver"]
    assert ended.failed == {"euler-1_seeds-0-1-2": "euler-1_seeds-0-1-2 (here): no such solver"}


def test_stopped_it_goes_on_without_a_pool_and_ends_with_the_same_tables(whole: Path, tmp_path: Path) -> None:
    sign = StopSign()
    pool = PoolHere()

    def seen(work: Work, now: object) -> None:
        if now.iteration == 9:  # type: ignore[attr-defined]
            sign.reason = pool.reason = "interrupted"

    pool.seen = seen
    ended = ran_elsewhere(tmp_path, pool, [], sign=sign)
    assert (ended.reason, ended.left) == ("interrupted", ["euler-1", "euler-16"])
    assert reached(tmp_path / "runs" / "euler-1_seeds-0-1-2") == 9
    ran(tmp_path)
    assert_same_tables(tmp_path, whole)


def test_what_a_killed_session_left_is_taken_over_by_whoever_goes_on(whole: Path, tmp_path: Path) -> None:
    """Neither the driver nor its processes came to an end: their folders lie there as they were."""
    run_study(SMALL, tmp_path, Choice(seeds=SEEDS, only="euler-16"))
    run, config = tmp_path / "runs" / "euler-1_seeds-0-1-2", SMALL.runs(False)["euler-1"]
    config = replace(config, seeds=SEEDS)
    work = Work(runs=(run,), configs=(config,), sets=load_sets("sphere2", 0), resources=Resources())
    with hold_run(run, config) as held:
        hand_out(held, "0001-killed")
    PoolHere()._carry_out("0001-killed", work, 22)
    assert reached(run) == 0
    first: list[int] = []
    run_study(
        SMALL, tmp_path, Choice(seeds=SEEDS), report=lambda now: first.append(now.report.iteration if now.report else 0)
    )
    assert first[0] == 21
    assert_same_tables(tmp_path, whole)


def test_runs_that_train_as_one_stay_together_and_a_seed_that_diverges_leaves_the_others(tmp_path: Path) -> None:
    cluster = Cluster(open=lambda: opened(PoolHere()))
    here = run_study(SMALL, tmp_path / "a", Choice(seeds=(0, 1, 2, 3, 4, 5), quick=True), load=some_data(bad=True))
    there = run_study(
        SMALL, tmp_path / "b", Choice(seeds=(0, 1, 2, 3, 4, 5), quick=True), load=some_data(bad=True), cluster=cluster
    )
    assert here.diverged == there.diverged != {}
    assert (tmp_path / "a" / "table.csv").read_bytes() == (tmp_path / "b" / "table.csv").read_bytes()


def test_a_run_in_use_is_given_up_and_left_alone(tmp_path: Path) -> None:
    work = some_work(tmp_path / "a")
    driver = Driver(PoolHere(), StopSign())
    with open_run(tmp_path / "a", work.configs[0]):
        driver.drive([work], once)
    assert "is in use by process" in driver.failed["a"]


def test_while_it_is_out_nobody_else_may_train_it(tmp_path: Path) -> None:
    work = some_work(tmp_path / "a", iterations=8)

    def seen(work: Work, now: object) -> None:
        with pytest.raises(RunError, match="is in use by process"):
            open_run(tmp_path / "a", work.configs[0], resume=True)

    Driver(PoolHere(seen=seen), StopSign()).drive([work], once)


def test_one_run_is_trained_elsewhere_as_here(tmp_path: Path) -> None:
    work, told = some_work(tmp_path / "a", iterations=20), list[str]()
    cluster = Cluster(open=lambda: opened(PoolHere(fates=[10])), tell=told.append)
    outcome = train_elsewhere(work.configs[0], work.sets, tmp_path / "a", cluster, resume=False, sign=StopSign())
    assert (outcome.finished, outcome.iteration) == (True, 20)
    assert told == ["a is trained on here", "a (here): its process died; it goes on from iteration 8"]
    assert [row["iteration"] for row in read_metrics(tmp_path / "a")] == list(range(1, 21))


def test_one_run_that_diverges_elsewhere_says_where_its_state_is(tmp_path: Path) -> None:
    work = some_work(tmp_path / "a", iterations=20)
    work.sets[0][0][:] = float("inf")
    cluster = Cluster(open=lambda: opened(PoolHere()))
    with pytest.raises(DivergedError, match=rf"the state before it is kept in {tmp_path / 'a'}$"):
        train_elsewhere(work.configs[0], work.sets, tmp_path / "a", cluster, resume=False, sign=StopSign())


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    work = some_work(tmp_path / "a")
    with pytest.raises(StorageError, match=r"a is not there on this machine: choose a folder"):
        carry_out(work, "0001-blind", work.sets, sign=StopSign(), report=lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_an_attempt_that_is_over_before_it_began_writes_nothing(tmp_path: Path) -> None:
    work = some_work(tmp_path / "a")
    with hold_run(tmp_path / "a", work.configs[0]) as held:
        hand_out(held, "0001-late")
        take_over(held)
    before = sorted(path.name for path in (tmp_path / "a").iterdir())
    with pytest.raises(StorageError, match=r"the attempt 0001-late at .* is over: another one has taken its place"):
        carry_out(work, "0001-late", work.sets, sign=StopSign(), report=lambda *_: None)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == before


def test_ten_thousand_pieces_of_work_are_handed_out_five_thousand_at_a_time() -> None:
    class Counting(PoolHere):
        most = 0

        def submit(self, label: str, work: Work) -> None:
            super().submit(label, work)
            self.most = max(self.most, len(self.waiting))

        def wait(self, seconds: float) -> Sequence[tuple[str, Ending]]:
            done = [(label, Carried([], [])) for label, _ in self.waiting]
            self.waiting.clear()
            return done

    pool: Pool = (counting := Counting())
    done: list[Work] = []

    def settle(ended: Sequence[tuple[Work, Ending]]) -> Iterable[Work]:
        done.extend(work for work, _ in ended)
        return ()

    Driver(pool, StopSign()).drive([some_work()] * 10_000, settle)
    assert (len(done), counting.most) == (10_000, 5000)


def test_that_nothing_begins_is_told_once(tmp_path: Path) -> None:
    """Each look at the clock is twenty seconds after the one before."""

    class Full(PoolHere):
        def wait(self, seconds: float) -> Sequence[tuple[str, Ending]]:
            looks.append(seconds)
            return [] if len(looks) < 20 else super().wait(seconds)

    looks, told, clock = list[float](), list[str](), iter(range(0, 10_000, 20))
    work = replace(some_work(tmp_path), resources=Resources(gpus=0.25))
    Driver(Full(), StopSign(), tell=told.append, clock=lambda: float(next(clock))).drive([work], once)
    (sentence,) = told
    assert sentence.endswith("nowhere is there room yet for a process with 1 core, 0.25 of a GPU and 0.6 GiB")


def test_a_client_of_ray_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="submit it as a job"):
        open_pool("ray://head:10001")
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(UsageError, match="submit it as a job"):
        open_pool(None)
