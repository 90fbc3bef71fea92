"""Measures of forecasts: worked by hand, missing values, beside utilsforecast, and M4's published figures."""

from __future__ import annotations

import csv
import lzma
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from linnet.tasks import statistical_forecasts as statistical
from linnet.tasks.forecast_measures import (
    FIGURES,
    ForecastMetrics,
    Forecasts,
    Score,
    Window,
    best_median_worst,
    coverage,
    extremes,
    mase,
    naive_baselines,
    owa,
    score,
    seasonal_scale,
    smape,
    standardised_errors,
    summary,
    weighted_quantile_loss,
)
from linnet.tasks.results import StepResult

NAN = math.nan
LEVELS = (0.1, 0.5, 0.9)


def window(name: str = "a", truth: Sequence[float] = (4, 6), **options: Any) -> Window:
    return Window(name, np.array([1.0, 2.0, 4.0, 3.0]), np.array(truth, dtype=float), **options)


def result(windows: list[Window], quantiles: Any) -> StepResult:
    # As a model in a lower precision answers.
    outputs = Forecasts(
        windows, torch.tensor(quantiles, dtype=torch.float32, requires_grad=True).bfloat16(), LEVELS
    )
    return StepResult(torch.tensor(0.5), torch.tensor(1.0), 2, 8, outputs=outputs)


def around(values: Sequence[float], width: float = 1) -> list[list[float]]:
    return [[value - width, value, value + width] for value in values]


# ------------------------------------------------------------------------------------------- by hand


def test_smape_by_hand():
    """200 (1/3 + 0 + 2/4) / 3: a zero that is predicted counts 0."""
    assert smape([1, 0, 3], [2, 0, 1]) == pytest.approx(200 * (1 / 3 + 2 / 4) / 3)
    assert smape([1, -1], [-1, 1]) == 200


def test_mase_by_hand():
    assert seasonal_scale([1, 2, 4, 3], 1) == pytest.approx(4 / 3)
    assert seasonal_scale([1, 2, 4, 3], 2) == pytest.approx((3 + 1) / 2)
    assert mase([5, 5], [4, 7], 2.0) == pytest.approx(0.75)


def test_the_scale_counts_pairs_of_which_both_are_observed():
    assert seasonal_scale([1, 2, NAN, 5, 7], 1) == pytest.approx((1 + 2) / 2)
    assert seasonal_scale([1, 2, NAN, 5, 7], 2) == 3


def test_a_history_without_two_seasons_is_scaled_by_neighbours():
    assert seasonal_scale([1, 2, 4], 24) == pytest.approx(1.5)
    assert math.isnan(seasonal_scale([1], 24))


def test_mase_of_a_constant_history_is_undefined():
    assert math.isnan(mase([5], [4], seasonal_scale([3, 3, 3], 1)))


def test_owa_by_hand():
    assert owa(10, 1, 20, 4) == pytest.approx((0.5 + 0.25) / 2)
    assert math.isnan(owa(10, 1, 0, 4))


def test_weighted_quantile_loss_by_hand():
    """Truth 10; the losses of 8, 11, 12 are 0.1 x 2, 0.5 x 1, 0.1 x 2."""
    found = weighted_quantile_loss([[8, 11, 12]], [10], LEVELS)
    assert found == pytest.approx(2 * (0.2 + 0.5 + 0.2) / 3 / 10)


def test_the_loss_of_the_median_is_the_absolute_error():
    found = weighted_quantile_loss([[3], [5]], [4, 7], [0.5])
    assert found == pytest.approx((1 + 2) / (4 + 7))


def test_coverage_counts_the_bounds():
    assert coverage([1, 1, 1, 1], [2, 2, 2, 2], [1, 2, 2.1, 0.9]) == 0.5


def test_errors_of_standardised_values():
    assert standardised_errors([1, 5], [3, 6], 2.0) == pytest.approx(((4 + 1) / 2 / 4, 1.5 / 2))


def test_missing_values_of_the_truth_are_left_out():
    truth = [4, NAN, 7]
    assert smape([5, 99, 5], truth) == smape([5, 5], [4, 7])
    assert mase([5, 99, 5], truth, 2.0) == mase([5, 5], [4, 7], 2.0)
    assert coverage([4, 99, 8], [9, 99, 9], truth) == 0.5
    quantiles = np.array([[4], [99], [8]])
    assert weighted_quantile_loss(quantiles, truth, [0.9]) == pytest.approx(2 * 0.1 / 11)


def test_a_forecast_that_is_not_finite_or_too_short_is_an_error():
    with pytest.raises(ValueError, match="step 2 of a forecast is not finite"):
        smape([1, NAN], [1, 2])
    with pytest.raises(ValueError, match="the forecast has 1 steps and the truth 2"):
        smape([1], [1, 2])


# -------------------------------------------------------------------------------------- many series


def test_the_figures_are_means_over_series():
    """Scale 4/3 and standard deviation sqrt(1.25) of the history 1, 2, 4, 3; Naive2 repeats 3."""
    metrics = ForecastMetrics()
    metrics.update(result([window("a"), window("b", [3, 3])], [around([5, 5]), around([3, 5], 2)]))
    found = metrics.compute()
    assert found["loss"] == 0.5
    assert found["mase"] == pytest.approx((1 + 1) / 2 / (4 / 3))
    parts = [(1 / 9 + 1 / 11) / 2, (0 + 2 / 8) / 2]
    assert found["smape"] == pytest.approx(200 * sum(parts) / 2)
    theirs = 200 * (1 / 7 + 3 / 9) / 2 / 2, (2 + 0) / 2 / (4 / 3)
    assert found["owa"] == pytest.approx((found["smape"] / theirs[0] + found["mase"] / theirs[1]) / 2)
    assert found["coverage"] == 1
    assert found["mse"] == pytest.approx((1 + 2) / 2 / 1.25)
    assert found["mae"] == pytest.approx(1 / math.sqrt(1.25))


def test_the_weighted_quantile_loss_divides_sums():
    metrics = ForecastMetrics()
    metrics.update(
        result([window("a", [10, 10]), window("b", [100, 100])], [around([10, 10]), around([90, 90])])
    )
    a, b = (row.quantile_loss for row in metrics.scores)
    assert metrics.compute()["wql"] == pytest.approx((a + b) / 220)


def test_figures_have_the_names_of_the_metrics():
    metrics = ForecastMetrics()
    metrics.update(result([window()], [around([5, 5])]))
    assert set(metrics.compute()) == {figure.name for figure in FIGURES}


def test_metrics_of_two_processes_are_those_of_one():
    windows, answers = [window("a"), window("b", [3, 3])], [around([5, 5]), around([3, 5])]
    whole, first, second = ForecastMetrics(), ForecastMetrics(), ForecastMetrics()
    whole.update(result(windows[:1], answers[:1]))
    whole.update(result(windows[1:], answers[1:]))
    first.update(result(windows[:1], answers[:1]))
    second.update(result(windows[1:], answers[1:]))
    first.merge(second)
    assert first.compute() == whole.compute()
    assert first.scores == whole.scores


def test_series_without_a_measure_are_left_out_of_its_mean():
    constant = Window("c", np.full(4, 2.0), np.array([2.0, 4.0]))
    unknown = window("u", [NAN, NAN])
    scores = [score(each, np.array(around([5, 5])), LEVELS) for each in (window(), constant, unknown)]
    found = summary(scores)
    assert found["mase"] == scores[0].mase
    assert found["mse"] == scores[0].mse
    assert found["smape"] == pytest.approx((scores[0].smape + scores[1].smape) / 2)
    assert "1 without MASE" not in extremes(scores[:1]).about
    assert "2 without MASE" in extremes(scores).about


def test_windows_without_naive2_have_no_owa():
    assert "owa" not in summary([score(window(naive2=False), np.array(around([5, 5])), LEVELS)])


def test_a_given_deviation_standardises_instead_of_that_of_the_history():
    found = score(window(deviation=2.0), np.array(around([6, 4])), LEVELS)
    assert (found.mse, found.mae) == (1, 1)


def test_levels_must_ascend_and_have_the_median():
    with pytest.raises(ValueError, match=r"must ascend and have 0.5; got \[0.1, 0.9\]"):
        score(window(), np.zeros((2, 2)), (0.1, 0.9))


def named(name: str, mase: float) -> Score:
    return score(window(name), np.array(around([4, 6])), LEVELS)._replace(mase=mase)


def test_the_best_the_median_and_the_worst_series():
    rows = [named("c", 3.0), named("x", NAN), named("a", 1.0), named("b", 2.0)]
    assert [row.name for row in best_median_worst(rows)] == ["a", "b", "c"]
    five = [named(name, float(place)) for place, name in enumerate("abcde")]
    assert [row.name for row in best_median_worst(five)] == ["a", "c", "e"]
    assert [row.name for row in best_median_worst(rows[:1])] == ["c"]
    assert best_median_worst([]) == ()


def test_a_table_of_the_extremes_has_each_series_once():
    rows = [named(str(number), float(number)) for number in range(9)]
    assert [row[:2] for row in extremes(rows, 2).rows] == [
        (str(place + 1), str(place)) for place in (0, 1, 3, 4, 7, 8)
    ]
    assert len(extremes(rows, 5).rows) == 9


# ---------------------------------------------------------------------------------------- baselines


def test_naive_baselines_by_hand():
    """History 1, 2, 4, 3 and truth 4, 6: naive answers 3, 3; seasonal naive 4, 3."""
    found = {each.name: each.figures for each in naive_baselines([window(season=2)])}
    assert found["naive"]["mase"] == pytest.approx(2 / 2)
    assert found["seasonal naive"]["mase"] == pytest.approx(1.5 / 2)
    assert found["Naive2"]["owa"] == 1


class FakeMethod:
    """In the place of a method of statsforecast: the last value, an interval of 1 to each side."""

    asked: list[tuple[list[float], int, list[float]]] = []

    def __init__(self, season_length: int):
        self.season = season_length

    def forecast(self, y: np.ndarray, h: int, level: list[float]) -> dict[str, np.ndarray]:
        if len(y) < 3:
            raise NotImplementedError("tiny datasets")
        self.asked.append((y.tolist(), h, level))
        steps = np.full(h, y[-1])
        return {"mean": steps} | {
            f"{side}-{w}": steps + s for w in level for side, s in (("lo", -1), ("hi", 1))
        }


@pytest.fixture
def fake_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = ModuleType("statsforecast")
    package.__spec__ = SimpleNamespace()
    models: Any = SimpleNamespace(AutoETS=FakeMethod, AutoTheta=FakeMethod)
    monkeypatch.setitem(sys.modules, "statsforecast", package)
    monkeypatch.setitem(sys.modules, "statsforecast.models", models)
    monkeypatch.setattr(FakeMethod, "asked", [])


@pytest.mark.usefixtures("fake_package")
def test_statistical_forecasts_interpolate_and_reach_over_a_gap_at_the_end():
    found = statistical.statistical_forecasts([[NAN, 1, NAN, 3, NAN]], 2, 1, ["AutoETS"], LEVELS)["AutoETS"]
    assert FakeMethod.asked == [([1, 2, 3], 3, [80])]
    assert found.quantiles[0].tolist() == [[2, 3, 4], [2, 3, 4]]
    assert found.failed == ()


@pytest.mark.usefixtures("fake_package")
def test_a_series_that_cannot_be_fitted_has_naive2():
    found = statistical.statistical_forecasts([[1, 2, 3], [1, 5]], 1, 1, ["AutoETS"], LEVELS)["AutoETS"]
    assert found.failed == (1,)
    assert found.quantiles[1][0, 1] == 5


@pytest.mark.usefixtures("fake_package")
def test_many_series_are_an_even_selection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistical, "MOST_VALUES", 8)
    windows = [window(str(number)) for number in range(6)]
    assert [each.name for each in statistical.selected(windows)] == ["0", "3"]
    found = statistical.statistical_baselines(windows, LEVELS)
    assert [each.name for each in found] == ["AutoETS", "AutoTheta"]
    assert "On 2 of 6 forecasts" in found[0].about
    assert "Naive2" not in found[0].about


def test_without_the_package_there_is_a_note(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistical, "find_spec", lambda name: None)
    assert statistical.statistical_baselines([window()]) == []
    assert "pip install statsforecast" in statistical.missing_note()
    with pytest.raises(ImportError, match="AutoETS and AutoTheta are left out"):
        statistical.statistical_forecasts([[1, 2, 3]], 1, 1)


@pytest.mark.parametrize(
    ("level", "column"),
    [(0.1, "lo-80"), (0.9, "hi-80"), (0.025, "lo-95"), (0.5, "mean"), (0.0125, "lo-97.5")],
)
def test_quantiles_as_intervals(level: float, column: str):
    assert statistical.column_of(level) == column


# ----------------------------------------------------------------------------------- beside other code


def test_statsforecast_itself():
    pytest.importorskip("statsforecast")
    history = 50 + 10 * np.sin(np.arange(48) * np.pi / 2) + np.random.default_rng(0).normal(size=48)
    found = statistical.statistical_forecasts([history, [1.0]], 4, 4, levels=(0.1, 0.25, 0.5, 0.9))
    for each in found.values():
        assert each.failed == (1,)
        assert each.quantiles[0].shape == (4, 4)
        assert (np.diff(each.quantiles[0], axis=1) > 0).all()
        assert each.quantiles[0][:, 2] == pytest.approx(history[-4:], abs=4)


def test_measures_are_those_of_utilsforecast():
    losses = pytest.importorskip("utilsforecast.losses")
    pandas = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    history, truth, answer = 50 + draw.normal(size=(3, 30)) * 5
    known = pandas.DataFrame({"unique_id": "a", "y": history})
    frame = pandas.DataFrame(
        {"unique_id": "a", "y": truth, "m": answer, "low": answer - 3, "high": answer + 3}
    )
    expected = losses.smape(frame, ["m"])["m"][0]
    # Theirs is a share, and without the factor 2.
    assert smape(answer, truth) == pytest.approx(200 * expected)
    expected = losses.mase(frame, ["m"], seasonality=7, train_df=known)["m"][0]
    assert mase(answer, truth, seasonal_scale(history, 7)) == pytest.approx(expected)
    expected = losses.coverage(frame.rename(columns={"low": "m-lo-80", "high": "m-hi-80"}), ["m"], 80)["m"][0]
    assert coverage(answer - 3, answer + 3, truth) == pytest.approx(expected)
    expected = losses.quantile_loss(frame, {"m": "low"}, q=0.1)["m"][0]
    found = weighted_quantile_loss((answer - 3)[:, None], truth, [0.1])
    assert found == pytest.approx(2 * expected * 30 / np.abs(truth).sum())


# ----------------------------------------------------------------------------------------------- M4


def m4_rows(file: str) -> dict[str, np.ndarray]:
    """Series of a file of M4 by name. The files are in LINNET_DATA; otherwise the test is skipped."""
    place = Path(os.environ.get("LINNET_DATA", ""), "m4", file)
    if "LINNET_DATA" not in os.environ or not place.exists():
        pytest.skip(f"LINNET_DATA has no m4/{file}")
    with lzma.open(place, "rt", encoding="utf-8") as stream:
        return {
            name: np.array([float(value) for value in row if value])
            for name, *row in list(csv.reader(stream))[1:]
        }


@pytest.mark.parametrize(
    ("period", "season", "expected"),
    [
        ("Hourly", 24, {"naive": (43.00, 11.61), "seasonal naive": (13.91, 1.19), "Naive2": (18.38, 2.40)}),
        ("Weekly", 1, {"naive": (9.16, 2.78), "seasonal naive": (9.16, 2.78), "Naive2": (9.16, 2.78)}),
    ],
)
def test_the_published_figures_of_m4(period: str, season: int, expected: dict[str, tuple[float, float]]):
    known, asked = (m4_rows(f"{period}-{part}.csv.xz") for part in ("train", "test"))
    windows = [Window(name, history, asked[name], season) for name, history in known.items()]
    for found in naive_baselines(windows):
        figures = found.figures["smape"], found.figures["mase"]
        # Published with two decimals.
        assert figures == pytest.approx(expected[found.name], abs=0.005 + 1e-9), found.name
