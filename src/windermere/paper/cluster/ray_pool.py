"""Ray: processes on this machine or on a cluster. The only file that imports it.

Tasks are never retried by Ray itself, since each attempt has a folder of its own, which the driver hands out. Ray's own
transport pickles what it carries between processes of one user; no file of ours is a pickle.
"""

import logging
import os
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import asdict, replace
from typing import Any

import ray
import torch
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import windermere
from windermere.errors import StorageError, UsageError, WindermereError, describe_error, is_out_of_memory
from windermere.paper.cluster.address import HERE, refuse_unless_answered
from windermere.paper.cluster.board import Board
from windermere.paper.cluster.pool import Beat, Pool
from windermere.paper.cluster.work import Ending, Lost, Resources, Sets, Work, carry_out
from windermere.paper.training import Report, StopSign

if sys.platform != "win32":
    import resource

EVERY = 2.0
"""Seconds between a process's signs of life."""
WHY: Mapping[type[BaseException], str] = {
    NodeDiedError: "its node died",
    OutOfMemoryError: "its node ran out of memory",
    WorkerCrashedError: "its process died",
    ObjectLostError: "its answer was lost with its node",
    TaskCancelledError: "it was cancelled",
}


class RayPool:
    """Ray's tasks, one for each attempt. Data sets are put into Ray's store, which brings each to a node once."""

    def __init__(self, place: str, every: float = EVERY) -> None:
        self.place, self.every = place, every
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._board: Any = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        self._task = ray.remote(_carry_out)
        self._stored: dict[tuple[int, int], tuple[Any, Sets]] = {}
        self._labels: dict[Any, str] = {}

    def check(self, resources: Resources) -> None:
        refuse_missing_gpus(resources, self.place)
        refuse_missing_room(resources, self.place)

    def submit(self, label: str, work: Work) -> None:
        options = _options(work.resources)
        bare = {"work": as_handed_out(work), "label": label, "version": windermere.__version__, "every": self.every}
        self._labels[self._task.options(**options).remote(bare, [self._store(work.sets)], self._board)] = label

    def wait(self, seconds: float) -> Sequence[tuple[str, Ending]]:
        refs = list(self._labels)
        if not ray.wait(refs, num_returns=1, timeout=seconds)[0]:
            return []
        ready = ray.wait(refs, num_returns=len(refs), timeout=0)[0]
        return [(self._labels.pop(ref), _ending(ref)) for ref in ready]

    def beats(self) -> Mapping[str, Beat]:
        left = ray.get(self._board.read.remote())
        return {
            label: Beat(where, {index: Report(**plain) for index, plain in reports.items()})
            for label, (where, reports) in left.items()
        }

    def abandon(self, label: str) -> None:
        for ref in [ref for ref, known in self._labels.items() if known == label]:
            del self._labels[ref]
            ray.cancel(ref, force=True)

    def stop(self, reason: str, unbegun: Sequence[str]) -> None:
        self._board.stop.remote(reason)
        for ref, label in self._labels.items():
            if label in unbegun:
                ray.cancel(ref)

    def _store(self, sets: Sets) -> Any:
        key = sets[0][0].data_ptr(), len(sets[1][1])
        if key not in self._stored:  # which keeps the sets, so that no others can get their place in memory
            self._stored[key] = ray.put([tensor.numpy() for part in sets for tensor in part]), sets
        return self._stored[key][0]


@contextmanager
def open_ray(address: str) -> Iterator[Pool]:
    """Joins a cluster, or starts one here; left, it ends what was started."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # which would be sent to the makers of Ray
    logging.getLogger("ray").setLevel(logging.ERROR)
    terminated = signal.getsignal(signal.SIGTERM)
    refuse_unless_answered(address)
    _allow_open_files()
    with redirect_stdout(sys.stderr):  # where Ray prints why nodes died: answers have standard output for themselves
        _join(address)
        try:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminated)  # Ray has put its own in the place of ours
            yield RayPool("this machine" if address == HERE else f"the cluster at {address}")
        finally:
            ray.shutdown()


def _join(address: str) -> None:
    try:
        with nullcontext() if address == HERE else _silent():
            ray.init(
                address=address,
                include_dashboard=False if address == HERE else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()  # what was begun
        asked = address != HERE and "RAY_AUTH_MODE" not in os.environ  # of which Ray's own error says nothing
        advice = "; if it asks for a token, set RAY_AUTH_MODE=token" if asked else ""
        raise UsageError(f"Ray at '{address}' cannot be joined: {describe_error(error)}{advice}") from error


@contextmanager
def _silent() -> Iterator[None]:
    """Without what Ray's own threads write to the descriptor of standard error while they look for a cluster."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def refuse_missing_gpus(resources: Resources, place: str) -> None:
    """Refuses a share of a GPU that no node has, though no other work were there."""
    most = max((node.get("GPU", 0.0) for node in _alive()), default=0.0)
    if resources.gpus > most:
        has = f"at most {most:g} on one machine" if most else "none"
        raise UsageError(
            f"Ray was to give each run {resources.gpus:g} of a GPU, and {place} has {has}: add a machine that has it "
            "to Ray first, ask for less, or train on the device cpu"
        )


def refuse_missing_room(resources: Resources, place: str) -> None:
    """Refuses cores and memory that no node has, as with 0 cores, which keeps work off a head."""
    nodes = [(node.get("CPU", 0.0), node.get("memory", 0.0)) for node in _alive()]
    if not any(cores >= resources.cores and memory >= resources.memory for cores, memory in nodes):
        has = " and ".join(f"{cores:g} cores with {memory / 2**30:.1f} GiB" for cores, memory in sorted(set(nodes)))
        raise UsageError(
            f"Ray was to give each run {replace(resources, gpus=0.0)}, and no machine of {place} has that (there are "
            f"{has}): add one to Ray first, with `ray start` and its --num-cpus and --memory, or train without Ray"
        )


def _alive() -> list[dict[str, float]]:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in nodes if node["Alive"]]


def _allow_open_files() -> None:
    """Each run that is out is a file that is locked, and there may be thousands."""
    if sys.platform != "win32":
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def as_handed_out(work: Work) -> dict[str, Any]:
    """Without the sets, which go by Ray's store, and with folders that do not depend on where a process was started."""
    plain = {name: value for name, value in vars(work).items() if name != "sets"}
    return {**plain, "runs": tuple(run.absolute() for run in work.runs)}


def _options(resources: Resources) -> dict[str, Any]:
    return {
        "num_cpus": resources.cores,
        "num_gpus": resources.gpus,
        "memory": resources.memory,
        "max_retries": 0,
    }


def _ending(ref: Any) -> Ending:
    try:
        ending: Ending = ray.get(ref)
        return ending
    except RayTaskError as error:
        cause = error.cause
        said = str(cause) if isinstance(cause, WindermereError) else describe_error(cause)
        hopeless = isinstance(cause, WindermereError) and not isinstance(cause, StorageError)
        return Lost(said, again=not hopeless and not is_out_of_memory(cause))
    except RayError as error:
        return Lost(next((why for kind, why in WHY.items() if isinstance(error, kind)), describe_error(error)))


# ---------------------------------------------------------------------------------------------------------
# In the processes at work


def _carry_out(given: Mapping[str, Any], stored: Sequence[Any], board: Any) -> Ending:
    if given["version"] != windermere.__version__:
        raise UsageError(
            f"{_where()} has Windermere {windermere.__version__}, and the driver {given['version']}: install one and "
            "the same everywhere"
        )
    sets = _sets(ray.get(stored[0]))
    work = Work(**given["work"], sets=sets)
    torch.set_num_threads(work.resources.cores)
    with _heart(board, given["label"], given["every"]) as heart:
        return carry_out(work, given["label"], sets, sign=heart.sign, report=heart.report)


def _sets(arrays: Sequence[Any]) -> Sets:
    """Without a copy: all processes of a node read the same memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it must not be written to, and is not
        inputs, labels, test_inputs, test_labels = map(torch.as_tensor, arrays)
    return (inputs, labels), (test_inputs, test_labels)


def _where() -> str:
    return f"{platform.node()}/{ray.get_runtime_context().get_node_id()[:6]}"


class _Heart(threading.Thread):
    """Gives signs of life beside the work, however long an iteration takes, and raises its sign when told to."""

    def __init__(self, board: Any, label: str, every: float) -> None:
        super().__init__(daemon=True)
        self.board, self.label, self.every, self.where = board, label, every, _where()
        self.sign, self.over = StopSign(), threading.Event()
        self.fresh: dict[int, Report] = {}

    def report(self, index: int, now: Report) -> None:
        self.fresh[index] = now

    def run(self) -> None:
        while not self.over.wait(self.every):
            self.beat()

    def beat(self) -> None:
        fresh, self.fresh = self.fresh, {}
        plain = {index: asdict(report) for index, report in list(fresh.items())}  # one may just be added
        try:
            self.sign.reason = ray.get(self.board.beat.remote(self.label, self.where, plain)) or self.sign.reason
        except RayError:  # the driver is gone
            self.sign.reason = "terminated"


@contextmanager
def _heart(board: Any, label: str, every: float) -> Iterator[_Heart]:
    heart = _Heart(board, label, every)
    heart.beat()
    heart.start()
    try:
        yield heart
    finally:
        heart.over.set()
        with suppress(RuntimeError):
            heart.join(timeout=every)
