"""The loop: the same run twice is the same; killed and resumed is the same; what stops it says so."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import toy

import linnet
from linnet.runs import checkpoints
from linnet.runs.config import LoopConfig, RunConfig, override
from linnet.runs.errors import DiskFull, Mismatch, NotFinite
from linnet.runs.records import read_metrics, read_result
from linnet.train import fabric, loggers, loop
from linnet.train.loop import train
from linnet.train.recorder import Recorder
from linnet.train.state import Store
from linnet.train.update import Updater

ROOT = str(Path(linnet.__file__).parents[1])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
SHORT = {
    # The rate of `linear` depends on the length of a run; some of these are compared with longer ones.
    **{"optimiser": "sgd", "lr": 0.5, "clip": 0.0, "epochs": 3, "schedule": "constant"},
    **{"log_every": 4, "checkpoint_seconds": 0.0, "device": "cpu"},
}
VARIANTS = {
    "sgd, plateau": {"schedule": "plateau", "clip": 0.5},
    "adam, ema": {
        **{"optimiser": "adam", "lr": 0.01, "epsilon": 0.01, "epsilon_unscaled": True},
        **{"ema": 0.9, "ema_warmup": True, "clip": 0.5, "clip_exact": True},
    },
    "adamw, cosine": {
        "optimiser": "adamw",
        "lr": 0.01,
        "weight_decay": 0.1,
        "schedule": "cosine",
        "warmup": 5,
    },
    "nt-asgd": {"optimiser": "nt-asgd", "lr": 5.0, "non_monotone": 1, "evaluate_every": 2},
    "adagrad, accumulated": {"optimiser": "adagrad", "accumulator": 1.0, "accumulate": 3, "lr": 0.1},
    "adamax, noam": {"optimiser": "adamax", "schedule": "noam", "warmup": 5, "width": 4, "lr": 0.1},
}


def config(**given: object) -> RunConfig:
    return override(RunConfig(task="toy"), {**SHORT, **given})


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes() + (folder / "metrics.csv").read_bytes()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoints.read_weights(folder / "last")


def test_loggers_get_every_row(tmp_path: Path):
    settings = config(logger=["csv", "tensorboard"])
    train(override(settings, {"steps": 8}), tmp_path)
    train(settings, tmp_path)
    assert list((tmp_path / "events").glob("events.out.tfevents.*"))
    logged = [
        row
        for part in sorted((tmp_path / "events").glob("version_*/metrics.csv"))
        for row in csv.DictReader(part.read_text().splitlines())
    ]
    for split in ("train", "valid"):
        steps = [int(row["step"]) for row in logged if row.get(f"{split}/loss")]
        # The first part ended with a validation that the whole run has not.
        known = {row["step"] for row in read_metrics(tmp_path, split)}
        assert known <= set(steps)


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_logger_that_is_not_installed_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loggers, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=f"--logger {name} needs .*pip install pytorch-lightning {name}"):
        train(config(logger=[name]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "parameters", "environment", "threads"),
    [
        (0, 10_000_000, {}, 1),
        (0, 10_000_001, {}, 3),
        (2, 1000, {}, 2),
        (0, 1000, {"OMP_NUM_THREADS": "3"}, 3),
    ],
)
def test_small_models_are_trained_with_one_thread(
    given: int, parameters: int, environment: dict[str, str], threads: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fabric, "TORCH_THREADS", 3)
    assert fabric.threads_of(LoopConfig(threads=given), parameters) == threads


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_run_twice_gives_the_same_metrics(tmp_path: Path, name: str):
    for place in "ab":
        train(config(**VARIANTS[name]), tmp_path / place)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert len(read_metrics(tmp_path / "a", "train")) >= 2


def test_another_seed_gives_other_metrics(tmp_path: Path):
    train(config(), tmp_path / "a")
    train(config(seed=2), tmp_path / "b")
    assert metrics(tmp_path / "a") != metrics(tmp_path / "b")


def test_the_test_belongs_to_the_last_epoch(tmp_path: Path):
    result = train(config(epochs=2), tmp_path)
    assert [row["epoch"] for row in read_metrics(tmp_path) if row["split"] != "train"] == [1, 2, 2]
    assert result["epoch"] == 2


def test_it_learns(tmp_path: Path):
    result = train(config(epochs=12, optimiser="adam", lr=0.03), tmp_path)
    losses = [row["loss"] for row in read_metrics(tmp_path, "valid")]
    assert losses[0] > 1.5 > losses[-1]
    assert result["valid"]["loss"] == min(losses)
    assert result["tokens"] == 12 * 240


class Killed(BaseException):
    """Not an Exception: nobody may catch it, as nobody catches kill -9."""


def killed_after(monkeypatch: pytest.MonkeyPatch, calls: int, owner: object, name: str) -> None:
    """The next-but-so-many call does half of its work: it does not return."""
    original, left = getattr(owner, name), [calls]

    def once(*arguments: object, **given: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return original(*arguments, **given)

    monkeypatch.setattr(owner, name, once)


PLACES = [
    (Updater, "update"),
    (Store, "save"),
    (loop.Run, "evaluate"),
    (Recorder, "record"),
    (Store, "keep_best"),
    (checkpoints, "settle"),
    (checkpoints.os, "replace"),
    (checkpoints, "write_synced"),
    (checkpoints, "write_tensors"),
    (checkpoints.shutil, "rmtree"),
]


@pytest.mark.parametrize("name", VARIANTS)
def test_cut_off_anywhere_and_resumed_is_as_if_it_had_not_been(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    settings = config(**VARIANTS[name], checkpoint_steps=3)
    train(settings, tmp_path / "whole")
    draw = random.Random(name)
    for owner, place in draw.sample(PLACES, 6):
        with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
            killed_after(patch, draw.randrange(1, 6), owner, place)
            train(settings, tmp_path / "cut")
            raise Killed  # it was through before the call came
    train(settings, tmp_path / "cut")
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    for key, value in weights(tmp_path / "whole").items():
        assert torch.equal(value, weights(tmp_path / "cut")[key])


def test_kill_9_at_random_moments(tmp_path: Path):
    given = {"epochs": 15, "checkpoint_steps": 5, "checkpoint_seconds": 0.0, "lr": 0.5, "device": "cpu"}
    words = [f"{name}={json.dumps(value)}" for name, value in given.items()]
    train(override(RunConfig(task="toy"), given), tmp_path / "whole")
    draw = random.Random(time.time_ns())
    kills = 0
    for _ in range(3):
        command = [sys.executable, str(Path(__file__).parent / "toy.py"), str(tmp_path / "cut"), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(draw.uniform(0.1, 0.7))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
    assert kills
    train(override(RunConfig(task="toy"), given), tmp_path / "cut")
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def test_a_finished_run_is_not_run_again_and_can_be_prolonged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = train(config(), tmp_path / "a")
    with monkeypatch.context() as patch:
        killed_after(patch, 0, loop.Run, "update")
        assert train(config(), tmp_path / "a") == first
    train(config(epochs=5), tmp_path / "a")
    train(config(epochs=5), tmp_path / "b")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


# ------------------------------------------------------------------------------------- stopping


def test_a_loss_that_is_no_number_stops_with_the_last_checkpoint_kept(tmp_path: Path):
    with pytest.raises(NotFinite, match=r"loss is nan .* at step 8 \(epoch 1, batch 8, .*of step 6, is in"):
        train(config(poison=7, checkpoint_steps=3), tmp_path)
    path, manifest = checkpoints.find(tmp_path, "last") or pytest.fail("no checkpoint")
    assert manifest["step"] == 6
    assert all(torch.isfinite(value).all() for value in checkpoints.read_weights(path).values())
    assert NotFinite.exit_code not in (0, 1, 2)


def test_where_nothing_was_kept_nothing_is_promised(tmp_path: Path):
    with pytest.raises(NotFinite, match=r"There is no checkpoint yet\. Try a smaller --lr, .* --overwrite"):
        train(config(poison=1), tmp_path)


def test_a_validation_that_is_no_number_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toy.ToyMetrics, "compute", lambda metrics: {"loss": float("nan")})
    with pytest.raises(
        NotFinite, match=r"validation loss is nan after step 12\. The last checkpoint, of step 10,"
    ):
        train(config(checkpoint_steps=5), tmp_path)


def test_a_full_disk_says_so_and_leaves_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, calls = checkpoints.sync, [0]

    def full(file: object) -> None:
        calls[0] += 1
        if calls[0] > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "sync", full)
        with pytest.raises(DiskFull, match=r"no room to write .* the last whole checkpoint is kept"):
            train(config(checkpoint_steps=3), tmp_path / "a")
    assert checkpoints.find(tmp_path / "a", "last")
    train(config(checkpoint_steps=3), tmp_path / "a")
    train(config(checkpoint_steps=3), tmp_path / "b")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


def test_a_run_directory_of_other_settings_is_refused(tmp_path: Path):
    train(config(epochs=1), tmp_path)
    with pytest.raises(Mismatch, match=r"lr was 0.5 and is now 0.25.*--overwrite"):
        train(config(epochs=1, lr=0.25), tmp_path)


def test_a_checkpoint_of_another_vocabulary_is_refused_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    train(config(epochs=1), tmp_path)
    monkeypatch.setattr(toy.ToyTask, "describe", lambda task: {"vocabulary": "eight"})
    with pytest.raises(Mismatch, match="vocabulary is 'seven' there and 'eight' here"):
        train(config(epochs=2), tmp_path)


def test_two_processes_do_not_share_a_directory(tmp_path: Path):
    tmp_path.mkdir(exist_ok=True)
    with loop.claim(tmp_path), pytest.raises(Mismatch, match="another process is training"):
        train(config(), tmp_path)


# ------------------------------------------------------------------------------------- the parts


def test_early_stop_and_steps(tmp_path: Path):
    assert train(config(steps=5, epochs=9), tmp_path / "a")["step"] == 5
    assert [row["step"] for row in read_metrics(tmp_path / "a", "valid")] == [5]
    result = train(config(epochs=40, lr=3.0, patience=2), tmp_path / "b")
    losses = [row["loss"] for row in read_metrics(tmp_path / "b", "valid")]
    assert losses[-1] > min(losses[:-3])
    assert result["epoch"] < 40


def test_finetuning_starts_with_the_best_weights_of_a_run(tmp_path: Path):
    train(config(), tmp_path / "a")
    train(
        config(start_from=str(tmp_path / "a"), optimiser="asgd", lr=1e-9, epochs=1, dropout=0.0),
        tmp_path / "b",
    )
    best = checkpoints.read_weights(tmp_path / "a" / "best")
    assert all(torch.allclose(value, best[key], atol=1e-6) for key, value in weights(tmp_path / "b").items())
    with pytest.raises(Mismatch, match="weights is"):
        train(config(start_from=str(tmp_path / "a"), hidden_size=8), tmp_path / "c")


def test_a_wrong_start_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(Mismatch, match="has no whole checkpoint 'best'"):
        train(config(start_from=str(tmp_path / "nowhere")), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_run_that_has_begun_needs_its_start_no_more(tmp_path: Path):
    train(config(epochs=1), tmp_path / "a")
    train(config(start_from=str(tmp_path / "a"), epochs=1), tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    assert train(config(start_from=str(tmp_path / "a"), epochs=2), tmp_path / "b")["step"] == 24


def test_a_file_is_no_run_directory(tmp_path: Path):
    (tmp_path / "file").write_text("precious")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ValueError, match=r"cannot be a run directory .* give another --run-dir"):
            train(config(), place)


def test_the_average_of_weights_is_what_is_kept(tmp_path: Path):
    train(config(ema=0.9), tmp_path / "a")
    best, last = checkpoints.read_weights(tmp_path / "a" / "best"), weights(tmp_path / "a")
    assert not torch.equal(best["out.weight"], last["out.weight"])


def test_accumulating_steps_by_the_mean_of_the_gradients(tmp_path: Path):
    settings = config(accumulate=3, dropout=0.0, steps=1, log_every=1)
    torch.manual_seed(settings.loop.seed)
    task = toy.ToyTask(settings.data, settings.model, 1)
    net, carry = task.build(), None
    for batch in list(task.batches("train", 1))[:3]:
        result = task.step(net, batch, carry)
        (result.objective / 3).backward()
        carry = result.carry
    train(settings, tmp_path)
    for name, weight in net.named_parameters():
        assert weight.grad is not None
        assert torch.allclose(weights(tmp_path)[name], weight.detach() - 0.5 * weight.grad, atol=1e-6)
    assert read_metrics(tmp_path, "train")[0]["norm"] == pytest.approx(float(carry.h.norm()), rel=0.5)


@pytest.mark.parametrize(("over", "ratio"), [("tokens", 1.0), ("sequences", 5.0)])
def test_the_loss_over_sequences_is_the_sum_over_steps(tmp_path: Path, over: str, ratio: float):
    train(config(dropout=0.0, steps=1, log_every=1), tmp_path / "a")
    train(config(dropout=0.0, steps=1, log_every=1, loss_over=over), tmp_path / "b")
    a, b = (read_metrics(tmp_path / place, "train")[0]["gradient_norm"] for place in "ab")
    assert b == pytest.approx(ratio * a, rel=1e-5)


def test_mixed_precision_runs(tmp_path: Path):
    train(config(precision="bf16-mixed", epochs=1), tmp_path / "a")
    train(config(epochs=1), tmp_path / "b")
    a, b = (read_metrics(tmp_path / place, "valid")[0]["loss"] for place in "ab")
    assert a != b
    assert a == pytest.approx(b, rel=0.05)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_a_state_is_carried_in_its_own_precision(tmp_path: Path, precision: str):
    settings = config(precision=precision, epochs=2, checkpoint_steps=5)
    train(settings, tmp_path / "whole")
    train(override(settings, {"steps": 7}), tmp_path / "cut")
    train(settings, tmp_path / "cut")
    rows = [[row for row in read_metrics(tmp_path / name) if row["step"] != 7] for name in ("whole", "cut")]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 5


def half_on_cpu(settings: object) -> object:
    """Fabric with a scaler of gradients, which doubles every third step, on a CPU."""
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
    return Fabric(accelerator="cpu", devices=1, plugins=MixedPrecision("16-mixed", "cpu", scaler))


def scaler_of(folder: Path) -> dict[str, float]:
    return checkpoints.read_tensors(folder / "last" / "state.pt")["scaler"]


def test_the_scaler_of_16_bits_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop, "make_fabric", half_on_cpu)
    settings = config(precision="16-mixed", epochs=1, log_every=1)
    train(settings, tmp_path / "whole")
    train(override(settings, {"steps": 7}), tmp_path / "cut")
    assert (scaler_of(tmp_path / "cut")["scale"], scaler_of(tmp_path / "cut")["_growth_tracker"]) == (1024, 1)
    train(settings, tmp_path / "cut")
    assert scaler_of(tmp_path / "cut") == scaler_of(tmp_path / "whole")
    assert scaler_of(tmp_path / "whole")["scale"] == 256 * 2**4


def test_the_norm_of_a_gradient_is_not_that_of_a_scaled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = config(steps=1, log_every=1, dropout=0.0)
    train(settings, tmp_path / "whole")
    monkeypatch.setattr(loop, "make_fabric", half_on_cpu)
    train(override(settings, {"precision": "16-mixed"}), tmp_path / "half")
    one, two = (read_metrics(tmp_path / name, "train")[0] for name in ("whole", "half"))
    assert two["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=0.01)


@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-12), ("16-mixed", 1e-5)])
def test_a_gradient_is_clipped_to_the_very_norm(
    precision: str, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By SGD with a rate of 1, the weights move by the clipped gradient."""
    if precision == "16-mixed":
        monkeypatch.setattr(loop, "make_fabric", half_on_cpu)
    one = {"precision": precision, "steps": 1, "clip": 0.1, "clip_exact": True}
    start, end = (tmp_path / name for name in ("start", "end"))
    train(config(**one, lr=0.0), start)
    train(config(**one, lr=1.0), end)
    moves = [weight - weights(start)[name] for name, weight in weights(end).items()]
    assert torch.nn.utils.get_total_norm(moves).item() == pytest.approx(0.1, rel=tolerance)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="16 bits are for an accelerator")
def test_16_bits_on_a_cpu_are_refused_and_not_replaced(tmp_path: Path):
    with pytest.raises(ValueError, match=r"16-mixed needs a GPU .* use bf16-mixed"):
        train(config(precision="16-mixed", device="auto"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


ALIKE = {
    **{"dropout": 0.0, "epochs": 2, "log_every": 1, "device": "cpu"},
    **{"optimiser": "sgd", "lr": 0.5, "clip": 0.25, "clip_exact": True, "schedule": "constant"},
}
"""Without dropout two processes do what one does."""
CUT = {
    **{"epochs": 12, "optimiser": "adam", "lr": 0.01, "schedule": "constant", "ema": 0.9, "log_every": 7},
    "clip": 0.25,
    **{"checkpoint_steps": 5, "checkpoint_seconds": 0.0, "device": "cpu"},
}


def words_of(folder: Path, given: dict[str, object]) -> list[str]:
    return [str(folder), *(f"{name}={json.dumps(value)}" for name, value in given.items())]


BEGUN = {**ALIKE, "log_every": 5, "steps": 13, "optimiser": "adam", "ema": 0.9, "lr": 0.01}
"""A run that stops in the middle of a row and of an epoch."""


def torchrun(*words: str) -> subprocess.Popen[str]:
    """Toy runs, one after another, by two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*launch, "--master-port", free_port(), str(Path(__file__).parent / "toy.py"), *words]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    return subprocess.Popen(command, **how)  # type: ignore[call-overload]


def run_by(processes: int, *words: str) -> None:
    """Toy runs by forks of one process, with the environment of srun; starting them takes little time."""
    forks = {"TOY_FORKS": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [sys.executable, str(Path(__file__).parent / "toy.py"), *words]
    how = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    done = subprocess.run(command, env={**ENVIRONMENT, **forks}, **how)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr


LEAVE = """
import atexit, torch
from linnet.train.fabric import leave_group_at_exit
torch.distributed.init_process_group("gloo", init_method="file://{file}", rank=0, world_size=1)
atexit.register(lambda: print(torch.distributed.is_initialized()))
leave_group_at_exit()
"""


def test_a_process_leaves_its_group_before_it_ends(tmp_path: Path):
    """Otherwise a thread of gloo may abort it at its very end, and torchrun calls the run failed."""
    command = [sys.executable, "-c", LEAVE.format(file=tmp_path / "group")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split()[-1] == "False"


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs; starting processes takes longer than what they do."""
    folder = tmp_path_factory.mktemp("by-two")
    whole = *words_of(folder / "alike", ALIKE), "then", *words_of(folder / "cut", CUT)
    with torchrun(*whole, "then", *words_of(folder / "begun", BEGUN)) as process:
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return folder


def test_two_processes_give_the_loss_of_one(by_two: Path, tmp_path: Path):
    train(override(RunConfig(task="toy"), ALIKE), tmp_path)
    one, two = (read_metrics(place) for place in (tmp_path, by_two / "alike"))
    assert [row["loss"] for row in two] == pytest.approx([row["loss"] for row in one], rel=1e-5)
    assert len(one) > 24


@pytest.mark.parametrize("processes", [1, 4])
def test_a_run_of_two_processes_continues_with_another_number(by_two: Path, tmp_path: Path, processes: int):
    longer = {**BEGUN, "steps": 0}
    train(override(RunConfig(task="toy"), longer), tmp_path / "whole")
    shutil.copytree(by_two / "begun", tmp_path / "run")
    if processes == 1:
        train(override(RunConfig(task="toy"), longer), tmp_path / "run")
    else:
        run_by(processes, *words_of(tmp_path / "run", longer))
    # Where it stopped it was validated, as the whole run was not.
    whole, run = (
        [row for row in read_metrics(tmp_path / name) if row["step"] != 13] for name in ("whole", "run")
    )
    assert [row["step"] for row in whole] == [row["step"] for row in run]
    for one, other in zip(whole, run, strict=True):
        for name in ("loss", "gradient_norm"):
            assert other.get(name, 0) == pytest.approx(one.get(name, 0), rel=1e-5)
    last = [read_result(tmp_path / name) or {} for name in ("whole", "run")]
    assert last[0]["tokens"] == last[1]["tokens"]
    assert last[1]["test"]["loss"] == pytest.approx(last[0]["test"]["loss"], rel=1e-5)


def kill_one_of_two(folder: Path) -> None:
    """kill -9 for one of the processes, at some moment after the first checkpoint."""
    draw = random.Random(time.time_ns())
    with torchrun(*words_of(folder, CUT)) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline().split()[2]) for _ in range(2)]
        while not (folder / "last").exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.2))
        os.kill(draw.choice(pids), signal.SIGKILL)
        process.communicate(timeout=300)
    assert process.returncode != 0


@pytest.fixture(scope="module")
def continued(by_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that were cut off, one of them with a damaged file, continued by the same processes."""
    folder = tmp_path_factory.mktemp("continued")
    kill_one_of_two(folder / "killed")
    assert checkpoints.find(folder / "killed", "last")
    assert not (folder / "killed" / "result.json").exists()
    shutil.copytree(by_two / "cut", folder / "damaged")
    (folder / "damaged" / "result.json").unlink()
    (folder / "damaged" / "last" / "rank-1.pt").write_bytes(b"damaged")
    run_by(2, *words_of(folder / "killed", CUT), "then", *words_of(folder / "damaged", CUT))
    return folder


def test_one_of_two_processes_is_killed_and_the_run_goes_on(by_two: Path, continued: Path):
    assert metrics(continued / "killed") == metrics(by_two / "cut")


def test_two_processes_go_on_from_the_same_checkpoint(by_two: Path, continued: Path):
    """Only the second one reads what is damaged; both must go back to the checkpoint before."""
    assert metrics(continued / "damaged") == metrics(by_two / "cut")
    assert (continued / "damaged" / "last.damaged").exists()
