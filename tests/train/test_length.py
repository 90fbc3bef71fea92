"""How long a run trains: a length that follows the data, a time budget, early stopping, Ctrl-C."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import toy

from linnet.runs.config import RunConfig, ScheduleConfig, changeable, override
from linnet.runs.records import read_metrics, read_result
from linnet.tasks import TASKS
from linnet.train import clock, loop
from linnet.train.context import MOST_EPOCHS, planned_epochs
from linnet.train.loop import train
from linnet.train.recipes import RECIPES
from linnet.train.schedules import Moment, factor
from linnet.train.update import Updater

ADAM = {"optimiser": "adam", "lr": 0.01, "log_every": 4, "checkpoint_seconds": 0.0, "device": "cpu"}
EPOCH = 12  # the updates of an epoch of the toy task


def config(**given: object) -> RunConfig:
    return override(RunConfig(task=toy.ToyTask.name), {**ADAM, **given})


def test_more_data_gets_more_updates_and_fewer_epochs():
    assert planned_epochs(2000, 100) == 20
    assert planned_epochs(2000, 400) == 10
    assert planned_epochs(2000, 1) == MOST_EPOCHS
    assert planned_epochs(2000, 10**9) == 1


def test_a_run_without_a_length_follows_its_data(tmp_path: Path):
    result = train(config(updates=100, patience=0), tmp_path)
    epochs = planned_epochs(100, EPOCH)
    assert (result["step"], result["planned_steps"]) == (epochs * EPOCH, epochs * EPOCH)
    assert result["stopped_by"] == "length"


def test_a_number_of_updates_is_not_cut_by_epochs(tmp_path: Path):
    assert train(config(steps=2 * EPOCH + 5, updates=1), tmp_path)["step"] == 2 * EPOCH + 5


def test_a_run_with_few_epochs_is_validated_ten_times(tmp_path: Path):
    train(config(updates=170, patience=0), tmp_path)  # 5 epochs of 12 updates
    assert [row["step"] for row in read_metrics(tmp_path, "valid")] == [*range(6, 61, 6)]


def test_early_stopping_is_on_and_keeps_the_best_weights(tmp_path: Path):
    result = train(config(lr=1.0, clip=0.0, steps=5000, evaluate_every=1), tmp_path)
    valid = read_metrics(tmp_path, "valid")
    assert result["stopped_by"] == "patience"
    assert result["step"] < 5000
    assert result["valid"]["loss"] == min(row["loss"] for row in valid)


# ------------------------------------------------------------------------------------- the schedule


def test_the_linear_schedule_rises_for_a_twentieth_and_falls_to_zero():
    settings = ScheduleConfig()
    rates = [factor(settings, Moment(1, step, [], steps=200)) for step in range(1, 201)]
    assert settings.schedule == "linear"
    assert rates[:2] == pytest.approx([0.05, 0.15])
    assert max(rates) > 0.99
    assert rates == [*sorted(rates[:10]), *sorted(rates[10:], reverse=True)]
    assert 0 < rates[-1] < 0.005


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_rate_falls_to_zero_at_the_end_of_the_time_budget(schedule: str):
    settings = ScheduleConfig(schedule=schedule)
    moments = [Moment(1, 5, [], 1_000_000, spent) for spent in (0.5, 0.9, 1.0)]
    half, late, end = (factor(settings, moment) for moment in moments)
    assert half > late > end == 0


def test_a_run_of_the_linear_schedule_may_be_continued_for_longer(tmp_path: Path):
    assert {"steps", "epochs", "updates", "minutes"} <= {*changeable(config())}
    assert "minutes" in changeable(config(schedule="cosine"))
    assert train(config(epochs=1), tmp_path)["step"] == EPOCH
    assert train(config(epochs=2), tmp_path)["step"] == 2 * EPOCH


# --------------------------------------------------------------------------------- the time budget


class Ticks:
    """A clock on which each reading is a second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_a_time_budget_ends_a_run_and_more_minutes_continue_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(clock, "time", Ticks())
    first = train(config(updates=2000, minutes=0.5), tmp_path)
    assert first["stopped_by"] == "minutes"
    assert 30 <= first["spent"] < 35
    assert first["step"] < first["planned_steps"]
    validated = [row["step"] for row in read_metrics(tmp_path, "valid")]
    assert 8 <= len(validated) <= 11
    assert train(config(updates=2000, minutes=0.5), tmp_path) == first
    more = train(config(updates=2000, minutes=1.0), tmp_path)
    assert more["step"] > 1.5 * first["step"]
    assert 60 <= more["spent"] < 65


def test_a_task_without_end_takes_a_time_budget(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(clock, "time", Ticks())
    small = {"span": 3, "symbols": 2, "recalled": 1, "hidden_size": 4, "batch": 2, "eval_examples": 2}
    endless = override(RunConfig(task="memory.copy"), {**small, "steps": 0, "device": "cpu"})
    assert train(override(endless, {"minutes": 0.1}), tmp_path)["planned_steps"] is None
    with pytest.raises(ValueError, match=r"give the number of updates \(--steps\) or a time budget"):
        train(endless, tmp_path / "other")


# -------------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_writes_a_checkpoint_of_the_update_and_the_run_goes_on_from_it(tmp_path: Path, monkeypatch):
    undisturbed = train(config(epochs=2), tmp_path / "whole")
    update = Updater.update

    def interrupted(self: Updater, batches: list) -> object:
        if self.context.here.step == 4:
            signal.raise_signal(signal.SIGINT)
        return update(self, batches)

    monkeypatch.setattr(Updater, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config(epochs=2), tmp_path / "cut")
    assert loop.checkpoints.must_find(tmp_path / "cut", "last").manifest["step"] == 5
    monkeypatch.undo()
    result = train(config(epochs=2), tmp_path / "cut")
    assert result["test"] == undisturbed["test"]
    assert read_result(tmp_path / "cut") == result
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ------------------------------------------------------------------------------------------- recipes


def test_recipes_state_every_setting_that_has_a_default_of_its_task():
    always = {"epochs", "patience", "schedule"}
    for name, each in RECIPES.items():
        unstated = (always | set(TASKS[each.task].defaults)) - set(each.settings)
        assert not unstated, (name, unstated)
