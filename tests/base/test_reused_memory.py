"""Reuse of freed memory: counted in page faults, each of which is a new page from the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from linnet.base import memory

COUNT = """
import resource, sys, torch
from linnet.base.memory import reuse_memory
assert sys.argv[1] == "new" or reuse_memory()
torch.set_num_threads(1)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    (torch.ones(1 << 24) * 2).sum()  # two blocks of 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(10)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to reuse memory")
def test_freed_memory_is_used_again():
    new, reused = (int(subprocess.check_output([sys.executable, "-c", COUNT, how])) for how in ("new", "yes"))
    assert reused <= 1 < new


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: pytest.fail("no library may be opened"))
    assert memory.reuse_memory() is False
