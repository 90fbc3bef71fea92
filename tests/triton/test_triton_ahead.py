"""Every Triton kernel compiled for GPUs that are not here: without spills, and to the recorded figures."""

from __future__ import annotations

import csv
import io
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import triton_launches
from test_triton import NO_TRITON, PATIENCE, ROOT, finish, start

from tools import ahead

RECORDED = ROOT / "benchmarks" / "gpu_kernels.csv"
# What other versions of Triton make of the same source may take other registers.
RECORDED_BY = "3.9.0"


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.skipif(find_spec("triton") is None, reason=NO_TRITON)
@pytest.mark.parametrize("capability", ["90"])
def test_every_kernel_compiles_without_spills(capability: str, tmp_path: Path):
    made = finish(start("-m", "tools.ahead", capability, TRITON_CACHE_DIR=str(tmp_path)), PATIENCE)
    print(made)
    rows = read(made)
    assert len(rows) == len(list(ahead.all_kernels()))
    assert [row for row in rows if row["spilled"] != "0"] == []
    if version("triton") == RECORDED_BY:
        recorded = read(RECORDED.read_text(encoding="utf-8"))
        assert rows == [row for row in recorded if row["capability"] == capability]


@pytest.mark.skipif(find_spec("triton") is None, reason=NO_TRITON)
def test_what_a_launch_hands_over_compiles(tmp_path: Path):
    finish(start(triton_launches.__file__, TRITON_CACHE_DIR=str(tmp_path)), PATIENCE)


def test_an_offset_of_32_bits_is_found():
    """A check that finds nothing shows nothing unless it would have found something."""
    ahead.check_offsets("%0 = arith.muli %t, %joint_time : i64 loc(#loc1)", "good")
    with pytest.raises(ValueError, match="bad computes an offset in 32 bits"):
        ahead.check_offsets("%0 = arith.muli %t, %joint_time : i32 loc(#loc1)", "bad")


def test_elementwise_kernels_load_ahead_of_time():
    """Inputs of coming steps are on their way while a step computes; kernels of one step have none coming."""
    rows = read(RECORDED.read_text(encoding="utf-8"))
    assert {row["ahead_of_time"] for row in rows if row["kernel"].endswith("_both")} == {"True"}
    assert {row["ahead_of_time"] for row in rows if row["unit"].startswith("lstm")} == {"False"}
