"""The table of a race says where nn.LSTM is best."""

from __future__ import annotations

from pathlib import Path

from linnet.analysis.race_page import Entrant, rows, verdict, write_page
from linnet.train.race import Point, Spread
from tests.analysis.browser import measure, needs_chromium

ONE = Spread(1.0, 1.0, 1.0)
TORCH = Entrant("nn.LSTM", "nn.LSTM", 1000, [Point(1, 4.0), Point(2, 3.0)], ONE, 500.0, 3.1, 90.0, 1100)


def other(*bits: float, ratio: float = 2.0) -> Entrant:
    curve = [Point(number, each) for number, each in enumerate(bits, 1)]
    speeds = Spread(ratio - 0.1, ratio, ratio + 0.1)
    return Entrant("sru", "SRU", 400, curve, speeds, 500 * ratio, bits[-1], 20.0, 500, "a text")


def test_the_last_row_names_the_best_of_each_column():
    head, torch, sru, best = rows([TORCH, other(3.5, 3.2, ratio=0.8)])
    assert best == ["best", "nn.LSTM", "SRU", "nn.LSTM", "nn.LSTM", "SRU", "SRU"]
    assert torch[4], sru[4] == ("1.00", "0.80 (0.70 to 0.90)")
    assert len({len(row) for row in (head, torch, sru, best)}) == 1


def test_values_that_look_the_same_share_the_first_place():
    (*_, best) = rows([TORCH, other(3.5, 3.1001)])
    assert best[1] == "nn.LSTM, SRU"


def test_the_verdict_says_where_nn_lstm_is_best_and_when():
    won = verdict([TORCH, other(3.5, 3.2, ratio=0.8)])
    assert won.startswith("nn.LSTM is best in: bits per character; characters/s; speed, nn.LSTM = 1.")
    assert "More bits than nn.LSTM at the end: SRU." in won
    assert verdict([TORCH, other(3.5, 2.9)]).endswith("from the first validation on: SRU.")
    assert verdict([TORCH, other(4.5, 2.9)]).endswith("after 1 seconds: SRU.")
    assert verdict([TORCH, other(3.5, 2.9)]).startswith("nn.LSTM is best in no column.")


def test_a_page_of_models_in_training_updates_by_itself(tmp_path: Path):
    write_page(tmp_path / "race.html", "A race", [TORCH, other(3.5, 3.2)], "notes")
    text = (tmp_path / "race.html").read_text()
    assert 'http-equiv="refresh"' in text
    write_page(tmp_path / "race.html", "A race", [TORCH, other(3.5, 3.2)], "notes", done=True)
    assert 'http-equiv="refresh"' not in (tmp_path / "race.html").read_text()


@needs_chromium
def test_the_page_fits_a_phone(tmp_path: Path):
    write_page(tmp_path / "race.html", "A race", [TORCH, other(3.5, 3.2)], "notes", done=True)
    for width in (500, 1280):
        found = measure(tmp_path / "race.html", tmp_path, width)
        assert found["scrolls"] <= found["width"]
