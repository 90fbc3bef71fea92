"""The performance model of a GPU: counts that come from the graphs, and a page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks.settings import Settings
from linnet import cli
from tools import gpu_model
from tools.gpu_model import GPUS, Shape, backward_work, expected, forward_work, plans_of, with_tables

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"


def test_the_page_has_the_tables_that_the_code_makes():
    """`python -m tools.gpu_model docs/gpu.md` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, gpu_model.tables()) == page


def test_a_page_without_room_for_a_table_is_an_error():
    with pytest.raises(ValueError, match="for the table 'work'"):
        with_tables("# On a GPU\n", {"work": "| |"})


def test_the_counts_of_lrn_by_hand():
    """Reads k, q, v and writes h, which is the output too; backward reads them, h, dy and writes three."""
    (plan,) = plans_of("lrn")
    assert forward_work(plan, storage=4) == (4 * 4, 5, 3)
    assert backward_work(plan, storage=4)[0] == 4 * (3 + 1 + 1 + 3)
    # The state is kept in float32, so an output of 16 bits is written beside it.
    assert forward_work(plan, storage=2)[0] == 2 * (3 + 1) + 4


def test_a_matrix_unit_launches_at_every_step():
    assert gpu_model.launches("sru", Shape(256, 32, 512)) == 1
    assert gpu_model.launches("lstm", Shape(256, 32, 512)) == 256 * 2


def test_expected_times_are_bytes_over_bandwidth():
    a100 = GPUS[0]
    took = expected("sru", a100, storage=4)
    bytes_of_all = (24 + 40) * 256 * 32 * 512
    assert took.elementwise == pytest.approx(bytes_of_all / a100.bandwidth)
    assert took.products == pytest.approx(3 * 2 * 3 * 512 * 512 * 256 * 32 / a100.float32)


# ------------------------------------------------------------------------------- the command line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_benchmark_on_a_gpu_that_is_not_there_says_so(capsys: pytest.CaptureFixture[str]):
    assert command.main(["--device", "cuda", "--what", "speed", "--no-rows"]) == 1
    assert capsys.readouterr().err.startswith(
        "benchmarks: there is no GPU here: torch.cuda.is_available() is False"
    )
    with pytest.raises(RuntimeError, match="--device cpu"):
        Settings(device="cuda")


def test_show_kernel_for_a_gpu_prints_triton(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["show", "kernel", "scrn", "--device", "cuda", "--backward"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("SCRN, backward\n\nthe step, traced:\n    inputs: ")
    assert shown.count("Triton:\n") == shown.count("\ndef backward(") == 2
    assert "d_joint" in shown


def test_show_kernel_of_a_unit_without_one_says_why(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["show", "kernel", "nru", "--device", "cuda"]) == 1
    assert "NRU runs on the reference loop on a GPU: " in capsys.readouterr().err
