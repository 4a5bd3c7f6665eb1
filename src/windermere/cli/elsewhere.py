"""Training by other processes: how `--ray` and what goes with it are read."""

from functools import partial

from windermere.cli.console import stderr
from windermere.cli.reading import check_device
from windermere.errors import UsageError
from windermere.paper.cluster.address import check_address
from windermere.paper.cluster.pool import Cluster, open_pool


def read_ray(address: str | None, gpu_share: float | None) -> Cluster | None:
    """None where all is to be trained here."""
    if address is None:
        if gpu_share is not None:
            raise UsageError("--gpu-share says how much of a GPU a run gets from Ray: add --ray, or leave it out")
        return None
    if gpu_share is not None and not (0 < gpu_share <= 1 or gpu_share in range(2, 9)):
        raise UsageError(f"--gpu-share takes a share of a GPU, such as 0.25, or some whole ones, not {gpu_share}")
    check_address(address or None)
    tell = partial(stderr.print, soft_wrap=True)
    return Cluster(open=partial(open_pool, address or None), tell=tell, gpu_share=gpu_share)


def device_for(name: str | None, cluster: Cluster | None) -> str:
    """A device that is there; which one of a machine's GPUs a run gets is Ray's choice."""
    if cluster is None or name in (None, "cpu"):
        return check_device(name)
    if name != "cuda":
        raise UsageError(f"with --ray, a device is cpu or cuda, and Ray chooses which GPU: leave out '{name}'")
    return name
