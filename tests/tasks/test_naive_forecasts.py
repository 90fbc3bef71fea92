"""Naive forecasts: worked by hand, with gaps, and beside statsforecast."""

from __future__ import annotations

import math

import numpy as np
import pytest

from linnet.tasks.naive_forecasts import (
    autocorrelations,
    is_seasonal,
    naive,
    naive2,
    naive_forecast,
    seasonal_indices,
    seasonal_naive,
)

NAN = math.nan
FACTORS = np.array([0.5, 1.0, 1.5, 1.0])


def deviations(name: str, history: list[float], horizon: int, season: int) -> list[float]:
    return naive_forecast(name, history, horizon, season).deviation.tolist()


def noisy_season(seed: int = 0, length: int = 60, season: int = 12) -> np.ndarray:
    draw = np.random.default_rng(seed)
    steps = np.arange(length)
    return 100 + steps + 20 * np.sin(2 * np.pi * steps / season) + draw.normal(size=length)


def test_naive_repeats_the_last_value_and_widens_with_the_root_of_the_steps():
    found = naive_forecast("naive", [1, 3, 2, 5], 4, 1)
    assert found.centre.tolist() == [5, 5, 5, 5]
    sigma = math.sqrt((4 + 1 + 9) / 3)
    assert found.deviation == pytest.approx([sigma, sigma * math.sqrt(2), sigma * math.sqrt(3), sigma * 2])


def test_quantiles_are_those_of_a_normal_distribution():
    found = naive_forecast("naive", [0, 2, 0], 1, 1).quantiles([0.1, 0.5, 0.9])
    assert found.tolist() == [pytest.approx([-2 * 1.2815515655446004, 0, 2 * 1.2815515655446004])]


def test_seasonal_naive_repeats_the_season_and_widens_with_each_season():
    history = [1, 2, 3, 4, 4, 6]
    assert seasonal_naive(history, 5, 3).tolist() == [4, 4, 6, 4, 4]
    sigma = math.sqrt((9 + 4 + 9) / 3)
    expected = [sigma] * 3 + [sigma * math.sqrt(2)] * 2
    assert deviations("seasonal naive", history, 5, 3) == pytest.approx(expected)


def test_naive2_multiplies_the_adjusted_last_value_by_the_season():
    """Products of a constant and a season decompose exactly: 40, 80, 120, 80, without an error."""
    history = np.tile(80 * FACTORS, 5)[:-1]
    found = naive_forecast("Naive2", history, 5, 4)
    assert found.centre == pytest.approx([80, 40, 80, 120, 80])
    assert found.deviation == pytest.approx(np.zeros(5), abs=1e-12)


def test_naive2_widens_in_proportion_to_the_season():
    history = np.tile(80 * FACTORS, 5) * np.repeat([1, 1, 1, 1, 1.1], 4)
    found = naive_forecast("Naive2", history, 4, 4)
    steps = np.sqrt(np.arange(1, 5))
    shape = found.deviation / steps
    assert shape / shape[1] == pytest.approx(found.centre / found.centre[1])
    assert shape.min() > 0


@pytest.mark.parametrize("offset", [0.0, -100.0], ids=["a zero", "negative values"])
def test_naive2_adds_the_season_where_values_are_not_positive(offset: float):
    history = np.tile([0.0, 8.0, 16.0, 8.0], 5) + offset
    assert naive2(history, 5, 4) == pytest.approx(np.array([0, 8, 16, 8, 0]) + offset)


def test_indices_of_an_even_and_of_an_odd_season():
    """A parabola plus a season: the centred average over one season is the parabola plus a constant."""
    parabola = 3.0 * np.arange(24) ** 2
    even = seasonal_indices(parabola + np.tile([1, -2, 3, -2], 6), 4, np.subtract)
    assert even == pytest.approx([1, -2, 3, -2])
    odd = seasonal_indices(parabola + np.tile([1, -2, 1], 8), 3, np.subtract)
    assert odd == pytest.approx([1, -2, 1])


def test_autocorrelations_by_hand():
    """Deviations from the mean: -1.5, -0.5, 0.5, 1.5; their squares sum to 5."""
    assert autocorrelations(np.array([1.0, 2.0, 3.0, 4.0]), 2) == pytest.approx([1.25 / 5, -1.5 / 5])


def test_the_test_of_a_season_is_at_ninety_percent():
    """The season stays and the noise grows, in steps small enough to see where the answer changes."""
    draw = np.random.default_rng(0)
    noise, season = draw.normal(size=100), np.tile([1.0, -1.0], 50)
    for size in np.linspace(0.5, 8, 300):
        r_1, r_2 = autocorrelations(season + size * noise, 2)
        expected = abs(r_2) > 1.645 * math.sqrt((1 + 2 * r_1**2) / 100)
        assert is_seasonal(season + size * noise, 2) == expected
    assert is_seasonal(season + 0.5 * noise, 2)
    assert not is_seasonal(season + 8 * noise, 2)


def test_a_season_is_looked_for_in_three_seasons_only():
    history = np.tile([40.0, *[10.0] * 7], 3)
    assert is_seasonal(history, 8)
    assert not is_seasonal(history[1:], 8)
    assert naive2(history[1:], 2, 8).tolist() == [10, 10]


@pytest.mark.parametrize("name", ["naive", "seasonal naive", "Naive2"])
def test_a_constant_series_stays(name: str):
    found = naive_forecast(name, [7.0] * 20, 3, 4)
    assert found.centre.tolist() == [7, 7, 7]
    assert found.deviation.tolist() == [0, 0, 0]


def test_a_history_shorter_than_a_season():
    """Of the next three places in a season of four, none was observed; of the fourth, the first value was."""
    found = naive_forecast("seasonal naive", [5.0], 5, 4)
    assert found.centre.tolist() == [5, 5, 5, 5, 5]
    assert found.deviation.tolist() == [0] * 5
    assert seasonal_naive([3.0, 5.0], 5, 4).tolist() == [5, 5, 3, 5, 5]


def test_a_history_shorter_than_two_seasons_has_the_width_of_naive():
    history = [1.0, 3.0, 2.0]
    assert seasonal_naive(history, 4, 3).tolist() == [1, 3, 2, 1]
    assert deviations("seasonal naive", history, 4, 3) == deviations("naive", history, 4, 3)


# --------------------------------------------------------------------------------------- missing values


def test_naive_starts_at_the_last_observed_value_and_counts_the_missing_steps():
    found = naive_forecast("naive", [NAN, 1, 3, NAN, 4, 6, NAN, NAN], 2, 1)
    assert found.centre.tolist() == [6, 6]
    sigma = math.sqrt((4 + 4) / 2)
    assert found.deviation == pytest.approx([sigma * math.sqrt(3), sigma * 2])


def test_seasonal_naive_goes_back_to_the_season_in_which_a_value_was_observed():
    found = naive_forecast("seasonal naive", [1, 2, 3, 4, NAN, 7], 4, 3)
    assert found.centre.tolist() == [4, 2, 7, 4]
    sigma = math.sqrt((9 + 16) / 2)
    assert found.deviation == pytest.approx(sigma * np.sqrt([1, 2, 1, 2]))


def test_seasonal_naive_keeps_its_place_in_the_season_after_a_gap_at_the_end():
    assert seasonal_naive([1, 2, 3, 4, 5, 6, NAN], 3, 3).tolist() == [5, 6, 4]


def test_naive2_keeps_its_place_in_the_season_with_gaps_at_both_ends():
    history = [NAN, *np.tile(80 * FACTORS, 5), NAN, NAN]
    assert naive2(history, 3, 4) == pytest.approx([120, 80, 40])


def test_naive2_interpolates_to_find_the_season():
    history = np.tile([90.0, 100.0, 110.0, 100.0], 5)
    holed = history.copy()
    holed[9] = NAN  # between 90 and 110: the line through its neighbours has the value itself
    assert naive2(holed, 4, 4) == pytest.approx(naive2(history, 4, 4))


# ---------------------------------------------------------------------------------------------- errors


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="no observed value; leave this series out"):
        naive([NAN, NAN], 1)
    with pytest.raises(ValueError, match="value 2 of the history is inf; replace it by NaN"):
        naive([1, math.inf], 1)
    with pytest.raises(ValueError, match=r"one series \[T\]; got the shape \(2, 3\)"):
        naive(np.zeros((2, 3)), 1)
    with pytest.raises(ValueError, match="horizon and season must be at least 1; got 0 and 1"):
        naive([1.0], 0)
    with pytest.raises(
        ValueError, match="no naive forecast 'naïve'; use one of naive, seasonal naive, Naive2"
    ):
        naive_forecast("naïve", [1.0], 1, 1)


# ----------------------------------------------------------------------------------- beside other code


def test_values_and_intervals_are_those_of_statsforecast():
    models = pytest.importorskip("statsforecast.models")
    history = noisy_season()
    for name, model in (("naive", models.Naive()), ("seasonal naive", models.SeasonalNaive(12))):
        theirs = model.forecast(y=history, h=30, level=[80])
        ours = naive_forecast(name, history, 30, 12)
        assert ours.centre == pytest.approx(theirs["mean"])
        assert ours.quantiles([0.1, 0.9])[:, 1] == pytest.approx(theirs["hi-80"])


@pytest.mark.parametrize("season", [4, 7, 12])
@pytest.mark.parametrize("kind", ["multiplicative", "additive"])
def test_indices_are_those_of_statsmodels(kind: str, season: int):
    decompose = pytest.importorskip("statsmodels.tsa.seasonal").seasonal_decompose
    history = noisy_season(season=season)
    remove = np.divide if kind == "multiplicative" else np.subtract
    theirs = decompose(history, model=kind, period=season).seasonal[:season]
    assert seasonal_indices(history, season, remove) == pytest.approx(theirs)
