"""Runs as tasks of Ray, on an existing cluster or one that is started for the command."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from linnet.base.project import advice
from linnet.launch.job import Answer
from linnet.launch.order import Order
from linnet.runs.errors import Stopped

RETRIES = 2
"""How often Ray makes a run again whose worker is lost."""
CONNECTING = 10.0
"""Seconds until a cluster must have answered."""
PATIENCE = 60.0
"""Seconds that runs have for their last checkpoint after Ctrl-C."""


class RayWorkers:
    """A cluster of Ray; its scheduler places the runs, each with as many cores as it has threads.

    address   of the cluster; "": that of RAY_ADDRESS, or else a cluster of this machine for the command
    """

    queues = True

    def __init__(self, address: str):
        self.ray = load_ray()
        self.known: list[Any] = []
        self.threads = 1
        address = address or os.environ.get("RAY_ADDRESS", "")
        refuse_unreachable(address)
        try:
            own = {} if address else {"include_dashboard": False}
            self.ray.init(address=address or None, log_to_driver=False, logging_level="warning", **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise Stopped(f"Ray does not work at {address or 'this machine'} ({reason})") from None

    @property
    def slots(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) // self.threads)

    def submit(self, orders: Sequence[Order]) -> list[Future[Answer]]:
        self.threads = max([self.threads, *(order.threads for order in orders)])
        new = [self.begin(order) for order in orders]
        self.known += new
        return [each.future() for each in new]

    def begin(self, order: Order) -> Any:
        # Imported here, not above: the sender needs no Fabric.
        from linnet.launch.work import work

        gpus = int(order.job.config.loop.device == "cuda")
        task = self.ray.remote(num_cpus=order.threads, num_gpus=gpus, max_retries=RETRIES)(work)
        return task.remote(*order.packed())

    def interrupt(self) -> None:
        """End all runs as Ctrl-C ends one: each writes a checkpoint after its update."""
        for each in self.known:
            self.ray.cancel(each)
        if self.known:
            self.ray.wait(self.known, num_returns=len(self.known), timeout=PATIENCE)

    def close(self) -> None:
        self.ray.shutdown()


def refuse_unreachable(address: str) -> None:
    """Raise unless something answers at this address: Ray itself would try for minutes."""
    found = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), CONNECTING).close()
    except (OSError, OverflowError) as error:
        raise Stopped(
            f"there is no Ray cluster at {address} ({error}): start it (`ray start --head`), or give another "
            "address with --launcher ray:ADDRESS"
        ) from None


def load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ImportError(f"--launcher ray needs packages that are not installed: {advice('ray')}") from None
    return ray
