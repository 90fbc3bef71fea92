"""Runs as tasks of Ray, on an existing cluster or one that is started for the command."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from linnet.base.project import advice
from linnet.launch.job import AT_CTRL_C, Answer
from linnet.launch.order import Order
from linnet.runs.errors import Stopped, log

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

    queues, is_batch, pause, at_ctrl_c = True, False, 0.1, AT_CTRL_C

    def __init__(self, address: str):
        self.ray = load_ray()
        self.known: list[Any] = []
        self.warned: set[str] = set()
        self.threads = 1
        self.address = address = address or os.environ.get("RAY_ADDRESS", "")
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
        return [self.begin(order) for order in orders]

    def begin(self, order: Order) -> Future[Answer]:
        # Imported here, not above: the sender needs no Fabric.
        from linnet.launch.work import work

        needed = {"CPU": order.threads}
        if order.job.config.loop.device == "cuda":
            needed["GPU"] = 1
        try:
            self.refuse_too_large(needed)
        except Stopped as error:
            return ended_by(error)
        how = {"num_cpus": needed["CPU"], "num_gpus": needed.get("GPU", 0), "max_retries": RETRIES}
        task = self.ray.remote(**how)(work)
        reference = task.remote(*order.packed())
        self.known.append(reference)
        return reference.future()

    def refuse_too_large(self, needed: Mapping[str, int]) -> None:
        """Raise if no machine can make a run that needs this: Ray itself would wait for one forever.

        A cluster at an address may be one that starts machines when they are needed, so there we only warn.
        """
        machines = [each["Resources"] for each in self.ray.nodes() if each["Alive"]]
        if any(all(there.get(name, 0) >= count for name, count in needed.items()) for there in machines):
            return
        most = {name: max([there.get(name, 0) for there in machines], default=0) for name in needed}
        text = (
            f"a run needs {listed(needed)}, and no machine of the Ray cluster at "
            f"{self.address or 'this machine'} has as many (at most {listed(most)})"
        )
        if not self.address:
            raise Stopped(f"{text}: give fewer --threads, another --device, or a cluster by its address")
        if text not in self.warned:
            self.warned.add(text)
            log.warning("%s: it waits until the cluster has one; Ctrl-C ends the command", text)

    def interrupt(self) -> None:
        """End all runs as Ctrl-C ends one: each writes a checkpoint after its update."""
        for each in self.known:
            self.ray.cancel(each)
        if self.known:
            self.ray.wait(self.known, num_returns=len(self.known), timeout=PATIENCE)

    def close(self) -> None:
        self.ray.shutdown()


def ended_by(error: Stopped) -> Future[Answer]:
    """Return the future of a run that cannot begin."""
    future: Future[Answer] = Future()
    future.set_exception(error)
    return future


def listed(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{count:g} {name}" for name, count in resources.items())


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
