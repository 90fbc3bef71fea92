"""What can make runs at the same time, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from linnet.launch.job import Answer
from linnet.launch.local import LocalWorkers
from linnet.launch.order import Order

IN_THIS_PROCESS = "local:1"
ABOUT = {
    "local:N": "N processes of this machine",
    "local": "as many processes as its cores and memory allow",
    "ray": "a Ray cluster: that of RAY_ADDRESS, or one started for the command",
    "ray:ADDRESS": "this Ray cluster",
    "submitit": "SLURM",
    "submitit:NAME=VALUE,...": "SLURM with parameters of submitit",
    "submitit:local": "submitit's processes of this machine, to try it",
}
KNOWN = ", ".join(f"{name} ({about})" for name, about in ABOUT.items())


class Handle(Protocol):
    """A run under way: a Future, or what a cluster has in its place."""

    def done(self) -> bool: ...
    def result(self) -> Answer: ...


class Workers(Protocol):
    """What makes runs at the same time.

    slots      how many of them; before the first is submitted, this may not be known, and is 1
    queues     whether it takes more, and makes them later
    is_batch   whether runs are submitted together, such as the array of jobs of a cluster
    pause      seconds between two looks at whether a run has ended
    at_ctrl_c  what Ctrl-C does, for the user
    """

    is_batch: bool
    at_ctrl_c: str

    @property
    def queues(self) -> bool: ...

    @property
    def pause(self) -> float: ...

    @property
    def slots(self) -> int: ...

    def submit(self, orders: Sequence[Order]) -> Sequence[Handle]: ...

    def interrupt(self) -> None:
        """End all runs, such that they can be resumed, as Ctrl-C does."""

    def close(self) -> None: ...


def workers_of(launcher: str) -> Workers | None:
    """Return what the name of a launcher means; None: runs are made in this process, one after the other."""
    check_launcher(launcher)
    name, _, argument = launcher.partition(":")
    if name == "local":
        return None if launcher == IN_THIS_PROCESS else LocalWorkers(int(argument or 0))
    # Imported here, not above: each needs packages of an extra of its own.
    if name == "ray":
        from linnet.launch.ray_workers import RayWorkers

        return RayWorkers(argument)
    from linnet.launch.slurm_workers import SlurmWorkers

    return SlurmWorkers(parameters_of(argument))


def check_launcher(launcher: str) -> None:
    """Raise a ValueError for a name that means nothing."""
    name, colon, argument = launcher.partition(":")
    known = name in ("local", "ray", "submitit") and bool(argument) == bool(colon)
    if not known or (name == "local" and colon and not (argument.isdigit() and int(argument))):
        raise ValueError(f"the launchers are {KNOWN}; got {launcher!r}")
    if name == "submitit":
        parameters_of(argument)


def parameters_of(text: str) -> dict[str, str | int]:
    """Return the parameters in "slurm_partition=long,timeout_min=240"; "local" stands for "cluster=local"."""
    found: dict[str, str | int] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = ("cluster", "=", part) if part == "local" else part.partition("=")
        if not (name and equals and value):
            raise ValueError(f"parameters of submitit are NAME=VALUE,...; got {part!r}")
        found[name] = int(value) if value.isdigit() else value
    return found
