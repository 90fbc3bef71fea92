"""The processes of a step of SLURM (`srun`), described as torchrun describes its own.

torch, Fabric and Linnet read RANK, WORLD_SIZE and so on. Inside torchrun these are set already; `srun` sets
SLURM_* only. A batch script without `srun` is one process, however many tasks its job has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

PORTS = range(15_000, 35_000)
"""Where the first process may wait for the others."""
STEP = "SLURM_STEP_NUM_TASKS"


def join_step() -> None:
    """Set what torchrun would set, if `srun` has started this process as one of several."""
    if "WORLD_SIZE" not in os.environ and int(os.environ.get(STEP, 1)) > 1:
        for name, value in described(os.environ).items():
            os.environ.setdefault(name, value)


def described(step: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of torchrun for a process of a step."""
    world, nodes = int(step[STEP]), int(step.get("SLURM_STEP_NUM_NODES", 1))
    if world % nodes:
        raise ValueError(
            f"srun has started {world} processes on {nodes} nodes; a run needs the same number on each: give "
            "--ntasks-per-node"
        )
    job, number = step.get("SLURM_JOB_ID", "0"), step.get("SLURM_STEP_ID", "0")
    # The processes of a step must agree on the port, and two steps on one node should not.
    port = PORTS[(int(job) * 10 + int(number)) % len(PORTS)]
    return {
        "RANK": step["SLURM_PROCID"],
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": step["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(world // nodes),
        "GROUP_RANK": step.get("SLURM_NODEID", "0"),
        "MASTER_ADDR": first_host(step["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"slurm-{job}-{number}",
    }


def first_host(hosts: str) -> str:
    """Return the first host of a list as SLURM writes it: "node07" of "node[07-12,20],other"."""
    found = re.match(r"([^,\[]*)(?:\[([^\],-]+)[^\]]*\])?([^,\[]*)", hosts)
    assert found is not None, hosts
    return "".join(part or "" for part in found.groups())
