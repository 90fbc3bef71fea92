"""`linnet bench`: layers run in turn, and a table compares them with nn.LSTM."""

from __future__ import annotations

import re

import pytest
import torch

from linnet import cli
from linnet.bench import engines, timing
from linnet.bench.layers import Shape, call_of
from linnet.bench.timing import Times, race
from linnet.cli import bench
from linnet.units import UNITS


class Told(list):
    """What was said, line by line."""

    def __call__(self, text: str) -> None:
        self.extend(text.splitlines())


# ---------------------------------------------------------------------------------------- timing


def test_all_run_in_turn_and_another_one_starts_each_round():
    calls: list[str] = []

    def entrant(name: str) -> timing.Call:
        def call() -> None:
            calls.append(name)
            timing.time.sleep(timing.SAMPLE)

        return call

    race({"a": lambda: entrant("a"), "b": lambda: entrant("b")}, rounds=3, threads=1, seconds=9, say=print)
    assert "".join(calls) == "aabb" + "ab" + "ba" + "ab"


def test_a_slow_second_call_does_not_decide_how_often_a_short_one_is_repeated():
    pauses = iter([0.0, 0.9 * timing.SAMPLE])
    calls = timing.warm_up(
        {"a": lambda: lambda: timing.time.sleep(next(pauses, 0.0))}, print, "cpu", timing.time.perf_counter
    )
    assert calls["a"][1] > 5


def test_who_fails_is_left_out_and_told():
    told = Told()

    def fails() -> timing.Call:
        raise ImportError("no compiler")

    times = race({"good": lambda: lambda: None, "bad": fails}, rounds=1, threads=1, seconds=1, say=told)
    assert list(times) == ["good"]
    assert told == ["skipped: bad: ImportError: no compiler"]


def test_a_race_leaves_the_process_as_it_was():
    torch.set_num_threads(1)
    race({"a": lambda: lambda: None}, rounds=1, threads=2, seconds=1, say=print)
    assert torch.get_num_threads() == 1
    assert timing.gc.isenabled()


def test_a_race_that_takes_too_long_ends_early():
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        timing.time.sleep(2 * timing.SAMPLE)

    race({"slow": lambda: slow}, rounds=999, threads=1, seconds=0, say=print)
    assert len(calls) == 2 + timing.FEWEST


def test_a_race_of_one_thread_does_not_count_other_programs():
    """Sleeping takes no time of the processor."""
    clock = timing.clock_of(1)
    if clock is not timing.time.process_time:
        pytest.skip("this system counts the time of a process in large steps")
    assert timing.timed(lambda: timing.time.sleep(0.2), 1, clock) < 0.1
    assert timing.clock_of(2) is timing.time.perf_counter


def test_percentiles_are_in_milliseconds():
    times = Times.of([0.001, 0.002, 0.003])
    assert (times.p20, times.p50, times.p80) == pytest.approx((1.4, 2.0, 2.6))


def test_training_asks_for_every_gradient(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    grad = torch.autograd.grad
    layer = UNITS["sru"](4, 4)

    def noting(y: torch.Tensor, leaves: list[torch.Tensor], *rest, **how):
        asked.append(len(leaves))
        return grad(y, leaves, *rest, **how)

    monkeypatch.setattr(torch.autograd, "grad", noting)
    call_of(layer, Shape(3, 2, 4), "training")()
    assert asked == [1 + len(list(layer.parameters()))]


# --------------------------------------------------------------------------------------- the command


def test_the_table_compares_each_unit_with_torch(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "SECONDS", 0.0)
    sizes = ["--shapes", "4x2x8", "1x1x8"]
    assert cli.main(["bench", "--units", "sru", "gru", *sizes, "--threads", "1"]) == 0
    conditions, *tables = capsys.readouterr().out.split("\n\n")
    assert conditions.startswith("1 thread of ")
    assert [table.splitlines()[0].split()[-1] for table in tables] == ["4x2x8", "1x1x8"]
    for table in tables:
        _, head, torchs, *ours = table.splitlines()
        assert head.split("  ")[0] == "unit"
        assert re.fullmatch(r"nn.LSTM +[\d.]+ +1.00 +[\d.]+ +1.00", torchs)
        assert [line.split()[0] for line in ours] == ["SRU", "GRU"]
        assert all(float(cell) > 0 for line in ours for cell in line.split()[1:])


def test_a_ratio_is_that_of_the_medians():
    times = {"nn.LSTM": Times(1, 4, 9), "sru": Times(1, 1, 2)}
    assert bench.cells("sru", times) == ("1.000", "0.25")
    # A layer that failed has no figures, and without nn.LSTM there is no ratio.
    assert bench.cells("lrn", times) == ("-", "-")
    assert bench.cells("sru", {"sru": Times(1, 1, 2)}) == ("-", "-")


# ------------------------------------------------------------------------------------------- engines

PACKAGES = {
    engines.ONNX_RUNTIME: "onnxruntime",
    engines.OPENVINO: "openvino",
    engines.LITERT: "ai_edge_litert",
}


@pytest.mark.parametrize("name", [engines.LINNET, engines.FROZEN, *PACKAGES])
@pytest.mark.parametrize(("unit", "both"), [("lstm", False), ("gru", True)])
def test_engines_compute_what_torch_does(unit: str, both: bool, name: str):
    pytest.importorskip("onnx")
    pytest.importorskip(PACKAGES.get(name, "torch"))
    built = engines.entrants(unit, Shape(7, 1, 5), both, threads=1)
    if name not in built:
        pytest.skip("LiteRT has an operator for one direction of LSTM")
    made, expected = (torch.as_tensor(built[each]()()) for each in (name, "torch"))
    torch.testing.assert_close(made.view_as(expected), expected, atol=1e-6, rtol=0)


def test_the_command_compares_linnet_with_engines(monkeypatch, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "SECONDS", 0.0)
    assert (
        cli.main(["bench", "--what", "engines", "--units", "gru", "--shapes", "4x1x5", "--threads", "1"]) == 0
    )
    _, *tables = capsys.readouterr().out.split("\n\n")
    assert [table.splitlines()[0] for table in tables] == [
        "GRU, one direction, 4x1x5",
        "GRU, both directions, 4x1x5",
    ]
    for table in tables:
        assert re.search(r"^ONNX Runtime +[\d.]+ +[\d.]+ +[\d.]+ +-$", table, re.MULTILINE)
        assert re.search(r"^torch int8 +[\d.]+ +- +- +[\d.]+$", table, re.MULTILINE)


def test_engines_have_lstm_and_gru_only(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["bench", "--what", "engines", "--units", "sru"]) == 1
    assert "engines are compared by lstm, gru on the CPU; got sru" in capsys.readouterr().err


def test_a_missing_gpu_is_told(capsys: pytest.CaptureFixture[str]):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert cli.main(["bench", "--device", "cuda"]) == 1
    assert "there is no GPU here" in capsys.readouterr().err
