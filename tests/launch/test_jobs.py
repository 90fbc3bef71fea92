"""Many runs: the same results in whichever processes, an error ends one of them, a killed worker none."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.launch import Job, Outcome, run_jobs
from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_rows
from tools import small_tasks

TINY = {
    **small_tasks.settings_of("memory.adding", Path()),
    **{"steps": 40, "evaluate_every": 10, "log_every": 1, "checkpoint_steps": 3},
}


def config(**given: object) -> RunConfig:
    return override(RunConfig(task="memory.adding"), {**TINY, **given})


def jobs(folder: Path, seeds: int = 3, **given: object) -> list[Job]:
    return [Job(config(seed=seed, **given), folder / str(seed)) for seed in range(seeds)]


def metrics(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/metrics.jsonl")}


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in_turn")
    outcomes = list(run_jobs(jobs(folder)))
    assert [outcome.result["step"] for outcome in outcomes if outcome.result] == [40, 40, 40]
    return folder


def test_an_error_ends_one_run_and_no_other(in_turn: Path, tmp_path: Path):
    wrong = Job(config(lr=1e30, clip=0.0), tmp_path / "wrong")
    outcomes = {outcome.job.folder.name: outcome for outcome in run_jobs([wrong, *jobs(tmp_path)], "local:2")}
    assert isinstance(outcomes["wrong"], Outcome)
    assert outcomes["wrong"].result is None
    assert outcomes["wrong"].kind == "NotFinite"
    assert outcomes["wrong"].exit_code == 3
    assert "is nan" in outcomes["wrong"].error or "is inf" in outcomes["wrong"].error
    (tmp_path / "wrong" / "metrics.jsonl").unlink(missing_ok=True)
    assert metrics(tmp_path) == metrics(in_turn)


def test_jobs_may_depend_on_the_outcomes_before_them(tmp_path: Path):
    known: list[int] = []

    def drawn():
        for number in range(3):
            yield Job(config(seed=number, steps=2 + len(known)), tmp_path / str(number))

    for outcome in run_jobs(drawn()):
        assert outcome.result is not None
        known.append(outcome.result["step"])
    assert known == [2, 3, 4]
    assert len(read_rows(tmp_path / "2" / "metrics.jsonl")) > 2


@pytest.mark.parametrize("name", ["local:0", "local:x", "cloud"])
def test_an_unknown_launcher_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match="a launcher is local:N"):
        next(run_jobs(jobs(tmp_path), name))
