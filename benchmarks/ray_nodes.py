"""Ray's nodes on this machine, and who is at work on them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def nodes(count: int, cores: int = 0, **system: int) -> Iterator[Any]:
    """Nodes of one core each, beside one for the driver with so many; all are ended with the body."""
    # Ray's processes are nicer than others: a busy machine would give them less than what they are compared with.
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
    from ray.cluster_utils import Cluster as Nodes

    head = {"num_cpus": cores, "include_dashboard": False, "_system_config": system}
    started = Nodes(initialize_head=True, head_node_args=head)
    try:
        for _ in range(count):
            started.add_node(num_cpus=1)
        yield started
    finally:
        started.shutdown()


def first_at_work(out: Path, besides: set[int]) -> int:
    """The process of an attempt that has come to a checkpoint; those that have been met are passed over."""
    while True:
        for lock in out.glob("runs/*/.attempts/0*/lock"):
            text = lock.read_text().strip() if any(lock.parent.glob("checkpoint-*")) else ""
            if text and int(text) not in besides:
                return int(text)
        time.sleep(0.02)


def raylet_of(process: int) -> int:
    """Its parent; that of an orphan would be everybody's."""
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    if parent == 1:
        raise ProcessLookupError(f"the node of process {process} is gone")
    return parent
