"""What is said about a result: baselines that win, time budgets, early stopping."""

from __future__ import annotations

from math import isnan, nan

from linnet.analysis.verdict import baseline_section, verdict
from linnet.runs.config import RunConfig

CLASSIFY = RunConfig(task="classify")


def result(accuracy: float, **more: object) -> dict:
    baselines = [
        {"name": "majority", "about": "One class.", "figures": {"accuracy": 0.5, "f1": 0.3}},
        {"name": "TF-IDF", "about": "Words.", "figures": {"accuracy": 0.8, "f1": 0.8}},
    ]
    test = {"accuracy": accuracy, "f1": accuracy, "loss": 0.1}
    return {"test": test, "baselines": baselines, "step": 50, "best_step": 40, **more}


def test_a_run_that_beats_all_baselines_needs_no_words():
    assert [*verdict(CLASSIFY, result(0.9))] == []


def test_a_baseline_that_wins_is_named_with_what_to_do():
    (line,) = verdict(CLASSIFY, result(0.7))
    assert "The baseline TF-IDF is better than this run: a test accuracy of 0.8000 against 0.7000" in line
    assert "--vectors FILE" in line


def test_a_run_no_better_than_the_simplest_baseline_has_hardly_learned():
    (line,) = verdict(CLASSIFY, result(0.5))
    assert line.startswith("This run has hardly learned")
    assert "Check the data" in line


def test_a_run_without_a_mistake_is_never_blamed():
    (line,) = verdict(CLASSIFY, {**result(0.0), "test": {"accuracy": 0.5, "f1": 0.5}})
    assert "hardly learned" in line
    perfect = [{"name": "majority", "about": "Easy.", "figures": {"accuracy": 1.0, "f1": 1.0}}]
    assert [*verdict(CLASSIFY, {**result(1.0), "baselines": perfect})] == []


def test_of_losses_the_lower_one_wins():
    figures = {"loss": 2.0, "perplexity": 7.4, "bpc": 2.9}
    found = [{"name": "unigram", "about": "Counts.", "figures": figures}]
    better = {"test": {name: value - 0.1 for name, value in figures.items()}, "baselines": found, "step": 1}
    worse = {"test": {name: value + 0.1 for name, value in figures.items()}, "baselines": found, "step": 1}
    assert [*verdict(RunConfig(task="lm"), better)] == []
    assert len([*verdict(RunConfig(task="lm"), worse)]) == 1


def test_a_loss_that_noise_has_lowered_is_nothing_learned():
    found = [{"name": "unigram", "about": "Counts.", "figures": {"loss": 2.0, "perplexity": 7.4, "bpc": 2.9}}]
    near = {"test": {"loss": 1.999, "perplexity": 7.38, "bpc": 2.899}, "baselines": found, "step": 1}
    (line,) = verdict(RunConfig(task="lm"), near)
    assert line.startswith("This run has hardly learned")
    # Any gain counts against a baseline that is not the simplest one.
    ngrams = {**found[0], "figures": {"loss": 2.0001, "perplexity": 7.381, "bpc": 2.8991}}
    near["baselines"] = [{**found[0], "figures": {"loss": 9.0, "perplexity": 9.0, "bpc": 9.0}}, ngrams]
    assert [*verdict(RunConfig(task="lm"), near)] == []


def test_a_time_budget_says_what_the_plan_would_have_needed():
    (line,) = verdict(CLASSIFY, result(0.9, stopped_by="minutes", planned_steps=200, spent=120.0))
    assert "after 50 of 200 planned updates; all of them need about 8.0 minutes" in line
    assert "--minutes 8.0" in line


def test_early_stopping_says_which_weights_are_kept():
    (line,) = verdict(CLASSIFY, result(0.9, stopped_by="patience", planned_steps=200, spent=120.0))
    assert "the weights are those of update 40" in line


def test_the_table_has_the_baselines_and_the_run():
    section = baseline_section(CLASSIFY, result(0.9))
    assert section is not None
    assert section.head == ("answers by", "test accuracy", "test macro F1")
    assert [row[:2] for row in section.rows] == [
        ("majority", "0.5000"),
        ("TF-IDF", "0.8000"),
        ("this run", "0.9000"),
    ]
    assert baseline_section(CLASSIFY, {"test": {}}) is None


FORECAST = RunConfig(task="forecast")


def forecast(own: float, naive: float, seasonal: float) -> dict:
    """The result of a forecast, by its MASE; its sMAPE is twice as much."""

    def figures(mase: float) -> dict:
        return {"mase": mase, "smape": 5.0 if isnan(mase) else 2 * mase}

    names = {"naive": naive, "seasonal naive": seasonal}
    found = [{"name": name, "about": "It.", "figures": figures(mase)} for name, mase in names.items()]
    return {"test": figures(own), "baselines": found, "step": 1}


def test_a_forecast_is_compared_with_seasonal_naive_in_words():
    (line,) = verdict(FORECAST, forecast(0.8, naive=2.0, seasonal=1.2))
    assert line == "This run beats seasonal naive by 33 % (test MASE 0.800 against 1.200)."
    (line,) = verdict(FORECAST, forecast(1.5, naive=2.0, seasonal=1.2))
    assert line.startswith(
        "The baseline seasonal naive is better than this run: a test MASE of 1.200 against 1.5"
    )
    (line,) = verdict(FORECAST, forecast(1.1, naive=0.5, seasonal=1.2))
    assert line.startswith("This run has hardly learned")
    # A gain of less than a percent needs no words.
    assert [*verdict(FORECAST, forecast(1.1999, naive=2.0, seasonal=1.2))] == []


def test_a_figure_that_is_not_defined_decides_nothing():
    result = forecast(nan, naive=nan, seasonal=nan)
    result["test"]["smape"] = 4.0
    (line,) = verdict(FORECAST, result)
    assert line == "This run beats seasonal naive by 20 % (test sMAPE 4 against 5)."
    for each in (result["test"], *(found["figures"] for found in result["baselines"])):
        each["smape"] = 0.0
    assert [*verdict(FORECAST, result)] == []
