"""The soak runs, and finds what it is there to find."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.recurrence import launches
from linnet.recurrent.recurrent import Recurrent
from linnet.run.change import Originals
from linnet.run.choose import requested
from linnet.run.ways import Loop
from linnet.units import UNITS
from tools import attacks, edges, soak
from tools.cases import FLOOR, JUMPS, NOISES, Case, can_fuse, draw, fusing, is_unstable
from tools.outcomes import AS_THE_LOOP, TOLERANCES, Wrong, by_loop, compare, results, swing
from tools.variants import CHOICES, SHARED, VARIANTS

# Small, with gradients, in float64: quick to check.
SMALL = Case(
    number=3,
    unit="lrn",
    options={},
    steps=5,
    batch=2,
    input_size=3,
    size=4,
    dtype=torch.float64,
    flags="mask",
    layout="plain",
    gradients="all",
    training=True,
    given_state=True,
    threads=1,
    eager=False,
)


@pytest.fixture(autouse=True)
def one_thread():
    """Whatever a case has set."""
    yield
    torch.set_num_threads(1)


def test_a_case_follows_from_its_number():
    drawn = [draw(number) for number in range(50)]
    assert [str(draw(number)) for number in range(5)] == [str(case) for case in drawn[:5]]
    assert {case.unit for case in drawn} <= set(fusing()) <= set(UNITS)
    assert {case.dtype for case in drawn} == {torch.float32, torch.float64, torch.bfloat16}


def test_gradients_that_are_only_rounding_are_not_drawn():
    unstable = [
        case for case in map(draw, range(400)) if is_unstable(case.unit, case.options, narrowest(case))
    ]
    assert {case.gradients for case in unstable if case.dtype == torch.float64} > {"none"}
    assert {case.gradients for case in unstable if case.dtype != torch.float64} == {"none"}
    assert not is_unstable("atr", {"norm": "layer"}, 2)
    assert is_unstable("atr", {"norm": "layer"}, 1)


def test_rounding_does_not_decide_between_the_sides_of_a_jump():
    """modReLU is drawn such that it has no jump, except in float64, whose rounding is too small for it."""
    drawn = [case for case in map(draw, range(400)) if case.unit in JUMPS and case.dtype != torch.float64]
    assert {case.unit for case in drawn} == set(JUMPS)
    biases = [getattr(cell, JUMPS[case.unit]) for case in drawn for cell in case.build().cells]
    assert all((bias <= -FLOOR).all() for bias in biases)


def narrowest(case: Case) -> int:
    return min(case.size, case.input_size)


def test_drawing_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    draw(1)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("number", range(8))
def test_parity_of_the_first_cases(number: int):
    soak.check_parity(draw(number))


def test_a_kernel_that_does_nothing_is_found():
    soak.check_parity(SMALL)
    with (
        launches(lambda run, *arguments: None),
        pytest.raises(Wrong, match=r"has an error of|differs from run"),
    ):
        soak.check_parity(SMALL)


def test_only_what_the_loops_own_swing_explains_is_allowed():
    """A long sequence of NRU by which the loop itself amplifies the last bit of x to 1e-9."""
    options = {"bidirectional": True, "prenorm": "layer", "memory_size": 36, "head_activation": "relu"}
    options |= {"head_reduction": "sum", "layer_norm": True, "weight_drop": 0.3}
    sizes = {"steps": 100, "batch": 16, "input_size": 7, "size": 32}
    flags = {"flags": "nothing", "gradients": "parameters"}
    case = replace(SMALL, number=1374364982, unit="nru", options=options, **sizes, **flags)
    expected = results(case, "reference")
    own = swing(expected, by_loop(case))["output"]
    assert own > TOLERANCES[torch.float64] / AS_THE_LOOP
    largest = max(0.1, expected["output"].abs().max().item())
    compare(case, {**expected, "output": expected["output"] + 4 * own * largest}, expected)
    with pytest.raises(Wrong, match="output has an error of"):
        compare(case, {**expected, "output": expected["output"] + 20 * own * largest}, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_loops_own_swing_is_that_of_the_dtype_of_the_case(dtype: torch.dtype):
    case = replace(SMALL, dtype=dtype)
    swings = swing(results(case, "reference"), by_loop(case))
    assert 0 < swings["output"] < 100 * torch.finfo(dtype).eps


@pytest.mark.parametrize("kind", ["hooks", "watched", "misfit", "races", "stream"])
def test_each_attack_knows_the_swing_of_what_it_compares(kind: str, monkeypatch: pytest.MonkeyPatch):
    swings: list[dict[str, float]] = []
    monkeypatch.setattr(
        attacks, "compare", lambda case, found, expected, again: swings.append(swing(expected, again))
    )
    for number in range(8):  # in some cases both raise an error, and nothing is compared
        soak.CHECKS[kind](replace(SMALL, number=number, built=[]))
    assert swings
    assert all(0 < max(each.values()) < 1e-12 for each in swings)


def test_a_stream_of_a_stack_with_two_directions_and_a_residual_connection():
    options = {"bidirectional": True, "residual": True}  # 4 inputs, 2 x 2 outputs
    soak.CHECKS["stream"](replace(SMALL, options=options, input_size=4, size=2, built=[]))


def test_a_run_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch):
    kept: list[torch.Tensor] = []

    def leaking(case: Case, by: str, fresh: bool = True):
        kept.append(torch.ones(1 << 18))
        return results(case, by, fresh)

    soak.check_memory(SMALL, times=4)
    monkeypatch.setattr(soak, "results", leaking)
    with pytest.raises(Wrong, match="increase the memory of the process by"):
        soak.check_memory(SMALL, times=4)


def test_a_thread_that_fails_is_found(monkeypatch: pytest.MonkeyPatch):
    soak.check_threads(SMALL)

    def failing(case: Case, by: str, fresh: bool = True):
        if soak.threading.current_thread() is not soak.threading.main_thread():
            raise OSError("lost")
        return results(case, by, fresh)

    monkeypatch.setattr(soak, "results", failing)
    with pytest.raises(Wrong, match=r"a thread failed: OSError\('lost'\)"):
        soak.check_threads(SMALL)


def begin(folder: Path) -> Path:
    soak.Tally(soak.time.time(), {}, []).write(folder / "tally")
    return folder


def test_a_wrong_result_ends_with_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def wrong(case: Case) -> None:
        raise Wrong("output is off by 1")

    monkeypatch.setattr(soak, "CHECKS", {"parity": wrong})
    assert soak.Soak(0, 7, begin(tmp_path)).run() == 1
    name = (tmp_path / "now").read_text()
    told = capsys.readouterr().out
    assert "Wrong: output is off by 1" in told
    assert f"to repeat it: python -m tools.soak --case {name}" in told
    tally = soak.Tally.read(tmp_path / "tally")
    assert (tally.counts, tally.wrong) == ({"parity": 1}, [name])
    soak.close(7, tally)
    assert f"1 cases (parity 1)\n1 wrong\n    python -m tools.soak --case {name}\n" in capsys.readouterr().out


def test_a_crash_ends_with_its_case(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def crash(command: list[str], check: bool, cwd: Path) -> subprocess.CompletedProcess:
        Path(command[-1], "now").write_text("fork:5")
        return subprocess.CompletedProcess(command, -11)

    monkeypatch.setattr(soak.subprocess, "run", crash)
    assert soak.main(["--seed", "4", "--kills", "0"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("the process died with -11 in the case fork:5: python -m tools.soak --case fork:5")


def test_the_parts_differ_and_follow_from_the_seed(tmp_path: Path):
    def numbers(seed: int, part: int) -> list[int]:
        order = soak.Soak(0, seed, begin(tmp_path), part).order
        return [order.randrange(1 << 31) for _ in range(3)]

    assert numbers(1, 0) == numbers(1, 0)
    assert len({tuple(numbers(seed, part)) for seed in (1, 2) for part in (0, 1)}) == 4


@pytest.mark.parametrize("name", ["parity", "parity:x", "party:1"])
def test_a_case_that_is_none_is_told(name: str, capsys: pytest.CaptureFixture[str]):
    assert soak.main(["--case", name]) == 2
    assert f"a case is one of {', '.join(soak.CHECKS)}, a colon and a number" in capsys.readouterr().err


def test_each_check_once(tmp_path: Path):
    """In a process of its own: it forks, and starts others that it kills."""
    command = [sys.executable, "-m", "tools.soak", "--minutes", "0", "--seed", "5"]
    done = subprocess.run(
        [*command, "--folder", str(begin(tmp_path))],
        # Threads that wait without spinning, since tests share the machine.
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    tally = soak.Tally.read(tmp_path / "tally")
    assert (tally.counts, tally.wrong) == (dict.fromkeys(reversed(soak.CHECKS), 1), [])
    assert list((tmp_path / "cache").glob("*.o"))


def test_part_follows_part_until_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    parts: list[int] = []

    def run_part(minutes: float, seed: int, folder: Path, part: int) -> int:
        parts.append(part)
        soak.time.sleep(0.1)
        return 0

    monkeypatch.setattr(soak, "run_part", run_part)
    assert soak.main(["--minutes", "0.004", "--kills", "0"]) == 0
    assert parts == list(range(len(parts)))
    assert len(parts) > 1
    assert capsys.readouterr().out.endswith("0 wrong\n")


def test_first_calls_that_crash_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edges.sys, "executable", "false")
    with pytest.raises(Wrong, match="a fresh process ended with 1"):
        edges.check_first(SMALL)


@pytest.mark.parametrize("kind", edges.FIRST)
def test_first_calls_in_threads_agree_with_those_of_one_thread(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edges, "FIRST", {kind: edges.FIRST[kind]})
    edges.first_calls(replace(SMALL, built=[]))
    job = edges.FIRST[kind]

    def wrong_in_a_thread(rnn: Recurrent, x: torch.Tensor) -> dict[str, torch.Tensor]:
        off = x.shape[1] == 3 and soak.threading.current_thread() is not soak.threading.main_thread()
        return {name: tensor + off for name, tensor in job(rnn, x).items()}

    monkeypatch.setattr(edges, "FIRST", {kind: wrong_in_a_thread})
    with pytest.raises(Wrong, match="the first calls"):
        edges.first_calls(replace(SMALL, built=[]))


def test_old_numbers_of_a_quantised_module_are_found(monkeypatch: pytest.MonkeyPatch):
    case = replace(SMALL, unit="lstm", built=[])
    edges.check_buffers(case)
    monkeypatch.setattr(Originals, "hold", lambda self: True)
    monkeypatch.setattr(edges, "CHANGES", {"numbers in place": edges.CHANGES["numbers in place"]})
    with pytest.raises(Wrong, match="of a quantised module"):
        edges.check_buffers(replace(case, built=[]))


def test_an_empty_batch_that_fails_is_found(monkeypatch: pytest.MonkeyPatch):
    case = replace(SMALL, flags="nothing", built=[])
    edges.check_empty(case)

    def failing(loop: Loop, *arguments: Any) -> Any:
        if requested.get() is None:
            raise ValueError("no rows")
        return usual(loop, *arguments)

    usual = Loop.run
    monkeypatch.setattr(Loop, "run", failing)
    with pytest.raises(Wrong, match="an empty batch of 1 steps: ValueError: no rows"):
        edges.check_empty(case)


def test_the_soak_draws_every_option_of_the_variants_with_kernels():
    """But for the initialisation, because the soak draws all weights itself, and for norms of products with
    the state, whose gradients are rounding alone where they have few channels."""
    drawn = {*SHARED, "init", "norm_on", *(name for noise in NOISES for name in noise)}
    for variant in VARIANTS:
        own = set(variant.options) - drawn - set(CHOICES.get(variant.unit.__name__.lower(), ()))
        if own:
            rnn = variant.unit(8, 8, **variant.options)
            assert not can_fuse(rnn, torch.zeros(1, 1, 8)), f"the soak draws no {own} for {variant}"
