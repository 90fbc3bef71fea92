"""Forecasts that need no network: what a trained model must beat.

    naive             the last value
    seasonal_naive    the value one season before
    naive2            M4's benchmark: naive on the seasonally adjusted series, if an autocorrelation test
                      finds a season (Makridakis, Spiliotis and Assimakopoulos 2020)

Each takes a history [T] and returns [horizon]. `naive_forecast` also returns the standard deviation at each
step, from which quantiles follow. Errors are assumed normal and independent, so that their variance grows
with the number of steps: sigma sqrt(h) for naive and Naive2, sigma sqrt(seasons) for seasonal naive. Sigma is
the root of the mean square of the method's own one-step (or one-season) errors in the history.

Missing values (NaN) are treated as follows. Those at the start are cut off. After the last observed value,
the forecast begins at that value, and its variance counts the missing steps. Seasonal naive takes the last
season in which the value was observed. Naive2 interpolates linearly to find the season, but takes sigma from
observed neighbours only.

Short and other histories:
    shorter than a season       seasonal naive repeats the last value where the season has none yet
    shorter than two seasons    seasonal naive has no seasonal error yet; its variance is that of naive
    shorter than three          Naive2 does not look for a season (the rule of M4)
    values of 0 or less         Naive2 decomposes by sums instead of products
    one observed value          sigma is 0: the forecast has no width

Differs from the code of M4's organisers: their autocorrelations end at lag 10 log10(T), so that a longer
season is never found; here every lag up to the season is computed. For the series of M4 both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray  # float64

CRITICAL = 1.645
"""Of a standard normal value, at 90 %, both sides."""


class NormalForecast(NamedTuple):
    """A normal distribution for each step of the horizon."""

    centre: Values  # [horizon]
    deviation: Values  # [horizon]

    def quantiles(self, levels: Sequence[float]) -> Values:
        """Return [horizon, levels]."""
        normal = np.array([NormalDist().inv_cdf(level) for level in levels])
        return self.centre[:, None] + self.deviation[:, None] * normal

    def after(self, steps: int) -> NormalForecast:
        """Return the forecast without its first steps."""
        return NormalForecast(self.centre[steps:], self.deviation[steps:])


def naive(history: Any, horizon: int, season: int = 1) -> Values:
    """Repeat the last value; the season is not used."""
    return naive_forecast("naive", history, horizon, season).centre


def seasonal_naive(history: Any, horizon: int, season: int) -> Values:
    """Repeat the last season."""
    return naive_forecast("seasonal naive", history, horizon, season).centre


def naive2(history: Any, horizon: int, season: int) -> Values:
    """Repeat the last value of the seasonally adjusted series, with the season put back."""
    return naive_forecast("Naive2", history, horizon, season).centre


def naive_forecast(name: str, history: Any, horizon: int, season: int) -> NormalForecast:
    """Return the forecast of a method of `METHODS` for a history [T]."""
    if name not in METHODS:
        raise ValueError(f"there is no naive forecast {name!r}; use one of {', '.join(METHODS)}")
    if horizon < 1 or season < 1:
        raise ValueError(f"horizon and season must be at least 1; got {horizon} and {season}")
    values = checked(history)
    observed = np.flatnonzero(~np.isnan(values))
    known = values[observed[0] : observed[-1] + 1]
    missing = len(values) - 1 - int(observed[-1])
    return METHODS[name](known, horizon + missing, season).after(missing)


def checked(history: Any) -> Values:
    values = np.asarray(history, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a history is one series [T]; got the shape {values.shape}")
    if np.isinf(values).any():
        at = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(f"value {at + 1} of the history is {values[at]}; replace it by NaN if it is unknown")
    if np.isnan(values).all():
        raise ValueError("the history has no observed value; leave this series out")
    return values


# ------------------------------------------------------------------------------------------ the methods
# Their histories begin and end with an observed value.


def last_value(known: Values, horizon: int, season: int) -> NormalForecast:
    steps = np.arange(1, horizon + 1)
    return NormalForecast(np.full(horizon, known[-1]), error_size(known, 1) * np.sqrt(steps))


def last_season(known: Values, horizon: int, season: int) -> NormalForecast:
    found = last_value(known, horizon, season)
    sources = last_observed(known, season)[np.arange(horizon) % season]
    steps = np.arange(len(known), len(known) + horizon)
    seasons = (steps - sources) // season
    centre = np.where(sources < 0, found.centre, known[sources])
    if len(differences(known, season)) == 0:
        return found._replace(centre=centre)
    deviation = np.where(sources < 0, found.deviation, error_size(known, season) * np.sqrt(seasons))
    return NormalForecast(centre, deviation)


def adjusted_last_value(known: Values, horizon: int, season: int) -> NormalForecast:
    filled = interpolated(known)
    if not is_seasonal(filled, season):
        return last_value(known, horizon, season)
    phases, ahead = np.arange(len(known)) % season, np.arange(len(known), len(known) + horizon) % season
    if known[~np.isnan(known)].min() > 0:
        indices = seasonal_indices(filled, season, np.divide)
        adjusted = last_value(known / indices[phases], horizon, season)
        return NormalForecast(adjusted.centre * indices[ahead], adjusted.deviation * indices[ahead])
    indices = seasonal_indices(filled, season, np.subtract)
    adjusted = last_value(known - indices[phases], horizon, season)
    return adjusted._replace(centre=adjusted.centre + indices[ahead])


METHODS: dict[str, Callable[[Values, int, int], NormalForecast]] = {
    "naive": last_value,
    "seasonal naive": last_season,
    "Naive2": adjusted_last_value,
}


# ------------------------------------------------------------------------------------------ their parts


def differences(values: Values, lag: int) -> Values:
    """Return x_t - x_{t-lag} where both are observed."""
    found = values[lag:] - values[:-lag]
    return found[~np.isnan(found)]


def error_size(known: Values, lag: int) -> float:
    """Return the root of the mean square of the differences; 0 if there are none."""
    found = differences(known, lag)
    return float(np.sqrt(np.mean(found**2))) if len(found) else 0.0


def last_observed(known: Values, season: int) -> np.ndarray:
    """Return for each of the next `season` steps where its phase was last observed; -1: never."""
    places = np.flatnonzero(~np.isnan(known))
    found = np.full(season, -1)
    # Of several places with the same phase, the last one stays.
    found[(places - len(known)) % season] = places
    return found


def interpolated(known: Values) -> Values:
    places = np.flatnonzero(~np.isnan(known))
    return np.interp(np.arange(len(known)), places, known[places])


def is_seasonal(values: Values, season: int) -> bool:
    """Test the autocorrelation at the lag of the season at 90 %, by Bartlett's formula, as M4 does.

    r_season is significant if |r_season| > 1.645 sqrt((1 + 2 sum_{k < season} r_k^2) / T).
    """
    count = len(values)
    if season == 1 or count < 3 * season or values.min() == values.max():
        return False
    r = autocorrelations(values, season)
    limit = CRITICAL * np.sqrt((1 + 2 * np.sum(r[:-1] ** 2)) / count)
    return bool(abs(r[-1]) > limit)


def autocorrelations(values: Values, most: int) -> Values:
    """Return r_1 ... r_most."""
    centred = values - values.mean()
    # Not np.dot: for some thousand values it starts threads, which wait longer than they compute.
    products = [np.sum(centred[lag:] * centred[:-lag]) for lag in range(1, most + 1)]
    return np.array(products) / np.sum(centred * centred)


def seasonal_indices(values: Values, season: int, remove: Any) -> Values:
    """Return one index for each place in the season, by classical decomposition.

    remove   np.divide: indices are factors with mean 1; np.subtract: terms with mean 0
    """
    # A window of an even length has no centre: it is one longer, and its two ends count half.
    weights = np.full(season, 1.0) if season % 2 else np.array([0.5, *[1.0] * (season - 1), 0.5])
    trend = np.convolve(values, weights / season, mode="valid")
    first = len(weights) // 2
    rest = remove(values[first : first + len(trend)], trend)
    phases = np.arange(first, first + len(trend)) % season
    means = np.bincount(phases, rest, season) / np.bincount(phases, minlength=season)
    return remove(means, means.mean())
