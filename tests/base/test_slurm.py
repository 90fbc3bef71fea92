"""The processes of a step of SLURM, described for torch."""

from __future__ import annotations

import pytest

from linnet.base.slurm import described, first_host

STEP = {
    **{
        "SLURM_JOB_ID": "4712",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "6",
        "SLURM_STEP_NUM_NODES": "3",
    },
    **{"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "n[02-04]"},
}


def test_a_process_of_srun_is_described_as_torchrun_describes_its_own():
    assert described(STEP) == {
        **{"RANK": "3", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"},
        **{"MASTER_ADDR": "n02", "MASTER_PORT": "22120", "TORCHELASTIC_RUN_ID": "slurm-4712-0"},
    }


def test_nodes_with_other_numbers_of_processes_are_refused():
    with pytest.raises(ValueError, match=r"7 processes on 3 nodes.*--ntasks-per-node"):
        described({**STEP, "SLURM_STEP_NUM_TASKS": "7"})


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[07-12,20],other", "node07"),
        ("node[3,5]", "node3"),
        ("rack1-[01-02]-ib,x", "rack1-01-ib"),
        ("localhost", "localhost"),
    ],
)
def test_the_first_host_of_a_list(hosts: str, first: str):
    assert first_host(hosts) == first
