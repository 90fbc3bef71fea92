"""Checkpoints, records, optimisers, dynamic evaluation, search: each alone."""

from __future__ import annotations

import copy
import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy  # noqa: F401, makes the kind of task known
from golden_cases import matching
from torch import nn

from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.runs import checkpoints, trees
from linnet.runs.config import OptimiserConfig
from linnet.runs.errors import Mismatch
from linnet.runs.records import Rows, read_rows, write_json
from linnet.tasks.language import TextMetrics
from linnet.train import dynamic, optimisers
from linnet.train.progress import Plain, time_left
from linnet.units import LSTM

# ----------------------------------------------------------------------------------- checkpoints


def written(folder: Path, step: int) -> None:
    new = checkpoints.stage(folder, "last")
    checkpoints.write_weights(new / checkpoints.WEIGHTS, {"w": torch.full((3,), float(step))})
    checkpoints.publish(folder, "last", {"step": step})


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path):
    assert checkpoints.find(tmp_path, "last") is None
    written(tmp_path, 1)
    written(tmp_path, 2)
    path, manifest = checkpoints.find(tmp_path, "last") or pytest.fail("none")
    assert manifest["step"] == 2
    assert checkpoints.read_weights(path)["w"].tolist() == [2.0, 2.0, 2.0]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["last", "last.old"]


@pytest.mark.parametrize("harm", ["truncate", "flip", "no manifest", "half a manifest", "a file is missing"])
def test_a_checkpoint_that_is_not_whole_is_not_read(tmp_path: Path, harm: str):
    written(tmp_path, 1)
    shutil.copytree(tmp_path / "last", tmp_path / "last.old")
    written_over = tmp_path / "last"
    weights, manifest = written_over / checkpoints.WEIGHTS, written_over / checkpoints.MANIFEST
    manifest.write_text(manifest.read_text().replace('"step": 1', '"step": 2'))
    content = weights.read_bytes()
    if harm == "truncate":
        weights.write_bytes(content[:-1])
    elif harm == "flip":
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "no manifest":
        manifest.unlink()
    elif harm == "half a manifest":
        manifest.write_text(manifest.read_text()[:20])
    else:
        weights.unlink()
    path, found = checkpoints.find(tmp_path, "last") or pytest.fail("none")
    assert (path.name, found["step"]) == ("last.old", 1)


def test_a_state_is_taken_apart_and_put_together(tmp_path: Path):
    _, state = LSTM(2, 3)(torch.randn(4, 1, 2))
    whole = {"a": [state, (None, 3)], "b": torch.ones(2)}
    checkpoints.write_tensors(tmp_path / "x.pt", trees.to_values(whole))
    again = trees.from_values(checkpoints.read_tensors(tmp_path / "x.pt"), torch.device("cpu"))
    assert type(again["a"][0]) is type(state)
    assert torch.equal(again["a"][0].c, state.c)
    assert again["a"][1] == (None, 3)


def test_a_state_of_an_unknown_class_is_refused():
    with pytest.raises(Mismatch, match="not a named tuple"):
        trees.from_values({"tuple": [], "class": "os:system"}, torch.device("cpu"))


# --------------------------------------------------------------------------------------- records


def test_rows_are_appended_and_cut_back(tmp_path: Path):
    rows = Rows(tmp_path)
    rows.add({"step": 1, "epoch": 1, "split": "train", "loss": 0.1 + 0.2, "lr": 1.0})
    lengths = rows.lengths()
    rows.add({"step": 2, "epoch": 1, "split": "train", "loss": 5.0})
    rows.cut(lengths)
    assert [row["loss"] for row in read_rows(rows.jsonl)] == [0.1 + 0.2]
    with open(rows.csv, newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["name"], float(line["value"])) for line in lines] == [("loss", 0.1 + 0.2), ("lr", 1.0)]
    with pytest.raises(Mismatch, match="rows are missing"):
        rows.cut([lengths[0] + 1, lengths[1]])


def test_a_row_that_is_being_written_is_left_out(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"a": 1}\n{"a": ')
    assert read_rows(tmp_path / "metrics.jsonl") == [{"a": 1}]


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_json(tmp_path / "x.json", {"old": 1})
    monkeypatch.setattr(
        "linnet.runs.records.os.replace", lambda *_: (_ for _ in ()).throw(OSError(5, "lost"))
    )
    with pytest.raises(OSError, match="lost"):
        write_json(tmp_path / "x.json", {"new": 1})
    assert (tmp_path / "x.json").read_text() == '{\n  "old": 1\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_plain_lines(capsys: pytest.CaptureFixture[str]):
    lines = Plain(every=0.0, name="sru")
    lines.begin(1234, 0, 10)
    lines.step(5, 1000, 2.0, 1.5, 0.1)
    lines.row({"step": 5, "epoch": 1, "split": "valid", "loss": 1.25}, 500.0)
    said = capsys.readouterr().out
    assert "sru: step 5/10  loss 1.5000  500 tokens/s  0:00:0" in said
    assert "sru: epoch 1  step 5  valid: loss 1.25  500 tokens/s" in said
    assert time_left(5, 5, 10, 3600.0) == "1:00:00 left"
    assert time_left(0, 5, 10, 1.0) == time_left(5, 5, None, 1.0) == ""


# ------------------------------------------------------------------------------------ optimisers


def test_the_average_of_weights():
    weight = nn.Parameter(torch.tensor([0.0]))
    average = optimisers.Average([weight], decay=0.9, warmup=True)
    weight.data.fill_(1.0)
    average.update(1)
    assert float(average.shadows[0]) == pytest.approx(1 - 2 / 11)
    with optimisers.standing_in([weight], average.shadows):
        assert float(weight.detach()) == pytest.approx(1 - 2 / 11)
    assert float(weight.detach()) == 1.0


def test_nt_asgd_switches_once_and_for_all():
    settings = OptimiserConfig(optimiser="nt-asgd", non_monotone=2)
    assert optimisers.current(settings, [1, 5, 5]) == "sgd"
    assert optimisers.current(settings, [1, 5, 5, 5]) == "asgd"
    assert optimisers.current(settings, [1, 5, 5, 5, 0.1]) == "asgd"


def test_optimisers_are_those_of_torch_with_the_papers_options():
    weight = [nn.Parameter(torch.zeros(1))]
    adagrad = optimisers.make("adagrad", OptimiserConfig(accumulator=1.0), weight)
    assert float(adagrad.state[weight[0]]["sum"]) == 1.0
    assert optimisers.make("adam", OptimiserConfig(amsgrad=True), weight).defaults["amsgrad"]
    asgd = optimisers.make("asgd", OptimiserConfig(), weight).defaults
    assert (asgd["t0"], asgd["lambd"]) == (0, 0.0)


@pytest.fixture(scope="module", params=matching("optimisers*"), ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    """Weights after each of six updates by TensorFlow's rules, from the gradients before clipping."""
    return dict(np.load(request.param))


def tensorflow(recorded: dict[str, np.ndarray], **given: Any) -> OptimiserConfig:
    clip = json.loads(str(recorded["meta"]))["clip"]
    shared = {"lr": 0.01, "epsilon_unscaled": True, "clip": clip, "clip_exact": True}
    return OptimiserConfig(**{**shared, **given})


def updates(recorded: dict[str, np.ndarray], settings: OptimiserConfig) -> Iterator[list[nn.Parameter]]:
    """Yield the weights after each update."""
    weights = [nn.Parameter(torch.from_numpy(recorded[f"p0.{name}"].copy())) for name in "ab"]
    optimiser = optimisers.make(settings.optimiser, settings, weights)
    for number in range(len(recorded["g.a"])):
        for weight, name in zip(weights, "ab", strict=True):
            weight.grad = torch.from_numpy(recorded[f"g.{name}"][number].copy())
        norm = optimisers.gradient_norm(weights)
        np.testing.assert_allclose(norm.item(), recorded["global_norm"][number], rtol=1e-14)
        optimisers.clip(weights, norm, settings)
        optimiser.step()
        yield weights


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adam_tf_1e-8", {"optimiser": "adam"}),
        ("adam_keras_1e-7", {"optimiser": "adam", "epsilon": 1e-7}),
        ("adam_tf_1e-2_demo", {"optimiser": "adam", "epsilon": 1e-2}),
        ("adadelta", {"optimiser": "adadelta", "lr": 0.5, "rho": 0.95, "epsilon": 1e-6}),
    ],
)
def test_optimisers_take_the_recorded_steps(
    name: str, settings: dict[str, Any], recorded: dict[str, np.ndarray]
):
    for number, weights in enumerate(updates(recorded, tensorflow(recorded, **settings))):
        for weight, part in zip(weights, "ab", strict=True):
            expected = recorded[f"{name}.{part}"][number]
            np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12, atol=1e-15)


def test_the_average_of_weights_is_the_recorded_one(recorded: dict[str, np.ndarray]):
    settings = tensorflow(recorded, optimiser="adam")
    average: optimisers.Average | None = None
    for number, weights in enumerate(updates(recorded, settings)):
        if average is None:
            start = [nn.Parameter(torch.from_numpy(recorded[f"p0.{name}"].copy())) for name in "ab"]
            average = optimisers.Average(start, decay=0.9999, warmup=True)
            average.parameters = weights
        average.update(number + 1)
        for shadow, part in zip(average.shadows, "ab", strict=True):
            expected = recorded[f"ema.{part}"][number]
            np.testing.assert_allclose(shadow.numpy(), expected, rtol=1e-12, atol=1e-15)


def test_a_resumed_adam_of_tensorflow_takes_the_same_steps():
    settings = OptimiserConfig(optimiser="adam", epsilon=1e-2, epsilon_unscaled=True)
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    first, second = (optimisers.make("adam", settings, [weight]) for weight in weights)
    for _ in range(3):
        weights[0].grad = torch.tensor([1.0, -0.1])
        first.step()
    weights[1].data.copy_(weights[0].data)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for weight, optimiser in zip(weights, (first, second), strict=True):
        weight.grad = torch.tensor([0.5, 0.2])
        optimiser.step()
    assert torch.equal(*weights)


def test_weight_decay_is_the_gradient_of_half_the_squares():
    """The L2 penalty of the LRN authors: weight_decay times the sum of tf.nn.l2_loss, sum(w^2) / 2."""
    with_option, with_penalty = (nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    settings = OptimiserConfig(optimiser="sgd", lr=0.1, weight_decay=0.3)
    with_option.grad = torch.zeros(2)
    optimisers.make("sgd", settings, [with_option]).step()
    (0.3 * with_penalty.square().sum() / 2).backward()
    optimisers.make("sgd", OptimiserConfig(optimiser="sgd", lr=0.1), [with_penalty]).step()
    torch.testing.assert_close(with_option, with_penalty)


def test_adamw_decays_weights_and_not_gradients():
    weight = nn.Parameter(torch.tensor([2.0]))
    weight.grad = torch.zeros(1)
    optimisers.make("adamw", OptimiserConfig(lr=0.1, weight_decay=0.5), [weight]).step()
    assert float(weight.detach()) == pytest.approx(2.0 * (1 - 0.1 * 0.5))


# ---------------------------------------------------------------------------- dynamic evaluation


def tiny() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(
        5, LanguageModelConfig(unit="rnn", embedding_size=3, hidden_size=4, num_layers=1, ar=1.0)
    )


TEXT = torch.arange(60) * 2 % 5


def test_a_window_is_scored_before_it_is_learnt():
    """With one window in all, nothing is learnt in time; the weights are then as before."""
    model, settings = tiny().eval(), dynamic.DynamicConfig(dynamic_length=59, dynamic_batch=2)
    known = dynamic.statistics(model, TEXT, settings)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    figures = dynamic.evaluate(model, TEXT, known, settings, TextMetrics("char"))
    with torch.no_grad():
        parts = model.loss(TEXT[:-1, None], TEXT[1:, None])
    assert figures["loss"] == pytest.approx(float(parts.nll) / 59, rel=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config.ar == 1.0


def test_learning_on_the_way_helps_on_a_regular_text():
    model, settings = tiny(), dynamic.DynamicConfig(dynamic_lr=0.03, dynamic_batch=2)
    known = dynamic.statistics(model, TEXT, settings)
    still = dynamic.evaluate(model, TEXT, known, dynamic.DynamicConfig(dynamic_lr=0.0), TextMetrics("char"))
    assert dynamic.evaluate(model, TEXT, known, settings, TextMetrics("char"))["loss"] < still["loss"] - 0.1


def test_the_update_is_that_of_the_formula():
    weight = nn.Parameter(torch.tensor([1.0, 1.0]))
    weight.grad = torch.tensor([0.5, 0.5])
    known = dynamic.Statistics([weight], [torch.tensor([1.0, 3.0])])
    settings = dynamic.DynamicConfig(dynamic_lr=0.1, dynamic_decay=0.8, dynamic_epsilon=1.0)
    dynamic.update(known, [torch.zeros(2)], dynamic.pulls(known, 0.8), settings)
    # mean R is 2: the pulls are .8 * .5 = .4 and .8 * 1.5 = 1.2, of which 1 is left.
    assert weight.tolist() == pytest.approx([1 - 0.4 - 0.1 * 0.5 / 2, 1 - 1.0 - 0.1 * 0.5 / 4])
