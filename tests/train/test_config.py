"""A run as a value: to JSON and back, changed by name, refused with an answer."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import toy  # noqa: F401, makes the kind of task known

from linnet.runs.config import (
    LATER,
    RunConfig,
    ScheduleConfig,
    changeable,
    differences,
    from_dict,
    from_json,
    options,
    override,
    to_dict,
    to_json,
)
from linnet.tasks.language import LanguageData
from linnet.train.recipes import RECIPES, recipe
from linnet.train.schedules import Moment, disappointments, ever_stuck, factor, stuck


def test_a_run_goes_to_json_and_back():
    config = override(
        RunConfig(), {"lr": 3, "hidden_sizes": [3, 4], "unit_options": {"alpha": 0.5}, "unit": "scrn"}
    )
    assert config.optimiser.lr == 3.0
    assert from_json(to_json(config)) == config
    assert config.model.hidden_sizes == (3, 4)
    assert from_json(to_json(config)).fingerprint == config.fingerprint != RunConfig().fingerprint


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"lrr": 1.0}, "no option 'lrr'; did you mean 'lr'?"),
        ({"hidden_sise": 3}, "did you mean 'hidden_size'?"),
        ({"optimiser": "adamx"}, "optimiser is one of .*got 'adamx'; did you mean 'adamax'?"),
        ({"lr": "fast"}, r"lr is float; got 'fast' \(str\)"),
        ({"epochs": 1.5}, "epochs is int; got 1.5"),
        ({"epochs": True}, "epochs is int; got True"),
        ({"epochs": -1}, "epochs is at least 0; got -1"),
        ({"clip": -1.0}, "clip is at least 0; got -1.0"),
        ({"lr": float("nan")}, "lr is a finite number; got nan"),
        ({"lr": float("inf")}, "lr is a finite number; got inf"),
        ({"betas": (0.9, float("inf"))}, "betas is a finite number; got inf"),
        ({"input_dropout": float("-inf")}, "input_dropout is a finite number; got -inf"),
        ({"betas": (0.9,)}, r"betas is 2 numbers; got 1: \(0.9,\)"),
        ({"ema": 2.0}, "ema is at most 1; got 2.0"),
        ({"momentum": 3.0}, "momentum is at most 1; got 3.0"),
        ({"seed": 10**30}, "seed is at most 4611686018427387904; got 1000"),
        ({"tail": "kep"}, "did you mean 'keep'?"),
    ],
)
def test_a_wrong_setting_is_answered(given: dict[str, object], answer: str):
    with pytest.raises(ValueError, match=answer.replace("?", r"\?")):
        override(RunConfig(), given)


def test_a_wrong_file_is_answered():
    with pytest.raises(ValueError, match="a run has no option 'modle'; did you mean 'model'"):
        from_dict({**to_dict(RunConfig()), "modle": {}})
    with pytest.raises(ValueError, match="are JSON"):
        from_json("{")
    with pytest.raises(ValueError, match="an object"):
        from_json("[]")
    with pytest.raises(ValueError, match="no task 'ln'; did you mean 'lm'"):
        from_dict({"task": "ln"})


def test_each_option_has_one_part_and_one_line():
    names = Counter(field.name for _, field, _ in options("lm"))
    assert [name for name, count in names.items() if count > 1] == []
    assert [field.name for _, field, _ in options("lm") if not field.metadata.get("help")] == []
    assert set(LATER) <= set(names)


def test_differences_are_named_with_both_values():
    a, b = RunConfig(), override(RunConfig(), {"lr": 0.5, "epochs": 3})
    assert differences(a, b, ignore=LATER) == {"lr": (0.003, 0.5)}


# ------------------------------------------------------------------------------------- schedules


def rates(settings: ScheduleConfig, moments: list[Moment]) -> list[float]:
    return [factor(settings, moment) for moment in moments]


def test_after_falls_from_the_epoch_after():
    settings = ScheduleConfig(schedule="after", decay=0.5, decay_after=2)
    assert rates(settings, [Moment(e, 1, []) for e in (1, 2, 3, 4)]) == [1, 1, 0.5, 0.25]


def test_once_falls_once():
    settings = ScheduleConfig(schedule="once", decay=0.1, decay_after=2)
    assert rates(settings, [Moment(e, 1, []) for e in (1, 2, 3, 4)]) == [1, 1, 0.1, 0.1]


def test_plateau_falls_whenever_a_validation_is_no_better_than_the_best():
    settings = ScheduleConfig(schedule="plateau", decay=0.5)
    history = [3.0, 2.0, 2.5, 2.0, 1.9]
    # 2.5 is worse than 2, and the second 2 is no better than the first.
    assert [disappointments(history[:n]) for n in range(6)] == [0, 0, 0, 1, 2, 2]
    assert factor(settings, Moment(6, 1, history)) == 0.25


def test_patient_falls_after_several_validations_and_compares_with_the_last_then():
    settings = ScheduleConfig(schedule="patient", decay=0.5, decay_patience=2)
    # 2.5 and 2.2 are no better than 2; then 2.2 is the reference, so that 2.1 is better and 2.1 is not.
    history = [3.0, 2.0, 2.5, 2.2, 2.1, 2.1, 2.3, 2.3]
    found = [factor(settings, Moment(1, 1, history[:n])) for n in range(9)]
    assert found == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_noam_rises_and_falls():
    settings = ScheduleConfig(schedule="noam", warmup=100, width=25)
    assert factor(settings, Moment(1, 100, [])) == pytest.approx(0.2 * 0.1)
    assert factor(settings, Moment(1, 50, [])) == pytest.approx(0.2 * 0.05)
    assert factor(settings, Moment(1, 400, [])) == pytest.approx(0.2 * 0.05)


def test_cosine_warms_up_and_decays_to_zero_at_the_end():
    settings = ScheduleConfig(schedule="cosine", warmup=10)
    rates = {t: factor(settings, Moment(1, t, [], steps=110)) for t in (1, 5, 10, 11, 61, 86, 110, 120)}
    assert (rates[1], rates[5], rates[10], rates[11]) == (0.1, 0.5, 1.0, 1.0)
    assert rates[61] == pytest.approx(0.5)
    assert rates[86] == pytest.approx((1 + math.cos(0.75 * math.pi)) / 2)
    assert 0 < rates[110] < 0.001
    assert rates[120] == 0.0
    assert factor(ScheduleConfig(schedule="cosine"), Moment(1, 1, [], steps=1)) == 1.0


def test_the_length_of_a_run_with_a_cosine_schedule_is_fixed():
    config = RunConfig()
    assert "steps" in changeable(config)
    assert "epochs" not in changeable(override(config, {"schedule": "cosine"}))
    assert "logger" in changeable(override(config, {"schedule": "cosine"}))


def test_stuck_is_worse_than_the_best_of_long_ago():
    assert not stuck([3, 2, 1, 1.5, 1.5], 2)
    assert stuck([1, 5, 5, 5], 2)
    assert not stuck([1, 5, 5], 2)
    assert not stuck([5, 1, 5, 5], 2)
    assert ever_stuck([1, 5, 5, 5, 0.5], 2)
    assert not ever_stuck([], 2)


# --------------------------------------------------------------------------------------- recipes


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_run_whose_model_can_be_made(name: str):
    from linnet.models.language import LanguageModel
    from linnet.models.sequence import SequenceModel

    found = recipe(name)
    config = override(RunConfig(task=found.task), found.settings)
    assert from_json(to_json(config)) == config
    if found.task != "lm" and not found.task.startswith("memory."):
        return
    sizes = (10_000,) if found.task == "lm" else (1, 10) if "mnist" in found.task else (10, 9)
    make: Any = LanguageModel if found.task == "lm" else SequenceModel
    assert make(*sizes, config.model, device="meta").count() > 0


@pytest.mark.parametrize(
    ("name", "vocabulary", "millions"),
    [
        ("scrn-small-nd", 10_000, 5.49),
        ("scrn-small-nd-wt", 10_000, 3.09),
        ("scrn-medium-nd", 10_000, 18.93),
        ("scrn-medium-vd-wt", 10_000, 11.43),
        ("ran-ptb-tanh-medium", 10_000, 17.24),
        ("ran-ptb-id-large", 10_000, 52.5),
        ("lrn-ptb", 10_000, 10.79),
        ("nru-ptb-char", 50, 2.152),
        ("sru-enwik8-10", 205, 37.1),
        ("sru-enwik8-8-proj", 205, 47.1),
        ("sru-enwik8-12-proj", 205, 48.8),
    ],
)
def test_recipes_have_the_sizes_of_their_papers(name: str, vocabulary: int, millions: float):
    from linnet.models.language import LanguageModel

    config = override(RunConfig(), recipe(name).settings)
    count = LanguageModel(vocabulary, config.model, device="meta").count() / 1e6
    assert count == pytest.approx(millions, rel=0.003)


@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_depends_on_the_default_optimiser(name: str):
    assert {"optimiser", "lr", "clip"} <= set(recipe(name).settings)


@pytest.mark.parametrize(
    ("name", "optimiser", "lr", "clip"),
    [
        ("scrn-small-nd-wt", "sgd", 0.8, 5.0),
        ("ran-ptb-tanh-medium", "sgd", 1.0, 5.0),
        ("ran-text8", "sgd", 0.2, 10.0),
        ("lrn-ptb", "nt-asgd", 10.0, 0.25),
        ("sru-enwik8-6", "adam", 3.0, 0.3),
        ("nru-copy-100-eurnn", "adam", 1e-3, 0.0),
        ("lem-psmnist", "adam", 0.0073, 1.1),
        ("cornn-adding-100", "adam", 0.02, 0.0),
        ("unicornn-psmnist", "adam", 0.00251, 0.0),
        ("fastgrnn-rows", "adam", 0.01, 0.0),
    ],
)
def test_recipes_train_as_their_papers_do(name: str, optimiser: str, lr: float, clip: float):
    settings = recipe(name).settings
    assert (settings["optimiser"], settings["lr"], settings["clip"]) == (optimiser, lr, clip)


def test_an_unknown_recipe_is_answered():
    with pytest.raises(ValueError, match="did you mean 'scrn-small-nd-wt'"):
        recipe("scrn-small-nd-wd")


def test_every_recipe_names_a_known_corpus():
    from linnet.data.sources import CORPORA

    texts = [recipe for recipe in RECIPES.values() if recipe.task == "lm"]
    assert {recipe.settings["corpus"] for recipe in texts} <= set(CORPORA)


def test_data_is_checked(tmp_path: Path):
    with pytest.raises(ValueError, match="batch is at least 1"):
        LanguageData(batch=0)
