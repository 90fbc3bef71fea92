"""Tasks whose models read the vectors of an encoder: the file of vectors, tuning, trained runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_encoder import write_encoder

import linnet
from linnet.data import encoders
from linnet.data.errors import DataError
from linnet.data.vector_file import VectorFile
from linnet.deploy.hub import export_hub
from linnet.models.classifier import Classifier
from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_result
from linnet.tasks import TASKS, contexts
from linnet.train.loop import Run, train
from tools import small_tasks

SOME: dict[str, list[Any]] = {
    "classify": ["a song of time", "unheard-of"],
    "nli": ["a bird sings ||| it is loud"],
    "tag": ["Anna sang in Rome.", ""],
    "translate": ["a bird sings", ""],
    "read": ["Who sang? ||| A bird sang in the tree."],
}
SHORT = {"steps": 3, "evaluate_every": 2, "unit": "lrn", "num_layers": 1, "device": "cpu", "threads": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, `bert`, and the data of all tasks, `files`."""
    folder = tmp_path_factory.mktemp("context")
    write_encoder(folder / "bert")
    small_tasks.write_files(folder / "files")
    return folder


def config_of(place: Path, task: str, **more: Any) -> RunConfig:
    own = small_tasks.settings_of(task, place / "files")
    return override(RunConfig(task=task), {**own, **SHORT, "context": str(place / "bert"), **more})


def task_of(config: RunConfig) -> Any:
    return TASKS[config.task](config.data, config.model, config.loop.seed)


@pytest.mark.parametrize("task", SOME)
def test_a_task_reads_the_vectors_of_an_encoder(place: Path, tmp_path: Path, task: str):
    config = config_of(place, task, context_layers="mix", context_words="mean")
    train(config, tmp_path / "run")
    names = [each.name for each in tmp_path.iterdir() if not each.name.startswith(".")]
    assert len(names) == 2
    assert any(name.endswith("-bert-mix-mean.vectors") for name in names)
    found = linnet.load(tmp_path / "run")
    # Without the file, the encoder gives the same.
    assert found.evaluate("test") == pytest.approx(read_result(tmp_path / "run")["test"])  # type: ignore[index]
    kept = len(found.task.contexts.keys)
    answers = found.predict(SOME[task])
    assert [found.predict([each])[0] for each in SOME[task]] == answers
    # A service that answers for weeks keeps no texts.
    assert len(found.task.contexts.keys) == kept


def test_vectors_come_from_the_file(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = config_of(place, "nli")
    train(config, tmp_path / "one")

    def refuse(*_: Any) -> None:
        raise AssertionError("the encoder was run")

    monkeypatch.setattr(contexts, "encode", refuse)
    # Another unit, which reads the same texts in the same folder.
    result = train(config_of(place, "nli", unit="sru"), tmp_path / "two")
    assert result["step"] == 3
    with pytest.raises(AssertionError, match="the encoder was run"):
        train(config_of(place, "nli", context_words="mean"), tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_folds_share_a_file(place: Path, tmp_path: Path):
    for fold in (0, 1):
        train(config_of(place, "classify", fold=fold), tmp_path / f"fold{fold}")
    assert len([*tmp_path.glob("*.vectors")]) == 1


def test_other_texts_or_another_encoder_end_before_training(place: Path, tmp_path: Path):
    config = config_of(place, "classify")
    train(config, tmp_path / "run")
    (path,) = tmp_path.glob("*.vectors")
    texts = tmp_path / "texts.csv"
    texts.write_text("text,label\n" + "a new song,bird\na unit of time,clock\n" * 20)
    with pytest.raises(
        DataError, match=r"texts-bert-last-first.vectors has vectors of other texts; delete it"
    ):
        train(override(config, {"path": str(texts)}), tmp_path / "other")
    other = write_encoder(tmp_path / "bert", seed=1)
    with pytest.raises(DataError, match="has vectors of another encoder; delete it, or give another"):
        train(override(config, {"context": str(other)}), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    train(
        override(config, {"context": str(other), "context_file": str(tmp_path / "new")}), tmp_path / "other"
    )
    assert (tmp_path / "new").stat().st_size == path.stat().st_size


KILLED = """
import os, signal, sys
from linnet.data import vector_file
from linnet.tasks import contexts
from linnet.cli import main

contexts.GROUP, write = 6, vector_file.VectorFile.write

def write_and_die(self, first, rows):
    write(self, first, rows[:-1] if first else rows)
    if first:
        os.kill(os.getpid(), signal.SIGKILL)

vector_file.VectorFile.write = write_and_die
main(sys.argv[1:])
"""


def test_a_run_that_is_killed_while_vectors_are_computed_goes_on(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = config_of(place, "tag", steps=1, decoder="softmax")
    options = ["--path", str(place / "files" / "tagged.txt"), "--context", str(place / "bert")]
    run = str(tmp_path / "killed" / "run")
    command = [sys.executable, "-c", KILLED, "train", "tag", *options, "--run-dir", run]
    assert subprocess.run(command, check=False).returncode == -9
    (path,) = (tmp_path / "killed").glob("*.vectors")
    assert not Path(run).exists()
    size = path.stat().st_size
    monkeypatch.setattr(contexts, "GROUP", 6)
    written: list[int] = []
    write = VectorFile.write

    def write_and_note(self: VectorFile, first: int, rows: torch.Tensor) -> None:
        written.append(first)
        write(self, first, rows)

    monkeypatch.setattr(VectorFile, "write", write_and_note)
    train(config, run)
    # The first group, which was whole, is not computed again.
    assert written[0] > 0
    task_of(config).compute_files(tmp_path / "whole" / "run", lambda *_: None)
    assert size < path.stat().st_size
    assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()


def test_a_finished_run_needs_no_file(place: Path, tmp_path: Path):
    config = config_of(place, "tag")
    result = train(config, tmp_path / "run")
    (path,) = tmp_path.glob("*.vectors")
    path.unlink()
    assert train(config, tmp_path / "run") == result
    assert not path.exists()


# ------------------------------------------------------------------------------------ tuned encoders


def test_an_encoder_is_tuned_at_its_own_rate_and_resumes_exactly(place: Path, tmp_path: Path):
    config = config_of(place, "classify", context_tuned=True, context_lr=1e-4, lr=1e-2, schedule="constant")
    run = Run(config, tmp_path / "rates", *fabric_and_silence(config))
    groups = run.updater.optimiser.param_groups
    assert sorted(group["share"] for group in groups) == [pytest.approx(0.01), 1.0]
    before = {name: weight.clone() for name, weight in run.updater.model.state_dict().items()}
    train(config, tmp_path / "run")
    assert not [*tmp_path.glob("*.vectors")]
    after = linnet.load(tmp_path / "run", "last").model.state_dict()
    name = "context.encoder.encoder.layer.0.output.dense.weight"
    # Adam moves a weight by about the learning rate in each of the first updates.
    assert 0 < (after[name] - before[name]).abs().max() <= 3.1e-4
    assert (after["output.weight"] - before["output.weight"]).abs().max() > 5e-3
    train(override(config, {"steps": 1}), tmp_path / "resumed")
    train(config, tmp_path / "resumed")
    assert (tmp_path / "resumed" / "last" / "model.safetensors").read_bytes() == (
        tmp_path / "run" / "last" / "model.safetensors"
    ).read_bytes()


def fabric_and_silence(config: RunConfig) -> tuple[Any, Any]:
    from linnet.train.fabric import make_fabric
    from linnet.train.progress import Silent

    return make_fabric(config.loop), Silent()


def test_a_new_tuned_model_has_the_weights_of_the_encoder(place: Path):
    task = task_of(config_of(place, "nli", context_tuned=True))
    there = task.build().context.encoder.state_dict()
    for name, weight in encoders.load(task.contexts.encoder).state_dict().items():
        assert torch.equal(there[name], weight)


# ------------------------------------------------------------------------------------- trained runs


def forget() -> None:
    """As a new process would."""
    encoders.describe.cache_clear()
    encoders.weights.cache_clear()


def test_what_a_run_needs_of_its_encoder(place: Path, tmp_path: Path):
    """A tuned encoder is in the run; of another one, its weights are not."""
    shutil.copytree(place / "bert", tmp_path / "bert")
    for tuned in (True, False):
        config = config_of(place, "classify", context=str(tmp_path / "bert"), context_tuned=tuned)
        train(config, tmp_path / f"run-{tuned}")
    moved = (tmp_path / "bert").rename(tmp_path / "moved")
    forget()
    assert linnet.load(tmp_path / "run-True").predict("a song")[0]["label"] in ("bird", "clock")
    found = linnet.load(tmp_path / "run-False")
    with pytest.raises(FileNotFoundError, match="is not an encoder that transformers can load"):
        found.predict("a song")
    write_encoder(tmp_path / "bert", seed=1)
    forget()
    with pytest.raises(DataError, match="another encoder than the one with which this run was trained"):
        found.predict("a song")
    shutil.rmtree(tmp_path / "bert")
    moved.rename(tmp_path / "bert")
    forget()
    assert len(found.predict(["a song", "a bird"])) == 2


def test_exports_say_why_not(place: Path, tmp_path: Path):
    model = task_of(config_of(place, "classify", pooling="last", bidirectional=False, counts="none")).build()
    for export in (linnet.export_c, linnet.export_js, linnet.export_wasm, linnet.export_onnx):
        with pytest.raises(ValueError, match="it reads the vectors of an encoder of transformers"):
            export(model, tmp_path / "out")


@pytest.mark.parametrize("tuned", [True, False])
def test_a_run_is_exported_for_the_hub(place: Path, tmp_path: Path, tuned: bool):
    train(config_of(place, "classify", context_tuned=tuned), tmp_path / "run")
    run = linnet.load(tmp_path / "run")
    folder = export_hub(run, tmp_path / "hub")
    assert (folder / "context.json").read_bytes() == (tmp_path / "run" / "context.json").read_bytes()
    again = Classifier.from_pretrained(folder).state_dict()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(again[name], weight)
    # Another way out of a run, which runs the model without the encoder.
    with pytest.raises(
        ValueError, match=r"the lens runs a model step by step.* it reads the vectors of an encoder"
    ):
        linnet.lens(run)
