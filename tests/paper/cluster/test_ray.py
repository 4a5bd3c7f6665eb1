"""Real Ray: processes and nodes die or are cut off, and the tables are those of one process without Ray."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.ray_nodes import first_at_work
from tests.paper.cluster.pools import some_work
from tests.paper.cluster.rays import LONGER, SEEDS
from tests.paper.studies.small import SMALL, assert_same_tables
from tests.processes import ROOT, by_signals, python
from windermere.errors import UsageError
from windermere.paper.cluster.work import Resources
from windermere.paper.studies.running import Choice, run_study
from windermere.paper.studies.study import Study
from windermere.records import reached

pytest.importorskip("ray")
pytestmark = by_signals


def played(scene: str, out: Path, study: Study) -> list[str]:
    """What was told, of a study that ended with the tables that it has without Ray."""
    command = ("-m", "tests.paper.cluster.rays", scene, out / "ray")
    with python(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        told, errors = process.communicate()
    assert process.returncode == 0, errors
    run_study(study, out / "here", Choice(seeds=SEEDS))
    assert_same_tables(out / "ray", out / "here")
    assert not list(out.glob("ray/runs/*/.attempts"))
    return sorted(told.splitlines())


def test_processes_that_are_killed_change_nothing_in_the_tables(tmp_path: Path) -> None:
    told = played("process dies", tmp_path, SMALL)
    assert [line.partition(" (")[0] for line in told] == ["euler-16_seeds-0-1", "euler-1_seeds-0-1"]
    assert all(line.endswith("its process died; it goes on from iteration 60") for line in told)


@pytest.mark.thorough
def test_nodes_that_are_killed_change_nothing_in_the_tables(tmp_path: Path) -> None:
    told = played("nodes die", tmp_path, LONGER)
    assert len(told) >= 2
    assert all("died; it goes on from iteration" in line for line in told)


@pytest.mark.thorough
@pytest.mark.parametrize("scene", ["process stops", "node stops"])
def test_what_was_cut_off_and_goes_on_beside_its_successor_changes_nothing_in_the_tables(
    tmp_path: Path, scene: str
) -> None:
    told = played(scene, tmp_path, LONGER)
    assert "it goes on from iteration" in told[0]


def processes_of(scene: Path) -> list[int]:
    """Those that were started by a scene in this folder, and still live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"PLAYED_IN={scene}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["Ctrl-C", "time limit", "SIGKILL"])
def test_a_command_that_is_stopped_or_killed_leaves_no_process_and_goes_on_with_ray_and_without(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYED_IN", str(tmp_path))
    out, scene = tmp_path / "ray", "time limit" if how == "time limit" else "nothing happens"
    command = ("-m", "tests.paper.cluster.rays", scene, out)
    with python(*command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as process:
        first_at_work(out, set())
        if how == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        elif how == "SIGKILL":
            process.kill()
        told, _ = process.communicate()
    assert told.splitlines() == {"Ctrl-C": ["interrupted"], "time limit": ["time limit"], "SIGKILL": []}[how]
    monkeypatch.delenv("PLAYED_IN")
    latest = time.monotonic() + 60
    while processes_of(tmp_path) and time.monotonic() < latest:
        time.sleep(0.05)
    assert processes_of(tmp_path) == []
    taken_over = [path for path in out.glob("runs/*_*") if not (path / ".attempts").exists()]
    assert (max(map(reached, taken_over), default=0) > 0) == (how != "SIGKILL")
    shutil.copytree(out, tmp_path / "alone")
    assert run_study(LONGER, tmp_path / "alone", Choice(seeds=SEEDS)).reason == "finished"
    assert played("nothing happens", tmp_path, LONGER) == ["finished"]
    assert_same_tables(tmp_path / "alone", tmp_path / "here")


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "said"), [("Ctrl-C", "interrupted"), ("time limit", "time limit"), ("SIGKILL", "")])
def test_stopped_on_a_cluster_that_others_use_a_study_ends_what_is_its_own_alone(
    tmp_path: Path, how: str, said: str
) -> None:
    """And goes on without Ray, to the tables that it has without."""
    out = tmp_path / "there"
    command = ("-m", "tests.paper.cluster.rays", f"shared: {how}", out)
    with python(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        told, errors = process.communicate()
    assert told.splitlines() == [f"{said}; 3 nodes live, and what others had there goes on"], errors
    assert run_study(LONGER, out, Choice(seeds=SEEDS)).reason == "finished"
    run_study(LONGER, tmp_path / "here", Choice(seeds=SEEDS))
    assert_same_tables(out, tmp_path / "here")


@pytest.mark.parametrize(
    ("there", "has"), [({"CPU": 2.0}, "none"), ({"CPU": 2.0, "GPU": 0.2}, "at most 0.2 on one machine")]
)
def test_a_share_of_a_gpu_that_no_machine_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, float], has: str
) -> None:
    from windermere.paper.cluster.ray_pool import refuse_missing_gpus

    dead = {"Alive": False, "Resources": {"GPU": 8.0}}
    monkeypatch.setattr("ray.nodes", lambda: [dead, {"Alive": True, "Resources": there}])
    with pytest.raises(UsageError, match=f"0.25 of a GPU, and the cluster at HEAD:6379 has {has}: "):
        refuse_missing_gpus(Resources(gpus=0.25), "the cluster at HEAD:6379")
    refuse_missing_gpus(Resources(gpus=0.0), "the cluster at HEAD:6379")
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True, "Resources": {"GPU": 1.0}}])
    refuse_missing_gpus(Resources(gpus=0.25), "the cluster at HEAD:6379")


def test_a_folder_that_is_named_from_here_is_found_by_processes_that_were_started_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windermere.paper.cluster.ray_pool import as_handed_out

    monkeypatch.chdir(tmp_path)
    assert as_handed_out(some_work(Path("a"), tmp_path / "b"))["runs"] == (tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("most", [{"CPU": 0.0, "memory": 2.0**40}, {"CPU": 8.0, "memory": 2.0**28}, {}])
def test_a_cluster_that_has_never_room_for_a_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, most: dict[str, float]
) -> None:
    """Elsewhere work would wait without end: cores on one machine and memory on another are no room."""
    from windermere.paper.cluster.ray_pool import refuse_missing_room

    dead = {"Alive": False, "Resources": {"CPU": 8.0, "memory": 2.0**40}}
    monkeypatch.setattr("ray.nodes", lambda: [dead, {"Alive": True, "Resources": most}])
    with pytest.raises(UsageError, match=r"give each run 1 core and 0\.6 GiB, and no machine of HEAD has that"):
        refuse_missing_room(Resources(), "HEAD")
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True, "Resources": {"CPU": 1.0, "memory": 2.0**30}}])
    refuse_missing_room(Resources(gpus=0.25), "HEAD")
